//! CreateTopics (19) v2-7, DeleteTopics (20) v1-6, CreatePartitions (37) v0-3.
//!
//! - -1 for partitions or replication factor is the server's default (KIP-464).
//! - Any replication factor from 1 on is accepted and reported as 1 replica: one disk, and min.insync.replicas
//!   is satisfied by it. Kafka refuses 3 on one broker; applications that ask for 3 must run here.
//! - The config `table.schema` makes the topic a typed log table: columns as in Flink's CREATE TABLE.
//! - v5+: the options that took effect are in the answer. v7: topic ids.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    ApiKey, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteTopicsRequest, DeleteTopicsResponse,
};
use sluice_engine::Error;
use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::catalog::{DEFAULT_BUCKETS, TableInfo, TableKind, TypedPlan, check_options, plan_typed};
use sluice_engine::row::Schema;
use sluice_flight::ddl::{self, DdlError};
use sluice_protocol::ErrorCode;

use super::configs;
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::error::{code_of, config_code_of};
use crate::kafka::{names, text};

/// Topic partitions that one request may create (Kafka's limit).
const PARTITIONS_MAX: i32 = 10_000;
const TOO_MANY: &str = "Excessively large number of partitions per request.";

/// A code and, from the versions that have room, what was wrong.
type Fault = (ErrorCode, String);

pub(crate) struct CreateTopics;

fn options_of(topic: &CreatableTopic) -> Result<BTreeMap<String, String>, Fault> {
    let mut options = BTreeMap::new();
    let mut nulls = Vec::new();
    for config in &topic.configs {
        match &config.value {
            Some(value) => {
                options.insert(config.name.to_string(), value.to_string());
            }
            None => nulls.push(config.name.to_string()),
        }
    }
    if nulls.is_empty() {
        return Ok(options);
    }
    Err((ErrorCode::InvalidConfig, format!("Null value not supported for topic configs: {}", nulls.join(","))))
}

fn assigned(topic: &CreatableTopic, node_id: i32) -> Result<Option<i32>, Fault> {
    if topic.assignments.is_empty() {
        return Ok(None);
    }
    if topic.num_partitions != -1 || topic.replication_factor != -1 {
        let message =
            "A manual partition assignment was specified, but replication factor or partitions was not set to -1.";
        return Err((ErrorCode::InvalidRequest, message.to_owned()));
    }
    let mut indexes: Vec<i32> = topic.assignments.iter().map(|one| one.partition_index).collect();
    indexes.sort_unstable();
    if indexes.iter().enumerate().any(|(at, index)| at as i32 != *index) {
        let message = "partitions should be a consecutive 0-based integer sequence";
        return Err((ErrorCode::InvalidReplicaAssignment, message.to_owned()));
    }
    check_brokers(topic.assignments.iter().map(|one| one.broker_ids.as_slice()), node_id)?;
    Ok(Some(indexes.len() as i32))
}

fn check_brokers<'a>(
    mut assignments: impl Iterator<Item = &'a [kafka_protocol::messages::BrokerId]>,
    node_id: i32,
) -> Result<(), Fault> {
    match assignments.find_map(|ids| ids.iter().find(|id| id.0 != node_id)) {
        None => Ok(()),
        Some(id) => {
            let message =
                format!("The manual partition assignment includes broker {}, but no such broker is registered.", id.0);
            Err((ErrorCode::InvalidReplicaAssignment, message))
        }
    }
}

