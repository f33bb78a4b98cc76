//! Loads one Kafka-compatible server with librdkafka and prints a TSV row per case.
//!
//! `bench BOOTSTRAP PID [options]`: PID is the server's, 0 leaves the server columns empty. Cases are
//! `{produce,fetch}-{100,1024}-p{1,6}-acks{1,all}`, `e2e-100-p1-acks{1,all}` and `idle-1000`. A fetch case reads what
//! the produce case of the same name wrote; where that one is not chosen, the topic is filled without counting.
//!
//! The server's CPU seconds come from the kernel's accounting of its process, so they hold on a busy machine where
//! rates do not; `other_cores` says how busy the machine was with neither server nor client. A client that uses
//! one core or more for itself (`client_cpu_s_per_M` x rate) may be the limit, not the server.

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str = "bench BOOTSTRAP PID [options]
  --cases A,B      only these cases (see --list)
  --list           print the names of all cases and stop
  --warm N         produce and fetch N records of 100 B before counting (0)
  --scale X        records per case, as a factor (1.0 = 5 M of 100 B; 1.2 M produced, 3 M fetched of 1 KB)
  --max-seconds S  a case stops sending or reading after S seconds and counts what it did (10)
  --topic NAME     use this existing topic instead of making one per case (only
                   throughput cases with its partition count)
  --rate N         records per second of the e2e cases (10000)
  --e2e-seconds S  how long an e2e case counts (10)
  --e2e-warm S     how long it runs before that (8; a JVM compiles its small-request path only now)
  --no-header      leave out the header line";

const COLUMNS: &str =
    "case\trecords_s\tMB_s\tcpu_s_per_M\tpeak_rss_MB\tclient_cpu_s_per_M\tother_cores\tp50_us\tp99_us\tp999_us";
const IDLE_TOPICS: usize = 100;
const IDLE_PARTITIONS: i32 = 10;
/// Consecutive records for one topic partition; long enough that switching costs the client nothing.
const RUN: u64 = 64;

fn main() -> Result<()> {
    let args = Args::parse()?;
    if args.list {
        all_cases().iter().for_each(|case| println!("{}", case.name()));
        return Ok(());
    }
    if args.header {
        println!("{COLUMNS}");
    }
    let bench = Bench::new(args)?;
    bench.run()
}

/// What the command line asks for.
struct Args {
    bootstrap: String,
    pid: Option<u32>,
    cases: Vec<Case>,
    warm: u64,
    scale: f64,
    max: Duration,
    topic: Option<String>,
    rate: u64,
    e2e: Duration,
    e2e_warm: Duration,
    header: bool,
    list: bool,
}

impl Args {
    fn parse() -> Result<Args> {
        let mut args = Args {
            bootstrap: String::new(),
            pid: None,
            cases: all_cases(),
            warm: 0,
            scale: 1.0,
            max: Duration::from_secs(10),
            topic: None,
            rate: 10_000,
            e2e: Duration::from_secs(10),
            e2e_warm: Duration::from_secs(8),
            header: true,
            list: false,
        };
        let mut plain = Vec::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value\n{USAGE}"));
            match word.as_str() {
                "--cases" => args.cases = named_cases(&value()?)?,
                "--list" => args.list = true,
                "--warm" => args.warm = value()?.parse()?,
                "--scale" => args.scale = value()?.parse()?,
                "--max-seconds" => args.max = Duration::from_secs_f64(value()?.parse()?),
                "--topic" => args.topic = Some(value()?),
                "--rate" => args.rate = value()?.parse()?,
                "--e2e-seconds" => args.e2e = Duration::from_secs_f64(value()?.parse()?),
                "--e2e-warm" => args.e2e_warm = Duration::from_secs_f64(value()?.parse()?),
                "--no-header" => args.header = false,
                other if other.starts_with('-') => return Err(format!("unknown option {other}\n{USAGE}").into()),
                _ => plain.push(word),
            }
        }
        if args.list {
            return Ok(args);
        }
        let [bootstrap, pid] = plain.as_slice() else { return Err(USAGE.into()) };
        args.bootstrap.clone_from(bootstrap);
        args.pid = Some(pid.parse()?).filter(|pid| *pid != 0);
        Ok(args)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Produce,
    Fetch,
    EndToEnd,
    Idle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Case {
    kind: Kind,
    size: usize,
    partitions: i32,
    acks: &'static str,
}

impl Case {
    fn name(&self) -> String {
        let Case { kind, size, partitions, acks } = self;
        match kind {
            Kind::Produce => format!("produce-{size}-p{partitions}-acks{acks}"),
            Kind::Fetch => format!("fetch-{size}-p{partitions}-acks{acks}"),
            Kind::EndToEnd => format!("e2e-{size}-p{partitions}-acks{acks}"),
            Kind::Idle => format!("idle-{partitions}"),
        }
    }

