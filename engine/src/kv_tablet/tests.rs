//! The default merge engine against the table model's worked example and its rules, over a simulated disk and store.

use std::path::PathBuf;

use super::*;
use crate::clock::ManualClock;
use crate::config::LogOptions;
use crate::io::sim::SimDisk;
use crate::kv::SimStore;
use crate::log::head::BatchKind;
use crate::row::batch::{BatchView, head};
use crate::row::{ColumnSpec, DataType, Datum, Schema};
use crate::tablet::{ReadLimit, Reading, Shape, Surroundings};
use crate::types::{BucketId, TableId};

const SHAPE: Shape = Shape { kind: BatchKind::Sluice, hashed: true };

/// One bucket, its disk and its store.
struct Bucket {
    disk: Arc<SimDisk>,
    store: SimStore,
    rules: Rules,
    tablet: KvTablet,
}

fn rules(wal_image: bool, deletes: DeleteBehavior) -> Rules {
    let key = ColumnSpec { nullable: false, ..("k", DataType::Int).into() };
    let columns = [key, ("v1", DataType::Double).into(), ("v2", DataType::String).into()];
    Rules { schema: Schema::first(columns, vec![0]), key: vec![0], wal_image, deletes }
}

fn log(disk: &Arc<SimDisk>) -> Arc<Tablet> {
    let around = Surroundings {
        disk: Arc::clone(disk) as _,
        clock: Arc::new(ManualClock::new(1_000)),
        root: PathBuf::from("/data"),
    };
    let id = BucketId::new(TableId(1), 0);
    let opened = Tablet::open(around, id, SHAPE, Arc::new(LogOptions::default()), 0, None, false);
    Arc::new(opened.expect("opens").0)
}

impl Bucket {
    fn new(rules: Rules) -> Self {
        let (disk, store) = (Arc::new(SimDisk::new(7)), SimStore::unlogged());
        let opened = KvTablet::open(log(&disk), Arc::new(store.clone()), Arc::new(rules.clone()));
        Self { tablet: opened.expect("opens"), disk, store, rules }
    }

    fn run(&self, ops: &[Op]) -> Appended {
        let appended = self.tablet.upsert(ops, Closing::default()).expect("upserts");
        self.settle();
        appended
    }

    fn settle(&self) {
        self.tablet.log.sync().expect("syncs");
        while self.tablet.apply().expect("applies") {}
    }

    /// The changelog from an offset on, in the table model's words.
    fn changes(&self, from: i64) -> Vec<String> {
        let (mut offset, end, mut found) =
            (from, self.tablet.log.offsets().expect("online").high_watermark, Vec::new());
        while offset < end {
            let read = self.tablet.log.read(offset, 1 << 20, ReadLimit::Visible, true).expect("reads");
            let Reading::Done(stored) = read else { panic!("would block") };
            let mut rest: &[u8] = &stored;
            while let Some(len) = head(rest).and_then(|head| head.len) {
                let (batch, tail) = rest.split_at(len);
                let view = BatchView::read(batch).expect("a batch");
                let rows = view.rows(&self.rules.schema).expect("rows");
                let shown = rows.iter().filter(|(at, ..)| *at >= from);
                found.extend(shown.map(|(at, change, row)| format!("{at} {change}{}", text(row))));
                offset = view.head.last_offset() + 1;
                rest = tail;
            }
        }
        found
    }

    fn get(&self, key: i32) -> Option<String> {
        let found = self.tablet.lookup(&[row(key, None, None)]).expect("looks up");
        found[0].as_ref().map(text)
    }
}

fn row(key: i32, v1: Option<f64>, v2: Option<&str>) -> Row {
    let v1 = v1.map_or(Datum::Null, Datum::Double);
    vec![Datum::Int(key), v1, v2.map_or(Datum::Null, |text| Datum::String(text.to_owned()))]
}

fn text(row: &Row) -> String {
    let value = |value: &Datum| match value {
        Datum::Null => "∅".to_owned(),
        Datum::Int(value) => value.to_string(),
        Datum::Double(value) => format!("{value:?}"),
        Datum::String(text) => text.clone(),
        other => format!("{other:?}"),
    };
    format!("({})", row.iter().map(value).collect::<Vec<_>>().join(","))
}

fn upsert(key: i32, v1: f64, v2: &str) -> Op {
    Op::upsert(row(key, Some(v1), Some(v2)))
}

fn partial(target: &[usize], row: Row) -> Op {
    Op { target: Some(target.into()), ..Op::upsert(row) }
}

