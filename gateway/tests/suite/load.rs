//! Requests that are legal and large: their cost grows with their size and no faster.

use std::time::{Duration, Instant};

use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DescribeConfigsRequest, FetchRequest, ListOffsetsRequest, MetadataRequest,
    ProduceRequest,
};

use crate::fixture::{FETCH, PRODUCE, Server, fetch_request, text, topic_name};
use crate::groups::join_request;

const MANY: usize = 60_000;
/// What takes quadratic time takes minutes.
const BOUND: Duration = Duration::from_secs(60);

fn names() -> impl Iterator<Item = String> {
    (0..MANY).map(|n| format!("topic.with-a-long-and-equal-beginning.{n}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_many_topics_takes_linear_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topics = names().map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(&name))));
    let request = MetadataRequest::default().with_topics(Some(topics.collect())).with_allow_auto_topic_creation(false);
    let began = Instant::now();
    assert_eq!(client.call(9, request).await.topics.len(), MANY);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produce_to_many_topics_takes_linear_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topics = names().map(|name| {
        let part = PartitionProduceData::default().with_index(0);
        TopicProduceData::default().with_name(topic_name(&name)).with_partition_data(vec![part])
    });
    let request = ProduceRequest::default().with_acks(-1).with_topic_data(topics.collect());
    let began = Instant::now();
    assert_eq!(client.call::<ProduceRequest>(PRODUCE, request).await.responses.len(), MANY);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_offsets_of_many_topics_takes_linear_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topics = names().map(|name| {
        let part = ListOffsetsPartition::default().with_timestamp(-1);
        ListOffsetsTopic::default().with_name(topic_name(&name)).with_partitions(vec![part])
    });
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics.collect());
    let began = Instant::now();
    assert_eq!(client.call(6, request).await.topics.len(), MANY);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

/// One topic named again and again, each time with other partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetch_of_one_topic_named_often_takes_linear_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topics = (0..MANY).map(|n| {
        let part = FetchPartition::default().with_partition(n as i32);
        FetchTopic::default().with_topic(topic_name("t")).with_partitions(vec![part])
    });
    let request: FetchRequest = fetch_request("t", &[], 1 << 20, 0, 0).with_topics(topics.collect());
    let began = Instant::now();
    assert_eq!(client.call(FETCH, request).await.responses[0].partitions.len(), MANY);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_many_topics_at_once_is_refused_in_time() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topics = names().map(|name| {
        CreatableTopic::default().with_name(topic_name(&name)).with_num_partitions(1).with_replication_factor(1)
    });
    let request =
        CreateTopicsRequest::default().with_topics(topics.collect()).with_validate_only(true).with_timeout_ms(1_000);
    let began = Instant::now();
    let answer = client.call(5, request).await;
    assert!(answer.topics.iter().all(|topic| topic.error_code == 44), "POLICY_VIOLATION");
    assert_eq!(answer.topics.len(), MANY);
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}

/// A megabyte of questions must not be answered with a gigabyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_describes_a_bounded_number_of_resources() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let resource = || DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text("t"));
    let resources = (0..MANY).map(|_| resource().with_configuration_keys(None)).collect();
    let request = DescribeConfigsRequest::default().with_resources(resources).with_include_synonyms(true);
    let results = client.call(4, request).await.results;
    assert_eq!(results.len(), MANY);
    assert!(results.iter().take(100).all(|result| result.error_code == 0 && !result.configs.is_empty()));
    assert!(results.iter().skip(10_000).all(|result| result.error_code == 44 && result.configs.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_many_protocols_joins_in_linear_time() {
    let server = Server::start().await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    let protocols: Vec<_> =
        (0..MANY).map(|n| JoinGroupRequestProtocol::default().with_name(text(&format!("protocol-{n}")))).collect();
    let began = Instant::now();
    let joined = first.call(3, join_request("g", "", 60_000).with_protocols(protocols.clone())).await;
    assert_eq!(joined.error_code, 0);
    let reversed = protocols.into_iter().rev().collect();
    second.send(3, &join_request("g", "", 60_000).with_protocols(reversed)).await;
    crate::apis::assert_serves(&mut server.client().await).await;
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
}
