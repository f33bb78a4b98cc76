//! After a failed sync: the unsynced part is written to new files and synced before it serves again.
//!
//! The kernel reports a failed write-back once and may then call the pages clean, so a second sync of
//! the same file proves nothing. What can still be read and whose checksums hold is copied; the log
//! ends at the first batch whose do not.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::recover::{self, Source};
use super::{Shape, Tablet};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Disk, copy_range};
use crate::log::segment::log_path;

impl Tablet {
    /// Whether a sync failed and nothing has been done about it.
    #[must_use]
    pub fn needs_repair(&self) -> bool {
        self.repairable.load(Ordering::Acquire)
    }

    /// Rewrites what may not be on disk and brings the bucket back online.
    ///
    /// # Errors
    /// The disk's; the bucket stays offline.
    pub fn repair(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let _one = self.syncing.lock();
        let io = |error: std::io::Error| Error::io(format!("repairing bucket {}", self.id), &error);
        let (from, point) = {
            let progress = self.progress.lock();
            (progress.segment, progress.point)
        };
        let segments = std::sync::Arc::clone(&self.segments.read());
        for segment in segments.iter().filter(|segment| segment.base_offset >= from) {
            let len = segment.tail.read().end_position;
            rewrite(&*self.around.disk, &log_path(&self.directory, segment.base_offset), len).map_err(io)?;
        }
        self.sync_names().map_err(io)?;
        let loaded = recover::load(&Source {
            disk: &*self.around.disk,
            id: self.id,
            shape: Shape { kind: self.kind, hashed: self.hashed },
            directory: &self.directory,
            quarantine: &self.around.root.join("quarantine"),
            point,
            clean: false,
            now_ms: self.around.clock.now_ms(),
        })?;
        if self.hashed && loaded.end < self.end.load(Ordering::Acquire) {
            // Ranges that were closed elsewhere may count on what is gone, and a log that grows again would hide it.
            let what =
                format!("bucket {}: unsynced rows were lost; a restart of the server settles what counts", self.id);
            self.repairable.store(false, Ordering::Release);
            return Err(Error::new(ErrorKind::StorageFailed, what));
        }
        self.cursors.lock().clear();
        self.adopt(&mut writer, loaded);
        *self.offline.write() = None;
        self.repairable.store(false, Ordering::Release);
        tracing::warn!(bucket = %self.id, end = self.synced(), "the bucket is back online");
        self.notify_watchers();
        Ok(())
    }
}

fn rewrite(disk: &dyn Disk, path: &Path, len: u64) -> std::io::Result<()> {
    let old = disk.open(path)?;
    let temporary = path.with_extension("log.tmp");
    let new = disk.create(&temporary)?;
    copy_range(&*old, 0, len, &*new, 0)?;
    new.sync()?;
    disk.rename(&temporary, path)
}
