//! The bucket's own small file: log start and leader-epoch history (docs/storage-format.md §4.2).

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::{Disk, read_file, replace_file};
use crate::log::checked::{self, Kind, Reader, Writer};

/// What the file holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketState {
    /// First offset that may be read.
    pub log_start: i64,
    /// First offset of the changelog as readers of `$changelog` see it; equals `log_start` on raw tables.
    pub changelog_start: i64,
    /// Offset at which this tenant of the slot began.
    pub slot_base: i64,
    /// (epoch, first offset), ascending.
    pub epochs: Vec<(i32, i64)>,
}

const FILE: &str = "bucket.state";

impl BucketState {
    /// Reads the file of the bucket in `directory`; a missing one is the state of a new bucket.
    ///
    /// # Errors
    /// `Corrupt` when there is a file but it is damaged; the disk's.
    pub fn load(disk: &dyn Disk, directory: &Path) -> Result<Self> {
        let bytes = match read_file(disk, &directory.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io("reading bucket.state", &error)),
        };
        let mut input = Reader(checked::open(Kind::Bucket, &bytes)?);
        let mut state = Self {
            log_start: input.i64()?,
            changelog_start: input.i64()?,
            slot_base: input.i64()?,
            epochs: Vec::new(),
        };
        for _ in 0..input.count(12)? {
            state.epochs.push((input.i32()?, input.i64()?));
        }
        Ok(state)
    }

    /// Replaces the file, durably.
    ///
    /// # Errors
    /// The disk's.
    pub fn store(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let mut out = Writer::default();
        out.i64(self.log_start);
        out.i64(self.changelog_start);
        out.i64(self.slot_base);
        out.u32(self.epochs.len() as u32);
        for (epoch, offset) in &self.epochs {
            out.i32(*epoch);
            out.i64(*offset);
        }
        replace_file(disk, &directory.join(FILE), &checked::seal(Kind::Bucket, &out.0))
            .map_err(|error| Error::io("writing bucket.state", &error))
    }

    /// Where the log of `asked` ends, for a reader that wants to know whether it diverged (KIP-320):
    /// the largest known epoch not above `asked`, and the first offset of the next one.
    /// `current` is the leader's epoch and where it began; `end` is the log end.
    #[must_use]
    pub fn epoch_end(&self, asked: i32, current: (i32, i64), end: i64) -> (i32, i64) {
        if asked < 0 || asked > current.0 {
            return (-1, -1);
        }
        if asked == current.0 {
            return (asked, end);
        }
        let known = self.epochs.partition_point(|(epoch, _)| *epoch <= asked);
        let next = self.epochs.get(known).copied().unwrap_or(current);
        let floor = known.checked_sub(1).and_then(|at| self.epochs.get(at)).map_or(asked, |(epoch, _)| *epoch);
        (floor, next.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cases.md K10: epochs 3@0, 5@100, log end 150.
    #[test]
    fn answers_the_epoch_table() {
        let state = BucketState { epochs: vec![(3, 0), (5, 100)], ..BucketState::default() };
        let ask = |epoch| state.epoch_end(epoch, (5, 100), 150);
        assert_eq!(ask(2), (2, 0));
        assert_eq!(ask(3), (3, 100));
        assert_eq!(ask(4), (3, 100));
        assert_eq!(ask(5), (5, 150));
        assert_eq!(ask(6), (-1, -1));
        assert_eq!(ask(-1), (-1, -1));
    }

    #[test]
    fn an_epoch_without_batches_begins_where_the_server_started() {
        let state = BucketState { epochs: vec![(0, 0)], ..BucketState::default() };
        assert_eq!(state.epoch_end(0, (2, 12), 12), (0, 12));
        assert_eq!(state.epoch_end(1, (2, 12), 20), (0, 12));
        assert_eq!(BucketState::default().epoch_end(1, (2, 0), 0), (1, 0));
    }
}
