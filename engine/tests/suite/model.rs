//! A log is a vector: random appends, reads, deletes, rolls and restarts against the simplest model.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_engine::tablet::{ReadLimit, Reading, Tablet};
use sluice_engine::{ErrorKind, LogOptions};
use sluice_protocol::batch;

use crate::fixture::{Bucket, NOW_MS, batch_at};

#[derive(Debug, Clone)]
enum Step {
    /// Record timestamps after [`NOW_MS`], and the length of each record.
    Append(Vec<i64>, usize),
    Sync,
    /// Offset in thousandths of the log, bytes, whether what is not visible is wanted too, whether it may wait.
    Read(i64, usize, bool, bool),
    Delete(i64),
    /// The largest segment from now on.
    SegmentBytes(u64),
    Time(i64),
    Retain(i64),
    StopAndStart,
    KillAndStart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (prop::collection::vec(-500i64..500, 1..5), prop_oneof![9 => 1usize..400, 1 => 400usize..20_000])
            .prop_map(|(times, len)| Step::Append(times, len)),
        2 => Just(Step::Sync),
        5 => (-20i64..1_050, prop_oneof![0usize..3_000, 0usize..100_000], any::<bool>(), any::<bool>())
            .prop_map(|(at, bytes, all, wait)| Step::Read(at, bytes, all, wait)),
        1 => (0i64..1_100).prop_map(Step::Delete),
        1 => prop_oneof![300u64..3_000, 50_000u64..200_000].prop_map(Step::SegmentBytes),
        2 => (-510i64..510).prop_map(Step::Time),
        1 => prop_oneof![Just(-1i64), 0i64..50_000].prop_map(Step::Retain),
        1 => Just(Step::StopAndStart),
        1 => Just(Step::KillAndStart),
    ]
}

/// A stored batch and its record timestamps.
struct Stored {
    base: i64,
    end: i64,
    bytes: Vec<u8>,
    times: Vec<i64>,
}

struct Model {
    log: Vec<Stored>,
    start: i64,
    synced: i64,
    options: LogOptions,
    epoch: i32,
}

impl Model {
    fn end(&self) -> i64 {
        self.log.last().map_or(0, |stored| stored.end)
    }

    /// What a read must return.
    fn read(&self, offset: i64, max_bytes: usize, end: i64) -> Vec<u8> {
        let mut found = Vec::new();
        for stored in self.log.iter().filter(|stored| stored.end > offset && stored.base < end) {
            if !found.is_empty() && found.len() + stored.bytes.len() > max_bytes {
                break;
            }
            found.extend_from_slice(&stored.bytes);
        }
        found
    }

    fn record_at(&self, time: i64) -> Option<(i64, i64)> {
        self.visible().find(|(_, at)| *at >= time)
    }

    fn visible(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        let stored = self.log.iter().filter(|stored| stored.base < self.synced);
        let all = stored.flat_map(|stored| (stored.base..).zip(stored.times.iter().copied()));
        all.filter(|(offset, _)| *offset >= self.start)
    }
}

fn check_read(tablet: &Tablet, model: &Model, offset: i64, max_bytes: usize, all: bool, wait: bool) -> TestCaseResult {
    let (limit, end) = if all { (ReadLimit::Appended, model.end()) } else { (ReadLimit::Visible, model.synced) };
    match tablet.read(offset, max_bytes, limit, wait) {
        Err(error) => {
            prop_assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
            prop_assert!(offset < model.start || offset > end, "{} is in {}..={}", offset, model.start, end);
        }
        Ok(Reading::WouldBlock) => prop_assert!(!wait),
        Ok(Reading::Done(bytes)) => {
            let expected = model.read(offset, max_bytes, end);
            // A read stops at the end of a segment, and gives fewer batches than fit where it had to search.
            let whole = expected.starts_with(&bytes) && bytes.is_empty() == expected.is_empty();
            prop_assert!(whole, "read {} bytes at {}, expected {}", bytes.len(), offset, expected.len());
        }
    }
    Ok(())
}

