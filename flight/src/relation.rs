//! What can be read under a name: a table, or the changelog of one (table-model §13.1).

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use sluice_engine::catalog::{TableInfo, TableKind, View};
use sluice_engine::row::{ChangeType, Row};
use sluice_engine::scan::{Scanned, Step};

use crate::arrow::{columns_of, raw_batch, schema_of};

/// What follows a table's name in that of its changelog.
const CHANGELOG: &str = "$changelog";
/// Columns of a changelog before the table's own.
const ABOUT: usize = 3;

/// A table or its changelog.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub(crate) info: Arc<TableInfo>,
    pub(crate) changelog: bool,
}

impl Relation {
    /// What a name stands for in a database.
    pub(crate) fn find(view: &View, database: &str, name: &str) -> Option<Self> {
        if let Some(info) = view.find(database, name) {
            return Some(Self { info: Arc::clone(info), changelog: false });
        }
        let info = view.find(database, name.strip_suffix(CHANGELOG)?)?;
        info.typed.is_some().then(|| Self { info: Arc::clone(info), changelog: true })
    }

    /// Database and name.
    pub(crate) fn name(&self) -> String {
        let suffix = if self.changelog { CHANGELOG } else { "" };
        format!("{}.{}{suffix}", self.info.database, self.info.name)
    }

    /// Whether it is read as rows by key rather than from a log.
    pub(crate) fn is_keyed(&self) -> bool {
        !self.changelog && self.info.kind == TableKind::Pk
    }

    /// All of its columns.
    pub(crate) fn schema(&self) -> SchemaRef {
        let own = schema_of(&self.info);
        if !self.changelog {
            return own;
        }
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let about = [
            Field::new("_change_type", DataType::Utf8, false),
            Field::new("_log_offset", DataType::Int64, false),
            Field::new("_commit_timestamp", time, false),
        ];
        let fields = about.into_iter().map(Arc::new).chain(own.fields().iter().cloned());
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Rows of a keyed relation as a record batch of the columns asked for.
    ///
    /// # Errors
    /// When a value does not fit its column's type.
    pub(crate) fn rows(&self, columns: &[usize], rows: &[Row]) -> Result<RecordBatch, ArrowError> {
        let rows: Vec<&Row> = rows.iter().collect();
        let Some(table) = &self.info.typed else {
            return Err(ArrowError::SchemaError("rows of a table without a schema".to_owned()));
        };
        self.batch(columns, rows.len(), columns_of(&table.schema, columns.iter().copied(), &rows)?)
    }

    /// What a log batch holds as a record batch of the columns asked for.
    ///
    /// # Errors
    /// When a value does not fit its column's type.
    pub(crate) fn log_batch(&self, columns: &[usize], bucket: u32, step: &Step) -> Result<RecordBatch, ArrowError> {
        let changes = match (&step.scanned, &self.info.typed) {
            (Scanned::Raw(records), _) => {
                return raw_batch(schema_of(&self.info), bucket, records)?.project(columns);
            }
            (Scanned::Typed(changes), Some(_)) => changes,
            (Scanned::Typed(_), None) => {
                return Err(ArrowError::SchemaError("rows of a table without a schema".to_owned()));
            }
        };
        let Some(table) = &self.info.typed else { return Err(ArrowError::SchemaError("no schema".to_owned())) };
        let rows: Vec<&Row> = changes.iter().map(|(_, _, row)| row).collect();
        let one = |at: &usize| -> Result<ArrayRef, ArrowError> {
            let own = if self.changelog { at.checked_sub(ABOUT) } else { Some(*at) };
            Ok(match (own, at) {
                (Some(own), _) => {
                    let mut arrays = columns_of(&table.schema, [own], &rows)?;
                    arrays.pop().ok_or_else(|| ArrowError::SchemaError("no column".to_owned()))?
                }
                (None, 0) => {
                    Arc::new(changes.iter().map(|(_, change, _)| Some(change_name(*change))).collect::<StringArray>())
                }
                (None, 1) => Arc::new(changes.iter().map(|(offset, ..)| *offset).collect::<Int64Array>()),
                (None, _) => {
                    let times = TimestampMillisecondArray::from_value(step.timestamp, rows.len());
                    Arc::new(times.with_timezone("UTC"))
                }
            })
        };
        self.batch(columns, rows.len(), columns.iter().map(one).collect::<Result<_, _>>()?)
    }

    fn batch(&self, columns: &[usize], rows: usize, arrays: Vec<ArrayRef>) -> Result<RecordBatch, ArrowError> {
        let schema = Arc::new(self.schema().project(columns)?);
        RecordBatch::try_new_with_options(schema, arrays, &RecordBatchOptions::new().with_row_count(Some(rows)))
    }
}

/// As `_change_type` has it.
fn change_name(change: ChangeType) -> &'static str {
    match change {
        ChangeType::Append | ChangeType::Insert => "insert",
        ChangeType::UpdateBefore => "update_before",
        ChangeType::UpdateAfter => "update_after",
        ChangeType::Delete => "delete",
    }
}
