//! One value: JSON text to a column's value and back.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use sluice_engine::row::{Column, DataType, Datum};

use super::decimal::{self, Fault};
use super::{TimestampStyle, time};

/// Writes padding, and reads with or without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// How much of a refused value an error repeats, in characters.
const SHOWN_MAX: usize = 64;

/// A value as JSON has it.
enum Json<'a> {
    Null,
    Bool(&'a str),
    Number(&'a str),
    Text(Cow<'a, str>),
    Nested(&'a str),
}

/// Splits a valid JSON text by its first character.
fn json(raw: &str) -> Result<Json<'_>, String> {
    Ok(match raw.as_bytes().first() {
        Some(b'n') => Json::Null,
        Some(b't' | b'f') => Json::Bool(raw),
        Some(b'{' | b'[') => Json::Nested(raw),
        Some(b'"') => Json::Text(text(raw)?),
        _ => Json::Number(raw),
    })
}

fn text(raw: &str) -> Result<Cow<'_, str>, String> {
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw).map(Cow::Owned).map_err(|error| format!("{} is not text: {error}", shown(raw)))
}

fn shown(raw: &str) -> Cow<'_, str> {
    match raw.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", raw.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(raw),
    }
}

/// The value of a column; the error says what was expected and what came.
pub(super) fn decode(column: &Column, raw: &str) -> Result<Datum, String> {
    let json = json(raw)?;
    let wrong = || format!("expected {}, got {}", column.data_type, shown(raw));
    let too_large = || format!("{} is out of the range of {}", shown(raw), column.data_type);
    match json {
        Json::Null if column.nullable => Ok(Datum::Null),
        Json::Null => Err("is NOT NULL, got null".to_owned()),
        _ => typed(column.data_type, json).map_err(|fault| match fault {
            Fault::OutOfRange => too_large(),
            Fault::NotOfType => wrong(),
            Fault::HasFraction => format!("{} has a fraction, and {} has none", shown(raw), column.data_type),
        }),
    }
}

fn typed(data_type: DataType, json: Json<'_>) -> Result<Datum, Fault> {
    match data_type {
        DataType::Boolean => boolean(&json),
        DataType::TinyInt => integer(&json).map(Datum::TinyInt),
        DataType::SmallInt => integer(&json).map(Datum::SmallInt),
        DataType::Int => integer(&json).map(Datum::Int),
        DataType::BigInt => integer(&json).map(Datum::BigInt),
        DataType::Float => float(&json, f32::is_finite).map(Datum::Float),
        DataType::Double => float(&json, f64::is_finite).map(Datum::Double),
        DataType::Decimal { precision, scale } => {
            decimal::parse(number(&json)?, precision, scale, false).map(Datum::Decimal)
        }
        DataType::Char { .. } | DataType::String => Ok(Datum::String(match json {
            Json::Text(text) => text.into_owned(),
            Json::Bool(raw) | Json::Number(raw) | Json::Nested(raw) => raw.to_owned(),
            Json::Null => return Err(Fault::NotOfType),
        })),
        DataType::Bytes => bytes(&json).map(Datum::Bytes),
        DataType::Binary { length } => match bytes(&json)? {
            bytes if bytes.len() == length as usize => Ok(Datum::Bytes(bytes)),
            _ => Err(Fault::OutOfRange),
        },
        DataType::Date | DataType::Time { .. } | DataType::Timestamp { .. } | DataType::TimestampLtz { .. } => {
            moment(data_type, &json).ok_or(Fault::NotOfType)
        }
    }
}

fn boolean(json: &Json<'_>) -> Result<Datum, Fault> {
    let text = match json {
        Json::Bool(raw) => raw,
        Json::Text(text) => text.trim(),
        _ => return Err(Fault::NotOfType),
    };
    match text {
        _ if text.eq_ignore_ascii_case("true") => Ok(Datum::Boolean(true)),
        _ if text.eq_ignore_ascii_case("false") => Ok(Datum::Boolean(false)),
        _ => Err(Fault::NotOfType),
    }
}

/// A number's text, whether it came as a number or as a string.
fn number<'a>(json: &'a Json<'_>) -> Result<&'a str, Fault> {
    match json {
        Json::Number(raw) => Ok(raw),
        Json::Text(text) => Ok(text.trim()),
        _ => Err(Fault::NotOfType),
    }
}

