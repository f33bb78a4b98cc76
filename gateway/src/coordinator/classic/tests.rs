//! The answers of a real Apache Kafka 4.4.0 broker, put to the state machine probe by probe, and then the rules that
//! need a clock: timers, delays, restarts, lost records, lost connections.

use super::inspect::MemberDescription;
use super::*;

use uuid::Uuid;

/// A group with a clock, and every reply so far.
pub(super) struct Bench {
    pub(super) group: Group,
    pub(super) config: Config,
    pub(super) now_ms: i64,
    pub(super) token: Token,
    replies: HashMap<Token, Reply>,
    record: Option<GroupRecord>,
}

/// Builds a JoinGroup request with the probes' defaults.
#[derive(Clone)]
struct Join(JoinRequest);

const SESSION_MS: i64 = 10_000;
const REBALANCE_MS: i64 = 5_000;
const ASSIGNMENT: &[u8] = &[0; 10];

fn subscription(topic: &str) -> Bytes {
    let mut bytes = vec![0, 0, 0, 0, 0, 1, 0, topic.len() as u8];
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(&[255; 4]);
    bytes.into()
}

impl Join {
    fn v(api_version: i16) -> Self {
        Self(JoinRequest {
            api_version,
            member_id: String::new(),
            group_instance_id: None,
            client_id: "probe".into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: SESSION_MS as i32,
            rebalance_timeout_ms: REBALANCE_MS as i32,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), subscription("t"))],
            reason: None,
        })
    }
    fn id(mut self, member_id: &str) -> Self {
        self.0.member_id = member_id.into();
        self
    }
    fn instance(mut self, instance_id: &str) -> Self {
        self.0.group_instance_id = Some(instance_id.into());
        self
    }
    fn protocols(mut self, names: &[&str]) -> Self {
        self.0.protocols = names.iter().map(|name| ((*name).into(), subscription("t"))).collect();
        self
    }
    fn metadata(mut self, topic: &str) -> Self {
        self.0.protocols.iter_mut().for_each(|(_, metadata)| *metadata = subscription(topic));
        self
    }
    fn protocol_type(mut self, protocol_type: &str) -> Self {
        self.0.protocol_type = protocol_type.into();
        self
    }
    fn session(mut self, timeout_ms: i32) -> Self {
        self.0.session_timeout_ms = timeout_ms;
        self
    }
    fn rebalance(mut self, timeout_ms: i32) -> Self {
        self.0.rebalance_timeout_ms = timeout_ms;
        self
    }
}

fn sync_request(member_id: &str, generation: i32, assigned: &[&str]) -> SyncRequest {
    SyncRequest {
        member_id: member_id.into(),
        group_instance_id: None,
        generation,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assigned.iter().map(|id| ((*id).into(), Bytes::from_static(ASSIGNMENT))).collect(),
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::named("g6")
    }

    fn named(id: &str) -> Self {
        let config = Config { initial_rebalance_delay_ms: 0, ..Config::default() };
        let group = Group::new(id.into());
        Self { group, config, now_ms: 1_000, token: 0, replies: HashMap::new(), record: None }
    }

    fn take(&mut self, step: Step) {
        for (token, reply) in step.replies {
            assert!(self.replies.insert(token, reply).is_none(), "two replies for token {token}");
        }
        self.record = step.record.or(self.record.take());
    }

    fn next_token(&mut self) -> Token {
        self.token += 1;
        self.token
    }

    /// Sends a join and leaves it where it is.
    fn join_later(&mut self, join: &Join) -> Token {
        let token = self.next_token();
        let fresh = Uuid::from_u128(u128::from(token));
        let step = self.group.join(&self.config, self.now_ms, token, fresh, join.0.clone());
        self.take(step);
        token
    }

    fn joined(&self, token: Token) -> Option<Result<JoinOk, JoinErr>> {
        match self.replies.get(&token) {
            Some(Reply::Join(result)) => Some(result.clone()),
            Some(other) => panic!("not a join reply: {other:?}"),
            None => None,
        }
    }

    fn join(&mut self, join: &Join) -> Result<JoinOk, JoinErr> {
        let token = self.join_later(join);
        self.joined(token).expect("parked")
    }

    /// The round of KIP-394, if the version has it; the second request is left where it is.
    fn enter_later(&mut self, join: &Join) -> (Token, String) {
        if join.0.api_version < 4 || join.0.group_instance_id.is_some() {
            let token = self.join_later(join);
            let newest = self.group.members.values().max_by_key(|member| member.seq);
            return (token, newest.expect("joined").id.clone());
        }
        let refused = self.join(join).expect_err("an id comes first");
        assert_eq!(refused.code, ErrorCode::MemberIdRequired);
        let token = self.join_later(&join.clone().id(&refused.member_id));
        (token, refused.member_id)
    }

    fn enter(&mut self, join: &Join) -> JoinOk {
        let (token, _) = self.enter_later(join);
        self.joined(token).expect("parked").expect("joined")
    }

    fn sync_later(&mut self, request: &SyncRequest) -> Token {
        let token = self.next_token();
        let step = self.group.sync(self.now_ms, token, request);
        self.take(step);
        token
    }

    fn synced(&self, token: Token) -> Option<Result<SyncOk, ErrorCode>> {
        match self.replies.get(&token) {
            Some(Reply::Sync(result)) => Some(result.clone()),
            Some(other) => panic!("not a sync reply: {other:?}"),
            None => None,
        }
    }

    fn sync(&mut self, request: &SyncRequest) -> Result<SyncOk, ErrorCode> {
        let token = self.sync_later(request);
        self.synced(token).expect("parked")
    }

    fn heartbeat(&mut self, member_id: &str, instance: Option<&str>, generation: i32) -> i16 {
        let token = self.next_token();
        let step = self.group.heartbeat(self.now_ms, token, member_id, instance, generation);
        self.take(step);
        match &self.replies[&token] {
            Reply::Heartbeat(result) => code(*result),
            other => panic!("not a heartbeat reply: {other:?}"),
        }
    }

    fn commit(&mut self, member_id: &str, instance: Option<&str>, generation: i32) -> i16 {
        code(self.group.check_commit(self.now_ms, member_id, instance, generation))
    }

    /// The whole request's code and each member's.
    fn leave(&mut self, api_version: i16, members: &[(&str, Option<&str>)]) -> (i16, Vec<i16>) {
        let token = self.next_token();
        let named = members.iter().map(|(id, instance)| ((*id).to_owned(), instance.map(str::to_owned)));
        let request = LeaveRequest { api_version, members: named.collect() };
        let step = self.group.leave(self.now_ms, token, &request);
        self.take(step);
        match &self.replies[&token] {
            Reply::Leave(reply) => {
                let codes = reply.members.iter().map(|member| opt_code(member.code));
                (opt_code(reply.code), codes.collect())
            }
            other => panic!("not a leave reply: {other:?}"),
        }
    }

    /// Lets time pass, with a tick at each deadline on the way.
    fn pass(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        while let Some(deadline_ms) = self.group.next_deadline_ms().filter(|deadline_ms| *deadline_ms <= until_ms) {
            self.now_ms = deadline_ms.max(self.now_ms);
            let step = self.group.tick(self.now_ms);
            self.take(step);
            let next_ms = self.group.next_deadline_ms();
            assert!(next_ms.is_none_or(|next_ms| next_ms > self.now_ms), "a tick does all that is due");
        }
        self.now_ms = until_ms;
    }

    /// A stable group of one dynamic member, as the probes' `main`.
    fn stable(topic: &str) -> (Self, String) {
        let mut bench = Self::new();
        let member_id = bench.enter(&Join::v(7).metadata(topic)).member_id;
        bench.sync(&sync_request(&member_id, 1, &[&member_id])).expect("synced");
        (bench, member_id)
    }

    /// A stable group of two, the second joined during a rebalance. Generation 2, the first leads.
    fn stable_pair() -> (Self, String, String) {
        let (mut bench, first) = Self::stable("t");
        let (parked, second) = bench.enter_later(&Join::v(7));
        bench.join(&Join::v(7).id(&first)).expect("joined");
        bench.joined(parked).expect("parked").expect("joined");
        bench.sync(&sync_request(&first, 2, &[&first, &second])).expect("synced");
        bench.sync(&sync_request(&second, 2, &[])).expect("synced");
        (bench, first, second)
    }
}

