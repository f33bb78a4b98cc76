//! The group coordinator: runs the state machines of [`classic`], keeps committed offsets, and makes
//! both durable before anyone is told.
//!
//! One lock a group: its operations run one after another, each record is written before the replies
//! that depend on it. Everything is loaded at start, so a Stable group goes on where it was (P50).

mod classic;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_engine::{Backend, Clock};
use sluice_protocol::ErrorCode;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use uuid::Uuid;

pub(crate) use classic::{
    Config as GroupConfig, Description, JoinErr, JoinRequest, LeaveReply, LeaveRequest, LeftMember, Reply, State,
    SyncRequest,
};
use classic::{Group, Step, Token, check_commit_without_group};
pub(crate) use store::{Committed, Place};

use crate::kafka::error::coordinator_code_of;

/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often offsets are looked through for expired ones.
const EXPIRY_INTERVAL_MS: i64 = 60_000;
/// Longest note of a commit (Kafka's `offset.metadata.max.bytes`).
pub(crate) const METADATA_LEN_MAX: usize = 4096;

struct Inner {
    group: Group,
    offsets: BTreeMap<Place, Committed>,
    parked: HashMap<Token, oneshot::Sender<Reply>>,
    /// Offsets were committed: the group exists until it is deleted or its last offset expires.
    committed: bool,
    /// Set when the cell left the map: whoever still holds it must look again.
    gone: bool,
}

struct Cell {
    inner: AsyncMutex<Inner>,
    deadline_ms: AtomicI64,
}

/// All groups of this server.
pub(crate) struct Coordinator {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    config: GroupConfig,
    retention_ms: i64,
    groups: Mutex<HashMap<String, Arc<Cell>>>,
    next_token: AtomicU64,
}

/// Who commits.
pub(crate) struct Committer {
    /// Version of OffsetCommit: some error codes depend on it.
    pub(crate) version: i16,
    pub(crate) member: String,
    pub(crate) instance: Option<String>,
    /// -1 for consumers without group management.
    pub(crate) generation: i32,
}

/// One line of ListGroups.
pub(crate) struct Listed {
    pub(crate) id: String,
    pub(crate) protocol_type: String,
    pub(crate) state: State,
}

/// A parked request: dropped without an answer, the group is told that its client went away.
pub(crate) struct Parked {
    coordinator: Arc<Coordinator>,
    group: String,
    token: Token,
    receiver: Option<oneshot::Receiver<Reply>>,
}

impl Parked {
    /// The reply; `None` when the coordinator dropped the request.
    pub(crate) async fn reply(mut self) -> Option<Reply> {
        let reply = match self.receiver.as_mut() {
            Some(receiver) => receiver.await.ok(),
            None => None,
        };
        self.receiver = None;
        reply
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if self.receiver.is_none() {
            return;
        }
        let (coordinator, group, token) = (Arc::clone(&self.coordinator), std::mem::take(&mut self.group), self.token);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { coordinator.abandon(&group, token).await });
        }
    }
}

/// Runs a change to its end even when the request it belongs to is dropped half-way: a state machine
/// that moved on must have its record written and its replies sent.
async fn to_the_end<T: Send + 'static>(change: impl Future<Output = T> + Send + 'static) -> Option<T> {
    tokio::spawn(change).await.ok()
}

fn new_cell(group: Group) -> Arc<Cell> {
    let inner = Inner { group, offsets: BTreeMap::new(), parked: HashMap::new(), committed: false, gone: false };
    Arc::new(Cell { inner: AsyncMutex::new(inner), deadline_ms: AtomicI64::new(i64::MAX) })
}

