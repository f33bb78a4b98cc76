//! The catalog: which tables there are, under which names, with which options.
//!
//! Durable in `meta/` (docs/storage-format.md §6), mirrored in memory as an immutable view that
//! readers share. A unique index maps each topic name to one table.

pub mod descriptor;
pub mod names;
pub mod options;
pub mod partitions;
mod table;
pub mod table_options;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use descriptor::{TableDescriptor, ValidTable};
use parking_lot::{Mutex, RwLock};
use partitions::Partitions;
use serde::{Deserialize, Serialize};
pub use table::{TableInfo, TableKind};

use crate::error::{Error, ErrorKind, Result};
use crate::kv::{Change, KvStore, open_value, seal_value};
use crate::types::{BucketId, TableId};

/// A database as the catalog stores it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseInfo {
    /// What people say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Keys and values that mean nothing to the server.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// The topic name of a table (design §3).
#[must_use]
pub fn topic_name(database: &str, table: &str) -> String {
    if database == DEFAULT_DATABASE { table.to_owned() } else { format!("{database}.{table}") }
}

/// The database of tables whose topic name has no database part.
pub const DEFAULT_DATABASE: &str = "default";

/// An immutable view of all tables.
#[derive(Debug, Clone, Default)]
pub struct View {
    by_name: BTreeMap<String, Arc<TableInfo>>,
    by_uuid: HashMap<uuid::Uuid, Arc<TableInfo>>,
    by_id: HashMap<TableId, Arc<TableInfo>>,
    databases: BTreeMap<String, DatabaseInfo>,
}

impl View {
    /// Whether there is a database.
    #[must_use]
    pub fn has_database(&self, name: &str) -> bool {
        name == DEFAULT_DATABASE || self.databases.contains_key(name)
    }

    /// All databases by name, the default one among them.
    #[must_use]
    pub fn databases(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.databases.keys().map(String::as_str).chain([DEFAULT_DATABASE]).collect();
        names.sort_unstable();
        names
    }

    /// A table of a database.
    #[must_use]
    pub fn find(&self, database: &str, table: &str) -> Option<&Arc<TableInfo>> {
        self.by_name.get(&topic_name(database, table)).filter(|info| info.database == database)
    }

    /// Database and table that a topic name stands for: `d.t` where the database `d` exists, else a table of the
    /// default one.
    #[must_use]
    pub fn locate<'a>(&self, topic: &'a str) -> (&'a str, &'a str) {
        match topic.split_once('.') {
            Some((database, table)) if self.databases.contains_key(database) && !table.is_empty() => (database, table),
            _ => (DEFAULT_DATABASE, topic),
        }
    }

    /// The table that owns a topic name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<TableInfo>> {
        self.by_name.get(name)
    }

    /// The table with a random id.
    #[must_use]
    pub fn by_uuid(&self, uuid: &uuid::Uuid) -> Option<&Arc<TableInfo>> {
        self.by_uuid.get(uuid)
    }

    /// The table with an id.
    #[must_use]
    pub fn by_id(&self, id: TableId) -> Option<&Arc<TableInfo>> {
        self.by_id.get(&id)
    }

    /// All tables by topic name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TableInfo>> {
        self.by_name.values()
    }

    fn insert(&mut self, info: Arc<TableInfo>) {
        self.by_uuid.insert(info.uuid, Arc::clone(&info));
        self.by_id.insert(info.table_id(), Arc::clone(&info));
        self.by_name.insert(info.topic(), info);
    }

    fn remove(&mut self, info: &TableInfo) {
        self.by_uuid.remove(&info.uuid);
        self.by_id.remove(&info.table_id());
        self.by_name.remove(&info.topic());
    }
}

/// Buckets of a typed table that names no number (Fluss's `default.bucket.number`).
pub const DEFAULT_BUCKETS: u32 = 1;
const LOG_TTL: &str = "table.log.ttl";
const RETENTION: &str = "retention.ms";
const TIMESTAMP_TYPE: &str = "message.timestamp.type";
const LOG_APPEND_TIME: &str = "LogAppendTime";

