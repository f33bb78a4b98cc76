//! Typed log tables over Kafka: JSON in, rows in the log, JSON out.

use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{AlterConfigsRequest, DescribeConfigsRequest, ListOffsetsRequest};
use sluice_protocol::ErrorCode;
use sluice_protocol::batch::{BatchHeader, HEADER_LEN, with_payload};
use sluice_protocol::records::{self, BatchBuilder, Record, compress};

use crate::fixture::{Client, Server, text, topic_name};

const SCHEMA: &str = "id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3)";

fn json(builder: BatchBuilder, values: &[&str]) -> Vec<u8> {
    let add = |builder: BatchBuilder, value: &&str| builder.record(&Record::new(Some(b"k"), Some(value.as_bytes())));
    values.iter().fold(builder, add).build()
}

fn values(part: &PartitionData) -> Vec<String> {
    let (mut rest, mut found) = (part.records.clone().unwrap_or_default(), Vec::new());
    while let Some(header) = BatchHeader::read(&rest) {
        let batch = rest.split_to(header.total_len().expect("a length"));
        records::for_each(&batch, 1 << 20, |_, record| {
            assert_eq!(record.key, None);
            found.push(String::from_utf8(record.value.expect("a value").to_vec()).expect("text"));
        })
        .expect("decodes");
    }
    found
}

async fn create(client: &mut Client, name: &str) {
    let configs = [("table.schema", SCHEMA), ("bucket.num", "2"), ("table.log.ttl", "3 d"), ("owner", "me")];
    assert_eq!(client.try_create(name, 2, &configs).await, 0);
}

async fn configs(client: &mut Client, name: &str) -> Vec<(String, String)> {
    let resource = DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text(name));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.call(4, request).await;
    let shown = response.results[0].configs.iter();
    shown.map(|config| (config.name.to_string(), config.value.clone().unwrap_or_default().to_string())).collect()
}

