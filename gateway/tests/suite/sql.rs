//! SQL over Flight, and the same rows over Kafka: what one door writes, all doors read.

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow::util::display::array_value_to_string;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetPrimaryKeys, CommandStatementIngest, TableDefinitionOptions, TableExistsOption};
use arrow_flight::{FlightDescriptor, Ticket};
use futures::{StreamExt, TryStreamExt, stream};
use sluice_protocol::batch::BatchHeader;
use sluice_protocol::records;
use std::sync::Arc;
use tonic::Code;
use tonic::transport::Channel;

use crate::fixture::Server;
use crate::flight::{Lookups, code, flight, path, sql};

type Sql = FlightSqlServiceClient<Channel>;

pub(crate) async fn update(sql: &mut Sql, text: &str) -> i64 {
    sql.execute_update(text.to_owned(), None).await.unwrap_or_else(|error| panic!("{text}: {error}"))
}

async fn batches(sql: &mut Sql, text: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = sql.execute(text.to_owned(), None).await?;
    fetch(sql, info).await
}

async fn fetch(sql: &mut Sql, info: arrow_flight::FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let schema = info.clone().try_decode_schema().expect("a schema");
    let mut found = Vec::new();
    for endpoint in info.endpoint {
        let mut stream = sql.do_get(endpoint.ticket.expect("a ticket")).await?;
        while let Some(batch) = stream.try_next().await? {
            found.push(batch);
        }
        assert_eq!(stream.schema().expect("the schema comes first").as_ref(), &schema);
    }
    Ok(found)
}

pub(crate) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |array: &ArrayRef| match array.is_null(row) {
                true => "NULL".to_owned(),
                false => array_value_to_string(array, row).expect("shown"),
            };
            lines.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    lines
}

pub(crate) async fn query(sql: &mut Sql, text: &str) -> Vec<String> {
    lines(&batches(sql, text).await.unwrap_or_else(|error| panic!("{text}: {error}")))
}

pub(crate) async fn refused(sql: &mut Sql, text: &str) -> (Code, String) {
    let outcome = match sql.execute_update(text.to_owned(), None).await {
        Err(error) => error,
        Ok(_) => panic!("{text}: not refused"),
    };
    match outcome {
        FlightError::Tonic(status) => (status.code(), status.message().to_owned()),
        other => panic!("{text}: {other}"),
    }
}

