//! The server's settings: a TOML file, environment variables, and flags, in rising order.
//!
//! Each key `a.b-c` is `b-c` in section `[a]` of the file and `SLUICE_A_B_C` in the environment. A
//! key that is not known is an error that names the nearest known one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use sluice_engine::{AcksAll, Visibility};

/// Why the settings were refused; one line for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// All settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// `data.dir`: the data directory. Default: `./sluice-data`.
    pub data_dir: PathBuf,
    /// `kafka.listen`: address of the Kafka listener. Default: `127.0.0.1:9092`.
    pub kafka_listen: SocketAddr,
    /// `kafka.advertised`: `host:port` that clients are told. Default: the listen address, or the one
    /// the client came by where the server listens on all.
    pub kafka_advertised: String,
    /// `kafka.node-id`: the broker id that clients see. Default: 1.
    pub kafka_node_id: i32,
    /// `kafka.auto-create-topics`: whether asking for a missing topic creates it. Default: true.
    pub kafka_auto_create_topics: bool,
    /// `kafka.default-partitions`: topic partitions where a client names no number. Default: 1.
    pub kafka_default_partitions: u32,
    /// `kafka.frame-bytes-max`: largest request. Default: 104857600.
    pub kafka_frame_bytes_max: usize,
    /// `kafka.in-flight-bytes-max`: bytes of large requests at once, over all connections. Default: 268435456.
    pub kafka_in_flight_bytes_max: usize,
    /// `kafka.connections-max`: open connections. Default: 10000.
    pub kafka_connections_max: usize,
    /// `kafka.idle-timeout-ms`: silent connections are closed after this. Default: 600000.
    pub kafka_idle_timeout_ms: u64,
    /// `kafka.frame-stall-ms`: a request that has begun must come within this time, a large one
    /// at a MiB in this time. Default: 30000.
    pub kafka_frame_stall_ms: u64,
    /// `flight.listen`: address of the Flight and Flight SQL listener. Default: `127.0.0.1:8815`.
    pub flight_listen: SocketAddr,
    /// `http.listen`: address of `/metrics`, `/healthz` and `/readyz`. Default: `127.0.0.1:8080`.
    pub http_listen: SocketAddr,
    /// `durability.acks-all`: `fsync` or `page-cache`. Default: `fsync`.
    pub acks_all: AcksAll,
    /// `visibility.default`: `durable` or `appended`. Default: `durable`.
    pub visibility: Visibility,
    /// `groups.initial-rebalance-delay-ms`: wait for more members of a new group. Default: 3000.
    pub groups_initial_rebalance_delay_ms: i32,
    /// `groups.session-timeout-min-ms`. Default: 6000.
    pub groups_session_timeout_min_ms: i32,
    /// `groups.session-timeout-max-ms`. Default: 1800000.
    pub groups_session_timeout_max_ms: i32,
    /// `groups.offsets-retention-minutes`: offsets of an Empty group are kept this long. Default: 10080.
    pub groups_offsets_retention_minutes: i64,
    /// `log.retention-interval-ms`: time between two retention runs. Default: 300000.
    pub log_retention_interval_ms: u64,
    /// `log.producer-expiry-ms`: idle producers are forgotten after this. Default: 86400000.
    pub log_producer_expiry_ms: i64,
    /// `log.sync-interval-ms`: longest time that an append nobody waits for stays unsynced. Default: 20.
    pub log_sync_interval_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("sluice-data"),
            kafka_listen: SocketAddr::from(([127, 0, 0, 1], 9092)),
            kafka_advertised: String::new(),
            kafka_node_id: 1,
            kafka_auto_create_topics: true,
            kafka_default_partitions: 1,
            kafka_frame_bytes_max: 100 << 20,
            kafka_in_flight_bytes_max: 256 << 20,
            kafka_connections_max: 10_000,
            kafka_idle_timeout_ms: 600_000,
            kafka_frame_stall_ms: 30_000,
            flight_listen: SocketAddr::from(([127, 0, 0, 1], 8815)),
            http_listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            acks_all: AcksAll::Fsync,
            visibility: Visibility::Durable,
            groups_initial_rebalance_delay_ms: 3_000,
            groups_session_timeout_min_ms: 6_000,
            groups_session_timeout_max_ms: 1_800_000,
            groups_offsets_retention_minutes: 10_080,
            log_retention_interval_ms: 300_000,
            log_producer_expiry_ms: 86_400_000,
            log_sync_interval_ms: 20,
        }
    }
}

