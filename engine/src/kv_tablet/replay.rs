//! From the log to the store, when a bucket is first used.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex, RwLock};

use super::{Buffer, KvTablet, Rules};
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Change, KvStore};
use crate::row::batch::{BatchView, head};
use crate::row::key::{Place, StoreKey, write_columns};
use crate::row::value::{Applied, RowValue};
use crate::row::{ChangeType, compacted};
use crate::tablet::{ReadLimit, Reading, Tablet};

/// Bytes of log that are replayed at once.
const CHUNK_BYTES: usize = 4 << 20;
/// Keys that are removed at once.
const REMOVED_MAX: usize = 10_000;

/// Of a store that has followed nothing.
const NOTHING: Applied = Applied { offset: 0, leader_epoch: 0, max_commit_ms: -1, live_rows: Some(0) };

impl KvTablet {
    /// Opens a bucket whose log is open and whose appends have not begun: what the log holds beyond the store is
    /// applied.
    ///
    /// # Errors
    /// The store's and the log's; `Corrupt` where either does not decode.
    pub fn open(log: Arc<Tablet>, store: Arc<dyn KvStore>, rules: Arc<Rules>) -> Result<Self> {
        let place = Place { partition: log.id.partition, bucket: log.id.bucket };
        let mut replay = Replay { log: &log, store: &*store, rules: &rules, place, applied: NOTHING };
        replay.begin()?;
        replay.run()?;
        let applied = replay.applied;
        log.set_gate(applied.offset);
        Ok(Self {
            log,
            rules: RwLock::new(rules),
            store,
            place,
            upserting: Mutex::new(()),
            buffer: Mutex::new(Buffer::default()),
            room: Condvar::new(),
            applied: Mutex::new(applied),
            queued: AtomicBool::new(false),
            unflushed: AtomicBool::new(true),
        })
    }
}

/// Removes all that a store has of a bucket.
///
/// # Errors
/// The store's.
pub(crate) fn clear(store: &dyn KvStore, place: Place) -> Result<()> {
    let prefix = place.row_prefix();
    loop {
        let mut keys: Vec<Change> = Vec::new();
        store.visit(&[&prefix], &mut |key, _| {
            keys.push((key.to_vec(), None));
            keys.len() < REMOVED_MAX
        })?;
        if keys.is_empty() {
            break;
        }
        store.write(&keys)?;
    }
    store.write(&[(StoreKey::Applied(place).encode(), None)])
}

struct Replay<'a> {
    log: &'a Tablet,
    store: &'a dyn KvStore,
    rules: &'a Rules,
    place: Place,
    applied: Applied,
}

impl Replay<'_> {
    /// Where the store stands; a store that knows of what the log does not have begins anew.
    fn begin(&mut self) -> Result<()> {
        let (synced, start) = (self.log.synced(), self.log.offsets()?.log_start);
        let stored = self.store.get(&StoreKey::Applied(self.place).encode())?;
        let stored = stored.map(|value| Applied::decode(&value)).transpose()?;
        let reached = |applied: &Applied| {
            let epoch_end = self.log.epoch_end(applied.leader_epoch).1;
            applied.offset <= synced && (applied.offset <= start || epoch_end >= applied.offset)
        };
        match stored {
            Some(applied) if reached(&applied) => {
                self.applied = applied;
                return Ok(());
            }
            Some(applied) => {
                tracing::warn!(bucket = %self.log.id, offset = applied.offset, synced,
                    "the store is ahead of the log; it is built anew");
                clear(self.store, self.place)?;
            }
            None => {}
        }
        let base = self.log.slot_base();
        if start > base {
            let what = format!(
                "bucket {}: the log begins at {start}, and the store does not know what was before",
                self.log.id
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        let nothing = Applied { offset: base, ..NOTHING };
        self.applied = if self.rules.wal_image { Applied { live_rows: None, ..nothing } } else { nothing };
        Ok(())
    }

    fn run(&mut self) -> Result<()> {
        let end = self.log.synced();
        while self.applied.offset < end {
            let read = self.log.read(self.applied.offset, CHUNK_BYTES, ReadLimit::Appended, true)?;
            let Reading::Done(stored) = read else {
                return Err(Error::new(ErrorKind::Internal, "a blocking read would block"));
            };
            let mut rest: &[u8] = &stored;
            let before = self.applied.offset;
            let mut changes = Vec::new();
            while let Some(len) = head(rest).and_then(|head| head.len) {
                let Some((batch, tail)) = rest.split_at_checked(len) else { break };
                self.take(batch, &mut changes)?;
                rest = tail;
            }
            if self.applied.offset <= before {
                let what = format!("bucket {}: no batch holds offset {before}", self.log.id);
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            changes.push((StoreKey::Applied(self.place).encode(), Some(self.applied.encode())));
            self.store.write(&changes)?;
        }
        Ok(())
    }

    fn take(&mut self, batch: &[u8], changes: &mut Vec<Change>) -> Result<()> {
        let view = BatchView::read(batch)?;
        let schema = &self.rules.schema;
        let mut live_rows = 0;
        for (offset, change, row) in view.rows(schema)? {
            if offset < self.applied.offset || change == ChangeType::UpdateBefore {
                continue;
            }
            live_rows += match change {
                ChangeType::Insert => 1,
                ChangeType::Delete => -1,
                _ => 0,
            };
            let mut key = self.place.row_prefix();
            write_columns(schema, &self.rules.key, &row, &mut key)?;
            let value = if change == ChangeType::Delete {
                None
            } else {
                let mut bytes = Vec::new();
                compacted::write_row(schema, &row, &mut bytes)?;
                let value = RowValue { schema_id: schema.id, last_offset: offset, ttl_reference_ms: None, row: &bytes };
                Some(value.encode())
            };
            changes.push((key, value));
        }
        self.applied = Applied {
            offset: view.head.last_offset().saturating_add(1),
            leader_epoch: view.head.leader_epoch,
            max_commit_ms: self.applied.max_commit_ms.max(view.head.max_timestamp),
            live_rows: self.applied.live_rows.map(|rows| rows + live_rows),
        };
        Ok(())
    }
}
