//! What is sent straight from the page cache is what a read returns: whole batches, none that is not
//! visible, each once.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sluice_engine::log::head::BatchKind;
use sluice_engine::tablet::{FileRange, ReadLimit, Reading, Shape, Surroundings, Tablet};
use sluice_engine::{BucketId, LogOptions, ManualClock, RealDisk, TableId};
use sluice_protocol::batch::BatchHeader;

use crate::fixture::{NOW_MS, append};

fn tablet(root: &std::path::Path, segment_bytes: u64) -> Tablet {
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let around = Surroundings { disk: Arc::new(RealDisk), clock, root: root.into() };
    let options = Arc::new(LogOptions { segment_bytes, ..LogOptions::default() });
    Tablet::open(
        around,
        BucketId::new(TableId(1), 0),
        Shape { kind: BatchKind::Kafka, hashed: false },
        options,
        0,
        None,
        false,
    )
    .expect("a new bucket")
    .0
}

/// Receives a range through a socket that is smaller than it.
fn received(range: &FileRange) -> Vec<u8> {
    let (from, mut to) = UnixStream::pair().expect("sockets");
    from.set_nonblocking(true).expect("non-blocking");
    let len = range.len();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        to.read_to_end(&mut bytes).expect("receives");
        bytes
    });
    let mut sent = 0;
    while sent < len {
        match range.send_to(from.as_fd(), sent) {
            Ok(n) => sent += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    drop(from);
    reader.join().expect("a reader")
}

fn end_of(bytes: &[u8]) -> i64 {
    let (mut at, mut end) = (0, -1);
    while let Some(header) = BatchHeader::read(&bytes[at..]) {
        end = header.last_offset() + 1;
        at += header.total_len().expect("a length");
    }
    assert_eq!(at, bytes.len(), "whole batches");
    end
}

#[test]
fn ranges_and_reads_together_are_the_log() {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let root = tempfile::tempdir().expect("a directory");
    for (records, len, segment_bytes, max_bytes) in [
        (1, 200, 900_000, 300_000),
        (50, 1_000, 3 << 20, 1 << 20),
        (3, 70_000, 700_000, 500_000),
        (1, 10, 1 << 30, 100_000),
    ] {
        let directory = root.path().join(format!("{records}-{len}"));
        let tablet = tablet(&directory, segment_bytes);
        let mut bytes = 0;
        while bytes < 3_000_000 {
            append(&tablet, records, len);
            bytes += records * len + 70;
        }
        tablet.sync().expect("syncs");
        let visible = tablet.high_watermark();
        append(&tablet, records, len);
        let (mut offset, mut found) = (0, Vec::new());
        while offset < visible {
            let piece = match tablet.range(offset, max_bytes).expect("online") {
                Some(range) => {
                    assert!(range.len() as usize <= max_bytes);
                    SENT.fetch_add(range.len(), Ordering::Relaxed);
                    received(&range)
                }
                None => match tablet.read(offset, max_bytes, ReadLimit::Visible, true).expect("reads") {
                    Reading::Done(bytes) => bytes.to_vec(),
                    Reading::WouldBlock => panic!("a read that may wait would not"),
                },
            };
            assert_eq!(BatchHeader::read(&piece).expect("a header").base_offset, offset);
            offset = end_of(&piece);
            found.extend(piece);
        }
        assert_eq!(offset, visible, "nothing that is not visible");
        let mut segments: Vec<_> = std::fs::read_dir(BucketId::new(TableId(1), 0).directory(&directory))
            .expect("lists")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|it| it == "log"))
            .collect();
        segments.sort();
        let stored: Vec<u8> = segments.iter().flat_map(|path| std::fs::read(path).expect("a segment")).collect();
        assert!(stored.starts_with(&found) && stored.len() > found.len());
    }
    if SENT.load(Ordering::Relaxed) == 0 {
        eprintln!("SKIPPED: this kernel does not tell what it has in memory, so nothing is sent from there");
    } else {
        assert!(SENT.load(Ordering::Relaxed) > 5_000_000, "most is sent without a copy");
    }
}

/// A segment that lost bytes is no longer sent from; the next reader gets the reason.
#[test]
fn a_send_that_comes_short_is_not_tried_again() {
    let root = tempfile::tempdir().expect("a directory");
    let tablet = tablet(root.path(), 1 << 30);
    for _ in 0..20 {
        append(&tablet, 10, 2_000);
    }
    tablet.sync().expect("syncs");
    let Reading::Done(first) = tablet.read(0, 1, ReadLimit::Visible, true).expect("reads") else { panic!("waits") };
    let offset = end_of(&first);
    let Some(range) = tablet.range(offset, 1 << 20).expect("online") else {
        eprintln!("SKIPPED: this kernel does not tell what it has in memory");
        return;
    };
    let path = BucketId::new(TableId(1), 0).directory(root.path()).join(format!("{:020}.log", 0));
    let whole = std::fs::read(&path).expect("a segment");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("the segment");
    file.set_len(first.len() as u64).expect("cut");
    let (from, _to) = UnixStream::pair().expect("sockets");
    let error = range.send_to(from.as_fd(), 0).expect_err("nothing is left");
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    std::fs::write(&path, whole).expect("written back");
    let Reading::Done(_) = tablet.read(0, 1, ReadLimit::Visible, true).expect("reads") else { panic!("waits") };
    assert!(tablet.range(offset, 1 << 20).expect("online").is_none());
}
