//! The tablet engine: a segmented log per bucket, a catalog, and the threads that append, sync and
//! read. It knows tables, buckets and batches; it knows no API key, no socket and no error code of a
//! protocol. Front ends talk to [`Backend`].

pub mod backend;
pub mod catalog;
pub mod clock;
pub mod config;
mod directory;
mod embedded;
pub mod error;
mod flusher;
pub mod io;
pub mod kv;
mod kv_tables;
pub mod kv_tablet;
pub mod log;
mod pool;
mod routing;
pub mod row;
pub mod scan;
mod shard;
pub mod tablet;
pub mod types;
mod upserts;

/// What the simulation drives itself and no front end may use.
#[doc(hidden)]
pub mod testing {
    pub use crate::directory::DataDirectory;
}

pub use backend::{Acks, Backend, PendingAppend, PendingUpsert, SnapshotRows, UpsertRequest};
pub use clock::{Clock, ManualClock, SystemClock};
pub use config::{AcksAll, EngineConfig, LogOptions, TimestampType, Visibility};
pub use directory::FORMAT_VERSION;
pub use embedded::{Embedded, EngineStats};
pub use error::{Error, ErrorKind, Result};
pub use io::{Disk, RealDisk};
pub use routing::Upserted;
pub use types::{BucketId, TableId};
