//! The seam between the front ends and the storage: tables, buckets, batches, keys. It names no
//! protocol; the embedded engine and, later, an existing Fluss cluster implement it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::{DatabaseInfo, TableInfo, View};
use crate::config::LogOptions;
use crate::error::Result;
use crate::kv::Change;
use crate::kv_tablet::Op;
use crate::log::head::ProducerRange;
use crate::routing::Upserted;
use crate::row::{ColumnSpec, Row};
use crate::tablet::{Appended, Batches, LogBatch, Offsets, WatchGuard};
use crate::types::{BucketId, TableId};

/// A boxed future, so that the trait can be an object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an append waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// The page cache.
    Leader,
    /// The disk, unless the table says otherwise.
    All,
}

/// An append whose place in its bucket is fixed and whose outcome is to come.
pub type PendingAppend = BoxFuture<'static, Result<Appended>>;

/// Rows for a table whose rows are routed: those of a PK table upsert and delete, those of a log table are appended.
#[derive(Debug)]
pub struct UpsertRequest {
    /// The topic partition that a Kafka producer addressed; `None` where the writer knows of none.
    pub source: Option<u32>,
    /// The producer's range, where it is idempotent. It needs a source.
    pub range: Option<ProducerRange>,
    /// In order.
    pub ops: Vec<Op>,
    /// What to wait for.
    pub acks: Acks,
}

/// An upsert whose rows have their places and whose outcome is to come.
pub type PendingUpsert = BoxFuture<'static, Result<Upserted>>;

/// What a snapshot of a bucket sends: rows in the order of their keys, some at a time.
pub type SnapshotRows = tokio::sync::mpsc::Receiver<Result<Vec<Row>>>;

/// Keys and values, in key order.
pub type KeyValues = Vec<(Vec<u8>, Vec<u8>)>;

/// Storage of tables, embedded or elsewhere.
pub trait Backend: Send + Sync + 'static {
    /// All tables as of now.
    fn tables(&self) -> Arc<View>;

    /// The random id of this store.
    fn cluster_id(&self) -> String;

    /// Creates a database.
    fn create_database(&self, name: String, info: DatabaseInfo) -> BoxFuture<'_, Result<()>>;

    /// Drops a database that has no tables.
    fn drop_database(&self, name: String) -> BoxFuture<'_, Result<()>>;

    /// Creates a raw table.
    fn create_table(
        &self,
        name: String,
        buckets: u32,
        options: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Arc<TableInfo>>>;

    /// Creates a typed table.
    fn create_typed(&self, name: String, descriptor: TableDescriptor) -> BoxFuture<'_, Result<Arc<TableInfo>>>;

    /// Drops a table and frees its space.
    fn drop_table(&self, id: TableId) -> BoxFuture<'_, Result<()>>;

    /// Raises the number of buckets.
    fn add_buckets(&self, id: TableId, total: u32) -> BoxFuture<'_, Result<Arc<TableInfo>>>;

    /// Replaces a table's options.
    fn set_options(&self, id: TableId, options: BTreeMap<String, String>) -> BoxFuture<'_, Result<Arc<TableInfo>>>;

    /// Adds columns to a typed table, at the end, all or none: the rows that are there have NULL in them
    /// (table-model §16).
    fn add_columns(&self, id: TableId, columns: Vec<ColumnSpec>) -> BoxFuture<'_, Result<Arc<TableInfo>>>;

    /// The settings of a bucket's log.
    ///
    /// # Errors
    /// `TableNotFound` and `BucketNotFound`.
    fn log_options(&self, bucket: BucketId) -> Result<Arc<LogOptions>>;

    /// The settings that tables get where they set none.
    fn default_log_options(&self) -> LogOptions;

    /// Queues an append: once this is ready its place among the bucket's appends is fixed, and the
    /// inner future brings its outcome.
    fn append(&self, bucket: BucketId, batch: LogBatch, acks: Acks) -> BoxFuture<'_, Result<PendingAppend>>;

    /// Adds a partition: its columns and their values.
    fn add_partition(&self, table: TableId, spec: Vec<(String, String)>) -> BoxFuture<'_, Result<()>>;

    /// Drops a partition with its rows.
    fn drop_partition(&self, table: TableId, spec: Vec<(String, String)>) -> BoxFuture<'_, Result<()>>;

    /// Upserts and deletes rows of a PK table, or appends rows of another whose rows are routed, each in the bucket of
    /// its key and partition (design §3). Ready once their places are
    /// fixed; the inner future brings the outcome.
    fn upsert(&self, table: TableId, request: UpsertRequest) -> BoxFuture<'_, Result<PendingUpsert>>;

    /// The rows of keys, in the order of the keys. Only the key's columns of each row given count.
    fn lookup(&self, table: TableId, keys: Vec<Row>) -> BoxFuture<'_, Result<Vec<Option<Row>>>>;

    /// The rows of a PK table's bucket as they are at one moment, and the offset that they have followed the log to.
    fn snapshot(&self, bucket: BucketId) -> BoxFuture<'_, Result<(i64, SnapshotRows)>>;

    /// Reads whole batches from the one that holds `offset` on, as far as they are visible: at most
    /// `max_bytes` but always one, and none at the end.
    fn read(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Batches>>;

    /// As [`Backend::read`], but always in memory: for those who look into batches.
    fn read_bytes(&self, bucket: BucketId, offset: i64, max_bytes: usize) -> BoxFuture<'_, Result<Bytes>>;

    /// Where a bucket's log stands.
    ///
    /// # Errors
    /// `TableNotFound`, `BucketNotFound`, or why the bucket is offline.
    fn offsets(&self, bucket: BucketId) -> Result<Offsets>;

    /// Bytes that a read from `offset` could return, roughly.
    fn available_bytes(&self, bucket: BucketId, offset: i64) -> u64;

    /// Tells `watcher` when a bucket's high watermark moves, until the guard is dropped; a bucket
    /// that is gone has no guard.
    fn watch(&self, bucket: BucketId, watcher: &Arc<Notify>) -> Option<WatchGuard>;

    /// The first record at or after `timestamp` ms: (offset, timestamp).
    fn offset_for_time(&self, bucket: BucketId, timestamp: i64) -> BoxFuture<'_, Result<Option<(i64, i64)>>>;

    /// The first record with the largest timestamp: (offset, timestamp).
    fn max_timestamp(&self, bucket: BucketId) -> BoxFuture<'_, Result<Option<(i64, i64)>>>;

    /// The epoch that a record was written in.
    fn epoch_of(&self, bucket: BucketId, offset: i64) -> i32;

    /// Where the log of an epoch ends: (largest known epoch not above it, end offset).
    ///
    /// # Errors
    /// `TableNotFound` and `BucketNotFound`.
    fn epoch_end(&self, bucket: BucketId, epoch: i32) -> Result<(i32, i64)>;

    /// Gives up records below `before` (`None`: the high watermark); returns the new log start.
    fn delete_records(&self, bucket: BucketId, before: Option<i64>) -> BoxFuture<'_, Result<i64>>;

    /// A producer id that no producer ever had.
    fn next_producer_id(&self) -> BoxFuture<'_, Result<i64>>;

    /// Applies changes to the coordinators' state, all or none, durably.
    fn write_state(&self, changes: Vec<Change>) -> BoxFuture<'_, Result<()>>;

    /// Reads the coordinators' state under a key prefix.
    fn scan_state(&self, prefix: Vec<u8>) -> BoxFuture<'_, Result<KeyValues>>;
}
