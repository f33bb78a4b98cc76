//! FindCoordinator (10), v0-6: this server is the coordinator of every group and transactional id.
//!
//! v4+: several keys, each with its own error (KIP-699). Key types: 0 group, 1 transaction; share
//! groups (2) are not offered.

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{ApiKey, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use sluice_protocol::ErrorCode;

use crate::kafka::api::{Api, Context, Started};
use crate::kafka::text;

pub(crate) struct FindCoordinator;

fn fault(key_type: i8) -> Option<ErrorCode> {
    (!(0..=1).contains(&key_type)).then_some(ErrorCode::InvalidRequest)
}

impl Api for FindCoordinator {
    const KEY: ApiKey = ApiKey::FindCoordinator;
    type Request = FindCoordinatorRequest;
    type Response = FindCoordinatorResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let (host, port) = cx.broker.advertised(cx.local);
        let id = BrokerId(cx.broker.config.kafka_node_id);
        let fault = fault(request.key_type);
        if version < 4 {
            let response = FindCoordinatorResponse::default();
            return Started::Ready(match fault {
                Some(code) => response.with_error_code(code.code()).with_node_id(BrokerId(-1)).with_port(-1),
                None => response
                    .with_node_id(id)
                    .with_host(text(host))
                    .with_port(port)
                    .with_error_message(Some(text("NONE"))),
            });
        }
        let coordinators = request.coordinator_keys.into_iter().map(|key| {
            let answer = Coordinator::default().with_key(key);
            match fault {
                Some(code) => answer.with_error_code(code.code()).with_node_id(BrokerId(-1)).with_port(-1),
                None => answer.with_node_id(id).with_host(text(host.clone())).with_port(port),
            }
        });
        Started::Ready(FindCoordinatorResponse::default().with_coordinators(coordinators.collect()))
    }
}