    /// How many records make a case of some seconds on an ordinary machine.
    fn records(&self, scale: f64) -> u64 {
        let base = match (self.kind, self.size) {
            (_, ..=100) => 5_000_000.0,
            (Kind::Fetch, _) => 3_000_000.0,
            _ => 1_200_000.0,
        };
        ((base * scale) as u64).max(1000)
    }
}

/// In the order they run: idle first (before anything filled the server's memory), a fetch after its produce.
fn all_cases() -> Vec<Case> {
    let mut cases =
        vec![Case { kind: Kind::Idle, size: 0, partitions: IDLE_TOPICS as i32 * IDLE_PARTITIONS, acks: "1" }];
    for size in [100, 1024] {
        for partitions in [1, 6] {
            for acks in ["1", "all"] {
                cases.extend([Kind::Produce, Kind::Fetch].map(|kind| Case { kind, size, partitions, acks }));
            }
        }
    }
    cases.extend(["1", "all"].map(|acks| Case { kind: Kind::EndToEnd, size: 100, partitions: 1, acks }));
    cases
}

fn named_cases(list: &str) -> Result<Vec<Case>> {
    let names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
    let all = all_cases();
    if let Some(wrong) = names.iter().find(|name| !all.iter().any(|case| case.name() == **name)) {
        return Err(format!("no such case: {wrong} (--list shows them)").into());
    }
    Ok(all.into_iter().filter(|case| names.contains(&case.name().as_str())).collect())
}

/// Counts failed deliveries: a benchmark of refused records is none.
#[derive(Default)]
struct Deliveries {
    failed: Arc<AtomicU64>,
}

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        eprintln!("librdkafka: {error}: {reason}");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result
            && self.failed.fetch_add(1, Ordering::Relaxed) == 0
        {
            eprintln!("not delivered: {error}");
        }
    }
}

/// One server under load.
struct Bench {
    args: Args,
    admin: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
    run: u32,
}

