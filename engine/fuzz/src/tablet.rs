//! Of the tablet, what recovery needs.

#[path = "../../src/tablet/producers.rs"]
pub mod producers;
#[path = "../../src/tablet/recover.rs"]
pub mod recover;
#[path = "../../src/tablet/state.rs"]
pub mod state;
