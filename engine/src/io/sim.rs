//! A file system in memory that loses, tears and refuses what a real one may, by a seed.
//!
//! Every file has two states: what the page cache shows and what is durable, kept apart per page of
//! 4 KiB and for the length; every directory has two maps of names. [`SimDisk::power_loss`] settles
//! the difference: each unsynced page is kept, dropped or torn at a sector, each unsynced length and
//! each unsynced change of names is kept or dropped, all independently of each other. How likely each
//! kind is to be kept is drawn anew for each power loss, so that "all of it" and "none of it" occur too.
//!
//! What holds even so: a rename is one change (old name or new one, never neither or both), and
//! changes of one name are kept in order. What does not hold: a file whose name was not synced is
//! lost with it, however well its bytes were synced.
//!
//! The same calls after the same seed give the same results. What [`DiskFile::read_cached_at`] draws
//! comes from a second generator, so that a reader does not move the fate of the writes. Paths are
//! taken from one root: `a/b` and `/a/b` are the same file. Links, permissions and times are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{Disk, DiskFile, Entry};

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// What keeps a wrong position from taking all memory.
const FILE_BYTES_MAX: u64 = 1 << 32;
/// What the name of a directory leads to; that of a file leads to a number above.
const DIRECTORY: u64 = 0;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// What goes wrong, and when. A countdown of `Some(n)` lets the n-th matching call from now fail, once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// Only calls on paths that contain this are counted and refused; a file goes by the path it was
    /// opened with.
    pub path_contains: Option<String>,
    /// Countdown to a write that fails with EIO after a prefix of its bytes, by the seed; a `set_len`
    /// counts as a write, and fails without effect.
    pub write_error_in: Option<u64>,
    /// The failing write of `write_error_in` leaves some but not all of its bytes, and says `WriteZero`.
    pub short_write: bool,
    /// Countdown to a read that fails with EIO.
    pub read_error_in: Option<u64>,
    /// Countdown to a file sync that fails with EIO: its pages count as clean from then on and are lost
    /// at the next power loss, whatever is synced later, unless they are written again.
    pub sync_error_in: Option<u64>,
    /// Countdown to a directory sync that fails with EIO and makes nothing durable; one inside
    /// `create_dir` counts.
    pub sync_dir_error_in: Option<u64>,
    /// Countdown to a create, remove, rename or new directory that fails with EIO and without effect.
    pub name_error_in: Option<u64>,
    /// The total length of all files above which a write that makes a file longer fails with ENOSPC;
    /// what still fits is written.
    pub no_space_after: Option<u64>,
}

/// Promises that the disk breaks, so that a checker can be seen to fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lies {
    /// A file sync succeeds and makes nothing durable.
    pub sync_does_nothing: bool,
    /// A directory sync succeeds and makes nothing durable, those inside `create_dir` included.
    pub sync_dir_does_nothing: bool,
}

/// What the disk has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// File syncs that answered success.
    pub syncs: u64,
    /// Directory syncs that answered success.
    pub dir_syncs: u64,
    /// Bytes that reached the page cache.
    pub bytes_written: u64,
}