/// Everything about a new topic that can be checked without creating it.
fn plan(cx: &Context, topic: &CreatableTopic, earlier: &HashMap<String, String>) -> Result<Plan, Fault> {
    let name = topic.name.as_str();
    let tables = cx.broker.backend.tables();
    if let Some(fault) = names::fault(name) {
        return Err((ErrorCode::InvalidTopicException, fault));
    }
    if names::RESERVED.contains(&name) {
        return Err((ErrorCode::InvalidTopicException, format!("Topic '{name}' is reserved for the server.")));
    }
    if tables.by_name(name).is_some() {
        return Err((ErrorCode::TopicAlreadyExists, format!("Topic '{name}' already exists.")));
    }
    let in_request = earlier.get(&names::folded(name));
    if let Some(other) = names::collision(&tables, name).or(in_request.cloned()) {
        return Err((
            ErrorCode::InvalidTopicException,
            format!("Topic '{name}' collides with existing topic: {other}"),
        ));
    }
    let mut options = options_of(topic)?;
    let schema = options.remove(configs::SCHEMA);
    let partitions = match assigned(topic, cx.broker.config.kafka_node_id)? {
        Some(count) => count,
        None if topic.num_partitions == -1 && schema.is_some() => DEFAULT_BUCKETS as i32,
        None if topic.num_partitions == -1 => cx.broker.config.kafka_default_partitions as i32,
        None => topic.num_partitions,
    };
    if partitions <= 0 {
        let message = "Number of partitions was set to an invalid non-positive value.";
        return Err((ErrorCode::InvalidPartitions, message.to_owned()));
    }
    if partitions > PARTITIONS_MAX {
        return Err((ErrorCode::PolicyViolation, TOO_MANY.to_owned()));
    }
    if topic.replication_factor == 0 || topic.replication_factor < -1 {
        let message = "Replication factor must be larger than 0, or -1 to use the default value.";
        return Err((ErrorCode::InvalidReplicationFactor, message.to_owned()));
    }
    let fault = |error: Error| (config_code_of(&error), error.message);
    if let Some(schema) = schema {
        let descriptor = described(&schema, partitions as u32, &options).map_err(fault)?;
        let TypedPlan { table, buckets, options } = plan_typed(tables.locate(name).1, &descriptor).map_err(fault)?;
        return Ok(Plan { buckets, options, typed: Some((descriptor, table.schema)) });
    }
    check_options(TableKind::Raw, &options).map_err(fault)?;
    Ok(Plan { buckets: partitions as u32, options, typed: None })
}

/// A topic that could be created.
struct Plan {
    buckets: u32,
    options: BTreeMap<String, String>,
    /// Of a typed table.
    typed: Option<(TableDescriptor, Schema)>,
}

/// The table that a topic with the config `table.schema` asks for; its other configs are what WITH
/// holds in CREATE TABLE.
fn described(schema: &str, buckets: u32, options: &BTreeMap<String, String>) -> sluice_engine::Result<TableDescriptor> {
    let named = |error: DdlError| Error::new(error.kind, format!("{}: {error}", configs::SCHEMA));
    let mut descriptor = ddl::parse_columns(schema).map_err(named)?;
    descriptor.buckets = Some(buckets);
    for (name, value) in options {
        descriptor.set(name, value)?;
    }
    Ok(descriptor)
}

fn created(cx: &Context, topic: &CreatableTopic, id: uuid::Uuid, plan: &Plan) -> CreatableTopicResult {
    let schema = plan.typed.as_ref().map(|(_, schema)| schema);
    let shown = configs::topic_configs(&cx.broker, &plan.options, schema).into_iter().map(|config| {
        CreatableTopicConfigs::default()
            .with_name(text(config.name))
            .with_value(Some(text(config.value)))
            .with_config_source(config.source)
    });
    CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_topic_id(id)
        .with_num_partitions(plan.buckets as i32)
        .with_replication_factor(1)
        .with_configs(Some(shown.collect()))
}

fn refused(topic: &CreatableTopic, fault: Fault) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(topic.name.clone())
        .with_error_code(fault.0.code())
        .with_error_message(Some(text(fault.1)))
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(Some(Vec::new()))
}

