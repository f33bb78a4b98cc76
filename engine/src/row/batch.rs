//! Sluice log batches (docs/storage-format-typed.md §1): what the segments of typed tables hold.

use bytes::Bytes;

use super::compacted;
use super::key::Place;
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
const BLOCK_CLOSING: u16 = 2;
const BLOCK_VOID: u16 = 3;
const BLOCK_CLEANED: u16 = 6;
const MUST_UNDERSTAND: u16 = 1;
const ENTRY_APPLIES: u16 = 1;
const ENTRY_CLOSING: u16 = 1 << 1;

/// The unpartitioned table's partition id in stored entries.
const NO_PARTITION: i64 = -1;
const DESTINATION_LEN: usize = 24;
const VOID_LEN: usize = 32;

/// A batch that is complete but for its place: base offset, commit timestamp, leader epoch.
#[derive(Debug, Clone)]
pub struct TypedBatch {
    /// The whole batch and nothing else.
    pub bytes: Bytes,
    /// Its head.
    pub head: BatchHead,
    /// The producer's entry, if it carries one.
    pub entry: Option<Entry>,
    /// The closings that it voids.
    pub voids: Vec<Void>,
}

/// A producer's range in a log batch (docs/storage-format-typed.md §1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The range.
    pub range: ProducerRange,
    /// The bucket that the producer addressed.
    pub source: Place,
    /// Whether the range's rows of this bucket are in the batch.
    pub applies: bool,
    /// Whether this bucket is the source and the range is closed here.
    pub closing: bool,
}

impl Entry {
    /// Of a producer that addressed this bucket, and all of whose rows are its own.
    #[must_use]
    pub fn own(range: ProducerRange, bucket: Place) -> Self {
        Self { range, source: bucket, applies: true, closing: true }
    }
}

/// Where rows of a closed range went, and what proves that they are there (docs/storage-format-typed.md §1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// The bucket.
    pub place: Place,
    /// Its leader epoch when they were appended.
    pub leader_epoch: i32,
    /// End of the log batch that holds them.
    pub end_offset: i64,
}

/// A closing that recovery found not to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Void {
    /// The offset of the closing.
    pub offset: i64,
    /// Its range.
    pub range: ProducerRange,
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

fn place(partition: i64, bucket: u32) -> Place {
    Place { partition: (partition != NO_PARTITION).then_some(partition), bucket }
}

fn put_partition(out: &mut Writer, place: Place) {
    out.i64(place.partition.unwrap_or(NO_PARTITION));
}

/// An entry with its first offset and offset count, the offset as a delta.
fn read_entry(input: &mut Reader<'_>) -> Result<(Entry, u32, u32)> {
    let (id, epoch, flags) = (input.i64()?, input.i16()?, input.i16()? as u16);
    let (bucket, partition) = (input.u32()?, input.i64()?);
    let source = place(partition, bucket);
    let (first_sequence, last_sequence) = (input.i32()?, input.i32()?);
    let (first_offset, count) = (input.u32()?, input.u32()?);
    let range = ProducerRange { id, epoch, first_sequence, last_sequence };
    let (applies, closing) = (flags & ENTRY_APPLIES != 0, flags & ENTRY_CLOSING != 0);
    Ok((Entry { range, source, applies, closing }, first_offset, count))
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
    blocks: Blocks<'a>,
    body: &'a [u8],
}

/// The blocks that are read.
#[derive(Debug, Default)]
struct Blocks<'a> {
    producers: &'a [u8],
    closing: &'a [u8],
    voids: &'a [u8],
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
            blocks: find_blocks(blocks, block_bytes)?,
            body,
        })
    }

    /// Tells the entries of producers, each with its first offset and its end.
    pub fn for_each_entry(&self, mut each: impl FnMut(Entry, i64, i64)) {
        for bytes in self.blocks.producers.chunks_exact(ENTRY_LEN) {
            if let Ok((entry, first, count)) = read_entry(&mut Reader(bytes)) {
                let first = self.head.base_offset.saturating_add(i64::from(first));
                each(entry, first, first.saturating_add(i64::from(count)));
            }
        }
    }

    /// Where else the rows of the entry at `at` went; empty where its range is complete where it stands.
    ///
    /// # Errors
    /// `Corrupt` when the block does not decode.
    pub fn closing(&self, at: usize) -> Result<Vec<Destination>> {
        let mut input = Reader(self.blocks.closing);
        while !input.0.is_empty() {
            let (entry, count) = (input.i16()? as u16, input.i16()? as u16);
            let mut destinations = Vec::new();
            for _ in 0..count {
                let (partition, bucket) = (input.i64()?, input.u32()?);
                let place = place(partition, bucket);
                destinations.push(Destination { place, leader_epoch: input.i32()?, end_offset: input.i64()? });
            }
            if usize::from(entry) == at {
                return Ok(destinations);
            }
        }
        Ok(Vec::new())
    }

    /// The closings that the batch voids.
    ///
    /// # Errors
    /// `Corrupt` when the block does not decode.
    pub fn voids(&self) -> Result<Vec<Void>> {
        let one = |bytes: &[u8]| {
            let mut input = Reader(bytes);
            let (offset, id, epoch, _zero) = (input.i64()?, input.i64()?, input.i16()?, input.i16()?);
            let (first_sequence, last_sequence) = (input.i32()?, input.i32()?);
            Ok(Void { offset, range: ProducerRange { id, epoch, first_sequence, last_sequence } })
        };
        self.blocks.voids.chunks_exact(VOID_LEN).map(one).collect()
    }

    /// The rows with their offsets and change types, as wide as the schema, whichever of its versions they are of.
    ///
    /// # Errors
    /// `Corrupt` when the schema does not know the version, or the body is not as the header says; `Unsupported` for an
    /// encoding that is not read.
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
            rows.push((offset, change, compacted::read_row(schema, self.schema_id, bytes)?));
            rest = tail;
        }
        if !rest.is_empty() || rows.len() != self.record_count {
            return Err(corrupt("a log batch has other rows than it says"));
        }
        Ok(rows)
    }
}

