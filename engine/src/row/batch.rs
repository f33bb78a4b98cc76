//! Sluice log batches (docs/storage-format-typed.md §1): what the segments of typed tables hold.

use bytes::Bytes;

use super::compacted;
use super::types::{ChangeType, Row, Schema};
use crate::error::{Error, ErrorKind, Result};
use crate::log::checked::{Reader, Writer};
use crate::log::head::{BatchHead, ProducerRange};
use crate::types::BucketId;

const MAGIC: u8 = 0x53;
/// Bytes before the statistics.
const HEADER_LEN: usize = 64;
/// Where the length counts from.
const LENGTH_END: usize = 12;
/// What the head CRC covers.
const PLACE_LEN: usize = 29;
const CRC_LEN: usize = 4;
const LENGTH_MAX: usize = 128 << 20;
const OFFSETS_MAX: i32 = 1 << 20;
const BLOCKS_MAX: u32 = 1 << 20;
const ENTRIES_MAX: usize = 1024;
const ENTRY_LEN: usize = 40;

const APPEND_ONLY: u8 = 1;
const FLAG_CONTROL: u16 = 1 << 1;
const FLAG_VOID: u16 = 1 << 2;
const ENCODING_SHIFT: u16 = 8;
const ENCODING_MASK: u16 = 3 << ENCODING_SHIFT;
const ENCODING_COMPACTED: u16 = 1;
const ENCODING_NONE: u16 = 3;

const BLOCK_PRODUCERS: u16 = 1;
const BLOCK_CLEANED: u16 = 6;
const MUST_UNDERSTAND: u16 = 1;
const ENTRY_APPLIES: u16 = 1;
const ENTRY_CLOSING: u16 = 1 << 1;

/// A batch that is complete but for its place: base offset, commit timestamp, leader epoch.
#[derive(Debug, Clone)]
pub struct TypedBatch {
    /// The whole batch and nothing else.
    pub bytes: Bytes,
    /// Its head.
    pub head: BatchHead,
    /// The producer's range, if it carries one.
    pub range: Option<ProducerRange>,
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// The head of the batch at the start of `bytes`; `None` when there are fewer than
/// [`crate::log::head::HEAD_LEN`] or the magic is another. Checks nothing else.
#[must_use]
pub fn head(bytes: &[u8]) -> Option<BatchHead> {
    if bytes.len() < crate::log::head::HEAD_LEN || bytes.get(12) != Some(&MAGIC) {
        return None;
    }
    let length = i32::from_le_bytes(array(bytes, 8)?);
    let flags = u16::from_le_bytes(array(bytes, 56)?);
    let len = usize::try_from(length).ok().filter(|len| *len <= LENGTH_MAX).map(|len| len + LENGTH_END);
    Some(BatchHead {
        base_offset: i64::from_le_bytes(array(bytes, 0)?),
        last_offset_delta: i32::from_le_bytes(array(bytes, 32)?),
        len: len.filter(|len| *len >= HEADER_LEN + CRC_LEN),
        leader_epoch: i32::from_le_bytes(array(bytes, 21)?),
        max_timestamp: i64::from_le_bytes(array(bytes, 13)?),
        one_timestamp: true,
        control: flags & (FLAG_CONTROL | FLAG_VOID) != 0,
    })
}

/// Sets base offset, commit timestamp (ms) and leader epoch in a batch's first bytes; returns the head
/// CRC over them, the last four bytes of the batch. The body's CRC does not cover them.
#[must_use]
pub fn set_place(head: &mut [u8], base_offset: i64, commit_ms: i64, leader_epoch: i32) -> u32 {
    put(head, 0, &base_offset.to_le_bytes());
    put(head, 13, &commit_ms.to_le_bytes());
    put(head, 21, &leader_epoch.to_le_bytes());
    crc32c::crc32c(head.get(..PLACE_LEN).unwrap_or_default())
}

/// Whether a whole batch is what was written: both checksums hold and the limits are kept.
#[must_use]
pub fn is_sound(batch: &[u8]) -> bool {
    let Some(head) = head(batch) else { return false };
    let Some(len) = head.len.filter(|len| *len == batch.len()) else { return false };
    let end = len - CRC_LEN;
    let stored_head = array(batch, end).map(u32::from_le_bytes);
    let stored_body = array(batch, 25).map(u32::from_le_bytes);
    (0..OFFSETS_MAX).contains(&head.last_offset_delta)
        && stored_head == batch.get(..PLACE_LEN).map(crc32c::crc32c)
        && stored_body == batch.get(PLACE_LEN..end).map(crc32c::crc32c)
}

fn read_entry(input: &mut Reader<'_>) -> Result<(ProducerRange, u16, u32)> {
    let (id, epoch, flags) = (input.i64()?, input.i16()?, input.i16()? as u16);
    let (_source_bucket, _source_partition) = (input.i32()?, input.i64()?);
    let (first_sequence, last_sequence, first_offset) = (input.i32()?, input.i32()?, input.u32()?);
    Ok((ProducerRange { id, epoch, first_sequence, last_sequence }, flags, first_offset))
}

/// A batch whose parts were found; the checksums are [`is_sound`]'s.
#[derive(Debug)]
pub struct BatchView<'a> {
    /// Its head.
    pub head: BatchHead,
    /// Schema of its rows; −1 where there is none.
    pub schema_id: i16,
    /// Rows in the body.
    pub record_count: usize,
    encoding: u16,
    append_only: bool,
    producers: &'a [u8],
    body: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// Finds the parts of a whole batch.
    ///
    /// # Errors
    /// `Corrupt` when a part does not fit; `Unsupported` for what a newer version wrote.
    pub fn read(batch: &'a [u8]) -> Result<Self> {
        let short = || corrupt("a log batch ends early");
        let head = head(batch).ok_or_else(|| corrupt("not a log batch"))?;
        let fixed = batch.get(29..HEADER_LEN).ok_or_else(short)?;
        let mut input = Reader(fixed);
        let (schema_id, attributes, _delta) = (input.i16()?, input.u8()?, input.i32()?);
        let (_writer, _sequence) = (input.i64()?, input.i32()?);
        let (records, statistics) = (input.i32()?, input.i32()?);
        let (flags, blocks, blocks_len) = (input.i16()? as u16, input.i16()? as u16, input.u32()?);
        if attributes & !APPEND_ONLY != 0 || flags & !(0x1f | ENCODING_MASK) != 0 {
            return Err(Error::new(ErrorKind::Unsupported, "a log batch was written by a newer version"));
        }
        if blocks_len > BLOCKS_MAX {
            return Err(corrupt("the blocks of a log batch are too long"));
        }
        let statistics = usize::try_from(statistics).map_err(|_| corrupt("negative statistics"))?;
        let end = batch.len().checked_sub(CRC_LEN).ok_or_else(short)?;
        let rest = batch.get(HEADER_LEN..end).and_then(|rest| rest.get(statistics..)).ok_or_else(short)?;
        let (block_bytes, body) = rest.split_at_checked(blocks_len as usize).ok_or_else(short)?;
        Ok(Self {
            head,
            schema_id,
            record_count: usize::try_from(records).map_err(|_| corrupt("a negative record count"))?,
            encoding: (flags & ENCODING_MASK) >> ENCODING_SHIFT,
            append_only: attributes & APPEND_ONLY != 0,
            producers: find_producers(blocks, block_bytes)?,
            body,
        })
    }

