//! The phases of a rebalance: how they start, end and run out of time; SyncGroup, LeaveGroup and the clock.

use std::collections::HashMap;

use bytes::Bytes;

use sluice_protocol::ErrorCode;

use super::{
    Group, InitialDelay, JoinErr, JoinMember, LeaveReply, LeaveRequest, LeftMember, Member, Reply, State, Step, SyncOk,
    SyncRequest, Token, Undo, after,
};

/// Since this version LeaveGroup names several members and answers for each (KIP-345).
const LEAVE_BATCH_SINCE: i16 = 3;

impl Group {
    /// Starts a rebalance if none is in its join phase; else a join may have been the last one awaited.
    pub(super) fn rebalance_or_complete_join(&mut self, now_ms: i64, step: &mut Step) {
        match self.state {
            State::Empty | State::CompletingRebalance | State::Stable => self.prepare_rebalance(now_ms, step),
            State::PreparingRebalance => self.complete_join_if_all_joined(now_ms, step),
            State::Dead => {}
        }
    }

    /// Starts the join phase. Members parked in SyncGroup are sent back to join.
    fn prepare_rebalance(&mut self, now_ms: i64, step: &mut Step) {
        if self.state == State::CompletingRebalance {
            self.reset_assignments(ErrorCode::RebalanceInProgress, now_ms, step);
        }
        self.pending_sync.clear();
        self.sync_deadline_ms = None;
        let was_empty = self.state == State::Empty;
        self.enter(State::PreparingRebalance, now_ms);
        if was_empty && self.initial_rebalance_delay_ms > 0 {
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(self.initial_rebalance_delay_ms).max(0);
            self.initial = Some(InitialDelay { remaining_ms, member_added: false });
            self.join_deadline_ms = Some(after(now_ms, self.initial_rebalance_delay_ms));
        } else if self.has_all_joined() {
            self.complete_join(now_ms, step);
        } else {
            self.join_deadline_ms = Some(after(now_ms, self.rebalance_timeout_ms()));
        }
    }

    /// The slowest member sets the pace.
    fn rebalance_timeout_ms(&self) -> i32 {
        self.members.values().map(|member| member.rebalance_timeout_ms).max().unwrap_or(0)
    }

    /// Members only: pending ids hold nothing up (a ghost would stall everybody for its session timeout).
    fn has_all_joined(&self) -> bool {
        self.members.values().all(|member| member.parked_join.is_some())
    }

    /// Ends the join phase early if nobody is missing, unless it is the initial one, which waits for newcomers.
    pub(super) fn complete_join_if_all_joined(&mut self, now_ms: i64, step: &mut Step) {
        if self.state == State::PreparingRebalance && self.initial.is_none() && self.has_all_joined() {
            self.complete_join(now_ms, step);
        }
    }

    /// Ends the join phase: dynamic members that are missing go, static ones stay for their session timeout
    /// (KIP-345). If only missing static members are left the phase starts over, for lack of a leader.
    fn complete_join(&mut self, now_ms: i64, step: &mut Step) {
        self.join_deadline_ms = None;
        self.initial = None;
        let is_missing = |member: &&Member| member.parked_join.is_none() && member.instance_id.is_none();
        let missing: Vec<String> = self.members.values().filter(is_missing).map(|member| member.id.clone()).collect();
        for member_id in missing {
            self.evict(&member_id, step);
        }
        if !self.members.is_empty() && !self.elect_joined_leader() {
            self.join_deadline_ms = Some(after(now_ms, self.rebalance_timeout_ms()));
            return;
        }
        // Wraps to 1: equal generations may not follow each other, and clients take negative ones for "none".
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.protocol_name = self.select_protocol();
        self.subscribed = self.read_subscriptions();
        self.pending_sync.clear();
        if self.members.is_empty() {
            self.enter(State::Empty, now_ms);
            step.record = Some(self.record());
        } else {
            self.enter(State::CompletingRebalance, now_ms);
            self.announce_generation(now_ms, step);
        }
    }

    /// Answers all parked joins, and starts the wait for SyncGroup.
    fn announce_generation(&mut self, now_ms: i64, step: &mut Step) {
        let mut list = self.join_members();
        let member_ids: Vec<String> = self.members.keys().cloned().collect();
        for member_id in member_ids {
            let leads = self.leader.as_ref() == Some(&member_id);
            let answer = self.join_ok(&member_id, if leads { std::mem::take(&mut list) } else { Vec::new() });
            if let Some(member) = self.members.get_mut(&member_id) {
                member.is_new = false;
                member.knows_id = true;
                member.touch(now_ms);
                if let Some(parked) = member.parked_join.take() {
                    step.replies.push((parked, Reply::Join(Ok(answer))));
                }
            }
            self.pending_sync.insert(member_id);
        }
        self.sync_deadline_ms = Some(after(now_ms, self.rebalance_timeout_ms()));
    }

