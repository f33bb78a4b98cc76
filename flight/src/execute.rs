//! DDL and what shows it: statements over the catalog (table-model §§1, 4; headers as Flink's).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::kernels::comparison::like;
use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::catalog::{DatabaseInfo, TableInfo, altered_options, names, topic_name};
use sluice_engine::row::Schema;
use sluice_engine::{Backend, Error, ErrorKind};
use tonic::Status;

use crate::ddl::{Statement, TableName};
use crate::metadata::CATALOG;
use crate::query::no_table;
use crate::session::Session;
use crate::status::status_of;

fn status(error: Error) -> Status {
    status_of(&error)
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

fn find(backend: &dyn Backend, name: &TableName, database: &str) -> Result<Arc<TableInfo>, Status> {
    let database = name.database.as_deref().unwrap_or(database);
    backend.tables().find(database, &name.table).cloned().ok_or_else(|| no_table(database, &name.table))
}

/// What a statement shows; `None` for one that changes something.
///
/// # Errors
/// NOT_FOUND; INVALID_ARGUMENT for a pattern.
pub(crate) fn shown(
    backend: &Arc<dyn Backend>,
    statement: &Statement,
    database: &str,
) -> Result<Option<RecordBatch>, Status> {
    let view = backend.tables();
    let batch = match statement {
        Statement::ShowDatabases { like } => {
            let names = view.databases().into_iter().map(str::to_owned).collect();
            one_column("database name", names, like.as_deref())?
        }
        Statement::ShowTables { database: named, like } => {
            let database = named.as_deref().unwrap_or(database);
            if !view.has_database(database) {
                return Err(Status::not_found(format!("no database is called '{database}'")));
            }
            let tables = view.iter().filter(|info| info.database == database);
            one_column("table name", tables.map(|info| info.name.clone()).collect(), like.as_deref())?
        }
        Statement::ShowCreateTable(name) => {
            let info = find(&**backend, name, database)?;
            one_column("result", vec![create_statement(&info)?], None)?
        }
        Statement::Describe(name) => described(&*find(&**backend, name, database)?)?,
        Statement::ShowPartitions(name) => {
            let info = find(&**backend, name, database)?;
            one_column("partition name", partition_names(&info)?, None)?
        }
        _ => return Ok(None),
    };
    Ok(Some(batch))
}

/// Each partition as `column=value/…`.
fn partition_names(info: &TableInfo) -> Result<Vec<String>, Status> {
    let (Some(partitions), Some(table)) = (&info.partitions, &info.typed) else {
        return Err(Status::invalid_argument(format!("table '{}' is not partitioned", info.name)));
    };
    let columns: Vec<_> = table.partition_keys.iter().filter_map(|at| table.schema.columns.get(*at)).collect();
    let name = |values: &[String]| {
        let pairs = columns.iter().zip(values).map(|(column, value)| format!("{}={value}", column.name));
        pairs.collect::<Vec<_>>().join("/")
    };
    Ok(partitions.iter().map(|(_, partition)| name(&partition.values)).collect())
}

fn one_column(title: &str, mut names: Vec<String>, pattern: Option<&str>) -> Result<RecordBatch, Status> {
    names.sort_unstable();
    let mut array = StringArray::from(names);
    if let Some(pattern) = pattern {
        let matches = like(&array, &StringArray::new_scalar(pattern))
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let kept = arrow::compute::filter(&array, &matches).map_err(internal)?;
        array = kept
            .as_any()
            .downcast_ref::<StringArray>()
            .cloned()
            .unwrap_or_else(|| StringArray::from(Vec::<&str>::new()));
    }
    RecordBatch::try_from_iter([(title, Arc::new(array) as ArrayRef)]).map_err(internal)
}

/// The columns that a topic without a schema shows in SQL.
const RAW_COLUMNS: [(&str, &str, bool); 6] = [
    ("key", "BYTES", true),
    ("value", "BYTES", true),
    ("headers", "ARRAY<ROW<key STRING, value BYTES>>", false),
    ("timestamp", "TIMESTAMP_LTZ(3)", false),
    ("_bucket", "INT", false),
    ("_log_offset", "BIGINT", false),
];

/// A line of DESCRIBE.
struct Described {
    name: String,
    of: String,
    nullable: bool,
    key: Option<String>,
    comment: Option<String>,
}

fn described(info: &TableInfo) -> Result<RecordBatch, Status> {
    let raw = |(name, of, nullable): (&str, &str, bool)| Described {
        name: name.to_owned(),
        of: of.to_owned(),
        nullable,
        key: None,
        comment: None,
    };
    let rows: Vec<Described> = match &info.typed {
        None => RAW_COLUMNS.map(raw).into(),
        Some(table) => {
            let key = table.schema.primary_key.iter().filter_map(|at| table.schema.columns.get(*at));
            let key = format!("PRI({})", key.map(|column| column.name.as_str()).collect::<Vec<_>>().join(", "));
            let columns = table.schema.columns.iter().enumerate().map(|(at, column)| Described {
                name: column.name.clone(),
                of: column.data_type.to_string(),
                nullable: column.nullable,
                key: table.schema.primary_key.contains(&at).then(|| key.clone()),
                comment: column.comment.clone(),
            });
            columns.collect()
        }
    };
    let text = |value: fn(&Described) -> Option<&str>| -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<StringArray>())
    };
    let nullable: BooleanArray = rows.iter().map(|row| Some(row.nullable)).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("name", text(|row| Some(&row.name)), false),
        ("type", text(|row| Some(&row.of)), false),
        ("null", Arc::new(nullable) as ArrayRef, false),
        ("key", text(|row| row.key.as_deref()), true),
        ("extras", text(|_| None), true),
        ("watermark", text(|_| None), true),
        ("comment", text(|row| row.comment.as_deref()), true),
    ])
    .map_err(internal)
}