impl Bench {
    fn new(args: Args) -> Result<Bench> {
        let admin = ClientConfig::new().set("bootstrap.servers", &args.bootstrap).create()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Bench { args, admin, runtime, run: std::process::id() })
    }

    fn run(&self) -> Result<()> {
        let chosen = |kind| self.args.cases.iter().filter(move |case| case.kind == kind);
        if chosen(Kind::Idle).next().is_some() && self.args.topic.is_none() {
            self.idle()?;
        }
        if self.args.warm > 0 {
            let warm = Case { kind: Kind::Produce, size: 100, partitions: 6, acks: "1" };
            self.throughput(&warm, self.args.warm, false, false)?;
        }
        for case in all_cases().iter().filter(|case| case.kind == Kind::Produce) {
            let produce = self.args.cases.contains(case);
            let fetch = self.args.cases.contains(&Case { kind: Kind::Fetch, ..*case });
            if produce || fetch {
                self.throughput(case, case.records(self.args.scale), produce, fetch)?;
            }
        }
        if self.args.topic.is_some() {
            return Ok(());
        }
        chosen(Kind::EndToEnd).try_for_each(|case| self.end_to_end(case))
    }

    /// Produces to a topic of the case's shape and reads it back; prints the halves that are asked for.
    /// With neither, it warms the server up.
    fn throughput(&self, case: &Case, records: u64, print_produce: bool, print_fetch: bool) -> Result<()> {
        let Some(topic) = self.topic(&case.name(), case.partitions)? else { return Ok(()) };
        let warm_up = !print_produce && !print_fetch;
        let before = Snapshot::take(self.args.pid)?;
        let (sent, wall) = self.produce(&topic, case, records)?;
        if print_produce {
            let usage = before.until_now(self.args.pid)?;
            print_row(&case.name(), sent, case.size, wall, &usage, None);
        }
        if print_fetch || warm_up {
            let fetch = Case { kind: Kind::Fetch, ..*case };
            let wanted = if warm_up { sent } else { fetch.records(self.args.scale) };
            let before = Snapshot::take(self.args.pid)?;
            let (read, wall) = self.fetch(&topic, case.partitions, wanted, sent)?;
            if print_fetch {
                let usage = before.until_now(self.args.pid)?;
                print_row(&fetch.name(), read, case.size, wall, &usage, None);
            }
        }
        self.drop_topics(&[&topic])
    }

    fn producer(&self, acks: &str, linger: &str, in_flight: &str) -> Result<BaseProducer<Deliveries>> {
        Ok(ClientConfig::new()
            .set("bootstrap.servers", &self.args.bootstrap)
            .set("acks", acks)
            .set("linger.ms", linger)
            .set("max.in.flight.requests.per.connection", in_flight)
            .set("compression.type", "none")
            .set("batch.size", "1000000")
            .set("batch.num.messages", "1000000")
            .set("queue.buffering.max.messages", "500000")
            .set("queue.buffering.max.kbytes", "500000")
            .set("message.timeout.ms", "120000")
            .set("socket.nagle.disable", "true")
            .create_with_context(Deliveries::default())?)
    }

    /// Sends as fast as librdkafka takes records, until `records` are sent or the time is up, and waits for the
    /// last acknowledgement. Returns what was sent and how long all of it took.
    fn produce(&self, topic: &str, case: &Case, records: u64) -> Result<(u64, Duration)> {
        let producer = self.producer(case.acks, "5", "1000000")?;
        producer.client().fetch_metadata(Some(topic), Duration::from_secs(10))?;
        let payload = payload(case.size);
        let failed = Arc::clone(&producer.context().failed);
        let start = Instant::now();
        let mut sent = 0;
        while sent < records {
            let partition = ((sent / RUN) % case.partitions as u64) as i32;
            match producer.send(BaseRecord::<(), [u8]>::to(topic).partition(partition).payload(&payload)) {
                Ok(()) => sent += 1,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    producer.poll(Duration::from_millis(5));
                }
                Err((error, _)) => return Err(error.into()),
            }
            if sent.is_multiple_of(8192) {
                producer.poll(Duration::ZERO);
                if start.elapsed() > self.args.max {
                    break;
                }
            }
        }
        producer.flush(Duration::from_secs(120))?;
        let wall = start.elapsed();
        match failed.load(Ordering::Relaxed) {
            0 => Ok((sent, wall)),
            failed => Err(format!("{}: {failed} of {sent} records were not delivered", case.name()).into()),
        }
    }

    fn consumer(&self, topic: &str) -> Result<BaseConsumer> {
        Ok(ClientConfig::new()
            .set("bootstrap.servers", &self.args.bootstrap)
            .set("group.id", format!("{topic}-{}", self.run))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("queued.min.messages", "500000")
            .set("queued.max.messages.kbytes", "262144")
            // the default of 1 s would let a consumer that outran its queue stand still
            .set("fetch.queue.backoff.ms", "2")
            .set("socket.nagle.disable", "true")
            .create()?)
    }

    /// Reads `wanted` records of a topic that holds `held`, from the start again whenever the end is reached.
    /// The clock starts at the first record.
    fn fetch(&self, topic: &str, partitions: i32, wanted: u64, held: u64) -> Result<(u64, Duration)> {
        let consumer = self.consumer(topic)?;
        consumer.assign(&from_start(topic, partitions)?)?;
        let held = if self.args.topic.is_some() { u64::MAX } else { held };
        let mut start = Instant::now();
        let (mut read, mut lap) = (0, 0);
        while read < wanted {
            let Some(message) = consumer.poll(Duration::from_secs(20)) else {
                return Err(format!("{topic}: no record for 20 s after {read} of {wanted}").into());
            };
            message?;
            if read == 0 {
                start = Instant::now();
            }
            (read, lap) = (read + 1, lap + 1);
            if lap == held && read < wanted {
                consumer.assign(&from_start(topic, partitions)?)?;
                lap = 0;
            }
            if read.is_multiple_of(8192) && start.elapsed() > self.args.max {
                break;
            }
        }
        Ok((read, start.elapsed()))
    }

    /// A producer thread sends at a fixed rate whatever the server does, a consumer thread compares the time in each
    /// payload with its own clock. The producer's `send` never waits, so a slow server cannot hide latency.
    fn end_to_end(&self, case: &Case) -> Result<()> {
        let Some(topic) = self.topic(&case.name(), case.partitions)? else {
            return Ok(());
        };
        let consumer = self.consumer(&topic)?;
        // No linger, and as many requests in flight as Java's producer allows: a server that answers at once gets
        // records one by one, a slower one gets them in batches instead of a queue that only grows.
        let producer = self.producer(case.acks, "0", "5")?;
        producer.client().fetch_metadata(Some(&topic), Duration::from_secs(10))?;
        consumer.assign(&from_start(&topic, case.partitions)?)?;
        let warm_up = self.args.e2e_warm;
        let clock = Instant::now();
        let stop = AtomicBool::new(false);
        let (counted, latencies) = thread::scope(|scope| {
            let receiver = scope.spawn(|| latencies(&consumer, clock, &stop));
            let counted = self.send_paced(&producer, &topic, case.size, clock, warm_up);
            thread::sleep(Duration::from_millis(500));
            stop.store(true, Ordering::Relaxed);
            (counted, receiver.join())
        });
        let (sent, usage) = counted?;
        let latencies = latencies.map_err(|_| "the consumer thread panicked")??;
        let mut times: Vec<u32> =
            latencies.iter().filter(|(at, _)| *at >= warm_up).map(|(_, latency)| *latency).collect();
        times.sort_unstable();
        if (times.len() as u64) < sent {
            return Err(format!("{}: {} of {sent} records came back", case.name(), times.len()).into());
        }
        print_row(&case.name(), sent, case.size, self.args.e2e, &usage, Some(&times));
        self.drop_topics(&[&topic])
    }

    /// The warm-up and the counted part of an end-to-end case, as seen by the producer.
    fn send_paced(
        &self,
        producer: &BaseProducer<Deliveries>,
        topic: &str,
        size: usize,
        clock: Instant,
        warm_up: Duration,
    ) -> Result<(u64, Usage)> {
        paced(producer, topic, size, self.args.rate, clock, warm_up)?;
        let before = Snapshot::take(self.args.pid)?;
        let sent = paced(producer, topic, size, self.args.rate, clock, warm_up + self.args.e2e)?;
        let usage = before.until_now(self.args.pid)?;
        producer.flush(Duration::from_secs(30))?;
        Ok((sent, usage))
    }

    /// The server's resident memory with 1,000 topic partitions that nobody uses.
    fn idle(&self) -> Result<()> {
        let names: Vec<String> = (0..IDLE_TOPICS).map(|i| format!("bench-idle-{}-{i}", self.run)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.make_topics(&names, IDLE_PARTITIONS)?;
        let before = Snapshot::take(self.args.pid)?;
        thread::sleep(Duration::from_secs(5));
        let usage = before.until_now(self.args.pid)?;
        let rss =
            self.args.pid.map_or(Ok("-".to_owned()), |pid| status_mb(pid, "VmRSS").map(|mb| format!("{mb:.1}")))?;
        println!("idle-1000\t-\t-\t-\t{rss}\t-\t{:.2}\t-\t-\t-", usage.other_cores);
        self.drop_topics(&names)
    }

    /// A fresh topic for a case, or the one given; none where that one has another number of topic partitions.
    fn topic(&self, case: &str, partitions: i32) -> Result<Option<String>> {
        if let Some(topic) = &self.args.topic {
            let metadata = self.admin.inner().fetch_metadata(Some(topic), Duration::from_secs(10))?;
            let found = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
            return Ok(Some(topic.clone()).filter(|_| found == partitions as usize));
        }
        let name = format!("bench-{case}-{}", self.run);
        self.make_topics(&[&name], partitions)?;
        Ok(Some(name))
    }

    fn make_topics(&self, names: &[&str], partitions: i32) -> Result<()> {
        let topics: Vec<_> =
            names.iter().map(|name| NewTopic::new(name, partitions, TopicReplication::Fixed(1))).collect();
        let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(60)));
        for result in self.runtime.block_on(self.admin.create_topics(&topics, &options))? {
            result.map_err(|(name, code)| format!("{name} was not created: {code}"))?;
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        for name in names {
            while !self.has_leaders(name)? {
                if Instant::now() > deadline {
                    return Err(format!("{name} has no leaders after 30 s").into());
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn has_leaders(&self, name: &str) -> Result<bool> {
        let metadata = self.admin.inner().fetch_metadata(Some(name), Duration::from_secs(10))?;
        Ok(metadata.topics().iter().all(|topic| {
            topic.error().is_none() && topic.partitions().iter().all(|p| p.error().is_none() && p.leader() >= 0)
        }))
    }

    fn drop_topics(&self, names: &[&str]) -> Result<()> {
        if self.args.topic.is_some() {
            return Ok(());
        }
        let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(60)));
        for result in self.runtime.block_on(self.admin.delete_topics(names, &options))? {
            result.map_err(|(name, code)| format!("{name} was not deleted: {code}"))?;
        }
        // the server drops the files in the background; keep that out of the next case
        thread::sleep(Duration::from_millis(500));
        Ok(())
    }
}

/// Sends `rate` records a second, each with the microseconds of `clock` in its first bytes, until `end` on that clock.
fn paced(
    producer: &BaseProducer<Deliveries>,
    topic: &str,
    size: usize,
    rate: u64,
    clock: Instant,
    end: Duration,
) -> Result<u64> {
    let start = clock.elapsed();
    let mut payload = payload(size);
    let mut sent: u64 = 0;
    loop {
        let now = clock.elapsed();
        if now >= end {
            return Ok(sent);
        }
        let due = ((now - start).as_micros() as u64 * rate) / 1_000_000;
        while sent < due {
            payload[..8].copy_from_slice(&(clock.elapsed().as_micros() as u64).to_be_bytes());
            let record = BaseRecord::<(), [u8]>::to(topic).partition(0).payload(&payload);
            producer.send(record).map_err(|(error, _)| error)?;
            sent += 1;
        }
        producer.poll(Duration::ZERO);
        thread::sleep(Duration::from_micros(1_000_000 / rate.max(1)).min(Duration::from_millis(1)));
    }
}

/// Reads until `stop`: for each record when it was sent (on `clock`) and its microseconds on the way.
fn latencies(consumer: &BaseConsumer, clock: Instant, stop: &AtomicBool) -> Result<Vec<(Duration, u32)>> {
    let mut seen = Vec::with_capacity(1 << 20);
    while !stop.load(Ordering::Relaxed) {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message?;
        let now = clock.elapsed();
        let head = message.payload().and_then(|payload| payload.first_chunk::<8>()).ok_or("a record without a time")?;
        let sent = Duration::from_micros(u64::from_be_bytes(*head));
        seen.push((sent, now.saturating_sub(sent).as_micros() as u32));
    }
    Ok(seen)
}

fn from_start(topic: &str, partitions: i32) -> Result<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(topic, partition, Offset::Offset(0))?;
    }
    Ok(list)
}

