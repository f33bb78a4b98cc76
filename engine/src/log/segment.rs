//! One segment: a file of whole batches, its sparse index, and the state file that lets a start
//! skip the scan (docs/storage-format.md §§3, 4.1).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::RwLock;

use super::checked::{self, Kind, Reader, Writer};
use crate::error::Result;
use crate::io::{Disk, DiskFile};
use crate::tablet::producers::Producers;
use crate::tablet::routes::Routes;

/// Bytes of log between two index entries.
pub const INDEX_INTERVAL_BYTES: u64 = 32 * 1024;

/// Where a batch begins, and what lies before it in the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// Base offset of the batch.
    pub offset: i64,
    /// Position of its first byte.
    pub position: u64,
    /// Largest timestamp of all batches before it in the segment, ms; -1 when none.
    pub max_timestamp_before: i64,
}

/// What grows with each append to a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// One past the last offset.
    pub end_offset: i64,
    /// One past the last byte of the last whole batch.
    pub end_position: u64,
    /// Largest timestamp, ms; -1 when none.
    pub max_timestamp: i64,
    /// Base offset of the first batch with that timestamp.
    pub max_timestamp_offset: i64,
    /// Max timestamp of the first batch, ms: the age that `segment.ms` counts from.
    pub first_timestamp: i64,
    /// CRC over the first 61 bytes of each batch.
    pub chain: u32,
    /// Sparse index, ascending.
    pub index: Vec<IndexEntry>,
    /// Leader epochs that begin here: (epoch, first offset).
    pub epochs: Vec<(i32, i64)>,
}

impl Tail {
    /// The tail of an empty segment.
    #[must_use]
    pub fn new(base_offset: i64) -> Self {
        Self {
            end_offset: base_offset,
            end_position: 0,
            max_timestamp: -1,
            max_timestamp_offset: -1,
            first_timestamp: -1,
            chain: 0,
            index: Vec::new(),
            epochs: Vec::new(),
        }
    }

    /// As [`Segment::position_before`], by this tail.
    #[must_use]
    pub fn position_before(&self, offset: i64) -> u64 {
        let after = self.index.partition_point(|entry| entry.offset <= offset);
        after.checked_sub(1).and_then(|at| self.index.get(at)).map_or(0, |entry| entry.position)
    }

    /// Takes note of one appended or scanned batch; `header` is its first 61 bytes.
    pub fn note(&mut self, header: &[u8], base_offset: i64, last_offset: i64, len: u64, max_timestamp: i64) {
        let due = self.index.last().is_none_or(|entry| self.end_position - entry.position >= INDEX_INTERVAL_BYTES);
        if due {
            let entry = IndexEntry {
                offset: base_offset,
                position: self.end_position,
                max_timestamp_before: self.max_timestamp,
            };
            self.index.push(entry);
        }
        if self.end_position == 0 {
            self.first_timestamp = max_timestamp;
        }
        if max_timestamp > self.max_timestamp {
            self.max_timestamp = max_timestamp;
            self.max_timestamp_offset = base_offset;
        }
        self.chain = crc32c::crc32c_append(self.chain, header);
        self.end_offset = last_offset + 1;
        self.end_position += len;
    }
}

/// A segment, shared by its writer and its readers.
pub struct Segment {
    /// Offset of its first batch, and its name.
    pub base_offset: i64,
    /// The data file.
    pub file: Arc<dyn DiskFile>,
    /// The data file's path.
    pub path: PathBuf,
    /// Grows under the writer, read by all.
    pub tail: RwLock<Tail>,
    /// Cleared when a send straight from the file failed.
    pub sendable: AtomicBool,
}

/// The file name of a segment's data.
#[must_use]
pub fn log_path(directory: &Path, base_offset: i64) -> PathBuf {
    directory.join(format!("{base_offset:020}.log"))
}

