//! The PK tables that are open: a store each, opened when a bucket is first used.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::catalog::TableInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::kv::{KvStore, TabletStores};
use crate::kv_tablet::{KvTablet, Rules, clear};
use crate::row::key::{Place, StoreKey};
use crate::row::value::{Format, RowEncoding};
use crate::tablet::Tablet;
use crate::types::{BucketId, TableId};
use crate::upserts::Appliers;

/// A table's store, once it is open.
type Slot = Arc<Mutex<Option<Arc<dyn KvStore>>>>;

/// The open stores and buckets.
pub(crate) struct KvTables {
    root: PathBuf,
    stores: TabletStores,
    appliers: Arc<Appliers>,
    /// Each table's store; its lock is held while a bucket of the table is opened.
    tables: Mutex<HashMap<TableId, Slot>>,
    tablets: RwLock<HashMap<BucketId, Arc<KvTablet>>>,
}

impl KvTables {
    /// None is open. `root` holds a directory for each table.
    pub(crate) fn new(root: PathBuf, appliers: Arc<Appliers>) -> Self {
        Self { root, stores: TabletStores::default(), appliers, tables: Mutex::default(), tablets: RwLock::default() }
    }

    /// A bucket that is open.
    pub(crate) fn get(&self, bucket: BucketId) -> Option<Arc<KvTablet>> {
        self.tablets.read().get(&bucket).cloned()
    }

    /// Opens a bucket, which may take as long as its unapplied log takes to read.
    ///
    /// # Errors
    /// The store's and the log's.
    pub(crate) fn open(&self, info: &TableInfo, log: &Arc<Tablet>) -> Result<Arc<KvTablet>> {
        let table = Arc::clone(self.tables.lock().entry(info.table_id()).or_default());
        let mut store = table.lock();
        if let Some(open) = self.get(log.id) {
            return Ok(open);
        }
        let rules = Arc::new(rules_of(info)?);
        let store = match &*store {
            Some(store) => Arc::clone(store),
            None => Arc::clone(store.insert(self.open_store(info)?)),
        };
        let tablet = Arc::new(KvTablet::open(Arc::clone(log), store, rules)?);
        let (weak, appliers) = (Arc::downgrade(&tablet), Arc::clone(&self.appliers));
        log.on_sync(Box::new(move || {
            if let Some(tablet) = weak.upgrade() {
                appliers.ready(&tablet);
            }
        }));
        self.tablets.write().insert(log.id, Arc::clone(&tablet));
        Ok(tablet)
    }

    fn open_store(&self, info: &TableInfo) -> Result<Arc<dyn KvStore>> {
        let store: Arc<dyn KvStore> = Arc::new(self.stores.open(&self.directory(info.table_id()))?);
        let format =
            Format { table_id: info.id, encoding: RowEncoding::Compacted, partitioned: info.partitions.is_some() };
        let key = StoreKey::Format.encode();
        match store.get(&key)? {
            None => store.write(&[(key, Some(format.encode()))])?,
            Some(value) if Format::decode(&value)? == format => {}
            Some(_) => {
                let what = format!("the store of table '{}' is another table's", info.name);
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        remove_leftovers(info, &*store)?;
        Ok(store)
    }

    /// The directory of a table's store.
    pub(crate) fn directory(&self, table: TableId) -> PathBuf {
        self.root.join(table.0.to_string())
    }

    /// Closes a table that is dropped.
    pub(crate) fn drop_table(&self, table: TableId) {
        self.tables.lock().remove(&table);
        self.tablets.write().retain(|bucket, _| bucket.table != table);
    }

    /// Removes the rows of buckets whose partition was dropped.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn drop_buckets(&self, info: &TableInfo, buckets: &[BucketId]) -> Result<()> {
        let table = Arc::clone(self.tables.lock().entry(info.table_id()).or_default());
        let mut store = table.lock();
        self.tablets.write().retain(|bucket, _| !buckets.contains(bucket));
        let store = match &*store {
            Some(store) => Arc::clone(store),
            None => Arc::clone(store.insert(self.open_store(info)?)),
        };
        buckets.iter().try_for_each(|bucket| clear(&*store, (*bucket).into()))
    }

    /// Flushes every store that a crash would make replay, so that a start need not.
    pub(crate) fn flush(&self) {
        let mut dirty: HashMap<TableId, Vec<Arc<KvTablet>>> = HashMap::new();
        for (bucket, tablet) in self.tablets.read().iter().filter(|(_, tablet)| tablet.is_unflushed()) {
            dirty.entry(bucket.table).or_default().push(Arc::clone(tablet));
        }
        for (table, tablets) in dirty {
            let store = self.tables.lock().get(&table).and_then(|store| store.lock().clone());
            let Some(store) = store else { continue };
            // Before the flush: what is applied meanwhile may not be in it.
            tablets.iter().for_each(|tablet| tablet.note_flushed());
            if let Err(error) = store.flush() {
                tracing::warn!(table = table.0, %error, "flushing a table's rows");
            }
        }
    }

    /// Open buckets of PK tables.
    pub(crate) fn len(&self) -> usize {
        self.tablets.read().len()
    }
}

/// Removes the rows of partitions that the table does not have: those of one whose drop a crash cut short.
fn remove_leftovers(info: &TableInfo, store: &dyn KvStore) -> Result<()> {
    if info.partitions.is_none() {
        return Ok(());
    }
    let live: HashSet<Place> = info.bucket_ids().into_iter().map(Place::from).collect();
    let (mut gone, applied) = (Vec::new(), StoreKey::Applied(Place::default()).encode());
    let prefix = applied.get(..1).unwrap_or_default();
    store.visit(&[prefix], &mut |key, _| {
        if let Ok(StoreKey::Applied(place)) = StoreKey::decode(key)
            && !live.contains(&place)
        {
            gone.push(place);
        }
        true
    })?;
    gone.into_iter().try_for_each(|place| clear(store, place))
}

fn rules_of(info: &TableInfo) -> Result<Rules> {
    let missing = || Error::new(ErrorKind::Internal, format!("table '{}' has no keys", info.name));
    info.rules().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::catalog::descriptor::TableDescriptor;
    use crate::kv::SimStore;
    use crate::row::DataType;

    #[test]
    fn rows_of_a_partition_that_is_gone_are_removed() {
        let columns = vec![("d", DataType::String).into(), ("k", DataType::Int).into()];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let descriptor = TableDescriptor {
            columns,
            primary_key: names(&["d", "k"]),
            partition_keys: names(&["d"]),
            ..TableDescriptor::default()
        };
        let catalog = Catalog::open(Arc::new(SimStore::default()), true).expect("opens");
        let mut info = catalog.create_typed("t", &descriptor, 0).expect("creates").as_ref().clone();
        let partitions = info.partitions.as_mut().expect("partitioned");
        partitions.add(vec!["a".to_owned()], 1, 0).expect("adds");
        let store = SimStore::default();
        let of = |partition: i64| {
            let place = Place { partition: Some(partition), bucket: 0 };
            let row = [place.row_prefix(), vec![1, 2, 3]].concat();
            [(StoreKey::Applied(place).encode(), Some(vec![0])), (row, Some(vec![0]))]
        };
        store.write(&[of(0), of(7)].concat()).expect("writes");
        remove_leftovers(&info, &store).expect("removes");
        let left: Vec<_> = store.scan(b"").expect("scans").into_iter().map(|(key, _)| key).collect();
        assert_eq!(left, of(0).map(|(key, _)| key));
    }
}
