//! Random clients against one group, with invariants that hold whatever they do. No I/O; a failure names its seed.
//!
//! The clients only know what a client on the wire knows. They crash (with and without the loss of the connection
//! being noticed), retry, go silent, use ids and generations they should have forgotten; records get lost; the
//! coordinator restarts.

use super::tests::Bench;
use super::*;

use uuid::Uuid;

const SESSIONS_MS: [i32; 3] = [6_000, 10_000, 20_000];
const REBALANCES_MS: [i32; 3] = [3_000, 8_000, 15_000];
/// What a parked request may wait at most: the longest of the timeouts.
const WAIT_MAX_MS: i64 = 20_000;
const CLIENTS: usize = 6;

/// Numerical Recipes' generator; the high bits are good enough.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Join,
    Sync,
}

/// An unanswered request.
#[derive(Clone, Debug)]
struct Sent {
    client: usize,
    kind: Kind,
    at_ms: i64,
    member_id: String,
    generation: i32,
}

#[derive(Default)]
struct Client {
    api_version: i16,
    instance_id: Option<String>,
    session_ms: i32,
    member_id: String,
    generation: i32,
    /// The members this client must assign, while it leads and has not done so.
    to_assign: Vec<JoinMember>,
    waiting: Option<Token>,
    synced: bool,
}

/// What the model knows of one generation.
struct Generation {
    leader: String,
    protocol: Option<String>,
}

