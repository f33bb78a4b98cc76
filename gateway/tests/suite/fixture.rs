//! A server on a free port, and a client that writes and reads frames.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use sluice_engine::{Clock, ManualClock, RealDisk, SystemClock};
use sluice_gateway::{Config, Gateway};
use sluice_protocol::records::{BatchBuilder, Record};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Long enough for a machine that does much else; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Version for requests that name topics.
pub(crate) const PRODUCE: i16 = 9;
/// Version for requests that name topics.
pub(crate) const FETCH: i16 = 12;

pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A running server and its data directory.
pub(crate) struct Server {
    pub(crate) gateway: Gateway,
    pub(crate) dir: TempDir,
    config: Config,
    clock: Arc<dyn Clock>,
}

fn config_in(dir: &Path) -> Config {
    let free = "127.0.0.1:0".parse().expect("an address");
    Config {
        data_dir: dir.join("data"),
        kafka_listen: free,
        flight_listen: free,
        http_listen: free,
        groups_initial_rebalance_delay_ms: 0,
        ..Config::default()
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts with changed settings.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::open(tempfile::tempdir().expect("a directory"), change, Arc::new(SystemClock)).await
    }

    /// Starts on a clock that the test moves.
    pub(crate) async fn start_at(clock: &Arc<ManualClock>) -> Self {
        Self::open(tempfile::tempdir().expect("a directory"), |_| {}, Arc::clone(clock) as Arc<dyn Clock>).await
    }

    async fn open(dir: TempDir, change: impl FnOnce(&mut Config), clock: Arc<dyn Clock>) -> Self {
        let mut config = config_in(dir.path());
        change(&mut config);
        let started = Gateway::start_on(config.clone(), Arc::new(RealDisk), Arc::clone(&clock)).await;
        Self { gateway: started.expect("starts"), dir, config, clock }
    }

    /// Stops cleanly and starts again on the same directory.
    pub(crate) async fn restart(self) -> Self {
        let Self { gateway, dir, config, clock } = self;
        gateway.stop().await.expect("stops");
        Self::open(dir, move |fresh| *fresh = config, clock).await
    }

    /// A second server on a copy of this one's files, as a crash at this moment leaves them: nothing
    /// may be in flight.
    pub(crate) async fn crash(self) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy_tree(&self.dir.path().join("data"), &dir.path().join("data"));
        Self::open(dir, |_| {}, Arc::clone(&self.clock)).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.gateway.kafka_address()).await
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_tree(&entry.path(), &target);
        } else if let Err(error) = std::fs::copy(entry.path(), &target) {
            // Temporary files of a checkpoint come and go.
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", entry.path().display());
        }
    }
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    next: i32,
}

/// A whole request frame.
pub(crate) fn request_frame<R: Request>(version: i16, correlation_id: i32, request: &R) -> Bytes {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).expect("encodes");
    raw_frame::<R>(version, correlation_id, &body)
}

/// A frame whose header is right for `R` and whose body is anything.
pub(crate) fn raw_frame<R: Request>(version: i16, correlation_id: i32, body: &[u8]) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(text("suite")));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).expect("encodes");
    frame.extend_from_slice(body);
    let len = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&len.to_be_bytes());
    frame.freeze()
}

/// Takes a response apart; `None` when it does not decode to its end.
pub(crate) fn read_response<R: Request>(version: i16, mut frame: Bytes) -> Option<(i32, R::Response)> {
    let header = ResponseHeader::decode(&mut frame, R::Response::header_version(version)).ok()?;
    let response = R::Response::decode(&mut frame, version).ok()?;
    (!frame.has_remaining()).then_some((header.correlation_id, response))
}

