//! R3: what a batch of rows costs, in the COMPACTED encoding that is stored and as Arrow IPC, plain and with zstd.
//! `cargo run --release --example r3_batches`; docs/decisions/0006 has the figures.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::StreamWriter;
use sluice_compat_tests::Outcome;
use sluice_engine::log::head::ProducerRange;
use sluice_engine::row::batch::{BatchView, append_only};
use sluice_engine::row::{DataType, Datum, Row, Schema};
use sluice_engine::{BucketId, TableId};
use sluice_gateway::convert::json::{TimestampStyle, decode, encode};
use sluice_protocol::records::compress;

const ZSTD: i16 = 4;

fn row(at: usize) -> Row {
    vec![
        Datum::BigInt(at as i64),
        Datum::String(format!("name-{}", at % 1_000)),
        Datum::String(format!("{:072x}", (at as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))),
        Datum::BigInt(at as i64 * 7),
    ]
}

/// Microseconds that one run of `body` takes.
fn micros(rows: usize, mut body: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let runs = 200_000 / rows.max(10);
    let from = Instant::now();
    for _ in 0..runs {
        body()?;
    }
    Ok(from.elapsed().as_secs_f64() * 1e6 / runs as f64)
}

fn arrow_batch(rows: &[Row]) -> Outcome<Vec<u8>> {
    let long = |at: usize| -> ArrayRef {
        let value = |row: &Row| if let Some(Datum::BigInt(value)) = row.get(at) { Some(*value) } else { None };
        Arc::new(rows.iter().map(value).collect::<Int64Array>())
    };
    let text = |at: usize| -> ArrayRef {
        let value = |row: &Row| if let Some(Datum::String(text)) = row.get(at) { Some(text.clone()) } else { None };
        Arc::new(rows.iter().map(value).collect::<StringArray>())
    };
    let batch = RecordBatch::try_from_iter([("id", long(0)), ("name", text(1)), ("payload", text(2)), ("v", long(3))])?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    // The schema is known by its id: only the batch's own message counts.
    let schema = writer.get_ref().len();
    writer.write(&batch)?;
    Ok(writer.into_inner()?.split_off(schema))
}

fn main() -> Outcome<()> {
    let columns =
        [("id", DataType::BigInt), ("name", DataType::String), ("payload", DataType::String), ("v", DataType::BigInt)];
    let schema = Schema::first(columns.map(Into::into), Vec::new());
    let places = [0, 1, 2, 3];
    let bucket = BucketId::new(TableId(1), 0);
    println!("{:<38} {:>12} {:>14} {:>14}", "", "bytes a row", "us a batch", "ns a row");
    for count in [1, 10, 1_000] {
        let rows: Vec<Row> = (0..count).map(row).collect();
        let range = Some(ProducerRange { id: 7, epoch: 0, first_sequence: 0, last_sequence: count as i32 - 1 });
        let line = |what: &str, bytes: Option<usize>, micros: f64| {
            let bytes = bytes.map(|bytes| format!("{:.1}", bytes as f64 / count as f64)).unwrap_or_default();
            println!(
                "{:<38} {bytes:>12} {micros:>14.1} {:>14.0}",
                format!("{count} rows: {what}"),
                micros * 1e3 / count as f64
            );
        };
        let stored = append_only(bucket, &schema, &rows, range)?.bytes;
        let taken = micros(count, || append_only(bucket, &schema, &rows, range).map(drop).map_err(Into::into))?;
        line("COMPACTED, write", Some(stored.len()), taken);
        let taken = micros(count, || BatchView::read(&stored)?.rows(&schema).map(drop).map_err(Into::into))?;
        line("COMPACTED, read", None, taken);
        let plain = arrow_batch(&rows)?;
        let taken = micros(count, || arrow_batch(&rows).map(drop))?;
        line("Arrow IPC from rows", Some(plain.len()), taken);
        let packed = compress(ZSTD, &plain)?;
        let taken = micros(count, || compress(ZSTD, &arrow_batch(&rows)?).map(drop).map_err(Into::into))?;
        line("Arrow IPC and zstd", Some(packed.len()), taken);
        let json: Vec<Vec<u8>> = rows.iter().map(|row| encode(&schema, &places, row, TimestampStyle::Sql)).collect();
        let taken = micros(count, || {
            json.iter().try_for_each(|json| decode(&schema, &places, json).map(drop))?;
            Ok(())
        })?;
        line("JSON to rows", Some(json.iter().map(Vec::len).sum()), taken);
        let taken = micros(count, || {
            rows.iter().for_each(|row| drop(encode(&schema, &places, row, TimestampStyle::Sql)));
            Ok(())
        })?;
        line("rows to JSON", None, taken);
    }
    Ok(())
}