#[tokio::test]
async fn rows_go_in_as_json_and_come_out_the_same_after_a_crash_and_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "t").await;
    let first = json(
        BatchBuilder::new(1_000),
        &[
            r#"{"id": 1, "name": "a\"b", "price": 12.30, "at": "2024-01-02 03:04:05.678"}"#,
            r#"{"at": "2024-01-02T03:04:05", "price": "7", "id": "2"}"#,
        ],
    );
    let answer = client.produce("t", 1, first).await;
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    assert!(answer.log_append_time_ms > 1_600_000_000_000);
    let expected = [
        r#"{"id":1,"name":"a\"b","price":12.30,"at":"2024-01-02 03:04:05.678"}"#,
        r#"{"id":2,"name":null,"price":7.00,"at":"2024-01-02 03:04:05"}"#,
        r#"{"id":3,"name":null,"price":null,"at":null}"#,
    ];
    assert_eq!(client.produce("t", 1, json(BatchBuilder::new(0), &[r#"{"id":3}"#])).await.base_offset, 2);
    let server = server.crash().await.restart().await;
    let mut client = server.client().await;
    assert_eq!(values(&client.fetch("t", 1, 0).await), expected);
    assert_eq!(values(&client.fetch("t", 1, 1).await), expected[1..]);
    assert!(values(&client.fetch("t", 0, 0).await).is_empty());
    let shown = configs(&mut client, "t").await;
    let value = |name: &str| shown.iter().find(|(shown, _)| shown == name).map(|(_, value)| value.as_str());
    assert_eq!(value("retention.ms"), Some("259200000"));
    assert_eq!(value("message.timestamp.type"), Some("LogAppendTime"));
    let declared = "`id` BIGINT NOT NULL, `name` STRING, `price` DECIMAL(10, 2), `at` TIMESTAMP(3)";
    assert_eq!(value("table.schema"), Some(declared));
}

#[tokio::test]
async fn one_bad_record_refuses_its_batch_by_index_and_reason_and_nothing_else() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "t").await;
    let bad = json(
        BatchBuilder::new(0),
        &[
            r#"{"id":1}"#,
            "no json",
            r#"{"id":99999999999999999999}"#,
            r#"{"name":"x"}"#,
            r#"{"id":1,"nmae":"x"}"#,
            r#"{"id":1,"price":123456789.00}"#,
        ],
    );
    let answer = client.produce("t", 0, bad).await;
    assert_eq!(answer.error_code, ErrorCode::InvalidRecord.code());
    let told: Vec<_> = answer.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(told, [1, 2, 3, 4, 5]);
    let reason = |at: usize| answer.record_errors[at].batch_index_error_message.clone().expect("a reason").to_string();
    assert!(reason(2).contains("column 'id'") && reason(2).contains("NOT NULL"), "{}", reason(2));
    assert!(reason(3).contains("'nmae'") && reason(3).contains("'name'"), "{}", reason(3));
    assert!(reason(4).contains("column 'price'"), "{}", reason(4));
    let tombstone = BatchBuilder::new(0).record(&Record::new(Some(b"k"), None)).build();
    assert_eq!(client.produce("t", 0, tombstone).await.error_code, ErrorCode::InvalidRecord.code());
    assert_eq!(client.produce("t", 0, json(BatchBuilder::new(0), &[r#"{"id":5}"#])).await.base_offset, 0);
}

#[tokio::test]
async fn an_idempotent_producers_retry_is_the_same_rows_after_a_crash_too() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "t").await;
    let batch = |sequence: i32, id: i32| {
        let value = format!(r#"{{"id":{id}}}"#);
        json(BatchBuilder::new(0).producer(77, 3, sequence), &[&value, &value])
    };
    for (sequence, id) in [(0, 1), (2, 2), (4, 3)] {
        assert_eq!(client.produce("t", 0, batch(sequence, id)).await.base_offset, i64::from(sequence));
    }
    server = server.crash().await;
    let mut client = server.client().await;
    assert_eq!(client.produce("t", 0, batch(2, 2)).await.base_offset, 2);
    let gap = client.produce("t", 0, batch(8, 9)).await.error_code;
    assert_eq!(gap, ErrorCode::OutOfOrderSequenceNumber.code());
    assert_eq!(client.produce("t", 0, batch(6, 4)).await.base_offset, 6);
    assert_eq!(values(&client.fetch("t", 0, 0).await).len(), 8);
}

#[tokio::test]
async fn what_is_no_typed_table_is_refused_by_name() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let schema = |schema: &'static str| vec![("table.schema", schema)];
    let cases = [
        ("t", schema("a"), ErrorCode::InvalidConfig),
        ("t", schema("a INT, a INT"), ErrorCode::InvalidConfig),
        ("t", schema("a WRONG"), ErrorCode::InvalidConfig),
        ("t", schema("a INT) WITH ('x' = 'y'"), ErrorCode::InvalidConfig),
        ("t", vec![("table.schema", "a INT"), ("table.log.tll", "1 d")], ErrorCode::InvalidConfig),
        ("t", vec![("table.schema", "a INT"), ("bucket.num", "3")], ErrorCode::InvalidConfig),
        ("t", vec![("table.log.ttl", "1 d")], ErrorCode::InvalidConfig),
        ("a.b", schema("a INT"), ErrorCode::InvalidConfig),
        ("__t", schema("a INT"), ErrorCode::InvalidConfig),
    ];
    for (name, configs, code) in cases {
        assert_eq!(client.try_create(name, 1, &configs).await, code.code(), "{name} {configs:?}");
    }
    assert_eq!(client.try_create("t", -1, &schema("a INT")).await, 0);
    assert_eq!(client.describe("t").await.partitions.len(), 1, "a typed table has one bucket by default");
}

#[tokio::test]
async fn an_offset_is_found_by_the_time_of_its_append() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "t").await;
    for id in 0..3 {
        let value = format!(r#"{{"id":{id}}}"#);
        client.produce("t", 0, json(BatchBuilder::new(0), &[&value])).await;
    }
    let mut offset_at = async |timestamp: i64| {
        let part = ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(topic_name("t")).with_partitions(vec![part]);
        let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
        let answer = client.call(7, request).await.topics.remove(0).partitions.remove(0);
        assert_eq!(answer.error_code, 0);
        (answer.offset, answer.timestamp)
    };
    let (first, time) = offset_at(0).await;
    assert!(first == 0 && time > 1_600_000_000_000);
    assert_eq!(offset_at(i64::MAX - 1).await.0, -1);
    assert_eq!(offset_at(-3).await.1, offset_at(-3).await.1);
}

#[tokio::test]
async fn a_batch_that_unpacks_to_too_much_is_refused_and_the_rest_goes_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, "t").await;
    let packed = |len: usize| {
        let plain = json(BatchBuilder::new(0), &[&format!(r#"{{"id":1,"name":"{}"}}"#, "x".repeat(len))]);
        with_payload(&plain, 4, &compress(4, &plain[HEADER_LEN..]).expect("packs"))
    };
    let rows = client.produce("t", 0, packed(17 << 20)).await;
    assert_eq!(rows.error_code, ErrorCode::MessageTooLarge.code());
    let payload = client.produce("t", 0, packed(65 << 20)).await;
    assert_eq!(payload.error_code, ErrorCode::InvalidRecord.code());
    assert_eq!(client.produce("t", 0, json(BatchBuilder::new(0), &[r#"{"id":5}"#])).await.base_offset, 0);
}

#[tokio::test]
async fn timestamps_are_iso_8601_where_the_table_says_so_and_altering_keeps_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let set = [("table.schema", SCHEMA), ("kafka.json.timestamp-format", "iso-8601")];
    assert_eq!(client.try_create("t", 1, &set).await, 0);
    let row = r#"{"id":1,"at":"2024-01-02 03:04:05.678"}"#;
    client.produce("t", 0, json(BatchBuilder::new(0), &[row])).await;
    let expected = r#"{"id":1,"name":null,"price":null,"at":"2024-01-02T03:04:05.678"}"#;
    assert_eq!(values(&client.fetch("t", 0, 0).await), [expected]);
    let config = AlterableConfig::default().with_name(text("retention.ms")).with_value(Some(text("5000000000")));
    let resource =
        AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("t")).with_configs(vec![config]);
    let answer = client.call(1, AlterConfigsRequest::default().with_resources(vec![resource])).await;
    assert_eq!(answer.responses[0].error_code, 0);
    assert_eq!(values(&client.fetch("t", 0, 0).await), [expected]);
}