/// The writes of table-model §7.5.
fn worked_example(bucket: &Bucket) {
    bucket.run(&[upsert(1, 2.0, "apple")]);
    bucket.run(&[upsert(1, 4.0, "banana")]);
    bucket.run(&[partial(&[0, 2], row(1, None, Some("cherry")))]);
    bucket.run(&[partial(&[0, 1], row(2, Some(9.0), None))]);
    bucket.run(&[Op::delete(row(1, None, None))]);
    bucket.run(&[Op::delete(row(7, None, None))]);
}

#[test]
fn the_worked_example_with_the_full_image() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    worked_example(&bucket);
    let expected = [
        "0 +I(1,2.0,apple)",
        "1 -U(1,2.0,apple)",
        "2 +U(1,4.0,banana)",
        "3 -U(1,4.0,banana)",
        "4 +U(1,4.0,cherry)",
        "5 +I(2,9.0,∅)",
        "6 -D(1,4.0,cherry)",
    ];
    assert_eq!(bucket.changes(0), expected);
    assert_eq!(bucket.tablet.log.offsets().expect("online").end, 8, "the delete of an absent key takes one offset");
    assert_eq!((bucket.get(1), bucket.get(2).as_deref(), bucket.get(7)), (None, Some("(2,9.0,∅)"), None));
    assert_eq!(bucket.tablet.live_rows(), Some(1));
}

#[test]
fn the_worked_example_with_the_wal_image() {
    let bucket = Bucket::new(rules(true, DeleteBehavior::Allow));
    worked_example(&bucket);
    let expected =
        ["0 +U(1,2.0,apple)", "1 +U(1,4.0,banana)", "2 +U(1,4.0,cherry)", "3 +I(2,9.0,∅)", "4 -D(1,4.0,cherry)"];
    assert_eq!(bucket.changes(0), expected);
    assert_eq!(bucket.tablet.log.offsets().expect("online").end, 6);
    assert_eq!(bucket.tablet.live_rows(), None);
}

#[test]
fn later_rows_of_a_batch_see_earlier_ones() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    let ops = [
        upsert(1, 1.0, "a"),
        upsert(1, 2.0, "b"),
        Op::delete(row(1, None, None)),
        Op::delete(row(1, None, None)),
        upsert(1, 3.0, "c"),
        upsert(2, 1.0, "x"),
    ];
    let appended = bucket.run(&ops);
    assert_eq!((appended.base_offset, appended.end_offset), (0, 6));
    let expected =
        ["0 +I(1,1.0,a)", "1 -U(1,1.0,a)", "2 +U(1,2.0,b)", "3 -D(1,2.0,b)", "4 +I(1,3.0,c)", "5 +I(2,1.0,x)"];
    assert_eq!(bucket.changes(0), expected);
    assert_eq!(bucket.get(1).as_deref(), Some("(1,3.0,c)"));
}

#[test]
fn an_equal_row_is_an_update_all_the_same() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    bucket.run(&[upsert(1, 1.0, "a")]);
    bucket.run(&[upsert(1, 1.0, "a")]);
    assert_eq!(bucket.changes(1), ["1 -U(1,1.0,a)", "2 +U(1,1.0,a)"]);
}

#[test]
fn a_disabled_delete_takes_its_whole_batch_back_and_an_ignored_one_does_nothing() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Disable));
    bucket.run(&[upsert(1, 1.0, "a")]);
    let ops = [upsert(1, 2.0, "b"), Op::delete(row(1, None, None)), upsert(2, 1.0, "c")];
    let refused = bucket.tablet.upsert(&ops, Closing::default()).expect_err("refused");
    assert_eq!((refused.kind, refused.message.starts_with("row 1:")), (ErrorKind::DeletesDisabled, true));
    bucket.settle();
    assert_eq!(bucket.tablet.log.offsets().expect("online").end, 1);
    bucket.run(&[upsert(1, 3.0, "d")]);
    assert_eq!(bucket.changes(1), ["1 -U(1,1.0,a)", "2 +U(1,3.0,d)"]);
    let bucket = Bucket::new(rules(false, DeleteBehavior::Ignore));
    bucket.run(&[upsert(1, 1.0, "a"), Op::delete(row(1, None, None))]);
    assert_eq!(bucket.changes(0), ["0 +I(1,1.0,a)"]);
    assert_eq!(bucket.get(1).as_deref(), Some("(1,1.0,a)"));
}

#[test]
fn a_partial_delete_nulls_its_columns_or_ends_the_row() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    bucket.run(&[upsert(1, 1.0, "a")]);
    let gone = |target: &[usize]| Op { target: Some(target.into()), ..Op::delete(row(1, None, None)) };
    bucket.run(&[gone(&[0, 1])]);
    assert_eq!(bucket.changes(1), ["1 -U(1,1.0,a)", "2 +U(1,∅,a)"]);
    bucket.run(&[gone(&[0, 2])]);
    assert_eq!(bucket.changes(3), ["3 -D(1,∅,a)"]);
}

