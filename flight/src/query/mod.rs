//! SQL: texts to streams of record batches and to changes of tables (design §7).
//!
//! A statement is DDL of ours ([`crate::ddl`]), or sqlparser's: queries are DataFusion's over the tables in
//! [`catalog`], and INSERT, UPDATE and DELETE are a query whose rows are then written ([`dml`]).

mod catalog;
mod dml;
mod keys;
mod params;
mod scan;
mod status;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::Statement as Ast;
use futures::{StreamExt, stream};
use sluice_engine::Backend;
use tonic::Status;

pub(crate) use params::Parameters;
pub(crate) use status::status_of;

use crate::ddl::{self, Statement};
use crate::execute;
use crate::metadata::CATALOG;
use crate::relation::Relation;
use crate::scan::Batches;
use crate::session::Session;

/// Bytes that all queries together may hold in memory; beyond it they are refused.
const MEMORY_MAX: usize = 512 << 20;
/// Longest text of a statement, bytes.
const TEXT_MAX: usize = 1 << 20;

/// Runs statements.
pub(crate) struct Engine {
    backend: Arc<dyn Backend>,
    base: SessionState,
}

/// A statement that was read.
enum Kind {
    /// A query, DataFusion's.
    Query(Box<Parsed>),
    /// INSERT, UPDATE or DELETE.
    Change(Box<Ast>),
    /// DDL and its kin.
    Ddl(Statement),
}

/// What is known of a statement before it runs.
pub(crate) struct Described {
    /// The rows' columns; `None` of a statement that gives none.
    pub(crate) schema: Option<SchemaRef>,
    /// One field for each parameter.
    pub(crate) parameters: Schema,
}

/// The one column of what a change answers to clients that run it as a query.
pub(crate) fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::Int64, false)]))
}

fn df(error: DataFusionError) -> Status {
    status_of(&error)
}

