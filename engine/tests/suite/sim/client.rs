//! Producers as Kafka's clients behave: an idempotent one has up to five batches in flight, and after
//! an error or a lost answer sends the same bytes again, in order, from the oldest unanswered one.

use std::collections::VecDeque;

use bytes::Bytes;
use sluice_engine::{LogOptions, Result as EngineResult, TimestampType};
use sluice_protocol::batch::{BatchHeader, add_sequence};
use sluice_protocol::records::{BatchBuilder, Record};
use tokio::sync::oneshot;

use super::oracle::{Made, Oracle};
use super::rng::Rng;

pub(crate) const IN_FLIGHT_MAX: usize = 5;

/// One batch that its producer has no answer for.
pub(crate) struct Flight {
    pub(crate) made: Made,
    pub(crate) waiter: Option<(i64, oneshot::Receiver<EngineResult<()>>)>,
    pub(crate) acked: bool,
}

pub(crate) struct Client {
    pub(crate) bucket: usize,
    /// The producer id, its epoch and next sequence; an id of -1 is a plain producer.
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) next_sequence: i32,
    /// Answered after the sync; without it at once.
    pub(crate) acks_all: bool,
    pub(crate) flights: VecDeque<Flight>,
    /// How many of them were sent since the last reason to begin again.
    pub(crate) sent: usize,
    /// The last acknowledged batches and their offsets.
    pub(crate) acked: VecDeque<(Made, i64)>,
}

impl Client {
    pub(crate) fn new(bucket: usize, id: i64, next_sequence: i32, acks_all: bool) -> Self {
        Self {
            bucket,
            id,
            epoch: 0,
            next_sequence,
            acks_all,
            flights: VecDeque::new(),
            sent: 0,
            acked: VecDeque::new(),
        }
    }

    pub(crate) fn is_idempotent(&self) -> bool {
        self.id >= 0
    }

    /// The batch to send next: an unsent one, or a new one when there is room.
    pub(crate) fn next(&mut self, rng: &mut Rng, now_ms: i64, options: &LogOptions) -> Option<usize> {
        if self.sent == self.flights.len() {
            if self.flights.len() == IN_FLIGHT_MAX {
                return None;
            }
            let made = self.make(rng, now_ms, options);
            self.flights.push_back(Flight { made, waiter: None, acked: false });
        }
        Some(self.sent)
    }

    fn make(&mut self, rng: &mut Rng, now_ms: i64, options: &LogOptions) -> Made {
        if self.is_idempotent() && self.flights.is_empty() && rng.chance(3) {
            self.epoch += 1;
            self.next_sequence = 0;
        }
        let count = 1 + rng.below(5) as i32;
        let base = now_ms - 300;
        let mut builder = BatchBuilder::new(base);
        if self.is_idempotent() {
            builder = builder.producer(self.id, self.epoch, self.next_sequence);
            self.next_sequence = add_sequence(self.next_sequence, count);
        }
        let longest = if rng.chance(10) { (options.segment_bytes / 4).min(9_000) } else { 160 };
        let mut timestamps = Vec::new();
        for _ in 0..count {
            let mut value = vec![0; 8 + rng.below(longest) as usize];
            value.iter_mut().for_each(|byte| *byte = rng.next() as u8);
            let timestamp_delta = rng.range(0, 350);
            timestamps.push(base + timestamp_delta);
            builder = builder.record(&Record { timestamp_delta, ..Record::new(None, Some(&value)) });
        }
        let bytes = Bytes::from(builder.build());
        Made { header: BatchHeader::read(&bytes).expect("a whole header"), bytes, timestamps }
    }

    /// The connection is gone: everything unanswered is sent again.
    pub(crate) fn reconnect(&mut self) {
        self.sent = 0;
        for flight in &mut self.flights {
            flight.waiter = None;
        }
    }

    /// Looks for answers.
    pub(crate) fn poll(&mut self, oracle: &mut Oracle) {
        for at in 0..self.flights.len() {
            let flight = &mut self.flights[at];
            let Some((end, waiter)) = &mut flight.waiter else { continue };
            match waiter.try_recv() {
                Ok(Ok(())) => {
                    oracle.promise(*end);
                    flight.acked = true;
                }
                Err(oneshot::error::TryRecvError::Empty) => continue,
                Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => self.sent = self.sent.min(at),
            }
            self.flights[at].waiter = None;
        }
        while self.flights.front().is_some_and(|flight| flight.acked) {
            let flight = self.flights.pop_front().expect("just seen");
            let same = |entry: &&super::oracle::Entry| {
                let (theirs, mine) = (entry.header, flight.made.header);
                theirs.producer_id == mine.producer_id
                    && theirs.producer_epoch == mine.producer_epoch
                    && theirs.base_sequence == mine.base_sequence
            };
            if self.is_idempotent()
                && let Some(entry) = oracle.entries.iter().rev().find(same)
            {
                self.acked.push_back((flight.made, entry.base));
            }
            self.sent = self.sent.saturating_sub(1);
            if self.acked.len() > IN_FLIGHT_MAX + 2 {
                self.acked.pop_front();
            }
        }
    }
}

/// Whether the server stamps records of a table with `options`.
pub(crate) fn stamps(options: &LogOptions) -> bool {
    options.timestamp_type == TimestampType::LogAppendTime
}
