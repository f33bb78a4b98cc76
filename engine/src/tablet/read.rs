//! Reading whole batches as the bytes they are.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use sluice_protocol::records;

use super::{Tablet, out_of_range};
use crate::error::{Error, ErrorKind, Result};
use crate::log::head::{BatchHead, BatchKind, HEAD_LEN};
use crate::log::segment::{INDEX_INTERVAL_BYTES, Segment};

/// Up to where a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadLimit {
    /// The high watermark.
    Visible,
    /// Everything appended.
    Appended,
}

/// The outcome of a read that may not wait for the disk.
#[derive(Debug)]
pub enum Reading {
    /// Whole batches, or none at the end of the log.
    Done(Bytes),
    /// The bytes are not in memory; ask again from a thread that may wait.
    WouldBlock,
}

/// Whole batches, as they are stored.
#[derive(Debug, Clone)]
pub enum Batches {
    /// In memory of our own.
    Bytes(Bytes),
    /// In the page cache.
    File(FileRange),
}

impl Batches {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(range) => range.len as usize,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whole batches in a segment's file, all in the page cache when they were found. They stay readable
/// when the segment is removed, and never change: a log is only appended to.
#[derive(Clone)]
pub struct FileRange {
    segment: Arc<Segment>,
    position: u64,
    len: u64,
}

impl std::fmt::Debug for FileRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}+{}", self.segment.path.display(), self.position, self.len)
    }
}

impl FileRange {
    /// Length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Sends what follows the first `sent` bytes to a socket; how many bytes went.
    ///
    /// # Errors
    /// `WouldBlock` when the socket is full; the socket's; the disk's, after which the segment is read
    /// the ordinary way, where the next reader learns what is wrong.
    pub fn send_to(&self, socket: BorrowedFd<'_>, sent: u64) -> std::io::Result<u64> {
        let left = self.len.saturating_sub(sent);
        let outcome = self.segment.file.send_to(socket, self.position + sent, left);
        match &outcome {
            Ok(0) if left > 0 => {
                self.segment.sendable.store(false, Ordering::Relaxed);
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                self.segment.sendable.store(false, Ordering::Relaxed);
                outcome
            }
            _ => outcome,
        }
    }
}

/// Largest payload that a look-up by time decodes.
const DECODE_MAX: usize = 256 << 20;
/// How many sequential readers find their place without a search.
const CURSORS_MAX: usize = 16;
/// Smallest read from a file.
const READ_MIN: usize = 4096;
/// Below this a copy costs less than a system call of its own.
const SEND_MIN: u64 = 64 << 10;

/// Where recent reads ended: the next sequential read starts there without searching.
#[derive(Debug, Default)]
pub(super) struct Cursors(VecDeque<(i64, i64, u64)>);

impl Cursors {
    fn take(&mut self, offset: i64, segment: i64) -> Option<u64> {
        let at = self.0.iter().position(|(o, s, _)| *o == offset && *s == segment)?;
        self.0.remove(at).map(|(_, _, position)| position)
    }

    fn find(&self, offset: i64, segment: i64) -> Option<u64> {
        self.0.iter().find(|(o, s, _)| *o == offset && *s == segment).map(|(_, _, position)| *position)
    }

