//! One seeded run: the real tablets, catalog and data directory on a simulated disk, driven step by
//! step, with crashes between any two changes of the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_engine::catalog::Catalog;
use sluice_engine::io::Disk;
use sluice_engine::io::sim::{Faults, Lies};
use sluice_engine::kv::SimStore;
use sluice_engine::log::head::BatchKind;
use sluice_engine::log::points::RecoveryPoint;
use sluice_engine::tablet::{Shape, Surroundings, Tablet};
use sluice_engine::testing::DataDirectory;
use sluice_engine::{BucketId, Clock, LogOptions, ManualClock, TableId, TimestampType, Visibility};
use sluice_protocol::batch::BatchHeader;

use super::client::Client;
use super::disk::FusedDisk;
use super::oracle::{Check, Oracle, ensure};
use super::rng::Rng;

pub(crate) const ROOT: &str = "/data";
const BUCKETS: usize = 3;
const STEPS: usize = 400;

/// A rule of the engine or a promise of the disk that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A file sync makes nothing durable.
    SyncDoesNothing,
    /// A directory sync makes nothing durable.
    DirectorySyncDoesNothing,
    /// The recovery point speaks of bytes whose sync comes later.
    PointBeforeSync,
    /// Recovery leaves the invalid tail in the file.
    TailNotCut,
    /// Recovery cuts the last valid batch too.
    CutOneBatchTooEarly,
    /// Recovery serves the tail it keeps without syncing it.
    KeptTailNotSynced,
}

/// One run of the server.
pub(crate) struct Server {
    pub(crate) data: DataDirectory,
    catalog: Catalog,
    pub(crate) tablets: Vec<Tablet>,
}

enum Opened {
    Running,
    Halted,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) disk: FusedDisk,
    store: SimStore,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Vec<Arc<LogOptions>>,
    pub(crate) oracles: Vec<Oracle>,
    pub(crate) clients: Vec<Client>,
    pub(crate) server: Option<Server>,
    pub(crate) mutation: Option<Mutation>,
    /// What happened, one line each.
    pub(crate) trace: Vec<String>,
    unclean_starts: i32,
    /// Whether the clean mark must be there at the next start; `None` when a crash fell into writing it.
    pub(crate) clean_mark: Option<bool>,
    quarantine_seen: BTreeSet<PathBuf>,
    newest_producer: i64,
}

pub(crate) fn bucket_id(bucket: usize) -> BucketId {
    BucketId::new(TableId(1), bucket as u32)
}

