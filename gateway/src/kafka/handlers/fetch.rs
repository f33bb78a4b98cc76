//! Fetch (1), v4-18.
//!
//! - Long poll: held until `min_bytes` are there over all topic partitions, any of them has an error,
//!   or `max_wait_ms` is over.
//! - The first batch is returned whole whatever the limits say (KIP-74); later ones obey them.
//! - Sessions (KIP-227): every answer is full and carries session id 0, which asks the client to go on
//!   without one; a session id we never gave is FETCH_SESSION_ID_NOT_FOUND.
//! - read_committed: with no transactions the last stable offset is the high watermark.
//! - v12+: a diverging epoch is told (KIP-595). v13+: topic ids (KIP-516).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse};
use sluice_engine::catalog::TableInfo;
use sluice_engine::tablet::{Batches, Offsets};
use sluice_engine::{BucketId, Error, ErrorKind};
use sluice_protocol::ErrorCode;
use sluice_protocol::fetch_body::{self, FetchPartition, FetchTopic};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::convert::encode::{self, Encoder};
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::check_epoch;
use crate::kafka::error::code_of;

pub(crate) struct Fetch;

/// What one response holds at most, whatever the client asks for.
const RESPONSE_BYTES_MAX: i32 = 55 << 20;
/// Stored bytes of a typed table that one request converts for a topic partition: conversion is work for the CPU.
const STORED_MAX: usize = 1 << 20;
/// How long a request may be held, ms.
const WAIT_MS_MAX: i32 = 30 * 60 * 1000;

/// One topic partition that is asked for.
struct Wanted {
    index: i32,
    offset: i64,
    max_bytes: usize,
    current_epoch: i32,
    last_fetched_epoch: i32,
    bucket: Result<BucketId, ErrorCode>,
    /// Of a typed table.
    table: Option<Arc<TableInfo>>,
}

/// A follower's place; this server has none.
const NO_REPLICA: i32 = -1;

struct WantedTopic {
    name: String,
    id: uuid::Uuid,
    partitions: Vec<Wanted>,
}

fn refused(index: i32, code: ErrorCode) -> FetchPartition<Batches> {
    FetchPartition {
        index,
        error_code: code.code(),
        high_watermark: -1,
        last_stable_offset: -1,
        log_start_offset: -1,
        aborted: unknown_topic(code).then(Vec::new),
        ..FetchPartition::default()
    }
}

/// Errors that Kafka answers before it looks at the log: they carry an empty list of aborted transactions.
fn unknown_topic(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition | ErrorCode::InconsistentTopicId)
}

/// Whether the reader's last epoch ended before the offset it asks for (KIP-595); an epoch that
/// never was is out of range.
fn diverging(cx: &Context, bucket: BucketId, wanted: &Wanted) -> Result<Option<(i32, i64)>, ErrorCode> {
    if wanted.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let found = cx.broker.backend.epoch_end(bucket, wanted.last_fetched_epoch);
    let (epoch, end) = found.map_err(|error| code_of(&error))?;
    if epoch < 0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((epoch < wanted.last_fetched_epoch || end < wanted.offset).then_some((epoch, end)))
}

enum Look {
    Refused(ErrorCode),
    Diverging(Offsets, (i32, i64)),
    /// Below the offset at which the bucket began: an earlier one had the topic partition.
    Gap(Offsets),
    Good(BucketId, Offsets),
}

fn look(cx: &Context, wanted: &Wanted) -> Look {
    let bucket = match wanted.bucket {
        Ok(bucket) => bucket,
        Err(code) => return Look::Refused(code),
    };
    let offsets = match cx.broker.backend.offsets(bucket) {
        Ok(offsets) => offsets,
        Err(error) => return Look::Refused(code_of(&error)),
    };
    if let Err(code) = check_epoch(wanted.current_epoch, offsets.leader_epoch) {
        return Look::Refused(code);
    }
    match diverging(cx, bucket, wanted) {
        Ok(None) => {}
        Ok(Some(end)) => return Look::Diverging(offsets, end),
        Err(code) => return Look::Refused(code),
    }
    if (0..offsets.slot_base).contains(&wanted.offset) {
        return Look::Gap(offsets);
    }
    if wanted.offset < offsets.log_start || wanted.offset > offsets.high_watermark {
        return Look::Refused(ErrorCode::OffsetOutOfRange);
    }
    Look::Good(bucket, offsets)
}

