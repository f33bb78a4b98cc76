//! Tables with a primary key against what a real Apache Fluss 0.9.1 did: every acknowledged offset, every lookup, every
//! changelog (`tests/golden/`). Where Sluice decided otherwise, [`DIFFERENCES`] says so.

mod offsets;

use std::sync::Arc;

use serde_json::Value;
use sluice_engine::catalog::TableInfo;
use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::kv_tablet::Op;
use sluice_engine::row::{ColumnSpec, DataType, Datum, Row};
use sluice_engine::scan::{Scanned, step};
use sluice_engine::{Acks, Backend, BucketId, Embedded, Error, ErrorKind, UpsertRequest};

use crate::fixture::{open_engine, wait};

const FILES: [(&str, &str); 4] = [
    ("01", include_str!("../golden/01-default-full.json")),
    ("02", include_str!("../golden/02-default-wal.json")),
    ("03", include_str!("../golden/03-partial.json")),
    ("12", include_str!("../golden/12-schema-evolution.json")),
];

/// Cases whose files show a fault of Fluss, and the decision about it.
const DIFFERENCES: [(&str, &str); 3] = [
    (ALL_COLUMNS, "14: a target list of all columns is a full-row write"),
    ("kv format indexed", "23: kv indexed with log indexed is refused at CREATE"),
    (
        "BINARY length, TIMESTAMP before 1970",
        "20, 21: sub-millisecond digits before 1970 are kept, so the changelog reads",
    ),
];

/// Cases that this runner does not take: the merge engines that there are not, and one with a test of its own.
const ELSEWHERE: [&str; 3] = ["aggregation: added column", "first_row: added column", LOG_TABLE];

const LOG_TABLE: &str = "log table: old and new records read with the old and the new schema";

const ALL_COLUMNS: &str = "non-nullable non-PK column inside the target";

fn data_type(text: &str) -> DataType {
    match text {
        "INT" => DataType::Int,
        "BIGINT" => DataType::BigInt,
        "DOUBLE" => DataType::Double,
        "STRING" => DataType::String,
        "CHAR(2)" => DataType::Char { length: 2 },
        "BINARY(3)" => DataType::Binary { length: 3 },
        "TIMESTAMP(6)" => DataType::Timestamp { precision: 6 },
        other => panic!("a type that these files do not have: {other}"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").expect("hexadecimal");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits")).collect()
}

fn datum(value: &Value, of: DataType) -> Datum {
    match (value, of) {
        (Value::Null, _) => Datum::Null,
        (value, DataType::Int) => Datum::Int(value.as_i64().expect("a number") as i32),
        (value, DataType::BigInt) => Datum::BigInt(value.as_i64().expect("a number")),
        (value, DataType::Double) => Datum::Double(value.as_f64().expect("a number")),
        (value, DataType::Binary { .. }) => Datum::Bytes(hex(text(value))),
        (value, DataType::Timestamp { .. }) => Datum::Timestamp {
            ms: value[0].as_i64().expect("ms"),
            nanos: value[1].as_i64().expect("nanoseconds") as u32,
        },
        (value, _) => Datum::String(text(value).to_owned()),
    }
}

fn descriptor(ddl: &Value) -> TableDescriptor {
    let column = |column: &Value| {
        let (name, declared) = (text(&column[0]), text(&column[1]));
        let plain = declared.strip_suffix(" NOT NULL");
        ColumnSpec { nullable: plain.is_none(), ..(name, data_type(plain.unwrap_or(declared))).into() }
    };
    let mut made = TableDescriptor {
        columns: list(&ddl["columns"]).iter().map(column).collect(),
        primary_key: list(&ddl["primary_key"]).iter().map(|name| text(name).to_owned()).collect(),
        buckets: ddl["buckets"].as_u64().map(|buckets| buckets as u32),
        ..TableDescriptor::default()
    };
    for (name, value) in ddl["properties"].as_object().into_iter().flatten() {
        made.set(name, text(value)).expect("a property");
    }
    made
}

struct Table<'a> {
    engine: &'a Embedded,
    info: Arc<TableInfo>,
    case: &'a str,
    /// How many columns the client at work knows of.
    width: usize,
}

