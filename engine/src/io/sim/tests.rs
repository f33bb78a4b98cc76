//! One test for each promise of the simulated disk, most of them over many seeds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use super::super::{RealDisk, read_file, replace_file};
use super::*;

const SEEDS: std::ops::Range<u64> = 0..200;

fn path(path: &str) -> &Path {
    Path::new(path)
}

/// A disk with the directory `/d`.
fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir(path("/d")).unwrap();
    disk
}

fn write(file: &dyn DiskFile, position: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_at(position, &[IoSlice::new(bytes)])
}

/// A file that is durable with its name.
fn durable_file(disk: &dyn Disk, at: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.create(path(at)).unwrap();
    write(&*file, 0, bytes).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path(at).parent().unwrap()).unwrap();
    file
}

fn failing_sync() -> Faults {
    Faults { sync_error_in: Some(1), ..Faults::default() }
}

fn failing_sync_dir() -> Faults {
    Faults { sync_dir_error_in: Some(1), ..Faults::default() }
}

fn paths(disk: &SimDisk) -> Vec<String> {
    disk.list_all().into_iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect()
}

fn is_stale<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::StaleNetworkFileHandle)
}

fn is_eio<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.raw_os_error() == Some(EIO))
}

#[test]
fn what_was_synced_with_its_name_survives_any_power_loss() {
    for seed in SEEDS {
        let disk = disk(seed);
        let bytes: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        durable_file(&disk, "/d/f", &bytes);
        for _ in 0..3 {
            disk.power_loss();
            assert_eq!(read_file(&disk, path("/d/f")).unwrap(), bytes, "seed {seed}");
        }
    }
}

#[test]
fn an_unsynced_name_takes_synced_bytes_with_it() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        let file = disk.create(path("/d/f")).unwrap();
        write(&*file, 0, b"synced").unwrap();
        file.sync().unwrap();
        disk.crash();
        let bytes = disk.dump(path("/d/f")).ok();
        assert!(bytes.as_deref().is_none_or(|bytes| bytes == b"synced"), "seed {seed}");
        seen.insert(bytes.is_some());
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn unsynced_pages_are_kept_dropped_or_torn_at_a_sector_each_for_itself() {
    let (mut kept, mut dropped, mut torn, mut mixed) = (0, 0, [0, 0], 0);
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[1; 16 * PAGE]);
        write(&*file, 0, &[2; 16 * PAGE]).unwrap();
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert_eq!(bytes.len(), 16 * PAGE);
        let mut kinds = BTreeSet::new();
        for page in bytes.chunks(PAGE) {
            let sectors: Vec<u8> = page.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(page.chunks(SECTOR).zip(&sectors).all(|(sector, first)| sector.iter().all(|byte| byte == first)));
            let edges = sectors.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(edges <= 1, "seed {seed}: a page is torn once");
            kinds.insert((sectors[0], edges));
            match (sectors[0], edges) {
                (first, 1) => torn[usize::from(first) - 1] += 1,
                (2, _) => kept += 1,
                (byte, _) => dropped += usize::from(byte == 1),
            }
        }
        mixed += usize::from(kinds.len() > 1);
    }
    assert!(kept > 500 && dropped > 500 && torn.iter().all(|torn| *torn > 50), "{kept} {dropped} {torn:?}");
    assert!(mixed > 50, "{mixed}");
}

#[test]
fn an_unsynced_extension_is_cut_or_leaves_zeroes() {
    let (mut cut, mut between, mut whole, mut zeroes) = (0, 0, 0, 0);
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[1; 100]);
        write(&*file, 100, &[2; 3 * PAGE]).unwrap();
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert!(bytes.len() >= 100 && bytes[..100] == [1; 100], "seed {seed}");
        assert!(bytes[100..].iter().all(|byte| [0, 2].contains(byte)), "seed {seed}");
        match bytes.len() {
            100 => cut += 1,
            len if len == 100 + 3 * PAGE => whole += 1,
            _ => between += 1,
        }
        zeroes += usize::from(bytes[100..].contains(&0));
    }
    assert!(cut > 10 && between > 10 && whole > 10 && zeroes > 10, "{cut} {between} {whole} {zeroes}");
}

