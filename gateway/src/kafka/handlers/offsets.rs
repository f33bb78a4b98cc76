//! Committed offsets: OffsetCommit (8) v2-9, OffsetFetch (9) v1-9, OffsetDelete (47) v0.
//!
//! - An unknown topic partition is refused alone; the others are committed.
//! - OffsetFetch of what was never committed is offset -1 without an error; null topics are all of them.
//! - OffsetCommit v2-4 may carry a retention of its own.

use std::collections::BTreeMap;

use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    ApiKey, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use sluice_protocol::ErrorCode;

use crate::coordinator::{Committed, Committer, METADATA_LEN_MAX, Place};
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::{Broker, text};

pub(crate) struct OffsetCommit;

/// Topic partitions of one topic, each with whether its offset may be committed.
type CommitSlots = (TopicName, Vec<(i32, Result<(), ErrorCode>)>);

fn place_of(broker: &Broker, topic: &str, partition: i32) -> Result<Place, ErrorCode> {
    let info = broker.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    broker.bucket(&info, partition)?;
    Ok((info.uuid, partition))
}

impl Api for OffsetCommit {
    const KEY: ApiKey = ApiKey::OffsetCommit;
    type Request = OffsetCommitRequest;
    type Response = OffsetCommitResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let now = cx.broker.clock.now_ms();
        let retention = request.retention_time_ms;
        let expiry_ms = if (2..=4).contains(&version) && retention >= 0 { now.saturating_add(retention) } else { -1 };
        let mut good = Vec::new();
        let mut answers: Vec<CommitSlots> = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let mut slots = Vec::with_capacity(topic.partitions.len());
            for part in topic.partitions {
                let metadata = part.committed_metadata.as_ref().map(StrBytes::to_string).unwrap_or_default();
                let slot = match place_of(&cx.broker, &topic.name, part.partition_index) {
                    Err(code) => Err(code),
                    Ok(_) if metadata.len() > METADATA_LEN_MAX => Err(ErrorCode::OffsetMetadataTooLarge),
                    Ok(place) => {
                        let (offset, leader_epoch) = (part.committed_offset, part.committed_leader_epoch);
                        good.push((place, Committed { offset, leader_epoch, commit_ms: now, expiry_ms, metadata }));
                        Ok(())
                    }
                };
                slots.push((part.partition_index, slot));
            }
            answers.push((topic.name, slots));
        }
        let committer = Committer {
            version,
            member: request.member_id.to_string(),
            instance: request.group_instance_id.as_ref().map(StrBytes::to_string),
            generation: request.generation_id_or_member_epoch,
        };
        let outcome = if answers.is_empty() {
            Ok(())
        } else {
            cx.broker.coordinator.commit(&request.group_id, committer, good).await
        };
        let topics = answers.into_iter().map(|(name, slots)| {
            let partitions = slots.into_iter().map(|(index, slot)| {
                let code = slot.and(outcome).err().map_or(0, |code| code.code());
                OffsetCommitResponsePartition::default().with_partition_index(index).with_error_code(code)
            });
            OffsetCommitResponseTopic::default().with_name(name).with_partitions(partitions.collect())
        });
        Started::Ready(OffsetCommitResponse::default().with_topics(topics.collect()))
    }
}

pub(crate) struct OffsetFetch;

/// Committed offsets of one group, by topic name: what was asked for, or all.
type Asked = Option<Vec<(TopicName, Vec<i32>)>>;

/// Topic partitions, each with what was committed.
type Found = Vec<(i32, Option<Committed>)>;

fn resolve(broker: &Broker, offsets: &BTreeMap<Place, Committed>, asked: Asked) -> Vec<(TopicName, Found)> {
    let tables = broker.backend.tables();
    let Some(asked) = asked else {
        let mut all: BTreeMap<String, Found> = BTreeMap::new();
        for ((topic, partition), committed) in offsets {
            if let Some(info) = tables.by_uuid(topic) {
                all.entry(info.topic()).or_default().push((*partition, Some(committed.clone())));
            }
        }
        return all.into_iter().map(|(name, slots)| (text(name).into(), slots)).collect();
    };
    let of_topic = |(name, partitions): (TopicName, Vec<i32>)| {
        let topic = tables.by_name(&name).map(|info| info.uuid);
        let find = |partition: i32| topic.and_then(|topic| offsets.get(&(topic, partition)).cloned());
        let slots = partitions.into_iter().map(|partition| (partition, find(partition))).collect();
        (name, slots)
    };
    asked.into_iter().map(of_topic).collect()
}

