//! Databases, tables and changelogs as DataFusion sees them.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use sluice_engine::Backend;
use tonic::async_trait;

use super::keys::keys_in;
use super::scan::{Access, ScanExec};
use crate::relation::Relation;

/// All databases.
pub(super) struct Databases(pub(super) Arc<dyn Backend>);

impl std::fmt::Debug for Databases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Databases")
    }
}

impl CatalogProvider for Databases {
    fn schema_names(&self) -> Vec<String> {
        self.0.tables().databases().into_iter().map(str::to_owned).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let known = self.0.tables().has_database(name);
        known.then(|| Arc::new(Database { backend: Arc::clone(&self.0), name: name.to_owned() }) as _)
    }
}

/// One database.
struct Database {
    backend: Arc<dyn Backend>,
    name: String,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.name)
    }
}

#[async_trait]
impl SchemaProvider for Database {
    fn table_names(&self) -> Vec<String> {
        let tables = self.backend.tables();
        tables.iter().filter(|info| info.database == self.name).map(|info| info.name.clone()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = Relation::find(&self.backend.tables(), &self.name, name);
        Ok(found.map(|relation| Arc::new(Table { backend: Arc::clone(&self.backend), relation }) as _))
    }

    fn table_exist(&self, name: &str) -> bool {
        Relation::find(&self.backend.tables(), &self.name, name).is_some()
    }
}

/// One table or changelog.
struct Table {
    backend: Arc<dyn Backend>,
    relation: Relation,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.relation.name())
    }
}

/// Whether a scan can tell by itself which rows an expression is true of.
fn is_plain(expr: &Expr) -> bool {
    let mut plain = !expr.is_volatile();
    let _ = expr.apply(|part| {
        if matches!(
            part,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        ) {
            plain = false;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    plain
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.relation.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match is_plain(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = self.schema();
        let output: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..all.fields().len()).collect());
        let filter = conjunction(filters.iter().cloned());
        // The columns that are read: those of the output, and behind them what else the filter needs.
        let mut read = output.clone();
        if let Some(filter) = &filter {
            let mut more: Vec<usize> =
                filter.column_refs().into_iter().filter_map(|column| all.index_of(&column.name).ok()).collect();
            more.sort_unstable();
            more.retain(|at| !output.contains(at));
            read.extend(more);
        }
        let filter = match &filter {
            None => None,
            Some(filter) => {
                let unqualified = unqualified(filter.clone())?;
                let schema = DFSchema::try_from(all.project(&read).map_err(DataFusionError::from)?)?;
                Some((filter.to_string(), state.create_physical_expr(unqualified, &schema)?))
            }
        };
        let access = match keys_in(&self.relation, filters)? {
            Some(keys) => Access::Keys(Arc::new(keys)),
            None => Access::Buckets,
        };
        let scan = ScanExec::try_new(
            Arc::clone(&self.backend),
            self.relation.clone(),
            access,
            (read, output.len()),
            filter,
            limit,
        )?;
        Ok(Arc::new(scan))
    }
}

/// Without the table's name before its columns.
fn unqualified(expr: Expr) -> Result<Expr> {
    use datafusion::common::tree_node::Transformed;
    let stripped = expr.transform(|part| {
        Ok(match part {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(datafusion::common::Column::new_unqualified(column.name)))
            }
            other => Transformed::no(other),
        })
    })?;
    Ok(stripped.data)
}
