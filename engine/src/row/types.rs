//! Types, columns, schemas and values of typed tables (table-model §§2, 3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// A scalar type with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DataType {
    /// true or false.
    Boolean,
    /// 8 bits, signed.
    #[serde(rename = "TINYINT")]
    TinyInt,
    /// 16 bits, signed.
    #[serde(rename = "SMALLINT")]
    SmallInt,
    /// 32 bits, signed.
    Int,
    /// 64 bits, signed.
    #[serde(rename = "BIGINT")]
    BigInt,
    /// IEEE-754, 32 bits.
    Float,
    /// IEEE-754, 64 bits.
    Double,
    /// Exact: `precision` digits in all (1 to 38), `scale` of them after the point.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// Text of a declared length in code points, which is not enforced.
    Char {
        /// Code points.
        length: u32,
    },
    /// Text.
    String,
    /// Exactly `length` bytes.
    Binary {
        /// Bytes.
        length: u32,
    },
    /// Bytes.
    Bytes,
    /// Days since 1970-01-01.
    Date,
    /// Time of day; rows hold milliseconds whatever the precision.
    Time {
        /// Digits after the second, 0 to 9.
        precision: u8,
    },
    /// Date and time of no zone.
    Timestamp {
        /// Digits after the second, 0 to 9.
        precision: u8,
    },
    /// An instant.
    TimestampLtz {
        /// Digits after the second, 0 to 9.
        precision: u8,
    },
}

impl fmt::Display for DataType {
    /// As Flink's DDL spells it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::TinyInt => f.write_str("TINYINT"),
            Self::SmallInt => f.write_str("SMALLINT"),
            Self::Int => f.write_str("INT"),
            Self::BigInt => f.write_str("BIGINT"),
            Self::Float => f.write_str("FLOAT"),
            Self::Double => f.write_str("DOUBLE"),
            Self::Decimal { precision, scale } => write!(f, "DECIMAL({precision}, {scale})"),
            Self::Char { length } => write!(f, "CHAR({length})"),
            Self::String => f.write_str("STRING"),
            Self::Binary { length } => write!(f, "BINARY({length})"),
            Self::Bytes => f.write_str("BYTES"),
            Self::Date => f.write_str("DATE"),
            Self::Time { precision } => write!(f, "TIME({precision})"),
            Self::Timestamp { precision } => write!(f, "TIMESTAMP({precision})"),
            Self::TimestampLtz { precision } => write!(f, "TIMESTAMP_LTZ({precision})"),
        }
    }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// No value.
    Null,
    /// BOOLEAN.
    Boolean(bool),
    /// TINYINT.
    TinyInt(i8),
    /// SMALLINT.
    SmallInt(i16),
    /// INT.
    Int(i32),
    /// BIGINT.
    BigInt(i64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL, without its point: the value times ten to the scale.
    Decimal(i128),
    /// CHAR and STRING.
    String(String),
    /// BINARY and BYTES.
    Bytes(Vec<u8>),
    /// DATE, days since 1970-01-01.
    Date(i32),
    /// TIME, milliseconds of the day.
    Time(i32),
    /// TIMESTAMP and TIMESTAMP_LTZ.
    Timestamp {
        /// Milliseconds since 1970-01-01T00:00:00 (of no zone, or UTC); may be negative.
        ms: i64,
        /// Nanoseconds of the millisecond, 0 to 999,999.
        nanos: u32,
    },
}

/// A row: one value for each column of its schema, in order.
pub type Row = Vec<Datum>;

/// What a row of a changelog does; the numbers are those of Fluss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChangeType {
    /// `+A`: appended to a log table.
    Append = 0,
    /// `+I`: a new key.
    Insert = 1,
    /// `-U`: a key's row before an update.
    UpdateBefore = 2,
    /// `+U`: a key's row after an update.
    UpdateAfter = 3,
    /// `-D`: a key's last row.
    Delete = 4,
}

impl ChangeType {
    /// The type with a number.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        [Self::Append, Self::Insert, Self::UpdateBefore, Self::UpdateAfter, Self::Delete].get(number as usize).copied()
    }
}

impl fmt::Display for ChangeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append => "+A",
            Self::Insert => "+I",
            Self::UpdateBefore => "-U",
            Self::UpdateAfter => "+U",
            Self::Delete => "-D",
        })
    }
}

/// A column as it is asked for: it has no id yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Its name, case-sensitive.
    pub name: String,
    /// Its type.
    #[serde(flatten)]
    pub data_type: DataType,
    /// Whether it may be NULL; columns of the primary key become NOT NULL whatever this says.
    pub nullable: bool,
    /// What people say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl From<(&str, DataType)> for ColumnSpec {
    /// A column that may be NULL.
    fn from((name, data_type): (&str, DataType)) -> Self {
        Self { name: name.to_owned(), data_type, nullable: true, comment: None }
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Never reused within the table; what matches columns over versions of the schema.
    pub id: u32,
    /// Its name, case-sensitive.
    pub name: String,
    /// Its type.
    #[serde(flatten)]
    pub data_type: DataType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What people say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl fmt::Display for Column {
    /// As Flink's DDL declares it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.name.replace('`', "``"), self.data_type)?;
        if !self.nullable {
            f.write_str(" NOT NULL")?;
        }
        match &self.comment {
            Some(comment) => write!(f, " COMMENT '{}'", comment.replace('\'', "''")),
            None => Ok(()),
        }
    }
}