fn code(result: Result<(), ErrorCode>) -> i16 {
    opt_code(result.err())
}

fn opt_code(code: Option<ErrorCode>) -> i16 {
    code.map_or(0, |code| code.code())
}

fn refused(code: i16, member_id: &str) -> Result<JoinOk, JoinErr> {
    let code = ErrorCode::try_from_code(code).expect("an error");
    Err(JoinErr { code, member_id: member_id.into() })
}

// ---- Recorded answers: classic ----

#[test]
fn every_version_joins_syncs_heartbeats_and_leaves() {
    for version in 0..=9 {
        let mut bench = Bench::new();
        let joined = bench.enter(&Join::v(version));
        let member_id = joined.member_id.clone();
        assert_eq!(joined.generation, 1, "v{version}");
        assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
        assert_eq!(joined.protocol_name.as_deref(), Some("range"));
        assert_eq!(joined.leader, member_id);
        assert!(!joined.skip_assignment);
        assert!(member_id.starts_with("probe-"));
        let metadata = subscription("t");
        let listed = JoinMember { member_id: member_id.clone(), group_instance_id: None, metadata };
        assert_eq!(joined.members, [listed]);
        let synced = bench.sync(&sync_request(&member_id, 1, &[&member_id])).expect("synced");
        assert_eq!(synced.assignment, ASSIGNMENT);
        assert_eq!(synced.protocol_name.as_deref(), Some("range"));
        assert_eq!(bench.heartbeat(&member_id, None, 1), 0);
        let members = if version < 3 { vec![] } else { vec![0] };
        assert_eq!(bench.leave(version.min(5), &[(&member_id, None)]), (0, members));
        assert_eq!(bench.heartbeat(&member_id, None, 1), 25);
    }
}

#[test]
fn a_join_that_cannot_be_served_is_refused_with_the_brokers_code() {
    let one = |id: &str, join: Join| Bench::named(id).join(&join);
    assert_eq!(one("g", Join::v(9).id("who")), refused(25, "who"));
    assert_eq!(one("g", Join::v(0).id("who")), refused(25, "who"));
    assert_eq!(one("", Join::v(5)), refused(24, ""));
    assert_eq!(one("g", Join::v(5).session(100)), refused(26, ""));
    assert_eq!(one("g", Join::v(5).session(2_000_000)), refused(26, ""));
    assert_eq!(one("g", Join::v(5).protocols(&[])), refused(23, ""));
    assert_eq!(one("g", Join::v(5).protocol_type("")), refused(23, ""));
    assert_eq!(one("g", Join::v(3).protocols(&[])), refused(23, ""));
    assert_eq!(one("g", Join::v(3).protocol_type("")), refused(23, ""));
    let id_required = |join| one("g", join).expect_err("an id comes first").code;
    assert_eq!(id_required(Join::v(5).session(6_000)), ErrorCode::MemberIdRequired);
    assert_eq!(id_required(Join::v(5).rebalance(-1)), ErrorCode::MemberIdRequired);
}

