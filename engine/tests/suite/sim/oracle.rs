//! What one bucket's log must hold: every batch that was appended in order, with its exact bytes, and
//! up to where a promise was given that no crash may break.

use bytes::Bytes;
use sluice_engine::ErrorKind;
use sluice_protocol::batch::{self, BatchHeader, add_sequence};

/// A broken promise, in words.
pub(crate) type Check<T = ()> = Result<T, String>;

macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
pub(crate) use ensure;

/// A batch as a client made it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) bytes: Bytes,
    pub(crate) header: BatchHeader,
    /// The record timestamps, in order.
    pub(crate) timestamps: Vec<i64>,
}

/// A batch in the log.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) base: i64,
    pub(crate) end: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: BatchHeader,
    pub(crate) timestamps: Vec<i64>,
}

impl Entry {
    /// What the log must store for `made` at `base`.
    pub(crate) fn new(made: &Made, base: i64, epoch: i32, stamped_ms: Option<i64>) -> Self {
        let mut bytes = made.bytes.to_vec();
        let mut timestamps = made.timestamps.clone();
        if let Some(now) = stamped_ms {
            batch::set_max_timestamp(&mut bytes, now, true);
            timestamps.fill(now);
        }
        batch::set_position(&mut bytes, base, epoch);
        let header = BatchHeader::read(&bytes).expect("a whole header");
        Self { base, end: header.last_offset() + 1, bytes, header, timestamps }
    }
}

/// What the producers' rules (KIP-98) say of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    New,
    Duplicate(i64),
    Refused(ErrorKind),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    /// All batches ever appended that no crash took, those below the log start included.
    pub(crate) entries: Vec<Entry>,
    /// A batch whose append failed half-way: it may be there after a crash or a repair, or not.
    pub(crate) maybe: Option<Entry>,
    /// Everything below was promised to survive.
    pub(crate) durable: i64,
    /// Confirmed log start.
    pub(crate) start: i64,
    /// Largest log start that was asked for, confirmed or not.
    pub(crate) start_asked: i64,
}

impl Oracle {
    pub(crate) fn end(&self) -> i64 {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    pub(crate) fn promise(&mut self, offset: i64) {
        self.durable = self.durable.max(offset);
    }

    /// The verdict that the log's own content demands.
    pub(crate) fn judge(&self, header: &BatchHeader) -> Expected {
        if header.producer_id < 0 {
            return Expected::New;
        }
        let mut mine =
            self.entries.iter().rev().filter(|entry| entry.header.producer_id == header.producer_id).peekable();
        let Some(last) = mine.peek().map(|entry| entry.header) else { return Expected::New };
        if header.producer_epoch != last.producer_epoch {
            return match header.producer_epoch < last.producer_epoch {
                true => Expected::Refused(ErrorKind::FencedWriter),
                false if header.base_sequence == 0 => Expected::New,
                false => Expected::Refused(ErrorKind::OutOfOrder),
            };
        }
        let same = |entry: &&Entry| {
            entry.header.base_sequence == header.base_sequence && entry.header.last_sequence() == header.last_sequence()
        };
        let mut recent = mine.take_while(|entry| entry.header.producer_epoch == last.producer_epoch).take(5);
        if let Some(seen) = recent.find(same) {
            return Expected::Duplicate(seen.base);
        }
        match add_sequence(last.last_sequence(), 1) == header.base_sequence {
            true => Expected::New,
            false => Expected::Refused(ErrorKind::OutOfOrder),
        }
    }

    /// Takes over what a recovery found: it may have cut what was never promised, and nothing else.
    pub(crate) fn settle(&mut self, end: i64, start: i64) -> Check {
        ensure!(end >= self.durable, "the log ends at {end}, {} was promised", self.durable);
        if let Some(maybe) = self.maybe.take().filter(|maybe| maybe.base == self.end() && maybe.end == end) {
            self.entries.push(maybe);
        }
        while self.entries.last().is_some_and(|entry| entry.base >= end) {
            self.entries.pop();
        }
        ensure!(self.end() == end, "the log ends at {end}, no batch does (the last one at {})", self.end());
        ensure!(start >= self.start, "the log start moved back from {} to {start}", self.start);
        let limit = self.start_asked.max(self.start);
        ensure!(start <= limit, "the log start is {start}, at most {limit} was asked for");
        self.start = start;
        self.start_asked = start;
        // Recovery syncs what it keeps before it serves it.
        self.promise(end);
        Ok(())
    }

    /// Leader-epoch history: (epoch, first offset).
    pub(crate) fn epochs(&self) -> Vec<(i32, i64)> {
        let mut history: Vec<(i32, i64)> = Vec::new();
        for entry in &self.entries {
            if history.last().is_none_or(|(epoch, _)| *epoch < entry.header.leader_epoch) {
                history.push((entry.header.leader_epoch, entry.base));
            }
        }
        history
    }

    /// The records that readers see: (offset, timestamp).
    pub(crate) fn records(&self, end: i64) -> impl Iterator<Item = (i64, i64)> + '_ {
        let visible = self.entries.iter().filter(move |entry| entry.base < end);
        let all = visible.flat_map(|entry| (entry.base..).zip(entry.timestamps.iter().copied()));
        all.filter(|(offset, _)| *offset >= self.start)
    }
}
