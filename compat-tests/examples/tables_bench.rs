//! Upserts, lookups, snapshot and changelog of a table with a primary key on a running server: rows per second, one
//! line each. `tables_bench KAFKA FLIGHT [ROWS] [LOOKUPS]`; the rows are those of `lab/fluss/Bench.java`.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightClient, FlightDescriptor, Ticket};
use futures::{StreamExt, TryStreamExt, stream};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use sluice_compat_tests::Outcome;
use tonic::transport::{Channel, Endpoint};

const COLUMNS: &str = "(id INT, name STRING, payload STRING, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)";
/// Rows of one put.
const PUT_ROWS: usize = 1_000;

fn rate(what: &str, rows: usize, from: Instant) {
    let seconds = from.elapsed().as_secs_f64();
    println!("{what:<44} {rows:>9} rows {seconds:>8.2} s {:>12.0} rows/s", rows as f64 / seconds);
}

fn payloads() -> Vec<String> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut letter = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..4_096).map(|_| (0..72).map(|_| letter()).collect()).collect()
}

fn rows(first: usize, count: usize, payloads: &[String]) -> Outcome<RecordBatch> {
    let ids: Vec<usize> = (first..first + count).collect();
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(ids.iter().map(|id| Some(*id as i32)).collect::<Int32Array>())),
        ("name", Arc::new(ids.iter().map(|id| Some(format!("name-{id}"))).collect::<StringArray>())),
        ("payload", Arc::new(ids.iter().map(|id| payloads.get(id & 4_095).cloned()).collect::<StringArray>())),
        ("v", Arc::new(ids.iter().map(|id| Some(*id as i64 * 7)).collect::<Int64Array>())),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

async fn put(client: &mut FlightClient, table: &str, batches: Vec<RecordBatch>) -> Outcome<()> {
    let descriptor = FlightDescriptor::new_path(vec!["bench".to_owned(), table.to_owned()]);
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    let sent = encoder.build(stream::iter(batches.into_iter().map(Ok)));
    client.do_put(sent).await?.try_for_each(|_| std::future::ready(Ok(()))).await?;
    Ok(())
}

fn keys(ids: Vec<i32>) -> Outcome<RecordBatch> {
    Ok(RecordBatch::try_from_iter([("id", Arc::new(Int32Array::from(ids)) as ArrayRef)])?)
}

/// Looks `lookups` random keys up, `size` to a batch; how many were right.
async fn exchange(client: &mut FlightClient, rows: usize, lookups: usize, size: usize) -> Outcome<usize> {
    let descriptor = FlightDescriptor::new_cmd(r#"{"lookup":{"table":"bench.f"}}"#);
    let mut random = 1_usize;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) % rows) as i32
    };
    let mut batches = Vec::with_capacity(lookups / size);
    for _ in 0..lookups / size {
        batches.push(keys((0..size).map(|_| next()).collect())?);
    }
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    let mut answers = client.do_exchange(encoder.build(stream::iter(batches.into_iter().map(Ok)))).await?;
    let mut right = 0;
    while let Some(batch) = answers.try_next().await? {
        let (ids, values) = (batch.column(0), batch.column(3).as_primitive::<Int64Type>());
        let ids = ids.as_primitive::<arrow::datatypes::Int32Type>();
        right += ids.iter().zip(values).filter(|(id, v)| id.map(|id| i64::from(id) * 7) == *v).count();
    }
    Ok(right)
}

fn produce(kafka: &str, count: usize, payloads: &[String]) -> Outcome<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka).set("enable.idempotence", "true").set("linger.ms", "10");
    config.set("queue.buffering.max.messages", "200000");
    let producer: BaseProducer = config.create()?;
    for id in 0..count {
        let payload = payloads.get(id & 4_095).map_or("", String::as_str);
        let value = format!(r#"{{"id":{id},"name":"name-{id}","payload":"{payload}","v":{}}}"#, id * 7);
        let key = (id as i32).to_be_bytes();
        loop {
            let record = BaseRecord::to("bench.k").key(&key[..]).payload(&value);
            match producer.send(record) {
                Ok(()) => break,
                Err(_) => {
                    producer.poll(std::time::Duration::from_millis(1));
                }
            }
        }
    }
    producer.flush(std::time::Duration::from_secs(120))?;
    Ok(())
}

