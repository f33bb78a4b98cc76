//! Classic groups: JoinGroup (11) v0-9, Heartbeat (12) v0-4, LeaveGroup (13) v0-5, SyncGroup (14) v0-5,
//! DescribeGroups (15) v0-6, ListGroups (16) v0-5, DeleteGroups (42) v0-2.
//!
//! The rules are in [`crate::coordinator`]; this file only translates.
//! - DescribeGroups v6: an unknown group is GROUP_ID_NOT_FOUND (KIP-1043), before that it is Dead.
//! - ListGroups v4, v5: filters by state and type (KIP-518, KIP-848).

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    ApiKey, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use sluice_protocol::ErrorCode;

use crate::coordinator::{Description, JoinErr, JoinRequest, LeaveReply, LeaveRequest, LeftMember, Reply, SyncRequest};
use crate::kafka::api::{Api, Context, Started};
use crate::kafka::text;

/// Read, delete and describe: what a client may do with a group here.
const GROUP_OPERATIONS: i32 = 3400;

fn owned(value: &Option<StrBytes>) -> Option<String> {
    value.as_ref().map(StrBytes::to_string)
}

fn code_of(outcome: Result<(), ErrorCode>) -> i16 {
    outcome.err().map_or(0, |code| code.code())
}

pub(crate) struct JoinGroup;

fn joined(reply: Option<Reply>, version: i16) -> JoinGroupResponse {
    // Before v7 the field could not be null.
    let name = |name: Option<String>| name.map(text).or_else(|| (version < 7).then(StrBytes::default));
    match reply {
        Some(Reply::Join(Ok(ok))) => {
            let members = ok.members.into_iter().map(|member| {
                JoinGroupResponseMember::default()
                    .with_member_id(text(member.member_id))
                    .with_group_instance_id(member.group_instance_id.map(text))
                    .with_metadata(member.metadata)
            });
            JoinGroupResponse::default()
                .with_generation_id(ok.generation)
                .with_protocol_type(ok.protocol_type.map(text))
                .with_protocol_name(name(ok.protocol_name))
                .with_leader(text(ok.leader))
                .with_skip_assignment(ok.skip_assignment)
                .with_member_id(text(ok.member_id))
                .with_members(members.collect())
        }
        other => {
            let refused = match other {
                Some(Reply::Join(Err(refused))) => refused,
                _ => JoinErr { code: ErrorCode::CoordinatorNotAvailable, member_id: String::new() },
            };
            JoinGroupResponse::default()
                .with_error_code(refused.code.code())
                .with_generation_id(-1)
                .with_protocol_name(name(None))
                .with_member_id(text(refused.member_id))
        }
    }
}

impl Api for JoinGroup {
    const KEY: ApiKey = ApiKey::JoinGroup;
    type Request = JoinGroupRequest;
    type Response = JoinGroupResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let join = JoinRequest {
            api_version: version,
            member_id: request.member_id.to_string(),
            group_instance_id: owned(&request.group_instance_id),
            client_id: cx.client_id.clone(),
            client_host: format!("/{}", cx.peer.ip()),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocol_type: request.protocol_type.to_string(),
            protocols: request.protocols.into_iter().map(|one| (one.name.to_string(), one.metadata)).collect(),
            reason: owned(&request.reason),
        };
        let parked = cx.broker.coordinator.join(&request.group_id, join).await;
        Started::Pending(Box::pin(async move { joined(parked.reply().await, version) }))
    }
}

pub(crate) struct SyncGroup;

impl Api for SyncGroup {
    const KEY: ApiKey = ApiKey::SyncGroup;
    type Request = SyncGroupRequest;
    type Response = SyncGroupResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let sync = SyncRequest {
            member_id: request.member_id.to_string(),
            group_instance_id: owned(&request.group_instance_id),
            generation: request.generation_id,
            protocol_type: owned(&request.protocol_type),
            protocol_name: owned(&request.protocol_name),
            assignments: request
                .assignments
                .into_iter()
                .map(|one| (one.member_id.to_string(), one.assignment))
                .collect(),
        };
        let parked = cx.broker.coordinator.sync(&request.group_id, sync).await;
        Started::Pending(Box::pin(async move {
            match parked.reply().await {
                Some(Reply::Sync(Ok(ok))) => SyncGroupResponse::default()
                    .with_protocol_type(ok.protocol_type.map(text))
                    .with_protocol_name(ok.protocol_name.map(text))
                    .with_assignment(ok.assignment),
                Some(Reply::Sync(Err(code))) => SyncGroupResponse::default().with_error_code(code.code()),
                _ => SyncGroupResponse::default().with_error_code(ErrorCode::CoordinatorNotAvailable.code()),
            }
        }))
    }
}

pub(crate) struct Heartbeat;

