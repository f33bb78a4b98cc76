//! DoPut: rows into tables, batch by batch, and what Flight SQL sends by it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{
    Any, Command as SqlCommand, CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementIngest,
    CommandStatementUpdate, DoPutPreparedStatementResult, DoPutUpdateResult, TableExistsOption, TableNotExistOption,
};
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures::stream::Peekable;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use sluice_engine::Backend;
use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::catalog::{TableInfo, TableKind, topic_name};
use sluice_engine::kv_tablet::Op;
use sluice_engine::row::{self, ColumnSpec};
use tonic::{Request, Status, Streaming};

use crate::command::{Command, Mode};
use crate::rows::{fitted, rows_of};
use crate::session::Session;
use crate::sql::{Sql, packed};
use crate::status::status_of;
use crate::tables::{Items, Tables, internal};
use crate::ticket::Query;
use crate::write;

/// Batches of one stream that wait for the disk at once.
const IN_FLIGHT: usize = 16;

type Sent = Peekable<Streaming<FlightData>>;

/// Takes what a client puts.
///
/// # Errors
/// INVALID_ARGUMENT for a descriptor that is none; NOT_FOUND; what the statement says.
pub(crate) async fn put(
    tables: &Arc<Tables>,
    sql: &Sql,
    request: Request<Streaming<FlightData>>,
) -> Result<Items<PutResult>, Status> {
    let session = sql.session(&request)?;
    let mut sent = request.into_inner().peekable();
    let first = std::pin::Pin::new(&mut sent).peek().await;
    let first = match first {
        Some(Ok(first)) => first.flight_descriptor.clone(),
        Some(Err(status)) => return Err(status.clone()),
        None => None,
    };
    let descriptor = first.ok_or_else(|| Status::invalid_argument("the first message has no descriptor"))?;
    if descriptor.r#type() == DescriptorType::Path {
        return rows(tables, tables.at(&descriptor.path)?, Mode::Write, sent);
    }
    match Command::read(&descriptor.cmd)? {
        Some(Command::Put(put)) => rows(tables, tables.named(&put.table)?, put.mode, sent),
        Some(Command::Lookup(_)) => Err(Status::invalid_argument("a lookup is for DoGet or DoExchange")),
        None => statement(tables, sql, &descriptor, &session, sent).await,
    }
}

/// The batches of a stream; messages without any are passed over.
fn batches(sent: Sent) -> FlightRecordBatchStream {
    let full = sent.try_filter(|message| std::future::ready(!message.data_header.is_empty()));
    FlightRecordBatchStream::new_from_flight_data(full.map_err(|status| FlightError::Tonic(Box::new(status))))
}

/// Checks a batch whole, then fixes its place: its rows are in the table when the inner future is ready.
async fn start(
    backend: &dyn Backend,
    info: &TableInfo,
    mode: Mode,
    batch: &RecordBatch,
) -> Result<write::Pending, Status> {
    let schema = write::schema_of(info)?;
    let (places, batch) = fitted(schema, batch)?;
    let missing = |at: &usize, column: &row::Column| !column.nullable && !places.contains(at);
    let missing = schema.columns.iter().enumerate().find(|(at, column)| match info.kind {
        TableKind::Pk => schema.primary_key.contains(at) && !places.contains(at),
        _ => missing(at, column),
    });
    if let Some((_, column)) = missing {
        return Err(Status::invalid_argument(format!("column '{}' is NOT NULL and is left out", column.name)));
    }
    let rules = match (info.rules(), mode) {
        (Some(rules), _) => rules,
        (None, Mode::Write) => return write::append(backend, info, rows_of(schema, &places, &batch)?).await,
        (None, Mode::Delete) => {
            return Err(Status::invalid_argument(format!("'{}' has no primary key: its rows stay", info.name)));
        }
    };
    let partial = mode == Mode::Write && places.len() < schema.columns.len();
    if partial {
        rules.check_target(&places).map_err(|error| status_of(&error))?;
    }
    let target: Option<Arc<[usize]>> = partial.then(|| places.clone().into());
    // Of a row that is deleted only the key is looked at.
    let (places, batch) = match mode {
        Mode::Delete => only_keys(&schema.primary_key, &places, &batch)?,
        Mode::Write => (places, batch),
    };
    let op = |row| Op { row, delete: mode == Mode::Delete, target: target.clone() };
    write::apply(backend, info, rows_of(schema, &places, &batch)?.into_iter().map(op).collect()).await
}

