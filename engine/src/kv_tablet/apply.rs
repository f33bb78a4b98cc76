//! From the buffer to the store: what is synced is applied, and then seen.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Batch, KvTablet, Pending};
use crate::error::Result;
use crate::kv::Change;
use crate::row::key::StoreKey;
use crate::row::value::{Applied, RowValue};

/// Log batches that one write to the store takes.
const BATCHES_MAX: usize = 1_000;

impl KvTablet {
    /// Applies log batches that are on disk, some thousand at most, and lifts the log's gate: whether more are left.
    ///
    /// # Errors
    /// The store's. The bucket is offline then: what the store holds is not known.
    pub fn apply(&self) -> Result<bool> {
        let mut applied = self.applied.lock();
        let synced = self.log.synced();
        let (batches, more) = self.take_synced(synced);
        if batches.is_empty() {
            return Ok(false);
        }
        let after = batches.iter().fold(*applied, |before, batch| Applied {
            offset: batch.end_offset,
            leader_epoch: batch.leader_epoch,
            max_commit_ms: before.max_commit_ms.max(batch.commit_ms),
            live_rows: before.live_rows.map(|rows| rows + batch.live_rows),
        });
        self.unflushed.store(true, Ordering::Release);
        if let Err(error) = self.store.write(&self.changes(&batches, &after)) {
            self.log.take_offline(&error);
            return Err(error);
        }
        *applied = after;
        self.forget(&batches);
        self.log.set_gate(after.offset);
        Ok(more)
    }

    /// The oldest batches that are synced; they stay in the buffer's map until they are in the store.
    fn take_synced(&self, synced: i64) -> (Vec<Batch>, bool) {
        let mut buffer = self.buffer.lock();
        let ready = buffer.batches.iter().take_while(|batch| batch.end_offset <= synced).count();
        (buffer.batches.drain(..ready.min(BATCHES_MAX)).collect(), ready > BATCHES_MAX)
    }

    /// One change for each key, its last, and the applied record.
    fn changes(&self, batches: &[Batch], after: &Applied) -> Vec<Change> {
        let mut last: HashMap<&Arc<[u8]>, &Pending> = HashMap::new();
        for (key, pending) in batches.iter().flat_map(|batch| &batch.keys) {
            last.insert(key, pending);
        }
        let value = |pending: &Pending| {
            let row = pending.row.as_deref()?;
            let value =
                RowValue { schema_id: pending.schema_id, last_offset: pending.offset, ttl_reference_ms: None, row };
            Some(value.encode())
        };
        let mut changes: Vec<Change> = last.into_iter().map(|(key, pending)| (key.to_vec(), value(pending))).collect();
        changes.push((StoreKey::Applied(self.place).encode(), Some(after.encode())));
        changes
    }

    fn forget(&self, batches: &[Batch]) {
        let mut buffer = self.buffer.lock();
        for (key, pending) in batches.iter().flat_map(|batch| &batch.keys) {
            buffer.bytes -= pending.weight(key);
            if buffer.newest.get(key).is_some_and(|newest| newest.offset == pending.offset) {
                buffer.newest.remove(key);
            }
        }
        self.room.notify_all();
    }
}
