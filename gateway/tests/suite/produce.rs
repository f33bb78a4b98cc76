//! Produce: idempotence, timestamps, refusals.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, InitProducerIdRequest, ListOffsetsRequest};
use sluice_engine::ManualClock;
use sluice_protocol::batch::{BatchHeader, HEADER_LEN, with_payload};
use sluice_protocol::records::{BatchBuilder, Record, compress, for_each};

use crate::fixture::{Client, PRODUCE, Server, batch, produce_request, sequenced, sized_batch, stored, topic_name};

pub(crate) async fn list_offset(client: &mut Client, version: i16, topic: &str, timestamp: i64) -> (i16, i64, i64) {
    let part = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
    let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![part]);
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = client.call(version, request).await.topics.remove(0).partitions.remove(0);
    (answer.error_code, answer.offset, answer.timestamp)
}

async fn send(client: &mut Client, batch: Vec<u8>) -> (i16, i64) {
    let answer = client.produce("t", 0, batch).await;
    (answer.error_code, answer.base_offset)
}

/// K05, P19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_the_last_five_batches_is_a_duplicate_at_its_first_offset() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    for at in 0..5 {
        assert_eq!(send(&mut client, sequenced(7, 0, at * 10, 10)).await, (0, i64::from(at) * 10));
    }
    for at in [3, 0, 4, 1, 2, 2] {
        assert_eq!(send(&mut client, sequenced(7, 0, at * 10, 10)).await, (0, i64::from(at) * 10), "batch {at}");
    }
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 50);
    assert_eq!(send(&mut client, sequenced(7, 0, 50, 10)).await, (0, 50));
    assert_eq!(send(&mut client, sequenced(7, 0, 0, 10)).await, (45, -1), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    assert_eq!(send(&mut client, sequenced(7, 0, 70, 10)).await.0, 45);
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 60);
}

/// P21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn epochs_fence_and_a_new_one_begins_at_sequence_0() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(send(&mut client, sequenced(7, 3, 0, 1)).await, (0, 0));
    assert_eq!(send(&mut client, sequenced(7, 2, 1, 1)).await.0, 47, "INVALID_PRODUCER_EPOCH");
    assert_eq!(send(&mut client, sequenced(7, 4, 5, 1)).await.0, 45);
    assert_eq!(send(&mut client, sequenced(7, 4, 0, 1)).await, (0, 1));
}

/// P20.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequences_wrap_to_0_inside_a_batch() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let around = sequenced(7, 0, i32::MAX - 2, 5);
    assert_eq!(send(&mut client, around.clone()).await, (0, 0));
    assert_eq!(send(&mut client, around).await, (0, 0), "a duplicate");
    assert_eq!(send(&mut client, sequenced(7, 0, 3, 1)).await.0, 45);
    assert_eq!(send(&mut client, sequenced(7, 0, 2, 1)).await, (0, 5));
}

/// K06, P21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_whose_state_expired_goes_on_at_any_sequence() {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let server = Server::start_at(&clock).await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(send(&mut client, sequenced(7, 0, 0, 100)).await, (0, 0));
    assert_eq!(send(&mut client, sequenced(7, 0, 200, 1)).await.0, 45);
    clock.advance(86_400_000);
    server.gateway.engine().apply_retention();
    assert_eq!(send(&mut client, sequenced(7, 0, 200, 1)).await, (0, 100));
}

/// K06 by the server's own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_producers_are_forgotten_by_the_retention_run() {
    let server = Server::start_with(|config| {
        config.log_producer_expiry_ms = 50;
        config.log_retention_interval_ms = 20;
    })
    .await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(send(&mut client, sequenced(7, 0, 0, 100)).await, (0, 0));
    let began = std::time::Instant::now();
    // A refused batch does not keep the producer alive.
    while send(&mut client, sequenced(7, 0, 200, 1)).await != (0, 100) {
        assert!(began.elapsed() < crate::fixture::PATIENCE, "never forgotten");
        tokio::task::yield_now().await;
    }
}

