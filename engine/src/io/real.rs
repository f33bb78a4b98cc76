//! The operating system's files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags};

use super::{Disk, DiskFile, Entry, page_cache};

/// [`Disk`] on the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

struct RealFile(File);

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str() {
                entries.push(Entry { name: name.to_owned(), is_dir: entry.file_type()?.is_dir() });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn create_dir(&self, directory: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = directory;
        while !at.as_os_str().is_empty() && !at.exists() {
            missing.push(at);
            at = at.parent().unwrap_or(Path::new(""));
        }
        for new in missing.into_iter().rev() {
            match fs::create_dir(new) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if let Some(parent) = new.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                self.sync_dir(parent)?;
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, directory: &Path) -> io::Result<()> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

impl DiskFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn write_at(&self, mut position: u64, slices: &[IoSlice<'_>]) -> io::Result<()> {
        // The kernel takes at most IOV_MAX (1024) slices a call, and may write fewer bytes than asked.
        let mut slices = slices.to_vec();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let chunk = rest.get(..rest.len().min(1024)).unwrap_or_default();
            match rustix::io::pwritev(&self.0, chunk, position) {
                Ok(0) if chunk.iter().any(|slice| !slice.is_empty()) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    position += n as u64;
                    let empty = chunk.iter().all(|slice| slice.is_empty());
                    let whole = if empty { chunk.len() } else { 0 };
                    rest = rest.get_mut(whole..).unwrap_or_default();
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn read_at(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, position + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_cached_at(&self, position: u64, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let asked = buf.len();
        match rustix::io::preadv2(&self.0, &mut [IoSliceMut::new(buf)], position, ReadWriteFlags::NOWAIT) {
            // A short answer may be the end of the file or of what is cached: let the caller take the slow way.
            Ok(n) if n == asked => Ok(Some(n)),
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR | Errno::NOSYS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn is_cached(&self, position: u64, len: u64) -> bool {
        page_cache::holds(&self.0, position, len)
    }

    fn send_to(&self, socket: BorrowedFd<'_>, position: u64, len: u64) -> io::Result<u64> {
        let mut at = position;
        let sent = rustix::fs::sendfile(socket, &self.0, Some(&mut at), usize::try_from(len).unwrap_or(usize::MAX))?;
        Ok(sent as u64)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}
