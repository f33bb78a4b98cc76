use proptest::prelude::*;
use sluice_engine::row::DataType;

use super::*;

fn schema(columns: &[(&str, DataType)]) -> Schema {
    Schema::first(columns.iter().map(|column| (*column).into()), Vec::new())
}

fn one(data_type: DataType, json: &str) -> Result<Datum, ConvertError> {
    let row = decode(&schema(&[("v", data_type)]), &[0], format!(r#"{{"v":{json}}}"#).as_bytes())?;
    Ok(row.into_iter().next().expect("one column"))
}

fn shown(data_type: DataType, datum: Datum, style: TimestampStyle) -> String {
    let json = encode(&schema(&[("v", data_type)]), &[0], &vec![datum], style);
    let text = String::from_utf8(json).expect("text");
    text["{\"v\":".len()..text.len() - 1].to_owned()
}

const DECIMAL: DataType = DataType::Decimal { precision: 5, scale: 2 };

#[test]
fn values_are_read_as_flink_reads_them() {
    let text = |text: &str| Datum::String(text.to_owned());
    let stamp = |ms, nanos| Datum::Timestamp { ms, nanos };
    let (ts3, ts9) = (DataType::Timestamp { precision: 3 }, DataType::Timestamp { precision: 9 });
    let cases = [
        (DataType::Boolean, "true", Datum::Boolean(true)),
        (DataType::Boolean, "\"FALSE\"", Datum::Boolean(false)),
        (DataType::TinyInt, "-128", Datum::TinyInt(-128)),
        (DataType::SmallInt, "\" 7 \"", Datum::SmallInt(7)),
        (DataType::Int, "1e2", Datum::Int(100)),
        (DataType::Int, "5.0", Datum::Int(5)),
        (DataType::BigInt, "-9223372036854775808", Datum::BigInt(i64::MIN)),
        (DataType::Double, "\"-Infinity\"", Datum::Double(f64::NEG_INFINITY)),
        (DataType::Double, "0.1", Datum::Double(0.1)),
        (DataType::Float, "16777217", Datum::Float(16_777_216.0)),
        (DECIMAL, "1.005", Datum::Decimal(101)),
        (DECIMAL, "\"-999.99\"", Datum::Decimal(-99_999)),
        (DataType::String, "\"a\\n\\u00e9\"", text("a\né")),
        (DataType::String, "1.50", text("1.50")),
        (DataType::String, "{\"a\": [1]}", text("{\"a\": [1]}")),
        (DataType::String, "true", text("true")),
        (DataType::Bytes, "\"AP8=\"", Datum::Bytes(vec![0, 255])),
        (DataType::Bytes, "\"AP8\"", Datum::Bytes(vec![0, 255])),
        (DataType::Date, "\"1969-12-31\"", Datum::Date(-1)),
        (DataType::Time { precision: 3 }, "\"00:00:01.2345\"", Datum::Time(1_234)),
        (ts3, "\"1970-01-01 00:00:01.678\"", stamp(1_678, 0)),
        (ts3, "\"1970-01-01T00:00:01.678999\"", stamp(1_678, 0)),
        (ts9, "\"1969-12-31 23:59:59.999999999\"", stamp(-1, 999_999)),
        (DataType::TimestampLtz { precision: 3 }, "\"1970-01-01 00:00:01Z\"", stamp(1_000, 0)),
        (DataType::TimestampLtz { precision: 3 }, "\"1970-01-01T00:00:01+01:00\"", stamp(-3_599_000, 0)),
        (DataType::Int, "null", Datum::Null),
    ];
    for (data_type, json, expected) in cases {
        assert_eq!(one(data_type, json).expect(json), expected, "{data_type} from {json}");
    }
    assert!(matches!(one(DataType::Double, "\"NaN\""), Ok(Datum::Double(value)) if value.is_nan()));
}

#[test]
fn values_are_written_as_flink_writes_them() {
    let sql = |data_type, datum| shown(data_type, datum, TimestampStyle::Sql);
    let stamp = |nanos| Datum::Timestamp { ms: 1_704_164_645_678, nanos };
    let (ts, ltz) = (DataType::Timestamp { precision: 9 }, DataType::TimestampLtz { precision: 3 });
    assert_eq!(sql(ts, stamp(0)), "\"2024-01-02 03:04:05.678\"");
    assert_eq!(sql(ts, stamp(10)), "\"2024-01-02 03:04:05.67800001\"");
    assert_eq!(sql(ltz, stamp(0)), "\"2024-01-02 03:04:05.678Z\"");
    assert_eq!(shown(ltz, stamp(0), TimestampStyle::Iso8601), "\"2024-01-02T03:04:05.678Z\"");
    assert_eq!(sql(DECIMAL, Datum::Decimal(-5)), "-0.05");
    assert_eq!(sql(DECIMAL, Datum::Decimal(1_230)), "12.30");
    assert_eq!(sql(DataType::Double, Datum::Double(2.0)), "2.0");
    assert_eq!(sql(DataType::Float, Datum::Float(f32::NAN)), "\"NaN\"");
    assert_eq!(sql(DataType::Bytes, Datum::Bytes(vec![0, 255])), "\"AP8=\"");
    assert_eq!(sql(DataType::Time { precision: 0 }, Datum::Time(61_000)), "\"00:01:01\"");
    assert_eq!(sql(DataType::String, Datum::String("a\"\n".to_owned())), "\"a\\\"\\n\"");
    assert_eq!(sql(DataType::Int, Datum::Null), "null");
}

#[test]
fn what_does_not_fit_is_refused_with_what_came() {
    let cases = [
        (DataType::Int, "\"abc\"", "expected INT, got \"abc\""),
        (DataType::Int, "2147483648", "2147483648 is out of the range of INT"),
        (DataType::TinyInt, "128", "out of the range"),
        (DataType::Int, "1.5", "1.5 has a fraction"),
        (DataType::Int, "true", "expected INT, got true"),
        (DataType::BigInt, "[1]", "expected BIGINT, got [1]"),
        (DataType::BigInt, "9223372036854775808", "out of the range"),
        (DECIMAL, "1000", "out of the range of DECIMAL(5, 2)"),
        (DECIMAL, "{}", "expected DECIMAL(5, 2), got {}"),
        (DataType::Double, "1e400", "out of the range"),
        (DataType::Float, "1e39", "out of the range"),
        (DataType::Double, "\"inf\"", "expected DOUBLE"),
        (DataType::Boolean, "1", "expected BOOLEAN, got 1"),
        (DataType::Bytes, "\"?\"", "expected BYTES"),
        (DataType::Binary { length: 3 }, "\"AP8=\"", "out of the range of BINARY(3)"),
        (DataType::Date, "\"2023-02-29\"", "expected DATE"),
        (DataType::Date, "19000", "expected DATE, got 19000"),
        (DataType::TimestampLtz { precision: 3 }, "\"2024-01-02 03:04:05\"", "expected TIMESTAMP_LTZ(3)"),
        (DataType::String, "\"\\ud800\"", "is not text"),
    ];
    for (data_type, json, part) in cases {
        let error = one(data_type, json).expect_err(json);
        assert_eq!(error.column.as_deref(), Some("v"), "{error}");
        assert!(error.reason.contains(part), "{json}: {error}");
    }
}

#[test]
fn fields_are_the_columns_that_are_expected() {
    let mut schema = schema(&[("id", DataType::Int), ("name", DataType::String), ("price", DECIMAL)]);
    schema.columns[0].nullable = false;
    let read = |positions: &[usize], json: &str| decode(&schema, positions, json.as_bytes());
    let all = [0, 1, 2];
    let row = vec![Datum::Int(1), Datum::Null, Datum::Decimal(150)];
    assert_eq!(read(&all, r#" { "price" : 1.5 , "\u0069d" : 1 } "#), Ok(row.clone()));
    assert_eq!(encode(&schema, &[2, 0], &row, TimestampStyle::Sql), br#"{"price":1.50,"id":1}"#);
    let refused = |positions: &[usize], json: &str| read(positions, json).expect_err(json).to_string();
    assert_eq!(
        refused(&all, r#"{"id":1,"nmae":"x"}"#),
        "column 'nmae': the table has no such column; did you mean 'name'?"
    );
    assert_eq!(refused(&[0, 1], r#"{"id":1,"price":1}"#), "column 'price': the column does not belong here");
    assert_eq!(refused(&all, r#"{"id":1,"name":"a","name":"a"}"#), "column 'name': the field is given twice");
    assert_eq!(refused(&all, r#"{"id":null}"#), "column 'id': is NOT NULL, got null");
    assert_eq!(refused(&all, r#"{"name":"a"}"#), "column 'id': is NOT NULL, but there is no such field");
    for broken in ["", "{", "[1]", "7", "{\"id\":1} x", "{\"id\":01}", "{\"id\":1,}", "{\"id\":NaN}"] {
        assert!(refused(&all, broken).starts_with("not a JSON object"), "{broken}");
    }
    decode(&schema, &all, b"{\"id\":1,\"name\":\"\xff\"}").expect_err("not UTF-8");
    decode(&schema, &all, "{\"id\":".repeat(100_000).as_bytes()).expect_err("too deep");
    let (row, present) = decode_partial(&schema, &all, br#"{"name":null}"#).expect("decodes");
    assert_eq!((row, present), (vec![Datum::Null; 3], vec![false, true, false]));
}

fn data_type() -> impl Strategy<Value = DataType> {
    prop_oneof![
        prop::sample::select(vec![
            DataType::Boolean,
            DataType::TinyInt,
            DataType::SmallInt,
            DataType::Int,
            DataType::BigInt,
            DataType::Float,
            DataType::Double,
            DataType::String,
            DataType::Char { length: 3 },
            DataType::Bytes,
            DataType::Date,
        ]),
        (1_u8..=38)
            .prop_flat_map(|precision| (Just(precision), 0..=precision))
            .prop_map(|(precision, scale)| DataType::Decimal { precision, scale }),
        (0_u32..40).prop_map(|length| DataType::Binary { length }),
        (0_u8..=9).prop_map(|precision| DataType::Time { precision }),
        (0_u8..=9).prop_map(|precision| DataType::Timestamp { precision }),
        (0_u8..=9).prop_map(|precision| DataType::TimestampLtz { precision }),
    ]
}

/// 0000-01-01 to 9999-12-31, in seconds.
const SECONDS: std::ops::Range<i64> = -62_167_219_200..253_402_300_800;

fn datum(data_type: DataType) -> BoxedStrategy<Datum> {
    let cut = |nanos: u32, precision: u8| nanos - nanos % 10_u32.pow(9 - u32::from(precision));
    match data_type {
        DataType::Boolean => any::<bool>().prop_map(Datum::Boolean).boxed(),
        DataType::TinyInt => any::<i8>().prop_map(Datum::TinyInt).boxed(),
        DataType::SmallInt => any::<i16>().prop_map(Datum::SmallInt).boxed(),
        DataType::Int => any::<i32>().prop_map(Datum::Int).boxed(),
        DataType::BigInt => any::<i64>().prop_map(Datum::BigInt).boxed(),
        DataType::Float => any::<u32>().prop_map(|bits| Datum::Float(f32::from_bits(bits))).boxed(),
        DataType::Double => any::<u64>().prop_map(|bits| Datum::Double(f64::from_bits(bits))).boxed(),
        DataType::Decimal { precision, .. } => {
            let most = 10_i128.pow(u32::from(precision)) - 1;
            (-most..=most).prop_map(Datum::Decimal).boxed()
        }
        DataType::Char { .. } | DataType::String => any::<String>().prop_map(Datum::String).boxed(),
        DataType::Binary { length } => {
            prop::collection::vec(any::<u8>(), length as usize).prop_map(Datum::Bytes).boxed()
        }
        DataType::Bytes => prop::collection::vec(any::<u8>(), 0..40).prop_map(Datum::Bytes).boxed(),
        DataType::Date => (-719_528..2_932_897).prop_map(Datum::Date).boxed(),
        DataType::Time { precision } => (0..86_400_u32, 0..1_000_000_000_u32)
            .prop_map(move |(second, nanos)| {
                Datum::Time((second * 1_000 + cut(nanos, precision.min(3)) / 1_000_000) as i32)
            })
            .boxed(),
        DataType::Timestamp { precision } | DataType::TimestampLtz { precision } => (SECONDS, 0..1_000_000_000_u32)
            .prop_map(move |(second, nanos)| {
                let nanos = cut(nanos, precision);
                Datum::Timestamp { ms: second * 1_000 + i64::from(nanos / 1_000_000), nanos: nanos % 1_000_000 }
            })
            .boxed(),
    }
}

fn typed_row() -> impl Strategy<Value = (Vec<DataType>, Row)> {
    let columns = data_type().prop_flat_map(|data_type| {
        (Just(data_type), prop_oneof![1 => Just(Datum::Null).boxed(), 9 => datum(data_type)])
    });
    prop::collection::vec(columns, 0..12).prop_map(|columns| columns.into_iter().unzip())
}

proptest! {
    /// Floats are compared by how they are shown, since NaN is not equal to itself.
    #[test]
    fn a_row_comes_back_from_json((types, row) in typed_row(), iso in any::<bool>()) {
        let names: Vec<_> = (0..types.len()).map(|place| format!("c\"{place}")).collect();
        let columns: Vec<_> = names.iter().map(String::as_str).zip(types).collect();
        let (schema, places) = (schema(&columns), (0..columns.len()).collect::<Vec<_>>());
        let style = if iso { TimestampStyle::Iso8601 } else { TimestampStyle::Sql };
        let json = encode(&schema, &places, &row, style);
        let back = decode(&schema, &places, &json).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(format!("{back:?}"), format!("{row:?}"));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), data_type in data_type(), text in any::<String>()) {
        let schema = schema(&[("v", data_type)]);
        let _ = decode(&schema, &[0], &bytes);
        let _ = one(data_type, &serde_json::to_string(&text).expect("text"));
    }
}