/// Whether the request can be answered: enough bytes, or something that must be told at once.
fn is_ripe(cx: &Context, topics: &[WantedTopic], min_bytes: u64) -> bool {
    let mut bytes = 0;
    let mut any = false;
    for wanted in topics.iter().flat_map(|topic| &topic.partitions) {
        any = true;
        match look(cx, wanted) {
            Look::Good(bucket, _) => {
                bytes += cx.broker.backend.available_bytes(bucket, wanted.offset).min(wanted.max_bytes.max(1) as u64);
            }
            Look::Refused(_) | Look::Diverging(..) | Look::Gap(_) => return true,
        }
    }
    !any || bytes >= min_bytes
}

async fn collect(
    cx: &Context,
    topics: Vec<WantedTopic>,
    max_bytes: usize,
    committed: bool,
) -> Vec<FetchTopic<Batches>> {
    let mut left = max_bytes;
    let mut first = true;
    let mut answers = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let answer = read_one(cx, wanted, left, first, committed).await;
            let len = answer.records.as_ref().map_or(0, |(_, len)| *len);
            first &= len == 0;
            left = left.saturating_sub(len);
            partitions.push(answer);
        }
        answers.push(FetchTopic { name: topic.name, id: *topic.id.as_bytes(), partitions });
    }
    answers
}

async fn read_one(cx: &Context, wanted: &Wanted, left: usize, first: bool, committed: bool) -> FetchPartition<Batches> {
    let mut gap: Option<Bytes> = None;
    let (bucket, offsets, diverging) = match look(cx, wanted) {
        Look::Refused(code) => return refused(wanted.index, code),
        Look::Diverging(offsets, end) => (None, offsets, Some(end)),
        Look::Gap(offsets) => {
            gap = Some(encode::gap(wanted.offset, offsets.slot_base, offsets.leader_epoch).into());
            (None, offsets, None)
        }
        Look::Good(bucket, offsets) => (Some(bucket), offsets, None),
    };
    let mut answer = FetchPartition {
        index: wanted.index,
        high_watermark: offsets.high_watermark,
        last_stable_offset: offsets.high_watermark,
        log_start_offset: offsets.log_start,
        aborted: committed.then(Vec::new),
        diverging,
        ..FetchPartition::default()
    };
    if let Some(gap) = gap {
        let len = gap.len();
        answer.records = Some((Batches::Bytes(gap), len));
        return answer;
    }
    let budget = wanted.max_bytes.min(left);
    let Some(bucket) = bucket.filter(|_| wanted.offset < offsets.high_watermark && (first || budget > 0)) else {
        return answer;
    };
    match read_batches(cx, wanted, bucket, budget).await {
        Ok(batches) => {
            // Only the first batch of a response may be larger than what was asked for.
            let len = batches.len();
            if len > 0 && (first || len <= budget) {
                cx.broker.metrics.fetched_bytes.inc_by(len as u64);
                answer.records = Some((batches, len));
            }
            answer
        }
        Err(error) => refused(wanted.index, code_of(&error)),
    }
}

/// Batches as Kafka has them: those of a raw table as they are stored, those of a typed table converted.
async fn read_batches(
    cx: &Context,
    wanted: &Wanted,
    bucket: BucketId,
    max_bytes: usize,
) -> sluice_engine::Result<Batches> {
    let backend = &cx.broker.backend;
    let Some(table) = &wanted.table else { return backend.read(bucket, wanted.offset, max_bytes).await };
    let stored = backend.read_bytes(bucket, wanted.offset, max_bytes.min(STORED_MAX)).await?;
    // The schema may have a new version by now, and what was read may be of it.
    let table = backend.tables().by_id(bucket.table).map_or_else(|| Arc::clone(table), Arc::clone);
    let encoder =
        Encoder::of(&table).ok_or_else(|| Error::new(ErrorKind::Internal, "a typed table without a schema"))?;
    encoder.encode(&stored, wanted.offset, max_bytes).map(Batches::Bytes)
}