fn payload(size: usize) -> Vec<u8> {
    (0..size).map(|i| b'a' + (i % 26) as u8).collect()
}

fn print_row(case: &str, records: u64, size: usize, wall: Duration, usage: &Usage, sorted_us: Option<&[u32]>) {
    let (records, seconds) = (records as f64, wall.as_secs_f64());
    let per_million = |cpu: Option<f64>| cpu.map_or("-".to_owned(), |cpu| format!("{:.3}", cpu / records * 1e6));
    let quantile = |q: f64| {
        sorted_us
            .and_then(|sorted| sorted.get((sorted.len() as f64 * q) as usize))
            .map_or("-".to_owned(), u32::to_string)
    };
    println!(
        "{case}\t{:.0}\t{:.1}\t{}\t{}\t{}\t{:.2}\t{}\t{}\t{}",
        records / seconds,
        records * size as f64 / seconds / 1e6,
        per_million(usage.server_cpu),
        usage.peak_mb.map_or("-".to_owned(), |mb| format!("{mb:.1}")),
        per_million(Some(usage.client_cpu)),
        usage.other_cores,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
    );
}

/// CPU clocks of the server, this process and the machine, at one moment.
struct Snapshot {
    at: Instant,
    server: Option<f64>,
    client: f64,
    machine: f64,
}

