//! Rows of typed tables: types, encodings, and the log batches that hold them.

pub mod types;

pub use types::{ChangeType, Column, DataType, Datum, Row, Schema};
pub mod batch { pub fn set_place(_h: &mut [u8], _b: i64, _t: i64, _e: i32) -> u32 { 0 } }