    fn put(&mut self, offset: i64, segment: i64, position: u64) {
        if self.0.len() == CURSORS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((offset, segment, position));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Read buffers that go back to a shelf when the response that borrowed them is written: zeroing and
/// faulting in fresh memory for each fetch costs as much as the copy.
static SHELF: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
const SHELF_MAX: usize = 32;
const SHELVED_LEN: usize = (1 << 20) + (64 << 10);

struct Shelved(Vec<u8>);

impl AsRef<[u8]> for Shelved {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Shelved {
    fn drop(&mut self) {
        let mut shelf = SHELF.lock();
        if self.0.len() == SHELVED_LEN && shelf.len() < SHELF_MAX {
            shelf.push(std::mem::take(&mut self.0));
        }
    }
}

fn buffer(len: usize) -> Vec<u8> {
    if len <= SHELVED_LEN && len > SHELVED_LEN / 8 {
        return SHELF.lock().pop().unwrap_or_else(|| vec![0; SHELVED_LEN]);
    }
    vec![0; len]
}

/// A read in one segment that is being put together.
struct Chunk {
    bytes: Vec<u8>,
    filled: usize,
}

fn read_at(segment: &Segment, position: u64, len: usize, may_wait: bool) -> std::io::Result<Option<Chunk>> {
    let mut bytes = buffer(len);
    let target = bytes.get_mut(..len).unwrap_or_default();
    let filled = if may_wait {
        Some(segment.file.read_at(position, target)?)
    } else {
        segment.file.read_cached_at(position, target)?
    };
    Ok(filled.map(|filled| Chunk { bytes, filled }))
}

impl Tablet {
    /// One past the last offset that a reader of `offset` may see.
    fn end_for(&self, offset: i64, limit: ReadLimit) -> Result<i64> {
        self.check_online()?;
        let end = match limit {
            ReadLimit::Visible => self.high_watermark(),
            ReadLimit::Appended => self.end.load(Ordering::Acquire),
        };
        let log_start = self.log_start.load(Ordering::Acquire);
        if offset < log_start || offset > end {
            return Err(out_of_range(self.id, offset, log_start, end));
        }
        Ok(end)
    }

    /// Whole visible batches from `offset` on, at most `max_bytes`, where they can be sent without a copy: `offset`
    /// is where an earlier read ended, and all is in memory. No header is looked at: the range ends
    /// where an entry of the sparse index or the segment's end says that a batch ends, so it may be
    /// up to an index interval shorter than what [`Tablet::read`] gives.
    ///
    /// # Errors
    /// As [`Tablet::read`].
    pub fn range(&self, offset: i64, max_bytes: usize) -> Result<Option<FileRange>> {
        let end = self.end_for(offset, ReadLimit::Visible)?;
        let segments = Arc::clone(&self.segments.read());
        let after = segments.partition_point(|segment| segment.base_offset <= offset);
        let Some(segment) = after.checked_sub(1).and_then(|at| segments.get(at)) else { return Ok(None) };
        let Some(position) = self.cursors.lock().find(offset, segment.base_offset) else { return Ok(None) };
        let limit = position.saturating_add(max_bytes as u64);
        let (next, to) = {
            let tail = segment.tail.read();
            if tail.end_offset <= end && tail.end_position <= limit {
                (tail.end_offset, tail.end_position)
            } else {
                let after = tail.index.partition_point(|entry| entry.offset <= end && entry.position <= limit);
                let entry = after.checked_sub(1).and_then(|at| tail.index.get(at));
                entry.map_or((offset, position), |entry| (entry.offset, entry.position))
            }
        };
        let len = to.saturating_sub(position);
        let sendable = segment.sendable.load(Ordering::Relaxed);
        if len < SEND_MIN || !sendable || !segment.file.is_cached(position, len) {
            return Ok(None);
        }
        let mut cursors = self.cursors.lock();
        cursors.take(offset, segment.base_offset);
        cursors.put(next, segment.base_offset, to);
        Ok(Some(FileRange { segment: Arc::clone(segment), position, len }))
    }

    /// Reads whole batches from the one that holds `offset` on: at most `max_bytes`, but always one
    /// (KIP-74). With `may_wait` false only what is in memory is read.
    ///
    /// # Errors
    /// `OffsetOutOfRange`; the disk's; the reason why the bucket is offline.
    pub fn read(&self, offset: i64, max_bytes: usize, limit: ReadLimit, may_wait: bool) -> Result<Reading> {
        let end = self.end_for(offset, limit)?;
        if offset == end {
            return Ok(Reading::Done(Bytes::new()));
        }
        let segments = Arc::clone(&self.segments.read());
        let after = segments.partition_point(|segment| segment.base_offset <= offset);
        for segment in segments.get(after.saturating_sub(1)..).unwrap_or_default() {
            let read = self.read_segment(segment, offset, end, max_bytes, may_wait);
            match read.map_err(|error| Error::io(format!("reading bucket {}", self.id), &error))? {
                None => return Ok(Reading::WouldBlock),
                Some(bytes) if !bytes.is_empty() => return Ok(Reading::Done(bytes)),
                Some(_) => {}
            }
        }
        // A segment that was removed while we looked: the offset is below the log start by now.
        let log_start = self.log_start.load(Ordering::Acquire);
        if offset < log_start {
            return Err(out_of_range(self.id, offset, log_start, end));
        }
        Err(Error::new(ErrorKind::Corrupt, format!("bucket {}: no batch holds offset {offset}", self.id)))
    }

    fn read_segment(
        &self,
        segment: &Segment,
        offset: i64,
        end: i64,
        max_bytes: usize,
        may_wait: bool,
    ) -> std::io::Result<Option<Bytes>> {
        let known = self.cursors.lock().take(offset, segment.base_offset);
        let mut position = known.unwrap_or_else(|| segment.position_before(offset));
        let segment_end = segment.tail.read().end_position;
        let search = if known.is_some() { 0 } else { INDEX_INTERVAL_BYTES as usize };
        let mut want = max_bytes.max(READ_MIN).saturating_add(search);
        while position < segment_end {
            let len = want.min((segment_end - position) as usize);
            let Some(chunk) = read_at(segment, position, len, may_wait)? else { return Ok(None) };
            match cut(self.kind, chunk.bytes.get(..chunk.filled).unwrap_or_default(), offset, end, max_bytes) {
                Cut::Found { from, to, next } => {
                    self.cursors.lock().put(next, segment.base_offset, position + to as u64);
                    return Ok(Some(Bytes::from_owner(Shelved(chunk.bytes)).slice(from..to)));
                }
                Cut::Skip { bytes, need } => {
                    if bytes == 0 && need <= len {
                        break;
                    }
                    position += bytes as u64;
                    want = want.max(need);
                }
                Cut::End => break,
            }
        }
        Ok(Some(Bytes::new()))
    }

    /// Bytes that a read from `offset` could return; near enough to decide whether to wait.
    #[must_use]
    pub fn available_bytes(&self, offset: i64) -> u64 {
        let end = self.high_watermark();
        if offset >= end {
            return 0;
        }
        let segments = self.segments.read();
        let mut total = 0u64;
        for segment in segments.iter() {
            let tail = segment.tail.read();
            if tail.end_offset > offset {
                let from = if segment.base_offset > offset { 0 } else { tail.position_before(offset) };
                total += tail.end_position - from;
            }
        }
        total.max(1)
    }

    /// The first record at or after `timestamp` ms: (offset, its timestamp). Blocks on the disk.
    ///
    /// # Errors
    /// The disk's; `Corrupt` when a batch does not decode.
    pub fn offset_for_time(&self, timestamp: i64) -> Result<Option<(i64, i64)>> {
        self.check_online()?;
        let (log_start, end) = (self.log_start.load(Ordering::Acquire), self.high_watermark());
        let segments = Arc::clone(&self.segments.read());
        for segment in segments.iter() {
            let from = {
                let tail = segment.tail.read();
                if tail.max_timestamp < timestamp || tail.end_offset <= log_start {
                    continue;
                }
                let after = tail.index.partition_point(|entry| entry.max_timestamp_before < timestamp);
                after.checked_sub(1).and_then(|at| tail.index.get(at)).map_or(segment.base_offset, |entry| entry.offset)
            };
            let mut offset = from.max(log_start);
            while offset < end.min(segment.tail.read().end_offset) {
                let Reading::Done(bytes) = self.read(offset, 1 << 20, ReadLimit::Visible, true)? else { break };
                let (found, next) = first_record(self.kind, &bytes, log_start, timestamp)?;
                if found.is_some() {
                    return Ok(found);
                }
                if next <= offset {
                    break;
                }
                offset = next;
            }
        }
        Ok(None)
    }

    /// The first record with the largest timestamp: (offset, timestamp). Blocks on the disk.
    ///
    /// # Errors
    /// The disk's; `Corrupt` when a batch does not decode.
    pub fn max_timestamp(&self) -> Result<Option<(i64, i64)>> {
        self.check_online()?;
        let log_start = self.log_start.load(Ordering::Acquire);
        let segments = Arc::clone(&self.segments.read());
        let mut best: Option<i64> = None;
        for segment in segments.iter() {
            let tail = segment.tail.read();
            if tail.end_offset > log_start && tail.max_timestamp >= 0 {
                best = best.max(Some(tail.max_timestamp));
            }
        }
        let Some(best) = best else { return Ok(None) };
        let found = self.offset_for_time(best)?;
        if found.is_some() {
            return Ok(found);
        }
        // The largest of all is of a record that nobody sees: look at those that are seen.
        match self.newest_visible(log_start)? {
            Some(timestamp) => self.offset_for_time(timestamp),
            None => Ok(None),
        }
    }

    /// The largest timestamp between `log_start` and the high watermark, found by reading.
    fn newest_visible(&self, log_start: i64) -> Result<Option<i64>> {
        let (mut offset, end, mut best) = (log_start, self.high_watermark(), None);
        while offset < end {
            let Reading::Done(bytes) = self.read(offset, 1 << 20, ReadLimit::Visible, true)? else { break };
            let mut next = offset;
            for (at, head, len) in batches(self.kind, &bytes) {
                next = head.last_offset() + 1;
                if head.one_timestamp || head.base_offset >= log_start {
                    best = best.max(Some(head.max_timestamp));
                    continue;
                }
                let batch = bytes.get(at..at + len).unwrap_or_default();
                records::for_each(batch, DECODE_MAX, |header, record| {
                    if header.base_offset + i64::from(record.offset_delta) >= log_start {
                        best = best.max(Some(header.base_timestamp.saturating_add(record.timestamp_delta)));
                    }
                })
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("batch at {}: {error}", head.base_offset)))?;
            }
            if next <= offset {
                break;
            }
            offset = next;
        }
        Ok(best)
    }
}

/// Steps over whole batches: (position in `bytes`, head, length).
fn batches(kind: BatchKind, bytes: &[u8]) -> impl Iterator<Item = (usize, BatchHead, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let head = kind.head(rest)?;
        let len = head.len.filter(|len| *len <= rest.len())?;
        let place = at;
        at += len;
        Some((place, head, len))
    })
}

