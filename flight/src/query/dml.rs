//! INSERT, UPDATE and DELETE: a query gives the rows, all of them are checked, and then they are written.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr as Expression, cast};
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, Delete, Expr, FromTable, Insert, ObjectName, SetExpr, Statement as Ast, TableFactor, TableObject,
    TableWithJoins, Update,
};
use futures::TryStreamExt;
use sluice_engine::catalog::{TableInfo, TableKind};
use sluice_engine::kv_tablet::Op;
use sluice_engine::row::{Row, Schema};
use tonic::Status;

use super::{Engine, df, no_table, params};
use crate::arrow::data_type;
use crate::metadata::CATALOG;
use crate::rows::rows_of;
use crate::status::status_of;
use crate::write::{self, schema_of};

/// Bytes of rows that one statement may write: they are all in memory before the first is written.
const WRITTEN_MAX: usize = 256 << 20;

/// A change as a query and what to do with its rows.
struct Plan {
    info: Arc<TableInfo>,
    /// The places of the query's columns in the table's schema.
    places: Vec<usize>,
    query: String,
    action: Action,
    /// The parameters that are a column's new value, with its type.
    types: HashMap<String, Option<DataType>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Append,
    /// Of some columns only, or of all.
    Upsert {
        partial: bool,
    },
    Delete,
}

