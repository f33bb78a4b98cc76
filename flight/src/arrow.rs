//! Tables as Arrow sees them: schemas, and rows as record batches (table-model §2).

use std::sync::Arc;

use arrow::array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder, Float32Builder,
    Float64Builder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, StructBuilder,
};
use arrow::array::{
    ArrayRef, RecordBatch, Time32MillisecondArray, Time32SecondArray, Time64MicrosecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use sluice_engine::catalog::TableInfo;
use sluice_engine::row::{self, Datum, Row};
use sluice_engine::scan::RawRecord;

const UTC: &str = "UTC";

/// The unit that holds a precision's digits.
fn unit(precision: u8) -> TimeUnit {
    match precision {
        0 => TimeUnit::Second,
        1..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    }
}

/// The Arrow type of a column's.
pub(crate) fn data_type(of: row::DataType) -> DataType {
    match of {
        row::DataType::Boolean => DataType::Boolean,
        row::DataType::TinyInt => DataType::Int8,
        row::DataType::SmallInt => DataType::Int16,
        row::DataType::Int => DataType::Int32,
        row::DataType::BigInt => DataType::Int64,
        row::DataType::Float => DataType::Float32,
        row::DataType::Double => DataType::Float64,
        row::DataType::Decimal { precision, scale } => DataType::Decimal128(precision, scale as i8),
        row::DataType::Char { .. } | row::DataType::String => DataType::Utf8,
        row::DataType::Binary { length } => DataType::FixedSizeBinary(i32::try_from(length).unwrap_or(i32::MAX)),
        row::DataType::Bytes => DataType::Binary,
        row::DataType::Date => DataType::Date32,
        row::DataType::Time { precision: precision @ 0..=3 } => DataType::Time32(unit(precision)),
        row::DataType::Time { precision } => DataType::Time64(unit(precision)),
        row::DataType::Timestamp { precision } => DataType::Timestamp(unit(precision), None),
        row::DataType::TimestampLtz { precision } => DataType::Timestamp(unit(precision), Some(UTC.into())),
    }
}

fn header_fields() -> Fields {
    vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Binary, true)].into()
}

fn raw_schema() -> Schema {
    let header = Field::new("item", DataType::Struct(header_fields()), false);
    Schema::new(vec![
        Field::new("key", DataType::Binary, true),
        Field::new("value", DataType::Binary, true),
        Field::new("headers", DataType::List(Arc::new(header)), false),
        Field::new("timestamp", DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into())), false),
        Field::new("_bucket", DataType::Int32, false),
        Field::new("_log_offset", DataType::Int64, false),
    ])
}

/// The columns of a table.
pub(crate) fn schema_of(info: &TableInfo) -> SchemaRef {
    let schema = match &info.typed {
        None => raw_schema(),
        Some(table) => {
            let field = |column: &row::Column| Field::new(&column.name, data_type(column.data_type), column.nullable);
            Schema::new(table.schema.columns.iter().map(field).collect::<Vec<_>>())
        }
    };
    Arc::new(schema)
}

/// Columns of rows.
///
/// # Errors
/// When a value is none of its column's type, or too large for it.
pub(crate) fn columns_of(
    schema: &row::Schema,
    places: impl IntoIterator<Item = usize>,
    rows: &[&Row],
) -> Result<Vec<ArrayRef>, ArrowError> {
    let none = |at| ArrowError::SchemaError(format!("there is no column {at}"));
    let one = |at: usize| column_of(schema.columns.get(at).ok_or_else(|| none(at))?, rows, at);
    places.into_iter().map(one).collect()
}

