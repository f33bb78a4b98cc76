//! One bucket's log: appended to by one owner at a time, synced by the flusher, read by anyone.
//!
//! Every step is a plain function that blocks: the threads of [`crate::shard`] and
//! [`crate::flusher`] are thin loops around them, and the simulator calls them itself.
//!
//! Invariants:
//! - `log_start <= synced <= end`; none of the three ever moves back while the tablet is open.
//! - The high watermark is `synced` (`visibility = durable`) or `end` (`appended`), but never above the gate, which
//!   only PK tables have: what their KvTablet has applied.
//! - A waiter is told success only for offsets below `synced` and the gate.

mod append;
mod clean;
pub mod producers;
mod read;
pub mod recover;
mod repair;
pub mod routes;
pub mod state;
mod sync;
pub mod voids;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, oneshot};

pub use append::{Appended, LogBatch, RawBatch, Refusal, prepare};
pub use read::{Batches, FileRange, ReadLimit, Reading};

use crate::clock::Clock;
use crate::config::{LogOptions, Visibility};
use crate::error::{Error, ErrorKind, Result};
use crate::io::Disk;
use crate::log::head::{BatchKind, ProducerRange};
use crate::log::points::RecoveryPoint;
use crate::log::segment::{Segment, SegmentState};
use crate::row::key::Place;
use crate::types::BucketId;
use producers::Producers;
use recover::{Loaded, Source};
use routes::Routes;
use state::BucketState;
use sync::OpenClosing;

/// What a tablet needs from the engine around it.
#[derive(Clone)]
pub struct Surroundings {
    /// Where files live.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The data directory.
    pub root: PathBuf,
}

/// What kind of table a bucket belongs to, as far as its log is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Which batches its segments hold.
    pub kind: BatchKind,
    /// Whether rows are placed by their hash.
    pub hashed: bool,
}

/// State that only the appending side touches.
struct Writer {
    producers: Producers,
    /// Instead of `producers`, in hashed tables.
    routes: Routes,
    /// End position that the newest state file of the active segment speaks of.
    state_position: u64,
}

/// How far the files are known to be on disk.
struct Progress {
    /// First segment that may hold unsynced bytes.
    segment: i64,
    /// Whether a segment file's name may not be durable.
    names_dirty: bool,
    /// Whether the epoch history has entries that `bucket.state` lacks.
    epochs_dirty: bool,
    /// State files to write once the bytes they speak of are synced.
    states: Vec<SegmentState>,
    /// The newest recovery point.
    point: Option<RecoveryPoint>,
    /// Closings that are not known to be on disk everywhere, ascending: no recovery point passes one.
    closings: VecDeque<OpenClosing>,
}

type DurableWaiter = (i64, oneshot::Sender<Result<()>>);

/// One bucket's log.
pub struct Tablet {
    /// Its name.
    pub id: BucketId,
    /// Which batches its segments hold.
    pub kind: BatchKind,
    /// Whether rows are placed by their hash, so that a producer's range may span buckets.
    pub hashed: bool,
    directory: PathBuf,
    around: Surroundings,
    /// The leader epoch of this run of the server, and the log end when it began.
    pub epoch: (i32, i64),
    options: RwLock<Arc<LogOptions>>,
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    end: AtomicI64,
    synced: AtomicI64,
    /// Readers see nothing above it.
    gate: AtomicI64,
    log_start: AtomicI64,
    /// Below it nothing is to be checked: the recovery point that the log was opened with.
    opened_at: i64,
    on_sync: OnceLock<Box<dyn Fn() + Send + Sync>>,
    writer: Mutex<Writer>,
    progress: Mutex<Progress>,
    /// Held over a sync: one at a time.
    syncing: Mutex<()>,
    /// Held while `bucket.state` is written: its one writer at a time.
    state: Mutex<BucketState>,
    durable_waiters: Mutex<Vec<DurableWaiter>>,
    watchers: Mutex<Vec<Arc<Notify>>>,
    /// Someone waits for the next durable offset: sync at once.
    pub(crate) urgent: AtomicBool,
    /// Whether the flusher has the tablet in its queue.
    pub(crate) queued: AtomicBool,
    cursors: Mutex<read::Cursors>,
    offline: RwLock<Option<Error>>,
    /// Whether the bucket is offline because of a failed sync, which `repair` can mend.
    repairable: AtomicBool,
}

