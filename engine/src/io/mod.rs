//! The disk as the log sees it: every log and state file goes through [`Disk`], so that a simulated
//! disk can lose, tear and refuse what a real one may.
//!
//! Rules that the trait fixes: `write_at` reaches the page cache and no further; `sync` makes the
//! file's bytes and length durable, `sync_dir` its name. What was not synced may be lost page by
//! page, in any order. After a failed `sync` nothing is known about the pages it covered.

mod page_cache;
mod real;
pub mod sim;

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

pub use real::RealDisk;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The last component of its path.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A file system, real or simulated.
pub trait Disk: Send + Sync + 'static {
    /// Creates a file for reading and writing; an existing one is emptied.
    ///
    /// # Errors
    /// The operating system's.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// The operating system's, `NotFound` among them.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Lists a directory, in name order.
    ///
    /// # Errors
    /// The operating system's, `NotFound` among them.
    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>>;
    /// Creates a directory and its parents, and syncs each directory that gained a name.
    ///
    /// # Errors
    /// The operating system's.
    fn create_dir(&self, directory: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's, `NotFound` among them.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all it holds; a missing one is no error.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_dir(&self, directory: &Path) -> io::Result<()>;
    /// Renames a file over another.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
}

/// An open file. Reads and writes carry their position and may run at the same time.
pub trait DiskFile: Send + Sync {
    /// The file's length in bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn size(&self) -> io::Result<u64>;
    /// Writes all of `slices` one after the other from `position`. On an error an unknown part of
    /// them is in the file.
    ///
    /// # Errors
    /// The operating system's.
    fn write_at(&self, position: u64, slices: &[IoSlice<'_>]) -> io::Result<()>;
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// The operating system's.
    fn read_at(&self, position: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Like [`DiskFile::read_at`], but only what is in memory already: `Ok(None)` when the call
    /// would wait for the disk.
    ///
    /// # Errors
    /// The operating system's.
    fn read_cached_at(&self, position: u64, buf: &mut [u8]) -> io::Result<Option<usize>>;
    /// Whether all of a range is in memory, so that [`DiskFile::send_to`] would not wait for the disk.
    fn is_cached(&self, _position: u64, _len: u64) -> bool {
        false
    }
    /// Sends up to `len` bytes to a socket without copying them; how many went.
    ///
    /// # Errors
    /// The operating system's, `WouldBlock` when the socket is full; `Unsupported` where there is no
    /// such way (then [`DiskFile::is_cached`] is never true).
    fn send_to(&self, _socket: BorrowedFd<'_>, _position: u64, _len: u64) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes bytes and length durable.
    ///
    /// # Errors
    /// The operating system's; never retry on it.
    fn sync(&self) -> io::Result<()>;
    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The operating system's.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// Reads a whole file.
///
/// # Errors
/// The disk's.
pub fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let mut bytes = vec![0; file.size()? as usize];
    let n = file.read_at(0, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Removes a file; a missing one is no error.
///
/// # Errors
/// The disk's.
pub fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

const COPY_CHUNK: usize = 1 << 20;

/// Copies bytes `from..to` of one file to `at` of another, or of the same; less where the file ends before.
///
/// # Errors
/// The disk's.
pub fn copy_range(source: &dyn DiskFile, from: u64, to: u64, target: &dyn DiskFile, at: u64) -> io::Result<()> {
    let mut chunk = vec![0; COPY_CHUNK.min((to - from) as usize)];
    let mut done = from;
    while done < to {
        let want = chunk.len().min((to - done) as usize);
        let n = source.read_at(done, chunk.get_mut(..want).unwrap_or_default())?;
        if n == 0 {
            break;
        }
        target.write_at(at + (done - from), &[IoSlice::new(chunk.get(..n).unwrap_or_default())])?;
        done += n as u64;
    }
    Ok(())
}

/// Replaces a file as a whole: `<path>.tmp`, sync, rename, sync of the directory.
///
/// # Errors
/// The disk's; the old content is then still there or the new one is.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let file = disk.create(&temporary)?;
    file.write_at(0, &[IoSlice::new(bytes)])?;
    file.sync()?;
    disk.rename(&temporary, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    disk.sync_dir(directory.unwrap_or(Path::new(".")))
}
