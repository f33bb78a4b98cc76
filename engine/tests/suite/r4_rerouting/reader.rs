//! Readers: fold the committed rows of a bucket into the newest row per key.

use super::tablet::Tablet;
use super::types::KEYS;

/// A read-committed consumer of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) position: u64,
    pub(crate) state: [Option<u32>; KEYS],
}

impl Reader {
    /// Reads up to `limit` log batches below the last stable offset.
    pub(crate) fn read(&mut self, tablet: &Tablet, limit: usize) {
        let stable = tablet.stable_end();
        let from = tablet.log.partition_point(|b| b.base < self.position);
        let to = tablet.log.partition_point(|b| b.end <= stable);
        for at in (from..to).take(limit) {
            let batch = &tablet.log[at];
            self.position = batch.end;
            if tablet.committed(at, true) != Some(true) {
                continue;
            }
            for (row, live) in batch.rows.iter().zip(&batch.live_rows) {
                if *live {
                    self.state[row.key] = Some(row.serial);
                }
            }
        }
    }

    /// The state that the uncleaned log gives: the model's.
    pub(crate) fn truth(tablet: &Tablet) -> [Option<u32>; KEYS] {
        let mut state = [None; KEYS];
        for (at, batch) in tablet.log.iter().enumerate() {
            if tablet.committed(at, false) == Some(true) {
                batch.rows.iter().for_each(|row| state[row.key] = Some(row.serial));
            }
        }
        state
    }
}
