//! Fluss's compacted encoding of values and rows (table-model §5.1; docs/storage-format-typed.md §1.8).
//!
//! A value's encoding says where it ends, but does not sort as the value does.

use super::types::{DataType, Datum, Row, Schema};
use crate::error::{Error, ErrorKind, Result};

/// Decimals up to this precision fit an i64.
const COMPACT_PRECISION: u8 = 18;
/// Timestamps up to this precision are whole milliseconds.
const MS_PRECISION: u8 = 3;
/// Nanoseconds of a millisecond.
const NANOS_MAX: u32 = 999_999;

/// Appends a value that is not NULL.
///
/// # Errors
/// `InvalidArgument` where the value is not one of the type; BINARY of another length among them.
pub fn write_value(data_type: DataType, value: &Datum, out: &mut Vec<u8>) -> Result<()> {
    match (data_type, value) {
        (DataType::Boolean, Datum::Boolean(value)) => out.push(u8::from(*value)),
        (DataType::TinyInt, Datum::TinyInt(value)) => out.extend_from_slice(&value.to_le_bytes()),
        (DataType::SmallInt, Datum::SmallInt(value)) => out.extend_from_slice(&value.to_le_bytes()),
        (DataType::Int, Datum::Int(value))
        | (DataType::Date, Datum::Date(value))
        | (DataType::Time { .. }, Datum::Time(value)) => write_varint(u64::from(*value as u32), out),
        (DataType::BigInt, Datum::BigInt(value)) => write_varint(*value as u64, out),
        (DataType::Float, Datum::Float(value)) => out.extend_from_slice(&value.to_le_bytes()),
        (DataType::Double, Datum::Double(value)) => out.extend_from_slice(&value.to_le_bytes()),
        (DataType::Decimal { precision, .. }, Datum::Decimal(value)) => write_decimal(precision, *value, out)?,
        (DataType::Char { .. } | DataType::String, Datum::String(value)) => write_bytes(value.as_bytes(), out),
        (DataType::Bytes, Datum::Bytes(value)) => write_bytes(value, out),
        (DataType::Binary { length }, Datum::Bytes(value)) => {
            if value.len() != length as usize {
                return Err(mismatch(data_type, &format!("{} bytes", value.len())));
            }
            write_bytes(value, out);
        }
        (DataType::Timestamp { precision } | DataType::TimestampLtz { precision }, Datum::Timestamp { ms, nanos }) => {
            write_varint(*ms as u64, out);
            if precision > MS_PRECISION {
                write_varint(u64::from(*nanos), out);
            }
        }
        (_, value) => return Err(mismatch(data_type, &format!("{value:?}"))),
    }
    Ok(())
}

fn mismatch(data_type: DataType, what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("{what} is no value of type {data_type}"))
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write_decimal(precision: u8, value: i128, out: &mut Vec<u8>) -> Result<()> {
    if precision <= COMPACT_PRECISION {
        let value =
            i64::try_from(value).map_err(|_| mismatch(DataType::Decimal { precision, scale: 0 }, "its value"))?;
        write_varint(value as u64, out);
        return Ok(());
    }
    let bytes = value.to_be_bytes();
    // The shortest form that keeps the sign, as Java's BigInteger has it.
    let sign = if value < 0 { 0xff } else { 0 };
    let redundant =
        |at: &usize| bytes.get(*at) == Some(&sign) && bytes.get(at + 1).is_some_and(|next| (next ^ sign) & 0x80 == 0);
    let skipped = (0..bytes.len() - 1).take_while(redundant).count();
    write_bytes(bytes.get(skipped..).unwrap_or_default(), out);
    Ok(())
}

