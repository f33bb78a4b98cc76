//! Ordered maps on disk: the catalog, for now the coordinators' state, and the rows of PK tables.

mod rocks;
mod sim;

pub use rocks::{RocksStore, TabletStores};
pub use sim::SimStore;

use crate::error::{Error, ErrorKind, Result};

/// One change: a key and its new value, or `None` to remove it.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// What a scan calls with each key and value; false ends it.
pub type Visitor<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// An ordered map. The catalog's and the coordinators' writes are durable when they return; those of a PK table's
/// rows are after [`KvStore::flush`], for the log has them.
pub trait KvStore: Send + Sync + 'static {
    /// The value of `key`.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The values of `keys`, each at its key's place.
    ///
    /// # Errors
    /// The store's.
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Visits all entries under each prefix, in the order of the prefixes and then of the keys, as they were at one
    /// moment.
    ///
    /// # Errors
    /// The store's.
    fn visit(&self, prefixes: &[&[u8]], each: Visitor<'_>) -> Result<()>;

    /// All entries whose key begins with `prefix`, in key order.
    ///
    /// # Errors
    /// The store's.
    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        self.visit(&[prefix], &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(found)
    }

    /// Applies all changes or none.
    ///
    /// # Errors
    /// The store's; nothing is known of the changes then.
    fn write(&self, changes: &[Change]) -> Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The store's.
    fn flush(&self) -> Result<()>;
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
