//! The part of the engine that reads a log from disk, compiled from the engine's own files: the crate
//! itself would bring RocksDB along, which takes a sanitizer build an hour.

#![allow(dead_code, missing_docs, reason = "only recovery is driven")]

#[path = "../../src/error.rs"]
pub mod error;
#[path = "../../src/io/mod.rs"]
pub mod io;
#[path = "../../src/log/mod.rs"]
pub mod log;
#[path = "../../src/types.rs"]
pub mod types;

/// Of the tablet, what recovery needs.
pub mod tablet {
    #[path = "../../../src/tablet/producers.rs"]
    pub mod producers;
    #[path = "../../../src/tablet/recover.rs"]
    pub mod recover;
    #[path = "../../../src/tablet/state.rs"]
    pub mod state;
}
