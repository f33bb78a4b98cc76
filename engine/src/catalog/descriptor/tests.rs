use super::*;
use crate::error::ErrorKind;

fn column(name: &str, data_type: DataType) -> ColumnSpec {
    ColumnSpec { name: name.to_owned(), data_type, nullable: true, comment: None }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// The table of most of the golden cases: `k INT, v STRING, w INT, p STRING, d DECIMAL(10, 2)`.
fn table(primary_key: &[&str], partition_keys: &[&str], bucket_key: &[&str]) -> TableDescriptor {
    let decimal = DataType::Decimal { precision: 10, scale: 2 };
    TableDescriptor {
        columns: vec![
            column("k", DataType::Int),
            column("v", DataType::String),
            column("w", DataType::Int),
            column("p", DataType::String),
            column("d", decimal),
        ],
        primary_key: names(primary_key),
        partition_keys: names(partition_keys),
        buckets: Some(3),
        bucket_key: names(bucket_key),
        ..TableDescriptor::default()
    }
}

fn refused(table: &TableDescriptor, part: &str) {
    let error = table.validate().expect_err(part);
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    assert!(error.message.contains(part), "{}", error.message);
}

fn with(mut table: TableDescriptor, key: &str, value: &str) -> Result<ValidTable> {
    table.set(key, value)?;
    table.validate()
}

#[test]
fn defaults_are_those_that_fluss_stores() {
    let log = table(&[], &[], &[]).validate().expect("valid");
    assert_eq!(log.options, BTreeMap::from([("table.replication.factor".to_owned(), "1".to_owned())]));
    assert!(log.bucket_key.is_empty() && log.schema.columns[0].nullable && !log.has_primary_key());
    let pk = table(&["p", "k"], &["p"], &[]).validate().expect("valid");
    assert_eq!((pk.bucket_key.as_slice(), pk.partition_keys.as_slice()), ([0].as_slice(), [3].as_slice()));
    assert_eq!(pk.options.get("table.kv.format-version").map(String::as_str), Some("2"));
    assert!(!pk.schema.columns[0].nullable && !pk.schema.columns[3].nullable && pk.schema.columns[1].nullable);
    assert_eq!((pk.schema.id, pk.schema.highest_column_id), (1, 4));
    assert_eq!(pk.log_ttl_ms(), Some(604_800_000));
    assert_eq!(table(&["k", "w"], &[], &["w", "k"]).validate().expect("any order").bucket_key, [2, 0]);
}

/// The cases of the golden file 10, but for those that the golden README decides otherwise: zero
/// columns, 4097 buckets and duplicates in the partition or bucket key are refused here.
#[test]
fn keys_that_break_a_rule_are_refused() {
    refused(&table(&["k"], &["p"], &[]), "must contain the partition column 'p'");
    refused(&table(&["k"], &["k"], &[]), "not a partition column");
    refused(&table(&[], &["zz"], &[]), "'zz' does not exist");
    refused(&table(&[], &["d"], &[]), "DECIMAL");
    refused(&table(&[], &["p", "p"], &[]), "'p' twice");
    refused(&table(&["k"], &[], &["v"]), "'v' is not in the primary key");
    refused(&table(&["k", "p"], &["p"], &["p"]), "must not contain the partition column");
    refused(&table(&[], &["p"], &["p"]), "must not contain the partition column");
    refused(&table(&[], &[], &["zz"]), "'zz' does not exist");
    refused(&table(&[], &[], &["k", "k"]), "'k' twice");
    refused(&table(&["zz"], &[], &[]), "'zz' does not exist");
    refused(&table(&["k", "k"], &[], &[]), "'k' twice");
    for (buckets, part) in [(0, "larger than 0"), (4_097, "4096")] {
        refused(&TableDescriptor { buckets: Some(buckets), ..table(&[], &[], &[]) }, part);
    }
    refused(&TableDescriptor::default(), "at least one column");
}

#[test]
fn columns_and_types_have_limits() {
    let of = |name: &str, data_type| TableDescriptor { columns: vec![column(name, data_type)], ..Default::default() };
    for reserved in ["__offset", "__timestamp", "__bucket", "_change_type", "_log_offset", "_commit_timestamp"] {
        refused(&of(reserved, DataType::Int), "reserved");
    }
    for legal in ["before", "__x", "a$b", "é", "x".repeat(255).as_str()] {
        of(legal, DataType::Int).validate().expect(legal);
    }
    refused(&of(&"x".repeat(256), DataType::Int), "255 bytes");
    refused(&of("", DataType::Int), "empty");
    let twice = TableDescriptor {
        columns: vec![column("a", DataType::Int), column("a", DataType::String)],
        ..Default::default()
    };
    refused(&twice, "'a' is declared twice");
    for bad in [
        DataType::Decimal { precision: 39, scale: 0 },
        DataType::Decimal { precision: 0, scale: 0 },
        DataType::Decimal { precision: 10, scale: 11 },
        DataType::Char { length: 0 },
        DataType::Binary { length: 0 },
        DataType::Time { precision: 10 },
        DataType::Timestamp { precision: 10 },
        DataType::TimestampLtz { precision: 10 },
    ] {
        refused(&of("v", bad), "column 'v'");
    }
}

#[test]
fn names_have_limits() {
    use crate::catalog::names::{check_database_name, check_partition_value, check_table_name};
    let long = "x".repeat(201);
    for bad in ["__x", "a.b", ".", "..", "a$b", "a$changelog", "a b", "s10_é", "", long.as_str()] {
        check_table_name(bad).expect_err(bad);
        check_database_name(bad).expect_err(bad);
        check_partition_value(bad, true).expect_err(bad);
    }
    check_table_name(&long[1..]).expect("200 characters");
    check_table_name("s10_A-b_9").expect("legal");
    check_partition_value("__historical__", false).expect("may be dropped");
}

#[test]
fn option_values_are_checked() {
    let good = [
        ("table.log.format", "INDEXED"),
        ("table.log.arrow.compression.type", "NONE"),
        ("table.log.ttl", "0ms"),
        ("table.log.ttl", "7 d"),
        ("table.kv.format", "indexed"),
        ("table.changelog.image", "wal"),
        ("table.replication.factor", "3"),
        ("retention.ms", "1"),
        ("visibility", "appended"),
        ("my.prop", "x"),
    ];
    for (key, value) in good {
        with(table(&[], &[], &[]), key, value).expect(key);
    }
    let bad = [
        ("table.nope", "1"),
        ("table.replication.factor", "0"),
        ("table.replication.factor", "abc"),
        ("table.log.format", "csv"),
        ("table.log.arrow.compression.type", "gzip"),
        ("table.log.arrow.compression.zstd.level", "0"),
        ("table.log.arrow.compression.zstd.level", "23"),
        ("table.log.ttl", "abc"),
        ("table.log.ttl", "-1"),
        ("table.log.tiered.local-segments", "0"),
        ("table.delete.behavior", "ignore"),
        ("bucket.num", "-1"),
        ("kafka.partial-update", "true"),
        ("kafka.key.format", "json"),
        ("retention.ms", "abc"),
    ];
    for (key, value) in bad {
        let error = with(table(&[], &[], &[]), key, value).expect_err(key);
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{key}={value}");
        assert!(error.message.contains(key), "{}", error.message);
    }
    let bad_with_key = [
        ("table.delete.behavior", "nope"),
        ("table.changelog.image", "nope"),
        ("table.kv.format", "nope"),
        ("table.kv.format-version", "3"),
        ("table.log.format", "indexed"),
        ("table.statistics.columns", "*"),
        ("kafka.key.format", "long"),
    ];
    for (key, value) in bad_with_key {
        with(table(&["k"], &[], &[]), key, value).expect_err(key);
    }
    with(table(&["k"], &[], &[]), "table.delete.behavior", "DISABLE").expect("for primary keys");
}

#[test]
fn key_formats_follow_the_primary_key() {
    assert_eq!(table(&["k"], &[], &[]).validate().expect("valid").key_format(), "int");
    assert_eq!(table(&["v"], &[], &[]).validate().expect("valid").key_format(), "string");
    assert_eq!(table(&["k", "v"], &[], &[]).validate().expect("valid").key_format(), "json");
    let hashed = |key: &[&str], format: &str| {
        let mut table = table(key, &[], &[]);
        table.set("kafka.key.format", format).expect("set");
        with(table, "table.bucket.function", "kafka")
    };
    assert_eq!(hashed(&["k"], "int").expect("one form").option("table.bucket.function"), Some("kafka"));
    hashed(&["k"], "json").expect_err("json has many forms");
    with(table(&[], &[], &[]), "table.bucket.function", "kafka").expect_err("no key");
}

#[test]
fn attributes_have_limits() {
    let of = |key: usize, value: usize| with(table(&[], &[], &[]), &"k".repeat(key), &"v".repeat(value));
    of(100, 4_096).expect("at the limit");
    of(101, 1).expect_err("a long key");
    of(1, 4_097).expect_err("a long value");
    of(1, 0).expect_err("no value");
    let mut full = table(&[], &[], &[]);
    full.set("first", &"v".repeat(4_091)).expect("set");
    full.set("other", &"v".repeat(4_091)).expect("set");
    full.set("third", &"v".repeat(2_043)).expect("set");
    full.validate().expect("10,240 bytes");
    full.set("third", &"v".repeat(2_044)).expect("set");
    refused(&full, "10241 bytes");
}

#[test]
fn with_reaches_the_fields_and_the_catalog_reads_what_it_wrote() {
    let mut table = table(&["k", "w"], &[], &[]);
    table.buckets = None;
    table.set("bucket.num", "8").expect("set");
    table.set("bucket.key", " w , k ").expect("set");
    table.set("bucket.num", "9").expect_err("twice");
    table.set("owner", "me").expect("set");
    let valid = table.validate().expect("valid");
    assert_eq!((valid.buckets, valid.bucket_key.as_slice()), (Some(8), [2, 0].as_slice()));
    assert!(valid.attributes.contains_key("owner"));
    let text = serde_json::to_string(&valid).expect("encodes");
    assert_eq!(serde_json::from_str::<ValidTable>(&text).expect("decodes"), valid);
    let text = serde_json::to_string(&table).expect("encodes");
    assert_eq!(serde_json::from_str::<TableDescriptor>(&text).expect("decodes"), table);
}
