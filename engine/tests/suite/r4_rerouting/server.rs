//! The server: takes batches up, appends their parts, closes them, answers, recovers.

use std::collections::VecDeque;

use super::coordinator::Coordinator;
use super::rng::Rng;
use super::rules::Rules;
use super::tablet::{Body, Closed, Entry, Tablet, Verdict};
use super::types::{Answer, BUCKETS, End, IN_FLIGHT, Lane, PRODUCERS, Range, Request, Row};

/// A batch between take-up and closing entry.
#[derive(Debug)]
struct Job {
    request: Request,
    /// Destinations other than the source that are not appended yet.
    todo: Vec<usize>,
    ends: Vec<End>,
}

/// A closed batch whose answer waits for durability.
#[derive(Debug)]
struct Waiter {
    request: Request,
    closed: Closed,
    duplicate: bool,
}

/// Requests and jobs of one producer and source.
#[derive(Debug, Default)]
struct Queue {
    arrived: VecDeque<Request>,
    jobs: Vec<Job>,
    /// The earliest range of its epoch that has failed. Like `epoch`, it outlives the restart of a bucket, but not
    /// the connections.
    failed: Option<Range>,
    /// The newest producer epoch taken up.
    epoch: u32,
}

impl Queue {
    fn note_failed(&mut self, range: Range) {
        let later = |f: &Range| f.epoch < range.epoch || (f.epoch == range.epoch && range.first < f.first);
        if self.failed.as_ref().is_none_or(later) {
            self.failed = Some(range);
        }
    }
}

/// Everything on the server's side.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) rules: Rules,
    pub(crate) tablets: [Tablet; BUCKETS],
    pub(crate) coordinator: Coordinator,
    /// Percentage of job steps that fail.
    pub(crate) fault_percent: usize,
    /// Answers that clients have not read yet.
    pub(crate) answers: Vec<(Request, Answer)>,
    queues: [Queue; BUCKETS * PRODUCERS],
    waiters: Vec<Waiter>,
}

impl Server {
    /// An empty table.
    pub(crate) fn new(rules: Rules) -> Self {
        Server {
            rules,
            tablets: Default::default(),
            coordinator: Coordinator::default(),
            fault_percent: 0,
            answers: Vec::new(),
            queues: Default::default(),
            waiters: Vec::new(),
        }
    }

    /// A request reaches the server.
    pub(crate) fn arrive(&mut self, request: Request) {
        self.queues[request.batch.range.lane.index()].arrived.push_back(request);
    }

    /// Forgets what waits of one lane's requests (a reset connection whose bytes were not read).
    pub(crate) fn drop_arrived(&mut self, lane: Lane) {
        self.queues[lane.index()].arrived.clear();
    }

    /// One step of one lane: takes a batch up or moves one on.
    pub(crate) fn step_lane(&mut self, lane: Lane, rng: &mut Rng) {
        let queue = &self.queues[lane.index()];
        let room = if self.rules.no_append_before_previous { 1 } else { IN_FLIGHT };
        let may_start = !queue.arrived.is_empty() && queue.jobs.len() < room;
        if may_start && (queue.jobs.is_empty() || rng.chance(50)) {
            self.take_up(lane, rng);
        } else if !queue.jobs.is_empty() {
            let at = rng.below(queue.jobs.len());
            self.step_job(lane, at, rng);
        }
    }

    /// Takes the first request of some connection up.
    fn take_up(&mut self, lane: Lane, rng: &mut Rng) {
        self.check_if_due(lane.source);
        let queue = &mut self.queues[lane.index()];
        let connection = queue.arrived[rng.below(queue.arrived.len())].connection;
        let at = queue.arrived.iter().position(|r| r.connection == connection).expect("it was just read there");
        let request = queue.arrived.remove(at).expect("the position is inside");
        let range = request.batch.range;
        let transaction = &self.coordinator.transactions[lane.producer];
        if request.batch.transactional && self.rules.end_stops_appends && !transaction.accepts(range.epoch) {
            return self.answers.push((request, Answer::Fenced));
        }
        match self.verdict(range) {
            Verdict::Duplicate(closed) => self.waiters.push(Waiter { request, closed, duplicate: true }),
            Verdict::OutOfOrder => self.answers.push((request, Answer::OutOfOrder)),
            Verdict::Fenced => self.answers.push((request, Answer::Fenced)),
            Verdict::Next => {
                if self.rules.fence_at_take_up {
                    self.queues[lane.index()].epoch = range.epoch;
                }
                let mut todo: Vec<usize> = request.batch.rows.iter().map(Row::destination).collect();
                todo.sort_unstable();
                todo.dedup();
                todo.retain(|d| *d != lane.source);
                self.queues[lane.index()].jobs.push(Job { request, todo, ends: Vec::new() });
            }
        }
    }

