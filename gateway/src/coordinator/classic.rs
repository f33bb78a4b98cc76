//! The classic consumer group (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) as a pure state machine.
//!
//! **Contract.** One [`Group`] is one group. It does no I/O, reads no clock and makes no random numbers: the caller
//! gives the time in milliseconds, a [`Token`] that names the request, and a fresh UUID for a member id. Every
//! operation returns a [`Step`]. The caller
//! 1. runs the operations of one group one after another,
//! 2. makes `step.record` durable, if there is one (a whole snapshot: the newest replaces all older ones),
//! 3. only then releases `step.replies`, each to the request its token names. A request that is not answered in its
//!    own step is *parked* and is answered by a later one: exactly one reply for each token,
//! 4. calls [`Group::tick`] at [`Group::next_deadline_ms`], which may move after every operation,
//! 5. gives the step back through [`Group::persist_failed`] if the record could not be written, and goes on with the
//!    step which that returns instead,
//! 6. calls [`Group::abandon`] when the connection of a parked request goes away.
//!
//! **Life of a group.**
//! ```text
//!            join                    all joined, or deadline           the leader's SyncGroup
//!   Empty ---------> PreparingRebalance ------------> CompletingRebalance ------------> Stable
//!     ^                |   ^       ^                          |                            |
//!     +-- nobody left -+   |       +-- leave, expiry, rejoin -+                            |
//!     generation + 1       +---------- leave, expiry, new member, rejoin of the leader ----+
//! ```
//! Dead is the end: deleted, or handed to another coordinator.
//!
//! **Invariants.** The generation grows by one at each end of a join phase. A generation has one leader and one
//! protocol. Only the leader is told who the members are. Stable means that each member has an assignment (perhaps
//! empty) and that the record was handed out. Only the hard state is in the record ([`GroupRecord`]): no heartbeats,
//! no parked requests, no pending members.
//!
//! **Deliberate differences from Apache Kafka** (none of them shows in the recorded answers of a real broker):
//! - Pending members (KIP-394) never hold up a join phase; Kafka waits for them until the rebalance timeout.
//! - A pending member that leaves does not make a Stable group rebalance.
//! - A parked request that is superseded (the member sent the same request again) is answered with
//!   REBALANCE_IN_PROGRESS, and a parked SyncGroup of a member that leaves with UNKNOWN_MEMBER_ID; Kafka drops both.
//! - A rebalance timeout of zero or less means the session timeout, in every version.
//! - A tie in the protocol vote goes to the protocol in use, then to the leader's order; Kafka's choice is arbitrary.
//! - The loss of a connection is noticed: see [`Group::abandon`].
//!
//! What this module does not do: committed offsets, deletion of the record, authorization, KIP-848 groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use sluice_protocol::ErrorCode;

mod inspect;
mod join;
mod phase;
mod record;
mod subscription;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub(crate) use inspect::{Description, check_commit_without_group};
pub(crate) use record::{GroupRecord, MemberRecord};

/// Names one request, parked or not. Unique for as long as the request is unanswered; the caller chooses it.
pub(crate) type Token = u64;

/// How long a *new* member may stay parked in JoinGroup. It cannot heartbeat yet, so its session clock does not run;
/// without this bound each retry of a client that gave up would leave one more ghost in the group.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 5 * 60 * 1000;

/// The broker settings a group obeys. Names in brackets are Kafka's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Shorter session timeouts are refused (`group.min.session.timeout.ms`).
    pub(crate) session_timeout_min_ms: i32,
    /// Longer session timeouts are refused (`group.max.session.timeout.ms`).
    pub(crate) session_timeout_max_ms: i32,
    /// How long the first join phase of an Empty group waits for more members
    /// (`group.initial.rebalance.delay.ms`). Zero ends it with the first member.
    pub(crate) initial_rebalance_delay_ms: i32,
    /// The most members a group may have (`group.max.size`).
    pub(crate) group_max_size: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_max_size: usize::MAX,
        }
    }
}

/// Where a group stands. The names are those of DescribeGroups and ListGroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No members; there may be committed offsets and pending members.
    Empty,
    /// Members are asked to join again.
    PreparingRebalance,
    /// Members have the new generation; the leader's assignment is awaited.
    CompletingRebalance,
    /// Each member has its assignment.
    Stable,
    /// Deleted or unloaded; every request is sent to look for the coordinator again.
    Dead,
}