/// The simulated disk. Clones are the same disk.
///
/// A crash ends the machine that used the disk: its open files answer errors, and whoever holds the
/// `SimDisk` afterwards is the machine that starts next.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk; `seed` fixes everything that is left to chance.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), DIRECTORY)]);
        let (fates, cached_reads) = (Random(seed), Random(!seed));
        let state = State { shown: root.clone(), durable: root, fates, cached_reads, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The power fails: what was not synced is kept or lost by the seed, what is left is durable, and
    /// files opened before answer errors. Faults, lies and slowness stay.
    pub fn power_loss(&self) {
        self.lock().power_loss();
    }

    /// The same as [`SimDisk::power_loss`]: the operating system is gone, and its page cache with it.
    pub fn crash(&self) {
        self.power_loss();
    }

    /// The process dies and the operating system lives: files opened before answer errors, the page
    /// cache stays, and stays as unsynced as it was.
    pub fn process_kill(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.forget_unnamed();
    }

    /// Sets what goes wrong from now on, in place of what was set before.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Nothing goes wrong from now on. What a failed sync lost stays lost.
    pub fn clear_faults(&self) {
        self.set_faults(Faults::default());
    }

    /// Sets which promises are broken from now on.
    pub fn set_lies(&self, lies: Lies) {
        self.lock().lies = lies;
    }

    /// Lets each `sync` and `sync_dir` take that long. Bytes written while a `sync` runs are not part of
    /// it, and a power loss meanwhile finds nothing of it durable.
    pub fn set_slow(&self, slow: Option<Duration>) {
        self.lock().slow = slow.unwrap_or_default();
    }

    /// What the disk has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Damages a file on the medium and in the page cache: bit `offset % 8` of the byte at `offset`.
    ///
    /// # Errors
    /// `NotFound` without such a file, `InvalidInput` at or behind its end.
    pub fn flip_bit(&self, path: &Path, offset: u64) -> io::Result<()> {
        self.lock().file_at(path)?.flip_bit(offset)
    }

    /// Cuts a file on the medium and in the page cache, as if it had always been that short; a file
    /// that is no longer than `len` stays as it is.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn truncate_durable(&self, path: &Path, len: u64) -> io::Result<()> {
        self.lock().file_at(path)?.truncate_durable(len);
        Ok(())
    }

    /// A file's bytes as the page cache shows them.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn dump(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.lock().file_at(path)?.shown.clone())
    }

    /// All files with their lengths as the page cache shows them, in path order, each path from the root.
    #[must_use]
    pub fn list_all(&self) -> Vec<(PathBuf, u64)> {
        self.lock().named_files().map(|(path, file)| (path.clone(), file.len())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_in(&self, generation: u64) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if state.generation == generation {
            return Ok(state);
        }
        Err(io::Error::new(ErrorKind::StaleNetworkFileHandle, "the simulated machine has crashed since"))
    }

    fn handle(&self, state: &mut State, number: u64, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let open = Arc::clone(&state.file(number)?.open);
        let (disk, path) = (self.clone(), path.to_owned());
        Ok(Arc::new(SimFile { disk, number, path, generation: state.generation, _open: open }))
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        let number = state.create(from_root(path)?)?;
        self.handle(&mut state, number, path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.lock();
        let number = state.file_named(&from_root(path)?)?;
        self.handle(&mut state, number, path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let (state, directory) = (self.lock(), from_root(directory)?);
        state.expect_directory(&directory)?;
        let mut below = state.below(&directory);
        below.retain(|(path, _)| path.parent() == Some(&directory));
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entry = |(path, number): Change| Entry { name: name(&path), is_dir: number == Some(DIRECTORY) };
        Ok(below.into_iter().map(entry).collect())
    }

    fn create_dir(&self, directory: &Path) -> io::Result<()> {
        self.lock().create_dir(&from_root(directory)?)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.lock().remove(from_root(path)?)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        self.lock().remove_dir(&from_root(directory)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lock().rename(from_root(from)?, from_root(to)?)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        let generation = self.lock().generation;
        let slow = self.lock().slow;
        thread::sleep(slow);
        self.lock_in(generation)?.sync_dir(&from_root(directory)?)
    }
}

struct SimFile {
    disk: SimDisk,
    number: u64,
    path: PathBuf,
    generation: u64,
    /// Keeps a removed file's bytes until its last handle is gone.
    _open: Arc<()>,
}

impl SimFile {
    fn lock(&self) -> io::Result<MutexGuard<'_, State>> {
        self.disk.lock_in(self.generation)
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.lock()?.file(self.number)?.len())
    }

    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.lock()?.write(self.number, &self.path, position, &bytes)
    }

    fn read_at(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock()?;
        state.check(|faults| &mut faults.read_error_in, &[&self.path])?;
        Ok(state.file(self.number)?.read(position, buf))
    }

    fn read_cached_at(&self, position: u64, buf: &mut [u8]) -> io::Result<Option<usize>> {
        if self.lock()?.cached_reads.quarters(1) {
            return Ok(None);
        }
        let n = self.read_at(position, buf)?;
        Ok((n == buf.len()).then_some(n))
    }

    fn sync(&self) -> io::Result<()> {
        let (snapshot, verdict, slow) = {
            let mut state = self.lock()?;
            let verdict = state.check(|faults| &mut faults.sync_error_in, &[&self.path]);
            (state.file(self.number)?.snapshot(), verdict, state.slow)
        };
        thread::sleep(slow);
        let mut state = self.lock()?;
        if let Err(error) = verdict {
            state.file(self.number)?.fail_sync(&snapshot);
            return Err(error);
        }
        state.counters.syncs += 1;
        if !state.lies.sync_does_nothing {
            state.file(self.number)?.finish_sync(&snapshot);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.lock()?.set_len(self.number, &self.path, len)
    }
}

/// Splitmix64: small, and the same everywhere.
#[derive(Default)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True in `n` of four cases.
    fn quarters(&mut self, n: u64) -> bool {
        self.below(4) < n
    }
}

