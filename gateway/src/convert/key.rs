//! Record keys to the columns of the primary key and back: a JSON object of them, or one column as
//! Kafka's own serializers write it.

use sluice_engine::row::{Column, DataType, Datum, Row, Schema};

use super::ConvertError;
use super::json::{self, TimestampStyle};

/// How a key's bytes are read and written (`kafka.key.format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// An object of the key's columns.
    Json,
    /// A BYTES or BINARY column as it is.
    Raw,
    /// A STRING or CHAR column as UTF-8.
    String,
    /// An INT column in 4 bytes, big-endian.
    Int,
    /// A BIGINT column in 8 bytes, big-endian.
    Long,
    /// A DOUBLE column in 8 bytes, big-endian.
    Double,
}

impl KeyFormat {
    /// The format that an option's value names, if this server has it.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "json" => Self::Json,
            "raw" => Self::Raw,
            "string" => Self::String,
            "int" => Self::Int,
            "long" => Self::Long,
            "double" => Self::Double,
            _ => return None,
        })
    }
}

/// The key's only column.
fn only(schema: &Schema) -> Result<(&Column, usize), ConvertError> {
    let only = match schema.primary_key.as_slice() {
        [place] => schema.columns.get(*place).map(|column| (column, *place)),
        _ => None,
    };
    only.ok_or_else(|| ConvertError::whole("this key format is for keys of one column"))
}

/// Reads a key. The row is as wide as the schema; columns outside the key are NULL.
///
/// # Errors
/// [`ConvertError`]: as [`json::decode`]; bytes of another length or type than the column's.
pub fn decode(format: KeyFormat, schema: &Schema, bytes: &[u8]) -> Result<Row, ConvertError> {
    if format == KeyFormat::Json {
        return json::decode(schema, &schema.primary_key, bytes);
    }
    let (column, place) = only(schema)?;
    let datum = plain(format, column, bytes)?;
    let mut row = vec![Datum::Null; schema.columns.len()];
    if let Some(slot) = row.get_mut(place) {
        *slot = datum;
    }
    Ok(row)
}

fn fixed<const N: usize>(column: &Column, bytes: &[u8]) -> Result<[u8; N], ConvertError> {
    bytes.try_into().map_err(|_| {
        let reason = format!("expected {} in {N} bytes, got {} bytes", column.data_type, bytes.len());
        ConvertError::of(&column.name, reason)
    })
}

fn plain(format: KeyFormat, column: &Column, bytes: &[u8]) -> Result<Datum, ConvertError> {
    Ok(match (format, column.data_type) {
        (KeyFormat::Raw, DataType::Bytes) => Datum::Bytes(bytes.to_vec()),
        (KeyFormat::Raw, DataType::Binary { length }) if bytes.len() == length as usize => Datum::Bytes(bytes.to_vec()),
        (KeyFormat::Raw, DataType::Binary { length }) => {
            let reason = format!("expected {length} bytes, got {}", bytes.len());
            return Err(ConvertError::of(&column.name, reason));
        }
        (KeyFormat::String, DataType::String | DataType::Char { .. }) => {
            let text = std::str::from_utf8(bytes);
            Datum::String(text.map_err(|error| ConvertError::of(&column.name, error.to_string()))?.to_owned())
        }
        (KeyFormat::Int, DataType::Int) => Datum::Int(i32::from_be_bytes(fixed(column, bytes)?)),
        (KeyFormat::Long, DataType::BigInt) => Datum::BigInt(i64::from_be_bytes(fixed(column, bytes)?)),
        (KeyFormat::Double, DataType::Double) => Datum::Double(f64::from_be_bytes(fixed(column, bytes)?)),
        (_, other) => return Err(ConvertError::of(&column.name, format!("the key format does not fit {other}"))),
    })
}

/// Writes the key of a row.
///
/// # Errors
/// [`ConvertError`] where the format does not fit the key's columns, or the key is NULL.
pub fn encode(format: KeyFormat, schema: &Schema, row: &Row, style: TimestampStyle) -> Result<Vec<u8>, ConvertError> {
    if format == KeyFormat::Json {
        return Ok(json::encode(schema, &schema.primary_key, row, style));
    }
    let (column, place) = only(schema)?;
    Ok(match (format, row.get(place)) {
        (KeyFormat::Raw, Some(Datum::Bytes(bytes))) => bytes.clone(),
        (KeyFormat::String, Some(Datum::String(text))) => text.as_bytes().to_vec(),
        (KeyFormat::Int, Some(Datum::Int(value))) => value.to_be_bytes().to_vec(),
        (KeyFormat::Long, Some(Datum::BigInt(value))) => value.to_be_bytes().to_vec(),
        (KeyFormat::Double, Some(Datum::Double(value))) => value.to_be_bytes().to_vec(),
        _ => return Err(ConvertError::of(&column.name, format!("the key format does not fit {}", column.data_type))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(data_type: DataType) -> Schema {
        Schema::first([("v", DataType::String).into(), ("k", data_type).into()], vec![1])
    }

    #[test]
    fn each_format_writes_what_kafkas_serializers_write() {
        let cases: [(&str, DataType, Datum, &[u8]); 6] = [
            ("int", DataType::Int, Datum::Int(-2), &[0xff, 0xff, 0xff, 0xfe]),
            ("long", DataType::BigInt, Datum::BigInt(258), &[0, 0, 0, 0, 0, 0, 1, 2]),
            ("double", DataType::Double, Datum::Double(1.0), &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
            ("string", DataType::String, Datum::String("é".to_owned()), "é".as_bytes()),
            ("raw", DataType::Bytes, Datum::Bytes(vec![0, 255]), &[0, 255]),
            ("json", DataType::Int, Datum::Int(7), br#"{"k":7}"#),
        ];
        for (name, data_type, datum, bytes) in cases {
            let (format, schema) = (KeyFormat::of(name).expect(name), schema(data_type));
            let row = vec![Datum::Null, datum];
            assert_eq!(encode(format, &schema, &row, TimestampStyle::Sql).expect(name), bytes, "{name}");
            assert_eq!(decode(format, &schema, bytes).expect(name), row, "{name}");
        }
    }

    #[test]
    fn keys_of_another_length_or_type_are_refused() {
        let refused = |format, data_type, bytes: &[u8]| decode(format, &schema(data_type), bytes).expect_err("refused");
        let short = refused(KeyFormat::Int, DataType::Int, &[1, 2]);
        assert_eq!(short.to_string(), "column 'k': expected INT in 4 bytes, got 2 bytes");
        refused(KeyFormat::Long, DataType::BigInt, &[0; 9]);
        refused(KeyFormat::String, DataType::String, &[0xff]);
        refused(KeyFormat::Int, DataType::BigInt, &[0; 4]);
        refused(KeyFormat::Raw, DataType::Binary { length: 2 }, &[0]);
        refused(KeyFormat::Json, DataType::Int, b"{}");
        refused(KeyFormat::Json, DataType::Int, br#"{"k":null}"#);
    }
}
