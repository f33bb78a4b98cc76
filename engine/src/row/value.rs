//! Values of the KV store (docs/storage-format-typed.md §§2.1, 2.3, 2.4), little-endian:
//!
//! ```text
//! row             schema id i16 | bits u8 | last offset i64 | TTL reference i64, if bit 0 | row
//! applied record  1 u8 | offset i64 | leader epoch i32 | commit timestamp i64 | live rows i64 | crc-32c u32
//! format record   1 u8 | table id u64 | row encoding u8 | partitioned u8 | crc-32c u32
//! auto-increment  1 u8 | next i64 | end of the range i64 | crc-32c u32
//! ```
//! A row has no checksum of its own: RocksDB's are on, and the log can rebuild the store.

use crate::error::{Error, ErrorKind, Result};
use crate::log::checked::{Reader, Writer};

const VERSION: u8 = 1;
const HAS_TTL_REFERENCE: u8 = 1;
const CRC_LEN: usize = 4;
/// Rows were not counted.
const UNKNOWN: i64 = -1;

/// A row as the store holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowValue<'a> {
    /// Schema that the row was written with.
    pub schema_id: i16,
    /// Offset of the `+I` or `+U` that made it.
    pub last_offset: i64,
    /// Moment that its time to live counts from, ms; `None`: it never expires.
    pub ttl_reference_ms: Option<i64>,
    /// The row in the store's encoding.
    pub row: &'a [u8],
}

impl<'a> RowValue<'a> {
    /// The value's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(19 + self.row.len()));
        out.i16(self.schema_id);
        out.u8(if self.ttl_reference_ms.is_some() { HAS_TTL_REFERENCE } else { 0 });
        out.i64(self.last_offset);
        if let Some(ms) = self.ttl_reference_ms {
            out.i64(ms);
        }
        out.0.extend_from_slice(self.row);
        out.0
    }

    /// Reads a value; its row stays encoded.
    ///
    /// # Errors
    /// `Corrupt` when it ends early; `Unsupported` for what a newer version wrote.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut input = Reader(bytes);
        let (schema_id, bits, last_offset) = (input.i16()?, input.u8()?, input.i64()?);
        if bits & !HAS_TTL_REFERENCE != 0 {
            return Err(newer(format!("a row has bits {bits:#04x}")));
        }
        let ttl_reference_ms = if bits == 0 { None } else { Some(input.i64()?) };
        Ok(Self { schema_id, last_offset, ttl_reference_ms, row: input.0 })
    }
}

/// How far the store has followed a bucket's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// The next offset to apply.
    pub offset: i64,
    /// Leader epoch of the batch applied last.
    pub leader_epoch: i32,
    /// Largest commit timestamp applied, ms.
    pub max_commit_ms: i64,
    /// Live rows; `None` where they are not counted, as with the WAL image.
    pub live_rows: Option<i64>,
}

impl Applied {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.i64(self.offset);
        out.i32(self.leader_epoch);
        out.i64(self.max_commit_ms);
        out.i64(self.live_rows.unwrap_or(UNKNOWN));
        seal(out)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// `Corrupt` when it is none; `Unsupported` when a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = open("an applied record", bytes)?;
        let (offset, leader_epoch, max_commit_ms) = (input.i64()?, input.i32()?, input.i64()?);
        let live_rows = Some(input.i64()?).filter(|rows| *rows != UNKNOWN);
        end(&input)?;
        Ok(Self { offset, leader_epoch, max_commit_ms, live_rows })
    }
}

/// How a store's rows are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RowEncoding {
    /// Fluss's compacted rows.
    Compacted = 1,
    /// Rows whose columns are found without reading those before them.
    Indexed = 2,
}

/// What a store says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The table it belongs to.
    pub table_id: u64,
    /// Of its rows.
    pub encoding: RowEncoding,
    /// Whether its table is.
    pub partitioned: bool,
}

impl Format {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.u64(self.table_id);
        out.u8(self.encoding as u8);
        out.u8(u8::from(self.partitioned));
        seal(out)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// `Corrupt` when it is none; `Unsupported` when a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = open("a format record", bytes)?;
        let table_id = input.u64()?;
        let encoding = match input.u8()? {
            1 => RowEncoding::Compacted,
            2 => RowEncoding::Indexed,
            other => return Err(newer(format!("row encoding {other}"))),
        };
        let partitioned = match input.u8()? {
            0 => false,
            1 => true,
            other => return Err(newer(format!("partitioning {other}"))),
        };
        end(&input)?;
        Ok(Self { table_id, encoding, partitioned })
    }
}

