//! Rows of typed tables: types, encodings, and the log batches that hold them.

pub mod batch;
pub mod compacted;
pub mod types;

pub use types::{ChangeType, Column, ColumnSpec, DataType, Datum, Row, Schema};