impl Api for Heartbeat {
    const KEY: ApiKey = ApiKey::Heartbeat;
    type Request = HeartbeatRequest;
    type Response = HeartbeatResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let coordinator = &cx.broker.coordinator;
        let instance = owned(&request.group_instance_id);
        let parked = coordinator
            .heartbeat(&request.group_id, &request.member_id, instance.as_deref(), request.generation_id)
            .await;
        let outcome = match parked.reply().await {
            Some(Reply::Heartbeat(outcome)) => outcome,
            _ => Err(ErrorCode::CoordinatorNotAvailable),
        };
        Started::Ready(HeartbeatResponse::default().with_error_code(code_of(outcome)))
    }
}

pub(crate) struct LeaveGroup;

fn left(member: LeftMember) -> MemberResponse {
    MemberResponse::default()
        .with_member_id(text(member.member_id))
        .with_group_instance_id(member.group_instance_id.map(text))
        .with_error_code(member.code.map_or(0, |code| code.code()))
}

impl Api for LeaveGroup {
    const KEY: ApiKey = ApiKey::LeaveGroup;
    type Request = LeaveGroupRequest;
    type Response = LeaveGroupResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let members = if version < 3 {
            vec![(request.member_id.to_string(), None)]
        } else {
            let members = request.members.iter();
            members.map(|member| (member.member_id.to_string(), owned(&member.group_instance_id))).collect()
        };
        let leave = LeaveRequest { api_version: version, members };
        let parked = cx.broker.coordinator.leave(&request.group_id, leave).await;
        let reply = match parked.reply().await {
            Some(Reply::Leave(reply)) => reply,
            _ => LeaveReply { code: Some(ErrorCode::CoordinatorNotAvailable), members: Vec::new() },
        };
        let response = LeaveGroupResponse::default().with_error_code(reply.code.map_or(0, |code| code.code()));
        Started::Ready(response.with_members(reply.members.into_iter().map(left).collect()))
    }
}

pub(crate) struct DescribeGroups;

fn described(description: Description) -> DescribedGroup {
    let members = description.members.into_iter().map(|member| {
        DescribedGroupMember::default()
            .with_member_id(text(member.member_id))
            .with_group_instance_id(member.group_instance_id.map(text))
            .with_client_id(text(member.client_id))
            .with_client_host(text(member.client_host))
            .with_member_metadata(member.metadata)
            .with_member_assignment(member.assignment)
    });
    DescribedGroup::default()
        .with_group_state(text(description.state.name()))
        .with_protocol_type(text(description.protocol_type))
        .with_protocol_data(text(description.protocol_data))
        .with_members(members.collect())
}

impl Api for DescribeGroups {
    const KEY: ApiKey = ApiKey::DescribeGroups;
    type Request = DescribeGroupsRequest;
    type Response = DescribeGroupsResponse;

    async fn start(cx: &Context, version: i16, request: Self::Request) -> Started<Self::Response> {
        let operations = if request.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
        let mut groups = Vec::with_capacity(request.groups.len());
        for id in request.groups {
            let group = match cx.broker.coordinator.describe(&id).await {
                Some(description) => described(description),
                None if version >= 6 => DescribedGroup::default()
                    .with_error_code(ErrorCode::GroupIdNotFound.code())
                    .with_error_message(Some(text(format!("Group {} not found.", id.as_str()))))
                    .with_group_state(text("Dead")),
                None => DescribedGroup::default().with_group_state(text("Dead")),
            };
            groups.push(group.with_group_id(id).with_authorized_operations(operations));
        }
        Started::Ready(DescribeGroupsResponse::default().with_groups(groups))
    }
}

pub(crate) struct ListGroups;

impl Api for ListGroups {
    const KEY: ApiKey = ApiKey::ListGroups;
    type Request = ListGroupsRequest;
    type Response = ListGroupsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let states: Vec<&str> = request.states_filter.iter().map(StrBytes::as_str).collect();
        let types: Vec<&str> = request.types_filter.iter().map(StrBytes::as_str).collect();
        let groups = cx.broker.coordinator.list(&states, &types).await.into_iter().map(|listed| {
            ListedGroup::default()
                .with_group_id(text(listed.id).into())
                .with_protocol_type(text(listed.protocol_type))
                .with_group_state(text(listed.state.name()))
                .with_group_type(text("classic"))
        });
        Started::Ready(ListGroupsResponse::default().with_groups(groups.collect()))
    }
}

pub(crate) struct DeleteGroups;

impl Api for DeleteGroups {
    const KEY: ApiKey = ApiKey::DeleteGroups;
    type Request = DeleteGroupsRequest;
    type Response = DeleteGroupsResponse;

    async fn start(cx: &Context, _version: i16, request: Self::Request) -> Started<Self::Response> {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for id in request.groups_names {
            let outcome = cx.broker.coordinator.delete(&id).await;
            results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(code_of(outcome)));
        }
        Started::Ready(DeleteGroupsResponse::default().with_results(results))
    }
}
