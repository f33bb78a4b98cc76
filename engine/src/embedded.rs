//! [`Backend`] on local disk: one process, one data directory.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, oneshot};

use crate::backend::{Acks, Backend, BoxFuture, KeyValues, PendingAppend};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::options::log_options;
use crate::catalog::{Catalog, TableInfo, View};
use crate::clock::Clock;
use crate::config::{EngineConfig, LogOptions};
use crate::directory::DataDirectory;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::io::Disk;
use crate::kv::{Change, KvStore, RocksStore};
use crate::log::points::RecoveryPoint;
use crate::pool::Pool;
use crate::shard::{Append, AppendReply, Shards};
use crate::tablet::{Appended, Batches, LogBatch, Offsets, ReadLimit, Reading, Surroundings, Tablet, WatchGuard};
use crate::types::{BucketId, TableId};

/// The embedded engine.
pub struct Embedded {
    core: Arc<Core>,
    shards: Shards,
    flusher: Arc<Flusher>,
    readers: Pool,
    /// Catalog changes and the coordinators' writes: they wait for synced writes of small stores.
    keepers: Pool,
    background: Mutex<Vec<std::thread::JoinHandle<()>>>,
    closed: AtomicBool,
}

/// What background threads share with the engine.
struct Core {
    config: EngineConfig,
    around: Surroundings,
    catalog: Catalog,
    state: Arc<dyn KvStore>,
    tablets: RwLock<HashMap<BucketId, Arc<Tablet>>>,
    directory: Mutex<DataDirectory>,
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
        let core = Arc::new(Core {
            around,
            catalog,
            state,
            tablets: RwLock::default(),
            directory: Mutex::new(data),
            stop: parking_lot::Condvar::new(),
            stopping: Mutex::new(false),
            quarantined_bytes: AtomicU64::new(0),
            config,
        });
        core.open_tablets()?;
        core.remove_leftovers();
        // From here on the log may be appended to: the clean mark must be gone, durably.
        core.directory.lock().begin(&*core.around.disk)?;
        let flusher =
            Arc::new(Flusher::new(core.config.sync_threads, Duration::from_millis(core.config.sync_interval_ms))?);
        let shards = Shards::new(core.config.append_threads, core.config.append_queue, &flusher)?;
        let readers = Pool::new("read", core.config.read_threads)?;
        let keepers = Pool::new("keep", 2)?;
        let points = Core::spawn(&core, "points", Duration::from_secs(1), Core::store_points)?;
        let interval = Duration::from_millis(core.config.retention_interval_ms);
        let retention = Core::spawn(&core, "retention", interval, Core::retain)?;
        let background = Mutex::new(vec![points, retention]);
        Ok(Self { core, shards, flusher, readers, keepers, background, closed: AtomicBool::new(false) })
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
        let tablet = self.core.tablet(bucket)?;
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
        let kind = if self.catalog.view().by_id(bucket.table).is_some() {
            ErrorKind::BucketNotFound
        } else {
            ErrorKind::TableNotFound
        };
        Err(Error::new(kind, format!("no bucket {bucket}")))
    }

    fn server_options(&self) -> LogOptions {
        LogOptions { visibility: self.config.visibility, acks_all: self.config.acks_all, ..LogOptions::default() }
    }

    fn options_of(&self, info: &TableInfo) -> Arc<LogOptions> {
        Arc::new(log_options(&info.options, &self.server_options()))
    }

    fn open_tablets(&self) -> Result<()> {
        let (points, clean) = {
            let directory = self.directory.lock();
            (directory.read_points(&*self.around.disk), directory.was_clean())
        };
        let mut wanted = Vec::new();
        for info in self.catalog.view().iter() {
            let options = self.options_of(info);
            let epoch = self.catalog.leader_epoch(info);
            for bucket in 0..info.buckets {
                wanted.push((BucketId::new(info.table_id(), bucket), info.kind.batches(), Arc::clone(&options), epoch));
            }
        }
        let opened = in_parallel(&wanted, |(id, kind, options, epoch)| {
            let point = points.get(id).copied();
            let opened = Tablet::open(self.around.clone(), *id, *kind, Arc::clone(options), *epoch, point, clean);
            opened.unwrap_or_else(|error| {
                tracing::error!(bucket = %id, %error, "the bucket is offline");
                (Tablet::offline(self.around.clone(), *id, *kind, Arc::clone(options), *epoch, point, error), 0)
            })
        });
        let mut tablets = self.tablets.write();
        for (tablet, quarantined) in opened {
            self.quarantined_bytes.fetch_add(quarantined, Ordering::Relaxed);
            tablets.insert(tablet.id, Arc::new(tablet));
        }
        Ok(())
    }

    fn create_tablets(&self, info: &TableInfo, from: u32) -> Result<()> {
        let options = self.options_of(info);
        let epoch = self.catalog.leader_epoch(info);
        for bucket in from..info.buckets {
            let id = BucketId::new(info.table_id(), bucket);
            let kind = info.kind.batches();
            let (tablet, _) = Tablet::open(self.around.clone(), id, kind, Arc::clone(&options), epoch, None, false)?;
            self.tablets.write().insert(id, Arc::new(tablet));
        }
        Ok(())
    }

    /// Gives a new table its tablets; where that fails, the table goes again.
    fn with_tablets(&self, info: Arc<TableInfo>) -> Result<Arc<TableInfo>> {
        if let Err(error) = self.create_tablets(&info, 0) {
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
            (0..info.buckets).filter_map(|bucket| tablets.remove(&BucketId::new(id, bucket))).collect()
        };
        for tablet in removed {
            tablet.take_offline(&gone);
        }
        self.remove_files(&self.table_directory(id));
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
            let known = entry.name.parse().is_ok_and(|id| view.by_id(TableId(id)).is_some());
            if entry.is_dir && !known {
                tracing::info!(directory = entry.name, "removing the files of a dropped table");
                self.remove_files(&root.join(&entry.name));
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

impl Backend for Embedded {
    fn tables(&self) -> Arc<View> {
        self.core.catalog.view()
    }

    fn cluster_id(&self) -> String {
        self.core.catalog.cluster_id().to_owned()
    }

    fn create_table(
        &self,
        name: String,
        buckets: u32,
        options: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| {
            core.with_tablets(core.catalog.create(&name, buckets, options, core.around.clock.now_ms())?)
        }))
    }

    fn create_typed(&self, name: String, descriptor: TableDescriptor) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| {
            core.with_tablets(core.catalog.create_typed(&name, &descriptor, core.around.clock.now_ms())?)
        }))
    }

    fn drop_table(&self, id: TableId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.on_core(move |core| core.drop_table(id)))
    }

    fn add_buckets(&self, id: TableId, total: u32) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| {
            let mut before = 0;
            let info = core.catalog.alter(id, |info| {
                before = info.buckets;
                if total <= info.buckets {
                    let message = format!("the table has {} buckets, {total} is no increase", info.buckets);
                    return Err(Error::new(ErrorKind::InvalidArgument, message));
                }
                info.buckets = total;
                Ok(())
            })?;
            core.create_tablets(&info, before)?;
            Ok(info)
        }))
    }

    fn set_options(&self, id: TableId, options: BTreeMap<String, String>) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| {
            let info = core.catalog.alter(id, |info| {
                info.options = options;
                Ok(())
            })?;
            let options = core.options_of(&info);
            for bucket in 0..info.buckets {
                if let Ok(tablet) = core.tablet(BucketId::new(id, bucket)) {
                    tablet.set_options(Arc::clone(&options));
                }
            }
            Ok(info)
        }))
    }

    fn log_options(&self, bucket: BucketId) -> Result<Arc<LogOptions>> {
        Ok(self.core.tablet(bucket)?.options())
    }

    fn default_log_options(&self) -> LogOptions {
        self.core.server_options()
    }

    fn append(&self, bucket: BucketId, batch: LogBatch, acks: Acks) -> BoxFuture<'_, Result<PendingAppend>> {
        Box::pin(async move {
            let tablet = self.core.tablet(bucket)?;
            let (reply, outcome) = oneshot::channel();
            self.shards.send(Append { tablet, batch, acks, reply }).await?;
            Ok(Box::pin(finish(outcome)) as PendingAppend)
        })
    }

    fn read(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Batches>> {
        Box::pin(async move {
            let tablet = self.core.tablet(bucket)?;
            match tablet.range(offset, max_bytes)? {
                Some(range) => Ok(Batches::File(range)),
                None => self.bytes_of(tablet, offset, max_bytes).await.map(Batches::Bytes),
            }
        })
    }

    fn read_bytes(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(async move { self.bytes_of(self.core.tablet(bucket)?, offset, max_bytes).await })
    }

    fn offsets(&self, bucket: BucketId) -> Result<Offsets> {
        self.core.tablet(bucket)?.offsets()
    }

    fn available_bytes(&self, bucket: BucketId, offset: i64) -> u64 {
        self.core.tablet(bucket).map_or(0, |tablet| tablet.available_bytes(offset))
    }

    fn watch(&self, bucket: BucketId, watcher: &Arc<Notify>) -> Option<WatchGuard> {
        let tablet = self.core.tablet(bucket).ok()?;
        let guard = tablet.watch(Arc::clone(watcher));
        if tablet.is_dirty() {
            self.flusher.dirty(&tablet, true);
        }
        Some(guard)
    }

    fn offset_for_time(&self, bucket: BucketId, timestamp: i64) -> BoxFuture<'_, Result<Option<(i64, i64)>>> {
        Box::pin(self.on_tablet(bucket, move |tablet| tablet.offset_for_time(timestamp)))
    }

    fn max_timestamp(&self, bucket: BucketId) -> BoxFuture<'_, Result<Option<(i64, i64)>>> {
        Box::pin(self.on_tablet(bucket, Tablet::max_timestamp))
    }

    fn epoch_of(&self, bucket: BucketId, offset: i64) -> i32 {
        self.core.tablet(bucket).map_or(-1, |tablet| tablet.epoch_of(offset))
    }

    fn epoch_end(&self, bucket: BucketId, epoch: i32) -> Result<(i32, i64)> {
        Ok(self.core.tablet(bucket)?.epoch_end(epoch))
    }

    fn delete_records(&self, bucket: BucketId, before: Option<i64>) -> BoxFuture<'_, Result<i64>> {
        Box::pin(self.on_tablet(bucket, move |tablet| tablet.delete_records(before)))
    }

    fn next_producer_id(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(self.on_core(|core| core.catalog.next_producer_id()))
    }

    fn write_state(&self, changes: Vec<Change>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.on_core(move |core| core.state.write(&changes)))
    }

    fn scan_state(&self, prefix: Vec<u8>) -> BoxFuture<'_, Result<KeyValues>> {
        Box::pin(self.on_core(move |core| core.state.scan(&prefix)))
    }
}

fn finish(outcome: oneshot::Receiver<AppendReply>) -> impl Future<Output = Result<Appended>> + Send {
    let lost = |_| Error::new(ErrorKind::ShuttingDown, "the server is stopping");
    async move {
        let (appended, durable) = outcome.await.map_err(lost)??;
        if let Some(durable) = durable {
            durable.await.map_err(lost)??;
        }
        Ok(appended)
    }
}
