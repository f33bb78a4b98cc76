//! Produce (0), v3-13, and InitProducerId (22), v0-5.
//!
//! - One batch for each topic partition; records stay the bytes they are.
//! - The order of appends is fixed when the request is taken up; acks=all is answered once every
//!   batch is on disk (or as the table's `durability.acks-all` says).
//! - acks=0 has no response; a failure closes the connection.
//! - Transactions are not offered: a transactional id is refused with UNSUPPORTED_VERSION, a
//!   transactional batch with INVALID_TXN_STATE.
//! - v8+: record errors (KIP-467). v13: topic ids (KIP-516).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    ApiKey, InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse, ProducerId,
};
use sluice_engine::catalog::TableInfo;
use sluice_engine::catalog::descriptor::ValidTable;
use sluice_engine::kv_tablet::Op;
use sluice_engine::log::head::ProducerRange;
use sluice_engine::row::batch::append_only;
use sluice_engine::tablet::{Appended, LogBatch, RawBatch, Refusal, prepare};
use sluice_engine::{Acks, BucketId, ErrorKind, PendingAppend, UpsertRequest};
use sluice_protocol::batch::BatchHeader;
use sluice_protocol::{DecodeError, ErrorCode};

use crate::convert::decode::{self, Refused};
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::error::code_of;
use crate::kafka::{Broker, names, text};

pub(crate) struct Produce;

/// The first version whose consumers know zstd (KIP-110).
const ZSTD_VERSION: i16 = 7;
const ZSTD: i16 = 4;
/// Largest log batch of a typed table, bytes: each fetch from the middle of a batch decodes all of it.
const TYPED_BATCH_MAX: usize = 16 << 20;
/// A sync that takes longer than this is answered with REQUEST_TIMED_OUT, whatever shorter time the
/// client gave: the batch is appended, and an early timeout would only be ambiguous.
const TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// Why one topic partition's batch was refused.
struct Fault {
    code: ErrorCode,
    message: Option<String>,
    records: Vec<(usize, String)>,
    /// Whether the batch came as far as the log, so that its start is told: what Kafka refuses
    /// before is answered with -1 there.
    at_log: bool,
    log_start: i64,
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None, records: Vec::new(), at_log: false, log_start: -1 }
    }
}

impl From<sluice_engine::Error> for Fault {
    fn from(error: sluice_engine::Error) -> Self {
        Self { code: code_of(&error), message: Some(error.message), records: Vec::new(), at_log: true, log_start: -1 }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.cause {
            _ if refusal.timestamp => ErrorCode::InvalidTimestamp,
            Some(DecodeError::BadCrc { .. } | DecodeError::UnknownMagic { .. } | DecodeError::BatchTooSmall { .. }) => {
                ErrorCode::CorruptMessage
            }
            Some(_) => ErrorCode::InvalidRecord,
            None => code_of(&refusal.error),
        };
        let at_log = match refusal.cause {
            Some(
                DecodeError::InvalidBatch { .. }
                | DecodeError::InvalidRecord { .. }
                | DecodeError::UnknownCodec { .. }
                | DecodeError::Decompress { .. },
            ) => true,
            Some(_) => false,
            None => refusal.timestamp,
        };
        Self { code, message: Some(refusal.error.message), records: refusal.records, at_log, log_start: -1 }
    }
}

type Slot = (i32, Option<BucketId>, Result<PendingAppend, Fault>);

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Batch(cause) => Refusal::from(cause).into(),
            Refused::Records(records) => Self {
                code: ErrorCode::InvalidRecord,
                message: records.first().map(|(at, what)| format!("record {at} of the batch: {what}")),
                records,
                at_log: true,
                log_start: -1,
            },
        }
    }
}

/// A log batch of the rows that a batch for a typed log table holds.
fn typed_batch(cx: &Context, table: &ValidTable, bucket: BucketId, raw: &RawBatch) -> Result<LogBatch, Fault> {
    let decoded = decode::rows(&table.schema, &raw.bytes)?;
    cx.broker.metrics.headers_dropped.inc_by(decoded.headers_dropped);
    let batch = append_only(bucket, &table.schema, &decoded.items, ProducerRange::of(&raw.header))?;
    if batch.bytes.len() > TYPED_BATCH_MAX {
        let what = format!("a batch of {} bytes of rows is larger than {TYPED_BATCH_MAX}", batch.bytes.len());
        return Err(sluice_engine::Error::new(ErrorKind::TooLarge, what).into());
    }
    Ok(LogBatch::Typed(batch))
}

