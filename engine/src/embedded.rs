//! [`Backend`](crate::Backend) on local disk: one process, one data directory.

mod backend;
mod partitions;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::catalog::options::log_options;
use crate::catalog::{Catalog, TableInfo, TableKind};
use crate::clock::Clock;
use crate::config::{EngineConfig, LogOptions};
use crate::directory::DataDirectory;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::io::Disk;
use crate::kv::{KvStore, RocksStore};
use crate::kv_tables::KvTables;
use crate::kv_tablet::KvTablet;
use crate::log::points::RecoveryPoint;
use crate::pool::Pool;
use crate::routing::Router;
use crate::shard::{Append, Shards};
use crate::tablet::{ReadLimit, Reading, Surroundings, Tablet, voids};
use crate::types::{BucketId, TableId};
use crate::upserts::{Appliers, Rows};

/// The embedded engine.
pub struct Embedded {
    core: Arc<Core>,
    shards: Shards<Append>,
    router: Arc<Router>,
    appliers: Arc<Appliers>,
    flusher: Arc<Flusher>,
    readers: Pool,
    /// Catalog changes and the coordinators' writes: they wait for synced writes of small stores.
    keepers: Pool,
    background: Mutex<Vec<std::thread::JoinHandle<()>>>,
    closed: AtomicBool,
}

/// What background threads share with the engine.
pub(crate) struct Core {
    config: EngineConfig,
    around: Surroundings,
    catalog: Catalog,
    state: Arc<dyn KvStore>,
    tablets: RwLock<HashMap<BucketId, Arc<Tablet>>>,
    /// Stand-ins for the buckets of free slots.
    vacant: RwLock<HashMap<BucketId, Arc<Tablet>>>,
    kv: KvTables,
    /// Opens buckets of PK tables, and looks up and scans their rows.
    lookups: Pool,
    openers: Pool,
    directory: Mutex<DataDirectory>,
    /// Held over the making and dropping of a partition: one at a time.
    partitioning: Mutex<()>,
    stop: parking_lot::Condvar,
    stopping: Mutex<bool>,
    quarantined_bytes: AtomicU64,
}

/// Counters and gauges of the engine at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct EngineStats {
    /// Open buckets.
    pub buckets: u64,
    /// Buckets that answer errors only.
    pub offline_buckets: u64,
    /// Bytes of log files.
    pub log_bytes: u64,
    /// Syncs of log files since the start.
    pub syncs: u64,
    /// Syncs that failed.
    pub sync_failures: u64,
    /// Bytes that recovery moved to quarantine at this start.
    pub quarantined_bytes: u64,
    /// Buckets of PK tables whose rows are open.
    pub kv_open: u64,
}