async fn assert_remembered(server: &Server, id: i64) {
    let mut client = server.client().await;
    for at in 0..5 {
        assert_eq!(send(&mut client, sequenced(id, 0, at, 1)).await, (0, i64::from(at)), "a duplicate");
    }
    assert_eq!(send(&mut client, sequenced(id, 0, 9, 1)).await.0, 45);
    let fresh = client.call(4, InitProducerIdRequest::default().with_transactional_id(None)).await;
    assert!(fresh.producer_id.0 > id, "ids are never given twice");
}

/// P22.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotence_survives_a_clean_restart_and_a_crash() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let id = client.call(4, InitProducerIdRequest::default().with_transactional_id(None)).await.producer_id.0;
    for at in 0..5 {
        assert_eq!(send(&mut client, sequenced(id, 0, at, 1)).await, (0, i64::from(at)));
    }
    drop(client);
    let server = server.restart().await;
    assert_remembered(&server, id).await;
    let server = server.crash().await;
    assert_remembered(&server, id).await;
    let mut client = server.client().await;
    assert_eq!(send(&mut client, sequenced(id, 0, 5, 1)).await, (0, 5));
}

/// K07, P25, P29, P39.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_timestamps_and_repeated_headers_in_one_batch_come_back_as_they_went() {
    const LATE: i64 = 1_787_086_231_121;
    let server = Server::start().await;
    let mut client = server.client().await;
    let always = [("message.timestamp.after.max.ms", "9223372036854775807")];
    assert_eq!(client.try_create("t", 1, &always).await, 0);
    let headers = vec![(&b"x-tag"[..], Some(&b"a"[..])), (b"x-tag", Some(b"b")), (b"o", None)];
    let second = Record { timestamp_delta: LATE, headers, ..Record::new(Some(b"k"), Some(b"v")) };
    let sent = BatchBuilder::new(0).record(&Record::new(Some(b"k"), Some(b"v"))).record(&second).build();
    assert_eq!(send(&mut client, sent.clone()).await, (0, 0));
    let got = client.fetch("t", 0, 0).await.records.expect("records");
    assert_eq!(got, stored(sent, 0, 0));
    assert_eq!(BatchHeader::read(&got).expect("a header").max_timestamp, LATE);
    let mut seen = Vec::new();
    for_each(&got, 1 << 20, |header, record| {
        let headers: Vec<_> =
            record.headers.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
        seen.push((header.base_timestamp + record.timestamp_delta, headers));
    })
    .expect("decodes");
    let tags = [("x-tag", Some("a")), ("x-tag", Some("b")), ("o", None)];
    let tags: Vec<_> =
        tags.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.map(|v: &str| v.as_bytes().to_vec()))).collect();
    assert_eq!(seen, [(0, vec![]), (LATE, tags)]);
    assert_eq!(list_offset(&mut client, 7, "t", 0).await, (0, 0, 0));
    assert_eq!(list_offset(&mut client, 7, "t", 1).await, (0, 1, LATE));
    assert_eq!(list_offset(&mut client, 7, "t", LATE).await, (0, 1, LATE));
    assert_eq!(list_offset(&mut client, 7, "t", LATE + 1).await, (0, -1, -1));
    assert_eq!(list_offset(&mut client, 7, "t", -3).await, (0, 1, LATE));
}

