//! From files to a tablet: trust what is known to be synced, scan the rest, cut the torn tail
//! (docs/storage-format.md §8).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Shape;
use super::producers::Producers;
use super::routes::Routes;
use super::state::BucketState;
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Disk, DiskFile, copy_range, read_file, remove_if_there};
use crate::log::head::{BatchHead, BatchKind, HEAD_LEN, ProducerMark};
use crate::log::points::RecoveryPoint;
use crate::log::segment::{Segment, SegmentState, Tail};
use crate::types::BucketId;

/// A bucket as its files tell it.
pub struct Loaded {
    /// All segments, ascending; may be empty.
    pub segments: Vec<Arc<Segment>>,
    /// Producers at the log's end.
    pub producers: Producers,
    /// The same, in hashed tables.
    pub routes: Routes,
    /// The bucket's state; its epochs include those found in the scan.
    pub state: BucketState,
    /// One past the last offset.
    pub end: i64,
    /// Bytes moved to quarantine.
    pub quarantined: u64,
    /// State files that are missing: those of segments that were closed but scanned, and the producers
    /// that the last segment began with.
    pub states: Vec<SegmentState>,
    /// Whether names of segments may not be on disk.
    pub names_dirty: bool,
}

/// Where and how to load.
pub struct Source<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// Which bucket, for messages and for the names in quarantine.
    pub id: BucketId,
    /// What its segments hold.
    pub shape: Shape,
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
    if !source.clean && state.log_start > 0 {
        // The last run may have ended before the name was durable; readers and removals rely on it.
        let io = |error: std::io::Error| Error::io(format!("recovering bucket {}", source.id), &error);
        source.disk.sync_dir(source.directory).map_err(io)?;
    }
    // Segments that retention or DeleteRecords had given up before the crash. The last of them that has a
    // state stays, with what follows: from there on nothing was removed, and it tells of the producers.
    let first = bases.partition_point(|base| *base <= state.log_start);
    let given_up = bases.get(..first).unwrap_or_default();
    if let Some(kept) = given_up.iter().rposition(|base| stored_state(source, *base).is_some()) {
        bases.drain(..kept).try_for_each(|base| remove_segment(source, base))?;
    }
    let stored: Vec<_> = bases.iter().map(|base| stored_state(source, *base)).collect();
    // A state file is only written when everything below its end is on disk.
    let proven = stored.iter().flatten().map(|stored| (stored.base_offset, stored.tail.end_offset)).max();
    let floor = source.point.map_or(0, |point| point.offset).max(proven.map_or(0, |(_, end)| end));
    let mut loaded = Loaded {
        // Nothing below the log start need be there, and nothing above it may be missing.
        end: bases.first().map_or(state.log_start, |first| state.log_start.min(*first)),
        segments: Vec::new(),
        producers: Producers::default(),
        routes: Routes::default(),
        state: BucketState::default(),
        quarantined: 0,
        states: Vec::new(),
        names_dirty: false,
    };
    let mut stated = true;
    for (at, (base, stored)) in bases.iter().copied().zip(stored).enumerate() {
        if base != loaded.end {
            if source.clean || base < floor || loaded.end < floor {
                return Err(corrupt(source.id, format!("no segment begins at offset {}", loaded.end)));
            }
            quarantine_rest(source, &mut loaded, bases.get(at..).unwrap_or_default())?;
            break;
        }
        if let Some(closed) = loaded.segments.last().filter(|_| !stated) {
            let (base_offset, tail) = (closed.base_offset, closed.tail.read().clone());
            let (producers, routes) = (loaded.producers.clone(), loaded.routes.clone());
            loaded.states.push(SegmentState { sealed: true, base_offset, tail, producers, routes });
        }
        if stored.is_none() && !loaded.segments.is_empty() {
            let (producers, routes) = (loaded.producers.clone(), loaded.routes.clone());
            let tail = Tail::new(base);
            loaded.states.push(SegmentState { sealed: false, base_offset: base, tail, producers, routes });
        }
        let proven = proven.map_or(base, |(last, _)| last);
        let whole;
        (whole, stated) = load_segment(source, &mut loaded, &mut state, base, stored, proven)?;
        if !whole {
            quarantine_rest(source, &mut loaded, bases.get(at + 1..).unwrap_or_default())?;
            break;
        }
    }
    // Records are only given up when they are on disk.
    let floor = if loaded.segments.is_empty() { floor } else { floor.max(state.log_start) };
    if loaded.end < floor {
        let what = format!("the log ends at {} but was on disk to {floor}", loaded.end);
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
            // Only our own names: any other file is not a segment.
            if entry.name == format!("{base:020}.log") && base >= 0 {
                bases.push(base);
            }
        }
    }
    bases.sort_unstable();
    Ok(bases)
}

fn remove_segment(source: &Source<'_>, base: i64) -> Result<()> {
    let path = crate::log::segment::log_path(source.directory, base);
    let io = |error: std::io::Error| Error::io(format!("removing {}", path.display()), &error);
    remove_if_there(source.disk, &path.with_extension("state")).map_err(io)?;
    remove_if_there(source.disk, &path).map_err(io)
}

/// The valid state file of a segment, if there is one.
fn stored_state(source: &Source<'_>, base: i64) -> Option<SegmentState> {
    let path = crate::log::segment::log_path(source.directory, base).with_extension("state");
    let state = SegmentState::decode(&read_file(source.disk, &path).ok()?).ok()?;
    (state.base_offset == base).then_some(state)
}