impl State {
    /// The name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// A JoinGroup request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinRequest {
    /// Version 4 and later need a known member id (KIP-394); version 9 and later may skip the assignment (KIP-814).
    pub(crate) api_version: i16,
    /// Empty if the client has none yet.
    pub(crate) member_id: String,
    /// Present for a static member (KIP-345).
    pub(crate) group_instance_id: Option<String>,
    /// From the request header; the first part of a dynamic member's id.
    pub(crate) client_id: String,
    /// As DescribeGroups shows it, such as `/127.0.0.1`.
    pub(crate) client_host: String,
    /// A silent member is removed after this long.
    pub(crate) session_timeout_ms: i32,
    /// Ignored in version 0, which does not have it.
    pub(crate) rebalance_timeout_ms: i32,
    /// `consumer`, `connect` and so on.
    pub(crate) protocol_type: String,
    /// Name and metadata, the preferred protocol first.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// Why the client joins (KIP-800); for logs only.
    pub(crate) reason: Option<String>,
}

/// A SyncGroup request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SyncRequest {
    /// The member's id.
    pub(crate) member_id: String,
    /// Version 3 and later.
    pub(crate) group_instance_id: Option<String>,
    /// The generation of the JoinGroup reply.
    pub(crate) generation: i32,
    /// Version 5 and later (KIP-559); not checked if absent.
    pub(crate) protocol_type: Option<String>,
    /// Version 5 and later (KIP-559); not checked if absent.
    pub(crate) protocol_name: Option<String>,
    /// Member id and assignment; only the leader's count.
    pub(crate) assignments: Vec<(String, Bytes)>,
}

/// A LeaveGroup request. Versions 0 to 2 name one member by its id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeaveRequest {
    /// Decides the shape of the reply: one code before version 3, one for each member since.
    pub(crate) api_version: i16,
    /// Who leaves: member id (may be empty if the instance id is given) and instance id.
    pub(crate) members: Vec<(String, Option<String>)>,
}

/// A successful JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinOk {
    /// The generation joined.
    pub(crate) generation: i32,
    /// The group's protocol type (on the wire since version 7).
    pub(crate) protocol_type: Option<String>,
    /// The protocol the vote chose.
    pub(crate) protocol_name: Option<String>,
    /// The leader's member id.
    pub(crate) leader: String,
    /// The id of the member that asked.
    pub(crate) member_id: String,
    /// The leader must not compute a new assignment (version 9, KIP-814).
    pub(crate) skip_assignment: bool,
    /// All members for the leader, none for the others.
    pub(crate) members: Vec<JoinMember>,
}

/// One member as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinMember {
    /// The member's id.
    pub(crate) member_id: String,
    /// Its instance id, if static.
    pub(crate) group_instance_id: Option<String>,
    /// Its metadata for the chosen protocol.
    pub(crate) metadata: Bytes,
}

/// A refused JoinGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JoinErr {
    /// Why.
    pub(crate) code: ErrorCode,
    /// What the reply's member id field holds: for MEMBER_ID_REQUIRED the new id.
    pub(crate) member_id: String,
}

/// A successful SyncGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyncOk {
    /// On the wire since version 5.
    pub(crate) protocol_type: Option<String>,
    /// On the wire since version 5.
    pub(crate) protocol_name: Option<String>,
    /// What the leader gave this member.
    pub(crate) assignment: Bytes,
}

/// The answer to a LeaveGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaveReply {
    /// The whole request's code; before version 3 the one member's.
    pub(crate) code: Option<ErrorCode>,
    /// One entry for each member asked for, in order; none before version 3.
    pub(crate) members: Vec<LeftMember>,
}

/// What became of one member that was asked to leave. The ids are those of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftMember {
    /// As asked.
    pub(crate) member_id: String,
    /// As asked.
    pub(crate) group_instance_id: Option<String>,
    /// `None` if it left.
    pub(crate) code: Option<ErrorCode>,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To JoinGroup.
    Join(Result<JoinOk, JoinErr>),
    /// To SyncGroup.
    Sync(Result<SyncOk, ErrorCode>),
    /// To Heartbeat.
    Heartbeat(Result<(), ErrorCode>),
    /// To LeaveGroup.
    Leave(LeaveReply),
}

/// What an operation brings: first `record` becomes durable, then the replies go out.
#[derive(Debug, Default)]
#[must_use = "a dropped step loses replies"]
pub(crate) struct Step {
    /// The group's new hard state, if it changed.
    pub(crate) record: Option<GroupRecord>,
    /// Which request gets which answer.
    pub(crate) replies: Vec<(Token, Reply)>,
    /// How to go back if `record` cannot be written.
    undo: Undo,
}

