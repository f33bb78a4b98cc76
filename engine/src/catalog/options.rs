//! The options of raw tables: one list from which come validation, defaults, what is described to
//! clients, and the settings of the logs.
//!
//! Names, types, defaults and bounds are Kafka 4.4's topic configs. Options whose effect this
//! server does not have are accepted, kept and shown, so that tools which set them work.

use std::collections::BTreeMap;

use crate::config::{AcksAll, LogOptions, TimestampType, Visibility};
use crate::error::{Error, ErrorKind, Result};

/// The type of an option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionType {
    /// `true` or `false`.
    Bool,
    /// 32 bits, within bounds.
    Int(i64, i64),
    /// 64 bits, at least this.
    Long(i64),
    /// A fraction from 0 to 1.
    Ratio,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A comma-separated list of these words; any, when there are none.
    List(&'static [&'static str]),
}

/// One known option.
#[derive(Debug, Clone, Copy)]
pub struct KnownOption {
    /// Its name.
    pub name: &'static str,
    /// Its type and bounds.
    pub kind: OptionType,
    /// Its value where a table sets none.
    pub default: &'static str,
    /// The name of the same setting of a whole Kafka broker, if it has one.
    pub server_name: &'static str,
}

const MAX_INT: i64 = i32::MAX as i64;

const fn known(name: &'static str, kind: OptionType, default: &'static str, server_name: &'static str) -> KnownOption {
    KnownOption { name, kind, default, server_name }
}

use OptionType::{Bool, Int, List, Long, Ratio, Word};

/// Every option of a raw table, by name.
pub const RAW_OPTIONS: &[KnownOption] = &[
    known("cleanup.policy", List(&["compact", "delete"]), "delete", "log.cleanup.policy"),
    known("compression.gzip.level", Int(-1, 9), "-1", "compression.gzip.level"),
    known("compression.lz4.level", Int(1, 17), "9", "compression.lz4.level"),
    known(
        "compression.type",
        Word(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        "producer",
        "compression.type",
    ),
    known("compression.zstd.level", Int(-131_072, 22), "3", "compression.zstd.level"),
    known("delete.retention.ms", Long(0), "86400000", "log.cleaner.delete.retention.ms"),
    known("durability.acks-all", Word(&["fsync", "page-cache"]), "fsync", "durability.acks-all"),
    known("errors.deadletterqueue.group.enable", Bool, "false", ""),
    known("file.delete.delay.ms", Long(0), "60000", "log.segment.delete.delay.ms"),
    known("flush.messages", Long(1), "9223372036854775807", "log.flush.interval.messages"),
    known("flush.ms", Long(0), "9223372036854775807", "log.flush.interval.ms"),
    known("follower.replication.throttled.replicas", List(&[]), "", ""),
    known("index.interval.bytes", Int(0, MAX_INT), "4096", "log.index.interval.bytes"),
    known("leader.replication.throttled.replicas", List(&[]), "", ""),
    known("local.retention.bytes", Long(-2), "-2", "log.local.retention.bytes"),
    known("local.retention.ms", Long(-2), "-2", "log.local.retention.ms"),
    known("max.compaction.lag.ms", Long(1), "9223372036854775807", "log.cleaner.max.compaction.lag.ms"),
    known("max.decompressed.message.bytes", Int(0, MAX_INT), "2147483647", "max.decompressed.message.bytes"),
    known("max.message.bytes", Int(0, MAX_INT), "1048588", "message.max.bytes"),
    known("message.timestamp.after.max.ms", Long(0), "3600000", "log.message.timestamp.after.max.ms"),
    known("message.timestamp.before.max.ms", Long(0), "9223372036854775807", "log.message.timestamp.before.max.ms"),
    known("message.timestamp.type", Word(&["CreateTime", "LogAppendTime"]), "CreateTime", "log.message.timestamp.type"),
    known("min.cleanable.dirty.ratio", Ratio, "0.5", "log.cleaner.min.cleanable.ratio"),
    known("min.compaction.lag.ms", Long(0), "0", "log.cleaner.min.compaction.lag.ms"),
    known("min.insync.replicas", Int(1, MAX_INT), "1", "min.insync.replicas"),
    known("preallocate", Bool, "false", "log.preallocate"),
    known("remote.copy.lag.bytes", Long(-1), "-1", ""),
    known("remote.copy.lag.ms", Long(-1), "-1", ""),
    known("remote.log.copy.disable", Bool, "false", ""),
    known("remote.log.delete.on.disable", Bool, "false", ""),
    known("remote.storage.enable", Bool, "false", ""),
    known("retention.bytes", Long(i64::MIN), "-1", "log.retention.bytes"),
    known("retention.ms", Long(-1), "604800000", "log.retention.ms"),
    known("segment.bytes", Int(1_048_576, MAX_INT), "1073741824", "log.segment.bytes"),
    known("segment.index.bytes", Int(4, MAX_INT), "10485760", "log.index.size.max.bytes"),
    known("segment.jitter.ms", Long(0), "0", "log.roll.jitter.ms"),
    known("segment.ms", Long(1), "604800000", "log.roll.ms"),
    known("unclean.leader.election.enable", Bool, "false", "unclean.leader.election.enable"),
    known("visibility", Word(&["durable", "appended"]), "durable", "visibility.default"),
];

/// The option called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static KnownOption> {
    RAW_OPTIONS.iter().find(|option| option.name == name)
}

fn invalid(option: &KnownOption, value: &str, why: impl std::fmt::Display) -> Error {
    let message = format!("Invalid value {value} for configuration {}: {why}", option.name);
    Error::new(ErrorKind::InvalidArgument, message)
}