impl Embedded {
    /// Opens the data directory, recovers every bucket, starts the threads.
    ///
    /// # Errors
    /// `Busy` when another server holds the directory; `Unsupported` for a newer format; the disk's.
    pub fn open(config: EngineConfig, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self> {
        let data = DataDirectory::lock(&*disk, &config.data_dir)?;
        let meta: Arc<dyn KvStore> = Arc::new(RocksStore::open(&config.data_dir.join("meta"))?);
        let state: Arc<dyn KvStore> = Arc::new(RocksStore::open(&config.data_dir.join("sys"))?);
        let catalog = Catalog::open(meta, data.was_clean())?;
        let around = Surroundings { disk, clock, root: config.data_dir.clone() };
        let appliers = Appliers::new(config.append_threads)?;
        let kv = KvTables::new(config.data_dir.join("kv"), Arc::clone(&appliers));
        let core = Arc::new(Core {
            around,
            catalog,
            state,
            tablets: RwLock::default(),
            vacant: RwLock::default(),
            kv,
            lookups: Pool::new("lookup", config.read_threads)?,
            openers: Pool::new("open", 2)?,
            directory: Mutex::new(data),
            partitioning: Mutex::new(()),
            stop: parking_lot::Condvar::new(),
            stopping: Mutex::new(false),
            quarantined_bytes: AtomicU64::new(0),
            config,
        });
        core.open_tablets()?;
        core.catalog.view().iter().for_each(|info| core.show_vacant(info));
        core.remove_leftovers();
        core.remove_leftover_stores();
        // From here on the log may be appended to: the clean mark must be gone, durably.
        core.directory.lock().begin(&*core.around.disk)?;
        core.void_broken_closings()?;
        let flusher =
            Arc::new(Flusher::new(core.config.sync_threads, Duration::from_millis(core.config.sync_interval_ms))?);
        let (threads, queue) = (core.config.append_threads, core.config.append_queue);
        let shards = Shards::new("append", threads, queue, &flusher)?;
        let router = Arc::new(Router::new(Arc::clone(&core), threads, queue, &flusher, &appliers)?);
        let readers = Pool::new("read", core.config.read_threads)?;
        let keepers = Pool::new("keep", 2)?;
        let points = Core::spawn(&core, "points", Duration::from_secs(1), Core::store_points)?;
        let interval = Duration::from_millis(core.config.retention_interval_ms);
        let retention = Core::spawn(&core, "retention", interval, Core::retain)?;
        let flush = Core::spawn(&core, "flush", KV_FLUSH_INTERVAL, |core| core.kv.flush())?;
        let background = Mutex::new(vec![points, retention, flush]);
        let closed = AtomicBool::new(false);
        Ok(Self { core, shards, router, appliers, flusher, readers, keepers, background, closed })
    }

    /// Syncs everything, writes the clean mark, lets go of the directory.
    ///
    /// # Errors
    /// The disk's; the next start then recovers as after a crash.
    pub fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        *self.core.stopping.lock() = true;
        self.core.stop.notify_all();
        // They hold the directory's lock and write its files: both end before this returns.
        for thread in self.background.lock().drain(..) {
            let _ = thread.join();
        }
        self.flusher.stop();
        let tablets: Vec<_> = self.core.tablets.read().values().cloned().collect();
        // All of them first: a range that is closed in one log may have rows in others.
        for (tablet, outcome) in tablets.iter().zip(in_parallel(&tablets, |tablet| tablet.sync())) {
            if let Err(error) = outcome {
                tracing::error!(bucket = %tablet.id, %error, "syncing at the end");
            }
        }
        self.appliers.stop();
        self.core.kv.flush();
        let outcomes = in_parallel(&tablets, |tablet| tablet.close());
        let mut clean = true;
        for (tablet, outcome) in tablets.iter().zip(outcomes) {
            if let Err(error) = outcome {
                tracing::error!(bucket = %tablet.id, %error, "the bucket did not close cleanly");
                clean = false;
            }
        }
        self.core.store_points();
        if clean { self.core.directory.lock().finish(&*self.core.around.disk) } else { Ok(()) }
    }

    /// Numbers for `/metrics`.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let (syncs, sync_failures) = self.flusher.counts();
        let tablets = self.core.tablets.read();
        let offline = tablets.values().filter(|tablet| tablet.offline_reason().is_some()).count();
        EngineStats {
            buckets: tablets.len() as u64,
            offline_buckets: offline as u64,
            log_bytes: tablets.values().map(|tablet| tablet.size_bytes()).sum(),
            syncs,
            sync_failures,
            quarantined_bytes: self.core.quarantined_bytes.load(Ordering::Relaxed),
            kv_open: self.core.kv.len() as u64,
        }
    }

    /// Applies retention now, on the calling thread.
    pub fn apply_retention(&self) {
        self.core.retain();
    }

    async fn on_tablet<T: Send + 'static>(
        &self,
        bucket: BucketId,
        job: impl FnOnce(&Tablet) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let tablet = self.core.readable(bucket)?;
        self.readers.run(move || job(&tablet)).await?
    }

    /// Whole visible batches, on the spot where they are in memory, else on a thread that may wait.
    async fn bytes_of(&self, tablet: Arc<Tablet>, offset: i64, max_bytes: usize) -> Result<Bytes> {
        if let Reading::Done(batches) = tablet.read(offset, max_bytes, ReadLimit::Visible, false)? {
            return Ok(batches);
        }
        let read = move || tablet.read(offset, max_bytes, ReadLimit::Visible, true);
        match self.readers.run(read).await?? {
            Reading::Done(batches) => Ok(batches),
            Reading::WouldBlock => Err(Error::new(ErrorKind::Internal, "a blocking read would block")),
        }
    }

    async fn on_core<T: Send + 'static>(&self, job: impl FnOnce(&Core) -> Result<T> + Send + 'static) -> Result<T> {
        let core = Arc::clone(&self.core);
        self.keepers.run(move || job(&core)).await?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the data directory");
        }
    }
}

