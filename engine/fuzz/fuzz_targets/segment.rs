//! Recovery of a bucket from any bytes: no panic, every batch that it keeps is whole, in order and has
//! its checksum, and a second recovery finds the same.

#![no_main]

use std::io::IoSlice;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sluice_engine_fuzz::io::sim::SimDisk;
use sluice_engine_fuzz::io::{Disk, read_file};
use sluice_engine_fuzz::log::checked::{Kind, seal};
use sluice_engine_fuzz::log::head::BatchKind;
use sluice_engine_fuzz::log::points::RecoveryPoint;
use sluice_engine_fuzz::log::segment::log_path;
use sluice_engine_fuzz::row::batch::set_place;
use sluice_engine_fuzz::tablet::Shape;
use sluice_engine_fuzz::tablet::recover::{Loaded, Source, load};
use sluice_engine_fuzz::types::{BucketId, TableId};
use sluice_protocol::batch::compute_crc;

const BUCKET: &str = "/log/1/-/0";
const QUARANTINE: &str = "/quarantine";
/// Nearer to the largest offset recovery overflows (`Tail::note`, `last_offset + 1`).
const LARGEST_BASE: i64 = i64::MAX - (1 << 40);

/// Takes parts off the input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                *byte
            }
            None => 0,
        }
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
}

fn mend_kafka(batch: &mut [u8], base: i64) {
    let len = batch.len() as i32;
    batch[..8].copy_from_slice(&base.to_be_bytes());
    batch[8..12].copy_from_slice(&(len - 12).to_be_bytes());
    batch[16] = 2;
    if batch[23] & 0x40 == 0 {
        batch[23..26].fill(0);
    }
    let crc = compute_crc(batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn mend_sluice(batch: &mut [u8], base: i64) {
    let Some(end) = batch.len().checked_sub(4).filter(|end| *end >= 64) else { return };
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_le_bytes());
    batch[12] = 0x53;
    if batch[35] & 0x40 == 0 {
        batch[33..36].fill(0);
    }
    let crc = crc32c::crc32c(&batch[29..end]);
    batch[25..29].copy_from_slice(&crc.to_le_bytes());
    let crc = set_place(batch, base, 7, 0);
    batch[end..].copy_from_slice(&crc.to_le_bytes());
}

/// A segment's bytes: batches that follow one another where `mend` says so, else as they are.
fn segment_bytes(kind: BatchKind, mut bytes: Vec<u8>, base: i64, mend: bool) -> (Vec<u8>, i64) {
    let (mut at, mut next) = (0, base);
    while mend {
        let Some(rest) = bytes.get_mut(at..) else { break };
        if rest.len() < 61 {
            break;
        }
        // Twice the length byte: short batches, so that a few kilobytes hold many.
        let len = (61 + usize::from(rest[11])).min(rest.len());
        match kind {
            BatchKind::Kafka => mend_kafka(&mut rest[..len], next),
            BatchKind::Sluice => mend_sluice(&mut rest[..len], next),
        }
        let Some(head) = kind.head(rest) else { break };
        if head.last_offset_delta < 0 {
            break;
        }
        next = head.last_offset().saturating_add(1);
        at += len;
    }
    (bytes, next)
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.create(path).expect("creates");
    file.write_at(0, &[IoSlice::new(bytes)]).expect("writes");
    file.sync().expect("syncs");
}

fn check(kind: BatchKind, disk: &SimDisk, loaded: &Loaded, trusts_state: bool) {
    let mut end = None;
    for segment in &loaded.segments {
        let tail = segment.tail.read().clone();
        let bytes = read_file(disk, &segment.path).expect("reads");
        assert_eq!(bytes.len() as u64, tail.end_position, "what is behind the end is cut off");
        assert!(end.is_none_or(|end| end == segment.base_offset), "no hole between segments");
        end = Some(tail.end_offset);
        if trusts_state {
            // A state file vouches for bytes that recovery does not read again.
            continue;
        }
        let (mut at, mut next) = (0usize, segment.base_offset);
        while at < bytes.len() {
            let head = kind.head(&bytes[at..]).expect("a batch");
            let len = head.len.expect("a length");
            let batch = bytes.get(at..at + len).expect("a whole batch");
            assert!(kind.is_sound(batch), "kept a batch with a wrong checksum");
            assert_eq!(head.base_offset, next, "offsets are dense");
            next = head.last_offset() + 1;
            at += len;
        }
        assert_eq!(next, tail.end_offset);
    }
    assert!(loaded.end >= end.unwrap_or(loaded.end));
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let flags = input.byte();
    let kind = if flags & 128 == 0 { BatchKind::Kafka } else { BatchKind::Sluice };
    let disk = SimDisk::new(u64::from(input.byte()));
    let directory = Path::new(BUCKET);
    disk.create_dir(directory).expect("a directory");
    let mut base = if flags & 1 == 0 { 0 } else { i64::from(input.number()) };
    if flags & 2 != 0 {
        base += LARGEST_BASE;
    }
    let mut any_state = false;
    for _ in 0..1 + flags % 3 {
        let mend = input.byte() & 3 != 0;
        let len = usize::from(input.number()) % 4096;
        let (bytes, next) = segment_bytes(kind, input.take(len).to_vec(), base, mend);
        let path = log_path(directory, base);
        put(&disk, &path, &bytes);
        if flags & 4 != 0 {
            let len = usize::from(input.byte());
            put(&disk, &path.with_extension("state"), &seal(Kind::Segment, input.take(len)));
            any_state = true;
        }
        base = next.saturating_add(i64::from(flags & 8 != 0));
    }
    if flags & 16 != 0 {
        let len = usize::from(input.byte());
        put(&disk, &directory.join("bucket.state"), &seal(Kind::Bucket, input.take(len)));
    }
    let point = (flags & 32 != 0).then(|| RecoveryPoint {
        segment: i64::from(input.byte()),
        position: u64::from(input.byte()),
        offset: i64::from(input.byte()),
    });
    let source = Source {
        disk: &disk,
        id: BucketId::new(TableId(1), 0),
        shape: Shape { kind, hashed: kind == BatchKind::Sluice && flags & 2 == 0 },
        directory,
        quarantine: Path::new(QUARANTINE),
        point,
        clean: flags & 64 != 0,
        now_ms: 1,
    };
    let Ok(loaded) = load(&source) else { return };
    let trusts_state = any_state || point.is_some();
    check(kind, &disk, &loaded, trusts_state);
    let again = load(&Source { now_ms: 2, ..source });
    let again = again.unwrap_or_else(|error| panic!("recovered once and not twice: {error}"));
    assert_eq!((again.end, again.segments.len()), (loaded.end, loaded.segments.len()));
    assert_eq!(again.quarantined, 0, "nothing is cut twice");
});
