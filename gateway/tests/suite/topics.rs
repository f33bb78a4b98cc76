//! Creating and deleting topics.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteTopicsRequest, MetadataRequest, ProduceRequest};
use tokio::sync::Barrier;

use crate::fixture::{Client, Server, batch, fetch_request, produce_request, sequenced, topic_name};

pub(crate) async fn delete(client: &mut Client, name: &str) -> i16 {
    let topic = DeleteTopicState::default().with_name(Some(topic_name(name)));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    client.call(6, request).await.responses[0].error_code
}

fn ask(name: &str) -> MetadataRequest {
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
    MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(true)
}

/// P11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_connections_that_ask_for_a_new_topic_make_one() {
    const CLIENTS: usize = 16;
    let server = Server::start().await;
    let start = Arc::new(Barrier::new(CLIENTS));
    let mut asking = Vec::new();
    for _ in 0..CLIENTS {
        let (mut client, start) = (server.client().await, Arc::clone(&start));
        asking.push(tokio::spawn(async move {
            start.wait().await;
            let mut tries = 0;
            loop {
                let topic = client.call(12, ask("new")).await.topics.remove(0);
                match topic.error_code {
                    0 => break (topic.topic_id, topic.partitions.len()),
                    // Retriable: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE.
                    code => assert!([3, 5].contains(&code), "fatal to a producer: {code}"),
                }
                tries += 1;
                assert!(tries < 1_000, "never there");
            }
        }));
    }
    let mut seen = HashSet::new();
    for one in asking {
        seen.insert(one.await.expect("asks"));
    }
    assert_eq!(seen.len(), 1, "one id, one number of partitions");
    let mut client = server.client().await;
    assert_eq!(client.call(12, MetadataRequest::default().with_topics(None)).await.topics.len(), 1);
}

/// P11, P62: consumers and admins do not create, and one of two creators wins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_created_only_when_asked_for() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.describe("t").await.error_code, 3);
    assert_eq!(client.describe("t").await.error_code, 3);
    assert_eq!(client.fetch("t", 0, 0).await.error_code, 3);
    assert_eq!(client.produce("t", 0, batch(1)).await.error_code, 3);
    assert!(client.call(12, MetadataRequest::default().with_topics(None)).await.topics.is_empty());
    client.create("t", 1).await;
    assert_eq!(client.try_create("t", 1, &[]).await, 36, "TOPIC_ALREADY_EXISTS");
    let off = Server::start_with(|config| config.kafka_auto_create_topics = false).await;
    let mut client = off.client().await;
    for _ in 0..2 {
        assert_eq!(client.call(12, ask("t")).await.topics[0].error_code, 3);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn illegal_names_are_refused_everywhere_and_made_nowhere() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a b", "a/b", "../../etc", "a\0b", "ä", &long, "default.t"] {
        assert_eq!(client.try_create(name, 1, &[]).await, 17, "{name:?}");
        assert_eq!(client.call(12, ask(name)).await.topics[0].error_code, 17, "{name:?}");
        assert_eq!(client.produce(name, 0, batch(1)).await.error_code, 3, "{name:?}");
        assert_eq!(client.fetch(name, 0, 0).await.error_code, 3, "{name:?}");
        assert_eq!(delete(&mut client, name).await, 3, "{name:?}");
    }
    for reserved in ["__consumer_offsets", "__transaction_state"] {
        assert_eq!(client.try_create(reserved, 1, &[]).await, 17);
    }
    assert!(client.call(12, MetadataRequest::default().with_topics(None)).await.topics.is_empty());
    assert_eq!(client.try_create(&"x".repeat(249), 1, &[]).await, 0);
}

fn log_directories(server: &Server) -> usize {
    std::fs::read_dir(server.dir.path().join("data/log")).map_or(0, Iterator::count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_topic_frees_its_directory() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 2).await;
    client.create("kept", 1).await;
    for partition in 0..2 {
        client.produce("t", partition, batch(10)).await;
    }
    client.produce("kept", 0, batch(1)).await;
    assert_eq!(log_directories(&server), 2);
    assert_eq!(delete(&mut client, "t").await, 0);
    assert_eq!(log_directories(&server), 1);
    assert_eq!(delete(&mut client, "t").await, 3);
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.describe("t").await.error_code, 3);
    assert_eq!(client.fetch("kept", 0, 0).await.high_watermark, 1);
}

/// P13.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_again_has_a_new_id_and_nothing_of_the_old_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let old = client.describe("t").await.topic_id;
    assert_eq!(client.produce("t", 0, sequenced(7, 3, 0, 5)).await.error_code, 0);
    assert_eq!(delete(&mut client, "t").await, 0);
    client.create("t", 1).await;
    let new = client.describe("t").await;
    assert_ne!(new.topic_id, old);
    let part = client.fetch("t", 0, 0).await;
    assert_eq!((part.high_watermark, part.log_start_offset), (0, 0));
    // No state of that producer: an older epoch at any sequence is fine.
    let again = client.produce("t", 0, sequenced(7, 1, 40, 1)).await;
    assert_eq!((again.error_code, again.base_offset), (0, 0));
    let mut fetch = fetch_request("", &[(0, 0)], 1 << 20, 0, 0);
    fetch.topics[0].topic_id = old;
    assert_eq!(client.call(13, fetch).await.responses[0].partitions[0].error_code, 100, "UNKNOWN_TOPIC_ID");
    let mut produce: ProduceRequest = produce_request("", 0, -1, Some(Bytes::from(batch(1))));
    produce.topic_data[0].topic_id = old;
    assert_eq!(client.call(13, produce).await.responses[0].partition_responses[0].error_code, 100);
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.describe("t").await.topic_id, new.topic_id);
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 1);
}

async fn delete_records(client: &mut Client, offset: i64) -> (i16, i64) {
    let part = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(topic_name("t")).with_partitions(vec![part]);
    let request = DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let answer = client.call(2, request).await.topics.remove(0).partitions.remove(0);
    (answer.error_code, answer.low_watermark)
}

/// P64, P71.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_records_are_out_of_range_also_after_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    for _ in 0..4 {
        client.produce("t", 0, batch(5)).await;
    }
    assert_eq!(delete_records(&mut client, 7).await, (0, 7));
    assert_eq!(delete_records(&mut client, 3).await, (0, 7), "the start never goes back");
    for beyond in [21, i64::MAX, -2, i64::MIN] {
        assert_eq!(delete_records(&mut client, beyond).await, (1, -1), "{beyond}");
    }
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.fetch("t", 0, 6).await.error_code, 1);
    let part = client.fetch("t", 0, 7).await;
    assert_eq!((part.error_code, part.log_start_offset, part.high_watermark), (0, 7, 20));
    assert_eq!(delete_records(&mut client, -1).await, (0, 20));
    assert_eq!(client.fetch("t", 0, 20).await.log_start_offset, 20);
    assert_eq!(client.produce("t", 0, batch(1)).await.base_offset, 20);
}