/// Appends a row: a bitmap of what is NULL, then the other values in column order. A row as wide as an earlier version
/// of the schema is of a writer that knows of no other: the columns that came later are NULL (table-model §16).
///
/// # Errors
/// `InvalidArgument` that names the column whose value does not fit.
pub fn write_row(schema: &Schema, row: &Row, out: &mut Vec<u8>) -> Result<()> {
    if !schema.is_width(row.len()) {
        let what = format!("a row of {} values for {} columns", row.len(), schema.columns.len());
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    let start = out.len();
    out.resize(start + schema.columns.len().div_ceil(8), 0);
    let values = row.iter().chain(std::iter::repeat(&Datum::Null));
    for (at, (column, value)) in schema.columns.iter().zip(values).enumerate() {
        let fault = |error: Error| Error::new(error.kind, format!("column '{}': {}", column.name, error.message));
        if *value != Datum::Null {
            write_value(column.data_type, value, out).map_err(fault)?;
        } else if column.nullable {
            if let Some(byte) = out.get_mut(start + at / 8) {
                *byte |= 1 << (at % 8);
            }
        } else {
            return Err(fault(Error::new(ErrorKind::InvalidArgument, "is NOT NULL")));
        }
    }
    Ok(())
}

/// Takes values off untrusted bytes.
struct Input<'a>(&'a [u8]);

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a stored row: {what}"))
}

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| corrupt("it ends early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| corrupt("it ends early"))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(corrupt("a number is too long"))
    }

    fn varint32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| corrupt("a number is too long"))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.varint()?).map_err(|_| corrupt("a length is too large"))?;
        self.take(len)
    }

    fn decimal(&mut self, precision: u8) -> Result<i128> {
        if precision <= COMPACT_PRECISION {
            return self.varint().map(|value| i128::from(value as i64));
        }
        let bytes = self.bytes()?;
        let sign = bytes.first().ok_or_else(|| corrupt("an empty decimal"))? & 0x80;
        let mut whole = [if sign != 0 { 0xff } else { 0 }; 16];
        let place = 16usize.checked_sub(bytes.len()).and_then(|from| whole.get_mut(from..));
        place.ok_or_else(|| corrupt("a decimal is too long"))?.copy_from_slice(bytes);
        Ok(i128::from_be_bytes(whole))
    }

    fn timestamp(&mut self, precision: u8) -> Result<Datum> {
        let ms = self.varint()? as i64;
        let nanos = if precision > MS_PRECISION { self.varint32()? } else { 0 };
        if nanos > NANOS_MAX {
            return Err(corrupt("too many nanoseconds"));
        }
        Ok(Datum::Timestamp { ms, nanos })
    }

    fn value(&mut self, data_type: DataType) -> Result<Datum> {
        Ok(match data_type {
            DataType::Boolean => match self.array()? {
                [0] => Datum::Boolean(false),
                [1] => Datum::Boolean(true),
                _ => return Err(corrupt("a boolean is neither 0 nor 1")),
            },
            DataType::TinyInt => Datum::TinyInt(i8::from_le_bytes(self.array()?)),
            DataType::SmallInt => Datum::SmallInt(i16::from_le_bytes(self.array()?)),
            DataType::Int => Datum::Int(self.varint32()? as i32),
            DataType::Date => Datum::Date(self.varint32()? as i32),
            DataType::Time { .. } => Datum::Time(self.varint32()? as i32),
            DataType::BigInt => Datum::BigInt(self.varint()? as i64),
            DataType::Float => Datum::Float(f32::from_le_bytes(self.array()?)),
            DataType::Double => Datum::Double(f64::from_le_bytes(self.array()?)),
            DataType::Decimal { precision, .. } => Datum::Decimal(self.decimal(precision)?),
            DataType::Char { .. } | DataType::String => {
                let text = String::from_utf8(self.bytes()?.to_vec()).map_err(|_| corrupt("a text is not UTF-8"))?;
                Datum::String(text)
            }
            DataType::Binary { .. } | DataType::Bytes => Datum::Bytes(self.bytes()?.to_vec()),
            DataType::Timestamp { precision } | DataType::TimestampLtz { precision } => self.timestamp(precision)?,
        })
    }
}