impl Client {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.expect("in time").expect("connects");
        stream.set_nodelay(true).expect("an option");
        Self { stream, next: 1 }
    }

    /// Sends a request and returns its correlation id.
    pub(crate) async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let id = self.next;
        self.next += 1;
        self.send_raw(&request_frame(version, id, request)).await;
        id
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("in time").expect("writes");
    }

    /// Sends what the server may refuse to read to its end.
    pub(crate) async fn try_send_raw(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("in time");
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next frame without its length; `None` when the server closed the connection.
    pub(crate) async fn frame(&mut self) -> Option<Bytes> {
        timeout(PATIENCE, self.frame_now()).await.expect("an answer or a close in time")
    }

    async fn frame_now(&mut self) -> Option<Bytes> {
        let len = self.stream.read_i32().await.ok()?;
        let mut frame = vec![0; usize::try_from(len).expect("a length")];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    /// The response to the request of that correlation id, which must be the next one.
    pub(crate) async fn recv<R: Request>(&mut self, version: i16, id: i32) -> R::Response {
        let frame = self.frame().await.expect("a response");
        let (got, response) = read_response::<R>(version, frame).expect("decodes");
        assert_eq!(got, id, "responses come in the order of requests");
        response
    }

    pub(crate) async fn call<R: Request>(&mut self, version: i16, request: R) -> R::Response {
        let id = self.send(version, &request).await;
        self.recv::<R>(version, id).await
    }

    pub(crate) async fn assert_closed(&mut self) {
        assert_eq!(self.frame().await, None, "the server closes the connection");
    }

    /// Creates a topic; the error code.
    pub(crate) async fn try_create(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> i16 {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))));
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(-1)
            .with_configs(configs.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
        self.call(7, request).await.topics[0].error_code
    }

    pub(crate) async fn create(&mut self, name: &str, partitions: i32) {
        assert_eq!(self.try_create(name, partitions, &[]).await, 0);
    }

    /// What Metadata says of a topic, without creating it.
    pub(crate) async fn describe(&mut self, name: &str) -> MetadataResponseTopic {
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request = MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(false);
        self.call(12, request).await.topics.remove(0)
    }

    pub(crate) async fn produce(&mut self, topic: &str, partition: i32, records: Vec<u8>) -> PartitionProduceResponse {
        let request = produce_request(topic, partition, -1, Some(records.into()));
        let mut response = self.call(PRODUCE, request).await;
        response.responses.remove(0).partition_responses.remove(0)
    }

    /// Fetches one topic partition without waiting.
    pub(crate) async fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let request = fetch_request(topic, &[(partition, offset)], i32::MAX, 0, 0);
        self.call(FETCH, request).await.responses.remove(0).partitions.remove(0)
    }
}

pub(crate) fn produce_request(topic: &str, partition: i32, acks: i16, records: Option<Bytes>) -> ProduceRequest {
    let part = PartitionProduceData::default().with_index(partition).with_records(records);
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![part]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// A fetch of some partitions of one topic, each up to `max_bytes`.
pub(crate) fn fetch_request(
    topic: &str,
    partitions: &[(i32, i64)],
    max_bytes: i32,
    min_bytes: i32,
    max_wait_ms: i32,
) -> FetchRequest {
    let partitions = partitions.iter().map(|(partition, offset)| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(max_bytes)
            .with_current_leader_epoch(-1)
    });
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(partitions.collect());
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_session_epoch(-1)
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(min_bytes)
        .with_max_bytes(max_bytes)
        .with_topics(vec![topic])
}

/// A batch of `count` small records.
pub(crate) fn batch(count: usize) -> Vec<u8> {
    sized_batch(count, 10)
}

/// A batch of `count` records of `size` bytes each.
pub(crate) fn sized_batch(count: usize, size: usize) -> Vec<u8> {
    let value = vec![b'v'; size];
    fill(BatchBuilder::new(1_000), count, &value)
}

/// A batch of an idempotent producer.
pub(crate) fn sequenced(id: i64, epoch: i16, sequence: i32, count: usize) -> Vec<u8> {
    fill(BatchBuilder::new(1_000).producer(id, epoch, sequence), count, b"v")
}

fn fill(builder: BatchBuilder, count: usize, value: &[u8]) -> Vec<u8> {
    (0..count).fold(builder, |builder, _| builder.record(&Record::new(Some(b"k"), Some(value)))).build()
}

/// `batch` as the log keeps it.
pub(crate) fn stored(mut batch: Vec<u8>, base_offset: i64, epoch: i32) -> Vec<u8> {
    sluice_protocol::batch::set_position(&mut batch, base_offset, epoch);
    batch
}

/// A small generator, so that a failure can be repeated from its seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
