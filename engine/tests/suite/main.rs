//! The engine's tests from outside: models, recovery, simulation.

mod r4_rerouting;
mod sim;
