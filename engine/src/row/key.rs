//! Keys of the KV store (docs/storage-format-typed.md §§2.1, 2.2): their bytes sort as what they name, and no
//! encoding of a column is a prefix of another, so that whole columns make a prefix to scan by.
//!
//! ```text
//! 00                                          format record
//! 01 | partition u64 | bucket u32             applied record
//! 02 | column id u32 | partition | bucket     auto-increment
//! 20 | bucket u32 | key columns               row of an unpartitioned table
//! 21 | partition u64 | bucket u32 | columns   row of a partitioned table
//! ```
//! All big-endian; partition all ones: the table has none.

use super::bucket::quiet;
use super::types::{Column, DataType, Datum, Schema};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{BucketId, TableId};

const FORMAT: u8 = 0x00;
const APPLIED: u8 = 0x01;
const AUTO_INCREMENT: u8 = 0x02;
const ROW: u8 = 0x20;
const PARTITIONED_ROW: u8 = 0x21;

const NO_PARTITION: u64 = u64::MAX;
/// Decimals up to this precision take eight bytes, larger ones sixteen.
const COMPACT_PRECISION: u8 = 18;
/// Timestamps up to this precision are whole milliseconds.
const MS_PRECISION: u8 = 3;
const NANOS_MAX: u32 = 999_999;
/// After a zero byte: it was one of the value's own.
const ESCAPED: u8 = 0xff;

/// What a key of the store names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKey<'a> {
    /// The format record, of which there is one.
    Format,
    /// The applied record of a bucket.
    Applied(Place),
    /// The state of an auto-increment column in a bucket.
    AutoIncrement {
        /// The column's id.
        column: u32,
        /// The bucket.
        place: Place,
    },
    /// A row.
    Row {
        /// Its bucket.
        place: Place,
        /// Its key columns, encoded: for [`read_columns`].
        columns: &'a [u8],
    },
}

/// A bucket within its table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The table's partition; `None` for unpartitioned tables.
    pub partition: Option<i64>,
    /// The bucket's number.
    pub bucket: u32,
}

impl From<BucketId> for Place {
    fn from(bucket: BucketId) -> Self {
        Self { partition: bucket.partition, bucket: bucket.bucket }
    }
}

impl Place {
    /// The bucket here of a table.
    #[must_use]
    pub fn of(self, table: TableId) -> BucketId {
        BucketId { table, partition: self.partition, bucket: self.bucket }
    }

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.map_or(NO_PARTITION, i64::cast_unsigned).to_be_bytes());
        out.extend_from_slice(&self.bucket.to_be_bytes());
    }

    fn read(input: &mut Input<'_>) -> Result<Self> {
        let partition = u64::from_be_bytes(input.array()?);
        let partition = (partition != NO_PARTITION).then(|| partition.cast_signed());
        Ok(Self { partition, bucket: u32::from_be_bytes(input.array()?) })
    }

    /// What the keys of this bucket's rows begin with.
    #[must_use]
    pub fn row_prefix(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        if self.partition.is_some() {
            out.push(PARTITIONED_ROW);
            self.write(&mut out);
        } else {
            out.push(ROW);
            out.extend_from_slice(&self.bucket.to_be_bytes());
        }
        out
    }
}

impl StoreKey<'_> {
    /// The key's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17);
        match self {
            Self::Format => out.push(FORMAT),
            Self::Applied(place) => {
                out.push(APPLIED);
                place.write(&mut out);
            }
            Self::AutoIncrement { column, place } => {
                out.push(AUTO_INCREMENT);
                out.extend_from_slice(&column.to_be_bytes());
                place.write(&mut out);
            }
            Self::Row { place, columns } => {
                out = place.row_prefix();
                out.extend_from_slice(columns);
            }
        }
        out
    }
}

