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

/// Work for the thread that owns a bucket.
pub(crate) trait Job: Send + 'static {
    /// The bucket.
    fn bucket(&self) -> BucketId;
    /// Does it.
    fn run(self, flusher: &Flusher);
}

/// The queues of the owners' threads.
pub(crate) struct Shards<J> {
    queues: Vec<mpsc::Sender<J>>,
}

impl<J: Job> Shards<J> {
    /// Starts `threads` threads called `name-N`.
    pub(crate) fn new(name: &str, threads: usize, queue: usize, flusher: &Arc<Flusher>) -> Result<Self> {
        let mut queues = Vec::new();
        for n in 0..threads.max(1) {
            let (sender, receiver) = mpsc::channel(queue.max(1));
            let flusher = Arc::clone(flusher);
            std::thread::Builder::new()
                .name(format!("{name}-{n}"))
                .spawn(move || work(receiver, &flusher))
                .map_err(|error| Error::io("starting a thread", &error))?;
            queues.push(sender);
        }
        Ok(Self { queues })
    }

    /// Queues a job; its place among the bucket's is fixed when this returns.
    pub(crate) async fn send(&self, job: J) -> Result<()> {
        let queue = self.queues.get(self.place(job.bucket()));
        let closed = || Error::new(ErrorKind::ShuttingDown, "the server is stopping");
        match queue {
            Some(queue) => queue.send(job).await.map_err(|_| closed()),
            None => Err(closed()),
        }
    }

    fn place(&self, id: BucketId) -> usize {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        (hasher.finish() % self.queues.len() as u64) as usize
    }
}

fn work<J: Job>(mut queue: mpsc::Receiver<J>, flusher: &Flusher) {
    // A panic here would leave a log whose memory and file disagree: the process must not go on.
    let _guard = AbortOnPanic;
    while let Some(job) = queue.blocking_recv() {
        job.run(flusher);
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

impl Job for Append {
    fn bucket(&self) -> BucketId {
        self.tablet.id
    }

    fn run(self, flusher: &Flusher) {
        let outcome = self.tablet.append(self.batch);
        // The caller may be gone; the batch is in the log all the same.
        let _ = self.reply.send(outcome.map(|appended| settle(&self.tablet, appended, self.acks, flusher)));
    }
}

/// After an append: has the tablet synced, at once where someone waits, and says what is left to wait for.
pub(crate) fn settle(
    tablet: &Arc<Tablet>,
    appended: Appended,
    acks: Acks,
    flusher: &Flusher,
) -> (Appended, Option<Durable>) {
    let waits = acks == Acks::All && tablet.options().acks_all == AcksAll::Fsync;
    let durable = waits.then(|| when_durable(tablet, appended.end_offset));
    if tablet.is_dirty() {
        flusher.dirty(tablet, waits || tablet.is_watched());
    }
    (appended, durable)
}

/// Answered once everything below `offset` is on disk, and applied where the table has keys.
pub(crate) fn when_durable(tablet: &Tablet, offset: i64) -> Durable {
    let (sender, receiver) = oneshot::channel();
    tablet.when_durable(offset, sender);
    receiver
}