fn number(option: &KnownOption, value: &str, kind: &str, min: i64, max: i64) -> Result<()> {
    let parsed: i64 =
        value.trim().parse().map_err(|_| invalid(option, value, format!("Not a number of type {kind}")))?;
    if parsed < min {
        return Err(invalid(option, value, format!("Value must be at least {min}")));
    }
    if parsed > max {
        return Err(invalid(option, value, format!("Value must be no more than {max}")));
    }
    Ok(())
}

/// Checks one option.
///
/// # Errors
/// `InvalidArgument` for an unknown name or a value outside its type or bounds.
pub fn check(name: &str, value: &str) -> Result<()> {
    let Some(option) = find(name) else {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("Unknown topic config name: {name}")));
    };
    match option.kind {
        Bool if matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "false") => Ok(()),
        Bool => Err(invalid(option, value, "Expected value to be either true or false")),
        Int(min, max) => number(option, value, "INT", min, max),
        Long(min) => number(option, value, "LONG", min, i64::MAX),
        Ratio => match value.trim().parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
            Ok(_) => Err(invalid(option, value, "Value must be between 0 and 1")),
            Err(_) => Err(invalid(option, value, "Not a number of type DOUBLE")),
        },
        Word(words) if words.contains(&value) => Ok(()),
        Word(words) => Err(invalid(option, value, format!("String must be one of: {}", words.join(", ")))),
        List([]) => Ok(()),
        List(words) => match value.split(',').map(str::trim).find(|word| !word.is_empty() && !words.contains(word)) {
            None => Ok(()),
            Some(_) => Err(invalid(option, value, format!("String must be one of: {}", words.join(", ")))),
        },
    }
}

/// Checks a whole set of options, each alone and together.
///
/// # Errors
/// `InvalidArgument` that names the option; `Unsupported` for what this server cannot keep.
pub fn check_all(options: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in options {
        check(name, value)?;
    }
    if options.get("remote.storage.enable").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        let message =
            "Tiered Storage functionality is disabled in the server, topic cannot be configured with remote storage";
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(())
}

/// Checks that a log need not be compacted.
///
/// # Errors
/// `Unsupported`.
pub fn check_not_compacted(options: &BTreeMap<String, String>) -> Result<()> {
    if options.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
        let message = "cleanup.policy=compact is not offered by this server; use cleanup.policy=delete";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// The settings of the logs of a table with `options`; `server` holds what tables do not set.
#[must_use]
pub fn log_options(options: &BTreeMap<String, String>, server: &LogOptions) -> LogOptions {
    let text = |name: &str| options.get(name).map(|value| value.trim());
    let long = |name: &str, default: i64| text(name).and_then(|value| value.parse().ok()).unwrap_or(default);
    LogOptions {
        segment_bytes: long("segment.bytes", server.segment_bytes as i64) as u64,
        segment_ms: long("segment.ms", server.segment_ms),
        retention_ms: long("retention.ms", server.retention_ms),
        retention_bytes: long("retention.bytes", server.retention_bytes),
        max_message_bytes: long("max.message.bytes", server.max_message_bytes as i64) as usize,
        timestamp_type: match text("message.timestamp.type") {
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            Some(_) => TimestampType::CreateTime,
            None => server.timestamp_type,
        },
        timestamp_before_max_ms: long("message.timestamp.before.max.ms", server.timestamp_before_max_ms),
        timestamp_after_max_ms: long("message.timestamp.after.max.ms", server.timestamp_after_max_ms),
        codec: match text("compression.type") {
            None | Some("producer") => server.codec,
            Some(name) => {
                sluice_protocol::records::CODEC_NAMES.iter().position(|known| *known == name).map(|n| n as i16)
            }
        },
        visibility: match text("visibility") {
            Some("durable") => Visibility::Durable,
            Some("appended") => Visibility::Appended,
            _ => server.visibility,
        },
        acks_all: match text("durability.acks-all") {
            Some("fsync") => AcksAll::Fsync,
            Some("page-cache") => AcksAll::PageCache,
            _ => server.acks_all,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_the_names_are_in_order() {
        for option in RAW_OPTIONS {
            check(option.name, option.default).expect(option.name);
        }
        assert!(RAW_OPTIONS.is_sorted_by_key(|option| option.name));
    }

    #[test]
    fn defaults_are_those_of_the_log_settings() {
        let stated: BTreeMap<_, _> =
            RAW_OPTIONS.iter().map(|option| (option.name.to_owned(), option.default.to_owned())).collect();
        assert_eq!(log_options(&stated, &LogOptions::default()), LogOptions::default());
        assert_eq!(log_options(&BTreeMap::new(), &LogOptions::default()), LogOptions::default());
    }

    #[test]
    fn names_the_fault() {
        let message = |name: &str, value: &str| check(name, value).expect_err("refused").message;
        assert_eq!(message("foo.bar", "1"), "Unknown topic config name: foo.bar");
        let text = "Invalid value abc for configuration retention.ms: Not a number of type LONG";
        assert_eq!(message("retention.ms", "abc"), text);
        assert!(message("retention.ms", "-2").ends_with("Value must be at least -1"));
        assert!(message("segment.bytes", "100").contains("1048576"));
        assert!(check("cleanup.policy", "bogus").is_err());
        assert!(check("cleanup.policy", "").is_ok());
    }

    #[test]
    fn compaction_is_refused_until_it_works() {
        let compact = BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())]);
        assert_eq!(check_not_compacted(&compact).expect_err("refused").kind, ErrorKind::Unsupported);
    }
}
