//! Fetch: bytes, limits, long poll, errors.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use sluice_protocol::records::{BatchBuilder, Record};

use crate::fixture::{Client, FETCH, Server, batch, fetch_request, sequenced, sized_batch, stored};

fn rich_batch() -> Vec<u8> {
    let headers = vec![(&b"x"[..], Some(&b"1"[..])), (b"x", Some(b"")), (b"", None), (b"\xff\xfe", Some(b"\0"))];
    BatchBuilder::new(5)
        .record(&Record { headers, ..Record::new(Some(b"k"), Some(b"v")) })
        .record(&Record::new(None, Some(b"")))
        .record(&Record::new(Some(b""), None))
        .record(&Record { timestamp_delta: 1_700_000_000_000, ..Record::new(None, None) })
        .build()
}

fn records(response: &FetchResponse, partition: usize) -> Bytes {
    response.responses[0].partitions[partition].records.clone().expect("never null")
}

/// P09, P29, P32, P34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_returns_the_batch_byte_for_byte() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 2).await;
    assert_eq!(client.produce("t", 0, rich_batch()).await.base_offset, 0);
    assert_eq!(client.produce("t", 0, rich_batch()).await.base_offset, 4);
    let id = client.describe("t").await.topic_id;
    let want = [stored(rich_batch(), 0, 0), stored(rich_batch(), 4, 0)].concat();
    for version in 4..=18 {
        let mut request = fetch_request("t", &[(0, 0), (1, 0)], 1 << 20, 0, 0);
        if version >= 13 {
            request.topics[0].topic = Default::default();
            request.topics[0].topic_id = id;
        }
        let response = client.call(version, request).await;
        assert_eq!(records(&response, 0), want, "version {version}");
        assert_eq!(records(&response, 1), Bytes::new(), "version {version}");
        assert_eq!((response.error_code, response.session_id), (0, 0));
        let parts = &response.responses[0].partitions;
        for (part, end) in parts.iter().zip([8, 0]) {
            assert_eq!((part.error_code, part.high_watermark, part.last_stable_offset), (0, end, end));
            assert!(part.aborted_transactions.is_none());
            assert_eq!(part.log_start_offset, if version >= 5 { 0 } else { -1 });
        }
    }
    // A batch that begins before the offset is sent whole.
    assert_eq!(client.fetch("t", 0, 6).await.records, Some(Bytes::from(stored(rich_batch(), 4, 0))));
}

/// P30, K08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_fetch_is_held_for_max_wait_and_no_longer() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let began = Instant::now();
    let mut replies = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let response = client.call(FETCH, fetch_request("t", &[(0, 0)], 1 << 20, 1, 200)).await;
        assert_eq!(records(&response, 0), Bytes::new());
        replies += 1;
    }
    assert!((1..=11).contains(&replies), "{replies} replies in 2 s of 200 ms waits");
}

/// P30, K08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_produce_wakes_a_parked_fetch() {
    let server = Server::start().await;
    let (mut consumer, mut producer) = (server.client().await, server.client().await);
    producer.create("t", 1).await;
    for offset in 0..20 {
        let id = consumer.send(FETCH, &fetch_request("t", &[(0, offset)], 1 << 20, 1, 600_000)).await;
        let began = Instant::now();
        producer.produce("t", 0, batch(1)).await;
        let response = consumer.recv::<FetchRequest>(FETCH, id).await;
        assert_eq!(records(&response, 0), stored(batch(1), offset, 0));
        assert!(began.elapsed() < Duration::from_secs(30), "woken, not timed out");
    }
}

/// P30.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn min_bytes_counts_over_all_partitions() {
    let server = Server::start().await;
    let (mut consumer, mut producer) = (server.client().await, server.client().await);
    producer.create("t", 3).await;
    let min = 2 * batch(1).len() as i32;
    let places = [(0, 0), (1, 0), (2, 0)];
    let id = consumer.send(FETCH, &fetch_request("t", &places, 1 << 20, min, 600_000)).await;
    producer.produce("t", 2, batch(1)).await;
    producer.produce("t", 0, batch(1)).await;
    let response = consumer.recv::<FetchRequest>(FETCH, id).await;
    let lens: Vec<usize> = (0..3).map(|partition| records(&response, partition).len()).collect();
    assert_eq!(lens, [batch(1).len(), 0, batch(1).len()], "not answered before both were there");
}

