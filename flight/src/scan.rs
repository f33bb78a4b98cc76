//! Buckets as one stream of record batches, each from its log start to its high watermark as of the stream's start.
//!
//! At most one chunk of the log and one decoded batch of it are in memory at a time; nothing is read before the
//! client takes what there is.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use bytes::{Buf, Bytes};
use futures::stream::{self, Stream, TryStreamExt};
use sluice_engine::catalog::TableInfo;
use sluice_engine::scan::step;
use sluice_engine::{Backend, BucketId};
use tonic::Status;

use crate::arrow::batch_of;
use crate::status::status_of;

/// Bytes of a log that are read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Rows of a record batch at most.
const BATCH_ROWS: usize = 8_192;

/// What is left to read of one bucket: offsets `next..end`.
struct Span {
    bucket: BucketId,
    next: i64,
    end: i64,
}

/// A scan under way.
struct Scanner {
    backend: Arc<dyn Backend>,
    info: Arc<TableInfo>,
    spans: VecDeque<Span>,
    /// Read of the first span and not yet decoded; begins with a whole batch.
    stored: Bytes,
    /// Rows that may still be given.
    left: usize,
}

/// Reads `buckets` of a table one after the other, at most `limit` rows in all.
///
/// # Errors
/// Why a bucket cannot be read.
pub(crate) fn rows(
    backend: Arc<dyn Backend>,
    info: Arc<TableInfo>,
    buckets: std::ops::Range<u32>,
    limit: Option<u64>,
) -> Result<impl Stream<Item = Result<RecordBatch, Status>>, Status> {
    let span = |bucket| {
        let bucket = BucketId::new(info.table_id(), bucket);
        let offsets = backend.offsets(bucket).map_err(|error| status_of(&error))?;
        Ok(Span { bucket, next: offsets.log_start, end: offsets.high_watermark })
    };
    let spans = buckets.map(span).collect::<Result<_, Status>>()?;
    let left = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let scanner = Scanner { backend, info, spans, stored: Bytes::new(), left };
    let batches = stream::try_unfold(scanner, |mut scanner| async move {
        Ok::<_, Status>(scanner.next().await?.map(|batch| (batch, scanner)))
    });
    Ok(batches.map_ok(|batch| stream::iter(slices(&batch).into_iter().map(Ok))).try_flatten())
}

/// A batch in pieces of at most [`BATCH_ROWS`].
fn slices(batch: &RecordBatch) -> Vec<RecordBatch> {
    let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
    starts.map(|start| batch.slice(start, BATCH_ROWS.min(batch.num_rows() - start))).collect()
}

impl Scanner {
    /// The next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<RecordBatch>, Status> {
        while self.left > 0 {
            let Some(span) = self.spans.front() else { break };
            if span.next >= span.end {
                self.spans.pop_front();
                self.stored.clear();
                continue;
            }
            let batch = self.decode().await?;
            if batch.num_rows() > 0 {
                let rows = batch.num_rows().min(self.left);
                self.left -= rows;
                return Ok(Some(batch.slice(0, rows)));
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
        }
        let (info, stored) = (Arc::clone(&self.info), self.stored.clone());
        // Decompressing takes longer than a task may hold a thread for.
        let work = move || {
            let step = step(&info, &stored, from, end).map_err(|error| status_of(&error))?;
            let batch = batch_of(&info, bucket.bucket, &step.scanned);
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
