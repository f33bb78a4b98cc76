//! [`SimDisk`] behind a fuse: after a set number of disk operations the machine halts in the middle
//! of whatever it does, so that a crash can fall between any two steps of an append, a sync, a roll
//! or a recovery. It also holds the two broken promises that need to know which file is meant.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sluice_engine::io::sim::SimDisk;
use sluice_engine::io::{Disk, DiskFile, Entry};

#[derive(Debug, Default)]
struct Control {
    fuse: Option<u64>,
    halted: bool,
    /// Cutting a log file reports success and cuts nothing.
    cuts_nothing: bool,
}

#[derive(Clone)]
pub(crate) struct FusedDisk {
    pub(crate) sim: SimDisk,
    control: Arc<Mutex<Control>>,
}

impl FusedDisk {
    pub(crate) fn new(seed: u64) -> Self {
        Self { sim: SimDisk::new(seed), control: Arc::default() }
    }

    /// Lets the machine halt before the `n`-th change of the disk from now.
    pub(crate) fn arm(&self, n: u64) {
        self.control.lock().fuse = Some(n);
    }

    /// A fresh machine on the same disk.
    pub(crate) fn replace_fuse(&self) {
        let mut control = self.control.lock();
        control.fuse = None;
        control.halted = false;
    }

    pub(crate) fn halted(&self) -> bool {
        self.control.lock().halted
    }

    pub(crate) fn set_cuts_nothing(&self, yes: bool) {
        self.control.lock().cuts_nothing = yes;
    }

    fn alive(&self) -> io::Result<()> {
        if self.halted() { Err(io::Error::other("the simulated machine has halted")) } else { Ok(()) }
    }

    fn change(&self) -> io::Result<()> {
        {
            let mut control = self.control.lock();
            match control.fuse {
                Some(0) => control.halted = true,
                Some(n) => control.fuse = Some(n - 1),
                None => {}
            }
        }
        self.alive()
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FusedFile { disk: self.clone(), path: path.to_owned(), inner })
    }
}

impl Disk for FusedDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.change()?;
        Ok(self.wrap(path, self.sim.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.alive()?;
        Ok(self.wrap(path, self.sim.open(path)?))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.alive()?;
        self.sim.list(directory)
    }

    fn create_dir(&self, directory: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.create_dir(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.remove(path)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.remove_dir(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.rename(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        self.change()?;
        self.sim.sync_dir(directory)
    }
}

struct FusedFile {
    disk: FusedDisk,
    path: PathBuf,
    inner: Arc<dyn DiskFile>,
}

impl DiskFile for FusedFile {
    fn size(&self) -> io::Result<u64> {
        self.disk.alive()?;
        self.inner.size()
    }

    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.disk.change()?;
        self.inner.write_at(position, slices)
    }

    fn read_at(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.disk.alive()?;
        self.inner.read_at(position, buf)
    }

    fn read_cached_at(&self, position: u64, buf: &mut [u8]) -> io::Result<Option<usize>> {
        self.disk.alive()?;
        self.inner.read_cached_at(position, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.change()?;
        self.inner.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.change()?;
        let lies = self.disk.control.lock().cuts_nothing && self.path.extension().is_some_and(|kind| kind == "log");
        if lies { Ok(()) } else { self.inner.set_len(len) }
    }
}