/// One name that changes: to a file's number or [`DIRECTORY`], or to nothing.
type Change = (PathBuf, Option<u64>);

#[derive(Default)]
struct State {
    /// All names as the running machine sees them, by path from the root.
    shown: BTreeMap<PathBuf, u64>,
    /// All names that a power loss cannot take, but with the name of a directory above them.
    durable: BTreeMap<PathBuf, u64>,
    files: BTreeMap<u64, Content>,
    files_made: u64,
    /// Changes of names that no directory sync has covered, oldest first. Those of one inner list
    /// become durable together.
    pending: Vec<Vec<Change>>,
    /// Raised by each crash; open files of an older one are stale.
    generation: u64,
    fates: Random,
    cached_reads: Random,
    faults: Faults,
    lies: Lies,
    slow: Duration,
    counters: Counters,
}

/// Faults, bytes.
impl State {
    /// Counts a call against one of the countdowns; an error when it is the one to fail.
    fn check(&mut self, countdown: fn(&mut Faults) -> &mut Option<u64>, paths: &[&Path]) -> io::Result<()> {
        let counts = self.matches(paths);
        let countdown = countdown(&mut self.faults);
        match countdown {
            Some(n) if counts && *n > 1 => *n -= 1,
            Some(_) if counts => {
                *countdown = None;
                return Err(io::Error::from_raw_os_error(EIO));
            }
            _ => {}
        }
        Ok(())
    }

    fn matches(&self, paths: &[&Path]) -> bool {
        let part = self.faults.path_contains.as_deref().unwrap_or_default();
        paths.iter().any(|path| path.to_string_lossy().contains(part))
    }

    /// How long a file of `len` bytes that should grow to `end` may become.
    fn grown(&self, path: &Path, len: u64, end: u64) -> u64 {
        match self.faults.no_space_after {
            Some(limit) if end > len && self.matches(&[path]) => {
                let used = self.named_files().map(|(_, file)| file.len()).sum();
                end.min(len + limit.saturating_sub(used))
            }
            _ => end.min(FILE_BYTES_MAX),
        }
    }

    fn write(&mut self, number: u64, path: &Path, position: u64, bytes: &[u8]) -> io::Result<()> {
        let (asked, end) = (bytes.len() as u64, position.saturating_add(bytes.len() as u64));
        let len = self.file(number)?.len();
        let room = self.grown(path, len, end);
        let (taken, outcome) = match self.check(|faults| &mut faults.write_error_in, &[path]) {
            Err(_) if self.faults.short_write => {
                let all_but_one = asked.saturating_sub(1);
                (all_but_one.min(1 + self.fates.below(all_but_one)), Err(ErrorKind::WriteZero.into()))
            }
            Err(error) => (self.fates.below(asked + 1), Err(error)),
            Ok(()) if room < end => (asked, Err(io::Error::from_raw_os_error(ENOSPC))),
            Ok(()) => (asked, Ok(())),
        };
        let taken = taken.min(room.saturating_sub(position));
        self.counters.bytes_written += taken;
        self.file(number)?.write(position as usize, bytes.get(..taken as usize).unwrap_or_default());
        outcome
    }

    fn set_len(&mut self, number: u64, path: &Path, len: u64) -> io::Result<()> {
        self.check(|faults| &mut faults.write_error_in, &[path])?;
        let before = self.file(number)?.len();
        if self.grown(path, before, len) < len {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.file(number)?.set_len(len as usize);
        Ok(())
    }

    fn power_loss(&mut self) {
        self.generation += 1;
        self.settle_names();
        let named: BTreeSet<u64> = self.shown.values().copied().collect();
        self.files.retain(|number, _| named.contains(number));
        let (keep_pages, keep_len) = (self.fates.below(5), self.fates.below(5));
        for file in self.files.values_mut() {
            file.settle(&mut self.fates, keep_pages, keep_len);
        }
    }
}

/// Names. All paths here are from the root.
impl State {
    fn file(&mut self, number: u64) -> io::Result<&mut Content> {
        Ok(self.files.get_mut(&number).ok_or(ErrorKind::NotFound)?)
    }

    fn file_at(&mut self, path: &Path) -> io::Result<&mut Content> {
        let number = self.file_named(&from_root(path)?)?;
        self.file(number)
    }