/// The items of a block of `count` items of `len` bytes each.
fn items<'a>(name: &str, payload: &'a [u8], len: usize) -> Result<&'a [u8]> {
    let mut input = Reader(payload);
    let count = input.count(len)?;
    if count > ENTRIES_MAX || input.0.len() != count * len {
        return Err(corrupt(format!("a {name} block of another size than it says")));
    }
    Ok(input.0)
}

/// The blocks that are read; others are stepped over where that is allowed.
fn find_blocks(count: u16, mut rest: &[u8]) -> Result<Blocks<'_>> {
    let mut found = Blocks::default();
    let mut last = 0;
    for _ in 0..count {
        let mut input = Reader(rest);
        let (kind, flags, len) = (input.i16()? as u16, input.i16()? as u16, input.u32()? as usize);
        let (payload, tail) = input.0.split_at_checked(len).ok_or_else(|| corrupt("a block ends early"))?;
        if kind <= last {
            return Err(corrupt("the blocks of a log batch are out of order"));
        }
        match kind {
            BLOCK_PRODUCERS => found.producers = items("PRODUCERS", payload, ENTRY_LEN)?,
            BLOCK_VOID => found.voids = items("VOID", payload, VOID_LEN)?,
            BLOCK_CLOSING => {
                let mut closings = Reader(payload);
                closings.count(4)?;
                found.closing = closings.0;
            }
            BLOCK_CLEANED => {}
            _ if flags & MUST_UNDERSTAND == 0 => {}
            _ => {
                let what = format!("a log batch needs block {kind}, which is not read");
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        }
        (rest, last) = (tail, kind);
    }
    if rest.is_empty() { Ok(found) } else { Err(corrupt("bytes follow the blocks of a log batch")) }
}

/// Appends one row of a COMPACTED body (docs/storage-format-typed.md §1.8).
fn write_change(schema: &Schema, change: ChangeType, row: &Row, body: &mut Vec<u8>) -> Result<()> {
    let start = body.len();
    body.extend_from_slice(&[0, 0, 0, 0, change as u8]);
    compacted::write_row(schema, row, body)?;
    let len = (body.len() - start - 4) as u32;
    put(body, start, &len.to_le_bytes());
    Ok(())
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
    if rows.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "0 rows are not one log batch"));
    }
    appended(schema, rows, range.map(|range| Entry::own(range, bucket.into())), Vec::new())
}

/// Puts rows of a log table whose rows are routed, all `+A`, into a batch that lacks only its place; one without rows
/// takes one offset.
///
/// # Errors
/// `InvalidArgument` that names row and column of a value that does not fit; `TooLarge`.
pub fn appended<'a, I>(schema: &Schema, rows: I, entry: Option<Entry>, closing: Vec<Destination>) -> Result<TypedBatch>
where
    I: IntoIterator<Item = &'a Row>,
{
    let mut draft = Draft { schema_id: schema.id, entry, closing, ..Draft::default() };
    for row in rows {
        write_change(schema, ChangeType::Append, row, &mut draft.body)
            .map_err(|error| Error::new(error.kind, format!("row {}: {}", draft.rows, error.message)))?;
        draft.rows += 1;
    }
    draft.append_only = draft.rows > 0;
    draft.seal()
}

/// Puts the changes of a PK table into a batch that lacks only its place; one without changes takes one offset
/// (table-model §7.2).
///
/// # Errors
/// `InvalidArgument` that names the column of a value that does not fit; `TooLarge`.
pub fn changelog(
    schema: &Schema,
    changes: &[(ChangeType, Row)],
    entry: Option<Entry>,
    closing: Vec<Destination>,
) -> Result<TypedBatch> {
    let mut draft = Draft { schema_id: schema.id, rows: changes.len(), entry, closing, ..Draft::default() };
    for (change, row) in changes {
        write_change(schema, *change, row, &mut draft.body)?;
    }
    draft.seal()
}

/// A batch that voids closings.
///
/// # Errors
/// `TooLarge` for more than fit into one batch.
pub fn void(voids: Vec<Void>) -> Result<TypedBatch> {
    Draft { voids, ..Draft::default() }.seal()
}

