//! A table: what it holds, which buckets it has, and where its rows go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::descriptor::ValidTable;
use super::partitions::{self, Partitions};
use super::{LOG_APPEND_TIME, TIMESTAMP_TYPE, names, table_options, topic_name};
use crate::error::Result;
use crate::kv_tablet::{DeleteBehavior, Rules};
use crate::log::head::BatchKind;
use crate::row::key::Place;
use crate::row::{ColumnSpec, Datum, bucket};
use crate::tablet::Shape;
use crate::types::{BucketId, TableId};

/// A table as the catalog stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableInfo {
    /// Its id, never reused.
    pub id: u64,
    /// A random id that clients use for the same purpose.
    pub uuid: uuid::Uuid,
    /// Its database.
    pub database: String,
    /// Its name in the database.
    pub name: String,
    /// What it holds.
    pub kind: TableKind,
    /// Buckets, numbered from 0.
    pub buckets: u32,
    /// Options as set, checked against [`options::RAW_OPTIONS`] and, for typed tables,
    /// [`table_options::TABLE_OPTIONS`].
    pub options: BTreeMap<String, String>,
    /// When it was created, ms.
    pub created_ms: i64,
    /// Unclean starts of the server before its creation: leader epochs count from here.
    pub epoch_base: u64,
    /// Schema and rules of a typed table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<ValidTable>,
    /// Of a partitioned table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Partitions>,
}

/// What a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// Kafka record batches as they came.
    Raw,
    /// Rows of a schema, appended.
    Log,
    /// Rows of a schema by key, and their changelog.
    Pk,
}

impl TableKind {
    /// What the batches of its logs are.
    #[must_use]
    pub fn batches(self) -> BatchKind {
        if self == Self::Raw { BatchKind::Kafka } else { BatchKind::Sluice }
    }

    /// What Kafka's options of a topic cannot but be: rows carry the time of their append, and the log of a PK table
    /// never loses a key's last row (design §4).
    pub(super) fn fixed_options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Raw => &[],
            Self::Log => &[(TIMESTAMP_TYPE, LOG_APPEND_TIME)],
            Self::Pk => &[(TIMESTAMP_TYPE, LOG_APPEND_TIME), ("cleanup.policy", "compact")],
        }
    }

    /// Puts in what the options cannot but be.
    pub(super) fn fill_options(self, options: &mut BTreeMap<String, String>) {
        for (name, value) in self.fixed_options() {
            options.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
    }
}

impl TableInfo {
    /// The id as the engine uses it.
    #[must_use]
    pub fn table_id(&self) -> TableId {
        TableId(self.id)
    }

    /// The name that Kafka clients know it by.
    #[must_use]
    pub fn topic(&self) -> String {
        topic_name(&self.database, &self.name)
    }