/// Runs `job` over `items` on a few threads, keeping their order in the results.
fn in_parallel<I: Sync, T: Send>(items: &[I], job: impl Fn(&I) -> T + Sync) -> Vec<T> {
    const THREADS: usize = 8;
    let chunk = items.len().div_ceil(THREADS).max(1);
    let mut results = Vec::with_capacity(items.len());
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            items.chunks(chunk).map(|part| scope.spawn(|| part.iter().map(&job).collect::<Vec<T>>())).collect();
        for worker in workers {
            match worker.join() {
                Ok(part) => results.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results
}

/// How often the rows of PK tables are flushed: what a start replays is at most what came since.
const KV_FLUSH_INTERVAL: Duration = Duration::from_secs(30);

impl Core {
    /// Runs `job` every `interval` on a thread of its own until the engine closes.
    fn spawn(core: &Arc<Self>, name: &str, interval: Duration, job: fn(&Self)) -> Result<std::thread::JoinHandle<()>> {
        let core = Arc::clone(core);
        let body = move || {
            loop {
                {
                    let mut stopping = core.stopping.lock();
                    if !*stopping {
                        core.stop.wait_for(&mut stopping, interval);
                    }
                    if *stopping {
                        return;
                    }
                }
                job(&core);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
        thread.map_err(|error| Error::io("starting a thread", &error))
    }

    fn tablet(&self, bucket: BucketId) -> Result<Arc<Tablet>> {
        if let Some(tablet) = self.tablets.read().get(&bucket) {
            return Ok(Arc::clone(tablet));
        }
        if let Some(tablet) = self.vacant.read().get(&bucket).filter(|_| bucket.is_vacant()) {
            return Ok(Arc::clone(tablet));
        }
        let kind = if self.catalog.view().by_id(bucket.table).is_some() {
            ErrorKind::BucketNotFound
        } else {
            ErrorKind::TableNotFound
        };
        Err(Error::new(kind, format!("no bucket {bucket}")))
    }

    /// The rows of a bucket, opened where they are not, in the version of the schema that `info` has or a newer one.
    pub(crate) async fn kv(self: &Arc<Self>, info: &TableInfo, bucket: BucketId) -> Result<Arc<KvTablet>> {
        let tablet = match self.kv.get(bucket) {
            Some(open) => open,
            None => {
                let core = Arc::clone(self);
                self.openers.run(move || core.open_kv(bucket)).await??
            }
        };
        tablet.adopt(info);
        Ok(tablet)
    }

    fn open_kv(&self, bucket: BucketId) -> Result<Arc<KvTablet>> {
        let info = self.info(bucket.table)?;
        if info.kind != TableKind::Pk {
            let what = format!("table '{}' has no primary key", info.name);
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        self.kv.open(&info, &self.tablet(bucket)?)
    }

    fn info(&self, table: TableId) -> Result<Arc<TableInfo>> {
        let found = self.catalog.view().by_id(table).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::TableNotFound, format!("no table has id {}", table.0)))
    }

    /// A bucket whose log may be read: that of a PK table is, once its rows are open. Asking for it opens them.
    fn readable(self: &Arc<Self>, bucket: BucketId) -> Result<Arc<Tablet>> {
        let tablet = self.tablet(bucket)?;
        let keyed = || self.catalog.view().by_id(bucket.table).is_some_and(|info| info.kind == TableKind::Pk);
        if !tablet.hashed || bucket.is_vacant() || self.kv.get(bucket).is_some() || !keyed() {
            return Ok(tablet);
        }
        if let Some(error) = tablet.offline_reason() {
            return Err(error);
        }
        let core = Arc::clone(self);
        self.openers.post(move || {
            if let Err(error) = core.open_kv(bucket) {
                tracing::error!(%bucket, %error, "opening a bucket's rows");
            }
        })?;
        Err(Error::new(ErrorKind::NotReady, format!("bucket {bucket} is being opened")))
    }

    /// After an unclean start: closings whose rows did not reach every bucket do not count, durably, before anything
    /// is appended (docs/storage-format-typed.md §1.4).
    fn void_broken_closings(&self) -> Result<()> {
        if self.directory.lock().was_clean() {
            return Ok(());
        }
        let tablets: Vec<_> = self.tablets.read().values().filter(|tablet| tablet.hashed).cloned().collect();
        let reaches = |id: BucketId, epoch: i32, end: i64| {
            match self.tablet(id) {
                Ok(tablet) => tablet.offline_reason().is_none() && tablet.epoch_end(epoch).1 >= end,
                // Rows of a partition that was dropped are gone with it.
                Err(_) => id.partition.is_some(),
            }
        };
        for tablet in tablets.iter().filter(|tablet| tablet.offline_reason().is_none()) {
            let count = voids::void_broken(tablet, &reaches)?;
            if count > 0 {
                tracing::warn!(bucket = %tablet.id, count, "closings whose rows are not all there were voided");
            }
        }
        Ok(())
    }

    fn server_options(&self) -> LogOptions {
        LogOptions { visibility: self.config.visibility, acks_all: self.config.acks_all, ..LogOptions::default() }
    }

    fn options_of(&self, info: &TableInfo) -> Arc<LogOptions> {
        let mut options = log_options(&info.options, &self.server_options());
        if info.kind == TableKind::Pk {
            // Its log is cleaned, never cut: a reader from its start gets every row (design §4).
            (options.retention_ms, options.retention_bytes) = (-1, -1);
        }
        Arc::new(options)
    }

    fn open_tablets(&self) -> Result<()> {
        let (points, clean) = {
            let directory = self.directory.lock();
            (directory.read_points(&*self.around.disk), directory.was_clean())
        };
        let mut wanted = Vec::new();
        for info in self.catalog.view().iter() {
            let options = self.options_of(info);
            for bucket in info.bucket_ids() {
                wanted.push((bucket, info.shape(), Arc::clone(&options), self.catalog.epoch_of(info, bucket)));
            }
        }
        let opened = in_parallel(&wanted, |(id, shape, options, epoch)| {
            let point = points.get(id).copied();
            let opened = Tablet::open(self.around.clone(), *id, *shape, Arc::clone(options), *epoch, point, clean);
            opened.unwrap_or_else(|error| {
                tracing::error!(bucket = %id, %error, "the bucket is offline");
                (Tablet::offline(self.around.clone(), *id, *shape, Arc::clone(options), *epoch, point, error), 0)
            })
        });
        let mut tablets = self.tablets.write();
        for (tablet, quarantined) in opened {
            self.quarantined_bytes.fetch_add(quarantined, Ordering::Relaxed);
            tablets.insert(tablet.id, Arc::new(tablet));
        }
        Ok(())
    }

    /// Opens the logs, and the rows, of buckets that are new.
    fn create_tablets(&self, info: &TableInfo, new: impl Fn(&BucketId) -> bool) -> Result<()> {
        let options = self.options_of(info);
        for id in info.bucket_ids().into_iter().filter(new) {
            let (shape, epoch) = (info.shape(), self.catalog.epoch_of(info, id));
            let (tablet, _) = Tablet::open(self.around.clone(), id, shape, Arc::clone(&options), epoch, None, false)?;
            let tablet = Arc::new(tablet);
            self.tablets.write().insert(id, Arc::clone(&tablet));
            if info.kind == TableKind::Pk {
                self.kv.open(info, &tablet)?;
            }
        }
        Ok(())
    }

    /// A bucket whose rows are routed to it.
    pub(crate) async fn rows(self: &Arc<Self>, info: &TableInfo, bucket: BucketId) -> Result<Rows> {
        if info.kind == TableKind::Pk {
            return self.kv(info, bucket).await.map(Rows::Keyed);
        }
        match &info.typed {
            Some(table) => Ok(Rows::Appended(self.tablet(bucket)?, Arc::new(table.schema.clone()))),
            None => {
                let what = format!("rows of table '{}' are not routed", info.name);
                Err(Error::new(ErrorKind::InvalidArgument, what))
            }
        }
    }

    /// Gives a new table its tablets; where that fails, the table goes again.
    fn with_tablets(&self, info: Arc<TableInfo>) -> Result<Arc<TableInfo>> {
        self.show_vacant(&info);
        if let Err(error) = self.create_tablets(&info, |_| true) {
            self.drop_table(info.table_id())?;
            return Err(error);
        }
        Ok(info)
    }

    fn drop_table(&self, id: TableId) -> Result<()> {
        let info = self.catalog.drop_table(id)?;
        let gone = Error::new(ErrorKind::TableNotFound, format!("topic '{}' was deleted", info.name));
        let removed: Vec<_> = {
            let mut tablets = self.tablets.write();
            info.bucket_ids().iter().filter_map(|bucket| tablets.remove(bucket)).collect()
        };
        for tablet in removed {
            tablet.take_offline(&gone);
        }
        self.vacant.write().retain(|bucket, _| bucket.table != id);
        self.kv.drop_table(id);
        self.remove_files(&self.table_directory(id));
        if info.kind == TableKind::Pk {
            remove_store(&self.kv.directory(id));
        }
        Ok(())
    }

    fn table_directory(&self, id: TableId) -> PathBuf {
        self.config.data_dir.join("log").join(id.0.to_string())
    }

    /// Directories of tables that are not in the catalog: a drop that a crash cut short.
    fn remove_leftovers(&self) {
        let view = self.catalog.view();
        let root = self.config.data_dir.join("log");
        for entry in self.around.disk.list(&root).unwrap_or_default() {
            let known = entry.name.parse().ok().and_then(|id| view.by_id(TableId(id)));
            match known {
                None if entry.is_dir => {
                    tracing::info!(directory = entry.name, "removing the files of a dropped table");
                    self.remove_files(&root.join(&entry.name));
                }
                Some(info) if info.partitions.is_some() => self.remove_leftover_partitions(info),
                _ => {}
            }
        }
    }

    /// As [`Core::remove_leftovers`], of the stores.
    fn remove_leftover_stores(&self) {
        let view = self.catalog.view();
        let Ok(entries) = std::fs::read_dir(self.config.data_dir.join("kv")) else { return };
        for entry in entries.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if id.is_none_or(|id| view.by_id(TableId(id)).is_none()) {
                remove_store(&entry.path());
            }
        }
    }

    fn remove_files(&self, directory: &Path) {
        if let Err(error) = self.around.disk.remove_dir(directory) {
            tracing::error!(directory = %directory.display(), %error, "removing files of a dropped table");
        }
    }

    fn store_points(&self) {
        let mut points: BTreeMap<BucketId, RecoveryPoint> = BTreeMap::new();
        for (id, tablet) in self.tablets.read().iter() {
            if let Some(point) = tablet.recovery_point() {
                points.insert(*id, point);
            }
        }
        if let Err(error) = self.directory.lock().store_points(&*self.around.disk, points) {
            tracing::error!(%error, "writing recovery points");
        }
    }

    fn retain(&self) {
        let tablets: Vec<_> = self.tablets.read().values().cloned().collect();
        for tablet in tablets {
            tablet.expire_producers(self.config.producer_expiry_ms);
            match tablet.apply_retention() {
                Ok(0) => {}
                Ok(segments) => tracing::info!(bucket = %tablet.id, segments, "retention removed segments"),
                Err(error) => tracing::warn!(bucket = %tablet.id, %error, "retention"),
            }
        }
    }
}

fn remove_store(directory: &Path) {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::error!(directory = %directory.display(), %error, "removing the rows of a dropped table");
        }
        _ => {}
    }
}