fn resolve(cx: &Context, version: i16, request: &FetchRequest) -> Vec<WantedTopic> {
    let tables = cx.broker.backend.tables();
    let mut topics: Vec<WantedTopic> = Vec::with_capacity(request.topics.len());
    let mut places = HashMap::new();
    let mut again = BTreeSet::new();
    let replica = if version >= 15 { request.replica_state.replica_id.0 } else { request.replica_id.0 };
    let follower = if replica > NO_REPLICA { Err(ErrorCode::NotLeaderOrFollower) } else { Ok(()) };
    for topic in &request.topics {
        let found = if version >= 13 {
            tables.by_uuid(&topic.topic_id).ok_or(ErrorCode::UnknownTopicId)
        } else {
            tables.by_name(&topic.topic).ok_or(ErrorCode::UnknownTopicOrPartition)
        };
        let partitions = topic.partitions.iter().map(|part| Wanted {
            index: part.partition,
            offset: part.fetch_offset,
            max_bytes: usize::try_from(part.partition_max_bytes).unwrap_or(0),
            current_epoch: part.current_leader_epoch,
            last_fetched_epoch: part.last_fetched_epoch,
            bucket: found.and_then(|info| cx.broker.bucket(info, part.partition)).and_then(|it| follower.map(|()| it)),
            table: found.ok().filter(|info| info.typed.is_some()).cloned(),
        });
        // A topic or a topic partition that is named again counts once, as in Kafka.
        let place = *places.entry((topic.topic.clone(), topic.topic_id)).or_insert(topics.len());
        match topics.get_mut(place) {
            None => {
                let partitions = partitions.collect();
                topics.push(WantedTopic { name: topic.topic.to_string(), id: topic.topic_id, partitions });
            }
            Some(earlier) => {
                earlier.partitions.extend(partitions);
                again.insert(place);
            }
        }
    }
    for place in again {
        let Some(topic) = topics.get_mut(place) else { continue };
        // The last one counts, at its own place.
        let mut seen = HashSet::new();
        topic.partitions.reverse();
        topic.partitions.retain(|wanted| seen.insert(wanted.index));
        topic.partitions.reverse();
    }
    topics
}

async fn hold(cx: &Context, topics: &[WantedTopic], min_bytes: u64, deadline: Instant) {
    if is_ripe(cx, topics, min_bytes) || Instant::now() >= deadline {
        return;
    }
    let wake = Arc::new(Notify::new());
    let buckets = topics.iter().flat_map(|topic| &topic.partitions).filter_map(|wanted| wanted.bucket.ok());
    let _guards: Vec<_> = buckets.filter_map(|bucket| cx.broker.backend.watch(bucket, &wake)).collect();
    // What came between the look and the watch is seen by looking again.
    while !is_ripe(cx, topics, min_bytes) {
        if tokio::time::timeout_at(deadline, wake.notified()).await.is_err() {
            return;
        }
    }
}

impl Api for Fetch {
    const KEY: ApiKey = ApiKey::Fetch;
    type Request = FetchRequest;
    type Response = FetchResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let correlation_id = cx.correlation_id;
        let refuse = |code: ErrorCode| {
            let frame = fetch_body::encode(version, correlation_id, code.code(), 0, Vec::new());
            Started::Frame(Box::pin(std::future::ready(frame)))
        };
        if request.session_id != 0 && request.session_epoch > 0 {
            return refuse(ErrorCode::FetchSessionIdNotFound);
        }
        if !(0..=1).contains(&request.isolation_level) {
            return refuse(ErrorCode::UnknownServerError);
        }
        let deadline = Instant::now() + Duration::from_millis(request.max_wait_ms.clamp(0, WAIT_MS_MAX) as u64);
        let min_bytes = u64::try_from(request.min_bytes).unwrap_or(0);
        let max_bytes = request.max_bytes.clamp(0, RESPONSE_BYTES_MAX) as usize;
        let committed = request.isolation_level == 1;
        let topics = resolve(cx, version, &request);
        let cx = cx.clone();
        Started::Frame(Box::pin(async move {
            hold(&cx, &topics, min_bytes, deadline).await;
            let answers = collect(&cx, topics, max_bytes, committed).await;
            fetch_body::encode(version, correlation_id, 0, 0, answers)
        }))
    }
}
