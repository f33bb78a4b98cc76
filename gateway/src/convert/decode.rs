//! Record batches that clients produce to the rows of typed log tables and the upserts of PK tables (design §4).

use std::sync::Arc;

use sluice_engine::catalog::TableInfo;
use sluice_engine::kv_tablet::{Op, Rules};
use sluice_engine::row::{Datum, Row, Schema};
use sluice_protocol::DecodeError;
use sluice_protocol::records::{self, Record};

use super::json;
use super::key::{self, KeyFormat};
use super::{key_format, partial_update};

/// Largest payload that a produced batch may decode to: its rows take a few times as much memory.
const DECODED_MAX: usize = 64 << 20;
/// How many bad records of a batch are told of.
const FAULTS_MAX: usize = 100;

/// What a produced batch holds.
#[derive(Debug)]
pub struct Decoded<T> {
    /// One item for each record.
    pub items: Vec<T>,
    /// Headers that no column takes.
    pub headers_dropped: u64,
}

/// Why a produced batch is refused.
#[derive(Debug)]
pub enum Refused {
    /// The batch itself does not decode.
    Batch(DecodeError),
    /// The first bad records: places in the batch and what is wrong with each.
    Records(Vec<(usize, String)>),
}

/// Decodes the records of a whole Kafka batch to rows of a log table, all of them before any is used.
///
/// # Errors
/// [`Refused`]: no value, or one that is not a row of the schema in JSON.
pub fn rows(schema: &Schema, batch: &[u8]) -> Result<Decoded<Row>, Refused> {
    let every = places(schema);
    each(batch, |record| match record.value {
        Some(value) => json::decode(schema, &every, value).map_err(|error| error.to_string()),
        None => Err("a log table takes no record without a value".to_owned()),
    })
}

/// Decodes the records of a whole Kafka batch to upserts and deletes of a PK table, all of them before any is used.
///
/// # Errors
/// [`Refused`]: no key, one that does not decode, or a value that is not a row of the schema with that key.
pub fn ops(info: &TableInfo, rules: &Rules, batch: &[u8]) -> Result<Decoded<Op>, Refused> {
    let mut reader = OpReader {
        rules,
        every: places(&rules.schema),
        format: key_format(info),
        partial: partial_update(info),
        targets: Vec::new(),
    };
    each(batch, |record| reader.op(record))
}

fn each<T>(batch: &[u8], mut decode: impl FnMut(&Record<'_>) -> Result<T, String>) -> Result<Decoded<T>, Refused> {
    let (mut decoded, mut faults, mut index) = (Decoded { items: Vec::new(), headers_dropped: 0 }, Vec::new(), 0);
    records::for_each(batch, DECODED_MAX, |_, record| {
        match decode(record) {
            Ok(item) if faults.is_empty() => decoded.items.push(item),
            Err(fault) if faults.len() < FAULTS_MAX => faults.push((index, fault)),
            _ => {}
        }
        decoded.headers_dropped += record.headers.len() as u64;
        index += 1;
    })
    .map_err(Refused::Batch)?;
    if faults.is_empty() { Ok(decoded) } else { Err(Refused::Records(faults)) }
}

/// The places of all columns.
pub(super) fn places(schema: &Schema) -> Vec<usize> {
    (0..schema.columns.len()).collect()
}

/// The columns that a partial update is about; `None` for all of them.
type Target = Option<Arc<[usize]>>;

struct OpReader<'a> {
    rules: &'a Rules,
    every: Vec<usize>,
    format: KeyFormat,
    /// Whether absent fields are left alone.
    partial: bool,
    /// Which fields were there, and the columns that such an update is about: most records of a batch are alike.
    targets: Vec<(Vec<bool>, Target)>,
}

impl OpReader<'_> {
    fn op(&mut self, record: &Record<'_>) -> Result<Op, String> {
        let key = record.key.ok_or("a table with a primary key takes no record without a key")?;
        let schema = &self.rules.schema;
        let key = key::decode(self.format, schema, key).map_err(|error| format!("key: {error}"))?;
        let Some(value) = record.value else { return Ok(Op::delete(key)) };
        let (mut row, present) = json::decode_partial(schema, &self.every, value).map_err(|error| error.to_string())?;
        for place in &schema.primary_key {
            self.take_key(*place, &key, &mut row, present.get(*place) == Some(&true))?;
        }
        let target = self.target(&present)?;
        Ok(Op { row, delete: false, target })
    }

    /// The value may have the key's columns or leave them out, but not others' values in them.
    fn take_key(&self, place: usize, key: &Row, row: &mut Row, present: bool) -> Result<(), String> {
        let (Some(of_key), Some(slot)) = (key.get(place), row.get_mut(place)) else { return Ok(()) };
        if !present {
            slot.clone_from(of_key);
        } else if !same(slot, of_key) {
            let name = self.rules.schema.columns.get(place).map_or("", |column| column.name.as_str());
            return Err(format!("column '{name}': the value has another one than the key"));
        }
        Ok(())
    }

    fn target(&mut self, present: &[bool]) -> Result<Target, String> {
        if let Some((_, target)) = self.targets.iter().find(|(known, _)| known == present) {
            return Ok(target.clone());
        }
        let schema = &self.rules.schema;
        let given = |place: &usize| schema.primary_key.contains(place) || present.get(*place) == Some(&true);
        let target: Vec<usize> = self.every.iter().copied().filter(given).collect();
        let target = if target.len() == self.every.len() {
            None
        } else if self.partial {
            self.rules.check_target(&target).map_err(|error| error.message)?;
            Some(target.into())
        } else {
            let absent = schema.columns.iter().enumerate().find(|(at, column)| !column.nullable && !given(at));
            if let Some((_, column)) = absent {
                return Err(format!("column '{}': is NOT NULL, but there is no such field", column.name));
            }
            None
        };
        self.targets.push((present.to_vec(), target.clone()));
        Ok(target)
    }
}

