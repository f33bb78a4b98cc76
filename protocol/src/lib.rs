//! The Kafka wire protocol, sans I/O: no sockets, no files, no clock, no tables.
//!
//! Messages are decoded and encoded by the `kafka-protocol` crate; this crate adds what that crate
//! cannot do: framing and headers ([`frame`]), a check of every count before anything is allocated
//! ([`shape`]), record batches kept as opaque bytes ([`batch`]), bounded record reading
//! ([`records`]) and a fetch response that borrows the stored bytes ([`fetch_body`]).

pub mod batch;
pub mod error;
pub mod fetch_body;
pub mod frame;
pub mod records;
pub mod shape;
mod shape_table;

pub use error::DecodeError;
pub use kafka_protocol::ResponseError as ErrorCode;
pub use kafka_protocol::messages;
pub use kafka_protocol::messages::ApiKey;
