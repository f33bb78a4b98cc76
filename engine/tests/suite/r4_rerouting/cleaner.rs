//! The cleaner: drops superseded rows, and log batches that nothing needs any more.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Rules;
use super::tablet::{Body, Tablet};
use super::types::{KEYS, Lane, REMEMBERED, Range};

/// Cleans one bucket up to its bound.
pub(crate) fn clean(tablet: &mut Tablet, rules: &Rules) {
    let mut bound = tablet.synced_end();
    if rules.cleaner_below_lso {
        bound = bound.min(tablet.stable_end());
    }
    drop_rows(tablet, bound);
    drop_entries(tablet, bound, rules);
    drop_markers(tablet, bound);
}

/// Drops the rows that a later committed one supersedes, and those of aborted transactions.
fn drop_rows(tablet: &mut Tablet, bound: u64) {
    let below = tablet.log.partition_point(|b| b.end <= bound);
    let mut seen = [false; KEYS];
    for at in (0..below).rev() {
        // Without its rule the cleaner meets open transactions and takes them for committed.
        let committed = tablet.committed(at, true) != Some(false);
        let batch = &mut tablet.log[at];
        for (row, live) in batch.rows.iter().zip(&mut batch.live_rows).rev() {
            if !committed || (*live && std::mem::replace(&mut seen[row.key], true)) {
                *live = false;
            }
        }
    }
}

/// Drops log batches without rows, except where their entries are among the last of their role.
fn drop_entries(tablet: &mut Tablet, bound: u64, rules: &Rules) {
    let mut applied: BTreeMap<Lane, BTreeSet<Range>> = BTreeMap::new();
    let mut closed: BTreeMap<Lane, BTreeSet<Range>> = BTreeMap::new();
    let mut entries: BTreeMap<Lane, usize> = BTreeMap::new();
    let counted = if rules.cleaner_counts_durable { tablet.synced } else { tablet.log.len() };
    for batch in tablet.log[..counted].iter_mut().rev().filter(|b| b.live_body) {
        let Body::Data(entry) = &batch.body else { continue };
        let lane = entry.range.lane;
        let count = entries.entry(lane).or_default();
        *count += 1;
        let as_applied = entry.applies && is_among_last(applied.entry(lane).or_default(), entry.range);
        let as_closing = entry.closing.is_some() && is_among_last(closed.entry(lane).or_default(), entry.range);
        let needed = if rules.cleaner_counts_ranges { as_applied || as_closing } else { *count <= REMEMBERED };
        if batch.end > bound || batch.has_live_rows() {
            continue;
        }
        batch.live_body = needed && rules.keep_last_five_in_cleaner;
        batch.live_transaction &= !rules.cleaner_settles_transactions;
    }
}

/// Counts distinct ranges, newest first: a range closed again after a void takes one place.
fn is_among_last(ranges: &mut BTreeSet<Range>, range: Range) -> bool {
    if ranges.len() < REMEMBERED {
        ranges.insert(range);
    }
    ranges.contains(&range)
}

/// Drops the markers of transactions of which no row is left.
fn drop_markers(tablet: &mut Tablet, bound: u64) {
    let mut rows_left: BTreeSet<usize> = BTreeSet::new();
    for batch in tablet.log.iter_mut().filter(|b| b.end <= bound && b.live_body) {
        if let Some(producer) = batch.transaction_of()
            && batch.has_live_rows()
        {
            rows_left.insert(producer);
        }
        if let Body::Marker { producer, .. } = batch.body {
            batch.live_body = rows_left.remove(&producer);
        }
    }
}
