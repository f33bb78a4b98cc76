//! R1: how to make many append-only files durable, and who should append to them.
//!
//! `cargo bench -p sluice-engine --bench r1_sync -- [--quick] [--dir DIR]` prints Markdown. DIR must be on the disk
//! in question (default: the temporary directory).
//!
//! Part 1, *group commit*: in each round a set of files gets appends, then all of them must be durable. An
//! acknowledgement's latency runs from the moment all appends of the round are in the page cache to the moment its
//! own file is known to be on disk, so a method that makes one file wait for all shows it.
//!
//! Part 2, *who appends*: one network thread takes up appends for several files on a fixed schedule while a pool
//! syncs all but one of them. Latency runs from an append's scheduled time, so waiting behind another file's append
//! counts. The slow forms delay each sync, or one write in 200 of a synced file, by 20 ms.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const FILES: [usize; 4] = [1, 6, 100, 1000];
const TRICKLE_BYTES: usize = 4 << 10;
const STREAM_BYTES: usize = 256 << 10;
/// Appends per round of a stream: 16 MiB in flight.
const STREAM_APPENDS: usize = 64;
const STREAM_LIMIT: u64 = 2 << 30;
const SYNC_THREADS: usize = 8;
const JOURNAL_RING: u64 = 128 << 20;
const SLOW: Duration = Duration::from_millis(20);
const TMPFS_MAGIC: i64 = 0x0102_1994;

fn main() -> Result<()> {
    let mut dir = std::env::temp_dir();
    let mut quick = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--dir" => dir = PathBuf::from(words.next().ok_or("--dir needs a value")?),
            // cargo passes it to every bench
            "--bench" => {}
            other => return Err(format!("unknown option {other}; there are --quick and --dir DIR").into()),
        }
    }
    let scratch = tempfile::Builder::new().prefix("r1-").tempdir_in(dir)?;
    if rustix::fs::statfs(scratch.path())?.f_type as i64 == TMPFS_MAGIC {
        return Err("the directory is on tmpfs, where a sync does nothing: give --dir".into());
    }
    let cell = Duration::from_millis(if quick { 350 } else { 3200 });
    println!("load before: {}", fs::read_to_string("/proc/loadavg")?.trim());
    group_commit(scratch.path(), cell)?;
    who_appends(scratch.path(), cell)?;
    println!("\nload after: {}", fs::read_to_string("/proc/loadavg")?.trim());
    Ok(())
}

// ---- part 1: group commit ----

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Each file gets one small append per round.
    Trickle,
    /// As much as the disk takes, in large appends, to the next files in turn.
    Stream,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Serial,
    Parallel,
    SyncFs,
    /// Everything is also appended to one file, and only that one is synced.
    Journal,
    /// The same in a file written in full beforehand and used as a ring, so that a sync has no size to record.
    JournalRing,
}

impl Method {
    const ALL: [Method; 5] = [Method::Serial, Method::Parallel, Method::SyncFs, Method::Journal, Method::JournalRing];

    fn name(self) -> &'static str {
        match self {
            Method::Serial => "serial fdatasync",
            Method::Parallel => "8 parallel fdatasync",
            Method::SyncFs => "syncfs",
            Method::Journal => "journal, growing",
            Method::JournalRing => "journal, pre-written ring",
        }
    }
}

fn group_commit(dir: &Path, cell: Duration) -> Result<()> {
    let mut left = 2 * (FILES.len() * Method::ALL.len()) as u32;
    let deadline = Instant::now() + cell * left * 5 / 4;
    for (load, title) in
        [(Load::Trickle, "Trickle: 4 KiB to every file per round"), (Load::Stream, "Stream: 16 MiB per round")]
    {
        println!("\n### {title}\n");
        println!("| files | method | rounds | ack p50 µs | ack p99 µs | MB/s | CPU s per GB | CPU ms per round |");
        println!("|---|---|---|---|---|---|---|---|");
        for files in FILES {
            for method in Method::ALL {
                // a disk that others keep busy makes single rounds overrun: later cells pay for it
                let share = deadline.saturating_duration_since(Instant::now()) / left;
                let limit = cell.min(share.max(cell / 6));
                left -= 1;
                let scratch = tempfile::tempdir_in(dir)?;
                // let earlier cells' dirty pages go first
                rustix::fs::syncfs(File::open(dir)?)?;
                let outcome = Commit::new(scratch.path(), files, method, load)?.run(limit)?;
                outcome.print(files, method);
            }
        }
    }
    Ok(())
}

