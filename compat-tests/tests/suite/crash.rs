//! kill -9 under load: every acks=all record is there, in order, once.
//!
//! `SLUICE_TEST_KILLS` sets the number of kills (default 8).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use sluice_compat_tests::{Outcome, Server};

const PARTITIONS: i32 = 3;
const TOPIC: &str = "kills";

/// Remembers what was acknowledged: (topic partition, value) in the order of acknowledgement.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<Vec<(i32, String)>>>, Arc<AtomicU64>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(message) => {
                let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
                if let Ok(mut all) = self.0.lock() {
                    all.push((message.partition(), value));
                }
            }
            Err((error, _)) => {
                eprintln!("delivery failed: {error}");
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Sends `<name>-<topic partition>-<counter>` until told to stop; the counter is per topic partition.
fn load(bootstrap: &str, name: &str, stop: &AtomicBool, acknowledged: &Acknowledged) -> Outcome<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("enable.idempotence", "true").set("acks", "all");
    config.set("linger.ms", "2").set("retry.backoff.ms", "20").set("retry.backoff.max.ms", "100");
    config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "100");
    config.set("message.timeout.ms", "300000").set("queue.buffering.max.messages", "2000");
    let producer: BaseProducer<Acknowledged> = config.create_with_context(acknowledged.clone())?;
    let mut counters = [0u64; PARTITIONS as usize];
    while !stop.load(Ordering::Relaxed) {
        for (partition, counter) in counters.iter_mut().enumerate() {
            let value = format!("{name}-{partition}-{counter}");
            let record = BaseRecord::<(), str>::to(TOPIC).partition(partition as i32).payload(&value);
            match producer.send(record) {
                Ok(()) => *counter += 1,
                Err(_) => {
                    producer.poll(Duration::from_millis(2));
                }
            }
        }
        producer.poll(Duration::from_millis(1));
    }
    producer.flush(Duration::from_secs(120))?;
    Ok(())
}

/// Everything in one topic partition, from its start to its end.
fn read_all(bootstrap: &str, partition: i32) -> Outcome<Vec<String>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "reader").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(TOPIC, partition, Offset::Beginning)?;
    consumer.assign(&list)?;
    let (_, end) = consumer.fetch_watermarks(TOPIC, partition, Duration::from_secs(30))?;
    let mut values = Vec::new();
    let mut next = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while next < end {
        assert!(Instant::now() < deadline, "reading topic partition {partition} stopped at {next} of {end}");
        if let Some(message) = consumer.poll(Duration::from_millis(200)) {
            let message = message?;
            assert_eq!(message.offset(), next, "a gap in topic partition {partition}");
            next += 1;
            values.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
        }
    }
    Ok(values)
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kill_9() -> Outcome<()> {
    let kills: u64 = std::env::var("SLUICE_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut server = Server::start(&[("SLUICE_KAFKA_DEFAULT_PARTITIONS", "3")])?;
    let bootstrap = server.bootstrap().to_owned();
    let stop = AtomicBool::new(false);
    let acknowledged = [Acknowledged::default(), Acknowledged::default()];
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| -> Outcome<()> {
        let mut producers = Vec::new();
        for (name, acknowledged) in ["a", "b"].into_iter().zip(&acknowledged) {
            producers.push(scope.spawn(|| load(&bootstrap, name, &stop, acknowledged)));
        }
        let mut outcome = Ok(());
        for kill in 0..kills {
            // Not always at the same distance from the start: recovery points come every second.
            std::thread::sleep(Duration::from_millis(150 + (kill * 379) % 1300));
            outcome = server.kill().and_then(|()| server.spawn()).map(|took| slowest = slowest.max(took));
            if outcome.is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        for producer in producers {
            producer.join().map_err(|_| "a producer panicked")??;
        }
        outcome
    })?;
    let mut records = 0;
    for partition in 0..PARTITIONS {
        let values = read_all(&bootstrap, partition)?;
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, value) in values.iter().enumerate() {
            assert!(places.insert(value, at).is_none(), "{value} is there twice");
        }
        for all in &acknowledged {
            let all = all.0.lock().map_err(|_| "poisoned")?;
            let mut last = None;
            for (_, value) in all.iter().filter(|(other, _)| *other == partition) {
                let at = places.get(value.as_str()).copied();
                assert!(at.is_some(), "{value} was acknowledged and is not there");
                assert!(at > last, "{value} is out of order");
                last = at;
                records += 1;
            }
        }
    }
    let failures: u64 = acknowledged.iter().map(|all| all.1.load(Ordering::Relaxed)).sum();
    println!("{kills} kills, {records} acknowledged records, {failures} failed, slowest start {slowest:?}");
    assert_eq!(failures, 0, "a producer gave up");
    assert!(records > 0);
    Ok(())
}

/// 2 GB over 100 topic partitions, killed while more is coming in: ready in under a second. Long form
/// only; the bound is on an otherwise idle machine.
#[test]
fn is_ready_in_a_second_with_2_gb_stored() -> Outcome<()> {
    if std::env::var_os("SLUICE_TEST_LONG").is_none() {
        return Ok(());
    }
    let mut server = Server::start(&[("SLUICE_KAFKA_DEFAULT_PARTITIONS", "100")])?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.bootstrap()).set("acks", "1").set("linger.ms", "5");
    config.set("queue.buffering.max.kbytes", "262144").set("queue.buffering.max.messages", "1000000");
    let producer: BaseProducer = config.create()?;
    let payload = vec![b'x'; 1000];
    let mut sent = 0u64;
    while sent < 2_000_000 {
        let record = BaseRecord::<(), [u8]>::to(TOPIC).partition((sent % 100) as i32).payload(&payload);
        match producer.send(record) {
            Ok(()) => sent += 1,
            Err(_) => {
                producer.poll(Duration::from_millis(5));
            }
        }
    }
    producer.flush(Duration::from_secs(120))?;
    for i in 0..100_000u64 {
        let record = BaseRecord::<(), [u8]>::to(TOPIC).partition((i % 100) as i32).payload(&payload);
        let _ = producer.send(record);
    }
    producer.poll(Duration::from_millis(50));
    server.kill()?;
    let took = server.spawn()?;
    println!("ready {took:?} after kill -9 with 2 GB in 100 topic partitions");
    assert!(took < Duration::from_secs(1), "ready only after {took:?}");
    Ok(())
}
