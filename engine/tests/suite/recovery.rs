//! Each kind of damage and what recovery makes of it (docs/storage-format.md §8).

use std::io::IoSlice;
use std::path::Path;

use sluice_engine::io::Disk;
use sluice_engine::io::sim::Faults;
use sluice_engine::tablet::Tablet;
use sluice_engine::{Acks, Backend, BucketId, Embedded, ErrorKind, LogOptions};

use crate::fixture::{Bucket, append, batch, batch_at, contents, killed_copy, open_engine, wait};

/// A bucket with `synced` and then `unsynced` batches of one record in one segment, its machine gone.
fn bucket_with(synced: usize, unsynced: usize) -> (Bucket, Tablet) {
    let bucket = Bucket::with_segments_of(1 << 20);
    let tablet = bucket.begin();
    fill(&tablet, synced);
    tablet.sync().expect("syncs");
    fill(&tablet, unsynced);
    (bucket, tablet)
}

fn fill(tablet: &Tablet, batches: usize) {
    for _ in 0..batches {
        append(tablet, 1, 100);
    }
}

fn refusal(bucket: &Bucket, tablet: &Tablet, clean: bool) -> ErrorKind {
    bucket.disk.process_kill();
    bucket.open(1, tablet.recovery_point(), clean).err().expect("refused").kind
}

#[test]
fn a_torn_tail_is_cut_and_kept_in_quarantine() {
    let (bucket, tablet) = bucket_with(3, 2);
    let (before, len) = (contents(&tablet), bucket.len(&bucket.segment(0)));
    bucket.disk.process_kill();
    bucket.disk.truncate_durable(&bucket.segment(0), len - 10).expect("cuts");
    let (tablet, quarantined) = bucket.recover(tablet.recovery_point());
    assert_eq!(contents(&tablet), before[..4]);
    assert_eq!(quarantined, before[4].1.len() as u64 - 10);
    assert_eq!(bucket.quarantine().iter().map(|(_, len)| *len).sum::<u64>(), quarantined);
    assert!(bucket.quarantine()[0].0.starts_with("1_-_0_4_"));
    assert_eq!(append(&tablet, 1, 100).base_offset, 4);
    assert_eq!(contents(&tablet).len(), 5);
}

#[test]
fn a_tail_of_zeroes_is_cut() {
    let (bucket, tablet) = bucket_with(2, 1);
    let (before, len) = (contents(&tablet), bucket.len(&bucket.segment(0)));
    bucket.disk.process_kill();
    bucket.write(&bucket.segment(0), len, &[0; 5_000]);
    let (tablet, quarantined) = bucket.recover(tablet.recovery_point());
    assert_eq!((contents(&tablet), quarantined), (before, 5_000));
    assert_eq!(bucket.len(&bucket.segment(0)), len);
}

#[test]
fn a_flipped_bit_above_the_recovery_point_ends_the_log_there() {
    let (bucket, tablet) = bucket_with(2, 3);
    let before = contents(&tablet);
    let (each, point) = (before[0].1.len() as u64, tablet.recovery_point());
    bucket.disk.process_kill();
    bucket.disk.flip_bit(&bucket.segment(0), 3 * each + 70).expect("flips");
    let (tablet, quarantined) = bucket.recover(point);
    assert_eq!(contents(&tablet), before[..3]);
    assert_eq!(quarantined, 2 * each, "what follows the damage goes with it");
}

#[test]
fn a_flipped_bit_below_the_recovery_point_takes_the_bucket_offline_for_good() {
    let (bucket, tablet) = bucket_with(3, 1);
    bucket.disk.flip_bit(&bucket.segment(0), 70).expect("flips");
    assert_eq!(refusal(&bucket, &tablet, false), ErrorKind::Corrupt);
    assert!(bucket.quarantine().is_empty(), "nothing is taken from a damaged bucket");
    assert_eq!(refusal(&bucket, &tablet, false), ErrorKind::Corrupt);
}

#[test]
fn every_flipped_bit_of_the_tail_costs_exactly_what_follows_it() {
    let (bucket, tablet) = bucket_with(1, 3);
    let before = contents(&tablet);
    let each = before[0].1.len() as u64;
    bucket.disk.process_kill();
    let whole = bucket.disk.dump(&bucket.segment(0)).expect("a file");
    // The leader epoch, bytes 12 to 16 of a batch, lies outside its checksum.
    for at in (each..4 * each).filter(|at| !(12..16).contains(&(at % each))) {
        bucket.write(&bucket.segment(0), 0, &whole);
        bucket.disk.flip_bit(&bucket.segment(0), at).expect("flips");
        let (tablet, _) = bucket.recover(None);
        assert_eq!(contents(&tablet), before[..(at / each) as usize], "byte {at}");
    }
}

