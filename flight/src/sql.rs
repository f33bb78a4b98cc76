//! Flight SQL: browsing, and `SELECT * FROM` one table. There is no SQL engine behind it yet.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    Any, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementQuery,
    CommandStatementUpdate, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::ddl::parse_select;
use crate::execute::execute;
use crate::metadata;
use crate::tables::{Items, Reply, Tables, internal, one_batch};

/// Longest text of a statement, bytes.
const TEXT_MAX: usize = 1 << 20;

type Built = Result<RecordBatch, FlightError>;

/// The inner service: commands of Flight SQL.
pub(crate) struct Sql {
    tables: Arc<Tables>,
    infos: SqlInfoData,
    types: XdbcTypeInfoData,
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

fn checked(text: &str) -> Result<&str, Status> {
    if text.len() <= TEXT_MAX {
        return Ok(text);
    }
    Err(Status::invalid_argument(format!("a statement of {} bytes; {TEXT_MAX} at most", text.len())))
}

/// The text of a prepared statement, which is its handle: so any server can run it, and none keeps it.
fn prepared_text(handle: &[u8]) -> Result<&str, Status> {
    std::str::from_utf8(handle).map_err(|_| Status::not_found("no such prepared statement"))
}

impl Sql {
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn new(tables: Arc<Tables>) -> Result<Self, Status> {
        let infos = metadata::sql_info().map_err(internal)?;
        let types = metadata::xdbc_types().map_err(internal)?;
        Ok(Self { tables, infos, types })
    }

    /// The flight of a query.
    fn query(&self, text: &str, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let select = parse_select(checked(text)?).map_err(|error| {
            Status::unimplemented(format!("only SELECT * FROM [database.]table [LIMIT n] is offered yet; {error}"))
        })?;
        let table = self.tables.find(select.table.database.as_deref(), &select.table.table)?;
        self.tables.flight(&table, select.limit, descriptor, wrapped)
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
        self.query(&query.query, request.into_inner()).map(Response::new)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        _request: Request<Ticket>,
    ) -> Reply<<Self as FlightService>::DoGetStream> {
        self.tables.stream(&ticket.statement_handle)
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        _request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let info = self.query(&query.query, FlightDescriptor::default())?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: query.query.into(),
            dataset_schema: info.schema,
            parameter_schema: Default::default(),
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _query: ActionClosePreparedStatementRequest,
        _request: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Reply<FlightInfo> {
        let text = prepared_text(&query.prepared_statement_handle)?;
        self.query(text, request.into_inner()).map(Response::new)
    }

    async fn do_put_statement_update(
        &self,
        update: CommandStatementUpdate,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        execute(&self.tables.backend, checked(&update.query)?).await
    }

    async fn do_put_prepared_statement_update(
        &self,
        update: CommandPreparedStatementUpdate,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        execute(&self.tables.backend, checked(prepared_text(&update.prepared_statement_handle)?)?).await
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
        metadata_info(&query, Ok(metadata::primary_keys()), request)
    }

    async fn do_get_primary_keys(
        &self,
        _query: CommandGetPrimaryKeys,
        _request: Request<Ticket>,
    ) -> Reply<Items<FlightData>> {
        metadata_stream(Ok(metadata::primary_keys()))
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