    /// The source's verdict, with the batches in progress counted in (there are some only without their rule).
    fn verdict(&self, range: Range) -> Verdict {
        let queue = &self.queues[range.lane.index()];
        if let Some(last) = queue.jobs.last().map(|j| j.request.batch.range) {
            let follows = last.epoch == range.epoch && range.first == last.last + 1;
            return if follows { Verdict::Next } else { Verdict::OutOfOrder };
        }
        if range.epoch < queue.epoch {
            return Verdict::Fenced;
        }
        self.tablets[range.lane.source].state.verdict(range, queue.failed, &self.rules)
    }

    /// Appends one part of a batch, or its closing entry.
    fn step_job(&mut self, lane: Lane, at: usize, rng: &mut Rng) {
        if rng.chance(self.fault_percent) {
            return self.fail_from(lane, at);
        }
        let job = &mut self.queues[lane.index()].jobs[at];
        if job.todo.is_empty() {
            if at == 0 {
                self.close(lane);
            }
            return;
        }
        let destination = job.todo.swap_remove(rng.below(job.todo.len()));
        let request = job.request.clone();
        if request.batch.transactional && self.rules.participant_first {
            self.coordinator.register(lane.producer, destination);
        }
        let offset = self.apply(&request, destination, None).1;
        let end = End { bucket: destination, epoch: self.tablets[destination].epoch(), offset };
        self.queues[lane.index()].jobs[at].ends.push(end);
    }

    /// Appends a batch's rows of one bucket (with the closing entry, in the source), unless they are there.
    fn apply(&mut self, request: &Request, bucket: usize, closing: Option<Vec<End>>) -> (u64, u64) {
        let batch = &request.batch;
        let tablet = &mut self.tablets[bucket];
        let known = tablet.state.applied_end(batch.range, &self.rules);
        if let (Some(end), None) = (known, &closing) {
            return (end, end);
        }
        let mine = |row: &&Row| row.destination() == bucket && known.is_none();
        let rows: Vec<Row> = batch.rows.iter().filter(mine).copied().collect();
        let applies = !rows.is_empty();
        let entry = Entry { range: batch.range, transactional: batch.transactional, applies, closing };
        tablet.append(Body::Data(entry), rows, &self.rules)
    }

    /// Appends the closing entry of a lane's first job.
    fn close(&mut self, lane: Lane) {
        let Job { request, ends, .. } = self.queues[lane.index()].jobs.remove(0);
        if request.batch.transactional {
            self.coordinator.register(lane.producer, lane.source);
        }
        let (base, end) = self.apply(&request, lane.source, Some(ends.clone()));
        if request.batch.transactional {
            ends.iter().for_each(|end| self.coordinator.register(lane.producer, end.bucket));
        }
        let closed = Closed { range: request.batch.range, base, end, ends, void: false };
        self.waiters.push(Waiter { request, closed, duplicate: false });
    }

    /// Fails a job, and those behind it, which are now out of order.
    fn fail_from(&mut self, lane: Lane, at: usize) {
        let queue = &mut self.queues[lane.index()];
        let failed = queue.jobs.split_off(at);
        failed.iter().for_each(|job| queue.note_failed(job.request.batch.range));
        self.answers.extend(failed.into_iter().map(|job| (job.request, Answer::Again)));
    }

