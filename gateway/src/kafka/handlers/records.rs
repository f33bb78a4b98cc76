//! DeleteRecords (21), v0-2: moves the log start up; offset -1 is the high watermark.

use kafka_protocol::messages::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use kafka_protocol::messages::{ApiKey, DeleteRecordsRequest, DeleteRecordsResponse};
use sluice_protocol::ErrorCode;

use crate::kafka::api::{Api, Context, Started};
use crate::kafka::error::code_of;
use crate::kafka::names;

pub(crate) struct DeleteRecords;

async fn delete(cx: &Context, topic: &str, partition: i32, offset: i64) -> Result<i64, ErrorCode> {
    if names::RESERVED.contains(&topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let info = cx.broker.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let bucket = cx.broker.bucket(&info, partition)?;
    let before = match offset {
        -1 => None,
        offset if offset < 0 => return Err(ErrorCode::OffsetOutOfRange),
        offset => Some(offset),
    };
    cx.broker.backend.delete_records(bucket, before).await.map_err(|error| code_of(&error))
}

impl Api for DeleteRecords {
    const KEY: ApiKey = ApiKey::DeleteRecords;
    type Request = DeleteRecordsRequest;
    type Response = DeleteRecordsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for part in topic.partitions {
                let outcome = delete(cx, &topic.name, part.partition_index, part.offset).await;
                partitions.push(
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(part.partition_index)
                        .with_low_watermark(outcome.unwrap_or(-1))
                        .with_error_code(outcome.err().map_or(0, |code| code.code())),
                );
            }
            topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
        }
        Started::Ready(DeleteRecordsResponse::default().with_topics(topics))
    }
}
