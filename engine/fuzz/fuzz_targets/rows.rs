//! Sluice log batches from any bytes, their checksums mended or not: no panic, and rows that come back
//! are those that were written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_engine_fuzz::log::head::BatchKind;
use sluice_engine_fuzz::row::batch::{self, BatchView};
use sluice_engine_fuzz::row::{DataType, Schema};
use sluice_engine_fuzz::types::{BucketId, TableId};

const TYPES: [DataType; 12] = [
    DataType::Boolean,
    DataType::TinyInt,
    DataType::SmallInt,
    DataType::Int,
    DataType::BigInt,
    DataType::Float,
    DataType::Decimal { precision: 18, scale: 2 },
    DataType::Decimal { precision: 38, scale: 6 },
    DataType::String,
    DataType::Binary { length: 2 },
    DataType::Time { precision: 3 },
    DataType::TimestampLtz { precision: 9 },
];

fn schema() -> Schema {
    Schema::first(TYPES.map(|data_type| ("c", data_type).into()), Vec::new())
}

fuzz_target!(|data: &[u8]| {
    BatchKind::Sluice.for_each_mark(data, |_| {});
    let _ = batch::is_sound(data);
    let Ok(rows) = BatchView::read(data).and_then(|view| view.rows(&schema())) else { return };
    let rows: Vec<_> = rows.into_iter().map(|(_, _, row)| row).collect();
    // A stored value may be one that no writer is allowed to make, such as BINARY of another length.
    let Ok(again) = batch::append_only(BucketId::new(TableId(1), 0), &schema(), &rows, None) else { return };
    assert!(batch::is_sound(&again.bytes));
    let back = BatchView::read(&again.bytes).and_then(|view| view.rows(&schema())).expect("what was written is read");
    let text = |rows: &[Vec<_>]| format!("{rows:?}");
    assert_eq!(text(&back.into_iter().map(|(_, _, row)| row).collect::<Vec<_>>()), text(&rows), "NaN is not itself");
});