/// How [`Group::persist_failed`] goes back.
#[derive(Debug, Default)]
enum Undo {
    /// Nothing to take back: an Empty group whose record is lost has no members who could disagree.
    #[default]
    Nothing,
    /// The assignment of this generation is not stored: all must join again.
    Assignment { generation: i32 },
    /// A static member's new id is not stored: the old id is good again.
    StaticMember { new_id: String, old: Box<Member>, leader: Option<String> },
}

/// A member and what is known of its client.
#[derive(Debug, Clone)]
struct Member {
    id: String,
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    session_timeout_ms: i32,
    rebalance_timeout_ms: i32,
    /// Name and metadata, the preferred protocol first. After a restart only the chosen one.
    protocols: Vec<(String, Bytes)>,
    assignment: Bytes,
    /// Order of arrival; the oldest is preferred as a new leader.
    seq: u64,
    /// When the session ends, unless the member is parked.
    expires_ms: i64,
    /// Has not finished a join phase yet: see [`NEW_MEMBER_JOIN_TIMEOUT_MS`].
    is_new: bool,
    /// The client has been told its id, so it can come back with it.
    knows_id: bool,
    parked_join: Option<Token>,
    parked_sync: Option<Token>,
}

impl Member {
    /// A parked member counts as alive: its client waits for us and cannot heartbeat. A new member is the exception.
    fn is_exempt_from_expiry(&self) -> bool {
        !self.is_new && (self.parked_join.is_some() || self.parked_sync.is_some())
    }

    /// Restarts the session clock. Never shortens the longer time a new member has.
    fn touch(&mut self, now_ms: i64) {
        let expires_ms = after(now_ms, self.session_timeout_ms);
        self.expires_ms = if self.is_new { expires_ms.max(self.expires_ms) } else { expires_ms };
    }

    fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    fn metadata(&self, protocol: Option<&str>) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| Some(name.as_str()) == protocol);
        found.map(|(_, metadata)| metadata.clone()).unwrap_or_default()
    }
}

/// The first join phase of a group waits a little, and again for as long as new members keep coming.
#[derive(Debug, Clone)]
struct InitialDelay {
    /// What may still be added, so that the whole stays within the rebalance timeout.
    remaining_ms: i32,
    /// Somebody came since the last look.
    member_added: bool,
}

/// One classic group. See the module head for how to drive it.
#[derive(Debug)]
pub(crate) struct Group {
    id: String,
    state: State,
    /// When `state` was entered.
    state_since_ms: i64,
    generation: i32,
    protocol_type: Option<String>,
    protocol_name: Option<String>,
    leader: Option<String>,
    members: BTreeMap<String, Member>,
    /// Instance id to member id.
    statics: HashMap<String, String>,
    /// Ids given out with MEMBER_ID_REQUIRED, and when each lapses. Not members: they hold nothing up.
    pending: BTreeMap<String, i64>,
    /// Members with a JoinGroup reply of this generation and no SyncGroup yet.
    pending_sync: BTreeSet<String>,
    /// What the members of this generation subscribe to; `None` if not known.
    subscribed: Option<BTreeSet<String>>,
    seq_next: u64,
    initial_rebalance_delay_ms: i32,
    /// Set while the join phase is that of an Empty group and is delayed.
    initial: Option<InitialDelay>,
    join_deadline_ms: Option<i64>,
    sync_deadline_ms: Option<i64>,
}

impl Group {
    /// A group nobody has heard of. Until something succeeds it answers as a missing group does.
    pub(crate) fn new(id: String) -> Self {
        Self {
            id,
            state: State::Empty,
            state_since_ms: -1,
            generation: 0,
            protocol_type: None,
            protocol_name: None,
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            subscribed: None,
            seq_next: 0,
            initial_rebalance_delay_ms: 0,
            initial: None,
            join_deadline_ms: None,
            sync_deadline_ms: None,
        }
    }

    /// The group as the record left it. With members it is Stable and goes on in the same generation; the session
    /// clocks start at `now_ms`, since heartbeats are not stored.
    pub(crate) fn restore(record: GroupRecord, now_ms: i64) -> Self {
        let mut group = Self::new(record.group_id);
        group.state = if record.members.is_empty() { State::Empty } else { State::Stable };
        group.state_since_ms = record.state_since_ms;
        group.generation = record.generation;
        group.protocol_type = record.protocol_type.filter(|protocol_type| !protocol_type.is_empty());
        group.protocol_name = record.protocol_name;
        for member in record.members {
            group.restore_member(member, now_ms);
        }
        let oldest = group.members.values().min_by_key(|member| member.seq).map(|member| member.id.clone());
        group.leader = record.leader.filter(|leader| group.members.contains_key(leader)).or(oldest);
        group.subscribed = group.read_subscriptions();
        group
    }

