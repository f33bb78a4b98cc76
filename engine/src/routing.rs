//! Rows to the buckets of their keys and partitions, and the order in which that happens (design §3; docs/decisions/0002).
//!
//! The *source* is the bucket that a producer addressed. Of each producer's batches it takes one at a time: the rows
//! that belong elsewhere are appended there, then a closing at the source says so, and from then on a retry is a
//! duplicate. Nothing of the next batch is appended before. Waiting for the disk comes after, so batches in flight
//! still share syncs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::backend::{Acks, PendingUpsert, UpsertRequest};
use crate::catalog::TableInfo;
use crate::config::AcksAll;
use crate::embedded::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::kv_tablet::{Closing, Op};
use crate::log::head::ProducerRange;
use crate::row::batch::{Destination, Entry};
use crate::row::key::Place;
use crate::shard::{AppendReply, Durable, Shards, when_durable};
use crate::tablet::producers::BATCHES_KEPT;
use crate::tablet::routes::Verdict;
use crate::tablet::{Appended, Tablet};
use crate::types::BucketId;
use crate::upserts::{Appliers, Rows, Upsert};

/// What a source remembers beside its log.
#[derive(Default)]
struct Source {
    /// The earliest range of each producer that failed.
    failed: HashMap<i64, ProducerRange>,
    /// The newest epoch of each producer that was taken up: parts of its batches may be in before a closing is.
    epochs: HashMap<i64, i16>,
    /// Where the rows of recent ranges went, for the answers to their duplicates.
    recent: HashMap<i64, VecDeque<(ProducerRange, Elsewhere)>>,
}

type Elsewhere = Vec<(Arc<Tablet>, Destination)>;

impl Source {
    fn note_failed(&mut self, range: ProducerRange) {
        let known = self.failed.get(&range.id);
        let later = |known: &ProducerRange| {
            known.epoch < range.epoch || (known.epoch == range.epoch && range.first_sequence < known.first_sequence)
        };
        if known.is_none_or(later) {
            self.failed.insert(range.id, range);
        }
    }

    fn note_closed(&mut self, range: ProducerRange, elsewhere: Elsewhere) {
        if self.failed.get(&range.id) == Some(&range) {
            self.failed.remove(&range.id);
        }
        let recent = self.recent.entry(range.id).or_default();
        recent.retain(|(known, _)| *known != range);
        if recent.len() == BATCHES_KEPT {
            recent.pop_front();
        }
        recent.push_back((range, elsewhere));
    }

    fn elsewhere(&self, range: &ProducerRange) -> Elsewhere {
        let recent = self.recent.get(&range.id).into_iter().flatten();
        recent.filter(|(known, _)| known == range).map(|(_, elsewhere)| elsewhere.clone()).next().unwrap_or_default()
    }

    /// Epochs fence when a batch is taken up, not only when it is closed.
    fn check_epoch(&mut self, range: &ProducerRange) -> Result<()> {
        match self.epochs.get(&range.id) {
            Some(newest) if range.epoch < *newest => {
                let message = format!("epoch {} of producer {} is older than {newest}", range.epoch, range.id);
                Err(Error::new(ErrorKind::FencedWriter, message))
            }
            _ => Ok(()),
        }
    }
}

/// Routes upserts.
pub(crate) struct Router {
    core: Arc<Core>,
    shards: Shards<Upsert>,
    flusher: Arc<Flusher>,
    appliers: Arc<Appliers>,
    sources: Mutex<HashMap<BucketId, Arc<tokio::sync::Mutex<Source>>>>,
    /// Counts requests that address no bucket, for tables without a bucket key.
    turn: AtomicU32,
}

/// A part of a batch: the rows of one bucket.
struct Part {
    rows: Rows,
    ops: Vec<Op>,
}

impl Router {
    /// Routes to the buckets of `core`.
    ///
    /// # Errors
    /// The operating system's, when it starts no thread.
    pub(crate) fn new(
        core: Arc<Core>,
        threads: usize,
        queue: usize,
        flusher: &Arc<Flusher>,
        appliers: &Arc<Appliers>,
    ) -> Result<Self> {
        let shards = Shards::new("upsert", threads, queue, flusher)?;
        let (flusher, appliers) = (Arc::clone(flusher), Arc::clone(appliers));
        Ok(Self { core, shards, flusher, appliers, sources: Mutex::default(), turn: AtomicU32::new(0) })
    }

    /// Forgets the sources that `gone` tells of.
    pub(crate) fn forget(&self, gone: impl Fn(&BucketId) -> bool) {
        self.sources.lock().retain(|bucket, _| !gone(bucket));
    }

