use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::row::compacted::tests::{ALL, schema, value};

/// The order that keys are to have.
fn compare(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Boolean(a), Datum::Boolean(b)) => a.cmp(b),
        (Datum::TinyInt(a), Datum::TinyInt(b)) => a.cmp(b),
        (Datum::SmallInt(a), Datum::SmallInt(b)) => a.cmp(b),
        (Datum::Int(a), Datum::Int(b)) | (Datum::Date(a), Datum::Date(b)) | (Datum::Time(a), Datum::Time(b)) => {
            a.cmp(b)
        }
        (Datum::BigInt(a), Datum::BigInt(b)) => a.cmp(b),
        (Datum::Float(a), Datum::Float(b)) => a.total_cmp(b),
        (Datum::Double(a), Datum::Double(b)) => a.total_cmp(b),
        (Datum::Decimal(a), Datum::Decimal(b)) => a.cmp(b),
        (Datum::String(a), Datum::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Datum::Bytes(a), Datum::Bytes(b)) => a.cmp(b),
        (Datum::Timestamp { ms: a, nanos: an }, Datum::Timestamp { ms: b, nanos: bn }) => (a, an).cmp(&(b, bn)),
        other => panic!("{other:?}"),
    }
}

/// Values that are near one another, or at an end, beside any.
fn close(data_type: DataType) -> BoxedStrategy<Datum> {
    let floats = [0.0f32, -0.0, 1.5, -1.5, f32::MIN, f32::MAX, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45];
    let doubles = [0.0, -0.0, -1e-300, 1e-300, f64::MIN, f64::MAX, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let few = match data_type {
        DataType::Float => proptest::sample::select(floats.to_vec()).prop_map(Datum::Float).boxed(),
        DataType::Double => proptest::sample::select(doubles.to_vec()).prop_map(Datum::Double).boxed(),
        DataType::String => "[\\x00\\x01a\u{ff}]{0,4}".prop_map(Datum::String).boxed(),
        DataType::Bytes => {
            proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 0..4).prop_map(Datum::Bytes).boxed()
        }
        other => value(other),
    };
    prop_oneof![few, value(data_type)].boxed()
}

fn key() -> impl Strategy<Value = Vec<Datum>> {
    ALL.iter().map(|data_type| close(*data_type)).collect::<Vec<_>>()
}

fn encode(at: &[usize], row: &[Datum]) -> Vec<u8> {
    let mut out = Vec::new();
    write_columns(&schema(&ALL), at, row, &mut out).expect("a key");
    out
}

