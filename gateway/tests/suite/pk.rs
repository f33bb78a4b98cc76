//! Tables with a primary key over Kafka: records upsert and delete, and the upsert view reads back (design §§3, 4).

use kafka_protocol::messages::fetch_response::PartitionData;
use sluice_protocol::ErrorCode;
use sluice_protocol::batch::BatchHeader;
use sluice_protocol::records::{self, BatchBuilder, Record};

use crate::fixture::{Client, Server};

const SCHEMA: &str = "id BIGINT NOT NULL, name STRING, n INT, PRIMARY KEY (id) NOT ENFORCED";

type Pair<'a> = (Option<&'a str>, Option<&'a str>);

fn build(builder: BatchBuilder, pairs: &[Pair<'_>]) -> Vec<u8> {
    let add = |builder: BatchBuilder, (key, value): &Pair<'_>| {
        builder.record(&Record::new(key.map(str::as_bytes), value.map(str::as_bytes)))
    };
    pairs.iter().fold(builder, add).build()
}

pub(crate) fn plain(pairs: &[Pair<'_>]) -> Vec<u8> {
    build(BatchBuilder::new(0), pairs)
}

/// Offset, key and value of every record, and where the batches end.
pub(crate) fn read(part: &PartitionData) -> (Vec<(i64, String, Option<String>)>, i64) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (mut rest, mut found, mut end) = (part.records.clone().unwrap_or_default(), Vec::new(), -1);
    while let Some(header) = BatchHeader::read(&rest) {
        let batch = rest.split_to(header.total_len().expect("a length"));
        if header.is_control() {
            end = header.last_offset() + 1;
            continue;
        }
        records::for_each(&batch, 1 << 20, |header, record| {
            let offset = header.base_offset + i64::from(record.offset_delta);
            found.push((offset, text(record.key.expect("a key")), record.value.map(text)));
        })
        .expect("decodes");
        end = header.last_offset() + 1;
    }
    (found, end)
}

