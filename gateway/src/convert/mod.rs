//! Between Kafka's keys and values and rows.

pub mod json;
pub mod key;
pub mod rows;

use std::fmt;

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
