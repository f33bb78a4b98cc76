//! What databases, tables, partitions, columns, types and custom attributes may be called and hold
//! (table-model §§1, 2, 21).

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::row::{ColumnSpec, DataType};

/// Longest name of a database or table, and longest partition value, in characters.
pub const NAME_MAX: usize = 200;
/// Longest column name, in bytes.
pub const COLUMN_NAME_MAX: usize = 255;
/// Names that the server gives to columns of its own.
pub const RESERVED_COLUMNS: &[&str] =
    &["__offset", "__timestamp", "__bucket", "_change_type", "_log_offset", "_commit_timestamp"];
/// No column of a user begins so.
const RESERVED_COLUMN_PREFIX: &str = "__sluice_";

const ATTRIBUTE_KEY_MAX: usize = 100;
const ATTRIBUTE_VALUE_MAX: usize = 4_096;
const ATTRIBUTES_MAX: usize = 10_240;

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

fn check_chars(what: &str, name: &str) -> Result<()> {
    let reason = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." | ".." => format!("'{name}' is not allowed"),
        _ if name.chars().count() > NAME_MAX => format!("it is longer than {NAME_MAX} characters"),
        _ => match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))) {
            Some(c) => format!("'{c}' is not an ASCII letter or digit, '_' or '-'"),
            None => return Ok(()),
        },
    };
    refuse(format!("{what} '{name}' is invalid: {reason}"))
}

fn check_name(what: &str, name: &str) -> Result<()> {
    check_chars(what, name)?;
    if name.starts_with("__") {
        return refuse(format!("{what} '{name}' is invalid: names that begin with '__' are reserved"));
    }
    Ok(())
}

/// Checks the name of a database (table-model §1).
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_database_name(name: &str) -> Result<()> {
    check_name("database name", name)
}

/// Checks the name of a typed table (table-model §1).
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_table_name(name: &str) -> Result<()> {
    check_name("table name", name)
}

/// Checks one value of a partition that is to be created; to drop or list one, the reserved prefix
/// `__` is tolerated (table-model §1).
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_partition_value(value: &str, creating: bool) -> Result<()> {
    if creating { check_name("partition value", value) } else { check_chars("partition value", value) }
}

/// Checks the name of a column, at CREATE and at ADD COLUMN (table-model §§1, 21).
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_column_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return refuse("a column name is empty");
    }
    if name.len() > COLUMN_NAME_MAX {
        return refuse(format!("column name '{name}' is longer than {COLUMN_NAME_MAX} bytes"));
    }
    if RESERVED_COLUMNS.contains(&name) || name.starts_with(RESERVED_COLUMN_PREFIX) {
        let reserved = RESERVED_COLUMNS.join(", ");
        return refuse(format!(
            "column name '{name}' is reserved; so are {reserved} and all that begin with '{RESERVED_COLUMN_PREFIX}'"
        ));
    }
    Ok(())
}

/// Checks the parameters of a type (table-model §2).
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_type(data_type: DataType) -> Result<()> {
    let reason = match data_type {
        DataType::Decimal { precision, .. } if !(1..=38).contains(&precision) => "precision is from 1 to 38",
        DataType::Decimal { precision, scale } if scale > precision => "scale is from 0 to the precision",
        DataType::Char { length } | DataType::Binary { length } if length == 0 || length > i32::MAX as u32 => {
            "length is from 1 to 2147483647"
        }
        DataType::Time { precision } | DataType::Timestamp { precision } | DataType::TimestampLtz { precision }
            if precision > 9 =>
        {
            "precision is from 0 to 9"
        }
        _ => return Ok(()),
    };
    refuse(format!("type {data_type} is invalid: {reason}"))
}

/// Checks a column that is to be made.
///
/// # Errors
/// `InvalidArgument` that says what is wrong.
pub fn check_column(column: &ColumnSpec) -> Result<()> {
    check_column_name(&column.name)?;
    check_type(column.data_type).map_err(|error| Error::new(error.kind, format!("column '{}': {error}", column.name)))
}

/// Checks custom attributes: a key of 1 to 100 bytes, a value of 1 to 4,096, all of them together at
/// most 10,240 (table-model §21).
///
/// # Errors
/// `InvalidArgument` that names the attribute.
pub fn check_attributes(attributes: &BTreeMap<String, String>) -> Result<()> {
    for (key, value) in attributes {
        if key.is_empty() || key.len() > ATTRIBUTE_KEY_MAX {
            return refuse(format!("attribute '{key}': a key has 1 to {ATTRIBUTE_KEY_MAX} bytes"));
        }
        if value.is_empty() || value.len() > ATTRIBUTE_VALUE_MAX {
            return refuse(format!("attribute '{key}': a value has 1 to {ATTRIBUTE_VALUE_MAX} bytes"));
        }
    }
    let total: usize = attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > ATTRIBUTES_MAX {
        return refuse(format!("custom attributes have {total} bytes together, more than {ATTRIBUTES_MAX}"));
    }
    Ok(())
}