#[test]
fn an_unsynced_cut_may_be_undone_and_a_synced_one_not() {
    let mut lengths = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[7; 5 * PAGE]);
        file.set_len(10).unwrap();
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert!(bytes.iter().skip(PAGE).all(|byte| *byte == 7), "seed {seed}: no page behind the cut changed");
        lengths.insert(bytes.len());

        let file = disk.open(path("/d/f")).unwrap();
        file.set_len(10).unwrap();
        file.sync().unwrap();
        file.set_len(100).unwrap();
        file.sync().unwrap();
        disk.power_loss();
        assert_eq!(disk.dump(path("/d/f")).unwrap(), [[7; 10].as_slice(), &[0; 90]].concat(), "seed {seed}");
    }
    assert_eq!(lengths, BTreeSet::from([10, 5 * PAGE]));
}

#[test]
fn a_rename_over_a_file_shows_the_old_or_the_new_one() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        durable_file(&disk, "/d/f", b"old");
        durable_file(&disk, "/d/f.tmp", b"new");
        disk.rename(path("/d/f.tmp"), path("/d/f")).unwrap();
        assert_eq!((paths(&disk), disk.dump(path("/d/f")).unwrap()), (vec!["/d/f".to_owned()], b"new".to_vec()));
        disk.power_loss();
        let renamed = disk.dump(path("/d/f")).unwrap() == b"new";
        assert_eq!(paths(&disk).len(), if renamed { 1 } else { 2 }, "seed {seed}");
        seen.insert(renamed);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_renamed_file_is_never_nowhere() {
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create_dir(path("/quarantine")).unwrap();
        durable_file(&disk, "/d/f", b"kept");
        disk.rename(path("/d/f"), path("/quarantine/f")).unwrap();
        disk.create(path("/d/f")).unwrap();
        disk.remove_dir(path("/d")).unwrap();
        disk.power_loss();
        let whole = ["/d/f", "/quarantine/f"].map(|at| disk.dump(path(at)).is_ok_and(|bytes| bytes == b"kept"));
        assert_eq!(whole.iter().filter(|found| **found).count(), 1, "seed {seed}: {:?}", paths(&disk));
    }
}

#[test]
fn a_rename_into_an_unsynced_directory_is_lost_with_it() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        durable_file(&disk, "/d/f", b"kept");
        disk.set_faults(failing_sync_dir());
        assert!(disk.create_dir(path("/new")).is_err());
        disk.rename(path("/d/f"), path("/new/f")).unwrap();
        disk.power_loss();
        assert_eq!(paths(&disk).len(), 1, "seed {seed}");
        seen.insert(paths(&disk));
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_name_is_not_durable_in_a_directory_that_is_not() {
    for seed in SEEDS {
        let disk = disk(seed);
        disk.set_faults(failing_sync_dir());
        assert!(disk.create_dir(path("/new")).is_err());
        durable_file(&disk, "/new/f", b"bytes");
        disk.power_loss();
        let there = disk.list(path("/new")).is_ok();
        assert_eq!(paths(&disk), if there { vec!["/new/f"] } else { vec![] }, "seed {seed}");
        disk.create_dir(path("/new")).unwrap();
        disk.power_loss();
        assert_eq!(disk.list(path("/new")).unwrap().len(), usize::from(there), "seed {seed}: it does not come back");
    }
}