/// Reads a row that takes all of `bytes` and was written in a version of the schema; columns that came later are NULL.
///
/// # Errors
/// `Corrupt` when they are no row of that version, or the schema knows of no such version.
pub fn read_row(schema: &Schema, version: i16, bytes: &[u8]) -> Result<Row> {
    let unknown = || corrupt(&format!("it is of version {version} of its schema, of which {} is the last", schema.id));
    let width = schema.width_of(version).ok_or_else(unknown)?;
    let mut input = Input(bytes);
    let nulls = input.take(width.div_ceil(8))?;
    let is_null = |at: usize| nulls.get(at / 8).is_some_and(|byte| byte & (1 << (at % 8)) != 0);
    let mut row = Vec::with_capacity(schema.columns.len());
    for (at, column) in schema.columns.iter().take(width).enumerate() {
        row.push(if is_null(at) { Datum::Null } else { input.value(column.data_type)? });
    }
    row.resize(schema.columns.len(), Datum::Null);
    if !input.0.is_empty() {
        return Err(corrupt("bytes follow it"));
    }
    Ok(row)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn schema(types: &[DataType]) -> Schema {
        let names = (0..).map(|at| format!("c{at}"));
        Schema::first(names.zip(types).map(|(name, of)| (name.as_str(), *of).into()), Vec::new())
    }

    pub(crate) const ALL: [DataType; 18] = [
        DataType::Boolean,
        DataType::TinyInt,
        DataType::SmallInt,
        DataType::Int,
        DataType::BigInt,
        DataType::Float,
        DataType::Double,
        DataType::Decimal { precision: 18, scale: 2 },
        DataType::Decimal { precision: 38, scale: 6 },
        DataType::Char { length: 3 },
        DataType::String,
        DataType::Binary { length: 2 },
        DataType::Bytes,
        DataType::Date,
        DataType::Time { precision: 3 },
        DataType::Timestamp { precision: 3 },
        DataType::Timestamp { precision: 9 },
        DataType::TimestampLtz { precision: 6 },
    ];

    pub(crate) fn value(data_type: DataType) -> BoxedStrategy<Datum> {
        let largest = |digits: u8| 10i128.pow(u32::from(digits)) - 1;
        match data_type {
            DataType::Boolean => any::<bool>().prop_map(Datum::Boolean).boxed(),
            DataType::TinyInt => any::<i8>().prop_map(Datum::TinyInt).boxed(),
            DataType::SmallInt => any::<i16>().prop_map(Datum::SmallInt).boxed(),
            DataType::Int => any::<i32>().prop_map(Datum::Int).boxed(),
            DataType::BigInt => any::<i64>().prop_map(Datum::BigInt).boxed(),
            DataType::Float => (-1e30f32..1e30).prop_map(Datum::Float).boxed(),
            DataType::Double => (-1e300..1e300).prop_map(Datum::Double).boxed(),
            DataType::Decimal { precision, .. } => {
                (-largest(precision)..=largest(precision)).prop_map(Datum::Decimal).boxed()
            }
            DataType::Char { .. } | DataType::String => ".{0,12}".prop_map(Datum::String).boxed(),
            DataType::Binary { .. } => any::<[u8; 2]>().prop_map(|bytes| Datum::Bytes(bytes.to_vec())).boxed(),
            DataType::Bytes => proptest::collection::vec(any::<u8>(), 0..9).prop_map(Datum::Bytes).boxed(),
            DataType::Date => any::<i32>().prop_map(Datum::Date).boxed(),
            DataType::Time { .. } => (0..86_400_000).prop_map(Datum::Time).boxed(),
            DataType::Timestamp { precision } | DataType::TimestampLtz { precision } => {
                let nanos = if precision > 3 { 0..=NANOS_MAX } else { 0..=0 };
                (any::<i64>(), nanos).prop_map(|(ms, nanos)| Datum::Timestamp { ms, nanos }).boxed()
            }
        }
    }

    /// Rows of [`ALL`].
    pub(crate) fn row() -> impl Strategy<Value = Row> {
        let cell = |data_type: DataType| prop_oneof![1 => Just(Datum::Null), 4 => value(data_type)];
        ALL.iter().map(|data_type| cell(*data_type)).collect::<Vec<_>>()
    }

    proptest! {
        #[test]
        fn rows_come_back(row in row()) {
            let (schema, mut bytes) = (schema(&ALL), Vec::new());
            write_row(&schema, &row, &mut bytes).expect("writes");
            prop_assert_eq!(read_row(&schema, 1, &bytes).expect("reads"), row);
            bytes.push(0);
            prop_assert!(read_row(&schema, 1, &bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_row(&schema(&ALL), 1, &bytes);
        }
    }

    #[test]
    fn values_are_the_bytes_of_fluss() {
        let bytes = |data_type, value: Datum| {
            let mut out = Vec::new();
            write_value(data_type, &value, &mut out).expect("writes");
            out
        };
        assert_eq!(bytes(DataType::Int, Datum::Int(300)), [0xac, 2]);
        assert_eq!(bytes(DataType::Int, Datum::Int(-1)), [0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(bytes(DataType::BigInt, Datum::BigInt(-1)), [[0xff; 9].as_slice(), &[1]].concat());
        assert_eq!(bytes(DataType::String, Datum::String("é".into())), [2, 0xc3, 0xa9]);
        let wide = DataType::Decimal { precision: 20, scale: 0 };
        assert_eq!(bytes(wide, Datum::Decimal(-1)), [1, 0xff]);
        assert_eq!(bytes(wide, Datum::Decimal(128)), [2, 0, 0x80]);
        assert_eq!(bytes(wide, Datum::Decimal(0)), [1, 0]);
    }

    #[test]
    fn a_value_that_does_not_fit_names_its_column() {
        let message = |row: Row| {
            write_row(&schema(&[DataType::Int, DataType::Binary { length: 2 }]), &row, &mut Vec::new())
                .expect_err("refused")
                .message
        };
        assert!(message(vec![Datum::BigInt(1), Datum::Null]).starts_with("column 'c0': "));
        assert!(
            message(vec![Datum::Int(1), Datum::Bytes(vec![1])])
                .contains("column 'c1': 1 bytes is no value of type BINARY(2)")
        );
        assert!(message(vec![Datum::Int(1)]).contains("1 values for 2 columns"));
    }
}
