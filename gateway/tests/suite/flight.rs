//! Arrow Flight and Flight SQL beside Kafka: what was produced is browsed and read back as record batches.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type, Schema, TimestampMillisecondType};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTables};
use arrow_flight::{FlightClient, FlightDescriptor, FlightInfo, Ticket};
use futures::TryStreamExt;
use sluice_protocol::batch::{HEADER_LEN, with_payload};
use sluice_protocol::records::{BatchBuilder, Record, compress};
use tonic::Code;
use tonic::transport::Channel;

use crate::fixture::{Server, batch, sized_batch};

pub(crate) async fn channel(server: &Server) -> Channel {
    let address = format!("http://{}", server.gateway.flight_address());
    Channel::from_shared(address).expect("an address").connect().await.expect("connects")
}

pub(crate) async fn flight(server: &Server) -> FlightClient {
    FlightClient::new(channel(server).await)
}

pub(crate) async fn sql(server: &Server) -> FlightSqlServiceClient<Channel> {
    FlightSqlServiceClient::new(channel(server).await)
}

/// Lookups by `id` in table `t` over one exchange, one after the other.
pub(crate) struct Lookups {
    keys: tokio::sync::mpsc::Sender<Result<RecordBatch, FlightError>>,
    answers: FlightRecordBatchStream,
}

impl Lookups {
    /// Opens the exchange with a first lookup, for it is answered from there on.
    pub(crate) async fn open(client: &mut FlightClient, first: i64) -> (Self, RecordBatch) {
        let (keys, receiver) = tokio::sync::mpsc::channel(1);
        let sent = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(FlightDescriptor::new_cmd(r#"{"lookup":{"table":"t"}}"#)))
            .build(tokio_stream::wrappers::ReceiverStream::new(receiver));
        keys.send(Ok(Self::key(first))).await.expect("sends");
        let mut answers = client.do_exchange(sent).await.expect("exchanges");
        let answer = answers.try_next().await.expect("answers").expect("a batch");
        (Self { keys, answers }, answer)
    }

    fn key(id: i64) -> RecordBatch {
        RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![id])) as ArrayRef)]).expect("keys")
    }

    pub(crate) async fn of(&mut self, id: i64) -> Result<RecordBatch, FlightError> {
        self.keys.send(Ok(Self::key(id))).await.expect("sends");
        Ok(self.answers.try_next().await?.expect("a batch"))
    }
}

pub(crate) fn path(table: &str) -> FlightDescriptor {
    FlightDescriptor::new_path(vec!["default".to_owned(), table.to_owned()])
}

/// The code of a refusal.
pub(crate) fn code(error: FlightError) -> Code {
    match error {
        FlightError::Tonic(status) => status.code(),
        other => panic!("no status: {other:?}"),
    }
}

/// Every endpoint of a flight, in order; each stream must have the flight's schema.
pub(crate) async fn read(client: &mut FlightClient, info: &FlightInfo) -> Vec<Vec<RecordBatch>> {
    let schema = info.clone().try_decode_schema().expect("a schema");
    let mut found = Vec::new();
    for endpoint in &info.endpoint {
        let stream = client.do_get(endpoint.ticket.clone().expect("a ticket")).await.expect("a stream");
        found.push(drain(stream, &schema).await);
    }
    found
}

async fn drain(mut stream: FlightRecordBatchStream, schema: &Schema) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await.expect("a batch") {
        batches.push(batch);
    }
    assert_eq!(stream.schema().expect("the schema comes first").as_ref(), schema);
    batches
}

pub(crate) fn rows(endpoints: &[Vec<RecordBatch>]) -> usize {
    endpoints.iter().flatten().map(RecordBatch::num_rows).sum()
}

fn bytes(batch: &RecordBatch, column: &str) -> Vec<Option<Vec<u8>>> {
    let values = batch.column_by_name(column).expect("a column").as_binary::<i32>();
    values.iter().map(|value| value.map(<[u8]>::to_vec)).collect()
}