enum Cut {
    /// Whole batches at `from..to`; the next read begins at offset `next`, byte `to`.
    Found { from: usize, to: usize, next: i64 },
    /// Only batches below the offset; go on `bytes` further, reading at least `need`.
    Skip { bytes: usize, need: usize },
    /// The first batch wanted is not visible.
    End,
}

/// Finds the batches to return in bytes that begin at a batch.
fn cut(kind: BatchKind, bytes: &[u8], offset: i64, end: i64, max_bytes: usize) -> Cut {
    let mut from = None;
    let (mut to, mut next, mut skipped) = (0, offset, 0);
    for (at, head, len) in batches(kind, bytes) {
        if head.last_offset() < offset {
            skipped = at + len;
            continue;
        }
        if head.base_offset >= end {
            break;
        }
        let start = *from.get_or_insert(at);
        if at > start && at + len - start > max_bytes {
            break;
        }
        to = at + len;
        next = head.last_offset() + 1;
    }
    if let Some(from) = from {
        return Cut::Found { from, to, next };
    }
    match bytes.get(skipped..).and_then(|rest| kind.head(rest)) {
        Some(head) if head.base_offset >= end => Cut::End,
        Some(head) => Cut::Skip { bytes: skipped, need: head.len.unwrap_or(0) },
        None => Cut::Skip { bytes: skipped, need: HEAD_LEN },
    }
}

/// The first record of `bytes` at or after both bounds, and the offset behind the last batch.
fn first_record(kind: BatchKind, bytes: &[u8], log_start: i64, timestamp: i64) -> Result<(Option<(i64, i64)>, i64)> {
    let mut next = -1;
    for (at, head, len) in batches(kind, bytes) {
        next = head.last_offset() + 1;
        if head.max_timestamp < timestamp || head.control {
            continue;
        }
        if head.one_timestamp {
            return Ok((Some((head.base_offset.max(log_start), head.max_timestamp)), next));
        }
        let mut found = None;
        records::for_each(bytes.get(at..at + len).unwrap_or_default(), DECODE_MAX, |header, record| {
            let offset = header.base_offset + i64::from(record.offset_delta);
            let time = header.base_timestamp.saturating_add(record.timestamp_delta);
            if found.is_none() && time >= timestamp && offset >= log_start {
                found = Some((offset, time));
            }
        })
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("batch at {}: {error}", head.base_offset)))?;
        if found.is_some() {
            return Ok((found, next));
        }
    }
    Ok((None, next))
}