impl<'a> Table<'a> {
    fn new(engine: &'a Embedded, info: Arc<TableInfo>, case: &'a str) -> Self {
        let width = info.typed.as_ref().expect("a schema").schema.columns.len();
        Self { engine, info, case, width }
    }

    fn add_columns(&mut self, columns: Vec<ColumnSpec>) {
        self.info = wait(self.engine.add_columns(self.info.table_id(), columns)).expect(self.case);
        self.width = self.types().len();
    }

    /// Changes to the client that a note tells of.
    fn heed(&mut self, note: &str) {
        let versions = &self.info.typed.as_ref().expect("a schema").schema.earlier_widths;
        if note.contains("BEFORE the alter") || note.starts_with("old-schema") {
            self.width = usize::from(*versions.last().expect("an earlier version"));
        } else if note.starts_with("new") {
            self.width = self.types().len();
        }
    }

    fn bucket(&self) -> BucketId {
        BucketId::new(self.info.table_id(), 0)
    }

    fn types(&self) -> Vec<DataType> {
        let table = self.info.typed.as_ref().expect("a schema");
        table.schema.columns.iter().map(|column| column.data_type).collect()
    }

    fn row(&self, values: &Value) -> Row {
        let types = self.types();
        let of = |at: usize| types.get(at).copied().unwrap_or(DataType::Int);
        list(values).iter().enumerate().map(|(at, value)| datum(value, of(at))).collect()
    }

    /// The batch of a step; an error where no request could say it.
    fn ops(&self, step: &Value) -> Result<Vec<Op>, Error> {
        let table = self.info.typed.as_ref().expect("a schema");
        let target = match list(&step["target"]) {
            [] => None,
            names => {
                let mut places = Vec::new();
                for name in names {
                    let unknown = || Error::new(ErrorKind::InvalidArgument, format!("no column '{name}'"));
                    let place = table.schema.position(text(name)).ok_or_else(unknown)?;
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
                self.info.rules().expect("rules").check_target(&places)?;
                Some(Arc::from(places))
            }
        };
        let op = |one: &Value| Op { row: self.row(&one[1]), delete: one[0] == "delete", target: target.clone() };
        Ok(list(&step["batch"]).iter().map(op).collect())
    }

    fn write(&self, step: &Value) -> Result<i64, Error> {
        let request = UpsertRequest { source: None, range: None, ops: self.ops(step)?, acks: Acks::All };
        let done = wait(async { self.engine.upsert(self.info.table_id(), request).await?.await })?;
        Ok(done.parts[0].1.end_offset)
    }

    fn run(&mut self, at: usize, step: &Value) {
        let place = format!("{}, step {at}: {step}", self.case);
        match text(&step["op"]) {
            "note" => self.heed(text(&step["text"])),
            "alter" => {
                assert_eq!(step["changes"][0], "AddColumn{name='c', dataType=INT, comment='null', position=LAST}");
                self.add_columns(vec![("c", DataType::Int).into()]);
            }
            "write" => {
                let written = self.write(step);
                match step["ack_bucket_endoffset"][0][1].as_i64() {
                    Some(end) => assert_eq!(written.expect(&place), end, "{place}"),
                    None => {
                        let expected = match step["ack_bucket_endoffset"][0]["error"]["class"].as_str() {
                            Some("DeletionDisabledException") => ErrorKind::DeletesDisabled,
                            _ => ErrorKind::InvalidArgument,
                        };
                        assert_eq!(written.expect_err(&place).kind, expected, "{place}");
                    }
                }
                if let Some(latest) = step["latest_after"].as_i64() {
                    let offsets = self.engine.offsets(self.bucket()).expect(&place);
                    assert_eq!(offsets.high_watermark, latest, "{place}");
                }
            }
            "lookup" => {
                let table = self.info.typed.as_ref().expect("a schema");
                let types = self.types();
                let mut key = vec![Datum::Null; types.len()];
                for (value, place) in list(&step["key"]).iter().zip(&table.schema.primary_key) {
                    key[*place] = datum(value, types[*place]);
                }
                let mut found = wait(self.engine.lookup(self.info.table_id(), vec![key])).expect(&place);
                found.iter_mut().flatten().for_each(|row| row.truncate(self.width));
                let expected = (!step["row"].is_null()).then(|| self.row(&step["row"]));
                assert_eq!(found, [expected], "{place}");
            }
            other => panic!("a step that these files do not have: {other}"),
        }
    }

    fn changelog(&self) -> Vec<(i64, String, Row)> {
        let offsets = self.engine.offsets(self.bucket()).expect("online");
        let (mut next, mut found) = (offsets.log_start, Vec::new());
        while next < offsets.high_watermark {
            let bytes = wait(self.engine.read_bytes(self.bucket(), next, 1)).expect("reads");
            let one = step(&self.info, &bytes, next, offsets.high_watermark).expect("decodes");
            let Scanned::Typed(rows) = one.scanned else { panic!("rows") };
            found.extend(rows.into_iter().map(|(at, change, row)| (at, change.to_string(), row)));
            next = one.next;
        }
        found
    }

    fn check(&self, observed: &Value) {
        let offsets = self.engine.offsets(self.bucket()).expect("online");
        let expected = (observed["earliest"]["0"].as_i64(), observed["latest"]["0"].as_i64());
        assert_eq!((Some(offsets.log_start), Some(offsets.high_watermark)), expected, "{}", self.case);
        let change = |one: &Value| (one[0].as_i64().expect("an offset"), text(&one[1]).to_owned(), self.row(&one[2]));
        if let Some(expected) = observed["changelog"]["0"].as_array() {
            assert_eq!(self.changelog(), expected.iter().map(change).collect::<Vec<_>>(), "{}", self.case);
        } else {
            assert!(DIFFERENCES.iter().any(|(case, _)| *case == self.case), "{}: no changelog", self.case);
            assert!(!self.changelog().is_empty());
        }
    }
}

#[test]
fn tables_with_a_key_do_what_fluss_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_engine(directory.path()).expect("opens");
    let mut cases = 0;
    for (file, json) in FILES {
        let golden: Value = serde_json::from_str(json).expect("JSON");
        for case in list(&golden["cases"]) {
            let (name, ddl) = (text(&case["case"]), &case["ddl"]);
            if ELSEWHERE.contains(&name) {
                continue;
            }
            let made = wait(engine.create_typed(text(&ddl["table"]).to_owned(), descriptor(ddl)));
            cases += 1;
            if case.get("create_error").is_some() || name == "kv format indexed" {
                let refused = made.expect_err(name).kind;
                assert!(matches!(refused, ErrorKind::InvalidArgument | ErrorKind::Unsupported), "{file} {name}");
                continue;
            }
            let mut table = Table::new(&engine, made.expect(name), name);
            for (at, step) in list(&case["steps"]).iter().enumerate() {
                let all = list(&step["target"]).len() == table.types().len();
                if name == ALL_COLUMNS && all {
                    table.ops(step).expect("a full row");
                } else {
                    table.run(at, step);
                }
            }
            table.check(&case["observed"]);
        }
    }
    assert_eq!(cases, 26);
}