impl World {
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let mut rng = Rng::new(seed);
        let disk = FusedDisk::new(rng.next());
        let options = (0..BUCKETS).map(|bucket| Arc::new(options(&mut rng, bucket))).collect();
        Self {
            rng,
            disk,
            store: SimStore::default(),
            clock: Arc::new(ManualClock::new(1_700_000_000_000)),
            options,
            oracles: vec![Oracle::default(); BUCKETS],
            clients: Vec::new(),
            server: None,
            mutation,
            trace: Vec::new(),
            unclean_starts: 0,
            clean_mark: Some(false),
            quarantine_seen: BTreeSet::new(),
            newest_producer: 0,
        }
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        self.trace.push(line());
    }

    /// The whole run.
    pub(crate) fn run(&mut self) -> Check {
        self.restart(false)?;
        self.disk.sim.set_lies(Lies {
            sync_does_nothing: self.mutation == Some(Mutation::SyncDoesNothing),
            sync_dir_does_nothing: self.mutation == Some(Mutation::DirectorySyncDoesNothing),
        });
        for bucket in 0..BUCKETS {
            for _ in 0..if bucket == 0 { 2 } else { 1 } {
                let id = self.producer_id()?;
                let first = if self.rng.chance(30) { i32::MAX - self.rng.below(20) as i32 } else { 0 };
                self.clients.push(Client::new(bucket, id, first, true));
            }
        }
        let acks_all = self.rng.chance(50);
        self.clients.push(Client::new(1, -1, -1, acks_all));
        for _ in 0..STEPS {
            self.step()?;
            if self.disk.halted() {
                let power = self.rng.chance(60);
                self.crash(power)?;
            }
        }
        self.finish()
    }

    fn step(&mut self) -> Check {
        let client = self.rng.below(self.clients.len() as u64) as usize;
        let bucket = self.rng.below(BUCKETS as u64) as usize;
        match self.rng.below(100) {
            0..45 => self.produce(client),
            45..60 => self.sync(bucket),
            60..62 => self.repeat_acknowledged(client),
            62..74 => self.read(bucket),
            74..80 => self.store_points(),
            80..84 => self.retention(bucket),
            84..87 => self.delete_records(bucket),
            87..91 => {
                let ms = self.rng.range(1, 900);
                self.clock.advance(ms);
                Ok(())
            }
            91..93 => {
                let n = self.rng.below(25);
                self.log(|| format!("the machine will halt after {n} changes"));
                self.disk.arm(n);
                Ok(())
            }
            93..95 => {
                let power = self.rng.chance(60);
                self.crash(power)
            }
            95..96 => self.stop_cleanly(),
            _ => self.repair(bucket),
        }
    }

    fn producer_id(&mut self) -> Check<i64> {
        let id = self.server.as_ref().map(|server| server.catalog.next_producer_id());
        let Some(Ok(id)) = id else { return Err("no producer id".to_owned()) };
        ensure!(id > self.newest_producer, "producer id {id} was given out before");
        self.newest_producer = id;
        Ok(id)
    }

    /// The server ends without a word, and the next one starts.
    pub(crate) fn crash(&mut self, power: bool) -> Check {
        for client in &mut self.clients {
            client.poll(&mut self.oracles[client.bucket]);
            client.reconnect();
        }
        self.restart(power)
    }

    /// Starts the server until a start is not itself cut short.
    pub(crate) fn restart(&mut self, mut power: bool) -> Check {
        loop {
            self.server = None;
            self.disk.replace_fuse();
            self.disk.sim.clear_faults();
            if power {
                self.disk.sim.power_loss();
            } else {
                self.disk.sim.process_kill();
            }
            let pause = self.rng.range(1, 400);
            self.clock.advance(pause);
            if self.rng.chance(15) {
                self.disk.arm(self.rng.below(12));
            }
            self.log(|| format!("start, power_loss={power}"));
            let opened = self.open();
            self.check_quarantine()?;
            match opened? {
                Opened::Running => break,
                Opened::Halted => power = self.rng.chance(60),
            }
        }
        let id = self.producer_id()?;
        self.log(|| format!("running, next producer id {id}"));
        for bucket in 0..BUCKETS {
            self.settle(bucket)?;
            self.verify(bucket)?;
        }
        Ok(())
    }

    fn open(&mut self) -> Check<Opened> {
        let opened = self.try_open();
        self.disk.set_cuts_nothing(false);
        if self.mutation == Some(Mutation::KeptTailNotSynced) {
            self.disk.sim.set_lies(Lies::default());
        }
        match opened {
            Ok(server) => {
                self.server = Some(server);
                self.clean_mark = Some(false);
                Ok(Opened::Running)
            }
            Err(_) if self.disk.halted() => Ok(Opened::Halted),
            Err(broken) => Err(broken),
        }
    }

    fn try_open(&mut self) -> Check<Server> {
        let root = Path::new(ROOT);
        let text = |error: sluice_engine::Error| format!("a start after nothing but crashes failed: {error}");
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        disk.create_dir(root).map_err(|error| error.to_string())?;
        let mut data = DataDirectory::open(&*disk, root, None).map_err(text)?;
        let clean = data.was_clean();
        if let Some(expected) = self.clean_mark {
            ensure!(clean == expected, "the clean mark: {clean}, expected {expected}");
        }
        let catalog = Catalog::open(Arc::new(self.store.clone()), clean).map_err(text)?;
        if catalog.view().by_name("t").is_none() {
            catalog.create("t", BUCKETS as u32, BTreeMap::new(), self.clock.now_ms()).map_err(text)?;
        } else {
            self.unclean_starts += i32::from(!clean);
        }
        let info = catalog.view().by_name("t").cloned().ok_or("the table is gone")?;
        let epoch = catalog.leader_epoch(&info);
        ensure!(epoch == self.unclean_starts, "leader epoch {epoch} after {} unclean starts", self.unclean_starts);
        let points = data.read_points(&*disk);
        self.break_recovery(&points, clean);
        let mut tablets = Vec::new();
        for (bucket, options) in self.options.iter().enumerate() {
            let around =
                Surroundings { disk: Arc::clone(&disk), clock: Arc::clone(&self.clock) as _, root: root.into() };
            let (id, point) = (bucket_id(bucket), points.get(&bucket_id(bucket)).copied());
            let opened = Tablet::open(
                around,
                id,
                Shape { kind: BatchKind::Kafka, hashed: false },
                Arc::clone(options),
                epoch,
                point,
                clean,
            );
            let (tablet, quarantined) = opened.map_err(text)?;
            ensure!(!clean || quarantined == 0, "bucket {bucket} lost {quarantined} bytes after a clean stop");
            tablets.push(tablet);
        }
        // From here on a crash may or may not leave the mark.
        self.clean_mark = self.clean_mark.filter(|clean| !clean);
        data.begin(&*disk).map_err(text)?;
        Ok(Server { data, catalog, tablets })
    }

    /// Breaks the rules of recovery where the run is meant to show that this is noticed.
    fn break_recovery(&mut self, points: &BTreeMap<BucketId, RecoveryPoint>, clean: bool) {
        match self.mutation {
            Some(Mutation::TailNotCut) => self.disk.set_cuts_nothing(true),
            Some(Mutation::KeptTailNotSynced) => {
                self.disk.sim.set_lies(Lies { sync_does_nothing: true, sync_dir_does_nothing: false });
            }
            Some(Mutation::CutOneBatchTooEarly) if !clean => {
                for bucket in 0..BUCKETS {
                    self.cut_last_batch(bucket, points.get(&bucket_id(bucket)));
                }
            }
            _ => {}
        }
    }

    fn cut_last_batch(&mut self, bucket: usize, point: Option<&RecoveryPoint>) {
        let Some((path, base)) = self.active_file(bucket) else { return };
        let Ok(bytes) = self.disk.sim.dump(&path) else { return };
        let (mut at, mut last) = (0, None);
        while let Some(header) = bytes.get(at..).and_then(BatchHeader::read) {
            let Some(len) = header.total_len().filter(|len| at + len <= bytes.len()) else { break };
            last = Some(at as u64);
            at += len;
        }
        let known = point.filter(|point| point.segment == base).map_or(0, |point| point.position);
        if let Some(last) = last.filter(|last| *last >= known) {
            let _ = self.disk.sim.truncate_durable(&path, last);
        }
    }

    /// The newest segment file of a bucket and its base offset.
    pub(crate) fn active_file(&self, bucket: usize) -> Option<(PathBuf, i64)> {
        let directory = bucket_id(bucket).directory(Path::new(ROOT));
        let files = self.disk.sim.list_all().into_iter().map(|(path, _)| path);
        let logs =
            files.filter(|path| path.parent() == Some(&directory) && path.extension().is_some_and(|e| e == "log"));
        let path = logs.max()?;
        let base = path.file_stem()?.to_str()?.parse().ok()?;
        Some((path, base))
    }

    /// What is in quarantine was never promised to anyone.
    fn check_quarantine(&mut self) -> Check {
        for (path, _) in self.disk.sim.list_all() {
            let Ok(name) = path.strip_prefix(Path::new(ROOT).join("quarantine")) else { continue };
            let name = name.to_string_lossy().into_owned();
            if !self.quarantine_seen.insert(path.clone()) {
                continue;
            }
            let parts: Vec<i64> =
                name.trim_end_matches(".log").split('_').filter_map(|part| part.parse().ok()).collect();
            let [_, bucket, offset, _] = parts[..] else { return Err(format!("a strange file in quarantine: {name}")) };
            let durable = self.oracles[bucket as usize].durable;
            ensure!(offset >= durable, "{name} is in quarantine, but everything to {durable} was promised");
        }
        Ok(())
    }

    fn settle(&mut self, bucket: usize) -> Check {
        let Some(server) = &self.server else { return Ok(()) };
        let offsets = server.tablets[bucket].offsets().map_err(|error| format!("bucket {bucket}: {error}"))?;
        let outcome = self.oracles[bucket].settle(offsets.end, offsets.log_start);
        outcome.map_err(|broken| format!("bucket {bucket} after recovery: {broken}"))?;
        ensure!(
            server.tablets[bucket].epoch == (self.unclean_starts, offsets.end),
            "bucket {bucket} runs in epoch {:?}, expected {}",
            server.tablets[bucket].epoch,
            self.unclean_starts
        );
        self.log(|| format!("bucket {bucket} has {}..{}", offsets.log_start, offsets.end));
        Ok(())
    }

    /// Everything gets well, everyone gets an answer, the power fails once more.
    fn finish(&mut self) -> Check {
        self.disk.replace_fuse();
        self.disk.sim.set_faults(Faults::default());
        for _ in 0..3 {
            for bucket in 0..BUCKETS {
                self.repair(bucket)?;
                self.sync_quietly(bucket)?;
            }
            for client in 0..self.clients.len() {
                while self.clients[client].sent < self.clients[client].flights.len() {
                    self.produce_quietly(client)?;
                }
            }
            self.poll();
        }
        for client in &self.clients {
            let waiting = client.flights.len();
            ensure!(waiting == 0 || !client.acks_all, "producer {} still has {waiting} batches in flight", client.id);
        }
        for bucket in 0..BUCKETS {
            self.verify(bucket)?;
        }
        self.crash(true)?;
        self.disk.replace_fuse();
        self.stop_cleanly()
    }
}

fn options(rng: &mut Rng, bucket: usize) -> LogOptions {
    let segment_bytes = rng.pick(&[1_500, 5_000, 20_000, 150_000]);
    let appended = bucket == 2 || rng.chance(15);
    LogOptions {
        segment_bytes,
        segment_ms: rng.pick(&[1_000_000, 1_000_000, 700]),
        retention_ms: rng.pick(&[-1, 2_500, 20_000]),
        retention_bytes: rng.pick(&[-1, -1, 3 * segment_bytes as i64]),
        visibility: if appended { Visibility::Appended } else { Visibility::Durable },
        timestamp_type: if rng.chance(25) { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
        ..LogOptions::default()
    }
}
