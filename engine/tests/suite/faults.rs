//! What a failing disk costs: the requests that needed it, with the right error, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::io::sim::{Faults, SimDisk};
use sluice_engine::row::DataType;
use sluice_engine::{Acks, Backend, BucketId, Embedded, EngineConfig, Error, ErrorKind, Result, SystemClock};

use crate::fixture::{Bucket, append, batch, contents, engine_config, wait};

/// An engine whose logs are on a simulated disk; its catalog is on a real one.
struct Engine {
    directory: tempfile::TempDir,
    disk: SimDisk,
    engine: Option<Embedded>,
    /// Buckets of one table.
    buckets: Vec<BucketId>,
}

impl Engine {
    fn new() -> Self {
        Self::with_buckets(2)
    }

    fn with_buckets(count: u32) -> Self {
        let (directory, disk) = (tempfile::tempdir().expect("a directory"), SimDisk::new(11));
        let engine = open(&directory, &disk);
        let info = wait(engine.create_table("t".to_owned(), count, Default::default())).expect("creates");
        let buckets = (0..count).map(|bucket| BucketId::new(info.table_id(), bucket)).collect();
        Self { directory, disk, engine: Some(engine), buckets }
    }

    fn engine(&self) -> &Embedded {
        self.engine.as_ref().expect("it runs")
    }

    fn append(&self, bucket: usize, producer: Option<(i64, i16, i32)>, acks: Acks) -> Result<i64> {
        wait(async {
            let pending = self.engine().append(self.buckets[bucket], batch(1, 200, producer).into(), acks).await?;
            pending.await.map(|appended| appended.base_offset)
        })
    }

    fn end(&self, bucket: usize) -> Result<i64> {
        self.engine().offsets(self.buckets[bucket]).map(|offsets| offsets.end)
    }

    fn read(&self, bucket: usize, offset: i64) -> Result<usize> {
        wait(self.engine().read(self.buckets[bucket], offset, 1 << 20)).map(|batches| batches.len())
    }

    /// Lets something fail in the log files of a bucket, or in its small files.
    fn fail(&self, bucket: usize, name: &str, faults: Faults) {
        let directory = self.buckets[bucket].directory("".as_ref());
        let path_contains = Some(format!("{}/{name}", directory.display()));
        self.disk.set_faults(Faults { path_contains, ..faults });
    }

    /// The power fails, and a new server starts.
    fn lose_power(&mut self) {
        self.disk.clear_faults();
        self.disk.power_loss();
        self.engine = None;
        self.disk.power_loss();
        self.engine = Some(open(&self.directory, &self.disk));
    }
}

fn open(directory: &tempfile::TempDir, disk: &SimDisk) -> Embedded {
    // Long enough that two appends in a row both wait for their turn.
    let config = EngineConfig { sync_interval_ms: 200, ..engine_config(directory.path()) };
    Embedded::open(config, Arc::new(disk.clone()), Arc::new(SystemClock)).expect("opens")
}

fn kind<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.expect_err("refused").kind
}

