//! Logs of typed tables: what a power loss may take, and what their batches promise.

use sluice_engine::log::head::{BatchKind, ProducerRange};
use sluice_engine::row::batch::{BatchView, append_only};
use sluice_engine::row::{DataType, Datum, Row, Schema};
use sluice_engine::tablet::{Appended, LogBatch, ReadLimit, Reading, Tablet};
use sluice_engine::{ErrorKind, LogOptions, Result};

use crate::fixture::Bucket;

fn schema() -> Schema {
    Schema::first([("n", DataType::BigInt).into(), ("text", DataType::String).into()], Vec::new())
}

fn bucket(segment_bytes: u64) -> Bucket {
    let options = LogOptions { segment_bytes, ..LogOptions::default() };
    Bucket { kind: BatchKind::Sluice, ..Bucket::new(options) }
}

fn row(n: i64, len: usize) -> Row {
    vec![Datum::BigInt(n), Datum::String("x".repeat(len))]
}

/// Appends rows `first..first + count` as an idempotent producer whose sequences are the row numbers.
fn append(bucket: &Bucket, tablet: &Tablet, first: i64, count: i64, len: usize) -> Result<Appended> {
    let rows: Vec<Row> = (first..first + count).map(|n| row(n, len)).collect();
    let (first_sequence, last_sequence) = (first as i32, (first + count - 1) as i32);
    let range = ProducerRange { id: 5, epoch: 0, first_sequence, last_sequence };
    tablet.append(LogBatch::Typed(append_only(bucket.id, &schema(), &rows, Some(range))?))
}

/// Every row with its offset and commit timestamp.
fn rows(tablet: &Tablet) -> Vec<(i64, i64, Row)> {
    let offsets = tablet.offsets().expect("online");
    let (mut offset, mut found) = (offsets.log_start, Vec::new());
    while offset < offsets.end {
        let reading = tablet.read(offset, 1, ReadLimit::Appended, true).expect("reads");
        let Reading::Done(bytes) = reading else { panic!("a read that may wait would not") };
        let view = BatchView::read(&bytes).expect("a batch");
        let time = view.head.max_timestamp;
        found.extend(view.rows(&schema()).expect("rows").into_iter().map(|(at, _, row)| (at, time, row)));
        offset = view.head.last_offset() + 1;
    }
    found
}

#[test]
fn a_power_loss_takes_nothing_that_was_synced_and_leaves_a_prefix() {
    let mut shorter = 0;
    for seed in 0..60u64 {
        // Segments of several pages: a power loss takes them one by one.
        let mut bucket = bucket(30_000);
        bucket.disk = sluice_engine::io::sim::SimDisk::new(seed);
        let tablet = bucket.begin();
        let (mut next, mut synced, mut batches, mut expected) = (0, 0, Vec::new(), Vec::new());
        for step in 0..12 {
            let count = 1 + ((seed * 7 + step * 3) % 9) as i64;
            let len = 300 * ((seed + step) % 9) as usize;
            append(&bucket, &tablet, next, count, len).expect("appends");
            expected.extend((next..next + count).map(|n| (n, row(n, len))));
            batches.push((next, count));
            next += count;
            if (seed + step) % 4 == 0 {
                tablet.sync().expect("syncs");
                synced = next;
            }
        }
        let point = tablet.recovery_point();
        drop(tablet);
        bucket.disk.power_loss();
        let (tablet, _) = bucket.recover(point);
        let found = rows(&tablet);
        let end = found.len() as i64;
        assert!((synced..=next).contains(&end), "seed {seed}: {end} of {next} rows, {synced} were synced");
        shorter += usize::from(end < next);
        let found: Vec<_> = found.into_iter().map(|(offset, _, row)| (offset, row)).collect();
        assert!(expected.starts_with(&found), "seed {seed}: other rows came back");
        // The producer goes on where the log ends, and what is there already is known.
        let (first, count) = *batches.iter().rfind(|(first, count)| first + count <= end.max(1)).unwrap_or(&(0, 0));
        if count > 0 && end > 0 {
            assert_eq!(append(&bucket, &tablet, first, count, 0).expect("known").base_offset, first, "seed {seed}");
            let gap = append(&bucket, &tablet, end + 1, 1, 0);
            assert_eq!(gap.expect_err("a gap").kind, ErrorKind::OutOfOrder, "seed {seed}");
            assert_eq!(append(&bucket, &tablet, end, 1, 0).expect("goes on").base_offset, end, "seed {seed}");
        }
    }
    assert!(shorter > 10, "power losses took something in {shorter} of 60 runs");
}

#[test]
fn a_damaged_tail_is_cut_off() {
    let bucket = bucket(1 << 20);
    let tablet = bucket.begin();
    for n in 0..4 {
        append(&bucket, &tablet, n, 1, 100).expect("appends");
    }
    tablet.sync().expect("syncs");
    let point = tablet.recovery_point();
    append(&bucket, &tablet, 4, 1, 100).expect("appends");
    tablet.sync().expect("syncs");
    drop(tablet);
    let path = bucket.segment(0);
    let len = bucket.len(&path);
    // One byte of the last batch's text.
    bucket.write(&path, len - 20, b"?");
    let (tablet, cut) = bucket.recover(point);
    assert!(cut > 0 && rows(&tablet).len() == 4);
    assert_eq!(bucket.quarantine().len(), 1);
}

#[test]
fn commit_timestamps_do_not_fall_when_the_clock_does() {
    let bucket = bucket(600);
    let tablet = bucket.begin();
    for n in 0..9 {
        append(&bucket, &tablet, n, 1, 200).expect("appends");
        bucket.clock.advance(-1_000);
    }
    let times: Vec<i64> = rows(&tablet).iter().map(|(_, time, _)| *time).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(bucket.disk.list_all().len() > 3, "over several segments");
    tablet.sync().expect("syncs");
    assert_eq!(tablet.offset_for_time(times[0]).expect("finds"), Some((0, times[0])));
}