fn integer<T: std::str::FromStr + TryFrom<i128>>(json: &Json<'_>) -> Result<T, Fault> {
    let text = number(json)?;
    if let Ok(value) = text.parse() {
        return Ok(value);
    }
    // Other spellings of whole numbers: 1.0, 1e2.
    let whole = decimal::parse(text, decimal::DIGITS_MAX as u8, 0, true)?;
    T::try_from(whole).map_err(|_| Fault::OutOfRange)
}

fn float<T: std::str::FromStr + Copy>(json: &Json<'_>, is_finite: impl Fn(T) -> bool) -> Result<T, Fault> {
    let text = number(json)?;
    let named = matches!(json, Json::Text(_)) && matches!(text, "NaN" | "Infinity" | "+Infinity" | "-Infinity");
    // Rust takes more spellings of these than Java does.
    if !named && text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')) {
        return Err(Fault::NotOfType);
    }
    let value = text.parse().map_err(|_| Fault::NotOfType)?;
    if named || is_finite(value) { Ok(value) } else { Err(Fault::OutOfRange) }
}

fn bytes(json: &Json<'_>) -> Result<Vec<u8>, Fault> {
    let Json::Text(text) = json else { return Err(Fault::NotOfType) };
    BASE64.decode(text.as_bytes()).map_err(|_| Fault::NotOfType)
}

fn moment(data_type: DataType, json: &Json<'_>) -> Option<Datum> {
    let Json::Text(text) = json else { return None };
    let text = text.trim();
    let (ms, nanos) = match data_type {
        DataType::Date => return time::parse_date(text).map(Datum::Date),
        DataType::Time { precision } => {
            let nanos = time::parse_time(text, precision.min(3))?;
            return Some(Datum::Time((nanos / 1_000_000) as i32));
        }
        DataType::TimestampLtz { precision } => time::parse_instant(text, precision)?,
        DataType::Timestamp { precision } => time::parse_timestamp(text, precision)?,
        _ => return None,
    };
    Some(Datum::Timestamp { ms, nanos })
}

/// Writes what serde_json writes; into a vector that cannot fail.
pub(super) fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

/// Writes a value of a type.
pub(super) fn encode(out: &mut Vec<u8>, data_type: DataType, datum: &Datum, style: TimestampStyle) {
    match datum {
        Datum::Null => out.extend_from_slice(b"null"),
        Datum::Boolean(value) => write_json(out, value),
        Datum::TinyInt(value) => write_json(out, value),
        Datum::SmallInt(value) => write_json(out, value),
        Datum::Int(value) => write_json(out, value),
        Datum::BigInt(value) => write_json(out, value),
        Datum::Float(value) if value.is_finite() => write_json(out, value),
        Datum::Double(value) if value.is_finite() => write_json(out, value),
        Datum::Float(value) => out.extend_from_slice(not_finite(f64::from(*value))),
        Datum::Double(value) => out.extend_from_slice(not_finite(*value)),
        Datum::Decimal(unscaled) => {
            let scale = if let DataType::Decimal { scale, .. } = data_type { scale } else { 0 };
            decimal::write(out, *unscaled, scale);
        }
        Datum::String(text) => write_json(out, text.as_str()),
        Datum::Bytes(bytes) => quoted(out, |out| write_base64(out, bytes)),
        Datum::Date(days) => quoted(out, |out| time::write_date(out, i64::from(*days))),
        Datum::Time(ms) => quoted(out, |out| time::write_time(out, i64::from(*ms) * 1_000_000)),
        Datum::Timestamp { ms, nanos } => quoted(out, |out| {
            time::write_timestamp(out, *ms, *nanos, style);
            if matches!(data_type, DataType::TimestampLtz { .. }) {
                out.push(b'Z');
            }
        }),
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

/// As Jackson writes them, quoted: JSON has no such numbers.
fn not_finite(value: f64) -> &'static [u8] {
    match value {
        _ if value.is_nan() => b"\"NaN\"",
        _ if value > 0.0 => b"\"Infinity\"",
        _ => b"\"-Infinity\"",
    }
}

fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = out.get_mut(start..).and_then(|place| BASE64.encode_slice(bytes, place).ok());
    out.truncate(start + written.unwrap_or(0));
}
