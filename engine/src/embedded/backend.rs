//! [`Backend`] of the embedded engine.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

use super::Embedded;
use crate::backend::{Acks, Backend, BoxFuture, KeyValues, PendingAppend, PendingUpsert, SnapshotRows, UpsertRequest};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::{DatabaseInfo, TableInfo, TableKind, View};
use crate::config::LogOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::Change;
use crate::kv_tablet::KvTablet;
use crate::row::{ColumnSpec, Row};
use crate::shard::{Append, AppendReply};
use crate::tablet::{Appended, Batches, LogBatch, Offsets, Tablet, WatchGuard};
use crate::types::{BucketId, TableId};

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

    fn add_columns(&self, id: TableId, columns: Vec<ColumnSpec>) -> BoxFuture<'_, Result<Arc<TableInfo>>> {
        Box::pin(self.on_core(move |core| core.catalog.alter(id, |info| info.add_columns(columns))))
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
                let tablet = self.core.kv(&info, bucket).await?;
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
            let tablet = self.core.kv(&*self.core.info(bucket.table)?, bucket).await?;
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