#[test]
fn a_group_before_its_first_sync_is_completing_rebalance() {
    let mut bench = Bench::new();
    let member_id = bench.enter(&Join::v(7)).member_id;
    assert_eq!(bench.heartbeat(&member_id, None, 1), 0);
    assert_eq!(bench.commit(&member_id, None, 1), 27);
    let described = bench.group.describe();
    assert_eq!(described.state.name(), "CompletingRebalance");
    assert_eq!(described.protocol_type, "consumer");
    assert_eq!(described.protocol_data, "");
    let member = MemberDescription {
        member_id,
        group_instance_id: None,
        client_id: "probe".into(),
        client_host: "/127.0.0.1".into(),
        metadata: Bytes::new(),
        assignment: Bytes::new(),
    };
    assert_eq!(described.members, [member]);
}

#[test]
fn a_sync_is_checked_for_member_then_generation_then_protocol() {
    let mut bench = Bench::new();
    let id = bench.enter(&Join::v(7)).member_id;
    let good = sync_request(&id, 1, &[&id]);
    let mut fails = |request: SyncRequest| bench.sync(&request).expect_err("refused").code();
    assert_eq!(fails(sync_request(&id, 2, &[])), 22);
    assert_eq!(fails(sync_request("who", 1, &[])), 25);
    assert_eq!(fails(sync_request("who", 2, &[])), 25);
    assert_eq!(fails(SyncRequest { protocol_name: Some("roundrobin".into()), ..good.clone() }), 23);
    assert_eq!(fails(SyncRequest { protocol_type: Some("connect".into()), ..good.clone() }), 23);
    assert_eq!(Bench::named("none").sync(&good), Err(ErrorCode::UnknownMemberId));
    assert_eq!(Bench::named("").sync(&good), Err(ErrorCode::InvalidGroupId));
    for _ in 0..2 {
        assert_eq!(bench.sync(&good).expect("synced").assignment, ASSIGNMENT);
    }
    let old_client = SyncRequest { protocol_type: None, protocol_name: None, ..good };
    assert_eq!(bench.sync(&old_client).expect("synced").assignment, ASSIGNMENT);
}

#[test]
fn a_heartbeat_is_checked_for_member_then_generation() {
    let (mut bench, id) = Bench::stable("t");
    let probes = [(id.as_str(), 1, 0), (&id, 2, 22), (&id, 0, 22), (&id, -1, 22), ("who", 1, 25), ("", 1, 25)];
    for (member_id, generation, expected) in probes {
        assert_eq!(bench.heartbeat(member_id, None, generation), expected, "{member_id} {generation}");
    }
    assert_eq!(Bench::named("none").heartbeat("who", None, 1), 25);
    assert_eq!(Bench::named("").heartbeat("who", None, 1), 24);
}

#[test]
fn a_commit_into_a_live_group_needs_a_member_of_the_generation() {
    let (mut bench, id) = Bench::stable("t");
    let probes =
        [(id.as_str(), 1, 0), (&id, 2, 22), (&id, 0, 22), ("who", 1, 25), ("", -1, 25), (&id, -1, 22), ("", 1, 25)];
    for (member_id, generation, expected) in probes {
        assert_eq!(bench.commit(member_id, None, generation), expected, "{member_id} {generation}");
    }
}

#[test]
fn a_join_with_another_protocol_or_type_is_inconsistent() {
    let (mut bench, id) = Bench::stable("t");
    for version in [7, 3] {
        assert_eq!(bench.join(&Join::v(version).protocols(&["other"])), refused(23, ""));
        assert_eq!(bench.join(&Join::v(version).protocol_type("connect")), refused(23, ""));
    }
    assert_eq!(bench.join(&Join::v(7).id(&id).protocols(&["other"])), refused(23, &id));
    assert_eq!(bench.group.state(), State::Stable);
}

#[test]
fn a_live_group_is_not_deleted_and_keeps_the_offsets_of_its_topics() {
    let (bench, _) = Bench::stable("g6-a");
    assert_eq!(bench.group.check_delete(), Err(ErrorCode::NonEmptyGroup));
    assert_eq!(bench.group.check_offset_delete(), Ok(()));
    assert!(bench.group.subscribed_to("g6-a"));
    assert!(!bench.group.subscribed_to("g6-nope"));
}

#[test]
fn offsets_of_a_live_group_that_is_no_consumer_are_not_deleted() {
    let mut bench = Bench::new();
    bench.enter(&Join::v(7).protocol_type("connect"));
    assert_eq!(bench.group.check_offset_delete(), Err(ErrorCode::NonEmptyGroup));
    assert!(!bench.group.subscribed_to("t"));
}

#[test]
fn a_second_member_starts_a_rebalance_and_the_leader_stays() {
    let (mut bench, first) = Bench::stable("g6-a");
    let (parked, second) = bench.enter_later(&Join::v(7).protocols(&["range", "rr"]));
    assert_eq!(bench.heartbeat(&first, None, 1), 27);
    let described = bench.group.describe();
    assert_eq!((described.state.name(), described.protocol_data.as_str()), ("PreparingRebalance", ""));
    let of = |id: &str| described.members.iter().find(|member| member.member_id == id).expect("a member");
    assert_eq!((of(&first).assignment.as_ref(), of(&first).metadata.len()), (ASSIGNMENT, 0));
    assert_eq!((of(&second).assignment.len(), of(&second).metadata.len()), (0, 0));
    assert_eq!(bench.commit(&first, None, 1), 0);
    assert_eq!(bench.sync(&sync_request(&first, 1, &[])), Err(ErrorCode::RebalanceInProgress));
    assert_eq!(bench.heartbeat(&second, None, 1), 27);

    let leader = bench.join(&Join::v(7).id(&first)).expect("joined");
    let follower = bench.joined(parked).expect("answered").expect("joined");
    assert_eq!((leader.generation, follower.generation), (2, 2));
    assert_eq!((&leader.leader, &follower.leader), (&first, &first));
    assert_eq!(leader.protocol_name.as_deref(), Some("range"));
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));

    let parked = bench.sync_later(&sync_request(&second, 2, &[]));
    assert_eq!(bench.heartbeat(&second, None, 2), 0);
    assert_eq!(bench.sync(&sync_request(&first, 2, &[&first])).expect("synced").assignment, ASSIGNMENT);
    assert_eq!(bench.synced(parked).expect("answered").expect("synced").assignment, Bytes::new());
    let described = bench.group.describe();
    assert_eq!((described.state.name(), described.protocol_data.as_str()), ("Stable", "range"));
    assert!(described.members.iter().all(|member| !member.metadata.is_empty()));
}