#[test]
fn a_sync_of_another_directory_leaves_unsynced_names_in_order() {
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create_dir(path("/other")).unwrap();
        disk.create(path("/d/f")).unwrap();
        disk.remove(path("/d/f")).unwrap();
        disk.sync_dir(path("/other")).unwrap();
        disk.sync_dir(path("/d")).unwrap();
        disk.power_loss();
        assert_eq!(paths(&disk), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn sync_dir_covers_what_a_rename_built_upon() {
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create_dir(path("/other")).unwrap();
        disk.create(path("/d/f")).unwrap();
        disk.rename(path("/d/f"), path("/d/g")).unwrap();
        disk.create(path("/d/f")).unwrap();
        disk.rename(path("/d/f"), path("/other/f")).unwrap();
        disk.rename(path("/other/f"), path("/other/g")).unwrap();
        disk.sync_dir(path("/other")).unwrap();
        disk.power_loss();
        assert_eq!(paths(&disk), ["/d/g", "/other/g"], "seed {seed}");
    }
}

#[test]
fn unsynced_names_are_lost_each_for_itself() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create(path("/d/a")).unwrap();
        disk.create(path("/d/b")).unwrap();
        disk.power_loss();
        seen.insert(paths(&disk));
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn sync_dir_makes_the_names_of_that_directory_durable_only() {
    let mut lost = 0;
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create_dir(path("/e/inner")).unwrap();
        durable_file(&disk, "/d/old", b"");
        disk.create(path("/d/new")).unwrap();
        disk.remove(path("/d/old")).unwrap();
        disk.create(path("/e/inner/new")).unwrap();
        disk.sync_dir(path("/d")).unwrap();
        disk.sync_dir(path("/e")).unwrap();
        disk.power_loss();
        let left = paths(&disk);
        assert_eq!(left[0], "/d/new", "seed {seed}");
        assert!(left.iter().skip(1).all(|name| name == "/e/inner/new"), "seed {seed}");
        lost += usize::from(left.len() == 1);
        assert!(disk.list(path("/e/inner")).is_ok(), "create_dir syncs what gained a name");
    }
    assert!(lost > 10);
}

#[test]
fn an_unsynced_removal_may_come_back_with_its_durable_bytes() {
    let mut back = 0;
    for seed in SEEDS {
        let disk = disk(seed);
        durable_file(&disk, "/d/f", b"bytes");
        disk.remove(path("/d/f")).unwrap();
        disk.sync_dir(path("/")).unwrap();
        disk.power_loss();
        if let Ok(bytes) = disk.dump(path("/d/f")) {
            assert_eq!(bytes, b"bytes");
            back += 1;
        }
    }
    assert!((20..180).contains(&back), "{back}");
}

#[test]
fn remove_dir_takes_all_it_holds_and_may_stop_half_way() {
    let mut left = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        disk.create_dir(path("/d/x/y")).unwrap();
        durable_file(&disk, "/d/x/1", b"");
        durable_file(&disk, "/d/x/y/2", b"");
        disk.remove_dir(path("/d/x")).unwrap();
        assert_eq!(disk.list(path("/d")).unwrap(), []);
        disk.power_loss();
        let whole = disk.list(path("/d")).unwrap().len();
        assert!(whole == 1 || paths(&disk).is_empty(), "seed {seed}");
        left.insert((whole, paths(&disk)));
        disk.remove_dir(path("/d/x")).unwrap();
        disk.sync_dir(path("/d")).unwrap();
        disk.power_loss();
        assert_eq!(disk.list(path("/d")).unwrap(), [], "seed {seed}");
    }
    assert!(left.len() >= 4, "{left:?}");
}

#[test]
fn files_opened_before_a_crash_answer_errors() {
    for end in [SimDisk::power_loss, SimDisk::crash, SimDisk::process_kill] {
        let disk = disk(1);
        let file = durable_file(&disk, "/d/f", b"bytes");
        end(&disk);
        assert!(is_stale(file.size()) && is_stale(file.read_at(0, &mut [0; 5])) && is_stale(file.sync()));
        assert!(is_stale(write(&*file, 0, b"late")) && is_stale(file.set_len(0)));
        assert!(is_stale(file.read_cached_at(0, &mut [0; 5])));
        assert_eq!(read_file(&disk, path("/d/f")).unwrap(), b"bytes");
    }
}

#[test]
fn a_process_kill_keeps_the_page_cache_unsynced() {
    let mut lost = 0;
    for seed in SEEDS {
        let disk = disk(seed);
        let file = disk.create(path("/d/f")).unwrap();
        write(&*file, 0, &[3; 9000]).unwrap();
        disk.process_kill();
        assert_eq!(disk.dump(path("/d/f")).unwrap(), [3; 9000]);
        disk.power_loss();
        lost += usize::from(disk.dump(path("/d/f")).ok() != Some(vec![3; 9000]));
    }
    assert!(lost > 50, "{lost}");
}

