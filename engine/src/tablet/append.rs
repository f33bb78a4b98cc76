//! Appending: judge, place, write to the page cache.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use sluice_protocol::DecodeError;
use sluice_protocol::batch::{self, BatchHeader, HEADER_LEN};
use sluice_protocol::records;

use super::producers::Verdict;
use super::sync::OpenClosing;
use super::{Tablet, Writer};
use crate::config::{LogOptions, TimestampType, Visibility};
use crate::error::{Error, ErrorKind, Result};
use crate::log::head::{BatchHead, BatchKind, HEAD_LEN, ProducerMark, ProducerRange};
use crate::log::segment::{Segment, SegmentState, Tail};
use crate::row::batch::{Entry, TypedBatch, set_place};
use crate::row::key::Place;

/// Bytes of log after which the active segment's state is written (docs/storage-format.md §4.1).
const STATE_INTERVAL_BYTES: u64 = 32 << 20;
/// Largest payload that a batch may decode to.
const DECODED_MAX: usize = 256 << 20;

/// A Kafka record batch that passed every check which needs no log.
#[derive(Debug, Clone)]
pub struct RawBatch {
    /// The whole batch and nothing else.
    pub bytes: Bytes,
    /// Its header.
    pub header: BatchHeader,
}

/// A batch to append, of the kind that the bucket holds.
#[derive(Debug, Clone)]
pub enum LogBatch {
    /// For raw tables.
    Raw(RawBatch),
    /// For typed tables.
    Typed(TypedBatch),
}

impl LogBatch {
    fn kind(&self) -> BatchKind {
        match self {
            Self::Raw(_) => BatchKind::Kafka,
            Self::Typed(_) => BatchKind::Sluice,
        }
    }

    fn bytes(&self) -> &Bytes {
        match self {
            Self::Raw(raw) => &raw.bytes,
            Self::Typed(typed) => &typed.bytes,
        }
    }

    fn head(&self) -> BatchHead {
        match self {
            Self::Raw(raw) => BatchHead::from(&raw.header),
            Self::Typed(typed) => typed.head,
        }
    }

    fn entry(&self) -> Option<Entry> {
        match self {
            Self::Raw(raw) => ProducerRange::of(&raw.header).map(|range| Entry::own(range, Place::default())),
            Self::Typed(typed) => typed.entry,
        }
    }
}

impl From<RawBatch> for LogBatch {
    fn from(raw: RawBatch) -> Self {
        Self::Raw(raw)
    }
}

impl From<TypedBatch> for LogBatch {
    fn from(typed: TypedBatch) -> Self {
        Self::Typed(typed)
    }
}

impl From<&RawBatch> for LogBatch {
    fn from(raw: &RawBatch) -> Self {
        Self::Raw(raw.clone())
    }
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// One past its last record.
    pub end_offset: i64,
    /// The server's time, where the table stamps records with it, or what the original got.
    pub append_time_ms: Option<i64>,
    /// First offset that may be read.
    pub log_start: i64,
}

/// Why a batch was refused: an error, and the record it is about.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The error.
    pub error: Error,
    /// The records' places in their batch and what is wrong with each.
    pub records: Vec<(usize, String)>,
    /// The decoder's finding, where the bytes themselves are wrong.
    pub cause: Option<DecodeError>,
    /// Whether a record's timestamp is out of bounds.
    pub timestamp: bool,
}

impl From<DecodeError> for Refusal {
    fn from(cause: DecodeError) -> Self {
        let kind = match cause {
            DecodeError::BadCrc { .. } | DecodeError::UnknownMagic { .. } | DecodeError::BatchTooSmall { .. } => {
                ErrorKind::CorruptInput
            }
            _ => ErrorKind::InvalidArgument,
        };
        Self { error: Error::new(kind, cause.to_string()), records: Vec::new(), cause: Some(cause), timestamp: false }
    }
}

