//! Settings of the engine and of each log, with their defaults.

use std::path::PathBuf;

/// When a log's records become visible to readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Once they are on disk: no reader sees what a crash takes back.
    Durable,
    /// Once they are appended, as Kafka does.
    Appended,
}

/// When an append with [`crate::Acks::All`] is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcksAll {
    /// After the batch is on disk.
    Fsync,
    /// After the batch is in the page cache.
    PageCache,
}

/// What decides a record's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer.
    CreateTime,
    /// The server's clock at the append.
    LogAppendTime,
}

/// Settings of one table's logs; all of them may change while the log is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// Largest segment, bytes. Default: 1 GiB.
    pub segment_bytes: u64,
    /// Oldest first record of an active segment, ms. Default: 7 days.
    pub segment_ms: i64,
    /// How long records are kept, ms; negative is for ever. Default: 7 days.
    pub retention_ms: i64,
    /// How many bytes a bucket keeps; negative is no bound. Default: none.
    pub retention_bytes: i64,
    /// Largest batch, bytes. Default: 1,048,588.
    pub max_message_bytes: usize,
    /// Default: the producer's time.
    pub timestamp_type: TimestampType,
    /// How far before now a record's timestamp may lie, ms. Default: no bound.
    pub timestamp_before_max_ms: i64,
    /// How far after now a record's timestamp may lie, ms. Default: one hour.
    pub timestamp_after_max_ms: i64,
    /// Codec that batches are stored in; `None` keeps the producer's.
    pub codec: Option<i16>,
    /// Default: the server's.
    pub visibility: Visibility,
    /// Default: the server's.
    pub acks_all: AcksAll,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            codec: None,
            visibility: Visibility::Durable,
            acks_all: AcksAll::Fsync,
        }
    }
}

/// Settings of the embedded engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Threads that append. Default: as many as cores, at most 4.
    pub append_threads: usize,
    /// Threads that sync. Default: 8 (decision 0001).
    pub sync_threads: usize,
    /// Threads that read what is not cached. Default: 4.
    pub read_threads: usize,
    /// Appends that may wait for one append thread. Default: 1,024.
    pub append_queue: usize,
    /// Longest time an append that nobody waits for stays unsynced, ms. Default: 20.
    pub sync_interval_ms: u64,
    /// Time between two retention runs, ms. Default: 5 minutes.
    pub retention_interval_ms: u64,
    /// Time after which an idle producer is forgotten, ms. Default: 1 day.
    pub producer_expiry_ms: i64,
    /// The visibility of tables that do not set their own.
    pub visibility: Visibility,
    /// What acks=all means for tables that do not set their own.
    pub acks_all: AcksAll,
}

impl EngineConfig {
    /// Defaults over `data_dir`.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            data_dir: data_dir.into(),
            append_threads: cores.min(4),
            sync_threads: 8,
            read_threads: 4,
            append_queue: 1024,
            sync_interval_ms: 20,
            retention_interval_ms: 300_000,
            producer_expiry_ms: 86_400_000,
            visibility: Visibility::Durable,
            acks_all: AcksAll::Fsync,
        }
    }
}
