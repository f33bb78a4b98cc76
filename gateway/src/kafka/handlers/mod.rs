//! THE LIST of Kafka APIs. From it come dispatch, the answer to ApiVersions, metric labels and the
//! table in docs/compatibility.md. Adding an API is one implementation of [`Api`] and one line here.

mod api_versions;
mod cluster;
mod configs;
mod fetch;
mod find_coordinator;
mod groups;
mod list_offsets;
mod metadata;
mod offsets;
mod produce;
mod records;
mod topics;

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, Message};
use sluice_protocol::fetch_body::Piece;
use sluice_protocol::frame::{self, RequestHeader};
use sluice_protocol::shape::{self, ShapeLimits};

use super::api::{Api, BoxFuture, Context, Frame, Started};

/// A request whose first phase is over.
pub(crate) enum Outcome {
    /// A frame to write.
    Ready(Frame),
    /// A frame to come; `None` writes nothing, `Err` closes the connection.
    Pending(BoxFuture<Result<Option<Frame>, Closed>>),
}

/// The connection must be closed: why, for the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Closed {
    /// The bytes are no request.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// An API or a version that is not served.
    #[error("API key {0} version {1} is not served")]
    NotServed(i16, i16),
    /// acks=0 has no other way to report a failure.
    #[error("a produce request with acks=0 failed")]
    SilentFailure,
    /// The response does not encode at this version.
    #[error("the response does not encode: {0}")]
    Encode(String),
}

/// Versions of one API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The API.
    pub key: ApiKey,
    /// Lowest version served.
    pub min: i16,
    /// Highest version served.
    pub max: i16,
}

fn served<A: Api>() -> Served {
    let (request, response) = (A::Request::VERSIONS, A::Response::VERSIONS);
    Served { key: A::KEY, min: request.min.max(response.min), max: request.max.min(response.max) }
}

async fn run<A: Api>(cx: &Context, header: &RequestHeader, mut body: Bytes) -> Result<Outcome, Closed> {
    let version = header.api_version;
    shape::check_request(header.api_key, version, &body, &ShapeLimits::default())
        .map_err(|error| Closed::Malformed(error.to_string()))?;
    let request = A::Request::decode(&mut body, version).map_err(|error| Closed::Malformed(error.to_string()))?;
    let correlation_id = header.correlation_id;
    match A::start(cx, version, request).await {
        Started::Ready(response) => encode::<A>(&response, version, correlation_id).map(Outcome::Ready),
        Started::Pending(response) => {
            Ok(Outcome::Pending(Box::pin(
                async move { encode::<A>(&response.await, version, correlation_id).map(Some) },
            )))
        }
        Started::Frame(frame) => Ok(Outcome::Pending(Box::pin(async move { Ok(Some(frame.await)) }))),
        Started::Silent(done) => {
            Ok(Outcome::Pending(Box::pin(
                async move { if done.await { Ok(None) } else { Err(Closed::SilentFailure) } },
            )))
        }
    }
}

fn encode<A: Api>(response: &A::Response, version: i16, correlation_id: i32) -> Result<Frame, Closed> {
    encode_as(A::KEY, response, version, correlation_id)
}

fn encode_as<R: Encodable>(key: ApiKey, response: &R, version: i16, correlation_id: i32) -> Result<Frame, Closed> {
    let size = response.compute_size(version).map_err(|error| Closed::Encode(error.to_string()))?;
    let mut buf: BytesMut = frame::start_response(key, version, correlation_id, size);
    response.encode(&mut buf, version).map_err(|error| Closed::Encode(error.to_string()))?;
    frame::finish_response(&mut buf, 0);
    Ok(vec![Piece::Envelope(buf.freeze())])
}

macro_rules! apis {
    ($($key:ident => $handler:path),* $(,)?) => {
        /// Every API that is served, with its versions, by key.
        #[must_use]
        pub fn served_apis() -> Vec<Served> {
            let mut all = vec![$(served::<$handler>()),*];
            all.sort_by_key(|served| served.key as i16);
            all
        }

        async fn route(cx: &Context, key: ApiKey, header: &RequestHeader, body: Bytes) -> Result<Outcome, Closed> {
            match key {
                $(ApiKey::$key => run::<$handler>(cx, header, body).await,)*
                _ => Err(Closed::NotServed(header.api_key, header.api_version)),
            }
        }
    };
}

apis! {
    Produce => produce::Produce,
    Fetch => fetch::Fetch,
    ListOffsets => list_offsets::ListOffsets,
    Metadata => metadata::Metadata,
    OffsetCommit => offsets::OffsetCommit,
    OffsetFetch => offsets::OffsetFetch,
    FindCoordinator => find_coordinator::FindCoordinator,
    JoinGroup => groups::JoinGroup,
    Heartbeat => groups::Heartbeat,
    LeaveGroup => groups::LeaveGroup,
    SyncGroup => groups::SyncGroup,
    DescribeGroups => groups::DescribeGroups,
    ListGroups => groups::ListGroups,
    ApiVersions => api_versions::ApiVersions,
    CreateTopics => topics::CreateTopics,
    DeleteTopics => topics::DeleteTopics,
    DeleteRecords => records::DeleteRecords,
    InitProducerId => produce::InitProducerId,
    OffsetForLeaderEpoch => list_offsets::OffsetForLeaderEpoch,
    DescribeConfigs => configs::DescribeConfigs,
    AlterConfigs => configs::AlterConfigs,
    CreatePartitions => topics::CreatePartitions,
    DeleteGroups => groups::DeleteGroups,
    IncrementalAlterConfigs => configs::IncrementalAlterConfigs,
    OffsetDelete => offsets::OffsetDelete,
    DescribeCluster => cluster::DescribeCluster,
    DescribeTopicPartitions => cluster::DescribeTopicPartitions,
}

static SERVED: LazyLock<Vec<Served>> = LazyLock::new(served_apis);

/// Serves one request.
pub(crate) async fn dispatch(cx: &Context, header: &RequestHeader, body: Bytes) -> Result<Outcome, Closed> {
    let not_served = Closed::NotServed(header.api_key, header.api_version);
    let Ok(key) = ApiKey::try_from(header.api_key) else { return Err(not_served) };
    let Some(range) = SERVED.iter().find(|served| served.key == key) else { return Err(not_served) };
    if header.api_version < range.min || header.api_version > range.max {
        if key == ApiKey::ApiVersions {
            // KIP-511: in the oldest layout, so that a newer client can read it and ask again.
            return encode_as(key, &api_versions::unsupported(), 0, header.correlation_id).map(Outcome::Ready);
        }
        return Err(not_served);
    }
    route(cx, key, header, body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(key: ApiKey) -> Served {
        served_apis().into_iter().find(|served| served.key == key).expect("served")
    }

    #[test]
    fn keys_are_unique_and_ranges_are_not_empty() {
        let all = served_apis();
        assert!(all.windows(2).all(|pair| (pair[0].key as i16) < (pair[1].key as i16)));
        assert!(all.iter().all(|served| served.min <= served.max));
    }

    /// P03: clients pick features by combinations of versions.
    #[test]
    fn versions_that_carry_only_topic_ids_imply_ids_in_metadata() {
        assert!(range(ApiKey::Metadata).max >= 10);
        assert!(range(ApiKey::Produce).max >= 13 && range(ApiKey::Fetch).max >= 13);
        let consumer_protocol = served_apis().iter().any(|served| served.key == ApiKey::ConsumerGroupHeartbeat);
        assert!(!consumer_protocol, "KIP-848 is advertised only when it is whole");
    }
}
