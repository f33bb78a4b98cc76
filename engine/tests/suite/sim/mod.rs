//! Seeded simulation of the storage: what was promised survives every crash, and a run that breaks a
//! promise on purpose is caught.
//!
//! `SLUICE_TEST_SEEDS=N` sets how many seeds run (200), `SLUICE_TEST_SEED=S` runs one and prints what
//! happened in it.

mod check;
mod client;
mod disk;
mod ops;
mod oracle;
pub(crate) mod rng;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use world::{Mutation, World};

const SEEDS: u64 = 200;
const THREADS: usize = 2;
/// Within how many seeds a broken rule must be noticed.
const MUTANT_SEEDS: u64 = 60;

fn run(seed: u64, mutation: Option<Mutation>) -> (Result<(), String>, Vec<String>) {
    let mut world = World::new(seed, mutation);
    let outcome = world.run();
    (outcome, world.trace)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

#[test]
fn what_was_promised_survives_every_crash() {
    if let Some(seed) = number("SLUICE_TEST_SEED") {
        let (outcome, trace) = run(seed, None);
        println!("{}", trace.join("\n"));
        return outcome.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
    let (seeds, next) = (number("SLUICE_TEST_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= seeds {
                return;
            }
            if let (Err(broken), trace) = run(seed, None) {
                let last = trace.len().saturating_sub(40);
                next.store(seeds, Ordering::SeqCst);
                panic!(
                    "seed {seed}: {broken}\n…\n{}\nrun it again: SLUICE_TEST_SEED={seed} cargo test -p sluice-engine \
                     --test suite what_was_promised -- --nocapture",
                    trace[last..].join("\n")
                );
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

#[test]
fn a_seed_is_a_whole_run() {
    for seed in 0..10 {
        let ((first, trace), (again, trace_again)) = (run(seed, None), run(seed, None));
        assert_eq!(first, again, "seed {seed}");
        assert_eq!(trace, trace_again, "seed {seed}");
    }
}

/// The first seed in which `mutation` is noticed.
fn noticed(mutation: Mutation) -> (u64, String) {
    let found = (0..MUTANT_SEEDS).find_map(|seed| run(seed, Some(mutation)).0.err().map(|broken| (seed, broken)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("{mutation:?} was not noticed in {MUTANT_SEEDS} seeds"));
    println!("{mutation:?} was noticed by seed {seed}: {broken}");
    (seed, broken)
}

#[test]
fn a_sync_that_does_nothing_is_noticed() {
    noticed(Mutation::SyncDoesNothing);
}

#[test]
fn a_directory_sync_that_does_nothing_is_noticed() {
    noticed(Mutation::DirectorySyncDoesNothing);
}

#[test]
fn a_recovery_point_before_its_sync_is_noticed() {
    noticed(Mutation::PointBeforeSync);
}

#[test]
fn a_tail_that_is_not_cut_is_noticed() {
    noticed(Mutation::TailNotCut);
}

#[test]
fn a_cut_one_batch_too_early_is_noticed() {
    noticed(Mutation::CutOneBatchTooEarly);
}

#[test]
fn a_kept_tail_that_is_not_synced_is_noticed() {
    noticed(Mutation::KeptTailNotSynced);
}
