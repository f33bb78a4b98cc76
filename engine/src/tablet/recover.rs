//! From files to a tablet: trust what is known to be synced, scan the rest, cut the torn tail
//! (docs/storage-format.md §8).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_protocol::batch::{self, BatchHeader, HEADER_LEN};

use super::producers::Producers;
use super::state::BucketState;
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Disk, DiskFile, read_file};
use crate::log::points::RecoveryPoint;
use crate::log::segment::{Segment, SegmentState, Tail};
use crate::types::BucketId;

/// A bucket as its files tell it.
pub struct Loaded {
    /// All segments, ascending; may be empty.
    pub segments: Vec<Arc<Segment>>,
    /// Producers at the log's end.
    pub producers: Producers,
    /// The bucket's state; its epochs include those found in the scan.
    pub state: BucketState,
    /// One past the last offset.
    pub end: i64,
    /// Bytes moved to quarantine.
    pub quarantined: u64,
}

/// Where and how to load.
pub struct Source<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// Which bucket, for messages and for the names in quarantine.
    pub id: BucketId,
    /// Its directory.
    pub directory: &'a Path,
    /// `quarantine/`.
    pub quarantine: &'a Path,
    /// What the last recovery points say.
    pub point: Option<RecoveryPoint>,
    /// Whether the server stopped cleanly.
    pub clean: bool,
    /// Now, for producers found in the scan and for names in quarantine.
    pub now_ms: i64,
}

fn corrupt(id: BucketId, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("bucket {id}: {what}"))
}

/// Loads one bucket.
///
/// # Errors
/// `Corrupt` when damage lies where everything was known to be on disk; the disk's.
pub fn load(source: &Source<'_>) -> Result<Loaded> {
    let mut state = BucketState::load(source.disk, source.directory)?;
    let mut bases = list_segments(source)?;
    // Segments that retention or DeleteRecords had given up before the crash.
    while bases.get(1).is_some_and(|second| *second <= state.log_start) {
        remove_segment(source, bases.remove(0))?;
    }
    let mut loaded = Loaded {
        end: bases.first().copied().unwrap_or(state.log_start),
        segments: Vec::new(),
        producers: Producers::default(),
        state: BucketState::default(),
        quarantined: 0,
    };
    for at in 0..bases.len() {
        let base = bases.get(at).copied().unwrap_or_default();
        let trusted = source.point.is_some_and(|point| base < point.segment);
        if base != loaded.end && !loaded.segments.is_empty() {
            if source.clean || trusted || source.point.is_some_and(|point| loaded.end < point.offset) {
                return Err(corrupt(source.id, format!("no segment begins at offset {}", loaded.end)));
            }
            quarantine_rest(source, &mut loaded, bases.get(at..).unwrap_or_default())?;
            break;
        }
        let whole = load_segment(source, &mut loaded, &mut state, base)?;
        if !whole {
            quarantine_rest(source, &mut loaded, bases.get(at + 1..).unwrap_or_default())?;
            break;
        }
    }
    if let Some(point) = source.point.filter(|point| loaded.end < point.offset) {
        let what = format!("the log ends at {} but was on disk to {}", loaded.end, point.offset);
        return Err(corrupt(source.id, what));
    }
    state.epochs.retain(|(_, first)| *first < loaded.end || (*first == loaded.end && loaded.segments.is_empty()));
    state.log_start = state.log_start.max(loaded.segments.first().map_or(state.log_start, |first| first.base_offset));
    loaded.end = loaded.end.max(state.log_start);
    loaded.state = state;
    Ok(loaded)
}

fn list_segments(source: &Source<'_>) -> Result<Vec<i64>> {
    let entries = match source.disk.list(source.directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("listing bucket {}", source.id), &error)),
    };
    let mut bases = Vec::new();
    for entry in entries {
        if entry.name.ends_with(".tmp") {
            let _ = source.disk.remove(&source.directory.join(&entry.name));
        } else if let Some(base) = entry.name.strip_suffix(".log").and_then(|name| name.parse().ok()) {
            bases.push(base);
        }
    }
    bases.sort_unstable();
    Ok(bases)
}

