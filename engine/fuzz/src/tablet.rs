//! Of the tablet, what recovery needs.

use crate::log::head::BatchKind;

#[path = "../../src/tablet/producers.rs"]
pub mod producers;
#[path = "../../src/tablet/recover.rs"]
pub mod recover;
#[path = "../../src/tablet/routes.rs"]
pub mod routes;
#[path = "../../src/tablet/state.rs"]
pub mod state;

/// As the engine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Which batches its segments hold.
    pub kind: BatchKind,
    /// Whether rows are placed by their hash.
    pub hashed: bool,
}