#[test]
fn old_and_new_records_of_a_log_table_are_read_with_the_newest_schema() {
    let golden: Value = serde_json::from_str(FILES[3].1).expect("JSON");
    let case = list(&golden["cases"]).iter().find(|case| case["case"] == LOG_TABLE).expect("the case");
    let directory = tempfile::tempdir().expect("a directory");
    let engine = open_engine(directory.path()).expect("opens");
    let made = wait(engine.create_typed("s12_log".to_owned(), descriptor(&case["ddl"]))).expect("makes");
    let mut table = Table::new(&engine, made, LOG_TABLE);
    let append = |table: &Table<'_>, row: &[i32]| {
        let op = Op { row: row.iter().map(|value| Datum::Int(*value)).collect(), delete: false, target: None };
        let request = UpsertRequest { source: None, range: None, ops: vec![op], acks: Acks::All };
        wait(async { engine.upsert(table.info.table_id(), request).await?.await }).expect("appends");
    };
    append(&table, &[1, 1]);
    table.add_columns(vec![("c", DataType::Int).into()]);
    append(&table, &[2, 2, 22]);
    append(&table, &[3, 3]);
    let row = |one: &Value| (one[0].as_i64().expect("an offset"), text(&one[1]).to_owned(), table.row(&one[2]));
    let expected: Vec<_> = list(&case["new_reader"]["ok"]["0"]).iter().map(row).collect();
    assert_eq!(table.changelog(), expected);
}
