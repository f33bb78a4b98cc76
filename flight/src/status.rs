//! What the engine refuses, as gRPC status: the only place.

use sluice_engine::{Error, ErrorKind};
use tonic::{Code, Status};

/// The gRPC code of an error kind.
#[must_use]
pub fn code_of(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::TableNotFound | ErrorKind::BucketNotFound | ErrorKind::PartitionNotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::OffsetOutOfRange => Code::OutOfRange,
        ErrorKind::InvalidArgument | ErrorKind::TooLarge | ErrorKind::CorruptInput => Code::InvalidArgument,
        ErrorKind::OutOfOrder | ErrorKind::FencedWriter => Code::FailedPrecondition,
        ErrorKind::DeletesDisabled => Code::InvalidArgument,
        ErrorKind::Busy | ErrorKind::NotReady | ErrorKind::PartlyApplied => Code::Unavailable,
        ErrorKind::NoSpace => Code::ResourceExhausted,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::StorageFailed | ErrorKind::ShuttingDown => Code::Unavailable,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Internal => Code::Internal,
    }
}

/// The gRPC status of an engine error.
#[must_use]
pub fn status_of(error: &Error) -> Status {
    Status::new(code_of(error.kind), error.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_kind_and_message() {
        let status = status_of(&Error::new(ErrorKind::TableNotFound, "no table t"));
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no table t"));
    }
}
