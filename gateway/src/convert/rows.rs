//! Between Kafka record batches and the rows of typed log tables (design §4).

use bytes::Bytes;
use sluice_engine::log::head::ProducerRange;
use sluice_engine::row::batch::BatchView;
use sluice_engine::row::{Row, Schema};
use sluice_engine::{Error, ErrorKind};
use sluice_protocol::DecodeError;
use sluice_protocol::batch::{HEADER_LEN, add_sequence, set_position};
use sluice_protocol::records::{self, BatchBuilder, Record};

use super::json::{self, TimestampStyle};

/// Largest payload that a produced batch may decode to: its rows take a few times as much memory.
const DECODED_MAX: usize = 64 << 20;
/// How many bad records of a batch are told of.
const FAULTS_MAX: usize = 100;
/// About the most that one converted batch holds, bytes.
const CONVERTED_MAX: usize = 1 << 20;
/// Attribute bit of a Kafka batch whose records have the time of their append.
const LOG_APPEND_TIME: i16 = 1 << 3;

/// What a produced batch holds.
#[derive(Debug, Default)]
pub struct Decoded {
    /// One row for each record.
    pub rows: Vec<Row>,
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

/// Decodes the records of a whole Kafka batch, all of them before any is used.
///
/// # Errors
/// [`Refused`]: no value, or one that is not a row of the schema in JSON.
pub fn decode(schema: &Schema, batch: &[u8]) -> Result<Decoded, Refused> {
    let every = places(schema);
    let (mut decoded, mut faults, mut index) = (Decoded::default(), Vec::new(), 0);
    records::for_each(batch, DECODED_MAX, |_, record| {
        let row = match record.value {
            Some(value) => json::decode(schema, &every, value).map_err(|error| error.to_string()),
            None => Err("a log table takes no record without a value".to_owned()),
        };
        match row {
            Ok(row) if faults.is_empty() => decoded.rows.push(row),
            Err(fault) if faults.len() < FAULTS_MAX => faults.push((index, fault)),
            _ => {}
        }
        decoded.headers_dropped += record.headers.len() as u64;
        index += 1;
    })
    .map_err(Refused::Batch)?;
    if faults.is_empty() { Ok(decoded) } else { Err(Refused::Records(faults)) }
}

/// Writes stored log batches as Kafka batches, from `offset` on: as many as `max_bytes` holds, but one at least.
///
/// # Errors
/// `Corrupt` or `Unsupported` when a stored batch does not decode.
pub fn encode(
    schema: &Schema,
    style: TimestampStyle,
    stored: &Bytes,
    offset: i64,
    max_bytes: usize,
) -> Result<Bytes, Error> {
    let encoder = Encoder { schema, every: places(schema), style, offset, max_bytes };
    let (mut rest, mut out) = (stored.as_ref(), Vec::new());
    while !rest.is_empty() {
        let len = sluice_engine::row::batch::head(rest).and_then(|head| head.len);
        let cut = len.and_then(|len| rest.split_at_checked(len));
        let (batch, tail) = cut.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a log batch ends early"))?;
        if !encoder.append(batch, &mut out)? {
            break;
        }
        rest = tail;
    }
    Ok(out.into())
}

/// The places of all columns.
fn places(schema: &Schema) -> Vec<usize> {
    (0..schema.columns.len()).collect()
}

struct Encoder<'a> {
    schema: &'a Schema,
    every: Vec<usize>,
    style: TimestampStyle,
    offset: i64,
    max_bytes: usize,
}