async fn fetch_v8(cx: &Context, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let mut groups = Vec::with_capacity(request.groups.len());
    for group in request.groups {
        let offsets = cx.broker.coordinator.offsets(&group.group_id).await;
        let asked =
            group.topics.map(|topics| topics.into_iter().map(|one| (one.name, one.partition_indexes)).collect());
        let topics = resolve(&cx.broker, &offsets, asked).into_iter().map(|(name, slots)| {
            let partitions = slots.into_iter().map(|(index, committed)| {
                let (offset, epoch, metadata) = parts(committed);
                OffsetFetchResponsePartitions::default()
                    .with_partition_index(index)
                    .with_committed_offset(offset)
                    .with_committed_leader_epoch(epoch)
                    .with_metadata(Some(metadata))
            });
            OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
        });
        let topics = topics.collect();
        groups.push(OffsetFetchResponseGroup::default().with_group_id(group.group_id).with_topics(topics));
    }
    OffsetFetchResponse::default().with_groups(groups)
}

fn parts(committed: Option<Committed>) -> (i64, i32, StrBytes) {
    committed.map_or((-1, -1, StrBytes::default()), |it| (it.offset, it.leader_epoch, text(it.metadata)))
}

impl Api for OffsetFetch {
    const KEY: ApiKey = ApiKey::OffsetFetch;
    type Request = OffsetFetchRequest;
    type Response = OffsetFetchResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        if version >= 8 {
            return Started::Ready(fetch_v8(cx, request).await);
        }
        let offsets = cx.broker.coordinator.offsets(&request.group_id).await;
        let asked =
            request.topics.map(|topics| topics.into_iter().map(|one| (one.name, one.partition_indexes)).collect());
        let topics = resolve(&cx.broker, &offsets, asked).into_iter().map(|(name, slots)| {
            let partitions = slots.into_iter().map(|(index, committed)| {
                let (offset, epoch, metadata) = parts(committed);
                OffsetFetchResponsePartition::default()
                    .with_partition_index(index)
                    .with_committed_offset(offset)
                    .with_committed_leader_epoch(epoch)
                    .with_metadata(Some(metadata))
            });
            OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
        });
        Started::Ready(OffsetFetchResponse::default().with_topics(topics.collect()))
    }
}

pub(crate) struct OffsetDelete;

impl Api for OffsetDelete {
    const KEY: ApiKey = ApiKey::OffsetDelete;
    type Request = OffsetDeleteRequest;
    type Response = OffsetDeleteResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let mut known = Vec::new();
        for topic in &request.topics {
            if let Some(info) = cx.broker.topic(&topic.name) {
                let partitions = topic.partitions.iter().map(|part| part.partition_index);
                let partitions = partitions.filter(|partition| cx.broker.bucket(&info, *partition).is_ok());
                known.push((info.topic(), info.uuid, partitions.collect()));
            }
        }
        let kept = match cx.broker.coordinator.delete_offsets(&request.group_id, known).await {
            Ok(kept) => kept,
            Err(code) => return Started::Ready(OffsetDeleteResponse::default().with_error_code(code.code())),
        };
        let topics = request.topics.into_iter().map(|topic| {
            let subscribed = kept.iter().any(|name| *name == topic.name.as_str());
            let partitions = topic.partitions.iter().map(|part| {
                let place = place_of(&cx.broker, &topic.name, part.partition_index);
                let code = match place {
                    Err(code) => code.code(),
                    Ok(_) if subscribed => ErrorCode::GroupSubscribedToTopic.code(),
                    Ok(_) => 0,
                };
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(part.partition_index)
                    .with_error_code(code)
            });
            let partitions = partitions.collect();
            OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
        });
        Started::Ready(OffsetDeleteResponse::default().with_topics(topics.collect()))
    }
}
