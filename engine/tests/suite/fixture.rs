//! One tablet on a simulated disk, or one engine on a real directory, for tests that place each
//! damage by hand.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_engine::io::Disk;
use sluice_engine::io::sim::SimDisk;
use sluice_engine::log::head::BatchKind;
use sluice_engine::log::points::RecoveryPoint;
use sluice_engine::tablet::{Appended, RawBatch, ReadLimit, Reading, Shape, Surroundings, Tablet};
use sluice_engine::{
    BucketId, Embedded, EngineConfig, LogOptions, ManualClock, RealDisk, Result, SystemClock, TableId,
};
use sluice_protocol::batch::BatchHeader;
use sluice_protocol::records::{BatchBuilder, Record};

pub(crate) const NOW_MS: i64 = 1_700_000_000_000;

/// A bucket whose disk outlives its tablets.
pub(crate) struct Bucket {
    pub(crate) disk: SimDisk,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Arc<LogOptions>,
    pub(crate) id: BucketId,
    pub(crate) kind: BatchKind,
}

impl Bucket {
    pub(crate) fn new(options: LogOptions) -> Self {
        let (disk, clock) = (SimDisk::new(7), Arc::new(ManualClock::new(NOW_MS)));
        Self { disk, clock, options: Arc::new(options), id: BucketId::new(TableId(1), 0), kind: BatchKind::Kafka }
    }

    pub(crate) fn with_segments_of(bytes: u64) -> Self {
        Self::new(LogOptions { segment_bytes: bytes, ..LogOptions::default() })
    }

    /// Opens it as the next run of the server, in the leader epoch `epoch`.
    pub(crate) fn open(&self, epoch: i32, point: Option<RecoveryPoint>, clean: bool) -> Result<(Tablet, u64)> {
        self.clock.advance(1);
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let around = Surroundings { disk, clock: Arc::clone(&self.clock) as _, root: "/data".into() };
        Tablet::open(
            around,
            self.id,
            Shape { kind: self.kind, hashed: false },
            Arc::clone(&self.options),
            epoch,
            point,
            clean,
        )
    }

    /// The first run.
    pub(crate) fn begin(&self) -> Tablet {
        self.open(0, None, false).expect("a new bucket").0
    }

    /// A start after a crash, which must succeed.
    pub(crate) fn recover(&self, point: Option<RecoveryPoint>) -> (Tablet, u64) {
        self.open(1, point, false).expect("recovers")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.id.directory(Path::new("/data")).join(name)
    }

    pub(crate) fn segment(&self, base: i64) -> PathBuf {
        self.path(&format!("{base:020}.log"))
    }

    pub(crate) fn len(&self, path: &Path) -> u64 {
        self.disk.dump(path).expect("a file").len() as u64
    }

    /// Overwrites a file, durably, behind the engine's back.
    pub(crate) fn write(&self, path: &Path, position: u64, bytes: &[u8]) {
        let file = self.disk.open(path).expect("a file");
        file.write_at(position, &[std::io::IoSlice::new(bytes)]).expect("writes");
        file.sync().expect("syncs");
    }

    /// Names and lengths of what is in quarantine.
    pub(crate) fn quarantine(&self) -> Vec<(String, u64)> {
        let files = self.disk.list_all().into_iter().filter(|(path, _)| path.starts_with("/data/quarantine"));
        files.map(|(path, len)| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), len)).collect()
    }
}

/// A batch of `count` records of `len` bytes each; `producer` is (id, epoch, first sequence).
pub(crate) fn batch(count: usize, len: usize, producer: Option<(i64, i16, i32)>) -> RawBatch {
    batch_at(&vec![NOW_MS; count], len, producer)
}

pub(crate) fn batch_at(times: &[i64], len: usize, producer: Option<(i64, i16, i32)>) -> RawBatch {
    let mut builder = BatchBuilder::new(NOW_MS);
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(id, epoch, sequence);
    }
    let value = vec![b'v'; len];
    for time in times {
        builder = builder.record(&Record { timestamp_delta: time - NOW_MS, ..Record::new(None, Some(&value)) });
    }
    let bytes = Bytes::from(builder.build());
    RawBatch { header: BatchHeader::read(&bytes).expect("a header"), bytes }
}

pub(crate) fn append(tablet: &Tablet, count: usize, len: usize) -> Appended {
    tablet.append(batch(count, len, None)).expect("appends")
}

/// (base offset, bytes) of every batch from the log start on.
pub(crate) fn contents(tablet: &Tablet) -> Vec<(i64, Vec<u8>)> {
    let offsets = tablet.offsets().expect("online");
    let (mut offset, mut found) = (offsets.log_start, Vec::new());
    while offset < offsets.end {
        let reading = tablet.read(offset, 1, ReadLimit::Appended, true).expect("reads");
        let Reading::Done(bytes) = reading else { panic!("a read that may wait would not") };
        let header = BatchHeader::read(&bytes).expect("a batch");
        found.push((header.base_offset, bytes.to_vec()));
        offset = header.last_offset() + 1;
    }
    found
}

/// An engine on a real directory.
pub(crate) fn open_engine(directory: &Path) -> Result<Embedded> {
    Embedded::open(engine_config(directory), Arc::new(RealDisk), Arc::new(SystemClock))
}

pub(crate) fn engine_config(directory: &Path) -> EngineConfig {
    EngineConfig { append_threads: 1, sync_threads: 2, read_threads: 1, ..EngineConfig::new(directory) }
}

/// Runs `future` to its end; one that has none is a failure, not a hang.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), future).await }).expect("an answer in time")
}

/// The directory as a killed server leaves it: a copy taken while the engine runs.
pub(crate) fn killed_copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a directory");
    copy(from, to.path());
    to
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copies");
        }
    }
}