/// Checks a produced batch against the settings of its table, and rewrites what they ask for.
///
/// The records are stepped over, decoded first where they are compressed: a payload that no consumer
/// could read, a wrong count or a timestamp out of bounds (KIP-32) is refused here, as Kafka does.
///
/// # Errors
/// A [`Refusal`] that names what is wrong.
pub fn prepare(bytes: &Bytes, options: &LogOptions, now_ms: i64) -> std::result::Result<RawBatch, Refusal> {
    let (header, len) = batch::validate_produced(bytes)?;
    let mut raw = RawBatch { bytes: bytes.slice(..len), header };
    if header.codec() > 4 {
        return Err(DecodeError::UnknownCodec { codec: header.codec() }.into());
    }
    let too_large = |len: usize| {
        let message =
            format!("a batch of {len} bytes is larger than max.message.bytes ({})", options.max_message_bytes);
        Refusal { error: Error::new(ErrorKind::TooLarge, message), records: Vec::new(), cause: None, timestamp: false }
    };
    if len > options.max_message_bytes {
        return Err(too_large(len));
    }
    let create_time = options.timestamp_type == TimestampType::CreateTime;
    let bounds = if create_time {
        let earliest = now_ms.saturating_sub(options.timestamp_before_max_ms);
        (earliest, now_ms.saturating_add(options.timestamp_after_max_ms))
    } else {
        (i64::MIN, i64::MAX)
    };
    let stored = raw.bytes.clone();
    let plain = records::decompress(header.codec(), stored.get(HEADER_LEN..).unwrap_or_default(), DECODED_MAX)?;
    let scan = records::scan(&header, &plain, bounds)?;
    if !scan.out_of_bounds.is_empty() {
        return Err(timestamp_refusal(&scan.out_of_bounds, bounds));
    }
    let max_timestamp = scan.max_timestamp;
    if let Some(codec) = options.codec.filter(|codec| *codec != header.codec()) {
        raw.bytes = batch::with_payload(&raw.bytes, codec, &records::compress(codec, &plain)?).into();
        if raw.bytes.len() > options.max_message_bytes {
            return Err(too_large(raw.bytes.len()));
        }
    }
    if create_time && (max_timestamp != header.max_timestamp || header.is_log_append_time()) {
        let mut owned = raw.bytes.to_vec();
        batch::set_max_timestamp(&mut owned, max_timestamp, false);
        raw.bytes = owned.into();
    }
    raw.header = BatchHeader::read(&raw.bytes).unwrap_or(header);
    Ok(raw)
}

fn timestamp_refusal(found: &[(usize, i64)], bounds: (i64, i64)) -> Refusal {
    let message = |(index, timestamp): &(usize, i64)| {
        let range = format!("The timestamp should be within [{}, {}]", bounds.0, bounds.1);
        (*index, format!("Timestamp {timestamp} of message with offset {index} is out of range. {range}"))
    };
    let error =
        Error::new(ErrorKind::InvalidArgument, "One or more records have been rejected due to invalid timestamp");
    Refusal { error, records: found.iter().map(message).collect(), cause: None, timestamp: true }
}

impl Tablet {
    /// Appends one batch to the page cache; it is durable only after a sync.
    ///
    /// # Errors
    /// The producers' verdict, a full or failing disk (nothing is appended then), or the reason why
    /// the bucket is offline.
    pub fn append(&self, batch: impl Into<LogBatch>) -> Result<Appended> {
        self.append_closing(batch.into(), Vec::new())
    }