/// Records of a raw table's bucket as a record batch.
///
/// # Errors
/// INTERNAL only: the columns are those of the schema.
pub(crate) fn raw_batch(schema: SchemaRef, bucket: u32, records: &[RawRecord]) -> Result<RecordBatch, ArrowError> {
    let (mut keys, mut values) = (BinaryBuilder::new(), BinaryBuilder::new());
    let header = StructBuilder::from_fields(header_fields(), 0);
    let item = Field::new("item", DataType::Struct(header_fields()), false);
    let mut headers = ListBuilder::new(header).with_field(item);
    for record in records {
        keys.append_option(record.key.as_deref());
        values.append_option(record.value.as_deref());
        for (name, value) in &record.headers {
            let entry = headers.values();
            if let Some(names) = entry.field_builder::<StringBuilder>(0) {
                names.append_value(String::from_utf8_lossy(name));
            }
            if let Some(values) = entry.field_builder::<BinaryBuilder>(1) {
                values.append_option(value.as_deref());
            }
            entry.append(true);
        }
        headers.append(true);
    }
    let times = TimestampMillisecondArray::from_iter_values(records.iter().map(|record| record.timestamp));
    let buckets = arrow::array::Int32Array::from_value(bucket as i32, records.len());
    let offsets = arrow::array::Int64Array::from_iter_values(records.iter().map(|record| record.offset));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys.finish()),
        Arc::new(values.finish()),
        Arc::new(headers.finish()),
        Arc::new(times.with_timezone(UTC)),
        Arc::new(buckets),
        Arc::new(offsets),
    ];
    RecordBatch::try_new(schema, columns)
}

fn misfit(column: &row::Column) -> ArrowError {
    ArrowError::InvalidArgumentError(format!("column '{}' holds a value that is no {}", column.name, column.data_type))
}

/// One column of rows, through the builder of its type.
macro_rules! build {
    ($column:expr, $rows:expr, $at:expr, $builder:expr, $variant:ident, $append:expr) => {{
        let mut builder = $builder;
        for row in $rows {
            match row.get($at) {
                Some(Datum::$variant(value)) => $append(&mut builder, value),
                Some(Datum::Null) => builder.append_null(),
                _ => return Err(misfit($column)),
            }
        }
        Arc::new(builder.finish()) as ArrayRef
    }};
    ($column:expr, $rows:expr, $at:expr, $builder:ident, $variant:ident) => {
        build!($column, $rows, $at, $builder::new(), $variant, |builder: &mut $builder, value: &_| builder
            .append_value(*value))
    };
}

fn column_of(column: &row::Column, rows: &[&Row], at: usize) -> Result<ArrayRef, ArrowError> {
    use row::DataType as Of;
    Ok(match column.data_type {
        Of::Boolean => build!(column, rows, at, BooleanBuilder, Boolean),
        Of::TinyInt => build!(column, rows, at, Int8Builder, TinyInt),
        Of::SmallInt => build!(column, rows, at, Int16Builder, SmallInt),
        Of::Int => build!(column, rows, at, Int32Builder, Int),
        Of::BigInt => build!(column, rows, at, Int64Builder, BigInt),
        Of::Float => build!(column, rows, at, Float32Builder, Float),
        Of::Double => build!(column, rows, at, Float64Builder, Double),
        Of::Date => build!(column, rows, at, Date32Builder, Date),
        Of::Decimal { precision, scale } => {
            let builder = Decimal128Builder::new().with_precision_and_scale(precision, scale as i8)?;
            build!(column, rows, at, builder, Decimal, |builder: &mut Decimal128Builder, value: &i128| builder
                .append_value(*value))
        }
        Of::Char { .. } | Of::String => {
            let append = |builder: &mut StringBuilder, value: &String| builder.append_value(value);
            build!(column, rows, at, StringBuilder::new(), String, append)
        }
        Of::Bytes => {
            let append = |builder: &mut BinaryBuilder, value: &Vec<u8>| builder.append_value(value);
            build!(column, rows, at, BinaryBuilder::new(), Bytes, append)
        }
        Of::Binary { length } => fixed_binary(column, rows, at, length)?,
        Of::Time { precision } => times(column, rows, at, precision)?,
        Of::Timestamp { precision } => timestamps(column, rows, at, precision, None)?,
        Of::TimestampLtz { precision } => timestamps(column, rows, at, precision, Some(UTC))?,
    })
}

