//! DescribeCluster (60), v0-2, and DescribeTopicPartitions (75), v0 (KIP-966).

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, BrokerId, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
};
use sluice_engine::BucketId;
use sluice_engine::catalog::TableInfo;
use sluice_protocol::ErrorCode;

use super::metadata::{CLUSTER_OPERATIONS, NO_OPERATIONS, TOPIC_OPERATIONS, leader_epoch};
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::{Broker, names, text};

pub(crate) struct DescribeCluster;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

impl Api for DescribeCluster {
    const KEY: ApiKey = ApiKey::DescribeCluster;
    type Request = DescribeClusterRequest;
    type Response = DescribeClusterResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let base = DescribeClusterResponse::default().with_endpoint_type(BROKERS).with_controller_id(BrokerId(-1));
        if version >= 1 && request.endpoint_type != BROKERS {
            let (code, message) = if request.endpoint_type == CONTROLLERS {
                let message =
                    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER";
                (ErrorCode::MismatchedEndpointType, message.to_owned())
            } else {
                (ErrorCode::UnsupportedEndpointType, format!("Unsupported endpoint type {}", request.endpoint_type))
            };
            let refused = base.with_error_code(code.code()).with_error_message(Some(text(message)));
            return Started::Ready(refused.with_cluster_authorized_operations(NO_OPERATIONS));
        }
        let (host, port) = cx.broker.advertised(cx.local);
        let me = BrokerId(cx.broker.config.kafka_node_id);
        let operations = if request.include_cluster_authorized_operations { CLUSTER_OPERATIONS } else { NO_OPERATIONS };
        let broker = DescribeClusterBroker::default().with_broker_id(me).with_host(text(host)).with_port(port);
        Started::Ready(
            base.with_cluster_id(text(cx.broker.backend.cluster_id()))
                .with_controller_id(me)
                .with_brokers(vec![broker])
                .with_cluster_authorized_operations(operations),
        )
    }
}

pub(crate) struct DescribeTopicPartitions;

/// Topic partitions in one answer, whatever the client asks for.
const PARTITIONS_MAX: i32 = 2000;

fn partition(broker: &Broker, info: &TableInfo, index: u32) -> DescribeTopicPartitionsResponsePartition {
    let me = BrokerId(broker.config.kafka_node_id);
    let epoch = leader_epoch(broker, BucketId::new(info.table_id(), index));
    DescribeTopicPartitionsResponsePartition::default()
        .with_partition_index(index as i32)
        .with_leader_id(me)
        .with_leader_epoch(epoch)
        .with_replica_nodes(vec![me])
        .with_isr_nodes(vec![me])
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()))
}

impl Api for DescribeTopicPartitions {
    const KEY: ApiKey = ApiKey::DescribeTopicPartitions;
    type Request = DescribeTopicPartitionsRequest;
    type Response = DescribeTopicPartitionsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let mut left = request.response_partition_limit.clamp(1, PARTITIONS_MAX) as u32;
        let all = request.topics.is_empty();
        let mut wanted: Vec<String> = if all {
            cx.broker.backend.tables().iter().map(|info| info.topic()).collect()
        } else {
            request.topics.iter().map(|topic| topic.name.to_string()).collect()
        };
        wanted.sort();
        wanted.dedup();
        let mut first = 0u32;
        if let Some(cursor) = &request.cursor {
            let bad =
                cursor.partition_index < 0 || (!all && !wanted.iter().any(|name| name == cursor.topic_name.as_str()));
            if bad {
                return Started::Ready(refuse(&wanted));
            }
            first = cursor.partition_index as u32;
            wanted.retain(|name| name.as_str() >= cursor.topic_name.as_str());
            if wanted.first().is_some_and(|name| name != cursor.topic_name.as_str()) {
                first = 0;
            }
        }
        let mut response = DescribeTopicPartitionsResponse::default();
        for name in wanted {
            if left == 0 {
                response.next_cursor =
                    Some(Cursor::default().with_topic_name(text(name).into()).with_partition_index(0));
                break;
            }
            let topic = DescribeTopicPartitionsResponseTopic::default().with_name(Some(text(name.clone()).into()));
            let Some(info) = cx.broker.topic(&name) else {
                let illegal = names::fault(&name).is_some();
                let code = if illegal { ErrorCode::InvalidTopicException } else { ErrorCode::UnknownTopicOrPartition };
                let answer = topic.with_error_code(code.code()).with_topic_authorized_operations(TOPIC_OPERATIONS);
                response.topics.push(answer);
                continue;
            };
            let until = info.topic_partitions().min(first.saturating_add(left));
            let partitions: Vec<_> = (first..until).map(|index| partition(&cx.broker, &info, index)).collect();
            left -= partitions.len() as u32;
            response.topics.push(
                topic
                    .with_topic_id(info.uuid)
                    .with_partitions(partitions)
                    .with_topic_authorized_operations(TOPIC_OPERATIONS),
            );
            if until < info.topic_partitions() {
                let cursor = Cursor::default().with_topic_name(text(name).into());
                response.next_cursor = Some(cursor.with_partition_index(until as i32));
                break;
            }
            first = 0;
        }
        Started::Ready(response)
    }
}

fn refuse(wanted: &[String]) -> DescribeTopicPartitionsResponse {
    let topics = wanted.iter().map(|name| {
        DescribeTopicPartitionsResponseTopic::default()
            .with_error_code(ErrorCode::InvalidRequest.code())
            .with_name(Some(text(name.clone()).into()))
            .with_topic_authorized_operations(NO_OPERATIONS)
    });
    DescribeTopicPartitionsResponse::default().with_topics(topics.collect())
}
