//! Record batches that clients send as rows (table-model §2).

use arrow::array::cast::AsArray;
use arrow::array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{ArrowPrimitiveType, DataType, TimeUnit};
use sluice_engine::row::{Column, Datum, Row, Schema};
use tonic::Status;

use crate::arrow::data_type;

/// Rows as wide as the schema out of columns at `places`, which the batch has in that order and in the schema's
/// types; the others are NULL.
///
/// # Errors
/// INVALID_ARGUMENT that names row and column: a NULL in a column that takes none.
pub(crate) fn rows_of(schema: &Schema, places: &[usize], batch: &RecordBatch) -> Result<Vec<Row>, Status> {
    let mut rows = vec![vec![Datum::Null; schema.columns.len()]; batch.num_rows()];
    for (place, array) in places.iter().zip(batch.columns()) {
        let Some(column) = schema.columns.get(*place) else { continue };
        if !column.nullable && array.null_count() > 0 {
            let row = (0..array.len()).find(|at| array.is_null(*at)).unwrap_or_default();
            return Err(Status::invalid_argument(format!("row {row}: column '{}' is NOT NULL", column.name)));
        }
        for (row, datum) in rows.iter_mut().zip(data(column, array)?) {
            if let Some(slot) = row.get_mut(*place) {
                *slot = datum;
            }
        }
    }
    Ok(rows)
}

/// The places in the schema of a batch's columns, matched by name, and the batch in the schema's types.
///
/// # Errors
/// INVALID_ARGUMENT that names the column: unknown, given twice, or of a type that does not widen to the table's.
pub(crate) fn fitted(schema: &Schema, batch: &RecordBatch) -> Result<(Vec<usize>, RecordBatch), Status> {
    let (mut places, mut arrays) = (Vec::new(), Vec::new());
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let Some((place, column)) = schema.position(field.name()).and_then(|at| Some((at, schema.columns.get(at)?)))
        else {
            return Err(Status::invalid_argument(format!("the table has no column '{}'", field.name())));
        };
        if places.contains(&place) {
            return Err(Status::invalid_argument(format!("column '{}' is given twice", column.name)));
        }
        places.push(place);
        arrays.push(widened(column, array)?);
    }
    let fields = places.iter().filter_map(|at| schema.columns.get(*at));
    let fields: Vec<_> =
        fields.map(|column| arrow::datatypes::Field::new(&column.name, data_type(column.data_type), true)).collect();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let made =
        RecordBatch::try_new_with_options(std::sync::Arc::new(arrow::datatypes::Schema::new(fields)), arrays, &options);
    Ok((places, made.map_err(|error| Status::invalid_argument(error.to_string()))?))
}

/// Whether every value of one type is one of the other.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Decimal128, Dictionary, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32, Int64,
        LargeBinary, LargeUtf8, Null, Timestamp, UInt8, UInt16, UInt32, Utf8, Utf8View,
    };
    match (from, to) {
        (from, to) if from == to => true,
        (Null, _) => true,
        (Dictionary(_, value), to) => widens(value, to),
        (Int8 | UInt8, Int16 | Int32 | Int64) | (Int16 | UInt16, Int32 | Int64) | (Int32 | UInt32, Int64) => true,
        (Float32, Float64) => true,
        (LargeUtf8 | Utf8View, Utf8) | (LargeBinary | BinaryView | FixedSizeBinary(_), Binary) => true,
        (Decimal128(from, scale), Decimal128(to, more)) => scale <= more && from - *scale as u8 <= to - *more as u8,
        // The zone is only how it is shown; a table's is UTC.
        (Timestamp(from, zone), Timestamp(to, other)) => {
            fineness(*from) <= fineness(*to) && zone.is_some() == other.is_some()
        }
        _ => false,
    }
}

fn fineness(unit: TimeUnit) -> u8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    }
}

