//! Idempotent producers of one bucket (KIP-98): the last five batches of each, kept with the log so
//! that they survive restarts (docs/storage-format.md §4.1).

use std::collections::{BTreeMap, VecDeque};

use sluice_protocol::batch::add_sequence;

use crate::error::{Error, ErrorKind, Result};
use crate::log::checked::{Reader, Writer};
use crate::log::head::ProducerRange;

/// How many batches of a producer a retry may repeat.
pub const BATCHES_KEPT: usize = 5;

/// One remembered batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenBatch {
    /// Sequence of its first record.
    pub first_sequence: i32,
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset it was given.
    pub base_offset: i64,
    /// Its largest timestamp, ms.
    pub max_timestamp: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    last_append_ms: i64,
    batches: VecDeque<SeenBatch>,
}

/// What the producers' history says of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    New,
    /// It is in the log already.
    Duplicate(SeenBatch),
}

/// All producers of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Producers(BTreeMap<i64, Producer>);

impl Producers {
    /// Judges a batch that carries a producer id.
    ///
    /// An unknown producer may begin anywhere (its state may have expired), a new epoch begins at 0.
    ///
    /// # Errors
    /// `FencedWriter` for an old epoch, `OutOfOrder` for a sequence that neither follows nor repeats.
    pub fn judge(&self, range: &ProducerRange) -> Result<Verdict> {
        let Some(known) = self.0.get(&range.id) else { return Ok(Verdict::New) };
        let (id, epoch, first) = (range.id, range.epoch, range.first_sequence);
        if epoch < known.epoch {
            let message = format!("epoch {epoch} of producer {id} is older than {}", known.epoch);
            return Err(Error::new(ErrorKind::FencedWriter, message));
        }
        if epoch > known.epoch {
            if first == 0 {
                return Ok(Verdict::New);
            }
            let message = format!("sequence {first} of producer {id}: the first of epoch {epoch} must be 0");
            return Err(Error::new(ErrorKind::OutOfOrder, message));
        }
        let same = |seen: &&SeenBatch| seen.first_sequence == first && seen.last_sequence == range.last_sequence;
        let seen = known.batches.iter().find(same);
        if let Some(seen) = seen {
            return Ok(Verdict::Duplicate(*seen));
        }
        let expected = known.batches.back().map(|batch| add_sequence(batch.last_sequence, 1));
        match expected {
            Some(expected) if expected != first => {
                let message = format!("sequence {first} of producer {id}: expected {expected}");
                Err(Error::new(ErrorKind::OutOfOrder, message))
            }
            _ => Ok(Verdict::New),
        }
    }

    /// Remembers a batch that is in the log.
    pub fn note(&mut self, range: &ProducerRange, base_offset: i64, max_timestamp: i64, now_ms: i64) {
        let epoch = range.epoch;
        let fresh = || Producer { epoch, last_append_ms: now_ms, batches: VecDeque::new() };
        let producer = self.0.entry(range.id).or_insert_with(fresh);
        if producer.epoch != epoch {
            *producer = fresh();
        }
        producer.last_append_ms = now_ms;
        if producer.batches.len() == BATCHES_KEPT {
            producer.batches.pop_front();
        }
        producer.batches.push_back(SeenBatch {
            first_sequence: range.first_sequence,
            last_sequence: range.last_sequence,
            base_offset,
            max_timestamp,
        });
    }

    /// Forgets producers that appended nothing for `expiry_ms`.
    pub fn expire(&mut self, now_ms: i64, expiry_ms: i64) {
        self.0.retain(|_, producer| now_ms.saturating_sub(producer.last_append_ms) < expiry_ms);
    }

