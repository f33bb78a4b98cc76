//! Partitions of a table: their values and names (table-model §6.1), and the slots of their buckets, which are the
//! table's topic partitions (design §3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::names::{check_partition_value, refuse};
use crate::error::{Error, ErrorKind, Result};
use crate::row::key::Place;
use crate::row::{Column, DataType, Datum};

/// Most topic partitions of a table.
const SLOTS_MAX: usize = 10_000;
/// Values that would make a partition's name that of a view.
const VIEWS: [&str; 3] = ["changelog", "binlog", "debezium"];

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its id within the table, never reused.
    pub id: i64,
    /// Its values, in partition-key order.
    pub values: Vec<String>,
    /// Its buckets.
    pub buckets: u32,
    /// When it was created, ms.
    pub created_ms: i64,
}

/// A topic partition of a partitioned table: the place of one bucket at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Partition id and bucket that have it; `None` while it is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<(i64, u32)>,
    /// Where the log of the last tenant ended: a free slot's only offset, and where the next tenant's log begins.
    pub base: i64,
    /// How many tenants it had before the present or the next one: each has a leader epoch of its own.
    pub generation: u32,
    /// The leader epochs of its tenants up to `base`: epoch, first offset.
    pub epochs: Vec<(i32, i64)>,
}

/// The partitions of a table and its slots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitions {
    /// By name.
    list: BTreeMap<String, Partition>,
    slots: Vec<Slot>,
    next_id: i64,
}

impl Partitions {
    /// None; as many free slots as a partition has buckets, so that there is a topic partition from the start.
    #[must_use]
    pub fn none(buckets: u32) -> Self {
        Self { list: BTreeMap::new(), slots: (0..buckets).map(|_| Slot::default()).collect(), next_id: 0 }
    }

    /// All slots: the topic partitions, by their numbers.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// All partitions by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Partition)> {
        self.list.iter().map(|(name, partition)| (name.as_str(), partition))
    }

    /// A partition by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Partition> {
        self.list.get(name)
    }

    /// The slot that a bucket has.
    #[must_use]
    pub fn slot_of(&self, place: Place) -> Option<u32> {
        let tenant = (place.partition?, place.bucket);
        self.slots.iter().position(|slot| slot.tenant == Some(tenant)).map(|at| at as u32)
    }

    /// Adds a partition; its buckets take the lowest free slots, then new ones.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidArgument` for more slots than a topic may have.
    pub fn add(&mut self, values: Vec<String>, buckets: u32, now_ms: i64) -> Result<&Partition> {
        let name = name_of(&values);
        if self.list.contains_key(&name) {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("partition '{name}' already exists")));
        }
        let free = self.slots.iter().filter(|slot| slot.tenant.is_none()).count();
        if self.slots.len() + (buckets as usize).saturating_sub(free) > SLOTS_MAX {
            return refuse(format!("a table has {SLOTS_MAX} buckets at once at most"));
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut bucket = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.tenant.is_none()) {
            if bucket < buckets {
                slot.tenant = Some((id, bucket));
                bucket += 1;
            }
        }
        self.slots.extend((bucket..buckets).map(|bucket| Slot { tenant: Some((id, bucket)), ..Slot::default() }));
        Ok(self.list.entry(name).or_insert(Partition { id, values, buckets, created_ms: now_ms }))
    }

    /// Removes a partition and frees its slots; `end` tells where the log of a bucket ended, and its epochs.
    ///
    /// # Errors
    /// `PartitionNotFound`; what `end` returns.
    pub fn remove(&mut self, name: &str, end: impl Fn(Place) -> Result<(i64, Vec<(i32, i64)>)>) -> Result<Partition> {
        let missing = || Error::new(ErrorKind::PartitionNotFound, format!("no partition is called '{name}'"));
        let partition = self.list.get(name).cloned().ok_or_else(missing)?;
        for slot in &mut self.slots {
            if let Some((id, bucket)) = slot.tenant.filter(|(id, _)| *id == partition.id) {
                (slot.base, slot.epochs) = end(Place { partition: Some(id), bucket })?;
                slot.tenant = None;
                slot.generation += 1;
            }
        }
        self.list.remove(name);
        Ok(partition)
    }
}

/// A partition's name.
#[must_use]
pub fn name_of(values: &[String]) -> String {
    values.join("$")
}

