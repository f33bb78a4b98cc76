//! Real clients against the real binary.

mod crash;
mod shell;
mod structure;
mod suites;
mod tables;
mod with_rdkafka;
