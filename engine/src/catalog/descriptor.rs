//! What CREATE TABLE asks for, and the rules that make it a table (table-model §§1, 3, 4, 21).

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};

use super::names::{check_attributes, check_column, refuse};
use super::table_options;
use crate::error::Result;
use crate::row::{ColumnSpec, DataType, Schema};

/// Most buckets of a table, or of one of its partitions.
pub const BUCKETS_MAX: u32 = 4_096;

/// What CREATE TABLE asks for, before any rule is applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableDescriptor {
    /// In declaration order.
    pub columns: Vec<ColumnSpec>,
    /// Names of the primary key's columns, in key order; empty for a log table.
    pub primary_key: Vec<String>,
    /// Names of the partition columns.
    pub partition_keys: Vec<String>,
    /// Buckets of the table or of each partition; the server's default where `None`.
    pub buckets: Option<u32>,
    /// Names of the bucket key's columns; empty for the default.
    pub bucket_key: Vec<String>,
    /// What people say about the table.
    pub comment: Option<String>,
    /// Options of the server, by name.
    pub options: BTreeMap<String, String>,
    /// Keys and values that mean nothing to the server.
    pub attributes: BTreeMap<String, String>,
}

/// A table that breaks no rule, as the catalog stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidTable {
    /// The newest version of its schema.
    pub schema: Schema,
    /// Places of the partition columns in the schema, in partition-key order.
    pub partition_keys: Vec<usize>,
    /// Buckets of the table or of each partition; the server's default where `None`.
    pub buckets: Option<u32>,
    /// Places of the bucket key's columns; empty for log tables without one.
    pub bucket_key: Vec<usize>,
    /// What people say about the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Options as set, with those defaults that Fluss stores too. The catalog takes them out: of a
    /// table that it holds they are [`TableInfo::options`](super::TableInfo::options).
    pub options: BTreeMap<String, String>,
    /// Custom attributes.
    pub attributes: BTreeMap<String, String>,
}

impl TableDescriptor {
    /// Takes one property as WITH and CreateTopics give it: `bucket.num` and `bucket.key` become
    /// fields, other keys an option or a custom attribute. Values are checked by
    /// [`TableDescriptor::validate`].
    ///
    /// # Errors
    /// `InvalidArgument` for a bucket count that is no number, or a bucket setting given twice.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "bucket.num" => self.set_buckets(value)?,
            "bucket.key" => self.set_bucket_key(value.split(',').map(|name| name.trim().to_owned()).collect())?,
            _ if table_options::is_option(key) => {
                self.options.insert(key.to_owned(), value.to_owned());
            }
            _ => {
                self.attributes.insert(key.to_owned(), value.to_owned());
            }
        }
        Ok(())
    }

    fn set_buckets(&mut self, value: &str) -> Result<()> {
        let Ok(buckets) = value.trim().parse() else {
            return refuse(format!("invalid value '{value}' for 'bucket.num': expected a number from 1"));
        };
        if self.buckets.is_some_and(|set| set != buckets) {
            return refuse("the number of buckets is given twice");
        }
        self.buckets = Some(buckets);
        Ok(())
    }

    fn set_bucket_key(&mut self, key: Vec<String>) -> Result<()> {
        if !self.bucket_key.is_empty() && self.bucket_key != key {
            return refuse("the bucket key is given twice");
        }
        self.bucket_key = key;
        Ok(())
    }

    /// Applies the rules of table-model §§1, 3, 4 and 21, and fills in the defaults.
    ///
    /// # Errors
    /// `InvalidArgument` that names the column or option; `Unsupported` for options whose feature
    /// this server lacks.
    pub fn validate(&self) -> Result<ValidTable> {
        self.check_columns()?;
        self.check_buckets()?;
        table_options::check_all(&self.options)?;
        check_attributes(&self.attributes)?;
        let primary_key = self.places("primary key", &self.primary_key)?;
        let partition_keys = self.check_partition_keys(&primary_key)?;
        let bucket_key = self.check_bucket_key(&primary_key, &partition_keys)?;
        let table = ValidTable {
            schema: Schema::first(self.columns.iter().cloned(), primary_key),
            partition_keys,
            buckets: self.buckets,
            bucket_key,
            comment: self.comment.clone(),
            options: self.stored_options(),
            attributes: self.attributes.clone(),
        };
        table.check_options()?;
        Ok(table)
    }

    fn check_columns(&self) -> Result<()> {
        if self.columns.is_empty() {
            return refuse("a table has at least one column");
        }
        let mut seen = HashSet::new();
        for column in &self.columns {
            check_column(column)?;
            if !seen.insert(column.name.as_str()) {
                return refuse(format!("column '{}' is declared twice", column.name));
            }
        }
        Ok(())
    }

    fn check_buckets(&self) -> Result<()> {
        match self.buckets {
            Some(0) => refuse("the number of buckets must be larger than 0"),
            Some(count) if count > BUCKETS_MAX => {
                refuse(format!("{count} buckets are more than the {BUCKETS_MAX} that a table may have"))
            }
            _ => Ok(()),
        }
    }

    /// The places of named columns, each there and named once.
    fn places(&self, what: &str, names: &[String]) -> Result<Vec<usize>> {
        let mut places = Vec::with_capacity(names.len());
        for name in names {
            let Some(place) = self.columns.iter().position(|column| column.name == *name) else {
                return refuse(format!("{what} column '{name}' does not exist in the table"));
            };
            if places.contains(&place) {
                return refuse(format!("{what} names column '{name}' twice"));
            }
            places.push(place);
        }
        Ok(places)
    }

    fn check_partition_keys(&self, primary_key: &[usize]) -> Result<Vec<usize>> {
        let places = self.places("partition key", &self.partition_keys)?;
        for (place, name) in places.iter().zip(&self.partition_keys) {
            if self.columns.get(*place).is_some_and(|column| matches!(column.data_type, DataType::Decimal { .. })) {
                return refuse(format!("partition column '{name}' is a DECIMAL, which no partition column can be"));
            }
            if !primary_key.is_empty() && !primary_key.contains(place) {
                return refuse(format!("the primary key must contain the partition column '{name}'"));
            }
        }
        if !primary_key.is_empty() && places.len() == primary_key.len() {
            return refuse("the primary key must have a column that is not a partition column");
        }
        Ok(places)
    }

    fn check_bucket_key(&self, primary_key: &[usize], partition_keys: &[usize]) -> Result<Vec<usize>> {
        if self.bucket_key.is_empty() {
            return Ok(primary_key.iter().copied().filter(|place| !partition_keys.contains(place)).collect());
        }
        let places = self.places("bucket key", &self.bucket_key)?;
        for (place, name) in places.iter().zip(&self.bucket_key) {
            if partition_keys.contains(place) {
                return refuse(format!("the bucket key must not contain the partition column '{name}'"));
            }
            if !primary_key.is_empty() && !primary_key.contains(place) {
                return refuse(format!("bucket key column '{name}' is not in the primary key"));
            }
        }
        Ok(places)
    }

    /// The options with what Fluss writes down at creation, so that a later default changes no table.
    fn stored_options(&self) -> BTreeMap<String, String> {
        let mut options = self.options.clone();
        let mut keep = |name: &str, value: &str| {
            options.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        };
        keep("table.replication.factor", "1");
        if !self.primary_key.is_empty() {
            keep("table.kv.format-version", "2");
        }
        options
    }
}

