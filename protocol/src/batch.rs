//! The header of a record batch, magic 2 (KIP-98), read and patched in place.
//!
//! ```text
//!  0 base offset i64        | 23 last offset delta i32   | 51 producer epoch i16
//!  8 batch length i32       | 27 base timestamp i64      | 53 base sequence i32
//! 12 leader epoch i32       | 35 max timestamp i64       | 57 record count i32
//! 16 magic i8               | 43 producer id i64         | 61 records
//! 17 crc-32c u32 (over 21..)
//! 21 attributes i16: 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
//! ```
//! All big-endian. Base offset, length and leader epoch lie outside the checksum, so the server
//! sets them without touching it. The records behind the header stay opaque.

use crate::error::DecodeError;

/// Bytes before the records.
pub const HEADER_LEN: usize = 61;
/// Bytes before the part that "batch length" counts.
pub const LENGTH_PREFIX_LEN: usize = 12;
/// The smallest length Kafka accepts before it looks at the magic (a magic 0 message).
const LEGACY_OVERHEAD: i32 = 14;

const ATTR_CODEC: i16 = 0x07;
const ATTR_LOG_APPEND_TIME: i16 = 0x08;
const ATTR_TRANSACTIONAL: i16 = 0x10;
const ATTR_CONTROL: i16 = 0x20;

/// No producer id.
pub const NO_PRODUCER_ID: i64 = -1;

