//! Records out of stored batches, for those who read tables as rows.

use sluice_protocol::batch::BatchHeader;
use sluice_protocol::records;

use crate::catalog::TableInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::row::batch::BatchView;
use crate::row::{ChangeType, Row};

/// Largest payload that one stored batch decodes to, bytes.
const DECODED_MAX: usize = 256 << 20;

/// A record of a raw table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRecord {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp, ms.
    pub timestamp: i64,
    /// `None` is null, which is not the same as empty.
    pub key: Option<Vec<u8>>,
    /// `None` is null, which is not the same as empty.
    pub value: Option<Vec<u8>>,
    /// In order, repeats kept.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a stored batch holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Scanned {
    /// Of a raw table.
    Raw(Vec<RawRecord>),
    /// Of a typed table: offset, change, row.
    Typed(Vec<(i64, ChangeType, Row)>),
}

/// One stored batch, decoded.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its records within the bounds asked for; none of a control batch.
    pub scanned: Scanned,
    /// Bytes that the batch takes.
    pub used: usize,
    /// The offset behind it.
    pub next: i64,
    /// When it was appended, ms; of a raw batch its largest timestamp.
    pub timestamp: i64,
}

/// Decodes the first batch of `stored`, which was read before `info` was looked up: those of its records whose offsets
/// lie in `from..end`. One at a time, for a chunk of a log may decode to a thousand times its size.
///
/// # Errors
/// `Corrupt` or `Unsupported` when the batch does not decode.
pub fn step(info: &TableInfo, stored: &[u8], from: i64, end: i64) -> Result<Step> {
    let head = info.kind.batches().head(stored);
    let (head, batch) = head
        .and_then(|head| head.len.and_then(|len| stored.get(..len)).map(|batch| (head, batch)))
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "stored bytes end within a batch"))?;
    let scanned = match &info.typed {
        None => Scanned::Raw(raw_records(batch, from, end)?),
        Some(table) => {
            let rows = BatchView::read(batch)?.rows(&table.schema)?.into_iter();
            Scanned::Typed(rows.filter(|(at, ..)| (from..end).contains(at)).collect())
        }
    };
    Ok(Step { scanned, used: batch.len(), next: head.last_offset().saturating_add(1), timestamp: head.max_timestamp })
}

fn raw_records(batch: &[u8], from: i64, end: i64) -> Result<Vec<RawRecord>> {
    let mut found = Vec::new();
    if BatchHeader::read(batch).is_some_and(|header| header.is_control()) {
        return Ok(found);
    }
    let outcome = records::for_each(batch, DECODED_MAX, |header, record| {
        let offset = header.base_offset.saturating_add(i64::from(record.offset_delta));
        if (from..end).contains(&offset) {
            found.push(raw_record(header, offset, record));
        }
    });
    outcome.map_err(|error| Error::new(ErrorKind::Corrupt, format!("a stored batch does not decode: {error}")))?;
    Ok(found)
}

fn raw_record(header: &BatchHeader, offset: i64, record: &records::Record<'_>) -> RawRecord {
    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let timestamp = if header.is_log_append_time() {
        header.max_timestamp
    } else {
        header.base_timestamp.saturating_add(record.timestamp_delta)
    };
    RawRecord {
        offset,
        timestamp,
        key: own(record.key),
        value: own(record.value),
        headers: record.headers.iter().map(|(key, value)| (key.to_vec(), own(*value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::TableKind;
    use sluice_protocol::batch::{HEADER_LEN, set_position, with_payload};
    use sluice_protocol::records::{BatchBuilder, Record, compress};

    fn raw_table() -> TableInfo {
        TableInfo {
            id: 1,
            uuid: uuid::Uuid::nil(),
            database: "default".to_owned(),
            name: "t".to_owned(),
            kind: TableKind::Raw,
            buckets: 1,
            options: Default::default(),
            created_ms: 0,
            epoch_base: 0,
            typed: None,
            partitions: None,
        }
    }

    fn raw(step: &Step) -> &[RawRecord] {
        match &step.scanned {
            Scanned::Raw(records) => records,
            Scanned::Typed(_) => panic!("a raw table"),
        }
    }

    #[test]
    fn nulls_repeats_and_bounds_are_kept() {
        let headers = vec![(&b"h"[..], Some(&b"1"[..])), (&b"h"[..], None), (&b"h"[..], Some(&b""[..]))];
        let first = Record { key: None, value: Some(b""), headers, ..Record::default() };
        let mut bytes = BatchBuilder::new(50).record(&first).record(&Record::new(Some(b""), None)).build();
        set_position(&mut bytes, 10, 0);
        let len = bytes.len();
        bytes.extend_from_slice(b"the next batch");
        let found = step(&raw_table(), &bytes, 0, 99).expect("decodes");
        assert_eq!((raw(&found).len(), found.used, found.next), (2, len, 12));
        let (first, second) = (&raw(&found)[0], &raw(&found)[1]);
        assert_eq!((first.offset, first.timestamp, &first.key), (10, 50, &None));
        assert_eq!(first.value.as_deref(), Some(&b""[..]));
        let values: Vec<_> = first.headers.iter().map(|(_, value)| value.as_deref()).collect();
        assert_eq!(values, [Some(&b"1"[..]), None, Some(&b""[..])]);
        assert_eq!((second.key.as_deref(), &second.value), (Some(&b""[..]), &None));
        assert_eq!(raw(&step(&raw_table(), &bytes, 11, 99).expect("decodes"))[0].offset, 11);
        assert_eq!(raw(&step(&raw_table(), &bytes, 0, 11).expect("decodes")).len(), 1);
        assert_eq!(step(&raw_table(), &bytes[..len - 1], 0, 99).expect_err("cut").kind, ErrorKind::Corrupt);
    }

    #[test]
    fn markers_hold_no_records_and_log_append_time_is_the_batch_own() {
        let plain = BatchBuilder::new(5).record(&Record::new(None, Some(b"v"))).build();
        let control = BatchBuilder::new(5).attributes(0x20).record(&Record::new(None, Some(b"v"))).build();
        assert!(raw(&step(&raw_table(), &control, 0, 9).expect("decodes")).is_empty());
        let mut appended = with_payload(&plain, 4, &compress(4, &plain[HEADER_LEN..]).expect("packs"));
        sluice_protocol::batch::set_max_timestamp(&mut appended, 77, true);
        assert_eq!(raw(&step(&raw_table(), &appended, 0, 9).expect("decodes"))[0].timestamp, 77);
    }
}