impl Coordinator {
    /// Loads all groups and offsets.
    ///
    /// # Errors
    /// The store's; a damaged record is logged and left out.
    pub(crate) async fn load(
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        config: GroupConfig,
        retention_ms: i64,
    ) -> sluice_engine::Result<Arc<Self>> {
        let now = clock.now_ms();
        let mut groups: HashMap<String, Inner> = HashMap::new();
        let fresh = |group: Group| Inner {
            group,
            offsets: BTreeMap::new(),
            parked: HashMap::new(),
            committed: false,
            gone: false,
        };
        for (key, value) in backend.scan_state(store::GROUPS.to_vec()).await? {
            match store::read_group(&value) {
                Ok(record) => {
                    groups.insert(record.group_id.clone(), fresh(Group::restore(record, now)));
                }
                Err(error) => tracing::error!(key = %String::from_utf8_lossy(&key), %error, "a group is lost"),
            }
        }
        for (key, value) in backend.scan_state(store::OFFSETS.to_vec()).await? {
            match store::read_offset(&key, &value) {
                Ok((group, place, committed)) => {
                    let inner = groups.entry(group.clone()).or_insert_with(|| fresh(Group::new(group)));
                    inner.offsets.insert(place, committed);
                    inner.committed = true;
                }
                Err(error) => tracing::error!(key = %String::from_utf8_lossy(&key), %error, "an offset is lost"),
            }
        }
        let cells = groups.into_iter().map(|(id, inner)| {
            let deadline = inner.group.next_deadline_ms().unwrap_or(i64::MAX);
            (id, Arc::new(Cell { inner: AsyncMutex::new(inner), deadline_ms: AtomicI64::new(deadline) }))
        });
        Ok(Arc::new(Self {
            backend,
            clock,
            config,
            retention_ms,
            groups: Mutex::new(cells.collect()),
            next_token: AtomicU64::new(1),
        }))
    }

    /// Runs timers until the task is dropped.
    pub(crate) async fn run_timers(self: Arc<Self>) {
        let mut next_expiry = self.clock.now_ms() + EXPIRY_INTERVAL_MS;
        loop {
            tokio::time::sleep(TICK).await;
            let now = self.clock.now_ms();
            let due: Vec<(String, Arc<Cell>)> = {
                let groups = self.groups.lock();
                let due = groups.iter().filter(|(_, cell)| cell.deadline_ms.load(Ordering::Acquire) <= now);
                due.map(|(id, cell)| (id.clone(), Arc::clone(cell))).collect()
            };
            for (id, cell) in due {
                let mut inner = cell.inner.lock().await;
                if !inner.gone {
                    let step = inner.group.tick(now);
                    self.settle(&id, &cell, &mut inner, step).await;
                }
            }
            if now >= next_expiry {
                next_expiry = now + EXPIRY_INTERVAL_MS;
                self.expire_offsets(now).await;
            }
        }
    }

    fn existing(&self, group: &str) -> Option<Arc<Cell>> {
        self.groups.lock().get(group).cloned()
    }

    fn cell(&self, group: &str) -> Arc<Cell> {
        let mut groups = self.groups.lock();
        Arc::clone(groups.entry(group.to_owned()).or_insert_with(|| new_cell(Group::new(group.to_owned()))))
    }

    /// Runs one operation on a group, made for it where there is none.
    async fn operate(
        self: &Arc<Self>,
        group: &str,
        operation: impl FnOnce(&mut Group, i64, Token) -> Step + Send + 'static,
    ) -> Parked {
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let (this, id) = (Arc::clone(self), group.to_owned());
        to_the_end(async move {
            loop {
                let cell = this.cell(&id);
                let mut inner = cell.inner.lock().await;
                if inner.gone {
                    continue;
                }
                inner.parked.insert(token, sender);
                let step = operation(&mut inner.group, this.clock.now_ms(), token);
                this.settle(&id, &cell, &mut inner, step).await;
                break;
            }
        })
        .await;
        Parked { coordinator: Arc::clone(self), group: group.to_owned(), token, receiver: Some(receiver) }
    }