#[test]
fn a_follower_that_joins_again_with_the_same_metadata_is_told_the_running_generation() {
    let (mut bench, first, second) = Bench::stable_pair();
    let again = bench.join(&Join::v(7).id(&second)).expect("joined");
    assert_eq!((again.generation, again.leader, again.members.len()), (2, first, 0));
    assert_eq!(bench.group.state(), State::Stable);
}

#[test]
fn a_leave_answers_for_each_member_since_version_3() {
    let (mut bench, first, second) = Bench::stable_pair();
    for version in [0, 2] {
        assert_eq!(bench.leave(version, &[("who", None)]), (25, vec![]));
        assert_eq!(Bench::named("none").leave(version, &[("who", None)]), (25, vec![]));
    }
    for version in [3, 5] {
        assert_eq!(bench.leave(version, &[("who", None)]), (0, vec![25]));
        assert_eq!(Bench::named("none").leave(version, &[("who", None)]), (0, vec![25]));
    }
    assert_eq!(Bench::named("").leave(5, &[("who", None)]), (24, vec![]));
    assert_eq!(bench.leave(5, &[]), (0, vec![]));
    assert_eq!(bench.group.state(), State::Stable);
    assert_eq!(bench.leave(5, &[(&second, None), ("who", None)]), (0, vec![0, 25]));
    assert_eq!(bench.group.state(), State::PreparingRebalance);
    assert_eq!(bench.leave(5, &[(&first, None)]), (0, vec![0]));

    let described = bench.group.describe();
    assert_eq!((described.state.name(), described.protocol_type.as_str()), ("Empty", "consumer"));
    assert_eq!((described.protocol_data.as_str(), described.members.len()), ("", 0));
    assert_eq!(bench.group.generation(), 3);
    let record = bench.record.clone().expect("the empty group is stored");
    assert_eq!((record.generation, record.members.len(), record.leader), (3, 0, None));
    assert_eq!(bench.heartbeat(&first, None, 2), 25);
    assert_eq!(bench.commit("", None, -1), 0);
    assert_eq!(bench.commit(&first, None, 2), 25);
    assert_eq!(bench.group.check_delete(), Ok(()));
}

#[test]
fn a_static_member_is_replaced_without_a_rebalance_and_its_old_id_fenced() {
    let mut bench = Bench::new();
    let first = bench.enter(&Join::v(7).instance("i1"));
    assert_eq!(first.members[0].group_instance_id.as_deref(), Some("i1"));
    let first = first.member_id;
    assert!(first.starts_with("i1-"));
    let with_instance = SyncRequest { group_instance_id: Some("i1".into()), ..sync_request(&first, 1, &[&first]) };
    bench.sync(&with_instance).expect("synced");

    let second = bench.join(&Join::v(7).instance("i1")).expect("joined");
    assert_eq!((second.generation, &second.leader, second.members.len()), (1, &first, 0));
    assert_ne!(second.member_id, first);
    assert_eq!(bench.record.as_ref().expect("stored").members[0].member_id, second.member_id);
    assert_eq!(bench.heartbeat(&first, Some("i1"), 1), 82);
    assert_eq!(bench.heartbeat(&first, None, 1), 25);
    assert_eq!(bench.commit(&first, Some("i1"), 1), 82);
    assert_eq!(bench.heartbeat(&second.member_id, Some("i1"), 1), 0);

    let third = bench.join(&Join::v(9).instance("i1")).expect("joined");
    assert_eq!((third.generation, &third.leader), (1, &third.member_id));
    assert!(third.skip_assignment);
    assert_eq!(third.members[0].member_id, third.member_id);
    let kept = bench.sync(&sync_request(&third.member_id, 1, &[])).expect("synced");
    assert_eq!(kept.assignment, ASSIGNMENT);

    assert_eq!(bench.join(&Join::v(7).id(&first).instance("i1")), refused(82, &first));
    assert_eq!(bench.heartbeat(&first, Some("i9"), 1), 25);
    assert_eq!(bench.leave(5, &[("who", Some("i1"))]), (0, vec![82]));
    assert_eq!(bench.leave(5, &[("", Some("i9"))]), (0, vec![25]));
    assert_eq!(bench.leave(5, &[("", Some("i1"))]), (0, vec![0]));
    let empty_instance = bench.join(&Join::v(7).instance("")).expect("joined");
    assert_eq!((empty_instance.generation, empty_instance.members.len()), (3, 1));
    assert_eq!(empty_instance.members[0].group_instance_id.as_deref(), Some(""));
}

// ---- Recorded answers: offsets and listing ----

#[test]
fn a_group_of_commits_alone_is_empty_and_has_no_protocol_type() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit("", None, -1), 0);
    assert_eq!(bench.commit("", Some("i1"), -1), 0);
    let described = bench.group.describe();
    assert_eq!((described.state.name(), described.protocol_type.as_str()), ("Empty", ""));
    assert_eq!(bench.group.check_delete(), Ok(()));
    assert_eq!(bench.group.check_offset_delete(), Ok(()));
    assert!(!bench.group.subscribed_to("g6-a"));
}