    /// Takes a request up: when this returns its place is fixed, and its rows are in the page cache.
    pub(crate) async fn upsert(self: &Arc<Self>, info: &TableInfo, request: UpsertRequest) -> Result<PendingUpsert> {
        let UpsertRequest { source, range, ops, acks } = request;
        let source = source.map(|topic_partition| source_of(info, topic_partition)).transpose()?;
        let parts = self.parts(info, source, ops).await?;
        let Some(source) = source else { return self.spread(parts, None, acks).await };
        let source = self.core.rows(info, source).await?;
        let Some(range) = range else { return self.spread(parts, Some(&source), acks).await };
        let gate = Arc::clone(self.sources.lock().entry(source.log().id).or_default());
        let gate = gate.lock_owned().await;
        // Not to be cut short where the client goes: a part that is in must be closed.
        let router = Arc::clone(self);
        let closed = tokio::spawn(async move { router.close(gate, source, range, parts, acks).await });
        closed.await.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
    }

    /// The rows of each bucket, in order.
    async fn parts(
        &self,
        info: &TableInfo,
        source: Option<BucketId>,
        ops: Vec<Op>,
    ) -> Result<BTreeMap<BucketId, Part>> {
        // Rows without a bucket key stay in the bucket that was addressed, else each request goes to one.
        let any = source.map_or_else(|| self.turn.fetch_add(1, Ordering::Relaxed), |source| source.bucket);
        let mut places = Vec::with_capacity(ops.len());
        for (at, op) in ops.iter().enumerate() {
            places.push(match info.bucket_of(&op.row, any)? {
                // There is nothing to delete, and a delete makes no partition.
                None if op.delete => None,
                None => {
                    let name = info.partition_name(&op.row)?;
                    let what = format!("row {at}: no partition of table '{}' is called '{name}'", info.name);
                    return Err(Error::new(ErrorKind::PartitionNotFound, what));
                }
                there => there,
            });
        }
        let mut parts: BTreeMap<BucketId, Part> = BTreeMap::new();
        for (op, bucket) in ops.into_iter().zip(places) {
            let Some(bucket) = bucket else { continue };
            match parts.get_mut(&bucket) {
                Some(part) => part.ops.push(op),
                None => {
                    let rows = self.core.rows(info, bucket).await?;
                    parts.insert(bucket, Part { rows, ops: vec![op] });
                }
            }
        }
        Ok(parts)
    }

    async fn send(
        &self,
        rows: &Rows,
        ops: Vec<Op>,
        closing: Closing,
        acks: Acks,
    ) -> Result<oneshot::Receiver<AppendReply>> {
        let (reply, outcome) = oneshot::channel();
        let (rows, appliers) = (rows.clone(), Arc::clone(&self.appliers));
        self.shards.send(Upsert { rows, ops, closing, acks, appliers, reply }).await?;
        Ok(outcome)
    }

    /// Rows of no producer: each bucket takes its own, and nothing is closed.
    async fn spread(
        &self,
        parts: BTreeMap<BucketId, Part>,
        source: Option<&Rows>,
        acks: Acks,
    ) -> Result<PendingUpsert> {
        let told = source.map(|source| nothing_at(source.log())).transpose()?;
        let mut sent = Vec::with_capacity(parts.len());
        for (bucket, part) in parts {
            sent.push((bucket, self.send(&part.rows, part.ops, Closing::default(), acks).await?));
        }
        let mut outcomes = Vec::with_capacity(sent.len());
        for (bucket, outcome) in sent {
            outcomes.push((bucket, outcome.await.map_err(lost).flatten()));
        }
        let (appended, waits) = all_in(outcomes)?;
        Ok(Box::pin(async move {
            wait(waits).await?;
            Ok(Upserted { source: told, parts: appended })
        }))
    }

    /// Rows of a producer that addressed `source`.
    async fn close(
        self: Arc<Self>,
        mut gate: OwnedMutexGuard<Source>,
        source: Rows,
        range: ProducerRange,
        mut parts: BTreeMap<BucketId, Part>,
        acks: Acks,
    ) -> Result<PendingUpsert> {
        gate.check_epoch(&range)?;
        if let Verdict::Duplicate(closed) = source.log().judge(&range, gate.failed.get(&range.id))? {
            let appended = Appended {
                base_offset: closed.base_offset,
                end_offset: closed.end_offset,
                append_time_ms: Some(closed.commit_ms),
                log_start: source.log().offsets()?.log_start,
            };
            let waits = self.waits(source.log(), closed.end_offset, &gate.elsewhere(&range), acks);
            return Ok(answer(appended, waits));
        }
        gate.epochs.insert(range.id, range.epoch);
        let own = parts.remove(&source.log().id).map(|part| part.ops).unwrap_or_default();
        let outcome = self.append(&source, range, own, parts, acks).await;
        match outcome {
            Ok((appended, elsewhere)) => {
                let waits = self.waits(source.log(), appended.end_offset, &elsewhere, acks);
                gate.note_closed(range, elsewhere);
                Ok(answer(appended, waits))
            }
            Err(error) => {
                gate.note_failed(range);
                Err(error)
            }
        }
    }