impl Api for CreateTopics {
    const KEY: ApiKey = ApiKey::CreateTopics;
    type Request = CreateTopicsRequest;
    type Response = CreateTopicsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        if total(&request.topics, cx.broker.config.kafka_default_partitions) > i64::from(PARTITIONS_MAX) {
            let refused = |topic| refused(topic, (ErrorCode::PolicyViolation, TOO_MANY.to_owned()));
            let results = request.topics.iter().map(refused).collect();
            return Started::Ready(CreateTopicsResponse::default().with_topics(results));
        }
        let twice = twice(request.topics.iter().map(|topic| topic.name.as_str()));
        // The names before, by what they collide in.
        let mut earlier = HashMap::new();
        let mut told = HashSet::new();
        let mut results = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            if twice.contains(topic.name.as_str()) {
                if told.insert(topic.name.to_string()) {
                    earlier.insert(names::folded(&topic.name), topic.name.to_string());
                    results.push(refused(topic, (ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned())));
                }
                continue;
            }
            let plan = match plan(cx, topic, &earlier) {
                Ok(plan) => plan,
                Err(fault) => {
                    results.push(refused(topic, fault));
                    continue;
                }
            };
            earlier.insert(names::folded(&topic.name), topic.name.to_string());
            if request.validate_only {
                results.push(created(cx, topic, uuid::Uuid::new_v4(), &plan));
                continue;
            }
            let name = topic.name.to_string();
            let made = match &plan.typed {
                Some((descriptor, _)) => cx.broker.backend.create_typed(name, descriptor.clone()).await,
                None => cx.broker.backend.create_table(name, plan.buckets, plan.options.clone()).await,
            };
            results.push(match made {
                Ok(info) => created(cx, topic, info.uuid, &plan),
                Err(error) => refused(topic, (config_code_of(&error), error.message)),
            });
        }
        Started::Ready(CreateTopicsResponse::default().with_topics(results))
    }
}

/// Topic partitions that a request would create.
fn total(topics: &[CreatableTopic], default: u32) -> i64 {
    let of_one = |topic: &CreatableTopic| match topic.assignments.len() {
        0 if topic.num_partitions == -1 => i64::from(default),
        0 => i64::from(topic.num_partitions.max(1)),
        assigned => assigned as i64,
    };
    topics.iter().map(of_one).sum()
}

/// The names that occur more than once.
fn twice<'a>(names: impl Iterator<Item = &'a str>) -> HashSet<String> {
    let mut seen = HashSet::new();
    names.filter(|name| !seen.insert(*name)).map(str::to_owned).collect()
}

pub(crate) struct DeleteTopics;

const NO_TOPIC: &str = "This server does not host this topic-partition.";
const NO_TOPIC_ID: &str = "This server does not host this topic ID.";

async fn delete(cx: &Context, name: Option<&str>, id: uuid::Uuid) -> Result<Arc<TableInfo>, Fault> {
    let tables = cx.broker.backend.tables();
    let info = match name {
        Some(_) if !id.is_nil() => {
            return Err((ErrorCode::InvalidRequest, "You may not specify both topic name and topic id.".to_owned()));
        }
        None if id.is_nil() => {
            return Err((ErrorCode::InvalidRequest, "Neither topic name nor id were specified.".to_owned()));
        }
        Some(name) => tables.by_name(name).ok_or((ErrorCode::UnknownTopicOrPartition, NO_TOPIC.to_owned()))?,
        None => tables.by_uuid(&id).ok_or((ErrorCode::UnknownTopicId, NO_TOPIC_ID.to_owned()))?,
    };
    let fault = |error: Error| (code_of(&error), error.message);
    cx.broker.backend.drop_table(info.table_id()).await.map_err(fault)?;
    cx.broker.coordinator.forget_topic(info.uuid).await;
    Ok(Arc::clone(info))
}

