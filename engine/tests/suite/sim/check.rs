//! What must hold of a bucket that serves: every offset reads as it was written, times and epochs
//! are found as a search through all records finds them.

use sluice_engine::tablet::{ReadLimit, Reading};

use super::oracle::{Check, Oracle, ensure};
use super::world::World;

impl Oracle {
    /// A read from `offset` returned `bytes`; `top` is one past what it may show.
    pub(crate) fn check_read(&self, bytes: &[u8], offset: i64, max_bytes: usize, top: i64) -> Check<i64> {
        let first = self.entries.partition_point(|entry| entry.end <= offset);
        let (mut at, mut next) = (0, offset);
        for entry in self.entries.get(first..).unwrap_or_default() {
            if at == bytes.len() {
                break;
            }
            let got = bytes.get(at..at + entry.bytes.len());
            ensure!(got == Some(entry.bytes.as_slice()), "the batch at {} is not what was appended", entry.base);
            ensure!(entry.base < top, "a reader saw {} of {top}", entry.base);
            at += entry.bytes.len();
            next = entry.end;
            ensure!(at <= max_bytes || at == entry.bytes.len(), "a read of {max_bytes} bytes gave {at}");
        }
        ensure!(at == bytes.len(), "{} bytes behind the last batch", bytes.len() - at);
        ensure!(next > offset || offset >= top, "nothing was read at {offset} of {top}");
        Ok(next)
    }

    /// The first record at or after `timestamp`: (offset, its timestamp).
    pub(crate) fn record_at(&self, timestamp: i64, end: i64) -> Option<(i64, i64)> {
        self.records(end).find(|(_, time)| *time >= timestamp)
    }
}

impl World {
    /// Compares everything that a reader can learn of a bucket with the oracle.
    pub(crate) fn verify(&mut self, bucket: usize) -> Check {
        if self.is_offline(bucket) {
            return Ok(());
        }
        let max_bytes = 1 + self.rng.below(9_000) as usize;
        let probes: Vec<u64> = (0..4).map(|_| self.rng.next()).collect();
        let outcome = self.verify_bucket(bucket, max_bytes, &probes);
        outcome.map_err(|broken| format!("bucket {bucket}: {broken}"))
    }

    fn verify_bucket(&self, bucket: usize, max_bytes: usize, probes: &[u64]) -> Check {
        let (tablet, oracle) = (self.tablet(bucket)?, &self.oracles[bucket]);
        let text = |error: sluice_engine::Error| error.to_string();
        let offsets = tablet.offsets().map_err(text)?;
        ensure!(offsets.log_start == oracle.start, "the log starts at {}, not {}", offsets.log_start, oracle.start);
        ensure!(offsets.end == oracle.end(), "the log ends at {}, not {}", offsets.end, oracle.end());
        let mut offset = offsets.log_start;
        while offset < offsets.end {
            let reading = tablet.read(offset, max_bytes, ReadLimit::Appended, true).map_err(text)?;
            let Reading::Done(bytes) = reading else { return Err("a read that may wait would not".to_owned()) };
            offset = oracle.check_read(&bytes, offset, max_bytes, offsets.end)?;
        }
        let high = offsets.high_watermark;
        let times: Vec<i64> = oracle.records(high).map(|(_, time)| time).collect();
        let asked = probes.iter().filter(|_| !times.is_empty()).map(|probe| {
            let time = times[(*probe % times.len() as u64) as usize];
            time + (*probe >> 32) as i64 % 3 - 1
        });
        for timestamp in asked.chain([0, i64::MAX]) {
            let found = tablet.offset_for_time(timestamp).map_err(text)?;
            let expected = oracle.record_at(timestamp, high);
            ensure!(found == expected, "time {timestamp} is at {found:?}, not {expected:?}");
        }
        let newest = times.iter().max().and_then(|time| oracle.record_at(*time, high));
        let found = tablet.max_timestamp().map_err(text)?;
        ensure!(found == newest, "the newest record is {found:?}, not {newest:?}");
        self.verify_epochs(bucket)
    }

    fn verify_epochs(&self, bucket: usize) -> Check {
        let (tablet, oracle) = (self.tablet(bucket)?, &self.oracles[bucket]);
        for entry in oracle.entries.iter().filter(|entry| entry.end > oracle.start) {
            let (epoch, wrote) = (tablet.epoch_of(entry.base), entry.header.leader_epoch);
            ensure!(epoch == wrote, "offset {} is of epoch {epoch}, written in {wrote}", entry.base);
        }
        let (history, current) = (oracle.epochs(), tablet.epoch);
        for (at, (epoch, _)) in history.iter().enumerate().filter(|(_, (epoch, _))| *epoch < current.0) {
            let next = history.get(at + 1).map_or(current.1, |(_, first)| *first);
            let found = tablet.epoch_end(*epoch);
            ensure!(found == (*epoch, next), "epoch {epoch} ends at {found:?}, not {next}");
        }
        let found = tablet.epoch_end(current.0);
        ensure!(found == (current.0, oracle.end()), "the current epoch {current:?} ends at {found:?}");
        Ok(())
    }
}