/// What happened between two snapshots.
struct Usage {
    server_cpu: Option<f64>,
    client_cpu: f64,
    other_cores: f64,
    peak_mb: Option<f64>,
}

impl Snapshot {
    /// Also lets the server's peak memory start again, where the kernel allows it.
    fn take(pid: Option<u32>) -> Result<Snapshot> {
        if let Some(pid) = pid
            && let Err(error) = fs::write(format!("/proc/{pid}/clear_refs"), "5")
        {
            eprintln!("peak memory is that of the whole run: {error}");
        }
        Snapshot::clocks(pid)
    }

    fn clocks(pid: Option<u32>) -> Result<Snapshot> {
        Ok(Snapshot {
            at: Instant::now(),
            server: pid.map(|pid| process_cpu(&pid.to_string())).transpose()?,
            client: process_cpu("self")?,
            machine: machine_cpu()?,
        })
    }

    fn until_now(&self, pid: Option<u32>) -> Result<Usage> {
        let now = Snapshot::clocks(pid)?;
        let server_cpu = now.server.zip(self.server).map(|(now, then)| now - then);
        let client_cpu = now.client - self.client;
        let other = now.machine - self.machine - server_cpu.unwrap_or(0.0) - client_cpu;
        Ok(Usage {
            server_cpu,
            client_cpu,
            other_cores: other.max(0.0) / (now.at - self.at).as_secs_f64(),
            peak_mb: pid.map(|pid| status_mb(pid, "VmHWM")).transpose()?,
        })
    }
}

/// User and system seconds of a process and its ended threads.
fn process_cpu(pid: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // the name in parentheses may hold spaces: count fields after it
    let fields = stat.rsplit_once(')').ok_or("no name in stat")?.1;
    let ticks = |n: usize| -> Result<f64> { Ok(fields.split_whitespace().nth(n).ok_or("short stat")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

/// Seconds that all cores together were not idle.
fn machine_cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("empty stat")?;
    let ticks =
        line.split_whitespace().skip(1).take(8).map(str::parse).collect::<std::result::Result<Vec<f64>, _>>()?;
    // user nice system idle iowait irq softirq steal
    Ok(ticks.iter().enumerate().filter(|(i, _)| *i != 3 && *i != 4).map(|(_, ticks)| ticks).sum::<f64>() / TICKS)
}

/// USER_HZ, which Linux fixes at 100 for programs.
const TICKS: f64 = 100.0;

fn status_mb(pid: u32, key: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(key)).ok_or_else(|| format!("no {key} for {pid}"))?;
    let kb: f64 = line.split_whitespace().nth(1).ok_or("short status")?.parse()?;
    Ok(kb / 1024.0)
}
