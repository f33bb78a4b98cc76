use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::row::DataType;

use super::*;

fn table_of(text: &str) -> TableDescriptor {
    match parse(text).expect(text) {
        Statement::CreateTable { table, .. } => *table,
        other => panic!("{other:?}"),
    }
}

fn name(database: Option<&str>, table: &str) -> TableName {
    TableName { database: database.map(str::to_owned), table: table.to_owned() }
}

fn pairs(list: &[(&str, &str)]) -> Pairs {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What the Fluss documents show, verbatim; each table also passes the catalog's rules.
#[test]
fn columns_alone_are_read_to_the_end() {
    let table =
        parse_columns("a INT NOT NULL, `b c` STRING COMMENT 'x', PRIMARY KEY (a) NOT ENFORCED").expect("parses");
    assert_eq!((table.columns.len(), table.primary_key), (2, vec!["a".to_owned()]));
    for text in ["", "a", "a INT,", "a INT; DROP TABLE t", "a INT) WITH ('bucket.num' = '9'", "a INT b INT"] {
        parse_columns(text).expect_err(text);
    }
}

#[test]
fn the_documents_statements_parse() {
    let overview = parse_script(include_str!("../../tests/data/fluss-table-overview.sql")).expect("parses");
    let tables = parse_script(include_str!("../../tests/data/fluss-primary-key-table.sql")).expect("parses");
    assert_eq!((overview.len(), tables.len()), (5, 4));
    for statement in overview.iter().chain(&tables) {
        match statement {
            Statement::CreateTable { name, table, .. } if name.table == "uid_mapping" => {
                assert_eq!(table.validate().expect_err("auto-increment").kind, ErrorKind::Unsupported);
            }
            Statement::CreateTable { table, .. } => drop(table.validate().expect("valid")),
            other => assert!(!matches!(other, Statement::Query(_)), "{other:?}"),
        }
    }
    let Some(Statement::CreateTable { table, .. }) = overview.get(2) else { panic!("{overview:?}") };
    assert_eq!((table.buckets, table.bucket_key.as_slice()), (Some(8), ["order_id".to_owned()].as_slice()));
    assert_eq!(table.partition_keys, ["event_date"]);
    assert_eq!(table.options.get("table.log.ttl").map(String::as_str), Some("7 d"));
    assert_eq!(table.columns[4].data_type, DataType::Timestamp { precision: 3 });
    let partition = pairs(&[("event_date", "2026-10-05")]);
    let added = Statement::AddPartition { table: name(None, "order_events"), if_not_exists: false, partition };
    assert_eq!(overview.get(3), Some(&added));
}

#[test]
fn every_clause_of_create_table() {
    let text = "create table if not exists `my db`.\"T\"\"1\" (\n\
        a INTEGER NOT NULL COMMENT 'it''s', -- a comment; with a semicolon\n\
        `primary` STRING NULL, b BIGINT CONSTRAINT pk PRIMARY KEY NOT ENFORCED /* ; */\n\
        ) COMMENT 'all' DISTRIBUTED BY HASH (b) INTO 4 BUCKETS PARTITIONED BY (`primary`, a)\n\
        WITH ('owner' = 'me', 'table.log.ttl' = '1 h', 'bucket.num' = '4');";
    let Statement::CreateTable { name: found, if_not_exists, table } = parse(text).expect("parses") else {
        panic!("not CREATE TABLE")
    };
    assert_eq!((found, if_not_exists), (name(Some("my db"), "T\"1"), true));
    assert_eq!(table.columns[0].comment.as_deref(), Some("it's"));
    assert_eq!(table.columns.iter().map(|column| column.nullable).collect::<Vec<_>>(), [false, true, true]);
    assert_eq!((table.primary_key.as_slice(), table.buckets), (["b".to_owned()].as_slice(), Some(4)));
    assert_eq!(table.partition_keys, ["primary", "a"]);
    assert_eq!(table.comment.as_deref(), Some("all"));
    assert!(table.attributes.contains_key("owner") && table.options.contains_key("table.log.ttl"));
    let constraint =
        table_of("CREATE TABLE t (constraint INT, CONSTRAINT x PRIMARY KEY (constraint, b) NOT ENFORCED, b INT)");
    assert_eq!(constraint.primary_key, ["constraint", "b"]);
}

#[test]
fn columns_are_added_one_by_one_or_together() {
    let added = |text: &str| match parse(text).expect(text) {
        Statement::AddColumns { table, columns } => {
            assert_eq!(table, name(None, "t"));
            columns.into_iter().map(|column| (column.name, column.data_type, column.comment)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let n = ("n".to_owned(), DataType::Int, None);
    assert_eq!(added("ALTER TABLE t ADD COLUMN n INT"), std::slice::from_ref(&n));
    assert_eq!(added("alter table t add n int null;"), std::slice::from_ref(&n));
    let said = ("partition".to_owned(), DataType::String, Some("c".to_owned()));
    assert_eq!(added("ALTER TABLE t ADD (n INT, `partition` STRING COMMENT 'c')"), [n, said]);
}

#[test]
fn other_changes_of_columns_are_refused_where_they_stand() {
    for (text, kind, at, part) in [
        ("ALTER TABLE t ADD n INT FIRST", ErrorKind::InvalidArgument, "FIRST", "at the end only"),
        ("ALTER TABLE t ADD (n INT AFTER k)", ErrorKind::InvalidArgument, "AFTER", "at the end only"),
        ("ALTER TABLE t ADD n INT PRIMARY KEY", ErrorKind::InvalidArgument, "n INT", "cannot be the primary key"),
        ("ALTER TABLE t ADD COLUMN n", ErrorKind::InvalidArgument, "", "a type"),
        ("ALTER TABLE t ADD", ErrorKind::InvalidArgument, "", "a column"),
        ("ALTER TABLE t DROP COLUMN n", ErrorKind::Unsupported, "DROP", "only ever added to"),
        ("ALTER TABLE t RENAME n TO m", ErrorKind::Unsupported, "RENAME", "only ever added to"),
        ("ALTER TABLE t MODIFY n BIGINT", ErrorKind::Unsupported, "MODIFY", "only ever added to"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.kind, kind, "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
        let column = if at.is_empty() { text.len() } else { text.find(at).expect("in it") } + 1;
        assert_eq!((error.line, error.column), (1, column), "{text}: {error}");
    }
}

#[test]
fn every_spelling_of_a_type() {
    let decimal = |precision, scale| DataType::Decimal { precision, scale };
    let cases = [
        ("BOOLEAN", DataType::Boolean),
        ("TINYINT", DataType::TinyInt),
        ("SMALLINT", DataType::SmallInt),
        ("INT", DataType::Int),
        ("INTEGER", DataType::Int),
        ("BIGINT", DataType::BigInt),
        ("FLOAT", DataType::Float),
        ("DOUBLE", DataType::Double),
        ("DOUBLE PRECISION", DataType::Double),
        ("DECIMAL", decimal(10, 0)),
        ("DEC(5)", decimal(5, 0)),
        ("NUMERIC ( 38 , 18 )", decimal(38, 18)),
        ("CHAR", DataType::Char { length: 1 }),
        ("CHARACTER(7)", DataType::Char { length: 7 }),
        ("VARCHAR", DataType::String),
        ("VARCHAR(20)", DataType::String),
        ("CHARACTER VARYING(3)", DataType::String),
        ("string", DataType::String),
        ("BINARY", DataType::Binary { length: 1 }),
        ("BINARY(16)", DataType::Binary { length: 16 }),
        ("VARBINARY(9)", DataType::Bytes),
        ("BINARY VARYING", DataType::Bytes),
        ("BYTES", DataType::Bytes),
        ("DATE", DataType::Date),
        ("TIME", DataType::Time { precision: 0 }),
        ("TIME(3) WITHOUT TIME ZONE", DataType::Time { precision: 3 }),
        ("TIMESTAMP", DataType::Timestamp { precision: 6 }),
        ("TIMESTAMP(9) WITHOUT TIME ZONE", DataType::Timestamp { precision: 9 }),
        ("TIMESTAMP_LTZ(3)", DataType::TimestampLtz { precision: 3 }),
        ("TIMESTAMP(0) WITH LOCAL TIME ZONE", DataType::TimestampLtz { precision: 0 }),
    ];
    for (spelling, expected) in cases {
        let table = table_of(&format!("CREATE TABLE t (v {spelling} NOT NULL COMMENT 'x')"));
        assert_eq!(table.columns[0].data_type, expected, "{spelling}");
        assert!(!table.columns[0].nullable, "{spelling}");
        let shown = table_of(&format!("CREATE TABLE t (v {expected})"));
        assert_eq!(shown.columns[0].data_type, expected, "as it is shown: {expected}");
    }
}

#[test]
fn the_other_statements() {
    let parsed = |text: &str| parse(text).expect(text);
    let database = |if_not_exists, comment: Option<&str>, properties| Statement::CreateDatabase {
        name: "d".to_owned(),
        if_not_exists,
        comment: comment.map(str::to_owned),
        properties,
    };
    assert_eq!(parsed("CREATE DATABASE d"), database(false, None, Vec::new()));
    let full = "create database if not exists d comment 'c' with ('a' = 'b')";
    assert_eq!(parsed(full), database(true, Some("c"), pairs(&[("a", "b")])));
    let dropped = |if_exists, cascade| Statement::DropDatabase { name: "d".to_owned(), if_exists, cascade };
    assert_eq!(parsed("DROP DATABASE d RESTRICT"), dropped(false, false));
    assert_eq!(parsed("DROP DATABASE IF EXISTS d CASCADE"), dropped(true, true));
    assert_eq!(parsed("USE `d`"), Statement::UseDatabase("d".to_owned()));
    assert_eq!(parsed("USE CATALOG c;"), Statement::UseCatalog("c".to_owned()));
    assert_eq!(
        parsed("DROP TABLE IF EXISTS d.t"),
        Statement::DropTable { name: name(Some("d"), "t"), if_exists: true }
    );
    assert_eq!(
        parsed("ALTER TABLE t DROP IF EXISTS PARTITION (a = -3, b = TRUE, c = 'x')"),
        Statement::DropPartition {
            table: name(None, "t"),
            if_exists: true,
            partition: pairs(&[("a", "-3"), ("b", "true"), ("c", "x")]),
        }
    );
    let options = pairs(&[("table.log.ttl", "1 d"), ("x", "y")]);
    assert_eq!(
        parsed("ALTER TABLE d.t SET ('table.log.ttl' = '1 d', 'x' = 'y')"),
        Statement::SetOptions { table: name(Some("d"), "t"), options }
    );
    assert_eq!(
        parsed("ALTER TABLE t RESET ('x')"),
        Statement::ResetOptions { table: name(None, "t"), options: vec!["x".to_owned()] }
    );
    assert_eq!(parsed("SHOW DATABASES"), Statement::ShowDatabases { like: None });
    let tables = Statement::ShowTables { database: Some("d".to_owned()), like: Some("a%".to_owned()) };
    assert_eq!(parsed("SHOW TABLES IN d LIKE 'a%'"), tables);
    assert_eq!(parsed("SHOW PARTITIONS t"), Statement::ShowPartitions(name(None, "t")));
    assert_eq!(parsed("SHOW CREATE TABLE d.t"), Statement::ShowCreateTable(name(Some("d"), "t")));
    assert_eq!(parsed("DESC orders$changelog"), Statement::Describe(name(None, "orders$changelog")));
}

#[test]
fn anything_else_is_the_sql_engines() {
    for text in ["SELECT 'a;b' AS x -- c", "INSERT INTO t VALUES (1, ?)", "SHOW FUNCTIONS", "CREATE VIEW v AS SELECT 1"]
    {
        let statement = parse(&format!("  {text}\n ; ")).expect(text);
        assert_eq!(statement, Statement::Query(text.trim_end_matches(" -- c").to_owned()));
    }
}

#[test]
fn a_script_is_split_outside_quotes_and_comments() {
    let script = "-- first; not\nSELECT ';' ;; /* ; */ SELECT `a;b`, \"c;\" ;\n";
    assert_eq!(split_statements(script).expect("splits"), ["SELECT ';'", "SELECT `a;b`, \"c;\""]);
    assert!(split_statements(" ; -- nothing\n").expect("splits").is_empty());
}

#[test]
fn errors_say_where_and_what_was_expected() {
    let cases = [
        ("CREATE TABLE t (\n  a INT,\n  b\n)", 4, 1, "expected a type, found ')'"),
        ("CREATE TABLE t (a INTT)", 1, 19, "expected a type, found 'INTT'"),
        ("CREATE TABLE t (a ARRAY<INT>)", 1, 19, "type ARRAY is not offered"),
        ("CREATE TABLE t (a INT b INT)", 1, 23, "expected ',' or ')', found 'b'"),
        ("CREATE TABLE t (a INT) WITH ('x' = 1)", 1, 36, "expected a value in single quotes, found '1'"),
        ("CREATE TABLE t (a INT) WITH ('x' = '1', 'x' = '2')", 1, 41, "'x' is given twice"),
        ("CREATE TABLE t (a INT) WITH ('bucket.num' = 'x')", 1, 30, "bucket.num"),
        ("CREATE TABLE t (a DECIMAL(300))", 1, 27, "expected a precision, found '300'"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", 1, 48, "a second primary key"),
        ("CREATE TABLE t (a INT) COMMENT 'x' COMMENT 'y'", 1, 36, "each once"),
        ("CREATE TABLE t (a INT) AS SELECT 1", 1, 24, "not offered"),
        ("CREATE TABLE t", 1, 15, "expected '(', found the end of the statement"),
        ("ALTER TABLE t EXCHANGE u", 1, 15, "expected ADD, ADD PARTITION"),
        ("ALTER TABLE t ADD PARTITION (a = '1", 1, 34, "not closed"),
        ("DROP TABLE é.t x", 1, 16, "expected ';' or the end"),
        ("USE a; USE b", 1, 8, "expected the end after one statement"),
        ("/* x", 1, 1, "not closed"),
        (" ", 1, 2, "expected a statement"),
    ];
    for (text, line, column, part) in cases {
        let error = parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.message.contains(part), "{error}");
    }
    let script = parse_script("USE a;\nUSE b;\n DROP TABLE").expect_err("no name");
    assert_eq!((script.line, script.column), (3, 12));
}

#[test]
fn no_text_makes_it_panic() {
    let seeds =
        ["CREATE TABLE `é` (a DECIMAL(1,2), PRIMARY KEY (a)) WITH ('a''' = 'é');", "ALTER TABLE t SET ('x'='y')"];
    for seed in seeds {
        for (cut, _) in seed.char_indices() {
            let _ = parse_script(&seed[..cut]);
            let _ = parse_script(&seed[cut..]);
            let _ = split_statements(&seed[cut..]);
        }
    }
}