/// Where a bucket's log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    /// First offset that may be read.
    pub log_start: i64,
    /// One past the last offset that readers see.
    pub high_watermark: i64,
    /// One past the last offset appended.
    pub end: i64,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// What lies below it was another bucket's, which had the same topic partition.
    pub slot_base: i64,
}

impl Tablet {
    /// Opens a bucket, recovering it from its files; a directory that is not there is a new bucket.
    ///
    /// # Errors
    /// As [`recover::load`].
    pub fn open(
        around: Surroundings,
        id: BucketId,
        shape: Shape,
        options: Arc<LogOptions>,
        leader_epoch: i32,
        point: Option<RecoveryPoint>,
        clean: bool,
    ) -> Result<(Self, u64)> {
        let directory = id.directory(&around.root);
        let quarantine = around.root.join("quarantine");
        let now_ms = around.clock.now_ms();
        let source = Source {
            disk: &*around.disk,
            id,
            shape,
            directory: &directory,
            quarantine: &quarantine,
            point,
            clean,
            now_ms,
        };
        let loaded = recover::load(&source)?;
        let (quarantined, names_dirty) = (loaded.quarantined, loaded.names_dirty);
        let mut tablet = Self::empty(around, id, shape, options, (leader_epoch, loaded.end));
        tablet.opened_at = if clean { loaded.end } else { point.map_or(0, |point| point.offset) };
        if names_dirty {
            // Before anything is served: a name may be all that the last run had not made durable.
            tablet.sync_names().map_err(|error| Error::io(format!("recovering bucket {id}"), &error))?;
        }
        tablet.adopt(&mut tablet.writer.lock(), loaded);
        Ok((tablet, quarantined))
    }

    /// Makes the files of a bucket that goes on where another's log ended: its log begins at `base`, and `epochs` is
    /// the history up to there (design §3).
    ///
    /// # Errors
    /// The disk's.
    pub fn found(around: &Surroundings, id: BucketId, base: i64, epochs: Vec<(i32, i64)>) -> Result<()> {
        let directory = id.directory(&around.root);
        around.disk.create_dir(&directory).map_err(|error| Error::io(format!("making bucket {id}"), &error))?;
        let state = BucketState { log_start: base, changelog_start: base, slot_base: base, epochs };
        state.store(&*around.disk, &directory)
    }

    /// The offset at which the log began: what lies below it was another bucket's.
    #[must_use]
    pub fn slot_base(&self) -> i64 {
        self.state.lock().slot_base
    }

