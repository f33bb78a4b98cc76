//! The options of typed tables: names, types, defaults, which ALTER takes, and which features this
//! server lacks (table-model §4, design §4).

use std::collections::BTreeMap;

use super::options;
use crate::error::{Error, ErrorKind, Result};

/// The type of a table option's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// `true` or `false`, in any case.
    Bool,
    /// Whole, within bounds.
    Int(i64, i64),
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    /// A time such as `7 d`; see [`parse_duration_ms`].
    Duration,
    /// Text, such as a column's name; not empty.
    Text,
}

/// Whether this server has what an option asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It has.
    Full,
    /// It lacks the feature; only `false` is taken.
    OnlyFalse,
    /// It lacks the feature whatever the value.
    Nothing,
    /// It takes only these values, of those that the format knows.
    Only(&'static [&'static str]),
}

/// One known option of typed tables.
#[derive(Debug, Clone, Copy)]
pub struct TableOption {
    /// Its name.
    pub name: &'static str,
    /// Its type and bounds.
    pub kind: OptionKind,
    /// Its value where a table sets none; empty where it then has none.
    pub default: &'static str,
    /// Whether ALTER TABLE may change it.
    pub alterable: bool,
    /// Whether this server has it.
    pub offer: Offer,
}

use Offer::{Full, Nothing, Only, OnlyFalse};
use OptionKind::{Bool, Duration, Int, Text, Word};

const fn fixed(name: &'static str, kind: OptionKind, default: &'static str, offer: Offer) -> TableOption {
    TableOption { name, kind, default, alterable: false, offer }
}

const fn alterable(name: &'static str, kind: OptionKind, default: &'static str, offer: Offer) -> TableOption {
    TableOption { name, kind, default, alterable: true, offer }
}

const MAX_INT: i64 = i32::MAX as i64;
const FORMATS: &[&str] = &[
    "raw",
    "string",
    "int",
    "long",
    "double",
    "json",
    "avro",
    "protobuf",
    "json-schema",
    "debezium-json",
    "debezium-avro",
];
const KEY_FORMATS: &[&str] = &["raw", "string", "int", "long", "double", "json"];
const LAKES: &[&str] = &["paimon", "iceberg", "lance", "hudi"];
const TIME_UNITS: &[&str] = &["hour", "day", "month", "quarter", "year"];

/// Every option of a typed table by name, but for the topic-level Kafka configs of [`options`].
pub const TABLE_OPTIONS: &[TableOption] = &[
    fixed("auto-increment.fields", Text, "", Nothing),
    fixed("kafka.headers.column", Text, "", Nothing),
    alterable("kafka.json.timestamp-format", Word(&["sql", "iso-8601"]), "sql", Full),
    fixed("kafka.key.format", Word(FORMATS), "", Only(KEY_FORMATS)),
    alterable("kafka.partial-update", Bool, "false", Full),
    fixed("kafka.timestamp.column", Text, "", Nothing),
    fixed("kafka.value.format", Word(FORMATS), "json", Only(&["json"])),
    fixed("table.auto-increment.cache-size", Int(1, i64::MAX), "100000", Nothing),
    alterable("table.auto-partition.enabled", Bool, "false", OnlyFalse),
    fixed("table.auto-partition.key", Text, "", Nothing),
    alterable("table.auto-partition.num-precreate", Int(0, MAX_INT), "2", Nothing),
    alterable("table.auto-partition.num-retention", Int(-MAX_INT, MAX_INT), "7", Nothing),
    fixed("table.auto-partition.time-format", Text, "", Nothing),
    fixed("table.auto-partition.time-unit", Word(TIME_UNITS), "day", Nothing),
    fixed("table.auto-partition.time-zone", Text, "", Nothing),
    fixed("table.bucket.function", Word(&["fluss", "kafka"]), "fluss", Full),
    fixed("table.changelog.image", Word(&["full", "wal"]), "full", Full),
    alterable("table.datalake.auto-compaction", Bool, "false", OnlyFalse),
    fixed("table.datalake.auto-expire-snapshot", Bool, "false", OnlyFalse),
    alterable("table.datalake.enabled", Bool, "false", OnlyFalse),
    fixed("table.datalake.format", Word(LAKES), "", Nothing),
    alterable("table.datalake.freshness", Duration, "3 min", Nothing),
    alterable("table.datalake.historical-partition.enabled", Bool, "false", OnlyFalse),
    fixed("table.delete.behavior", Word(&["allow", "ignore", "disable"]), "allow", Full),
    fixed("table.kv.format", Word(&["compacted", "indexed"]), "compacted", Full),
    fixed("table.kv.format-version", Int(0, 2), "2", Full),
    alterable("table.kv.standby-replica.enabled", Bool, "true", Full),
    fixed("table.kv.ttl", Duration, "", Nothing),
    fixed("table.kv.ttl.time-column", Text, "", Nothing),
    fixed("table.log.arrow.compression.type", Word(&["none", "lz4_frame", "zstd"]), "zstd", Full),
    fixed("table.log.arrow.compression.zstd.level", Int(1, 22), "3", Full),
    fixed("table.log.format", Word(&["arrow", "indexed", "compacted"]), "arrow", Full),
    alterable("table.log.local-ttl", Duration, "", Nothing),
    alterable("table.log.tiered.local-segments", Int(1, MAX_INT), "2", Nothing),
    alterable("table.log.ttl", Duration, "7 d", Full),
    fixed("table.merge-engine", Word(&["first_row", "versioned", "aggregation"]), "", Nothing),
    fixed("table.merge-engine.versioned.ver-column", Text, "", Nothing),
    fixed("table.replication.factor", Int(1, i16::MAX as i64), "1", Full),
    alterable("table.statistics.columns", Text, "", Nothing),
];

