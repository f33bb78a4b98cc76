//! Tables with a primary key through several doors at once: across kill -9 their rows are the fold of their changelog,
//! and what one door has shown every other shows.
//!
//! `SLUICE_TEST_KILLS` sets the number of kills (default 5), `SLUICE_TEST_LONG` runs 10⁵ writes in each direction.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightClient, FlightDescriptor, Ticket};
use futures::{TryStreamExt, stream};
use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use sluice_compat_tests::{Outcome, Server};
use tonic::transport::{Channel, Endpoint};

const BUCKETS: i32 = 4;
const KEYS: u64 = 97;
const DDL: &str = "CREATE TABLE t (k BIGINT, who STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
    WITH ('bucket.num' = '4', 'kafka.key.format' = 'json')";
/// The same in two partitions, odd keys and even ones: each record's own bucket may be in either.
const PARTITIONED: &str =
    "CREATE TABLE t (k BIGINT, half BIGINT, who STRING, n BIGINT, PRIMARY KEY (half, k) NOT ENFORCED)
    PARTITIONED BY (half) WITH ('bucket.num' = '2', 'kafka.key.format' = 'json');
    ALTER TABLE t ADD PARTITION (half = 0); ALTER TABLE t ADD PARTITION (half = 1)";

/// Whose write it was, through which topic partition, and its number.
type Write = (String, i64);

/// What was acknowledged, in the order of acknowledgement, and how many writes failed.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<(Vec<Write>, u64)>>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = Box<Write>;

    fn delivery(&self, result: &DeliveryResult<'_>, write: Box<Write>) {
        let Ok(mut all) = self.0.lock() else { return };
        match result {
            Ok(_) => all.0.push(*write),
            Err((error, _)) => {
                eprintln!("delivery failed: {error}");
                all.1 += 1;
            }
        }
    }
}

/// The same key as each producer spells it.
fn spelled(style: usize, key: u64, partitioned: bool) -> String {
    let half = if partitioned { format!(r#""half":{},"#, key % 2) } else { String::new() };
    match style {
        0 => format!(r#"{{{half}"k":{key}}}"#),
        1 => format!(r#"{{ {half} "k" : "{key}" }}"#),
        _ => format!(r#"{{{half}"k":{key}.0}}"#),
    }
}

/// Upserts, or deletes, through every topic partition in turn until told to stop.
fn load(
    bootstrap: &str,
    (name, style, deletes): (&str, usize, bool),
    partitioned: bool,
    stop: &AtomicBool,
    acknowledged: &Acknowledged,
) -> Outcome<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("enable.idempotence", "true").set("acks", "all");
    config.set("linger.ms", "2").set("retry.backoff.ms", "20").set("retry.backoff.max.ms", "100");
    config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "100");
    config.set("message.timeout.ms", "300000").set("queue.buffering.max.messages", "500");
    let producer: BaseProducer<Acknowledged> = config.create_with_context(acknowledged.clone())?;
    let mut numbers = [0i64; BUCKETS as usize];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ name.len() as u64 ^ ((style as u64) << 7);
    while !stop.load(Ordering::Relaxed) {
        for (partition, number) in numbers.iter_mut().enumerate() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) % KEYS;
            let who = format!("{name}-{partition}");
            let value = format!(r#"{{"who":"{who}","n":{number}}}"#);
            let spelled = spelled(style, key, partitioned);
            let record = BaseRecord::with_opaque_to("t", Box::new((who, *number))).partition(partition as i32);
            let record = record.key(&spelled);
            let sent = if deletes { producer.send(record) } else { producer.send(record.payload(&value)) };
            match sent {
                Ok(()) => *number += 1,
                Err(_) => {
                    producer.poll(Duration::from_millis(2));
                }
            }
        }
        producer.poll(Duration::from_millis(if deletes { 5 } else { 1 }));
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(())
}

async fn connect(server: &str) -> Outcome<Channel> {
    Ok(Endpoint::from_shared(format!("http://{server}"))?.connect().await?)
}

fn rows(keys: Vec<i64>, who: &str, number: i64, partitioned: bool) -> Outcome<RecordBatch> {
    let count = keys.len();
    let halves: Vec<i64> = keys.iter().map(|key| key % 2).collect();
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("k", Arc::new(Int64Array::from(keys))),
        ("who", Arc::new(StringArray::from(vec![who; count]))),
        ("n", Arc::new(Int64Array::from(vec![number; count]))),
    ];
    if partitioned {
        columns.push(("half", Arc::new(Int64Array::from(halves))));
    }
    Ok(RecordBatch::try_from_iter(columns)?)
}

async fn put(client: &mut FlightClient, batch: RecordBatch) -> Outcome<serde_json::Value> {
    let descriptor = FlightDescriptor::new_path(vec!["default".to_owned(), "t".to_owned()]);
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    let sent = encoder.build(stream::iter([Ok(batch)]));
    let told: Vec<_> = client.do_put(sent).await?.try_collect().await?;
    Ok(serde_json::from_slice(&told.first().ok_or("no answer")?.app_metadata)?)
}

/// Upserts over Flight until told to stop; a write whose answer is lost is not sent again.
async fn load_by_flight(server: String, partitioned: bool, stop: &AtomicBool, acknowledged: &Acknowledged) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(channel) = connect(&server).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut client = FlightClient::new(channel);
        while !stop.load(Ordering::Relaxed) {
            let key = (number * 31) % KEYS as i64;
            let Ok(batch) = rows(vec![key], "flight", number, partitioned) else { return };
            number += 1;
            if put(&mut client, batch).await.is_err() {
                break;
            }
            if let Ok(mut all) = acknowledged.0.lock() {
                all.0.push(("flight".to_owned(), number - 1));
            }
        }
    }
}