impl<'a> StoreKey<'a> {
    /// Reads a key.
    ///
    /// # Errors
    /// `Unsupported` for a kind of key that a newer version writes, `Corrupt` for any other that is none.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut input = Input(bytes);
        let [kind] = input.array()?;
        let key = match kind {
            FORMAT => Self::Format,
            APPLIED => Self::Applied(Place::read(&mut input)?),
            AUTO_INCREMENT => {
                Self::AutoIncrement { column: u32::from_be_bytes(input.array()?), place: Place::read(&mut input)? }
            }
            ROW => {
                let bucket = u32::from_be_bytes(input.array()?);
                return Ok(Self::Row { place: Place { partition: None, bucket }, columns: input.0 });
            }
            PARTITIONED_ROW => {
                let place = Place::read(&mut input)?;
                place.partition.ok_or_else(|| corrupt("a row of no partition"))?;
                return Ok(Self::Row { place, columns: input.0 });
            }
            newer => {
                let what = format!("the store was written by a newer version: key kind {newer:#04x}");
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        };
        if input.0.is_empty() { Ok(key) } else { Err(corrupt("bytes follow it")) }
    }
}

/// Appends the values at `columns`, in that order: of a whole key, or of its first columns for a prefix.
///
/// # Errors
/// `InvalidArgument` that names the column which is missing, NULL or of another type.
pub fn write_columns(schema: &Schema, columns: &[usize], row: &[Datum], out: &mut Vec<u8>) -> Result<()> {
    for at in columns {
        let (Some(column), Some(value)) = (schema.columns.get(*at), row.get(*at)) else {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the row has no column {at}")));
        };
        write_column(column, value, out)?;
    }
    Ok(())
}

fn write_column(column: &Column, value: &Datum, out: &mut Vec<u8>) -> Result<()> {
    let fault = || {
        let what = format!("key column '{}': {value:?} is no key of type {}", column.name, column.data_type);
        Error::new(ErrorKind::InvalidArgument, what)
    };
    match (column.data_type, quiet(value).as_ref()) {
        (DataType::Boolean, Datum::Boolean(value)) => out.push(u8::from(*value)),
        (DataType::TinyInt, Datum::TinyInt(value)) => out.extend(flip_sign(value.to_be_bytes())),
        (DataType::SmallInt, Datum::SmallInt(value)) => out.extend(flip_sign(value.to_be_bytes())),
        (DataType::Int, Datum::Int(value))
        | (DataType::Date, Datum::Date(value))
        | (DataType::Time { .. }, Datum::Time(value)) => out.extend(flip_sign(value.to_be_bytes())),
        (DataType::BigInt, Datum::BigInt(value)) => out.extend(flip_sign(value.to_be_bytes())),
        (DataType::Float, Datum::Float(value)) => out.extend(order_float(value.to_be_bytes())),
        (DataType::Double, Datum::Double(value)) => out.extend(order_float(value.to_be_bytes())),
        (DataType::Decimal { precision, .. }, Datum::Decimal(value)) if precision <= COMPACT_PRECISION => {
            let value = i64::try_from(*value).map_err(|_| fault())?;
            out.extend(flip_sign(value.to_be_bytes()));
        }
        (DataType::Decimal { .. }, Datum::Decimal(value)) => out.extend(flip_sign(value.to_be_bytes())),
        (DataType::Timestamp { precision } | DataType::TimestampLtz { precision }, Datum::Timestamp { ms, nanos })
            if *nanos <= NANOS_MAX =>
        {
            out.extend(flip_sign(ms.to_be_bytes()));
            if precision > MS_PRECISION {
                out.extend(nanos.to_be_bytes());
            }
        }
        (DataType::Char { .. } | DataType::String, Datum::String(value)) => write_bytes(value.as_bytes(), out),
        (DataType::Bytes, Datum::Bytes(value)) => write_bytes(value, out),
        (DataType::Binary { length }, Datum::Bytes(value)) if value.len() == length as usize => write_bytes(value, out),
        _ => return Err(fault()),
    }
    Ok(())
}

/// Big-endian, so that negative numbers sort below the others.
fn flip_sign<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    bytes
}