    /// Tells the ranges of producers whose rows are here, each with its first offset.
    pub fn for_each_range(&self, mut each: impl FnMut(ProducerRange, i64)) {
        for entry in self.producers.chunks_exact(ENTRY_LEN) {
            let mut input = Reader(entry);
            if let Ok((range, flags, first_offset)) = read_entry(&mut input)
                && flags & ENTRY_APPLIES != 0
            {
                each(range, self.head.base_offset.saturating_add(i64::from(first_offset)));
            }
        }
    }

    /// The rows with their offsets and change types.
    ///
    /// # Errors
    /// `Corrupt` when the body is not as the header says; `Unsupported` for an encoding that is not read.
    pub fn rows(&self, schema: &Schema) -> Result<Vec<(i64, ChangeType, Row)>> {
        match self.encoding {
            ENCODING_NONE => Ok(Vec::new()),
            ENCODING_COMPACTED => self.compacted_rows(schema),
            other => Err(Error::new(ErrorKind::Unsupported, format!("log batch encoding {other} is not read"))),
        }
    }

    fn compacted_rows(&self, schema: &Schema) -> Result<Vec<(i64, ChangeType, Row)>> {
        if i64::from(self.head.last_offset_delta) + 1 != self.record_count as i64 {
            return Err(Error::new(ErrorKind::Unsupported, "log batches with gaps are not read"));
        }
        let (mut rest, mut rows) = (self.body, Vec::new());
        while let Some((len, tail)) = rest.split_first_chunk() {
            let len = usize::try_from(i32::from_le_bytes(*len)).map_err(|_| corrupt("a negative row length"))?;
            let (bytes, tail) = tail.split_at_checked(len).ok_or_else(|| corrupt("a row ends early"))?;
            let (change, bytes) = bytes.split_first().ok_or_else(|| corrupt("an empty row"))?;
            let change = ChangeType::of(*change).ok_or_else(|| corrupt(format!("change type {change}")))?;
            if self.append_only && change != ChangeType::Append {
                return Err(corrupt("an append-only log batch has a change"));
            }
            let offset = self.head.base_offset.saturating_add(rows.len() as i64);
            rows.push((offset, change, compacted::read_row(schema, bytes)?));
            rest = tail;
        }
        if !rest.is_empty() || rows.len() != self.record_count {
            return Err(corrupt("a log batch has other rows than it says"));
        }
        Ok(rows)
    }
}

