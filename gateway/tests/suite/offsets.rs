//! ListOffsets, OffsetForLeaderEpoch, leader epochs, committed offsets.

use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{
    BrokerId, DescribeGroupsRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest,
};
use sluice_protocol::records::{BatchBuilder, Record};

use crate::fixture::{Client, Server, batch, text, topic_name};
use crate::groups::group_id;
use crate::produce::list_offset;

/// Timestamps 100, 300, 200 in one batch.
fn spread() -> Vec<u8> {
    let at = |delta| Record { timestamp_delta: delta, ..Record::new(None, Some(b"v")) };
    BatchBuilder::new(100).record(&at(0)).record(&at(200)).record(&at(100)).build()
}

/// P39, P40.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_special_timestamp_is_known_from_its_version_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("empty", 1).await;
    client.create("t", 1).await;
    client.produce("t", 0, spread()).await;
    client.produce("t", 0, spread()).await;
    for version in 1..=10 {
        let unknown = (35, -1, -1);
        let mut at = async |timestamp| list_offset(&mut client, version, "t", timestamp).await;
        assert_eq!(at(-1).await, (0, 6, -1), "latest, v{version}");
        assert_eq!(at(-2).await, (0, 0, -1), "earliest, v{version}");
        assert_eq!(at(-3).await, if version >= 7 { (0, 1, 300) } else { unknown }, "max timestamp, v{version}");
        assert_eq!(at(-4).await, if version >= 8 { (0, 0, -1) } else { unknown }, "earliest local, v{version}");
        assert_eq!(at(-5).await, if version >= 9 { (0, -1, -1) } else { unknown }, "last tiered, v{version}");
        for never in [-6, -7, i64::MIN] {
            assert_eq!(at(never).await, unknown, "{never}, v{version}");
        }
        // The first record at or after the time, at its own time.
        assert_eq!(at(0).await, (0, 0, 100));
        assert_eq!(at(101).await, (0, 1, 300));
        assert_eq!(at(300).await, (0, 1, 300));
        assert_eq!(at(301).await, (0, -1, -1));
        assert_eq!(at(i64::MAX).await, (0, -1, -1));
        let mut of_empty = async |timestamp| list_offset(&mut client, version, "empty", timestamp).await;
        assert_eq!(of_empty(-1).await, (0, 0, -1));
        assert_eq!(of_empty(-2).await, (0, 0, -1));
        assert_eq!(of_empty(0).await, (0, -1, -1));
        assert_eq!(of_empty(-3).await, if version >= 7 { (0, -1, -1) } else { unknown });
        assert_eq!(list_offset(&mut client, version, "missing", -1).await, (3, -1, -1));
    }
}

async fn epoch_end(client: &mut Client, version: i16, current: i32, asked: i32) -> (i16, i32, i64) {
    let part = OffsetForLeaderPartition::default().with_current_leader_epoch(current).with_leader_epoch(asked);
    let topic = OffsetForLeaderTopic::default().with_topic(topic_name("t")).with_partitions(vec![part]);
    let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    if version >= 3 {
        request.replica_id = BrokerId(-2);
    }
    let answer = client.call(version, request).await.topics.remove(0).partitions.remove(0);
    (answer.error_code, answer.leader_epoch, answer.end_offset)
}

/// K04, K10, P12, P42.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_epochs_grow_with_each_crash_and_tell_where_each_ended() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.produce("t", 0, batch(3)).await;
    let epoch_of = async |client: &mut Client| client.describe("t").await.partitions[0].leader_epoch;
    assert_eq!(epoch_of(&mut client).await, 0);
    // Epoch 1 wrote nothing, epoch 2 two records.
    let server = server.crash().await;
    assert_eq!(epoch_of(&mut server.client().await).await, 1);
    let server = server.crash().await;
    let mut client = server.client().await;
    assert_eq!(epoch_of(&mut client).await, 2);
    for version in 2..=4 {
        assert_eq!(epoch_end(&mut client, version, -1, 2).await, (0, 2, 3), "the current epoch before it wrote");
    }
    client.produce("t", 0, batch(2)).await;
    for version in 2..=4 {
        for (asked, want) in [(-1, (0, -1, -1)), (0, (0, 0, 3)), (1, (0, 0, 3)), (2, (0, 2, 5)), (3, (0, -1, -1))] {
            assert_eq!(epoch_end(&mut client, version, -1, asked).await, want, "epoch {asked}, v{version}");
            assert_eq!(epoch_end(&mut client, version, 2, asked).await, want, "epoch {asked}, v{version}");
        }
        assert_eq!(epoch_end(&mut client, version, 1, 0).await.0, 74, "FENCED_LEADER_EPOCH");
        assert_eq!(epoch_end(&mut client, version, 3, 0).await.0, 75, "UNKNOWN_LEADER_EPOCH");
    }
    // A clean restart changes no epoch; it never goes back to 0.
    let server = server.restart().await;
    assert!(epoch_of(&mut server.client().await).await >= 2);
}