fn check(tablet: &Tablet, model: &Model) -> TestCaseResult {
    let offsets = tablet.offsets().expect("online");
    let found = (offsets.log_start, offsets.high_watermark, offsets.end);
    prop_assert_eq!(found, (model.start, model.synced, model.end()));
    Ok(())
}

fn apply(bucket: &mut Bucket, tablet: &mut Tablet, model: &mut Model, step: Step) -> TestCaseResult {
    let place = |thousandths: i64, model: &Model| model.start + (model.end() - model.start) * thousandths / 1_000;
    match step {
        Step::Append(times, len) => {
            let times: Vec<i64> = times.into_iter().map(|time| NOW_MS + time).collect();
            let raw = batch_at(&times, len, None);
            let appended = tablet.append(&raw).expect("appends");
            let (base, mut bytes) = (model.end(), raw.bytes.to_vec());
            batch::set_position(&mut bytes, base, model.epoch);
            model.log.push(Stored { base, end: base + times.len() as i64, bytes, times });
            prop_assert_eq!((appended.base_offset, appended.end_offset), (base, model.end()));
        }
        Step::Sync => {
            tablet.sync().expect("syncs");
            model.synced = model.end();
        }
        Step::Read(at, max_bytes, all, wait) => {
            check_read(tablet, model, place(at, model), max_bytes, all, wait)?;
        }
        Step::Delete(at) => {
            let before = place(at, model);
            match tablet.delete_records(Some(before)) {
                Ok(start) => {
                    prop_assert!(before <= model.synced);
                    model.start = model.start.max(before);
                    prop_assert_eq!(start, model.start);
                }
                Err(error) => {
                    prop_assert_eq!(error.kind, ErrorKind::OffsetOutOfRange);
                    prop_assert!(before > model.synced);
                }
            }
        }
        Step::SegmentBytes(segment_bytes) => {
            model.options.segment_bytes = segment_bytes;
            bucket.options = model.options.clone().into();
            tablet.set_options(bucket.options.clone());
        }
        Step::Time(after) => {
            let time = NOW_MS + after;
            prop_assert_eq!(tablet.offset_for_time(time).expect("finds"), model.record_at(time));
            let newest = model.visible().map(|(_, at)| at).max().and_then(|at| model.record_at(at));
            prop_assert_eq!(tablet.max_timestamp().expect("finds"), newest);
        }
        Step::Retain(bytes) => {
            let options = LogOptions { retention_bytes: bytes, retention_ms: -1, ..model.options.clone() };
            tablet.set_options(options.into());
            tablet.apply_retention().expect("retains");
            tablet.set_options(bucket.options.clone());
            let start = tablet.offsets().expect("online").log_start;
            prop_assert!(
                start == model.start || model.log.iter().any(|stored| stored.base == start || stored.end == start)
            );
            prop_assert!(start >= model.start && start <= model.synced);
            let kept: usize =
                model.log.iter().filter(|stored| stored.base >= start).map(|stored| stored.bytes.len()).sum();
            prop_assert!(start == model.start || kept as i64 >= bytes, "kept {} of {}", kept, bytes);
            model.start = start;
        }
        Step::StopAndStart => {
            tablet.close().expect("closes");
            bucket.disk.power_loss();
            *tablet = bucket.open(model.epoch, None, true).expect("opens").0;
            model.synced = model.end();
        }
        Step::KillAndStart => {
            let point = tablet.recovery_point();
            bucket.disk.process_kill();
            model.epoch += 1;
            *tablet = bucket.open(model.epoch, point, false).expect("recovers").0;
            model.synced = model.end();
        }
    }
    check(tablet, model)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_vector(steps in prop::collection::vec(step(), 1..80)) {
        let options = LogOptions { segment_bytes: 2_000, ..LogOptions::default() };
        let mut bucket = Bucket::new(options.clone());
        let mut tablet = bucket.begin();
        let mut model = Model { log: Vec::new(), start: 0, synced: 0, options, epoch: 0 };
        for step in steps {
            apply(&mut bucket, &mut tablet, &mut model, step)?;
        }
        let mut offset = model.start;
        while offset < model.end() {
            check_read(&tablet, &model, offset, 1 << 20, true, true)?;
            offset += 1;
        }
    }
}