/// P30: a partition counts at most its own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_must_be_told_at_once_is_not_held() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let began = Instant::now();
    let out_of_range = client.call(FETCH, fetch_request("t", &[(0, 5)], 1 << 20, 1, 600_000)).await;
    assert_eq!(out_of_range.responses[0].partitions[0].error_code, 1);
    let missing = client.call(FETCH, fetch_request("t", &[(0, 0), (9, 0)], 1 << 20, 1, 600_000)).await;
    assert_eq!(missing.responses[0].partitions[1].error_code, 3);
    let none = client.call(FETCH, fetch_request("t", &[], 1 << 20, 1, 600_000)).await;
    assert!(none.responses.iter().all(|topic| topic.partitions.is_empty()));
    let mut fenced = fetch_request("t", &[(0, 0)], 1 << 20, 1, 600_000);
    fenced.topics[0].partitions[0].current_leader_epoch = 9;
    assert_eq!(client.call(FETCH, fenced).await.responses[0].partitions[0].error_code, 75);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_the_topic_wakes_its_parked_fetch() {
    let server = Server::start().await;
    let (mut consumer, mut admin) = (server.client().await, server.client().await);
    admin.create("t", 1).await;
    let id = consumer.send(FETCH, &fetch_request("t", &[(0, 0)], 1 << 20, 1, 600_000)).await;
    assert_eq!(crate::topics::delete(&mut admin, "t").await, 0);
    let response = consumer.recv::<FetchRequest>(FETCH, id).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 3);
}

/// P31, KIP-74.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_batch_is_whole_and_later_ones_obey_the_limits() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 2).await;
    let len = sized_batch(1, 1_000).len();
    for partition in [0, 0, 0, 1] {
        client.produce("t", partition, sized_batch(1, 1_000)).await;
    }
    async fn lens(client: &mut Client, max_bytes: usize, partition_max: usize) -> Vec<usize> {
        let mut request = fetch_request("t", &[(0, 0), (1, 0)], partition_max as i32, 0, 0);
        request.max_bytes = max_bytes as i32;
        let response = client.call(FETCH, request).await;
        (0..2).map(|partition| records(&response, partition).len()).collect()
    }
    let all = 1 << 20;
    assert_eq!(lens(&mut client, 10, 10).await, [len, 0], "one batch, larger than both limits");
    assert_eq!(lens(&mut client, 0, 0).await, [len, 0]);
    assert_eq!(lens(&mut client, all, 10).await, [len, 0], "only the first batch may be over its partition's limit");
    assert_eq!(lens(&mut client, all, len).await, [len, len]);
    assert_eq!(lens(&mut client, all, 2 * len + 10).await, [2 * len, len]);
    assert_eq!(lens(&mut client, 2 * len + 10, all).await, [2 * len, 0]);
    assert_eq!(lens(&mut client, 3 * len, all).await, [3 * len, 0]);
    assert_eq!(lens(&mut client, 4 * len, all).await, [3 * len, len]);
    assert_eq!(lens(&mut client, all, all).await, [3 * len, len]);
}

/// P37 and the golden answers: all three offsets are -1 on an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_outside_the_log_are_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.produce("t", 0, batch(3)).await;
    assert_eq!(client.fetch("t", 0, 3).await.error_code, 0);
    for offset in [-1, 4, i64::MAX, i64::MIN] {
        let part = client.fetch("t", 0, offset).await;
        let offsets = (part.high_watermark, part.last_stable_offset, part.log_start_offset);
        assert_eq!((part.error_code, offsets), (1, (-1, -1, -1)), "offset {offset}");
    }
    for partition in [1, -1, i32::MAX, i32::MIN] {
        assert_eq!(client.fetch("t", partition, 0).await.error_code, 3);
    }
    assert_eq!(client.fetch("missing", 0, 0).await.error_code, 3);
}

/// P33: no sessions are kept, and clients learn it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_declined() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let mut fresh = fetch_request("t", &[(0, 0)], 1 << 20, 0, 0);
    fresh.session_epoch = 0;
    let response = client.call(FETCH, fresh.clone()).await;
    assert_eq!((response.error_code, response.session_id, response.responses.len()), (0, 0, 1));
    fresh.session_id = 1234;
    fresh.session_epoch = 1;
    assert_eq!(client.call(FETCH, fresh).await.error_code, 70, "FETCH_SESSION_ID_NOT_FOUND");
}

/// P38.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_committed_has_an_empty_list_and_the_high_watermark() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.produce("t", 0, sequenced(5, 0, 0, 3)).await;
    let mut request = fetch_request("t", &[(0, 0)], 1 << 20, 0, 0);
    request.isolation_level = 1;
    let response = client.call(FETCH, request).await;
    let part = &response.responses[0].partitions[0];
    assert_eq!((part.last_stable_offset, part.aborted_transactions.as_ref().map(Vec::len)), (3, Some(0)));
    assert_eq!(records(&response, 0), stored(sequenced(5, 0, 0, 3), 0, 0));
}
