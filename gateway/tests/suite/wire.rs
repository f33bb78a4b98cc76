//! Framing, order of responses, version negotiation.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{
    ApiVersionsRequest, InitProducerIdRequest, JoinGroupRequest, MetadataRequest, ProduceRequest,
};
use std::collections::HashSet;

use crate::fixture::{Client, FETCH, PRODUCE, Server, batch, fetch_request, produce_request, raw_frame, text};
use crate::groups::{join_request, rejoin_request};

fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest::default().with_client_software_name(text("suite")).with_client_software_version(text("1.0"))
}

/// K01, P01, P02.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_api_versions_is_answered_in_the_oldest_layout_and_the_connection_lives_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    // v3-style header and body under a version that does not exist.
    let mut frame = raw_frame::<ApiVersionsRequest>(3, 77, &[6, b's', b'u', b'i', b't', b'e', 2, b'1', 0]).to_vec();
    frame[6..8].copy_from_slice(&99i16.to_be_bytes());
    client.send_raw(&frame).await;
    let mut reply = client.frame().await.expect("a reply");
    assert_eq!((reply.get_i32(), reply.get_i16(), reply.get_i32()), (77, 35, 1));
    assert_eq!((reply.get_i16(), reply.get_i16(), reply.get_i16()), (18, 0, 4));
    assert!(!reply.has_remaining(), "v0 has no throttle time and no tagged fields");
    let again = client.call(3, api_versions()).await;
    assert_eq!(again.error_code, 0);
    assert!(again.api_keys.iter().any(|api| api.api_key == 18));
    assert_eq!(client.call(1, MetadataRequest::default().with_topics(None)).await.brokers.len(), 1);
}

/// P01: the response header of ApiVersions has no tagged fields at any version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_versions_has_the_plain_response_header_at_every_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for version in 0..=4 {
        let id = client.send(version, &api_versions()).await;
        let mut reply = client.frame().await.expect("a reply");
        assert_eq!((reply.get_i32(), reply.get_i16()), (id, 0), "version {version}");
    }
}

/// P10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_software_name_that_is_none_is_an_invalid_request() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (name, version) in [("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a", "1."), ("ä", "1")] {
        let request = api_versions().with_client_software_name(text(name)).with_client_software_version(text(version));
        assert_eq!(client.call(4, request).await.error_code, 42, "{name:?} {version:?}");
    }
    assert_eq!(client.call(4, api_versions()).await.error_code, 0);
}

/// K02, P06.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_producer_id_gives_a_new_id_at_epoch_0_in_every_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut seen = HashSet::new();
    for version in 0..=5 {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        let answer = client.call(version, request).await;
        assert_eq!((answer.error_code, answer.producer_epoch), (0, 0), "version {version}");
        assert!(answer.producer_id.0 >= 0 && seen.insert(answer.producer_id.0), "version {version}");
    }
    client.create("t", 1).await;
    let id = *seen.iter().next().expect("an id");
    let answer = client.produce("t", 0, crate::fixture::sequenced(id, 0, 0, 1)).await;
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
}

/// P07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let mut sent = Vec::new();
    for _ in 0..30 {
        let produce = client.send(PRODUCE, &produce_request("t", 0, -1, Some(batch(1).into()))).await;
        let fetch = client.send(FETCH, &fetch_request("t", &[(0, 0)], 1 << 20, 0, 0)).await;
        let metadata = client.send(9, &MetadataRequest::default().with_topics(None)).await;
        sent.push((produce, fetch, metadata));
    }
    for (at, (produce, fetch, metadata)) in sent.into_iter().enumerate() {
        let answer = client.recv::<ProduceRequest>(PRODUCE, produce).await;
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, at as i64);
        client.recv::<kafka_protocol::messages::FetchRequest>(FETCH, fetch).await;
        client.recv::<MetadataRequest>(9, metadata).await;
    }
}

async fn stable_member(client: &mut Client, group: &str) -> String {
    let joined = client.call(3, join_request(group, "", 60_000)).await;
    assert_eq!(joined.error_code, 0);
    let member = joined.member_id.to_string();
    let synced = client.call(3, crate::groups::sync_request(group, &member, joined.generation_id)).await;
    assert_eq!(synced.error_code, 0);
    member
}

/// K03, P07, P08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_0_takes_no_place_behind_a_parked_join_group() {
    let server = Server::start().await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    first.create("t", 1).await;
    let member = stable_member(&mut first, "g").await;
    let join = second.send(3, &join_request("g", "", 60_000)).await;
    second.send(PRODUCE, &produce_request("t", 0, 0, Some(batch(3).into()))).await;
    let metadata = second.send(9, &MetadataRequest::default().with_topics(None)).await;
    // The append is not held up by the parked request before it.
    let fetched = first.call(FETCH, fetch_request("t", &[(0, 0)], 1 << 20, 1, 60_000)).await;
    assert_eq!(fetched.responses[0].partitions[0].high_watermark, 3);
    let rejoin = first.call(3, rejoin_request("g", &member, 60_000)).await;
    assert_eq!(rejoin.error_code, 0);
    assert_eq!(second.recv::<JoinGroupRequest>(3, join).await.error_code, 0);
    second.recv::<MetadataRequest>(9, metadata).await;
    let after = second.call(9, MetadataRequest::default().with_topics(None)).await;
    assert_eq!(after.topics.len(), 1, "the connection lives on");
}

/// P08.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_under_acks_0_closes_the_connection() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    witness.create("t", 1).await;
    let bad_crc = {
        let mut bytes = batch(1);
        bytes[17] ^= 1;
        bytes
    };
    for (topic, partition, records) in [("missing", 0, batch(1)), ("t", 1, batch(1)), ("t", 0, bad_crc)] {
        let mut client = server.client().await;
        client.send(PRODUCE, &produce_request(topic, partition, 0, Some(Bytes::from(records)))).await;
        client.assert_closed().await;
    }
    assert_eq!(witness.fetch("t", 0, 0).await.high_watermark, 0);
}
