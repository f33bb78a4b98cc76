//! DescribeConfigs (32) v1-4, AlterConfigs (33) v0-2 and IncrementalAlterConfigs (44) v0-1.
//!
//! - Topics: every option of [`RAW_OPTIONS`] with its true value, source, synonyms and type (P61).
//! - The broker, by id or "": the server's settings under Kafka's names where it has one, read-only.
//! - Incremental: SET, DELETE, and APPEND and SUBTRACT for lists; all of a topic's changes or none.
//! - AlterConfigs replaces: what is not named goes back to its default (P63).

use std::collections::{BTreeMap, HashSet};

use kafka_protocol::messages::alter_configs_request::AlterableConfig as ReplacedConfig;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as ReplacedResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, ApiKey, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use sluice_engine::catalog::check_options;
use sluice_engine::catalog::options::{OptionType, RAW_OPTIONS, find};
use sluice_engine::row::Schema;
use sluice_engine::{AcksAll, Visibility};
use sluice_protocol::ErrorCode;

use crate::kafka::api::{Api, Context, Started};
use crate::kafka::error::config_code_of;
use crate::kafka::{Broker, names, text};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Where a value comes from, in Kafka's numbers.
const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

type Fault = (ErrorCode, String);

/// One shown setting.
pub(super) struct Shown {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) source: i8,
    kind: i8,
    /// (name, value, source), most specific first.
    synonyms: Vec<(&'static str, String, i8)>,
}

fn type_number(kind: OptionType) -> i8 {
    match kind {
        OptionType::Bool => 1,
        OptionType::Word(_) => 2,
        OptionType::Int(..) => 3,
        OptionType::Long(_) => 5,
        OptionType::Ratio => 6,
        OptionType::List(_) => 7,
    }
}

/// The server's own value of an option, where its config sets one.
fn server_value(broker: &Broker, name: &str) -> Option<String> {
    let options = broker.backend.default_log_options();
    match name {
        "visibility" => Some(if options.visibility == Visibility::Durable { "durable" } else { "appended" }.to_owned()),
        "durability.acks-all" => {
            Some(if options.acks_all == AcksAll::Fsync { "fsync" } else { "page-cache" }.to_owned())
        }
        _ => None,
    }
}

/// A typed table's columns as Kafka's clients give and see them; fixed at creation.
pub(super) const SCHEMA: &str = "table.schema";

fn shown_schema(schema: &Schema) -> Shown {
    let value = schema.declaration();
    let synonyms = vec![(SCHEMA, value.clone(), SOURCE_TOPIC)];
    Shown { name: SCHEMA, value, source: SOURCE_TOPIC, kind: type_number(OptionType::Word(&[])), synonyms }
}

/// All options of a topic that sets `options`, and the schema that it has.
pub(super) fn topic_configs(
    broker: &Broker,
    options: &BTreeMap<String, String>,
    schema: Option<&Schema>,
) -> Vec<Shown> {
    let shown = RAW_OPTIONS.iter().map(|option| {
        let server = server_value(broker, option.name).filter(|value| value != option.default);
        let mut synonyms = Vec::new();
        if let Some(value) = options.get(option.name) {
            synonyms.push((option.name, value.clone(), SOURCE_TOPIC));
        }
        if let Some(value) = server {
            synonyms.push((option.server_name, value, SOURCE_STATIC_BROKER));
        }
        if !option.server_name.is_empty() {
            synonyms.push((option.server_name, option.default.to_owned(), SOURCE_DEFAULT));
        }
        let first = synonyms.first().map(|(_, value, source)| (value.clone(), *source));
        let (value, source) = first.unwrap_or_else(|| (option.default.to_owned(), SOURCE_DEFAULT));
        Shown { name: option.name, value, source, kind: type_number(option.kind), synonyms }
    });
    shown.chain(schema.map(shown_schema)).collect()
}

