//! Flight SQL: browsing, statements and prepared statements over [`Engine`]. Handles and tickets hold all that is
//! needed to run them, signed, so nothing is kept between requests.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use arrow_flight::sql::server::FlightSqlService;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandStatementQuery, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket};
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::metadata;
use crate::query::{Engine, Parameters, count_schema};
use crate::scan::Batches;
use crate::session::Session;
use crate::tables::{Items, Reply, Tables, internal, one_batch, sent};
use crate::ticket::{Query, Work};

/// How many statements that changed something are remembered, so that none runs twice.
const RUN_MAX: usize = 100_000;

type Built = Result<RecordBatch, FlightError>;

/// The inner service: commands of Flight SQL.
pub(crate) struct Sql {
    tables: Arc<Tables>,
    engine: Arc<Engine>,
    infos: SqlInfoData,
    types: XdbcTypeInfoData,
    /// Statements that ran by a ticket.
    run: Mutex<Run>,
}

/// Ids of statements that ran.
#[derive(Default)]
struct Run {
    known: HashSet<Vec<u8>>,
    /// The oldest first.
    order: VecDeque<Vec<u8>>,
}

/// A flight whose one ticket is the command itself.
fn metadata_info<C: ProstMessageExt>(
    command: &C,
    built: Built,
    request: Request<FlightDescriptor>,
) -> Reply<FlightInfo> {
    let schema = built.map_err(internal)?.schema();
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(command.as_any().encode_to_vec()));
    let info = FlightInfo::new().try_with_schema(&schema).map_err(internal)?;
    let info = info.with_endpoint(endpoint).with_descriptor(request.into_inner());
    Ok(Response::new(info.with_total_records(-1).with_total_bytes(-1)))
}

fn metadata_stream(built: Built) -> Reply<Items<FlightData>> {
    Ok(Response::new(one_batch(built.map_err(internal)?)))
}

/// A ticket of ours as JDBC and arrow-rs want it: a statement's handle within an `Any` (flight.md §1.4).
fn wrapped(ticket: Vec<u8>) -> Vec<u8> {
    TicketStatementQuery { statement_handle: ticket.into() }.as_any().encode_to_vec()
}

/// A schema as Flight SQL has it in messages.
fn schema_bytes(schema: &Schema) -> Result<bytes::Bytes, Status> {
    let message: Result<IpcMessage, _> = SchemaAsIpc::new(schema, &IpcWriteOptions::default()).try_into();
    message.map(|IpcMessage(bytes)| bytes).map_err(internal)
}

/// Rows of parameters as they are kept in a handle.
pub(crate) fn packed(batch: &RecordBatch) -> Result<Vec<u8>, Status> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).map_err(internal)?;
    writer.write(batch).map_err(internal)?;
    writer.into_inner().map_err(internal)
}

/// The rows of parameters in a handle; `None` where it has none.
fn unpacked(bytes: &[u8]) -> Result<Option<RecordBatch>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let batches = StreamReader::try_new(bytes, None).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    Ok(batches.map_err(internal)?.pop())
}

impl Sql {
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn new(tables: Arc<Tables>, engine: Arc<Engine>) -> Result<Self, Status> {
        let infos = metadata::sql_info().map_err(internal)?;
        let types = metadata::xdbc_types().map_err(internal)?;
        Ok(Self { tables, engine, infos, types, run: Mutex::default() })
    }

    /// The session of a request.
    ///
    /// # Errors
    /// NOT_FOUND for a database that its headers name.
    pub(crate) fn session<T>(&self, request: &Request<T>) -> Result<Session, Status> {
        Session::of_request(request.extensions(), request.metadata(), &self.tables.backend.tables())
    }

