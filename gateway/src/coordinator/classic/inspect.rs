//! What others may ask of a group without changing it: DescribeGroups, ListGroups, DeleteGroups, OffsetDelete, and
//! the expiry of offsets.

use std::collections::BTreeSet;

use bytes::Bytes;

use sluice_protocol::ErrorCode;

use super::subscription::read_topics;
use super::{Group, State};

/// The protocol type of consumers; only their metadata is understood here.
const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// A group as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    /// The state.
    pub(crate) state: State,
    /// Empty if the group never had a member.
    pub(crate) protocol_type: String,
    /// The protocol in use; empty unless Stable.
    pub(crate) protocol_data: String,
    /// All members.
    pub(crate) members: Vec<MemberDescription>,
}

/// A member as DescribeGroups shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberDescription {
    /// The member's id.
    pub(crate) member_id: String,
    /// Its instance id, if static.
    pub(crate) group_instance_id: Option<String>,
    /// The client's name for itself.
    pub(crate) client_id: String,
    /// Where it connected from.
    pub(crate) client_host: String,
    /// Its metadata for the protocol in use; empty unless the group is Stable.
    pub(crate) metadata: Bytes,
    /// The last assignment it had; may be of the generation before while a rebalance goes on.
    pub(crate) assignment: Bytes,
}

/// Whether an OffsetCommit may create a group that does not exist. Only without a generation; else the code depends
/// on the version, since clients before version 9 do not know GROUP_ID_NOT_FOUND in this place (KIP-848).
pub(crate) fn check_commit_without_group(api_version: i16, generation: i32) -> Result<(), ErrorCode> {
    if generation < 0 {
        Ok(())
    } else if api_version >= 9 {
        Err(ErrorCode::GroupIdNotFound)
    } else {
        Err(ErrorCode::IllegalGeneration)
    }
}

impl Group {
    /// Where the group stands.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// When it came there; -1 for a group that never moved. Offsets of an Empty group expire counting from here.
    pub(crate) fn state_since_ms(&self) -> i64 {
        self.state_since_ms
    }

    /// The current generation.
    #[cfg(test)]
    pub(crate) fn generation(&self) -> i32 {
        self.generation
    }

    /// What kind of members the group has or last had; `None` if it never had any.
    pub(crate) fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    /// Whether nothing would be lost if the group were forgotten (its committed offsets apart): no member was ever
    /// in it and no id is given out. A request to a missing group may make one with [`Group::new`] and drop it again.
    pub(crate) fn is_blank(&self) -> bool {
        self.state == State::Empty && self.generation == 0 && self.members.is_empty() && self.pending.is_empty()
    }

    /// The group as DescribeGroups shows it: metadata and protocol only when Stable.
    pub(crate) fn describe(&self) -> Description {
        let stable = self.state == State::Stable;
        let protocol_name = self.protocol_name.as_deref().filter(|_| stable);
        let members = self.members.values().map(|member| MemberDescription {
            member_id: member.id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: if stable { member.metadata(protocol_name) } else { Bytes::new() },
            assignment: member.assignment.clone(),
        });
        Description {
            state: self.state,
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            protocol_data: protocol_name.unwrap_or_default().to_owned(),
            members: members.collect(),
        }
    }

    /// Whether ListGroups with these filters shows the group (KIP-518, KIP-848). An empty filter lets all through,
    /// case does not matter, and names that do not exist match nothing.
    pub(crate) fn is_listed(&self, states: &[&str], types: &[&str]) -> bool {
        let matches = |filter: &[&str], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        matches(states, self.state.name()) && matches(types, "classic")
    }

    /// Whether DeleteGroups may go on.
    pub(crate) fn check_delete(&self) -> Result<(), ErrorCode> {
        match self.state {
            State::Empty => Ok(()),
            State::Dead => Err(ErrorCode::GroupIdNotFound),
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => Err(ErrorCode::NonEmptyGroup),
        }
    }

    /// Whether OffsetDelete may go on at all (KIP-496). For each topic then ask [`Group::subscribed_to`].
    pub(crate) fn check_offset_delete(&self) -> Result<(), ErrorCode> {
        if self.uses_consumer_protocol() && self.state != State::Dead { Ok(()) } else { self.check_delete() }
    }

    /// Whether a member consumes `topic`, so that its offsets must stay. A consumer group whose subscriptions cannot
    /// be read counts as subscribed to everything, a group of another kind to nothing.
    pub(crate) fn subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }

    fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// What the members subscribe to in the chosen protocol; `None` if that cannot be known.
    pub(super) fn read_subscriptions(&self) -> Option<BTreeSet<String>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            let protocol = self.protocol_name.as_deref()?;
            read_topics(&member.metadata(Some(protocol)), &mut topics)?;
        }
        Some(topics)
    }
}
