//! Rows into tables: what SQL, DoPut and ingest share. All rows are checked before they come here.

use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_engine::catalog::TableInfo;
use sluice_engine::kv_tablet::Op;
use sluice_engine::row::batch::append_only;
use sluice_engine::row::{Row, Schema};
use sluice_engine::tablet::LogBatch;
use sluice_engine::{Acks, Backend, BucketId, UpsertRequest};
use tonic::Status;

use crate::status::status_of;

/// Rows of one log batch at most.
const BATCH_ROWS: usize = 4_096;

/// Where rows went: topic partition, and the end of its log behind them.
pub(crate) type Places = Vec<(u32, i64)>;

/// Rows whose places are fixed, ready once they are on disk and readers see them.
pub(crate) type Pending = BoxFuture<'static, Result<Places, Status>>;

/// The next bucket of a table without a bucket key: each request goes to one (sticky), the next request to the next.
static NEXT_BUCKET: AtomicU32 = AtomicU32::new(0);

fn note(places: &mut Places, bucket: u32, end: i64) {
    match places.iter_mut().find(|(known, _)| *known == bucket) {
        Some((_, last)) => *last = end.max(*last),
        None => places.push((bucket, end)),
    }
}

/// The schema that rows are written by.
///
/// # Errors
/// UNIMPLEMENTED for raw topics.
pub(crate) fn schema_of(info: &TableInfo) -> Result<&Schema, Status> {
    let what = || Status::unimplemented(format!("'{}' is a topic without a schema: write to it over Kafka", info.name));
    info.typed.as_ref().map(|table| &table.schema).ok_or_else(what)
}

/// Appends rows to a log table, wherever they belong.
///
/// # Errors
/// The engine's.
pub(crate) async fn append(backend: &dyn Backend, info: &TableInfo, rows: Vec<Row>) -> Result<Pending, Status> {
    let schema = schema_of(info)?;
    if info.is_routed() {
        return apply(backend, info, rows.into_iter().map(Op::upsert).collect()).await;
    }
    let bucket = NEXT_BUCKET.fetch_add(1, Ordering::Relaxed) % info.buckets.max(1);
    let place = BucketId::new(info.table_id(), bucket);
    let mut batches = Vec::new();
    for some in rows.chunks(BATCH_ROWS) {
        let batch = append_only(place, schema, some, None).map_err(|error| status_of(&error))?;
        batches.push(LogBatch::Typed(batch));
    }
    let mut pending = Vec::with_capacity(batches.len());
    for batch in batches {
        pending.push(backend.append(place, batch, Acks::All).await.map_err(|error| status_of(&error))?);
    }
    Ok(Box::pin(async move {
        let mut places = Places::new();
        for outcome in pending {
            note(&mut places, bucket, outcome.await.map_err(|error| status_of(&error))?.end_offset);
        }
        Ok(places)
    }))
}

/// Applies operations to a PK table, or appends rows to another whose rows are routed.
///
/// # Errors
/// The engine's.
pub(crate) async fn apply(backend: &dyn Backend, info: &TableInfo, ops: Vec<Op>) -> Result<Pending, Status> {
    let mut pending = Vec::new();
    let mut ops = ops.into_iter().peekable();
    while ops.peek().is_some() {
        let some = ops.by_ref().take(BATCH_ROWS).collect();
        let request = UpsertRequest { source: None, range: None, ops: some, acks: Acks::All };
        pending.push(backend.upsert(info.table_id(), request).await.map_err(|error| status_of(&error))?);
    }
    let info = info.clone();
    Ok(Box::pin(async move {
        let mut places = Places::new();
        for outcome in pending {
            for (bucket, appended) in outcome.await.map_err(|error| status_of(&error))?.parts {
                let number = info.topic_partition_of(bucket).unwrap_or(bucket.bucket);
                note(&mut places, number, appended.end_offset);
            }
        }
        Ok(places)
    }))
}
