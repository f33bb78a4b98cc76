//! A seeded run: chance decides who moves, then the table comes to rest and is checked.

use super::check;
use super::cleaner;
use super::client::{Book, Client};
use super::reader::Reader;
use super::rng::Rng;
use super::rules::Rules;
use super::server::Server;
use super::types::{Answer, BUCKETS, Lane, PRODUCERS, Violation};

/// Random moves per seed.
pub(crate) const STEPS: usize = 400;
/// Rounds in which a healthy table must come to rest.
const ROUNDS: usize = 200;

/// What a run did, for the figures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) batches: usize,
    pub(crate) crashes: usize,
}

/// One run.
#[derive(Debug)]
struct World {
    rng: Rng,
    server: Server,
    clients: [Client; PRODUCERS],
    readers: [Reader; BUCKETS],
    book: Book,
    crashes: usize,
}

/// Runs one seed under the given rules.
pub(crate) fn run(seed: u64, rules: Rules) -> Result<Stats, Violation> {
    let mut rng = Rng::new(seed);
    let transactional = rng.chance(50);
    let clients = [Client::new(0, transactional), Client::new(1, false)];
    let (server, readers) = (Server::new(rules), Default::default());
    let mut world = World { rng, server, clients, readers, book: Book::default(), crashes: 0 };
    world.server.fault_percent = 1 + world.rng.below(8);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.come_to_rest()?;
    world.check()?;
    Ok(Stats { batches: world.book.batches.len(), crashes: world.crashes })
}

impl World {
    /// One move of one part.
    fn step(&mut self) -> Result<(), Violation> {
        let producer = self.rng.below(PRODUCERS);
        let bucket = self.rng.below(BUCKETS);
        let client = &mut self.clients[producer];
        match self.rng.below(1000) {
            0..220 => client.send(&mut self.server, &mut self.book, &mut self.rng),
            220..600 => self.server.step_lane(Lane { producer, source: bucket }, &mut self.rng),
            600..690 => self.server.tablets[bucket].sync(),
            690..800 => self.server.answer_one(&mut self.rng),
            800..840 => self.server.checkpoint(bucket),
            840..870 => cleaner::clean(&mut self.server.tablets[bucket], &self.server.rules),
            870..900 => self.readers[bucket].read(&self.server.tablets[bucket], 3),
            900..940 => self.step_coordinator(),
            940..960 => client.end(true, &mut self.server, &mut self.book),
            960..968 => client.end(false, &mut self.server, &mut self.book),
            968..976 if client.may_give_up(&self.server.rules) => {
                client.give_up(&mut self.rng);
                client.reconnect(&mut self.server);
            }
            976..984 => client.reconnect(&mut self.server),
            984..990 => self.crash(),
            990..998 => self.server.restart_bucket(bucket, &mut self.rng),
            _ => {}
        }
        self.deliver()
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.server.crash(&mut self.rng);
        self.clients.iter_mut().for_each(|c| c.reconnect(&mut self.server));
    }

    fn step_coordinator(&mut self) {
        for (producer, client) in self.clients.iter_mut().enumerate() {
            let (coordinator, tablets) = (&mut self.server.coordinator, &mut self.server.tablets);
            if coordinator.step(producer, tablets, &self.server.rules) {
                client.ended(coordinator.transactions[producer].epoch);
            }
        }
    }

    /// Hands the answers out, and compares the base offsets in them.
    fn deliver(&mut self) -> Result<(), Violation> {
        for (request, answer) in std::mem::take(&mut self.server.answers) {
            let id = request.batch.id;
            if let Answer::Done(base) = answer {
                let first = *self.book.promised[id].get_or_insert(base);
                if first != base {
                    return Err(Violation::new("base offset", format!("batch {id}: {first}, then {base}")));
                }
            }
            let client = &mut self.clients[request.batch.range.lane.producer];
            client.hear((request, answer), &mut self.server, &mut self.book, &mut self.rng);
        }
        Ok(())
    }

    /// Without faults, everything unanswered is answered and every transaction ends.
    fn come_to_rest(&mut self) -> Result<(), Violation> {
        self.server.fault_percent = 0;
        self.clients.iter_mut().for_each(|c| c.reconnect(&mut self.server));
        for _ in 0..ROUNDS {
            for _ in 0..40 {
                let lane = Lane { producer: self.rng.below(PRODUCERS), source: self.rng.below(BUCKETS) };
                self.server.step_lane(lane, &mut self.rng);
            }
            self.server.settle();
            self.deliver()?;
            self.step_coordinator();
            if self.clients.iter().all(Client::is_quiet) && self.end_transactions() {
                return Ok(());
            }
        }
        Err(Violation::new("progress", "a retry is refused for ever".to_owned()))
    }

    /// Ends what is open; true when nothing was.
    fn end_transactions(&mut self) -> bool {
        let mut none = true;
        for (producer, client) in self.clients.iter_mut().enumerate() {
            if client.can_end() {
                client.end(producer == 0, &mut self.server, &mut self.book);
            }
            let transaction = &mut self.server.coordinator.transactions[producer];
            if transaction.is_open() && !transaction.is_ending() {
                transaction.end(false);
            }
            none &= !transaction.is_open() && !transaction.is_ending();
        }
        none
    }

    /// Checks at rest, after cleaning, and once more from a restarted server.
    fn check(&mut self) -> Result<(), Violation> {
        self.server.settle();
        check::stable(&self.server.tablets)?;
        check::table(&self.server.tablets, &self.book)?;
        check::readers(&self.server.tablets, &self.readers)?;
        for bucket in 0..BUCKETS {
            self.server.checkpoint(bucket);
            cleaner::clean(&mut self.server.tablets[bucket], &self.server.rules);
        }
        self.server.crash(&mut self.rng);
        check::stable(&self.server.tablets)?;
        check::table(&self.server.tablets, &self.book)?;
        check::readers(&self.server.tablets, &self.readers)
    }
}