fn only_keys(key: &[usize], places: &[usize], batch: &RecordBatch) -> Result<(Vec<usize>, RecordBatch), Status> {
    let kept: Vec<usize> = (0..places.len()).filter(|at| places.get(*at).is_some_and(|at| key.contains(at))).collect();
    let batch = batch.project(&kept).map_err(internal)?;
    Ok((kept.into_iter().filter_map(|at| places.get(at).copied()).collect(), batch))
}

/// Writes batches, and tells of each where it went: `{"rows": n, "offsets": {"bucket": end, …}}`.
fn rows(tables: &Arc<Tables>, info: Arc<TableInfo>, mode: Mode, sent: Sent) -> Result<Items<PutResult>, Status> {
    let backend = Arc::clone(&tables.backend);
    let started = batches(sent).map_err(Status::from).and_then(move |batch| {
        let (backend, info) = (Arc::clone(&backend), Arc::clone(&info));
        async move {
            let pending = start(&*backend, &info, mode, &batch).await?;
            Ok((batch.num_rows(), pending))
        }
    });
    let results = started.map_ok(|(rows, pending)| async move {
        let offsets: serde_json::Map<String, serde_json::Value> =
            pending.await?.into_iter().map(|(bucket, end)| (bucket.to_string(), end.into())).collect();
        let told = serde_json::json!({ "rows": rows, "offsets": offsets });
        Ok(PutResult { app_metadata: told.to_string().into() })
    });
    Ok(results.try_buffered(IN_FLIGHT).boxed())
}

fn one(message: impl Message) -> Items<PutResult> {
    stream::iter([Ok(PutResult { app_metadata: message.encode_to_vec().into() })]).boxed()
}

/// All rows of a stream as one batch; `None` where there is no schema at all.
async fn all(sent: Sent) -> Result<Option<RecordBatch>, Status> {
    let mut stream = batches(sent);
    let mut found = Vec::new();
    while let Some(batch) = stream.try_next().await.map_err(Status::from)? {
        found.push(batch);
    }
    let Some(schema) = stream.schema() else { return Ok(None) };
    arrow::compute::concat_batches(schema, &found).map(Some).map_err(internal)
}

/// Parameters, where there are any.
async fn parameters(sent: Sent) -> Result<Option<RecordBatch>, Status> {
    Ok(all(sent).await?.filter(|batch| batch.num_columns() > 0 && batch.num_rows() > 0))
}

async fn statement(
    tables: &Arc<Tables>,
    sql: &Sql,
    descriptor: &FlightDescriptor,
    session: &Session,
    sent: Sent,
) -> Result<Items<PutResult>, Status> {
    let refused = |error: &dyn std::fmt::Display| Status::invalid_argument(format!("not a command: {error}"));
    let message = Any::decode(descriptor.cmd.as_ref()).map_err(|error| refused(&error))?;
    match SqlCommand::try_from(message).map_err(|error| refused(&error))? {
        SqlCommand::CommandStatementUpdate(CommandStatementUpdate { query, .. }) => {
            let query = Query { text: query, ..Query::default() };
            let record_count = sql.update(&query, session, None).await?;
            Ok(one(DoPutUpdateResult { record_count }))
        }
        SqlCommand::CommandPreparedStatementUpdate(CommandPreparedStatementUpdate { prepared_statement_handle }) => {
            let prepared = sql.prepared(&prepared_statement_handle)?;
            let rows = parameters(sent).await?;
            let record_count = sql.update(&prepared, session, rows.as_ref()).await?;
            Ok(one(DoPutUpdateResult { record_count }))
        }
        SqlCommand::CommandPreparedStatementQuery(CommandPreparedStatementQuery { prepared_statement_handle }) => {
            let prepared = sql.prepared(&prepared_statement_handle)?;
            let parameters = parameters(sent).await?.map(|batch| packed(&batch)).transpose()?.unwrap_or_default();
            session.bind(&prepared_statement_handle, parameters.clone());
            let handle = sql.handle(Query { parameters, ..prepared })?;
            Ok(one(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.into()) }))
        }
        SqlCommand::CommandStatementIngest(command) => {
            let record_count = ingest(tables, &command, session, sent).await?;
            Ok(one(DoPutUpdateResult { record_count }))
        }
        other => Err(Status::unimplemented(format!("DoPut of {} is not offered", other.type_url()))),
    }
}