/// Three segments of two batches each, all synced.
fn three_segments() -> (Bucket, Tablet) {
    let bucket = Bucket::with_segments_of(400);
    let tablet = bucket.begin();
    for at in 0..6 {
        tablet.append(batch(1, 100, Some((9, 0, at)))).expect("appends");
    }
    tablet.sync().expect("syncs");
    (bucket, tablet)
}

#[test]
fn a_missing_middle_segment_takes_the_bucket_offline() {
    for lost in [0, 2] {
        let (bucket, tablet) = three_segments();
        bucket.disk.remove(&bucket.segment(lost)).expect("removes");
        assert_eq!(refusal(&bucket, &tablet, false), ErrorKind::Corrupt, "segment {lost}");
        assert_eq!(refusal(&bucket, &tablet, true), ErrorKind::Corrupt, "segment {lost}, clean");
        // The states of the later segments prove it even where there is no recovery point.
        let refused = bucket.open(1, None, false).err().expect("refused");
        assert_eq!(refused.kind, ErrorKind::Corrupt, "segment {lost}, no point: {refused}");
    }
}

#[test]
fn a_first_segment_that_was_never_durable_takes_the_later_ones_with_it() {
    let (bucket, _) = three_segments();
    for state in [0, 2, 4] {
        let _ = bucket.disk.remove(&bucket.segment(state).with_extension("state"));
    }
    bucket.disk.remove(&bucket.segment(0)).expect("removes");
    let (tablet, quarantined) = bucket.recover(None);
    let offsets = tablet.offsets().expect("online");
    assert_eq!((offsets.log_start, offsets.end), (0, 0), "a gap is no log start");
    assert!(quarantined > 0 && bucket.quarantine().len() == 2);
}

#[test]
fn damage_in_a_sealed_segment_without_a_recovery_point_takes_the_bucket_offline() {
    let (bucket, tablet) = three_segments();
    drop(tablet);
    let state = bucket.segment(0).with_extension("state");
    bucket.disk.remove(&state).expect("removes");
    bucket.disk.flip_bit(&bucket.segment(0), 70).expect("flips");
    let refused = bucket.open(1, None, false).err().expect("refused");
    assert_eq!(refused.kind, ErrorKind::Corrupt, "a later segment's state proves it: {refused}");
    assert!(bucket.quarantine().is_empty(), "nothing is taken from a damaged bucket");
}

#[test]
fn damaged_or_missing_state_files_are_rebuilt_by_a_scan() {
    for clean in [false, true] {
        for damage in [false, true] {
            let (bucket, tablet) = three_segments();
            let (before, point) = (contents(&tablet), tablet.recovery_point());
            tablet.close().expect("closes");
            for base in [0, 2, 4] {
                let state = bucket.segment(base).with_extension("state");
                if damage {
                    bucket.disk.flip_bit(&state, 20).expect("flips");
                } else {
                    bucket.disk.remove(&state).expect("removes");
                }
            }
            let (tablet, quarantined) = bucket.open(1, point, clean).expect("opens");
            assert_eq!((contents(&tablet), quarantined), (before, 0), "clean={clean} damage={damage}");
            assert_eq!(tablet.append(batch(1, 100, Some((9, 0, 5)))).expect("known").base_offset, 5);
            tablet.close().expect("closes");
            bucket.open(1, None, true).expect("the states are back");
        }
    }
}

#[test]
fn a_segment_that_was_scanned_gets_its_state_at_the_next_clean_stop() {
    let bucket = Bucket::with_segments_of(400);
    let tablet = bucket.begin();
    fill(&tablet, 6);
    bucket.disk.process_kill();
    let (tablet, _) = bucket.recover(None);
    let before = contents(&tablet);
    tablet.close().expect("closes");
    bucket.disk.power_loss();
    let (tablet, _) = bucket.open(1, None, true).expect("opens after a clean stop");
    assert_eq!(contents(&tablet), before);
}

#[test]
fn a_damaged_bucket_state_takes_the_bucket_offline() {
    let (bucket, tablet) = bucket_with(3, 0);
    bucket.disk.flip_bit(&bucket.path("bucket.state"), 14).expect("flips");
    assert_eq!(refusal(&bucket, &tablet, false), ErrorKind::Corrupt);
}

#[test]
fn a_file_that_is_shorter_after_a_clean_stop_takes_the_bucket_offline() {
    let (bucket, tablet) = bucket_with(3, 1);
    tablet.close().expect("closes");
    let len = bucket.len(&bucket.segment(0));
    bucket.disk.truncate_durable(&bucket.segment(0), len - 1).expect("cuts");
    assert_eq!(refusal(&bucket, &tablet, true), ErrorKind::Corrupt);
    assert_eq!(refusal(&bucket, &tablet, false), ErrorKind::Corrupt, "nor does the next start cut it");
}