/// Routes what a batch holds to the buckets of its rows; the answer is about the topic partition that was addressed.
async fn route(
    cx: &Context,
    info: &TableInfo,
    table: &ValidTable,
    source: u32,
    raw: &RawBatch,
    acks: Acks,
) -> Result<PendingAppend, Fault> {
    let (ops, headers_dropped) = match info.rules() {
        Some(rules) => {
            let decoded = decode::ops(info, &rules, &raw.bytes)?;
            (decoded.items, decoded.headers_dropped)
        }
        None => {
            let decoded = decode::rows(&table.schema, &raw.bytes)?;
            (decoded.items.into_iter().map(Op::upsert).collect(), decoded.headers_dropped)
        }
    };
    cx.broker.metrics.headers_dropped.inc_by(headers_dropped);
    let range = ProducerRange::of(&raw.header);
    let request = UpsertRequest { source: Some(source), range, ops, acks };
    let pending = cx.broker.backend.upsert(info.table_id(), request).await?;
    Ok(Box::pin(async move {
        let nothing = || sluice_engine::Error::new(ErrorKind::Internal, "an upsert has no place");
        pending.await?.source.ok_or_else(nothing)
    }))
}

async fn queue(
    cx: &Context,
    version: i16,
    info: &TableInfo,
    (source, bucket): (u32, BucketId),
    records: Option<Bytes>,
    acks: i16,
) -> Result<PendingAppend, Fault> {
    let options = cx.broker.backend.log_options(bucket)?;
    let bytes = records.unwrap_or_default();
    let codec = BatchHeader::read(&bytes).map(|header| header.codec());
    if codec == Some(ZSTD) && version < ZSTD_VERSION {
        return Err(ErrorCode::UnsupportedCompressionType.into());
    }
    let raw = prepare(&bytes, &options, cx.broker.clock.now_ms())?;
    if raw.header.is_transactional() {
        let message = Some("transactions are not offered by this server".to_owned());
        return Err(Fault {
            code: ErrorCode::InvalidTxnState,
            message,
            records: Vec::new(),
            at_log: true,
            log_start: -1,
        });
    }
    let (bytes, records) = (raw.bytes.len() as u64, raw.header.record_count.unsigned_abs().into());
    let wait = if acks == -1 { Acks::All } else { Acks::Leader };
    let pending = match &info.typed {
        None => cx.broker.backend.append(bucket, raw.into(), wait).await?,
        Some(table) if info.is_routed() => route(cx, info, table, source, &raw, wait).await?,
        Some(table) => cx.broker.backend.append(bucket, typed_batch(cx, table, bucket, &raw)?, wait).await?,
    };
    cx.broker.metrics.produced_bytes.inc_by(bytes);
    cx.broker.metrics.produced_records.inc_by(records);
    Ok(pending)
}