/// Keys that begin so are options, never custom attributes (table-model §21, design §4).
const PREFIXES: &[&str] = &["table.", "bucket.", "fields.", "auto-increment.", "kafka."];
/// A key without such a prefix that is this close to an option's name is taken for a misspelling.
const MISSPELT: usize = 2;

/// The option called `name`; topic-level Kafka configs are not among them.
#[must_use]
pub fn find(name: &str) -> Option<&'static TableOption> {
    TABLE_OPTIONS.iter().find(|option| option.name == name)
}

/// An option of typed tables as `set` has it, else its default, else `None`. Words are given as
/// [`TABLE_OPTIONS`] spells them.
#[must_use]
pub fn value<'a>(set: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let known = find(name)?;
    let value = set.get(name).map_or(known.default, |value| value.trim());
    match known.kind {
        Word(words) => words.iter().copied().find(|word| word.eq_ignore_ascii_case(value)),
        _ => Some(value).filter(|value| !value.is_empty()),
    }
}

/// The known name nearest to `name` and how many edits away it is.
fn nearest(name: &str) -> Option<(&'static str, usize)> {
    let own = TABLE_OPTIONS.iter().map(|option| option.name).chain(["bucket.num", "bucket.key"]);
    let known = own.chain(options::RAW_OPTIONS.iter().map(|option| option.name));
    let lower = name.to_ascii_lowercase();
    known.map(|known| (known, strsim::osa_distance(known, &lower))).min_by_key(|(_, distance)| *distance)
}

/// Whether a key is meant as an option: known, of our prefixes, or a known name misspelt. All others
/// are custom attributes.
#[must_use]
pub fn is_option(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || options::find(name).is_some()
        || nearest(name).is_some_and(|(_, distance)| distance <= MISSPELT)
}

fn unknown(name: &str) -> Error {
    let hint = nearest(name).map(|(known, _)| format!("; did you mean '{known}'?")).unwrap_or_default();
    Error::new(ErrorKind::InvalidArgument, format!("'{name}' is not an option of tables{hint}"))
}

fn invalid(name: &str, value: &str, expected: impl std::fmt::Display) -> Error {
    let message = format!("invalid value '{value}' for option '{name}': expected {expected}");
    Error::new(ErrorKind::InvalidArgument, message)
}

fn unsupported(name: &str, value: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("option '{name}' = '{value}' is not offered by this server"))
}

fn check_value(option: &TableOption, value: &str) -> Result<()> {
    let word = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(value.trim()));
    let name = option.name;
    match option.kind {
        Bool if word(&["true", "false"]) => Ok(()),
        Bool => Err(invalid(name, value, "true or false")),
        Int(min, max) => match value.trim().parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(()),
            _ => Err(invalid(name, value, format_args!("a whole number from {min} to {max}"))),
        },
        Word(words) if word(words) => Ok(()),
        Word(words) => Err(invalid(name, value, format_args!("one of {}", words.join(", ")))),
        Duration if parse_duration_ms(value).is_some() => Ok(()),
        Duration => Err(invalid(name, value, "a time such as '7 d', '12 h', '30 min' or '500 ms'")),
        Text if value.trim().is_empty() => Err(invalid(name, value, "some text")),
        Text => Ok(()),
    }
}

/// Checks one option alone: its name, its value, and whether this server has it.
///
/// # Errors
/// `InvalidArgument` for an unknown name, with the nearest one, or a value outside its type or
/// bounds; `Unsupported` for a feature that this server lacks.
pub fn check(name: &str, value: &str) -> Result<()> {
    if name.starts_with("fields.") {
        return Err(unsupported(name, value));
    }
    let Some(option) = find(name) else {
        return if options::find(name).is_some() { options::check(name, value) } else { Err(unknown(name)) };
    };
    check_value(option, value)?;
    let among = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(value.trim()));
    match option.offer {
        Full => Ok(()),
        OnlyFalse if among(&["false"]) => Ok(()),
        Only(words) if among(words) => Ok(()),
        OnlyFalse | Only(_) | Nothing => Err(unsupported(name, value)),
    }
}