/// The type that each key format of one column writes.
fn format_takes(format: &str, data_type: DataType) -> bool {
    match format {
        "raw" => matches!(data_type, DataType::Bytes | DataType::Binary { .. }),
        "string" => matches!(data_type, DataType::String | DataType::Char { .. }),
        "int" => data_type == DataType::Int,
        "long" => data_type == DataType::BigInt,
        "double" => data_type == DataType::Double,
        _ => false,
    }
}

impl ValidTable {
    /// Whether it is a primary-key table.
    #[must_use]
    pub fn has_primary_key(&self) -> bool {
        !self.schema.primary_key.is_empty()
    }

    /// An option of typed tables, as [`table_options::value`] gives it.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        table_options::value(&self.options, name)
    }

    /// How long the log is kept, ms; `None` for ever.
    #[must_use]
    pub fn log_ttl_ms(&self) -> Option<i64> {
        self.option("table.log.ttl").and_then(table_options::parse_duration_ms).filter(|ms| *ms > 0)
    }

    /// The format of Kafka keys: as set, else the plain column where the primary key is one of
    /// STRING, BIGINT or INT, else `json` (design §4).
    #[must_use]
    pub fn key_format(&self) -> &str {
        self.option("kafka.key.format").unwrap_or_else(|| {
            let plain = |format: &&str| self.key_type().is_some_and(|data_type| format_takes(format, data_type));
            ["string", "long", "int"].into_iter().find(plain).unwrap_or("json")
        })
    }

    /// The type of the primary key where it is one column.
    fn key_type(&self) -> Option<DataType> {
        match self.schema.primary_key.as_slice() {
            [place] => self.schema.columns.get(*place).map(|column| column.data_type),
            _ => None,
        }
    }

    fn check_options(&self) -> Result<()> {
        self.check_kinds()?;
        self.check_key_format()
    }

    /// Options that only one kind of table has, and formats that do not go together (table-model
    /// §§4.1, 14; the golden files' decision 23).
    fn check_kinds(&self) -> Result<()> {
        let set = |name: &str| self.options.contains_key(name);
        if !self.has_primary_key() {
            for name in ["table.delete.behavior", "kafka.key.format"] {
                if set(name) {
                    return refuse(format!("option '{name}' is for tables with a primary key only"));
                }
            }
            if self.option("kafka.partial-update").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
                return refuse("option 'kafka.partial-update' is for tables with a primary key only");
            }
        } else if self.option("table.log.format") == Some("indexed") {
            return refuse("option 'table.log.format' = 'indexed' is for tables without a primary key only");
        }
        Ok(())
    }

    fn check_key_format(&self) -> Result<()> {
        let format = self.key_format();
        if format != "json" && !self.key_type().is_some_and(|data_type| format_takes(format, data_type)) {
            return refuse(format!("option 'kafka.key.format' = '{format}' does not fit the primary key's columns"));
        }
        if self.option("table.bucket.function") == Some("kafka") {
            if !self.has_primary_key() {
                return refuse("option 'table.bucket.function' = 'kafka' is for tables with a primary key only");
            }
            if format == "json" {
                return refuse(
                    "option 'table.bucket.function' = 'kafka' needs a key format with one form per value, not 'json'",
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
