//! What the log itself needs to know of a batch, whatever the batch holds.
//!
//! A table's segments hold Kafka record batches or Sluice log batches, one kind for all its life
//! (docs/storage-format.md §3). Reading, recovery and retention work on heads alone.

use sluice_protocol::batch::{self, BatchHeader, add_sequence};

use crate::row::batch as typed;
use crate::row::key::Place;

/// Bytes from which a head can be read, for each kind: the part that the header chain covers.
pub const HEAD_LEN: usize = batch::HEADER_LEN;

/// Which batches a bucket's segments hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// Kafka record batches of magic 2, as they came.
    Kafka,
    /// Sluice log batches (docs/storage-format-typed.md §1).
    Sluice,
}

impl BatchKind {
    /// The head of the batch at the start of `bytes`; `None` when there are fewer than [`HEAD_LEN`] or they
    /// are of another kind. Checks nothing else.
    #[must_use]
    pub fn head(self, bytes: &[u8]) -> Option<BatchHead> {
        match self {
            Self::Kafka => BatchHeader::read(bytes).as_ref().map(BatchHead::from),
            Self::Sluice => typed::head(bytes),
        }
    }

    /// Whether the checksums of a whole batch hold.
    #[must_use]
    pub fn is_sound(self, batch: &[u8]) -> bool {
        match self {
            Self::Kafka => BatchHeader::read(batch).is_some_and(|header| batch::compute_crc(batch) == header.crc),
            Self::Sluice => typed::is_sound(batch),
        }
    }

    /// Tells what a whole batch says of producers, in the order of its offsets.
    pub fn for_each_mark(self, batch: &[u8], mut each: impl FnMut(ProducerMark)) {
        match self {
            Self::Kafka => {
                let Some(header) = BatchHeader::read(batch) else { return };
                if let Some(range) = ProducerRange::of(&header) {
                    let end_offset = BatchHead::from(&header).last_offset().saturating_add(1);
                    each(ProducerMark::Entry(
                        typed::Entry::own(range, Place::default()),
                        header.base_offset,
                        end_offset,
                    ));
                }
            }
            Self::Sluice => {
                let Ok(view) = typed::BatchView::read(batch) else { return };
                view.for_each_entry(|entry, first, end| each(ProducerMark::Entry(entry, first, end)));
                for void in view.voids().unwrap_or_default() {
                    each(ProducerMark::Void(void));
                }
            }
        }
    }
}

/// What a batch says of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerMark {
    /// A range, with its first offset and its end.
    Entry(typed::Entry, i64, i64),
    /// A closing that does not count.
    Void(typed::Void),
}

/// The head of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record, or of the last that there once was, less the base.
    pub last_offset_delta: i32,
    /// Bytes of the whole batch; `None` when the length field is impossible.
    pub len: Option<usize>,
    /// Leader epoch it was written in.
    pub leader_epoch: i32,
    /// Largest timestamp, ms.
    pub max_timestamp: i64,
    /// Whether every record has that timestamp.
    pub one_timestamp: bool,
    /// Whether it holds no records of users.
    pub control: bool,
}

impl BatchHead {
    /// Offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }
}

/// A range of one producer's records, as deduplication knows it (KIP-98).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerRange {
    /// Producer id.
    pub id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Sequence of the first record.
    pub first_sequence: i32,
    /// Sequence of the last record.
    pub last_sequence: i32,
}

impl ProducerRange {
    /// The range of a Kafka batch, if it carries one.
    #[must_use]
    pub fn of(header: &BatchHeader) -> Option<Self> {
        (header.producer_id >= 0 && !header.is_control()).then(|| Self {
            id: header.producer_id,
            epoch: header.producer_epoch,
            first_sequence: header.base_sequence,
            last_sequence: add_sequence(header.base_sequence, header.last_offset_delta),
        })
    }
}

impl From<&BatchHeader> for BatchHead {
    fn from(header: &BatchHeader) -> Self {
        Self {
            base_offset: header.base_offset,
            last_offset_delta: header.last_offset_delta,
            len: header.total_len(),
            leader_epoch: header.leader_epoch,
            max_timestamp: header.max_timestamp,
            one_timestamp: header.is_log_append_time(),
            control: header.is_control(),
        }
    }
}