/// The ids that a bucket may still give to an auto-increment column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoIncrement {
    /// The next one.
    pub next: i64,
    /// One past the last of the range that is held.
    pub end: i64,
}

impl AutoIncrement {
    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(VERSION);
        out.i64(self.next);
        out.i64(self.end);
        seal(out)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// `Corrupt` when it is none; `Unsupported` when a newer version wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = open("an auto-increment record", bytes)?;
        let record = Self { next: input.i64()?, end: input.i64()? };
        end(&input)?;
        Ok(record)
    }
}

fn newer(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the store was written by a newer version: {what}"))
}

fn corrupt(what: String) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

fn seal(record: Writer) -> Vec<u8> {
    let mut bytes = record.0;
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// What follows the version in a record whose checksum holds.
fn open<'a>(what: &str, bytes: &'a [u8]) -> Result<Reader<'a>> {
    let (record, crc) = bytes.split_last_chunk::<CRC_LEN>().ok_or_else(|| corrupt(format!("{what} ends early")))?;
    if crc32c::crc32c(record) != u32::from_le_bytes(*crc) {
        return Err(corrupt(format!("{what} fails its checksum")));
    }
    let mut input = Reader(record);
    match input.u8()? {
        VERSION => Ok(input),
        other => Err(newer(format!("{what} of version {other}"))),
    }
}

fn end(input: &Reader<'_>) -> Result<()> {
    if input.0.is_empty() { Ok(()) } else { Err(corrupt("bytes follow a stored record".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT_MS: i64 = 1_700_000_000_000;

    fn hex(text: &str) -> Vec<u8> {
        text.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn the_documented_row_is_these_bytes() {
        let value =
            RowValue { schema_id: 1, last_offset: 101, ttl_reference_ms: Some(COMMIT_MS), row: &[0, 1, 0x62, 0xac, 2] };
        let bytes = hex("01 00 01 65 00 00 00 00 00 00 00 00 68 e5 cf 8b 01 00 00 00 01 62 ac 02");
        assert_eq!(value.encode(), bytes);
        assert_eq!(RowValue::decode(&bytes).expect("reads"), value);
        let lasting = RowValue { ttl_reference_ms: None, ..value };
        assert_eq!(RowValue::decode(&lasting.encode()).expect("reads"), lasting);
        assert_eq!(RowValue::decode(&bytes[..18]).expect_err("short").kind, ErrorKind::Corrupt);
        assert_eq!(
            RowValue::decode(&[&bytes[..2], &[2], &bytes[3..]].concat()).expect_err("newer").kind,
            ErrorKind::Unsupported
        );
    }

    #[test]
    fn the_documented_applied_record_is_these_bytes() {
        let record = Applied { offset: 102, leader_epoch: 2, max_commit_ms: COMMIT_MS, live_rows: Some(2) };
        let bytes =
            hex("01 66 00 00 00 00 00 00 00 02 00 00 00 00 68 e5 cf 8b 01 00 00 02 00 00 00 00 00 00 00 44 a5 7d 06");
        assert_eq!(record.encode(), bytes);
        assert_eq!(Applied::decode(&bytes).expect("reads"), record);
    }

    #[test]
    fn records_come_back_and_damage_is_noticed() {
        let applied = Applied { offset: 1, leader_epoch: 0, max_commit_ms: -1, live_rows: None };
        assert_eq!(Applied::decode(&applied.encode()).expect("reads"), applied);
        let format = Format { table_id: 7, encoding: RowEncoding::Indexed, partitioned: true };
        assert_eq!(format.encode().len(), 15);
        assert_eq!(Format::decode(&format.encode()).expect("reads"), format);
        let ids = AutoIncrement { next: 5, end: 100_001 };
        assert_eq!(AutoIncrement::decode(&ids.encode()).expect("reads"), ids);
        for at in 0..15 {
            let mut bad = format.encode();
            bad[at] ^= 1;
            assert_eq!(Format::decode(&bad).expect_err("damaged").kind, ErrorKind::Corrupt, "byte {at}");
            assert!(Format::decode(&bad[..at]).is_err());
        }
    }

    #[test]
    fn a_newer_record_is_refused_as_newer() {
        let record = Writer([[2].as_slice(), &[0; 16]].concat());
        assert_eq!(AutoIncrement::decode(&seal(record)).expect_err("newer").kind, ErrorKind::Unsupported);
        let record = Writer([[VERSION].as_slice(), &[0; 17]].concat());
        assert_eq!(AutoIncrement::decode(&seal(record)).expect_err("long").kind, ErrorKind::Corrupt);
    }
}