impl Encoder<'_> {
    /// Adds one stored batch as Kafka batches, the producer's sequences with it, as Kafka keeps them. False
    /// when not all of it had room.
    fn append(&self, batch: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        let view = BatchView::read(batch)?;
        let mut range = None;
        view.for_each_range(|found, _| range = Some(found));
        let rows = view.rows(self.schema)?;
        let mut wanted = rows.iter().filter(|(at, ..)| *at >= self.offset).peekable();
        while let Some((first, ..)) = wanted.peek() {
            let (first, mut size) = (*first, 0);
            let mut builder = begin(view.head.max_timestamp, range, (first - view.head.base_offset) as i32);
            while let Some((_, _, row)) = wanted.next_if(|_| size < CONVERTED_MAX) {
                let value = json::encode(self.schema, &self.every, row, self.style);
                size += value.len() + HEADER_LEN;
                builder = builder.record(&Record::new(None, Some(&value)));
            }
            let mut converted = builder.build();
            set_position(&mut converted, first, view.head.leader_epoch);
            if !out.is_empty() && out.len() + converted.len() > self.max_bytes {
                return Ok(false);
            }
            out.extend_from_slice(&converted);
        }
        Ok(true)
    }
}

fn begin(timestamp: i64, range: Option<ProducerRange>, skipped: i32) -> BatchBuilder {
    let builder = BatchBuilder::new(timestamp).attributes(LOG_APPEND_TIME);
    match range {
        Some(range) => builder.producer(range.id, range.epoch, add_sequence(range.first_sequence, skipped)),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::row::{ColumnSpec, DataType, Datum, batch};
    use sluice_engine::{BucketId, TableId};
    use sluice_protocol::batch::BatchHeader;

    fn schema() -> Schema {
        let key = ColumnSpec { nullable: false, ..("a", DataType::Int).into() };
        Schema::first([key, ("b", DataType::String).into()], Vec::new())
    }

    fn produced(values: &[Option<&str>]) -> Vec<u8> {
        let mut builder = BatchBuilder::new(5);
        for value in values {
            builder = builder.record(&Record::new(Some(b"key"), value.map(str::as_bytes)));
        }
        builder.build()
    }

    #[test]
    fn every_bad_record_is_named_and_none_is_taken() {
        let bytes = produced(&[Some(r#"{"a":1}"#), Some(r#"{"a":"x"}"#), None, Some(r#"{"b":"no a"}"#), Some("[]")]);
        let Err(Refused::Records(faults)) = decode(&schema(), &bytes) else { panic!("taken") };
        assert_eq!(faults.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(faults[0].1.starts_with("column 'a'") && faults[2].1.contains("NOT NULL"), "{faults:?}");
    }

    #[test]
    fn rows_go_in_and_come_out_from_any_offset() {
        let bytes = produced(&[Some(r#"{"a":1,"b":"x"}"#), Some(r#"{"b":null,"a":2}"#), Some(r#"{"a":3}"#)]);
        let rows = decode(&schema(), &bytes).expect("decodes").rows;
        assert_eq!(rows[1], vec![Datum::Int(2), Datum::Null]);
        let range = ProducerRange { id: 9, epoch: 1, first_sequence: i32::MAX, last_sequence: 1 };
        let mut stored = batch::append_only(BucketId::new(TableId(1), 0), &schema(), &rows, Some(range))
            .expect("builds")
            .bytes
            .to_vec();
        let _ = batch::set_place(&mut stored, 40, 77, 6);
        let out = encode(&schema(), TimestampStyle::Sql, &stored.into(), 41, 1).expect("encodes");
        let header = BatchHeader::read(&out).expect("a batch");
        assert_eq!((header.base_offset, header.last_offset(), header.leader_epoch), (41, 42, 6));
        assert_eq!((header.producer_id, header.base_sequence, header.max_timestamp), (9, 0, 77));
        assert!(header.is_log_append_time() && sluice_protocol::batch::compute_crc(&out) == header.crc);
        let mut values = Vec::new();
        records::for_each(&out, 1 << 20, |_, record| values.push(record.value.map(<[u8]>::to_vec))).expect("decodes");
        let text = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(values, [text(r#"{"a":2,"b":null}"#), text(r#"{"a":3,"b":null}"#)]);
    }
}