struct Commit {
    dir: File,
    files: Vec<File>,
    journal: File,
    journal_at: u64,
    method: Method,
    load: Load,
    data: Vec<u8>,
}

/// The files that a round wrote to: `count` of them from `first` on, in a circle.
#[derive(Clone, Copy)]
struct Dirty {
    first: usize,
    count: usize,
}

impl Commit {
    fn new(dir: &Path, files: usize, method: Method, load: Load) -> Result<Commit> {
        let create = |name: String| OpenOptions::new().append(true).create_new(true).open(dir.join(name));
        let names = (0..files).map(|i| create(format!("{i}.log")));
        let journal = File::create(dir.join("journal"))?;
        if method == Method::JournalRing {
            let zeros = vec![0; 1 << 20];
            (0..JOURNAL_RING >> 20).try_for_each(|_| (&journal).write_all(&zeros))?;
            journal.sync_all()?;
        }
        Ok(Commit {
            dir: File::open(dir)?,
            files: names.collect::<std::io::Result<_>>()?,
            journal,
            journal_at: 0,
            method,
            load,
            data: vec![0x5a; if load == Load::Trickle { TRICKLE_BYTES } else { STREAM_BYTES }],
        })
    }

    fn run(mut self, limit: Duration) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        if self.method == Method::Parallel {
            let handles: Vec<File> = self.files.iter().map(File::try_clone).collect::<std::io::Result<_>>()?;
            let pool = Pool::new(&handles);
            thread::scope(|scope| {
                (0..SYNC_THREADS).for_each(|_| drop(scope.spawn(|| pool.work())));
                let done = self.rounds(limit, &mut outcome, |_, dirty, begun, acks| pool.sync(dirty, begun, acks));
                pool.stop();
                done
            })?;
        } else {
            self.rounds(limit, &mut outcome, Commit::sync)?;
        }
        Ok(outcome)
    }

    fn rounds(
        &mut self,
        limit: Duration,
        outcome: &mut Outcome,
        sync: impl Fn(&mut Commit, Dirty, Instant, &mut Vec<Duration>) -> Result<()>,
    ) -> Result<()> {
        let (start, cpu) = (Instant::now(), process_cpu()?);
        let mut first = 0;
        while outcome.rounds == 0 || (start.elapsed() < limit && outcome.bytes < STREAM_LIMIT) {
            let dirty = self.append(first, outcome)?;
            sync(self, dirty, Instant::now(), &mut outcome.acks)?;
            first = (first + dirty.count) % self.files.len();
            outcome.rounds += 1;
        }
        outcome.wall = start.elapsed();
        outcome.cpu = process_cpu()? - cpu;
        Ok(())
    }

    fn append(&mut self, first: usize, outcome: &mut Outcome) -> Result<Dirty> {
        let files = self.files.len();
        let appends = if self.load == Load::Trickle { files } else { STREAM_APPENDS };
        for i in 0..appends {
            (&self.files[(first + i) % files]).write_all(&self.data)?;
        }
        outcome.bytes += (appends * self.data.len()) as u64;
        if matches!(self.method, Method::Journal | Method::JournalRing) {
            let step = self.data.len() as u64;
            for _ in 0..appends {
                if self.method == Method::JournalRing && self.journal_at + step > JOURNAL_RING {
                    self.journal_at = 0;
                }
                self.journal.write_all_at(&self.data, self.journal_at)?;
                self.journal_at += step;
            }
        }
        Ok(Dirty { first, count: appends.min(files) })
    }

    fn sync(&mut self, dirty: Dirty, begun: Instant, acks: &mut Vec<Duration>) -> Result<()> {
        match self.method {
            Method::Serial | Method::Parallel => {
                for i in 0..dirty.count {
                    self.files[(dirty.first + i) % self.files.len()].sync_data()?;
                    acks.push(begun.elapsed());
                }
                return Ok(());
            }
            Method::SyncFs => rustix::fs::syncfs(&self.dir)?,
            Method::Journal | Method::JournalRing => self.journal.sync_data()?,
        }
        acks.resize(acks.len() + dirty.count, begun.elapsed());
        Ok(())
    }
}

/// Threads that stand ready for a round's files.
struct Pool<'a> {
    files: &'a [File],
    round: Mutex<(Dirty, Instant)>,
    next: AtomicUsize,
    acks: Mutex<Vec<Duration>>,
    failed: AtomicBool,
    stopping: AtomicBool,
    begin: Barrier,
    end: Barrier,
}

