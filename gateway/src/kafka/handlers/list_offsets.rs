//! ListOffsets (2), v1-10, and OffsetForLeaderEpoch (23), v2-4.
//!
//! - Special timestamps: -1 latest, -2 earliest; v7: -3 largest timestamp; v8: -4 earliest local;
//!   v9: -5 last tiered (none). One that the version does not know is UNSUPPORTED_VERSION there.
//! - By time: the first *record* at or after it, its own timestamp; none is offset -1 without an error.
//! - v4+: the epoch is that of the record found.

use std::collections::HashMap;

use kafka_protocol::messages::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use kafka_protocol::messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use kafka_protocol::messages::{
    ApiKey, ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use sluice_engine::BucketId;
use sluice_protocol::ErrorCode;

use crate::kafka::api::{Api, Context, Started};
use crate::kafka::check_epoch;
use crate::kafka::error::code_of;

pub(crate) struct ListOffsets;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// (offset, timestamp, leader epoch); -1 stands for none.
type Found = (i64, i64, i32);

async fn find(cx: &Context, bucket: BucketId, version: i16, asserted: i32, timestamp: i64) -> Result<Found, ErrorCode> {
    let backend = &cx.broker.backend;
    let offsets = backend.offsets(bucket).map_err(|error| code_of(&error))?;
    check_epoch(asserted, offsets.leader_epoch)?;
    let of_record = |found: Option<(i64, i64)>| match found {
        Some((offset, timestamp)) => (offset, timestamp, backend.epoch_of(bucket, offset)),
        None => (-1, -1, -1),
    };
    let at_start = || {
        let empty = offsets.log_start >= offsets.end;
        let epoch = if empty { offsets.leader_epoch } else { backend.epoch_of(bucket, offsets.log_start) };
        (offsets.log_start, -1, epoch)
    };
    match timestamp {
        LATEST => Ok((offsets.high_watermark, -1, offsets.leader_epoch)),
        EARLIEST => Ok(at_start()),
        EARLIEST_LOCAL if version >= 8 => Ok(at_start()),
        MAX_TIMESTAMP if version >= 7 => {
            backend.max_timestamp(bucket).await.map(of_record).map_err(|error| code_of(&error))
        }
        LATEST_TIERED if version >= 9 => Ok((-1, -1, -1)),
        timestamp if timestamp < 0 => Err(ErrorCode::UnsupportedVersion),
        timestamp => backend.offset_for_time(bucket, timestamp).await.map(of_record).map_err(|error| code_of(&error)),
    }
}

impl Api for ListOffsets {
    const KEY: ApiKey = ApiKey::ListOffsets;
    type Request = ListOffsetsRequest;
    type Response = ListOffsetsResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let cx = cx.clone();
        Started::Pending(Box::pin(async move {
            let mut topics: Vec<ListOffsetsTopicResponse> = Vec::with_capacity(request.topics.len());
            let isolation =
                if (0..=1).contains(&request.isolation_level) { Ok(()) } else { Err(ErrorCode::UnknownServerError) };
            let mut named = HashMap::new();
            let mut places = HashMap::new();
            for topic in &request.topics {
                for part in &topic.partitions {
                    *named.entry((topic.name.clone(), part.partition_index)).or_insert(0) += 1;
                }
            }
            for topic in request.topics {
                let info = cx.broker.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition);
                let mut partitions = Vec::with_capacity(topic.partitions.len());
                for part in topic.partitions {
                    // Named again: INVALID_REQUEST once, as in Kafka.
                    let times = named.insert((topic.name.clone(), part.partition_index), 0).unwrap_or(0);
                    if times == 0 {
                        continue;
                    }
                    let bucket = info
                        .as_ref()
                        .map_err(|code| *code)
                        .and_then(|info| cx.broker.bucket(info, part.partition_index));
                    let found = match bucket.and_then(|bucket| isolation.map(|()| bucket)) {
                        _ if times > 1 => Err(ErrorCode::InvalidRequest),
                        Ok(bucket) => find(&cx, bucket, version, part.current_leader_epoch, part.timestamp).await,
                        Err(code) => Err(code),
                    };
                    let (offset, timestamp, epoch) = found.unwrap_or((-1, -1, -1));
                    partitions.push(
                        ListOffsetsPartitionResponse::default()
                            .with_partition_index(part.partition_index)
                            .with_error_code(found.err().map_or(0, |code| code.code()))
                            .with_offset(offset)
                            .with_timestamp(timestamp)
                            // The field came with v4.
                            .with_leader_epoch(if version >= 4 { epoch } else { -1 }),
                    );
                }
                let place = *places.entry(topic.name.clone()).or_insert(topics.len());
                match topics.get_mut(place) {
                    Some(earlier) => earlier.partitions.extend(partitions),
                    None => topics
                        .push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)),
                }
            }
            ListOffsetsResponse::default().with_topics(topics)
        }))
    }
}

pub(crate) struct OffsetForLeaderEpoch;

fn epoch_end(
    cx: &Context,
    bucket: Result<BucketId, ErrorCode>,
    asserted: i32,
    epoch: i32,
) -> Result<(i32, i64), ErrorCode> {
    let bucket = bucket?;
    let offsets = cx.broker.backend.offsets(bucket).map_err(|error| code_of(&error))?;
    check_epoch(asserted, offsets.leader_epoch)?;
    cx.broker.backend.epoch_end(bucket, epoch).map_err(|error| code_of(&error))
}

impl Api for OffsetForLeaderEpoch {
    const KEY: ApiKey = ApiKey::OffsetForLeaderEpoch;
    type Request = OffsetForLeaderEpochRequest;
    type Response = OffsetForLeaderEpochResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let topics = request.topics.into_iter().map(|topic| {
            let info = cx.broker.topic(&topic.topic).ok_or(ErrorCode::UnknownTopicOrPartition);
            let partitions = topic.partitions.into_iter().map(|part| {
                let bucket =
                    info.as_ref().map_err(|code| *code).and_then(|info| cx.broker.bucket(info, part.partition));
                let found = epoch_end(cx, bucket, part.current_leader_epoch, part.leader_epoch);
                let (epoch, end) = found.unwrap_or((-1, -1));
                EpochEndOffset::default()
                    .with_partition(part.partition)
                    .with_error_code(found.err().map_or(0, |code| code.code()))
                    .with_leader_epoch(epoch)
                    .with_end_offset(end)
            });
            let partitions = partitions.collect();
            OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
        });
        Started::Ready(OffsetForLeaderEpochResponse::default().with_topics(topics.collect()))
    }
}
