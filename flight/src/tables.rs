//! What both doors of Flight share: names to tables, tables to flights, tickets to streams.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use futures::{Stream, StreamExt, TryStreamExt};
use sluice_engine::Backend;
use sluice_engine::TableId;
use sluice_engine::catalog::{DEFAULT_DATABASE, TableInfo};
use tonic::{Response, Status};

use crate::arrow::schema_of;
use crate::ticket::{Scan, Tickets};

pub(crate) type Reply<T> = Result<Response<T>, Status>;
pub(crate) type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(crate) fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// The tables of a backend, and this server's tickets.
pub(crate) struct Tables {
    pub(crate) backend: Arc<dyn Backend>,
    tickets: Tickets,
}

impl Tables {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, tickets: Tickets::new() }
    }

    /// A table by its name; `None` is the default database.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub(crate) fn find(&self, database: Option<&str>, table: &str) -> Result<Arc<TableInfo>, Status> {
        let database = database.unwrap_or(DEFAULT_DATABASE);
        let tables = self.backend.tables();
        let found = tables.by_name(table).filter(|info| info.database == database);
        found.cloned().ok_or_else(|| Status::not_found(format!("no table '{table}' in database '{database}'")))
    }

    /// A flight of one endpoint for each bucket; with a limit, of one for all. No endpoint names a location: all
    /// are read over the connection that asked (flight.md §1.4.5). `wrap` makes a ticket of the door.
    ///
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn flight(
        &self,
        info: &TableInfo,
        limit: Option<u64>,
        descriptor: FlightDescriptor,
        wrap: impl Fn(Vec<u8>) -> Vec<u8>,
    ) -> Result<FlightInfo, Status> {
        let scan = |first_bucket, buckets| Scan { table: info.id, first_bucket, buckets, limit };
        let scans: Vec<Scan> = match limit {
            Some(_) => vec![scan(0, info.buckets)],
            None => (0..info.buckets).map(|bucket| scan(bucket, 1)).collect(),
        };
        let endpoint = |scan: &Scan| {
            let ticket = wrap(self.tickets.make(scan)?);
            Ok(FlightEndpoint::new().with_ticket(Ticket::new(ticket)))
        };
        let endpoints = scans.iter().map(endpoint).collect::<Result<Vec<_>, Status>>()?;
        let made = FlightInfo::new().try_with_schema(&schema_of(info)).map_err(internal)?;
        let made = made.with_descriptor(descriptor).with_total_records(-1).with_total_bytes(-1);
        Ok(endpoints.into_iter().fold(made, FlightInfo::with_endpoint))
    }

    /// What a ticket is for, as Flight sends it: the schema first, even where there are no rows.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a foreign ticket, NOT_FOUND for a dropped table, and why a bucket cannot be read.
    pub(crate) fn stream(&self, ticket: &[u8]) -> Reply<Items<FlightData>> {
        let scan = self.tickets.read(ticket)?;
        let found = self.backend.tables().by_id(TableId(scan.table)).cloned();
        let info = found.ok_or_else(|| Status::not_found("the table of this ticket was dropped"))?;
        let (schema, buckets) = (schema_of(&info), scan.first_bucket..scan.first_bucket.saturating_add(scan.buckets));
        let batches = crate::scan::rows(Arc::clone(&self.backend), info, buckets, scan.limit)?;
        let encoder = FlightDataEncoderBuilder::new().with_schema(schema);
        let encoded = encoder.build(batches.map_err(|status| FlightError::Tonic(Box::new(status))));
        Ok(Response::new(encoded.map_err(Status::from).boxed()))
    }
}

/// One record batch as Flight sends it.
pub(crate) fn one_batch(batch: RecordBatch) -> Items<FlightData> {
    let encoder = FlightDataEncoderBuilder::new().with_schema(batch.schema());
    encoder.build(futures::stream::iter([Ok(batch)])).map_err(Status::from).boxed()
}