#[test]
fn a_commit_to_a_missing_group_is_refused_by_version() {
    for (version, expected) in [(2, 22), (8, 22), (9, 69)] {
        assert_eq!(code(check_commit_without_group(version, -1)), 0);
        assert_eq!(code(check_commit_without_group(version, 3)), expected, "v{version}");
    }
}

#[test]
fn list_filters_ignore_case_and_unknown_names_match_nothing() {
    let group = Group::new("g6-simple".into());
    assert!(group.is_listed(&[], &[]));
    assert!(!group.is_listed(&["Bogus"], &[]));
    assert!(!group.is_listed(&[], &["bogus"]));
    assert!(!group.is_listed(&["Empty"], &["Consumer"]));
    assert!(group.is_listed(&["empty"], &[]));
    assert!(group.is_listed(&["Stable", "Empty"], &["Classic"]));
}

// ---- Pending members ----

#[test]
fn a_ghost_that_never_came_back_with_its_id_does_not_hold_up_a_real_member() {
    let mut bench = Bench::new();
    bench.join(&Join::v(5).session(45_000)).expect_err("an id comes first");
    assert_eq!(bench.enter(&Join::v(5)).generation, 1);
    let (mut bench, first) = Bench::stable("t");
    bench.join(&Join::v(5)).expect_err("an id comes first");
    assert_eq!(bench.join(&Join::v(7).id(&first)).expect("joined").generation, 2);
}

#[test]
fn a_pending_id_lapses_after_the_session_timeout_and_may_leave() {
    let mut bench = Bench::new();
    let lapsed = bench.join(&Join::v(5)).expect_err("an id comes first").member_id;
    let gone = bench.join(&Join::v(5)).expect_err("an id comes first").member_id;
    assert_eq!(bench.leave(3, &[(&gone, None)]), (0, vec![0]));
    assert_eq!(bench.leave(3, &[(&gone, None)]), (0, vec![25]));
    assert!(!bench.group.is_blank());
    bench.pass(SESSION_MS);
    assert!(bench.group.is_blank());
    assert_eq!(bench.group.next_deadline_ms(), None);
    assert_eq!(bench.join(&Join::v(5).id(&lapsed)), refused(25, &lapsed));
}

#[test]
fn a_pending_member_that_leaves_does_not_disturb_a_stable_group() {
    let (mut bench, id) = Bench::stable("t");
    let pending = bench.join(&Join::v(5)).expect_err("an id comes first").member_id;
    assert_eq!(bench.leave(3, &[(&pending, None)]), (0, vec![0]));
    assert_eq!(bench.heartbeat(&id, None, 1), 0);
}

// ---- Timers ----

#[test]
fn the_join_phase_ends_at_the_longest_rebalance_timeout_without_the_missing() {
    let (mut bench, first, second) = Bench::stable_pair();
    let (parked, _) = bench.enter_later(&Join::v(7).rebalance(8_000).session(20_000));
    bench.pass(4_000);
    bench.heartbeat(&first, None, 2);
    bench.heartbeat(&second, None, 2);
    bench.pass(3_999);
    assert_eq!(bench.joined(parked), None);
    bench.pass(1);
    let joined = bench.joined(parked).expect("the phase is over").expect("joined");
    assert_eq!((joined.generation, joined.members.len()), (3, 1));
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(bench.heartbeat(&first, None, 2), 25);
}

#[test]
fn version_0_has_the_session_timeout_for_a_rebalance_timeout() {
    for join in [Join::v(0).rebalance(600_000), Join::v(1).rebalance(-1)] {
        let mut bench = Bench::new();
        let first = bench.enter(&join).member_id;
        bench.sync(&sync_request(&first, 1, &[&first])).expect("synced");
        let (parked, _) = bench.enter_later(&join);
        for _ in 0..9 {
            bench.pass(SESSION_MS / 10);
            assert_eq!(bench.heartbeat(&first, None, 1), 27);
        }
        assert_eq!(bench.joined(parked), None);
        bench.pass(SESSION_MS / 10);
        assert!(bench.joined(parked).expect("the phase is over").is_ok());
    }
}

#[test]
fn a_silent_member_expires_and_the_last_one_leaves_the_group_empty() {
    let (mut bench, id) = Bench::stable("t");
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.heartbeat(&id, None, 1), 0);
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.commit(&id, None, 1), 0, "a commit counts as a sign of life");
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.group.state(), State::Stable);
    bench.pass(1);
    assert_eq!((bench.group.state(), bench.group.generation()), (State::Empty, 2));
    assert_eq!(bench.record.as_ref().map(|record| record.generation), Some(2));
    assert_eq!(bench.group.next_deadline_ms(), None);
}

#[test]
fn a_parked_member_does_not_expire() {
    let mut bench = Bench::new();
    let slow = Join::v(7).session(6_000).rebalance(60_000);
    let first = bench.enter(&slow).member_id;
    bench.sync(&sync_request(&first, 1, &[&first])).expect("synced");
    let (parked_second, second) = bench.enter_later(&slow.clone().session(60_000));
    bench.join(&slow.clone().id(&first)).expect("joined");
    bench.joined(parked_second).expect("answered").expect("joined");
    // The first, with the short session, waits in SyncGroup as a follower would; the leader is late.
    bench.group.leader = Some(second.clone());
    let parked = bench.sync_later(&sync_request(&first, 2, &[]));
    bench.pass(50_000);
    assert_eq!(bench.synced(parked), None);
    bench.sync(&sync_request(&second, 2, &[&first, &second])).expect("synced");
    assert_eq!(bench.synced(parked).expect("answered").expect("synced").assignment, ASSIGNMENT);
    bench.pass(5_999);
    assert_eq!(bench.heartbeat(&first, None, 2), 0, "the clock starts at the answer");
}

