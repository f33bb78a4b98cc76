//! rust-rdkafka: create, produce at each acks level and codec, consume in groups, resume after restart.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::Message;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use sluice_compat_tests::{Outcome, Server};

const PATIENCE: Duration = Duration::from_secs(60);

fn config(server: &Server) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.bootstrap());
    config
}

fn create(server: &Server, topic: &str, partitions: i32) -> Outcome<()> {
    let admin: AdminClient<DefaultClientContext> = config(server).create()?;
    let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let results = runtime.block_on(admin.create_topics(&[wanted], &AdminOptions::new()))?;
    for result in results {
        result.map_err(|(topic, code)| format!("creating {topic}: {code}"))?;
    }
    Ok(())
}

fn produce(
    server: &Server,
    topic: &str,
    settings: &[(&str, &str)],
    values: impl Iterator<Item = String>,
) -> Outcome<()> {
    let mut config = config(server);
    for (key, value) in settings {
        config.set(*key, *value);
    }
    let producer: BaseProducer = config.create()?;
    for value in values {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "h", value: Some("1") })
            .insert(Header { key: "h", value: Some("2") })
            .insert(Header { key: "n", value: None::<&str> });
        let mut record = BaseRecord::to(topic).key("k").payload(value.as_str()).headers(headers);
        while let Err((error, back)) = producer.send(record) {
            if error.rdkafka_error_code() != Some(rdkafka::types::RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            record = back;
            producer.poll(Duration::from_millis(10));
        }
    }
    producer.flush(PATIENCE)?;
    Ok(())
}

fn group(server: &Server, id: &str, topic: &str) -> Outcome<BaseConsumer> {
    let mut config = config(server);
    config.set("group.id", id).set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.set("heartbeat.interval.ms", "500").create()?;
    consumer.subscribe(&[topic])?;
    Ok(consumer)
}

#[test]
fn produces_at_each_acks_level_and_codec_and_reads_it_back() -> Outcome<()> {
    let server = Server::start(&[("SLUICE_GROUPS_INITIAL_REBALANCE_DELAY_MS", "0")])?;
    create(&server, "t", 1)?;
    let mut wanted = BTreeSet::new();
    for acks in ["0", "1", "all"] {
        for codec in ["none", "gzip", "snappy", "lz4"] {
            let value = move |i: u32| format!("{acks}-{codec}-{i}");
            produce(&server, "t", &[("acks", acks), ("compression.codec", codec)], (0..50).map(value))?;
            wanted.extend((0..50).map(value));
        }
    }
    let consumer = group(&server, "g", "t")?;
    let mut seen = BTreeSet::new();
    let deadline = Instant::now() + PATIENCE;
    while seen.len() < wanted.len() && Instant::now() < deadline {
        let Some(message) = consumer.poll(Duration::from_millis(200)) else { continue };
        let message = message?;
        assert_eq!(message.key(), Some(b"k".as_slice()));
        let headers = message.headers().ok_or("no headers")?;
        let tags: Vec<_> = headers.iter().map(|header| (header.key, header.value)).collect();
        assert_eq!(tags, [("h", Some(b"1".as_slice())), ("h", Some(b"2".as_slice())), ("n", None)]);
        assert!(seen.insert(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()), "twice");
    }
    assert_eq!(seen, wanted);
    Ok(())
}

#[test]
fn committed_offsets_survive_kill_9() -> Outcome<()> {
    let mut server = Server::start(&[("SLUICE_GROUPS_INITIAL_REBALANCE_DELAY_MS", "0")])?;
    create(&server, "t", 1)?;
    let values = |from: u32| (from..from + 100).map(|i| i.to_string());
    produce(&server, "t", &[("enable.idempotence", "true")], values(0))?;
    let read = |server: &Server, count: usize| -> Outcome<Vec<String>> {
        let consumer = group(server, "g", "t")?;
        let mut got = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while got.len() < count && Instant::now() < deadline {
            if let Some(message) = consumer.poll(Duration::from_millis(200)) {
                got.push(String::from_utf8_lossy(message?.payload().unwrap_or_default()).into_owned());
            }
        }
        consumer.commit_consumer_state(CommitMode::Sync)?;
        Ok(got)
    };
    assert_eq!(read(&server, 100)?, values(0).collect::<Vec<_>>());
    server.kill()?;
    server.spawn()?;
    produce(&server, "t", &[("enable.idempotence", "true")], values(100))?;
    assert_eq!(read(&server, 100)?, values(100).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn three_members_share_and_one_leaves() -> Outcome<()> {
    let server = Server::start(&[("SLUICE_GROUPS_INITIAL_REBALANCE_DELAY_MS", "0")])?;
    create(&server, "t", 6)?;
    let mut members = vec![group(&server, "g", "t")?, group(&server, "g", "t")?, group(&server, "g", "t")?];
    let settle = |members: &[BaseConsumer], each: usize| -> Outcome<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut all = BTreeSet::new();
            let mut even = true;
            for member in members {
                let _ = member.poll(Duration::from_millis(50));
                let assigned = member.assignment()?;
                even &= assigned.count() == each;
                all.extend(assigned.elements().iter().map(|element| element.partition()));
            }
            if even && all.len() == 6 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("no even assignment: {all:?}").into());
            }
        }
    };
    settle(&members, 2)?;
    drop(members.pop());
    settle(&members, 3)
}