async fn select(sql: &mut FlightSqlServiceClient<Channel>, text: &str) -> Outcome<Vec<RecordBatch>> {
    let info = sql.execute(text.to_owned(), None).await?;
    let mut found = Vec::new();
    for endpoint in info.endpoint {
        let stream = sql.do_get(endpoint.ticket.ok_or("no ticket")?).await?;
        found.extend(stream.try_collect::<Vec<_>>().await?);
    }
    Ok(found)
}

fn longs(batch: &RecordBatch, column: &str) -> Vec<i64> {
    batch.column_by_name(column).map_or_else(Vec::new, |array| array.as_primitive::<Int64Type>().values().to_vec())
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let array = batch.column_by_name(column).map(|array| array.as_string::<i32>().clone());
    array.map_or_else(Vec::new, |array| array.iter().map(|text| text.unwrap_or_default().to_owned()).collect())
}

/// A row of the changelog: offset, key, change, write.
type Change = (i64, i64, String, Write);

async fn changelog(sql: &mut FlightSqlServiceClient<Channel>) -> Outcome<Vec<Change>> {
    let text = "SELECT _change_type, _log_offset, k, who, n FROM t$changelog";
    let mut changes = Vec::new();
    for batch in select(sql, text).await? {
        let (kinds, offsets, keys) = (texts(&batch, "_change_type"), longs(&batch, "_log_offset"), longs(&batch, "k"));
        let writes = texts(&batch, "who").into_iter().zip(longs(&batch, "n"));
        let rest = offsets.into_iter().zip(keys).zip(kinds.into_iter().zip(writes));
        changes.extend(rest.map(|((offset, key), (kind, write))| (offset, key, kind, write)));
    }
    // A key is in one bucket, so its changes are in the order of their offsets.
    changes.sort();
    Ok(changes)
}