    fn file_named(&self, path: &Path) -> io::Result<u64> {
        match self.shown.get(path) {
            Some(&DIRECTORY) => Err(ErrorKind::IsADirectory.into()),
            Some(number) => Ok(*number),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn expect_directory(&self, path: &Path) -> io::Result<()> {
        match self.shown.get(path) {
            Some(&DIRECTORY) => Ok(()),
            Some(_) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// A directory and all below it, parents first.
    fn below(&self, path: &Path) -> Vec<Change> {
        let from = self.shown.range(path.to_owned()..);
        let below = from.take_while(|(name, _)| name.starts_with(path));
        below.map(|(name, number)| (name.clone(), Some(*number))).collect()
    }

    /// Shows changes of names that become durable together or not at all.
    fn change(&mut self, changes: Vec<Change>) {
        apply(&mut self.shown, changes.iter().cloned());
        self.pending.push(changes);
    }

    fn create(&mut self, path: PathBuf) -> io::Result<u64> {
        self.expect_directory(path.parent().ok_or(ErrorKind::IsADirectory)?)?;
        self.check(|faults| &mut faults.name_error_in, &[&path])?;
        if self.shown.contains_key(&path) {
            let number = self.file_named(&path)?;
            self.file(number)?.set_len(0);
            return Ok(number);
        }
        self.files_made += 1;
        let number = self.files_made;
        self.files.insert(number, Content::default());
        self.change(vec![(path, Some(number))]);
        Ok(number)
    }

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut path_down: Vec<&Path> = path.ancestors().collect();
        path_down.reverse();
        for (parent, directory) in path_down.iter().zip(path_down.iter().skip(1)) {
            if !self.shown.contains_key(*directory) {
                self.check(|faults| &mut faults.name_error_in, &[directory])?;
                self.change(vec![(directory.to_path_buf(), Some(DIRECTORY))]);
                self.sync_dir(parent)?;
            }
            self.expect_directory(directory)?;
        }
        Ok(())
    }

    fn remove(&mut self, path: PathBuf) -> io::Result<()> {
        self.file_named(&path)?;
        self.check(|faults| &mut faults.name_error_in, &[&path])?;
        self.change(vec![(path, None)]);
        Ok(())
    }

    /// Removes name after name, each directory last. Its change names all that it ever held, so that it
    /// is not kept where an earlier change in it is lost: a file that was renamed out of the directory
    /// does not vanish with it.
    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        if !self.shown.contains_key(path) {
            return Ok(());
        }
        path.parent().ok_or(ErrorKind::InvalidInput)?;
        self.expect_directory(path)?;
        self.check(|faults| &mut faults.name_error_in, &[path])?;
        for (name, number) in self.below(path).into_iter().rev() {
            let mut changes = vec![(name.clone(), None)];
            if number == Some(DIRECTORY) {
                let held = self.durable.keys().chain(self.pending.iter().flatten().map(|(held, _)| held));
                changes.extend(held.filter(|held| held.parent() == Some(&name)).map(|held| (held.clone(), None)));
            }
            self.change(changes);
        }
        Ok(())
    }

    fn rename(&mut self, from: PathBuf, to: PathBuf) -> io::Result<()> {
        let number = self.file_named(&from)?;
        self.expect_directory(to.parent().ok_or(ErrorKind::IsADirectory)?)?;
        if self.shown.contains_key(&to) {
            self.file_named(&to)?;
        }
        self.check(|faults| &mut faults.name_error_in, &[&from, &to])?;
        if from != to {
            self.change(vec![(from, None), (to, Some(number))]);
        }
        Ok(())
    }

    /// Makes durable the changes in a directory, and those elsewhere that they build upon.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.expect_directory(path)?;
        self.check(|faults| &mut faults.sync_dir_error_in, &[path])?;
        self.counters.dir_syncs += 1;
        if self.lies.sync_dir_does_nothing {
            return Ok(());
        }
        let mut needed = BTreeSet::new();
        let newest_first = mem::take(&mut self.pending).into_iter().rev();
        let (done, rest): (Vec<_>, Vec<_>) = newest_first.partition(|changes| {
            let covered = changes.iter().any(|(name, _)| name.parent() == Some(path) || needed.contains(name));
            needed.extend(changes.iter().filter(|_| covered).map(|(name, _)| name.clone()));
            covered
        });
        self.pending = rest.into_iter().rev().collect();
        apply(&mut self.durable, done.into_iter().rev().flatten());
        self.forget_unnamed();
        Ok(())
    }

    /// Keeps or drops the unsynced changes of names. One that builds upon a dropped one is dropped too.
    fn settle_names(&mut self) {
        let keep = self.fates.below(5);
        let mut dropped = BTreeSet::new();
        for changes in mem::take(&mut self.pending) {
            let mut needed = changes.iter().flat_map(|(name, _)| name.ancestors().take(2));
            if needed.any(|name| dropped.contains(name)) || !self.fates.quarters(keep) {
                dropped.extend(changes.into_iter().map(|(name, _)| name));
            } else {
                apply(&mut self.durable, changes.into_iter());
            }
        }
        self.shown.clear();
        for (name, number) in &self.durable {
            if name.parent().is_none_or(|parent| self.shown.contains_key(parent)) {
                self.shown.insert(name.clone(), *number);
            }
        }
        self.durable.clone_from(&self.shown);
    }

    /// Frees the files that no name leads to, now or after a power loss, and no handle either.
    fn forget_unnamed(&mut self) {
        let pending = self.pending.iter().flatten().filter_map(|(_, number)| number.as_ref());
        let named: BTreeSet<u64> = self.shown.values().chain(self.durable.values()).chain(pending).copied().collect();
        self.files.retain(|number, file| named.contains(number) || Arc::strong_count(&file.open) > 1);
    }

    /// The files that have a name, in path order.
    fn named_files(&self) -> impl Iterator<Item = (&PathBuf, &Content)> {
        self.shown.iter().filter_map(|(path, number)| Some((path, self.files.get(number)?)))
    }
}

/// A file's bytes. A page in neither map is durable as shown; what is durable of the others is what
/// their map holds. Durable bytes behind the durable length are zero.
#[derive(Default)]
struct Content {
    /// The page cache.
    shown: Vec<u8>,
    durable_len: u64,
    /// Pages that the next sync will write.
    dirty: BTreeMap<usize, Vec<u8>>,
    /// Pages that a failed sync gave up: clean for the operating system, and not written.
    given_up: BTreeMap<usize, Vec<u8>>,
    /// Whether a failed sync gave up the length.
    len_given_up: bool,
    changes: u64,
    /// The number of changes that the last sync to end had seen.
    changes_synced: u64,
    /// Shared with the open handles.
    open: Arc<()>,
}

/// What a sync found when it began.
struct Snapshot {
    pages: Vec<(usize, Vec<u8>)>,
    len: u64,
    changes: u64,
}

impl Content {
    fn len(&self) -> u64 {
        self.shown.len() as u64
    }

