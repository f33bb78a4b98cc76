//! Producers of a hashed table's bucket: which ranges it applied, as a destination, and which it closed, as their
//! source (docs/storage-format-typed.md §§1.3, 1.9; the rules are those of docs/decisions/0002).
//!
//! A pure function of the log. A table without hashing needs none of it: see [`super::producers`].

use std::collections::BTreeMap;

use sluice_protocol::batch::add_sequence;

use super::producers::BATCHES_KEPT;
use crate::error::{Error, ErrorKind, Result};
use crate::log::checked::{Reader, Writer};
use crate::log::head::{ProducerMark, ProducerRange};
use crate::row::batch::{Entry, Void};
use crate::row::key::Place;

/// A range whose rows of this bucket are in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Applied {
    range: ProducerRange,
    end_offset: i64,
}

/// A range that was closed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The range.
    pub range: ProducerRange,
    /// Offset of its closing: what its producer is told.
    pub base_offset: i64,
    /// The end of the closing's log batch.
    pub end_offset: i64,
    /// When it was closed, ms.
    pub commit_ms: i64,
    void: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lane<T> {
    epoch: i16,
    last_append_ms: i64,
    ranges: Vec<T>,
}

impl<T> Lane<T> {
    fn begin(epoch: i16) -> Self {
        Self { epoch, last_append_ms: 0, ranges: Vec::new() }
    }

    fn keep_newest(&mut self) {
        let surplus = self.ranges.len().saturating_sub(BATCHES_KEPT);
        self.ranges.drain(..surplus);
    }
}

/// What the source says of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the next one.
    New,
    /// It is closed already.
    Duplicate(Closed),
}

/// The ranges of all producers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// By producer id and source bucket.
    applied: BTreeMap<(i64, Place), Lane<Applied>>,
    /// By producer id.
    closed: BTreeMap<i64, Lane<Closed>>,
}

fn out_of_order(range: &ProducerRange, expected: impl std::fmt::Display) -> Error {
    let (first, id) = (range.first_sequence, range.id);
    Error::new(ErrorKind::OutOfOrder, format!("sequence {first} of producer {id}: expected {expected}"))
}

impl Routes {
    /// Judges a range at its source. `failed` is the earliest range that is known to have failed there: of a
    /// producer that the log does not know, any other may be the first.
    ///
    /// # Errors
    /// `FencedWriter` for an old epoch, `OutOfOrder` for a sequence that neither follows nor repeats.
    pub fn judge(&self, range: &ProducerRange, failed: Option<&ProducerRange>) -> Result<Verdict> {
        let Some(lane) = self.closed.get(&range.id) else {
            let blocked = failed.filter(|failed| failed.epoch == range.epoch);
            return match blocked {
                Some(failed) if range.first_sequence > failed.first_sequence => {
                    Err(out_of_order(range, failed.first_sequence))
                }
                _ => Ok(Verdict::New),
            };
        };
        if range.epoch < lane.epoch {
            let (epoch, id) = (range.epoch, range.id);
            let message = format!("epoch {epoch} of producer {id} is older than {}", lane.epoch);
            return Err(Error::new(ErrorKind::FencedWriter, message));
        }
        let list: &[Closed] = if range.epoch == lane.epoch { &lane.ranges } else { &[] };
        if let Some(same) = list.iter().find(|closed| closed.range == *range && !closed.void) {
            return Ok(Verdict::Duplicate(*same));
        }
        // The lowest void range is the next one; whole closings after it stay.
        let (next, expected) = match (list.iter().find(|closed| closed.void), list.last()) {
            (Some(void), _) => (void.range == *range, void.range.first_sequence),
            (None, Some(last)) => {
                let expected = add_sequence(last.range.last_sequence, 1);
                (range.first_sequence == expected, expected)
            }
            (None, None) => (range.first_sequence == 0, 0),
        };
        if next { Ok(Verdict::New) } else { Err(out_of_order(range, expected)) }
    }

    /// Where the log batch ends that applied a range here, if it is remembered.
    #[must_use]
    pub fn applied_end(&self, range: &ProducerRange, source: Place) -> Option<i64> {
        let lane = self.applied.get(&(range.id, source))?;
        lane.ranges.iter().find(|applied| applied.range == *range).map(|applied| applied.end_offset)
    }

    /// Takes note of what a log batch says.
    pub fn note(&mut self, mark: &ProducerMark, commit_ms: i64, now_ms: i64) {
        match mark {
            ProducerMark::Void(void) => self.note_void(void),
            ProducerMark::Entry(entry, base_offset, end_offset) => {
                if entry.applies {
                    self.note_applied(entry, *end_offset, now_ms);
                }
                if entry.closing {
                    let (range, base_offset, end_offset) = (entry.range, *base_offset, *end_offset);
                    self.note_closed(Closed { range, base_offset, end_offset, commit_ms, void: false }, now_ms);
                }
            }
        }
    }