/// Loads one segment behind what is loaded already: whether all of it is valid, and whether its state
/// file speaks of all of it. Segments below `proven` are on disk in full.
fn load_segment(
    source: &Source<'_>,
    loaded: &mut Loaded,
    bucket: &mut BucketState,
    base: i64,
    stored: Option<SegmentState>,
    proven: i64,
) -> Result<(bool, bool)> {
    let io = |error: std::io::Error| Error::io(format!("opening segment {base} of bucket {}", source.id), &error);
    let segment = Segment::open(source.disk, source.directory, base).map_err(io)?;
    let size = segment.file.size().map_err(io)?;
    if let Some(state) = stored.as_ref().filter(|state| state.tail.end_position > size) {
        // A state file only ever speaks of synced bytes.
        let what = format!("segment {base} has {size} bytes, {} were on disk", state.tail.end_position);
        return Err(corrupt(source.id, what));
    }
    let complete = stored.as_ref().is_some_and(|state| state.tail.end_position == size);
    if source.clean && stored.is_some() && !complete {
        return Err(corrupt(source.id, format!("segment {base} does not match its state after a clean stop")));
    }
    let named = stored.is_some() || base < proven || source.point.is_some_and(|point| base <= point.segment);
    let trusted = match source.point {
        _ if source.clean || base < proven => size,
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
        (loaded.producers, loaded.routes) = (state.producers, state.routes);
        merge_epochs(bucket, &tail.epochs);
    }
    let Shape { kind, hashed } = source.shape;
    scan(&*segment.file, kind, size, &mut tail, |head, batch, tail| {
        kind.for_each_mark(batch, |mark| match mark {
            _ if hashed => loaded.routes.note(&mark, head.max_timestamp, source.now_ms),
            ProducerMark::Entry(entry, offset, _) => {
                loaded.producers.note(&entry.range, offset, head.max_timestamp, source.now_ms);
            }
            ProducerMark::Void(_) => {}
        });
        if bucket.epochs.last().is_none_or(|(last, _)| *last < head.leader_epoch) {
            bucket.epochs.push((head.leader_epoch, head.base_offset));
            tail.epochs.push((head.leader_epoch, head.base_offset));
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
    loaded.names_dirty |= end_position > trusted || !(named || source.clean);
    if end_position > trusted || end_position < size {
        write_again(&*segment.file, trusted, end_position).map_err(io)?;
        segment.file.sync().map_err(io)?;
    }
    Ok((end_position == size, complete))
}

/// Writes what is in the file to the same place. A server whose sync failed may have been killed before
/// it repaired the bucket: the kernel then takes pages for clean that are not on disk, and a sync alone
/// would pass them over. What is rewritten was not known to be on disk.
fn write_again(file: &dyn DiskFile, from: u64, to: u64) -> std::io::Result<()> {
    copy_range(file, from, to, file, from)
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
    kind: BatchKind,
    size: u64,
    tail: &mut Tail,
    mut each: impl FnMut(&BatchHead, &[u8], &mut Tail),
) -> std::io::Result<()> {
    let mut chunk: Vec<u8> = Vec::new();
    let mut start = tail.end_position;
    loop {
        let at = (tail.end_position - start) as usize;
        let rest = chunk.get(at..).unwrap_or_default();
        let found = kind.head(rest);
        let need = found.map_or(HEAD_LEN, |head| head.len.unwrap_or(0));
        let left = size - tail.end_position;
        if need < HEAD_LEN || (need as u64) > left {
            return Ok(());
        }
        if rest.len() < need {
            let wrong_magic = rest.len() >= HEAD_LEN && need == HEAD_LEN && found.is_none();
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
        let Some(head) = found else { return Ok(()) };
        let bytes = rest.get(..need).unwrap_or_default();
        if head.base_offset != tail.end_offset
            || head.last_offset_delta < 0
            || head.last_offset() == i64::MAX
            || !kind.is_sound(bytes)
        {
            return Ok(());
        }
        each(&head, bytes, tail);
        let covered = bytes.get(..HEAD_LEN).unwrap_or_default();
        tail.note(covered, head.base_offset, head.last_offset(), need as u64, head.max_timestamp);
    }
}

/// Copies `[from, size)` of a segment to quarantine, then cuts it off.
fn quarantine_tail(source: &Source<'_>, segment: &Segment, from: u64, size: u64) -> Result<u64> {
    let io = |error: std::io::Error| Error::io(format!("quarantining a tail of bucket {}", source.id), &error);
    source.disk.create_dir(source.quarantine).map_err(io)?;
    let name = format!("{}_{}_{}.log", source.id, segment.tail.read().end_offset, source.now_ms);
    let copy = source.disk.create(&source.quarantine.join(name)).map_err(io)?;
    copy_range(&*segment.file, from, size, &*copy, 0).map_err(io)?;
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
        remove_if_there(source.disk, &path.with_extension("state")).map_err(io)?;
        source.disk.sync_dir(source.quarantine).map_err(io)?;
        source.disk.sync_dir(source.directory).map_err(io)?;
        loaded.quarantined += size;
        tracing::warn!(bucket = %source.id, segment = base, bytes = size, "a segment behind the log's end is in quarantine/");
    }
    Ok(())
}
