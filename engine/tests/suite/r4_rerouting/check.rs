//! The promises, checked over a table at rest.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Book;
use super::reader::Reader;
use super::tablet::Tablet;
use super::types::Violation;

/// Checks every promise that needs no memory of the run.
pub(crate) fn table(tablets: &[Tablet], book: &Book) -> Result<(), Violation> {
    let mut present = BTreeSet::new();
    for (bucket, tablet) in tablets.iter().enumerate() {
        order_and_once(bucket, tablet, &mut present)?;
        outcomes(bucket, tablet, book)?;
    }
    acknowledged(&present, book)
}

/// Rows of one producer, source and key stand in the order in which they were made, each once.
fn order_and_once(bucket: usize, tablet: &Tablet, present: &mut BTreeSet<u32>) -> Result<(), Violation> {
    let mut newest = BTreeMap::new();
    for row in tablet.log.iter().flat_map(|b| &b.rows) {
        if !present.insert(row.serial) {
            return Err(Violation::new("once-only", format!("row {} twice in bucket {bucket}", row.serial)));
        }
        let before = newest.insert((row.lane, row.key), row.serial);
        if before.is_some_and(|serial| serial > row.serial) {
            return Err(Violation::new("order", format!("row {} after {before:?} in bucket {bucket}", row.serial)));
        }
    }
    Ok(())
}

/// Rows of a transaction are committed or aborted as their client asked.
fn outcomes(bucket: usize, tablet: &Tablet, book: &Book) -> Result<(), Violation> {
    for (at, batch) in tablet.log.iter().enumerate() {
        let Some(transaction) = batch.rows.first().and_then(|row| row.transaction) else { continue };
        let (asked, found) = (book.outcomes[transaction], tablet.committed(at, false));
        if asked != found {
            let detail = format!("transaction {transaction} in bucket {bucket}: asked {asked:?}, found {found:?}");
            return Err(Violation::new("outcome", detail));
        }
    }
    Ok(())
}

/// Every row of an acknowledged batch is there.
fn acknowledged(present: &BTreeSet<u32>, book: &Book) -> Result<(), Violation> {
    let told = book.batches.iter().filter(|b| book.promised[b.id].is_some());
    match told.flat_map(|b| &b.rows).find(|row| !present.contains(&row.serial)) {
        Some(row) => Err(Violation::new("acknowledged", format!("row {} is lost", row.serial))),
        None => Ok(()),
    }
}

/// With every transaction ended, the last stable offset is the log's end.
pub(crate) fn stable(tablets: &[Tablet]) -> Result<(), Violation> {
    match tablets.iter().position(|t| t.stable_end() != t.end()) {
        Some(bucket) => Err(Violation::new("LSO", format!("pinned in bucket {bucket}"))),
        None => Ok(()),
    }
}

/// Readers that followed the log, and one that starts now, have the uncleaned log's state.
pub(crate) fn readers(tablets: &[Tablet], followers: &[Reader]) -> Result<(), Violation> {
    for (bucket, (tablet, follower)) in tablets.iter().zip(followers).enumerate() {
        let truth = Reader::truth(tablet);
        let mut fresh = Reader::default();
        fresh.read(tablet, usize::MAX);
        let mut follower = follower.clone();
        follower.read(tablet, usize::MAX);
        if fresh.state != truth || follower.state != truth {
            let detail =
                format!("bucket {bucket}: fresh {:?}, follower {:?}, log {truth:?}", fresh.state, follower.state);
            return Err(Violation::new("readers", detail));
        }
    }
    Ok(())
}