    fn note_applied(&mut self, entry: &Entry, end_offset: i64, now_ms: i64) {
        let begin = || Lane::begin(entry.range.epoch);
        let lane = self.applied.entry((entry.range.id, entry.source)).or_insert_with(begin);
        lane.ranges.push(Applied { range: entry.range, end_offset });
        lane.keep_newest();
        lane.last_append_ms = now_ms;
    }

    fn note_closed(&mut self, closed: Closed, now_ms: i64) {
        let range = closed.range;
        let lane = self.closed.entry(range.id).or_insert_with(|| Lane::begin(range.epoch));
        if lane.epoch != range.epoch {
            *lane = Lane::begin(range.epoch);
        }
        lane.last_append_ms = now_ms;
        // A range that is closed again takes the place of its void; the order is that of sequences.
        match lane.ranges.iter_mut().find(|other| other.range == range) {
            Some(void) => *void = closed,
            None => lane.ranges.push(closed),
        }
        lane.keep_newest();
    }

    fn note_void(&mut self, void: &Void) {
        let lane = self.closed.get_mut(&void.range.id);
        let ranges = lane.into_iter().flat_map(|lane| &mut lane.ranges);
        ranges.filter(|closed| closed.base_offset == void.offset).for_each(|closed| closed.void = true);
    }

    /// Forgets producers that appended nothing for `expiry_ms`.
    pub fn expire(&mut self, now_ms: i64, expiry_ms: i64) {
        let alive = |last_ms: i64| now_ms.saturating_sub(last_ms) < expiry_ms;
        self.applied.retain(|_, lane| alive(lane.last_append_ms));
        self.closed.retain(|_, lane| alive(lane.last_append_ms));
    }

    /// Appends the stored form; nothing where there is nothing.
    pub fn encode(&self, out: &mut Writer) {
        if self.applied.is_empty() && self.closed.is_empty() {
            return;
        }
        out.u32(self.applied.len() as u32);
        for ((id, source), lane) in &self.applied {
            out.i64(*id);
            out.i64(source.partition.unwrap_or(-1));
            out.u32(source.bucket);
            out.i64(lane.last_append_ms);
            out.u8(lane.ranges.len() as u8);
            for applied in &lane.ranges {
                put_range(out, &applied.range);
                out.i64(applied.end_offset);
            }
        }
        out.u32(self.closed.len() as u32);
        for (id, lane) in &self.closed {
            out.i64(*id);
            out.i16(lane.epoch);
            out.i64(lane.last_append_ms);
            out.u8(lane.ranges.len() as u8);
            for closed in &lane.ranges {
                put_range(out, &closed.range);
                out.i64(closed.base_offset);
                out.i64(closed.end_offset);
                out.i64(closed.commit_ms);
                out.u8(u8::from(closed.void));
            }
        }
    }

    /// Reads the stored form: all that is left of `input`.
    ///
    /// # Errors
    /// `Corrupt` when the bytes end early.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self> {
        let mut routes = Self::default();
        if input.0.is_empty() {
            return Ok(routes);
        }
        for _ in 0..input.count(29)? {
            let (id, partition, bucket) = (input.i64()?, input.i64()?, input.u32()?);
            let source = Place { partition: (partition >= 0).then_some(partition), bucket };
            let mut lane = Lane { epoch: 0, last_append_ms: input.i64()?, ranges: Vec::new() };
            for _ in 0..input.u8()? {
                let range = get_range(input, id)?;
                lane.epoch = range.epoch;
                lane.ranges.push(Applied { range, end_offset: input.i64()? });
            }
            routes.applied.insert((id, source), lane);
        }
        for _ in 0..input.count(19)? {
            let (id, epoch) = (input.i64()?, input.i16()?);
            let mut lane = Lane { epoch, last_append_ms: input.i64()?, ranges: Vec::new() };
            for _ in 0..input.u8()? {
                let (range, base_offset) = (get_range(input, id)?, input.i64()?);
                let (end_offset, commit_ms, void) = (input.i64()?, input.i64()?, input.u8()? != 0);
                lane.ranges.push(Closed { range, base_offset, end_offset, commit_ms, void });
            }
            routes.closed.insert(id, lane);
        }
        Ok(routes)
    }
}

fn put_range(out: &mut Writer, range: &ProducerRange) {
    out.i16(range.epoch);
    out.i32(range.first_sequence);
    out.i32(range.last_sequence);
}