    /// How many producers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the stored form.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.0.len() as u32);
        for (id, producer) in &self.0 {
            out.i64(*id);
            out.i16(producer.epoch);
            out.i64(producer.last_append_ms);
            out.u8(producer.batches.len() as u8);
            for batch in &producer.batches {
                out.i32(batch.first_sequence);
                out.i32(batch.last_sequence);
                out.i64(batch.base_offset);
                out.i64(batch.max_timestamp);
            }
        }
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// `Corrupt` when the bytes end early.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self> {
        let mut producers = BTreeMap::new();
        for _ in 0..input.count(19)? {
            let (id, epoch, last_append_ms) = (input.i64()?, input.i16()?, input.i64()?);
            let mut batches = VecDeque::new();
            for _ in 0..input.u8()? {
                batches.push_back(SeenBatch {
                    first_sequence: input.i32()?,
                    last_sequence: input.i32()?,
                    base_offset: input.i64()?,
                    max_timestamp: input.i64()?,
                });
            }
            producers.insert(id, Producer { epoch, last_append_ms, batches });
        }
        Ok(Self(producers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(id: i64, epoch: i16, sequence: i32, count: i32) -> ProducerRange {
        ProducerRange { id, epoch, first_sequence: sequence, last_sequence: add_sequence(sequence, count - 1) }
    }

    fn kind(outcome: Result<Verdict>) -> ErrorKind {
        outcome.expect_err("refused").kind
    }

    #[test]
    fn the_last_five_are_duplicates_and_older_ones_out_of_order() {
        let mut producers = Producers::default();
        for i in 0..6 {
            producers.note(&range(1, 0, i * 10, 10), i64::from(i) * 10, -1, 0);
        }
        for i in 1..6 {
            let Ok(Verdict::Duplicate(seen)) = producers.judge(&range(1, 0, i * 10, 10)) else { panic!("batch {i}") };
            assert_eq!(seen.base_offset, i64::from(i) * 10);
        }
        assert_eq!(kind(producers.judge(&range(1, 0, 0, 10))), ErrorKind::OutOfOrder);
        assert_eq!(kind(producers.judge(&range(1, 0, 70, 1))), ErrorKind::OutOfOrder);
        assert_eq!(kind(producers.judge(&range(1, 0, 55, 10))), ErrorKind::OutOfOrder);
        assert_eq!(producers.judge(&range(1, 0, 60, 1)).expect("next"), Verdict::New);
    }

    #[test]
    fn epochs_fence_and_begin_at_zero() {
        let mut producers = Producers::default();
        producers.note(&range(1, 3, 0, 1), 0, -1, 0);
        assert_eq!(kind(producers.judge(&range(1, 2, 1, 1))), ErrorKind::FencedWriter);
        assert_eq!(kind(producers.judge(&range(1, 4, 1, 1))), ErrorKind::OutOfOrder);
        assert_eq!(producers.judge(&range(1, 4, 0, 1)).expect("new epoch"), Verdict::New);
    }

    #[test]
    fn unknown_and_expired_producers_begin_anywhere() {
        let mut producers = Producers::default();
        assert_eq!(producers.judge(&range(9, 5, 77, 1)).expect("unknown"), Verdict::New);
        producers.note(&range(9, 5, 77, 1), 0, -1, 1_000);
        producers.expire(1_999, 1_000);
        assert!(producers.judge(&range(9, 5, 200, 1)).is_err());
        producers.expire(2_000, 1_000);
        assert_eq!(producers.judge(&range(9, 5, 200, 1)).expect("expired"), Verdict::New);
    }

    #[test]
    fn sequences_wrap() {
        let mut producers = Producers::default();
        producers.note(&range(1, 0, i32::MAX - 2, 5), 0, -1, 0);
        assert_eq!(producers.judge(&range(1, 0, 2, 1)).expect("wrapped"), Verdict::New);
        assert!(producers.judge(&range(1, 0, 3, 1)).is_err());
    }

    #[test]
    fn the_stored_form_round_trips() {
        let mut producers = Producers::default();
        for id in 0..4 {
            for i in 0..7 {
                producers.note(&range(id, 1, i, 1), i64::from(i), -1, 5);
            }
        }
        let mut out = Writer::default();
        producers.encode(&mut out);
        assert_eq!(Producers::decode(&mut Reader(&out.0)).expect("decodes"), producers);
    }
}