/// The rows that the changes lead to; each change must fit the one before it.
fn fold(changes: &[Change]) -> Outcome<BTreeMap<i64, Write>> {
    let mut state: BTreeMap<i64, Write> = BTreeMap::new();
    for change @ (_, key, kind, write) in changes {
        let before = state.get(key);
        let fits = match kind.as_str() {
            "insert" => before.is_none(),
            "update_before" | "delete" => before == Some(write),
            "update_after" => before.is_some(),
            other => return Err(format!("a change called {other}").into()),
        };
        if !fits {
            return Err(format!("{change:?} after {before:?}").into());
        }
        match kind.as_str() {
            "delete" => state.remove(key),
            "update_before" => None,
            _ => state.insert(*key, write.clone()),
        };
    }
    Ok(state)
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

#[test]
fn rows_are_the_fold_of_their_changelog_after_kill_9_under_mixed_load() -> Outcome<()> {
    kill_under_load(DDL, false)
}

#[test]
fn so_are_those_of_a_partitioned_table() -> Outcome<()> {
    kill_under_load(PARTITIONED, true)
}

fn kill_under_load(ddl: &str, partitioned: bool) -> Outcome<()> {
    let kills: u64 = std::env::var("SLUICE_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(5);
    let mut server = Server::start(&[])?;
    server.sql(ddl)?;
    let (bootstrap, flight) = (server.bootstrap().to_owned(), server.flight().to_owned());
    let stop = AtomicBool::new(false);
    // Two producers and an upserter, each with its own spelling of the keys, and a deleter.
    let workers = [("a", 0, false), ("b", 1, false), ("upserter", 2, false), ("deleter", 0, true)];
    let acknowledged: Vec<Acknowledged> = workers.iter().map(|_| Acknowledged::default()).collect();
    let by_flight = Acknowledged::default();
    std::thread::scope(|scope| -> Outcome<()> {
        let mut threads = Vec::new();
        for (worker, acknowledged) in workers.iter().zip(&acknowledged) {
            threads.push(scope.spawn(|| load(&bootstrap, *worker, partitioned, &stop, acknowledged)));
        }
        threads.push(scope.spawn(|| {
            runtime()?.block_on(load_by_flight(flight.clone(), partitioned, &stop, &by_flight));
            Ok(())
        }));
        let mut outcome = Ok(());
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(200 + (kill * 379) % 1300));
            outcome = server.kill().and_then(|()| server.spawn()).map(drop);
            if outcome.is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a worker panicked")??;
        }
        outcome
    })?;
    let (changes, found) = runtime()?.block_on(async {
        let mut sql = FlightSqlServiceClient::new(connect(&flight).await?);
        let changes = changelog(&mut sql).await?;
        let mut found = BTreeMap::new();
        for batch in select(&mut sql, "SELECT k, who, n FROM t").await? {
            let writes = texts(&batch, "who").into_iter().zip(longs(&batch, "n"));
            found.extend(longs(&batch, "k").into_iter().zip(writes));
        }
        Outcome::Ok((changes, found))
    })?;
    assert_eq!(fold(&changes)?, found, "the rows are not the fold of the changelog");
    let mut times: HashMap<&Write, Vec<(i64, i64)>> = HashMap::new();
    let (mut last, mut out_of_order) = (HashMap::new(), Vec::new());
    for (offset, key, kind, write) in &changes {
        if kind == "insert" || kind == "update_after" {
            times.entry(write).or_default().push((*key, *offset));
            // Per key, the writes of a producer through a topic partition are in its order.
            if last.insert((key, &write.0), write.1).is_some_and(|before| before >= write.1) {
                out_of_order.push((key, write));
            }
        }
    }
    assert!(out_of_order.is_empty(), "out of order: {out_of_order:?}");
    let twice: Vec<_> = times.iter().filter(|(_, places)| places.len() > 1).collect();
    assert!(twice.is_empty(), "applied twice: {twice:?}");
    let (mut writes, mut failures) = (0, 0);
    for (worker, all) in
        workers.iter().zip(&acknowledged).map(|(worker, all)| (worker.2, all)).chain([(false, &by_flight)])
    {
        let all = all.0.lock().map_err(|_| "poisoned")?;
        failures += all.1;
        writes += all.0.len();
        assert!(!all.0.is_empty(), "one did nothing");
        let missing: Vec<_> = all.0.iter().filter(|write| !worker && !times.contains_key(write)).collect();
        assert!(missing.is_empty(), "acknowledged and not there: {missing:?}");
    }
    println!("{kills} kills, {writes} acknowledged writes, {} changes, {} rows", changes.len(), found.len());
    assert_eq!(failures, 0, "a producer gave up");
    Ok(())
}

/// How many writes each direction sees.
fn rounds() -> i64 {
    if std::env::var_os("SLUICE_TEST_LONG").is_some() { 100_000 } else { 1_000 }
}

