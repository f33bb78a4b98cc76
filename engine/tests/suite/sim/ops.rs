//! The steps of a run: what clients, the sync pool and the background threads do, each with the
//! faults that may fall into it.

use std::collections::BTreeMap;

use sluice_engine::io::sim::Faults;
use sluice_engine::log::points::RecoveryPoint;
use sluice_engine::tablet::{RawBatch, ReadLimit, Reading, Tablet, prepare};
use sluice_engine::{Clock, ErrorKind, Visibility};
use tokio::sync::oneshot;

use super::client::stamps;
use super::oracle::{Check, Entry, Expected, Made, ensure};
use super::world::{Mutation, World, bucket_id};

impl World {
    pub(crate) fn tablet(&self, bucket: usize) -> Check<&Tablet> {
        self.server.as_ref().map(|server| &server.tablets[bucket]).ok_or_else(|| "no server runs".to_owned())
    }

    pub(crate) fn is_offline(&self, bucket: usize) -> bool {
        self.tablet(bucket).is_ok_and(|tablet| tablet.offline_reason().is_some())
    }

    /// Lets one disk call of the next step fail, in `percent` of the cases.
    fn inject(&mut self, percent: u64, syncs: bool) -> bool {
        if !self.rng.chance(percent) {
            return false;
        }
        let n = Some(1 + self.rng.below(3));
        let mut faults = Faults::default();
        match self.rng.below(if syncs { 6 } else { 4 }) {
            0 => (faults.write_error_in, faults.short_write) = (n, self.rng.chance(50)),
            1 => faults.name_error_in = n,
            2 => {
                let used: u64 = self.disk.sim.list_all().iter().map(|(_, len)| len).sum();
                faults.no_space_after = Some(used + self.rng.below(200));
            }
            3 => faults.sync_dir_error_in = n,
            _ => faults.sync_error_in = n,
        }
        self.log(|| format!("the disk will fail: {faults:?}"));
        self.disk.sim.set_faults(faults);
        true
    }

    fn heal(&mut self) {
        self.disk.sim.clear_faults();
    }

    pub(crate) fn produce(&mut self, client: usize) -> Check {
        let faulty = self.inject(4, false);
        let outcome = self.send_next(client, faulty);
        self.heal();
        outcome
    }

    pub(crate) fn produce_quietly(&mut self, client: usize) -> Check {
        self.send_next(client, false)
    }