fn date(days: i32) -> (i64, i64, i64) {
    // Days to civil date, by eras of 400 years that begin in March (public algorithm by H. Hinnant).
    let shifted = i64::from(days) + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn date_text(days: i32) -> String {
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn days_of(text: &str) -> Option<i32> {
    let parts: Vec<i64> = text.splitn(3, '-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day] = parts.as_slice() else { return None };
    // The inverse by search: a date is within 3 days of this estimate.
    let estimate = (year - 1970) * 365 + (year - 1969).div_euclid(4) - (year - 1901).div_euclid(100)
        + (year - 1601).div_euclid(400)
        + (month - 1) * 30
        + day;
    let near = i32::try_from(estimate).ok()?;
    (near.saturating_sub(8)..=near.saturating_add(8)).find(|days| date(*days) == (*year, *month, *day))
}

fn clock_text(ms_of_day: i64, separator: char, nanos: u32) -> String {
    let (hours, minutes, seconds) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60, ms_of_day / 1_000 % 60);
    let digits = format!("{:03}{nanos:06}", ms_of_day % 1_000);
    let digits = digits.trim_end_matches('0');
    format!("{hours:02}-{minutes:02}-{seconds:02}{separator}{digits}")
}

fn float_text(value: f64, shortest: String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    shortest.replace('.', "_")
}

/// A value of a partition column as names have it (table-model §6.1).
///
/// # Errors
/// `InvalidArgument` that names the column: NULL, a type that no partition column has, or text that no name may have.
pub fn value_text(column: &Column, value: &Datum) -> Result<String> {
    let text = match value {
        Datum::Null => return refuse(format!("partition column '{}' is NULL", column.name)),
        Datum::String(text) => text.clone(),
        Datum::Boolean(value) => value.to_string(),
        Datum::TinyInt(value) => value.to_string(),
        Datum::SmallInt(value) => value.to_string(),
        Datum::Int(value) => value.to_string(),
        Datum::BigInt(value) => value.to_string(),
        Datum::Float(value) => float_text(f64::from(*value), format!("{value:?}")),
        Datum::Double(value) => float_text(*value, format!("{value:?}")),
        Datum::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Datum::Date(days) => date_text(*days),
        Datum::Time(ms) => {
            let ms = i64::from(*ms);
            let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
            format!("{hours:02}-{minutes:02}-{seconds:02}_{:03}", ms % 1_000)
        }
        Datum::Timestamp { ms, nanos } => {
            let days = i32::try_from(ms.div_euclid(86_400_000)).unwrap_or(i32::MAX);
            format!("{}-{}", date_text(days), clock_text(ms.rem_euclid(86_400_000), '_', *nanos))
        }
        Datum::Decimal(_) => return refuse(format!("partition column '{}' is a DECIMAL", column.name)),
    };
    check(column, text)
}

fn check(column: &Column, text: String) -> Result<String> {
    check_partition_value(&text, true)
        .map_err(|error| Error::new(error.kind, format!("partition column '{}': {}", column.name, error.message)))?;
    if VIEWS.contains(&text.as_str()) {
        return refuse(format!("partition column '{}': '{text}' is the name of a view", column.name));
    }
    Ok(text)
}

/// A value of a partition column out of a name.
///
/// # Errors
/// `InvalidArgument` that names the column where the text is none of its type's.
pub fn value_of(column: &Column, text: &str) -> Result<Datum> {
    let wrong = || {
        let what = format!("partition column '{}': '{text}' is no {}", column.name, column.data_type);
        Error::new(ErrorKind::InvalidArgument, what)
    };
    let float = |text: &str| -> Option<f64> {
        match text {
            "NaN" => Some(f64::NAN),
            "Inf" => Some(f64::INFINITY),
            "-Inf" => Some(f64::NEG_INFINITY),
            other => other.replace('_', ".").parse().ok(),
        }
    };
    let value = match column.data_type {
        DataType::Char { .. } | DataType::String => Some(Datum::String(text.to_owned())),
        DataType::Boolean => text.to_ascii_lowercase().parse().ok().map(Datum::Boolean),
        DataType::TinyInt => text.parse().ok().map(Datum::TinyInt),
        DataType::SmallInt => text.parse().ok().map(Datum::SmallInt),
        DataType::Int => text.parse().ok().map(Datum::Int),
        DataType::BigInt => text.parse().ok().map(Datum::BigInt),
        DataType::Float => float(text).map(|value| Datum::Float(value as f32)),
        DataType::Double => float(text).map(Datum::Double),
        DataType::Binary { .. } | DataType::Bytes => bytes_of(text).map(Datum::Bytes),
        DataType::Date => days_of(text).map(Datum::Date),
        DataType::Time { .. } => time_of(text),
        DataType::Timestamp { .. } | DataType::TimestampLtz { .. } => moment_of(text),
        DataType::Decimal { .. } => None,
    };
    value.ok_or_else(wrong)
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// `HH-mm-ss_fraction`: milliseconds of the day, and nanoseconds of the millisecond.
fn clock_of(text: &str) -> Option<(i64, u32)> {
    let (clock, fraction) = text.split_once('_')?;
    let parts: Vec<i64> = clock.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts.as_slice() else { return None };
    let known = (0..24).contains(hours) && (0..60).contains(minutes) && (0..60).contains(seconds);
    if !known || fraction.len() > 9 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let ms = ((hours * 60 + minutes) * 60 + seconds) * 1_000 + nanos / 1_000_000;
    Some((ms, (nanos % 1_000_000) as u32))
}

fn time_of(text: &str) -> Option<Datum> {
    let (ms, nanos) = clock_of(text)?;
    (nanos == 0).then_some(Datum::Time(ms as i32))
}

fn moment_of(text: &str) -> Option<Datum> {
    // The clock has two dashes, and a date may begin with one.
    let at = text.rmatch_indices('-').nth(2)?.0;
    let (date, clock) = (text.get(..at)?, text.get(at + 1..)?);
    let (ms, nanos) = clock_of(clock)?;
    Some(Datum::Timestamp { ms: i64::from(days_of(date)?) * 86_400_000 + ms, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(data_type: DataType) -> Column {
        Column { id: 0, name: "p".to_owned(), data_type, nullable: true, comment: None }
    }

    #[test]
    fn values_have_the_names_of_fluss_and_come_back() {
        let cases = [
            (DataType::String, Datum::String("US".into()), "US"),
            (DataType::Boolean, Datum::Boolean(true), "true"),
            (DataType::TinyInt, Datum::TinyInt(-5), "-5"),
            (DataType::BigInt, Datum::BigInt(i64::MIN), "-9223372036854775808"),
            (DataType::Float, Datum::Float(1.5), "1_5"),
            (DataType::Double, Datum::Double(-0.25), "-0_25"),
            (DataType::Double, Datum::Double(f64::NEG_INFINITY), "-Inf"),
            (DataType::Bytes, Datum::Bytes(vec![0, 255]), "00ff"),
            (DataType::Date, Datum::Date(20_366), "2025-10-05"),
            (DataType::Date, Datum::Date(-1), "1969-12-31"),
            (DataType::Time { precision: 3 }, Datum::Time(3_723_004), "01-02-03_004"),
            (DataType::Timestamp { precision: 0 }, Datum::Timestamp { ms: 0, nanos: 0 }, "1970-01-01-00-00-00_"),
            (
                DataType::Timestamp { precision: 9 },
                Datum::Timestamp { ms: -1, nanos: 1 },
                "1969-12-31-23-59-59_999000001",
            ),
            (
                DataType::TimestampLtz { precision: 3 },
                Datum::Timestamp { ms: 951_868_799_120, nanos: 0 },
                "2000-02-29-23-59-59_12",
            ),
        ];
        for (data_type, value, text) in cases {
            let column = column(data_type);
            assert_eq!(value_text(&column, &value).expect(text), text);
            assert_eq!(value_of(&column, text).expect(text), value, "{text}");
        }
        for days in (-719_528..800_000).step_by(97) {
            assert_eq!(days_of(&date_text(days)), Some(days));
        }
    }

    #[test]
    fn what_is_no_value_is_refused_by_the_columns_name() {
        let text = |data_type, value: Datum| value_text(&column(data_type), &value).expect_err("refused").message;
        assert!(text(DataType::String, Datum::Null).contains("'p' is NULL"));
        for bad in ["", "a b", "a$b", "__x", "changelog"] {
            assert!(text(DataType::String, Datum::String(bad.into())).contains("'p'"), "{bad}");
        }
        for (data_type, bad) in [
            (DataType::Int, "x"),
            (DataType::Int, "99999999999"),
            (DataType::Boolean, "yes"),
            (DataType::Date, "2026-02-30"),
            (DataType::Date, "20260101"),
            (DataType::Bytes, "abc"),
            (DataType::Time { precision: 0 }, "25-00-00_"),
            (DataType::Timestamp { precision: 0 }, "2026-01-01"),
        ] {
            assert!(value_of(&column(data_type), bad).expect_err(bad).message.contains("'p'"));
        }
    }

    #[test]
    fn slots_are_taken_again_lowest_first_with_base_and_generation() {
        let mut partitions = Partitions::none(2);
        assert_eq!(partitions.slots().len(), 2, "there are topic partitions before there is a partition");
        let value = |text: &str| vec![text.to_owned()];
        partitions.add(value("a"), 2, 1).expect("adds");
        partitions.add(value("b"), 2, 2).expect("adds");
        assert_eq!(partitions.add(value("a"), 2, 3).expect_err("there").kind, ErrorKind::AlreadyExists);
        let place = |id, bucket| Place { partition: Some(id), bucket };
        assert_eq!(partitions.slot_of(place(1, 1)), Some(3));
        let gone = partitions.remove("a", |place| Ok((10 + i64::from(place.bucket), vec![(0, 0)])));
        assert_eq!(gone.expect("removes").id, 0);
        partitions.add(value("c"), 3, 4).expect("adds");
        let places: Vec<_> = (0..3).map(|bucket| partitions.slot_of(place(2, bucket))).collect();
        assert_eq!(places, [Some(0), Some(1), Some(4)]);
        let slot = &partitions.slots()[1];
        assert_eq!((slot.base, slot.generation, slot.epochs.as_slice()), (11, 1, [(0, 0)].as_slice()));
        assert_eq!(partitions.slots()[4].generation, 0);
        assert_eq!(
            partitions.remove("a", |_| Ok((0, Vec::new()))).expect_err("gone").kind,
            ErrorKind::PartitionNotFound
        );
    }
}
