//! Walks a request's bytes along its shape before the decoder sees them.
//!
//! The decoder reserves memory for a count as soon as it has read it, before it
//! knows whether the bytes that are left could hold that many elements. A body
//! of eight bytes can therefore ask for gigabytes, and an allocation that fails
//! ends the process. The walker reads the same bytes with the same rules and
//! allocates nothing: a body it accepts holds every count it announces.
//!
//! What makes that a guarantee is that walker and decoder agree on where each
//! field starts. Wherever the two could drift apart (the size of a known tagged
//! field, the marker of an optional struct) the walker takes the strict reading.
//! Questions that do not move the position, such as a null where the protocol
//! has none or a string that is not UTF-8, are left to the decoder.

use crate::shape_table::MESSAGES;

/// Upper bound on what one request may make the decoder allocate for.
///
/// A count that the bytes can hold is not harmless yet: an element of one byte
/// on the wire can take a hundred in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeLimits {
    /// Elements of all arrays together; tagged fields count as elements, since
    /// the decoder keeps an entry for each one it does not know.
    pub elements_max: usize,
}

impl Default for ShapeLimits {
    fn default() -> Self {
        Self { elements_max: 1_000_000 }
    }
}

/// What the walk of an accepted request found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Elements over all arrays, tagged fields included; what
    /// [`ShapeLimits::elements_max`] bounds.
    pub elements: usize,
    /// Bytes the request's fields take. Less than the body when bytes trail,
    /// which the protocol allows.
    pub consumed: usize,
}

/// Why a body is not worth showing to the decoder.
///
/// Fields are named `Request.Struct.Field`, as the protocol's own definitions
/// name them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// The body ends inside a field.
    #[error("{field} needs {needed} bytes, {left} are left")]
    Truncated {
        /// The field that is cut off.
        field: &'static str,
        /// Bytes the field still needs.
        needed: usize,
        /// Bytes there are.
        left: usize,
    },
    /// An array announces more elements than the bytes left could hold.
    #[error("{field} announces {count} elements, {left} bytes are left")]
    CountTooLarge {
        /// The array.
        field: &'static str,
        /// The count on the wire.
        count: usize,
        /// Bytes there are.
        left: usize,
    },
    /// The arrays hold more elements together than the limit allows.
    #[error("{field} brings the request to {elements} elements, the limit is {elements_max}")]
    TooManyElements {
        /// The array that passed the limit.
        field: &'static str,
        /// Elements up to and including that array.
        elements: usize,
        /// The limit, from [`ShapeLimits::elements_max`].
        elements_max: usize,
    },
    /// A tagged field does not have the size it announces, or the marker of an
    /// optional struct is neither present (1) nor absent (negative).
    #[error("{field} does not have the length {length}")]
    BadLength {
        /// The field.
        field: &'static str,
        /// The size or marker on the wire.
        length: i64,
    },
    /// A variable-length integer does not end within five bytes.
    #[error("{field} starts with a varint of more than five bytes")]
    BadVarint {
        /// The field the integer belongs to.
        field: &'static str,
    },
    /// No shape is known for the request; its body cannot be walked.
    #[error("no known shape for API key {api_key} version {version}")]
    UnknownApi {
        /// The request's API key.
        api_key: i16,
        /// The request's version.
        version: i16,
    },
}

/// Refuses a request body that would make the decoder allocate out of
/// proportion.
///
/// `body` is what follows the request header. Bytes after the request's last
/// field are allowed, as the protocol has it.
///
/// # Errors
///
/// Names the first field that the bytes left cannot hold.
pub fn check_request(api_key: i16, version: i16, body: &[u8], limits: &ShapeLimits) -> Result<Walked, ShapeError> {
    let message = Message::find(api_key, version).ok_or(ShapeError::UnknownApi { api_key, version })?;
    let mut walker = Walker {
        left: body,
        version,
        flexible: message.flexible(version),
        elements: 0,
        elements_max: limits.elements_max,
    };
    walker.shape(message.shape)?;
    Ok(Walked { elements: walker.elements, consumed: body.len().saturating_sub(walker.left.len()) })
}

/// The versions something exists in, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    const fn contain(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }
}

/// One request of the protocol.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) api_key: i16,
    pub(crate) versions: Versions,
    /// From this version on, lengths are compact and structs end in tags.
    pub(crate) flexible_since: Option<i16>,
    pub(crate) shape: &'static Shape,
}

impl Message {
    fn find(api_key: i16, version: i16) -> Option<&'static Self> {
        let found = MESSAGES.binary_search_by_key(&api_key, |message| message.api_key);
        found.ok().and_then(|at| MESSAGES.get(at)).filter(|message| message.versions.contain(version))
    }

    fn flexible(&self, version: i16) -> bool {
        self.flexible_since.is_some_and(|since| version >= since)
    }
}

/// The fields of a struct, in the order they have on the wire.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What errors call the struct's section of tagged fields.
    pub(crate) tags: &'static str,
    pub(crate) fields: &'static [Field],
}

impl Shape {
    /// The fewest bytes the struct can take. A count is held against this, so
    /// it must never be more than what an actual encoding takes.
    fn bytes_min(&self, version: i16, flexible: bool) -> usize {
        let fields: usize = self
            .fields
            .iter()
            .filter(|field| field.inline(version))
            .map(|field| field.kind.bytes_min(version, flexible))
            .sum();
        fields + usize::from(flexible)
    }

