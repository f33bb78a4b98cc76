//! Offsets by time (`11-offsets.json`). Fluss refuses a time that is not over yet; Kafka, whose question this is here,
//! says that there is no such record, which is also the answer for the time after the last one.

use std::sync::Arc;

use serde_json::Value;
use sluice_engine::catalog::TableKind;
use sluice_engine::kv_tablet::Op;
use sluice_engine::row::batch::append_only;
use sluice_engine::tablet::LogBatch;
use sluice_engine::{Acks, Backend, BucketId, Embedded, ErrorKind, ManualClock, RealDisk, UpsertRequest};

use super::{Table, descriptor, list, text};
use crate::fixture::{NOW_MS, engine_config, wait};

/// Between the commits.
const STEP_MS: i64 = 10_000;

/// What Fluss answers with an error, and Kafka's question with none.
const IN_THE_FUTURE: [&str; 2] = ["now+1h", "i64 max"];

/// The time that a line of the file asks for. The batches are committed at `NOW_MS` and one step and two steps later.
fn time(asked: &str) -> i64 {
    match asked {
        "timestamp now-1000" => NOW_MS - 1_000,
        "timestamp 0" => 0,
        "now-1ms (after the last commit)" => NOW_MS + 3 * STEP_MS - 1,
        "now+1h" => NOW_MS + 3 * STEP_MS + 3_600_000,
        "i64 max" => i64::MAX,
        relative => match relative.strip_prefix('T') {
            Some(rest) => {
                let (ordinal, plus) = rest.split_at(1);
                let plus: i64 = if plus.is_empty() { 0 } else { plus.parse().expect("milliseconds") };
                NOW_MS + ordinal.parse::<i64>().expect("an ordinal") * STEP_MS + plus
            }
            None => relative.parse().expect("milliseconds"),
        },
    }
}

/// The offset that a line asks for; `None` where no record is as late.
fn offset(table: &Table<'_>, asked: &str) -> Option<i64> {
    let offsets = table.engine.offsets(table.bucket()).expect("online");
    match asked {
        "earliest" => Some(offsets.log_start),
        "latest" => Some(offsets.high_watermark),
        asked => {
            let found = wait(table.engine.offset_for_time(table.bucket(), time(asked))).expect("answers");
            found.map(|(offset, _)| offset)
        }
    }
}

fn write(table: &Table<'_>, rows: &[&Value]) {
    let rows: Vec<_> = rows.iter().map(|row| table.row(row)).collect();
    if table.info.kind == TableKind::Pk {
        let ops = rows.into_iter().map(Op::upsert).collect();
        let request = UpsertRequest { source: None, range: None, ops, acks: Acks::All };
        wait(async { table.engine.upsert(table.info.table_id(), request).await?.await }).expect("upserts");
    } else {
        let schema = &table.info.typed.as_ref().expect("a schema").schema;
        let batch = LogBatch::Typed(append_only(table.bucket(), schema, &rows, None).expect("a batch"));
        wait(async { table.engine.append(table.bucket(), batch, Acks::All).await?.await }).expect("appends");
    }
}

/// The lines of a case whose question begins with "empty table: ", or those that do not; how many there were.
fn check(table: &Table<'_>, case: &Value, empty: bool) -> usize {
    let lines = list(&case["list_offsets"]).iter().map(|line| (text(&line[0]), &line[1]));
    let of_it = lines.filter_map(|(asked, expected)| match asked.strip_prefix("empty table: ") {
        Some(asked) => empty.then_some((asked, expected)),
        None => (!empty).then_some((asked, expected)),
    });
    let end = table.engine.offsets(table.bucket()).expect("online").high_watermark;
    let mut checked = 0;
    for (asked, expected) in of_it {
        checked += 1;
        let place = format!("{}: {asked}", table.case);
        if asked == "unknown bucket 5" {
            let unknown = BucketId::new(table.info.table_id(), 5);
            let refused = wait(table.engine.offset_for_time(unknown, 0)).expect_err(&place);
            assert_eq!(refused.kind, ErrorKind::BucketNotFound, "{place}");
        } else if IN_THE_FUTURE.contains(&asked) {
            assert_eq!(text(&expected["class"]), "InvalidTimestampException", "{place}");
            assert_eq!(offset(table, asked), None, "{place}");
        } else {
            assert_eq!(Some(offset(table, asked).unwrap_or(end)), expected.as_i64(), "{place}");
        }
    }
    checked
}

/// A log table is not looked up, and no log is read beyond its end.
fn check_refusals(table: &Table<'_>) {
    let row = table.row(&serde_json::json!([1, "x"]));
    let looked_up = wait(table.engine.lookup(table.info.table_id(), vec![row]));
    assert_eq!(looked_up.expect_err("no key").kind, ErrorKind::InvalidArgument);
    let beyond = wait(table.engine.read_bytes(table.bucket(), 100, 1));
    assert_eq!(beyond.expect_err("beyond the end").kind, ErrorKind::OffsetOutOfRange);
}

#[test]
fn offsets_by_time_are_those_of_fluss() {
    let golden: Value = serde_json::from_str(include_str!("../../golden/11-offsets.json")).expect("JSON");
    let mut checked = 0;
    for case in list(&golden["cases"]).iter().filter(|case| case.get("list_offsets").is_some()) {
        let (directory, clock) = (tempfile::tempdir().expect("a directory"), Arc::new(ManualClock::new(NOW_MS)));
        let (config, disk) = (engine_config(directory.path()), Arc::new(RealDisk));
        let engine = Embedded::open(config, disk, Arc::clone(&clock) as _).expect("opens");
        let ddl = &case["ddl"];
        let info = wait(engine.create_typed(text(&ddl["table"]).to_owned(), descriptor(ddl))).expect("creates");
        let table = Table::new(&engine, info, text(&case["case"]));
        checked += check(&table, case, true);
        let (rows, times) = (list(&case["changelog"]["0"]), list(&case["record_commit_time"]));
        for commit in 0..3 {
            let name = format!("T{commit}");
            let of_it = rows.iter().zip(times).filter(|(_, at)| text(at) == name);
            write(&table, &of_it.map(|(row, _)| &row[2]).collect::<Vec<_>>());
            clock.advance(STEP_MS);
        }
        checked += check(&table, case, false);
        if table.info.kind == TableKind::Log {
            check_refusals(&table);
        }
    }
    assert_eq!(checked, 44);
}