fn widened(column: &Column, array: &ArrayRef) -> Result<ArrayRef, Status> {
    let (from, to) = (array.data_type(), data_type(column.data_type));
    if *from == to {
        return Ok(array.clone());
    }
    if !widens(from, &to) {
        let what = format!("column '{}' is {} ({to}), it takes no {from}", column.name, column.data_type);
        return Err(Status::invalid_argument(what));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(array, &to, &options);
    cast.map_err(|error| Status::invalid_argument(format!("column '{}': {error}", column.name)))
}

fn primitive<T: ArrowPrimitiveType>(array: &ArrayRef, datum: impl Fn(T::Native) -> Datum) -> Option<Vec<Datum>> {
    let values = array.as_primitive_opt::<T>()?;
    Some(values.iter().map(|value| value.map_or(Datum::Null, &datum)).collect())
}

fn moment(array: &ArrayRef, unit: TimeUnit) -> Option<Vec<Datum>> {
    let parts = |value: i64, per_ms: i64| Datum::Timestamp {
        ms: value.div_euclid(per_ms),
        nanos: (value.rem_euclid(per_ms) * (1_000_000 / per_ms)) as u32,
    };
    match unit {
        TimeUnit::Second => primitive::<TimestampSecondType>(array, |value| Datum::Timestamp {
            ms: value.saturating_mul(1_000),
            nanos: 0,
        }),
        TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(array, |value| parts(value, 1)),
        TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(array, |value| parts(value, 1_000)),
        TimeUnit::Nanosecond => primitive::<TimestampNanosecondType>(array, |value| parts(value, 1_000_000)),
    }
}

/// The values of a column, in the column's own Arrow type.
fn data(column: &Column, array: &ArrayRef) -> Result<Vec<Datum>, Status> {
    let expected = data_type(column.data_type);
    let found = match &expected {
        DataType::Boolean => array
            .as_boolean_opt()
            .map(|values| values.iter().map(|value| value.map_or(Datum::Null, Datum::Boolean)).collect()),
        DataType::Int8 => primitive::<Int8Type>(array, Datum::TinyInt),
        DataType::Int16 => primitive::<Int16Type>(array, Datum::SmallInt),
        DataType::Int32 => primitive::<Int32Type>(array, Datum::Int),
        DataType::Int64 => primitive::<Int64Type>(array, Datum::BigInt),
        DataType::Float32 => primitive::<Float32Type>(array, Datum::Float),
        DataType::Float64 => primitive::<Float64Type>(array, Datum::Double),
        DataType::Decimal128(..) => primitive::<Decimal128Type>(array, Datum::Decimal),
        DataType::Date32 => primitive::<Date32Type>(array, Datum::Date),
        DataType::Utf8 => array.as_string_opt::<i32>().map(|values| {
            values.iter().map(|value| value.map_or(Datum::Null, |text| Datum::String(text.to_owned()))).collect()
        }),
        DataType::Binary => array.as_binary_opt::<i32>().map(|values| {
            values.iter().map(|value| value.map_or(Datum::Null, |bytes| Datum::Bytes(bytes.to_vec()))).collect()
        }),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary_opt().map(|values| {
            values.iter().map(|value| value.map_or(Datum::Null, |bytes| Datum::Bytes(bytes.to_vec()))).collect()
        }),
        DataType::Time32(TimeUnit::Second) => {
            primitive::<Time32SecondType>(array, |value| Datum::Time(value.saturating_mul(1_000)))
        }
        DataType::Time32(_) => primitive::<Time32MillisecondType>(array, Datum::Time),
        DataType::Time64(TimeUnit::Microsecond) => {
            primitive::<Time64MicrosecondType>(array, |value| Datum::Time((value / 1_000) as i32))
        }
        DataType::Time64(_) => {
            primitive::<Time64NanosecondType>(array, |value| Datum::Time((value / 1_000_000) as i32))
        }
        DataType::Timestamp(unit, _) => moment(array, *unit),
        _ => None,
    };
    let what =
        || format!("column '{}' is {} ({expected}), it takes no {}", column.name, column.data_type, array.data_type());
    found.ok_or_else(|| Status::invalid_argument(what()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::columns_of;
    use arrow::array::{Int16Array, Int64Array, StringArray};
    use sluice_engine::row::{self, ColumnSpec};
    use std::sync::Arc;

    #[test]
    fn every_type_comes_back_as_it_went_out() {
        let types = [
            (row::DataType::Boolean, Datum::Boolean(true)),
            (row::DataType::TinyInt, Datum::TinyInt(-1)),
            (row::DataType::SmallInt, Datum::SmallInt(-2)),
            (row::DataType::Int, Datum::Int(3)),
            (row::DataType::BigInt, Datum::BigInt(4)),
            (row::DataType::Float, Datum::Float(0.5)),
            (row::DataType::Double, Datum::Double(0.25)),
            (row::DataType::Decimal { precision: 38, scale: 2 }, Datum::Decimal(-7)),
            (row::DataType::Char { length: 1 }, Datum::String("x".into())),
            (row::DataType::String, Datum::String(String::new())),
            (row::DataType::Binary { length: 2 }, Datum::Bytes(vec![1, 2])),
            (row::DataType::Bytes, Datum::Bytes(Vec::new())),
            (row::DataType::Date, Datum::Date(-1)),
            (row::DataType::Time { precision: 0 }, Datum::Time(2_000)),
            (row::DataType::Time { precision: 3 }, Datum::Time(1)),
            (row::DataType::Time { precision: 6 }, Datum::Time(1)),
            (row::DataType::Time { precision: 9 }, Datum::Time(1)),
            (row::DataType::Timestamp { precision: 0 }, Datum::Timestamp { ms: -1_000, nanos: 0 }),
            (row::DataType::Timestamp { precision: 3 }, Datum::Timestamp { ms: -1, nanos: 0 }),
            (row::DataType::Timestamp { precision: 6 }, Datum::Timestamp { ms: -1, nanos: 1_000 }),
            (row::DataType::TimestampLtz { precision: 9 }, Datum::Timestamp { ms: -1, nanos: 1 }),
        ];
        let columns = types
            .iter()
            .enumerate()
            .map(|(at, (data_type, _))| ColumnSpec::from((at.to_string().as_str(), *data_type)));
        let schema = Schema::first(columns, Vec::new());
        let rows: Vec<Row> =
            vec![types.iter().map(|(_, datum)| datum.clone()).collect(), vec![Datum::Null; types.len()]];
        let places: Vec<usize> = (0..types.len()).collect();
        let arrays = columns_of(&schema, places.clone(), &rows.iter().collect::<Vec<_>>()).expect("builds");
        let fields: Vec<_> = arrays
            .iter()
            .enumerate()
            .map(|(at, array)| arrow::datatypes::Field::new(at.to_string(), array.data_type().clone(), true))
            .collect();
        let batch = RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields)), arrays).expect("a batch");
        assert_eq!(rows_of(&schema, &places, &batch).expect("reads"), rows);
    }

    #[test]
    fn columns_are_matched_by_name_and_widened_where_nothing_is_lost() {
        let key = ColumnSpec { nullable: false, ..("a", row::DataType::BigInt).into() };
        let schema = Schema::first([key, ("b", row::DataType::String).into()], vec![0]);
        let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).expect("a batch");
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let (places, made) =
            fitted(&schema, &batch(vec![("b", text.clone()), ("a", Arc::new(Int16Array::from(vec![7])))]))
                .expect("fits");
        assert_eq!(rows_of(&schema, &places, &made).expect("reads"), [[Datum::BigInt(7), Datum::String("x".into())]]);
        let refused = |columns| fitted(&schema, &batch(columns)).expect_err("refused").message().to_owned();
        assert!(refused(vec![("c", text.clone())]).contains("'c'"));
        assert!(refused(vec![("a", text.clone())]).contains("'a'"));
        let null: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let (places, made) = fitted(&schema, &batch(vec![("a", null)])).expect("fits");
        assert_eq!(rows_of(&schema, &places, &made).expect_err("null").message(), "row 1: column 'a' is NOT NULL");
    }
}