/// Each statement is refused with a code and a message that holds a part.
pub(crate) async fn each_refused(sql: &mut Sql, cases: &[(&str, Code, &str)]) {
    for (text, expected, part) in cases {
        let (found, message) = refused(sql, text).await;
        assert_eq!(found, *expected, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[tokio::test]
async fn a_table_made_in_sql_is_one_table_through_every_door() {
    let server = Server::start().await;
    let (mut kafka, mut sql) = (server.client().await, sql(&server).await);
    assert_eq!(update(&mut sql, "CREATE DATABASE commerce").await, 0);
    update(&mut sql, "USE commerce").await;
    let ddl = "CREATE TABLE orders (
        order_id BIGINT, customer_id BIGINT, status STRING, total_amount DECIMAL(18, 2), updated_at TIMESTAMP(3),
        PRIMARY KEY (order_id) NOT ENFORCED) WITH ('bucket.num' = '8', 'table.log.ttl' = '7 d');";
    update(&mut sql, ddl).await;
    let inserted = update(
        &mut sql,
        "INSERT INTO orders VALUES (1, 10, 'new', 12.5, TIMESTAMP '2026-01-02 03:04:05.678'), (2, 20, 'new', 7, NULL)",
    );
    assert_eq!(inserted.await, 2);
    assert_eq!(
        update(&mut sql, "UPDATE orders SET status = 'paid', total_amount = total_amount * 2 WHERE order_id = 1").await,
        1
    );
    assert_eq!(update(&mut sql, "INSERT INTO orders (order_id, status) VALUES (2, 'gone'), (3, 'part')").await, 2);
    assert_eq!(update(&mut sql, "DELETE FROM orders WHERE customer_id = 20").await, 1);
    let found = query(&mut sql, "SELECT * FROM orders ORDER BY order_id").await;
    assert_eq!(found, ["1|10|paid|25.00|2026-01-02T03:04:05.678", "3|NULL|part|NULL|NULL"]);

    // The same rows by Kafka, as the upsert view.
    let mut seen = std::collections::BTreeMap::new();
    for bucket in 0..8 {
        let mut part = kafka.fetch("commerce.orders", bucket, 0).await.records.unwrap_or_default();
        while let Some(header) = BatchHeader::read(&part) {
            let batch = part.split_to(header.total_len().expect("a length"));
            if header.is_control() {
                continue;
            }
            records::for_each(&batch, 1 << 20, |_, record| {
                let id = i64::from_be_bytes(record.key.expect("a key").try_into().expect("a long"));
                seen.insert(id, record.value.map(|value| String::from_utf8(value.to_vec()).expect("text")));
            })
            .expect("decodes");
        }
    }
    let one = r#"{"order_id":1,"customer_id":10,"status":"paid","total_amount":25.00,"updated_at":"2026-01-02 03:04:05.678"}"#;
    let three = r#"{"order_id":3,"customer_id":null,"status":"part","total_amount":null,"updated_at":null}"#;
    let expected = [(1, Some(one.to_owned())), (2, None), (3, Some(three.to_owned()))];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);

    // And by key.
    let mut client = flight(&server).await;
    let ticket = Ticket::new(r#"{"lookup":{"table":"commerce.orders","keys":[[3],[2],[1]]}}"#);
    let found: Vec<_> = client.do_get(ticket).await.expect("looks up").try_collect().await.expect("rows");
    let found = lines(&found);
    assert_eq!(found[0], "3|NULL|part|NULL|NULL|true");
    assert_eq!(found[1], "NULL|NULL|NULL|NULL|NULL|false");
    assert!(found[2].starts_with("1|10|paid|25.00|"));
}

#[tokio::test]
async fn the_changelog_is_a_table_of_its_own() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE T (k INT, v1 DOUBLE, v2 STRING, PRIMARY KEY (k) NOT ENFORCED)").await;
    for text in [
        "INSERT INTO T VALUES (1, 2.0, 'apple')",
        "INSERT INTO T VALUES (1, 4.0, 'banana')",
        "DELETE FROM T WHERE k = 1",
    ] {
        assert_eq!(update(&mut sql, text).await, 1, "{text}");
    }
    let text = "SELECT _change_type, _log_offset, k, v1, v2 FROM T$changelog ORDER BY _log_offset";
    let expected =
        ["insert|0|1|2.0|apple", "update_before|1|1|2.0|apple", "update_after|2|1|4.0|banana", "delete|3|1|4.0|banana"];
    assert_eq!(query(&mut sql, text).await, expected);
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM T").await, ["0"]);
    let (refusal, _) = refused(&mut sql, "INSERT INTO T$changelog SELECT * FROM T$changelog").await;
    assert_eq!(refusal, Code::NotFound);
}

#[tokio::test]
async fn partial_updates_leave_the_other_columns_alone() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE T (k INT, v1 DOUBLE, v2 STRING, PRIMARY KEY (k) NOT ENFORCED)").await;
    update(&mut sql, "INSERT INTO T (k, v1) VALUES (1, 2.0), (2, 3.0)").await;
    assert_eq!(query(&mut sql, "SELECT * FROM T ORDER BY k").await, ["1|2.0|NULL", "2|3.0|NULL"]);
    update(&mut sql, "INSERT INTO T (k, v2) VALUES (1, 't1'), (2, 't2')").await;
    assert_eq!(query(&mut sql, "SELECT * FROM T ORDER BY k").await, ["1|2.0|t1", "2|3.0|t2"]);
}