fn fixed_binary(column: &row::Column, rows: &[&Row], at: usize, length: u32) -> Result<ArrayRef, ArrowError> {
    let mut builder = FixedSizeBinaryBuilder::new(i32::try_from(length).map_err(|_| misfit(column))?);
    for row in rows {
        match row.get(at) {
            Some(Datum::Bytes(value)) => builder.append_value(value).map_err(|_| misfit(column))?,
            Some(Datum::Null) => builder.append_null(),
            _ => return Err(misfit(column)),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Rows hold milliseconds whatever the precision.
fn times(column: &row::Column, rows: &[&Row], at: usize, precision: u8) -> Result<ArrayRef, ArrowError> {
    let value = |row: &&Row| match row.get(at) {
        Some(Datum::Time(ms)) => Ok(Some(*ms)),
        Some(Datum::Null) => Ok(None),
        _ => Err(misfit(column)),
    };
    let ms: Vec<Option<i32>> = rows.iter().map(value).collect::<Result<_, _>>()?;
    let long = |factor: i64| ms.iter().map(move |ms| ms.map(|ms| i64::from(ms) * factor));
    Ok(match unit(precision) {
        TimeUnit::Second => {
            Arc::new(ms.iter().map(|ms| ms.map(|ms| ms.div_euclid(1_000))).collect::<Time32SecondArray>())
        }
        TimeUnit::Millisecond => Arc::new(ms.iter().copied().collect::<Time32MillisecondArray>()),
        TimeUnit::Microsecond => Arc::new(long(1_000).collect::<Time64MicrosecondArray>()),
        TimeUnit::Nanosecond => Arc::new(long(1_000_000).collect::<Time64NanosecondArray>()),
    })
}

fn timestamps(
    column: &row::Column,
    rows: &[&Row],
    at: usize,
    precision: u8,
    zone: Option<&str>,
) -> Result<ArrayRef, ArrowError> {
    let unit = unit(precision);
    let value = |row: &&Row| match row.get(at) {
        Some(Datum::Timestamp { ms, nanos }) => in_unit(unit, *ms, *nanos).map(Some).ok_or_else(|| misfit(column)),
        Some(Datum::Null) => Ok(None),
        _ => Err(misfit(column)),
    };
    let values: Vec<Option<i64>> = rows.iter().map(value).collect::<Result<_, _>>()?;
    Ok(match unit {
        TimeUnit::Second => Arc::new(TimestampSecondArray::from(values).with_timezone_opt(zone)),
        TimeUnit::Millisecond => Arc::new(TimestampMillisecondArray::from(values).with_timezone_opt(zone)),
        TimeUnit::Microsecond => Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone)),
        TimeUnit::Nanosecond => Arc::new(TimestampNanosecondArray::from(values).with_timezone_opt(zone)),
    })
}

/// A moment in a unit, rounded down; `None` where the unit does not reach it.
fn in_unit(unit: TimeUnit, ms: i64, nanos: u32) -> Option<i64> {
    match unit {
        TimeUnit::Second => Some(ms.div_euclid(1_000)),
        TimeUnit::Millisecond => Some(ms),
        TimeUnit::Microsecond => ms.checked_mul(1_000)?.checked_add(i64::from(nanos / 1_000)),
        TimeUnit::Nanosecond => ms.checked_mul(1_000_000)?.checked_add(i64::from(nanos)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Array;

    #[test]
    fn moments_before_1970_keep_their_digits() {
        assert_eq!(in_unit(TimeUnit::Nanosecond, -1, 999_999), Some(-1));
        assert_eq!(in_unit(TimeUnit::Microsecond, -1, 1_999), Some(-999));
        assert_eq!(in_unit(TimeUnit::Second, -1, 0), Some(-1));
        assert_eq!(in_unit(TimeUnit::Nanosecond, i64::MAX, 0), None);
    }

    #[test]
    fn every_type_has_an_array_of_its_schema() {
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
            (row::DataType::Time { precision: 0 }, Datum::Time(1_500)),
            (row::DataType::Time { precision: 3 }, Datum::Time(1)),
            (row::DataType::Time { precision: 9 }, Datum::Time(1)),
            (row::DataType::Timestamp { precision: 0 }, Datum::Timestamp { ms: -1, nanos: 0 }),
            (row::DataType::Timestamp { precision: 6 }, Datum::Timestamp { ms: -1, nanos: 1_000 }),
            (row::DataType::TimestampLtz { precision: 9 }, Datum::Timestamp { ms: 1, nanos: 1 }),
        ];
        for (of, value) in types {
            let column = row::Column { id: 0, name: "c".into(), data_type: of, nullable: true, comment: None };
            let (good, null) = (vec![value], vec![Datum::Null]);
            let array = column_of(&column, &[&good, &null], 0).expect("builds");
            assert_eq!((array.data_type(), array.null_count()), (&data_type(of), 1), "{of}");
            let other = if of == row::DataType::Date { Datum::Boolean(true) } else { Datum::Date(0) };
            column_of(&column, &[&vec![other]], 0).expect_err("another type");
            column_of(&column, &[&Vec::new()], 0).expect_err("no value at all");
        }
    }
}
