//! The engine's tests from outside: models, recovery, faults, simulation.

mod faults;
mod fixture;
mod golden;
mod kv_sim;
mod model;
mod r4_rerouting;
mod recovery;
mod send;
mod sim;
mod typed;
