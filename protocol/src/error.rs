//! Every way in which bytes from outside can be wrong.

use thiserror::Error;

/// Why bytes were refused. The gateway turns these into Kafka error codes in one place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A frame announces more bytes than the server's limit, or a negative length.
    #[error("frame of {length} bytes, the limit is {limit}")]
    FrameTooLarge {
        /// What the frame announced.
        length: i64,
        /// The server's limit.
        limit: usize,
    },
    /// The bytes end inside a field.
    #[error("truncated {what}")]
    Truncated {
        /// The field that is cut.
        what: &'static str,
    },
    /// The record data holds less than one whole batch.
    #[error("record data of {have} bytes holds no whole batch (needs {need})")]
    IncompleteBatch {
        /// Bytes there are.
        have: usize,
        /// Bytes the batch announces.
        need: usize,
    },
    /// A batch announces fewer bytes than any batch has.
    #[error("record size {length} is less than the minimum record overhead (14)")]
    BatchTooSmall {
        /// The announced length.
        length: i32,
    },
    /// Message sets of magic 0 and 1 ended with Produce v2 (KIP-896).
    #[error("message format of magic {magic} is not supported")]
    LegacyMagic {
        /// The magic byte.
        magic: i8,
    },
    /// A magic byte that never existed.
    #[error("invalid magic found in record: {magic}")]
    UnknownMagic {
        /// The magic byte.
        magic: i8,
    },
    /// The checksum does not fit the bytes.
    #[error("record is corrupt (stored crc = {stored}, computed crc = {computed})")]
    BadCrc {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// Produce carries one batch for each topic partition (KIP-98).
    #[error("more than one record batch for one topic partition")]
    SeveralBatches,
    /// A field of the batch header contradicts another one or the rules.
    #[error("{reason}")]
    InvalidBatch {
        /// What is wrong.
        reason: String,
    },
    /// A record inside the batch is malformed.
    #[error("record {index}: {reason}")]
    InvalidRecord {
        /// The record's place in the batch, from 0.
        index: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A codec number without a codec.
    #[error("unknown compression codec {codec}")]
    UnknownCodec {
        /// Attribute bits 0-2.
        codec: i16,
    },
    /// The compressed payload does not decode.
    #[error("the {codec} payload does not decode: {reason}")]
    Decompress {
        /// The codec's name.
        codec: &'static str,
        /// The codec's own words.
        reason: String,
    },
    /// The payload decodes to more than the limit.
    #[error("the payload decodes to more than {limit} bytes")]
    DecompressedTooLarge {
        /// The limit.
        limit: usize,
    },
}
