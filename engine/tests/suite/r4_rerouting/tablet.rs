//! One bucket: its log, how much of it is durable, and the state that is rebuilt from it.

use std::collections::BTreeMap;

use super::rules::Rules;
use super::types::{End, Lane, REMEMBERED, Range, Row};

/// What one log batch says besides its rows.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Rows, a closing entry, or both.
    Data(Entry),
    /// The end of a producer's transaction in this bucket.
    Marker { producer: usize, epoch: u32, commit: bool },
    /// The closing entry of this range at this offset proved incomplete at recovery.
    Void(Range, u64),
}

/// A producer entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) range: Range,
    pub(crate) transactional: bool,
    /// Rows of the range are applied by this log batch.
    pub(crate) applies: bool,
    /// Present in the source: where the other parts of the batch end.
    pub(crate) closing: Option<Vec<End>>,
}

/// A log batch. Cleaning clears the `live` parts only, so that the checkers still see what was there.
#[derive(Clone, Debug)]
pub(crate) struct LogBatch {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) body: Body,
    pub(crate) rows: Vec<Row>,
    pub(crate) live_rows: Vec<bool>,
    pub(crate) live_body: bool,
    pub(crate) live_transaction: bool,
}

impl LogBatch {
    /// True while some row has not been cleaned away.
    pub(crate) fn has_live_rows(&self) -> bool {
        self.live_rows.contains(&true)
    }

    /// The producer whose transaction this data batch belongs to, as the uncleaned log has it.
    pub(crate) fn transaction_of(&self) -> Option<usize> {
        match &self.body {
            Body::Data(entry) if entry.transactional => Some(entry.range.lane.producer),
            _ => None,
        }
    }
}

/// A closing entry as the source remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) range: Range,
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) ends: Vec<End>,
    pub(crate) void: bool,
}

/// What the source says to a batch that asks to come in.
#[derive(Debug)]
pub(crate) enum Verdict {
    Duplicate(Closed),
    Next,
    OutOfOrder,
    Fenced,
}

/// Producer and transaction state: a pure function of the log.
#[derive(Debug, Default)]
pub(crate) struct State {
    applied: BTreeMap<Lane, Vec<(Range, u64)>>,
    closed: BTreeMap<usize, Vec<Closed>>,
    epochs: BTreeMap<usize, u32>,
    open: BTreeMap<usize, u64>,
}

impl State {
    /// Takes one log batch into the state.
    fn take(&mut self, batch: &LogBatch, rules: &Rules) {
        if !batch.live_body {
            return;
        }
        match &batch.body {
            Body::Data(entry) => self.take_entry(entry, batch, rules),
            Body::Marker { producer, epoch, .. } => {
                self.open.remove(producer);
                self.fence(*producer, *epoch);
            }
            Body::Void(range, base) => self.take_void(*range, *base, rules),
        }
    }

    fn take_entry(&mut self, entry: &Entry, batch: &LogBatch, rules: &Rules) {
        let range = entry.range;
        if entry.applies {
            let kept = if rules.destinations_remember_five { REMEMBERED } else { 1 };
            let list = self.applied.entry(range.lane).or_default();
            list.push((range, batch.end));
            let surplus = list.len().saturating_sub(kept);
            list.drain(..surplus);
        }
        if let Some(ends) = &entry.closing {
            self.fence(range.lane.producer, range.epoch);
            let list = self.closed.entry(range.lane.producer).or_default();
            list.retain(|c| c.range.epoch == range.epoch && c.range != range);
            list.push(Closed { range, base: batch.base, end: batch.end, ends: ends.clone(), void: false });
            list.sort_by_key(|c| c.range.first);
            let surplus = list.len().saturating_sub(REMEMBERED);
            list.drain(..surplus);
        }
        if entry.transactional && batch.live_transaction {
            self.open.entry(range.lane.producer).or_insert(batch.base);
        }
    }

    /// Marks a remembered closing entry as void.
    pub(crate) fn take_void(&mut self, range: Range, base: u64, rules: &Rules) {
        let list = self.closed.entry(range.lane.producer).or_default();
        if rules.void_reopens_sequence {
            list.iter_mut().filter(|c| c.base == base).for_each(|c| c.void = true);
        } else {
            list.retain(|c| c.base != base);
        }
        if !rules.void_keeps_rows
            && let Some(applied) = self.applied.get_mut(&range.lane)
        {
            applied.retain(|(r, _)| *r != range);
        }
    }

    /// True when a range's closing entry at `base` is void, or another one has taken its place.
    pub(crate) fn is_replaced(&self, range: Range, base: u64) -> bool {
        let mut list = self.closed.get(&range.lane.producer).into_iter().flatten();
        list.any(|c| c.range == range && (c.void || c.base != base))
    }

    /// Raises the epoch known of a producer.
    fn fence(&mut self, producer: usize, epoch: u32) {
        let known = self.epochs.entry(producer).or_insert(epoch);
        *known = epoch.max(*known);
    }

    /// The end offset of the log batch that applied `range` here, if it is remembered.
    pub(crate) fn applied_end(&self, range: Range, rules: &Rules) -> Option<u64> {
        if !rules.entries_checked {
            return None;
        }
        let same = |r: &Range| {
            (r.first, r.last) == (range.first, range.last) && (r.epoch == range.epoch || !rules.ranges_name_epoch)
        };
        self.applied.get(&range.lane)?.iter().find(|(r, _)| same(r)).map(|(_, end)| *end)
    }