struct Model {
    bench: Bench,
    random: Random,
    clients: Vec<Client>,
    sent: HashMap<Token, Sent>,
    generations: HashMap<i32, Generation>,
    /// Member id to what stays when a static member is replaced: the instance id, else the member id.
    names: HashMap<String, String>,
    /// Last sign of life of each id, and its session timeout.
    alive: HashMap<String, (i64, i64)>,
    /// Ids that left or were replaced: nothing may succeed under them again.
    gone: BTreeSet<String>,
    /// The last generation each id was told of.
    told: HashMap<String, i32>,
    stored: Option<GroupRecord>,
    successes: usize,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut bench = Bench::new();
        bench.config.initial_rebalance_delay_ms = if random.one_in(2) { 0 } else { 3_000 };
        let clients = (0..CLIENTS).map(|at| Client {
            api_version: [0, 3, 5, 7, 9, 9][random.below(6)],
            session_ms: SESSIONS_MS[random.below(3)],
            instance_id: (at < 2).then(|| format!("i{at}")),
            ..Client::default()
        });
        let mut clients: Vec<Client> = clients.collect();
        for client in clients.iter_mut().filter(|client| client.instance_id.is_some()) {
            client.api_version = client.api_version.max(5);
        }
        Self {
            bench,
            random,
            clients,
            sent: HashMap::new(),
            generations: HashMap::new(),
            names: HashMap::new(),
            alive: HashMap::new(),
            gone: BTreeSet::new(),
            told: HashMap::new(),
            stored: None,
            successes: 0,
        }
    }

    fn name(&self, member_id: &str) -> String {
        self.names.get(member_id).cloned().unwrap_or_else(|| member_id.to_owned())
    }

    fn send(&mut self, at: usize, kind: Kind) -> Token {
        self.bench.token += 1;
        let client = &self.clients[at];
        let (member_id, generation) = (client.member_id.clone(), client.generation);
        self.sent.insert(self.bench.token, Sent { client: at, kind, at_ms: self.bench.now_ms, member_id, generation });
        self.clients[at].waiting = Some(self.bench.token);
        self.bench.token
    }

    fn join(&mut self, at: usize) {
        let rebalance_timeout_ms = REBALANCES_MS[self.random.below(3)];
        let mut protocols: Vec<(String, Bytes)> = vec![("range".into(), Bytes::from_static(b"1"))];
        if self.random.one_in(2) {
            protocols.insert(self.random.below(2), ("sticky".into(), Bytes::from_static(b"2")));
        }
        let client = &self.clients[at];
        let request = JoinRequest {
            api_version: client.api_version,
            member_id: client.member_id.clone(),
            group_instance_id: client.instance_id.clone(),
            client_id: format!("c{at}"),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: client.session_ms,
            rebalance_timeout_ms,
            protocol_type: "consumer".into(),
            protocols,
            reason: None,
        };
        let token = self.send(at, Kind::Join);
        self.saw(&request.member_id);
        let statics_before = self.bench.group.statics.clone();
        let fresh = Uuid::from_u128(u128::from(token));
        let step = self.bench.group.join(&self.bench.config, self.bench.now_ms, token, fresh, request);
        for (instance_id, member_id) in &self.bench.group.statics {
            self.names.insert(member_id.clone(), instance_id.clone());
            if let Some(old) = statics_before.get(instance_id).filter(|old| *old != member_id) {
                self.gone.insert(old.clone());
            }
        }
        self.settle(step);
    }

    fn sync(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let assigned = std::mem::take(&mut client.to_assign);
        let (member_id, generation) = (client.member_id.clone(), client.generation);
        let named = assigned.iter().map(|member| {
            let name = self.names.get(&member.member_id).unwrap_or(&member.member_id);
            (member.member_id.clone(), Bytes::from(format!("{generation}:{name}")))
        });
        let request = SyncRequest { member_id, generation, assignments: named.collect(), ..SyncRequest::default() };
        let token = self.send(at, Kind::Sync);
        let step = self.bench.group.sync(self.bench.now_ms, token, &request);
        self.settle(step);
    }

    /// A heartbeat or commit as `at` knows itself, or with a generation or an id that is out of date.
    fn heartbeat(&mut self, at: usize) {
        let mut member_id = self.clients[at].member_id.clone();
        let mut generation = self.clients[at].generation;
        match self.random.below(8) {
            0 => generation -= 1,
            1 => generation += 1,
            2 => {
                let skip = self.random.below(self.gone.len() + 1);
                member_id = self.gone.iter().nth(skip).cloned().unwrap_or(member_id);
            }
            _ => {}
        }
        let (now_ms, before) = (self.bench.now_ms, self.bench.group.state);
        let result = if self.random.one_in(2) {
            self.bench.token += 1;
            let step = self.bench.group.heartbeat(now_ms, self.bench.token, &member_id, None, generation);
            match step.replies.as_slice() {
                [(token, Reply::Heartbeat(result))] if *token == self.bench.token => *result,
                other => panic!("not one heartbeat reply: {other:?}"),
            }
        } else {
            self.bench.group.check_commit(now_ms, &member_id, None, generation)
        };
        let in_generation = generation == self.bench.group.generation;
        if result.is_ok() && before != State::Empty {
            self.successes += 1;
            assert!(in_generation, "success in the old generation {generation}");
            self.assert_alive(&member_id);
        }
        let counts = result.is_ok() || (result == Err(ErrorCode::RebalanceInProgress) && in_generation);
        if counts && before != State::Empty {
            self.saw(&member_id);
        }
        self.check();
    }

    /// The server may take the id for alive only if there was a sign of life within the session timeout.
    fn assert_alive(&self, member_id: &str) {
        assert!(!self.gone.contains(member_id), "{member_id} is gone");
        let parked = self.sent.values().any(|sent| sent.member_id == member_id);
        let (seen_ms, session_ms) = self.alive[member_id];
        let silent_ms = self.bench.now_ms - seen_ms;
        assert!(parked || silent_ms < session_ms, "{member_id} was silent for {silent_ms} ms");
    }

    fn saw(&mut self, member_id: &str) {
        if let Some((seen_ms, _)) = self.alive.get_mut(member_id) {
            *seen_ms = self.bench.now_ms;
        }
    }

    fn saw_all(&mut self) {
        let members: Vec<String> = self.bench.group.members.keys().cloned().collect();
        members.iter().for_each(|member_id| self.saw(member_id));
    }

    fn leave(&mut self, at: usize) {
        let member_id = std::mem::take(&mut self.clients[at].member_id);
        let request = LeaveRequest { api_version: 3, members: vec![(member_id.clone(), None)] };
        self.bench.token += 1;
        let token = self.bench.token;
        self.gone.insert(member_id);
        let mut step = self.bench.group.leave(self.bench.now_ms, token, &request);
        let own = step.replies.iter().position(|(answered, _)| *answered == token);
        step.replies.remove(own.expect("a leave is answered at once"));
        self.settle(step);
    }

    /// The client forgets all it knows. The server may notice the lost connection or not.
    fn crash(&mut self, at: usize) {
        let client = &mut self.clients[at];
        client.member_id.clear();
        client.synced = false;
        client.to_assign.clear();
        if let Some(token) = client.waiting.take()
            && self.random.one_in(2)
        {
            let member_id = self.sent.remove(&token).map(|sent| sent.member_id).unwrap_or_default();
            self.saw(&member_id);
            let step = self.bench.group.abandon(self.bench.now_ms, token);
            self.settle(step);
        }
    }

    fn restart(&mut self) {
        let Some(record) = self.stored.clone() else {
            return;
        };
        self.sent.clear();
        for client in &mut self.clients {
            client.waiting = None;
        }
        let now_ms = self.bench.now_ms;
        self.bench.group = Group::restore(record, now_ms);
        // What was not stored never was; its generations will be given out again.
        let generation = self.bench.group.generation;
        self.told = self.bench.group.members.keys().map(|member_id| (member_id.clone(), generation)).collect();
        self.generations.retain(|known, _| *known <= generation);
        self.alive.values_mut().for_each(|(seen_ms, _)| *seen_ms = now_ms);
        for client in self.clients.iter_mut().filter(|client| client.generation > generation) {
            client.member_id.clear();
            client.synced = false;
        }
        self.gone.retain(|member_id| !self.bench.group.members.contains_key(member_id));
    }

    /// Stores the record, or fails to, and hands out the replies.
    fn settle(&mut self, mut step: Step) {
        if step.record.is_some() && self.random.one_in(20) {
            step = self.bench.group.persist_failed(self.bench.now_ms, step, ErrorCode::CoordinatorNotAvailable);
            self.gone.retain(|member_id| !self.bench.group.members.contains_key(member_id));
            self.saw_all();
        }
        if let Some(record) = step.record.take() {
            assert_eq!(GroupRecord::decode(&record.encode()).as_ref(), Ok(&record));
            assert_eq!(Group::restore(record.clone(), 0).record(), record);
            self.check_record(&record);
            self.stored = Some(record);
        }
        for (token, reply) in step.replies {
            let sent = self.sent.remove(&token).unwrap_or_else(|| panic!("token {token} is not waiting: {reply:?}"));
            match (sent.kind, reply) {
                (Kind::Join, Reply::Join(result)) => self.joined(token, &sent, result),
                (Kind::Sync, Reply::Sync(result)) => self.synced(token, &sent, result),
                (_, other) => panic!("wrong kind of reply to {sent:?}: {other:?}"),
            }
        }
        self.check();
    }

    fn joined(&mut self, token: Token, sent: &Sent, result: Result<JoinOk, JoinErr>) {
        let listens = self.clients[sent.client].waiting == Some(token);
        if listens {
            self.clients[sent.client].waiting = None;
        }
        match result {
            Err(refused) => {
                let was_parked = sent.at_ms < self.bench.now_ms;
                let left = self.gone.contains(&sent.member_id);
                let expected = refused.code != ErrorCode::UnknownMemberId || !was_parked || left;
                assert!(expected || sent.member_id.is_empty(), "expired while parked: {sent:?}");
                if listens {
                    let fatal = matches!(refused.code, ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId);
                    let client = &mut self.clients[sent.client];
                    if refused.code == ErrorCode::MemberIdRequired {
                        client.member_id = refused.member_id;
                    } else if fatal {
                        client.member_id.clear();
                    }
                }
            }
            Ok(joined) => {
                self.check_joined(&joined);
                self.told.insert(joined.member_id.clone(), joined.generation);
                let session_ms = i64::from(self.clients[sent.client].session_ms);
                self.alive.insert(joined.member_id.clone(), (self.bench.now_ms, session_ms));
                if listens {
                    let client = &mut self.clients[sent.client];
                    client.member_id = joined.member_id;
                    client.generation = joined.generation;
                    client.synced = false;
                    client.to_assign = if joined.skip_assignment { Vec::new() } else { joined.members };
                }
            }
        }
    }

    /// One leader, one protocol and one number for all who are told of a generation.
    fn check_joined(&mut self, joined: &JoinOk) {
        let (leader, own) = (self.name(&joined.leader), self.name(&joined.member_id));
        assert_eq!(joined.generation, self.bench.group.generation);
        let seen = Generation { leader: leader.clone(), protocol: joined.protocol_name.clone() };
        if !self.generations.contains_key(&joined.generation) {
            // Also of static members that did not come: they have from here to sync.
            self.saw_all();
        }
        let known = self.generations.entry(joined.generation).or_insert(seen);
        assert_eq!((&known.leader, &known.protocol), (&leader, &joined.protocol_name), "{joined:?}");
        if !joined.members.is_empty() {
            assert_eq!(leader, own, "only the leader is told the members");
            assert!(joined.members.iter().any(|member| member.member_id == joined.member_id));
            assert!(joined.members.iter().all(|member| !member.metadata.is_empty()));
        }
    }

    fn synced(&mut self, token: Token, sent: &Sent, result: Result<SyncOk, ErrorCode>) {
        let was_parked = sent.at_ms < self.bench.now_ms;
        let left = self.gone.contains(&sent.member_id);
        assert!(result != Err(ErrorCode::UnknownMemberId) || !was_parked || left, "expired while parked: {sent:?}");
        let listens = self.clients[sent.client].waiting == Some(token);
        if result != Err(ErrorCode::UnknownMemberId) && result != Err(ErrorCode::IllegalGeneration) {
            self.saw(&sent.member_id);
        }
        if let Ok(synced) = &result {
            self.successes += 1;
            assert_eq!(sent.generation, self.bench.group.generation, "a sync of an old generation");
            let expected = format!("{}:{}", sent.generation, self.name(&sent.member_id));
            assert_eq!(synced.assignment, expected.as_bytes());
        }
        if listens {
            let client = &mut self.clients[sent.client];
            client.waiting = None;
            client.synced = result.is_ok();
            if result == Err(ErrorCode::UnknownMemberId) {
                client.member_id.clear();
            }
        }
    }

    /// A stored group is Empty, or all its members have the leader's assignment for this generation.
    fn check_record(&self, record: &GroupRecord) {
        let stored: BTreeSet<&String> = record.members.iter().map(|member| &member.member_id).collect();
        assert!(stored.iter().eq(self.bench.group.members.keys().collect::<Vec<_>>().iter()));
        let given_out = self.generations.keys().copied().max().unwrap_or(0);
        assert!(
            !record.members.is_empty() || record.generation > given_out,
            "an empty group is a generation of its own"
        );
        for member in &record.members {
            let expected = format!("{}:{}", record.generation, self.name(&member.member_id));
            assert_eq!(member.assignment, expected.as_bytes());
        }
    }

    /// What holds between any two steps.
    fn check(&mut self) {
        let group = &self.bench.group;
        let parked = group.members.values().flat_map(|member| [member.parked_join, member.parked_sync]).flatten();
        let parked: BTreeSet<Token> = parked.collect();
        let waiting: BTreeSet<Token> = self.sent.keys().copied().collect();
        assert_eq!(parked, waiting, "each unanswered request is parked, and nothing else");
        for sent in self.sent.values() {
            let waited_ms = self.bench.now_ms - sent.at_ms;
            assert!(waited_ms <= WAIT_MAX_MS, "{sent:?} waits for {waited_ms} ms");
        }
        let newest = self.generations.keys().copied().max().unwrap_or(0);
        assert!(group.generation >= newest, "the generation went back");
        let all_joined = group.members.values().all(|member| member.parked_join.is_some());
        let stalled = group.state == State::PreparingRebalance && group.initial.is_none() && all_joined;
        assert!(!stalled, "a join phase waits for nobody");
        assert_eq!(group.members.is_empty(), group.leader.is_none(), "{group:?}");
        assert!(group.leader.as_ref().is_none_or(|leader| group.members.contains_key(leader)));
        if matches!(group.state, State::CompletingRebalance | State::Stable) {
            let mut dynamic = group.members.values().filter(|member| member.instance_id.is_none());
            assert!(dynamic.all(|member| self.told.get(&member.id) == Some(&group.generation)), "{group:?}");
        }
        if group.state == State::Stable {
            assert_eq!(Some(group.record()), self.stored, "a restart brings back another group");
        }
        match group.state {
            State::Empty => assert!(group.members.is_empty()),
            State::CompletingRebalance | State::Stable => assert!(!group.members.is_empty()),
            State::PreparingRebalance => assert!(group.join_deadline_ms.is_some()),
            State::Dead => panic!("nobody deletes the group"),
        }
    }

    fn pass(&mut self) {
        let jump_ms = [1, 50, 700, 2_500, 9_000][self.random.below(5)];
        let until_ms = self.bench.now_ms + jump_ms;
        while let Some(deadline_ms) = self.bench.group.next_deadline_ms().filter(|at_ms| *at_ms <= until_ms) {
            assert!(deadline_ms >= self.bench.now_ms, "a deadline was missed");
            self.bench.now_ms = deadline_ms;
            let step = self.bench.group.tick(deadline_ms);
            self.settle(step);
            assert!(self.bench.group.next_deadline_ms().is_none_or(|next_ms| next_ms > deadline_ms), "a busy loop");
        }
        self.bench.now_ms = until_ms;
        self.check();
    }

    fn act(&mut self) {
        let at = self.random.below(CLIENTS);
        let client = &self.clients[at];
        let (idle, member) = (client.waiting.is_none(), !client.member_id.is_empty());
        match self.random.below(100) {
            0..25 => self.pass(),
            25..50 if idle && member => self.heartbeat(at),
            50..75 if idle && member && !client.synced && client.generation > 0 => self.sync(at),
            50..85 if idle && !client.synced => self.join(at),
            85..88 if idle && member => self.join(at),
            88..90 if !idle && member => self.join(at),
            90..93 if member => self.leave(at),
            93..96 => self.crash(at),
            96 if self.random.one_in(4) => self.restart(),
            97 => self.clients[at].synced = false,
            _ => {}
        }
    }
}

#[test]
fn random_clients_never_break_the_invariants() {
    let mut successes = 0;
    let mut stored = 0;
    for seed in 0..400 {
        let result = std::panic::catch_unwind(|| {
            let mut model = Model::new(seed * 7_919 + 1);
            (0..1_500).for_each(|_| model.act());
            (model.successes, usize::from(model.stored.is_some()))
        });
        let Ok((model_successes, model_stored)) = result else { panic!("seed {seed}") };
        successes += model_successes;
        stored += model_stored;
    }
    assert!(successes > 10_000 && stored == 400, "the model does too little: {successes}, {stored}");
}
