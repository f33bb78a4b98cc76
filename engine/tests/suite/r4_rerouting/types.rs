//! What the parts of the model hand to each other.

use std::rc::Rc;

/// Buckets of the table; each is a source and a destination.
pub(crate) const BUCKETS: usize = 3;
/// Producers; the first is transactional in half of the seeds, the second never.
pub(crate) const PRODUCERS: usize = 2;
/// Batches that a client has in flight per source.
pub(crate) const IN_FLIGHT: usize = 5;
/// Ranges remembered per producer and source.
pub(crate) const REMEMBERED: usize = 5;
/// Distinct keys; key `k` lives in bucket `k % BUCKETS`.
pub(crate) const KEYS: usize = 9;

/// One producer's stream to one source bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    pub(crate) producer: usize,
    pub(crate) source: usize,
}

impl Lane {
    /// The lane's place in an array of all lanes.
    pub(crate) fn index(self) -> usize {
        self.producer * BUCKETS + self.source
    }
}

/// The sequence range of one Kafka batch: what an entry in a log batch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) lane: Lane,
    pub(crate) epoch: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// One row. `serial` is unique and rises in the order in which clients made the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) serial: u32,
    pub(crate) key: usize,
    pub(crate) lane: Lane,
    pub(crate) transaction: Option<usize>,
}

impl Row {
    /// The bucket that the row's key hashes to.
    pub(crate) fn destination(&self) -> usize {
        self.key % BUCKETS
    }
}

/// A batch as a client sends it, and sends it again.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) id: usize,
    /// How many batches of its stream and epoch came before.
    pub(crate) ordinal: usize,
    pub(crate) range: Range,
    pub(crate) rows: Vec<Row>,
    pub(crate) transactional: bool,
}

/// A batch on its way, with the connection that carries it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) connection: u32,
    pub(crate) batch: Rc<Batch>,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Applied; the offset is the closing entry's.
    Done(u64),
    /// NOT_ENOUGH_REPLICAS, its AFTER_APPEND form, or REQUEST_TIMED_OUT: send it again.
    Again,
    /// OUT_OF_ORDER_SEQUENCE: appended nowhere.
    OutOfOrder,
    /// INVALID_PRODUCER_EPOCH: appended nowhere.
    Fenced,
}

/// Where one part of a batch ends, as a closing entry names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) bucket: usize,
    /// The destination's leader epoch when the part was found or appended there.
    pub(crate) epoch: u32,
    /// The offset after the part's last row.
    pub(crate) offset: u64,
}

/// A promise found broken, with the promise's name first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) detail: String,
}

impl Violation {
    /// A violation of `promise`.
    pub(crate) fn new(promise: &'static str, detail: String) -> Self {
        Violation { promise, detail }
    }
}
