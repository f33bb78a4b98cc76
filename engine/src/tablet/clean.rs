//! Giving up old records: retention by time and size, and DeleteRecords.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Tablet, out_of_range};
use crate::error::{Error, Result};
use crate::io::remove_if_there;
use crate::log::segment::Segment;

impl Tablet {
    /// Applies `retention.ms` and `retention.bytes`; returns how many segments went.
    ///
    /// Whole segments only, and only what is on disk; an expired active segment is closed first.
    ///
    /// # Errors
    /// The disk's.
    pub fn apply_retention(&self) -> Result<usize> {
        self.check_online()?;
        let options = self.options();
        let now_ms = self.around.clock.now_ms();
        let expired = |segment: &Segment| {
            let newest = segment.tail.read().max_timestamp;
            options.retention_ms >= 0 && newest >= 0 && now_ms.saturating_sub(newest) > options.retention_ms
        };
        {
            let mut writer = self.writer.lock();
            self.check_online()?;
            let active = self.segments.read().last().cloned();
            if let Some(active) = active.filter(|active| active.tail.read().end_position > 0 && expired(active)) {
                tracing::debug!(bucket = %self.id, segment = active.base_offset, "closing an expired segment");
                self.roll(&mut writer)?;
            }
        }
        let segments = Arc::clone(&self.segments.read());
        let mut size: u64 = segments.iter().map(|segment| segment.tail.read().end_position).sum();
        let synced = self.synced.load(Ordering::Acquire);
        let mut start = None;
        for segment in segments.get(..segments.len().saturating_sub(1)).unwrap_or_default() {
            let (len, end) = {
                let tail = segment.tail.read();
                (tail.end_position, tail.end_offset)
            };
            let oversized = u64::try_from(options.retention_bytes).is_ok_and(|bound| size - len >= bound);
            if end > synced || !(oversized || expired(segment)) {
                break;
            }
            size -= len;
            start = Some(end);
        }
        // Without a new start there may be what a crash kept from removal.
        self.move_start(start.unwrap_or_else(|| self.log_start.load(Ordering::Acquire)))
    }

    /// Gives up all records below `before`; `None` is the high watermark. Returns the new log start.
    ///
    /// # Errors
    /// `OffsetOutOfRange` above the high watermark; the disk's.
    pub fn delete_records(&self, before: Option<i64>) -> Result<i64> {
        self.check_online()?;
        let high_watermark = self.high_watermark();
        let before = before.unwrap_or(high_watermark);
        let start = self.log_start.load(Ordering::Acquire);
        if before < 0 || before > high_watermark {
            return Err(out_of_range(self.id, before, start, high_watermark));
        }
        if before > self.synced.load(Ordering::Acquire) {
            // The log start must never lie beyond what a crash leaves.
            self.sync()?;
        }
        self.move_start(before)?;
        Ok(self.log_start.load(Ordering::Acquire))
    }

    /// Moves the log start up, durably, then removes the segments wholly below it.
    fn move_start(&self, to: i64) -> Result<usize> {
        {
            let mut state = self.state.lock();
            if to > state.log_start {
                let mut next = state.clone();
                next.log_start = to;
                next.changelog_start = to;
                next.store(&*self.around.disk, &self.directory)?;
                *state = next;
                self.log_start.store(to, Ordering::Release);
            }
        }
        if self.segments.read().get(1).is_some_and(|second| second.base_offset <= to) {
            self.settle()?;
        }
        // Under the writer's lock: a roll must not put back a list that holds what goes here.
        let writer = self.writer.lock();
        let mut list = self.segments.write();
        let gone = list.iter().zip(list.iter().skip(1)).take_while(|(_, next)| next.base_offset <= to).count();
        let removed: Vec<_> = list.iter().take(gone).cloned().collect();
        if gone > 0 {
            *list = Arc::new(list.iter().skip(gone).cloned().collect());
        }
        drop(list);
        drop(writer);
        for segment in &removed {
            for path in [segment.path.clone(), segment.state_path()] {
                remove_if_there(&*self.around.disk, &path)
                    .map_err(|error| Error::io(format!("removing {}", path.display()), &error))?;
            }
        }
        if !removed.is_empty() {
            self.notify_watchers();
        }
        Ok(removed.len())
    }
}
