//! A durable ordered map: the catalog and, for now, the coordinators' state.

mod rocks;
mod sim;

pub use rocks::RocksStore;
pub use sim::SimStore;

use crate::error::{Error, ErrorKind, Result};

/// One change: a key and its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// An ordered map whose writes are durable when they return.
pub trait KvStore: Send + Sync + 'static {
    /// The value of `key`.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// All entries whose key begins with `prefix`, in key order.
    ///
    /// # Errors
    /// The store's.
    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Applies all changes or none, and syncs.
    ///
    /// # Errors
    /// The store's; nothing is known of the changes then.
    fn write(&self, changes: &[Change]) -> Result<()>;
}

const VALUE_VERSION: u8 = 1;

/// Frames a stored value: version, payload, CRC (docs/storage-format.md §6).
#[must_use]
pub fn seal_value(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 5);
    out.push(VALUE_VERSION);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Takes the payload out of a stored value.
///
/// # Errors
/// `Corrupt` when the checksum or the version is not ours.
pub fn open_value(bytes: &[u8]) -> Result<&[u8]> {
    let corrupt = |what: &str| Err(Error::new(ErrorKind::Corrupt, format!("a stored value has {what}")));
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return corrupt("no checksum") };
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return corrupt("another checksum");
    }
    match body.split_first() {
        Some((&VALUE_VERSION, payload)) => Ok(payload),
        _ => corrupt("an unknown version"),
    }
}
