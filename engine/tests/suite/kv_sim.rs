//! Buckets of PK tables on the simulated disk and the simulated store, which loses any unflushed suffix: after every
//! crash the rows are those of the log that is left, and a lookup is never behind what a reader of the log sees.
//!
//! `SLUICE_TEST_SEEDS` sets the number of seeds (default 300).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_engine::io::sim::{Lies, SimDisk};
use sluice_engine::kv::{KvStore, SimStore};
use sluice_engine::kv_tablet::{Closing, DeleteBehavior, KvTablet, Op, Rules};
use sluice_engine::log::head::BatchKind;
use sluice_engine::row::key::{Place, StoreKey};
use sluice_engine::row::{ColumnSpec, DataType, Datum, Row, Schema};
use sluice_engine::tablet::{Shape, Surroundings, Tablet};
use sluice_engine::{BucketId, LogOptions, ManualClock, TableId};

const KEYS: u64 = 9;
const STEPS: usize = 60;

fn seeds() -> u64 {
    std::env::var("SLUICE_TEST_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// A generator whose whole state is the seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Rows by key: the two columns that are not the key's.
type State = BTreeMap<i32, (Datum, Datum)>;

/// What the disk lies about, and whether the store loses rows that it had.
type Faults = (Lies, bool);

struct World {
    random: Random,
    disk: Arc<SimDisk>,
    store: SimStore,
    rules: Arc<Rules>,
    epoch: i32,
    tablet: KvTablet,
    /// Whether a crash takes a row out of the middle of the store: the checker must notice.
    damages: bool,
    /// The state after each log batch, by the end of the batch.
    history: BTreeMap<i64, State>,
    synced: i64,
}

fn rules(random: &mut Random) -> Rules {
    let key = ColumnSpec { nullable: false, ..("k", DataType::Int).into() };
    let schema = Schema::first([key, ("a", DataType::BigInt).into(), ("b", DataType::String).into()], vec![0]);
    Rules { schema, key: vec![0], wal_image: random.below(3) == 0, deletes: DeleteBehavior::Allow }
}

fn open(disk: &Arc<SimDisk>, store: &SimStore, rules: &Arc<Rules>, epoch: i32) -> Result<KvTablet, String> {
    let clock = Arc::new(ManualClock::new(1_000));
    let around = Surroundings { disk: Arc::clone(disk) as _, clock, root: PathBuf::from("/data") };
    let shape = Shape { kind: BatchKind::Sluice, hashed: true };
    let options = Arc::new(LogOptions { segment_bytes: 2_000, ..LogOptions::default() });
    let log = Tablet::open(around, BucketId::new(TableId(1), 0), shape, options, epoch, None, false);
    let (log, _) = log.map_err(|error| error.to_string())?;
    KvTablet::open(Arc::new(log), Arc::new(store.clone()), Arc::clone(rules)).map_err(|error| error.to_string())
}

impl World {
    fn new(seed: u64, (lies, damages): Faults) -> Result<Self, String> {
        let mut random = Random(seed);
        let (disk, store) = (Arc::new(SimDisk::new(seed)), SimStore::unlogged());
        disk.set_lies(lies);
        let rules = Arc::new(rules(&mut random));
        let tablet = open(&disk, &store, &rules, 0)?;
        let history = BTreeMap::from([(0, State::new())]);
        Ok(Self { random, disk, store, rules, epoch: 0, tablet, damages, history, synced: 0 })
    }

    fn latest(&self) -> State {
        self.history.values().next_back().cloned().unwrap_or_default()
    }

    /// Some operations, and the state that they lead to by the table model's words.
    fn ops(&mut self) -> (Vec<Op>, State) {
        let (mut ops, mut state) = (Vec::new(), self.latest());
        for _ in 0..1 + self.random.below(5) {
            let key = self.random.below(KEYS) as i32;
            let (a, b) = (
                Datum::BigInt(self.random.below(1_000) as i64),
                Datum::String("x".repeat(self.random.below(40) as usize)),
            );
            let row: Row = vec![Datum::Int(key), a.clone(), b.clone()];
            match self.random.below(4) {
                0 => {
                    state.remove(&key);
                    ops.push(Op::delete(row));
                }
                1 => {
                    state.entry(key).or_insert((Datum::Null, Datum::Null)).0 = a;
                    ops.push(Op { row, delete: false, target: Some(vec![0, 1].into()) });
                }
                _ => {
                    state.insert(key, (a, b));
                    ops.push(Op::upsert(row));
                }
            }
        }
        (ops, state)
    }

    fn step(&mut self) -> Result<(), String> {
        let fault = |error: sluice_engine::Error| error.to_string();
        match self.random.below(12) {
            0..=4 => {
                let (ops, state) = self.ops();
                let appended = self.tablet.upsert(&ops, Closing::default()).map_err(fault)?;
                self.history.insert(appended.end_offset, state);
            }
            5 | 6 => {
                self.tablet.log.sync().map_err(fault)?;
                self.synced = self.tablet.log.synced();
            }
            7 | 8 => drop(self.tablet.apply().map_err(fault)?),
            9 => self.store.flush().map_err(fault)?,
            10 => self.crash()?,
            _ => {}
        }
        self.check_visible()
    }

    /// What lookups show is the state at the high watermark.
    fn check_visible(&self) -> Result<(), String> {
        let seen = self.tablet.log.offsets().map_err(|error| error.to_string())?.high_watermark;
        let expected = self.history.get(&seen).ok_or_else(|| format!("no log batch ends at {seen}"))?;
        let keys: Vec<Row> = (0..KEYS as i32).map(|key| vec![Datum::Int(key), Datum::Null, Datum::Null]).collect();
        let found = self.tablet.lookup(&keys).map_err(|error| error.to_string())?;
        let found: State = found
            .into_iter()
            .flatten()
            .filter_map(|row| match row.as_slice() {
                [Datum::Int(key), a, b] => Some((*key, (a.clone(), b.clone()))),
                _ => None,
            })
            .collect();
        if found == *expected { Ok(()) } else { Err(format!("at {seen}: {found:?}, not {expected:?}")) }
    }

    fn lose_a_row(&self) -> Result<(), String> {
        let fault = |error: sluice_engine::Error| error.to_string();
        let applied = StoreKey::Applied(Place { partition: None, bucket: 0 }).encode();
        let rows = self.store.scan(b"").map_err(fault)?.into_iter().map(|(key, _)| key);
        let Some(key) = rows.into_iter().find(|key| *key != applied) else { return Ok(()) };
        self.store.write(&[(key, None)]).and_then(|()| self.store.flush()).map_err(fault)
    }

    fn crash(&mut self) -> Result<(), String> {
        let keep = self.random.below(self.store.unflushed() as u64 + 1) as usize;
        if self.random.below(3) == 0 {
            self.disk.process_kill();
        } else {
            self.disk.power_loss();
        }
        self.store.crash(keep);
        if self.damages {
            self.lose_a_row()?;
        }
        self.epoch += 1;
        self.tablet = open(&self.disk, &self.store, &self.rules, self.epoch)?;
        let end = self.tablet.log.offsets().map_err(|error| error.to_string())?.end;
        if end < self.synced {
            return Err(format!("{} was synced, {end} is left", self.synced));
        }
        self.history.split_off(&(end + 1));
        if !self.history.contains_key(&end) {
            return Err(format!("no log batch ends at {end}"));
        }
        self.tablet.log.sync().map_err(|error| error.to_string())?;
        while self.tablet.apply().map_err(|error| error.to_string())? {}
        self.synced = self.tablet.log.synced();
        let seen = self.tablet.log.offsets().map_err(|error| error.to_string())?.high_watermark;
        if seen == end { Ok(()) } else { Err(format!("replay reached {seen}, the log {end}")) }
    }
}

fn run(seed: u64, faults: Faults) -> Result<(), String> {
    let mut world = World::new(seed, faults)?;
    for _ in 0..STEPS {
        world.step()?;
    }
    world.crash()?;
    world.check_visible()
}

#[test]
fn rows_are_those_of_the_log_after_every_crash() {
    for seed in 0..seeds() {
        if let Err(fault) = run(seed, (Lies::default(), false)) {
            panic!("seed {seed}: {fault}");
        }
    }
}

fn assert_noticed(faults: Faults) {
    assert!((0..100).any(|seed| run(seed, faults).is_err()), "100 seeds notice nothing");
}

#[test]
fn a_sync_that_does_nothing_is_noticed() {
    assert_noticed((Lies { sync_does_nothing: true, ..Lies::default() }, false));
}

#[test]
fn a_row_that_the_store_lost_is_noticed() {
    assert_noticed((Lies::default(), true));
}

/// cases.md T04: a log that holds nothing but an empty batch, and a store that lost what it knew.
#[test]
fn a_log_of_an_empty_batch_opens_where_it_ended() {
    let faults = (Lies::default(), false);
    let mut world = World::new(3, faults).expect("opens");
    let gone = vec![Op::delete(vec![Datum::Int(1), Datum::Null, Datum::Null])];
    for end in 1..=3 {
        let appended = world.tablet.upsert(&gone, Closing::default()).expect("appends");
        assert_eq!(appended.end_offset, end);
        world.history.insert(end, State::new());
        world.tablet.log.sync().expect("syncs");
        world.synced = end;
        world.crash().expect("opens again");
        assert_eq!(world.tablet.log.offsets().expect("online").end, end);
    }
}