fn names_at(schema: &Schema, places: &[usize]) -> String {
    let columns = places.iter().filter_map(|at| schema.columns.get(*at));
    columns.map(|column| format!("`{}`", column.name.replace('`', "``"))).collect::<Vec<_>>().join(", ")
}

/// The statement that makes such a table.
fn create_statement(info: &TableInfo) -> Result<String, Status> {
    let Some(table) = &info.typed else {
        return Err(Status::invalid_argument(format!("'{}' is a topic without a schema: no DDL makes it", info.name)));
    };
    let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut elements: Vec<String> = table.schema.columns.iter().map(ToString::to_string).collect();
    if !table.schema.primary_key.is_empty() {
        let key = names_at(&table.schema, &table.schema.primary_key);
        elements.push(format!("PRIMARY KEY ({key}) NOT ENFORCED"));
    }
    let name = format!("`{}`.`{}`", info.database.replace('`', "``"), info.name.replace('`', "``"));
    let mut text = format!("CREATE TABLE {name} (\n  {}\n)", elements.join(",\n  "));
    if let Some(comment) = &table.comment {
        text += &format!(" COMMENT {}", quote(comment));
    }
    if !table.partition_keys.is_empty() {
        text += &format!(" PARTITIONED BY ({})", names_at(&table.schema, &table.partition_keys));
    }
    let mut properties = vec![("bucket.num".to_owned(), info.buckets.to_string())];
    let key: Vec<&str> = table
        .bucket_key
        .iter()
        .filter_map(|at| table.schema.columns.get(*at))
        .map(|column| column.name.as_str())
        .collect();
    if !key.is_empty() {
        properties.push(("bucket.key".to_owned(), key.join(",")));
    }
    properties.extend(info.options.clone());
    properties.extend(table.attributes.clone());
    let properties: Vec<String> =
        properties.iter().map(|(name, value)| format!("{} = {}", quote(name), quote(value))).collect();
    Ok(format!("{text} WITH (\n  {}\n)", properties.join(",\n  ")))
}