/// Whether two values are one key: NaN is.
fn same(one: &Datum, other: &Datum) -> bool {
    match (one, other) {
        (Datum::Float(one), Datum::Float(other)) => one.to_bits() == other.to_bits(),
        (Datum::Double(one), Datum::Double(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::kv_tablet::DeleteBehavior;
    use sluice_engine::row::{ColumnSpec, DataType};
    use sluice_protocol::records::BatchBuilder;

    fn schema(primary_key: Vec<usize>) -> Schema {
        let key = ColumnSpec { nullable: false, ..("a", DataType::Int).into() };
        Schema::first([key, ("b", DataType::String).into(), ("c", DataType::BigInt).into()], primary_key)
    }

    fn produced(records: &[(Option<&str>, Option<&str>)]) -> Vec<u8> {
        records
            .iter()
            .fold(BatchBuilder::new(5), |builder, (key, value)| {
                builder.record(&Record::new(key.map(str::as_bytes), value.map(str::as_bytes)))
            })
            .build()
    }

    fn reader(rules: &Rules, partial: bool) -> OpReader<'_> {
        OpReader { rules, every: places(&rules.schema), format: KeyFormat::Json, partial, targets: Vec::new() }
    }

    fn rules() -> Rules {
        Rules { schema: schema(vec![0]), key: vec![0], wal_image: false, deletes: DeleteBehavior::Allow }
    }

    #[test]
    fn every_bad_record_is_named_and_none_is_taken() {
        let value = |text| (Some("key"), text);
        let bytes = produced(&[
            value(Some(r#"{"a":1}"#)),
            value(Some(r#"{"a":"x"}"#)),
            value(None),
            value(Some(r#"{"b":"no a"}"#)),
            value(Some("[]")),
        ]);
        let Err(Refused::Records(faults)) = rows(&schema(Vec::new()), &bytes) else { panic!("taken") };
        assert_eq!(faults.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(faults[0].1.starts_with("column 'a'") && faults[2].1.contains("NOT NULL"), "{faults:?}");
    }

    #[test]
    fn keys_and_values_become_upserts_and_deletes() {
        let bytes = produced(&[
            (Some(r#"{"a":1}"#), Some(r#"{"b":"x","c":2}"#)),
            (Some(r#"{"a":"1"}"#), Some(r#"{"a":1.0,"b":null}"#)),
            (Some(r#"{"a":2}"#), None),
        ]);
        let rules = rules();
        let mut reader = reader(&rules, false);
        let found = each(&bytes, |record| reader.op(record)).expect("decodes").items;
        let row = |a, b: Option<&str>, c: Option<i64>| {
            vec![
                Datum::Int(a),
                b.map_or(Datum::Null, |b| Datum::String(b.to_owned())),
                c.map_or(Datum::Null, Datum::BigInt),
            ]
        };
        let expected =
            [Op::upsert(row(1, Some("x"), Some(2))), Op::upsert(row(1, None, None)), Op::delete(row(2, None, None))];
        assert_eq!(found, expected);
    }

    #[test]
    fn absent_fields_are_left_alone_where_the_table_says_so() {
        let bytes =
            produced(&[(Some(r#"{"a":1}"#), Some(r#"{"c":2}"#)), (Some(r#"{"a":1}"#), Some(r#"{"b":"x","c":null}"#))]);
        let rules = rules();
        let mut reader = reader(&rules, true);
        let found = each(&bytes, |record| reader.op(record)).expect("decodes").items;
        assert_eq!(found[0].target.as_deref(), Some([0, 2].as_slice()));
        assert_eq!(found[1].target, None);
    }

    #[test]
    fn records_that_have_no_key_or_two_are_refused() {
        let bytes = produced(&[
            (None, Some(r#"{"a":1}"#)),
            (Some(r#"{"a":1}"#), Some(r#"{"a":2}"#)),
            (Some("{}"), None),
            (Some(r#"{"a":1,"b":"x"}"#), None),
        ]);
        let rules = rules();
        let mut reader = reader(&rules, false);
        let Err(Refused::Records(faults)) = each(&bytes, |record| reader.op(record)) else { panic!("taken") };
        assert_eq!(faults.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert!(faults[1].1.starts_with("column 'a'") && faults[2].1.starts_with("key: column 'a'"), "{faults:?}");
    }
}
