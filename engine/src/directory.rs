//! The data directory as a whole: lock, version, clean mark, recovery points
//! (docs/storage-format.md §§1, 5).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::io::{Disk, read_file, remove_if_there, replace_file};
use crate::log::checked::{self, Kind};
use crate::log::points::{self, RecoveryPoint};
use crate::types::BucketId;

/// The newest directory format this server reads and the one it writes.
pub const FORMAT_VERSION: u32 = 1;

const VERSION: &str = "VERSION";
const CLEAN: &str = "CLEAN";
const POINTS: &str = "recovery-points";

/// A directory that this process holds.
pub struct DataDirectory {
    root: PathBuf,
    /// Holds flock(2) as long as it is open. Not a file of the log: the lock is the system's.
    _lock: Option<File>,
    clean: bool,
    written: BTreeMap<BucketId, RecoveryPoint>,
}

impl DataDirectory {
    /// Creates or opens `root`, takes its lock and checks its version.
    pub fn lock(disk: &dyn Disk, root: &Path) -> Result<Self> {
        let what = |doing: &str| format!("{doing} the data directory {}", root.display());
        disk.create_dir(root).map_err(|error| Error::io(what("creating"), &error))?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(root.join("LOCK"));
        let mut lock = lock.map_err(|error| Error::io(what("locking"), &error))?;
        if lock.try_lock().is_err() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("another server uses the data directory {}", root.display()),
            ));
        }
        let note = lock.set_len(0).and_then(|()| lock.write_all(format!("{}\n", std::process::id()).as_bytes()));
        note.map_err(|error| Error::io(what("writing to"), &error))?;
        Self::open(disk, root, Some(lock))
    }

    /// The same without a lock, for simulated disks.
    pub fn open(disk: &dyn Disk, root: &Path, lock: Option<File>) -> Result<Self> {
        check_version(disk, root)?;
        let clean = read_file(disk, &root.join(CLEAN)).is_ok_and(|bytes| checked::open(Kind::Clean, &bytes).is_ok());
        Ok(Self { root: root.to_owned(), _lock: lock, clean, written: BTreeMap::new() })
    }

    /// Whether the last server to use it stopped cleanly; a new directory counts as not.
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// The recovery points that were stored last; none where the file is missing or damaged.
    pub fn read_points(&self, disk: &dyn Disk) -> BTreeMap<BucketId, RecoveryPoint> {
        let stored = read_file(disk, &self.root.join(POINTS));
        stored.ok().and_then(|bytes| points::decode(&bytes).ok()).unwrap_or_default()
    }

    /// Removes the clean mark, durably: appends may follow.
    pub fn begin(&mut self, disk: &dyn Disk) -> Result<()> {
        let doing = "removing the clean mark";
        remove_if_there(disk, &self.root.join(CLEAN)).map_err(|error| Error::io(doing, &error))?;
        disk.sync_dir(&self.root).map_err(|error| Error::io(doing, &error))
    }

    /// Stores recovery points if they changed.
    pub fn store_points(&mut self, disk: &dyn Disk, points: BTreeMap<BucketId, RecoveryPoint>) -> Result<()> {
        if points == self.written {
            return Ok(());
        }
        replace_file(disk, &self.root.join(POINTS), &points::encode(&points))
            .map_err(|error| Error::io("writing recovery points", &error))?;
        self.written = points;
        Ok(())
    }

    /// Writes the clean mark.
    pub fn finish(&mut self, disk: &dyn Disk) -> Result<()> {
        replace_file(disk, &self.root.join(CLEAN), &checked::seal(Kind::Clean, b""))
            .map_err(|error| Error::io("writing the clean mark", &error))
    }
}

fn check_version(disk: &dyn Disk, root: &Path) -> Result<()> {
    let path = root.join(VERSION);
    let text = match read_file(disk, &path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return replace_file(disk, &path, format!("sluice-data {FORMAT_VERSION}\n").as_bytes())
                .map_err(|error| Error::io("writing VERSION", &error));
        }
        Err(error) => return Err(Error::io("reading VERSION", &error)),
    };
    match text.trim().strip_prefix("sluice-data ").and_then(|version| version.parse::<u32>().ok()) {
        Some(version) if version <= FORMAT_VERSION => Ok(()),
        Some(version) => {
            let message = format!(
                "the data directory {} has format {version}; this server reads formats up to {FORMAT_VERSION}",
                root.display()
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
        None => Err(Error::new(ErrorKind::Unsupported, format!("{} is no data directory of sluice", root.display()))),
    }
}
