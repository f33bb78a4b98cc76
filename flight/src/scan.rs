//! Relations as streams of record batches: each bucket of a log from its log start to its high watermark as of the
//! stream's start, each bucket of a keyed one as a snapshot.
//!
//! At most one chunk of the log and one decoded batch of it are in memory at a time; nothing is read before the
//! client takes what there is.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::{Buf, Bytes};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use sluice_engine::catalog::TableInfo;
use sluice_engine::scan::step;
use sluice_engine::{Backend, BucketId, SnapshotRows};
use tonic::Status;

use crate::relation::Relation;
use crate::status::status_of;

/// Bytes of a log that are read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Rows of a record batch at most.
const BATCH_ROWS: usize = 8_192;

/// Record batches, or why there are no more.
pub(crate) type Batches = BoxStream<'static, Result<RecordBatch, Status>>;

/// What is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) relation: Relation,
    /// Places of the columns in the relation's schema.
    pub(crate) columns: Arc<[usize]>,
    /// One after the other.
    pub(crate) buckets: Vec<BucketId>,
}

impl Scan {
    /// Reads.
    ///
    /// # Errors
    /// Why a bucket cannot be read.
    pub(crate) fn rows(self, backend: Arc<dyn Backend>) -> Result<Batches, Status> {
        if !self.relation.is_keyed() {
            return Ok(self.log_rows(backend)?.1);
        }
        let buckets = stream::iter(self.buckets.clone().into_iter().map(Ok::<_, Status>));
        let snapshots = buckets.and_then(move |bucket| {
            let (backend, scan) = (Arc::clone(&backend), self.clone());
            async move { Ok(scan.snapshot(&*backend, bucket).await?.1) }
        });
        Ok(snapshots.try_flatten().boxed())
    }

    /// Reads, and tells the offset of one bucket's log from which a reader of the log would go on.
    ///
    /// # Errors
    /// Why the bucket cannot be read.
    pub(crate) async fn rows_of_bucket(self, backend: Arc<dyn Backend>) -> Result<(i64, Batches), Status> {
        if self.relation.is_keyed() {
            let none = || Status::internal("a scan of no bucket");
            let bucket = self.buckets.first().copied().ok_or_else(none)?;
            return self.snapshot(&*backend, bucket).await;
        }
        self.log_rows(backend)
    }

    async fn snapshot(&self, backend: &dyn Backend, bucket: BucketId) -> Result<(i64, Batches), Status> {
        let taken = backend.snapshot(bucket).await;
        let (offset, rows) = taken.map_err(|error| status_of(&error))?;
        let (relation, columns) = (self.relation.clone(), Arc::clone(&self.columns));
        let batches =
            stream::unfold(rows, |mut rows: SnapshotRows| async move { rows.recv().await.map(|next| (next, rows)) });
        let batches = batches.map(move |rows| {
            let rows = rows.map_err(|error| status_of(&error))?;
            relation.rows(&columns, &rows).map_err(|error| Status::internal(error.to_string()))
        });
        Ok((offset, batches.boxed()))
    }

    /// The end of the last bucket, and the rows.
    fn log_rows(self, backend: Arc<dyn Backend>) -> Result<(i64, Batches), Status> {
        let span = |bucket: &BucketId| {
            let bucket = *bucket;
            let offsets = backend.offsets(bucket).map_err(|error| status_of(&error))?;
            Ok(Span { bucket, next: offsets.log_start, end: offsets.high_watermark })
        };
        let spans = self.buckets.iter().map(span).collect::<Result<VecDeque<_>, Status>>()?;
        let end = spans.back().map_or(0, |span| span.end);
        let info = Arc::clone(&self.relation.info);
        let scanner = Scanner { backend, scan: self, spans, stored: Bytes::new(), info };
        let batches = stream::try_unfold(scanner, |mut scanner| async move {
            Ok::<_, Status>(scanner.next().await?.map(|batch| (batch, scanner)))
        });
        Ok((end, batches.map_ok(|batch| stream::iter(slices(&batch).into_iter().map(Ok))).try_flatten().boxed()))
    }
}

/// The first rows of a stream.
pub(crate) fn limited(batches: Batches, limit: Option<u64>) -> Batches {
    let Some(limit) = limit else { return batches };
    let left = usize::try_from(limit).unwrap_or(usize::MAX);
    stream::try_unfold((batches, left), |(mut batches, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(batch) = batches.try_next().await? else { return Ok(None) };
        let rows = batch.num_rows().min(left);
        Ok(Some((batch.slice(0, rows), (batches, left - rows))))
    })
    .boxed()
}

/// What is left to read of one bucket's log: offsets `next..end`.
struct Span {
    bucket: BucketId,
    next: i64,
    end: i64,
}

/// A scan of logs under way.
struct Scanner {
    backend: Arc<dyn Backend>,
    scan: Scan,
    spans: VecDeque<Span>,
    /// Read of the first span and not yet decoded; begins with a whole batch.
    stored: Bytes,
    /// The table as it was after that read.
    info: Arc<TableInfo>,
}

/// A batch in pieces of at most [`BATCH_ROWS`].
fn slices(batch: &RecordBatch) -> Vec<RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
    starts.map(|start| batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start))).collect()
}

impl Scanner {
    /// The next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>, Status> {
        while let Some(span) = self.spans.front() {
            if span.next >= span.end {
                self.spans.pop_front();
                self.stored.clear();
                continue;
            }
            let batch = self.decode().await?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Decodes the next stored batch.
    async fn decode(&mut self) -> Result<RecordBatch, Status> {
        let Some(span) = self.spans.front_mut() else { return Err(Status::internal("nothing is left to decode")) };
        let (bucket, from, end) = (span.bucket, span.next, span.end);
        if self.stored.is_empty() {
            let read = self.backend.read_bytes(bucket, from, CHUNK_BYTES).await;
            self.stored = read.map_err(|error| status_of(&error))?;
            // The schema may have a new version since the scan began, and what was read may be of it.
            let now = self.backend.tables().by_id(bucket.table).cloned();
            let name = &self.scan.relation.info.name;
            self.info = now.ok_or_else(|| Status::not_found(format!("table '{name}' was dropped")))?;
        }
        let (info, relation, columns, stored) =
            (Arc::clone(&self.info), self.scan.relation.clone(), Arc::clone(&self.scan.columns), self.stored.clone());
        // Decompressing takes longer than a task may hold a thread for.
        let work = move || {
            let step = step(&info, &stored, from, end).map_err(|error| status_of(&error))?;
            let batch = relation.log_batch(&columns, bucket.bucket, &step);
            Ok::<_, Status>((batch.map_err(|error| Status::internal(error.to_string()))?, step.used, step.next))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (batch, used, next) = done.map_err(|error| Status::internal(error.to_string()))??;
        if next <= from {
            return Err(Status::data_loss(format!("bucket {bucket}: no batch holds offset {from}")));
        }
        span.next = next;
        self.stored.advance(used);
        Ok(batch)
    }
}
