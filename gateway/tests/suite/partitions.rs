//! Partitioned tables: SQL makes and drops partitions, rows go where their values say, and topic partitions are slots
//! that one bucket after another has (design §3).

use std::collections::BTreeMap;

use arrow_flight::sql::client::FlightSqlServiceClient;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};
use sluice_protocol::ErrorCode;
use sluice_protocol::batch::BatchHeader;
use sluice_protocol::records::{self, BatchBuilder, Record};
use tonic::Code;
use tonic::transport::Channel;

use crate::fixture::{Client, Server, topic_name};
use crate::flight::{flight, path, read, rows, sql};
use crate::sql::{each_refused, query, refused, update};

/// The first example at the end of Fluss's table overview, as it stands there.
const ORDER_EVENTS: &str = "CREATE TABLE order_events (
    event_date STRING,
    event_id STRING,
    order_id BIGINT,
    event_type STRING,
    event_time TIMESTAMP(3)
) PARTITIONED BY (event_date)
WITH (
    'bucket.num' = '8',
    'bucket.key' = 'order_id',
    'table.log.ttl' = '7 d'
);";

/// Each record's offset and value, and where the batches end.
fn shown(mut bytes: bytes::Bytes) -> (Vec<(i64, String)>, i64) {
    let (mut found, mut end) = (Vec::new(), -1);
    while let Some(header) = BatchHeader::read(&bytes) {
        let batch = bytes.split_to(header.total_len().expect("a length"));
        if header.is_control() {
            end = header.last_offset() + 1;
            continue;
        }
        records::for_each(&batch, 1 << 20, |header, record| {
            let value = record.value.map(|value| String::from_utf8(value.to_vec()).expect("text"));
            found.push((header.base_offset + i64::from(record.offset_delta), value.unwrap_or_default()));
        })
        .expect("decodes");
        end = header.last_offset() + 1;
    }
    (found, end)
}

