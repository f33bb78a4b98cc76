//! Stored log batches of typed tables to the record batches that consumers get (design §4).

use bytes::Bytes;
use sluice_engine::catalog::{TableInfo, TableKind};
use sluice_engine::row::batch::{BatchView, Entry};
use sluice_engine::row::{ChangeType, Row, Schema};
use sluice_engine::{Error, ErrorKind};
use sluice_protocol::batch::{HEADER_LEN, add_sequence, set_position};
use sluice_protocol::records::{BatchBuilder, Record};

use super::decode::places;
use super::json::{self, TimestampStyle};
use super::key::{self, KeyFormat};
use super::{key_format, timestamp_style};

/// About the most that one converted batch holds, bytes.
const CONVERTED_MAX: usize = 1 << 20;
/// Attribute bit of a Kafka batch whose records have the time of their append.
const LOG_APPEND_TIME: i16 = 1 << 3;

/// How the rows of a table look as records.
pub struct Encoder<'a> {
    schema: &'a Schema,
    every: Vec<usize>,
    style: TimestampStyle,
    /// Of a PK table, whose records are the upsert view.
    keys: Option<KeyFormat>,
}

/// A key and a value, each of which may be null.
type KeyValue = (Option<Vec<u8>>, Option<Vec<u8>>);

impl<'a> Encoder<'a> {
    /// For a typed table; `None` for another.
    #[must_use]
    pub fn of(info: &'a TableInfo) -> Option<Self> {
        let schema = &info.typed.as_ref()?.schema;
        let keys = (info.kind == TableKind::Pk).then(|| key_format(info));
        Some(Self { schema, every: places(schema), style: timestamp_style(info), keys })
    }

    /// Writes stored log batches as Kafka batches, from `offset` on: as many as `max_bytes` holds, but one at least.
    ///
    /// # Errors
    /// `Corrupt` or `Unsupported` when a stored batch does not decode.
    pub fn encode(&self, stored: &Bytes, offset: i64, max_bytes: usize) -> Result<Bytes, Error> {
        let (mut rest, mut out) = (stored.as_ref(), Vec::new());
        while !rest.is_empty() {
            let len = sluice_engine::row::batch::head(rest).and_then(|head| head.len);
            let cut = len.and_then(|len| rest.split_at_checked(len));
            let (batch, tail) = cut.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a log batch ends early"))?;
            if !self.append(batch, offset, max_bytes, &mut out)? {
                break;
            }
            rest = tail;
        }
        Ok(out.into())
    }

    /// Adds one stored batch as Kafka batches that together end where it ends, shown or not, so that a consumer
    /// reaches the end of the log (P35). False when not all of it had room.
    fn append(&self, batch: &[u8], offset: i64, max_bytes: usize, out: &mut Vec<u8>) -> Result<bool, Error> {
        let view = BatchView::read(batch)?;
        let mut entry = None;
        view.for_each_entry(|found, _, _| entry = Some(found));
        let rows = view.rows(self.schema)?;
        let end = view.head.last_offset().saturating_add(1);
        let mut wanted = rows.iter().filter(|(at, change, _)| *at >= offset && self.shows(*change)).peekable();
        let mut start = offset.max(view.head.base_offset);
        while start < end {
            let mut builder = begin(view.head.max_timestamp, entry, (start - view.head.base_offset) as i32);
            let mut size = 0;
            while let Some((at, change, row)) = wanted.next_if(|_| size < CONVERTED_MAX) {
                let (key, value) = self.record(*change, row)?;
                size += HEADER_LEN + key.as_ref().map_or(0, Vec::len) + value.as_ref().map_or(0, Vec::len);
                let record = Record::new(key.as_deref(), value.as_deref());
                builder = builder.skip_to((at - start) as i32).record(&record);
            }
            let until = wanted.peek().map_or(end, |(at, ..)| *at);
            let converted = if size == 0 {
                gap(start, until, view.head.leader_epoch)
            } else {
                let mut converted = builder.skip_to((until - start) as i32).build();
                set_position(&mut converted, start, view.head.leader_epoch);
                converted
            };
            if !out.is_empty() && out.len() + converted.len() > max_bytes {
                return Ok(false);
            }
            out.extend_from_slice(&converted);
            start = until;
        }
        Ok(true)
    }

    /// The row before an update is no record of the upsert view.
    fn shows(&self, change: ChangeType) -> bool {
        self.keys.is_none() || change != ChangeType::UpdateBefore
    }

    fn record(&self, change: ChangeType, row: &Row) -> Result<KeyValue, Error> {
        let key = match self.keys {
            None => None,
            Some(format) => {
                let key = key::encode(format, self.schema, row, self.style);
                Some(key.map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?)
            }
        };
        let deleted = self.keys.is_some() && change == ChangeType::Delete;
        let value = (!deleted).then(|| json::encode(self.schema, &self.every, row, self.style));
        Ok((key, value))
    }
}

/// Attribute bits of a batch of control records.
const CONTROL: i16 = (1 << 4) | (1 << 5);

/// A batch of no record that a consumer is given, which takes the offsets `from..until`, as many of them as one can: a
/// control batch with the marker of a commit at its end. A batch without any record would do for the protocol, but
/// librdkafka takes a response of such batches for one that was cut off, asks for twice as much each time, and after
/// some ten of them reports MSG_SIZE_TOO_LARGE to the application.
#[must_use]
pub fn gap(from: i64, until: i64, leader_epoch: i32) -> Vec<u8> {
    let count = i32::try_from(until - from).unwrap_or(i32::MAX).max(1);
    let marker = Record::new(Some(&[0, 0, 0, 1]), Some(&[0, 0, 0, 0, 0, 0]));
    let builder = BatchBuilder::new(0).attributes(CONTROL).skip_to(count - 1);
    let mut batch = builder.record(&marker).build();
    set_position(&mut batch, from, leader_epoch);
    batch
}

