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

use crate::backend::{Acks, Backend, BoxFuture, KeyValues, PendingAppend, PendingUpsert, SnapshotRows, UpsertRequest};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::options::log_options;
use crate::catalog::partitions::name_of;
use crate::catalog::{Catalog, DatabaseInfo, TableInfo, TableKind, View};
use crate::clock::Clock;
use crate::config::{EngineConfig, LogOptions};
use crate::directory::DataDirectory;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::io::Disk;
use crate::kv::{Change, KvStore, RocksStore};
use crate::kv_tables::KvTables;
use crate::kv_tablet::KvTablet;
use crate::log::points::RecoveryPoint;
use crate::pool::Pool;
use crate::routing::Router;
use crate::row::Row;
use crate::row::key::Place;
use crate::shard::{Append, AppendReply, Shards};
use crate::tablet::{
    Appended, Batches, LogBatch, Offsets, ReadLimit, Reading, Surroundings, Tablet, WatchGuard, voids,
};
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

    /// The rows of a bucket, opened where they are not.
    pub(crate) async fn kv(self: &Arc<Self>, bucket: BucketId) -> Result<Arc<KvTablet>> {
        if let Some(open) = self.kv.get(bucket) {
            return Ok(open);
        }
        let core = Arc::clone(self);
        self.openers.run(move || core.open_kv(bucket)).await?
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

    /// Has a stand-in for each free slot of a table, and none for the others.
    fn show_vacant(&self, info: &TableInfo) {
        let Some(partitions) = &info.partitions else { return };
        let (options, epoch) = (self.options_of(info), self.catalog.leader_epoch(info));
        let mut vacant = self.vacant.write();
        for (number, slot) in partitions.slots().iter().enumerate() {
            let id = BucketId::vacant(info.table_id(), number as u32);
            if slot.tenant.is_some() {
                if let Some(taken) = vacant.remove(&id) {
                    taken.take_offline(&Error::new(ErrorKind::NotReady, "the topic partition has a new bucket"));
                }
            } else if !vacant.contains_key(&id) {
                let epoch = epoch + slot.generation as i32;
                let history = (slot.base, slot.epochs.clone());
                let (around, options) = (self.around.clone(), Arc::clone(&options));
                vacant.insert(id, Arc::new(Tablet::vacant(around, id, info.shape(), options, epoch, history)));
            }
        }
    }

    /// Adds a partition. Files that a crash leaves of one that is not in the catalog are removed at the next start, or
    /// here.
    fn add_partition(&self, id: TableId, spec: &[(String, String)]) -> Result<()> {
        let _one = self.partitioning.lock();
        let before = self.info(id)?;
        let values = before.partition_values(spec)?;
        let mut planned = before.partitions.clone().unwrap_or_default();
        let partition = planned.add(values, before.buckets, self.around.clock.now_ms())?.clone();
        self.remove_files(&self.table_directory(id).join(partition.id.to_string()));
        let mut info = before.as_ref().clone();
        for slot in planned.slots() {
            if let Some((tenant, bucket)) = slot.tenant.filter(|(tenant, _)| *tenant == partition.id) {
                let place = Place { partition: Some(tenant), bucket };
                Tablet::found(&self.around, place.of(id), slot.base, slot.epochs.clone())?;
            }
        }
        info.partitions = Some(planned);
        self.create_tablets(&info, |bucket| bucket.partition == Some(partition.id))?;
        let partitions = info.partitions;
        let stored = self.catalog.alter(id, |info| {
            info.partitions = partitions;
            Ok(())
        });
        match stored {
            Ok(info) => self.show_vacant(&info),
            Err(error) => {
                self.remove_tablets(id, partition.id, &error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Drops a partition: where its logs ended is durable before they go (design §3).
    fn drop_partition(&self, id: TableId, spec: &[(String, String)]) -> Result<()> {
        let _one = self.partitioning.lock();
        let before = self.info(id)?;
        let name = name_of(&before.partition_values(spec)?);
        let gone = Error::new(ErrorKind::PartitionNotFound, format!("partition '{name}' was dropped"));
        let found = before.partitions.as_ref().and_then(|partitions| partitions.get(&name)).cloned();
        if let Some(partition) = &found {
            // Nothing may be appended behind the end that is written down.
            for bucket in before.bucket_ids().into_iter().filter(|bucket| bucket.partition == Some(partition.id)) {
                self.tablet(bucket)?.take_offline(&gone);
            }
        }
        let mut removed = None;
        let info = self.catalog.alter(id, |info| {
            let end = |place: Place| {
                let tablet = self.tablet(place.of(id))?;
                Ok((tablet.end_offset(), tablet.epochs()))
            };
            removed = info.partitions.as_mut().map(|partitions| partitions.remove(&name, end)).transpose()?;
            Ok(())
        })?;
        let Some(partition) = removed else { return Err(gone) };
        self.show_vacant(&info);
        self.remove_tablets(id, partition.id, &gone);
        if before.kind == TableKind::Pk {
            let buckets = (0..partition.buckets).map(|bucket| Place { partition: Some(partition.id), bucket }.of(id));
            self.kv.drop_buckets(&before, &buckets.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn remove_tablets(&self, id: TableId, partition: i64, why: &Error) {
        let removed: Vec<_> = {
            let mut tablets = self.tablets.write();
            let ids: Vec<_> = tablets.keys().copied().collect();
            let of_it = ids.into_iter().filter(|bucket| bucket.table == id && bucket.partition == Some(partition));
            of_it.filter_map(|bucket| tablets.remove(&bucket)).collect()
        };
        removed.iter().for_each(|tablet| tablet.take_offline(why));
        self.remove_files(&self.table_directory(id).join(partition.to_string()));
    }

    /// A bucket whose rows are routed to it.
    pub(crate) async fn rows(self: &Arc<Self>, info: &TableInfo, bucket: BucketId) -> Result<Rows> {
        if info.kind == TableKind::Pk {
            return self.kv(bucket).await.map(Rows::Keyed);
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

    fn remove_leftover_partitions(&self, info: &TableInfo) {
        let known: std::collections::HashSet<_> =
            info.bucket_ids().iter().filter_map(|bucket| bucket.partition).map(|id| id.to_string()).collect();
        let directory = self.table_directory(info.table_id());
        for entry in self.around.disk.list(&directory).unwrap_or_default() {
            if entry.is_dir && !known.contains(&entry.name) {
                tracing::info!(table = info.name, directory = entry.name, "removing the files of a dropped partition");
                self.remove_files(&directory.join(&entry.name));
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

/// Rows of a snapshot that are sent at once.
const SNAPSHOT_ROWS: usize = 1_024;
/// How many such are made before the reader takes one.
const SNAPSHOT_AHEAD: usize = 4;

/// Sends a bucket's rows until the reader goes away.
fn send_snapshot(tablet: &KvTablet, start: oneshot::Sender<i64>, rows: &tokio::sync::mpsc::Sender<Result<Vec<Row>>>) {
    let mut some = Vec::new();
    let outcome = tablet.snapshot(
        |offset| {
            let _ = start.send(offset);
        },
        |row| {
            some.push(row);
            some.len() < SNAPSHOT_ROWS || rows.blocking_send(Ok(std::mem::take(&mut some))).is_ok()
        },
    );
    // A reader that is gone needs nothing more.
    let _ = match outcome {
        Ok(()) if some.is_empty() => Ok(()),
        Ok(()) => rows.blocking_send(Ok(some)),
        Err(error) => rows.blocking_send(Err(error)),
    };
}

impl Backend for Embedded {
    fn tables(&self) -> Arc<View> {
        self.core.catalog.view()
    }

    fn cluster_id(&self) -> String {
        self.core.catalog.cluster_id().to_owned()
    }

    fn create_database(&self, name: String, info: DatabaseInfo) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.on_core(move |core| core.catalog.create_database(&name, info)))
    }

    fn drop_database(&self, name: String) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.on_core(move |core| core.catalog.drop_database(&name)))
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
        Box::pin(async move {
            let dropped = self.on_core(move |core| core.drop_table(id)).await;
            self.router.forget(|bucket| bucket.table == id);
            dropped
        })
    }

    fn add_buckets(&self, id: TableId, total: u32) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| {
            let mut before = 0;
            let info = core.catalog.alter(id, |info| {
                before = info.buckets;
                if info.is_routed() {
                    let what = format!("the buckets of table '{}' are those of its keys and partitions", info.name);
                    return Err(Error::new(ErrorKind::InvalidArgument, what));
                }
                if total <= info.buckets {
                    let message = format!("the table has {} buckets, {total} is no increase", info.buckets);
                    return Err(Error::new(ErrorKind::InvalidArgument, message));
                }
                info.buckets = total;
                Ok(())
            })?;
            core.create_tablets(&info, |bucket| bucket.bucket >= before)?;
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
            for bucket in info.bucket_ids() {
                if let Ok(tablet) = core.tablet(bucket) {
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

    fn add_partition(&self, table: TableId, spec: Vec<(String, String)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.on_core(move |core| core.add_partition(table, &spec)))
    }

    fn drop_partition(&self, table: TableId, spec: Vec<(String, String)>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let dropped = self.on_core(move |core| core.drop_partition(table, &spec)).await;
            let tablets = self.core.tablets.read();
            self.router.forget(|bucket| bucket.table == table && !tablets.contains_key(bucket));
            dropped
        })
    }

    fn upsert(&self, table: TableId, request: UpsertRequest) -> BoxFuture<'_, Result<PendingUpsert>> {
        Box::pin(async move { self.router.upsert(&*self.core.info(table)?, request).await })
    }

    fn lookup(&self, table: TableId, keys: Vec<Row>) -> BoxFuture<'_, Result<Vec<Option<Row>>>> {
        Box::pin(async move {
            let info = self.core.info(table)?;
            let mut places: BTreeMap<BucketId, (Vec<usize>, Vec<Row>)> = BTreeMap::new();
            let mut found = vec![None; keys.len()];
            for (at, key) in keys.into_iter().enumerate() {
                // A partition that is not there has no rows.
                let Some(bucket) = info.bucket_of(&key, 0)? else { continue };
                let (ats, rows) = places.entry(bucket).or_default();
                ats.push(at);
                rows.push(key);
            }
            for (bucket, (ats, rows)) in places {
                let tablet = self.core.kv(bucket).await?;
                let rows = self.core.lookups.run(move || tablet.lookup(&rows)).await??;
                for (at, row) in ats.into_iter().zip(rows) {
                    if let Some(slot) = found.get_mut(at) {
                        *slot = row;
                    }
                }
            }
            Ok(found)
        })
    }

    fn snapshot(&self, bucket: BucketId) -> BoxFuture<'_, Result<(i64, SnapshotRows)>> {
        Box::pin(async move {
            let tablet = self.core.kv(bucket).await?;
            let (start, started) = oneshot::channel();
            let (sender, rows) = tokio::sync::mpsc::channel(SNAPSHOT_AHEAD);
            // A thread of its own: a slow reader must not hold one that others wait for.
            let body = move || send_snapshot(&tablet, start, &sender);
            let thread = std::thread::Builder::new().name("snapshot".to_owned()).spawn(body);
            thread.map_err(|error| Error::io("starting a thread", &error))?;
            let lost = |_| Error::new(ErrorKind::StorageFailed, format!("bucket {bucket}: the snapshot failed"));
            Ok((started.await.map_err(lost)?, rows))
        })
    }

    fn read(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Batches>> {
        Box::pin(async move {
            let tablet = self.core.readable(bucket)?;
            match tablet.range(offset, max_bytes)? {
                Some(range) => Ok(Batches::File(range)),
                None => self.bytes_of(tablet, offset, max_bytes).await.map(Batches::Bytes),
            }
        })
    }

    fn read_bytes(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(async move { self.bytes_of(self.core.readable(bucket)?, offset, max_bytes).await })
    }

    fn offsets(&self, bucket: BucketId) -> Result<Offsets> {
        self.core.readable(bucket)?.offsets()
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
        if self.core.info(bucket.table).is_ok_and(|info| info.kind == TableKind::Pk) {
            let what = "records of a table with a primary key are deleted by their keys";
            return Box::pin(async move { Err(Error::new(ErrorKind::InvalidArgument, what)) });
        }
        if bucket.is_vacant() {
            return Box::pin(async move { Ok(self.offsets(bucket)?.log_start) });
        }
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