#[tokio::test]
async fn what_can_be_pushed_down_is_and_explain_shows_it() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE t (a INT, b STRING, c BIGINT, d DOUBLE, PRIMARY KEY (a, b) NOT ENFORCED) WITH ('bucket.num' = '3')").await;
    let rows: Vec<String> = (0..40).map(|n| format!("({}, 'k{}', {n}, {n}.5)", n / 4, n % 4)).collect();
    update(&mut sql, &format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
    let mut explained = async |text: &str| {
        let plan = query(&mut sql, &format!("EXPLAIN {text}")).await.join("\n");
        let start = plan.find("SluiceScan").unwrap_or_else(|| panic!("{plan}"));
        plan[start..].lines().next().expect("a line").to_owned()
    };
    let plain = explained("SELECT c FROM t").await;
    assert_eq!(plain, "SluiceScan: table=default.t, columns=[c], buckets=3");
    let filtered = explained("SELECT c FROM t WHERE d > 3 LIMIT 5").await;
    assert!(
        filtered.contains("columns=[c]") && filtered.contains("filter=") && filtered.contains("limit=5"),
        "{filtered}"
    );
    let keyed = explained("SELECT d FROM t WHERE a = 3 AND b IN ('k1', 'k2', 'none')").await;
    assert!(keyed.contains("keys=3") && !keyed.contains("buckets"), "{keyed}");
    let half = explained("SELECT d FROM t WHERE a = 3").await;
    assert!(half.contains("buckets=3"), "{half}");
    assert_eq!(
        query(&mut sql, "SELECT d FROM t WHERE a = 3 AND b IN ('k1', 'k2', 'none') ORDER BY d").await,
        ["13.5", "14.5"]
    );
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM t WHERE d > 3 AND a = 1 AND b = 'k0'").await, ["1"]);
    assert_eq!(query(&mut sql, "SELECT COUNT(*), SUM(c) FROM t WHERE d > 3").await, ["37|777"]);
    assert_eq!(query(&mut sql, "SELECT c FROM t WHERE d > 3 LIMIT 5").await.len(), 5);
    assert_eq!(query(&mut sql, "SELECT SUM(value) FROM generate_series(1, 10)").await, ["55"]);
    assert_eq!(
        query(&mut sql, "SELECT x.c FROM t x JOIN t y ON x.c = y.c + 1 WHERE y.a = 9 ORDER BY 1").await,
        ["37", "38", "39"]
    );
}

#[tokio::test]
async fn statements_are_prepared_with_parameters_of_every_type() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE t (k INT, b BIGINT, s STRING, y BYTES, d DECIMAL(10, 2), f DOUBLE, day DATE, at TIMESTAMP(6), z TIMESTAMP_LTZ(3), ok BOOLEAN, PRIMARY KEY (k) NOT ENFORCED)").await;
    let mut insert =
        sql.prepare("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)".to_owned(), None).await.expect("prepares");
    let parameters = insert.parameter_schema().expect("a schema").clone();
    let types: Vec<_> = parameters.fields().iter().map(|field| field.data_type().clone()).collect();
    assert_eq!(types.len(), 10);
    assert!(insert.dataset_schema().expect("a schema").fields().is_empty(), "an update has no columns");
    let text: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["1", "2"])),
        Arc::new(StringArray::from(vec![Some("-9007199254740993"), None])),
        Arc::new(StringArray::from(vec!["it's", ""])),
        Arc::new(StringArray::from(vec![Some("bytes"), None])),
        Arc::new(StringArray::from(vec![Some("-1.25"), None])),
        Arc::new(StringArray::from(vec!["1e300", "NaN"])),
        Arc::new(StringArray::from(vec![Some("1969-12-31"), None])),
        Arc::new(StringArray::from(vec![Some("1969-12-31T23:59:59.000001"), None])),
        Arc::new(StringArray::from(vec![Some("2026-01-02T03:04:05.678Z"), None])),
        Arc::new(StringArray::from(vec![Some("true"), None])),
    ];
    let columns = text.iter().zip(&types).map(|(array, of)| arrow::compute::cast(array, of).expect("casts")).collect();
    let batch = RecordBatch::try_new(Arc::new(parameters), columns).expect("a batch");
    insert.set_parameters(batch).expect("sets");
    assert_eq!(insert.execute_update().await.expect("runs"), 2);
    insert.close().await.expect("closes");
    let mut select = sql.prepare("SELECT * FROM t WHERE k = ?".to_owned(), None).await.expect("prepares");
    let one =
        |k: Vec<i32>| RecordBatch::try_from_iter([("k", Arc::new(Int32Array::from(k)) as ArrayRef)]).expect("a batch");
    select.set_parameters(one(vec![1])).expect("sets");
    let info = select.execute().await.expect("runs");
    let expected = "1|-9007199254740993|it's|6279746573|-1.25|1e300|1969-12-31|1969-12-31T23:59:59.000001|2026-01-02T03:04:05.678Z|true";
    assert_eq!(lines(&fetch(&mut sql, info).await.expect("rows")), [expected]);
    let mut many = sql.prepare("SELECT s, f FROM t WHERE k = $1".to_owned(), None).await.expect("prepares");
    many.set_parameters(one(vec![2, 7, 1])).expect("sets");
    let info = many.execute().await.expect("runs");
    assert_eq!(lines(&fetch(&mut sql, info).await.expect("rows")), ["|NaN", "it's|1e300"]);
}