    /// As [`Tablet::append`], of a batch that closes a range whose other rows went to `elsewhere`: tablets, and
    /// where the log batches end there.
    ///
    /// # Errors
    /// As [`Tablet::append`].
    pub fn append_closing(&self, batch: LogBatch, elsewhere: Vec<(Arc<Self>, i64)>) -> Result<Appended> {
        self.check_online()?;
        if batch.kind() != self.kind {
            return Err(Error::new(ErrorKind::Internal, format!("bucket {} holds {:?} batches", self.id, self.kind)));
        }
        let now_ms = self.around.clock.now_ms();
        let options = self.options();
        let mut writer = self.writer.lock();
        // Again under the lock: a bucket that was closed or repaired meanwhile has another end.
        self.check_online()?;
        let stamped = self.kind == BatchKind::Sluice || options.timestamp_type == TimestampType::LogAppendTime;
        let (head, entry) = (batch.head(), batch.entry());
        if let Some(entry) = entry.filter(|_| !self.hashed)
            && let Verdict::Duplicate(seen) = writer.producers.judge(&entry.range)?
        {
            return Ok(Appended {
                base_offset: seen.base_offset,
                end_offset: seen.base_offset + i64::from(head.last_offset_delta) + 1,
                append_time_ms: Some(seen.max_timestamp),
                log_start: self.log_start.load(Ordering::Acquire),
            });
        }
        let base_offset = self.end.load(Ordering::Acquire);
        let mut head = BatchHead { base_offset, leader_epoch: self.epoch.0, ..head };
        if stamped {
            head.max_timestamp = self.stamp(now_ms);
        }
        let segment = self.active_segment(&mut writer, &options, batch.bytes().len() as u64, head.max_timestamp)?;
        if !elsewhere.is_empty() {
            // Before the batch is there: from then on a sync may take it into a recovery point.
            let position = segment.tail.read().end_position;
            let open = OpenClosing { offset: base_offset, segment: segment.base_offset, position, elsewhere };
            self.progress.lock().closings.push_back(open);
        }
        if let Err(error) = self.write(&segment, &batch, &head, stamped) {
            self.progress.lock().closings.retain(|open| open.offset < base_offset);
            return Err(error);
        }
        let end_offset = head.last_offset() + 1;
        if self.hashed {
            self.note_routes(&mut writer, &batch, (base_offset, end_offset), head.max_timestamp, now_ms);
        } else if let Some(entry) = &entry {
            writer.producers.note(&entry.range, base_offset, head.max_timestamp, now_ms);
        }
        self.note_epoch(&segment, base_offset);
        self.end.store(end_offset, Ordering::Release);
        self.checkpoint_if_due(&mut writer, &segment);
        drop(writer);
        if options.visibility == Visibility::Appended {
            self.notify_watchers();
        }
        let log_start = self.log_start.load(Ordering::Acquire);
        Ok(Appended { base_offset, end_offset, append_time_ms: stamped.then_some(head.max_timestamp), log_start })
    }

    fn note_routes(&self, writer: &mut Writer, batch: &LogBatch, span: (i64, i64), commit_ms: i64, now_ms: i64) {
        if let Some(entry) = batch.entry() {
            writer.routes.note(&ProducerMark::Entry(entry, span.0, span.1), commit_ms, now_ms);
        }
        let LogBatch::Typed(typed) = batch else { return };
        for void in &typed.voids {
            writer.routes.note(&ProducerMark::Void(*void), commit_ms, now_ms);
        }
    }

    /// The time that a batch is stamped with. In typed tables it never falls within a bucket
    /// (docs/storage-format-typed.md §1).
    fn stamp(&self, now_ms: i64) -> i64 {
        if self.kind == BatchKind::Kafka {
            return now_ms;
        }
        let segments = self.segments.read();
        // A segment that was only begun has no time yet.
        let last = segments.iter().rev().map(|segment| segment.tail.read().max_timestamp).find(|last| *last >= 0);
        last.map_or(now_ms, |last| now_ms.max(last))
    }

    /// The segment that takes the next `len` bytes, a new one where the rules of rolling ask for it.
    /// Age is counted between record timestamps, as in Kafka: old records do not make a segment each.
    fn active_segment(
        &self,
        writer: &mut Writer,
        options: &LogOptions,
        len: u64,
        timestamp: i64,
    ) -> Result<Arc<Segment>> {
        let active = self.segments.read().last().cloned();
        if let Some(active) = active {
            let tail = active.tail.read();
            let full = tail.end_position > 0 && tail.end_position + len > options.segment_bytes;
            let age = if tail.first_timestamp >= 0 { timestamp.saturating_sub(tail.first_timestamp) } else { 0 };
            let old = tail.end_position > 0 && age > options.segment_ms;
            if !full && !old {
                drop(tail);
                return Ok(active);
            }
        }
        self.roll(writer)
    }

