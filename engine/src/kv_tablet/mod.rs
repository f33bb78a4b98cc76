//! One bucket of a PK table: the rows by key, kept equal to the changelog that the bucket's log holds.
//!
//! The way of a change: [`KvTablet::upsert`] reads the old row (first from the buffer of what is not applied yet,
//! then from the store), writes the changelog batch to the log, and puts the new row into the buffer. When the log is
//! synced, [`KvTablet::apply`] moves the buffer's rows into the store, together with the offset up to which it
//! followed the log, and lifts the log's gate to it. So no lookup lags a change that a reader of the log has seen,
//! and the store is never ahead of the durable log (design §5).
//!
//! Every step blocks; the threads around are in [`crate::upserts`].

mod apply;
mod merge;
mod replay;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

pub use merge::{DeleteBehavior, Op, Rules};
pub(crate) use replay::clear;

use crate::catalog::TableInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::KvStore;
use crate::row::batch::{Destination, Entry, changelog};
use crate::row::key::{Place, StoreKey};
use crate::row::value::{Applied, RowValue};
use crate::row::{Row, compacted};
use crate::tablet::{Appended, Tablet};
use merge::{Effect, Merged};

/// Bytes of rows that may wait to be applied; beyond it writers wait.
const BUFFER_MAX: usize = 64 << 20;
/// How long a writer waits for room.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// One bucket of a PK table.
pub struct KvTablet {
    /// Its log.
    pub log: Arc<Tablet>,
    /// Those of the newest version of the schema that anyone came with.
    rules: RwLock<Arc<Rules>>,
    store: Arc<dyn KvStore>,
    place: Place,
    /// Held over an upsert: one at a time.
    upserting: Mutex<()>,
    buffer: Mutex<Buffer>,
    /// The buffer got smaller.
    room: Condvar,
    /// What the store has followed; held over an apply.
    applied: Mutex<Applied>,
    /// Whether the appliers have it in their queue.
    pub(crate) queued: AtomicBool,
    /// Whether the store holds what a crash would lose.
    unflushed: AtomicBool,
}

/// A row, or its absence, that the store does not hold yet.
#[derive(Clone)]
struct Pending {
    /// In the store's encoding.
    row: Option<Arc<[u8]>>,
    /// Version of the schema that it is encoded in.
    schema_id: i16,
    /// Offset of the change that made it.
    offset: i64,
}

/// A log batch that is not applied yet.
struct Batch {
    end_offset: i64,
    leader_epoch: i32,
    commit_ms: i64,
    live_rows: i64,
    /// The last state of each key that it changes.
    keys: Vec<(Arc<[u8]>, Pending)>,
}

#[derive(Default)]
struct Buffer {
    newest: HashMap<Arc<[u8]>, Pending>,
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// What an upsert makes known of a batch beyond its rows.
#[derive(Default)]
pub struct Closing {
    /// The producer's entry.
    pub entry: Option<Entry>,
    /// Other buckets that the range's rows went to: their logs, and where the rows' log batches end.
    pub elsewhere: Vec<(Arc<Tablet>, Destination)>,
}

impl KvTablet {
    /// Whether what it has applied may be lost by a crash and would be replayed.
    #[must_use]
    pub fn is_unflushed(&self) -> bool {
        self.unflushed.load(Ordering::Acquire)
    }

    /// The store was flushed.
    pub fn note_flushed(&self) {
        self.unflushed.store(false, Ordering::Release);
    }

    /// The rules now: those of a row that was read before are among them.
    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Goes on with a newer version of the schema, if the table's is newer.
    pub(crate) fn adopt(&self, info: &TableInfo) {
        let newer = |known: i16| info.typed.as_ref().is_some_and(|table| table.schema.id > known);
        if !newer(self.rules.read().schema.id) {
            return;
        }
        let mut rules = self.rules.write();
        if let Some(new) = info.rules().filter(|_| newer(rules.schema.id)) {
            *rules = Arc::new(new);
        }
    }

    /// Applies operations in order, all or none, and appends what they change as one log batch; where they change
    /// nothing, an empty one that takes one offset (table-model §7.2).
    ///
    /// # Errors
    /// `DeletesDisabled`; `InvalidArgument` for a row that breaks a rule; `Busy` where too much waits to be applied;
    /// the store's and the log's. Nothing is applied then.
    pub fn upsert(&self, ops: &[Op], closing: Closing) -> Result<Appended> {
        let _one = self.upserting.lock();
        self.wait_for_room()?;
        let rules = self.rules();
        let keys = ops.iter().map(|op| self.key_of(&rules, &op.row)).collect::<Result<Vec<_>>>()?;
        let merged = Merged::new(&rules, self.olds(&rules, ops, &keys)?, ops, &keys)?;
        let destinations = closing.elsewhere.iter().map(|(_, destination)| *destination).collect();
        let batch = changelog(&rules.schema, &merged.changes, closing.entry, destinations)?;
        let elsewhere = closing.elsewhere.into_iter().map(|(tablet, to)| (tablet, to.end_offset)).collect();
        let appended = self.log.append_closing(batch.into(), elsewhere)?;
        self.remember(merged, rules.schema.id, &appended);
        Ok(appended)
    }