#[tokio::test]
async fn a_topic_reads_back_as_it_was_produced() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 2).await;
    let headers = vec![(&b"tag"[..], Some(&b"a"[..])), (&b"tag"[..], Some(&b""[..])), (&b"o"[..], None)];
    let tagged = Record { timestamp_delta: 7, headers, ..Record::new(Some(b""), None) };
    let produced = BatchBuilder::new(1_000).record(&Record::new(None, Some(b""))).record(&tagged).build();
    assert_eq!(kafka.produce("t", 1, produced).await.error_code, 0);

    let mut client = flight(&server).await;
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    assert_eq!((info.endpoint.len(), info.total_records, info.total_bytes), (2, -1, -1));
    let found = read(&mut client, &info).await;
    assert!(found[0].is_empty(), "a schema and no batch");
    let [batch] = found[1].as_slice() else { panic!("one batch: {found:?}") };
    assert_eq!(bytes(batch, "key"), [None, Some(vec![])]);
    assert_eq!(bytes(batch, "value"), [Some(vec![]), None]);
    assert_eq!(batch.column(3).as_primitive::<TimestampMillisecondType>().values(), &[1_000, 1_007]);
    assert_eq!(batch.column(4).as_primitive::<Int32Type>().values(), &[1, 1]);
    assert_eq!(batch.column(5).as_primitive::<Int64Type>().values(), &[0, 1]);
    let headers = batch.column(2).as_list::<i32>();
    assert_eq!(headers.value(0).len(), 0);
    let entries = headers.value(1);
    let entries = entries.as_struct();
    let names: Vec<_> = entries.column(0).as_string::<i32>().iter().flatten().collect();
    let values: Vec<_> = entries.column(1).as_binary::<i32>().iter().collect();
    assert_eq!((names, values), (vec!["tag", "tag", "o"], vec![Some(&b"a"[..]), Some(&b""[..]), None]));
}

#[tokio::test]
async fn every_codec_is_read_and_large_batches_come_in_pieces() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 1).await;
    let plain = sized_batch(10, 500);
    for codec in 0..5 {
        let packed = with_payload(&plain, codec, &compress(codec, &plain[HEADER_LEN..]).expect("packs"));
        assert_eq!(kafka.produce("t", 0, packed).await.error_code, 0, "codec {codec}");
    }
    assert_eq!(kafka.produce("t", 0, batch(20_000)).await.error_code, 0);
    for _ in 0..4 {
        assert_eq!(kafka.produce("t", 0, sized_batch(1, 700_000)).await.error_code, 0);
    }
    let mut client = flight(&server).await;
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    let found = read(&mut client, &info).await;
    let offsets = |batch: &RecordBatch| batch.column(5).as_primitive::<Int64Type>().values().to_vec();
    let offsets: Vec<i64> = found[0].iter().flat_map(offsets).collect();
    assert_eq!(offsets, (0..20_054).collect::<Vec<_>>());
    assert!(found[0].iter().all(|batch| batch.num_rows() <= 8_192));
    let values: Vec<_> = found[0].iter().flat_map(|batch| bytes(batch, "value")).take(50).collect();
    assert!(values.iter().all(|value| *value == Some(vec![b'v'; 500])));
}

#[tokio::test]
async fn what_a_consumer_has_seen_a_later_scan_sees_and_an_older_ticket_too() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 1).await;
    let mut client = flight(&server).await;
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    assert_eq!(rows(&read(&mut client, &info).await), 0);
    for round in 1..=20 {
        kafka.produce("t", 0, batch(3)).await;
        let seen = kafka.fetch("t", 0, 0).await.high_watermark;
        assert_eq!(seen, round * 3);
        assert!(rows(&read(&mut client, &info).await) as i64 >= seen);
    }
}