/// Runs a statement that changes something: the number of rows, which is 0.
///
/// # Errors
/// The catalog's; UNIMPLEMENTED for what this server lacks.
pub(crate) async fn run(backend: &Arc<dyn Backend>, statement: Statement, session: &Session) -> Result<i64, Status> {
    match statement {
        Statement::CreateDatabase { name, if_not_exists, comment, properties } => {
            let info = DatabaseInfo { comment, attributes: properties.into_iter().collect() };
            unless(if_not_exists, ErrorKind::AlreadyExists, backend.create_database(name, info).await)?;
        }
        Statement::DropDatabase { name, if_exists, cascade } => {
            drop_database(backend, name, if_exists, cascade).await?
        }
        Statement::UseDatabase(name) => session.use_database(&backend.tables(), &name)?,
        Statement::UseCatalog(name) if name == CATALOG => {}
        Statement::UseCatalog(name) => {
            return Err(Status::not_found(format!("no catalog is called '{name}'; the only one is '{CATALOG}'")));
        }
        Statement::CreateTable { name, if_not_exists, table } => {
            let made = create_table(backend, &name, *table, &session.database()).await;
            unless(if_not_exists, ErrorKind::AlreadyExists, made)?;
        }
        Statement::DropTable { name, if_exists } => match find(&**backend, &name, &session.database()) {
            Ok(info) => backend.drop_table(info.table_id()).await.map_err(status)?,
            Err(missing) => return if if_exists { Ok(0) } else { Err(missing) },
        },
        Statement::SetOptions { table, options } => {
            let info = find(&**backend, &table, &session.database())?;
            let options = altered_options(&info, &options, &[]).map_err(status)?;
            backend.set_options(info.table_id(), options).await.map_err(status)?;
        }
        Statement::ResetOptions { table, options } => {
            let info = find(&**backend, &table, &session.database())?;
            let options = altered_options(&info, &[], &options).map_err(status)?;
            backend.set_options(info.table_id(), options).await.map_err(status)?;
        }
        Statement::AddColumns { table, columns } => {
            let info = find(&**backend, &table, &session.database())?;
            backend.add_columns(info.table_id(), columns).await.map_err(status)?;
        }
        Statement::AddPartition { table, if_not_exists, partition } => {
            let info = find(&**backend, &table, &session.database())?;
            let added = backend.add_partition(info.table_id(), partition).await;
            unless(if_not_exists, ErrorKind::AlreadyExists, added)?;
        }
        Statement::DropPartition { table, if_exists, partition } => {
            let info = find(&**backend, &table, &session.database())?;
            let dropped = backend.drop_partition(info.table_id(), partition).await;
            unless(if_exists, ErrorKind::PartitionNotFound, dropped)?;
        }
        Statement::ShowDatabases { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowPartitions(_)
        | Statement::ShowCreateTable(_)
        | Statement::Describe(_)
        | Statement::Query(_) => {
            return Err(Status::invalid_argument("the statement changes nothing: run it as a query"));
        }
    }
    Ok(0)
}

/// Leaves out one kind of error where the statement says so.
fn unless(allowed: bool, kind: ErrorKind, outcome: Result<(), Error>) -> Result<(), Status> {
    match outcome {
        Err(error) if allowed && error.kind == kind => Ok(()),
        other => other.map_err(status),
    }
}

async fn create_table(
    backend: &Arc<dyn Backend>,
    name: &TableName,
    table: TableDescriptor,
    database: &str,
) -> Result<(), Error> {
    let database = name.database.as_deref().unwrap_or(database);
    if !backend.tables().has_database(database) {
        return Err(Error::new(ErrorKind::TableNotFound, format!("no database is called '{database}'")));
    }
    names::check_table_name(&name.table)?;
    backend.create_typed(topic_name(database, &name.table), table).await.map(drop)
}

async fn drop_database(backend: &Arc<dyn Backend>, name: String, if_exists: bool, cascade: bool) -> Result<(), Status> {
    if cascade {
        let view = backend.tables();
        for info in view.iter().filter(|info| info.database == name && view.has_database(&name)) {
            if name != sluice_engine::catalog::DEFAULT_DATABASE {
                backend.drop_table(info.table_id()).await.map_err(status)?;
            }
        }
    }
    unless(if_exists, ErrorKind::TableNotFound, backend.drop_database(name).await)
}
