use proptest::prelude::*;

use super::*;
use crate::row::compacted::tests::{ALL, row, schema};
use crate::row::{DataType, Datum};
use crate::types::TableId;

const BUCKET: BucketId = BucketId { table: TableId(1), partition: None, bucket: 1 };
const RANGE: ProducerRange = ProducerRange { id: 7, epoch: 2, first_sequence: 5, last_sequence: 6 };

fn placed(rows: &[Row]) -> (Schema, Vec<u8>) {
    let schema = schema(&ALL);
    let mut bytes = append_only(BUCKET, &schema, rows, Some(RANGE)).expect("builds").bytes.to_vec();
    let crc = set_place(&mut bytes, 100, 1_700_000_000_000, 3);
    let end = bytes.len() - CRC_LEN;
    put(&mut bytes, end, &crc.to_le_bytes());
    (schema, bytes)
}

proptest! {
    #[test]
    fn rows_come_back_with_their_offsets(rows in proptest::collection::vec(row(), 2..4)) {
        let (schema, bytes) = placed(&rows);
        prop_assert!(is_sound(&bytes));
        let view = BatchView::read(&bytes).expect("reads");
        prop_assert_eq!((view.head.base_offset, view.head.leader_epoch, view.head.max_timestamp), (100, 3, 1_700_000_000_000));
        let expected: Vec<_> = (100..).zip(rows).map(|(offset, row)| (offset, ChangeType::Append, row)).collect();
        prop_assert_eq!(view.rows(&schema).expect("decodes"), expected);
        let mut found = Vec::new();
        view.for_each_entry(|entry, offset, end| found.push((entry, offset, end)));
        prop_assert_eq!(found, [(Entry::own(RANGE, place_of(1)), 100, 100 + view.record_count as i64)]);
    }

    #[test]
    fn no_damage_is_taken_for_sound_and_none_panics(rows in proptest::collection::vec(row(), 2..3), at in any::<usize>(), bit in 0u8..8) {
        let (schema, mut bytes) = placed(&rows);
        let at = at % bytes.len();
        bytes[at] ^= 1u8 << bit;
        prop_assert!(!is_sound(&bytes), "byte {}", at);
        prop_assert!(!is_sound(&bytes[..at]));
        let _ = BatchView::read(&bytes).and_then(|view| view.rows(&schema).map(drop));
        crate::log::head::BatchKind::Sluice.for_each_mark(&bytes, |_| {});
    }
}

/// docs/storage-format-typed.md §3 shows two coalesced requests to a PK table; this is the reader's side of it.
#[test]
fn the_documented_batch_is_read() {
    let text = "640000000000000 0a700000053 0068e5cf8b010000 02000000 6c630d6f 0100 00 01000000 ffffffffffffffff ffffffff \
        02000000 00000000 0001 0100 5c000000 0100 0100 54000000 02000000 0700000000000000 0000 0300 01000000 ffffffffffffffff \
        05000000 05000000 00000000 01000000 0900000000000000 0300 0100 00000000 ffffffffffffffff 14000000 15000000 01000000 \
        01000000 05000000 01 00 0161 01 06000000 03 00 0162 ac02 dd70c240";
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    assert_eq!(bytes.len(), 0xb3);
    assert!(is_sound(&bytes));
    let view = BatchView::read(&bytes).expect("reads");
    let rows = view.rows(&schema(&[DataType::String, DataType::Int])).expect("decodes");
    let text = |text: &str| Datum::String(text.into());
    let expected = [
        (100, ChangeType::Insert, vec![text("a"), Datum::Int(1)]),
        (101, ChangeType::UpdateAfter, vec![text("b"), Datum::Int(300)]),
    ];
    assert_eq!(rows, expected);
    let mut found = Vec::new();
    view.for_each_entry(|entry, offset, _| found.push((entry.range.id, entry.source, entry.closing, offset)));
    assert_eq!(found, [(7, place_of(1), true, 100), (9, place_of(0), false, 101)]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let schema = schema(&[DataType::Int]);
    let error =
        append_only(BUCKET, &schema, &[vec![Datum::Int(1)], vec![Datum::Boolean(true)]], None).expect_err("refused");
    assert_eq!((error.kind, error.message.starts_with("row 1: column 'c0'")), (ErrorKind::InvalidArgument, true));
    assert_eq!(append_only(BUCKET, &schema, &[], None).expect_err("empty").kind, ErrorKind::InvalidArgument);
}

#[test]
fn closings_and_voids_are_read_back() {
    let schema = schema(&[DataType::Int]);
    let entry = Entry { range: RANGE, source: Place { partition: Some(3), bucket: 1 }, applies: false, closing: true };
    let elsewhere = vec![
        Destination { place: Place { partition: Some(2), bucket: 0 }, leader_epoch: 4, end_offset: 77 },
        Destination { place: place_of(9), leader_epoch: 0, end_offset: 1 },
    ];
    let made = changelog(&schema, &[], Some(entry), elsewhere.clone()).expect("builds");
    let view = BatchView::read(&made.bytes).expect("reads");
    assert_eq!((view.schema_id, view.record_count, view.head.last_offset_delta, view.head.control), (-1, 0, 0, false));
    assert_eq!(view.rows(&schema).expect("none"), []);
    assert_eq!(view.closing(0).expect("decodes"), elsewhere);
    assert_eq!(view.closing(1).expect("decodes"), []);
    let mut found = Vec::new();
    view.for_each_entry(|entry, first, end| found.push((entry, first, end)));
    assert_eq!(found, [(entry, 0, 1)]);
    let voids = vec![Void { offset: 5, range: RANGE }, Void { offset: 8, range: RANGE }];
    let made = void(voids.clone()).expect("builds");
    let view = BatchView::read(&made.bytes).expect("reads");
    assert!(is_sound(&made.bytes) && view.head.control);
    assert_eq!(view.voids().expect("decodes"), voids);
}

fn place_of(bucket: u32) -> Place {
    Place { partition: None, bucket }
}
