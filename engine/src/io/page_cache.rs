//! Asks the kernel what it has in memory.

use std::fs::File;

/// cachestat(2), Linux 6.5 and later; the number is the same on all architectures that Rust's
/// standard library supports on Linux.
#[cfg(target_os = "linux")]
const CACHESTAT: libc::c_long = 451;
#[cfg(target_os = "linux")]
const PAGE: u64 = 4096;

#[cfg(target_os = "linux")]
#[repr(C)]
struct Range {
    offset: u64,
    len: u64,
}

#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether each page of a range is in the page cache. `false` where the kernel cannot tell: on
/// larger pages, on older kernels and elsewhere.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn holds(file: &File, position: u64, len: u64) -> bool {
    use std::os::fd::AsRawFd;

    let Some(end) = position.checked_add(len).filter(|_| len > 0) else { return false };
    if rustix::param::page_size() as u64 != PAGE {
        return false;
    }
    let range = Range { offset: position, len };
    let mut stat = Stat::default();
    // SAFETY: both structures have the layout that cachestat(2) documents and outlive the call, which
    // reads the first and writes the second; the descriptor is open as long as `file` is borrowed.
    // Asked for by `make bench`, fetch cases: without it a send from the page cache could wait for the disk.
    let outcome = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    outcome == 0 && stat.cached == end.div_ceil(PAGE) - position / PAGE
}

#[cfg(not(target_os = "linux"))]
pub(super) fn holds(_file: &File, _position: u64, _len: u64) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_is_there_and_what_was_given_up_is_not() {
        let mut file = tempfile::tempfile_in(".").expect("a file");
        file.write_all(&vec![7; 300_000]).expect("written");
        if !holds(&file, 0, 1) {
            eprintln!("SKIPPED: this kernel has no cachestat");
            return;
        }
        assert!(holds(&file, 4095, 2) && holds(&file, 100_000, 200_000));
        assert!(!holds(&file, 0, 400_000), "beyond the end there is nothing");
        assert!(!holds(&file, u64::MAX, 2) && !holds(&file, 0, 0));
        file.sync_all().expect("synced");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("given up");
        // A file system in memory keeps all it has.
        assert!(!holds(&file, 0, 300_000) || std::fs::metadata("/proc/self/exe").is_err(), "it was given up");
    }
}
