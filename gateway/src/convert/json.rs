//! JSON objects to rows and back, as Flink's `json` format has them (design §4).
//!
//! - DECIMAL is a number with all its digits; TIMESTAMP is `2024-01-02 03:04:05.678` or, by option,
//!   ISO-8601, and either is read; TIMESTAMP_LTZ ends in `Z`; BYTES is base64; NaN and the infinities
//!   are strings.
//! - Numbers and booleans may come as strings. A STRING column takes numbers and booleans as they are
//!   written, and an object or array as its JSON text.
//! - Digits past a type's scale are rounded half up (DECIMAL) or cut (times), as Flink does.
//! - Stricter than Flink, so that nothing is lost in silence: a field that is no column, a field given
//!   twice, a whole number with a fraction, and any value out of range are refused.

mod decimal;
mod time;
mod value;

use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Deserializer, de::SliceRead};
use sluice_engine::row::{Datum, Row, Schema};

use serde::de::{DeserializeSeed, Deserializer as _, MapAccess, Visitor};

use super::ConvertError;

/// How timestamps are written; both styles are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimestampStyle {
    /// `2024-01-02 03:04:05.678`
    #[default]
    Sql,
    /// `2024-01-02T03:04:05.678`
    Iso8601,
}

/// Reads a JSON object of the columns at `positions`. The row is as wide as the schema; the other
/// columns are NULL. An absent field is NULL.
///
/// # Errors
/// [`ConvertError`]: not one JSON object, an unknown or repeated field, a value that does not fit its
/// column, no value for a NOT NULL column.
pub fn decode(schema: &Schema, positions: &[usize], bytes: &[u8]) -> Result<Row, ConvertError> {
    let (row, present) = decode_partial(schema, positions, bytes)?;
    for (column, _) in expected(schema, positions).filter(|(_, place)| !present.get(*place).is_some_and(|there| *there))
    {
        if !column.nullable {
            return Err(ConvertError::of(&column.name, "is NOT NULL, but there is no such field"));
        }
    }
    Ok(row)
}

/// As [`decode`], and tells of each column of the schema whether its field was there: absent ones are
/// left alone by a partial update, so a NOT NULL column may be absent.
///
/// # Errors
/// As [`decode`], but for absent fields.
pub fn decode_partial(schema: &Schema, positions: &[usize], bytes: &[u8]) -> Result<(Row, Vec<bool>), ConvertError> {
    let mut fields = Fields {
        schema,
        positions,
        next: 0,
        row: vec![Datum::Null; schema.columns.len()],
        present: vec![false; schema.columns.len()],
        fault: None,
    };
    let mut deserializer = Deserializer::new(SliceRead::new(bytes));
    let read = fields.deserialize_from(&mut deserializer).and_then(|()| deserializer.end());
    match (fields.fault, read) {
        (Some(fault), _) => Err(fault),
        (None, Err(error)) => Err(ConvertError::whole(format!("not a JSON object: {error}"))),
        (None, Ok(())) => Ok((fields.row, fields.present)),
    }
}

/// Writes the columns at `positions` of a row as a compact JSON object, in that order.
#[must_use]
pub fn encode(schema: &Schema, positions: &[usize], row: &Row, style: TimestampStyle) -> Vec<u8> {
    let mut out = Vec::with_capacity(positions.len() * 24 + 2);
    out.push(b'{');
    for (column, place) in expected(schema, positions) {
        if out.len() > 1 {
            out.push(b',');
        }
        value::write_json(&mut out, column.name.as_str());
        out.push(b':');
        value::encode(&mut out, column.data_type, row.get(place).unwrap_or(&Datum::Null), style);
    }
    out.push(b'}');
    out
}

fn expected<'a>(
    schema: &'a Schema,
    positions: &'a [usize],
) -> impl Iterator<Item = (&'a sluice_engine::row::Column, usize)> {
    positions.iter().filter_map(|place| schema.columns.get(*place).map(|column| (column, *place)))
}

/// The object that is being read.
struct Fields<'a> {
    schema: &'a Schema,
    positions: &'a [usize],
    /// Where among `positions` the next field is, if fields come in order, as they mostly do.
    next: usize,
    row: Row,
    present: Vec<bool>,
    /// What serde's error cannot carry.
    fault: Option<ConvertError>,
}

impl Fields<'_> {
    fn deserialize_from(&mut self, deserializer: &mut Deserializer<SliceRead<'_>>) -> serde_json::Result<()> {
        deserializer.deserialize_map(self)
    }

    fn name(&self, index: usize) -> Option<(&str, usize)> {
        let place = *self.positions.get(index)?;
        self.schema.columns.get(place).map(|column| (column.name.as_str(), place))
    }

    /// The place of a field's column in the schema.
    fn locate(&mut self, field: &str) -> Result<usize, ConvertError> {
        let is_field = |index: usize| self.name(index).is_some_and(|(name, _)| name == field);
        let index =
            if is_field(self.next) { Some(self.next) } else { (0..self.positions.len()).find(|i| is_field(*i)) };
        let Some((index, place)) = index.and_then(|index| Some((index, self.name(index)?.1))) else {
            return Err(ConvertError::of(field, self.unknown(field)));
        };
        self.next = index + 1;
        match self.present.get_mut(place) {
            Some(present) if !*present => *present = true,
            _ => return Err(ConvertError::of(field, "the field is given twice")),
        }
        Ok(place)
    }

    fn unknown(&self, field: &str) -> String {
        if self.schema.position(field).is_some() {
            return "the column does not belong here".to_owned();
        }
        let names = (0..self.positions.len()).filter_map(|index| self.name(index));
        match names.min_by_key(|(name, _)| strsim::osa_distance(name, field)) {
            Some((nearest, _)) => format!("the table has no such column; did you mean '{nearest}'?"),
            None => "the table has no such column".to_owned(),
        }
    }

    fn take(&mut self, place: usize, raw: &str) -> Result<(), ConvertError> {
        let (Some(column), Some(slot)) = (self.schema.columns.get(place), self.row.get_mut(place)) else {
            return Ok(());
        };
        *slot = value::decode(column, raw).map_err(|reason| ConvertError::of(&column.name, reason))?;
        Ok(())
    }

    /// Keeps a fault for the caller, and stops serde.
    fn stop<T, E: serde::de::Error>(&mut self, outcome: Result<T, ConvertError>) -> Result<T, E> {
        outcome.map_err(|fault| {
            self.fault = Some(fault);
            E::custom("refused")
        })
    }
}

impl<'de> Visitor<'de> for &mut Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of the table's columns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(place) = map.next_key_seed(Field(self))? {
            let raw: &'de RawValue = map.next_value()?;
            let taken = self.take(place, raw.get());
            self.stop(taken)?;
        }
        Ok(())
    }
}

/// Reads a field's name without keeping it.
struct Field<'a, 'b>(&'a mut Fields<'b>);

impl<'de> DeserializeSeed<'de> for Field<'_, '_> {
    type Value = usize;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Field<'_, '_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name")
    }

    fn visit_str<E: serde::de::Error>(self, field: &str) -> Result<usize, E> {
        let located = self.0.locate(field);
        self.0.stop(located)
    }
}

#[cfg(test)]
mod tests;
