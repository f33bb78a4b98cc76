//! [`KvStore`] in memory, for the simulator: a crash keeps what was written, as a synced WAL does,
//! unless it is told to lie.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Change, KvStore, Visitor};
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug, Default)]
struct Inner {
    durable: BTreeMap<Vec<u8>, Vec<u8>>,
    unsynced: Vec<Vec<Change>>,
    lies: bool,
    unlogged: bool,
    fails: bool,
}

/// An in-memory store that survives a simulated crash.
#[derive(Debug, Clone, Default)]
pub struct SimStore(Arc<Mutex<Inner>>);

impl SimStore {
    /// One whose writes are durable only after a flush, as a PK table's.
    #[must_use]
    pub fn unlogged() -> Self {
        let store = Self::default();
        store.0.lock().unlogged = true;
        store
    }

    /// How many writes a crash may still take back.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.0.lock().unsynced.len()
    }

    /// Makes writes return before they are durable: a checker must notice.
    pub fn set_lies(&self, lies: bool) {
        self.0.lock().lies = lies;
    }

    /// Makes writes fail.
    pub fn set_fails(&self, fails: bool) {
        self.0.lock().fails = fails;
    }

    /// Loses the unsynced suffix from its `keep`-th write on.
    pub fn crash(&self, keep: usize) {
        let mut inner = self.0.lock();
        let unsynced = std::mem::take(&mut inner.unsynced);
        for changes in unsynced.into_iter().take(keep) {
            apply(&mut inner.durable, changes);
        }
    }

    fn view(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let inner = self.0.lock();
        let mut view = inner.durable.clone();
        for changes in &inner.unsynced {
            apply(&mut view, changes.clone());
        }
        view
    }
}

fn apply(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, changes: Vec<Change>) {
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }
}

impl KvStore for SimStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.view().remove(key))
    }

    fn visit(&self, prefixes: &[&[u8]], each: Visitor<'_>) -> Result<()> {
        let view = self.view();
        for prefix in prefixes {
            let under = view.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix));
            for (key, value) in under {
                if !each(key, value) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut inner = self.0.lock();
        if inner.fails {
            return Err(Error::new(ErrorKind::StorageFailed, "writing keys: simulated failure"));
        }
        if inner.lies || inner.unlogged {
            inner.unsynced.push(changes.to_vec());
        } else {
            apply(&mut inner.durable, changes.to_vec());
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut inner = self.0.lock();
        if inner.fails {
            return Err(Error::new(ErrorKind::StorageFailed, "flushing keys: simulated failure"));
        }
        if !inner.lies {
            let unsynced = std::mem::take(&mut inner.unsynced);
            unsynced.into_iter().for_each(|changes| apply(&mut inner.durable, changes));
        }
        Ok(())
    }
}