fn find(broker: &Broker, version: i16, topic: &TopicKey) -> Result<std::sync::Arc<TableInfo>, ErrorCode> {
    match topic {
        TopicKey::Id(id) if version >= 13 => {
            broker.backend.tables().by_uuid(id).cloned().ok_or(ErrorCode::UnknownTopicId)
        }
        TopicKey::Name(name) if names::RESERVED.contains(&name.as_str()) => Err(ErrorCode::InvalidTopicException),
        TopicKey::Name(name) => broker.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicKey::Id(_) => Err(ErrorCode::UnknownTopicOrPartition),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TopicKey {
    Id(uuid::Uuid),
    Name(String),
}

/// Record data by topic partition.
type Parts = Vec<(i32, Option<Bytes>)>;

/// The request's parts by topic, in order; a topic partition named twice counts once, the last time,
/// as in Kafka.
fn by_topic(version: i16, request: ProduceRequest) -> Vec<(TopicKey, Parts)> {
    let mut topics: Vec<(TopicKey, Parts)> = Vec::new();
    let mut topic_places: HashMap<TopicKey, usize> = HashMap::new();
    let mut places: HashMap<(TopicKey, i32), usize> = HashMap::new();
    for topic in request.topic_data.into_iter().filter(|topic| !topic.partition_data.is_empty()) {
        let key = if version >= 13 { TopicKey::Id(topic.topic_id) } else { TopicKey::Name(topic.name.to_string()) };
        let at = *topic_places.entry(key.clone()).or_insert_with(|| {
            topics.push((key.clone(), Vec::new()));
            topics.len() - 1
        });
        let Some((_, parts)) = topics.get_mut(at) else { continue };
        for part in topic.partition_data {
            match places.get(&(key.clone(), part.index)) {
                Some(place) => {
                    if let Some(slot) = parts.get_mut(*place) {
                        slot.1 = part.records;
                    }
                }
                None => {
                    places.insert((key.clone(), part.index), parts.len());
                    parts.push((part.index, part.records));
                }
            }
        }
    }
    topics
}

fn answer(index: i32, outcome: Result<Appended, Fault>) -> PartitionProduceResponse {
    let base = PartitionProduceResponse::default().with_index(index).with_log_append_time_ms(-1);
    match outcome {
        Ok(appended) => base
            .with_base_offset(appended.base_offset)
            .with_log_append_time_ms(appended.append_time_ms.unwrap_or(-1))
            .with_log_start_offset(appended.log_start),
        Err(fault) => {
            let errors = fault.records.into_iter().map(|(index, message)| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(index as i32)
                    .with_batch_index_error_message(Some(text(message)))
            });
            base.with_error_code(fault.code.code())
                .with_base_offset(-1)
                .with_log_start_offset(fault.log_start)
                .with_error_message(fault.message.map(text))
                .with_record_errors(errors.collect())
        }
    }
}

async fn finish(cx: Context, topics: Vec<(TopicKey, Vec<Slot>)>, patience: Duration) -> ProduceResponse {
    let mut responses = Vec::with_capacity(topics.len());
    let deadline = tokio::time::Instant::now() + patience;
    for (key, slots) in topics {
        let mut parts = Vec::with_capacity(slots.len());
        for (index, bucket, slot) in slots {
            let mut outcome = match slot {
                Err(fault) => Err(fault),
                Ok(pending) => match tokio::time::timeout_at(deadline, pending).await {
                    Ok(outcome) => outcome.map_err(Fault::from),
                    Err(_) => Err(ErrorCode::RequestTimedOut.into()),
                },
            };
            if let (Err(fault), Some(bucket)) = (&mut outcome, bucket)
                && fault.at_log
            {
                fault.log_start = cx.broker.backend.offsets(bucket).map_or(-1, |offsets| offsets.log_start);
            }
            parts.push(answer(index, outcome));
        }
        let response = TopicProduceResponse::default().with_partition_responses(parts);
        responses.push(match key {
            TopicKey::Id(id) => response.with_topic_id(id),
            TopicKey::Name(name) => response.with_name(text(name).into()),
        });
    }
    ProduceResponse::default().with_responses(responses)
}

impl Api for Produce {
    const KEY: ApiKey = ApiKey::Produce;
    type Request = ProduceRequest;
    type Response = ProduceResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let acks = request.acks;
        let transactional = request.transactional_id.is_some();
        let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0)).max(TIMEOUT_MIN);
        let mut topics = Vec::new();
        for (key, parts) in by_topic(version, request) {
            let topic = find(&cx.broker, version, &key);
            let mut slots: Vec<Slot> = Vec::with_capacity(parts.len());
            for (index, records) in parts {
                let place = match &topic {
                    _ if !(-1..=1).contains(&acks) => Err(ErrorCode::InvalidRequiredAcks),
                    _ if transactional => Err(ErrorCode::UnsupportedVersion),
                    Ok(info) => cx.broker.bucket(info, index).map(|bucket| (info, bucket)),
                    Err(code) => Err(*code),
                };
                let slot = match place {
                    Ok((info, bucket)) => queue(cx, version, info, (index.unsigned_abs(), bucket), records, acks).await,
                    Err(code) => Err(code.into()),
                };
                slots.push((index, place.ok().map(|(_, bucket)| bucket), slot));
            }
            topics.push((key, slots));
        }
        let finished = finish(cx.clone(), topics, timeout);
        if acks == 0 {
            // Out of sequence is no reason to close: the client could not tell, and Kafka does not.
            return Started::Silent(Box::pin(async move { finished.await.responses.iter().all(is_silent) }));
        }
        Started::Pending(Box::pin(finished))
    }
}

fn is_silent(topic: &TopicProduceResponse) -> bool {
    let sequence = [ErrorCode::OutOfOrderSequenceNumber.code(), ErrorCode::InvalidProducerEpoch.code(), 0];
    topic.partition_responses.iter().all(|part| sequence.contains(&part.error_code))
}

pub(crate) struct InitProducerId;

impl Api for InitProducerId {
    const KEY: ApiKey = ApiKey::InitProducerId;
    type Request = InitProducerIdRequest;
    type Response = InitProducerIdResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let refuse = |code: ErrorCode| {
            let response = InitProducerIdResponse::default().with_error_code(code.code()).with_producer_epoch(-1);
            Started::Ready(response.with_producer_id(ProducerId(-1)))
        };
        match request.transactional_id {
            Some(id) if id.is_empty() => return refuse(ErrorCode::InvalidRequest),
            Some(_) => return refuse(ErrorCode::UnsupportedVersion),
            None => {}
        }
        match cx.broker.backend.next_producer_id().await {
            Ok(id) => Started::Ready(InitProducerIdResponse::default().with_producer_id(ProducerId(id))),
            Err(error) => refuse(crate::kafka::error::coordinator_code_of(&error)),
        }
    }
}