pub(crate) async fn commit(client: &mut Client, group: &str, topic: &str, partition: i32, offset: i64) -> i16 {
    let part = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("note")));
    let topic = OffsetCommitRequestTopic::default().with_name(topic_name(topic)).with_partitions(vec![part]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    client.call(8, request).await.topics[0].partitions[0].error_code
}

pub(crate) async fn committed(client: &mut Client, group: &str, topic: &str, partition: i32) -> (i64, String) {
    let topic = OffsetFetchRequestTopic::default().with_name(topic_name(topic)).with_partition_indexes(vec![partition]);
    let request = OffsetFetchRequest::default().with_group_id(group_id(group)).with_topics(Some(vec![topic]));
    let answer = client.call(7, request).await;
    let part = &answer.topics[0].partitions[0];
    assert_eq!((answer.error_code, part.error_code), (0, 0));
    (part.committed_offset, part.metadata.clone().unwrap_or_default().to_string())
}

async fn all_committed(client: &mut Client, group: &str) -> usize {
    let group = OffsetFetchRequestGroup::default().with_group_id(group_id(group)).with_topics(None);
    let answer = client.call(8, OffsetFetchRequest::default().with_groups(vec![group])).await;
    answer.groups[0].topics.iter().map(|topic| topic.partitions.len()).sum()
}

/// K12 as far as one group without members goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_committed_without_a_group_survive_a_restart_and_a_crash() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 3).await;
    for partition in 0..3 {
        assert_eq!(commit(&mut client, "g", "t", partition, 40 + i64::from(partition)).await, 0);
    }
    assert_eq!(commit(&mut client, "g", "t", 3, 1).await, 3);
    assert_eq!(commit(&mut client, "g", "missing", 0, 1).await, 3);
    assert_eq!(commit(&mut client, "g", "t", 1, 99).await, 0);
    drop(client);
    let server = server.restart().await;
    let server = server.crash().await;
    let mut client = server.client().await;
    assert_eq!(committed(&mut client, "g", "t", 0).await, (40, "note".to_owned()));
    assert_eq!(committed(&mut client, "g", "t", 1).await, (99, "note".to_owned()));
    assert_eq!(committed(&mut client, "g", "t", 7).await, (-1, String::new()));
    assert_eq!(all_committed(&mut client, "g").await, 3);
    let described = client.call(5, DescribeGroupsRequest::default().with_groups(vec![group_id("g")])).await;
    assert_eq!(described.groups[0].group_state.as_str(), "Empty");
}

/// P13: offsets belong to the topic, not to its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topics_offsets_die_with_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.create("u", 1).await;
    assert_eq!(commit(&mut client, "g", "t", 0, 5).await, 0);
    assert_eq!(commit(&mut client, "g", "u", 0, 6).await, 0);
    assert_eq!(crate::topics::delete(&mut client, "t").await, 0);
    assert_eq!(all_committed(&mut client, "g").await, 1);
    client.create("t", 1).await;
    assert_eq!(committed(&mut client, "g", "t", 0).await.0, -1);
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(all_committed(&mut client, "g").await, 1);
    assert_eq!(committed(&mut client, "g", "u", 0).await.0, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_asked_for_twice_in_one_request_is_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(commit(&mut client, "g", "t", 0, 5).await, 0);
    let topics = || {
        let topic = OffsetFetchRequestTopics::default().with_name(topic_name("t")).with_partition_indexes(vec![0]);
        OffsetFetchRequestGroup::default().with_group_id(group_id("g")).with_topics(Some(vec![topic]))
    };
    let answer = client.call(9, OffsetFetchRequest::default().with_groups(vec![topics(), topics()])).await;
    assert!(answer.groups.iter().all(|group| group.topics[0].partitions[0].committed_offset == 5));
}
