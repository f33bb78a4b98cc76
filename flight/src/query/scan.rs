//! Reading a relation within a plan: one partition for each bucket, or one for all keys that are looked up.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, TryStreamExt, stream};
use sluice_engine::row::Row;
use sluice_engine::{Backend, BucketId};
use tonic::Status;

use crate::relation::Relation;
use crate::scan::{Batches, Scan, limited};
use crate::status::status_of;

/// How rows are found.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// All of them, bucket by bucket.
    Buckets(Arc<Vec<BucketId>>),
    /// By their keys.
    Keys(Arc<Vec<Row>>),
}

/// A filter as it was written, and as it runs.
type Filter = (String, Arc<dyn PhysicalExpr>);

/// A scan with what was pushed into it.
pub(super) struct ScanExec {
    backend: Arc<dyn Backend>,
    relation: Relation,
    access: Access,
    /// Columns that are read, those of the output first.
    read: Arc<[usize]>,
    /// How many of them are the output.
    output: usize,
    /// Over what is read.
    filter: Option<Filter>,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl ScanExec {
    /// # Errors
    /// A column that is none.
    pub(super) fn try_new(
        backend: Arc<dyn Backend>,
        relation: Relation,
        access: Access,
        (read, output): (Vec<usize>, usize),
        filter: Option<Filter>,
        limit: Option<usize>,
    ) -> Result<Self> {
        let schema: SchemaRef = Arc::new(relation.schema().project(read.get(..output).unwrap_or_default())?);
        let partitions = match &access {
            Access::Buckets(buckets) => buckets.len(),
            Access::Keys(_) => 1,
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties);
        Ok(Self { backend, relation, access, read: read.into(), output, filter, limit, properties })
    }

    /// The rows of keys.
    fn lookup(&self, keys: Arc<Vec<Row>>) -> Batches {
        let (backend, relation, columns) = (Arc::clone(&self.backend), self.relation.clone(), Arc::clone(&self.read));
        let found = async move {
            let rows = backend.lookup(relation.info.table_id(), keys.as_ref().clone()).await;
            let rows: Vec<Row> = rows.map_err(|error| status_of(&error))?.into_iter().flatten().collect();
            relation.rows(&columns, &rows).map_err(|error| Status::internal(error.to_string()))
        };
        stream::once(found).boxed()
    }

    fn filtered(&self, batches: Batches) -> Batches {
        let (filter, output) = (self.filter.as_ref().map(|(_, filter)| Arc::clone(filter)), self.output);
        batches
            .map(move |batch| {
                let batch = batch?;
                keep(batch, filter.as_deref(), output).map_err(|error| super::status::status_of(&error))
            })
            .boxed()
    }
}

/// The rows that pass, and the columns that are asked for.
fn keep(batch: RecordBatch, filter: Option<&dyn PhysicalExpr>, output: usize) -> Result<RecordBatch> {
    let batch = match filter {
        None => batch,
        Some(filter) => {
            let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
            let passes = passes.as_boolean_opt();
            let passes = passes.ok_or_else(|| DataFusionError::Internal("a filter is no BOOLEAN".to_owned()))?;
            filter_record_batch(&batch, passes)?
        }
    };
    if output == batch.num_columns() {
        return Ok(batch);
    }
    Ok(batch.project(&(0..output).collect::<Vec<_>>())?)
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanExec({})", self.relation.name())
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _style: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "SluiceScan: table={}, columns=[{}]", self.relation.name(), columns.join(", "))?;
        match &self.access {
            Access::Buckets(buckets) => {
                if let Some(partitions) = &self.relation.info.partitions {
                    let read: HashSet<_> = buckets.iter().filter_map(|bucket| bucket.partition).collect();
                    write!(f, ", partitions={}/{}", read.len(), partitions.iter().count())?;
                }
                write!(f, ", buckets={}", buckets.len())?;
            }
            Access::Keys(keys) => write!(f, ", keys={}", keys.len())?,
        }
        if let Some((filter, _)) = &self.filter {
            write!(f, ", filter={filter}")?;
        }
        match self.limit {
            Some(limit) => write!(f, ", limit={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "SluiceScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.filter.as_ref().map_or(Ok(TreeNodeRecursion::Continue), |(_, filter)| f(filter))
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let batches = match &self.access {
            Access::Keys(keys) => self.lookup(Arc::clone(keys)),
            Access::Buckets(buckets) => {
                // Where none is left there still is one partition, of no rows.
                let buckets = buckets.get(partition).copied().into_iter().collect();
                let scan = Scan { relation: self.relation.clone(), columns: Arc::clone(&self.read), buckets };
                scan.rows(Arc::clone(&self.backend)).map_err(external)?
            }
        };
        let batches = limited(self.filtered(batches), self.limit.map(|limit| limit as u64));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.map_err(external))))
    }
}

fn external(status: Status) -> DataFusionError {
    DataFusionError::External(Box::new(status))
}