/// The header's fields; see the module for their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub batch_length: i32,
    /// The leader epoch that the server wrote.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec, timestamp type, transactional and control bits.
    pub attributes: i16,
    /// Last offset minus base offset; survives compaction.
    pub last_offset_delta: i32,
    /// Timestamp that record deltas count from, in ms.
    pub base_timestamp: i64,
    /// Largest timestamp of the batch, in ms.
    pub max_timestamp: i64,
    /// The idempotent producer, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Records inside.
    pub record_count: i32,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`; `None` when there are fewer than 61 or the magic
    /// is not 2. Checks nothing else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < HEADER_LEN || bytes.get(16) != Some(&2) {
            return None;
        }
        Some(Self {
            base_offset: i64::from_be_bytes(array(bytes, 0)?),
            batch_length: i32::from_be_bytes(array(bytes, 8)?),
            leader_epoch: i32::from_be_bytes(array(bytes, 12)?),
            crc: u32::from_be_bytes(array(bytes, 17)?),
            attributes: i16::from_be_bytes(array(bytes, 21)?),
            last_offset_delta: i32::from_be_bytes(array(bytes, 23)?),
            base_timestamp: i64::from_be_bytes(array(bytes, 27)?),
            max_timestamp: i64::from_be_bytes(array(bytes, 35)?),
            producer_id: i64::from_be_bytes(array(bytes, 43)?),
            producer_epoch: i16::from_be_bytes(array(bytes, 51)?),
            base_sequence: i32::from_be_bytes(array(bytes, 53)?),
            record_count: i32::from_be_bytes(array(bytes, 57)?),
        })
    }

    /// Bytes of the whole batch, header included; `None` when the length field is impossible.
    #[must_use]
    pub fn total_len(&self) -> Option<usize> {
        let len = usize::try_from(self.batch_length).ok()?.checked_add(LENGTH_PREFIX_LEN)?;
        (len >= HEADER_LEN).then_some(len)
    }

    /// Offset of the last record (or of the last record there once was).
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The codec number, attribute bits 0-2.
    #[must_use]
    pub fn codec(&self) -> i16 {
        self.attributes & ATTR_CODEC
    }

    /// Whether every record carries the max timestamp.
    #[must_use]
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & ATTR_LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes & ATTR_TRANSACTIONAL != 0
    }

    /// Whether the batch is a marker and no data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes & ATTR_CONTROL != 0
    }

    /// Sequence of the last record; wraps from 2^31-1 to 0, also inside a batch (KIP-98).
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        add_sequence(self.base_sequence, self.last_offset_delta)
    }
}

/// `sequence + delta` in a producer's sequence space 0..=2^31-1, which wraps to 0.
#[must_use]
pub fn add_sequence(sequence: i32, delta: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(delta);
    (sum & 0x7fff_ffff) as i32
}

/// CRC-32C of the part that the checksum covers.
#[must_use]
pub fn compute_crc(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(21..).unwrap_or_default())
}

/// Checks the one batch of a Produce request's topic partition as Kafka does, without its records.
///
/// Returns the header and the batch's length; bytes behind it are too few to be a batch and are
/// ignored, as Kafka ignores them.
///
/// # Errors
/// A [`DecodeError`] that names what is wrong.
pub fn validate_produced(bytes: &[u8]) -> Result<(BatchHeader, usize), DecodeError> {
    let Some(length) = array(bytes, 8).map(i32::from_be_bytes) else {
        return Err(DecodeError::IncompleteBatch { have: bytes.len(), need: HEADER_LEN });
    };
    if length < LEGACY_OVERHEAD {
        return Err(DecodeError::BatchTooSmall { length });
    }
    let total = length as usize + LENGTH_PREFIX_LEN;
    match bytes.get(16).map(|magic| *magic as i8) {
        Some(2) | None => {}
        Some(magic @ (0 | 1)) => return Err(DecodeError::LegacyMagic { magic }),
        Some(magic) => return Err(DecodeError::UnknownMagic { magic }),
    }
    if bytes.len() < total || total < HEADER_LEN {
        return Err(DecodeError::IncompleteBatch { have: bytes.len(), need: total.max(HEADER_LEN) });
    }
    let header =
        BatchHeader::read(bytes).ok_or(DecodeError::IncompleteBatch { have: bytes.len(), need: HEADER_LEN })?;
    let rest = bytes.get(total..).unwrap_or_default();
    if array(rest, 8).map(i32::from_be_bytes).is_some_and(|n| n >= 0 && rest.len() >= n as usize + LENGTH_PREFIX_LEN) {
        return Err(DecodeError::SeveralBatches);
    }
    let computed = compute_crc(bytes.get(..total).unwrap_or_default());
    if computed != header.crc {
        return Err(DecodeError::BadCrc { stored: header.crc, computed });
    }
    check_fields(&header)?;
    Ok((header, total))
}

fn check_fields(header: &BatchHeader) -> Result<(), DecodeError> {
    let invalid = |reason: String| Err(DecodeError::InvalidBatch { reason });
    if header.base_offset != 0 {
        return invalid(format!("the base offset of a produced batch must be 0, not {}", header.base_offset));
    }
    if header.record_count <= 0 || i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return invalid(format!(
            "inconsistent batch: {} records, last offset delta {}",
            header.record_count, header.last_offset_delta
        ));
    }
    if header.is_control() {
        return invalid("clients are not allowed to write control batches".to_owned());
    }
    if header.producer_id >= 0 && header.producer_epoch >= 0 && header.base_sequence < 0 {
        return invalid(format!("invalid sequence number {} in a batch of a producer id", header.base_sequence));
    }
    Ok(())
}

/// Writes the fields that the server owns and the checksum does not cover.
pub fn set_position(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    put(batch, 0, &base_offset.to_be_bytes());
    put(batch, 12, &leader_epoch.to_be_bytes());
}

/// Rewrites the max timestamp (and with `log_append_time` the timestamp type), then the checksum.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: i64, log_append_time: bool) {
    let attributes = array(batch, 21).map_or(0, i16::from_be_bytes);
    let attributes =
        if log_append_time { attributes | ATTR_LOG_APPEND_TIME } else { attributes & !ATTR_LOG_APPEND_TIME };
    put(batch, 21, &attributes.to_be_bytes());
    put(batch, 35, &max_timestamp.to_be_bytes());
    let crc = compute_crc(batch);
    put(batch, 17, &crc.to_be_bytes());
}

/// Replaces the payload of `batch` by `payload` in codec `codec`, length and checksum included.
#[must_use]
pub fn with_payload(batch: &[u8], codec: i16, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(batch.get(..HEADER_LEN).unwrap_or_default());
    out.extend_from_slice(payload);
    let length = (out.len() - LENGTH_PREFIX_LEN) as i32;
    put(&mut out, 8, &length.to_be_bytes());
    let attributes = array(&out, 21).map_or(0, i16::from_be_bytes);
    put(&mut out, 21, &((attributes & !ATTR_CODEC) | (codec & ATTR_CODEC)).to_be_bytes());
    let crc = compute_crc(&out);
    put(&mut out, 17, &crc.to_be_bytes());
    out
}

fn put(batch: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = batch.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{BatchBuilder, Record};

    fn sample() -> Vec<u8> {
        BatchBuilder::new(1_000).record(&Record::new(Some(b"k"), Some(b"v"))).record(&Record::new(None, None)).build()
    }

    #[test]
    fn reads_back_what_the_builder_wrote() {
        let bytes = sample();
        let (header, total) = validate_produced(&bytes).expect("valid");
        assert_eq!(total, bytes.len());
        assert_eq!((header.record_count, header.last_offset_delta), (2, 1));
        assert_eq!(header.producer_id, NO_PRODUCER_ID);
    }

    #[test]
    fn position_lies_outside_the_checksum() {
        let mut bytes = sample();
        set_position(&mut bytes, 77, 5);
        let header = BatchHeader::read(&bytes).expect("header");
        assert_eq!((header.base_offset, header.leader_epoch, header.last_offset()), (77, 5, 78));
        assert_eq!(compute_crc(&bytes), header.crc);
    }

    #[test]
    fn log_append_time_rewrites_the_checksum() {
        let mut bytes = sample();
        set_max_timestamp(&mut bytes, 42, true);
        let header = BatchHeader::read(&bytes).expect("header");
        assert!(header.is_log_append_time());
        assert_eq!(header.max_timestamp, 42);
        assert_eq!(compute_crc(&bytes), header.crc);
    }

    #[test]
    fn sequences_wrap_to_zero_also_inside_a_batch() {
        assert_eq!(add_sequence(i32::MAX - 2, 4), 1);
        assert_eq!(add_sequence(i32::MAX, 1), 0);
        assert_eq!(add_sequence(7, 3), 10);
    }

    #[test]
    fn names_each_fault() {
        let good = sample();
        assert!(matches!(validate_produced(&good[..20]), Err(DecodeError::IncompleteBatch { .. })));
        assert!(matches!(validate_produced(&good[..good.len() - 3]), Err(DecodeError::IncompleteBatch { .. })));
        assert!(matches!(validate_produced(&[]), Err(DecodeError::IncompleteBatch { .. })));
        let with = |at: usize, bytes: &[u8]| {
            let mut bad = good.clone();
            put(&mut bad, at, bytes);
            validate_produced(&bad)
        };
        assert!(matches!(with(8, &10i32.to_be_bytes()), Err(DecodeError::BatchTooSmall { length: 10 })));
        assert!(matches!(with(16, &[1]), Err(DecodeError::LegacyMagic { magic: 1 })));
        assert!(matches!(with(16, &[3]), Err(DecodeError::UnknownMagic { magic: 3 })));
        assert!(matches!(with(17, &[9]), Err(DecodeError::BadCrc { .. })));
        assert!(matches!(with(0, &77i64.to_be_bytes()), Err(DecodeError::InvalidBatch { .. })));
        let twice = [good.clone(), good.clone()].concat();
        assert_eq!(validate_produced(&twice), Err(DecodeError::SeveralBatches));
        let tail = [good.clone(), vec![0, 0, 0]].concat();
        assert!(validate_produced(&tail).is_ok());
    }
}