fn broker_configs(broker: &Broker) -> Vec<Shown> {
    let config = &broker.config;
    let fixed: [(&'static str, String, i8); 10] = [
        ("auto.create.topics.enable", config.kafka_auto_create_topics.to_string(), 1),
        ("broker.id", config.kafka_node_id.to_string(), 3),
        ("default.replication.factor", "1".to_owned(), 3),
        ("group.initial.rebalance.delay.ms", config.groups_initial_rebalance_delay_ms.to_string(), 3),
        ("group.max.session.timeout.ms", config.groups_session_timeout_max_ms.to_string(), 3),
        ("group.min.session.timeout.ms", config.groups_session_timeout_min_ms.to_string(), 3),
        ("node.id", config.kafka_node_id.to_string(), 3),
        ("num.partitions", config.kafka_default_partitions.to_string(), 3),
        ("offsets.retention.minutes", config.groups_offsets_retention_minutes.to_string(), 3),
        ("socket.request.max.bytes", config.kafka_frame_bytes_max.to_string(), 3),
    ];
    let fixed = fixed.into_iter().map(|(name, value, kind)| {
        let synonyms = vec![(name, value.clone(), SOURCE_STATIC_BROKER)];
        Shown { name, value, source: SOURCE_STATIC_BROKER, kind, synonyms }
    });
    let of_topics = RAW_OPTIONS.iter().filter(|option| !option.server_name.is_empty()).map(|option| {
        let value = server_value(broker, option.name).unwrap_or_else(|| option.default.to_owned());
        let source = if value == option.default { SOURCE_DEFAULT } else { SOURCE_STATIC_BROKER };
        let synonyms = vec![(option.server_name, value.clone(), source)];
        Shown { name: option.server_name, value, source, kind: type_number(option.kind), synonyms }
    });
    let mut all: Vec<Shown> = fixed.chain(of_topics).collect();
    all.sort_by_key(|shown| shown.name);
    all
}

fn check_broker(broker: &Broker, name: &str, or_empty: &str) -> Result<(), Fault> {
    let me = broker.config.kafka_node_id;
    match name.parse::<i32>() {
        _ if name.is_empty() && !or_empty.is_empty() => Ok(()),
        Ok(id) if id == me => Ok(()),
        Ok(id) => Err((
            ErrorCode::InvalidRequest,
            format!("Unexpected broker id, expected {me}{or_empty}, but received {id}"),
        )),
        Err(_) => Err((ErrorCode::InvalidRequest, format!("Broker id must be an integer, but it is: {name}"))),
    }
}

fn describe(cx: &Context, kind: i8, name: &str) -> Result<(Vec<Shown>, bool), Fault> {
    match kind {
        TOPIC => {
            if let Some(fault) = names::fault(name) {
                return Err((ErrorCode::InvalidTopicException, fault));
            }
            let info = cx.broker.topic(name).ok_or((ErrorCode::UnknownTopicOrPartition, String::new()))?;
            Ok((topic_configs(&cx.broker, &info.options, info.typed.as_ref().map(|table| &table.schema)), false))
        }
        BROKER => {
            check_broker(&cx.broker, name, " or empty string")?;
            // "" asks for what was changed at run time for all brokers: nothing can be.
            Ok((if name.is_empty() { Vec::new() } else { broker_configs(&cx.broker) }, true))
        }
        kind => Err((ErrorCode::InvalidRequest, format!("Unsupported resource type: {kind}"))),
    }
}

pub(crate) struct DescribeConfigs;

/// Resources that one request may describe: each takes some twenty bytes to ask for and ten thousand to answer.
const RESOURCES_MAX: usize = 10_000;

impl Api for DescribeConfigs {
    const KEY: ApiKey = ApiKey::DescribeConfigs;
    type Request = DescribeConfigsRequest;
    type Response = DescribeConfigsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let with_synonyms = request.include_synonyms;
        let results = request.resources.into_iter().enumerate().map(|(at, resource)| {
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            if at >= RESOURCES_MAX {
                let message = format!("no more than {RESOURCES_MAX} resources are described in one request");
                return result
                    .with_error_code(ErrorCode::PolicyViolation.code())
                    .with_error_message(Some(text(message)));
            }
            let (shown, read_only) = match describe(cx, resource.resource_type, &resource.resource_name) {
                Ok(shown) => shown,
                Err((code, message)) => {
                    return result.with_error_code(code.code()).with_error_message(Some(text(message)));
                }
            };
            let keys = resource.configuration_keys.filter(|keys| !keys.is_empty());
            let wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key.as_str() == name));
            let configs = shown.into_iter().filter(|one| wanted(one.name)).map(|one| {
                let synonyms = one.synonyms.into_iter().filter(|_| with_synonyms).map(|(name, value, source)| {
                    DescribeConfigsSynonym::default()
                        .with_name(text(name))
                        .with_value(Some(text(value)))
                        .with_source(source)
                });
                DescribeConfigsResourceResult::default()
                    .with_name(text(one.name))
                    .with_value(Some(text(one.value)))
                    .with_read_only(read_only)
                    .with_config_source(one.source)
                    .with_config_type(one.kind)
                    .with_documentation(None)
                    .with_synonyms(synonyms.collect())
            });
            result.with_error_message(Some(text(""))).with_configs(configs.collect())
        });
        Started::Ready(DescribeConfigsResponse::default().with_results(results.collect()))
    }
}

