//! Checked files: the one frame of every small file (docs/storage-format.md §2), and the byte
//! reader and writer their payloads share.

use crate::error::{Error, ErrorKind, Result};

const MAGIC: &[u8; 6] = b"SLUICE";
const HEADER_LEN: usize = 12;
const VERSION: u8 = 1;

/// What a checked file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The clean mark.
    Clean = b'C',
    /// Recovery points.
    RecoveryPoints = b'R',
    /// Segment state.
    Segment = b'S',
    /// Bucket state.
    Bucket = b'B',
}

/// Frames `payload`.
#[must_use]
pub fn seal(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len() + 4);
    out.extend_from_slice(MAGIC);
    out.push(kind as u8);
    out.push(VERSION);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

/// Takes the payload out of a frame of `kind`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] that says which check failed.
pub fn open(kind: Kind, bytes: &[u8]) -> Result<&[u8]> {
    let fault = |what: &str| Err(Error::new(ErrorKind::Corrupt, format!("not a valid {kind:?} file: {what}")));
    if bytes.get(..6) != Some(MAGIC.as_slice()) || bytes.get(6) != Some(&(kind as u8)) {
        return fault("wrong magic or kind");
    }
    if bytes.get(7) != Some(&VERSION) {
        return fault("unknown version");
    }
    let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return fault("short") };
    let length = body.get(8..12).and_then(|n| n.try_into().ok()).map_or(0, u32::from_le_bytes);
    if body.len() != HEADER_LEN + length as usize {
        return fault("length differs");
    }
    if crc32c::crc32c(body) != u32::from_le_bytes(*crc) {
        return fault("checksum differs");
    }
    Ok(body.get(HEADER_LEN..).unwrap_or_default())
}

/// Appends little-endian fields.
#[derive(Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    /// Two bytes.
    pub fn i16(&mut self, value: i16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// Four bytes.
    pub fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
}

/// Reads little-endian fields; every read past the end is an error.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.0.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(*head)
            }
            None => Err(Error::new(ErrorKind::Corrupt, "a stored record ends early")),
        }
    }
    /// One byte.
    ///
    /// # Errors
    /// Past the end.
    pub fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }
    /// Two bytes.
    ///
    /// # Errors
    /// Past the end.
    pub fn i16(&mut self) -> Result<i16> {
        self.take().map(i16::from_le_bytes)
    }
    /// Four bytes.
    ///
    /// # Errors
    /// Past the end.
    pub fn i32(&mut self) -> Result<i32> {
        self.take().map(i32::from_le_bytes)
    }
    /// Four bytes.
    ///
    /// # Errors
    /// Past the end.
    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }
    /// Eight bytes.
    ///
    /// # Errors
    /// Past the end.
    pub fn i64(&mut self) -> Result<i64> {
        self.take().map(i64::from_le_bytes)
    }
    /// Eight bytes.
    ///
    /// # Errors
    /// Past the end.
    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }
    /// A count of items of at least `min_len` bytes each, checked against the bytes left.
    ///
    /// # Errors
    /// Past the end.
    pub fn count(&mut self, min_len: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(min_len) > self.0.len() {
            return Err(Error::new(ErrorKind::Corrupt, "a stored count is larger than its record"));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_truncation_is_noticed() {
        let good = seal(Kind::Bucket, b"payload");
        assert_eq!(open(Kind::Bucket, &good).expect("valid"), b"payload");
        assert!(open(Kind::Segment, &good).is_err());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(open(Kind::Bucket, &bad).is_err(), "bit flipped at {at}");
            assert!(open(Kind::Bucket, &good[..at]).is_err(), "cut at {at}");
        }
    }
}
