//! Types, in every spelling that Flink's SQL has for them.

use sluice_engine::ErrorKind;
use sluice_engine::row::DataType;

use super::DdlError;
use super::cursor::Cursor;

type Parsed<T> = Result<T, DdlError>;

/// A type. Bounds of its parameters are checked with the table, so that a column can be named.
pub(super) fn data_type(cursor: &mut Cursor<'_>) -> Parsed<DataType> {
    let start = cursor.offset();
    let word = cursor.word("a type")?.to_ascii_uppercase();
    Ok(match word.as_str() {
        "BOOLEAN" => DataType::Boolean,
        "TINYINT" => DataType::TinyInt,
        "SMALLINT" => DataType::SmallInt,
        "INT" | "INTEGER" => DataType::Int,
        "BIGINT" => DataType::BigInt,
        "FLOAT" | "REAL" => DataType::Float,
        "DOUBLE" => {
            cursor.takes(&["PRECISION"]);
            DataType::Double
        }
        "DECIMAL" | "DEC" | "NUMERIC" => decimal(cursor)?,
        "CHAR" | "CHARACTER" if !cursor.takes(&["VARYING"]) => {
            DataType::Char { length: parameter(cursor, "a length")?.unwrap_or(1) }
        }
        // A declared length of text is kept by no table (table-model §2), so VARCHAR(n) is STRING.
        "CHAR" | "CHARACTER" | "VARCHAR" => unlimited(cursor, DataType::String)?,
        "STRING" => DataType::String,
        "BINARY" if !cursor.takes(&["VARYING"]) => {
            DataType::Binary { length: parameter(cursor, "a length")?.unwrap_or(1) }
        }
        "BINARY" | "VARBINARY" => unlimited(cursor, DataType::Bytes)?,
        "BYTES" => DataType::Bytes,
        "DATE" => DataType::Date,
        "TIME" => time(cursor)?,
        "TIMESTAMP" => timestamp(cursor)?,
        "TIMESTAMP_LTZ" => DataType::TimestampLtz { precision: precision(cursor, 6)? },
        _ => return Err(unknown(cursor, start, &word)),
    })
}

fn unknown(cursor: &Cursor<'_>, start: usize, word: &str) -> DdlError {
    match word {
        "ARRAY" | "MAP" | "ROW" | "MULTISET" | "RAW" | "INTERVAL" | "VARIANT" => {
            cursor.fault(start, ErrorKind::Unsupported, format!("type {word} is not offered by this server"))
        }
        _ => cursor.fault(start, ErrorKind::InvalidArgument, format!("expected a type, found '{word}'")),
    }
}

/// `[(n)]`
fn parameter<T: std::str::FromStr>(cursor: &mut Cursor<'_>, what: &str) -> Parsed<Option<T>> {
    if !cursor.takes_symbol("(") {
        return Ok(None);
    }
    let value = cursor.number(what)?;
    cursor.symbol(")")?;
    Ok(Some(value))
}

fn unlimited(cursor: &mut Cursor<'_>, data_type: DataType) -> Parsed<DataType> {
    parameter::<u32>(cursor, "a length")?;
    Ok(data_type)
}

fn precision(cursor: &mut Cursor<'_>, default: u8) -> Parsed<u8> {
    Ok(parameter(cursor, "a precision")?.unwrap_or(default))
}

/// `[(p [, s])]`; without them (10, 0).
fn decimal(cursor: &mut Cursor<'_>) -> Parsed<DataType> {
    if !cursor.takes_symbol("(") {
        return Ok(DataType::Decimal { precision: 10, scale: 0 });
    }
    let precision = cursor.number("a precision")?;
    let scale = if cursor.takes_symbol(",") { cursor.number("a scale")? } else { 0 };
    cursor.symbol(")")?;
    Ok(DataType::Decimal { precision, scale })
}

fn time(cursor: &mut Cursor<'_>) -> Parsed<DataType> {
    let precision = precision(cursor, 0)?;
    if cursor.takes(&["WITHOUT"]) {
        cursor.keywords(&["TIME", "ZONE"])?;
    }
    Ok(DataType::Time { precision })
}

fn timestamp(cursor: &mut Cursor<'_>) -> Parsed<DataType> {
    let precision = precision(cursor, 6)?;
    let start = cursor.offset();
    if cursor.takes(&["WITH", "LOCAL"]) {
        cursor.keywords(&["TIME", "ZONE"])?;
        return Ok(DataType::TimestampLtz { precision });
    }
    if cursor.takes(&["WITH", "TIME", "ZONE"]) {
        let message = "TIMESTAMP WITH TIME ZONE is not offered by this server; use TIMESTAMP_LTZ";
        return Err(cursor.fault(start, ErrorKind::Unsupported, message));
    }
    if cursor.takes(&["WITHOUT"]) {
        cursor.keywords(&["TIME", "ZONE"])?;
    }
    Ok(DataType::Timestamp { precision })
}