    /// One past the last offset, offline or not; an append that has begun is waited for.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        let _appending = self.writer.lock();
        self.end.load(Ordering::Acquire)
    }

    /// The history of leader epochs, with that of this run: epoch, first offset.
    #[must_use]
    pub fn epochs(&self) -> Vec<(i32, i64)> {
        let mut epochs = self.state.lock().epochs.clone();
        if epochs.last().is_none_or(|(last, _)| *last < self.epoch.0) {
            epochs.push(self.epoch);
        }
        epochs
    }

    /// The stand-in for the bucket of a free slot: empty, without files, its only offset `base`.
    #[must_use]
    pub fn vacant(
        around: Surroundings,
        id: BucketId,
        shape: Shape,
        options: Arc<LogOptions>,
        leader_epoch: i32,
        (base, epochs): (i64, Vec<(i32, i64)>),
    ) -> Self {
        let tablet = Self::empty(around, id, shape, options, (leader_epoch, base));
        for place in [&tablet.end, &tablet.synced, &tablet.log_start] {
            place.store(base, Ordering::Release);
        }
        *tablet.state.lock() = BucketState { log_start: base, changelog_start: base, slot_base: base, epochs };
        tablet
    }

    /// A bucket whose files cannot be used: it answers every request with `error`. It keeps its recovery
    /// point, without which the next start would cut off what this one found damaged.
    #[must_use]
    pub fn offline(
        around: Surroundings,
        id: BucketId,
        shape: Shape,
        options: Arc<LogOptions>,
        leader_epoch: i32,
        point: Option<RecoveryPoint>,
        error: Error,
    ) -> Self {
        let tablet = Self::empty(around, id, shape, options, (leader_epoch, 0));
        tablet.progress.lock().point = point;
        *tablet.offline.write() = Some(error);
        tablet
    }

    fn empty(around: Surroundings, id: BucketId, shape: Shape, options: Arc<LogOptions>, epoch: (i32, i64)) -> Self {
        Self {
            id,
            kind: shape.kind,
            hashed: shape.hashed,
            directory: id.directory(&around.root),
            around,
            epoch,
            options: RwLock::new(options),
            segments: RwLock::default(),
            end: AtomicI64::new(0),
            synced: AtomicI64::new(0),
            gate: AtomicI64::new(i64::MAX),
            log_start: AtomicI64::new(0),
            opened_at: 0,
            on_sync: OnceLock::new(),
            writer: Mutex::new(Writer {
                producers: Producers::default(),
                routes: Routes::default(),
                state_position: 0,
            }),
            progress: Mutex::new(Progress {
                segment: 0,
                names_dirty: false,
                epochs_dirty: false,
                states: Vec::new(),
                point: None,
                closings: VecDeque::new(),
            }),
            syncing: Mutex::new(()),
            state: Mutex::default(),
            durable_waiters: Mutex::default(),
            watchers: Mutex::default(),
            urgent: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            cursors: Mutex::default(),
            offline: RwLock::new(None),
            repairable: AtomicBool::new(false),
        }
    }

    /// Takes over what recovery found; everything in it is on disk.
    fn adopt(&self, writer: &mut Writer, loaded: Loaded) {
        writer.producers = loaded.producers;
        writer.routes = loaded.routes;
        let active = loaded.segments.last();
        writer.state_position = active.map_or(0, |segment| segment.tail.read().end_position);
        let point = active.map(|segment| RecoveryPoint {
            offset: loaded.end,
            segment: segment.base_offset,
            position: segment.tail.read().end_position,
        });
        let mut progress = self.progress.lock();
        // Closings whose other parts may not be on disk yet hold the point back as before.
        let mut closings = std::mem::take(&mut progress.closings);
        closings.retain(|open| open.offset < loaded.end);
        let point = closings.front().map_or(point, |open| Some(open.point()));
        *progress = Progress {
            segment: active.map_or(loaded.end, |segment| segment.base_offset),
            names_dirty: false,
            epochs_dirty: true,
            states: loaded.states,
            point,
            closings,
        };
        drop(progress);
        self.log_start.store(loaded.state.log_start, Ordering::Release);
        *self.state.lock() = loaded.state;
        *self.segments.write() = Arc::new(loaded.segments);
        self.synced.store(loaded.end, Ordering::Release);
        self.end.store(loaded.end, Ordering::Release);
    }

    /// The bucket's settings.
    #[must_use]
    pub fn options(&self) -> Arc<LogOptions> {
        Arc::clone(&self.options.read())
    }

    /// Changes the bucket's settings.
    pub fn set_options(&self, options: Arc<LogOptions>) {
        *self.options.write() = options;
    }

    /// Where the log stands.
    ///
    /// # Errors
    /// The reason when the bucket is offline.
    pub fn offsets(&self) -> Result<Offsets> {
        self.check_online()?;
        Ok(Offsets {
            log_start: self.log_start.load(Ordering::Acquire),
            high_watermark: self.high_watermark(),
            end: self.end.load(Ordering::Acquire),
            leader_epoch: self.epoch.0,
            slot_base: self.slot_base(),
        })
    }

    /// One past the last offset that readers see.
    #[must_use]
    pub fn high_watermark(&self) -> i64 {
        let visible = match self.options.read().visibility {
            Visibility::Durable => self.synced.load(Ordering::Acquire),
            Visibility::Appended => self.end.load(Ordering::Acquire),
        };
        visible.min(self.gate.load(Ordering::Acquire))
    }

    /// Lets readers see, and answers those who wait for, what lies below `offset` and is on disk.
    pub fn set_gate(&self, offset: i64) {
        self.gate.store(offset, Ordering::Release);
        self.release();
    }

    /// Has `told` called after each sync that made something durable. The first one stays.
    pub fn on_sync(&self, told: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_sync.set(told);
    }

    /// The offset below which the log needs no check since it was opened.
    #[must_use]
    pub fn opened_at(&self) -> i64 {
        self.opened_at
    }

    /// What the history of producers says of a range that addressed this bucket: see [`Routes::judge`].
    ///
    /// # Errors
    /// As [`Routes::judge`].
    pub fn judge(&self, range: &ProducerRange, failed: Option<&ProducerRange>) -> Result<routes::Verdict> {
        self.writer.lock().routes.judge(range, failed)
    }

    /// Where the log batch ends that applied a range here, if it is remembered.
    #[must_use]
    pub fn applied_end(&self, range: &ProducerRange, source: Place) -> Option<i64> {
        self.writer.lock().routes.applied_end(range, source)
    }

    /// One past the last offset that is certainly on disk.
    #[must_use]
    pub fn synced(&self) -> i64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Where the log of an epoch ends; see [`BucketState::epoch_end`].
    #[must_use]
    pub fn epoch_end(&self, asked: i32) -> (i32, i64) {
        let end = self.end.load(Ordering::Acquire);
        self.state.lock().epoch_end(asked, self.epoch, end)
    }

    /// The epoch that the record at `offset` was written in.
    #[must_use]
    pub fn epoch_of(&self, offset: i64) -> i32 {
        let state = self.state.lock();
        let known = state.epochs.partition_point(|(_, first)| *first <= offset);
        known.checked_sub(1).and_then(|at| state.epochs.get(at)).map_or(self.epoch.0, |(epoch, _)| *epoch)
    }

    /// The newest recovery point, if anything was ever synced.
    #[must_use]
    pub fn recovery_point(&self) -> Option<RecoveryPoint> {
        self.progress.lock().point
    }

    /// Forgets producers that appended nothing for `expiry_ms`.
    pub fn expire_producers(&self, expiry_ms: i64) {
        let now = self.around.clock.now_ms();
        let mut writer = self.writer.lock();
        writer.producers.expire(now, expiry_ms);
        writer.routes.expire(now, expiry_ms);
    }

    /// Bytes of log files.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.read().iter().map(|segment| segment.tail.read().end_position).sum()
    }

    /// Tells `watcher` whenever the high watermark moves, until the guard is dropped.
    #[must_use]
    pub fn watch(self: &Arc<Self>, watcher: Arc<Notify>) -> WatchGuard {
        self.watchers.lock().push(Arc::clone(&watcher));
        WatchGuard { tablet: Arc::clone(self), watcher }
    }

    /// Whether readers wait for the high watermark to move.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watchers.lock().is_empty()
    }

    fn notify_watchers(&self) {
        for watcher in self.watchers.lock().iter() {
            watcher.notify_one();
        }
    }

    /// Why the bucket is offline, if it is.
    #[must_use]
    pub fn offline_reason(&self) -> Option<Error> {
        self.offline.read().clone()
    }

    fn check_online(&self) -> Result<()> {
        match &*self.offline.read() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Takes the bucket offline and tells everyone who waits.
    pub fn take_offline(&self, error: &Error) {
        tracing::error!(bucket = %self.id, %error, "the bucket is offline");
        *self.offline.write() = Some(error.clone());
        for (_, waiter) in self.durable_waiters.lock().drain(..) {
            let _ = waiter.send(Err(error.clone()));
        }
        self.notify_watchers();
    }

    /// One past the last offset that is on disk and below the gate.
    fn reached(&self) -> i64 {
        self.synced.load(Ordering::Acquire).min(self.gate.load(Ordering::Acquire))
    }

    /// Answers once everything below `offset` is on disk, and applied where the table has keys.
    pub fn when_durable(&self, offset: i64, waiter: oneshot::Sender<Result<()>>) {
        let mut waiters = self.durable_waiters.lock();
        // Checked under the lock: a sync that ends now looks at the list after it published.
        if self.reached() >= offset {
            let _ = waiter.send(Ok(()));
        } else if let Some(error) = self.offline_reason() {
            let _ = waiter.send(Err(error));
        } else {
            waiters.push((offset, waiter));
            self.urgent.store(true, Ordering::Release);
        }
    }
}

/// Keeps a watcher registered.
pub struct WatchGuard {
    tablet: Arc<Tablet>,
    watcher: Arc<Notify>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut watchers = self.tablet.watchers.lock();
        if let Some(at) = watchers.iter().position(|other| Arc::ptr_eq(other, &self.watcher)) {
            watchers.swap_remove(at);
        }
    }
}

fn out_of_range(id: BucketId, offset: i64, start: i64, end: i64) -> Error {
    Error::new(ErrorKind::OffsetOutOfRange, format!("offset {offset} of bucket {id} is not in {start}..={end}"))
}
