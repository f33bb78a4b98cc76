//! What the engine can refuse, worded by what the caller must do.

use std::fmt;

/// The closed list of outcomes that are not success. Both front ends match it exhaustively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No such table; look the name up again.
    TableNotFound,
    /// The table has no such bucket.
    BucketNotFound,
    /// The table has no such partition; create it first.
    PartitionNotFound,
    /// The name is taken; choose another or use what is there.
    AlreadyExists,
    /// The offset is below the log start or past the end; reset it.
    OffsetOutOfRange,
    /// The request breaks a rule; change it.
    InvalidArgument,
    /// The batch or row is larger than the table allows.
    TooLarge,
    /// The bytes sent are damaged; send them again.
    CorruptInput,
    /// The sequence does not follow the producer's last one.
    OutOfOrder,
    /// The producer epoch is older than the one seen last.
    FencedWriter,
    /// The table takes no deletes.
    DeletesDisabled,
    /// Too much is waiting; nothing was applied, try again later.
    Busy,
    /// The bucket is being opened; nothing was applied, try again soon.
    NotReady,
    /// Some buckets took their rows and some did not; sending the same again completes it.
    PartlyApplied,
    /// The disk is full; nothing was applied.
    NoSpace,
    /// Stored bytes are damaged; an operator is needed.
    Corrupt,
    /// Reading or writing failed; the bucket may be offline.
    StorageFailed,
    /// Not offered by this server.
    Unsupported,
    /// The server is going away; try another or later.
    ShuttingDown,
    /// A fault of the server itself.
    Internal,
}

/// The engine's error: a kind for programs, a message for people.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// What was wrong, by name.
    pub message: String,
}

/// Shorthand for the engine's results.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An I/O error with what was being done; a full disk keeps its own kind.
    pub fn io(doing: impl fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::StorageFailed,
        };
        Self::new(kind, format!("{doing}: {error}"))
    }
}
