//! The sync pool: takes dirty tablets and syncs them, at once when someone waits, else within the
//! sync interval. While one sync of a tablet runs its next group forms by itself. Buckets whose sync
//! failed are repaired by a thread of their own: they must not hold those that serve the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::shard::AbortOnPanic;
use crate::tablet::Tablet;

#[derive(Default)]
struct Queue {
    urgent: VecDeque<Arc<Tablet>>,
    lazy: VecDeque<(Instant, Arc<Tablet>)>,
    /// Buckets to repair, by when that may be tried.
    broken: VecDeque<(Instant, Arc<Tablet>)>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    wake_repair: Condvar,
    interval: Duration,
    syncs: AtomicU64,
    failures: AtomicU64,
}

/// The pool's handle.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

/// Pause before each attempt to repair a bucket whose sync failed.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);

impl Flusher {
    /// Starts `threads` sync threads; appends that nobody waits for are synced within `interval`.
    ///
    /// # Errors
    /// The operating system's, when it starts no thread.
    pub(crate) fn new(threads: usize, interval: Duration) -> Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            wake_repair: Condvar::new(),
            interval,
            syncs: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        let spawn = |name: String, body: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            let handle = std::thread::Builder::new().name(name).spawn(move || body(&shared));
            handle.map_err(|error| Error::io("starting a thread", &error))
        };
        let mut handles = vec![spawn("repair".to_owned(), repair)?];
        for n in 0..threads.max(1) {
            handles.push(spawn(format!("sync-{n}"), work)?);
        }
        Ok(Self { shared, threads: Mutex::new(handles) })
    }

    /// Takes note that `tablet` was appended to; `urgent` when someone waits for the sync.
    pub(crate) fn dirty(&self, tablet: &Arc<Tablet>, urgent: bool) {
        self.shared.dirty(tablet, urgent);
    }

    /// Syncs done so far, and how many failed.
    #[must_use]
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.shared.syncs.load(Ordering::Relaxed), self.shared.failures.load(Ordering::Relaxed))
    }

    /// Stops the threads after the syncs that run.
    pub(crate) fn stop(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
        self.shared.wake_repair.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn dirty(&self, tablet: &Arc<Tablet>, urgent: bool) {
        let first = !tablet.queued.swap(true, Ordering::SeqCst);
        let mut queue = self.queue.lock();
        if first {
            if urgent {
                queue.urgent.push_back(Arc::clone(tablet));
            } else {
                queue.lazy.push_back((Instant::now() + self.interval, Arc::clone(tablet)));
                // A thread that sleeps without a deadline must learn of this one; the others need not.
                if queue.lazy.len() > 1 {
                    return;
                }
            }
        } else if urgent {
            // It may wait among the lazy ones: move it up. If it is being synced, its thread requeues it.
            let Some(at) = queue.lazy.iter().position(|(_, other)| Arc::ptr_eq(other, tablet)) else { return };
            if let Some((_, tablet)) = queue.lazy.remove(at) {
                queue.urgent.push_back(tablet);
            }
        } else {
            return;
        }
        drop(queue);
        self.wake.notify_one();
    }

    /// The caller may be long over its tablet, and it may be the one that watched the next deadline.
    fn hand_over(&self, queue: &Queue) {
        if !queue.lazy.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Gives up a tablet that was synced or repaired; one that is broken stays out of the syncs' way.
    fn release(&self, tablet: Arc<Tablet>) {
        if tablet.needs_repair() {
            self.queue.lock().broken.push_back((Instant::now() + REPAIR_PAUSE, tablet));
            self.wake_repair.notify_one();
            return;
        }
        tablet.queued.swap(false, Ordering::SeqCst);
        // What was appended while it ran saw `queued` set and left it to this thread.
        if tablet.is_dirty() || tablet.needs_repair() {
            let urgent = tablet.urgent.load(Ordering::Acquire) || tablet.is_watched();
            self.dirty(&tablet, urgent);
        }
    }

    fn next_broken(&self) -> Option<Arc<Tablet>> {
        let mut queue = self.queue.lock();
        while !queue.closed {
            match queue.broken.front() {
                Some((due, _)) if *due <= Instant::now() => return queue.broken.pop_front().map(|(_, tablet)| tablet),
                Some((due, _)) => {
                    let due = *due;
                    self.wake_repair.wait_until(&mut queue, due);
                }
                None => self.wake_repair.wait(&mut queue),
            }
        }
        None
    }

    fn next(&self) -> Option<Arc<Tablet>> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(tablet) = queue.urgent.pop_front() {
                self.hand_over(&queue);
                return Some(tablet);
            }
            let now = Instant::now();
            match queue.lazy.front() {
                Some((due, _)) if *due <= now => {
                    let tablet = queue.lazy.pop_front().map(|(_, tablet)| tablet);
                    self.hand_over(&queue);
                    return tablet;
                }
                Some((due, _)) => {
                    let due = *due;
                    self.wake.wait_until(&mut queue, due);
                }
                None => self.wake.wait(&mut queue),
            }
        }
    }
}

fn work(shared: &Shared) {
    // A bucket whose sync thread died would wait for it for ever.
    let _guard = AbortOnPanic;
    while let Some(tablet) = shared.next() {
        shared.syncs.fetch_add(1, Ordering::Relaxed);
        if tablet.sync().is_err() {
            shared.failures.fetch_add(1, Ordering::Relaxed);
        }
        shared.release(tablet);
    }
}

fn repair(shared: &Shared) {
    let _guard = AbortOnPanic;
    while let Some(tablet) = shared.next_broken() {
        if let Err(error) = tablet.repair() {
            tracing::error!(bucket = %tablet.id, %error, "the bucket stays offline");
        }
        shared.release(tablet);
    }
}
