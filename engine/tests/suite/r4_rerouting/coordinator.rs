//! The transaction coordinator: participants, decision, markers.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Rules;
use super::tablet::{Body, Tablet};
use super::types::PRODUCERS;

/// Where a producer's transaction stands. Everything but `marked` is durable when it is set.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) epoch: u32,
    participants: BTreeSet<usize>,
    /// `Some(commit)` from Prepare on.
    decision: Option<bool>,
    /// Participants whose marker is appended, and where it ends.
    marked: BTreeMap<usize, u64>,
}

impl Transaction {
    /// True while appends may join.
    pub(crate) fn accepts(&self, epoch: u32) -> bool {
        self.decision.is_none() && epoch == self.epoch
    }

    /// True while Prepare is not yet followed by Complete.
    pub(crate) fn is_ending(&self) -> bool {
        self.decision.is_some()
    }

    /// True while some bucket waits for an end.
    pub(crate) fn is_open(&self) -> bool {
        !self.participants.is_empty()
    }

    /// Prepare.
    pub(crate) fn end(&mut self, commit: bool) {
        assert!(self.decision.is_none(), "a transaction ends once");
        self.decision = Some(commit);
    }

    fn next_epoch(&self, commit: bool) -> u32 {
        self.epoch + u32::from(!commit)
    }
}

/// All transactions.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    pub(crate) transactions: [Transaction; PRODUCERS],
}

impl Coordinator {
    /// Makes `bucket` a participant, durably.
    pub(crate) fn register(&mut self, producer: usize, bucket: usize) {
        self.transactions[producer].participants.insert(bucket);
    }

    /// Writes one marker, or completes; true when the transaction is complete now.
    pub(crate) fn step(&mut self, producer: usize, tablets: &mut [Tablet], rules: &Rules) -> bool {
        let transaction = &mut self.transactions[producer];
        let Some(commit) = transaction.decision else { return false };
        let epoch = transaction.next_epoch(commit);
        let missing = transaction.participants.iter().find(|b| !transaction.marked.contains_key(b)).copied();
        if let Some(bucket) = missing {
            let (_, end) = tablets[bucket].append(Body::Marker { producer, epoch, commit }, Vec::new(), rules);
            transaction.marked.insert(bucket, end);
            return false;
        }
        let durable = transaction.marked.iter().all(|(b, end)| tablets[*b].synced_end() >= *end);
        if rules.complete_waits_for_markers && !durable {
            return false;
        }
        *transaction = Transaction { epoch, ..Transaction::default() };
        true
    }

    /// A bucket has restarted and may have lost its markers: they are written again.
    pub(crate) fn forget_markers(&mut self, bucket: usize) {
        self.transactions.iter_mut().for_each(|t| {
            t.marked.remove(&bucket);
        });
    }
}
