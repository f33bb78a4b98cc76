//! Databases, tables and changelogs as DataFusion sees them.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use sluice_engine::catalog::partitions::value_of;
use sluice_engine::row::{Datum, Row};
use sluice_engine::{Backend, BucketId};
use tonic::async_trait;

use super::keys::keys_in;
use super::scan::{Access, ScanExec};
use crate::arrow::{columns_of, data_type};
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

impl Table {
    /// The buckets of the partitions that rows can be in which pass the filters.
    fn buckets(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<BucketId>> {
        let info = &self.relation.info;
        let (Some(partitions), Some(table)) = (&info.partitions, &info.typed) else { return Ok(info.bucket_ids()) };
        let columns = table.partition_keys.iter().filter_map(|at| table.schema.columns.get(*at));
        let columns: Vec<_> = columns.collect();
        let about = |filter: &&Expr| {
            let named = filter.column_refs();
            !named.is_empty() && named.iter().all(|used| columns.iter().any(|column| column.name == used.name))
        };
        let Some(filter) = conjunction(filters.iter().filter(about).cloned()) else { return Ok(info.bucket_ids()) };
        // One row for each partition: its values.
        let mut rows = Vec::new();
        for (_, partition) in partitions.iter() {
            let mut row = vec![Datum::Null; table.schema.columns.len()];
            for ((at, column), text) in table.partition_keys.iter().zip(&columns).zip(&partition.values) {
                let value = value_of(column, text).map_err(|error| DataFusionError::External(Box::new(error)))?;
                if let Some(slot) = row.get_mut(*at) {
                    *slot = value;
                }
            }
            rows.push(row);
        }
        let rows: Vec<&Row> = rows.iter().collect();
        let arrays = columns_of(&table.schema, table.partition_keys.iter().copied(), &rows)?;
        let fields: Vec<_> =
            columns.iter().map(|column| Field::new(&column.name, data_type(column.data_type), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let filter = state.create_physical_expr(unqualified(filter)?, &DFSchema::try_from(Arc::clone(&schema))?)?;
        let batch = RecordBatch::try_new(schema, arrays)?;
        let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
        let passes = passes.as_boolean_opt();
        let passes = passes.ok_or_else(|| DataFusionError::Internal("a filter is no BOOLEAN".to_owned()))?;
        let kept: HashSet<i64> = partitions
            .iter()
            .zip(passes.iter())
            .filter(|(_, passes)| *passes == Some(true))
            .map(|((_, partition), _)| partition.id)
            .collect();
        let of_it = |bucket: &BucketId| bucket.partition.is_some_and(|partition| kept.contains(&partition));
        Ok(info.bucket_ids().into_iter().filter(of_it).collect())
    }
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
            None => Access::Buckets(Arc::new(self.buckets(state, filters)?)),
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