/// IEEE bits, big-endian, in the order of the numbers: larger magnitudes of negative ones sort lower.
fn order_float<const N: usize>(bytes: [u8; N]) -> [u8; N] {
    if bytes.first().is_some_and(|first| first & 0x80 != 0) { bytes.map(|byte| !byte) } else { flip_sign(bytes) }
}

fn unorder_float<const N: usize>(bytes: [u8; N]) -> [u8; N] {
    if bytes.first().is_some_and(|first| first & 0x80 != 0) { flip_sign(bytes) } else { bytes.map(|byte| !byte) }
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(ESCAPED);
        }
    }
    out.extend([0, 0]);
}

/// Reads key columns that take all of `bytes`.
///
/// # Errors
/// `Corrupt` when they are no values of these columns; `InvalidArgument` when the schema lacks one.
pub fn read_columns(schema: &Schema, columns: &[usize], bytes: &[u8]) -> Result<Vec<Datum>> {
    let mut input = Input(bytes);
    let mut key = Vec::with_capacity(columns.len());
    for at in columns {
        let column = schema.columns.get(*at);
        let column =
            column.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("the schema has no column {at}")))?;
        key.push(input.value(column.data_type)?);
    }
    if input.0.is_empty() { Ok(key) } else { Err(corrupt("bytes follow it")) }
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a stored key: {what}"))
}

/// Takes values off untrusted bytes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(|| corrupt("it ends early"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn value(&mut self, data_type: DataType) -> Result<Datum> {
        Ok(match data_type {
            DataType::Boolean => match self.array()? {
                [0] => Datum::Boolean(false),
                [1] => Datum::Boolean(true),
                _ => return Err(corrupt("a boolean is neither 0 nor 1")),
            },
            DataType::TinyInt => Datum::TinyInt(i8::from_be_bytes(flip_sign(self.array()?))),
            DataType::SmallInt => Datum::SmallInt(i16::from_be_bytes(flip_sign(self.array()?))),
            DataType::Int => Datum::Int(self.int()?),
            DataType::Date => Datum::Date(self.int()?),
            DataType::Time { .. } => Datum::Time(self.int()?),
            DataType::BigInt => Datum::BigInt(self.bigint()?),
            DataType::Float => Datum::Float(f32::from_be_bytes(unorder_float(self.array()?))),
            DataType::Double => Datum::Double(f64::from_be_bytes(unorder_float(self.array()?))),
            DataType::Decimal { precision, .. } if precision <= COMPACT_PRECISION => {
                Datum::Decimal(self.bigint()?.into())
            }
            DataType::Decimal { .. } => Datum::Decimal(i128::from_be_bytes(flip_sign(self.array()?))),
            DataType::Timestamp { precision } | DataType::TimestampLtz { precision } => self.timestamp(precision)?,
            DataType::Char { .. } | DataType::String => {
                Datum::String(String::from_utf8(self.bytes()?).map_err(|_| corrupt("a text is not UTF-8"))?)
            }
            DataType::Binary { .. } | DataType::Bytes => Datum::Bytes(self.bytes()?),
        })
    }

    fn int(&mut self) -> Result<i32> {
        self.array().map(flip_sign).map(i32::from_be_bytes)
    }

    fn bigint(&mut self) -> Result<i64> {
        self.array().map(flip_sign).map(i64::from_be_bytes)
    }

    fn timestamp(&mut self, precision: u8) -> Result<Datum> {
        let ms = self.bigint()?;
        let nanos = if precision > MS_PRECISION { u32::from_be_bytes(self.array()?) } else { 0 };
        if nanos > NANOS_MAX {
            return Err(corrupt("too many nanoseconds"));
        }
        Ok(Datum::Timestamp { ms, nanos })
    }

    fn bytes(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match self.array()? {
                [0] => match self.array()? {
                    [0] => return Ok(out),
                    [ESCAPED] => out.push(0),
                    _ => return Err(corrupt("a zero byte that is neither escaped nor an end")),
                },
                [byte] => out.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests;