proptest! {
    #[test]
    fn bytes_sort_as_values_and_none_begins_with_another(a in key(), b in key()) {
        for at in 0..ALL.len() {
            let (x, y) = (encode(&[at], &a), encode(&[at], &b));
            prop_assert_eq!(x.cmp(&y), compare(&a[at], &b[at]), "{:?} and {:?}", a[at], b[at]);
            prop_assert!(x == y || !(x.starts_with(&y) || y.starts_with(&x)), "{:?} and {:?}", a[at], b[at]);
        }
        // Of several columns the first that differs decides.
        let all: Vec<usize> = (0..ALL.len()).collect();
        let by_column = a.iter().zip(&b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
        prop_assert_eq!(encode(&all, &a).cmp(&encode(&all, &b)), by_column.unwrap_or(Ordering::Equal));
    }

    #[test]
    fn keys_come_back(row in key()) {
        let all: Vec<usize> = (0..ALL.len()).rev().collect();
        let bytes = encode(&all, &row);
        let back = read_columns(&schema(&ALL), &all, &bytes).expect("reads");
        let expected: Vec<&Datum> = row.iter().rev().collect();
        prop_assert_eq!(format!("{back:?}"), format!("{expected:?}"), "NaN is not itself");
        prop_assert!(read_columns(&schema(&ALL), &all, &bytes[..bytes.len() - 1]).is_err());
        prop_assert!(read_columns(&schema(&ALL), &all, &[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), at in 0..ALL.len()) {
        let _ = read_columns(&schema(&ALL), &[at], &bytes);
        if let Ok(key) = StoreKey::decode(&bytes) {
            prop_assert_eq!(key.encode(), bytes);
        }
    }
}

#[test]
fn the_documented_keys_are_these_bytes() {
    let place = Place { partition: None, bucket: 1 };
    let schema = schema(&[DataType::String, DataType::Int]);
    let mut columns = Vec::new();
    write_columns(&schema, &[0], &[Datum::String("b".into()), Datum::Int(300)], &mut columns).expect("a key");
    let row = StoreKey::Row { place, columns: &columns };
    assert_eq!(row.encode(), [0x20, 0, 0, 0, 1, 0x62, 0, 0]);
    let applied = StoreKey::Applied(place);
    assert_eq!(applied.encode(), [[1].as_slice(), &[0xff; 8], &[0, 0, 0, 1]].concat());
    let place = Place { partition: Some(7), bucket: 1 };
    let increment = StoreKey::AutoIncrement { column: 2, place };
    assert_eq!(increment.encode(), [2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1]);
    let partitioned = StoreKey::Row { place, columns: &columns };
    assert_eq!(partitioned.encode(), [0x21, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0x62, 0, 0]);
    for key in [StoreKey::Format, row, applied, increment, partitioned] {
        assert_eq!(StoreKey::decode(&key.encode()).expect("reads"), key);
    }
}

#[test]
fn columns_have_the_documented_bytes() {
    let key = |data_type, value| {
        let mut out = Vec::new();
        write_columns(&schema(&[data_type]), &[0], &[value], &mut out).expect("a key");
        out
    };
    assert_eq!(key(DataType::Int, Datum::Int(-1)), [0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(key(DataType::Float, Datum::Float(-0.0)), [0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(key(DataType::Float, Datum::Float(f32::from_bits(0xffc0_0001))), [0xff, 0xc0, 0, 0]);
    assert_eq!(key(DataType::Decimal { precision: 18, scale: 2 }, Datum::Decimal(1)), [0x80, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(key(DataType::Decimal { precision: 19, scale: 2 }, Datum::Decimal(1)).len(), 16);
    let moment = Datum::Timestamp { ms: -1, nanos: 999_000 };
    assert_eq!(key(DataType::Timestamp { precision: 3 }, moment.clone()), [0x7f, 255, 255, 255, 255, 255, 255, 255]);
    let fine = key(DataType::TimestampLtz { precision: 6 }, moment);
    assert_eq!(fine, [0x7f, 255, 255, 255, 255, 255, 255, 255, 0, 0x0f, 0x3e, 0x58]);
    assert_eq!(key(DataType::Bytes, Datum::Bytes(vec![1, 0, 2])), [1, 0, 0xff, 2, 0, 0]);
}

#[test]
fn what_is_no_key_is_refused_by_name() {
    let refuse = |data_type, value: Datum| {
        write_columns(&schema(&[data_type]), &[0], &[value], &mut Vec::new()).expect_err("refused").message
    };
    assert!(refuse(DataType::Int, Datum::Null).starts_with("key column 'c0': Null"));
    assert!(refuse(DataType::Binary { length: 2 }, Datum::Bytes(vec![1])).contains("BINARY(2)"));
    let narrow = DataType::Decimal { precision: 18, scale: 0 };
    assert!(refuse(narrow, Datum::Decimal(i128::from(i64::MAX) + 1)).contains("DECIMAL(18, 0)"));
    assert_eq!(StoreKey::decode(&[3]).expect_err("newer").kind, ErrorKind::Unsupported);
    assert_eq!(StoreKey::decode(&[]).expect_err("none").kind, ErrorKind::Corrupt);
    assert_eq!(StoreKey::decode(&[0, 0]).expect_err("too long").kind, ErrorKind::Corrupt);
    assert_eq!(
        StoreKey::decode(&[[0x21].as_slice(), &[0xff; 12]].concat()).expect_err("none").kind,
        ErrorKind::Corrupt
    );
}