#[test]
fn a_new_member_parked_for_five_minutes_is_asked_to_come_again() {
    let (mut bench, first) = Bench::stable("t");
    let long = Join::v(7).rebalance(1_800_000);
    let slow = bench.join_later(&long.clone().id(&first).metadata("u"));
    assert!(bench.joined(slow).expect("answered").is_ok());
    bench.sync(&sync_request(&first, 2, &[&first])).expect("synced");
    let (parked, _) = bench.enter_later(&long);
    for _ in 0..59 {
        bench.pass(5_000);
        assert_eq!(bench.heartbeat(&first, None, 2), 27);
    }
    assert_eq!(bench.joined(parked), None);
    bench.pass(5_000);
    assert_eq!(bench.joined(parked), Some(refused(25, "")));
}

#[test]
fn members_that_never_sync_are_removed_and_the_others_sent_back() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&first));
    bench.join(&Join::v(7).id(&second)).expect("joined");
    bench.joined(parked).expect("answered").expect("joined");
    // The leader has its reply and goes silent but for heartbeats; the follower waits.
    let waiting = bench.sync_later(&sync_request(&second, 3, &[]));
    bench.pass(REBALANCE_MS - 1);
    assert_eq!(bench.heartbeat(&first, None, 3), 0);
    assert_eq!(bench.synced(waiting), None);
    bench.pass(1);
    assert_eq!(bench.synced(waiting), Some(Err(ErrorCode::RebalanceInProgress)));
    assert_eq!(bench.heartbeat(&first, None, 3), 25);
    let joined = bench.join(&Join::v(7).id(&second)).expect("joined");
    assert_eq!((joined.generation, joined.leader), (4, second));
}

#[test]
fn a_follower_that_never_syncs_is_removed_from_a_stable_group() {
    let (mut bench, first) = Bench::stable("t");
    let (parked, second) = bench.enter_later(&Join::v(7));
    bench.join(&Join::v(7).id(&first)).expect("joined");
    bench.joined(parked).expect("answered").expect("joined");
    bench.sync(&sync_request(&first, 2, &[&first, &second])).expect("synced");
    assert_eq!(bench.group.state(), State::Stable);
    bench.pass(REBALANCE_MS);
    assert_eq!(bench.heartbeat(&second, None, 2), 25);
    assert_eq!(bench.heartbeat(&first, None, 2), 27);
}

#[test]
fn a_leave_or_an_expiry_in_the_join_phase_may_complete_it() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&first));
    assert_eq!(bench.joined(parked), None);
    bench.leave(3, &[(&second, None)]);
    assert_eq!(bench.joined(parked).expect("complete").expect("joined").generation, 3);

    let (mut bench, first, _) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&first).rebalance(60_000));
    bench.pass(SESSION_MS);
    assert_eq!(bench.joined(parked).expect("complete").expect("joined").generation, 3);
}

#[test]
fn a_member_that_leaves_has_its_parked_requests_answered() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&first));
    bench.leave(3, &[(&first, None)]);
    assert_eq!(bench.joined(parked), Some(refused(25, "")));
    let parked = bench.join_later(&Join::v(7).id(&second));
    assert!(bench.joined(parked).expect("complete").is_ok());
}

#[test]
fn the_first_join_phase_waits_and_is_extended_by_newcomers() {
    let mut bench = Bench::new();
    bench.config.initial_rebalance_delay_ms = 3_000;
    let join = Join::v(3).rebalance(10_000);
    let (parked, first) = bench.enter_later(&join);
    bench.pass(2_999);
    assert_eq!(bench.joined(parked), None);
    bench.enter_later(&join);
    bench.pass(3_000);
    assert_eq!(bench.joined(parked), None, "extended once");
    bench.pass(1);
    let joined = bench.joined(parked).expect("the phase is over").expect("joined");
    assert_eq!((joined.generation, joined.members.len(), joined.leader), (1, 2, first));
}

#[test]
fn the_first_join_phase_is_not_extended_beyond_the_rebalance_timeout() {
    let mut bench = Bench::new();
    bench.config.initial_rebalance_delay_ms = 3_000;
    let join = Join::v(3).rebalance(10_000);
    let (parked, _) = bench.enter_later(&join);
    for _ in 0..9 {
        bench.pass(1_000);
        bench.enter_later(&join);
        assert_eq!(bench.joined(parked), None);
    }
    bench.pass(1_000);
    assert_eq!(bench.joined(parked).expect("the phase is over").expect("joined").members.len(), 10);
}

// ---- Leader and protocol ----

#[test]
fn the_protocol_with_most_votes_among_the_common_ones_wins() {
    let mut bench = Bench::new();
    bench.config.initial_rebalance_delay_ms = 100;
    let (parked, _) = bench.enter_later(&Join::v(3).protocols(&["range", "sticky", "rr"]));
    bench.enter_later(&Join::v(3).protocols(&["sticky", "range"]));
    bench.enter_later(&Join::v(3).protocols(&["rr", "sticky", "range"]));
    bench.pass(200);
    let joined = bench.joined(parked).expect("the phase is over").expect("joined");
    assert_eq!(joined.protocol_name.as_deref(), Some("sticky"));
}

#[test]
fn a_leader_that_joins_again_or_a_follower_with_new_metadata_starts_a_rebalance() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&second).metadata("u"));
    assert_eq!(bench.joined(parked), None);
    assert_eq!(bench.heartbeat(&first, None, 2), 27);
    bench.join(&Join::v(7).id(&first)).expect("joined");
    assert!(bench.group.subscribed_to("u") && bench.group.subscribed_to("t"));
    bench.sync(&sync_request(&first, 3, &[])).expect("synced");
    assert_eq!(bench.join_later(&Join::v(7).id(&first)), bench.token);
    assert_eq!(bench.group.state(), State::PreparingRebalance);
}