    /// Answers a random waiting batch if what it waits for is durable; rarely lets it time out.
    pub(crate) fn answer_one(&mut self, rng: &mut Rng) {
        if self.waiters.is_empty() {
            return;
        }
        let at = rng.below(self.waiters.len());
        let ready = self.is_ready(&self.waiters[at]);
        if ready || rng.chance(self.fault_percent) {
            let Waiter { request, closed, .. } = self.waiters.swap_remove(at);
            self.answers.push((request, if ready { Answer::Done(closed.base) } else { Answer::Again }));
        }
    }

    /// Syncs everything and answers everything that waits.
    pub(crate) fn settle(&mut self) {
        self.tablets.iter_mut().for_each(Tablet::sync);
        for waiter in std::mem::take(&mut self.waiters) {
            self.answers.push((waiter.request, Answer::Done(waiter.closed.base)));
        }
    }

    fn is_ready(&self, waiter: &Waiter) -> bool {
        if waiter.duplicate && !self.rules.duplicates_wait {
            return true;
        }
        let source = &self.tablets[waiter.request.batch.range.lane.source];
        let here = source.synced_end() >= waiter.closed.end;
        here && (!self.rules.closing_waits_for_destinations || self.are_durable(&waiter.closed.ends))
    }

    fn are_durable(&self, ends: &[End]) -> bool {
        ends.iter().all(|end| self.tablets[end.bucket].is_durable(end, &self.rules))
    }

    /// Ends a transaction: Prepare is durable when this returns.
    pub(crate) fn end_transaction(&mut self, producer: usize, commit: bool) {
        self.coordinator.transactions[producer].end(commit);
        if !self.rules.end_stops_appends {
            return;
        }
        for source in 0..BUCKETS {
            self.fail_from(Lane { producer, source }, 0);
        }
    }

    /// Moves a bucket's recovery point as far as its rule allows.
    pub(crate) fn checkpoint(&mut self, bucket: usize) {
        let state = &self.tablets[bucket].state;
        let holds =
            |(base, range, ends): &(u64, Range, Vec<End>)| !self.are_durable(ends) && !state.is_replaced(*range, *base);
        let open = self.tablets[bucket].unconfirmed().into_iter().find(holds);
        let bound = match open {
            Some((base, _, _)) if self.rules.recovery_point_not_past_closing => base,
            _ => u64::MAX,
        };
        let tablet = &mut self.tablets[bucket];
        tablet.recovery_point = bound.min(tablet.synced_end()).max(tablet.recovery_point);
    }

    /// Power loss: each bucket keeps its durable part and any prefix of the rest, and nobody is answered.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        (0..BUCKETS).for_each(|bucket| self.restart_bucket(bucket, rng));
        self.queues = Default::default();
        self.answers.clear();
    }

    /// One bucket loses part of its unsynced log (a failed sync) and starts again; what is in progress fails.
    pub(crate) fn restart_bucket(&mut self, bucket: usize, rng: &mut Rng) {
        for at in 0..self.queues.len() {
            self.fail_from(Lane { producer: at / BUCKETS, source: at % BUCKETS }, 0);
        }
        self.answers.extend(self.waiters.drain(..).map(|waiter| (waiter.request, Answer::Again)));
        self.coordinator.forget_markers(bucket);
        let tablet = &mut self.tablets[bucket];
        let kept = tablet.synced + rng.below(tablet.log.len() - tablet.synced + 1);
        for range in tablet.restart(kept, &self.rules) {
            self.queues[range.lane.index()].note_failed(range);
        }
        self.tablets.iter_mut().for_each(|t| t.check_due = true);
    }

    /// Voids the closing entries of a bucket whose destinations do not reach them.
    fn check_if_due(&mut self, bucket: usize) {
        if !std::mem::take(&mut self.tablets[bucket].check_due) || !self.rules.void_incomplete_closing {
            return;
        }
        for (base, range, ends) in self.tablets[bucket].unconfirmed() {
            let whole = ends.iter().all(|end| self.tablets[end.bucket].reaches(end, &self.rules));
            let tablet = &mut self.tablets[bucket];
            if whole || tablet.state.is_replaced(range, base) {
                continue;
            }
            if self.rules.void_is_durable {
                tablet.append(Body::Void(range, base), Vec::new(), &self.rules);
                tablet.sync();
            } else {
                tablet.state.take_void(range, base, &self.rules);
            }
        }
    }
}