#[tokio::test]
async fn flights_are_listed_and_all_schemas_are_one() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("b", 3).await;
    let configs = [("table.schema", "id BIGINT NOT NULL, name STRING, at TIMESTAMP_LTZ(3)")];
    assert_eq!(kafka.try_create("a.dotted", 1, &[]).await, 0);
    assert_eq!(kafka.try_create("typed", 1, &configs).await, 0);
    let row = BatchBuilder::new(0).record(&Record::new(None, Some(br#"{"id": 5, "name": null}"#))).build();
    assert_eq!(kafka.produce("typed", 0, row).await.error_code, 0);

    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    let listed: Vec<_> = client.list_flights("").await.expect("a list").try_collect().await.expect("flights");
    let names: Vec<_> =
        listed.iter().map(|info| info.flight_descriptor.clone().expect("one").path[1].clone()).collect();
    assert_eq!(names, ["a.dotted", "b", "typed"]);
    for info in listed {
        let name = info.flight_descriptor.clone().expect("one").path[1].clone();
        let schema = client.get_schema(path(&name)).await.expect("a schema");
        assert_eq!(info.clone().try_decode_schema().expect("a schema"), schema);
        let mut prepared = sql.prepare(format!("SELECT * FROM `{name}`"), None).await.expect("prepares");
        assert_eq!(prepared.dataset_schema().expect("a schema"), &schema);
        let selected = prepared.execute().await.expect("executes");
        assert_eq!(selected.clone().try_decode_schema().expect("a schema"), schema);
        let by_path = read(&mut client, &info).await;
        let selected = read(&mut client, &selected).await;
        assert_eq!(rows(&selected), rows(&by_path));
        prepared.close().await.expect("closes");
        if name == "typed" {
            let batch = &by_path[0][0];
            assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[5]);
            assert!(batch.column(1).is_null(0) && batch.column(2).is_null(0));
        }
    }
}

#[tokio::test]
async fn select_star_with_a_limit_reads_so_many_rows_over_all_buckets() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 2).await;
    for bucket in 0..2 {
        kafka.produce("t", bucket, batch(5)).await;
    }
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    for (limit, expected) in [(0, 0), (3, 3), (7, 7), (99, 10)] {
        let text = format!("select * from \"default\".t limit {limit};");
        let info = sql.execute(text, None).await.expect("a flight");
        assert_eq!(info.endpoint.len(), 1);
        assert_eq!(rows(&read(&mut client, &info).await), expected, "limit {limit}");
    }
}

#[tokio::test]
async fn flight_sql_browses() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("one", 1).await;
    kafka.create("two", 1).await;
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    let mut flights = vec![
        (sql.get_catalogs().await, 1, 1),
        (sql.get_db_schemas(CommandGetDbSchemas::default()).await, 2, 1),
        (sql.get_table_types().await, 1, 1),
        (sql.get_sql_info(vec![]).await, 2, 17),
        (sql.get_xdbc_type_info(Default::default()).await, 19, 14),
        (sql.get_primary_keys(Default::default()).await, 6, 0),
        (sql.get_exported_keys(Default::default()).await, 13, 0),
        (sql.get_imported_keys(Default::default()).await, 13, 0),
        (sql.get_cross_reference(Default::default()).await, 13, 0),
    ];
    let asked = |pattern: Option<&str>, include_schema| CommandGetTables {
        table_name_filter_pattern: pattern.map(str::to_owned),
        include_schema,
        ..CommandGetTables::default()
    };
    flights.push((sql.get_tables(asked(None, false)).await, 4, 2));
    flights.push((sql.get_tables(asked(Some("tw_"), true)).await, 5, 1));
    flights.push((sql.get_tables(asked(Some("none"), true)).await, 5, 0));
    // cases.md F04: null is any, the empty string is those without.
    let of = |catalog: Option<&str>, schema: Option<&str>| CommandGetTables {
        catalog: catalog.map(str::to_owned),
        db_schema_filter_pattern: schema.map(str::to_owned),
        ..asked(Some("%"), true)
    };
    flights.push((sql.get_tables(of(None, Some("%"))).await, 5, 2));
    flights.push((sql.get_tables(of(Some("sluice"), Some("def%"))).await, 5, 2));
    flights.push((sql.get_tables(of(Some(""), None)).await, 5, 0));
    for (info, columns, expected) in flights {
        let info = info.expect("a flight");
        assert_eq!(info.clone().try_decode_schema().expect("a schema").fields().len(), columns, "{info:?}");
        assert_eq!(rows(&read(&mut client, &info).await), expected, "{info:?}");
        let command = info.flight_descriptor.clone().expect("the command");
        let schema = client.get_schema(command).await.expect("a schema");
        assert_eq!(info.try_decode_schema().expect("a schema"), schema);
    }
}