async fn fetch(client: &mut Client, topic: &str, partition: i32, offset: i64) -> (Vec<(i64, String)>, i64) {
    loop {
        let part = client.fetch(topic, partition, offset).await;
        if part.error_code != ErrorCode::NotLeaderOrFollower.code() {
            assert_eq!(part.error_code, 0, "{topic}-{partition} from {offset}");
            return shown(part.records.unwrap_or_default());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn bounds(client: &mut Client, topic: &str, partition: i32) -> (i64, i64) {
    let mut found = Vec::new();
    for timestamp in [-2, -1] {
        let part = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(topic_name(topic)).with_partitions(vec![part]);
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
        let answer = client.call(7, request).await.topics.remove(0).partitions.remove(0);
        assert_eq!(answer.error_code, 0);
        found.push(answer.offset);
    }
    (found[0], found[1])
}

fn batch(builder: BatchBuilder, values: &[(&str, i64)]) -> Vec<u8> {
    let add = |builder: BatchBuilder, (day, n): &(&str, i64)| {
        let (key, value) = (format!(r#"{{"day":"{day}","n":{n}}}"#), format!(r#"{{"day":"{day}","n":{n}}}"#));
        builder.record(&Record::new(Some(key.as_bytes()), Some(value.as_bytes())))
    };
    values.iter().fold(builder, add).build()
}

async fn count(sql: &mut FlightSqlServiceClient<Channel>, table: &str) -> String {
    query(sql, &format!("SELECT COUNT(*) FROM {table}")).await.remove(0)
}

#[tokio::test]
async fn the_example_of_order_events_runs_as_it_stands() {
    let server = Server::start().await;
    let (mut kafka, mut sql) = (server.client().await, sql(&server).await);
    update(&mut sql, "CREATE DATABASE commerce").await;
    update(&mut sql, "USE commerce").await;
    update(&mut sql, ORDER_EVENTS).await;
    let partitions = kafka.describe("commerce.order_events").await.partitions;
    assert_eq!(partitions.len(), 8, "there are topic partitions before there is a partition");
    update(&mut sql, "ALTER TABLE order_events ADD PARTITION (event_date = '2026-10-05');").await;
    assert_eq!(query(&mut sql, "SHOW PARTITIONS order_events").await, ["event_date=2026-10-05"]);
    let insert = "INSERT INTO order_events VALUES
        ('2026-10-05', 'e1', 1, 'new', TIMESTAMP '2026-10-05 01:02:03'), ('2026-10-05', 'e1', 1, 'new', NULL)";
    assert_eq!(update(&mut sql, insert).await, 2);
    assert_eq!(count(&mut sql, "order_events").await, "2", "two appends with the same id are two records");
    let missing =
        "INSERT INTO order_events VALUES ('2026-10-05', 'e2', 2, 'x', NULL), ('2026-10-06', 'e3', 3, 'x', NULL)";
    let (code, message) = refused(&mut sql, missing).await;
    assert_eq!(code, Code::NotFound);
    assert!(message.contains("row 1") && message.contains("2026-10-06"), "{message}");
    assert_eq!(count(&mut sql, "order_events").await, "2", "nothing of it was stored");
    // Rows of one order are in one topic partition, whichever was addressed.
    let value = r#"{"event_date":"2026-10-05","event_id":"e9","order_id":1,"event_type":"paid","event_time":null}"#;
    let record = BatchBuilder::new(0).record(&Record::new(None, Some(value.as_bytes()))).build();
    for partition in 0..8 {
        assert_eq!(kafka.produce("commerce.order_events", partition, record.clone()).await.error_code, 0);
    }
    let mut by_partition = Vec::new();
    for partition in 0..8 {
        by_partition.push(fetch(&mut kafka, "commerce.order_events", partition, 0).await.0.len());
    }
    by_partition.sort_unstable();
    assert_eq!(by_partition, [0, 0, 0, 0, 0, 0, 0, 10]);
}

#[tokio::test]
async fn rows_go_to_the_partition_that_their_values_name_and_retries_are_known_after_a_crash() {
    let server = Server::start().await;
    let (mut kafka, mut db) = (server.client().await, sql(&server).await);
    let ddl = "CREATE TABLE t (day STRING, n BIGINT, PRIMARY KEY (day, n) NOT ENFORCED) PARTITIONED BY (day)
        WITH ('bucket.num' = '2', 'kafka.key.format' = 'json')";
    update(&mut db, ddl).await;
    let none = kafka.produce("t", 0, batch(BatchBuilder::new(0), &[("a", 1)])).await;
    assert_eq!(none.error_code, ErrorCode::InvalidRecord.code());
    for day in ["a", "b"] {
        update(&mut db, &format!("ALTER TABLE t ADD PARTITION (day = '{day}')")).await;
    }
    assert_eq!(kafka.describe("t").await.partitions.len(), 4);
    let send = |sequence: i32, values: &[(&str, i64)]| batch(BatchBuilder::new(0).producer(31, 0, sequence), values);
    let first = send(0, &[("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
    let told = kafka.produce("t", 3, first.clone()).await;
    assert_eq!(told.error_code, 0);
    let bad = kafka.produce("t", 3, send(4, &[("a", 3), ("c", 1)])).await;
    assert_eq!(bad.error_code, ErrorCode::InvalidRecord.code());
    assert!(bad.error_message.expect("a reason").contains("'c'"));
    let server = server.crash().await.restart().await;
    let (mut kafka, mut db) = (server.client().await, sql(&server).await);
    let again = kafka.produce("t", 3, first).await;
    assert_eq!((again.error_code, again.base_offset), (0, told.base_offset), "a duplicate");
    assert_eq!(kafka.produce("t", 3, send(4, &[("b", 3)])).await.error_code, 0);
    let found = query(&mut db, "SELECT day, n FROM t ORDER BY day, n").await;
    assert_eq!(found, ["a|1", "a|2", "b|1", "b|2", "b|3"]);
    let plan = query(&mut db, "EXPLAIN SELECT n FROM t WHERE day = 'b' AND n > 1").await.join("\n");
    assert!(plan.contains("partitions=1/2, buckets=2"), "{plan}");
    assert_eq!(query(&mut db, "SELECT n FROM t WHERE day = 'b' AND n > 1 ORDER BY n").await, ["2", "3"]);
    assert!(query(&mut db, "SELECT n FROM t WHERE day = 'c'").await.is_empty());
    assert!(query(&mut db, "SELECT n FROM t WHERE day = 'c' AND n = 1").await.is_empty(), "no partition, no row");
    // A delete makes no partition and is no error.
    assert_eq!(update(&mut db, "DELETE FROM t WHERE day = 'a' AND n = 1").await, 1);
    let tombstone = BatchBuilder::new(0).record(&Record::new(Some(br#"{"day":"z","n":1}"#), None)).build();
    assert_eq!(kafka.produce("t", 0, tombstone).await.error_code, 0);
    assert_eq!(query(&mut db, "SHOW PARTITIONS t").await, ["day=a", "day=b"]);
    let mut client = flight(&server).await;
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    assert_eq!(info.endpoint.len(), 4);
    assert_eq!(rows(&read(&mut client, &info).await), 4);
}

#[tokio::test]
async fn a_slot_goes_on_where_the_bucket_before_it_ended() {
    let server = Server::start().await;
    let (mut kafka, mut db) = (server.client().await, sql(&server).await);
    update(&mut db, "CREATE TABLE t (day STRING, n BIGINT) PARTITIONED BY (day) WITH ('bucket.num' = '1')").await;
    update(&mut db, "ALTER TABLE t ADD PARTITION (day = 'a')").await;
    update(&mut db, "ALTER TABLE t ADD PARTITION (day = 'b')").await;
    update(&mut db, "INSERT INTO t VALUES ('a', 1), ('b', 10)").await;
    update(&mut db, "INSERT INTO t VALUES ('a', 2), ('b', 20)").await;
    assert_eq!(bounds(&mut kafka, "t", 0).await, (0, 2));
    update(&mut db, "ALTER TABLE t DROP PARTITION (day = 'a')").await;
    assert_eq!(bounds(&mut kafka, "t", 0).await, (2, 2), "a free slot is there, and empty");
    assert_eq!(fetch(&mut kafka, "t", 0, 0).await, (Vec::new(), 2), "what is below it is a gap");
    assert_eq!(kafka.describe("t").await.partitions.len(), 2);
    // A batch for the free slot is closed in the lowest one that is taken.
    let value = r#"{"day":"b","n":30}"#;
    let record = BatchBuilder::new(0).producer(8, 0, 0).record(&Record::new(None, Some(value.as_bytes()))).build();
    assert_eq!(kafka.produce("t", 0, record).await.base_offset, 2);
    let server = server.crash().await.restart().await;
    let (mut kafka, mut db) = (server.client().await, sql(&server).await);
    assert_eq!(bounds(&mut kafka, "t", 0).await, (2, 2));
    update(&mut db, "ALTER TABLE t ADD PARTITION (day = 'c')").await;
    update(&mut db, "INSERT INTO t VALUES ('c', 3)").await;
    assert_eq!(bounds(&mut kafka, "t", 0).await, (2, 3));
    assert_eq!(fetch(&mut kafka, "t", 0, 1).await, (Vec::new(), 2));
    assert_eq!(fetch(&mut kafka, "t", 0, 2).await, (vec![(2, r#"{"day":"c","n":3}"#.to_owned())], 3));
    // The epochs of both tenants: the first one's ended where the second one's began.
    let now = kafka.describe("t").await.partitions[0].leader_epoch;
    assert!(now >= 2, "a crash and a new tenant, each an epoch: {now}");
    let part = OffsetForLeaderPartition::default().with_partition(0).with_current_leader_epoch(-1).with_leader_epoch(0);
    let topic = OffsetForLeaderTopic::default().with_topic(topic_name("t")).with_partitions(vec![part]);
    let request = OffsetForLeaderEpochRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let answer = kafka.call(4, request).await.topics.remove(0).partitions.remove(0);
    assert_eq!((answer.leader_epoch, answer.end_offset), (0, 2));
    let server = server.restart().await;
    let mut db = sql(&server).await;
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in query(&mut db, "SELECT day, n FROM t ORDER BY n").await {
        let (day, n) = line.split_once('|').expect("two columns");
        all.entry(day.to_owned()).or_default().push(n.to_owned());
    }
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    assert_eq!(all, BTreeMap::from([("b".to_owned(), owned(&["10", "20", "30"])), ("c".to_owned(), owned(&["3"]))]));
}

#[tokio::test]
async fn what_is_wrong_with_a_partition_is_said() {
    let server = Server::start().await;
    let mut db = sql(&server).await;
    update(&mut db, "CREATE TABLE t (d DATE, r STRING, n INT) PARTITIONED BY (d, r)").await;
    update(&mut db, "CREATE TABLE u (n INT)").await;
    update(&mut db, "ALTER TABLE t ADD PARTITION (r = 'eu', d = '2026-01-02')").await;
    let cases = [
        ("ALTER TABLE t ADD PARTITION (r = 'eu', d = '2026-01-02')", Code::AlreadyExists, "already exists"),
        ("ALTER TABLE t ADD PARTITION (d = '2026-01-02')", Code::InvalidArgument, "'r'"),
        ("ALTER TABLE t ADD PARTITION (r = 'eu', d = '2026-13-02')", Code::InvalidArgument, "'d'"),
        ("ALTER TABLE t ADD PARTITION (r = 'a b', d = '2026-01-02')", Code::InvalidArgument, "'r'"),
        ("ALTER TABLE t ADD PARTITION (r = 'changelog', d = '2026-01-02')", Code::InvalidArgument, "view"),
        ("ALTER TABLE t ADD PARTITION (r = 'eu', d = '2026-01-02', x = '1')", Code::InvalidArgument, "'x'"),
        ("ALTER TABLE u ADD PARTITION (n = '1')", Code::InvalidArgument, "not partitioned"),
        ("ALTER TABLE t DROP PARTITION (r = 'us', d = '2026-01-02')", Code::NotFound, "us"),
        ("INSERT INTO t VALUES (DATE '2026-01-02', NULL, 1)", Code::InvalidArgument, "'r' is NULL"),
        ("CREATE TABLE v (a DECIMAL(5, 1), b INT) PARTITIONED BY (a)", Code::InvalidArgument, "DECIMAL"),
    ];
    each_refused(&mut db, &cases).await;
    update(&mut db, "ALTER TABLE t ADD IF NOT EXISTS PARTITION (r = 'eu', d = '2026-01-02')").await;
    update(&mut db, "ALTER TABLE t DROP IF EXISTS PARTITION (r = 'us', d = '2026-01-02')").await;
    update(&mut db, "INSERT INTO t VALUES (DATE '2026-01-02', 'eu', 7)").await;
    assert_eq!(query(&mut db, "SELECT n FROM t WHERE d = '2026-01-02'").await, ["7"]);
    let made = query(&mut db, "SHOW CREATE TABLE t").await.remove(0);
    assert!(made.contains("PARTITIONED BY (`d`, `r`)"), "{made}");
    update(&mut db, "ALTER TABLE t DROP PARTITION (r = 'eu', d = '2026-01-02')").await;
    assert_eq!(count(&mut db, "t").await, "0");
}