impl Engine {
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self, Status> {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(MEMORY_MAX, 1.0).build_arc().map_err(df)?;
        let mut config = SessionConfig::new().with_information_schema(true);
        let options = config.options_mut();
        // Names are case-sensitive (table-model §1).
        options.sql_parser.enable_ident_normalization = false;
        options.sql_parser.collect_spans = true;
        // Older clients read no view types (flight.md §1.4.7).
        options.sql_parser.map_string_types_to_utf8view = false;
        options.optimizer.expand_views_at_output = true;
        options.execution.time_zone = Some("UTC".to_owned());
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog::Databases(Arc::clone(&backend))));
        let builder = SessionStateBuilder::new().with_default_features().with_config(config);
        let base = builder.with_runtime_env(runtime).with_catalog_list(Arc::new(catalogs)).build();
        Ok(Self { backend, base })
    }

    fn state(&self, database: &str) -> SessionState {
        let mut state = self.base.clone();
        let catalog = &mut state.config_mut().options_mut().catalog;
        CATALOG.clone_into(&mut catalog.default_catalog);
        database.clone_into(&mut catalog.default_schema);
        // What now() is throughout the statement.
        state.mark_start_execution();
        state
    }

    /// Reads a text of one statement, its parameters put in where they are given.
    fn read(&self, text: &str, parameters: Option<&Parameters>) -> Result<Kind, Status> {
        if text.len() > TEXT_MAX {
            return Err(Status::invalid_argument(format!("a statement of {} bytes; {TEXT_MAX} at most", text.len())));
        }
        let refused = |error: ddl::DdlError| Status::new(crate::status::code_of(error.kind), error.to_string());
        let text = match ddl::parse(text).map_err(refused)? {
            // Where it was written, so that positions are those of the text.
            Statement::Query(_) => text.trim_end().trim_end_matches(';'),
            other => return Ok(Kind::Ddl(other)),
        };
        let mut parsed = params::parse(text)?;
        if let Some(parameters) = parameters {
            params::put_in(&mut parsed, parameters)?;
        }
        match parsed {
            Parsed::Statement(ast) => match *ast {
                Ast::Insert(_) | Ast::Update(_) | Ast::Delete(_) => Ok(Kind::Change(ast)),
                Ast::Query(_) => Ok(Kind::Query(Box::new(Parsed::Statement(ast)))),
                _ => Err(Status::unimplemented("statements of this kind are not offered by this server")),
            },
            Parsed::Explain(_) => Ok(Kind::Query(Box::new(parsed))),
            _ => Err(Status::unimplemented("statements of this kind are not offered by this server")),
        }
    }

    /// The plan of a query.
    async fn plan(&self, state: &SessionState, parsed: Parsed) -> Result<LogicalPlan, Status> {
        self.check_tables(state, &parsed)?;
        let plan = state.statement_to_plan(parsed).await.map_err(df)?;
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        options.verify_plan(&plan).map_err(|_| Status::unimplemented("statements of this kind are not offered"))?;
        Ok(plan)
    }

    /// Names the first table that is not there.
    fn check_tables(&self, state: &SessionState, parsed: &Parsed) -> Result<(), Status> {
        let default = &state.config().options().catalog.default_schema;
        let view = self.backend.tables();
        for name in state.resolve_table_references(parsed).map_err(df)? {
            if name.schema().is_none() && state.table_functions().contains_key(name.table()) {
                continue;
            }
            let database = name.schema().unwrap_or(default);
            if name.catalog().is_some_and(|catalog| catalog != CATALOG) {
                return Err(Status::not_found(format!(
                    "no catalog is called '{}'",
                    name.catalog().unwrap_or_default()
                )));
            }
            if database != "information_schema" && Relation::find(&view, database, name.table()).is_none() {
                return Err(no_table(database, name.table()));
            }
        }
        Ok(())
    }

    /// What a statement will answer, without running it.
    ///
    /// # Errors
    /// Why it cannot run.
    pub(crate) async fn describe(&self, text: &str, database: &str) -> Result<Described, Status> {
        let count = params::count(text);
        match self.read(text, None)? {
            Kind::Ddl(statement) => {
                let shown = execute::shown(&self.backend, &statement, database)?;
                Ok(Described { schema: shown.map(|batch| batch.schema()), parameters: Schema::empty() })
            }
            Kind::Change(ast) => {
                let types = self.check_change(&ast, database).await?;
                Ok(Described { schema: None, parameters: params::fields(count, &types) })
            }
            Kind::Query(parsed) => {
                let state = self.state(database);
                let plan = self.plan(&state, *parsed).await?;
                let types = plan.get_parameter_types().map_err(df)?;
                Ok(Described { schema: Some(output_schema(&plan)), parameters: params::fields(count, &types) })
            }
        }
    }

    /// Runs a statement as a query: what gives no rows answers with a count.
    ///
    /// # Errors
    /// Why it cannot run; the stream has what goes wrong later.
    pub(crate) async fn query(
        &self,
        text: &str,
        session: &Session,
        parameters: Option<&Parameters>,
    ) -> Result<(SchemaRef, Batches), Status> {
        match self.read(text, Some(parameters.unwrap_or(&Parameters::default())))? {
            Kind::Query(parsed) => self.run(*parsed, &session.database()).await,
            Kind::Ddl(statement) => match execute::shown(&self.backend, &statement, &session.database())? {
                Some(batch) => Ok(one(batch)),
                None => counted(execute::run(&self.backend, statement, session).await?),
            },
            Kind::Change(ast) => counted(self.change(&ast, &session.database()).await?),
        }
    }

    /// Runs a statement for what it changes: the number of rows.
    ///
    /// # Errors
    /// Why it cannot run; INVALID_ARGUMENT for a query.
    pub(crate) async fn update(
        &self,
        text: &str,
        session: &Session,
        parameters: Option<&Parameters>,
    ) -> Result<i64, Status> {
        match self.read(text, Some(parameters.unwrap_or(&Parameters::default())))? {
            Kind::Query(_) => Err(Status::invalid_argument("a query changes nothing: run it as a query")),
            Kind::Ddl(statement) => execute::run(&self.backend, statement, session).await,
            Kind::Change(ast) => self.change(&ast, &session.database()).await,
        }
    }

    async fn run(&self, parsed: Parsed, database: &str) -> Result<(SchemaRef, Batches), Status> {
        let state = self.state(database);
        let plan = self.plan(&state, parsed).await?;
        let schema = output_schema(&plan);
        let frame = DataFrame::new(state, plan);
        let batches = frame.execute_stream().await.map_err(df)?;
        let declared = Arc::clone(&schema);
        let batches = batches.map(move |batch| declare(batch.map_err(df)?, &declared));
        Ok((schema, batches.boxed()))
    }
}

/// A table that is not there.
pub(crate) fn no_table(database: &str, table: &str) -> Status {
    Status::not_found(format!("no table '{table}' in database '{database}'"))
}

/// The logical schema: that of the plan that runs may differ in what can be NULL (flight.md §1.4.3).
fn output_schema(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter().map(|field| {
        let plain = match field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        };
        Field::new(field.name(), plain, field.is_nullable())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A batch under a schema that differs only in what can be NULL, or in views.
///
/// # Errors
/// INTERNAL only.
pub(crate) fn declare(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Status> {
    let internal = |error: arrow::error::ArrowError| Status::internal(error.to_string());
    let columns = batch.columns().iter().zip(schema.fields()).map(|(array, field)| {
        if array.data_type() == field.data_type() { Ok(array.clone()) } else { cast(array, field.data_type()) }
    });
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(internal)?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(internal)
}

fn one(batch: RecordBatch) -> (SchemaRef, Batches) {
    (batch.schema(), stream::iter([Ok(batch)]).boxed())
}

/// The rows of a change that runs as a query: the number of rows that it wrote.
///
/// # Errors
/// INTERNAL only.
pub(crate) fn counted(count: i64) -> Result<(SchemaRef, Batches), Status> {
    let array = Arc::new(arrow::array::Int64Array::from(vec![count]));
    let batch = RecordBatch::try_new(count_schema(), vec![array]);
    Ok(one(batch.map_err(|error| Status::internal(error.to_string()))?))
}