#[tokio::test]
async fn refusals_have_the_codes_that_clients_look_for() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 1).await;
    let (mut client, mut sql) = (flight(&server).await, sql(&server).await);
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    let ticket = info.endpoint[0].ticket.clone().expect("a ticket").ticket;
    for at in 0..ticket.len() {
        let mut bad = ticket.to_vec();
        bad[at] ^= 0x40;
        let refused = client.do_get(Ticket::new(bad)).await.expect_err("a tampered ticket");
        assert_eq!(code(refused), Code::InvalidArgument, "byte {at}");
    }
    assert_eq!(code(client.do_get(Ticket::new("")).await.expect_err("refused")), Code::InvalidArgument);
    assert_eq!(code(client.get_flight_info(path("none")).await.expect_err("refused")), Code::NotFound);
    let elsewhere = FlightDescriptor::new_path(vec!["none".into(), "t".into()]);
    assert_eq!(code(client.get_schema(elsewhere).await.expect_err("refused")), Code::NotFound);
    let deep = FlightDescriptor::new_path(vec!["a".into(), "b".into(), "c".into()]);
    assert_eq!(code(client.get_flight_info(deep).await.expect_err("refused")), Code::InvalidArgument);
    let mut refusal = async |text: &str| code(sql.execute(text.to_owned(), None).await.expect_err("refused"));
    assert_eq!(refusal("SELECT nothing FROM t").await, Code::InvalidArgument);
    assert_eq!(refusal("SELECT * FROM nowhere").await, Code::NotFound);
    assert_eq!(refusal(&format!("SELECT * FROM {}", "x".repeat(1 << 20))).await, Code::InvalidArgument);
    let update = sql.execute_update("COPY t TO 'file'".to_owned(), None).await;
    assert_eq!(code(update.expect_err("refused")), Code::Unimplemented);
    let table = server.gateway.engine();
    let id = sluice_engine::Backend::tables(table.as_ref()).by_name("t").expect("there").table_id();
    sluice_engine::Backend::drop_table(table.as_ref(), id).await.expect("drops");
    assert_eq!(code(client.do_get(Ticket::new(ticket)).await.expect_err("refused")), Code::NotFound);
}

#[tokio::test]
async fn a_stop_waits_for_a_running_stream() {
    let server = Server::start().await;
    let mut kafka = server.client().await;
    kafka.create("t", 1).await;
    for _ in 0..20 {
        kafka.produce("t", 0, sized_batch(1, 500_000)).await;
    }
    let mut client = flight(&server).await;
    let info = client.get_flight_info(path("t")).await.expect("a flight");
    let ticket = info.endpoint[0].ticket.clone().expect("a ticket");
    let mut stream = client.do_get(ticket).await.expect("a stream");
    let first = stream.try_next().await.expect("a batch").expect("a batch");
    drop(kafka);
    let Server { gateway, dir, .. } = server;
    let mut stop = tokio::spawn(gateway.stop());
    // Nothing is taken from the stream meanwhile, so its end cannot come; a stop that does not wait is over at once.
    tokio::time::timeout(Duration::from_millis(300), &mut stop).await.expect_err("the stop waits for the stream");
    let (stopped, rest) = tokio::join!(stop, stream.try_collect::<Vec<_>>());
    stopped.expect("no panic").expect("stops");
    let rest: usize = rest.expect("to its end").iter().map(RecordBatch::num_rows).sum();
    assert_eq!(first.num_rows() + rest, 20);
    drop(dir);
}