/// Checks each option of a set, then the topic-level ones together.
///
/// # Errors
/// As [`check`] and [`options::check_all`].
pub fn check_all(set: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in set {
        check(name, value)?;
    }
    let topic = set.iter().filter(|(name, _)| options::find(name).is_some());
    options::check_all(&topic.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Whether ALTER TABLE … SET and RESET may name `name` (table-model §§4.1, 4.2).
///
/// # Errors
/// `InvalidArgument` for an option that is fixed at creation or not known.
pub fn check_alter(name: &str) -> Result<()> {
    let fixed_option = match find(name) {
        Some(option) => !option.alterable,
        None if name == "bucket.key" || name.starts_with("fields.") => true,
        None if !is_option(name) || options::find(name).is_some() || name == "bucket.num" => false,
        None => return Err(unknown(name)),
    };
    if fixed_option {
        let message = format!("the option '{name}' is fixed when the table is created");
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    Ok(())
}

/// Labels of time units and their length in nanoseconds (Flink's `TimeUtils`).
const UNITS: &[(&[&str], i128)] = &[
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["h", "hour", "hours"], 3_600_000_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["", "ms", "milli", "millis", "millisecond", "milliseconds"], 1_000_000),
    (&["µs", "micro", "micros", "microsecond", "microseconds"], 1_000),
    (&["ns", "nano", "nanos", "nanosecond", "nanoseconds"], 1),
];

/// A time as options spell it, in whole milliseconds: a number, then a unit (`7 d`, `1h`, `0ms`);
/// without a unit, milliseconds. `None` for anything else, negative numbers and overflow included.
#[must_use]
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, label) = text.split_at_checked(end)?;
    let label = label.trim().to_lowercase();
    let (_, nanos) = UNITS.iter().find(|(labels, _)| labels.contains(&label.as_str()))?;
    let total = i128::from(number.parse::<i64>().ok()?).checked_mul(*nanos)?;
    i64::try_from(total / 1_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_the_names_are_in_order() {
        for option in TABLE_OPTIONS.iter().filter(|option| !option.default.is_empty()) {
            check_value(option, option.default).expect(option.name);
        }
        assert!(TABLE_OPTIONS.is_sorted_by_key(|option| option.name));
    }

    #[test]
    fn durations_are_read_as_flink_does() {
        let cases = [("7 d", 604_800_000), ("1h", 3_600_000), ("0ms", 0), (" 5 MIN ", 300_000), ("42", 42)];
        for (text, ms) in cases {
            assert_eq!(parse_duration_ms(text), Some(ms), "{text}");
        }
        assert_eq!(parse_duration_ms("1500 µs"), Some(1));
        for text in ["", "d", "-1", "-1 d", "1.5 h", "7 weeks", "9223372036854775807 d", "1 d 2 h"] {
            assert_eq!(parse_duration_ms(text), None, "{text}");
        }
    }

    #[test]
    fn a_misspelt_option_names_the_nearest() {
        let message = |name: &str| check(name, "1").expect_err("refused").message;
        assert!(message("table.log.tll").ends_with("did you mean 'table.log.ttl'?"));
        assert!(message("kafka.key.fromat").ends_with("did you mean 'kafka.key.format'?"));
        assert!(message("retention.sm").ends_with("did you mean 'retention.ms'?"));
        assert!(message("bucket.nun").ends_with("did you mean 'bucket.num'?"));
        assert!(is_option("retention.sm") && is_option("visibilty") && is_option("table.nope"));
        assert!(!is_option("my.prop") && !is_option("connector") && !is_option("owner"));
    }

    #[test]
    fn features_that_are_not_there_are_refused_by_name() {
        let refused = [
            ("table.merge-engine", "first_row"),
            ("table.kv.ttl", "1h"),
            ("table.auto-partition.enabled", "true"),
            ("table.datalake.enabled", "true"),
            ("table.datalake.format", "paimon"),
            ("auto-increment.fields", "v"),
            ("fields.v.agg", "sum"),
            ("kafka.value.format", "avro"),
            ("kafka.timestamp.column", "v"),
            ("table.statistics.columns", "*"),
            ("table.log.local-ttl", "1 d"),
        ];
        for (name, value) in refused {
            let error = check(name, value).expect_err(name);
            assert_eq!(error.kind, ErrorKind::Unsupported, "{name}");
            assert!(error.message.contains(name), "{}", error.message);
        }
        check("table.auto-partition.enabled", "FALSE").expect("off is what it is");
        assert_eq!(check("table.merge-engine", "nope").expect_err("bad").kind, ErrorKind::InvalidArgument);
    }

    #[test]
    fn alter_takes_what_the_table_model_lists() {
        for name in ["table.log.ttl", "my.prop", "retention.ms", "kafka.partial-update", "bucket.num"] {
            check_alter(name).expect(name);
        }
        for name in ["table.log.format", "bucket.key", "table.kv.ttl", "table.nope", "kafka.key.format"] {
            check_alter(name).expect_err(name);
        }
    }
}