    /// Makes a step's record durable, then lets its replies go.
    async fn settle(&self, id: &str, cell: &Cell, inner: &mut Inner, mut step: Step) {
        while let Some(record) = step.record.take() {
            match self.backend.write_state(vec![store::put_group(&record)]).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(group = id, %error, "a group's record was not written");
                    step = inner.group.persist_failed(self.clock.now_ms(), step, coordinator_code_of(&error));
                }
            }
        }
        for (token, reply) in step.replies {
            if let Some(waiting) = inner.parked.remove(&token) {
                let _ = waiting.send(reply);
            }
        }
        cell.deadline_ms.store(inner.group.next_deadline_ms().unwrap_or(i64::MAX), Ordering::Release);
        if inner.group.is_blank() && !inner.committed && inner.parked.is_empty() {
            inner.gone = true;
            self.groups.lock().remove(id);
        }
    }

    async fn abandon(&self, group: &str, token: Token) {
        let Some(cell) = self.existing(group) else { return };
        let mut inner = cell.inner.lock().await;
        if inner.parked.remove(&token).is_some() {
            let step = inner.group.abandon(self.clock.now_ms(), token);
            self.settle(group, &cell, &mut inner, step).await;
        }
    }

    /// JoinGroup.
    pub(crate) async fn join(self: &Arc<Self>, group: &str, request: JoinRequest) -> Parked {
        let config = self.config.clone();
        self.operate(group, move |state, now, token| state.join(&config, now, token, Uuid::new_v4(), request)).await
    }

    /// SyncGroup.
    pub(crate) async fn sync(self: &Arc<Self>, group: &str, request: SyncRequest) -> Parked {
        self.operate(group, move |state, now, token| state.sync(now, token, &request)).await
    }

    /// Heartbeat.
    pub(crate) async fn heartbeat(
        self: &Arc<Self>,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Parked {
        let (member, instance) = (member.to_owned(), instance.map(str::to_owned));
        self.operate(group, move |state, now, token| {
            state.heartbeat(now, token, &member, instance.as_deref(), generation)
        })
        .await
    }

    /// LeaveGroup.
    pub(crate) async fn leave(self: &Arc<Self>, group: &str, request: LeaveRequest) -> Parked {
        self.operate(group, move |state, now, token| state.leave(now, token, &request)).await
    }

    /// The group as DescribeGroups shows it; `None` when there is none.
    pub(crate) async fn describe(&self, group: &str) -> Option<Description> {
        let cell = self.existing(group)?;
        let inner = cell.inner.lock().await;
        Some(inner.group.describe())
    }

    /// The groups that pass the filters.
    pub(crate) async fn list(&self, states: &[&str], types: &[&str]) -> Vec<Listed> {
        let cells: Vec<_> = self.groups.lock().iter().map(|(id, cell)| (id.clone(), Arc::clone(cell))).collect();
        let mut listed = Vec::new();
        for (id, cell) in cells {
            let inner = cell.inner.lock().await;
            if !inner.gone && inner.group.is_listed(states, types) {
                let protocol_type = inner.group.protocol_type().unwrap_or_default().to_owned();
                listed.push(Listed { id, protocol_type, state: inner.group.state() });
            }
        }
        listed.sort_by(|a, b| a.id.cmp(&b.id));
        listed
    }

    /// DeleteGroups: the group and its offsets.
    pub(crate) async fn delete(self: &Arc<Self>, group: &str) -> Result<(), ErrorCode> {
        let (this, group) = (Arc::clone(self), group.to_owned());
        to_the_end(async move { this.delete_now(&group).await })
            .await
            .unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))
    }

    async fn delete_now(&self, group: &str) -> Result<(), ErrorCode> {
        let cell = self.existing(group).ok_or(ErrorCode::GroupIdNotFound)?;
        let mut inner = cell.inner.lock().await;
        if inner.gone {
            return Err(ErrorCode::GroupIdNotFound);
        }
        inner.group.check_delete()?;
        let mut changes: Vec<_> = inner.offsets.keys().map(|place| store::remove_offset(group, place)).collect();
        changes.push(store::remove_group(group));
        self.backend.write_state(changes).await.map_err(|error| coordinator_code_of(&error))?;
        let step = inner.group.kill(self.clock.now_ms(), ErrorCode::NotCoordinator);
        inner.offsets.clear();
        inner.gone = true;
        self.groups.lock().remove(group);
        for (token, reply) in step.replies {
            if let Some(waiting) = inner.parked.remove(&token) {
                let _ = waiting.send(reply);
            }
        }
        Ok(())
    }

    /// Checks whether a commit may go on, and if so makes `offsets` durable.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        group: &str,
        committer: Committer,
        offsets: Vec<(Place, Committed)>,
    ) -> Result<(), ErrorCode> {
        let (this, group) = (Arc::clone(self), group.to_owned());
        let change = to_the_end(async move { this.commit_now(&group, &committer, offsets).await });
        change.await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))
    }

    async fn commit_now(
        &self,
        group: &str,
        committer: &Committer,
        offsets: Vec<(Place, Committed)>,
    ) -> Result<(), ErrorCode> {
        let Committer { version, generation, .. } = *committer;
        loop {
            if self.existing(group).is_none() {
                check_commit_without_group(version, generation)?;
            }
            let cell = self.cell(group);
            let mut inner = cell.inner.lock().await;
            if inner.gone {
                continue;
            }
            let blank = inner.group.is_blank() && !inner.committed;
            let checked = if blank {
                check_commit_without_group(version, generation)
            } else {
                let instance = committer.instance.as_deref();
                inner.group.check_commit(self.clock.now_ms(), &committer.member, instance, generation)
            };
            let outcome = match checked {
                Ok(()) => {
                    let changes = offsets.iter().map(|(place, committed)| store::put_offset(group, place, committed));
                    let written = self.backend.write_state(changes.collect()).await;
                    written.map_err(|error| coordinator_code_of(&error))
                }
                Err(code) => Err(code),
            };
            if outcome.is_ok() {
                inner.offsets.extend(offsets);
                inner.committed = true;
            }
            self.settle(group, &cell, &mut inner, Step::default()).await;
            return outcome;
        }
    }

    /// What a group committed.
    pub(crate) async fn offsets(&self, group: &str) -> BTreeMap<Place, Committed> {
        match self.existing(group) {
            Some(cell) => cell.inner.lock().await.offsets.clone(),
            None => BTreeMap::new(),
        }
    }

    /// OffsetDelete: forgets offsets of topics that no member consumes; the answer says which it kept.
    pub(crate) async fn delete_offsets(
        self: &Arc<Self>,
        group: &str,
        topics: Vec<(String, Uuid, Vec<i32>)>,
    ) -> Result<Vec<String>, ErrorCode> {
        let (this, group) = (Arc::clone(self), group.to_owned());
        let change = to_the_end(async move { this.delete_offsets_now(&group, topics).await });
        change.await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable))
    }

    async fn delete_offsets_now(
        &self,
        group: &str,
        topics: Vec<(String, Uuid, Vec<i32>)>,
    ) -> Result<Vec<String>, ErrorCode> {
        let cell = self.existing(group).ok_or(ErrorCode::GroupIdNotFound)?;
        let mut inner = cell.inner.lock().await;
        if inner.gone {
            return Err(ErrorCode::GroupIdNotFound);
        }
        inner.group.check_offset_delete()?;
        let mut kept = Vec::new();
        let mut places = Vec::new();
        for (name, id, partitions) in topics {
            if inner.group.subscribed_to(&name) {
                kept.push(name);
            } else {
                places.extend(partitions.into_iter().map(|partition| (id, partition)));
            }
        }
        self.forget(group, &cell, &mut inner, places).await?;
        Ok(kept)
    }

    async fn forget(&self, group: &str, cell: &Cell, inner: &mut Inner, places: Vec<Place>) -> Result<(), ErrorCode> {
        let known: Vec<_> = places.into_iter().filter(|place| inner.offsets.contains_key(place)).collect();
        if known.is_empty() {
            return Ok(());
        }
        let changes = known.iter().map(|place| store::remove_offset(group, place)).collect();
        self.backend.write_state(changes).await.map_err(|error| coordinator_code_of(&error))?;
        for place in known {
            inner.offsets.remove(&place);
        }
        self.settle(group, cell, inner, Step::default()).await;
        Ok(())
    }

    /// A topic was deleted: so are its offsets.
    pub(crate) async fn forget_topic(&self, topic: Uuid) {
        self.forget_where(|place, _, _| place.0 == topic).await;
    }

    /// Offsets expire by their own wish, or `retention_ms` after their group became Empty (KIP-211).
    async fn expire_offsets(&self, now: i64) {
        let retention = self.retention_ms;
        self.forget_where(|_, committed, group| {
            let by_wish = committed.expiry_ms >= 0 && now >= committed.expiry_ms;
            let since = if group.protocol_type().is_some() { group.state_since_ms() } else { committed.commit_ms };
            let idle = group.state() == State::Empty && now - since.max(committed.commit_ms) >= retention;
            by_wish || idle
        })
        .await;
    }

    async fn forget_where(&self, which: impl Fn(&Place, &Committed, &Group) -> bool) {
        let cells: Vec<_> = self.groups.lock().iter().map(|(id, cell)| (id.clone(), Arc::clone(cell))).collect();
        for (id, cell) in cells {
            let mut inner = cell.inner.lock().await;
            if inner.gone {
                continue;
            }
            let places: Vec<_> = inner
                .offsets
                .iter()
                .filter(|(place, it)| which(place, it, &inner.group))
                .map(|(place, _)| *place)
                .collect();
            if let Err(code) = self.forget(&id, &cell, &mut inner, places).await {
                tracing::warn!(group = id, ?code, "offsets were not removed");
            } else if inner.offsets.is_empty() && inner.committed {
                inner.committed = false;
                self.settle(&id, &cell, &mut inner, Step::default()).await;
            }
        }
    }
}