    /// The rows of keys, as applied: `None` where there is none. Only the key's columns of each row given are read.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of the wrong type; the store's.
    pub fn lookup(&self, keys: &[Row]) -> Result<Vec<Option<Row>>> {
        let rules = self.rules();
        let keys = keys.iter().map(|key| self.key_of(&rules, key).map(|key| key.to_vec()));
        let found = self.store.get_many(&keys.collect::<Result<Vec<_>>>()?)?;
        // No older than what was found.
        let rules = self.rules();
        found.into_iter().map(|value| value.map(|value| row_of(&rules, &value)).transpose()).collect()
    }

    /// Visits all rows as applied at one moment: first told is the offset that the store had followed the log to.
    ///
    /// # Errors
    /// The store's; `Corrupt` for a value that does not decode.
    pub fn snapshot(&self, start: impl FnOnce(i64), mut each: impl FnMut(Row) -> bool) -> Result<()> {
        let applied_key = StoreKey::Applied(self.place).encode();
        let (mut start, mut failed, mut offset, mut rules) = (Some(start), None, 0, None);
        self.store.visit(&[&applied_key, &self.place.row_prefix()], &mut |key, value| {
            if key == applied_key {
                return match Applied::decode(value) {
                    Ok(applied) => {
                        offset = applied.offset;
                        true
                    }
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                };
            }
            if let Some(start) = start.take() {
                start(offset);
            }
            // Taken once the store's state is fixed: no row of it is of a newer version.
            match row_of(rules.get_or_insert_with(|| self.rules()), value) {
                Ok(row) => each(row),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        })?;
        if let Some(start) = start.take() {
            start(offset);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Live rows, where they are counted.
    #[must_use]
    pub fn live_rows(&self) -> Option<i64> {
        self.applied.lock().live_rows
    }

    fn key_of(&self, rules: &Rules, row: &Row) -> Result<Arc<[u8]>> {
        let mut key = self.place.row_prefix();
        crate::row::key::write_columns(&rules.schema, &rules.key, row, &mut key)?;
        Ok(key.into())
    }

    /// The rows that the operations meet, by key; those that need none are left out.
    fn olds(&self, rules: &Rules, ops: &[Op], keys: &[Arc<[u8]>]) -> Result<HashMap<Arc<[u8]>, Option<Row>>> {
        let mut olds = HashMap::new();
        let mut missing = Vec::new();
        {
            let buffer = self.buffer.lock();
            for (_, key) in ops.iter().zip(keys).filter(|(op, _)| rules.reads_old(op)) {
                if olds.contains_key(key) {
                    continue;
                }
                let old = match buffer.newest.get(key) {
                    Some(Pending { row: Some(row), schema_id, .. }) => {
                        Some(compacted::read_row(&rules.schema, *schema_id, row)?)
                    }
                    Some(Pending { row: None, .. }) => None,
                    None => {
                        missing.push(Arc::clone(key));
                        None
                    }
                };
                olds.insert(Arc::clone(key), old);
            }
        }
        // What is not in the buffer is in the store by now, and only an upsert puts anything into the buffer.
        let found = self.store.get_many(&missing.iter().map(|key| key.to_vec()).collect::<Vec<_>>())?;
        for (key, value) in missing.into_iter().zip(found) {
            if let Some(value) = value {
                olds.insert(key, Some(row_of(rules, &value)?));
            }
        }
        Ok(olds)
    }

    fn wait_for_room(&self) -> Result<()> {
        let mut buffer = self.buffer.lock();
        let full = |buffer: &mut Buffer| buffer.bytes > BUFFER_MAX;
        if self.room.wait_while_for(&mut buffer, full, ROOM_PATIENCE).timed_out() {
            let what = format!("bucket {}: too many rows wait to be applied", self.log.id);
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(())
    }

    /// Puts what a log batch changed into the buffer.
    fn remember(&self, merged: Merged, schema_id: i16, appended: &Appended) {
        let pending = |(key, effect): (Arc<[u8]>, Effect)| {
            (key, Pending { row: effect.row, schema_id, offset: appended.base_offset + effect.change as i64 })
        };
        let keys: Vec<_> = merged.effects.into_iter().map(pending).collect();
        let mut buffer = self.buffer.lock();
        for (key, pending) in &keys {
            buffer.bytes += pending.weight(key);
            buffer.newest.insert(Arc::clone(key), pending.clone());
        }
        buffer.batches.push_back(Batch {
            end_offset: appended.end_offset,
            leader_epoch: self.log.epoch.0,
            commit_ms: appended.append_time_ms.unwrap_or(-1),
            live_rows: merged.live_rows,
            keys,
        });
    }
}

/// The row of a stored value, whichever version of the schema it is of.
fn row_of(rules: &Rules, value: &[u8]) -> Result<Row> {
    let value = RowValue::decode(value)?;
    compacted::read_row(&rules.schema, value.schema_id, value.row)
}

impl Pending {
    /// Bytes that it takes, roughly.
    fn weight(&self, key: &[u8]) -> usize {
        key.len() + self.row.as_ref().map_or(0, |row| row.len()) + 100
    }
}

#[cfg(test)]
mod tests;