fn remove_segment(source: &Source<'_>, base: i64) -> Result<()> {
    let path = crate::log::segment::log_path(source.directory, base);
    remove_if_there(source.disk, &path.with_extension("state"))?;
    remove_if_there(source.disk, &path)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()), &error))
        }
        _ => Ok(()),
    }
}

/// Loads one segment behind what is loaded already; `false` when the log ends inside it.
fn load_segment(source: &Source<'_>, loaded: &mut Loaded, bucket: &mut BucketState, base: i64) -> Result<bool> {
    let io = |error: std::io::Error| Error::io(format!("opening segment {base} of bucket {}", source.id), &error);
    let segment = Segment::open(source.disk, source.directory, base).map_err(io)?;
    let size = segment.file.size().map_err(io)?;
    let stored = read_file(source.disk, &segment.state_path()).ok().and_then(|bytes| SegmentState::decode(&bytes).ok());
    let stored = stored.filter(|state| state.base_offset == base);
    if let Some(state) = stored.as_ref().filter(|state| state.tail.end_position > size) {
        // A state file only ever speaks of synced bytes.
        let what = format!("segment {base} has {size} bytes, {} were on disk", state.tail.end_position);
        return Err(corrupt(source.id, what));
    }
    let complete = stored.as_ref().is_some_and(|state| state.tail.end_position == size);
    if source.clean && !complete {
        return Err(corrupt(source.id, format!("segment {base} does not match its state after a clean stop")));
    }
    let trusted = match source.point {
        Some(point) if base < point.segment => size,
        Some(point) if base == point.segment => point.position,
        _ => 0,
    };
    let trusted = trusted.max(stored.as_ref().map_or(0, |state| state.tail.end_position));
    if trusted > size {
        let what = format!("segment {base} has {size} bytes, {trusted} were on disk");
        return Err(corrupt(source.id, what));
    }
    let mut tail = segment.tail.read().clone();
    if let Some(state) = stored {
        tail = state.tail;
        loaded.producers = state.producers;
        merge_epochs(bucket, &tail.epochs);
    }
    scan(&*segment.file, size, &mut tail, |header, base_offset, tail| {
        loaded.producers.note(header, base_offset, source.now_ms);
        if bucket.epochs.last().is_none_or(|(last, _)| *last < header.leader_epoch) {
            bucket.epochs.push((header.leader_epoch, base_offset));
            tail.epochs.push((header.leader_epoch, base_offset));
        }
    })
    .map_err(io)?;
    let end_position = tail.end_position;
    loaded.end = tail.end_offset;
    *segment.tail.write() = tail;
    let segment = Arc::new(segment);
    loaded.segments.push(Arc::clone(&segment));
    if end_position < trusted {
        return Err(corrupt(source.id, format!("an invalid batch at byte {end_position} of segment {base}")));
    }
    if end_position < size {
        loaded.quarantined += quarantine_tail(source, &segment, end_position, size)?;
    }
    if end_position > trusted || end_position < size {
        segment.file.sync().map_err(io)?;
        source.disk.sync_dir(source.directory).map_err(io)?;
    }
    Ok(end_position == size)
}

fn merge_epochs(bucket: &mut BucketState, found: &[(i32, i64)]) {
    for (epoch, first) in found {
        if bucket.epochs.last().is_none_or(|(last, _)| last < epoch) {
            bucket.epochs.push((*epoch, *first));
        }
    }
}

const SCAN_CHUNK: usize = 1 << 20;