#[test]
fn the_last_five_batches_of_a_producer_are_known_after_a_crash() {
    let bucket = Bucket::with_segments_of(1 << 20);
    let tablet = bucket.begin();
    for at in 0..8 {
        tablet.append(batch(2, 50, Some((5, 1, at * 2)))).expect("appends");
    }
    tablet.sync().expect("syncs");
    bucket.disk.power_loss();
    let (tablet, _) = bucket.recover(None);
    for at in 3..8 {
        let again = tablet.append(batch(2, 50, Some((5, 1, at * 2)))).expect("known");
        assert_eq!(again.base_offset, i64::from(at) * 2);
    }
    let refused = |producer| tablet.append(batch(2, 50, Some(producer))).expect_err("refused").kind;
    assert_eq!(refused((5, 1, 4)), ErrorKind::OutOfOrder);
    assert_eq!(refused((5, 0, 16)), ErrorKind::FencedWriter);
    assert_eq!(tablet.append(batch(2, 50, Some((5, 1, 16)))).expect("next").base_offset, 16);
}

#[test]
fn producers_outlive_the_segments_that_tell_of_them() {
    let bucket = Bucket::new(LogOptions { retention_ms: 1_000, ..LogOptions::default() });
    let tablet = bucket.begin();
    tablet.append(batch(1, 50, Some((5, 0, 0)))).expect("appends");
    tablet.sync().expect("syncs");
    bucket.clock.advance(5_000);
    assert_eq!(tablet.apply_retention().expect("removes"), 1);
    for power in [false, true] {
        if power {
            bucket.disk.power_loss();
        } else {
            bucket.disk.process_kill();
        }
        let (tablet, _) = bucket.recover(None);
        assert_eq!(tablet.offsets().expect("online").log_start, 1);
        assert_eq!(tablet.append(batch(1, 50, Some((5, 0, 0)))).expect("known").base_offset, 0);
    }
}

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again_before_it_is_served() {
    let (bucket, tablet) = bucket_with(1, 3);
    let before = contents(&tablet);
    bucket.disk.set_faults(Faults { sync_error_in: Some(1), ..Faults::default() });
    assert_eq!(tablet.sync().expect_err("fails").kind, ErrorKind::StorageFailed);
    bucket.disk.process_kill();
    let (recovered, _) = bucket.recover(tablet.recovery_point());
    assert_eq!((contents(&recovered), recovered.synced()), (before.clone(), 4));
    bucket.disk.power_loss();
    let (tablet, _) = bucket.recover(recovered.recovery_point());
    assert_eq!(contents(&tablet), before);
}

#[test]
fn a_name_that_the_last_run_did_not_sync_is_synced_before_it_is_served() {
    let bucket = Bucket::new(LogOptions { retention_ms: 1_000, ..LogOptions::default() });
    let tablet = bucket.begin();
    append(&tablet, 1, 50);
    bucket.disk.process_kill();
    let (tablet, _) = bucket.recover(None);
    assert_eq!(tablet.synced(), 1);
    for _ in 0..20 {
        bucket.disk.power_loss();
        let (tablet, _) = bucket.recover(None);
        assert_eq!(contents(&tablet).len(), 1);
    }
}

#[test]
fn unfinished_writes_are_removed() {
    let (bucket, tablet) = bucket_with(2, 0);
    bucket.disk.process_kill();
    let leftover = bucket.path("bucket.state.tmp");
    let file = bucket.disk.create(&leftover).expect("creates");
    file.write_at(0, &[IoSlice::new(b"half")]).expect("writes");
    bucket.recover(tablet.recovery_point());
    assert!(bucket.disk.dump(&leftover).is_err());
}

#[test]
fn a_tail_longer_than_one_read_is_scanned_whole() {
    let bucket = Bucket::new(LogOptions::default());
    let tablet = bucket.begin();
    for at in 0..40 {
        tablet.append(batch_at(&[crate::fixture::NOW_MS + at], 90_000, None)).expect("appends");
    }
    let before = contents(&tablet);
    bucket.disk.process_kill();
    let (tablet, quarantined) = bucket.recover(None);
    assert_eq!(quarantined, 0);
    assert!(contents(&tablet) == before);
    let (offset, time) = (30, crate::fixture::NOW_MS + 30);
    assert_eq!(tablet.offset_for_time(time).expect("finds"), Some((offset, time)));
}

/// A real directory with one table of two buckets, one batch in each, and its killed copy.
fn killed_engine() -> (tempfile::TempDir, Embedded, BucketId, BucketId) {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_engine(directory.path()).expect("opens");
    let info = wait(engine.create_table("t".to_owned(), 2, Default::default())).expect("creates");
    let (first, second) = (BucketId::new(info.table_id(), 0), BucketId::new(info.table_id(), 1));
    for bucket in [first, second] {
        for _ in 0..3 {
            append_durably(&engine, bucket).expect("appends");
        }
    }
    (directory, engine, first, second)
}