    /// Closes the active segment, if there is one, and begins the next.
    pub(super) fn roll(&self, writer: &mut Writer) -> Result<Arc<Segment>> {
        let base = self.end.load(Ordering::Acquire);
        let created = self.around.disk.create_dir(&self.directory);
        let segment = created
            .and_then(|()| Segment::create(&*self.around.disk, &self.directory, base))
            .map_err(|error| Error::io(format!("creating a segment of bucket {}", self.id), &error))?;
        let mut progress = self.progress.lock();
        progress.names_dirty = true;
        let mut segments = self.segments.write();
        if let Some(active) = segments.last() {
            progress.states.push(SegmentState { sealed: true, ..active_state(active, &active.tail.read(), writer) });
            // The producers must outlive the segments that tell of them.
            progress.states.push(active_state(&segment, &segment.tail.read(), writer));
        }
        let mut grown = segments.as_ref().clone();
        grown.push(Arc::clone(&segment));
        *segments = Arc::new(grown);
        writer.state_position = 0;
        Ok(segment)
    }

    fn write(&self, segment: &Segment, batch: &LogBatch, head: &BatchHead, stamped: bool) -> Result<()> {
        let position = segment.tail.read().end_position;
        let parts = placed(batch, head, stamped);
        let slices = [IoSlice::new(&parts.head), IoSlice::new(&parts.body), IoSlice::new(&parts.end)];
        if let Err(error) = segment.file.write_at(position, &slices) {
            let failure = Error::io(format!("appending to bucket {}", self.id), &error);
            // A part of the batch may be in the file; what follows must not be found behind it.
            if let Err(error) = segment.file.set_len(position) {
                self.take_offline(&Error::io(format!("cutting a failed append off bucket {}", self.id), &error));
            }
            return Err(failure);
        }
        let len = batch.bytes().len() as u64;
        segment.tail.write().note(&parts.head, head.base_offset, head.last_offset(), len, head.max_timestamp);
        Ok(())
    }

    fn note_epoch(&self, segment: &Segment, base_offset: i64) {
        let mut state = self.state.lock();
        if state.epochs.last().is_none_or(|(last, _)| *last < self.epoch.0) {
            state.epochs.push((self.epoch.0, base_offset));
            segment.tail.write().epochs.push((self.epoch.0, base_offset));
            self.progress.lock().epochs_dirty = true;
        }
    }

    fn checkpoint_if_due(&self, writer: &mut Writer, segment: &Segment) {
        let tail = segment.tail.read();
        if tail.end_position - writer.state_position < STATE_INTERVAL_BYTES {
            return;
        }
        writer.state_position = tail.end_position;
        let state = active_state(segment, &tail, writer);
        drop(tail);
        self.progress.lock().states.push(state);
    }
}

/// A batch with its place in the log, in the parts that are written one after the other.
struct Placed {
    head: [u8; HEAD_LEN],
    body: Bytes,
    end: Vec<u8>,
}

/// Sets what only the log knows. A batch's body is not copied, except where Kafka's checksum covers what is set.
fn placed(batch: &LogBatch, place: &BatchHead, stamped: bool) -> Placed {
    let mut bytes = batch.bytes().clone();
    if stamped && let LogBatch::Raw(_) = batch {
        let mut copy = bytes.to_vec();
        batch::set_max_timestamp(&mut copy, place.max_timestamp, true);
        bytes = copy.into();
    }
    let mut head = [0; HEAD_LEN];
    head.copy_from_slice(bytes.get(..HEAD_LEN).unwrap_or(&[0; HEAD_LEN]));
    let mut end = Vec::new();
    let mut body = HEAD_LEN.min(bytes.len())..bytes.len();
    match batch {
        LogBatch::Raw(_) => batch::set_position(&mut head, place.base_offset, place.leader_epoch),
        LogBatch::Typed(_) => {
            let crc = set_place(&mut head, place.base_offset, place.max_timestamp, place.leader_epoch);
            end = crc.to_le_bytes().to_vec();
            body.end -= end.len().min(body.len());
        }
    }
    Placed { head, body: bytes.slice(body), end }
}

pub(super) fn active_state(segment: &Segment, tail: &Tail, writer: &Writer) -> SegmentState {
    SegmentState {
        sealed: false,
        base_offset: segment.base_offset,
        tail: tail.clone(),
        producers: writer.producers.clone(),
        routes: writer.routes.clone(),
    }
}