/// Steps over whole valid batches from the tail's end; stops at the first that is not one.
fn scan(
    file: &dyn DiskFile,
    size: u64,
    tail: &mut Tail,
    mut each: impl FnMut(&BatchHeader, i64, &mut Tail),
) -> std::io::Result<()> {
    let mut chunk: Vec<u8> = Vec::new();
    let mut start = tail.end_position;
    loop {
        let at = (tail.end_position - start) as usize;
        let rest = chunk.get(at..).unwrap_or_default();
        let need = BatchHeader::read(rest).map_or(HEADER_LEN, |header| header.total_len().unwrap_or(0));
        let left = size - tail.end_position;
        if need < HEADER_LEN || (need as u64) > left {
            return Ok(());
        }
        if rest.len() < need {
            let wrong_magic = rest.len() >= HEADER_LEN && need == HEADER_LEN && BatchHeader::read(rest).is_none();
            if wrong_magic {
                return Ok(());
            }
            start = tail.end_position;
            chunk.resize(need.max(SCAN_CHUNK).min(left as usize), 0);
            let n = file.read_at(start, &mut chunk)?;
            chunk.truncate(n);
            if n < need {
                return Ok(());
            }
            continue;
        }
        let Some(header) = BatchHeader::read(rest) else { return Ok(()) };
        let bytes = rest.get(..need).unwrap_or_default();
        if header.base_offset != tail.end_offset
            || header.last_offset_delta < 0
            || batch::compute_crc(bytes) != header.crc
        {
            return Ok(());
        }
        each(&header, header.base_offset, tail);
        let head = bytes.get(..HEADER_LEN).unwrap_or_default();
        tail.note(head, header.base_offset, header.last_offset(), need as u64, header.max_timestamp);
    }
}

/// Copies `[from, size)` of a segment to quarantine, then cuts it off.
fn quarantine_tail(source: &Source<'_>, segment: &Segment, from: u64, size: u64) -> Result<u64> {
    let io = |error: std::io::Error| Error::io(format!("quarantining a tail of bucket {}", source.id), &error);
    source.disk.create_dir(source.quarantine).map_err(io)?;
    let name = format!("{}_{}_{}.log", source.id, segment.tail.read().end_offset, source.now_ms);
    let copy = source.disk.create(&source.quarantine.join(name)).map_err(io)?;
    let mut chunk = vec![0; SCAN_CHUNK];
    let mut at = from;
    while at < size {
        let n = segment.file.read_at(at, &mut chunk).map_err(io)?;
        if n == 0 {
            break;
        }
        copy.write_at(at - from, &[std::io::IoSlice::new(chunk.get(..n).unwrap_or_default())]).map_err(io)?;
        at += n as u64;
    }
    copy.sync().map_err(io)?;
    source.disk.sync_dir(source.quarantine).map_err(io)?;
    segment.file.set_len(from).map_err(io)?;
    tracing::warn!(bucket = %source.id, offset = segment.tail.read().end_offset, bytes = size - from,
        "the log ends at an invalid batch; what followed is in quarantine/");
    Ok(size - from)
}

fn quarantine_rest(source: &Source<'_>, loaded: &mut Loaded, bases: &[i64]) -> Result<()> {
    for base in bases {
        let io = |error: std::io::Error| Error::io(format!("quarantining segment {base} of {}", source.id), &error);
        let path = crate::log::segment::log_path(source.directory, *base);
        let size = source.disk.open(&path).and_then(|file| file.size()).map_err(io)?;
        source.disk.create_dir(source.quarantine).map_err(io)?;
        let target: PathBuf = source.quarantine.join(format!("{}_{base}_{}.log", source.id, source.now_ms));
        source.disk.rename(&path, &target).map_err(io)?;
        remove_if_there(source.disk, &path.with_extension("state"))?;
        source.disk.sync_dir(source.quarantine).map_err(io)?;
        source.disk.sync_dir(source.directory).map_err(io)?;
        loaded.quarantined += size;
        tracing::warn!(bucket = %source.id, segment = base, bytes = size, "a segment behind the log's end is in quarantine/");
    }
    Ok(())
}
