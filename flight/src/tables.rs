//! What both doors of Flight share: names to relations, relations to flights, tickets to streams.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use sluice_engine::Backend;
use sluice_engine::catalog::{DEFAULT_DATABASE, TableInfo};
use sluice_engine::{BucketId, TableId};
use tonic::{Response, Status};

use crate::query::no_table;
use crate::relation::Relation;
use crate::scan::{self, Batches};
use crate::ticket::{Scan, Tickets, Work};

pub(crate) type Reply<T> = Result<Response<T>, Status>;
pub(crate) type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// The tables of a backend, and this server's tickets.
pub(crate) struct Tables {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) tickets: Tickets,
}

impl Tables {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, tickets: Tickets::new() }
    }

    /// The table that a path names: `[table]` or `[database, table]`.
    ///
    /// # Errors
    /// NOT_FOUND; INVALID_ARGUMENT for another path.
    pub(crate) fn at(&self, path: &[String]) -> Result<Arc<TableInfo>, Status> {
        let (database, table) = match path {
            [table] => (DEFAULT_DATABASE, table.as_str()),
            [database, table] => (database.as_str(), table.as_str()),
            _ => {
                let what = format!("a path of {} parts; expected [database, table]", path.len());
                return Err(Status::invalid_argument(what));
            }
        };
        let view = self.backend.tables();
        view.find(database, table).cloned().ok_or_else(|| no_table(database, table))
    }

    /// The table that `database.table` names, or `table` of the default database.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<TableInfo>, Status> {
        let view = self.backend.tables();
        let found = name.split_once('.').and_then(|(database, table)| view.find(database, table));
        let found = found.or_else(|| view.find(DEFAULT_DATABASE, name));
        found.cloned().ok_or_else(|| Status::not_found(format!("no table is called '{name}'")))
    }

    /// A flight of one endpoint for each bucket. No endpoint names a location: all are read over the connection that
    /// asked (flight.md §1.4.5).
    ///
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn flight(&self, info: &Arc<TableInfo>, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let relation = Relation { info: Arc::clone(info), changelog: false };
        let columns = relation.schema().fields().len() as u32;
        let endpoint = |id: BucketId| {
            let work = Work::Scan(Scan { table: info.id, bucket: id.bucket, partition: id.partition, columns });
            Ok(FlightEndpoint::new().with_ticket(Ticket::new(self.tickets.make(work)?)))
        };
        let endpoints = info.bucket_ids().into_iter().map(endpoint).collect::<Result<Vec<_>, Status>>()?;
        let made = FlightInfo::new().try_with_schema(&relation.schema()).map_err(internal)?;
        let made = made.with_descriptor(descriptor).with_total_records(-1).with_total_bytes(-1);
        Ok(endpoints.into_iter().fold(made, FlightInfo::with_endpoint))
    }

    /// What a scan's ticket is for, as Flight sends it: the schema first, even where there are no rows, and with it,
    /// in `app_metadata`, the offset at which a reader of the bucket's log would go on.
    ///
    /// # Errors
    /// NOT_FOUND for a dropped table, and why a bucket cannot be read.
    pub(crate) async fn stream(&self, scan: Scan) -> Reply<Items<FlightData>> {
        let found = self.backend.tables().by_id(TableId(scan.table)).cloned();
        let info = found.ok_or_else(|| Status::not_found("the table of this ticket was dropped"))?;
        let relation = Relation { info, changelog: false };
        let columns: Arc<[usize]> = (0..scan.columns as usize).collect();
        let schema = Arc::new(relation.schema().project(&columns).map_err(internal)?);
        let id = BucketId { table: TableId(scan.table), partition: scan.partition, bucket: scan.bucket };
        let number = relation.info.topic_partition_of(id).unwrap_or(scan.bucket);
        let rows = scan::Scan { relation, columns, buckets: vec![id] };
        let (offset, batches) = rows.rows_of_bucket(Arc::clone(&self.backend)).await?;
        let about = format!(r#"{{"bucket":{number},"offset":{offset}}}"#);
        Ok(Response::new(sent(schema, batches, about.into())))
    }
}

/// Record batches as Flight sends them.
pub(crate) fn sent(schema: SchemaRef, batches: Batches, about: Bytes) -> Items<FlightData> {
    let encoder = FlightDataEncoderBuilder::new().with_schema(schema).with_metadata(about);
    let encoded = encoder.build(batches.map_err(|status| FlightError::Tonic(Box::new(status))));
    encoded.map_err(Status::from).boxed()
}

/// One record batch as Flight sends it.
pub(crate) fn one_batch(batch: RecordBatch) -> Items<FlightData> {
    let encoder = FlightDataEncoderBuilder::new().with_schema(batch.schema());
    encoder.build(futures::stream::iter([Ok(batch)])).map_err(Status::from).boxed()
}
