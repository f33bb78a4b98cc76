//! The outer Flight service: tables are flights, named by a path of database and table, each with one endpoint for
//! each bucket. What is a command of Flight SQL goes to [`Sql`] within: arrow-flight's own service refuses
//! ListFlights, GetSchema and any ticket that is none of its own (flight.md §0).

use std::sync::Arc;

use arrow_flight::error::FlightError;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::{StreamExt, TryStreamExt, stream};
use sluice_engine::Backend;
use sluice_engine::catalog::TableInfo;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use crate::command::Command;
use crate::lookup::Lookups;
use crate::put;
use crate::query::Engine;
use crate::sql::Sql;
use crate::tables::{Items, Reply, Tables, one_batch};
use crate::ticket::{Work, is_ours};

/// What clients that insist on a token are given; there is no authentication, so it opens nothing.
const TOKEN: &str = "Bearer anonymous";

/// The actions that are answered, and what they do.
const ACTIONS: [(&str, &str); 2] = [
    ("CreatePreparedStatement", "ActionCreatePreparedStatementRequest to ActionCreatePreparedStatementResult"),
    ("ClosePreparedStatement", "ActionClosePreparedStatementRequest, no result"),
];

/// Flight and Flight SQL over the tables of a backend.
pub struct Service {
    tables: Arc<Tables>,
    sql: Sql,
}

impl Service {
    /// A service whose tickets are its own.
    ///
    /// # Errors
    /// INTERNAL only.
    pub fn new(backend: Arc<dyn Backend>) -> Result<Self, Status> {
        let engine = Arc::new(Engine::new(Arc::clone(&backend))?);
        let tables = Arc::new(Tables::new(backend));
        Ok(Self { sql: Sql::new(Arc::clone(&tables), engine)?, tables })
    }

    fn lookups(&self, table: &str) -> Result<Lookups, Status> {
        Lookups::new(Arc::clone(&self.tables.backend), self.tables.named(table)?)
    }

    async fn info(&self, request: Request<FlightDescriptor>) -> Result<FlightInfo, Status> {
        if request.get_ref().r#type() == DescriptorType::Cmd {
            return Ok(self.sql.get_flight_info(request).await?.into_inner());
        }
        let descriptor = request.into_inner();
        let table = self.tables.at(&descriptor.path)?;
        self.tables.flight(&table, descriptor)
    }
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Items<HandshakeResponse>;
    type ListFlightsStream = Items<FlightInfo>;
    type DoGetStream = Items<FlightData>;
    type DoPutStream = Items<PutResult>;
    type DoActionStream = Items<arrow_flight::Result>;
    type ListActionsStream = Items<ActionType>;
    type DoExchangeStream = Items<FlightData>;

    async fn handshake(&self, request: Request<Streaming<HandshakeRequest>>) -> Reply<Self::HandshakeStream> {
        let mut asked = request.into_inner();
        let protocol_version = asked.message().await?.map_or(0, |first| first.protocol_version);
        let answer = HandshakeResponse { protocol_version, payload: TOKEN.into() };
        let mut response = Response::new(stream::iter([Ok(answer)]).boxed() as Self::HandshakeStream);
        response.metadata_mut().insert("authorization", MetadataValue::from_static(TOKEN));
        Ok(response)
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        if !request.get_ref().expression.is_empty() {
            return Err(Status::unimplemented("ListFlights takes no criterion here"));
        }
        let info = |table: &Arc<TableInfo>| {
            let path = vec![table.database.clone(), table.name.clone()];
            self.tables.flight(table, FlightDescriptor::new_path(path))
        };
        let infos: Vec<_> = self.tables.backend.tables().iter().map(info).collect();
        Ok(Response::new(stream::iter(infos).boxed()))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        self.info(request).await.map(Response::new)
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Reply<PollInfo> {
        Err(Status::unimplemented("PollFlightInfo is not offered: GetFlightInfo answers at once"))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        // The very bytes of FlightInfo, so that the two can never differ.
        let info = self.info(request).await?;
        Ok(Response::new(SchemaResult { schema: info.schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Reply<Self::DoGetStream> {
        let ticket = &request.get_ref().ticket;
        if is_ours(ticket) {
            return match self.tables.tickets.read(ticket)? {
                Work::Scan(scan) => self.tables.stream(scan).await,
                Work::Query(_) => Err(Status::invalid_argument("a prepared statement is no ticket")),
            };
        }
        match Command::read(ticket)? {
            Some(Command::Lookup(lookup)) => {
                let lookups = self.lookups(&lookup.table)?;
                Ok(Response::new(one_batch(lookups.of_json(&lookup.keys).await?)))
            }
            Some(Command::Put(_)) => Err(Status::invalid_argument("DoGet reads: put rows by DoPut")),
            None => self.sql.do_get(request).await,
        }
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        put::put(&self.tables, &self.sql, request).await.map(Response::new)
    }

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoExchangeStream> {
        let mut sent = request.into_inner();
        let first = sent.message().await?.ok_or_else(|| Status::invalid_argument("no message came"))?;
        let descriptor = first.flight_descriptor.clone().unwrap_or_default();
        let lookups = match Command::read(&descriptor.cmd)? {
            Some(Command::Lookup(lookup)) => self.lookups(&lookup.table)?,
            _ => return Err(Status::invalid_argument(r#"DoExchange takes the command {"lookup": {"table": "…"}}"#)),
        };
        let first = stream::iter((!first.data_header.is_empty()).then_some(Ok(first)));
        let rest = sent.map_err(|status| FlightError::Tonic(Box::new(status)));
        Ok(Response::new(lookups.exchange(first.chain(rest))))
    }

    async fn do_action(&self, request: Request<Action>) -> Reply<Self::DoActionStream> {
        self.sql.do_action(request).await
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Reply<Self::ListActionsStream> {
        let actions = ACTIONS.map(|(name, what)| Ok(ActionType { r#type: name.into(), description: what.into() }));
        Ok(Response::new(stream::iter(actions).boxed()))
    }
}
