//! Rows by key (flight.md §6): one DoGet for a few keys, DoExchange for many, batch by batch.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::FlightData;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use sluice_engine::Backend;
use sluice_engine::catalog::{TableInfo, TableKind};
use sluice_engine::row::{Datum, Row, Schema as RowSchema};
use tonic::Status;

use crate::arrow::{columns_of, data_type, schema_of};
use crate::rows::{fitted, rows_of};
use crate::status::status_of;
use crate::tables::{Items, internal};

/// Keys of one batch at most.
const KEYS_MAX: usize = 65_536;
/// Batches of keys of one stream that are worked on at once.
const IN_FLIGHT: usize = 64;

/// Looks keys up in one table.
#[derive(Clone)]
pub(crate) struct Lookups {
    backend: Arc<dyn Backend>,
    info: Arc<TableInfo>,
}

impl Lookups {
    /// # Errors
    /// INVALID_ARGUMENT for a table without keys.
    pub(crate) fn new(backend: Arc<dyn Backend>, info: Arc<TableInfo>) -> Result<Self, Status> {
        if info.kind != TableKind::Pk {
            return Err(Status::invalid_argument(format!("'{}' has no primary key", info.name)));
        }
        Ok(Self { backend, info })
    }

    fn schema(&self) -> Result<&RowSchema, Status> {
        self.info.typed.as_ref().map(|table| &table.schema).ok_or_else(|| Status::internal("a table without a schema"))
    }

    /// The columns of an answer: one row for each key, its columns NULL where there is none, and `__found`.
    pub(crate) fn answer_schema(&self) -> SchemaRef {
        let table = schema_of(&self.info);
        let columns = table.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let found = Arc::new(Field::new("__found", DataType::Boolean, false));
        Arc::new(Schema::new(columns.chain([found]).collect::<Vec<_>>()))
    }

    /// The rows of keys.
    ///
    /// # Errors
    /// The engine's.
    async fn find(&self, keys: Vec<Row>) -> Result<RecordBatch, Status> {
        if keys.len() > KEYS_MAX {
            return Err(Status::invalid_argument(format!("{} keys at once; {KEYS_MAX} at most", keys.len())));
        }
        let found = self.backend.lookup(self.info.table_id(), keys).await.map_err(|error| status_of(&error))?;
        let schema = self.schema()?;
        let there: BooleanArray = found.iter().map(|row| Some(row.is_some())).collect();
        let none = vec![Datum::Null; schema.columns.len()];
        let rows: Vec<&Row> = found.iter().map(|row| row.as_ref().unwrap_or(&none)).collect();
        let mut arrays = columns_of(schema, 0..schema.columns.len(), &rows).map_err(internal)?;
        arrays.push(Arc::new(there));
        RecordBatch::try_new(self.answer_schema(), arrays).map_err(internal)
    }

    /// The rows of a ticket's keys.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for a key of the wrong width or type; the engine's.
    pub(crate) async fn of_json(&self, keys: &[Vec<serde_json::Value>]) -> Result<RecordBatch, Status> {
        let schema = self.schema()?;
        let mut arrays = Vec::new();
        for (at, place) in schema.primary_key.iter().enumerate() {
            let Some(column) = schema.columns.get(*place) else { continue };
            let texts: Vec<Option<String>> = keys
                .iter()
                .map(|key| match key.get(at) {
                    Some(serde_json::Value::String(text)) => Some(text.clone()),
                    Some(serde_json::Value::Null) | None => None,
                    Some(other) => Some(other.to_string()),
                })
                .collect();
            let texts: ArrayRef = Arc::new(StringArray::from(texts));
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let cast = cast_with_options(&texts, &data_type(column.data_type), &options);
            arrays.push((
                column.name.as_str(),
                cast.map_err(|error| Status::invalid_argument(format!("column '{}': {error}", column.name)))?,
                true,
            ));
        }
        if let Some(at) = keys.iter().position(|key| key.len() != schema.primary_key.len()) {
            let what = format!(
                "key {at} has {} columns, the primary key {}",
                keys[at..].first().map_or(0, Vec::len),
                schema.primary_key.len()
            );
            return Err(Status::invalid_argument(what));
        }
        if keys.is_empty() {
            return Ok(RecordBatch::new_empty(self.answer_schema()));
        }
        let batch = RecordBatch::try_from_iter_with_nullable(arrays).map_err(internal)?;
        self.find(rows_of(schema, &schema.primary_key, &batch)?).await
    }

    async fn of_batch(&self, batch: RecordBatch) -> Result<RecordBatch, Status> {
        let schema = self.schema()?;
        let (places, batch) = fitted(schema, &batch)?;
        if let Some(missing) = schema.primary_key.iter().find(|at| !places.contains(at)) {
            let name = schema.columns.get(*missing).map_or("", |column| column.name.as_str());
            return Err(Status::invalid_argument(format!("the keys lack column '{name}' of the primary key")));
        }
        self.find(rows_of(schema, &places, &batch)?).await
    }

    /// Answers batches of keys in their order, each with the `app_metadata` that it came with. The schema comes first,
    /// so that both sides may begin.
    pub(crate) fn exchange(
        self,
        sent: impl Stream<Item = Result<FlightData, FlightError>> + Send + 'static,
    ) -> Items<FlightData> {
        let schema = self.answer_schema();
        let keys = FlightDataDecoder::new(sent).map_err(Status::from).try_filter_map(|decoded| async move {
            Ok(match decoded.payload {
                DecodedPayload::RecordBatch(batch) => Some((batch, decoded.inner.app_metadata)),
                _ => None,
            })
        });
        let lookups = self;
        let answers = keys.map(move |keys| {
            let lookups = lookups.clone();
            async move {
                let (batch, about) = keys?;
                encoded(lookups.of_batch(batch).await?, about).await
            }
        });
        let answers = answers.buffered(IN_FLIGHT).map_ok(|messages| stream::iter(messages.into_iter().map(Ok)));
        let first = FlightDataEncoderBuilder::new().with_schema(schema).build(stream::empty());
        first.map_err(Status::from).chain(answers.try_flatten()).boxed()
    }
}

/// A batch as Flight sends it, without the schema.
async fn encoded(batch: RecordBatch, about: Bytes) -> Result<Vec<FlightData>, Status> {
    let messages = FlightDataEncoderBuilder::new().build(stream::iter([Ok(batch)])).try_collect::<Vec<_>>();
    let messages = messages.await.map_err(Status::from)?.into_iter().skip(1);
    Ok(messages.map(|message| message.with_app_metadata(about.clone())).collect())
}
