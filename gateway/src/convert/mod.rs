//! Between Kafka's keys and values and rows.

pub mod decode;
pub mod encode;
pub mod json;
pub mod key;

use std::fmt;

use json::TimestampStyle;
use key::KeyFormat;
use sluice_engine::catalog::{TableInfo, table_options};

/// How the keys of a PK table's records are written.
fn key_format(info: &TableInfo) -> KeyFormat {
    let set = table_options::value(&info.options, "kafka.key.format");
    let name = set.or_else(|| info.typed.as_ref().map(|table| table.key_format()));
    name.and_then(KeyFormat::of).unwrap_or(KeyFormat::Json)
}

/// How a table's timestamps are written in JSON.
fn timestamp_style(info: &TableInfo) -> TimestampStyle {
    match table_options::value(&info.options, "kafka.json.timestamp-format") {
        Some("iso-8601") => TimestampStyle::Iso8601,
        _ => TimestampStyle::Sql,
    }
}

/// Whether absent fields of a record's value leave their columns alone.
fn partial_update(info: &TableInfo) -> bool {
    table_options::value(&info.options, "kafka.partial-update").is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Why bytes are no row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertError {
    /// The column, or the field that is no column; `None` where the bytes as a whole are at fault.
    pub column: Option<String>,
    /// What was wrong, with what came.
    pub reason: String,
}

impl ConvertError {
    fn whole(reason: impl Into<String>) -> Self {
        Self { column: None, reason: reason.into() }
    }

    fn of(column: &str, reason: impl Into<String>) -> Self {
        Self { column: Some(column.to_owned()), reason: reason.into() }
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column '{column}': {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for ConvertError {}
