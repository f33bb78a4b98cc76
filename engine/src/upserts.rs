//! The threads of tables whose rows are routed: those that upsert and append, each the owner of some buckets, and those that apply what is synced.
//! They are none of the log's: a store that stalls must not hold up tables without keys.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::backend::Acks;
use crate::error::{Error, Result};
use crate::flusher::Flusher;
use crate::kv_tablet::{Closing, KvTablet, Op};
use crate::row::{Schema, batch};
use crate::shard::{AbortOnPanic, AppendReply, Job, settle};
use crate::tablet::{Appended, Tablet};
use crate::types::BucketId;

/// A bucket whose rows are routed to it.
#[derive(Clone)]
pub(crate) enum Rows {
    /// Of a PK table.
    Keyed(Arc<KvTablet>),
    /// Of a log table.
    Appended(Arc<Tablet>, Arc<Schema>),
}

impl Rows {
    pub(crate) fn log(&self) -> &Arc<Tablet> {
        match self {
            Self::Keyed(tablet) => &tablet.log,
            Self::Appended(log, _) => log,
        }
    }

    fn write(&self, ops: &[Op], closing: Closing) -> Result<Appended> {
        match self {
            Self::Keyed(tablet) => tablet.upsert(ops, closing),
            Self::Appended(log, schema) => {
                let destinations = closing.elsewhere.iter().map(|(_, to)| *to).collect();
                let rows = ops.iter().map(|op| &op.row);
                let batch = batch::appended(schema, rows, closing.entry, destinations)?;
                let elsewhere = closing.elsewhere.into_iter().map(|(log, to)| (log, to.end_offset)).collect();
                log.append_closing(batch.into(), elsewhere)
            }
        }
    }
}

/// One upsert on its way to its thread.
pub(crate) struct Upsert {
    pub(crate) rows: Rows,
    pub(crate) ops: Vec<Op>,
    pub(crate) closing: Closing,
    pub(crate) acks: Acks,
    pub(crate) appliers: Arc<Appliers>,
    pub(crate) reply: oneshot::Sender<AppendReply>,
}

impl Job for Upsert {
    fn bucket(&self) -> BucketId {
        self.rows.log().id
    }

    fn run(self, flusher: &Flusher) {
        let outcome = self.rows.write(&self.ops, self.closing);
        if let (Ok(appended), Rows::Keyed(tablet)) = (&outcome, &self.rows)
            && tablet.log.synced() >= appended.end_offset
        {
            // A sync that came before the rows were in the buffer told of nothing.
            self.appliers.ready(tablet);
        }
        // The caller may be gone; the batch is in the log all the same.
        let _ = self.reply.send(outcome.map(|appended| settle(self.rows.log(), appended, self.acks, flusher)));
    }
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Arc<KvTablet>>,
    closed: bool,
}

/// The threads that apply.
pub(crate) struct Appliers {
    queue: Mutex<Queue>,
    wake: Condvar,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Appliers {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// The operating system's, when it starts no thread.
    pub(crate) fn new(threads: usize) -> Result<Arc<Self>> {
        let appliers = Arc::new(Self { queue: Mutex::default(), wake: Condvar::new(), threads: Mutex::default() });
        for n in 0..threads.max(1) {
            let shared = Arc::clone(&appliers);
            let thread = std::thread::Builder::new().name(format!("apply-{n}")).spawn(move || shared.work());
            appliers.threads.lock().push(thread.map_err(|error| Error::io("starting a thread", &error))?);
        }
        Ok(appliers)
    }

    /// Takes note that a bucket's log was synced.
    pub(crate) fn ready(&self, tablet: &Arc<KvTablet>) {
        if !tablet.queued.swap(true, Ordering::SeqCst) {
            self.queue.lock().ready.push_back(Arc::clone(tablet));
            self.wake.notify_one();
        }
    }

    /// Stops the threads once what is queued is applied.
    pub(crate) fn stop(&self) {
        self.queue.lock().closed = true;
        self.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }

    fn next(&self) -> Option<Arc<KvTablet>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(tablet) = queue.ready.pop_front() {
                return Some(tablet);
            }
            if queue.closed {
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }

    fn work(&self) {
        // A bucket whose applier died would wait for it for ever.
        let _guard = AbortOnPanic;
        while let Some(tablet) = self.next() {
            // Before it is applied: a sync from here on queues it again.
            tablet.queued.store(false, Ordering::SeqCst);
            match tablet.apply() {
                Ok(true) => self.ready(&tablet),
                Ok(false) => {}
                Err(error) => tracing::error!(bucket = %tablet.log.id, %error, "applying synced rows"),
            }
        }
    }
}