    fn restore_member(&mut self, member: MemberRecord, now_ms: i64) {
        if let Some(instance_id) = &member.group_instance_id {
            self.statics.insert(instance_id.clone(), member.member_id.clone());
        }
        let protocol = self.protocol_name.clone().unwrap_or_default();
        let given_ms = member.rebalance_timeout_ms;
        let restored = Member {
            id: member.member_id.clone(),
            instance_id: member.group_instance_id,
            client_id: member.client_id,
            client_host: member.client_host,
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: if given_ms > 0 { given_ms } else { member.session_timeout_ms },
            protocols: vec![(protocol, member.subscription)],
            assignment: member.assignment,
            seq: self.seq_next,
            expires_ms: after(now_ms, member.session_timeout_ms),
            is_new: false,
            knows_id: true,
            parked_join: None,
            parked_sync: None,
        };
        self.seq_next += 1;
        self.members.insert(member.member_id, restored);
    }

    /// The hard state, members in order of arrival.
    fn record(&self) -> GroupRecord {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.seq);
        GroupRecord {
            group_id: self.id.clone(),
            protocol_type: self.protocol_type.clone(),
            generation: self.generation,
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone(),
            state_since_ms: self.state_since_ms,
            members: members.into_iter().map(|member| self.member_record(member)).collect(),
        }
    }

    fn member_record(&self, member: &Member) -> MemberRecord {
        MemberRecord {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            subscription: member.metadata(self.protocol_name.as_deref()),
            assignment: member.assignment.clone(),
        }
    }

    fn enter(&mut self, state: State, now_ms: i64) {
        self.state = state;
        self.state_since_ms = now_ms;
    }

    /// Kafka's order of checks for every request by a member: first the instance id (unknown, then fenced), then the
    /// member id. The generation comes after this.
    fn validate_member(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(owner) if owner != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    fn touch(&mut self, member_id: &str, now_ms: i64) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.touch(now_ms);
        }
    }

    /// Handles Heartbeat. In PreparingRebalance the answer tells the member to join again, and it counts as a sign
    /// of life all the same.
    pub(crate) fn heartbeat(
        &mut self,
        now_ms: i64,
        token: Token,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Step {
        let result = self.try_heartbeat(now_ms, member_id, instance_id, generation);
        Step { replies: vec![(token, Reply::Heartbeat(result))], ..Step::default() }
    }

    fn try_heartbeat(
        &mut self,
        now_ms: i64,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if self.id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.validate_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        self.touch(member_id, now_ms);
        match self.state {
            State::PreparingRebalance => Err(ErrorCode::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => Ok(()),
            State::Empty | State::Dead => Err(ErrorCode::UnknownMemberId),
        }
    }

    /// Whether OffsetCommit may go on, in Kafka's order: generation -1 on an Empty group is a consumer without group
    /// management, or a tool; else member, generation, and that no assignment is being awaited. A commit by a member
    /// of a Stable or PreparingRebalance group is a sign of life.
    ///
    /// For a group that does not exist see [`check_commit_without_group`].
    pub(crate) fn check_commit(
        &mut self,
        now_ms: i64,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        let by_member = self.check_committer(member_id, instance_id, generation)?;
        if !by_member && self.state != State::Empty {
            return Err(ErrorCode::UnknownMemberId);
        }
        if self.state == State::CompletingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        self.touch(member_id, now_ms);
        Ok(())
    }

    /// `Ok(true)` for a valid member, `Ok(false)` for a commit that names none.
    fn check_committer(&self, member_id: &str, instance_id: Option<&str>, generation: i32) -> Result<bool, ErrorCode> {
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let names_member = generation >= 0 || !member_id.is_empty() || instance_id.is_some();
        if !names_member || (generation < 0 && self.state == State::Empty) {
            return Ok(false);
        }
        self.validate_member(member_id, instance_id)?;
        if generation == self.generation { Ok(true) } else { Err(ErrorCode::IllegalGeneration) }
    }
}

/// `now_ms` plus a timeout; a negative timeout counts as zero.
fn after(now_ms: i64, timeout_ms: i32) -> i64 {
    now_ms.saturating_add(i64::from(timeout_ms.max(0)))
}