fn get_range(input: &mut Reader<'_>, id: i64) -> Result<ProducerRange> {
    let epoch = input.i16()?;
    Ok(ProducerRange { id, epoch, first_sequence: input.i32()?, last_sequence: input.i32()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i32, last: i32) -> ProducerRange {
        ProducerRange { id: 7, epoch: 1, first_sequence: first, last_sequence: last }
    }

    fn closing(range: ProducerRange, base: i64, applies: bool) -> ProducerMark {
        ProducerMark::Entry(Entry { range, source: place(2), applies, closing: true }, base, base + 1)
    }

    fn place(bucket: u32) -> Place {
        Place { partition: Some(4), bucket }
    }

    fn judged(routes: &Routes, range: ProducerRange) -> Result<Verdict> {
        routes.judge(&range, None)
    }

    #[test]
    fn a_source_takes_ranges_in_order_and_knows_the_last_five_again() {
        let mut routes = Routes::default();
        for at in 0..7 {
            assert_eq!(judged(&routes, range(at, at)).expect("next"), Verdict::New);
            routes.note(&closing(range(at, at), at.into(), true), 5, 5);
        }
        for at in 2..7 {
            let Ok(Verdict::Duplicate(seen)) = judged(&routes, range(at, at)) else { panic!("range {at}") };
            assert_eq!((seen.base_offset, seen.end_offset), (i64::from(at), i64::from(at) + 1));
        }
        for other in [range(1, 1), range(8, 8), range(6, 7)] {
            assert_eq!(judged(&routes, other).expect_err("refused").kind, ErrorKind::OutOfOrder);
        }
        let old = ProducerRange { epoch: 0, ..range(7, 7) };
        assert_eq!(judged(&routes, old).expect_err("old").kind, ErrorKind::FencedWriter);
        let new = |first| ProducerRange { epoch: 2, ..range(first, first) };
        assert_eq!(judged(&routes, new(3)).expect_err("not 0").kind, ErrorKind::OutOfOrder);
        assert_eq!(judged(&routes, new(0)).expect("begins"), Verdict::New);
    }

    #[test]
    fn a_void_reopens_its_range_keeps_its_rows_and_leaves_later_closings() {
        let mut routes = Routes::default();
        for at in 0..3 {
            routes.note(&closing(range(at, at), 10 + i64::from(at), true), 5, 5);
        }
        routes.note(&ProducerMark::Void(Void { offset: 11, range: range(1, 1) }), 6, 6);
        assert!(matches!(judged(&routes, range(2, 2)), Ok(Verdict::Duplicate(_))));
        assert_eq!(judged(&routes, range(3, 3)).expect_err("1 first").kind, ErrorKind::OutOfOrder);
        assert_eq!(judged(&routes, range(1, 1)).expect("reopened"), Verdict::New);
        assert_eq!(routes.applied_end(&range(1, 1), place(2)), Some(12), "its rows are in");
        routes.note(&closing(range(1, 1), 20, false), 7, 7);
        let Ok(Verdict::Duplicate(seen)) = judged(&routes, range(1, 1)) else { panic!("closed again") };
        assert_eq!(seen.base_offset, 20);
        assert_eq!(judged(&routes, range(3, 3)).expect("next"), Verdict::New);
        // The void named the first closing; the second stands.
        routes.note(&ProducerMark::Void(Void { offset: 11, range: range(1, 1) }), 8, 8);
        assert!(matches!(judged(&routes, range(1, 1)), Ok(Verdict::Duplicate(_))));
    }

    #[test]
    fn what_failed_first_comes_first() {
        let routes = Routes::default();
        let failed = range(5, 6);
        assert_eq!(routes.judge(&range(7, 7), Some(&failed)).expect_err("later").kind, ErrorKind::OutOfOrder);
        assert_eq!(routes.judge(&failed, Some(&failed)).expect("again"), Verdict::New);
        assert_eq!(routes.judge(&ProducerRange { epoch: 2, ..range(7, 7) }, Some(&failed)).expect("new"), Verdict::New);
    }

    #[test]
    fn destinations_know_ranges_by_producer_and_source() {
        let mut routes = Routes::default();
        let entry = |source| Entry { range: range(0, 3), source: place(source), applies: true, closing: false };
        routes.note(&ProducerMark::Entry(entry(1), 40, 42), 5, 5);
        assert_eq!(routes.applied_end(&range(0, 3), place(1)), Some(42));
        assert_eq!(routes.applied_end(&range(0, 3), place(2)), None);
        assert_eq!(routes.applied_end(&ProducerRange { epoch: 2, ..range(0, 3) }, place(1)), None);
        assert_eq!(judged(&routes, range(9, 9)).expect("it closes nothing here"), Verdict::New);
        routes.expire(1_005, 1_000);
        assert_eq!(routes.applied_end(&range(0, 3), place(1)), None);
    }

    #[test]
    fn the_stored_form_round_trips_and_nothing_is_nothing() {
        let mut routes = Routes::default();
        let mut out = Writer::default();
        routes.encode(&mut out);
        assert!(out.0.is_empty());
        for at in 0..4 {
            routes.note(&closing(range(at, at), i64::from(at), at % 2 == 0), 5, 6);
        }
        routes.note(&ProducerMark::Void(Void { offset: 3, range: range(3, 3) }), 6, 6);
        routes.encode(&mut out);
        assert_eq!(Routes::decode(&mut Reader(&out.0)).expect("decodes"), routes);
        for cut in 1..out.0.len() {
            assert!(Routes::decode(&mut Reader(&out.0[..cut])).is_err(), "cut at {cut}");
        }
    }
}
