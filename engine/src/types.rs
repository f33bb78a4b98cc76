//! Identifiers of tables and buckets.

use std::fmt;
use std::path::{Path, PathBuf};

/// A table, for ever; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u64);

/// Partition ids from here down stand for free slots.
const VACANT: i64 = -2;

/// One bucket of one table (or of one of its partitions): the unit of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId {
    /// The table.
    pub table: TableId,
    /// The table's partition; `None` for unpartitioned tables.
    pub partition: Option<i64>,
    /// The bucket's number, from 0.
    pub bucket: u32,
}

impl BucketId {
    /// A bucket of an unpartitioned table.
    #[must_use]
    pub fn new(table: TableId, bucket: u32) -> Self {
        Self { table, partition: None, bucket }
    }

    /// The stand-in for the bucket of a topic partition that no bucket has now: it is empty.
    #[must_use]
    pub fn vacant(table: TableId, slot: u32) -> Self {
        Self { table, partition: Some(VACANT - i64::from(slot)), bucket: 0 }
    }

    /// Whether it is such a stand-in.
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.partition.is_some_and(|partition| partition <= VACANT)
    }

    /// The bucket's directory under `root`, the data directory.
    #[must_use]
    pub fn directory(&self, root: &Path) -> PathBuf {
        let partition = self.partition.map_or_else(|| "-".to_owned(), |id| id.to_string());
        root.join("log").join(self.table.0.to_string()).join(partition).join(self.bucket.to_string())
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.partition {
            None => write!(f, "{}_-_{}", self.table.0, self.bucket),
            Some(partition) => write!(f, "{}_{partition}_{}", self.table.0, self.bucket),
        }
    }
}