#[test]
fn a_join_repeated_after_a_lost_reply_gets_the_same_generation() {
    let (mut bench, first) = Bench::stable("t");
    bench.join(&Join::v(7).id(&first)).expect("joined");
    let again = bench.join(&Join::v(7).id(&first)).expect("joined");
    assert_eq!((again.generation, again.members.len()), (2, 1));
    assert_eq!(bench.group.state(), State::CompletingRebalance);
}

#[test]
fn an_empty_group_may_change_its_protocol_type() {
    let (mut bench, id) = Bench::stable("t");
    bench.leave(3, &[(&id, None)]);
    bench.enter(&Join::v(7).protocol_type("connect"));
    assert_eq!(bench.group.protocol_type(), Some("connect"));
}

#[test]
fn a_full_group_turns_newcomers_away() {
    let (mut bench, first, second) = Bench::stable_pair();
    bench.config.group_max_size = 2;
    assert_eq!(bench.join(&Join::v(7)), refused(81, ""));
    // After the limit was lowered the last to come back is turned away, and the phase goes on without it.
    bench.config.group_max_size = 1;
    let parked = bench.join_later(&Join::v(7).id(&first));
    assert_eq!(bench.join(&Join::v(7).id(&second)), refused(81, ""));
    assert_eq!(bench.joined(parked).expect("complete").expect("joined").members.len(), 1);
}

// ---- Static members ----

#[test]
fn a_static_member_that_does_not_come_back_stays_for_its_session_timeout() {
    let mut bench = Bench::new();
    let fixed = bench.enter(&Join::v(7).instance("i1").session(60_000)).member_id;
    bench.sync(&sync_request(&fixed, 1, &[&fixed])).expect("synced");
    let (parked, other) = bench.enter_later(&Join::v(7));
    bench.pass(REBALANCE_MS);
    let joined = bench.joined(parked).expect("the phase is over").expect("joined");
    assert_eq!((joined.members.len(), joined.leader), (2, other));
}

#[test]
fn a_replaced_static_member_has_its_parked_requests_fenced() {
    let mut bench = Bench::new();
    let fixed = bench.enter(&Join::v(7).instance("i1")).member_id;
    bench.sync(&sync_request(&fixed, 1, &[&fixed])).expect("synced");
    let (_, _) = bench.enter_later(&Join::v(7));
    let old = Join::v(7).id(&fixed).instance("i1");
    bench.join(&old).expect("joined");
    let token = bench.join_later(&Join::v(7).instance("i1"));
    assert_eq!(bench.group.state(), State::PreparingRebalance, "the leader may know the old id");
    assert_eq!(bench.joined(token), None);
    let newest = bench.join_later(&Join::v(7).instance("i1"));
    assert_eq!(bench.joined(token).expect("fenced").expect_err("fenced").code, ErrorCode::FencedInstanceId);
    assert_eq!(bench.joined(newest), None);
}

#[test]
fn a_static_member_that_changes_the_protocol_starts_a_rebalance() {
    let mut bench = Bench::new();
    let both = Join::v(7).protocols(&["range", "sticky"]);
    let fixed = bench.enter(&both.instance("i1")).member_id;
    bench.sync(&sync_request(&fixed, 1, &[&fixed])).expect("synced");
    let joined = bench.join(&Join::v(7).protocols(&["sticky"]).instance("i1")).expect("joined");
    assert_eq!((joined.generation, joined.protocol_name.as_deref()), (2, Some("sticky")));
}

// ---- Restart, lost records, lost connections, the end ----

#[test]
fn a_stable_group_goes_on_after_a_restart() {
    let (bench, first, second) = Bench::stable_pair();
    let bytes = bench.record.as_ref().expect("stored").encode();
    let mut after = Bench::new();
    after.now_ms = 500_000;
    after.group = Group::restore(GroupRecord::decode(&bytes).expect("readable"), after.now_ms);
    assert_eq!((after.group.state(), after.group.generation()), (State::Stable, 2));
    assert_eq!(after.group.record(), bench.record.expect("stored"));
    assert!(after.group.subscribed_to("t"));
    assert_eq!(after.heartbeat(&first, None, 2), 0);
    after.pass(SESSION_MS - 1);
    assert_eq!(after.heartbeat(&second, None, 2), 0, "the clock starts at the restart");
    assert_eq!(after.sync(&sync_request(&second, 2, &[])).expect("synced").assignment, ASSIGNMENT);
}

#[test]
fn an_assignment_that_was_not_stored_makes_all_join_again() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&first));
    bench.join(&Join::v(7).id(&second)).expect("joined");
    bench.joined(parked).expect("answered").expect("joined");
    let waiting = bench.sync_later(&sync_request(&second, 3, &[]));
    let token = bench.next_token();
    let failed = bench.group.sync(bench.now_ms, token, &sync_request(&first, 3, &[&first]));
    assert!(failed.record.is_some());
    let step = bench.group.persist_failed(bench.now_ms, failed, ErrorCode::CoordinatorNotAvailable);
    bench.take(step);
    for token in [waiting, token] {
        assert_eq!(bench.synced(token), Some(Err(ErrorCode::CoordinatorNotAvailable)));
    }
    assert_eq!(bench.heartbeat(&first, None, 3), 27);
    assert!(bench.group.describe().members.iter().all(|member| member.assignment.is_empty()));
}

