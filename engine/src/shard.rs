//! The append threads: a bucket belongs to one of them by hash, its appends happen there in the
//! order in which they were queued, and no network task ever waits for a disk.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::backend::Acks;
use crate::config::AcksAll;
use crate::error::{Error, ErrorKind, Result};
use crate::flusher::Flusher;
use crate::tablet::{Appended, LogBatch, Tablet};
use crate::types::BucketId;

/// Answered once a batch is on disk.
pub(crate) type Durable = oneshot::Receiver<Result<()>>;

/// What an append thread answers: where the batch went, and what is left to wait for.
pub(crate) type AppendReply = Result<(Appended, Option<Durable>)>;

/// One append on its way to its thread.
pub(crate) struct Append {
    pub(crate) tablet: Arc<Tablet>,
    pub(crate) batch: LogBatch,
    pub(crate) acks: Acks,
    pub(crate) reply: oneshot::Sender<AppendReply>,
}

/// The queues of the append threads.
pub(crate) struct Shards {
    queues: Vec<mpsc::Sender<Append>>,
}

impl Shards {
    /// Starts the threads.
    pub(crate) fn new(threads: usize, queue: usize, flusher: &Arc<Flusher>) -> Result<Self> {
        let mut queues = Vec::new();
        for n in 0..threads.max(1) {
            let (sender, receiver) = mpsc::channel(queue.max(1));
            let flusher = Arc::clone(flusher);
            std::thread::Builder::new()
                .name(format!("append-{n}"))
                .spawn(move || work(receiver, &flusher))
                .map_err(|error| Error::io("starting a thread", &error))?;
            queues.push(sender);
        }
        Ok(Self { queues })
    }

    /// Queues an append; its place among the bucket's appends is fixed when this returns.
    pub(crate) async fn send(&self, append: Append) -> Result<()> {
        let queue = self.queues.get(self.place(append.tablet.id));
        let closed = || Error::new(ErrorKind::ShuttingDown, "the server is stopping");
        match queue {
            Some(queue) => queue.send(append).await.map_err(|_| closed()),
            None => Err(closed()),
        }
    }

    fn place(&self, id: BucketId) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        (hasher.finish() % self.queues.len() as u64) as usize
    }
}

fn work(mut queue: mpsc::Receiver<Append>, flusher: &Flusher) {
    // A panic here would leave a log whose memory and file disagree: the process must not go on.
    let _guard = AbortOnPanic;
    while let Some(append) = queue.blocking_recv() {
        step(append, flusher);
    }
}

/// Ends the process when its thread panics.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn step(append: Append, flusher: &Flusher) {
    let Append { tablet, batch, acks, reply } = append;
    let outcome = tablet.append(batch);
    let durable = match &outcome {
        Ok(appended) if acks == Acks::All && tablet.options().acks_all == AcksAll::Fsync => {
            let (sender, receiver) = oneshot::channel();
            tablet.when_durable(appended.end_offset, sender);
            Some(receiver)
        }
        _ => None,
    };
    let urgent = durable.is_some() || tablet.is_watched();
    if tablet.is_dirty() {
        flusher.dirty(&tablet, urgent);
    }
    // The caller may be gone; the batch is in the log all the same.
    let _ = reply.send(outcome.map(|appended| (appended, durable)));
}