/// Waits until `done`, for at most ten seconds.
fn until(mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "it did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

#[test]
fn a_failed_sync_takes_its_bucket_offline_until_it_is_repaired() {
    let mut engine = Engine::new();
    for at in 0..3 {
        engine.append(0, Some((1, 0, at)), Acks::All).expect("appends");
    }
    engine.fail(0, "0", Faults { sync_error_in: Some(1), ..Faults::default() });
    assert_eq!(kind(engine.append(0, Some((1, 0, 3)), Acks::All)), ErrorKind::StorageFailed);
    assert_eq!(kind(engine.end(0)), ErrorKind::StorageFailed, "the bucket is offline");
    assert_eq!(kind(engine.read(0, 0)), ErrorKind::StorageFailed);
    assert_eq!(engine.append(1, None, Acks::All).expect("the other serves"), 0);
    assert_eq!(engine.engine().stats().sync_failures, 1);
    until(|| engine.end(0).is_ok());
    let again = engine.append(0, Some((1, 0, 3)), Acks::All).expect("a retry");
    assert_eq!(again, 3, "what was in the log already keeps its place");
    assert_eq!(engine.append(0, Some((1, 0, 4)), Acks::All).expect("goes on"), 4);
    assert_eq!(engine.engine().stats().offline_buckets, 0);
    engine.lose_power();
    assert_eq!((engine.end(0).expect("online"), engine.end(1).expect("online")), (5, 1));
    for at in 0..5 {
        let known = engine.append(0, Some((1, 0, at)), Acks::All).expect("known");
        assert_eq!(known, i64::from(at));
    }
}

/// More buckets than there are sync threads: those that wait for their repair must not keep a thread.
#[test]
fn buckets_that_wait_for_repair_do_not_hold_the_others() {
    let served_meanwhile = || {
        let engine = Engine::with_buckets(5);
        for bucket in 0..4 {
            engine.fail(bucket, "0", Faults { sync_error_in: Some(1), ..Faults::default() });
            assert_eq!(kind(engine.append(bucket, None, Acks::All)), ErrorKind::StorageFailed);
        }
        engine.append(4, None, Acks::All).expect("it serves");
        let offline = (0..4).all(|bucket| engine.end(bucket).is_err());
        until(|| (0..4).all(|bucket| engine.end(bucket).is_ok()));
        offline
    };
    // A machine that stands still for a second may see a repair first.
    assert!((0..5).any(|_| served_meanwhile()), "it was served only after a repair");
}

#[test]
fn a_failed_sync_of_a_directory_is_as_bad() {
    let mut engine = Engine::new();
    engine.fail(0, "", Faults { sync_dir_error_in: Some(1), ..Faults::default() });
    // Creating the directory or syncing its names, whichever comes first.
    let first = engine.append(0, Some((1, 0, 0)), Acks::All);
    assert!(first.is_ok() || kind(first) == ErrorKind::StorageFailed);
    until(|| engine.end(0).is_ok());
    assert_eq!(engine.append(0, Some((1, 0, 0)), Acks::All).expect("a retry"), 0);
    engine.lose_power();
    assert_eq!(engine.append(0, Some((1, 0, 0)), Acks::All).expect("known"), 0);
    assert_eq!(engine.end(0).expect("online"), 1);
}

#[test]
fn a_full_disk_refuses_appends_and_nothing_else() {
    let engine = Engine::new();
    for bucket in [0, 1] {
        engine.append(bucket, None, Acks::All).expect("appends");
    }
    engine.fail(0, "0", Faults { no_space_after: Some(0), ..Faults::default() });
    for acks in [Acks::All, Acks::Leader] {
        assert_eq!(kind(engine.append(0, None, acks)), ErrorKind::NoSpace);
    }
    assert_eq!(engine.end(0).expect("online"), 1, "nothing was appended");
    assert!(engine.read(0, 0).expect("reads") > 0);
    assert_eq!(engine.append(1, None, Acks::All).expect("the other has space"), 1);
    engine.disk.clear_faults();
    assert_eq!(engine.append(0, None, Acks::All).expect("there is space again"), 1);
}

#[test]
fn no_space_for_small_files_takes_nothing_offline() {
    let mut engine = Engine::new();
    engine.fail(0, "bucket.state", Faults { no_space_after: Some(0), ..Faults::default() });
    assert_eq!(engine.append(0, None, Acks::All).expect("the log itself has space"), 0);
    assert_eq!(engine.append(0, None, Acks::All).expect("and goes on"), 1);
    engine.lose_power();
    assert_eq!(engine.end(0).expect("online"), 2);
    assert_eq!(engine.engine().epoch_of(engine.buckets[0], 0), 0);
}

#[test]
fn a_failed_read_costs_that_read() {
    let engine = Engine::new();
    engine.append(0, None, Acks::All).expect("appends");
    engine.fail(0, "0", Faults { read_error_in: Some(1), ..Faults::default() });
    assert_eq!(kind(engine.read(0, 0)), ErrorKind::StorageFailed);
    assert!(engine.read(0, 0).expect("reads") > 0);
    assert_eq!(engine.append(0, None, Acks::All).expect("appends"), 1);
}

#[test]
fn a_failed_write_appends_nothing() {
    let engine = Engine::new();
    engine.append(0, Some((1, 0, 0)), Acks::All).expect("appends");
    for short_write in [false, true] {
        engine.fail(0, "0", Faults { write_error_in: Some(1), short_write, ..Faults::default() });
        assert_eq!(kind(engine.append(0, Some((1, 0, 1)), Acks::All)), ErrorKind::StorageFailed);
        assert_eq!(engine.end(0).expect("online"), 1);
    }
    assert_eq!(engine.append(0, Some((1, 0, 1)), Acks::All).expect("a retry"), 1);
}

#[test]
fn a_segment_that_cannot_be_made_costs_its_append() {
    let bucket = Bucket::with_segments_of(300);
    let tablet = bucket.begin();
    append(&tablet, 1, 100);
    bucket.disk.set_faults(Faults { name_error_in: Some(1), ..Faults::default() });
    let outcome = tablet.append(batch(1, 200, None));
    assert_eq!(outcome.map_err(|error: Error| error.kind).expect_err("refused"), ErrorKind::StorageFailed);
    assert_eq!(append(&tablet, 1, 200).base_offset, 1);
    tablet.sync().expect("syncs");
    bucket.disk.power_loss();
    assert_eq!(contents(&bucket.recover(tablet.recovery_point()).0).len(), 2);
}

#[test]
fn a_bucket_that_syncs_slowly_does_not_hold_the_others() {
    for second in [Acks::Leader, Acks::All] {
        two_slow_buckets(second);
    }
}

fn two_slow_buckets(second: Acks) {
    let engine = Engine::new();
    for bucket in [0, 1] {
        engine.append(bucket, None, Acks::All).expect("appends");
    }
    // The sync threads may still write the small files that follow an answer.
    std::thread::sleep(Duration::from_millis(300));
    let slow = Duration::from_secs(1);
    engine.disk.set_slow(Some(slow));
    let start = Instant::now();
    engine.append(0, None, Acks::Leader).expect("appends");
    engine.append(1, None, second).expect("appends");
    let high = |bucket: usize| engine.engine().offsets(engine.buckets[bucket]).map_or(0, |at| at.high_watermark);
    until(|| high(0) == 2 && high(1) == 2);
    let took = start.elapsed();
    assert!(took < slow + slow / 2, "one waited for the other: {took:?}");
    engine.disk.set_slow(None);
}

#[test]
fn a_partition_that_cannot_be_made_leaves_nothing() {
    let engine = Engine::with_buckets(1);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let descriptor = TableDescriptor {
        columns: vec![("d", DataType::String).into(), ("k", DataType::Int).into()],
        primary_key: names(&["d", "k"]),
        partition_keys: names(&["d"]),
        buckets: Some(2),
        ..TableDescriptor::default()
    };
    let table = wait(engine.engine().create_typed("p".to_owned(), descriptor)).expect("creates");
    let before = engine.engine().stats().buckets;
    let add = || wait(engine.engine().add_partition(table.table_id(), vec![("d".to_owned(), "a".to_owned())]));
    // Its first bucket is open by then.
    let path_contains = Some("/1/bucket.state".to_owned());
    engine.disk.set_faults(Faults { path_contains, read_error_in: Some(1), ..Faults::default() });
    assert_eq!(kind(add()), ErrorKind::StorageFailed);
    assert_eq!(engine.engine().stats().buckets, before);
    engine.disk.clear_faults();
    add().expect("the name is free");
    assert_eq!(engine.engine().stats().buckets, before + 2);
}
