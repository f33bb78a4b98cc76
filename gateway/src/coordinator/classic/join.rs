//! JoinGroup: who may come in, under which id, and whether that starts a rebalance.

use bytes::Bytes;
use uuid::Uuid;

use sluice_protocol::ErrorCode;

use super::{
    Config, Group, JoinErr, JoinOk, JoinRequest, Member, NEW_MEMBER_JOIN_TIMEOUT_MS, Reply, State, Step, Token, Undo,
    after,
};

/// Since this version a dynamic member must come back with the id it is given (KIP-394).
const MEMBER_ID_REQUIRED_SINCE: i16 = 4;
/// Since this version a leader may be told to keep the assignment as it is (KIP-814).
const SKIP_ASSIGNMENT_SINCE: i16 = 9;

impl Group {
    /// Handles JoinGroup. `fresh` becomes part of the member id if one is needed: `<client id>-<uuid>`, or
    /// `<instance id>-<uuid>` for a static member.
    pub(crate) fn join(
        &mut self,
        config: &Config,
        now_ms: i64,
        token: Token,
        fresh: Uuid,
        request: JoinRequest,
    ) -> Step {
        let mut step = Step::default();
        self.initial_rebalance_delay_ms = config.initial_rebalance_delay_ms;
        if let Err(refused) = self.try_join(config, now_ms, token, fresh, request, &mut step) {
            step.replies.push((token, Reply::Join(Err(refused))));
        }
        step
    }

    /// The checks in Kafka's order. On `Ok` the request is answered or parked.
    fn try_join(
        &mut self,
        config: &Config,
        now_ms: i64,
        token: Token,
        fresh: Uuid,
        request: JoinRequest,
        step: &mut Step,
    ) -> Result<(), JoinErr> {
        let member_id = request.member_id.clone();
        let refuse = |code| Err(JoinErr { code, member_id: member_id.clone() });
        if self.id.is_empty() {
            return refuse(ErrorCode::InvalidGroupId);
        }
        let session_timeouts_ms = config.session_timeout_min_ms..=config.session_timeout_max_ms;
        if !session_timeouts_ms.contains(&request.session_timeout_ms) {
            return refuse(ErrorCode::InvalidSessionTimeout);
        }
        if self.is_blank() && !member_id.is_empty() {
            return refuse(ErrorCode::UnknownMemberId);
        }
        if !self.has_room_for(&member_id, config.group_max_size) {
            self.evict(&member_id, step);
            self.complete_join_if_all_joined(now_ms, step);
            return Err(JoinErr { code: ErrorCode::GroupMaxSizeReached, member_id: String::new() });
        }
        if self.state == State::Dead {
            return refuse(ErrorCode::CoordinatorNotAvailable);
        }
        if !self.supports(&request.protocol_type, &request.protocols) {
            return refuse(ErrorCode::InconsistentGroupProtocol);
        }
        if member_id.is_empty() {
            return self.join_unknown(now_ms, token, fresh, &request, step);
        }
        if self.pending.contains_key(&member_id) && request.group_instance_id.is_none() {
            self.add_member(now_ms, token, member_id, true, &request, step);
            return Ok(());
        }
        if let Err(code) = self.validate_member(&member_id, request.group_instance_id.as_deref()) {
            return refuse(code);
        }
        self.rejoin(now_ms, token, &request, step);
        Ok(())
    }

    /// While members come back the count is of those that are back, so that a group above a lowered limit shrinks:
    /// the last to come are turned away.
    fn has_room_for(&self, member_id: &str, group_max_size: usize) -> bool {
        let member = self.members.get(member_id);
        match self.state {
            State::Empty | State::Dead => true,
            State::PreparingRebalance => {
                let joined = self.members.values().filter(|member| member.parked_join.is_some()).count();
                member.is_some_and(|member| member.parked_join.is_some()) || joined < group_max_size
            }
            State::CompletingRebalance | State::Stable => member.is_some() || self.members.len() < group_max_size,
        }
    }