#[test]
fn a_replacement_that_was_not_stored_is_taken_back() {
    let mut bench = Bench::new();
    let fixed = bench.enter(&Join::v(7).instance("i1")).member_id;
    bench.sync(&sync_request(&fixed, 1, &[&fixed])).expect("synced");
    let before = bench.group.record();
    let token = bench.next_token();
    let request = Join::v(9).instance("i1").0;
    let failed = bench.group.join(&bench.config, bench.now_ms, token, Uuid::from_u128(99), request);
    let step = bench.group.persist_failed(bench.now_ms, failed, ErrorCode::NotCoordinator);
    bench.take(step);
    assert_eq!(bench.joined(token), Some(refused(16, "")));
    assert_eq!(bench.group.record(), before);
    assert_eq!(bench.heartbeat(&fixed, Some("i1"), 1), 0);
}

#[test]
fn an_empty_group_that_was_not_stored_stays_empty() {
    let (mut bench, id) = Bench::stable("t");
    let request = LeaveRequest { api_version: 3, members: vec![(id, None)] };
    let failed = bench.group.leave(bench.now_ms, 77, &request);
    let step = bench.group.persist_failed(bench.now_ms, failed, ErrorCode::NotCoordinator);
    let reply = LeaveReply { code: Some(ErrorCode::NotCoordinator), members: vec![] };
    assert_eq!(step.replies, [(77, Reply::Leave(reply))]);
    assert_eq!(bench.group.state(), State::Empty);
}

#[test]
fn a_client_that_goes_away_while_parked_is_not_waited_for_longer_than_its_session() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&second).rebalance(60_000).metadata("u"));
    let step = bench.group.abandon(bench.now_ms, parked);
    bench.take(step);
    let waiting = bench.join_later(&Join::v(7).id(&first));
    assert_eq!(bench.joined(waiting), None);
    bench.pass(SESSION_MS);
    assert_eq!(bench.joined(waiting).expect("complete").expect("joined").members.len(), 1);
    assert_eq!(bench.joined(parked), None);
}

#[test]
fn a_new_client_that_goes_away_before_it_knows_its_id_is_forgotten_at_once() {
    let (mut bench, first) = Bench::stable("t");
    let (parked, _) = bench.enter_later(&Join::v(3));
    let waiting = bench.join_later(&Join::v(7).id(&first).metadata("u"));
    assert!(bench.joined(waiting).is_some(), "both are here");
    bench.joined(parked).expect("answered").expect("joined");
    let (parked, _) = bench.enter_later(&Join::v(3));
    let waiting = bench.join_later(&Join::v(7).id(&first));
    let step = bench.group.abandon(bench.now_ms, parked);
    bench.take(step);
    assert_eq!(bench.group.members.len(), 2);
    assert_eq!(bench.joined(waiting), None, "the third is still missing");
}

#[test]
fn a_request_sent_twice_supersedes_the_parked_one() {
    let (mut bench, _, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&second).metadata("u"));
    let newer = bench.join_later(&Join::v(7).id(&second).metadata("u"));
    assert_eq!(bench.joined(parked), Some(refused(27, &second)));
    assert_eq!(bench.joined(newer), None);
}

#[test]
fn a_dead_group_answers_what_is_parked_and_refuses_the_rest() {
    let (mut bench, first, second) = Bench::stable_pair();
    let parked = bench.join_later(&Join::v(7).id(&second).metadata("u"));
    let step = bench.group.kill(bench.now_ms, ErrorCode::NotCoordinator);
    bench.take(step);
    assert_eq!(bench.joined(parked), Some(refused(16, &second)));
    assert_eq!(bench.join(&Join::v(7)), refused(15, ""));
    assert_eq!(bench.join(&Join::v(7).id(&first)), refused(15, &first));
    assert_eq!(bench.sync(&sync_request(&first, 2, &[])), Err(ErrorCode::CoordinatorNotAvailable));
    assert_eq!(bench.heartbeat(&first, None, 2), 15);
    assert_eq!(bench.commit("", None, -1), 15);
    assert_eq!(bench.leave(3, &[(&first, None)]), (15, vec![]));
    assert_eq!(bench.group.check_delete(), Err(ErrorCode::GroupIdNotFound));
    assert_eq!(bench.group.check_offset_delete(), Err(ErrorCode::GroupIdNotFound));
}

// ---- Bytes ----

#[test]
fn a_record_survives_encoding_and_no_damage_makes_decoding_panic() {
    let (bench, ..) = Bench::stable_pair();
    let mut record = bench.record.expect("stored");
    record.members[1].group_instance_id = Some("i1".into());
    let bytes = record.encode();
    assert_eq!(GroupRecord::decode(&bytes).as_ref(), Ok(&record));
    for length in 0..bytes.len() {
        assert!(GroupRecord::decode(&bytes[..length]).is_err(), "cut at {length}");
    }
    for position in 0..bytes.len() {
        for value in [0, 1, 127, 128, 255] {
            let mut damaged = bytes.clone();
            damaged[position] = value;
            if let Ok(read) = GroupRecord::decode(&damaged) {
                assert_eq!(read.encode(), damaged);
            }
        }
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(GroupRecord::decode(&longer).expect_err("longer").contains("1 bytes after"));
}

#[test]
fn a_count_that_does_not_fit_is_refused_before_memory_is_reserved() {
    let mut bytes = GroupRecord::default().encode();
    let count_at = bytes.len() - 4;
    bytes[count_at..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(GroupRecord::decode(&bytes).expect_err("refused").contains("do not fit"));
}

#[test]
fn a_subscription_that_does_not_parse_counts_as_subscribed_to_everything() {
    let good = subscription("t");
    for bad in [&b""[..], &good[..7], &[255, 255, 0, 0, 0, 0], &[0, 0, 127, 255, 255, 255], &[0, 0, 255, 255, 255, 255]]
    {
        let mut bench = Bench::new();
        let mut join = Join::v(7);
        join.0.protocols[0].1 = Bytes::copy_from_slice(bad);
        bench.enter(&join);
        assert!(bench.group.subscribed_to("anything"), "{bad:?}");
    }
}