fn refuse<T>(what: impl Into<String>) -> Result<T, Status> {
    Err(Status::invalid_argument(what))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn parts(name: &ObjectName) -> Vec<&str> {
    name.0.iter().filter_map(|part| part.as_ident()).map(|ident| ident.value.as_str()).collect()
}

fn place_of(schema: &Schema, name: &str) -> Result<usize, Status> {
    schema.position(name).ok_or_else(|| Status::invalid_argument(format!("the table has no column '{name}'")))
}

impl Engine {
    /// Checks a change without running it: the types of its parameters where they are known.
    pub(super) async fn check_change(
        &self,
        ast: &Ast,
        database: &str,
    ) -> Result<HashMap<String, Option<DataType>>, Status> {
        let plan = self.plan_change(ast, database)?;
        let state = self.state(database);
        let parsed = params::parse(&plan.query)?;
        let query = self.plan(&state, parsed).await?;
        self.check_width(&plan, query.schema().fields().len())?;
        let mut types = query.get_parameter_types().map_err(df)?;
        types.retain(|_, known| known.is_some());
        let mut all = plan.types;
        all.extend(types);
        Ok(all)
    }

    /// Runs a change: how many rows it wrote.
    pub(super) async fn change(&self, ast: &Ast, database: &str) -> Result<i64, Status> {
        let plan = self.plan_change(ast, database)?;
        let rows = self.rows(&plan, database).await?;
        let count = rows.len() as i64;
        let target: Option<Arc<[usize]>> = match plan.action {
            Action::Upsert { partial: true } => Some(plan.places.clone().into()),
            _ => None,
        };
        let action = plan.action;
        let pending = match action {
            Action::Append => write::append(&*self.backend, &plan.info, rows).await?,
            Action::Upsert { .. } | Action::Delete => {
                let op = |row: Row| Op { row, delete: action == Action::Delete, target: target.clone() };
                write::apply(&*self.backend, &plan.info, rows.into_iter().map(op).collect()).await?
            }
        };
        pending.await?;
        Ok(count)
    }

    /// The rows of a change's query, in the table's types.
    async fn rows(&self, plan: &Plan, database: &str) -> Result<Vec<Row>, Status> {
        let schema = schema_of(&plan.info)?;
        let state = self.state(database);
        let query = self.plan(&state, params::parse(&plan.query)?).await?;
        self.check_width(plan, query.schema().fields().len())?;
        let columns =
            plan.places.iter().zip(query.schema().columns()).enumerate().filter_map(|(at, (place, column))| {
                let to = data_type(schema.columns.get(*place)?.data_type);
                Some(cast(Expression::Column(column), to).alias(format!("c{at}")))
            });
        let columns: Vec<_> = columns.collect();
        let frame = DataFrame::new(state, query).select(columns).map_err(df)?;
        let mut batches = frame.execute_stream().await.map_err(df)?;
        let mut bytes = 0;
        let mut rows = Vec::new();
        while let Some(batch) = batches.try_next().await.map_err(df)? {
            bytes += batch.get_array_memory_size();
            if bytes > WRITTEN_MAX {
                return refuse(format!("a statement writes {WRITTEN_MAX} bytes of rows at most"));
            }
            rows.extend(rows_of(schema, &plan.places, &batch)?);
        }
        Ok(rows)
    }

    fn check_width(&self, plan: &Plan, width: usize) -> Result<(), Status> {
        if width == plan.places.len() {
            return Ok(());
        }
        refuse(format!("{} columns are to be written, the rows have {width}", plan.places.len()))
    }

    fn target(&self, name: &ObjectName, database: &str) -> Result<Arc<TableInfo>, Status> {
        let (database, table) = match parts(name).as_slice() {
            [table] => (database.to_owned(), (*table).to_owned()),
            [database, table] => ((*database).to_owned(), (*table).to_owned()),
            [catalog, database, table] if *catalog == CATALOG => ((*database).to_owned(), (*table).to_owned()),
            _ => return refuse(format!("'{name}' is no table's name")),
        };
        let view = self.backend.tables();
        view.find(&database, &table).cloned().ok_or_else(|| no_table(&database, &table))
    }

    fn plan_change(&self, ast: &Ast, database: &str) -> Result<Plan, Status> {
        match ast {
            Ast::Insert(insert) => self.plan_insert(insert, database),
            Ast::Update(update) => self.plan_update(update, database),
            Ast::Delete(delete) => self.plan_delete(delete, database),
            _ => Err(Status::internal("not a change")),
        }
    }

    fn plan_insert(&self, insert: &Insert, database: &str) -> Result<Plan, Status> {
        let TableObject::TableName(name) = &insert.table else { return refuse("INSERT INTO needs a table's name") };
        let odd = insert.overwrite
            || insert.or.is_some()
            || insert.on.is_some()
            || insert.returning.is_some()
            || insert.partitioned.is_some()
            || insert.table_alias.is_some()
            || !insert.assignments.is_empty();
        if odd {
            return Err(Status::unimplemented("only INSERT INTO table [(columns)] query is offered"));
        }
        let info = self.target(name, database)?;
        let schema = schema_of(&info)?;
        let Some(source) = &insert.source else { return refuse("INSERT INTO needs VALUES or a query") };
        let places = match insert.columns.as_slice() {
            [] => (0..schema.columns.len()).collect(),
            columns => {
                let mut places = Vec::with_capacity(columns.len());
                for column in columns {
                    let name = parts(column).last().copied().unwrap_or_default().to_owned();
                    let place = place_of(schema, &name)?;
                    if places.contains(&place) {
                        return refuse(format!("column '{name}' is given twice"));
                    }
                    places.push(place);
                }
                places
            }
        };
        let partial = places.len() < schema.columns.len();
        let action = match info.rules() {
            None => {
                let left_out =
                    schema.columns.iter().enumerate().find(|(at, column)| !column.nullable && !places.contains(at));
                if let Some((_, column)) = left_out {
                    return refuse(format!("column '{}' is NOT NULL and is left out", column.name));
                }
                Action::Append
            }
            Some(rules) => {
                if partial {
                    rules.check_target(&places).map_err(|error| status_of(&error))?;
                }
                Action::Upsert { partial }
            }
        };
        let mut types = HashMap::new();
        if let SetExpr::Values(values) = source.body.as_ref() {
            for row in &values.rows {
                for (expr, place) in row.content.iter().zip(&places) {
                    note_type(&mut types, schema, expr, *place);
                }
            }
        }
        Ok(Plan { info: Arc::clone(&info), places, query: source.to_string(), action, types })
    }

    /// The only table of UPDATE or DELETE, and how it is called there.
    fn only_table(&self, table: &TableWithJoins, database: &str) -> Result<(Arc<TableInfo>, String), Status> {
        let TableFactor::Table { name, .. } = &table.relation else { return refuse("one table's name is expected") };
        if !table.joins.is_empty() {
            return refuse("one table's name is expected");
        }
        let info = self.target(name, database)?;
        if info.kind != TableKind::Pk {
            return refuse(format!("'{}' has no primary key: its rows stay as they are", info.name));
        }
        Ok((info, table.to_string()))
    }

    fn plan_update(&self, update: &Update, database: &str) -> Result<Plan, Status> {
        if update.from.is_some() || update.returning.is_some() || update.or.is_some() || update.limit.is_some() {
            return Err(Status::unimplemented("only UPDATE table SET column = value, … [WHERE …] is offered"));
        }
        let (info, from) = self.only_table(&update.table, database)?;
        let schema = schema_of(&info)?;
        let mut values: HashMap<usize, &Expr> = HashMap::new();
        let mut types = HashMap::new();
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return refuse("SET takes one column at a time");
            };
            let name = parts(name).last().copied().unwrap_or_default().to_owned();
            let place = place_of(schema, &name)?;
            if schema.primary_key.contains(&place) {
                return refuse(format!("column '{name}' is of the primary key: delete the row and insert another"));
            }
            if values.insert(place, &assignment.value).is_some() {
                return refuse(format!("column '{name}' is set twice"));
            }
            note_type(&mut types, schema, &assignment.value, place);
        }
        let rules = info.rules().ok_or_else(|| Status::internal("a table without rules"))?;
        let touched: Vec<usize> =
            (0..schema.columns.len()).filter(|at| schema.primary_key.contains(at) || values.contains_key(at)).collect();
        // A partial update leaves alone what others write meanwhile; where it is not allowed the whole row is written.
        let partial = touched.len() < schema.columns.len() && rules.check_target(&touched).is_ok();
        let places = if partial { touched } else { (0..schema.columns.len()).collect() };
        let column = |at: &usize| {
            let name = schema.columns.get(*at).map_or("", |column| column.name.as_str());
            match values.get(at) {
                Some(value) => format!("{value} AS {}", quoted(name)),
                None => quoted(name),
            }
        };
        let columns: Vec<String> = places.iter().map(column).collect();
        let query = selection(&columns, &from, update.selection.as_ref());
        Ok(Plan { info: Arc::clone(&info), places, query, action: Action::Upsert { partial }, types })
    }

    fn plan_delete(&self, delete: &Delete, database: &str) -> Result<Plan, Status> {
        if delete.using.is_some() || delete.returning.is_some() || delete.limit.is_some() || !delete.tables.is_empty() {
            return Err(Status::unimplemented("only DELETE FROM table [WHERE …] is offered"));
        }
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        let [table] = tables.as_slice() else { return refuse("one table's name is expected") };
        let (info, from) = self.only_table(table, database)?;
        let schema = schema_of(&info)?;
        let places = schema.primary_key.clone();
        let columns: Vec<String> =
            places.iter().filter_map(|at| schema.columns.get(*at)).map(|column| quoted(&column.name)).collect();
        let query = selection(&columns, &from, delete.selection.as_ref());
        Ok(Plan { info: Arc::clone(&info), places, query, action: Action::Delete, types: HashMap::new() })
    }
}

fn selection(columns: &[String], from: &str, condition: Option<&Expr>) -> String {
    let condition = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
    format!("SELECT {} FROM {from}{condition}", columns.join(", "))
}

/// Notes that a parameter is a column's new value.
fn note_type(types: &mut HashMap<String, Option<DataType>>, schema: &Schema, expr: &Expr, place: usize) {
    if let (Some(number), Some(column)) = (params::number_of(expr), schema.columns.get(place)) {
        types.insert(format!("${number}"), Some(data_type(column.data_type)));
    }
}
