//! Classic groups over the wire; their rules are tested beside the state machine.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, SyncGroupRequest};

use crate::fixture::{Client, Server, text};

pub(crate) fn group_id(name: &str) -> GroupId {
    GroupId(text(name))
}

pub(crate) fn join_request(group: &str, member: &str, session_timeout_ms: i32) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(b"m"));
    JoinGroupRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_session_timeout_ms(session_timeout_ms)
        .with_rebalance_timeout_ms(300_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

pub(crate) fn rejoin_request(group: &str, member: &str, session_timeout_ms: i32) -> JoinGroupRequest {
    join_request(group, member, session_timeout_ms)
}

pub(crate) fn sync_request(group: &str, member: &str, generation: i32) -> SyncGroupRequest {
    let assignment =
        SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment(Bytes::from_static(b"a"));
    SyncGroupRequest::default()
        .with_group_id(group_id(group))
        .with_member_id(text(member))
        .with_generation_id(generation)
        .with_assignments(vec![assignment])
}

/// Joins as KIP-394 asks for, and leads the group.
async fn lead(client: &mut Client, group: &str) -> (String, i32) {
    let asked = client.call(5, join_request(group, "", 300_000)).await;
    assert_eq!(asked.error_code, 79, "MEMBER_ID_REQUIRED");
    let joined = client.call(5, join_request(group, &asked.member_id, 300_000)).await;
    assert_eq!((joined.error_code, joined.leader.as_str()), (0, asked.member_id.as_str()));
    let synced = client.call(3, sync_request(group, &joined.member_id, joined.generation_id)).await;
    assert_eq!((synced.error_code, synced.assignment.as_ref()), (0, &b"a"[..]));
    (joined.member_id.to_string(), joined.generation_id)
}

/// K11, P43.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_that_asked_for_a_member_id_holds_nobody_up() {
    let server = Server::start().await;
    let mut ghost = server.client().await;
    let asked = ghost.call(4, join_request("g", "", 300_000)).await;
    assert_eq!(asked.error_code, 79);
    assert!(!asked.member_id.is_empty());
    drop(ghost);
    let began = Instant::now();
    lead(&mut server.client().await, "g").await;
    assert!(began.elapsed() < Duration::from_secs(60), "not the ghost's session timeout of 300 s");
}

/// P50: a group goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stable_group_survives_a_restart() {
    let server = Server::start().await;
    let (member, generation) = lead(&mut server.client().await, "g").await;
    let server = server.restart().await;
    let mut client = server.client().await;
    let heartbeat = HeartbeatRequest::default()
        .with_group_id(group_id("g"))
        .with_generation_id(generation)
        .with_member_id(text(&member));
    assert_eq!(client.call(3, heartbeat).await.error_code, 0);
    let described = client.call(5, DescribeGroupsRequest::default().with_groups(vec![group_id("g")])).await;
    assert_eq!(described.groups[0].group_state.as_str(), "Stable");
    assert_eq!(described.groups[0].members[0].member_assignment.as_ref(), b"a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_parked_does_not_hold_the_group() {
    let server = Server::start().await;
    let mut first = server.client().await;
    let joined = first.call(3, join_request("g", "", 300_000)).await;
    let member = joined.member_id.to_string();
    assert_eq!(first.call(3, sync_request("g", &member, joined.generation_id)).await.error_code, 0);
    let mut parked = server.client().await;
    parked.send(3, &join_request("g", "", 300_000)).await;
    // The rebalance has begun once the heartbeat says so.
    let heartbeat = || {
        HeartbeatRequest::default()
            .with_group_id(group_id("g"))
            .with_generation_id(joined.generation_id)
            .with_member_id(text(&member))
    };
    let began = Instant::now();
    while first.call(3, heartbeat()).await.error_code != 27 {
        assert!(began.elapsed() < crate::fixture::PATIENCE);
    }
    drop(parked);
    let again = first.call(3, rejoin_request("g", &member, 300_000)).await;
    assert_eq!((again.error_code, again.leader.as_str()), (0, member.as_str()));
    assert!(again.generation_id > joined.generation_id);
}