fn begin(timestamp: i64, entry: Option<Entry>, skipped: i32) -> BatchBuilder {
    let builder = BatchBuilder::new(timestamp).attributes(LOG_APPEND_TIME);
    match entry.map(|entry| entry.range) {
        Some(range) => builder.producer(range.id, range.epoch, add_sequence(range.first_sequence, skipped)),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_engine::log::head::ProducerRange;
    use sluice_engine::row::{ColumnSpec, DataType, Datum, batch};
    use sluice_engine::{BucketId, TableId};
    use sluice_protocol::batch::BatchHeader;
    use sluice_protocol::records;

    fn schema(primary_key: Vec<usize>) -> Schema {
        let key = ColumnSpec { nullable: false, ..("a", DataType::Int).into() };
        Schema::first([key, ("b", DataType::String).into()], primary_key)
    }

    fn encoder(schema: &Schema, keys: Option<KeyFormat>) -> Encoder<'_> {
        Encoder { schema, every: places(schema), style: TimestampStyle::Sql, keys }
    }

    fn row(a: i32, b: &str) -> Row {
        vec![Datum::Int(a), Datum::String(b.to_owned())]
    }

    /// Each batch's base and last offset, and its records: offset, key, value.
    type Shown = (i64, i64, Vec<(i64, Option<String>, Option<String>)>);

    fn shown(mut bytes: &[u8]) -> Vec<Shown> {
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).expect("text"));
        let mut found = Vec::new();
        while let Some(header) = BatchHeader::read(bytes) {
            let (batch, rest) = bytes.split_at(header.total_len().expect("a length"));
            assert_eq!(sluice_protocol::batch::compute_crc(batch), header.crc);
            let mut inside = Vec::new();
            records::for_each(batch, 1 << 20, |header, record| {
                let at = header.base_offset + i64::from(record.offset_delta);
                inside.push((at, text(record.key), text(record.value)));
            })
            .expect("decodes");
            assert_eq!(header.record_count as usize, inside.len());
            if header.is_control() {
                assert_eq!(inside.pop().map(|(at, ..)| at), Some(header.last_offset()));
            }
            found.push((header.base_offset, header.last_offset(), inside));
            bytes = rest;
        }
        found
    }

    #[test]
    fn rows_of_a_log_table_come_out_from_any_offset() {
        let schema = schema(Vec::new());
        let rows = [row(1, "x"), row(2, "y"), row(3, "z")];
        let range = ProducerRange { id: 9, epoch: 1, first_sequence: i32::MAX, last_sequence: 1 };
        let place = BucketId::new(TableId(1), 0);
        let mut stored = batch::append_only(place, &schema, &rows, Some(range)).expect("builds").bytes.to_vec();
        let _ = batch::set_place(&mut stored, 40, 77, 6);
        let out = encoder(&schema, None).encode(&stored.into(), 41, 1).expect("encodes");
        let header = BatchHeader::read(&out).expect("a batch");
        assert_eq!((header.leader_epoch, header.producer_id, header.base_sequence), (6, 9, 0));
        assert_eq!((header.max_timestamp, header.is_log_append_time()), (77, true));
        let value = |a, b| Some(format!(r#"{{"a":{a},"b":"{b}"}}"#));
        assert_eq!(shown(&out), [(41, 42, vec![(41, None, value(2, "y")), (42, None, value(3, "z"))])]);
    }

    #[test]
    fn the_upsert_view_leaves_out_old_rows_and_keeps_every_offset_reachable() {
        let schema = schema(vec![0]);
        let changes = [
            (ChangeType::Insert, row(1, "x")),
            (ChangeType::UpdateBefore, row(1, "x")),
            (ChangeType::UpdateAfter, row(1, "y")),
            (ChangeType::Delete, row(1, "y")),
            (ChangeType::UpdateBefore, row(2, "x")),
        ];
        let mut stored = batch::changelog(&schema, &changes, None, Vec::new()).expect("builds").bytes.to_vec();
        let _ = batch::set_place(&mut stored, 10, 7, 0);
        let mut empty = batch::changelog(&schema, &[], None, Vec::new()).expect("builds").bytes.to_vec();
        let _ = batch::set_place(&mut empty, 15, 7, 0);
        stored.extend_from_slice(&empty);
        let stored = Bytes::from(stored);
        let key = |a: i32| Some(format!(r#"{{"a":{a}}}"#));
        let value = |b| Some(format!(r#"{{"a":1,"b":"{b}"}}"#));
        let encoder = encoder(&schema, Some(KeyFormat::Json));
        let all = shown(&encoder.encode(&stored, 0, usize::MAX).expect("encodes"));
        let records = vec![(10, key(1), value("x")), (12, key(1), value("y")), (13, key(1), None)];
        assert_eq!(all, [(10, 14, records.clone()), (15, 15, Vec::new())]);
        let from = |offset| shown(&encoder.encode(&stored, offset, 1).expect("encodes"));
        assert_eq!(from(11), [(11, 14, records[1..].to_vec())]);
        assert_eq!(from(14), [(14, 14, Vec::new())]);
    }
}
