//! IncrementalAlterConfigs: what it changes is shown, kept and obeyed.

use std::sync::Arc;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use sluice_engine::ManualClock;
use sluice_protocol::records::{BatchBuilder, Record};

use crate::fixture::{Client, Server, sized_batch, text};

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

async fn alter_all(client: &mut Client, changes: &[(&str, i8, Option<&str>)], validate_only: bool) -> i16 {
    let configs = changes.iter().map(|(name, operation, value)| {
        AlterableConfig::default().with_name(text(name)).with_config_operation(*operation).with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(configs.collect());
    let request =
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource]).with_validate_only(validate_only);
    client.call(1, request).await.responses[0].error_code
}

async fn alter(client: &mut Client, name: &str, operation: i8, value: Option<&str>) -> i16 {
    alter_all(client, &[(name, operation, value)], false).await
}

/// Value and source of one option.
async fn shown(client: &mut Client, name: &str) -> (String, i8) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configuration_keys(Some(vec![text(name)]));
    let answer = client.call(4, DescribeConfigsRequest::default().with_resources(vec![resource])).await;
    let config = &answer.results[0].configs[0];
    (config.value.clone().expect("a value").to_string(), config.config_source)
}

/// P61, P63.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_delete_append_and_subtract_merge_into_what_is_there() {
    const LIST: &str = "leader.replication.throttled.replicas";
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(shown(&mut client, "retention.ms").await, ("604800000".to_owned(), 5));
    assert_eq!(alter(&mut client, "retention.ms", SET, Some("1000")).await, 0);
    assert_eq!(alter(&mut client, "segment.bytes", SET, Some("2097152")).await, 0);
    assert_eq!(shown(&mut client, "retention.ms").await, ("1000".to_owned(), 1));
    assert_eq!(alter(&mut client, LIST, APPEND, Some("0:1,1:1")).await, 0);
    assert_eq!(alter(&mut client, LIST, APPEND, Some("1:1,2:1")).await, 0);
    assert_eq!(shown(&mut client, LIST).await.0, "0:1,1:1,2:1");
    assert_eq!(alter(&mut client, LIST, SUBTRACT, Some("1:1,9:9")).await, 0);
    assert_eq!(shown(&mut client, LIST).await.0, "0:1,2:1");
    assert_eq!(alter(&mut client, "retention.ms", DELETE, None).await, 0);
    assert_eq!(shown(&mut client, "retention.ms").await, ("604800000".to_owned(), 5));
    // Refused, and nothing of a refused set takes effect.
    assert_eq!(alter(&mut client, "retention.ms", APPEND, Some("1")).await, 40);
    assert_eq!(alter(&mut client, "retention.ms", SET, Some("soon")).await, 40);
    assert_eq!(alter(&mut client, "retention.ms", SET, None).await, 42);
    assert_eq!(alter(&mut client, "no.such", SET, Some("1")).await, 40);
    assert_eq!(alter(&mut client, "cleanup.policy", APPEND, Some("compact")).await, 40);
    let half = [("retention.ms", SET, Some("7")), ("segment.bytes", SET, Some("x"))];
    assert_eq!(alter_all(&mut client, &half, false).await, 40);
    assert_eq!(alter_all(&mut client, &[("retention.ms", SET, Some("7"))], true).await, 0);
    assert_eq!(shown(&mut client, "retention.ms").await, ("604800000".to_owned(), 5));
    drop(client);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(shown(&mut client, "segment.bytes").await, ("2097152".to_owned(), 1));
    assert_eq!(shown(&mut client, LIST).await.0, "0:1,2:1");
}

/// P71.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_retention_takes_effect_on_what_is_there() {
    let clock = Arc::new(ManualClock::new(10_000_000));
    let server = Server::start_at(&clock).await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let at = |time| BatchBuilder::new(time).record(&Record::new(None, Some(b"v"))).build();
    assert_eq!(client.produce("t", 0, at(9_000_000)).await.base_offset, 0);
    server.gateway.engine().apply_retention();
    assert_eq!(client.fetch("t", 0, 0).await.log_start_offset, 0);
    assert_eq!(alter(&mut client, "retention.ms", SET, Some("60000")).await, 0);
    server.gateway.engine().apply_retention();
    assert_eq!(client.fetch("t", 0, 0).await.error_code, 1, "OFFSET_OUT_OF_RANGE, not silence");
    let part = client.fetch("t", 0, 1).await;
    assert_eq!((part.log_start_offset, part.high_watermark), (1, 1));
    // And longer again: what comes now stays.
    assert_eq!(alter(&mut client, "retention.ms", SET, Some("-1")).await, 0);
    assert_eq!(client.produce("t", 0, at(1)).await.base_offset, 1);
    server.gateway.engine().apply_retention();
    assert_eq!(client.fetch("t", 0, 1).await.error_code, 0);
}

/// P23.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_message_bytes_takes_effect_at_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    assert_eq!(client.produce("t", 0, sized_batch(1, 5_000)).await.error_code, 0);
    assert_eq!(alter(&mut client, "max.message.bytes", SET, Some("1000")).await, 0);
    assert_eq!(client.produce("t", 0, sized_batch(1, 5_000)).await.error_code, 10, "MESSAGE_TOO_LARGE");
    assert_eq!(client.produce("t", 0, sized_batch(1, 100)).await.error_code, 0);
    assert_eq!(alter(&mut client, "max.message.bytes", DELETE, None).await, 0);
    assert_eq!(client.produce("t", 0, sized_batch(1, 5_000)).await.error_code, 0);
}
