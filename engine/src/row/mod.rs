//! Rows of typed tables: types, encodings, the log batches that hold them, keys and values of the KV store.

pub mod batch;
pub mod bucket;
pub mod compacted;
pub mod key;
pub mod types;
pub mod value;

pub use types::{ChangeType, Column, ColumnSpec, DataType, Datum, Row, Schema};
