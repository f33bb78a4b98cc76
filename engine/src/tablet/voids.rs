//! Closings that do not count: those whose rows a crash took from another bucket (docs/storage-format-typed.md §1.4).

use super::{ReadLimit, Reading, Tablet};
use crate::error::{Error, ErrorKind, Result};
use crate::row::batch::{self, BatchView, Destination, Void};
use crate::types::BucketId;

/// Bytes of log that are looked through at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Voids of one log batch.
const VOIDS_MAX: usize = 1_000;

/// Appends, and syncs, a void for each closing above the recovery point of which `reaches` (bucket, leader epoch, end
/// offset) says that its rows are not all there. Nothing may have been appended since the log was opened.
///
/// # Errors
/// The disk's; `Corrupt` where the log does not decode.
pub fn void_broken(tablet: &Tablet, reaches: &dyn Fn(BucketId, i32, i64) -> bool) -> Result<usize> {
    let mut found = unconfirmed(tablet)?;
    let there = |to: &Destination| {
        let id = to.place.of(tablet.id.table);
        reaches(id, to.leader_epoch, to.end_offset)
    };
    found.retain(|(_, elsewhere)| !elsewhere.iter().all(there));
    for some in found.chunks(VOIDS_MAX) {
        tablet.append(batch::void(some.iter().map(|(void, _)| *void).collect())?)?;
    }
    if !found.is_empty() {
        tablet.sync()?;
    }
    Ok(found.len())
}

/// The closings of ranges with rows elsewhere, at or above the recovery point, that no void takes back.
fn unconfirmed(tablet: &Tablet) -> Result<Vec<(Void, Vec<Destination>)>> {
    let offsets = tablet.offsets()?;
    let mut offset = tablet.opened_at().max(offsets.log_start);
    let mut found: Vec<(Void, Vec<Destination>)> = Vec::new();
    while offset < offsets.end {
        let Reading::Done(stored) = tablet.read(offset, CHUNK_BYTES, ReadLimit::Appended, true)? else {
            return Err(Error::new(ErrorKind::Internal, "a blocking read would block"));
        };
        let (mut rest, before): (&[u8], _) = (&stored, offset);
        while let Some((bytes, tail)) =
            batch::head(rest).and_then(|head| head.len).and_then(|len| rest.split_at_checked(len))
        {
            let view = BatchView::read(bytes)?;
            look(&view, &mut found)?;
            offset = view.head.last_offset().saturating_add(1);
            rest = tail;
        }
        if offset <= before {
            let what = format!("bucket {}: no batch holds offset {before}", tablet.id);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
    }
    Ok(found)
}

fn look(view: &BatchView<'_>, found: &mut Vec<(Void, Vec<Destination>)>) -> Result<()> {
    for void in view.voids()? {
        found.retain(|(known, _)| known.offset != void.offset);
    }
    let (mut at, mut closings) = (0, Vec::new());
    view.for_each_entry(|entry, offset, _| {
        if entry.closing {
            closings.push((at, Void { offset, range: entry.range }));
        }
        at += 1;
    });
    for (at, void) in closings {
        let elsewhere = view.closing(at)?;
        if !elsewhere.is_empty() {
            found.push((void, elsewhere));
        }
    }
    Ok(())
}