/// What a request wants of one resource.
struct Change<'a, C> {
    kind: i8,
    name: &'a str,
    keys: Vec<&'a str>,
    apply: C,
}

/// Changes each resource, in order; one that is named more than once is refused each time.
async fn alter_all<C>(cx: &Context, changes: Vec<Change<'_, C>>, validate_only: bool) -> Vec<Result<(), Fault>>
where
    C: FnOnce(&mut BTreeMap<String, String>) -> Result<(), Fault> + Send,
{
    let mut seen = HashSet::new();
    let twice: HashSet<_> =
        changes.iter().map(|change| (change.kind, change.name)).filter(|resource| !seen.insert(*resource)).collect();
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        outcomes.push(if twice.contains(&(change.kind, change.name)) {
            Err((ErrorCode::InvalidRequest, "Each resource must appear at most once.".to_owned()))
        } else {
            alter(cx, change.kind, change.name, &change.keys, validate_only, change.apply).await
        });
    }
    outcomes
}

pub(crate) struct AlterConfigs;

impl Api for AlterConfigs {
    const KEY: ApiKey = ApiKey::AlterConfigs;
    type Request = AlterConfigsRequest;
    type Response = AlterConfigsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let changes = request.resources.iter().map(|resource| Change {
            kind: resource.resource_type,
            name: resource.resource_name.as_str(),
            keys: resource.configs.iter().map(|config| config.name.as_str()).collect(),
            apply: |options: &mut BTreeMap<String, String>| replace(options, &resource.configs),
        });
        let outcomes = alter_all(cx, changes.collect(), request.validate_only).await;
        let responses = request.resources.iter().zip(outcomes).map(|(resource, outcome)| {
            let response = ReplacedResource::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match outcome {
                Ok(()) => response,
                Err((code, message)) => response.with_error_code(code.code()).with_error_message(Some(text(message))),
            }
        });
        Started::Ready(AlterConfigsResponse::default().with_responses(responses.collect()))
    }
}

/// The options are exactly `configs`.
fn replace(options: &mut BTreeMap<String, String>, configs: &[ReplacedConfig]) -> Result<(), Fault> {
    // What has no name in Kafka stays: a client that knows only Kafka's configs cannot mean to drop it.
    options.retain(|name, _| find(name).is_none());
    for config in configs {
        let name = config.name.to_string();
        let Some(value) = &config.value else {
            return Err((ErrorCode::InvalidRequest, format!("Null value not supported for : {name}")));
        };
        options.insert(name, value.to_string());
    }
    Ok(())
}