#[test]
fn the_nth_matching_write_fails_after_a_prefix() {
    let mut prefixes = BTreeSet::new();
    for seed in 0..50 {
        let disk = disk(seed);
        let (log, other) = (disk.create(path("/d/1.log")).unwrap(), disk.create(path("/d/other")).unwrap());
        let path_contains = Some(".log".to_owned());
        disk.set_faults(Faults { write_error_in: Some(2), path_contains, ..Faults::default() });
        write(&*other, 0, b"1").unwrap();
        write(&*log, 0, b"1").unwrap();
        write(&*other, 0, b"2").unwrap();
        assert!(is_eio(write(&*log, 1, b"23456789")));
        let bytes = disk.dump(path("/d/1.log")).unwrap();
        assert!(b"123456789".starts_with(&bytes) && !bytes.is_empty(), "seed {seed}: {bytes:?}");
        prefixes.insert(bytes.len());
        write(&*log, 1, b"once").unwrap();
    }
    assert!(prefixes.contains(&1) && prefixes.contains(&9), "{prefixes:?}");
}

#[test]
fn a_short_write_leaves_some_but_not_all() {
    for seed in 0..50 {
        let disk = disk(seed);
        let file = disk.create(path("/d/f")).unwrap();
        disk.set_faults(Faults { write_error_in: Some(1), short_write: true, ..Faults::default() });
        assert_eq!(write(&*file, 0, &[1; 3]).unwrap_err().kind(), ErrorKind::WriteZero);
        assert!((1..3).contains(&file.size().unwrap()), "seed {seed}");
    }
}

#[test]
fn the_pages_of_a_failed_sync_are_lost_unless_rewritten() {
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[1; 3 * PAGE]);
        write(&*file, 0, &[2; 4 * PAGE]).unwrap();
        disk.set_faults(failing_sync());
        assert!(is_eio(file.sync()));
        assert_eq!(disk.dump(path("/d/f")).unwrap(), [2; 4 * PAGE], "the page cache shows the new bytes");
        file.sync().unwrap();
        if seed % 2 == 0 {
            write(&*file, PAGE as u64, b"again").unwrap();
            file.sync().unwrap();
        }
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert_eq!(bytes.len(), 3 * PAGE, "seed {seed}: the length of the failed sync is lost too");
        let again = [b"again".as_slice(), &[2; PAGE - 5]].concat();
        assert_eq!(bytes[PAGE..2 * PAGE], if seed % 2 == 0 { again } else { vec![1; PAGE] }, "seed {seed}");
        assert_eq!((&bytes[..PAGE], &bytes[2 * PAGE..]), ([1; PAGE].as_slice(), [1; PAGE].as_slice()), "seed {seed}");
    }
}

#[test]
fn a_page_rewritten_after_a_failed_sync_falls_back_to_what_was_durable() {
    let mut seen = BTreeSet::new();
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[1; PAGE]);
        write(&*file, 0, &[2; PAGE]).unwrap();
        disk.set_faults(failing_sync());
        assert!(file.sync().is_err());
        write(&*file, 0, &[3; PAGE]).unwrap();
        disk.power_loss();
        seen.extend(disk.dump(path("/d/f")).unwrap());
    }
    assert_eq!(seen, BTreeSet::from([1, 3]));
}

#[test]
fn an_append_after_a_failed_sync_leaves_a_hole() {
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[1; PAGE]);
        disk.set_faults(failing_sync());
        write(&*file, PAGE as u64, &[2; PAGE]).unwrap();
        assert!(file.sync().is_err());
        write(&*file, 2 * PAGE as u64, &[3; PAGE]).unwrap();
        file.sync().unwrap();
        disk.power_loss();
        let expected = [[1; PAGE], [0; PAGE], [3; PAGE]].concat();
        assert!(disk.dump(path("/d/f")).unwrap() == expected, "seed {seed}");
    }
}

