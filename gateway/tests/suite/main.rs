//! The server in one process, spoken to over TCP in bytes: every test owns its port and its directory.

mod apis;
mod columns;
mod configs;
mod fetch;
mod fixture;
mod flight;
mod groups;
mod hostile;
mod load;
mod offsets;
mod partitions;
mod pk;
mod produce;
mod sql;
mod topics;
mod typed;
mod wire;