pub(crate) struct IncrementalAlterConfigs;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn change(options: &mut BTreeMap<String, String>, config: &AlterableConfig) -> Result<(), Fault> {
    let name = config.name.to_string();
    if config.config_operation == DELETE {
        options.remove(&name);
        return Ok(());
    }
    let Some(value) = config.value.as_ref().map(|value| value.to_string()) else {
        return Err((ErrorCode::InvalidRequest, format!("Null value not supported for : {name}")));
    };
    match config.config_operation {
        SET => {
            options.insert(name, value);
        }
        operation @ (APPEND | SUBTRACT) => {
            if find(&name).is_none() {
                return Err((ErrorCode::InvalidConfig, format!("Unknown topic config name: {name}")));
            }
            let option = find(&name).filter(|option| matches!(option.kind, OptionType::List(_)));
            let Some(option) = option else {
                let verb = if operation == APPEND { "APPEND" } else { "SUBTRACT" };
                let message = format!("Can't {verb} to key {name} because its type is not LIST.");
                return Err((ErrorCode::InvalidConfig, message));
            };
            let now = options.get(&name).map_or(option.default, String::as_str);
            let mut words: Vec<&str> = now.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
            for word in value.split(',').map(str::trim) {
                words.retain(|known| operation == APPEND || *known != word);
                if operation == APPEND && !words.contains(&word) {
                    words.push(word);
                }
            }
            let joined = words.join(",");
            options.insert(name, joined);
        }
        _ => return Err((ErrorCode::UnknownServerError, "Unknown config operation.".to_owned())),
    }
    Ok(())
}

/// Changes the options of one resource by `changes`, which are named by `keys`.
async fn alter(
    cx: &Context,
    kind: i8,
    name: &str,
    keys: &[&str],
    validate_only: bool,
    changes: impl FnOnce(&mut BTreeMap<String, String>) -> Result<(), Fault> + Send,
) -> Result<(), Fault> {
    match kind {
        TOPIC => {}
        BROKER => {
            check_broker(&cx.broker, name, "")?;
            if keys.is_empty() {
                return Ok(());
            }
            let message = format!("Cannot update these configs dynamically: [{}]", keys.join(", "));
            return Err((ErrorCode::InvalidRequest, message));
        }
        kind => return Err((ErrorCode::InvalidRequest, format!("Unknown resource type {kind}"))),
    }
    let missing = || (ErrorCode::UnknownTopicOrPartition, format!("The topic '{name}' does not exist."));
    let mut seen = HashSet::new();
    if keys.iter().any(|key| !seen.insert(*key)) {
        return Err((ErrorCode::InvalidRequest, "Error due to duplicate config keys".to_owned()));
    }
    let info = cx.broker.topic(name).ok_or_else(missing)?;
    let mut options = info.options.clone();
    changes(&mut options)?;
    check_options(info.kind, &options).map_err(|error| (config_code_of(&error), error.message))?;
    if !validate_only && options != info.options {
        let altered = cx.broker.backend.set_options(info.table_id(), options).await;
        altered.map_err(|error| (config_code_of(&error), error.message))?;
    }
    Ok(())
}

impl Api for IncrementalAlterConfigs {
    const KEY: ApiKey = ApiKey::IncrementalAlterConfigs;
    type Request = IncrementalAlterConfigsRequest;
    type Response = IncrementalAlterConfigsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let changes = request.resources.iter().map(|resource| Change {
            kind: resource.resource_type,
            name: resource.resource_name.as_str(),
            keys: resource.configs.iter().map(|config| config.name.as_str()).collect(),
            apply: |options: &mut BTreeMap<String, String>| {
                resource.configs.iter().try_for_each(|config| change(options, config))
            },
        });
        let outcomes = alter_all(cx, changes.collect(), request.validate_only).await;
        let responses = request.resources.iter().zip(outcomes).map(|(resource, outcome)| {
            let response = AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match outcome {
                Ok(()) => response,
                Err((code, message)) => response.with_error_code(code.code()).with_error_message(Some(text(message))),
            }
        });
        Started::Ready(IncrementalAlterConfigsResponse::default().with_responses(responses.collect()))
    }
}
