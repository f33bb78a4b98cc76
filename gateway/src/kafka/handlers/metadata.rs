//! Metadata (3), v0-13.
//!
//! - v0: no topics means all; v1+: null means all, an empty list none.
//! - v4+: the client says whether a missing topic may be created; before, it may. A topic that is being
//!   created is UNKNOWN_TOPIC_OR_PARTITION in this answer and there in the next (P11).
//! - v10+: topic ids; asking by id from v12 on.
//! - This server leads every topic partition; the leader epoch is the true one (P12).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{ApiKey, BrokerId, MetadataRequest, MetadataResponse};
use sluice_engine::BucketId;
use sluice_engine::catalog::TableInfo;
use sluice_protocol::ErrorCode;

use crate::kafka::api::{Api, Context, Started};
use crate::kafka::{Broker, names, text};

pub(crate) struct Metadata;

/// Describe, read, write, create, delete, alter and their configs: what a client may do with a topic here.
pub(super) const TOPIC_OPERATIONS: i32 = 3576;
/// The same of the cluster.
pub(super) const CLUSTER_OPERATIONS: i32 = 8096;
/// The value that stands for "not asked".
pub(super) const NO_OPERATIONS: i32 = i32::MIN;

/// The leader epoch of a topic partition; -1 while the bucket answers no requests.
pub(super) fn leader_epoch(broker: &Broker, bucket: BucketId) -> i32 {
    broker.backend.offsets(bucket).map_or(-1, |offsets| offsets.leader_epoch)
}

fn partition(broker: &Broker, info: &TableInfo, index: u32) -> MetadataResponsePartition {
    let me = BrokerId(broker.config.kafka_node_id);
    let epoch = info.bucket_at(index).map_or(-1, |bucket| leader_epoch(broker, bucket));
    // An offline bucket still names its leader: the client comes here and gets the real error.
    MetadataResponsePartition::default()
        .with_partition_index(index as i32)
        .with_leader_id(me)
        .with_leader_epoch(epoch)
        .with_replica_nodes(vec![me])
        .with_isr_nodes(vec![me])
}

fn known(broker: &Broker, info: &TableInfo, operations: bool) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_name(Some(text(info.topic()).into()))
        .with_topic_id(info.uuid)
        .with_partitions((0..info.topic_partitions()).map(|index| partition(broker, info, index)).collect())
        .with_topic_authorized_operations(if operations { TOPIC_OPERATIONS } else { NO_OPERATIONS })
}

async fn by_name(cx: &Context, name: &str, may_create: bool, operations: bool) -> MetadataResponseTopic {
    let refuse = |code: ErrorCode| {
        MetadataResponseTopic::default()
            .with_error_code(code.code())
            .with_name(Some(text(name).into()))
            .with_topic_authorized_operations(NO_OPERATIONS)
    };
    if let Some(info) = cx.broker.topic(name) {
        return known(&cx.broker, &info, operations);
    }
    if names::fault(name).is_some() {
        return refuse(ErrorCode::InvalidTopicException);
    }
    if may_create && cx.broker.config.kafka_auto_create_topics && !names::RESERVED.contains(&name) {
        if names::collision(&cx.broker.backend.tables(), name).is_some() {
            return refuse(ErrorCode::InvalidTopicException);
        }
        let buckets = cx.broker.config.kafka_default_partitions;
        match cx.broker.backend.create_table(name.to_owned(), buckets, BTreeMap::new()).await {
            Ok(_) => {}
            Err(error) if error.kind == sluice_engine::ErrorKind::AlreadyExists => {}
            Err(error) => tracing::warn!(topic = name, %error, "auto-create"),
        }
    }
    refuse(ErrorCode::UnknownTopicOrPartition)
}

fn by_id(broker: &Broker, id: uuid::Uuid, operations: bool) -> MetadataResponseTopic {
    match broker.backend.tables().by_uuid(&id) {
        Some(info) => known(broker, info, operations),
        None => MetadataResponseTopic::default()
            .with_error_code(ErrorCode::UnknownTopicId.code())
            .with_name(None)
            .with_topic_id(id)
            .with_topic_authorized_operations(NO_OPERATIONS),
    }
}

impl Api for Metadata {
    const KEY: ApiKey = ApiKey::Metadata;
    type Request = MetadataRequest;
    type Response = MetadataResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let (host, port) = cx.broker.advertised(cx.local);
        let me = BrokerId(cx.broker.config.kafka_node_id);
        let operations = request.include_topic_authorized_operations;
        let asked = request.topics.filter(|topics| version > 0 || !topics.is_empty());
        let by_old_id = |topics: &Vec<kafka_protocol::messages::metadata_request::MetadataRequestTopic>| {
            topics.iter().any(|topic| !topic.topic_id.is_nil())
        };
        if (10..12).contains(&version) && asked.as_ref().is_some_and(by_old_id) {
            return Started::Ready(refuse_ids(asked.unwrap_or_default()));
        }
        let topics = match asked {
            None => {
                let all: Vec<Arc<TableInfo>> = cx.broker.backend.tables().iter().cloned().collect();
                all.iter().map(|info| known(&cx.broker, info, operations)).collect()
            }
            Some(asked) => {
                let may_create = version < 4 || request.allow_auto_topic_creation;
                let mut topics: Vec<MetadataResponseTopic> = Vec::with_capacity(asked.len());
                let mut told = HashSet::with_capacity(asked.len());
                for topic in asked {
                    let answer = match topic.name {
                        Some(name) if topic.topic_id.is_nil() => by_name(cx, &name, may_create, operations).await,
                        _ => by_id(&cx.broker, topic.topic_id, operations),
                    };
                    if told.insert((answer.name.clone(), answer.topic_id)) {
                        topics.push(answer);
                    }
                }
                topics
            }
        };
        let broker = MetadataResponseBroker::default().with_node_id(me).with_host(text(host)).with_port(port);
        let cluster_operations =
            if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { NO_OPERATIONS };
        Started::Ready(
            MetadataResponse::default()
                .with_brokers(vec![broker])
                .with_cluster_id(Some(text(cx.broker.backend.cluster_id())))
                .with_controller_id(me)
                .with_topics(topics)
                .with_cluster_authorized_operations(cluster_operations),
        )
    }
}

/// v10 and v11 carry ids that cannot be asked for.
fn refuse_ids(asked: Vec<kafka_protocol::messages::metadata_request::MetadataRequestTopic>) -> MetadataResponse {
    let topics = asked.into_iter().map(|topic| {
        MetadataResponseTopic::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_name(Some(topic.name.unwrap_or_default()))
            .with_topic_id(topic.topic_id)
            .with_topic_authorized_operations(NO_OPERATIONS)
    });
    MetadataResponse::default()
        .with_cluster_id(None)
        .with_controller_id(BrokerId(-1))
        .with_topics(topics.collect())
        .with_cluster_authorized_operations(NO_OPERATIONS)
}
