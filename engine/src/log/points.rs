//! Recovery points of all buckets in one file (docs/storage-format.md §5).

use std::collections::BTreeMap;

use super::checked::{self, Kind, Reader, Writer};
use crate::error::Result;
use crate::types::{BucketId, TableId};

/// Everything of the bucket below `offset` is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// One past the last offset that is certain.
    pub offset: i64,
    /// The segment that `position` lies in.
    pub segment: i64,
    /// One past the last byte that is certain.
    pub position: u64,
}

/// The whole file.
#[must_use]
pub fn encode(points: &BTreeMap<BucketId, RecoveryPoint>) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(points.len() as u32);
    for (bucket, point) in points {
        out.u64(bucket.table.0);
        out.i64(bucket.partition.unwrap_or(-1));
        out.u32(bucket.bucket);
        out.i64(point.offset);
        out.i64(point.segment);
        out.u64(point.position);
    }
    checked::seal(Kind::RecoveryPoints, &out.0)
}

/// Reads the file back.
///
/// # Errors
/// `Corrupt` for anything that is not one.
pub fn decode(bytes: &[u8]) -> Result<BTreeMap<BucketId, RecoveryPoint>> {
    let mut input = Reader(checked::open(Kind::RecoveryPoints, bytes)?);
    let mut points = BTreeMap::new();
    for _ in 0..input.count(44)? {
        let (table, partition, bucket) = (TableId(input.u64()?), input.i64()?, input.u32()?);
        let bucket = BucketId { table, partition: (partition >= 0).then_some(partition), bucket };
        let point = RecoveryPoint { offset: input.i64()?, segment: input.i64()?, position: input.u64()? };
        points.insert(bucket, point);
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_round_trip() {
        let mut points = BTreeMap::new();
        for bucket in 0..3 {
            let id = BucketId { table: TableId(7), partition: (bucket > 0).then_some(4), bucket };
            points.insert(id, RecoveryPoint { offset: 5, segment: 0, position: 99 });
        }
        assert_eq!(decode(&encode(&points)).expect("decodes"), points);
    }
}