    fn tagged(&self, tag: u32, version: i16) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.tag_at(version) == Some(tag))
    }
}

/// One field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    /// What errors call the field.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) versions: Versions,
    /// The field's tag and the versions that send it tagged, not in line.
    pub(crate) tag: Option<(u32, Versions)>,
}

impl Field {
    /// The same field, sent among the struct's tags in some versions.
    pub(crate) const fn tagged(self, tag: u32, versions: Versions) -> Self {
        Self { tag: Some((tag, versions)), ..self }
    }

    fn tag_at(&self, version: i16) -> Option<u32> {
        self.tag.filter(|(_, tagged)| self.versions.contain(version) && tagged.contain(version)).map(|(tag, _)| tag)
    }

    fn inline(&self, version: i16) -> bool {
        self.versions.contain(version) && self.tag_at(version).is_none()
    }
}

/// How a field is laid out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A value of so many bytes.
    Fixed(usize),
    /// Length and bytes, the length two bytes wide unless compact.
    String,
    /// Length and bytes, the length four bytes wide unless compact.
    Bytes,
    /// An array of values of so many bytes each.
    FixedArray(usize),
    StringArray,
    StructArray(&'static Shape),
    Struct(&'static Shape),
    /// A struct that follows a marker byte in some versions.
    NullableStruct(&'static Shape, Versions),
}

impl Kind {
    fn bytes_min(self, version: i16, flexible: bool) -> usize {
        match self {
            Self::Fixed(size) => size,
            Self::NullableStruct(_, nullable) if nullable.contain(version) => 1,
            Self::Struct(shape) | Self::NullableStruct(shape, _) => shape.bytes_min(version, flexible),
            _ if flexible => 1,
            Self::String => 2,
            Self::Bytes | Self::FixedArray(_) | Self::StringArray | Self::StructArray(_) => 4,
        }
    }
}

/// Tag and size are a byte each at the least.
const TAG_BYTES_MIN: usize = 2;

/// The position of the walk. Its depth is that of the shape, never of the
/// bytes, which is why plain recursion is safe.
struct Walker<'a> {
    left: &'a [u8],
    version: i16,
    flexible: bool,
    elements: usize,
    elements_max: usize,
}

impl<'a> Walker<'a> {
    fn shape(&mut self, shape: &'static Shape) -> Result<(), ShapeError> {
        for field in shape.fields {
            if field.inline(self.version) {
                self.field(field)?;
            }
        }
        if self.flexible {
            self.tags(shape)?;
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<(), ShapeError> {
        let name = field.name;
        match field.kind {
            Kind::Fixed(size) => self.take(name, size).map(drop),
            Kind::String => self.string(name),
            Kind::Bytes => self.bytes(name),
            Kind::FixedArray(size) => self.fixed_array(name, size),
            Kind::StringArray => self.string_array(name),
            Kind::StructArray(shape) => self.struct_array(name, shape),
            Kind::Struct(shape) => self.shape(shape),
            Kind::NullableStruct(shape, nullable) if nullable.contain(self.version) => {
                self.nullable_struct(name, shape)
            }
            Kind::NullableStruct(shape, _) => self.shape(shape),
        }
    }

    fn string(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let length = if self.flexible {
            self.compact_length(name)?
        } else {
            usize::try_from(i16::from_be_bytes(self.array(name)?)).ok()
        };
        self.take(name, length.unwrap_or(0)).map(drop)
    }

    fn bytes(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let length = self.length(name)?;
        self.take(name, length).map(drop)
    }

    fn fixed_array(&mut self, name: &'static str, size: usize) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        self.announce(name, count, size)?;
        self.take(name, count.saturating_mul(size)).map(drop)
    }

    fn string_array(&mut self, name: &'static str) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        let bytes_min = Kind::String.bytes_min(self.version, self.flexible);
        self.announce(name, count, bytes_min)?;
        for _ in 0..count {
            self.string(name)?;
        }
        Ok(())
    }

    fn struct_array(&mut self, name: &'static str, shape: &'static Shape) -> Result<(), ShapeError> {
        let count = self.length(name)?;
        if count == 0 {
            return Ok(());
        }
        let bytes_min = shape.bytes_min(self.version, self.flexible);
        self.announce(name, count, bytes_min)?;
        for _ in 0..count {
            self.shape(shape)?;
        }
        Ok(())
    }

    /// Kafka takes every marker that is not negative as present, the decoder
    /// every one that is not 1 as absent; the ones they read differently are
    /// refused, or the decoder would read the struct's bytes as later fields.
    fn nullable_struct(&mut self, name: &'static str, shape: &'static Shape) -> Result<(), ShapeError> {
        match i8::from_be_bytes(self.array(name)?) {
            1 => self.shape(shape),
            marker if marker < 0 => Ok(()),
            marker => Err(ShapeError::BadLength { field: name, length: i64::from(marker) }),
        }
    }

    fn tags(&mut self, shape: &'static Shape) -> Result<(), ShapeError> {
        let name = shape.tags;
        let count = widen(self.varint(name)?);
        self.announce(name, count, TAG_BYTES_MIN)?;
        for _ in 0..count {
            let tag = self.varint(name)?;
            let size = widen(self.varint(name)?);
            let value = self.take(name, size)?;
            if let Some(field) = shape.tagged(tag, self.version) {
                self.tagged(field, value)?;
            }
        }
        Ok(())
    }

    /// The decoder skips the announced size only for tags it does not know and
    /// reads the others until they end: a known field must end where its size
    /// says, or all that follows is read from another position.
    fn tagged(&mut self, field: &'static Field, value: &'a [u8]) -> Result<(), ShapeError> {
        let after = std::mem::replace(&mut self.left, value);
        self.field(field)?;
        if !self.left.is_empty() {
            return Err(ShapeError::BadLength {
                field: field.name,
                length: i64::try_from(value.len()).unwrap_or(i64::MAX),
            });
        }
        self.left = after;
        Ok(())
    }

    /// Admits `count` elements before anything is done for any of them.
    fn announce(&mut self, field: &'static str, count: usize, bytes_min: usize) -> Result<(), ShapeError> {
        let left = self.left.len();
        if count > left / bytes_min.max(1) {
            return Err(ShapeError::CountTooLarge { field, count, left });
        }
        let elements = self.elements.saturating_add(count);
        if elements > self.elements_max {
            return Err(ShapeError::TooManyElements { field, elements, elements_max: self.elements_max });
        }
        self.elements = elements;
        Ok(())
    }

    /// A length or count that is not a string's; null reads as zero, since both
    /// are followed by nothing.
    fn length(&mut self, field: &'static str) -> Result<usize, ShapeError> {
        let length = if self.flexible {
            self.compact_length(field)?
        } else {
            usize::try_from(i32::from_be_bytes(self.array(field)?)).ok()
        };
        Ok(length.unwrap_or(0))
    }

    fn compact_length(&mut self, field: &'static str) -> Result<Option<usize>, ShapeError> {
        Ok(self.varint(field)?.checked_sub(1).map(widen))
    }

    /// Bits beyond the 32nd are dropped: Kafka and the decoder both do.
    fn varint(&mut self, field: &'static str) -> Result<u32, ShapeError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ShapeError::BadVarint { field })
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ShapeError> {
        let (&taken, left) =
            self.left.split_first_chunk().ok_or(ShapeError::Truncated { field, needed: N, left: self.left.len() })?;
        self.left = left;
        Ok(taken)
    }

    fn take(&mut self, field: &'static str, needed: usize) -> Result<&'a [u8], ShapeError> {
        let (taken, left) =
            self.left.split_at_checked(needed).ok_or(ShapeError::Truncated { field, needed, left: self.left.len() })?;
        self.left = left;
        Ok(taken)
    }
}

/// Saturates where a pointer is narrower than 32 bits: such a count is refused
/// all the same.
fn widen(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::create_topics_request::*;
    use kafka_protocol::messages::describe_configs_request::*;
    use kafka_protocol::messages::fetch_request::*;
    use kafka_protocol::messages::join_group_request::*;
    use kafka_protocol::messages::list_offsets_request::*;
    use kafka_protocol::messages::metadata_request::*;
    use kafka_protocol::messages::offset_commit_request::*;
    use kafka_protocol::messages::offset_fetch_request::*;
    use kafka_protocol::messages::produce_request::*;
    use kafka_protocol::messages::sync_group_request::*;
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Message as Versioned, StrBytes, VersionRange};

    use super::*;

    /// Every request both the decoder and the table know, at its defaults. The
    /// versions are the request's own: those of `ApiKey::valid_versions` are
    /// the response's and go beyond what the decoder takes.
    fn defaults() -> Vec<(ApiKey, VersionRange, RequestKind)> {
        macro_rules! all {
            ($($key:ident $request:ident,)*) => {
                vec![$((
                    ApiKey::$key,
                    <$request as Versioned>::VERSIONS,
                    RequestKind::$key($request::default()),
                ),)*]
            };
        }
        all![
            Produce ProduceRequest, Fetch FetchRequest, ListOffsets ListOffsetsRequest,
            Metadata MetadataRequest, OffsetCommit OffsetCommitRequest,
            OffsetFetch OffsetFetchRequest, FindCoordinator FindCoordinatorRequest,
            JoinGroup JoinGroupRequest, Heartbeat HeartbeatRequest,
            LeaveGroup LeaveGroupRequest, SyncGroup SyncGroupRequest,
            DescribeGroups DescribeGroupsRequest, ListGroups ListGroupsRequest,
            SaslHandshake SaslHandshakeRequest, ApiVersions ApiVersionsRequest,
            CreateTopics CreateTopicsRequest, DeleteTopics DeleteTopicsRequest,
            DeleteRecords DeleteRecordsRequest, InitProducerId InitProducerIdRequest,
            OffsetForLeaderEpoch OffsetForLeaderEpochRequest,
            AddPartitionsToTxn AddPartitionsToTxnRequest,
            AddOffsetsToTxn AddOffsetsToTxnRequest, EndTxn EndTxnRequest,
            WriteTxnMarkers WriteTxnMarkersRequest, TxnOffsetCommit TxnOffsetCommitRequest,
            DescribeAcls DescribeAclsRequest, CreateAcls CreateAclsRequest,
            DeleteAcls DeleteAclsRequest, DescribeConfigs DescribeConfigsRequest,
            AlterConfigs AlterConfigsRequest, AlterReplicaLogDirs AlterReplicaLogDirsRequest,
            DescribeLogDirs DescribeLogDirsRequest, SaslAuthenticate SaslAuthenticateRequest,
            CreatePartitions CreatePartitionsRequest,
            CreateDelegationToken CreateDelegationTokenRequest,
            RenewDelegationToken RenewDelegationTokenRequest,
            ExpireDelegationToken ExpireDelegationTokenRequest,
            DescribeDelegationToken DescribeDelegationTokenRequest,
            DeleteGroups DeleteGroupsRequest, ElectLeaders ElectLeadersRequest,
            IncrementalAlterConfigs IncrementalAlterConfigsRequest,
            AlterPartitionReassignments AlterPartitionReassignmentsRequest,
            ListPartitionReassignments ListPartitionReassignmentsRequest,
            OffsetDelete OffsetDeleteRequest, DescribeClientQuotas DescribeClientQuotasRequest,
            AlterClientQuotas AlterClientQuotasRequest,
            DescribeUserScramCredentials DescribeUserScramCredentialsRequest,
            AlterUserScramCredentials AlterUserScramCredentialsRequest,
            DescribeQuorum DescribeQuorumRequest, UpdateFeatures UpdateFeaturesRequest,
            DescribeCluster DescribeClusterRequest, DescribeProducers DescribeProducersRequest,
            UnregisterBroker UnregisterBrokerRequest,
            DescribeTransactions DescribeTransactionsRequest,
            ListTransactions ListTransactionsRequest,
            ConsumerGroupHeartbeat ConsumerGroupHeartbeatRequest,
            ConsumerGroupDescribe ConsumerGroupDescribeRequest,
            GetTelemetrySubscriptions GetTelemetrySubscriptionsRequest,
            PushTelemetry PushTelemetryRequest, ListConfigResources ListConfigResourcesRequest,
            DescribeTopicPartitions DescribeTopicPartitionsRequest,
            ShareGroupHeartbeat ShareGroupHeartbeatRequest,
            ShareGroupDescribe ShareGroupDescribeRequest, ShareFetch ShareFetchRequest,
            ShareAcknowledge ShareAcknowledgeRequest, AddRaftVoter AddRaftVoterRequest,
            RemoveRaftVoter RemoveRaftVoterRequest,
            InitializeShareGroupState InitializeShareGroupStateRequest,
            ReadShareGroupState ReadShareGroupStateRequest,
            WriteShareGroupState WriteShareGroupStateRequest,
            DeleteShareGroupState DeleteShareGroupStateRequest,
            ReadShareGroupStateSummary ReadShareGroupStateSummaryRequest,
            DescribeShareGroupOffsets DescribeShareGroupOffsetsRequest,
            AlterShareGroupOffsets AlterShareGroupOffsetsRequest,
            DeleteShareGroupOffsets DeleteShareGroupOffsetsRequest,
        ]
    }

    fn check(api_key: i16, version: i16, body: &[u8]) -> Result<Walked, ShapeError> {
        check_request(api_key, version, body, &ShapeLimits::default())
    }

    /// Bytes the decoder read, or None if it refused.
    fn decode(api_key: i16, version: i16, body: &[u8]) -> Option<usize> {
        let key = ApiKey::try_from(api_key).ok()?;
        let mut bytes = Bytes::copy_from_slice(body);
        RequestKind::decode(key, &mut bytes, version).ok()?;
        Some(body.len() - bytes.len())
    }

    fn encode(request: &RequestKind, version: i16) -> Vec<u8> {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).unwrap_or_else(|error| panic!("{request:?} v{version}: {error:#}"));
        body.to_vec()
    }

    fn assert_walks(key: ApiKey, version: i16, request: &RequestKind) {
        let mut body = encode(request, version);
        let walked = check(key as i16, version, &body);
        let consumed = walked.clone().map(|walked| walked.consumed);
        assert_eq!(consumed, Ok(body.len()), "{key:?} v{version}");
        for end in 0..body.len() {
            let cut = &body[..end];
            if let Ok(walked) = check(key as i16, version, cut) {
                let decoded = decode(key as i16, version, cut);
                assert_eq!(decoded, Some(walked.consumed), "{key:?} v{version} {cut:?}");
            }
        }
        body.extend([0xff; 9]);
        assert_eq!(check(key as i16, version, &body), walked, "{key:?} v{version}");
    }

    #[test]
    fn default_requests_are_accepted() {
        for (key, versions, request) in defaults() {
            for version in versions.min..=versions.max {
                assert_walks(key, version, &request);
            }
        }
    }

    fn text(text: &'static str) -> StrBytes {
        StrBytes::from_static_str(text)
    }

    fn topic(version: i16, last_named: i16) -> TopicName {
        let name = if version <= last_named { "orders" } else { "" };
        TopicName(text(name))
    }

    fn metadata(version: i16) -> RequestKind {
        let topics =
            ["orders", "payments"].map(|name| MetadataRequestTopic::default().with_name(Some(TopicName(text(name)))));
        RequestKind::Metadata(
            MetadataRequest::default()
                .with_topics(Some(topics.to_vec()))
                .with_allow_auto_topic_creation(version < 4)
                .with_include_topic_authorized_operations(version >= 8),
        )
    }

    fn produce(version: i16) -> RequestKind {
        let partitions = [Some("a batch"), None, Some("")]
            .map(|records| PartitionProduceData::default().with_index(3).with_records(records.map(Bytes::from)));
        let data = TopicProduceData::default().with_name(topic(version, 12)).with_partition_data(partitions.to_vec());
        RequestKind::Produce(
            ProduceRequest::default()
                .with_transactional_id(Some(TransactionalId(text("tx"))))
                .with_acks(-1)
                .with_topic_data(vec![data.clone(), data]),
        )
    }

    fn fetch(version: i16) -> RequestKind {
        let mut partition = FetchPartition::default().with_partition(7).with_fetch_offset(1 << 40);
        if version >= 18 {
            partition = partition.with_high_watermark(5);
        }
        let fetched = FetchTopic::default().with_topic(topic(version, 12)).with_partitions(vec![partition; 3]);
        let mut request = FetchRequest::default().with_topics(vec![fetched; 2]);
        if version >= 7 {
            let forgotten = ForgottenTopic::default().with_topic(topic(version, 12)).with_partitions(vec![1, 2, 3]);
            request = request.with_forgotten_topics_data(vec![forgotten; 2]);
        }
        if version >= 12 {
            request = request.with_cluster_id(Some(text("cluster")));
        }
        if version >= 15 {
            request =
                request.with_replica_state(ReplicaState::default().with_replica_id(BrokerId(4)).with_replica_epoch(9));
        }
        RequestKind::Fetch(request)
    }

    fn create_topics(_version: i16) -> RequestKind {
        let assignment = CreatableReplicaAssignment::default().with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
        let config = CreatableTopicConfig::default().with_name(text("retention.ms")).with_value(Some(text("1")));
        let topic = CreatableTopic::default()
            .with_name(TopicName(text("orders")))
            .with_assignments(vec![assignment; 2])
            .with_configs(vec![config, CreatableTopicConfig::default()]);
        RequestKind::CreateTopics(CreateTopicsRequest::default().with_topics(vec![topic; 2]))
    }

    fn offset_commit(version: i16) -> RequestKind {
        let partition = OffsetCommitRequestPartition::default()
            .with_committed_offset(12)
            .with_committed_metadata(Some(text("note")));
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(text("orders")))
            .with_partitions(vec![partition, OffsetCommitRequestPartition::default()]);
        let instance = (version >= 7).then(|| text("instance"));
        RequestKind::OffsetCommit(
            OffsetCommitRequest::default()
                .with_group_id(GroupId(text("group")))
                .with_group_instance_id(instance)
                .with_topics(vec![topic; 2]),
        )
    }

    fn offset_fetch(version: i16) -> RequestKind {
        let name = TopicName(text("orders"));
        let group = GroupId(text("group"));
        if version < 8 {
            let topic = OffsetFetchRequestTopic::default().with_name(name).with_partition_indexes(vec![0, 1]);
            let request = OffsetFetchRequest::default().with_group_id(group);
            return RequestKind::OffsetFetch(request.with_topics(Some(vec![topic; 2])));
        }
        let topic = OffsetFetchRequestTopics::default().with_name(name).with_partition_indexes(vec![0, 1]);
        let all = OffsetFetchRequestGroup::default().with_group_id(group);
        let some = all.clone().with_topics(Some(vec![topic; 2]));
        let groups = vec![some, all.with_topics(None)];
        RequestKind::OffsetFetch(OffsetFetchRequest::default().with_groups(groups))
    }

    fn join_group(version: i16) -> RequestKind {
        let protocol =
            JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(&[0, 1, 2]));
        RequestKind::JoinGroup(
            JoinGroupRequest::default()
                .with_group_id(GroupId(text("group")))
                .with_group_instance_id((version >= 5).then(|| text("instance")))
                .with_protocol_type(text("consumer"))
                .with_protocols(vec![protocol; 2]),
        )
    }

    fn sync_group(version: i16) -> RequestKind {
        let assignment = SyncGroupRequestAssignment::default()
            .with_member_id(text("member"))
            .with_assignment(Bytes::from_static(&[0, 1, 2]));
        RequestKind::SyncGroup(
            SyncGroupRequest::default()
                .with_group_id(GroupId(text("group")))
                .with_protocol_name((version >= 5).then(|| text("range")))
                .with_assignments(vec![assignment; 2]),
        )
    }

    fn list_offsets(version: i16) -> RequestKind {
        let mut partition = ListOffsetsPartition::default().with_timestamp(-1);
        if version >= 4 {
            partition = partition.with_current_leader_epoch(2);
        }
        let topic =
            ListOffsetsTopic::default().with_name(TopicName(text("orders"))).with_partitions(vec![partition; 2]);
        RequestKind::ListOffsets(ListOffsetsRequest::default().with_topics(vec![topic; 2]))
    }

    fn describe_configs(_version: i16) -> RequestKind {
        let all = DescribeConfigsResource::default().with_resource_name(text("orders")).with_configuration_keys(None);
        let some = all.clone().with_configuration_keys(Some(vec![text("a"), text("b")]));
        RequestKind::DescribeConfigs(DescribeConfigsRequest::default().with_resources(vec![some, all]))
    }

    #[test]
    fn filled_requests_are_accepted() {
        type Fill = fn(i16) -> RequestKind;
        let fills: [(ApiKey, VersionRange, Fill); 10] = [
            (ApiKey::Metadata, MetadataRequest::VERSIONS, metadata),
            (ApiKey::Produce, ProduceRequest::VERSIONS, produce),
            (ApiKey::Fetch, FetchRequest::VERSIONS, fetch),
            (ApiKey::CreateTopics, CreateTopicsRequest::VERSIONS, create_topics),
            (ApiKey::OffsetCommit, OffsetCommitRequest::VERSIONS, offset_commit),
            (ApiKey::OffsetFetch, OffsetFetchRequest::VERSIONS, offset_fetch),
            (ApiKey::JoinGroup, JoinGroupRequest::VERSIONS, join_group),
            (ApiKey::SyncGroup, SyncGroupRequest::VERSIONS, sync_group),
            (ApiKey::ListOffsets, ListOffsetsRequest::VERSIONS, list_offsets),
            (ApiKey::DescribeConfigs, DescribeConfigsRequest::VERSIONS, describe_configs),
        ];
        for (key, versions, fill) in fills {
            for version in versions.min..=versions.max {
                assert_walks(key, version, &fill(version));
            }
        }
    }

    /// Deterministic, so that a failure comes back: SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, bound: usize) -> usize {
            usize::try_from(self.next() % u64::try_from(bound).expect("small")).expect("small")
        }

        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
        }
    }

    /// Where a body holds a count or a length.
    #[derive(Clone, Copy)]
    struct Mark {
        at: usize,
        name: &'static str,
        /// Bytes of the count; None when it is compact.
        width: Option<usize>,
        array: bool,
    }

    /// Writes a body along its shape: what the walker reads, from the other
    /// side, with every optional part present at times.
    struct Writer<'a> {
        random: &'a mut Random,
        version: i16,
        flexible: bool,
        out: Vec<u8>,
        marks: Vec<Mark>,
        elements: usize,
    }

    impl Writer<'_> {
        fn shape(&mut self, shape: &'static Shape) {
            let start = self.out.len();
            for field in shape.fields {
                if field.inline(self.version) {
                    self.field(field);
                }
            }
            if self.flexible {
                self.tags(shape);
            }
            let written = self.out.len() - start;
            assert!(shape.bytes_min(self.version, self.flexible) <= written, "{}", shape.tags);
        }

        fn field(&mut self, field: &'static Field) {
            let count = self.random.below(3);
            match field.kind {
                Kind::Fixed(size) => self.raw(size),
                Kind::String => self.string(field.name),
                Kind::Bytes => {
                    self.count(field.name, count, 4, false);
                    self.raw(count);
                }
                Kind::FixedArray(size) => {
                    self.array(field.name, count);
                    self.raw(count * size);
                }
                Kind::StringArray => {
                    self.array(field.name, count);
                    (0..count).for_each(|_| self.string(field.name));
                }
                Kind::StructArray(shape) => {
                    self.array(field.name, count);
                    (0..count).for_each(|_| self.shape(shape));
                }
                Kind::NullableStruct(_, nullable) if count == 0 && nullable.contain(self.version) => {
                    self.out.push(0xff);
                }
                Kind::NullableStruct(shape, nullable) => {
                    if nullable.contain(self.version) {
                        self.out.push(1);
                    }
                    self.shape(shape);
                }
                Kind::Struct(shape) => self.shape(shape),
            }
        }

        fn tags(&mut self, shape: &'static Shape) {
            let mut known = Vec::new();
            for field in shape.fields {
                if let Some(tag) = field.tag_at(self.version)
                    && self.random.below(2) == 0
                {
                    known.push((tag, field));
                }
            }
            let unknown = self.random.below(3);
            let count = known.len() + unknown;
            self.elements += count;
            self.mark(shape.tags, None, true);
            self.out.push(u8::try_from(count).expect("few tags"));
            for (tag, field) in known {
                let value = self.value(field);
                self.tag(u8::try_from(tag).expect("small tag"), &value);
            }
            for tag in 0..unknown {
                let size = self.random.below(3);
                let value = self.random.bytes(size);
                self.tag(u8::try_from(100 + tag).expect("small tag"), &value);
            }
        }

        fn tag(&mut self, tag: u8, value: &[u8]) {
            self.out.extend([tag, u8::try_from(value.len()).expect("small value")]);
            self.out.extend(value);
        }

        /// A field's bytes alone. Their marks are dropped: a longer count
        /// would break the announced size first.
        fn value(&mut self, field: &'static Field) -> Vec<u8> {
            let marks = self.marks.len();
            let before = std::mem::take(&mut self.out);
            self.field(field);
            self.marks.truncate(marks);
            std::mem::replace(&mut self.out, before)
        }

        fn array(&mut self, name: &'static str, count: usize) {
            self.elements += count;
            self.count(name, count, 4, true);
        }

        fn string(&mut self, name: &'static str) {
            let length = self.random.below(3);
            self.count(name, length, 2, false);
            self.out.extend(vec![b'a'; length]);
        }

        fn count(&mut self, name: &'static str, count: usize, width: usize, array: bool) {
            let count = u8::try_from(count).expect("small count");
            if self.flexible {
                self.mark(name, None, array);
                self.out.push(count + 1);
            } else {
                self.mark(name, Some(width), array);
                self.out.extend(vec![0; width - 1]);
                self.out.push(count);
            }
        }

        fn mark(&mut self, name: &'static str, width: Option<usize>, array: bool) {
            let at = self.out.len();
            self.marks.push(Mark { at, name, width, array });
        }

        fn raw(&mut self, count: usize) {
            let raw = self.random.bytes(count);
            self.out.extend(raw);
        }
    }

    struct Body {
        api_key: i16,
        version: i16,
        bytes: Vec<u8>,
        marks: Vec<Mark>,
        elements: usize,
    }

    /// Calls `test` with `rounds` bodies of every version of every request.
    fn for_bodies(seed: u64, rounds: usize, mut test: impl FnMut(Body, &mut Random)) {
        let mut random = Random(seed);
        for message in MESSAGES {
            for version in message.versions.first..=message.versions.last {
                for _ in 0..rounds {
                    let mut writer = Writer {
                        random: &mut random,
                        version,
                        flexible: message.flexible(version),
                        out: Vec::new(),
                        marks: Vec::new(),
                        elements: 0,
                    };
                    writer.shape(message.shape);
                    let body = Body {
                        api_key: message.api_key,
                        version,
                        bytes: writer.out,
                        marks: writer.marks,
                        elements: writer.elements,
                    };
                    test(body, &mut random);
                }
            }
        }
    }

    /// The table and the decoder's own code agree on every field of every
    /// version the decoder takes.
    #[test]
    fn written_bodies_are_read_alike() {
        let versions: Vec<_> = defaults().into_iter().map(|(key, versions, _)| (key as i16, versions)).collect();
        let mut decoded = std::collections::BTreeSet::new();
        for_bodies(1, 200, |body, _| {
            let Body { api_key, version, bytes, elements, .. } = body;
            let consumed = bytes.len();
            assert_eq!(check(api_key, version, &bytes), Ok(Walked { elements, consumed }), "{api_key} v{version}");
            let known = versions
                .iter()
                .any(|(key, versions)| *key == api_key && (versions.min..=versions.max).contains(&version));
            if known {
                let read = decode(api_key, version, &bytes);
                assert_eq!(read, Some(consumed), "{api_key} v{version} {bytes:?}");
                decoded.insert((api_key, version));
            }
        });
        let all: i16 = versions.iter().map(|(_, v)| v.max - v.min + 1).sum();
        assert_eq!(decoded.len(), usize::try_from(all).expect("positive"));
    }

    #[test]
    fn hostile_counts_are_refused() {
        for_bodies(2, 10, |body, _| {
            for mark in &body.marks {
                let mut hostile = body.bytes.clone();
                let (end, huge): (usize, &[u8]) = match mark.width {
                    None => (mark.at + 1, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
                    Some(2) => (mark.at + 2, &[0x7f, 0xff]),
                    _ => (mark.at + 4, &[0x7f, 0xff, 0xff, 0xff]),
                };
                hostile.splice(mark.at..end, huge.iter().copied());
                let refused = check(body.api_key, body.version, &hostile);
                match refused {
                    Err(ShapeError::CountTooLarge { field, .. }) if mark.array => {
                        assert_eq!(field, mark.name);
                    }
                    Err(ShapeError::Truncated { field, .. }) if !mark.array => {
                        assert_eq!(field, mark.name);
                    }
                    other => panic!("{} v{}: {other:?}", mark.name, body.version),
                }
            }
        });
    }

    /// The smallest count the bytes cannot hold is refused like the largest.
    #[test]
    fn counts_are_held_against_the_smallest_element() {
        // Two topics of one empty name each, version 0: two bytes an element.
        let body = [0, 0, 0, 2, 0, 0, 0, 0];
        assert_eq!(check(3, 0, &body), Ok(Walked { elements: 2, consumed: 8 }));
        let body = [0, 0, 0, 3, 0, 0, 0, 0];
        let field = "Metadata.Topics";
        assert_eq!(check(3, 0, &body), Err(ShapeError::CountTooLarge { field, count: 3, left: 4 }));
        // Partition indexes of four bytes each, eleven bytes for three.
        let mut body = vec![0, 1, b'g', 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 3];
        body.extend([0; 11]);
        let field = "OffsetFetch.OffsetFetchRequestTopic.PartitionIndexes";
        assert_eq!(check(9, 1, &body), Err(ShapeError::CountTooLarge { field, count: 3, left: 11 }));
    }

    /// Each would have the decoder reserve 3.6 GiB, or far more.
    #[test]
    fn small_bodies_that_ask_for_gigabytes_are_refused() {
        let element = u32::try_from(size_of::<MetadataRequestTopic>()).expect("small");
        let count = 3_865_470_566_u32 / element;
        let mut body = count.to_be_bytes().to_vec();
        body.extend([0; 4]);
        let refused = check(3, 0, &body);
        assert!(matches!(refused, Err(ShapeError::CountTooLarge { left: 4, .. })), "{refused:?}");
        for version in 9..=13 {
            let refused = check(3, version, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
            assert_eq!(
                refused,
                Err(ShapeError::CountTooLarge { field: "Metadata.Topics", count: 0xffff_fffe, left: 0 })
            );
        }
    }

    #[test]
    fn null_and_any_negative_count_read_as_empty() {
        assert_eq!(check(3, 0, &[0xff; 4]), Ok(Walked { elements: 0, consumed: 4 }));
        assert_eq!(check(3, 0, &[0x80, 0, 0, 0]), Ok(Walked { elements: 0, consumed: 4 }));
        let body = [0, 0, 0, 1, 0x80, 0];
        assert_eq!(check(3, 0, &body), Ok(Walked { elements: 1, consumed: 6 }));
        let body = [0, 1, 0, 0, 0];
        assert_eq!(check(3, 9, &body), Ok(Walked { elements: 0, consumed: 5 }));
    }

    #[test]
    fn elements_are_limited_over_all_arrays() {
        let body = encode(&fetch(12), 12);
        let elements = check(1, 12, &body).expect("a good body").elements;
        // Two topics of three partitions, two forgotten of three, a tag.
        assert_eq!(elements, 2 * (1 + 3) + 2 * (1 + 3) + 1);
        let limits = |elements_max| ShapeLimits { elements_max };
        assert!(check_request(1, 12, &body, &limits(elements)).is_ok());
        for elements_max in 0..elements {
            let refused = check_request(1, 12, &body, &limits(elements_max));
            assert!(matches!(refused, Err(ShapeError::TooManyElements { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_known_tag_must_fill_its_size() {
        let body = |size: u8, value: &[u8]| {
            let mut body = vec![0; 4 + 4 + 4 + 4 + 1 + 4 + 4];
            body.extend([1, 1, 1, 1, 0, size]);
            body.extend(value);
            body
        };
        let field = "Fetch.ClusterId";
        assert!(check(1, 12, &body(3, &[3, b'i', b'd'])).is_ok());
        assert_eq!(check(1, 12, &body(4, &[3, b'i', b'd', 0])), Err(ShapeError::BadLength { field, length: 4 }));
        assert_eq!(check(1, 12, &body(2, &[3, b'i', b'd'])), Err(ShapeError::Truncated { field, needed: 2, left: 1 }));
    }

    #[test]
    fn an_optional_struct_is_there_or_not() {
        let body = |marker: u8| {
            let mut body = vec![1, 0, 0, 0, 9, marker];
            if marker == 1 {
                body.extend([2, b't', 0, 0, 0, 3, 0]);
            }
            body.push(0);
            body
        };
        for marker in [1, 0x80, 0xff] {
            let body = body(marker);
            assert_eq!(check(75, 0, &body).map(|w| w.consumed), Ok(body.len()), "{marker}");
        }
        for marker in [0, 2, 0x7f] {
            let refused = check(75, 0, &body(marker));
            let field = "DescribeTopicPartitions.Cursor";
            let length = i64::from(marker);
            assert_eq!(refused, Err(ShapeError::BadLength { field, length }));
        }
    }

    #[test]
    fn a_varint_ends_within_five_bytes() {
        let refused = check(3, 9, &[0x80, 0x80, 0x80, 0x80, 0x80, 0]);
        let field = "Metadata.Topics";
        assert_eq!(refused, Err(ShapeError::BadVarint { field }));
        assert!(check(3, 9, &[0x81, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0]).is_ok());
    }

    #[test]
    fn what_has_no_shape_is_refused() {
        for (api_key, version) in [(4, 0), (52, 0), (-1, 0), (3, -1), (3, 14), (i16::MAX, i16::MAX)] {
            assert_eq!(check(api_key, version, &[0; 64]), Err(ShapeError::UnknownApi { api_key, version }));
        }
    }

    #[test]
    fn the_table_is_sorted_and_every_element_takes_bytes() {
        fn elements(shape: &'static Shape, version: i16, flexible: bool) {
            for field in shape.fields.iter().filter(|field| field.versions.contain(version)) {
                match field.kind {
                    Kind::StructArray(inner) => {
                        assert!(inner.bytes_min(version, flexible) > 0, "{}", field.name);
                        elements(inner, version, flexible);
                    }
                    Kind::Struct(inner) | Kind::NullableStruct(inner, _) => {
                        elements(inner, version, flexible);
                    }
                    _ => {}
                }
            }
        }
        assert!(MESSAGES.is_sorted_by(|a, b| a.api_key < b.api_key));
        for message in MESSAGES {
            for version in message.versions.first..=message.versions.last {
                elements(message.shape, version, message.flexible(version));
            }
        }
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = Random(3);
        for message in MESSAGES {
            for version in message.versions.first..=message.versions.last {
                for _ in 0..200 {
                    let length = random.below(64);
                    let mut body = random.bytes(length);
                    // Small bytes get further: most counts stay in range.
                    if length.is_multiple_of(2) {
                        body.iter_mut().for_each(|byte| *byte %= 4);
                    }
                    if let Ok(walked) = check(message.api_key, version, &body) {
                        assert!(walked.consumed <= length);
                    }
                }
            }
        }
    }

    /// What the walker lets through, the decoder can read without reserving
    /// more than the bytes hold: if it got away with a count of its own, this
    /// would end the process, not fail. Where it reads to the end, it reads as
    /// far as the walker did.
    #[test]
    fn mutated_bodies_that_pass_are_safe_to_decode() {
        let mut passed = 0;
        for_bodies(4, 50, |body, random| {
            for _ in 0..20 {
                let mut mutated = body.bytes.clone();
                for _ in 0..=random.below(3) {
                    mutate(&mut mutated, random);
                }
                if let Ok(walked) = check(body.api_key, body.version, &mutated) {
                    passed += 1;
                    if let Some(read) = decode(body.api_key, body.version, &mutated) {
                        assert_eq!(read, walked.consumed, "{} v{}", body.api_key, body.version);
                    }
                }
            }
        });
        assert!(passed > 1000, "{passed}");
    }

    fn mutate(body: &mut Vec<u8>, random: &mut Random) {
        const EDGES: [u8; 8] = [0, 1, 2, 3, 0x7f, 0x80, 0xfe, 0xff];
        if body.is_empty() {
            return;
        }
        let at = random.below(body.len());
        match random.below(4) {
            0 => body[at] = EDGES[random.below(EDGES.len())],
            1 => body[at] ^= 1 << random.below(8),
            2 => body.insert(at, EDGES[random.below(EDGES.len())]),
            _ => drop(body.remove(at)),
        }
    }
}