    /// Appends the parts of other buckets, then the closing with the source's own rows.
    async fn append(
        &self,
        source: &Rows,
        range: ProducerRange,
        own: Vec<Op>,
        parts: BTreeMap<BucketId, Part>,
        acks: Acks,
    ) -> Result<(Appended, Elsewhere)> {
        let place = Place::from(source.log().id);
        let (mut elsewhere, mut sent) = (Vec::new(), Vec::new());
        for part in parts.into_values() {
            match part.rows.log().applied_end(&range, place) {
                Some(end) => elsewhere.push((Arc::clone(part.rows.log()), destination(part.rows.log(), end))),
                None => {
                    let entry = Some(Entry { range, source: place, applies: true, closing: false });
                    let closing = Closing { entry, elsewhere: Vec::new() };
                    let log = Arc::clone(part.rows.log());
                    sent.push((log, self.send(&part.rows, part.ops, closing, acks).await?));
                }
            }
        }
        let mut failed = None;
        for (log, outcome) in sent {
            match outcome.await.map_err(lost).flatten() {
                Ok((appended, _)) => {
                    let to = destination(&log, appended.end_offset);
                    elsewhere.push((log, to));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(if elsewhere.is_empty() { error } else { partly(&error) });
        }
        // After a void the rows are in already.
        let own = if source.log().applied_end(&range, place).is_some() { Vec::new() } else { own };
        let entry = Some(Entry { range, source: place, applies: !own.is_empty(), closing: true });
        let closing = Closing { entry, elsewhere: elsewhere.clone() };
        let closed = self.send(source, own, closing, acks).await?.await.map_err(lost).flatten();
        match closed {
            Ok((appended, _)) => Ok((appended, elsewhere)),
            Err(error) if elsewhere.is_empty() => Err(error),
            Err(error) => Err(partly(&error)),
        }
    }

    /// What is left to wait for before a range may be acknowledged.
    fn waits(&self, source: &Arc<Tablet>, end: i64, elsewhere: &Elsewhere, acks: Acks) -> Vec<Durable> {
        if acks != Acks::All || source.options().acks_all != AcksAll::Fsync {
            return Vec::new();
        }
        let others = elsewhere.iter().map(|(tablet, to)| (tablet, to.end_offset));
        let each = |(tablet, end): (&Arc<Tablet>, i64)| {
            let durable = when_durable(tablet, end);
            if tablet.is_dirty() {
                self.flusher.dirty(tablet, true);
            }
            durable
        };
        std::iter::once((source, end)).chain(others).map(each).collect()
    }
}

/// What became of a request.
#[derive(Debug, Clone)]
pub struct Upserted {
    /// What its producer is told, where it addressed a bucket.
    pub source: Option<Appended>,
    /// Where the rows went, by bucket; not told where the source closed them.
    pub parts: Vec<(BucketId, Appended)>,
}

/// The bucket that closes what is addressed to a topic partition.
fn source_of(info: &TableInfo, topic_partition: u32) -> Result<BucketId> {
    let none = || {
        let what = format!("table '{}' has no partition; create one first", info.name);
        Error::new(ErrorKind::PartitionNotFound, what)
    };
    info.source_of(topic_partition).ok_or_else(none)
}

fn destination(log: &Tablet, end_offset: i64) -> Destination {
    Destination { place: log.id.into(), leader_epoch: log.epoch.0, end_offset }
}

fn lost<E>(_: E) -> Error {
    Error::new(ErrorKind::ShuttingDown, "the server is stopping")
}

fn partly(error: &Error) -> Error {
    Error::new(ErrorKind::PartlyApplied, format!("some buckets have their rows, but: {}", error.message))
}

/// The end of a log, for a producer without an id whose rows may be elsewhere.
fn nothing_at(log: &Tablet) -> Result<Appended> {
    let offsets = log.offsets()?;
    Ok(Appended {
        base_offset: offsets.end,
        end_offset: offsets.end,
        append_time_ms: None,
        log_start: offsets.log_start,
    })
}

type Outcomes = Vec<(BucketId, AppendReply)>;

/// Where rows went, and what is left to wait for.
type Taken = (Vec<(BucketId, Appended)>, Vec<Durable>);

fn all_in(outcomes: Outcomes) -> Result<Taken> {
    let (mut appended, mut waits, mut failed) = (Vec::new(), Vec::new(), None);
    for (bucket, outcome) in outcomes {
        match outcome {
            Ok((place, durable)) => {
                appended.push((bucket, place));
                waits.extend(durable);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok((appended, waits)),
        Some(error) if appended.is_empty() => Err(error),
        Some(error) => Err(partly(&error)),
    }
}

async fn wait(waits: Vec<Durable>) -> Result<()> {
    for durable in waits {
        durable.await.map_err(lost).flatten()?;
    }
    Ok(())
}

fn answer(appended: Appended, waits: Vec<Durable>) -> PendingUpsert {
    Box::pin(async move {
        wait(waits).await?;
        Ok(Upserted { source: Some(appended), parts: Vec::new() })
    })
}