/// Writes a stream into a table that may be made for it; batches are written one by one, each checked whole.
async fn ingest(
    tables: &Arc<Tables>,
    command: &CommandStatementIngest,
    session: &Session,
    sent: Sent,
) -> Result<i64, Status> {
    if command.temporary {
        return Err(Status::unimplemented("temporary tables are not offered"));
    }
    let options = command.table_definition_options.unwrap_or_default();
    let database = command.schema.clone().unwrap_or_else(|| session.database());
    let find = || tables.backend.tables().find(&database, &command.table).cloned();
    let mut stream = batches(sent).peekable();
    // The schema is known once the first batch, or the end, is.
    if let Some(Err(error)) = std::pin::Pin::new(&mut stream).peek().await {
        return Err(Status::invalid_argument(error.to_string()));
    }
    let schema = stream.get_ref().schema().cloned();
    let info = match (find(), options.if_exists()) {
        (Some(_), TableExistsOption::Fail) => {
            return Err(Status::already_exists(format!("table '{}' already exists", command.table)));
        }
        (Some(info), TableExistsOption::Replace) => {
            tables.backend.drop_table(info.table_id()).await.map_err(|error| status_of(&error))?;
            create(tables, &database, &command.table, schema).await?
        }
        (Some(info), _) => info,
        (None, _) if options.if_not_exist() == TableNotExistOption::Create => {
            create(tables, &database, &command.table, schema).await?
        }
        (None, _) => return Err(crate::query::no_table(&database, &command.table)),
    };
    let mut pending = std::collections::VecDeque::new();
    let mut count = 0;
    while let Some(batch) = stream.try_next().await.map_err(Status::from)? {
        count += batch.num_rows() as i64;
        pending.push_back(start(&*tables.backend, &info, Mode::Write, &batch).await?);
        if pending.len() == IN_FLIGHT
            && let Some(oldest) = pending.pop_front()
        {
            oldest.await?;
        }
    }
    for rest in pending {
        rest.await?;
    }
    Ok(count)
}

/// Makes a log table with the columns of a stream.
async fn create(
    tables: &Arc<Tables>,
    database: &str,
    table: &str,
    schema: Option<SchemaRef>,
) -> Result<Arc<TableInfo>, Status> {
    let schema = schema.ok_or_else(|| Status::invalid_argument("the stream has no schema"))?;
    if !tables.backend.tables().has_database(database) {
        return Err(Status::not_found(format!("no database is called '{database}'")));
    }
    sluice_engine::catalog::names::check_table_name(table).map_err(|error| status_of(&error))?;
    let column = |field: &arrow::datatypes::FieldRef| {
        let of = column_type(field.data_type());
        let what =
            || Status::invalid_argument(format!("column '{}': no column can be {}", field.name(), field.data_type()));
        Ok(ColumnSpec { nullable: field.is_nullable(), ..(field.name().as_str(), of.ok_or_else(what)?).into() })
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, Status>>()?;
    let descriptor = TableDescriptor { columns, ..TableDescriptor::default() };
    let made = tables.backend.create_typed(topic_name(database, table), descriptor).await;
    made.map_err(|error| status_of(&error))
}

/// The column type that holds an Arrow type.
fn column_type(of: &DataType) -> Option<row::DataType> {
    let precision = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    Some(match of {
        DataType::Boolean => row::DataType::Boolean,
        DataType::Int8 => row::DataType::TinyInt,
        DataType::Int16 | DataType::UInt8 => row::DataType::SmallInt,
        DataType::Int32 | DataType::UInt16 => row::DataType::Int,
        DataType::Int64 | DataType::UInt32 => row::DataType::BigInt,
        DataType::Float32 => row::DataType::Float,
        DataType::Float64 => row::DataType::Double,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => row::DataType::String,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => row::DataType::Bytes,
        DataType::FixedSizeBinary(length) => row::DataType::Binary { length: u32::try_from(*length).ok()? },
        DataType::Date32 => row::DataType::Date,
        DataType::Time32(unit) | DataType::Time64(unit) => row::DataType::Time { precision: precision(unit) },
        DataType::Timestamp(unit, None) => row::DataType::Timestamp { precision: precision(unit) },
        DataType::Timestamp(unit, Some(_)) => row::DataType::TimestampLtz { precision: precision(unit) },
        DataType::Decimal128(precision, scale) => {
            row::DataType::Decimal { precision: *precision, scale: u8::try_from(*scale).ok()? }
        }
        DataType::Dictionary(_, value) => return column_type(value),
        _ => return None,
    })
}