async fn drain(sql: &mut FlightSqlServiceClient<Channel>, text: &str) -> Outcome<usize> {
    let info = sql.execute(text.to_owned(), None).await?;
    let mut rows = 0;
    for endpoint in info.endpoint {
        let mut stream = sql.do_get(endpoint.ticket.ok_or("no ticket")?).await?;
        while let Some(batch) = stream.try_next().await? {
            rows += batch.num_rows();
        }
    }
    Ok(rows)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let (Some(kafka), Some(flight)) = (argument(1), argument(2)) else {
        return Err("usage: tables_bench KAFKA FLIGHT [ROWS] [LOOKUPS]".into());
    };
    let count = argument(3).map_or(Ok(500_000), str::parse)?;
    let lookups = argument(4).map_or(Ok(100_000), str::parse)?;
    let channel = Endpoint::from_shared(format!("http://{flight}"))?.connect().await?;
    let mut sql = FlightSqlServiceClient::new(channel.clone());
    let mut client = FlightClient::new(channel.clone());
    for text in [
        "DROP DATABASE IF EXISTS bench CASCADE".to_owned(),
        "CREATE DATABASE bench".to_owned(),
        format!("CREATE TABLE bench.f {COLUMNS} WITH ('bucket.num' = '3')"),
        format!("CREATE TABLE bench.k {COLUMNS} WITH ('bucket.num' = '3')"),
    ] {
        sql.execute_update(text, None).await?;
    }
    let payloads = payloads();
    let mut batches = Vec::new();
    for first in (0..count).step_by(PUT_ROWS) {
        batches.push(rows(first, PUT_ROWS.min(count - first), &payloads)?);
    }
    let from = Instant::now();
    put(&mut client, "f", batches.clone()).await?;
    rate("upsert, Flight DoPut, 1,000 rows a batch", count, from);
    let from = Instant::now();
    put(&mut client, "f", batches).await?;
    rate("the same again: every row is an update", count, from);
    let (address, texts) = (kafka.to_owned(), payloads.clone());
    let from = Instant::now();
    tokio::task::spawn_blocking(move || produce(&address, count, &texts)).await??;
    rate("upsert, Kafka JSON, librdkafka", count, from);
    for size in [1, 100, 1_000] {
        let from = Instant::now();
        let right = exchange(&mut client, count, lookups, size).await?;
        rate(&format!("lookup, DoExchange, {size} to a batch"), lookups, from);
        if right != lookups {
            return Err(format!("{right} of {lookups} lookups were right").into());
        }
    }
    let from = Instant::now();
    let singles = 2_000;
    for id in 0..singles {
        let ticket = format!(r#"{{"lookup":{{"table":"bench.f","keys":[[{id}]]}}}}"#);
        let found: Vec<RecordBatch> = client.do_get(Ticket::new(ticket)).await?.try_collect().await?;
        if found.first().is_none_or(|batch| batch.column(0).is_null(0)) {
            return Err("a row was not found".into());
        }
    }
    rate("lookup, DoGet, one at a time", singles, from);
    let descriptor = FlightDescriptor::new_path(vec!["bench".to_owned(), "f".to_owned()]);
    let info = client.get_flight_info(descriptor).await?;
    let from = Instant::now();
    let buckets = stream::iter(info.endpoint).map(|endpoint| {
        let mut client = FlightClient::new(channel.clone());
        async move {
            let mut rows = 0;
            let mut stream = client.do_get(endpoint.ticket.ok_or("no ticket")?).await?;
            while let Some(batch) = stream.try_next().await? {
                rows += batch.num_rows();
            }
            Outcome::Ok(rows)
        }
    });
    let read: Vec<usize> = buckets.buffer_unordered(3).try_collect().await?;
    rate("snapshot, DoGet, three buckets at once", read.iter().sum(), from);
    let from = Instant::now();
    let rows = drain(&mut sql, "SELECT * FROM bench.f$changelog").await?;
    rate("changelog, SQL", rows, from);
    let from = Instant::now();
    let rows = drain(&mut sql, "SELECT COUNT(*), SUM(v) FROM bench.f").await?;
    rate("SELECT COUNT(*), SUM(v)", if rows == 1 { count } else { 0 }, from);
    Ok(())
}