/// One version of a table's schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// From 1, one more for each accepted change.
    pub id: i16,
    /// In declaration order.
    pub columns: Vec<Column>,
    /// Places in `columns` of the primary key, in key order; empty for log tables.
    pub primary_key: Vec<usize>,
    /// Largest column id ever given out, for the next one.
    pub highest_column_id: u32,
    /// How many columns each earlier version had, from version 1 on: columns are only ever added, at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_widths: Vec<u16>,
}

impl Schema {
    /// The first version of a table's schema: columns get their places as ids, and those of the primary
    /// key (places in `columns`, in key order) are NOT NULL.
    #[must_use]
    pub fn first(columns: impl IntoIterator<Item = ColumnSpec>, primary_key: Vec<usize>) -> Self {
        let column = |(place, spec): (usize, ColumnSpec)| Column {
            id: place as u32,
            name: spec.name,
            data_type: spec.data_type,
            nullable: spec.nullable && !primary_key.contains(&place),
            comment: spec.comment,
        };
        let columns: Vec<_> = columns.into_iter().enumerate().map(column).collect();
        let highest_column_id = (columns.len() as u32).saturating_sub(1);
        Self { id: 1, columns, primary_key, highest_column_id, earlier_widths: Vec::new() }
    }

    /// How many columns the rows of a version have; `None` where this schema does not know the version.
    #[must_use]
    pub fn width_of(&self, version: i16) -> Option<usize> {
        if version == self.id {
            return Some(self.columns.len());
        }
        let at = usize::try_from(version).ok()?.checked_sub(1)?;
        self.earlier_widths.get(at).map(|width| usize::from(*width))
    }

    /// Whether this version, or one before it, has so many columns.
    pub(crate) fn is_width(&self, width: usize) -> bool {
        width == self.columns.len() || self.earlier_widths.iter().any(|earlier| usize::from(*earlier) == width)
    }

    /// The next version, with more columns at the end (table-model §16).
    ///
    /// # Errors
    /// `InvalidArgument` that names a column that is NOT NULL, or says that there can be no more; `AlreadyExists` for a
    /// name that is taken.
    pub fn with_columns(&self, added: Vec<ColumnSpec>) -> Result<Self> {
        let mut next = self.clone();
        for spec in added {
            if next.position(&spec.name).is_some() {
                return Err(Error::new(ErrorKind::AlreadyExists, format!("column '{}' already exists", spec.name)));
            }
            if !spec.nullable {
                let what = format!("column '{}' must be nullable: the rows that are there have no value", spec.name);
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
            next.highest_column_id += 1;
            let ColumnSpec { name, data_type, nullable, comment } = spec;
            next.columns.push(Column { id: next.highest_column_id, name, data_type, nullable, comment });
        }
        let full = || Error::new(ErrorKind::InvalidArgument, "the table can have no more columns");
        next.earlier_widths.push(u16::try_from(self.columns.len()).map_err(|_| full())?);
        next.id = next.id.checked_add(1).ok_or_else(full)?;
        Ok(next)
    }

    /// Its columns as CREATE TABLE declares them, without the parentheses.
    #[must_use]
    pub fn declaration(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(Column::to_string).collect();
        columns.join(", ")
    }

    /// The place of a column.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_added_at_the_end_under_ids_of_their_own() {
        let first = Schema::first([("a", DataType::Int).into(), ("b", DataType::String).into()], vec![0]);
        let added = |names: &[&str]| names.iter().map(|name| (*name, DataType::Int).into()).collect::<Vec<_>>();
        let third = first.with_columns(added(&["c"])).expect("adds").with_columns(added(&["d", "e"])).expect("adds");
        let columns: Vec<_> = third.columns.iter().map(|column| (column.id, column.name.as_str())).collect();
        assert_eq!(columns, [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]);
        let widths: Vec<_> = (-1..=4).map(|version| third.width_of(version)).collect();
        assert_eq!(widths, [None, None, Some(2), Some(3), Some(5), None]);
        let kind = |added| third.with_columns(added).expect_err("refused").kind;
        assert_eq!(kind(added(&["b"])), ErrorKind::AlreadyExists);
        assert_eq!(kind(added(&["f", "f"])), ErrorKind::AlreadyExists);
        let not_null = ColumnSpec { nullable: false, ..("f", DataType::Int).into() };
        assert_eq!(kind(vec![not_null]), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_schema_stored_before_there_were_versions_is_the_first() {
        let first = Schema::first([("a", DataType::Int).into()], Vec::new());
        let stored = serde_json::to_string(&first).expect("JSON");
        assert!(!stored.contains("earlier_widths"), "{stored}");
        assert_eq!(serde_json::from_str::<Schema>(&stored).expect("reads"), first);
    }
}
