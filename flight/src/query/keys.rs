//! Filters that name keys: `WHERE k = …` and `WHERE k IN (…)` over the whole primary key are lookups, not scans.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;
use sluice_engine::row::{Datum, Row};

use crate::arrow::data_type;
use crate::relation::Relation;
use crate::rows::rows_of;

/// Most keys that are looked up rather than scanned for.
const KEYS_MAX: usize = 4_096;

/// The only keys that rows can have which pass all filters; `None` where they are not known.
///
/// # Errors
/// DataFusion's own only.
pub(super) fn keys_in(relation: &Relation, filters: &[Expr]) -> Result<Option<Vec<Row>>> {
    let Some(table) = relation.info.typed.as_ref().filter(|_| relation.is_keyed()) else { return Ok(None) };
    let schema = &table.schema;
    let mut found: HashMap<String, Vec<ScalarValue>> = HashMap::new();
    for filter in filters {
        if let Some((column, values)) = values_in(filter) {
            // Two filters on a column both hold: either list has all that can pass.
            let better = found.get(&column).is_none_or(|known| values.len() < known.len());
            if better {
                found.insert(column, values);
            }
        }
    }
    let mut keys: Vec<Row> = vec![vec![Datum::Null; schema.columns.len()]];
    for place in &schema.primary_key {
        let Some(column) = schema.columns.get(*place) else { return Ok(None) };
        let Some(values) = found.get(&column.name) else { return Ok(None) };
        // NULL equals nothing.
        let values: Vec<_> = values.iter().filter(|value| !value.is_null()).cloned().collect();
        let expected = data_type(column.data_type);
        if values.iter().any(|value| value.data_type() != expected) || keys.len() * values.len() > KEYS_MAX {
            return Ok(None);
        }
        let data = data_of(schema, *place, values)?;
        let with = |key: &Row, datum: &Datum| {
            let mut key = key.clone();
            if let Some(slot) = key.get_mut(*place) {
                slot.clone_from(datum);
            }
            key
        };
        keys = keys.iter().flat_map(|key| data.iter().map(move |datum| with(key, datum))).collect();
    }
    Ok(Some(distinct(keys)))
}

fn distinct(keys: Vec<Row>) -> Vec<Row> {
    let mut seen = std::collections::HashSet::new();
    keys.into_iter().filter(|key| seen.insert(format!("{key:?}"))).collect()
}

fn data_of(schema: &sluice_engine::row::Schema, place: usize, values: Vec<ScalarValue>) -> Result<Vec<Datum>> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let array = ScalarValue::iter_to_array(values)?;
    let field = Field::new("k", array.data_type().clone(), true);
    let batch = RecordBatch::try_new(std::sync::Arc::new(Schema::new(vec![field])), vec![array])?;
    let rows = rows_of(schema, &[place], &batch).map_err(|status| DataFusionError::External(Box::new(status)))?;
    Ok(rows.into_iter().filter_map(|mut row| (place < row.len()).then(|| row.swap_remove(place))).collect())
}

/// A column and the values that it must be one of.
fn values_in(filter: &Expr) -> Option<(String, Vec<ScalarValue>)> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let pair = |one: &Expr, other: &Expr| match (one, other) {
                (Expr::Column(column), Expr::Literal(value, _)) => Some((column.name.clone(), vec![value.clone()])),
                _ => None,
            };
            pair(left, right).or_else(|| pair(right, left))
        }
        // What the optimizer makes of a short IN.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let ((column, mut values), (other, more)) = (values_in(left)?, values_in(right)?);
            values.extend(more);
            (column == other).then_some((column, values))
        }
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = list.expr.as_ref() else { return None };
            let value = |item: &Expr| match item {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            };
            Some((column.name.clone(), list.list.iter().map(value).collect::<Option<Vec<_>>>()?))
        }
        _ => None,
    }
}