/// What a batch is made of.
#[derive(Default)]
struct Draft {
    schema_id: i16,
    append_only: bool,
    rows: usize,
    body: Vec<u8>,
    entry: Option<Entry>,
    closing: Vec<Destination>,
    voids: Vec<Void>,
}

impl Draft {
    fn seal(self) -> Result<TypedBatch> {
        let too_large = |what: String| Error::new(ErrorKind::TooLarge, what);
        let offsets = i32::try_from(self.rows.max(1)).ok().filter(|offsets| *offsets <= OFFSETS_MAX);
        let offsets = offsets.ok_or_else(|| too_large(format!("{} rows are not one log batch", self.rows)))?;
        if self.voids.len() > ENTRIES_MAX || self.closing.len() > ENTRIES_MAX {
            return Err(too_large("too many items for one log batch".to_owned()));
        }
        let (block_count, blocks) = self.blocks(offsets as u32);
        let total = HEADER_LEN + blocks.len() + self.body.len() + CRC_LEN;
        if total - LENGTH_END > LENGTH_MAX {
            return Err(too_large(format!("a log batch of {total} bytes is larger than {LENGTH_MAX}")));
        }
        let encoding = if self.rows == 0 { ENCODING_NONE } else { ENCODING_COMPACTED } << ENCODING_SHIFT;
        let flags = encoding | if self.voids.is_empty() { 0 } else { FLAG_VOID };
        let mut out = Writer(Vec::with_capacity(total));
        out.i64(0);
        out.i32((total - LENGTH_END) as i32);
        out.u8(MAGIC);
        out.i64(0);
        out.i32(0);
        out.u32(0);
        out.i16(if self.rows == 0 { -1 } else { self.schema_id });
        out.u8(if self.append_only { APPEND_ONLY } else { 0 });
        out.i32(offsets - 1);
        out.i64(-1);
        out.i32(-1);
        out.i32(self.rows as i32);
        out.i32(0);
        out.i16(flags as i16);
        out.i16(block_count);
        out.u32(blocks.len() as u32);
        let mut bytes = out.0;
        bytes.extend_from_slice(&blocks);
        bytes.extend_from_slice(&self.body);
        let crc = crc32c::crc32c(bytes.get(PLACE_LEN..).unwrap_or_default());
        put(&mut bytes, 25, &crc.to_le_bytes());
        let crc = set_place(&mut bytes, 0, 0, 0);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let head = head(&bytes).ok_or_else(|| Error::new(ErrorKind::Internal, "a log batch without a head"))?;
        Ok(TypedBatch { bytes: Bytes::from(bytes), head, entry: self.entry, voids: self.voids })
    }

    /// How many blocks there are, and all of them.
    fn blocks(&self, offsets: u32) -> (i16, Vec<u8>) {
        let (mut count, mut out) = (0, Writer::default());
        let mut add = |kind: u16, items: u32, payload: Writer| {
            count += 1;
            out.i16(kind as i16);
            out.i16(MUST_UNDERSTAND as i16);
            out.u32(4 + payload.0.len() as u32);
            out.u32(items);
            out.0.extend_from_slice(&payload.0);
        };
        if let Some(entry) = &self.entry {
            add(BLOCK_PRODUCERS, 1, entry_bytes(entry, offsets));
        }
        if !self.closing.is_empty() {
            add(BLOCK_CLOSING, 1, closing_bytes(&self.closing));
        }
        if !self.voids.is_empty() {
            add(BLOCK_VOID, self.voids.len() as u32, void_bytes(&self.voids));
        }
        (count, out.0)
    }
}

/// The only entry of a batch, which covers all its offsets.
fn entry_bytes(entry: &Entry, offsets: u32) -> Writer {
    let mut out = Writer::default();
    let role = |has: bool, flag: u16| if has { flag } else { 0 };
    out.i64(entry.range.id);
    out.i16(entry.range.epoch);
    out.i16((role(entry.applies, ENTRY_APPLIES) | role(entry.closing, ENTRY_CLOSING)) as i16);
    out.u32(entry.source.bucket);
    put_partition(&mut out, entry.source);
    out.i32(entry.range.first_sequence);
    out.i32(entry.range.last_sequence);
    out.u32(0);
    out.u32(offsets);
    out
}

fn closing_bytes(destinations: &[Destination]) -> Writer {
    let mut out = Writer(Vec::with_capacity(4 + destinations.len() * DESTINATION_LEN));
    out.i16(0);
    out.i16(destinations.len() as i16);
    for destination in destinations {
        put_partition(&mut out, destination.place);
        out.u32(destination.place.bucket);
        out.i32(destination.leader_epoch);
        out.i64(destination.end_offset);
    }
    out
}

fn void_bytes(voids: &[Void]) -> Writer {
    let mut out = Writer::default();
    for void in voids {
        out.i64(void.offset);
        out.i64(void.range.id);
        out.i16(void.range.epoch);
        out.i16(0);
        out.i32(void.range.first_sequence);
        out.i32(void.range.last_sequence);
        out.i32(0);
    }
    out
}

#[cfg(test)]
mod tests;