    /// Decides about a batch at its source. `failed` is the earliest batch known to have failed there: it is what
    /// stands between a producer of which the log knows nothing and "any first sequence will do".
    pub(crate) fn verdict(&self, range: Range, failed: Option<Range>, rules: &Rules) -> Verdict {
        let producer = range.lane.producer;
        let known = self.epochs.get(&producer).copied();
        if known.is_some_and(|epoch| range.epoch < epoch) {
            return Verdict::Fenced;
        }
        let list = || self.closed.get(&producer).into_iter().flatten().filter(|c| c.range.epoch == range.epoch);
        if let Some(same) = list().find(|c| c.range == range && !c.void) {
            return Verdict::Duplicate(same.clone());
        }
        let next = match (list().find(|c| c.void), list().next_back()) {
            _ if !rules.failure_blocks_next => true,
            (Some(void), _) => void.range == range,
            (None, Some(last)) => range.first == last.range.last + 1,
            (None, None) if known.is_some() => range.first == 0,
            (None, None) => failed.is_none_or(|f| f.epoch != range.epoch || range.first <= f.first),
        };
        if next { Verdict::Next } else { Verdict::OutOfOrder }
    }
}

/// One bucket of the table.
#[derive(Debug, Default)]
pub(crate) struct Tablet {
    pub(crate) log: Vec<LogBatch>,
    /// Log batches that are durable: a prefix of the log.
    pub(crate) synced: usize,
    /// Durable: recovery looks at nothing below this offset.
    pub(crate) recovery_point: u64,
    pub(crate) state: State,
    /// Closing entries are still to be looked at since a restart: done when a batch first asks to come in.
    pub(crate) check_due: bool,
    /// Durable: the start offset of each leader epoch but the first. The epoch rises at every unclean start.
    epoch_starts: Vec<u64>,
}

impl Tablet {
    /// The next offset.
    pub(crate) fn end(&self) -> u64 {
        self.log.last().map_or(0, |b| b.end)
    }

    /// The end of the durable part.
    pub(crate) fn synced_end(&self) -> u64 {
        self.log[..self.synced].last().map_or(0, |b| b.end)
    }

    /// The leader epoch.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch_starts.len() as u32
    }

    /// True while the part of a batch that ended there is still in the log. A log that was cut and has grown since
    /// is longer than the part's end, but not within the part's leader epoch.
    pub(crate) fn reaches(&self, end: &End, rules: &Rules) -> bool {
        let cut = self.epoch_starts.get(end.epoch as usize).copied().filter(|_| rules.closing_names_epoch);
        cut.unwrap_or_else(|| self.end()) >= end.offset
    }

    /// True when that part is durable.
    pub(crate) fn is_durable(&self, end: &End, rules: &Rules) -> bool {
        self.reaches(end, rules) && self.synced_end() >= end.offset
    }

    /// The last stable offset, bounded by what is durable.
    pub(crate) fn stable_end(&self) -> u64 {
        let first_open = self.state.open.values().copied().min();
        first_open.unwrap_or(u64::MAX).min(self.synced_end())
    }

    /// Appends a log batch; one without rows takes one offset.
    pub(crate) fn append(&mut self, body: Body, rows: Vec<Row>, rules: &Rules) -> (u64, u64) {
        let base = self.end();
        let end = base + rows.len().max(1) as u64;
        let live_rows = vec![true; rows.len()];
        let batch = LogBatch { base, end, body, rows, live_rows, live_body: true, live_transaction: true };
        self.state.take(&batch, rules);
        self.log.push(batch);
        (base, end)
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&mut self) {
        self.synced = self.log.len();
    }

    /// Loses all but `kept` log batches, and the memory; what is kept is synced before it counts. Says which ranges
    /// were closed here and are closed no longer.
    pub(crate) fn restart(&mut self, kept: usize, rules: &Rules) -> Vec<Range> {
        assert!(kept >= self.synced, "a crash takes no durable batch");
        let lost = self.log.drain(kept..).filter_map(|batch| match batch.body {
            Body::Data(Entry { range, closing: Some(_), .. }) => Some(range),
            _ => None,
        });
        let lost = lost.collect();
        self.sync();
        self.epoch_starts.push(self.end());
        self.check_due = true;
        self.state = State::default();
        for batch in &self.log {
            self.state.take(batch, rules);
        }
        lost
    }

    /// The closing entries at or above the recovery point that no void takes back.
    pub(crate) fn unconfirmed(&self) -> Vec<(u64, Range, Vec<End>)> {
        let mut found: Vec<(u64, Range, Vec<End>)> = Vec::new();
        for batch in &self.log[self.log.partition_point(|b| b.base < self.recovery_point)..] {
            match &batch.body {
                Body::Data(Entry { range, closing: Some(ends), .. }) if batch.live_body => {
                    found.push((batch.base, *range, ends.clone()));
                }
                Body::Void(_, base) => found.retain(|(b, _, _)| b != base),
                _ => {}
            }
        }
        found
    }

    /// How the transaction of log batch `at` ended: `None` while it is open. `live` follows the cleaned log.
    pub(crate) fn committed(&self, at: usize, live: bool) -> Option<bool> {
        let batch = &self.log[at];
        let Some(producer) = batch.transaction_of() else { return Some(true) };
        if live && !batch.live_transaction {
            return Some(true);
        }
        self.log[at..].iter().filter(|b| !live || b.live_body).find_map(|b| match b.body {
            Body::Marker { producer: p, commit, .. } if p == producer => Some(commit),
            _ => None,
        })
    }
}