/// The entries of the PRODUCERS block, if there is one; other blocks are stepped over where that is allowed.
fn find_producers(count: u16, mut rest: &[u8]) -> Result<&[u8]> {
    let mut found: &[u8] = &[];
    let mut last = 0;
    for _ in 0..count {
        let mut input = Reader(rest);
        let (kind, flags, len) = (input.i16()? as u16, input.i16()? as u16, input.u32()? as usize);
        let (payload, tail) = input.0.split_at_checked(len).ok_or_else(|| corrupt("a block ends early"))?;
        if kind <= last {
            return Err(corrupt("the blocks of a log batch are out of order"));
        }
        if kind == BLOCK_PRODUCERS {
            let mut entries = Reader(payload);
            let count = entries.count(ENTRY_LEN)?;
            if count > ENTRIES_MAX || entries.0.len() != count * ENTRY_LEN {
                return Err(corrupt("a PRODUCERS block of another size than it says"));
            }
            found = entries.0;
        } else if flags & MUST_UNDERSTAND != 0 && kind != BLOCK_CLEANED {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a log batch needs block {kind}, which is not read"),
            ));
        }
        (rest, last) = (tail, kind);
    }
    if rest.is_empty() { Ok(found) } else { Err(corrupt("bytes follow the blocks of a log batch")) }
}

/// Puts rows of a log table, all `+A`, into a batch that lacks only its place.
///
/// # Errors
/// `InvalidArgument` that names row and column of a value that does not fit; `TooLarge`.
pub fn append_only(
    bucket: BucketId,
    schema: &Schema,
    rows: &[Row],
    range: Option<ProducerRange>,
) -> Result<TypedBatch> {
    let mut body = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let start = body.len();
        body.extend_from_slice(&[0, 0, 0, 0, ChangeType::Append as u8]);
        compacted::write_row(schema, row, &mut body)
            .map_err(|error| Error::new(error.kind, format!("row {at}: {}", error.message)))?;
        let len = (body.len() - start - 4) as u32;
        put(&mut body, start, &len.to_le_bytes());
    }
    seal(bucket, schema.id, rows.len(), &body, range)
}

fn seal(
    bucket: BucketId,
    schema_id: i16,
    rows: usize,
    body: &[u8],
    range: Option<ProducerRange>,
) -> Result<TypedBatch> {
    let too_large = |what: String| Error::new(ErrorKind::TooLarge, what);
    let delta = i32::try_from(rows).ok().filter(|rows| (1..=OFFSETS_MAX).contains(rows));
    let delta = delta.ok_or_else(|| too_large(format!("{rows} rows are not one log batch")))? - 1;
    let blocks = range.map(|range| producers_block(bucket, &range, rows as u32)).unwrap_or_default();
    let total = HEADER_LEN + blocks.len() + body.len() + CRC_LEN;
    if total - LENGTH_END > LENGTH_MAX {
        return Err(too_large(format!("a log batch of {total} bytes is larger than {LENGTH_MAX}")));
    }
    let mut out = Writer(Vec::with_capacity(total));
    out.i64(0);
    out.i32((total - LENGTH_END) as i32);
    out.u8(MAGIC);
    out.i64(0);
    out.i32(0);
    out.u32(0);
    out.i16(schema_id);
    out.u8(APPEND_ONLY);
    out.i32(delta);
    out.i64(-1);
    out.i32(-1);
    out.i32(delta + 1);
    out.i32(0);
    out.i16((ENCODING_COMPACTED << ENCODING_SHIFT) as i16);
    out.i16(i16::from(range.is_some()));
    out.u32(blocks.len() as u32);
    let mut bytes = out.0;
    bytes.extend_from_slice(&blocks);
    bytes.extend_from_slice(body);
    let crc = crc32c::crc32c(bytes.get(PLACE_LEN..).unwrap_or_default());
    put(&mut bytes, 25, &crc.to_le_bytes());
    let crc = set_place(&mut bytes, 0, 0, 0);
    bytes.extend_from_slice(&crc.to_le_bytes());
    let head = head(&bytes).ok_or_else(|| Error::new(ErrorKind::Internal, "a log batch without a head"))?;
    Ok(TypedBatch { bytes: Bytes::from(bytes), head, range })
}

/// One producer that addressed this bucket itself: its rows are here and nowhere else.
fn producers_block(bucket: BucketId, range: &ProducerRange, rows: u32) -> Vec<u8> {
    let mut out = Writer::default();
    out.i16(BLOCK_PRODUCERS as i16);
    out.i16(MUST_UNDERSTAND as i16);
    out.u32(4 + ENTRY_LEN as u32);
    out.u32(1);
    out.i64(range.id);
    out.i16(range.epoch);
    out.i16((ENTRY_APPLIES | ENTRY_CLOSING) as i16);
    out.i32(bucket.bucket as i32);
    out.i64(bucket.partition.unwrap_or(-1));
    out.i32(range.first_sequence);
    out.i32(range.last_sequence);
    out.u32(0);
    out.u32(rows);
    out.0
}

#[cfg(test)]
mod tests;