    /// An Empty group takes any protocol type; else it must be the group's, and one protocol must be known to all.
    fn supports(&self, protocol_type: &str, protocols: &[(String, Bytes)]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|(name, _)| self.members.values().all(|member| member.supports(name)))
    }

    /// A client without a member id.
    fn join_unknown(
        &mut self,
        now_ms: i64,
        token: Token,
        fresh: Uuid,
        request: &JoinRequest,
        step: &mut Step,
    ) -> Result<(), JoinErr> {
        let stem = request.group_instance_id.as_ref().unwrap_or(&request.client_id);
        let new_id = format!("{stem}-{fresh}");
        if let Some(instance_id) = &request.group_instance_id {
            match self.statics.get(instance_id).cloned() {
                Some(old_id) => self.replace_static_member(now_ms, token, &old_id, new_id, request, step),
                None => self.add_member(now_ms, token, new_id, false, request, step),
            }
            return Ok(());
        }
        if request.api_version >= MEMBER_ID_REQUIRED_SINCE {
            self.pending.insert(new_id.clone(), after(now_ms, request.session_timeout_ms));
            return Err(JoinErr { code: ErrorCode::MemberIdRequired, member_id: new_id });
        }
        self.add_member(now_ms, token, new_id, false, request, step);
        Ok(())
    }

    fn add_member(
        &mut self,
        now_ms: i64,
        token: Token,
        member_id: String,
        knows_id: bool,
        request: &JoinRequest,
        step: &mut Step,
    ) {
        self.pending.remove(&member_id);
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        if let Some(initial) = &mut self.initial {
            initial.member_added = true;
        }
        if let Some(instance_id) = &request.group_instance_id {
            self.statics.insert(instance_id.clone(), member_id.clone());
        }
        self.leader.get_or_insert_with(|| member_id.clone());
        let mut member = Member {
            id: member_id.clone(),
            instance_id: request.group_instance_id.clone(),
            client_id: request.client_id.clone(),
            client_host: request.client_host.clone(),
            session_timeout_ms: 0,
            rebalance_timeout_ms: 0,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            seq: self.seq_next,
            expires_ms: now_ms.saturating_add(NEW_MEMBER_JOIN_TIMEOUT_MS),
            is_new: true,
            knows_id,
            parked_join: Some(token),
            parked_sync: None,
        };
        member.take_terms(request);
        self.seq_next += 1;
        self.members.insert(member_id, member);
        self.rebalance_or_complete_join(now_ms, step);
    }

    /// A member that the group knows joins again.
    fn rejoin(&mut self, now_ms: i64, token: Token, request: &JoinRequest, step: &mut Step) {
        let Some(member) = self.members.get_mut(&request.member_id) else {
            return;
        };
        let unchanged = member.protocols == request.protocols;
        let leads = self.leader.as_ref() == Some(&request.member_id);
        let answer_now = match self.state {
            // The reply got lost, most likely: repeat it.
            State::CompletingRebalance => unchanged,
            // A leader joins again to have the assignment made anew, as when partitions were added.
            State::Stable => unchanged && !leads,
            State::Empty | State::PreparingRebalance | State::Dead => false,
        };
        member.knows_id = true;
        member.touch(now_ms);
        if answer_now {
            let members = if leads { self.join_members() } else { Vec::new() };
            let answer = self.join_ok(&request.member_id, members);
            step.replies.push((token, Reply::Join(Ok(answer))));
            return;
        }
        member.take_terms(request);
        if member.is_new {
            member.expires_ms = now_ms.saturating_add(NEW_MEMBER_JOIN_TIMEOUT_MS);
        }
        if let Some(superseded) = member.parked_join.replace(token) {
            let refused = JoinErr { code: ErrorCode::RebalanceInProgress, member_id: member.id.clone() };
            step.replies.push((superseded, Reply::Join(Err(refused))));
        }
        self.rebalance_or_complete_join(now_ms, step);
    }

    /// A static member is back without its id, after a restart (KIP-345): it gets a new one and keeps its
    /// assignment. The old id is fenced from now on, requests parked under it at once.
    fn replace_static_member(
        &mut self,
        now_ms: i64,
        token: Token,
        old_id: &str,
        new_id: String,
        request: &JoinRequest,
        step: &mut Step,
    ) {
        let Some(mut old) = self.members.remove(old_id) else {
            return;
        };
        if let Some(parked) = old.parked_join.take() {
            let fenced = JoinErr { code: ErrorCode::FencedInstanceId, member_id: old_id.to_owned() };
            step.replies.push((parked, Reply::Join(Err(fenced))));
        }
        if let Some(parked) = old.parked_sync.take() {
            step.replies.push((parked, Reply::Sync(Err(ErrorCode::FencedInstanceId))));
        }
        let mut new = Member { id: new_id.clone(), is_new: false, knows_id: false, ..old.clone() };
        new.take_terms(request);
        new.touch(now_ms);
        new.parked_join = Some(token);
        if let Some(instance_id) = &new.instance_id {
            self.statics.insert(instance_id.clone(), new_id.clone());
        }
        self.members.insert(new_id.clone(), new);
        if self.pending_sync.remove(old_id) {
            self.pending_sync.insert(new_id.clone());
        }
        let leader_before = self.leader.clone();
        if self.leader.as_deref() == Some(old_id) {
            self.leader = Some(new_id.clone());
        }
        if self.state == State::Stable && self.select_protocol() == self.protocol_name {
            self.admit_replacement(&new_id, leader_before.as_deref(), request.api_version, step);
            step.undo = Undo::StaticMember { new_id, old: Box::new(old), leader: leader_before };
        } else {
            self.rebalance_or_complete_join(now_ms, step);
        }
    }

    /// Lets a replaced static member into the running generation. Clients before version 9 are told the leader of
    /// before, even if they were it themselves, so that they take a follower's part and do not assign again.
    fn admit_replacement(&mut self, new_id: &str, leader_before: Option<&str>, api_version: i16, step: &mut Step) {
        step.record = Some(self.record());
        let leads = self.leader.as_deref() == Some(new_id);
        let may_skip = api_version >= SKIP_ASSIGNMENT_SINCE;
        let members = if leads && may_skip { self.join_members() } else { Vec::new() };
        let mut answer = self.join_ok(new_id, members);
        if may_skip {
            answer.skip_assignment = leads;
        } else {
            answer.leader = leader_before.unwrap_or_default().to_owned();
        }
        if let Some(parked) = self.members.get_mut(new_id).and_then(|member| member.parked_join.take()) {
            step.replies.push((parked, Reply::Join(Ok(answer))));
        }
    }

    /// A success in the current generation.
    pub(super) fn join_ok(&self, member_id: &str, members: Vec<super::JoinMember>) -> JoinOk {
        JoinOk {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol_name.clone(),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: member_id.to_owned(),
            skip_assignment: false,
            members,
        }
    }
}

impl Member {
    /// What a JoinGroup may change. The metadata is copied: it stays for long and must not keep a network buffer.
    fn take_terms(&mut self, request: &JoinRequest) {
        let given_ms = if request.api_version == 0 { 0 } else { request.rebalance_timeout_ms };
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = if given_ms > 0 { given_ms } else { request.session_timeout_ms };
        let copied = request.protocols.iter().map(|(name, metadata)| (name.clone(), Bytes::copy_from_slice(metadata)));
        self.protocols = copied.collect();
    }
}
