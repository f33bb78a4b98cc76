//! Syncing: what was appended becomes durable, waiters are told, state files follow.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Tablet, append};
use crate::config::Visibility;
use crate::error::{Error, ErrorKind, Result};
use crate::io::replace_file;
use crate::log::points::RecoveryPoint;
use crate::log::segment::{Segment, SegmentState};

/// A closing in this log whose range has rows in others.
pub(super) struct OpenClosing {
    pub(super) offset: i64,
    pub(super) segment: i64,
    pub(super) position: u64,
    /// The others, and where the rows' log batches end there.
    pub(super) elsewhere: Vec<(Arc<Tablet>, i64)>,
}

impl OpenClosing {
    /// The recovery point that it allows.
    pub(super) fn point(&self) -> RecoveryPoint {
        RecoveryPoint { offset: self.offset, segment: self.segment, position: self.position }
    }
}

impl Tablet {
    /// Whether anything appended is not yet on disk.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.end.load(Ordering::Acquire)
    }

    /// Makes everything appended so far durable and publishes it. One sync of a tablet runs at a time.
    ///
    /// # Errors
    /// The disk's. The bucket is offline then: after a failed sync the page cache proves nothing,
    /// so nothing is tried again on it (see `repair`).
    pub fn sync(&self) -> Result<()> {
        // Two at once could publish in the wrong order, or one publish what the other has yet to name.
        let _one = self.syncing.lock();
        if self.offline_reason().is_some() || !self.is_dirty() {
            return Ok(());
        }
        self.urgent.store(false, Ordering::Release);
        let outcome = self.sync_files();
        if let Err(error) = &outcome {
            self.repairable.store(true, Ordering::Release);
            self.take_offline(error);
        }
        outcome
    }

    fn sync_files(&self) -> Result<()> {
        let io = |error: std::io::Error| Error::io(format!("syncing bucket {}", self.id), &error);
        let segments = Arc::clone(&self.segments.read());
        let Some(active) = segments.last() else { return Ok(()) };
        let (offset, position) = {
            let tail = active.tail.read();
            (tail.end_offset, tail.end_position)
        };
        // After the segments: a segment that is in the list has set its flag by now.
        let (from, names_dirty, states) = {
            let mut progress = self.progress.lock();
            let names_dirty = std::mem::take(&mut progress.names_dirty);
            (progress.segment, names_dirty, std::mem::take(&mut progress.states))
        };
        for segment in segments.iter().filter(|segment| segment.base_offset >= from) {
            segment.file.sync().map_err(io)?;
        }
        if names_dirty {
            self.sync_names().map_err(io)?;
        }
        self.publish(offset);
        let newest = RecoveryPoint { offset, segment: active.base_offset, position };
        let held = self.settle_closings();
        let settled = held.map_or(newest, |held| if held.offset < offset { held } else { newest });
        let mut point = Some(settled);
        if let Err(error) = self.store_epochs() {
            // Recovery finds the epochs in the batches as long as no recovery point passes them.
            tracing::warn!(bucket = %self.id, %error, "the epoch history waits for the next sync");
            point = None;
        }
        if let Err(error) = self.store_states(states, &segments, active.base_offset, settled.offset) {
            // They only save a scan: a full disk must not take the bucket offline for them.
            tracing::warn!(bucket = %self.id, %error, "segment states wait for the next sync");
        }
        let mut progress = self.progress.lock();
        progress.segment = active.base_offset;
        progress.point = point.or(progress.point);
        Ok(())
    }

    /// Forgets the oldest closings that are on disk everywhere; the point of the first that is not.
    fn settle_closings(&self) -> Option<RecoveryPoint> {
        let mut progress = self.progress.lock();
        let durable = |open: &OpenClosing| open.elsewhere.iter().all(|(tablet, end)| tablet.synced() >= *end);
        while progress.closings.front().is_some_and(durable) {
            progress.closings.pop_front();
        }
        progress.closings.front().map(OpenClosing::point)
    }

    /// Makes the names of segments durable, and those of the directories above them: a directory that
    /// was made just before a failure may be there without being durable.
    pub(super) fn sync_names(&self) -> std::io::Result<()> {
        let inside = |directory: &&Path| directory.starts_with(&self.around.root);
        self.directory.ancestors().take_while(inside).try_for_each(|directory| self.around.disk.sync_dir(directory))
    }

    fn publish(&self, offset: i64) {
        self.synced.store(offset, Ordering::Release);
        self.release();
        if let Some(told) = self.on_sync.get() {
            told();
        }
    }

    /// Answers those whose offset is on disk and below the gate, and tells the readers.
    pub(super) fn release(&self) {
        let mut done = Vec::new();
        {
            let mut waiters = self.durable_waiters.lock();
            let (reached, synced) = (self.reached(), self.synced.load(Ordering::Acquire));
            let mut at = 0;
            while at < waiters.len() {
                if waiters.get(at).is_some_and(|(wanted, _)| *wanted <= reached) {
                    done.push(waiters.swap_remove(at).1);
                } else {
                    at += 1;
                }
            }
            // Those that wait for the gate alone need no sync.
            if waiters.iter().any(|(wanted, _)| *wanted > synced) {
                self.urgent.store(true, Ordering::Release);
            }
        }
        if self.options.read().visibility == Visibility::Durable || self.gate.load(Ordering::Acquire) != i64::MAX {
            self.notify_watchers();
        }
        for waiter in done {
            let _ = waiter.send(Ok(()));
        }
    }

    fn store_epochs(&self) -> Result<()> {
        let state = self.state.lock();
        if !std::mem::take(&mut self.progress.lock().epochs_dirty) {
            return Ok(());
        }
        let stored = state.store(&*self.around.disk, &self.directory);
        self.progress.lock().epochs_dirty = stored.is_err();
        stored
    }

    /// Makes durable what recovery needs where segments at the log's start are gone: the names and the
    /// states of those that stay.
    pub(super) fn settle(&self) -> Result<()> {
        let _one = self.syncing.lock();
        let segments = Arc::clone(&self.segments.read());
        let Some(active) = segments.last() else { return Ok(()) };
        if self.progress.lock().names_dirty {
            self.sync_names().map_err(|error| Error::io(format!("syncing bucket {}", self.id), &error))?;
        }
        let states = std::mem::take(&mut self.progress.lock().states);
        let held = self.settle_closings().map_or(i64::MAX, |held| held.offset);
        self.store_states(states, &segments, active.base_offset, self.synced.load(Ordering::Acquire).min(held))
    }

    /// Writes the state files whose bytes are now synced; of several for one segment only the last.
    /// What cannot be written yet, or fails, is kept for the next sync.
    fn store_states(
        &self,
        states: Vec<SegmentState>,
        segments: &[Arc<Segment>],
        active: i64,
        synced: i64,
    ) -> Result<()> {
        // A segment that was rolled after this sync took its snapshot is not synced to its end yet.
        let ready = |state: &SegmentState| state.tail.end_offset <= synced && state.base_offset <= active;
        let (ready, mut later): (Vec<_>, Vec<_>) = states.into_iter().partition(ready);
        let (mut outcome, mut failed) = (Ok(()), Vec::new());
        for (at, state) in ready.iter().enumerate() {
            let newest = !ready.iter().skip(at + 1).any(|other| other.base_offset == state.base_offset);
            let segment = segments.iter().find(|segment| segment.base_offset == state.base_offset);
            let Some(segment) = segment.filter(|_| newest) else { continue };
            if let Err(error) = replace_file(&*self.around.disk, &segment.state_path(), &state.encode()) {
                outcome = Err(Error::io(format!("writing a segment state of bucket {}", self.id), &error));
                failed.push(state.clone());
            }
        }
        let mut progress = self.progress.lock();
        // Oldest first: of several for one segment the last is the newest.
        failed.append(&mut later);
        failed.append(&mut progress.states);
        progress.states = failed;
        outcome
    }

    /// Syncs everything, writes the state of the active segment and refuses all further appends, for a
    /// clean stop.
    ///
    /// # Errors
    /// The disk's.
    pub fn close(&self) -> Result<()> {
        if let Some(error) = self.offline_reason() {
            return Err(error);
        }
        self.sync()?;
        let writer = self.writer.lock();
        // What came in since: no append runs while the writer is held.
        self.sync()?;
        *self.offline.write() = Some(Error::new(ErrorKind::ShuttingDown, "the server is stopping"));
        let segments = Arc::clone(&self.segments.read());
        let Some(active) = segments.last() else { return Ok(()) };
        // The active segment may be new and empty: its name must be durable too.
        active
            .file
            .sync()
            .and_then(|()| self.around.disk.sync_dir(&self.directory))
            .map_err(|error| Error::io(format!("closing bucket {}", self.id), &error))?;
        // Behind any older state of the same segment that still waits: the newest is the one written.
        let state = append::active_state(active, &active.tail.read(), &writer);
        let mut pending = std::mem::take(&mut self.progress.lock().states);
        pending.push(state);
        if let Some(held) = self.settle_closings() {
            let what = format!("bucket {}: the range closed at {} is not on disk everywhere", self.id, held.offset);
            return Err(Error::new(ErrorKind::StorageFailed, what));
        }
        self.store_states(pending, &segments, active.base_offset, i64::MAX)?;
        self.store_epochs()
    }
}