impl Segment {
    /// Creates an empty segment file. Its name is durable only after a sync of the directory.
    ///
    /// # Errors
    /// The disk's.
    pub fn create(disk: &dyn Disk, directory: &Path, base_offset: i64) -> std::io::Result<Arc<Self>> {
        let path = log_path(directory, base_offset);
        let file = disk.create(&path)?;
        Ok(Arc::new(Self {
            base_offset,
            file,
            path,
            tail: RwLock::new(Tail::new(base_offset)),
            sendable: AtomicBool::new(true),
        }))
    }

    /// Opens an existing segment file with nothing known of it.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: &dyn Disk, directory: &Path, base_offset: i64) -> std::io::Result<Self> {
        let path = log_path(directory, base_offset);
        let file = disk.open(&path)?;
        Ok(Self { base_offset, file, path, tail: RwLock::new(Tail::new(base_offset)), sendable: AtomicBool::new(true) })
    }

    /// The path of the segment's state file.
    #[must_use]
    pub fn state_path(&self) -> PathBuf {
        self.path.with_extension("state")
    }

    /// Position from which a reader of `offset` must look; at most an index interval too early.
    #[must_use]
    pub fn position_before(&self, offset: i64) -> u64 {
        self.tail.read().position_before(offset)
    }
}

/// What a state file says: the tail, and the producers at its end.
#[derive(Debug, Clone)]
pub struct SegmentState {
    /// Whether the segment was closed.
    pub sealed: bool,
    /// The segment's base offset.
    pub base_offset: i64,
    /// The tail as of this state.
    pub tail: Tail,
    /// Producer state at the tail's end.
    pub producers: Producers,
    /// The same, in hashed tables.
    pub routes: Routes,
}

impl SegmentState {
    /// The whole checked file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(u8::from(self.sealed));
        out.i64(self.base_offset);
        out.i64(self.tail.end_offset);
        out.u64(self.tail.end_position);
        out.i64(self.tail.max_timestamp);
        out.i64(self.tail.max_timestamp_offset);
        out.i64(self.tail.first_timestamp);
        out.u32(self.tail.chain);
        out.u32(self.tail.index.len() as u32);
        for entry in &self.tail.index {
            out.i64(entry.offset);
            out.u64(entry.position);
            out.i64(entry.max_timestamp_before);
        }
        out.u32(self.tail.epochs.len() as u32);
        for (epoch, offset) in &self.tail.epochs {
            out.i32(*epoch);
            out.i64(*offset);
        }
        self.producers.encode(&mut out);
        self.routes.encode(&mut out);
        checked::seal(Kind::Segment, &out.0)
    }

    /// Reads a state file.
    ///
    /// # Errors
    /// `Corrupt` for anything that is not one.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Reader(checked::open(Kind::Segment, bytes)?);
        let sealed = input.u8()? != 0;
        let base_offset = input.i64()?;
        let mut tail = Tail::new(base_offset);
        tail.end_offset = input.i64()?;
        tail.end_position = input.u64()?;
        tail.max_timestamp = input.i64()?;
        tail.max_timestamp_offset = input.i64()?;
        tail.first_timestamp = input.i64()?;
        tail.chain = input.u32()?;
        for _ in 0..input.count(24)? {
            let (offset, position) = (input.i64()?, input.u64()?);
            tail.index.push(IndexEntry { offset, position, max_timestamp_before: input.i64()? });
        }
        for _ in 0..input.count(12)? {
            tail.epochs.push((input.i32()?, input.i64()?));
        }
        let producers = Producers::decode(&mut input)?;
        let routes = Routes::decode(&mut input)?;
        Ok(Self { sealed, base_offset, tail, producers, routes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_files_round_trip() {
        let mut tail = Tail::new(100);
        for i in 0..50 {
            tail.note(&[i as u8; 61], 100 + i * 3, 102 + i * 3, 9_000, 7 * i);
        }
        tail.epochs.push((2, 100));
        assert_eq!(tail.index.len(), 13);
        assert_eq!(tail.index[1].max_timestamp_before, 21);
        let state = SegmentState {
            sealed: true,
            base_offset: 100,
            tail,
            producers: Producers::default(),
            routes: Routes::default(),
        };
        let back = SegmentState::decode(&state.encode()).expect("decodes");
        assert_eq!(back.tail, state.tail);
        assert!(back.sealed);
    }
}
