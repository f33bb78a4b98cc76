//! Every API at every version.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    AlterConfigsRequest, ApiKey, ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteGroupsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    DescribeTopicPartitionsRequest, FetchRequest, FindCoordinatorRequest, HeartbeatRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest, ListGroupsRequest,
    ListOffsetsRequest, MetadataRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::Request;
use sluice_gateway::kafka::handlers::served_apis;

use crate::fixture::{Client, Server, raw_frame, read_response, text};

/// A request as it is by default, ready to send at a version.
pub(crate) struct Sample {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) frame: Bytes,
    /// Where the body begins in `frame`.
    pub(crate) body: usize,
    decodes: fn(i16, Bytes) -> bool,
}

fn sample<R: Request>(version: i16, request: &R) -> Option<Sample> {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).ok()?;
    let frame = raw_frame::<R>(version, 5, &body);
    Some(Sample {
        key: ApiKey::try_from(R::KEY).expect("a key"),
        version,
        body: frame.len() - body.len(),
        frame,
        decodes: |version, frame| read_response::<R>(version, frame).is_some_and(|(id, _)| id == 5),
    })
}

impl Sample {
    pub(crate) fn decodes(&self, frame: Bytes) -> bool {
        (self.decodes)(self.version, frame)
    }
}

macro_rules! samples {
    ($($key:ident => $request:expr),* $(,)?) => {
        /// A sample of every served API at every served version.
        pub(crate) fn samples() -> Vec<Sample> {
            let mut all = Vec::new();
            for served in served_apis() {
                for version in served.min..=served.max {
                    let made = match served.key {
                        $(ApiKey::$key => sample(version, &$request),)*
                        key => panic!("no sample of {key:?}"),
                    };
                    all.extend(made);
                }
            }
            all
        }
    };
}

samples! {
    Produce => ProduceRequest::default().with_acks(-1),
    Fetch => FetchRequest::default(),
    ListOffsets => ListOffsetsRequest::default(),
    Metadata => MetadataRequest::default(),
    OffsetCommit => OffsetCommitRequest::default(),
    OffsetFetch => OffsetFetchRequest::default(),
    FindCoordinator => FindCoordinatorRequest::default(),
    JoinGroup => JoinGroupRequest::default(),
    Heartbeat => HeartbeatRequest::default(),
    LeaveGroup => LeaveGroupRequest::default(),
    SyncGroup => SyncGroupRequest::default(),
    DescribeGroups => DescribeGroupsRequest::default(),
    ListGroups => ListGroupsRequest::default(),
    ApiVersions => ApiVersionsRequest::default(),
    CreateTopics => CreateTopicsRequest::default(),
    DeleteTopics => DeleteTopicsRequest::default(),
    DeleteRecords => DeleteRecordsRequest::default(),
    InitProducerId => InitProducerIdRequest::default(),
    OffsetForLeaderEpoch => OffsetForLeaderEpochRequest::default(),
    AlterConfigs => AlterConfigsRequest::default(),
    DescribeConfigs => DescribeConfigsRequest::default(),
    CreatePartitions => CreatePartitionsRequest::default(),
    DeleteGroups => DeleteGroupsRequest::default(),
    IncrementalAlterConfigs => IncrementalAlterConfigsRequest::default(),
    OffsetDelete => OffsetDeleteRequest::default(),
    DescribeCluster => DescribeClusterRequest::default(),
    DescribeTopicPartitions => DescribeTopicPartitionsRequest::default(),
}

/// Whether the server answers someone else.
pub(crate) async fn assert_serves(client: &mut Client) {
    let request =
        ApiVersionsRequest::default().with_client_software_name(text("a")).with_client_software_version(text("1"));
    assert_eq!(client.call(3, request).await.error_code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_api_answers_a_default_request_at_every_version() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    let all = samples();
    for served in served_apis() {
        for version in served.min..=served.max {
            assert!(all.iter().any(|it| (it.key, it.version) == (served.key, version)), "{:?} v{version}", served.key);
        }
    }
    let mut client = server.client().await;
    for sample in all {
        client.send_raw(&sample.frame).await;
        match client.frame().await {
            Some(frame) => assert!(sample.decodes(frame), "{:?} v{}", sample.key, sample.version),
            None => client = server.client().await,
        }
    }
    assert_serves(&mut witness).await;
}

/// P03, P04, P05.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_versions_lists_exactly_what_is_served() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for version in 0..=4 {
        let mut request = ApiVersionsRequest::default();
        if version >= 3 {
            request = request.with_client_software_name(text("a")).with_client_software_version(text("1"));
        }
        let answer = client.call(version, request).await;
        let listed: Vec<_> =
            answer.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)).collect();
        let served = served_apis().into_iter().map(|served| {
            let min = if served.key == ApiKey::Produce { 0 } else { served.min };
            (served.key as i16, min, served.max)
        });
        assert_eq!(listed, served.collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_closes_the_connection() {
    let server = Server::start().await;
    let mut witness = server.client().await;
    let served = served_apis();
    let mut refused: Vec<(i16, i16)> = Vec::new();
    for key in (-2..=100).chain([i16::MAX, i16::MIN]) {
        match served.iter().find(|one| one.key as i16 == key) {
            None => refused.extend([(key, 0), (key, 3)]),
            Some(one) if one.key == ApiKey::ApiVersions => {}
            Some(one) => refused.extend([(key, one.min - 1), (key, one.max + 1), (key, i16::MAX), (key, i16::MIN)]),
        }
    }
    for (key, version) in refused {
        let mut client = server.client().await;
        let mut frame = raw_frame::<MetadataRequest>(1, 1, &[0; 16]).to_vec();
        frame[4..6].copy_from_slice(&key.to_be_bytes());
        frame[6..8].copy_from_slice(&version.to_be_bytes());
        client.send_raw(&frame).await;
        assert_eq!(client.frame().await, None, "key {key} version {version}");
    }
    assert_serves(&mut witness).await;
}