#[test]
fn a_full_disk_takes_what_fits_until_something_is_removed() {
    let disk = disk(1);
    durable_file(&disk, "/d/a", &[1; 600]);
    let file = disk.create(path("/d/b")).unwrap();
    disk.set_faults(Faults { no_space_after: Some(1000), ..Faults::default() });
    let error = file.write_at(0, &[IoSlice::new(&[2; 300]), IoSlice::new(&[3; 300])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(disk.dump(path("/d/b")).unwrap(), [[2; 300].as_slice(), &[3; 100]].concat());
    write(&*file, 0, &[4; 400]).unwrap();
    assert_eq!(file.set_len(401).unwrap_err().kind(), ErrorKind::StorageFull);
    file.set_len(0).unwrap();
    disk.remove(path("/d/a")).unwrap();
    write(&*file, 0, &[5; 1000]).unwrap();
    disk.clear_faults();
    write(&*file, 0, &[5; 2000]).unwrap();
    assert_eq!(write(&*file, u64::MAX, b"x").unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn reads_names_and_directory_syncs_can_fail_without_effect() {
    let disk = disk(3);
    let file = durable_file(&disk, "/d/f", b"bytes");
    disk.create_dir(path("/other")).unwrap();
    disk.set_faults(Faults {
        read_error_in: Some(1),
        name_error_in: Some(3),
        sync_dir_error_in: Some(1),
        path_contains: Some("/d".to_owned()),
        ..Faults::default()
    });
    assert!(is_eio(file.read_at(0, &mut [0; 5])));
    assert_eq!(file.read_at(0, &mut [0; 5]).unwrap(), 5);
    disk.rename(path("/d/f"), path("/other/g")).unwrap();
    disk.rename(path("/other/g"), path("/other/f")).unwrap();
    disk.rename(path("/other/f"), path("/d/f")).unwrap();
    assert!(is_eio(disk.remove(path("/d/f"))));
    disk.sync_dir(path("/other")).unwrap();
    assert!(is_eio(disk.sync_dir(path("/d"))));
    assert_eq!(paths(&disk), ["/d/f"]);
    disk.remove(path("/d/f")).unwrap();
    disk.sync_dir(path("/d")).unwrap();
}

#[test]
fn a_failed_directory_sync_makes_nothing_durable() {
    let mut lost = 0;
    for seed in SEEDS {
        let disk = disk(seed);
        disk.set_faults(failing_sync_dir());
        assert!(is_eio(disk.create_dir(path("/d/sub"))));
        disk.power_loss();
        lost += usize::from(disk.list(path("/d/sub")).is_err());
    }
    assert!(lost > 50, "{lost}");
}

#[test]
fn lies_lose_what_was_said_to_be_synced() {
    let (mut bytes_lost, mut name_lost) = (0, 0);
    for seed in SEEDS {
        let disk = disk(seed);
        disk.set_lies(Lies { sync_does_nothing: true, ..Lies::default() });
        durable_file(&disk, "/d/f", &[1; PAGE]);
        disk.set_lies(Lies { sync_dir_does_nothing: true, ..Lies::default() });
        durable_file(&disk, "/d/g", &[1; PAGE]);
        disk.power_loss();
        bytes_lost += usize::from(disk.dump(path("/d/f")).unwrap() != [1; PAGE]);
        name_lost += usize::from(disk.dump(path("/d/g")).is_err());
    }
    assert!(bytes_lost > 50 && name_lost > 50, "{bytes_lost} {name_lost}");
}

#[test]
fn counts_syncs_and_bytes() {
    let disk = SimDisk::new(1);
    disk.create_dir(path("/a/b")).unwrap();
    let file = durable_file(&disk, "/a/b/f", &[1; 10]);
    disk.set_faults(failing_sync());
    assert!(file.sync().is_err());
    file.write_at(10, &[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap();
    assert_eq!(disk.counters(), Counters { syncs: 1, dir_syncs: 3, bytes_written: 13 });
    assert_eq!(disk.dump(path("/a/b/f")).unwrap(), b"\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01abc");
}

#[test]
fn damage_is_on_the_medium_and_in_the_page_cache() {
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[0; 2 * PAGE]);
        write(&*file, 0, &[0xf0; 10]).unwrap();
        disk.flip_bit(path("/d/f"), 3).unwrap();
        disk.flip_bit(path("/d/f"), PAGE as u64).unwrap();
        assert_eq!(disk.dump(path("/d/f")).unwrap()[3], 0xf8);
        assert_eq!(disk.flip_bit(path("/d/f"), 2 * PAGE as u64).unwrap_err().kind(), ErrorKind::InvalidInput);
        disk.truncate_durable(path("/d/f"), PAGE as u64 + 5).unwrap();
        disk.truncate_durable(path("/d/f"), PAGE as u64 + 50).unwrap();
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert_eq!(bytes.len(), PAGE + 5, "seed {seed}");
        assert!([0x08, 0xf8].contains(&bytes[3]) && bytes[PAGE] == 1, "seed {seed}");
    }
}

#[test]
fn what_was_truncated_durably_does_not_come_back() {
    for seed in SEEDS {
        let disk = disk(seed);
        let file = durable_file(&disk, "/d/f", &[7; 100]);
        write(&*file, 0, &[8; 1]).unwrap();
        disk.truncate_durable(path("/d/f"), 10).unwrap();
        write(&*file, PAGE as u64, &[9; 1]).unwrap();
        disk.power_loss();
        let bytes = disk.dump(path("/d/f")).unwrap();
        assert!(bytes.iter().skip(10).take(90).all(|byte| *byte == 0), "seed {seed}");
    }
}

#[test]
fn a_cached_read_answers_all_or_nothing_and_moves_no_fate() {
    let (mut none, mut some) = (0, 0);
    let run = |reads: usize, none: &mut usize, some: &mut usize| {
        let disk = disk(9);
        let file = durable_file(&disk, "/d/f", &[1; 8 * PAGE]);
        write(&*file, 0, &[2; 8 * PAGE]).unwrap();
        for _ in 0..reads {
            let mut buf = [0; 100];
            match file.read_cached_at(10, &mut buf).unwrap() {
                Some(n) => *some += usize::from(n == 100 && buf == [2; 100]),
                None => *none += 1,
            }
            assert_eq!(file.read_cached_at(8 * PAGE as u64 - 99, &mut buf).unwrap(), None);
        }
        disk.power_loss();
        disk.dump(path("/d/f")).unwrap()
    };
    assert!(run(200, &mut none, &mut some) == run(0, &mut 0, &mut 0));
    assert!(none > 20 && some > 100 && none + some == 200, "{none} {some}");
}

/// Acts on `/d/f` once a slow sync of it has begun, and then cuts the power.
fn act_during_a_sync(seed: u64, act: fn(&SimDisk, &dyn DiskFile)) -> (io::Result<()>, Vec<u8>) {
    let disk = disk(seed);
    let file = durable_file(&disk, "/d/f", &[1; 2 * PAGE]);
    disk.set_slow(Some(Duration::from_millis(500)));
    disk.set_faults(Faults { sync_error_in: Some(u64::MAX), ..Faults::default() });
    write(&*file, 0, &[2; PAGE]).unwrap();
    let outcome = thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync());
        while disk.lock().faults.sync_error_in == Some(u64::MAX) {
            thread::yield_now();
        }
        act(&disk, &*file);
        sync.join().unwrap()
    });
    disk.power_loss();
    (outcome, disk.dump(path("/d/f")).unwrap())
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let runs: Vec<_> = (0..16)
        .map(|seed| thread::spawn(move || act_during_a_sync(seed, |_, file| write(file, 0, &[3; 2 * PAGE]).unwrap())))
        .collect();
    let (mut first, mut second) = (BTreeSet::new(), BTreeSet::new());
    for (outcome, bytes) in runs.into_iter().map(|run| run.join().unwrap()) {
        outcome.unwrap();
        first.extend(&bytes[..PAGE]);
        second.extend(&bytes[PAGE..]);
    }
    assert_eq!((first, second), (BTreeSet::from([2, 3]), BTreeSet::from([1, 3])));
}

#[test]
fn a_sync_has_done_nothing_before_it_ends() {
    let runs: Vec<_> =
        (0..16).map(|seed| thread::spawn(move || act_during_a_sync(seed, |disk, _| disk.power_loss()))).collect();
    let mut lost = 0;
    for (outcome, bytes) in runs.into_iter().map(|run| run.join().unwrap()) {
        // On a machine that stalled, the sync ended before the power did.
        if is_stale(outcome) {
            lost += usize::from(bytes[..PAGE] == [1; PAGE]);
        }
    }
    assert!(lost > 0);
}

#[test]
fn of_two_syncs_at_once_the_later_snapshot_counts() {
    let mut file = Content::default();
    file.write(0, b"a");
    let early = file.snapshot();
    file.write(0, b"bb");
    let late = file.snapshot();
    file.write(0, b"ccc");
    file.finish_sync(&late);
    file.finish_sync(&early);
    assert_eq!((file.durable_len, file.dirty[&0][..3].to_vec()), (2, b"bb\0".to_vec()));
}

#[test]
fn a_removed_file_lives_as_long_as_its_handle() {
    let disk = disk(1);
    let file = durable_file(&disk, "/d/f", b"bytes");
    disk.remove(path("/d/f")).unwrap();
    disk.sync_dir(path("/d")).unwrap();
    write(&*file, 5, b"!").unwrap();
    file.sync().unwrap();
    assert_eq!((file.size().unwrap(), disk.list_all()), (6, Vec::new()));
    drop(file);
    disk.sync_dir(path("/d")).unwrap();
    assert!(disk.lock().files.is_empty());
}

#[test]
fn replace_file_leaves_the_old_or_the_new_content() {
    for seed in SEEDS {
        let disk = disk(seed);
        replace_file(&disk, path("/d/state"), &[1; 5000]).unwrap();
        disk.set_faults(Faults {
            write_error_in: (seed % 4 == 0).then_some(1),
            sync_error_in: (seed % 4 == 1).then_some(1),
            sync_dir_error_in: (seed % 4 == 2).then_some(1),
            ..Faults::default()
        });
        let outcome = replace_file(&disk, path("/d/state"), &[2; 7000]);
        disk.power_loss();
        let bytes = read_file(&disk, path("/d/state")).unwrap();
        let (old, new) = (bytes == [1; 5000], bytes == [2; 7000]);
        assert!(if outcome.is_ok() { new } else { old || new }, "seed {seed}");
    }
}

#[test]
fn refuses_what_an_operating_system_refuses() {
    let disk = disk(1);
    durable_file(&disk, "/d/f", b"");
    let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
    assert_eq!(kind(disk.open(path("/d/none")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.create(path("/none/f")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.open(path("/d")).map(drop)), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.remove(path("/d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(disk.remove(path("/d/none"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.list(path("/d/f")).map(drop)), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.list(path("/none")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(disk.create_dir(path("/d/f/x"))), ErrorKind::NotADirectory);
    assert_eq!(kind(disk.rename(path("/d/none"), path("/d/g"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.rename(path("/d/f"), path("/none/g"))), ErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir(path("/none"))), ErrorKind::NotFound);
    assert!(disk.open(path("d/./f")).is_ok(), "a relative path is taken from the root");
    let entry = |name: &str, is_dir| Entry { name: name.to_owned(), is_dir };
    disk.create_dir(path("/d/a")).unwrap();
    disk.create(path("/d/a/below")).unwrap();
    assert_eq!(disk.list(path("/d")).unwrap(), [entry("a", true), entry("f", false)]);
}

/// Draws an operation below `root` and returns what it answered. Syncs are slow on a real disk, and show
/// nothing there.
fn step(random: &mut Random, disk: &dyn Disk, root: &Path, syncs: bool) -> String {
    let at = |n: u64| root.join(["a", "b", "sub/a", "sub/b"][n as usize % 4]);
    let (path, other) = (at(random.next()), at(random.next()));
    let (kind, position, len) = (random.below(12), random.below(20_000), random.below(9000));
    let on_file = |act: &dyn Fn(&dyn DiskFile) -> io::Result<String>| disk.open(&path).and_then(|file| act(&*file));
    let outcome = match kind {
        0 => disk.create(&path).and_then(|file| Ok(format!("{}", file.size()?))),
        1 => disk.remove(&path).map(|()| String::new()),
        2 => disk.rename(&path, &other).map(|()| String::new()),
        3 => disk.list(root).map(|entries| format!("{entries:?}")),
        4 => on_file(&|file| file.set_len(position).map(|()| String::new())),
        5 => on_file(&|file| if syncs { file.sync().map(|()| String::new()) } else { Ok(String::new()) }),
        6 if syncs => disk.sync_dir(root).map(|()| String::new()),
        7 if len < 1000 => disk.remove_dir(&root.join("sub")).map(|()| String::new()),
        8 => disk.create_dir(&root.join("sub")).map(|()| String::new()),
        9 => read_file(disk, &path).map(|bytes| format!("{bytes:?}")),
        _ => on_file(&|file| write(file, position, &vec![position as u8 | 1; len as usize]).map(|()| String::new())),
    };
    format!("{kind} {:?}", outcome.map_err(|error| error.kind()))
}

#[test]
fn shows_what_a_real_disk_shows() {
    let root = std::env::temp_dir().join(format!("sim-disk-{}", std::process::id()));
    for seed in 0..5 {
        let sim = disk(seed);
        RealDisk.create_dir(&root).unwrap();
        let (mut left, mut right) = (Random(seed), Random(seed));
        for number in 0..400 {
            let shown = step(&mut left, &sim, path("/d"), false);
            assert!(shown == step(&mut right, &RealDisk, &root, false), "seed {seed}, step {number}: {shown:.80}");
        }
        RealDisk.remove_dir(&root).unwrap();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: u64, steps: u64| {
        let (disk, mut random, mut log) = (disk(seed), Random(steps), Vec::new());
        for _ in 0..5 {
            let (write_error_in, sync_error_in) = (Some(1 + random.below(30)), Some(1 + random.below(5)));
            disk.set_faults(Faults { write_error_in, sync_error_in, ..Faults::default() });
            log.extend((0..60).map(|_| step(&mut random, &disk, path("/d"), true)));
            disk.power_loss();
            log.extend(disk.list_all().iter().map(|(path, _)| format!("{path:?} {:?}", disk.dump(path).unwrap())));
        }
        log
    };
    for seed in 0..10 {
        assert!(run(seed, 7) == run(seed, 7), "seed {seed}");
    }
    assert!(run(1, 7) != run(2, 7));
}

/// What of `shown` and `durable` may be left, sector by sector.
fn assert_settled(durable: &[u8], shown: &[u8], left: &[u8], seed: u64) {
    let between = shown.len() > durable.len() && (durable.len()..=shown.len()).contains(&left.len());
    assert!(between || [durable.len(), shown.len()].contains(&left.len()), "seed {seed}: length {}", left.len());
    let sector = |bytes: &[u8], number: usize, len: usize| {
        let mut sector: Vec<u8> = bytes.iter().skip(number * SECTOR).take(len).copied().collect();
        sector.resize(len, 0);
        sector
    };
    for (number, bytes) in left.chunks(SECTOR).enumerate() {
        let old_or_new = [durable, shown].map(|from| sector(from, number, bytes.len()));
        assert!(old_or_new.iter().any(|from| from == bytes), "seed {seed}, sector {number}");
    }
}

#[test]
fn every_sector_is_the_durable_or_the_shown_one() {
    for seed in SEEDS {
        let (disk, mut random) = (disk(seed), Random(seed + 1000));
        durable_file(&disk, "/d/f", b"");
        for _ in 0..4 {
            let file = disk.open(path("/d/f")).unwrap();
            let (mut shown, mut durable) = (disk.dump(path("/d/f")).unwrap(), disk.dump(path("/d/f")).unwrap());
            for _ in 0..random.below(12) {
                let (at, len, byte) = (random.below(30_000), random.below(9000) as usize, random.next() as u8);
                match random.below(5) {
                    0 => {
                        file.sync().unwrap();
                        durable.clone_from(&shown);
                    }
                    1 => {
                        file.set_len(at).unwrap();
                        shown.resize(at as usize, 0);
                    }
                    _ => {
                        write(&*file, at, &vec![byte; len]).unwrap();
                        shown.resize(shown.len().max(if len > 0 { at as usize + len } else { 0 }), 0);
                        shown.iter_mut().skip(at as usize).take(len).for_each(|to| *to = byte);
                    }
                }
            }
            assert!(disk.dump(path("/d/f")).unwrap() == shown);
            disk.power_loss();
            assert_settled(&durable, &shown, &disk.dump(path("/d/f")).unwrap(), seed);
        }
    }
}
