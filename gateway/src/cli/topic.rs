//! `sluice topic create|list|describe|delete`: a client of a running server.

use std::fmt::Write;

use clap::{Args, Subcommand};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse,
};
use kafka_protocol::protocol::StrBytes;
use sluice_protocol::ErrorCode;

use super::client::{Client, ClientError};
use crate::kafka::text;

#[derive(Args)]
pub(super) struct Topic {
    /// Address of the server's Kafka listener.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9092", global = true)]
    server: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a topic.
    Create {
        /// Its name.
        name: String,
        /// Topic partitions; the server's default when left out.
        #[arg(long, default_value_t = -1)]
        partitions: i32,
        /// An option of the topic, as NAME=VALUE; may be repeated.
        #[arg(long = "option", value_name = "NAME=VALUE")]
        options: Vec<String>,
    },
    /// List all topics.
    List,
    /// Show a topic's partitions, offsets and options that differ from the default.
    Describe {
        /// Its name.
        name: String,
    },
    /// Delete a topic with all its records.
    Delete {
        /// Its name.
        name: String,
    },
}

fn refusal(code: i16, message: Option<&StrBytes>) -> Result<(), ClientError> {
    match ErrorCode::try_from_code(code) {
        None => Ok(()),
        Some(known) => {
            let text = message.map(|text| text.to_string()).filter(|text| !text.is_empty());
            Err(ClientError::Refused(text.unwrap_or_else(|| known.to_string())))
        }
    }
}

impl Topic {
    /// Runs the command; the result is its output.
    pub(super) async fn run(self) -> Result<String, ClientError> {
        let mut client = Client::connect(&self.server).await?;
        match self.command {
            Command::Create { name, partitions, options } => create(&mut client, name, partitions, options).await,
            Command::List => list(&mut client).await,
            Command::Describe { name } => describe(&mut client, name).await,
            Command::Delete { name } => delete(&mut client, name).await,
        }
    }
}

async fn create(
    client: &mut Client,
    name: String,
    partitions: i32,
    options: Vec<String>,
) -> Result<String, ClientError> {
    let mut configs = Vec::new();
    for option in options {
        let Some((key, value)) = option.split_once('=') else {
            return Err(ClientError::Refused(format!("'{option}' is not NAME=VALUE")));
        };
        configs.push(CreatableTopicConfig::default().with_name(text(key)).with_value(Some(text(value))));
    }
    let topic = CreatableTopic::default()
        .with_name(text(name.clone()).into())
        .with_num_partitions(partitions)
        .with_replication_factor(-1)
        .with_configs(configs);
    let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let response: CreateTopicsResponse = client.call(ApiKey::CreateTopics, 7, &request).await?;
    for topic in &response.topics {
        refusal(topic.error_code, topic.error_message.as_ref())?;
    }
    let count = response.topics.first().map_or(0, |topic| topic.num_partitions);
    Ok(format!("created topic '{name}' with {count} topic partition(s)\n"))
}

async fn metadata(client: &mut Client, topics: Option<Vec<String>>) -> Result<MetadataResponse, ClientError> {
    let topics = topics.map(|names| {
        names.into_iter().map(|name| MetadataRequestTopic::default().with_name(Some(text(name).into()))).collect()
    });
    let request = MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false);
    client.call(ApiKey::Metadata, 12, &request).await
}

async fn list(client: &mut Client) -> Result<String, ClientError> {
    let mut out = String::new();
    for topic in metadata(client, None).await?.topics {
        let name = topic.name.map(|name| name.to_string()).unwrap_or_default();
        let _ = writeln!(out, "{name}\t{}", topic.partitions.len());
    }
    Ok(out)
}

async fn offsets(client: &mut Client, name: &str, partitions: &[i32], timestamp: i64) -> Result<Vec<i64>, ClientError> {
    let asked = partitions.iter().map(|index| {
        ListOffsetsPartition::default()
            .with_partition_index(*index)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp)
    });
    let topic = ListOffsetsTopic::default().with_name(text(name).into()).with_partitions(asked.collect());
    let request = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let response: ListOffsetsResponse = client.call(ApiKey::ListOffsets, 7, &request).await?;
    let mut found = Vec::new();
    for part in response.topics.iter().flat_map(|topic| &topic.partitions) {
        refusal(part.error_code, None)?;
        found.push(part.offset);
    }
    Ok(found)
}

async fn describe(client: &mut Client, name: String) -> Result<String, ClientError> {
    let response = metadata(client, Some(vec![name.clone()])).await?;
    let Some(topic) = response.topics.first() else {
        return Err(ClientError::Protocol("no topic in the answer".to_owned()));
    };
    if topic.error_code != 0 {
        let known = ErrorCode::try_from_code(topic.error_code).map(|code| code.to_string()).unwrap_or_default();
        return Err(ClientError::Refused(format!("topic '{name}': {known}")));
    }
    let indexes: Vec<i32> = topic.partitions.iter().map(|part| part.partition_index).collect();
    let starts = offsets(client, &name, &indexes, -2).await?;
    let ends = offsets(client, &name, &indexes, -1).await?;
    let mut out = format!("topic {name}\nid {}\n", topic.topic_id);
    for ((part, start), end) in topic.partitions.iter().zip(starts).zip(ends) {
        let (index, epoch) = (part.partition_index, part.leader_epoch);
        let _ = writeln!(out, "topic partition {index}: offsets {start}..{end}, leader epoch {epoch}");
    }
    let resource = DescribeConfigsResource::default().with_resource_type(2).with_resource_name(text(name));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response: DescribeConfigsResponse = client.call(ApiKey::DescribeConfigs, 4, &request).await?;
    for config in response.results.iter().flat_map(|result| &result.configs).filter(|config| config.config_source != 5)
    {
        let value = config.value.as_ref().map(|value| value.to_string()).unwrap_or_default();
        let _ = writeln!(out, "option {}={value}", config.name.as_str());
    }
    Ok(out)
}

async fn delete(client: &mut Client, name: String) -> Result<String, ClientError> {
    let topic = DeleteTopicState::default().with_name(Some(text(name.clone()).into()));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let response: DeleteTopicsResponse = client.call(ApiKey::DeleteTopics, 6, &request).await?;
    for topic in &response.responses {
        refusal(topic.error_code, topic.error_message.as_ref())
            .map_err(|error| ClientError::Refused(format!("topic '{name}': {error}")))?;
    }
    Ok(format!("deleted topic '{name}'\n"))
}