/// Checks the options of a table, each alone and together.
///
/// # Errors
/// `InvalidArgument` that names the option; `Unsupported` for what this server lacks.
pub fn check_options(kind: TableKind, options: &BTreeMap<String, String>) -> Result<()> {
    match kind {
        TableKind::Raw => options::check_all(options)?,
        TableKind::Log | TableKind::Pk => table_options::check_all(options)?,
    }
    for (name, only) in kind.fixed_options() {
        if let Some(other) = options.get(*name).filter(|value| value != only) {
            return names::refuse(format!("'{name}' of this table is {only}, it cannot be {other}"));
        }
    }
    if kind == TableKind::Pk { Ok(()) } else { options::check_not_compacted(options) }
}

/// A typed table that could be created.
#[derive(Debug, Clone)]
pub struct TypedPlan {
    /// Schema and rules.
    pub table: ValidTable,
    /// Its buckets.
    pub buckets: u32,
    /// Its options, those that Kafka's tools know under their names.
    pub options: BTreeMap<String, String>,
}

/// Everything about a new typed table that can be checked without creating it.
///
/// # Errors
/// `InvalidArgument` for a name or a rule that is broken; `Unsupported` for the kinds of tables that
/// this server lacks.
pub fn plan_typed(name: &str, descriptor: &TableDescriptor) -> Result<TypedPlan> {
    names::check_table_name(name)?;
    let mut table = descriptor.validate()?;
    let options = topic_options(&mut table)?;
    Ok(TypedPlan { buckets: table.buckets.unwrap_or(DEFAULT_BUCKETS), table, options })
}

/// Moves the options out of a typed table. What Kafka's tools know by another name is kept under that
/// name only: what they show is then what holds.
fn topic_options(table: &mut ValidTable) -> Result<BTreeMap<String, String>> {
    // Zero switches retention off.
    let ttl_ms = table.log_ttl_ms().unwrap_or(-1);
    let kind = if table.has_primary_key() { TableKind::Pk } else { TableKind::Log };
    let mut options = std::mem::take(&mut table.options);
    if options.contains_key(LOG_TTL) && options.contains_key(RETENTION) {
        return names::refuse(format!("'{LOG_TTL}' and '{RETENTION}' are the same option: give one"));
    }
    kind.fill_options(&mut options);
    check_options(kind, &options)?;
    if options.remove(LOG_TTL).is_some() {
        options.insert(RETENTION.to_owned(), ttl_ms.to_string());
    }
    Ok(options)
}