/// A fetch as clients do it: they come again while a bucket opens.
pub(crate) async fn fetch(client: &mut Client, bucket: i32, offset: i64) -> PartitionData {
    loop {
        let part = client.fetch("t", bucket, offset).await;
        if part.error_code != ErrorCode::NotLeaderOrFollower.code() {
            assert_eq!(part.error_code, 0);
            return part;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

pub(crate) async fn create(client: &mut Client, buckets: i32, more: &[(&str, &str)]) {
    let configs = [&[("table.schema", SCHEMA), ("kafka.key.format", "json")], more].concat();
    assert_eq!(client.try_create("t", buckets, &configs).await, 0);
}

/// All records of a topic, by key in the order of their offsets.
async fn by_key(client: &mut Client, buckets: i32) -> std::collections::BTreeMap<String, Vec<Option<String>>> {
    let mut all = std::collections::BTreeMap::<String, Vec<Option<String>>>::new();
    for bucket in 0..buckets {
        let mut offset = 0;
        loop {
            let part = fetch(client, bucket, offset).await;
            let (records, end) = read(&part);
            for (_, key, value) in records {
                all.entry(key).or_default().push(value);
            }
            if end < 0 {
                assert_eq!(offset, part.high_watermark, "the end is reached");
                break;
            }
            offset = end;
        }
    }
    all
}

#[tokio::test]
async fn records_upsert_and_delete_and_the_upsert_view_reads_back_after_a_crash_too() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 1, &[]).await;
    let key = |id: i32| format!(r#"{{"id":{id}}}"#);
    let (one, two) = (key(1), key(2));
    let first = [
        (Some(one.as_str()), Some(r#"{"id":1,"name":"a","n":1}"#)),
        (Some(two.as_str()), Some(r#"{"name":"b"}"#)),
        (Some(one.as_str()), Some(r#"{"n":"2"}"#)),
    ];
    assert_eq!(client.produce("t", 0, plain(&first)).await.base_offset, 0);
    // +I +I -U +U: the next is at 4. A delete of what is not there takes an offset and shows nothing.
    let gone = [(Some(r#"{"id":3}"#), None)];
    assert_eq!(client.produce("t", 0, plain(&gone)).await.error_code, 0);
    assert_eq!(client.produce("t", 0, plain(&[(Some(two.as_str()), None)])).await.error_code, 0);
    let shown = |id: i32, rest: &str| Some(format!(r#"{{"id":{id},{rest}}}"#));
    let expected = vec![
        (0, one.clone(), shown(1, r#""name":"a","n":1"#)),
        (1, two.clone(), shown(2, r#""name":"b","n":null"#)),
        (3, one.clone(), shown(1, r#""name":null,"n":2"#)),
        (5, two.clone(), None),
    ];
    assert_eq!(read(&fetch(&mut client, 0, 0).await), (expected.clone(), 6));
    let server = server.crash().await.restart().await;
    let mut client = server.client().await;
    assert_eq!(read(&fetch(&mut client, 0, 0).await), (expected, 6));
    assert_eq!(read(&fetch(&mut client, 0, 4).await).0, [(5, two.clone(), None)]);
    assert_eq!(read(&fetch(&mut client, 0, 4).await).1, 6);
    // What was there is still known: an upsert of key 1 is an update, at 6 and 7.
    client.produce("t", 0, plain(&first[..1])).await;
    assert_eq!(read(&fetch(&mut client, 0, 6).await).0[0].0, 7);
}

#[tokio::test]
async fn one_bad_record_refuses_its_batch_and_nothing_of_it_is_there() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 2, &[]).await;
    let bad = [
        (Some(r#"{"id":1}"#), Some("{}")),
        (None, Some(r#"{"id":2}"#)),
        (Some(r#"{"id":"x"}"#), None),
        (Some(r#"{"id":4}"#), Some(r#"{"id":5}"#)),
        (Some(r#"{"id":6}"#), Some(r#"{"nmae":"x"}"#)),
    ];
    let answer = client.produce("t", 0, plain(&bad)).await;
    assert_eq!(answer.error_code, ErrorCode::InvalidRecord.code());
    let told: Vec<_> = answer.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(told, [1, 2, 3, 4]);
    let reason = |at: usize| answer.record_errors[at].batch_index_error_message.clone().expect("a reason").to_string();
    assert!(reason(0).contains("without a key"), "{}", reason(0));
    assert!(reason(1).starts_with("key: column 'id'"), "{}", reason(1));
    assert!(reason(2).starts_with("column 'id'"), "{}", reason(2));
    assert!(reason(3).contains("'name'"), "{}", reason(3));
    assert!(by_key(&mut client, 2).await.is_empty());
}

#[tokio::test]
async fn a_producer_that_addresses_any_bucket_leaves_one_row_per_key_and_its_retries_are_known() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 4, &[]).await;
    let batch = |source: i32, sequence: i32, value: i32| {
        // Each source spells the keys its own way.
        let (open, close) = [("", ""), ("\"", "\""), ("", ".0"), (" ", " ")][source as usize];
        let pairs: Vec<_> = (0..8)
            .map(|id| (format!(r#"{{"id":{open}{id}{close}}}"#), format!(r#"{{"name":"p{source}","n":{value}}}"#)))
            .collect();
        let pairs: Vec<Pair<'_>> =
            pairs.iter().map(|(key, value)| (Some(key.as_str()), Some(value.as_str()))).collect();
        build(BatchBuilder::new(0).producer(90 + i64::from(source), 0, sequence), &pairs)
    };
    for round in 0..3 {
        for source in 0..4 {
            let sent = batch(source, round * 8, round);
            let first = client.produce("t", source, sent.clone()).await;
            assert_eq!(first.error_code, 0);
            let again = client.produce("t", source, sent).await;
            assert_eq!((again.error_code, again.base_offset), (0, first.base_offset));
        }
    }
    server = server.crash().await.restart().await;
    let mut client = server.client().await;
    let again = client.produce("t", 3, batch(3, 16, 2)).await;
    assert_eq!(again.error_code, 0, "a duplicate after a crash is one too");
    let gap = client.produce("t", 3, batch(3, 32, 9)).await;
    assert_eq!(gap.error_code, ErrorCode::OutOfOrderSequenceNumber.code());
    let all = by_key(&mut client, 4).await;
    assert_eq!(
        all.keys().cloned().collect::<Vec<_>>(),
        (0..8).map(|id| format!(r#"{{"id":{id}}}"#)).collect::<Vec<_>>()
    );
    for (key, values) in all {
        let expected: Vec<_> = (0..3)
            .flat_map(|round| (0..4).map(move |source| (round, source)))
            .map(|(round, source)| Some(format!(r#"{},"name":"p{source}","n":{round}}}"#, key.trim_end_matches('}'))))
            .collect();
        assert_eq!(values, expected, "{key}: each batch once, in order");
    }
}

#[tokio::test]
async fn absent_fields_are_left_alone_where_the_table_says_so() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 1, &[("kafka.partial-update", "true")]).await;
    let key = Some(r#"{"id":1}"#);
    let pairs = [(key, Some(r#"{"name":"a"}"#)), (key, Some(r#"{"n":7}"#)), (key, Some(r#"{"name":null}"#))];
    assert_eq!(client.produce("t", 0, plain(&pairs)).await.error_code, 0);
    let last = by_key(&mut client, 1).await.remove(r#"{"id":1}"#).and_then(|values| values.last().cloned().flatten());
    assert_eq!(last.as_deref(), Some(r#"{"id":1,"name":null,"n":7}"#));
}

#[tokio::test]
async fn what_keys_rule_out_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 1, &[("table.delete.behavior", "disable")]).await;
    let delete = client.produce("t", 0, plain(&[(Some(r#"{"id":1}"#), None)])).await;
    assert_eq!(delete.error_code, ErrorCode::PolicyViolation.code());
    let schema = ("table.schema", SCHEMA);
    for configs in [
        vec![schema, ("cleanup.policy", "delete")],
        vec![schema, ("kafka.key.format", "string")],
        vec![schema, ("kafka.key.format", "json"), ("table.bucket.function", "kafka")],
        vec![schema, ("table.merge-engine", "first_row")],
    ] {
        assert_eq!(client.try_create("u", 1, &configs).await, ErrorCode::InvalidConfig.code(), "{configs:?}");
    }
    assert_eq!(client.try_create("u", 1, &[schema, ("cleanup.policy", "compact")]).await, 0);
}

#[tokio::test]
async fn a_producer_without_idempotence_leaves_one_row_per_key_too() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, 4, &[]).await;
    for source in 0..4 {
        for round in 0..3 {
            let pairs: Vec<_> = (0..8)
                .map(|id| (format!(r#"{{"id":"{id}"}}"#), format!(r#"{{"n":{}}}"#, source * 10 + round)))
                .collect();
            let pairs: Vec<Pair<'_>> =
                pairs.iter().map(|(key, value)| (Some(key.as_str()), Some(value.as_str()))).collect();
            assert_eq!(client.produce("t", source, plain(&pairs)).await.error_code, 0);
        }
    }
    let mut sql = crate::flight::sql(&server).await;
    let found = crate::sql::query(&mut sql, "SELECT COUNT(*), COUNT(DISTINCT id), MIN(n) FROM t").await;
    assert_eq!(found, ["8|8|32"]);
}
