//! What the engine refuses, as Kafka error codes: the only place.

use sluice_engine::{Error, ErrorKind};
use sluice_protocol::ErrorCode;

/// The Kafka error code of an engine error.
pub(crate) fn code_of(error: &Error) -> ErrorCode {
    match error.kind {
        ErrorKind::TableNotFound | ErrorKind::BucketNotFound => ErrorCode::UnknownTopicOrPartition,
        // Of a row: its record is the one that is wrong.
        ErrorKind::PartitionNotFound => ErrorCode::InvalidRecord,
        ErrorKind::AlreadyExists => ErrorCode::TopicAlreadyExists,
        ErrorKind::OffsetOutOfRange => ErrorCode::OffsetOutOfRange,
        ErrorKind::InvalidArgument => ErrorCode::InvalidRequest,
        ErrorKind::TooLarge => ErrorCode::MessageTooLarge,
        ErrorKind::CorruptInput => ErrorCode::CorruptMessage,
        ErrorKind::OutOfOrder => ErrorCode::OutOfOrderSequenceNumber,
        ErrorKind::FencedWriter => ErrorCode::InvalidProducerEpoch,
        // Kafka has no "busy": this one says "not appended, try again".
        ErrorKind::Busy => ErrorCode::NotEnoughReplicas,
        ErrorKind::NoSpace | ErrorKind::Corrupt | ErrorKind::StorageFailed => ErrorCode::KafkaStorageError,
        ErrorKind::Unsupported => ErrorCode::InvalidConfig,
        // Clients look for the leader again, which takes about as long as a bucket takes to open.
        ErrorKind::ShuttingDown | ErrorKind::NotReady => ErrorCode::NotLeaderOrFollower,
        ErrorKind::PartlyApplied => ErrorCode::NotEnoughReplicasAfterAppend,
        ErrorKind::DeletesDisabled => ErrorCode::PolicyViolation,
        ErrorKind::Internal => ErrorCode::UnknownServerError,
    }
}

/// The code of an error in a topic's options.
pub(crate) fn config_code_of(error: &Error) -> ErrorCode {
    match error.kind {
        ErrorKind::InvalidArgument | ErrorKind::Unsupported => ErrorCode::InvalidConfig,
        _ => code_of(error),
    }
}

/// The code of an error in a coordinator's store: its clients look for the coordinator again.
pub(crate) fn coordinator_code_of(error: &Error) -> ErrorCode {
    match error.kind {
        ErrorKind::ShuttingDown => ErrorCode::NotCoordinator,
        _ => ErrorCode::CoordinatorNotAvailable,
    }
}