/// P23, P24 and the golden probes of area 03.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_broken_batch_has_its_code_and_nothing_is_appended() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let patched = |at: usize, bytes: &[u8], seal: bool| {
        let mut bad = batch(2);
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        if seal {
            let crc = sluice_protocol::batch::compute_crc(&bad);
            bad[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        bad
    };
    let cut = |len: usize| batch(2)[..len].to_vec();
    let cases: Vec<(&str, Vec<u8>, &[i16])> = vec![
        ("wrong crc", patched(17, &[1, 2, 3, 4], false), &[2]),
        (
            "a flipped record byte",
            {
                let mut bad = batch(2);
                let last = bad.len() - 1;
                bad[last] ^= 1;
                bad
            },
            &[2],
        ),
        ("magic 0", patched(16, &[0], false), &[87, 2]),
        ("magic 1", patched(16, &[1], false), &[87, 2]),
        ("magic 3", patched(16, &[3], false), &[2]),
        ("length 5", patched(8, &5i32.to_be_bytes(), false), &[2]),
        ("length too large", patched(8, &i32::MAX.to_be_bytes(), false), &[87, 2]),
        ("length negative", patched(8, &(-1i32).to_be_bytes(), false), &[2]),
        ("base offset 77", patched(0, &77i64.to_be_bytes(), false), &[87]),
        ("no records", patched(57, &0i32.to_be_bytes(), true), &[87]),
        ("a huge count", patched(57, &i32::MAX.to_be_bytes(), true), &[87]),
        ("a negative count", patched(57, &(-2i32).to_be_bytes(), true), &[87]),
        ("last offset delta", patched(23, &7i32.to_be_bytes(), true), &[87]),
        ("control", patched(21, &0x20i16.to_be_bytes(), true), &[87]),
        ("transactional", patched(21, &0x10i16.to_be_bytes(), true), &[48, 87]),
        ("codec 5", patched(21, &5i16.to_be_bytes(), true), &[87, 76]),
        ("gzip that is none", patched(21, &1i16.to_be_bytes(), true), &[87]),
        ("zstd that is none", patched(21, &4i16.to_be_bytes(), true), &[87]),
        ("two batches", [batch(1), batch(1)].concat(), &[87]),
        ("too large", sized_batch(1, 2 << 20), &[10]),
        ("empty", Vec::new(), &[87, 2]),
        ("half a header", cut(30), &[87, 2]),
        ("half a batch", cut(batch(2).len() - 2), &[87, 2]),
    ];
    for (what, bytes, codes) in cases {
        let (code, base) = send(&mut client, bytes).await;
        assert!(codes.contains(&code) && base == -1, "{what}: {code} at {base}");
    }
    let null = client.call(PRODUCE, produce_request("t", 0, -1, None)).await;
    assert!([87, 2].contains(&null.responses[0].partition_responses[0].error_code));
    for acks in [2, -2, i16::MAX] {
        let answer = client.call(PRODUCE, produce_request("t", 0, acks, Some(batch(1).into()))).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 21, "acks {acks}");
    }
    for partition in [1, -1, i32::MAX, i32::MIN] {
        assert_eq!(client.produce("t", partition, batch(1)).await.error_code, 3, "partition {partition}");
    }
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
    assert_eq!(send(&mut client, batch(1)).await, (0, 0));
}

/// P26.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_codec_is_kept_as_it_came_and_zstd_needs_produce_7() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let plain = sized_batch(3, 500);
    for codec in 0..5 {
        let payload = compress(codec, &plain[HEADER_LEN..]).expect("compresses");
        let sent = with_payload(&plain, codec, &payload);
        let offset = i64::from(codec) * 3;
        assert_eq!(send(&mut client, sent.clone()).await, (0, offset), "codec {codec}");
        assert_eq!(client.fetch("t", 0, offset).await.records, Some(Bytes::from(stored(sent.clone(), offset, 0))));
        let old = client.call(6, produce_request("t2", 0, -1, Some(Bytes::from(sent.clone())))).await;
        assert_eq!(old.responses[0].partition_responses[0].error_code, 3);
        if codec == 4 {
            let old = client.call(6, produce_request("t", 0, -1, Some(Bytes::from(sent)))).await;
            assert_eq!(old.responses[0].partition_responses[0].error_code, 76);
        }
    }
}

/// P27.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_append_time_stamps_the_batch_and_says_so() {
    let clock = Arc::new(ManualClock::new(5_000_000));
    let server = Server::start_at(&clock).await;
    let mut client = server.client().await;
    assert_eq!(client.try_create("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await, 0);
    client.create("c", 1).await;
    assert_eq!(client.produce("t", 0, batch(2)).await.log_append_time_ms, 5_000_000);
    assert_eq!(client.produce("c", 0, batch(2)).await.log_append_time_ms, -1);
    let got = client.fetch("t", 0, 0).await.records.expect("records");
    let header = BatchHeader::read(&got).expect("a header");
    assert!(header.is_log_append_time());
    assert_eq!((header.max_timestamp, header.crc), (5_000_000, sluice_protocol::batch::compute_crc(&got)));
    assert_eq!(list_offset(&mut client, 7, "t", 5_000_000).await, (0, 0, 5_000_000));
}
