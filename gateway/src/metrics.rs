//! Every metric of the gateway, and the engine's numbers, in Prometheus form.

use std::collections::HashMap;

use prometheus::{Encoder, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};
use sluice_engine::EngineStats;

use crate::kafka::handlers::served_apis;

/// Takes one number out of the engine's.
type Value = fn(&EngineStats) -> u64;

/// The gateway's own metrics.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) connections: IntGauge,
    requests: HashMap<i16, IntCounter>,
    pub(crate) received_bytes: IntCounter,
    pub(crate) produced_bytes: IntCounter,
    pub(crate) produced_records: IntCounter,
    pub(crate) fetched_bytes: IntCounter,
    pub(crate) headers_dropped: IntCounter,
    engine: Vec<(IntGauge, Value)>,
}

/// Name, help and value of each number that the engine gives.
const ENGINE: [(&str, &str, Value); 7] = [
    ("sluice_buckets", "Open buckets", |stats| stats.buckets),
    ("sluice_buckets_offline", "Buckets that answer errors only", |stats| stats.offline_buckets),
    ("sluice_kv_open", "Buckets of tables with a primary key whose rows are open", |stats| stats.kv_open),
    ("sluice_log_bytes", "Bytes of log files", |stats| stats.log_bytes),
    ("sluice_log_syncs", "Syncs of bucket logs since the start", |stats| stats.syncs),
    ("sluice_log_sync_failures", "Failed syncs since the start", |stats| stats.sync_failures),
    ("sluice_quarantined_bytes", "Bytes that recovery moved to quarantine at this start", |stats| {
        stats.quarantined_bytes
    }),
];

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// When two metrics share a name.
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let gauge = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let requests = IntCounterVec::new(Opts::new("sluice_kafka_requests_total", "Requests by API"), &["api"])?;
        registry.register(Box::new(requests.clone()))?;
        // Looked up once: a label look-up for each request would format and hash its name.
        let by_key = |served: crate::kafka::handlers::Served| {
            (served.key as i16, requests.with_label_values(&[&format!("{:?}", served.key)]))
        };
        let requests = served_apis().into_iter().map(by_key).collect();
        let mut engine: Vec<(IntGauge, Value)> = Vec::new();
        for (name, help, value) in ENGINE {
            engine.push((gauge(name, help)?, value));
        }
        Ok(Self {
            connections: gauge("sluice_kafka_connections", "Open Kafka connections")?,
            requests,
            received_bytes: counter("sluice_kafka_received_bytes_total", "Bytes of requests")?,
            produced_bytes: counter("sluice_kafka_produced_bytes_total", "Bytes of batches taken up by Produce")?,
            produced_records: counter("sluice_kafka_produced_records_total", "Records taken up by Produce")?,
            fetched_bytes: counter("sluice_kafka_fetched_bytes_total", "Bytes of batches returned by Fetch")?,
            headers_dropped: counter(
                "sluice_kafka_headers_dropped_total",
                "Record headers that no column of a typed table takes",
            )?,
            engine,
            registry,
        })
    }

    /// Counts a request of a served API.
    pub(crate) fn count_request(&self, api_key: i16) {
        if let Some(counter) = self.requests.get(&api_key) {
            counter.inc();
        }
    }

    /// The text that a scrape gets.
    pub(crate) fn render(&self, stats: &EngineStats) -> String {
        for (gauge, value) in &self.engine {
            gauge.set(i64::try_from(value(stats)).unwrap_or(i64::MAX));
        }
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "encoding metrics");
        }
        String::from_utf8(text).unwrap_or_default()
    }
}