#[test]
fn a_partial_update_of_the_key_alone_inserts_or_does_nothing() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    bucket.run(&[partial(&[0], row(1, None, None))]);
    bucket.run(&[partial(&[0], row(1, Some(9.0), None))]);
    assert_eq!(bucket.changes(0), ["0 +I(1,∅,∅)"]);
    assert_eq!(bucket.tablet.log.offsets().expect("online").end, 2, "an empty batch takes one offset");
}

#[test]
fn targets_need_the_key_and_nullable_columns_around() {
    let mut rules = rules(false, DeleteBehavior::Allow);
    assert!(rules.check_target(&[1]).expect_err("no key").message.contains("'k'"));
    rules.check_target(&[0]).expect("fine");
    rules.schema.columns[2].nullable = false;
    assert!(rules.check_target(&[0, 1]).expect_err("NOT NULL").message.contains("'v2'"));
    rules.check_target(&[0, 1, 2]).expect("all of them");
}

#[test]
fn nothing_is_seen_before_it_is_synced_and_applied() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    bucket.tablet.upsert(&[upsert(1, 1.0, "a")], Closing::default()).expect("upserts");
    let high = || bucket.tablet.log.offsets().expect("online").high_watermark;
    assert_eq!((high(), bucket.get(1)), (0, None));
    assert!(!bucket.tablet.apply().expect("nothing is synced"));
    bucket.tablet.log.sync().expect("syncs");
    assert_eq!((high(), bucket.get(1)), (0, None));
    let (sender, mut waiter) = tokio::sync::oneshot::channel();
    bucket.tablet.log.when_durable(1, sender);
    assert!(waiter.try_recv().is_err(), "it is synced and not applied");
    bucket.tablet.apply().expect("applies");
    assert_eq!(high(), 1);
    waiter.try_recv().expect("told").expect("applied");
    assert!(bucket.get(1).is_some());
    // The row before is found while it waits in the buffer, too.
    bucket.tablet.upsert(&[upsert(1, 2.0, "b")], Closing::default()).expect("upserts");
    bucket.run(&[upsert(1, 3.0, "c")]);
    assert_eq!(bucket.changes(2)[1..], ["3 -U(1,2.0,b)", "4 +U(1,3.0,c)"]);
}

#[test]
fn a_snapshot_has_its_offset_and_is_of_one_moment() {
    let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
    for key in [3, -1, 2] {
        bucket.run(&[upsert(key, 0.0, "x")]);
    }
    let (mut at, mut rows) = (-1, Vec::new());
    bucket
        .tablet
        .snapshot(
            |offset| at = offset,
            |row| {
                rows.push(text(&row));
                true
            },
        )
        .expect("scans");
    assert_eq!((at, rows), (3, vec!["(-1,0.0,x)".to_owned(), "(2,0.0,x)".to_owned(), "(3,0.0,x)".to_owned()]));
    let empty = Bucket::new(rules(false, DeleteBehavior::Allow));
    let mut at = -1;
    empty.tablet.snapshot(|offset| at = offset, |_| panic!("no rows")).expect("scans");
    assert_eq!(at, 0);
}

/// Whatever suffix of its writes the store loses, the log brings it back.
#[test]
fn the_log_rebuilds_what_the_store_lost() {
    for kept in 0..12 {
        let bucket = Bucket::new(rules(false, DeleteBehavior::Allow));
        worked_example(&bucket);
        bucket.store.flush().expect("flushes");
        for key in 0..5 {
            bucket.run(&[upsert(key, f64::from(key), "again"), Op::delete(row(key - 1, None, None))]);
        }
        let expected = bucket.changes(0);
        let Bucket { disk, store, rules, tablet } = bucket;
        drop(tablet);
        store.crash(kept);
        disk.crash();
        let opened = KvTablet::open(log(&disk), Arc::new(store.clone()), Arc::new(rules.clone())).expect("opens");
        let bucket = Bucket { disk, store, rules, tablet: opened };
        assert_eq!(bucket.changes(0), expected, "{kept} writes kept");
        assert_eq!(bucket.get(4).as_deref(), Some("(4,4.0,again)"));
        assert_eq!((bucket.get(0), bucket.get(3)), (None, None));
        assert_eq!(bucket.tablet.live_rows(), Some(1));
        bucket.run(&[upsert(4, 5.0, "more")]);
        let after = bucket.changes(expected.len() as i64 + 1);
        assert_eq!(after.len(), 2, "{after:?}");
    }
}
