//! ApiVersions (18), v0-4.
//!
//! - v3+: client name and version are checked (KIP-511); the response header stays v0 at all versions.
//! - An unknown version is answered with code 35 in the v0 layout and the connection lives on.
//! - Produce is advertised from 0 although 0-2 are refused: librdkafka turns compression off when a
//!   broker lacks them (KAFKA-18659).

use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};
use sluice_protocol::ErrorCode;

use super::served_apis;
use crate::kafka::api::{Api, Context, Started};

pub(crate) struct ApiVersions;

fn list() -> Vec<ApiVersion> {
    let advertised = |served: &super::Served| if served.key == ApiKey::Produce { 0 } else { served.min };
    served_apis()
        .iter()
        .map(|served| {
            ApiVersion::default()
                .with_api_key(served.key as i16)
                .with_min_version(advertised(served))
                .with_max_version(served.max)
        })
        .collect()
}

/// The answer to a version of ApiVersions that is not served: only the range of ApiVersions itself.
pub(super) fn unsupported() -> ApiVersionsResponse {
    let own = list().into_iter().filter(|one| one.api_key == ApiKey::ApiVersions as i16);
    ApiVersionsResponse::default().with_error_code(ErrorCode::UnsupportedVersion.code()).with_api_keys(own.collect())
}

/// KIP-511: letters and digits, with dots and dashes inside.
fn is_software_name(name: &str) -> bool {
    let ends =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    ends && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

impl Api for ApiVersions {
    const KEY: ApiKey = ApiKey::ApiVersions;
    type Request = ApiVersionsRequest;
    type Response = ApiVersionsResponse;

    async fn start(_cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let named =
            is_software_name(&request.client_software_name) && is_software_name(&request.client_software_version);
        if version >= 3 && !named {
            return Started::Ready(ApiVersionsResponse::default().with_error_code(ErrorCode::InvalidRequest.code()));
        }
        Started::Ready(ApiVersionsResponse::default().with_api_keys(list()).with_finalized_features_epoch(-1))
    }
}