#[tokio::test]
async fn an_insert_that_runs_as_a_query_runs_once() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE t (a INT)").await;
    let info = sql.execute("INSERT INTO t VALUES (1), (2)".to_owned(), None).await.expect("a flight");
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM t").await, ["0"], "it runs when its rows are asked for");
    let found = fetch(&mut sql, info.clone()).await.expect("runs");
    assert_eq!(found[0].column(0).as_primitive::<Int64Type>().values(), &[2]);
    assert_eq!(code(fetch(&mut sql, info).await.expect_err("refused")), Code::InvalidArgument);
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM t").await, ["2"]);
    assert_eq!(query(&mut sql, "SHOW TABLES").await, ["t"]);
    assert_eq!(query(&mut sql, "DESCRIBE t").await, ["a|INT|true|NULL|NULL|NULL|NULL"]);
    let made = query(&mut sql, "SHOW CREATE TABLE t").await.remove(0);
    update(&mut sql, "DROP TABLE t").await;
    update(&mut sql, &made).await;
    assert_eq!(query(&mut sql, "SHOW CREATE TABLE t").await, [made]);
}

#[tokio::test]
async fn each_connection_has_its_own_database() {
    let server = Server::start().await;
    let (mut one, mut other) = (sql(&server).await, sql(&server).await);
    update(&mut one, "CREATE DATABASE d WITH ('owner' = 'me')").await;
    update(&mut one, "USE d").await;
    update(&mut one, "CREATE TABLE t (a INT)").await;
    assert_eq!(query(&mut one, "SHOW TABLES").await, ["t"]);
    assert!(query(&mut other, "SHOW TABLES").await.is_empty());
    assert_eq!(query(&mut other, "SHOW DATABASES LIKE 'd%'").await, ["d", "default"]);
    assert_eq!(query(&mut other, "SELECT COUNT(*) FROM d.t").await, ["0"]);
    other.set_header("database", "d");
    assert_eq!(query(&mut other, "SHOW TABLES").await, ["t"]);
    other.set_header("database", "nowhere");
    assert_eq!(code(batches(&mut other, "SHOW TABLES").await.expect_err("refused")), Code::NotFound);
    assert_eq!(refused(&mut one, "DROP DATABASE d").await.0, Code::InvalidArgument);
    update(&mut one, "DROP DATABASE d CASCADE").await;
    assert_eq!(refused(&mut one, "USE d").await.0, Code::NotFound);
}