    /// What its logs are like.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { kind: self.kind.batches(), hashed: self.is_routed() }
    }

    /// Whether a row's own values say which bucket it belongs to, wherever its producer sent it.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        self.partitions.is_some() || self.typed.as_ref().is_some_and(|table| !table.bucket_key.is_empty())
    }

    /// How many topic partitions it has.
    #[must_use]
    pub fn topic_partitions(&self) -> u32 {
        self.partitions.as_ref().map_or(self.buckets, |partitions| partitions.slots().len() as u32)
    }

    /// The bucket of a topic partition, a vacant one where none has it now; `None` where there is no such topic partition.
    #[must_use]
    pub fn bucket_at(&self, topic_partition: u32) -> Option<BucketId> {
        let Some(partitions) = &self.partitions else {
            return (topic_partition < self.buckets).then(|| BucketId::new(self.table_id(), topic_partition));
        };
        Some(match partitions.slots().get(topic_partition as usize)?.tenant {
            Some((partition, bucket)) => Place { partition: Some(partition), bucket }.of(self.table_id()),
            None => BucketId::vacant(self.table_id(), topic_partition),
        })
    }

    /// The topic partition of a bucket, where it has one.
    #[must_use]
    pub fn topic_partition_of(&self, bucket: BucketId) -> Option<u32> {
        match &self.partitions {
            None => Some(bucket.bucket),
            Some(partitions) => partitions.slot_of(bucket.into()),
        }
    }

    /// The bucket that closes what is addressed to a topic partition: its own, or, of a free one, the lowest that
    /// there is (design §3).
    #[must_use]
    pub fn source_of(&self, topic_partition: u32) -> Option<BucketId> {
        let taken = |slot: u32| self.bucket_at(slot).filter(|bucket| !bucket.is_vacant());
        taken(topic_partition).or_else(|| (0..self.topic_partitions()).find_map(taken))
    }

    /// Its buckets, by partition and number.
    #[must_use]
    pub fn bucket_ids(&self) -> Vec<BucketId> {
        match &self.partitions {
            None => (0..self.buckets).map(|bucket| BucketId::new(self.table_id(), bucket)).collect(),
            Some(partitions) => {
                let buckets = |partition: &partitions::Partition| {
                    let id = Some(partition.id);
                    (0..partition.buckets).map(move |bucket| Place { partition: id, bucket })
                };
                let all = partitions.iter().flat_map(|(_, partition)| buckets(partition));
                all.map(|place| place.of(self.table_id())).collect()
            }
        }
    }

    /// The bucket that a row belongs to (design §3); only its partition columns and bucket key count. `any` is the
    /// bucket's number where no key says it. `None` where the row's partition is not there.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is NULL or of the wrong type, or a table without a schema.
    pub fn bucket_of(&self, row: &[Datum], any: u32) -> Result<Option<BucketId>> {
        let Some(table) = &self.typed else {
            return names::refuse(format!("table '{}' has no schema", self.name));
        };
        let (partition, buckets) = match &self.partitions {
            None => (None, self.buckets),
            Some(partitions) => match partitions.get(&self.partition_name(row)?) {
                None => return Ok(None),
                Some(partition) => (Some(partition.id), partition.buckets),
            },
        };
        let bucket = if table.bucket_key.is_empty() {
            any % buckets.max(1)
        } else if table_options::value(&self.options, "table.bucket.function") == Some("kafka") {
            let place = table.schema.primary_key.first().copied().unwrap_or_default();
            bucket::kafka_bucket(&bucket::plain_key(&table.schema, place, row)?, buckets)?
        } else {
            bucket::fluss_bucket(&bucket::key_bytes(&table.schema, &table.bucket_key, row)?, buckets)?
        };
        Ok(Some(Place { partition, bucket }.of(self.table_id())))
    }

    /// The name of the partition that a row belongs to.
    ///
    /// # Errors
    /// `InvalidArgument` that names the column for a value that no partition can have.
    pub fn partition_name(&self, row: &[Datum]) -> Result<String> {
        let Some(table) = &self.typed else { return Ok(String::new()) };
        let value = |at: &usize| match (table.schema.columns.get(*at), row.get(*at)) {
            (Some(column), Some(value)) => partitions::value_text(column, value),
            _ => names::refuse("a row without its partition columns"),
        };
        let values = table.partition_keys.iter().map(value).collect::<Result<Vec<_>>>()?;
        Ok(partitions::name_of(&values))
    }

    /// The values of a partition in the order of its columns, from what a statement names.
    ///
    /// # Errors
    /// `InvalidArgument` that names the column: one that is missing, none of the partition's, or a value that is none
    /// of its type's.
    pub fn partition_values(&self, spec: &[(String, String)]) -> Result<Vec<String>> {
        let table = self.typed.as_ref().filter(|_| self.partitions.is_some());
        let Some(table) = table else { return names::refuse(format!("table '{}' is not partitioned", self.name)) };
        let columns: Vec<_> = table.partition_keys.iter().filter_map(|at| table.schema.columns.get(*at)).collect();
        if let Some((name, _)) = spec.iter().find(|(name, _)| columns.iter().all(|column| column.name != *name)) {
            return names::refuse(format!("'{name}' is no partition column of table '{}'", self.name));
        }
        let value = |column: &&crate::row::Column| match spec.iter().find(|(name, _)| *name == column.name) {
            Some((_, text)) => partitions::value_text(column, &partitions::value_of(column, text)?),
            None => names::refuse(format!("the partition's column '{}' has no value", column.name)),
        };
        columns.iter().map(value).collect()
    }

    /// Gives a typed table more columns, and so its schema a new version.
    ///
    /// # Errors
    /// `InvalidArgument` that names a column whose name or type is none, or which is NOT NULL; `AlreadyExists`.
    pub(crate) fn add_columns(&mut self, columns: Vec<ColumnSpec>) -> Result<()> {
        let name = &self.name;
        let Some(table) = &mut self.typed else { return names::refuse(format!("table '{name}' has no schema")) };
        if columns.is_empty() {
            return names::refuse("no column to add is named");
        }
        columns.iter().try_for_each(names::check_column)?;
        table.schema = table.schema.with_columns(columns)?;
        Ok(())
    }

    /// The rules by which a PK table changes; `None` for other tables.
    #[must_use]
    pub fn rules(&self) -> Option<Rules> {
        let table = self.typed.as_ref().filter(|_| self.kind == TableKind::Pk)?;
        let option = |name: &str| table_options::value(&self.options, name);
        let in_key = |at: &&usize| !table.partition_keys.contains(at);
        Some(Rules {
            schema: table.schema.clone(),
            key: table.schema.primary_key.iter().filter(in_key).copied().collect(),
            wal_image: option("table.changelog.image") == Some("wal"),
            deletes: match option("table.delete.behavior") {
                Some("ignore") => DeleteBehavior::Ignore,
                Some("disable") => DeleteBehavior::Disable,
                _ => DeleteBehavior::Allow,
            },
        })
    }
}