    /// The flight of a statement. It runs when the ticket is redeemed.
    async fn flight(&self, query: Query, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let described = self.engine.describe(&query.text, &query.database).await?;
        let schema = described.schema.unwrap_or_else(count_schema);
        let ticket = Query { id: uuid::Uuid::new_v4().as_bytes().to_vec(), ..query };
        let ticket = wrapped(self.tables.tickets.make(Work::Query(ticket))?);
        let info = FlightInfo::new().try_with_schema(&schema).map_err(internal)?;
        let info = info.with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(ticket)));
        Ok(info.with_descriptor(descriptor).with_total_records(-1).with_total_bytes(-1))
    }

    /// The prepared statement that a handle stands for.
    ///
    /// # Errors
    /// NOT_FOUND.
    pub(crate) fn prepared(&self, handle: &[u8]) -> Result<Query, Status> {
        match self.tables.tickets.read(handle) {
            Ok(Work::Query(query)) => Ok(query),
            _ => Err(Status::not_found("no such prepared statement")),
        }
    }

    /// The handle of a prepared statement with parameters.
    ///
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn handle(&self, query: Query) -> Result<Vec<u8>, Status> {
        self.tables.tickets.make(Work::Query(query))
    }

    /// Runs a ticket's statement.
    async fn redeem(&self, query: Query, session: &Session) -> Result<(SchemaRef, Batches), Status> {
        let described = self.engine.describe(&query.text, &query.database).await?;
        let session = if session.database() == query.database { session.clone() } else { Session::of(&query.database) };
        if described.schema.is_none() {
            self.only_once(&query.id)?;
        }
        let parameters = unpacked(&query.parameters)?;
        let Some(rows) = parameters else { return self.engine.query(&query.text, &session, None).await };
        if described.schema.is_none() {
            let count = self.update_rows(&query.text, &session, &rows).await?;
            return crate::query::counted(count);
        }
        let schema = described.schema.unwrap_or_else(count_schema);
        let (engine, text) = (Arc::clone(&self.engine), query.text);
        let each = stream::iter((0..rows.num_rows()).map(Ok::<_, Status>)).and_then(move |row| {
            let (engine, text, session, rows) = (Arc::clone(&engine), text.clone(), session.clone(), rows.clone());
            async move {
                let parameters = Parameters::of_row(&rows, row)?;
                Ok(engine.query(&text, &session, Some(&parameters)).await?.1)
            }
        });
        let declared = Arc::clone(&schema);
        let batches = each.try_flatten().map(move |batch| crate::query::declare(batch?, &declared));
        Ok((schema, batches.boxed()))
    }

    /// Runs a change for each row of parameters.
    ///
    /// # Errors
    /// Why one did not run; those before it did.
    pub(crate) async fn update_rows(&self, text: &str, session: &Session, rows: &RecordBatch) -> Result<i64, Status> {
        let mut count = 0;
        for row in 0..rows.num_rows() {
            let parameters = Parameters::of_row(rows, row)?;
            count += self.engine.update(text, session, Some(&parameters)).await?;
        }
        Ok(count)
    }

    /// Runs a statement for what it changes, once for each row of parameters.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) async fn update(
        &self,
        query: &Query,
        session: &Session,
        rows: Option<&RecordBatch>,
    ) -> Result<i64, Status> {
        let bound = unpacked(&query.parameters)?;
        match rows.or(bound.as_ref()) {
            Some(rows) => self.update_rows(&query.text, session, rows).await,
            None => self.engine.update(&query.text, session, None).await,
        }
    }

    /// Clients ask for a ticket's rows again after an error: what changes something must not run again (P76).
    fn only_once(&self, id: &[u8]) -> Result<(), Status> {
        let mut run = self.run.lock().map_err(internal)?;
        if !run.known.insert(id.to_vec()) {
            return Err(Status::invalid_argument("the statement of this ticket was run already"));
        }
        run.order.push_back(id.to_vec());
        if run.order.len() > RUN_MAX
            && let Some(oldest) = run.order.pop_front()
        {
            run.known.remove(&oldest);
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl FlightSqlService for Sql {
    type FlightService = Self;

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        let database = self.session(&request)?.database();
        let query = Query { text: query.query, database, ..Query::default() };
        self.flight(query, request.into_inner()).await.map(Response::new)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Reply<<Self as FlightService>::DoGetStream> {
        match self.tables.tickets.read(&ticket.statement_handle)? {
            Work::Scan(scan) => self.tables.stream(scan).await,
            Work::Query(query) => {
                let (schema, batches) = self.redeem(query, &self.session(&request)?).await?;
                Ok(Response::new(sent(schema, batches, bytes::Bytes::new())))
            }
        }
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let database = self.session(&request)?.database();
        let described = self.engine.describe(&query.query, &database).await?;
        let handle = self.handle(Query { text: query.query, database, ..Query::default() })?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.into(),
            // JDBC takes an empty schema for an update (flight.md §1.5.1).
            dataset_schema: described.schema.map(|schema| schema_bytes(&schema)).transpose()?.unwrap_or_default(),
            parameter_schema: match described.parameters.fields().is_empty() {
                true => bytes::Bytes::new(),
                false => schema_bytes(&described.parameters)?,
            },
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.session(&request)?.unbind(&query.prepared_statement_handle);
        Ok(())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        let handle = &query.prepared_statement_handle;
        let mut prepared = self.prepared(handle)?;
        if prepared.parameters.is_empty() {
            // Older clients keep to the first handle after they bound parameters.
            prepared.parameters = self.session(&request)?.bound(handle).unwrap_or_default();
        }
        self.flight(prepared, request.into_inner()).await.map(Response::new)
    }

    async fn do_get_fallback(&self, _request: Request<Ticket>, _message: Any) -> Reply<Items<FlightData>> {
        Err(Status::invalid_argument("not a ticket of this server"))
    }

    // Clients rely on this code for what a server lacks (flight.md §1.3); arrow-flight answers another.
    async fn do_action_fallback(&self, request: Request<Action>) -> Reply<<Self as FlightService>::DoActionStream> {
        Err(Status::unimplemented(format!("the action '{}' is not offered", request.get_ref().r#type)))
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, metadata::catalogs(query), request)
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, _request: Request<Ticket>) -> Reply<Items<FlightData>> {
        metadata_stream(metadata::catalogs(query))
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, metadata::schemas(query.clone(), &self.tables.backend.tables()), request)
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, _request: Request<Ticket>) -> Reply<Items<FlightData>> {
        metadata_stream(metadata::schemas(query, &self.tables.backend.tables()))
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, metadata::tables(query.clone(), &self.tables.backend.tables()), request)
    }

    async fn do_get_tables(&self, query: CommandGetTables, _request: Request<Ticket>) -> Reply<Items<FlightData>> {
        metadata_stream(metadata::tables(query, &self.tables.backend.tables()))
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, metadata::table_types(query), request)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(metadata::table_types(query))
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, query.clone().into_builder(&self.infos).build(), request)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, _request: Request<Ticket>) -> Reply<Items<FlightData>> {
        metadata_stream(query.into_builder(&self.infos).build())
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, query.into_builder(&self.types).build(), request)
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(query.into_builder(&self.types).build())
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, metadata::primary_keys(&query, &self.tables.backend.tables()), request)
    }

    async fn do_get_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(metadata::primary_keys(&query, &self.tables.backend.tables()))
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, Ok(metadata::foreign_keys()), request)
    }

    async fn do_get_exported_keys(
        &self,
        _query: CommandGetExportedKeys,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(Ok(metadata::foreign_keys()))
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, Ok(metadata::foreign_keys()), request)
    }

    async fn do_get_imported_keys(
        &self,
        _query: CommandGetImportedKeys,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(Ok(metadata::foreign_keys()))
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        metadata_info(&query, Ok(metadata::foreign_keys()), request)
    }

    async fn do_get_cross_reference(
        &self,
        _query: CommandGetCrossReference,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(Ok(metadata::foreign_keys()))
    }
}