#[tokio::test]
async fn what_is_wrong_is_said_and_nothing_is_stored() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    update(&mut sql, "CREATE TABLE t (k INT, v STRING NOT NULL, n TINYINT, PRIMARY KEY (k) NOT ENFORCED)").await;
    update(&mut sql, "CREATE TABLE l (a INT NOT NULL, b STRING)").await;
    let cases = [
        ("INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 1)", Code::InvalidArgument, "'v' is NOT NULL"),
        ("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 300)", Code::InvalidArgument, "300"),
        ("INSERT INTO t VALUES (1, 'a')", Code::InvalidArgument, "3 columns"),
        ("INSERT INTO t (k, w) VALUES (1, 'a')", Code::InvalidArgument, "'w'"),
        ("INSERT INTO t (k, n) VALUES (1, 1)", Code::InvalidArgument, "'v'"),
        ("INSERT INTO l (b) VALUES ('x')", Code::InvalidArgument, "'a'"),
        ("INSERT INTO nowhere VALUES (1)", Code::NotFound, "nowhere"),
        ("UPDATE l SET b = 'x'", Code::InvalidArgument, "primary key"),
        ("UPDATE t SET k = 2", Code::InvalidArgument, "'k'"),
        ("DELETE FROM l", Code::InvalidArgument, "primary key"),
        ("INSERT INTO t VALUES (?, 'a', 1)", Code::InvalidArgument, "parameter 1"),
        ("CREATE TABLE u (a INT,\n  b WRONG)", Code::InvalidArgument, "line 2, column 5"),
        ("CREATE TABLE u (a INT) WITH ('table.log.tll' = '1 d')", Code::InvalidArgument, "table.log.ttl"),
        ("CREATE TABLE u (a ARRAY<INT>)", Code::Unimplemented, "ARRAY"),
        ("CREATE TABLE `a.b` (a INT)", Code::InvalidArgument, "a.b"),
        ("CREATE TABLE t (a INT)", Code::AlreadyExists, "t"),
        ("ALTER TABLE t SET ('table.log.format' = 'arrow')", Code::InvalidArgument, "table.log.format"),
        ("USE CATALOG other", Code::NotFound, "other"),
        ("SELEC 1", Code::InvalidArgument, "Line: 1, Column: 1"),
        ("SELECT 1", Code::InvalidArgument, "query"),
        ("CREATE VIEW v AS SELECT 1", Code::Unimplemented, ""),
        ("COPY t TO 'file'", Code::Unimplemented, ""),
        ("SET x = 1", Code::Unimplemented, ""),
    ];
    each_refused(&mut sql, &cases).await;
    assert_eq!(query(&mut sql, "SELECT COUNT(*) FROM t").await, ["0"]);
    let error = batches(&mut sql, "SELECT k,\n  nothing FROM t").await.expect_err("refused");
    let FlightError::Tonic(status) = error else { panic!("{error}") };
    assert!(status.message().contains("line 2, column 3"), "{}", status.message());
    update(&mut sql, "ALTER TABLE t SET ('table.log.ttl' = '2 d')").await;
    let made = query(&mut sql, "SHOW CREATE TABLE t").await.remove(0);
    assert!(made.contains("'retention.ms' = '172800000'"), "{made}");
}

fn ids(ids: Vec<i64>, names: Vec<Option<&str>>) -> RecordBatch {
    let (ids, names): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(names)));
    RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("name", names, true)]).expect("a batch")
}

async fn put(
    client: &mut arrow_flight::FlightClient,
    descriptor: FlightDescriptor,
    batches: Vec<RecordBatch>,
) -> Result<Vec<String>, FlightError> {
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    let sent = encoder.build(stream::iter(batches.into_iter().map(Ok)));
    let results: Vec<_> = client.do_put(sent).await?.try_collect().await?;
    Ok(results.into_iter().map(|result| String::from_utf8(result.app_metadata.to_vec()).expect("text")).collect())
}

