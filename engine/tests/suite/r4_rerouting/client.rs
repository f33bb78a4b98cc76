//! Producers, as an idempotent or transactional client behaves.

use std::collections::VecDeque;
use std::rc::Rc;

use super::rng::Rng;
use super::rules::Rules;
use super::server::Server;
use super::types::{Answer, BUCKETS, Batch, IN_FLIGHT, KEYS, Lane, Range, Request, Row};

/// What a client has under way to one source.
#[derive(Debug, Default)]
struct Stream {
    epoch: u32,
    next: u32,
    sent: usize,
    outstanding: VecDeque<Rc<Batch>>,
}

impl Stream {
    /// Kafka's window: at most five batches from the first unanswered one on, answered ones between included.
    fn has_room(&self) -> bool {
        self.outstanding.front().is_none_or(|first| self.sent - first.ordinal < IN_FLIGHT)
    }

    /// Gives a new batch its numbers.
    fn batch(&mut self, lane: Lane, rows: Vec<Row>, transactional: bool, book: &mut Book) -> Rc<Batch> {
        let (id, ordinal) = (book.batches.len(), self.sent);
        let range = Range { lane, epoch: self.epoch, first: self.next, last: self.next + rows.len() as u32 - 1 };
        (self.sent, self.next) = (ordinal + 1, range.last + 1);
        let batch = Rc::new(Batch { id, ordinal, range, rows, transactional });
        book.batches.push(Rc::clone(&batch));
        book.promised.push(None);
        self.outstanding.push_back(Rc::clone(&batch));
        batch
    }
}

/// Counters shared by all clients, and what they were told.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) serial: u32,
    pub(crate) batches: Vec<Rc<Batch>>,
    /// Per batch: the base offset of the first success answer.
    pub(crate) promised: Vec<Option<u64>>,
    /// Per transaction: how the client ended it.
    pub(crate) outcomes: Vec<Option<bool>>,
}

/// One producer.
#[derive(Debug)]
pub(crate) struct Client {
    id: usize,
    transactional: bool,
    connection: u32,
    streams: [Stream; BUCKETS],
    transaction: Option<usize>,
    ending: Option<bool>,
}

impl Client {
    /// Producer `id`.
    pub(crate) fn new(id: usize, transactional: bool) -> Self {
        Client { id, transactional, connection: 0, streams: Default::default(), transaction: None, ending: None }
    }

    /// True when nothing is unanswered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.streams.iter().all(|s| s.outstanding.is_empty())
    }

    /// True when a transaction is open and not being ended.
    pub(crate) fn can_end(&self) -> bool {
        self.transaction.is_some() && self.ending.is_none()
    }

    /// Sends a new batch of one to four rows to a random source.
    pub(crate) fn send(&mut self, server: &mut Server, book: &mut Book, rng: &mut Rng) {
        let source = rng.below(BUCKETS);
        if self.ending.is_some() || !self.streams[source].has_room() {
            return;
        }
        if self.transactional && self.transaction.is_none() {
            self.transaction = Some(book.outcomes.len());
            book.outcomes.push(None);
        }
        let lane = Lane { producer: self.id, source };
        let transaction = self.transaction;
        let rows: Vec<Row> = (0..1 + rng.below(4))
            .map(|i| Row { serial: book.serial + i as u32, key: rng.below(KEYS), lane, transaction })
            .collect();
        book.serial += rows.len() as u32;
        let batch = self.streams[source].batch(lane, rows, self.transactional, book);
        server.arrive(Request { connection: self.connection, batch });
    }

    /// Opens a new connection and sends everything unanswered again, in order.
    pub(crate) fn reconnect(&mut self, server: &mut Server) {
        self.connection += 1;
        for stream in &self.streams {
            for batch in &stream.outstanding {
                server.arrive(Request { connection: self.connection, batch: Rc::clone(batch) });
            }
        }
    }

    /// Reads an answer.
    pub(crate) fn hear(
        &mut self,
        (request, answer): (Request, Answer),
        server: &mut Server,
        book: &mut Book,
        rng: &mut Rng,
    ) {
        if request.connection != self.connection {
            return;
        }
        let stream = &mut self.streams[request.batch.range.lane.source];
        let Some(at) = stream.outstanding.iter().position(|b| b.id == request.batch.id) else { return };
        match answer {
            Answer::Done(_) => {
                stream.outstanding.remove(at);
            }
            Answer::OutOfOrder if at > 0 && !self.transactional && !server.rules.client_never_renumbers => {
                if rng.chance(30) {
                    stream.outstanding.pop_front();
                    self.renumber(request.batch.range.lane, server, book);
                } else {
                    server.arrive(request);
                }
            }
            Answer::OutOfOrder | Answer::Again | Answer::Fenced => server.arrive(request),
        }
    }

    /// Sends what is left of a stream again under a new epoch, after its head was given up.
    fn renumber(&mut self, lane: Lane, server: &mut Server, book: &mut Book) {
        server.drop_arrived(lane);
        let stream = &mut self.streams[lane.source];
        let left = std::mem::take(&mut stream.outstanding);
        *stream = Stream { epoch: stream.epoch + 1, ..Stream::default() };
        for old in left {
            let batch = stream.batch(lane, old.rows.clone(), false, book);
            server.arrive(Request { connection: self.connection, batch });
        }
    }

    /// Reports everything unanswered to one source as failed and goes on under a new epoch.
    pub(crate) fn give_up(&mut self, rng: &mut Rng) {
        let stream = &mut self.streams[rng.below(BUCKETS)];
        if self.transactional || stream.outstanding.is_empty() {
            return;
        }
        *stream = Stream { epoch: stream.epoch + 1, ..Stream::default() };
    }

    /// Asks for the end of the transaction: commit only when all is answered, abort at any time.
    pub(crate) fn end(&mut self, commit: bool, server: &mut Server, book: &mut Book) {
        let Some(transaction) = self.transaction else { return };
        if self.ending.is_some() || (commit && !self.is_quiet()) {
            return;
        }
        self.streams.iter_mut().for_each(|s| s.outstanding.clear());
        self.ending = Some(commit);
        book.outcomes[transaction] = Some(commit);
        server.end_transaction(self.id, commit);
    }

    /// The coordinator has completed the transaction.
    pub(crate) fn ended(&mut self, epoch: u32) {
        self.transaction = None;
        if self.ending.take() == Some(false) {
            self.streams = Default::default();
            self.streams.iter_mut().for_each(|s| s.epoch = epoch);
        }
    }

    /// True for clients whose give-up abandons everything unanswered.
    pub(crate) fn may_give_up(&self, rules: &Rules) -> bool {
        !self.transactional && rules.client_never_renumbers
    }
}