/// A table's options after ALTER TABLE … SET and RESET (table-model §4.2).
///
/// # Errors
/// `InvalidArgument` for an option that is fixed at creation or not known; `Unsupported` for a custom attribute.
pub fn altered_options(
    info: &TableInfo,
    set: &[(String, String)],
    reset: &[String],
) -> Result<BTreeMap<String, String>> {
    let mut options = info.options.clone();
    for name in set.iter().map(|(name, _)| name).chain(reset) {
        table_options::check_alter(name)?;
        if !table_options::is_option(name) || name == "bucket.num" {
            let what = format!("'{name}' of a table cannot be altered on this server");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
    }
    for (name, value) in set {
        table_options::check(name, value)?;
        match table_options::parse_duration_ms(value).filter(|_| name == LOG_TTL) {
            Some(ms) => options.insert(RETENTION.to_owned(), if ms == 0 { -1 } else { ms }.to_string()),
            None => options.insert(name.clone(), value.clone()),
        };
    }
    for name in reset {
        options.remove(if name == LOG_TTL { RETENTION } else { name });
    }
    Ok(options)
}

/// The durable catalog.
pub struct Catalog {
    store: Arc<dyn KvStore>,
    view: RwLock<Arc<View>>,
    /// Held over each change: one at a time.
    change: Mutex<Counters>,
    cluster_id: String,
}

struct Counters {
    next_table_id: u64,
    /// Producer ids from `.0` on are free up to `.1`, which is durable.
    producer_ids: (u64, u64),
    unclean_starts: u64,
}

const NEXT_TABLE_ID: &[u8] = b"m/next-table-id";
const NEXT_PRODUCER_ID: &[u8] = b"m/next-producer-id";
const UNCLEAN_STARTS: &[u8] = b"m/unclean-starts";
const CLUSTER_ID: &[u8] = b"m/cluster-id";
const PRODUCER_ID_BLOCK: u64 = 1_000;
const DATABASE_PREFIX: &[u8] = b"d/";

fn database_key(name: &str) -> Vec<u8> {
    [DATABASE_PREFIX, name.as_bytes()].concat()
}

fn table_key(id: u64) -> Vec<u8> {
    [b"t/".as_slice(), &id.to_be_bytes()].concat()
}

fn name_key(name: &str) -> Vec<u8> {
    [b"n/", name.as_bytes()].concat()
}

fn put_number(key: &[u8], value: u64) -> Change {
    (key.to_vec(), Some(seal_value(&value.to_le_bytes())))
}

fn get_number(store: &dyn KvStore, key: &[u8]) -> Result<Option<u64>> {
    let Some(value) = store.get(key)? else { return Ok(None) };
    match open_value(&value)?.try_into() {
        Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
        Err(_) => Err(Error::new(ErrorKind::Corrupt, "a catalog counter is not 8 bytes")),
    }
}

fn put_table(info: &TableInfo) -> Result<Change> {
    let json = serde_json::to_vec(info).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    Ok((table_key(info.id), Some(seal_value(&json))))
}

impl Catalog {
    /// Reads the catalog; `clean` says whether the server stopped cleanly before.
    ///
    /// # Errors
    /// The store's; `Corrupt` for a record that does not decode.
    pub fn open(store: Arc<dyn KvStore>, clean: bool) -> Result<Self> {
        let mut view = View::default();
        for (key, value) in store.scan(DATABASE_PREFIX)? {
            let name = String::from_utf8_lossy(key.get(DATABASE_PREFIX.len()..).unwrap_or_default()).into_owned();
            let info = serde_json::from_slice(open_value(&value)?)
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("a catalog record: {error}")))?;
            view.databases.insert(name, info);
        }
        for (_, value) in store.scan(b"t/")? {
            let info: TableInfo = serde_json::from_slice(open_value(&value)?)
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("a catalog record: {error}")))?;
            view.insert(Arc::new(info));
        }
        let next_table_id = get_number(&*store, NEXT_TABLE_ID)?.unwrap_or(1);
        let next_producer_id = get_number(&*store, NEXT_PRODUCER_ID)?.unwrap_or(1);
        let mut unclean_starts = get_number(&*store, UNCLEAN_STARTS)?.unwrap_or(0);
        let cluster_id = match store.get(CLUSTER_ID)? {
            Some(value) => String::from_utf8_lossy(open_value(&value)?).into_owned(),
            None => {
                let id: String = uuid::Uuid::new_v4().simple().to_string().chars().take(22).collect();
                store.write(&[(CLUSTER_ID.to_vec(), Some(seal_value(id.as_bytes())))])?;
                id
            }
        };
        if !clean && !view.by_id.is_empty() {
            unclean_starts += 1;
            store.write(&[put_number(UNCLEAN_STARTS, unclean_starts)])?;
        }
        let counters = Counters { next_table_id, producer_ids: (next_producer_id, next_producer_id), unclean_starts };
        Ok(Self { store, view: RwLock::new(Arc::new(view)), change: Mutex::new(counters), cluster_id })
    }

    /// All tables as of now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// The random id of this data directory.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The leader epoch of a table's buckets in this run of the server.
    #[must_use]
    pub fn leader_epoch(&self, info: &TableInfo) -> i32 {
        self.change.lock().unclean_starts.saturating_sub(info.epoch_base) as i32
    }

    /// The leader epoch of a bucket in this run of the server: each tenant of a slot has one higher than those before.
    #[must_use]
    pub fn epoch_of(&self, info: &TableInfo, bucket: BucketId) -> i32 {
        let slots = info.partitions.as_ref().map(Partitions::slots).unwrap_or_default();
        let tenant = bucket.partition.map(|partition| (partition, bucket.bucket));
        let slot = slots.iter().find(|slot| slot.tenant.is_some() && slot.tenant == tenant);
        self.leader_epoch(info) + slot.map_or(0, |slot| slot.generation as i32)
    }

    /// Creates a database.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for its name or attributes; the store's.
    pub fn create_database(&self, name: &str, info: DatabaseInfo) -> Result<()> {
        names::check_database_name(name)?;
        names::check_attributes(&info.attributes)?;
        let _counters = self.change.lock();
        if self.view().has_database(name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("database '{name}' already exists")));
        }
        let json = serde_json::to_vec(&info).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        self.store.write(&[(database_key(name), Some(seal_value(&json)))])?;
        self.edit(|view| drop(view.databases.insert(name.to_owned(), info)));
        Ok(())
    }

    /// Drops a database that has no tables.
    ///
    /// # Errors
    /// `TableNotFound` where there is none; `InvalidArgument` for the default one, or one with tables; the store's.
    pub fn drop_database(&self, name: &str) -> Result<()> {
        let _counters = self.change.lock();
        if name == DEFAULT_DATABASE {
            return names::refuse(format!("the default database '{name}' cannot be dropped"));
        }
        let view = self.view();
        if !view.has_database(name) {
            return Err(Error::new(ErrorKind::TableNotFound, format!("no database is called '{name}'")));
        }
        if let Some(table) = view.iter().find(|table| table.database == name) {
            return names::refuse(format!("database '{name}' is not empty: it has table '{}'", table.name));
        }
        self.store.write(&[(database_key(name), None)])?;
        self.edit(|view| drop(view.databases.remove(name)));
        Ok(())
    }

    /// Creates a raw table, in the database that its topic name says.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` and `Unsupported` for its options; the store's.
    pub fn create(
        &self,
        name: &str,
        buckets: u32,
        options: BTreeMap<String, String>,
        now_ms: i64,
    ) -> Result<Arc<TableInfo>> {
        check_options(TableKind::Raw, &options)?;
        self.insert(name, TableKind::Raw, buckets, options, None, now_ms)
    }

    /// Creates a typed table, in the database that its topic name says.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for a name or a rule that is broken; `Unsupported` for the
    /// kinds of tables that this server lacks; the store's.
    pub fn create_typed(&self, name: &str, descriptor: &TableDescriptor, now_ms: i64) -> Result<Arc<TableInfo>> {
        let TypedPlan { table, buckets, options } = plan_typed(self.view().locate(name).1, descriptor)?;
        let kind = if table.has_primary_key() { TableKind::Pk } else { TableKind::Log };
        self.insert(name, kind, buckets, options, Some(table), now_ms)
    }

    fn insert(
        &self,
        topic: &str,
        kind: TableKind,
        buckets: u32,
        options: BTreeMap<String, String>,
        typed: Option<ValidTable>,
        now_ms: i64,
    ) -> Result<Arc<TableInfo>> {
        let mut counters = self.change.lock();
        let view = self.view();
        if view.by_name(topic).is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("Topic '{topic}' already exists.")));
        }
        let (database, name) = view.locate(topic);
        let parted = typed.as_ref().is_some_and(|table| !table.partition_keys.is_empty());
        let info = Arc::new(TableInfo {
            partitions: parted.then(|| Partitions::none(buckets)),
            id: counters.next_table_id,
            uuid: uuid::Uuid::new_v4(),
            database: database.to_owned(),
            name: name.to_owned(),
            kind,
            buckets,
            options,
            created_ms: now_ms,
            epoch_base: counters.unclean_starts,
            typed,
        });
        let owner = (name_key(topic), Some(seal_value(&info.id.to_le_bytes())));
        self.store.write(&[put_table(&info)?, owner, put_number(NEXT_TABLE_ID, info.id + 1)])?;
        counters.next_table_id += 1;
        self.edit(|view| view.insert(Arc::clone(&info)));
        Ok(info)
    }

    /// Drops a table; its files are the caller's.
    ///
    /// # Errors
    /// `TableNotFound`; the store's.
    pub fn drop_table(&self, id: TableId) -> Result<Arc<TableInfo>> {
        let _counters = self.change.lock();
        let info = self.get(id)?;
        self.store.write(&[(table_key(info.id), None), (name_key(&info.topic()), None)])?;
        self.edit(|view| view.remove(&info));
        Ok(info)
    }

    /// Replaces a table's record by what `change` makes of it; id and name stay.
    ///
    /// # Errors
    /// `TableNotFound`; whatever `change` returns; the store's.
    pub fn alter(&self, id: TableId, change: impl FnOnce(&mut TableInfo) -> Result<()>) -> Result<Arc<TableInfo>> {
        let _counters = self.change.lock();
        let mut info = self.get(id)?.as_ref().clone();
        change(&mut info)?;
        // They may be left out or taken away, but they cannot be others.
        info.kind.fill_options(&mut info.options);
        check_options(info.kind, &info.options)?;
        self.store.write(&[put_table(&info)?])?;
        let info = Arc::new(info);
        self.edit(|view| view.insert(Arc::clone(&info)));
        Ok(info)
    }

    /// A producer id that no producer ever had.
    ///
    /// # Errors
    /// The store's.
    pub fn next_producer_id(&self) -> Result<i64> {
        let mut counters = self.change.lock();
        if counters.producer_ids.0 == counters.producer_ids.1 {
            let end = counters.producer_ids.1 + PRODUCER_ID_BLOCK;
            self.store.write(&[put_number(NEXT_PRODUCER_ID, end)])?;
            counters.producer_ids.1 = end;
        }
        counters.producer_ids.0 += 1;
        Ok(counters.producer_ids.0 as i64 - 1)
    }

    fn get(&self, id: TableId) -> Result<Arc<TableInfo>> {
        let found = self.view().by_id(id).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::TableNotFound, format!("no table has id {}", id.0)))
    }

    fn edit(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write();
        let mut next = view.as_ref().clone();
        change(&mut next);
        *view = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::SimStore;

    #[test]
    fn survives_a_reopen_and_never_reuses_ids() {
        let store = SimStore::default();
        let open = |clean| Catalog::open(Arc::new(store.clone()), clean).expect("opens");
        let catalog = open(false);
        let first = catalog.create("a", 3, BTreeMap::new(), 5).expect("creates");
        assert_eq!(catalog.create("a", 1, BTreeMap::new(), 5).expect_err("taken").kind, ErrorKind::AlreadyExists);
        let producer = catalog.next_producer_id().expect("allocates");
        assert_eq!(catalog.leader_epoch(&first), 0);
        let catalog = open(false);
        assert_eq!(catalog.view().by_name("a"), Some(&first));
        assert_eq!(catalog.leader_epoch(&first), 1);
        assert!(catalog.next_producer_id().expect("allocates") > producer);
        catalog.drop_table(first.table_id()).expect("drops");
        let second = catalog.create("a", 1, BTreeMap::new(), 6).expect("creates");
        assert!(second.id > first.id && second.uuid != first.uuid);
        assert_eq!(catalog.leader_epoch(&second), 0);
        let catalog = open(true);
        assert_eq!(catalog.leader_epoch(&second), 0);
        assert_eq!(catalog.view().iter().count(), 1);
    }

    fn descriptor(set: &[(&str, &str)]) -> TableDescriptor {
        let columns = vec![("a", crate::row::DataType::Int).into()];
        let mut made = TableDescriptor { columns, ..TableDescriptor::default() };
        for (key, value) in set {
            made.set(key, value).expect("a property");
        }
        made
    }

    #[test]
    fn a_typed_table_survives_a_reopen_with_its_schema() {
        let store = SimStore::default();
        let open = || Catalog::open(Arc::new(store.clone()), true).expect("opens");
        let asked = descriptor(&[("bucket.num", "3"), ("table.log.ttl", "2 d"), ("owner", "me")]);
        let made = open().create_typed("t", &asked, 7).expect("creates");
        assert_eq!((made.kind, made.buckets), (TableKind::Log, 3));
        assert_eq!(made.options.get("retention.ms").map(String::as_str), Some("172800000"));
        let catalog = open();
        assert_eq!(catalog.view().by_name("t"), Some(&made));
        let alter = |name: &str, value: &str| {
            catalog.alter(made.table_id(), |info| {
                info.options.insert(name.to_owned(), value.to_owned());
                Ok(())
            })
        };
        alter("retention.ms", "5").expect("alters");
        alter("message.timestamp.type", "CreateTime").expect_err("typed tables have one");
        let emptied = catalog.alter(made.table_id(), |info| {
            info.options.clear();
            Ok(())
        });
        let left = emptied.expect("alters").options.clone();
        assert_eq!(left.get("message.timestamp.type").map(String::as_str), Some("LogAppendTime"));
        alter("table.nope", "1").expect_err("unknown");
    }

    #[test]
    fn what_a_typed_table_may_not_be_is_refused() {
        let catalog = Catalog::open(Arc::new(SimStore::default()), true).expect("opens");
        let kind =
            |name: &str, asked: &TableDescriptor| catalog.create_typed(name, asked, 0).expect_err("refused").kind;
        assert_eq!(kind("__x", &descriptor(&[])), ErrorKind::InvalidArgument);
        assert_eq!(kind("t", &descriptor(&[("bucket.key", "z")])), ErrorKind::InvalidArgument);
        assert_eq!(
            kind("t", &descriptor(&[("table.log.ttl", "1 d"), ("retention.ms", "1")])),
            ErrorKind::InvalidArgument
        );
        catalog.create("t", 1, BTreeMap::new(), 0).expect("creates");
        assert_eq!(kind("t", &descriptor(&[])), ErrorKind::AlreadyExists);
    }

    #[test]
    fn databases_hold_tables_whose_topics_bear_their_names() {
        let store = SimStore::default();
        let open = || Catalog::open(Arc::new(store.clone()), true).expect("opens");
        let catalog = open();
        let raw = catalog.create("d.t", 1, BTreeMap::new(), 0).expect("no database yet");
        assert_eq!((raw.database.as_str(), raw.name.as_str()), (DEFAULT_DATABASE, "d.t"));
        catalog.create_database("d", DatabaseInfo::default()).expect("creates");
        let kind = |outcome: Result<()>| outcome.expect_err("refused").kind;
        assert_eq!(kind(catalog.create_database("d", DatabaseInfo::default())), ErrorKind::AlreadyExists);
        assert_eq!(kind(catalog.create_database("default", DatabaseInfo::default())), ErrorKind::AlreadyExists);
        assert_eq!(kind(catalog.create_database("__d", DatabaseInfo::default())), ErrorKind::InvalidArgument);
        let taken = catalog.create_typed("d.t", &descriptor(&[]), 0).expect_err("the topic has an owner");
        assert_eq!(taken.kind, ErrorKind::AlreadyExists);
        let keyed = TableDescriptor { primary_key: vec!["a".into()], ..descriptor(&[]) };
        let made = catalog.create_typed("d.u", &keyed, 0).expect("creates");
        assert_eq!((made.database.as_str(), made.name.as_str(), made.kind), ("d", "u", TableKind::Pk));
        let catalog = open();
        assert_eq!(catalog.view().find("d", "u"), Some(&made));
        assert_eq!(catalog.view().by_name("d.u"), Some(&made));
        assert!(catalog.view().find("default", "d.u").is_none());
        assert_eq!(kind(catalog.drop_database("d")), ErrorKind::InvalidArgument);
        catalog.drop_table(made.table_id()).expect("drops");
        catalog.drop_database("d").expect("drops");
        assert_eq!(kind(catalog.drop_database("d")), ErrorKind::TableNotFound);
        assert_eq!(kind(catalog.drop_database("default")), ErrorKind::InvalidArgument);
        assert_eq!(open().view().databases(), ["default"]);
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let store = SimStore::default();
        let catalog = Catalog::open(Arc::new(store.clone()), true).expect("opens");
        store.set_fails(true);
        assert!(catalog.create("a", 1, BTreeMap::new(), 0).is_err());
        assert!(catalog.view().by_name("a").is_none());
        store.set_fails(false);
        catalog.create("a", 1, BTreeMap::new(), 0).expect("creates");
    }
}