    /// All members with their metadata for the chosen protocol, in order of arrival.
    pub(super) fn join_members(&self) -> Vec<JoinMember> {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.seq);
        let protocol_name = self.protocol_name.as_deref();
        let listed = members.into_iter().map(|member| JoinMember {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            metadata: member.metadata(protocol_name),
        });
        listed.collect()
    }

    /// Keeps the leader if it is back, else takes the oldest member that is. False if nobody is back.
    fn elect_joined_leader(&mut self) -> bool {
        let joined = |member: &&Member| member.parked_join.is_some();
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader)).filter(joined);
        let oldest = || self.members.values().filter(joined).min_by_key(|member| member.seq);
        let Some(elected) = leader.or_else(oldest).map(|member| member.id.clone()) else {
            return false;
        };
        self.leader = Some(elected);
        true
    }

    /// Each member votes for the first of its protocols that all members have. A tie goes to the protocol in use,
    /// then to the one the leader likes best. `None` only without members.
    pub(super) fn select_protocol(&self) -> Option<String> {
        let is_common = |name: &str| self.members.values().all(|member| member.supports(name));
        let mut votes: HashMap<&str, usize> = HashMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| is_common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.values().copied().max()?;
        let is_winner = |name: &&str| votes.get(*name) == Some(&most);
        let current = self.protocol_name.as_deref().filter(is_winner);
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        let liked = || leader?.protocols.iter().map(|(name, _)| name.as_str()).find(is_winner);
        let any = || votes.keys().copied().filter(is_winner).min();
        current.or_else(liked).or_else(any).map(str::to_owned)
    }

    /// Handles SyncGroup. Followers wait for the leader, whose request brings all assignments.
    pub(crate) fn sync(&mut self, now_ms: i64, token: Token, request: &SyncRequest) -> Step {
        let mut step = Step::default();
        if let Err(code) = self.try_sync(now_ms, token, request, &mut step) {
            step.replies.push((token, Reply::Sync(Err(code))));
        }
        step
    }

    fn try_sync(&mut self, now_ms: i64, token: Token, request: &SyncRequest, step: &mut Step) -> Result<(), ErrorCode> {
        if self.id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        if self.state == State::Dead {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
        if request.generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, own: &Option<String>| asked.is_some() && own.is_some() && asked != own;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol_name, &self.protocol_name)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        match self.state {
            State::Empty | State::Dead => return Err(ErrorCode::UnknownMemberId),
            State::PreparingRebalance => return Err(ErrorCode::RebalanceInProgress),
            State::CompletingRebalance | State::Stable => {}
        }
        self.pending_sync.remove(&request.member_id);
        if self.pending_sync.is_empty() {
            self.sync_deadline_ms = None;
        }
        if let Some(member) = self.members.get_mut(&request.member_id)
            && let Some(superseded) = member.parked_sync.replace(token)
        {
            step.replies.push((superseded, Reply::Sync(Err(ErrorCode::RebalanceInProgress))));
        }
        if self.state == State::Stable {
            self.release_assignments(now_ms, step);
        } else if self.leader.as_ref() == Some(&request.member_id) {
            self.assign(request, now_ms, step);
        }
        Ok(())
    }

    /// Takes the leader's assignments. A member it forgot gets an empty one; names it made up are ignored.
    fn assign(&mut self, request: &SyncRequest, now_ms: i64, step: &mut Step) {
        let given: HashMap<&str, &Bytes> =
            request.assignments.iter().map(|(member_id, assignment)| (member_id.as_str(), assignment)).collect();
        for member in self.members.values_mut() {
            let assignment = given.get(member.id.as_str()).map(|bytes| bytes.as_ref()).unwrap_or_default();
            member.assignment = Bytes::copy_from_slice(assignment);
        }
        self.enter(State::Stable, now_ms);
        step.record = Some(self.record());
        step.undo = Undo::Assignment { generation: self.generation };
        self.release_assignments(now_ms, step);
    }

    /// Answers all parked SyncGroup requests, and starts their members' session clocks.
    fn release_assignments(&mut self, now_ms: i64, step: &mut Step) {
        for member in self.members.values_mut() {
            if let Some(parked) = member.parked_sync.take() {
                let answer = SyncOk {
                    protocol_type: self.protocol_type.clone(),
                    protocol_name: self.protocol_name.clone(),
                    assignment: member.assignment.clone(),
                };
                step.replies.push((parked, Reply::Sync(Ok(answer))));
                member.touch(now_ms);
            }
        }
    }

    /// Takes all assignments away and sends parked members back with `code`.
    fn reset_assignments(&mut self, code: ErrorCode, now_ms: i64, step: &mut Step) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
            if let Some(parked) = member.parked_sync.take() {
                step.replies.push((parked, Reply::Sync(Err(code))));
                member.touch(now_ms);
            }
        }
    }

    /// Handles LeaveGroup: all that are named go, then there is one rebalance.
    pub(crate) fn leave(&mut self, now_ms: i64, token: Token, request: &LeaveRequest) -> Step {
        let mut step = Step::default();
        let mut reply = LeaveReply { code: None, members: Vec::new() };
        if self.id.is_empty() {
            reply.code = Some(ErrorCode::InvalidGroupId);
        } else if self.state == State::Dead {
            reply.code = Some(ErrorCode::CoordinatorNotAvailable);
        } else {
            let count_before = self.members.len();
            for (member_id, instance_id) in &request.members {
                let code = self.leave_one(member_id, instance_id.as_deref(), &mut step).err();
                let left = LeftMember { member_id: member_id.clone(), group_instance_id: instance_id.clone(), code };
                reply.members.push(left);
            }
            if self.members.len() < count_before {
                self.rebalance_or_complete_join(now_ms, &mut step);
            }
        }
        if request.api_version < LEAVE_BATCH_SINCE {
            let single = reply.members.first().and_then(|member| member.code);
            reply = LeaveReply { code: reply.code.or(single), members: Vec::new() };
        }
        step.replies.push((token, Reply::Leave(reply)));
        step
    }

    /// A tool may name a static member by its instance id alone.
    fn leave_one(&mut self, member_id: &str, instance_id: Option<&str>, step: &mut Step) -> Result<(), ErrorCode> {
        if member_id.is_empty() {
            let named = instance_id.and_then(|instance_id| self.statics.get(instance_id)).cloned();
            let named = named.ok_or(ErrorCode::UnknownMemberId)?;
            self.evict(&named, step);
        } else if self.pending.remove(member_id).is_none() {
            self.validate_member(member_id, instance_id)?;
            self.evict(member_id, step);
        }
        Ok(())
    }

    /// Removes a member or a pending id, if there is one, and answers what is parked under it. Does not look at what
    /// that means for the phase. A lost leader is followed by the oldest member.
    pub(super) fn evict(&mut self, member_id: &str, step: &mut Step) {
        self.pending.remove(member_id);
        self.pending_sync.remove(member_id);
        let Some(member) = self.members.remove(member_id) else {
            return;
        };
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if let Some(parked) = member.parked_join {
            let refused = JoinErr { code: ErrorCode::UnknownMemberId, member_id: String::new() };
            step.replies.push((parked, Reply::Join(Err(refused))));
        }
        if let Some(parked) = member.parked_sync {
            step.replies.push((parked, Reply::Sync(Err(ErrorCode::UnknownMemberId))));
        }
        if self.leader.as_deref() == Some(member_id) {
            self.leader = self.members.values().min_by_key(|member| member.seq).map(|member| member.id.clone());
        }
    }

    /// Does what is due at `now_ms`: pending ids lapse, silent members go, phases run out of time.
    pub(crate) fn tick(&mut self, now_ms: i64) -> Step {
        let mut step = Step::default();
        self.pending.retain(|_, lapses_ms| *lapses_ms > now_ms);
        let is_expired = |member: &&Member| !member.is_exempt_from_expiry() && member.expires_ms <= now_ms;
        let expired: Vec<String> = self.members.values().filter(is_expired).map(|member| member.id.clone()).collect();
        for member_id in &expired {
            self.evict(member_id, &mut step);
        }
        if !expired.is_empty() {
            self.rebalance_or_complete_join(now_ms, &mut step);
        }
        if self.join_deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            self.join_phase_due(now_ms, &mut step);
        }
        if self.sync_deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            self.sync_phase_due(now_ms, &mut step);
        }
        step
    }

    /// The initial join phase goes on while new members come, but not beyond the rebalance timeout (KIP-134).
    fn join_phase_due(&mut self, now_ms: i64, step: &mut Step) {
        if let Some(initial) = &mut self.initial
            && initial.member_added
            && initial.remaining_ms > 0
        {
            let delay_ms = self.initial_rebalance_delay_ms.clamp(0, initial.remaining_ms);
            initial.member_added = false;
            initial.remaining_ms -= delay_ms;
            self.join_deadline_ms = Some(after(now_ms, delay_ms));
            if delay_ms > 0 {
                return;
            }
        }
        self.complete_join(now_ms, step);
    }

    /// Members that took their JoinGroup reply and never sent SyncGroup go, and the others join again.
    fn sync_phase_due(&mut self, now_ms: i64, step: &mut Step) {
        self.sync_deadline_ms = None;
        let missing = std::mem::take(&mut self.pending_sync);
        for member_id in &missing {
            self.evict(member_id, step);
        }
        if !missing.is_empty() {
            self.rebalance_or_complete_join(now_ms, step);
        }
    }

    /// When [`Group::tick`] has something to do next.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        let expiring = self.members.values().filter(|member| !member.is_exempt_from_expiry());
        let sessions = expiring.map(|member| member.expires_ms);
        let phases = self.join_deadline_ms.into_iter().chain(self.sync_deadline_ms);
        sessions.chain(self.pending.values().copied()).chain(phases).min()
    }

    /// The connection of a parked request went away: its token is never answered. The member is silent from now on
    /// and has its session timeout to come back, except a new one whose client was never told its id: nobody can
    /// come back as that, so it goes at once. Kafka does not notice and keeps both until a later timeout.
    pub(crate) fn abandon(&mut self, now_ms: i64, token: Token) -> Step {
        let mut step = Step::default();
        let is_parked = |member: &&mut Member| member.parked_join == Some(token) || member.parked_sync == Some(token);
        let Some(member) = self.members.values_mut().find(is_parked) else {
            return step;
        };
        member.parked_join.take_if(|parked| *parked == token);
        member.parked_sync.take_if(|parked| *parked == token);
        if member.is_new && !member.knows_id && member.instance_id.is_none() {
            let member_id = member.id.clone();
            self.evict(&member_id, &mut step);
            self.rebalance_or_complete_join(now_ms, &mut step);
        } else {
            member.expires_ms = after(now_ms, member.session_timeout_ms);
        }
        step
    }

    /// The record of `failed` could not be written. Its replies become errors, and what they promised is taken back:
    /// a generation whose assignment is lost rebalances, a replaced static member has its old id again. An Empty
    /// group stays Empty: nobody is left who could disagree.
    ///
    /// `code` is what clients see: COORDINATOR_NOT_AVAILABLE makes them retry here, NOT_COORDINATOR look elsewhere.
    pub(crate) fn persist_failed(&mut self, now_ms: i64, failed: Step, code: ErrorCode) -> Step {
        let mut step = Step::default();
        for (token, reply) in failed.replies {
            let reply = match reply {
                Reply::Join(Ok(_)) => Reply::Join(Err(JoinErr { code, member_id: String::new() })),
                Reply::Sync(Ok(_)) => Reply::Sync(Err(code)),
                Reply::Leave(_) => Reply::Leave(LeaveReply { code: Some(code), members: Vec::new() }),
                Reply::Join(Err(_)) | Reply::Sync(Err(_)) | Reply::Heartbeat(_) => reply,
            };
            step.replies.push((token, reply));
        }
        match failed.undo {
            Undo::Nothing => {}
            Undo::Assignment { generation } => {
                if self.state == State::Stable && self.generation == generation {
                    self.reset_assignments(code, now_ms, &mut step);
                    self.prepare_rebalance(now_ms, &mut step);
                }
            }
            Undo::StaticMember { new_id, old, leader } => self.reinstate(now_ms, &new_id, *old, leader),
        }
        step
    }

    /// Gives a static member its old id back, unless the group has moved on since.
    fn reinstate(&mut self, now_ms: i64, new_id: &str, mut old: Member, leader: Option<String>) {
        if self.state != State::Stable || self.members.remove(new_id).is_none() {
            return;
        }
        if let Some(instance_id) = &old.instance_id {
            self.statics.insert(instance_id.clone(), old.id.clone());
        }
        if self.pending_sync.remove(new_id) {
            self.pending_sync.insert(old.id.clone());
        }
        if self.leader.as_deref() == Some(new_id) {
            self.leader = leader;
        }
        old.touch(now_ms);
        self.members.insert(old.id.clone(), old);
    }

    /// The group is deleted, or this is no longer its coordinator: everything parked is answered with `code`, and so
    /// is every later request with COORDINATOR_NOT_AVAILABLE.
    pub(crate) fn kill(&mut self, now_ms: i64, code: ErrorCode) -> Step {
        let mut step = Step::default();
        for (member_id, member) in std::mem::take(&mut self.members) {
            if let Some(parked) = member.parked_join {
                step.replies.push((parked, Reply::Join(Err(JoinErr { code, member_id }))));
            }
            if let Some(parked) = member.parked_sync {
                step.replies.push((parked, Reply::Sync(Err(code))));
            }
        }
        let generation = self.generation;
        *self = Self::new(std::mem::take(&mut self.id));
        self.generation = generation;
        self.enter(State::Dead, now_ms);
        step
    }
}
