//! `ALTER TABLE … ADD` of columns: rows from before and after stand side by side, and every door shows both
//! (table-model §16).

use arrow_flight::Ticket;
use futures::TryStreamExt;
use tonic::Code;

use crate::fixture::Server;
use crate::flight::{Lookups, flight, sql};
use crate::pk::{create, fetch, plain, read};
use crate::sql::{each_refused, lines, query, update};

#[tokio::test]
async fn every_door_shows_rows_from_before_and_after_and_so_after_a_crash() {
    let server = Server::start().await;
    let (mut client, mut db, mut arrow) = (server.client().await, sql(&server).await, flight(&server).await);
    create(&mut client, 1, &[]).await;
    update(&mut db, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)").await;
    let (mut lookups, first) = Lookups::open(&mut arrow, 1).await;
    assert_eq!(lines(&[first]), ["1|a|1|true"]);

    update(&mut db, "ALTER TABLE t ADD (day DATE, note STRING COMMENT 'from 2026 on')").await;
    update(&mut db, "INSERT INTO t VALUES (3, 'c', 3, DATE '2026-12-06', 'x')").await;
    update(&mut db, "INSERT INTO t (id, note) VALUES (1, 'y')").await;
    let record = [(Some(r#"{"id":4}"#), Some(r#"{"name":"d","day":"2026-12-07"}"#))];
    assert_eq!(client.produce("t", 0, plain(&record)).await.error_code, 0);
    // The lookups opened before go on as they began.
    assert_eq!(lines(&[lookups.of(1).await.expect("answers")]), ["1|a|1|true"]);
    drop(lookups);

    let rows = ["1|a|1|NULL|y", "2|b|2|NULL|NULL", "3|c|3|2026-12-06|x", "4|d|NULL|2026-12-07|NULL"];
    let changes = [
        "insert|0|1|a|1|NULL|NULL",
        "insert|1|2|b|2|NULL|NULL",
        "insert|2|3|c|3|2026-12-06|x",
        "update_before|3|1|a|1|NULL|NULL",
        "update_after|4|1|a|1|NULL|y",
        "insert|5|4|d|NULL|2026-12-07|NULL",
    ];
    let changelog = "SELECT _change_type, _log_offset, id, name, n, day, note FROM t$changelog ORDER BY _log_offset";
    let values = [
        r#"{"id":1,"name":"a","n":1,"day":null,"note":null}"#,
        r#"{"id":2,"name":"b","n":2,"day":null,"note":null}"#,
        r#"{"id":3,"name":"c","n":3,"day":"2026-12-06","note":"x"}"#,
        r#"{"id":1,"name":"a","n":1,"day":null,"note":"y"}"#,
        r#"{"id":4,"name":"d","n":null,"day":"2026-12-07","note":null}"#,
    ];
    let mut server = server;
    for again in [true, false] {
        let (mut client, mut db, mut arrow) = (server.client().await, sql(&server).await, flight(&server).await);
        assert_eq!(query(&mut db, "SELECT * FROM t ORDER BY id").await, rows);
        assert_eq!(query(&mut db, "SELECT * FROM t WHERE id IN (1, 4) ORDER BY id").await, [rows[0], rows[3]]);
        assert_eq!(query(&mut db, changelog).await, changes);
        let (records, _) = read(&fetch(&mut client, 0, 0).await);
        assert_eq!(records.iter().map(|record| record.2.as_deref().expect("a value")).collect::<Vec<_>>(), values);
        let ticket = Ticket::new(r#"{"lookup":{"table":"t","keys":[[2],[3]]}}"#);
        let found: Vec<_> = arrow.do_get(ticket).await.expect("answers").try_collect().await.expect("rows");
        assert_eq!(lines(&found), ["2|b|2|NULL|NULL|true", "3|c|3|2026-12-06|x|true"]);
        let made = query(&mut db, "SHOW CREATE TABLE t").await.remove(0);
        assert!(made.contains("`note` STRING COMMENT 'from 2026 on'"), "{made}");
        if again {
            server = server.crash().await.restart().await;
        }
    }
}

/// As the golden file of DDL errors has them; nothing of what is refused is there.
#[tokio::test]
async fn changes_that_are_none_are_refused_by_name() {
    let server = Server::start().await;
    let mut db = sql(&server).await;
    update(&mut db, "CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED)").await;
    update(&mut db, "CREATE TABLE l (a INT)").await;
    let cases = [
        ("ALTER TABLE t ADD n INT NOT NULL", Code::InvalidArgument, "'n'"),
        ("ALTER TABLE t ADD n INT FIRST", Code::InvalidArgument, "at the end"),
        ("ALTER TABLE t ADD n INT AFTER k", Code::InvalidArgument, "at the end"),
        ("ALTER TABLE t ADD v STRING", Code::AlreadyExists, "'v'"),
        ("ALTER TABLE t ADD (n INT, n INT)", Code::AlreadyExists, "'n'"),
        ("ALTER TABLE t ADD (n INT, __offset BIGINT)", Code::InvalidArgument, "__offset"),
        ("ALTER TABLE t ADD _change_type STRING", Code::InvalidArgument, "_change_type"),
        ("ALTER TABLE t ADD n INT PRIMARY KEY", Code::InvalidArgument, "primary key"),
        ("ALTER TABLE t ADD n DECIMAL(99, 2)", Code::InvalidArgument, "99"),
        ("ALTER TABLE nowhere ADD n INT", Code::NotFound, "nowhere"),
        ("ALTER TABLE t DROP v", Code::Unimplemented, "dropping a column"),
        ("ALTER TABLE t RENAME v TO w", Code::Unimplemented, "renaming"),
        ("ALTER TABLE t MODIFY v INT", Code::Unimplemented, "modifying a column"),
    ];
    each_refused(&mut db, &cases).await;
    update(&mut db, "INSERT INTO t VALUES (1, 'a')").await;
    assert_eq!(query(&mut db, "SELECT * FROM t").await, ["1|a"]);
    update(&mut db, "INSERT INTO l VALUES (1)").await;
    update(&mut db, "ALTER TABLE l ADD COLUMN b INT").await;
    update(&mut db, "INSERT INTO l VALUES (2, 2)").await;
    assert_eq!(query(&mut db, "SELECT a, b FROM l ORDER BY a").await, ["1|NULL", "2|2"]);
}
