//! The part of the engine that reads a log from disk, compiled from the engine's own files: the crate
//! itself would bring RocksDB along, which takes a sanitizer build an hour.

#![allow(dead_code, missing_docs, reason = "only recovery is driven")]

#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/io/mod.rs"]
pub mod io;
#[path = "../../src/log/mod.rs"]
pub mod log;
#[path = "../../src/row/mod.rs"]
pub mod row;
pub mod tablet;
#[path = "../../src/types.rs"]
pub mod types;