    /// A page as shown, with zeroes behind the end of the file.
    fn page(&self, number: usize) -> Vec<u8> {
        let rest = self.shown.get(number * PAGE..).unwrap_or_default();
        let mut page = rest.get(..PAGE).unwrap_or(rest).to_vec();
        page.resize(PAGE, 0);
        page
    }

    /// Marks a page as dirty, before it changes.
    fn touch(&mut self, number: usize) {
        if !self.dirty.contains_key(&number) {
            let durable = self.given_up.remove(&number).unwrap_or_else(|| self.page(number));
            self.dirty.insert(number, durable);
        }
    }

    fn write(&mut self, position: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = position + bytes.len();
        (position / PAGE..end.div_ceil(PAGE)).for_each(|number| self.touch(number));
        self.len_given_up &= end as u64 <= self.durable_len.min(self.len());
        self.shown.resize(self.shown.len().max(end), 0);
        self.shown.iter_mut().skip(position).zip(bytes).for_each(|(to, from)| *to = *from);
        self.changes += 1;
    }

    fn set_len(&mut self, len: usize) {
        (len / PAGE..self.shown.len().div_ceil(PAGE)).for_each(|number| self.touch(number));
        self.shown.resize(len, 0);
        self.len_given_up = false;
        self.changes += 1;
    }

    fn read(&self, position: u64, buf: &mut [u8]) -> usize {
        let rest = self.shown.get(position as usize..).unwrap_or_default();
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        rest.len().min(buf.len())
    }

    fn snapshot(&self) -> Snapshot {
        let pages = self.dirty.keys().map(|number| (*number, self.page(*number))).collect();
        Snapshot { pages, len: self.len(), changes: self.changes }
    }