    fn send_next(&mut self, client: usize, faulty: bool) -> Check {
        let now_ms = self.clock.now_ms();
        let bucket = self.clients[client].bucket;
        let options = std::sync::Arc::clone(&self.options[bucket]);
        let Some(at) = self.clients[client].next(&mut self.rng, now_ms, &options) else { return Ok(()) };
        let made = self.clients[client].flights[at].made.clone();
        let Some((base, end)) = self.append(bucket, &made, faulty)? else { return Ok(()) };
        let lost = self.rng.chance(12);
        let (id, acks_all) = (self.clients[client].id, self.clients[client].acks_all);
        if lost && id >= 0 {
            self.clients[client].sent = self.rng.below(at as u64 + 1) as usize;
            self.log(|| format!("the answer to producer {id} for {base}..{end} is lost"));
            return Ok(());
        }
        if !acks_all {
            self.clients[client].flights.remove(at);
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        self.tablet(bucket)?.when_durable(end, sender);
        let client = &mut self.clients[client];
        client.flights[at].waiter = Some((end, receiver));
        client.sent = at + 1;
        self.poll();
        Ok(())
    }

    /// Appends and compares the answer with what the log's content demands; `None` for an error.
    fn append(&mut self, bucket: usize, made: &Made, faulty: bool) -> Check<Option<(i64, i64)>> {
        let now_ms = self.clock.now_ms();
        let raw = prepare(&made.bytes, &self.options[bucket], now_ms);
        let raw: RawBatch = raw.map_err(|refusal| format!("a good batch was refused: {}", refusal.error))?;
        let expected = self.oracles[bucket].judge(&made.header);
        let tablet = self.tablet(bucket)?;
        let (outcome, was_offline) = (tablet.append(&raw), tablet.offline_reason().is_some());
        let stamped = stamps(&self.options[bucket]).then_some(now_ms);
        let entry = Entry::new(made, self.oracles[bucket].end(), tablet.epoch.0, stamped);
        let header = made.header;
        self.log(|| {
            let name = (header.producer_id, header.producer_epoch, header.base_sequence);
            let answer = outcome.as_ref().map(|appended| appended.base_offset).map_err(|error| error.kind);
            format!("append to {bucket} of {name:?} x{}: {answer:?}, expected {expected:?}", header.record_count)
        });
        let oracle = &mut self.oracles[bucket];
        match (outcome, expected) {
            (Ok(appended), Expected::New) => {
                let place = (appended.base_offset, appended.end_offset);
                ensure!(place == (entry.base, entry.end), "appended at {place:?}, not {}..{}", entry.base, entry.end);
                ensure!(appended.append_time_ms == stamped, "stamped {:?}", appended.append_time_ms);
                oracle.entries.push(entry);
                oracle.maybe = None;
                Ok(Some(place))
            }
            (Ok(appended), Expected::Duplicate(base)) => {
                ensure!(appended.base_offset == base, "a retry of {base} was answered {}", appended.base_offset);
                Ok(Some((base, appended.end_offset)))
            }
            (Ok(appended), Expected::Refused(kind)) => {
                Err(format!("accepted at {} what must be refused as {kind:?}", appended.base_offset))
            }
            (Err(error), Expected::Refused(kind)) => {
                ensure!(error.kind == kind || was_offline, "refused as {:?}, not {kind:?}", error.kind);
                Ok(None)
            }
            (Err(error), _) => {
                let halted = self.disk.halted();
                ensure!(faulty || halted || was_offline, "an append failed for no reason: {error}");
                if halted || was_offline {
                    oracle.maybe = Some(entry);
                }
                if !was_offline {
                    let end = self.tablet(bucket)?.offsets().map_err(|error| error.to_string())?.end;
                    ensure!(end == self.oracles[bucket].end(), "a failed append moved the end to {end}");
                }
                Ok(None)
            }
        }
    }

    /// A network duplicate of something that was acknowledged: the last five of a producer are known.
    pub(crate) fn repeat_acknowledged(&mut self, client: usize) -> Check {
        let client = &self.clients[client];
        if client.acked.is_empty() {
            return Ok(());
        }
        let bucket = client.bucket;
        let (made, base) = client.acked[self.rng.below(client.acked.len() as u64) as usize].clone();
        if let Expected::Duplicate(expected) = self.oracles[bucket].judge(&made.header) {
            ensure!(expected == base, "acknowledged at {base}, in the log at {expected}");
        }
        self.append(bucket, &made, false)?;
        Ok(())
    }

    pub(crate) fn poll(&mut self) {
        for client in &mut self.clients {
            client.poll(&mut self.oracles[client.bucket]);
        }
    }

    pub(crate) fn sync(&mut self, bucket: usize) -> Check {
        let faulty = self.inject(7, true);
        let outcome = self.sync_tablet(bucket, faulty);
        self.heal();
        outcome
    }

    pub(crate) fn sync_quietly(&mut self, bucket: usize) -> Check {
        self.sync_tablet(bucket, false)
    }

    fn sync_tablet(&mut self, bucket: usize, faulty: bool) -> Check {
        let tablet = self.tablet(bucket)?;
        let (outcome, synced) = (tablet.sync(), tablet.synced());
        let end = self.oracles[bucket].end();
        if let Err(error) = &outcome {
            ensure!(faulty || self.disk.halted(), "a sync failed for no reason: {error}");
        } else if !self.is_offline(bucket) {
            ensure!(synced == end, "synced to {synced} of {end}");
        }
        ensure!(synced >= self.oracles[bucket].durable, "the durable offset moved back to {synced}");
        self.log(|| format!("sync of {bucket} to {synced}: {:?}", outcome.map_err(|error| error.kind)));
        self.oracles[bucket].promise(synced);
        self.poll();
        Ok(())
    }

    pub(crate) fn repair(&mut self, bucket: usize) -> Check {
        if !self.tablet(bucket)?.needs_repair() {
            return Ok(());
        }
        let faulty = self.inject(10, true);
        let outcome = self.tablet(bucket)?.repair();
        self.heal();
        if let Err(error) = outcome {
            self.log(|| format!("repair of {bucket}: {error}"));
            ensure!(faulty || self.disk.halted(), "a repair failed for no reason: {error}");
            return if self.disk.halted() { Ok(()) } else { self.repair(bucket) };
        }
        let offsets = self.tablet(bucket)?.offsets().map_err(|error| error.to_string())?;
        let before = self.oracles[bucket].end();
        self.log(|| format!("repaired {bucket}: {}..{}", offsets.log_start, offsets.end));
        self.oracles[bucket].settle(offsets.end, offsets.log_start)?;
        ensure!(offsets.end >= before, "the repair lost {}..{before}", offsets.end);
        self.verify(bucket)
    }

    pub(crate) fn read(&mut self, bucket: usize) -> Check {
        if self.is_offline(bucket) {
            let refused = self.tablet(bucket)?.read(0, 1, ReadLimit::Visible, true);
            ensure!(refused.is_err(), "an offline bucket was read");
            return Ok(());
        }
        let limit = if self.rng.chance(80) { ReadLimit::Visible } else { ReadLimit::Appended };
        let max_bytes = self.rng.below(12_000) as usize;
        let may_wait = self.rng.chance(70);
        let offsets = self.tablet(bucket)?.offsets().map_err(|error| error.to_string())?;
        let (synced, end) = (self.tablet(bucket)?.synced(), self.oracles[bucket].end());
        let durable_only = self.options[bucket].visibility == Visibility::Durable;
        let visible = if durable_only { synced } else { end };
        ensure!(offsets.high_watermark == visible, "the high watermark is {}, not {visible}", offsets.high_watermark);
        let top = if limit == ReadLimit::Visible { visible } else { end };
        let offset = self.rng.range(offsets.log_start - 1, top + 2);
        let faulty = self.rng.chance(5);
        if faulty {
            self.disk.sim.set_faults(Faults { read_error_in: Some(1), ..Faults::default() });
        }
        let outcome = self.tablet(bucket)?.read(offset, max_bytes, limit, may_wait);
        self.heal();
        match outcome {
            Err(error) if offset < offsets.log_start || offset > top => {
                ensure!(error.kind == ErrorKind::OffsetOutOfRange, "offset {offset} answers {error}");
            }
            Err(error) => ensure!(faulty && error.kind == ErrorKind::StorageFailed, "reading {offset}: {error}"),
            Ok(Reading::WouldBlock) => ensure!(!may_wait, "a read that may wait would not"),
            Ok(Reading::Done(bytes)) => {
                self.oracles[bucket].check_read(&bytes, offset, max_bytes, top)?;
                if durable_only && limit == ReadLimit::Visible {
                    self.oracles[bucket].promise(visible);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn store_points(&mut self) -> Check {
        let mut points = BTreeMap::new();
        for bucket in 0..self.oracles.len() {
            if let Some(point) = self.point_of(bucket)? {
                points.insert(bucket_id(bucket), point);
            }
        }
        let faulty = self.inject(5, true);
        let disk = self.disk.clone();
        let outcome = self.server.as_mut().map_or(Ok(()), |server| server.data.store_points(&disk, points.clone()));
        self.heal();
        self.log(|| format!("points {points:?}: {:?}", outcome.as_ref().map_err(|error| error.kind)));
        outcome.or_else(|error| {
            ensure!(faulty || self.disk.halted(), "storing recovery points failed: {error}");
            Ok(())
        })
    }

    fn point_of(&self, bucket: usize) -> Check<Option<RecoveryPoint>> {
        let tablet = self.tablet(bucket)?;
        if self.mutation == Some(Mutation::PointBeforeSync)
            && tablet.is_dirty()
            && let Some((path, segment)) = self.active_file(bucket)
        {
            let position = self.disk.sim.dump(&path).map_err(|error| error.to_string())?.len() as u64;
            return Ok(Some(RecoveryPoint { offset: self.oracles[bucket].end(), segment, position }));
        }
        Ok(tablet.recovery_point())
    }

    pub(crate) fn retention(&mut self, bucket: usize) -> Check {
        let faulty = self.inject(10, true);
        let (before, end) = (self.oracles[bucket].start, self.oracles[bucket].end());
        let asked_before = self.oracles[bucket].start_asked;
        self.oracles[bucket].start_asked = end;
        let tablet = self.tablet(bucket)?;
        let was_offline = tablet.offline_reason().is_some();
        let outcome = tablet.apply_retention();
        let start = self.tablet(bucket)?.offsets().map(|offsets| offsets.log_start);
        self.heal();
        self.log(|| {
            format!("retention of {bucket}: {:?}, start {start:?}", outcome.as_ref().map_err(|error| error.kind))
        });
        if let Err(error) = outcome {
            ensure!(faulty || was_offline || self.disk.halted(), "retention failed for no reason: {error}");
        }
        let Ok(start) = start else { return Ok(()) };
        let now_ms = self.clock.now_ms();
        let options = &self.options[bucket];
        let oracle = &mut self.oracles[bucket];
        ensure!(
            start >= before && start <= oracle.durable.max(before),
            "retention moved the start {before} to {start}"
        );
        let mut behind: usize = oracle.entries.iter().filter(|entry| entry.base >= start).map(|e| e.bytes.len()).sum();
        for entry in oracle.entries.iter().rev().filter(|entry| entry.base >= before && entry.end <= start) {
            let expired = options.retention_ms >= 0 && now_ms - entry.header.max_timestamp > options.retention_ms;
            let oversized = options.retention_bytes >= 0 && behind as i64 >= options.retention_bytes;
            behind += entry.bytes.len();
            ensure!(expired || oversized, "retention took {}..{} too early", entry.base, entry.end);
        }
        oracle.start = start;
        if !self.disk.halted() && !faulty {
            oracle.start_asked = asked_before.max(start);
        }
        Ok(())
    }

    pub(crate) fn delete_records(&mut self, bucket: usize) -> Check {
        if self.is_offline(bucket) {
            return Ok(());
        }
        let tablet = self.tablet(bucket)?;
        let (high, start) = (tablet.high_watermark(), self.oracles[bucket].start);
        let before = if self.rng.chance(20) { None } else { Some(self.rng.range(start / 2, high + 2)) };
        let faulty = self.inject(10, true);
        let wanted = before.unwrap_or(high).max(start);
        if wanted <= high {
            self.oracles[bucket].start_asked = self.oracles[bucket].start_asked.max(wanted);
        }
        let outcome = self.tablet(bucket)?.delete_records(before);
        self.heal();
        let synced = self.tablet(bucket)?.synced();
        self.oracles[bucket].promise(synced);
        self.log(|| format!("delete of {bucket} below {before:?}: {outcome:?}"));
        match outcome {
            Err(error) if before.is_some_and(|before| before > high) => {
                ensure!(error.kind == ErrorKind::OffsetOutOfRange, "deleting below {before:?} of {high}: {error}");
            }
            Err(error) => ensure!(faulty || self.disk.halted(), "deleting records failed: {error}"),
            Ok(answer) => {
                ensure!(answer == wanted, "deleting below {before:?} of {high} answered {answer}");
                self.oracles[bucket].start = answer;
            }
        }
        // What was taken is taken even where removing a file failed.
        if let Ok(offsets) = self.tablet(bucket)?.offsets() {
            self.oracles[bucket].start = self.oracles[bucket].start.max(offsets.log_start);
        }
        self.poll();
        Ok(())
    }

    pub(crate) fn stop_cleanly(&mut self) -> Check {
        let faulty = self.inject(10, true);
        let mut clean = true;
        for bucket in 0..self.oracles.len() {
            let was_offline = self.is_offline(bucket);
            let outcome = self.tablet(bucket)?.close();
            self.log(|| format!("close of {bucket}: {:?}", outcome.as_ref().map_err(|error| error.kind)));
            match outcome {
                Ok(()) => {
                    let end = self.oracles[bucket].end();
                    self.oracles[bucket].promise(end);
                }
                Err(error) => {
                    ensure!(faulty || was_offline || self.disk.halted(), "closing failed for no reason: {error}");
                    clean = false;
                }
            }
        }
        self.heal();
        self.store_points()?;
        let faulty = self.inject(10, true);
        if clean {
            let disk = self.disk.clone();
            let outcome = self.server.as_mut().map_or(Ok(()), |server| server.data.finish(&disk));
            // A mark whose writing failed may be there or not; both are true.
            self.clean_mark = if outcome.is_ok() { Some(true) } else { None };
            ensure!(outcome.is_ok() || faulty || self.disk.halted(), "writing the clean mark failed: {outcome:?}");
        }
        self.heal();
        self.log(|| format!("stopped, clean={clean}"));
        let power = self.rng.chance(50);
        self.crash(power)
    }
}