fn append_durably(engine: &Embedded, bucket: BucketId) -> sluice_engine::Result<i64> {
    wait(async {
        let pending = engine.append(bucket, batch(1, 100, None).into(), Acks::All).await?;
        pending.await.map(|appended| appended.base_offset)
    })
}

fn wait_for(path: &Path) {
    for _ in 0..100 {
        if path.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("{} never came", path.display());
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("reads");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("writes");
}

#[test]
fn a_damaged_bucket_stays_offline_over_restarts_and_the_others_serve() {
    let (directory, engine, first, second) = killed_engine();
    wait_for(&directory.path().join("recovery-points"));
    // The first points may be older than the last batches.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    let mut killed = killed_copy(directory.path());
    drop(engine);
    flip(&first.directory(killed.path()).join("00000000000000000000.log"), 70);
    for start in 0..3 {
        let engine = open_engine(killed.path()).expect("opens");
        assert_eq!(engine.offsets(first).expect_err("offline").kind, ErrorKind::Corrupt, "start {start}");
        assert_eq!(append_durably(&engine, first).expect_err("offline").kind, ErrorKind::Corrupt);
        assert_eq!(append_durably(&engine, second).expect("serves"), 3 + start);
        assert_eq!(engine.stats().offline_buckets, 1);
        // Long enough for the recovery points to be written anew.
        std::thread::sleep(std::time::Duration::from_millis(1_200));
        let copy = killed_copy(killed.path());
        drop(engine);
        killed = copy;
    }
}

#[test]
fn a_damaged_recovery_points_file_costs_a_scan_only() {
    let (directory, engine, first, second) = killed_engine();
    wait_for(&directory.path().join("recovery-points"));
    let killed = killed_copy(directory.path());
    drop(engine);
    flip(&killed.path().join("recovery-points"), 20);
    let engine = open_engine(killed.path()).expect("opens");
    for bucket in [first, second] {
        assert_eq!(engine.offsets(bucket).expect("online").end, 3);
    }
    assert_eq!((engine.stats().offline_buckets, engine.stats().quarantined_bytes), (0, 0));
    assert_eq!(engine.offsets(first).expect("online").leader_epoch, 1);
}

#[test]
fn what_recovery_cut_is_counted() {
    let (directory, engine, first, _) = killed_engine();
    let killed = killed_copy(directory.path());
    drop(engine);
    let path = first.directory(killed.path()).join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes.extend_from_slice(&[7; 33]);
    std::fs::write(&path, bytes).expect("writes");
    let engine = open_engine(killed.path()).expect("opens");
    assert_eq!(engine.stats().quarantined_bytes, 33);
    assert_eq!(engine.offsets(first).expect("online").end, 3);
}

#[test]
fn files_of_dropped_tables_are_removed_and_a_clean_stop_needs_no_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_engine(directory.path()).expect("opens");
    wait(engine.create_table("empty".to_owned(), 1, Default::default())).expect("creates");
    engine.close().expect("closes");
    drop(engine);
    assert!(directory.path().join("CLEAN").exists(), "an empty bucket is no reason against a clean stop");
    let leftover = directory.path().join("log/77/-/0");
    std::fs::create_dir_all(&leftover).expect("creates");
    std::fs::write(leftover.join("00000000000000000000.log"), b"gone").expect("writes");
    let engine = open_engine(directory.path()).expect("opens");
    assert!(!directory.path().join("CLEAN").exists());
    assert!(!directory.path().join("log/77").exists());
    drop(engine);
}

#[test]
fn appends_after_a_clean_stop_are_refused() {
    let (directory, engine, first, _) = killed_engine();
    engine.close().expect("closes");
    assert_eq!(append_durably(&engine, first).expect_err("refused").kind, ErrorKind::ShuttingDown);
    drop(engine);
    let engine = open_engine(directory.path()).expect("opens");
    let offsets = engine.offsets(first).expect("online");
    assert_eq!((offsets.end, offsets.leader_epoch), (3, 0));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("VERSION"), "sluice-data 2\n").expect("writes");
    let refused = open_engine(directory.path()).err().expect("refused");
    assert_eq!(refused.kind, ErrorKind::Unsupported);
    assert!(refused.message.contains("format 2"), "{refused}");
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_engine(directory.path()).expect("opens");
    assert_eq!(open_engine(directory.path()).err().expect("refused").kind, ErrorKind::Busy);
    drop(engine);
    open_engine(directory.path()).expect("opens again");
}