#[tokio::test]
async fn rows_are_put_deleted_and_looked_up_batch_by_batch() {
    let server = Server::start().await;
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    update(&mut sql, "CREATE TABLE t (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED)").await;
    let told = put(
        &mut client,
        path("t"),
        vec![ids(vec![1, 2], vec![Some("a"), Some("b")]), ids(vec![3, 1], vec![None, Some("c")])],
    );
    assert_eq!(told.await.expect("puts"), [r#"{"offsets":{"0":2},"rows":2}"#, r#"{"offsets":{"0":5},"rows":2}"#]);
    let delete = FlightDescriptor::new_cmd(r#"{"put":{"table":"default.t","mode":"delete"}}"#);
    let told = put(&mut client, delete, vec![ids(vec![2], vec![None])]).await.expect("deletes");
    assert_eq!(told, [r#"{"offsets":{"0":6},"rows":1}"#]);
    assert_eq!(query(&mut sql, "SELECT * FROM t ORDER BY id").await, ["1|c", "3|NULL"]);

    // The snapshot tells where the changelog goes on.
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    let stream = client.do_get(info.endpoint[0].ticket.clone().expect("a ticket")).await.expect("a stream");
    let messages: Vec<_> = stream.into_inner().try_collect().await.expect("messages");
    assert_eq!(messages[0].inner.app_metadata, r#"{"bucket":0,"offset":6}"#);

    let keys = |ids: Vec<i64>| {
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(ids)) as ArrayRef)]).expect("keys")
    };
    let descriptor = FlightDescriptor::new_cmd(r#"{"lookup":{"table":"t"}}"#);
    let sent = FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .build(stream::iter([Ok(keys(vec![3, 9])), Ok(keys(vec![1]))]))
        .enumerate()
        .map(|(at, message)| message.map(|message| message.with_app_metadata(format!("batch {at}"))));
    let answers = client.do_exchange(sent).await.expect("exchanges");
    let answers: Vec<_> = answers.into_inner().try_collect().await.expect("answers");
    let about: Vec<_> = answers.iter().map(|answer| answer.inner.app_metadata.clone()).collect();
    assert_eq!(about, ["", "batch 1", "batch 2"], "the schema, then an answer for each batch");
    let found: Vec<_> = answers
        .into_iter()
        .filter_map(|answer| match answer.payload {
            arrow_flight::decode::DecodedPayload::RecordBatch(batch) => Some(batch),
            _ => None,
        })
        .collect();
    assert_eq!(lines(&found), ["3|NULL|true", "NULL|NULL|false", "1|c|true"]);

    let refusals = [
        (put(&mut client, path("none"), vec![ids(vec![1], vec![None])]).await, Code::NotFound),
        (put(&mut client, path("t"), vec![keys(vec![1]).project(&[]).expect("none")]).await, Code::InvalidArgument),
        (put(&mut client, FlightDescriptor::new_cmd("{}"), vec![keys(vec![1])]).await, Code::InvalidArgument),
    ];
    for (outcome, expected) in refusals {
        assert_eq!(code(outcome.expect_err("refused")), expected);
    }
    for ticket in [
        r#"{"lookup":{"table":"t","keys":[["x"]]}}"#,
        r#"{"lookup":{"table":"t","keys":[[1,2]]}}"#,
        r#"{"lookup":{"table":"t","keys":[[null]]}}"#,
        r#"{"lookup":{"tabel":"t"}}"#,
    ] {
        let outcome = client.do_get(Ticket::new(ticket)).await;
        assert_eq!(code(outcome.map(drop).expect_err("refused")), Code::InvalidArgument, "{ticket}");
    }
}

#[tokio::test]
async fn ingest_makes_a_table_and_keys_are_told() {
    let server = Server::start().await;
    let mut sql = sql(&server).await;
    let command = |table: &str, if_not_exist, if_exists: TableExistsOption| CommandStatementIngest {
        table: table.to_owned(),
        table_definition_options: Some(TableDefinitionOptions { if_not_exist, if_exists: if_exists as i32 }),
        ..CommandStatementIngest::default()
    };
    let rows = || stream::iter([Ok(ids(vec![1, 2], vec![Some("a"), None]))]);
    assert_eq!(sql.execute_ingest(command("w", 1, TableExistsOption::Fail), rows()).await.expect("creates"), 2);
    let again = sql.execute_ingest(command("w", 1, TableExistsOption::Fail), rows()).await;
    assert_eq!(code(again.expect_err("refused")), Code::AlreadyExists);
    assert_eq!(sql.execute_ingest(command("w", 2, TableExistsOption::Append), rows()).await.expect("appends"), 2);
    let missing = sql.execute_ingest(command("v", 2, TableExistsOption::Append), rows()).await;
    assert_eq!(code(missing.expect_err("refused")), Code::NotFound);
    assert_eq!(query(&mut sql, "SELECT COUNT(*), SUM(id) FROM w").await, ["4|6"]);
    update(&mut sql, "CREATE TABLE k (b INT, a STRING, PRIMARY KEY (a, b) NOT ENFORCED)").await;
    let asked = CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "k".to_owned() };
    let info = sql.get_primary_keys(asked).await.expect("a flight");
    assert_eq!(
        lines(&fetch(&mut sql, info).await.expect("rows")),
        ["sluice|default|k|a|NULL|1", "sluice|default|k|b|NULL|2"]
    );
}

/// cases.md F01: four places tell a query's schema, and they agree, where there are no rows too.
#[tokio::test]
async fn all_four_schemas_of_a_query_are_one() {
    let server = Server::start().await;
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    update(&mut sql, "CREATE TABLE t (k INT, city STRING NOT NULL, v DOUBLE, PRIMARY KEY (k) NOT ENFORCED)").await;
    update(&mut sql, "INSERT INTO t VALUES (1, 'a', 1.5), (2, 'a', NULL), (3, 'b', 2)").await;
    for text in [
        "SELECT city, COUNT(*) AS n, SUM(v) AS total, MAX(upper(city)) AS u FROM t GROUP BY city",
        "SELECT city, v IS NULL AS missing, CASE WHEN v > 1 THEN 'x' END AS c FROM t",
        "SELECT city, substr(city, 1, 1) AS s, k + 1 AS k1 FROM t WHERE k > 99",
        "SELECT a.city, b.v FROM t a LEFT JOIN t b ON a.k = b.k + 100",
        "SHOW TABLES",
    ] {
        let prepared = sql.prepare(text.to_owned(), None).await.expect(text);
        let schema = prepared.dataset_schema().expect("a schema").clone();
        let info = sql.execute(text.to_owned(), None).await.expect(text);
        assert_eq!(info.clone().try_decode_schema().expect("a schema"), schema, "{text}");
        let command = info.flight_descriptor.clone().expect("the command");
        assert_eq!(client.get_schema(command).await.expect("a schema"), schema, "{text}");
        // The stream's own schema is compared in there.
        fetch(&mut sql, info).await.expect(text);
    }
}

/// cases.md T02: a lookup right after the table was made, and one whose table goes away meanwhile.
#[tokio::test]
async fn lookups_are_answered_from_the_first_moment_and_end_with_their_table() {
    let server = Server::start().await;
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    update(&mut sql, "CREATE TABLE p (d STRING, k INT, PRIMARY KEY (d, k) NOT ENFORCED) PARTITIONED BY (d)").await;
    let ticket = || Ticket::new(r#"{"lookup":{"table":"p","keys":[["x",1]]}}"#);
    let found: Vec<_> = client.do_get(ticket()).await.expect("answers").try_collect().await.expect("a row");
    assert_eq!(lines(&found), ["NULL|NULL|false"], "a partition that is not there has no rows");
    update(&mut sql, "ALTER TABLE p ADD PARTITION (d = 'x')").await;
    let found: Vec<_> = client.do_get(ticket()).await.expect("answers").try_collect().await.expect("a row");
    assert_eq!(lines(&found), ["NULL|NULL|false"]);
    update(&mut sql, "CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED)").await;
    let (mut lookups, first) = Lookups::open(&mut client, 1).await;
    assert_eq!(first.num_rows(), 1);
    update(&mut sql, "DROP TABLE t").await;
    assert_eq!(code(lookups.of(2).await.expect_err("the table is gone")), Code::NotFound);
}