type Setter = fn(&mut Config, &str) -> Result<(), String>;

fn parse<T: std::str::FromStr>(value: &str, what: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("'{value}' is not {what}"))
}

fn at_least<T: std::str::FromStr + PartialOrd + std::fmt::Display>(value: &str, min: T) -> Result<T, String> {
    let number: T = parse(value, "a number")?;
    if number < min { Err(format!("{number} is less than {min}")) } else { Ok(number) }
}

/// Every key, with what it sets.
const KEYS: &[(&str, Setter)] = &[
    ("data.dir", |config, value| {
        config.data_dir = PathBuf::from(value);
        Ok(())
    }),
    ("durability.acks-all", |config, value| {
        config.acks_all = match value {
            "fsync" => AcksAll::Fsync,
            "page-cache" => AcksAll::PageCache,
            _ => return Err(format!("'{value}' is neither fsync nor page-cache")),
        };
        Ok(())
    }),
    ("flight.listen", |config, value| {
        config.flight_listen = parse(value, "an address like 127.0.0.1:8815")?;
        Ok(())
    }),
    ("groups.initial-rebalance-delay-ms", |config, value| {
        config.groups_initial_rebalance_delay_ms = at_least(value, 0)?;
        Ok(())
    }),
    ("groups.offsets-retention-minutes", |config, value| {
        config.groups_offsets_retention_minutes = at_least(value, 1)?;
        Ok(())
    }),
    ("groups.session-timeout-max-ms", |config, value| {
        config.groups_session_timeout_max_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("groups.session-timeout-min-ms", |config, value| {
        config.groups_session_timeout_min_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("http.listen", |config, value| {
        config.http_listen = parse(value, "an address like 127.0.0.1:8080")?;
        Ok(())
    }),
    ("kafka.advertised", |config, value| {
        let port =
            value.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
        if port.is_none() {
            return Err(format!("'{value}' is not an address like broker.example:9092"));
        }
        config.kafka_advertised = value.to_owned();
        Ok(())
    }),
    ("kafka.auto-create-topics", |config, value| {
        config.kafka_auto_create_topics = parse(value, "true or false")?;
        Ok(())
    }),
    ("kafka.connections-max", |config, value| {
        config.kafka_connections_max = at_least(value, 1)?;
        Ok(())
    }),
    ("kafka.default-partitions", |config, value| {
        config.kafka_default_partitions = at_least(value, 1)?;
        Ok(())
    }),
    ("kafka.frame-bytes-max", |config, value| {
        config.kafka_frame_bytes_max = at_least(value, 1024)?;
        Ok(())
    }),
    ("kafka.frame-stall-ms", |config, value| {
        config.kafka_frame_stall_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("kafka.idle-timeout-ms", |config, value| {
        config.kafka_idle_timeout_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("kafka.in-flight-bytes-max", |config, value| {
        config.kafka_in_flight_bytes_max = at_least(value, 1 << 20)?;
        Ok(())
    }),
    ("kafka.listen", |config, value| {
        config.kafka_listen = parse(value, "an address like 127.0.0.1:9092")?;
        Ok(())
    }),
    ("kafka.node-id", |config, value| {
        config.kafka_node_id = at_least(value, 0)?;
        Ok(())
    }),
    ("log.producer-expiry-ms", |config, value| {
        config.log_producer_expiry_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("log.retention-interval-ms", |config, value| {
        config.log_retention_interval_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("log.sync-interval-ms", |config, value| {
        config.log_sync_interval_ms = at_least(value, 1)?;
        Ok(())
    }),
    ("visibility.default", |config, value| {
        config.visibility = match value {
            "durable" => Visibility::Durable,
            "appended" => Visibility::Appended,
            _ => return Err(format!("'{value}' is neither durable nor appended")),
        };
        Ok(())
    }),
];

/// The environment variable of a key.
fn variable(key: &str) -> String {
    format!("SLUICE_{}", key.replace(['.', '-'], "_").to_uppercase())
}

fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    let best = known.map(|key| (strsim::damerau_levenshtein(wrong, key), key)).min();
    best.map_or_else(String::new, |(_, key)| format!("; did you mean '{key}'?"))
}

impl Config {
    /// Sets one key.
    ///
    /// # Errors
    /// For an unknown key, naming the nearest, and for a value that is not of its kind.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let Some((_, setter)) = KEYS.iter().find(|(known, _)| *known == key) else {
            let hint = nearest(key, KEYS.iter().map(|(known, _)| *known));
            return Err(ConfigError(format!("unknown config key '{key}'{hint}")));
        };
        setter(self, value).map_err(|why| ConfigError(format!("config key '{key}': {why}")))
    }

    /// Reads a TOML file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or holds a key or value that [`Config::set`] refuses.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError(format!("cannot read config file {}: {error}", path.display())))?;
        self.read_toml(&text).map_err(|error| ConfigError(format!("{}: {error}", path.display())))
    }

    fn read_toml(&mut self, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table = text.parse().map_err(|error| ConfigError(format!("not valid TOML: {error}")))?;
        self.read_table("", &table)
    }

    fn read_table(&mut self, prefix: &str, table: &toml::Table) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                toml::Value::Table(inner) => self.read_table(&key, inner)?,
                toml::Value::String(value) => self.set(&key, value)?,
                toml::Value::Integer(value) => self.set(&key, &value.to_string())?,
                toml::Value::Boolean(value) => self.set(&key, &value.to_string())?,
                _ => return Err(ConfigError(format!("config key '{key}' must be a string, a number or a boolean"))),
            }
        }
        Ok(())
    }

    /// Reads `SLUICE_…` variables.
    ///
    /// # Errors
    /// For a variable that is no key, naming the nearest, and for refused values.
    pub fn read_environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> Result<(), ConfigError> {
        for (name, value) in variables.filter(|(name, _)| name.starts_with("SLUICE_")) {
            // Used by this repository's own scripts, not settings of the server.
            if matches!(name.as_str(), "SLUICE_LAB" | "SLUICE_BIN" | "SLUICE_LOG") || name.starts_with("SLUICE_TEST_") {
                continue;
            }
            let Some((key, _)) = KEYS.iter().find(|(key, _)| variable(key) == name) else {
                let known: Vec<String> = KEYS.iter().map(|(key, _)| variable(key)).collect();
                let hint = nearest(&name, known.iter().map(String::as_str));
                return Err(ConfigError(format!("unknown config variable '{name}'{hint}")));
            };
            self.set(key, &value).map_err(|error| ConfigError(format!("{name}: {error}")))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sections_and_the_environment() {
        let mut config = Config::default();
        config
            .read_toml(
                "[kafka]\nlisten = \"0.0.0.0:1\"\ndefault-partitions = 4\n[durability]\nacks-all = \"page-cache\"",
            )
            .expect("reads");
        assert_eq!(config.kafka_listen.port(), 1);
        assert_eq!((config.kafka_default_partitions, config.acks_all), (4, AcksAll::PageCache));
        let variables = [("SLUICE_KAFKA_NODE_ID".to_owned(), "7".to_owned()), ("PATH".to_owned(), "x".to_owned())];
        config.read_environment(variables.into_iter()).expect("reads");
        assert_eq!(config.kafka_node_id, 7);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = Config::default().read_toml("[kafka]\nlissten = \"x\"").expect_err("refused");
        assert_eq!(error.to_string(), "unknown config key 'kafka.lissten'; did you mean 'kafka.listen'?");
        let variables = [("SLUICE_KAFKA_LISTN".to_owned(), "x".to_owned())];
        let error = Config::default().read_environment(variables.into_iter()).expect_err("refused");
        assert!(error.to_string().contains("SLUICE_KAFKA_LISTEN"));
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        let error = Config::default().set("kafka.listen", "nonsense").expect_err("refused");
        assert_eq!(error.to_string(), "config key 'kafka.listen': 'nonsense' is not an address like 127.0.0.1:9092");
        assert!(Config::default().set("kafka.default-partitions", "0").is_err());
    }

    #[test]
    fn keys_are_in_order_and_their_variables_unique() {
        assert!(KEYS.is_sorted_by_key(|(key, _)| *key));
        let variables: std::collections::HashSet<_> = KEYS.iter().map(|(key, _)| variable(key)).collect();
        assert_eq!(variables.len(), KEYS.len());
    }
}
