//! A few threads for work that waits for the disk; the only place besides the owners' threads that does.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// A bounded queue of jobs and the threads that run them.
pub(crate) struct Pool {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

/// Jobs that may wait; beyond it callers are told to try again.
const JOBS_MAX: usize = 4096;

impl Pool {
    /// Starts `threads` threads called `name-N`.
    ///
    /// # Errors
    /// The operating system's, when it starts no thread.
    pub(crate) fn new(name: &str, threads: usize) -> Result<Self> {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        for n in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || work(&shared))
                .map_err(|error| Error::io("starting a thread", &error))?;
        }
        Ok(Self { shared })
    }

    /// Has `job` run on a thread of the pool, some time.
    ///
    /// # Errors
    /// `Busy` when too many wait; `ShuttingDown`.
    pub(crate) fn post(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        {
            let mut queue = self.shared.0.lock();
            if queue.closed {
                return Err(Error::new(ErrorKind::ShuttingDown, "the server is stopping"));
            }
            if queue.jobs.len() >= JOBS_MAX {
                return Err(Error::new(ErrorKind::Busy, "too many requests wait for the disk"));
            }
            queue.jobs.push_back(Box::new(job));
        }
        self.shared.1.notify_one();
        Ok(())
    }

    /// Runs `job` on a thread of the pool.
    ///
    /// # Errors
    /// As [`Pool::post`]; `Internal` when the job panicked.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let (sender, receiver) = oneshot::channel();
        self.post(move || drop(sender.send(job())))?;
        receiver.await.map_err(|_| Error::new(ErrorKind::Internal, "a disk job ended without an answer"))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.0.lock().closed = true;
        self.shared.1.notify_all();
    }
}

fn work(shared: &(Mutex<Queue>, Condvar)) {
    loop {
        let job = {
            let mut queue = shared.0.lock();
            loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break job;
                }
                if queue.closed {
                    return;
                }
                shared.1.wait(&mut queue);
            }
        };
        // A job that panics drops its sender: its caller gets an error, the thread lives on.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}