fn consumer(bootstrap: &str) -> Outcome<BaseConsumer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "reader").set("enable.auto.commit", "false");
    config.set("fetch.wait.max.ms", "20");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for bucket in 0..BUCKETS {
        list.add_partition_offset("t", bucket, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    Ok(consumer)
}

fn value_of(message: &impl Message) -> Outcome<(i64, i64)> {
    let value: serde_json::Value = serde_json::from_slice(message.payload().ok_or("a tombstone")?)?;
    Ok((value["k"].as_i64().ok_or("no key")?, value["n"].as_i64().ok_or("no number")?))
}

/// A consumed change is in every lookup made after it.
#[test]
fn a_lookup_never_lags_what_was_consumed() -> Outcome<()> {
    let server = Server::start(&[])?;
    server.sql(DDL)?;
    let (bootstrap, count) = (server.bootstrap().to_owned(), rounds());
    std::thread::scope(|scope| -> Outcome<()> {
        let producing = scope.spawn(|| -> Outcome<()> {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", &bootstrap).set("enable.idempotence", "true").set("linger.ms", "1");
            config.set("queue.buffering.max.messages", "200");
            let producer: BaseProducer = config.create()?;
            let mut number = 0;
            while number < count {
                let key = number % KEYS as i64;
                let (key, value) = (format!(r#"{{"k":{key}}}"#), format!(r#"{{"who":"w","n":{number}}}"#));
                match producer.send(BaseRecord::to("t").key(&key).payload(&value)) {
                    Ok(()) => number += 1,
                    Err(_) => {
                        producer.poll(Duration::from_millis(1));
                    }
                }
            }
            Ok(producer.flush(Duration::from_secs(120))?)
        });
        let consumer = consumer(&bootstrap)?;
        let seen = runtime()?.block_on(async {
            let mut client = FlightClient::new(connect(server.flight()).await?);
            let mut seen = 0;
            while seen < count {
                let Some(message) = consumer.poll(Duration::from_secs(60)) else { return Err("no more came".into()) };
                let (key, number) = value_of(&message?)?;
                let ticket = format!(r#"{{"lookup":{{"table":"t","keys":[[{key}]]}}}}"#);
                let found: Vec<_> = client.do_get(Ticket::new(ticket)).await?.try_collect().await?;
                let there = found.first().map(|batch| longs(batch, "n")).unwrap_or_default();
                assert!(there.first().is_some_and(|there| *there >= number), "consumed {number}, looked up {there:?}");
                seen += 1;
            }
            Outcome::Ok(seen)
        })?;
        producing.join().map_err(|_| "the producer panicked")??;
        println!("{seen} consumed changes, each looked up");
        Ok(())
    })
}

/// What Flight has acknowledged is in the next fetch.
#[test]
fn a_fetch_has_what_flight_has_written() -> Outcome<()> {
    let server = Server::start(&[])?;
    server.sql(DDL)?;
    let consumer = consumer(server.bootstrap())?;
    runtime()?.block_on(async {
        let mut client = FlightClient::new(connect(server.flight()).await?);
        let batch = 10;
        for number in 0..rounds() / batch {
            let keys: Vec<i64> = (0..batch).map(|at| (number * batch + at) % KEYS as i64).collect();
            let told = put(&mut client, rows(keys, "flight", number, false)?).await?;
            let offsets = told["offsets"].as_object().ok_or("no offsets")?;
            for (bucket, end) in offsets {
                let (_, high) = consumer.fetch_watermarks("t", bucket.parse()?, Duration::from_secs(30))?;
                assert!(high >= end.as_i64().ok_or("no offset")?, "bucket {bucket} ends at {high}, told {end}");
            }
        }
        Outcome::Ok(())
    })?;
    // And all of it is read to the end.
    let (mut read, wanted) = (0, rounds());
    while read < wanted {
        let Some(message) = consumer.poll(Duration::from_secs(60)) else { return Err("no more came".into()) };
        value_of(&message?)?;
        read += 1;
    }
    println!("{read} rows written by Flight and fetched");
    Ok(())
}

/// A topic partition that takes batches of which no row is its own shows nothing, and that is no error: librdkafka took
/// some ten responses of empty batches for messages too large to fetch.
#[test]
fn a_topic_partition_that_shows_nothing_is_consumed_without_an_error() -> Outcome<()> {
    let server = Server::start(&[])?;
    server.sql(DDL)?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.bootstrap()).set("enable.idempotence", "true").set("linger.ms", "0");
    let producer: BaseProducer = config.create()?;
    let consumer = consumer(server.bootstrap())?;
    for number in 0..25 {
        for partition in 0..BUCKETS {
            let value = format!(r#"{{"who":"w","n":{number}}}"#);
            let record = BaseRecord::to("t").partition(partition).key(r#"{"k":5}"#).payload(&value);
            producer.send(record).map_err(|(error, _)| error)?;
        }
        producer.flush(Duration::from_secs(60))?;
        for _ in 0..BUCKETS {
            let message = consumer.poll(Duration::from_secs(60)).ok_or("no more came")?;
            assert_eq!(value_of(&message?)?, (5, number));
        }
    }
    Ok(())
}
