//! What Flight SQL clients ask about the server and its tables, as record batches (flight.md §1.8).

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTableTypes, CommandGetTables, Nullable,
    Searchable, SqlInfo, SqlSupportedTransaction, XdbcDataType,
};
use sluice_engine::catalog::{DEFAULT_DATABASE, View};

use crate::arrow::schema_of;

/// The one catalog.
pub(crate) const CATALOG: &str = "sluice";
/// What every table is.
const TABLE_TYPE: &str = "TABLE";

type Built = Result<RecordBatch, FlightError>;

pub(crate) fn catalogs(query: CommandGetCatalogs) -> Built {
    let mut builder = query.into_builder();
    builder.append(CATALOG);
    builder.build()
}

pub(crate) fn schemas(query: CommandGetDbSchemas, view: &View) -> Built {
    let mut builder = query.into_builder();
    for database in view.databases() {
        builder.append(CATALOG, database);
    }
    builder.build()
}

pub(crate) fn tables(query: CommandGetTables, view: &View) -> Built {
    let mut builder = query.into_builder();
    for table in view.iter() {
        builder.append(CATALOG, &table.database, &table.name, TABLE_TYPE, &schema_of(table))?;
    }
    builder.build()
}

pub(crate) fn table_types(query: CommandGetTableTypes) -> Built {
    let mut builder = query.into_builder();
    builder.append(TABLE_TYPE);
    builder.build()
}

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

/// The columns of a table's primary key.
pub(crate) fn primary_keys(query: &CommandGetPrimaryKeys, view: &View) -> Built {
    let columns = [("catalog_name", true), ("db_schema_name", true), ("table_name", false), ("column_name", false)];
    let mut fields: Vec<Field> = columns.into_iter().map(|(name, nullable)| text(name, nullable)).collect();
    fields.extend([text("key_name", true), Field::new("key_sequence", DataType::Int32, false)]);
    let database = query.db_schema.as_deref().unwrap_or(DEFAULT_DATABASE);
    let known = query.catalog.as_deref().is_none_or(|catalog| catalog == CATALOG);
    let table = view.find(database, &query.table).filter(|_| known).and_then(|info| info.typed.as_ref());
    let columns = table.map(|table| {
        let column = |at: &usize| table.schema.columns.get(*at).map(|column| column.name.as_str());
        table.schema.primary_key.iter().filter_map(column).collect::<Vec<_>>()
    });
    let columns = columns.unwrap_or_default();
    let same = |value: Option<&str>| -> ArrayRef { Arc::new(StringArray::from(vec![value; columns.len()])) };
    let arrays = vec![
        same(Some(CATALOG)),
        same(Some(database)),
        same(Some(&query.table)),
        Arc::new(StringArray::from(columns.clone())),
        same(None),
        Arc::new(Int32Array::from_iter_values(1..=columns.len() as i32)),
    ];
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// There are no foreign keys.
pub(crate) fn foreign_keys() -> RecordBatch {
    let side = |side: &str| {
        let columns = [("catalog_name", true), ("db_schema_name", true), ("table_name", false), ("column_name", false)];
        columns.map(|(name, nullable)| text(&format!("{side}_{name}"), nullable))
    };
    let mut fields: Vec<Field> = side("pk").into_iter().chain(side("fk")).collect();
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.extend([text("fk_key_name", true), text("pk_key_name", true)]);
    fields.extend(["update_rule", "delete_rule"].map(|name| Field::new(name, DataType::UInt8, false)));
    RecordBatch::new_empty(SchemaRef::new(Schema::new(fields)))
}

/// What the server is and can do.
pub(crate) fn sql_info() -> Result<SqlInfoData, FlightError> {
    let mut infos = SqlInfoDataBuilder::new();
    infos.append(SqlInfo::FlightSqlServerName, "Sluice");
    infos.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    infos.append(SqlInfo::FlightSqlServerArrowVersion, arrow::ARROW_VERSION);
    infos.append(SqlInfo::FlightSqlServerReadOnly, false);
    infos.append(SqlInfo::FlightSqlServerSql, true);
    infos.append(SqlInfo::FlightSqlServerSubstrait, false);
    // Read by ADBC when it connects (flight.md §1.6).
    infos.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    infos.append(SqlInfo::FlightSqlServerCancel, false);
    infos.append(SqlInfo::FlightSqlServerBulkIngestion, true);
    infos.append(SqlInfo::SqlDdlCatalog, false);
    infos.append(SqlInfo::SqlDdlSchema, true);
    infos.append(SqlInfo::SqlDdlTable, true);
    infos.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    infos.append(SqlInfo::SqlAllTablesAreSelectable, true);
    infos.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    infos.append(SqlInfo::SqlSchemaTerm, "database");
    infos.append(SqlInfo::SqlCatalogTerm, "catalog");
    infos.build()
}

/// Name, number, size, and what a literal stands in; in order of the numbers.
const TYPES: [(&str, XdbcDataType, i32, Option<&str>); 14] = [
    ("BOOLEAN", XdbcDataType::XdbcBit, 1, None),
    ("TINYINT", XdbcDataType::XdbcTinyint, 3, None),
    ("BIGINT", XdbcDataType::XdbcBigint, 19, None),
    ("BYTES", XdbcDataType::XdbcVarbinary, i32::MAX, Some("'")),
    ("BINARY", XdbcDataType::XdbcBinary, i32::MAX, Some("'")),
    ("CHAR", XdbcDataType::XdbcChar, i32::MAX, Some("'")),
    ("DECIMAL", XdbcDataType::XdbcDecimal, 38, None),
    ("INT", XdbcDataType::XdbcInteger, 10, None),
    ("SMALLINT", XdbcDataType::XdbcSmallint, 5, None),
    ("FLOAT", XdbcDataType::XdbcReal, 7, None),
    ("DOUBLE", XdbcDataType::XdbcDouble, 15, None),
    ("STRING", XdbcDataType::XdbcVarchar, i32::MAX, Some("'")),
    ("DATE", XdbcDataType::XdbcDate, 10, Some("'")),
    ("TIMESTAMP", XdbcDataType::XdbcTimestamp, 29, Some("'")),
];

/// The types that columns have.
pub(crate) fn xdbc_types() -> Result<XdbcTypeInfoData, FlightError> {
    let mut infos = XdbcTypeInfoDataBuilder::new();
    for (name, number, size, quote) in TYPES {
        infos.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type: number,
            column_size: Some(size),
            literal_prefix: quote.map(str::to_owned),
            literal_suffix: quote.map(str::to_owned),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: matches!(name, "CHAR" | "STRING"),
            searchable: Searchable::Full,
            local_type_name: Some(name.to_owned()),
            sql_data_type: number,
            ..XdbcTypeInfo::default()
        });
    }
    infos.build()
}