impl<'a> Pool<'a> {
    fn new(files: &'a [File]) -> Pool<'a> {
        Pool {
            files,
            round: Mutex::new((Dirty { first: 0, count: 0 }, Instant::now())),
            next: AtomicUsize::new(0),
            acks: Mutex::default(),
            failed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            begin: Barrier::new(SYNC_THREADS + 1),
            end: Barrier::new(SYNC_THREADS + 1),
        }
    }

    fn sync(&self, dirty: Dirty, begun: Instant, acks: &mut Vec<Duration>) -> Result<()> {
        *lock(&self.round) = (dirty, begun);
        self.next.store(0, Ordering::SeqCst);
        self.begin.wait();
        self.end.wait();
        acks.append(&mut lock(&self.acks));
        if self.failed.load(Ordering::SeqCst) { Err("a sync failed".into()) } else { Ok(()) }
    }

    fn work(&self) {
        loop {
            self.begin.wait();
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let (dirty, begun) = *lock(&self.round);
            let mut own = Vec::new();
            loop {
                let i = self.next.fetch_add(1, Ordering::SeqCst);
                if i >= dirty.count {
                    break;
                }
                if self.files[(dirty.first + i) % self.files.len()].sync_data().is_err() {
                    self.failed.store(true, Ordering::SeqCst);
                }
                own.push(begun.elapsed());
            }
            lock(&self.acks).append(&mut own);
            self.end.wait();
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.begin.wait();
    }
}

#[derive(Default)]
struct Outcome {
    acks: Vec<Duration>,
    rounds: u64,
    bytes: u64,
    wall: Duration,
    cpu: f64,
}

impl Outcome {
    fn print(mut self, files: usize, method: Method) {
        self.acks.sort_unstable();
        let megabytes = self.bytes as f64 / 1e6;
        println!(
            "| {files} | {} | {} | {} | {} | {:.1} | {:.2} | {:.2} |",
            method.name(),
            self.rounds,
            quantile(&self.acks, 0.5),
            quantile(&self.acks, 0.99),
            megabytes / self.wall.as_secs_f64(),
            self.cpu / megabytes * 1e3,
            self.cpu / self.rounds as f64 * 1e3,
        );
    }
}

// ---- part 2: who appends ----

/// All but the last are synced without pause; the last one is the neighbour that should not notice.
const TABLETS: usize = 6;
const APPENDS_PER_SECOND: u64 = 3000;
const STALL_EVERY: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Appender {
    /// The network thread appends; a sync holds the file's lock.
    InlineLocked,
    /// The network thread appends; a sync works on a handle of its own, outside the lock.
    Inline,
    /// Each file has a thread that appends what the network thread hands it; a sync holds the file's lock.
    Owner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    AsIs,
    SlowSync,
    SlowWrite,
}

struct Tablet {
    log: Mutex<File>,
    handle: File,
    written: AtomicUsize,
}

struct Sim {
    tablets: Vec<Tablet>,
    appender: Appender,
    disk: Disk,
    stop: AtomicBool,
    waits: [Mutex<Vec<Duration>>; 2],
    errors: Mutex<Vec<std::io::Error>>,
}

fn who_appends(dir: &Path, cell: Duration) -> Result<()> {
    println!("\n### Who appends: {APPENDS_PER_SECOND} appends/s of 4 KiB over {TABLETS} files");
    println!("All but one of them are always being synced.\n");
    println!("| disk | appender | neighbour p50 µs | neighbour p99 µs | neighbour max µs | synced files p99 µs |");
    println!("|---|---|---|---|---|---|");
    let disks = [
        (Disk::AsIs, "as it is"),
        (Disk::SlowSync, "each sync +20 ms"),
        (Disk::SlowWrite, "1 write in 200 to a synced file +20 ms"),
    ];
    let appenders = [
        (Appender::InlineLocked, "inline, sync under the file's lock"),
        (Appender::Inline, "inline, sync outside the lock"),
        (Appender::Owner, "owner thread per file"),
    ];
    for (disk, disk_name) in disks {
        for (appender, appender_name) in appenders {
            let scratch = tempfile::tempdir_in(dir)?;
            let [neighbour, synced] = Sim::new(scratch.path(), appender, disk)?.run(cell.mul_f64(0.8))?;
            println!(
                "| {disk_name} | {appender_name} | {} | {} | {} | {} |",
                quantile(&neighbour, 0.5),
                quantile(&neighbour, 0.99),
                quantile(&neighbour, 1.0),
                quantile(&synced, 0.99),
            );
        }
    }
    Ok(())
}

impl Sim {
    fn new(dir: &Path, appender: Appender, disk: Disk) -> Result<Sim> {
        let mut tablets = Vec::new();
        for i in 0..TABLETS {
            let log = OpenOptions::new().append(true).create_new(true).open(dir.join(format!("{i}.log")))?;
            tablets.push(Tablet { handle: log.try_clone()?, log: Mutex::new(log), written: AtomicUsize::new(i * 40) });
        }
        Ok(Sim {
            tablets,
            appender,
            disk,
            stop: AtomicBool::new(false),
            waits: Default::default(),
            errors: Mutex::default(),
        })
    }

    /// Sorted latencies of the neighbour's appends and of all others.
    fn run(self, limit: Duration) -> Result<[Vec<Duration>; 2]> {
        thread::scope(|scope| {
            for worker in 0..2 {
                let sim = &self;
                scope.spawn(move || sim.sync_loop(worker));
            }
            let mut queues = Vec::new();
            if self.appender == Appender::Owner {
                for i in 0..TABLETS {
                    let (sender, receiver) = sync_channel(1 << 16);
                    let sim = &self;
                    scope.spawn(move || sim.own(i, &receiver));
                    queues.push(sender);
                }
            }
            self.network(limit, &queues);
            self.stop.store(true, Ordering::Relaxed);
        });
        if let Some(error) = lock(&self.errors).pop() {
            return Err(error.into());
        }
        Ok(self.waits.map(|waits| {
            let mut waits = waits.into_inner().unwrap_or_else(PoisonError::into_inner);
            waits.sort_unstable();
            waits
        }))
    }

    /// Takes appends up when they are due; a late one still counts from its due time.
    fn network(&self, limit: Duration, queues: &[SyncSender<Instant>]) {
        let start = Instant::now();
        let step = Duration::from_nanos(1_000_000_000 / APPENDS_PER_SECOND);
        for n in 0.. {
            let due = start + step * n;
            if due - start > limit || start.elapsed() > limit * 2 {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let tablet = n as usize % TABLETS;
            match queues.get(tablet) {
                Some(queue) => drop(queue.send(due)),
                None => self.append(tablet, due),
            }
        }
    }

    fn own(&self, tablet: usize, queue: &Receiver<Instant>) {
        queue.iter().for_each(|due| self.append(tablet, due));
    }

    fn append(&self, tablet: usize, due: Instant) {
        let neighbour = tablet + 1 == TABLETS;
        let Tablet { log, written, .. } = &self.tablets[tablet];
        {
            let mut log = lock(log);
            if let Err(error) = log.write_all(&[0x5a; TRICKLE_BYTES]) {
                lock(&self.errors).push(error);
            }
            let count = written.fetch_add(1, Ordering::Relaxed) as u64;
            if self.disk == Disk::SlowWrite && !neighbour && count % STALL_EVERY == STALL_EVERY - 1 {
                thread::sleep(SLOW);
            }
        }
        lock(&self.waits[usize::from(!neighbour)]).push(due.elapsed());
    }

    /// Syncs every second of the files that are to be durable, without pause.
    fn sync_loop(&self, worker: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            for tablet in self.tablets[..TABLETS - 1].iter().skip(worker).step_by(2) {
                let guard = (self.appender != Appender::Inline).then(|| lock(&tablet.log));
                if let Err(error) = tablet.handle.sync_data() {
                    lock(&self.errors).push(error);
                }
                if self.disk == Disk::SlowSync {
                    thread::sleep(SLOW);
                }
                drop(guard);
                // a plain mutex is not fair: let the appender in
                thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

// ---- small things ----

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of sorted values, in microseconds.
fn quantile(sorted: &[Duration], q: f64) -> u128 {
    let at = (sorted.len() as f64 * q) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(0, Duration::as_micros)
}

/// User and system seconds of this process (not of the kernel's own write-back threads).
fn process_cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no name in stat")?.1;
    let ticks = |n: usize| -> Result<f64> { Ok(fields.split_whitespace().nth(n).ok_or("short stat")?.parse()?) };
    // the kernel counts in hundredths of a second for programs
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}