    fn finish_sync(&mut self, snapshot: &Snapshot) {
        if snapshot.changes < self.changes_synced {
            return; // A sync that began later has ended already.
        }
        self.changes_synced = snapshot.changes;
        for (number, bytes) in &snapshot.pages {
            let clean = self.page(*number) == *bytes;
            for pages in [&mut self.dirty, &mut self.given_up] {
                if clean {
                    pages.remove(number);
                } else if let Some(durable) = pages.get_mut(number) {
                    durable.clone_from(bytes);
                }
            }
        }
        if !self.len_given_up {
            self.cut_durable(snapshot.len);
        }
    }

    fn fail_sync(&mut self, snapshot: &Snapshot) {
        for (number, bytes) in &snapshot.pages {
            if self.page(*number) == *bytes
                && let Some(durable) = self.dirty.remove(number)
            {
                self.given_up.insert(*number, durable);
            }
        }
        self.len_given_up |= self.changes == snapshot.changes && self.durable_len != snapshot.len;
    }

    /// Sets the durable length, and zeroes what was durable behind it.
    fn cut_durable(&mut self, len: u64) {
        self.durable_len = len;
        let len = len as usize;
        self.given_up.retain(|number, _| number * PAGE < len);
        for (number, page) in self.dirty.iter_mut().chain(&mut self.given_up) {
            page.iter_mut().skip(len.saturating_sub(number * PAGE)).for_each(|byte| *byte = 0);
        }
    }

    fn truncate_durable(&mut self, len: u64) {
        if len < self.durable_len {
            self.cut_durable(len);
        }
        if len < self.len() {
            self.shown.truncate(len as usize);
            self.dirty.retain(|number, _| number * PAGE < len as usize);
        }
    }

    fn flip_bit(&mut self, offset: u64) -> io::Result<()> {
        let (at, mask) = (offset as usize, 1u8 << (offset % 8));
        *self.shown.get_mut(at).ok_or(ErrorKind::InvalidInput)? ^= mask;
        if offset < self.durable_len {
            let durable = self.dirty.get_mut(&(at / PAGE)).or(self.given_up.get_mut(&(at / PAGE)));
            durable.and_then(|page| page.get_mut(at % PAGE)).into_iter().for_each(|byte| *byte ^= mask);
        }
        Ok(())
    }

    /// What a power loss leaves.
    fn settle(&mut self, fates: &mut Random, keep_pages: u64, keep_len: u64) {
        let shown = self.shown.len();
        let len = self.settle_len(fates, keep_len);
        self.shown.resize(shown.max(self.durable_len as usize).next_multiple_of(PAGE), 0);
        // What a failed sync gave up has nothing to keep, nor has a page that was cut off.
        let given_up = mem::take(&mut self.given_up).into_iter().map(|page| (page, 0));
        let dirty = mem::take(&mut self.dirty).into_iter();
        let dirty = dirty.map(|page| if page.0 * PAGE < shown { (page, keep_pages) } else { (page, 0) });
        for ((number, durable), keep) in dirty.chain(given_up) {
            let kept = if fates.quarters(keep) {
                0..PAGE
            } else if keep > 0 && fates.quarters(2) {
                let torn_at = SECTOR * (1 + fates.below((PAGE / SECTOR) as u64 - 1) as usize);
                if fates.quarters(2) { 0..torn_at } else { torn_at..PAGE }
            } else {
                0..0
            };
            let page = self.shown.iter_mut().skip(number * PAGE).zip(durable).enumerate();
            page.filter(|(at, _)| !kept.contains(at)).for_each(|(_, (to, durable))| *to = durable);
        }
        self.shown.truncate(len);
        self.durable_len = len as u64;
        self.len_given_up = false;
    }

    /// The length after a power loss: a longer one may be kept in part, a shorter one not.
    fn settle_len(&self, fates: &mut Random, keep: u64) -> usize {
        let (shown, durable) = (self.len(), self.durable_len);
        let changed = shown != durable && !self.len_given_up;
        let len = if changed && fates.quarters(keep) {
            shown
        } else if changed && shown > durable && fates.quarters(2) {
            durable + fates.below(shown - durable)
        } else {
            durable
        };
        len as usize
    }
}

fn apply(names: &mut BTreeMap<PathBuf, u64>, changes: impl Iterator<Item = Change>) {
    for (name, number) in changes {
        match number {
            Some(number) => names.insert(name, number),
            None => names.remove(&name),
        };
    }
}

fn from_root(path: &Path) -> io::Result<PathBuf> {
    let mut whole = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => whole.push(name.to_str().ok_or(ErrorKind::InvalidInput)?),
            Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests;