impl Api for DeleteTopics {
    const KEY: ApiKey = ApiKey::DeleteTopics;
    type Request = DeleteTopicsRequest;
    type Response = DeleteTopicsResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let wanted: Vec<(Option<String>, uuid::Uuid)> = if version >= 6 {
            request
                .topics
                .iter()
                .map(|topic| (topic.name.as_ref().map(|name| name.to_string()), topic.topic_id))
                .collect()
        } else {
            request.topic_names.iter().map(|name| (Some(name.to_string()), uuid::Uuid::nil())).collect()
        };
        let twice = twice(wanted.iter().filter_map(|(name, _)| name.as_deref()));
        let mut told = HashSet::new();
        let mut responses = Vec::with_capacity(wanted.len());
        for (name, id) in wanted {
            let duplicate = name.as_ref().filter(|name| twice.contains(*name));
            if duplicate.is_some_and(|name| !told.insert(name.clone())) {
                continue;
            }
            let outcome = if duplicate.is_some() {
                Err((ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned()))
            } else {
                delete(cx, name.as_deref(), id).await
            };
            let result = DeletableTopicResult::default();
            responses.push(match outcome {
                Ok(info) => result.with_name(Some(text(info.topic()).into())).with_topic_id(info.uuid),
                Err((code, message)) => result
                    .with_name(name.map(|name| text(name).into()))
                    .with_topic_id(id)
                    .with_error_code(code.code())
                    .with_error_message(Some(text(message))),
            });
        }
        Started::Ready(DeleteTopicsResponse::default().with_responses(responses))
    }
}

pub(crate) struct CreatePartitions;

async fn grow(
    cx: &Context,
    topic: &kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic,
    validate_only: bool,
) -> Result<(), Fault> {
    let missing = || (ErrorCode::UnknownTopicOrPartition, NO_TOPIC.to_owned());
    let info = cx.broker.topic(&topic.name).ok_or_else(missing)?;
    let (now, wanted) = (info.topic_partitions() as i32, topic.count);
    if wanted == now {
        return Err((ErrorCode::InvalidPartitions, format!("Topic already has {now} partition(s).")));
    }
    if wanted < now {
        let message = format!(
            "The topic {} currently has {now} partition(s); {wanted} would not be an increase.",
            topic.name.as_str()
        );
        return Err((ErrorCode::InvalidPartitions, message));
    }
    if wanted - now > PARTITIONS_MAX {
        return Err((ErrorCode::PolicyViolation, TOO_MANY.to_owned()));
    }
    if let Some(assignments) = &topic.assignments {
        let added = wanted - now;
        if assignments.len() as i32 != added {
            let message = format!(
                "Attempted to add {added} additional partition(s), but only {} assignment(s) were specified.",
                assignments.len()
            );
            return Err((ErrorCode::InvalidReplicaAssignment, message));
        }
        check_brokers(assignments.iter().map(|one| one.broker_ids.as_slice()), cx.broker.config.kafka_node_id)?;
    }
    if !validate_only {
        let grown = cx.broker.backend.add_buckets(info.table_id(), wanted as u32).await;
        grown.map_err(|error| (code_of(&error), error.message))?;
    }
    Ok(())
}

impl Api for CreatePartitions {
    const KEY: ApiKey = ApiKey::CreatePartitions;
    type Request = CreatePartitionsRequest;
    type Response = CreatePartitionsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let twice = twice(request.topics.iter().map(|topic| topic.name.as_str()));
        let mut told = HashSet::new();
        let mut results = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let name = topic.name.to_string();
            let duplicate = twice.contains(&name);
            if duplicate && !told.insert(name) {
                continue;
            }
            let outcome = if duplicate {
                Err((ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned()))
            } else {
                grow(cx, topic, request.validate_only).await
            };
            let result = CreatePartitionsTopicResult::default().with_name(topic.name.clone());
            results.push(match outcome {
                Ok(()) => result,
                Err((code, message)) => result.with_error_code(code.code()).with_error_message(Some(text(message))),
            });
        }
        Started::Ready(CreatePartitionsResponse::default().with_results(results))
    }
}
