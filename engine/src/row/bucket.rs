//! Which bucket a row belongs to: by Fluss's hash of the decoded bucket key (table-model §5.1), or by that of
//! Kafka's default partitioner over the key's bytes.
//!
//! Both must agree bit for bit with what clients compute; neither is ever computed from the KV key's bytes.

use std::borrow::Cow;

use super::compacted::write_value;
use super::types::{Datum, Schema};
use crate::error::{Error, ErrorKind, Result};

const FLUSS_SEED: u32 = 42;
const KAFKA_SEED: u32 = 0x9747_b28c;
const KAFKA_FACTOR: u32 = 0x5bd1_e995;

/// The compacted bytes of the values at `columns`, in that order: what Fluss hashes.
///
/// A NaN is first made the quiet one, so that one key has one bucket.
///
/// # Errors
/// `InvalidArgument` that names the column which is NULL, missing or of another type.
pub fn key_bytes(schema: &Schema, columns: &[usize], row: &[Datum]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for at in columns {
        let (Some(column), Some(value)) = (schema.columns.get(*at), row.get(*at)) else {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the row has no column {at}")));
        };
        write_value(column.data_type, &quiet(value), &mut out)
            .map_err(|error| Error::new(error.kind, format!("key column '{}': {}", column.name, error.message)))?;
    }
    Ok(out)
}

/// The value with one NaN for all.
pub(super) fn quiet(value: &Datum) -> Cow<'_, Datum> {
    match value {
        Datum::Float(float) if float.is_nan() => Cow::Owned(Datum::Float(f32::from_bits(0x7fc0_0000))),
        Datum::Double(double) if double.is_nan() => Cow::Owned(Datum::Double(f64::from_bits(0x7ff8_0000_0000_0000))),
        other => Cow::Borrowed(other),
    }
}

/// Fluss's bucket of a key, given its [`key_bytes`].
///
/// # Errors
/// `InvalidArgument` for no bytes, which Fluss refuses too, and for no buckets.
pub fn fluss_bucket(key: &[u8], buckets: u32) -> Result<u32> {
    if key.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, "an empty key has no bucket"));
    }
    modulo(scatter(hash(key)), buckets)
}

/// The bucket that Kafka's default partitioner gives a record with this key (KIP-480 leaves keyed records as they
/// were: murmur2, sign bit cleared, modulo).
///
/// # Errors
/// `InvalidArgument` for no buckets.
pub fn kafka_bucket(key: &[u8], buckets: u32) -> Result<u32> {
    modulo(murmur2(key) & 0x7fff_ffff, buckets)
}

/// The bytes of a key of one column as Kafka's serializers write it: what `kafka` hashing is over.
///
/// # Errors
/// `InvalidArgument` for NULL and for types whose key has no such form.
pub fn plain_key<'a>(schema: &Schema, at: usize, row: &'a [Datum]) -> Result<Cow<'a, [u8]>> {
    Ok(match row.get(at) {
        Some(Datum::String(text)) => Cow::Borrowed(text.as_bytes()),
        Some(Datum::Bytes(bytes)) => Cow::Borrowed(bytes),
        Some(Datum::Int(value)) => Cow::Owned(value.to_be_bytes().to_vec()),
        Some(Datum::BigInt(value)) => Cow::Owned(value.to_be_bytes().to_vec()),
        Some(Datum::Double(value)) => Cow::Owned(value.to_be_bytes().to_vec()),
        _ => {
            let name = schema.columns.get(at).map_or("?", |column| column.name.as_str());
            let what = format!("key column '{name}' has no plain form");
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
    })
}

fn modulo(hash: u32, buckets: u32) -> Result<u32> {
    hash.checked_rem(buckets).ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "a table has at least one bucket"))
}

/// One round of murmur3 (32 bits).
fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// The end of murmur3; `length` as it wraps at 32 bits.
fn finish(hash: u32, length: u32) -> u32 {
    let hash = hash ^ length;
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Table-model's M1: murmur3 but for the tail, where each byte, its sign extended, has a round of its own.
fn hash(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let whole = words.iter().fold(FLUSS_SEED, |hash, word| mix(hash, u32::from_le_bytes(*word)));
    let hash = tail.iter().fold(whole, |hash, byte| mix(hash, i32::from(*byte as i8) as u32));
    finish(hash, bytes.len() as u32)
}

/// Table-model's M2: one more round, then the absolute value (0 where there is none).
fn scatter(hash: u32) -> u32 {
    (finish(mix(0, hash), 4) as i32).checked_abs().map_or(0, i32::cast_unsigned)
}

fn murmur2(bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<4>();
    let start = KAFKA_SEED ^ bytes.len() as u32;
    let mut hash = words.iter().fold(start, |hash, word| {
        let word = u32::from_le_bytes(*word).wrapping_mul(KAFKA_FACTOR);
        hash.wrapping_mul(KAFKA_FACTOR) ^ (word ^ (word >> 24)).wrapping_mul(KAFKA_FACTOR)
    });
    if !tail.is_empty() {
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        hash = (hash ^ rest).wrapping_mul(KAFKA_FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(KAFKA_FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::row::DataType;
    use crate::row::compacted::tests::schema;

    /// What the golden files of Apache Fluss say, cut down.
    const VECTORS: &str = include_str!("testdata/buckets.tsv");

    fn hex(text: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
        (0..text.len()).step_by(2).map(byte).collect()
    }

    fn data_type(text: &str) -> DataType {
        let (name, parameters) = text.trim_end_matches(')').split_once('(').unwrap_or((text, ""));
        let mut numbers = parameters.split(',').filter_map(|number| number.trim().parse::<u8>().ok());
        let mut number = || numbers.next().expect("a parameter");
        match name {
            "BOOLEAN" => DataType::Boolean,
            "TINYINT" => DataType::TinyInt,
            "SMALLINT" => DataType::SmallInt,
            "INT" => DataType::Int,
            "BIGINT" => DataType::BigInt,
            "FLOAT" => DataType::Float,
            "DOUBLE" => DataType::Double,
            "DECIMAL" => DataType::Decimal { precision: number(), scale: number() },
            "CHAR" => DataType::Char { length: number().into() },
            "STRING" => DataType::String,
            "BINARY" => DataType::Binary { length: number().into() },
            "BYTES" => DataType::Bytes,
            "DATE" => DataType::Date,
            "TIME" => DataType::Time { precision: number() },
            "TIMESTAMP" => DataType::Timestamp { precision: number() },
            "TIMESTAMP_LTZ" => DataType::TimestampLtz { precision: number() },
            other => panic!("type {other}"),
        }
    }

    fn datum(data_type: DataType, value: &Value) -> Datum {
        let number = || value.as_i64().expect("a number");
        let text = || value.as_str().expect("a text");
        match data_type {
            DataType::Boolean => Datum::Boolean(value.as_bool().expect("a boolean")),
            DataType::TinyInt => Datum::TinyInt(number() as i8),
            DataType::SmallInt => Datum::SmallInt(number() as i16),
            DataType::Int => Datum::Int(number() as i32),
            DataType::BigInt => Datum::BigInt(number()),
            DataType::Float => Datum::Float(text().parse().expect("a float")),
            DataType::Double => Datum::Double(text().parse().expect("a double")),
            DataType::Decimal { .. } => Datum::Decimal(text().parse().expect("an integer")),
            DataType::Char { .. } | DataType::String => Datum::String(text().to_owned()),
            DataType::Binary { .. } | DataType::Bytes => Datum::Bytes(hex(text())),
            DataType::Date => Datum::Date(number() as i32),
            DataType::Time { .. } => Datum::Time(number() as i32),
            DataType::Timestamp { .. } | DataType::TimestampLtz { .. } => {
                let part = |at: usize| value[at].as_i64().expect("a number");
                Datum::Timestamp { ms: part(0), nanos: part(1) as u32 }
            }
        }
    }

    #[test]
    fn every_key_has_the_bytes_and_the_bucket_of_fluss() {
        let (mut hashed, mut encoded) = (0, 0);
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let [types, values, bytes, bucket]: [&str; 4] =
                line.split('\t').collect::<Vec<_>>().try_into().expect("four fields");
            let bucket: u32 = bucket.parse().expect("a bucket");
            assert_eq!(fluss_bucket(&hex(bytes), 7).expect("a bucket"), bucket, "{line}");
            hashed += 1;
            let types: Vec<DataType> = types.split(';').map(data_type).collect();
            let values: Vec<Value> = serde_json::from_str(values).expect("JSON");
            let row: Vec<Datum> =
                types.iter().zip(&values).map(|(data_type, value)| datum(*data_type, value)).collect();
            let columns: Vec<usize> = (0..row.len()).collect();
            match key_bytes(&schema(&types), &columns, &row) {
                Ok(key) => assert_eq!(key, hex(bytes), "{line}"),
                Err(error) => {
                    // Fluss takes a BINARY that is too long; here its length is a rule.
                    assert!(types == [DataType::Binary { length: 2 }], "{line}: {error}");
                    continue;
                }
            }
            encoded += 1;
        }
        assert_eq!((hashed, encoded), (151, 150));
    }

    #[test]
    fn the_hashes_are_those_of_the_table_model() {
        let vectors: [(&str, i32, u32); 10] = [
            ("00", -783_713_497, 1_599_628_232),
            ("01", -386_724_586, 1_113_307_500),
            ("ac02", -1_097_772_220, 1_475_058_325),
            ("ffffffff0f", 571_599, 1_667_198_730),
            ("ffffffffffffffffff01", -1_529_267_776, 1_621_867_703),
            ("e907", -318_522_136, 828_903_488),
            ("0161", -1_819_928_467, 368_203_003),
            ("057573657231", -319_827_777, 1_562_964_170),
            ("02c3a9", 620_298_039, 2_124_593_798),
            ("070178", -1_621_631_801, 2_135_023_140),
        ];
        for (bytes, first, second) in vectors {
            let found = hash(&hex(bytes));
            assert_eq!((found as i32, scatter(found)), (first, second), "{bytes}");
        }
        let bucket = |key: &[u8], buckets| fluss_bucket(key, buckets).expect("a bucket");
        assert_eq!((bucket(&[0, 0x0a], 7), bucket(&[0, 0x0a, 0x0a, 0x0a], 12)), (1, 0));
        assert_eq!(bucket(b"2bb87d68-baf9-4e64-90f9-f80910419fa6", 16), 6);
        assert_eq!(bucket(b"The quick brown fox jumps over the lazy dog", 8), 6);
    }

    #[test]
    fn keys_are_spread_as_kafka_spreads_them() {
        let vectors: [(&[u8], i32); 6] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ];
        for (key, hash) in vectors {
            assert_eq!(murmur2(key) as i32, hash, "{key:?}");
        }
        // -973,932,308 without its sign bit is 1,173,551,340.
        assert_eq!(kafka_bucket(b"21", 7).expect("a bucket"), 1_173_551_340 % 7);
    }

    #[test]
    fn what_has_no_bucket_is_refused() {
        let schema = schema(&[DataType::Int]);
        let error = key_bytes(&schema, &[0], &[Datum::Null]).expect_err("refused");
        assert!(error.message.starts_with("key column 'c0': "), "{error}");
        assert!(key_bytes(&schema, &[1], &[Datum::Int(1)]).is_err());
        assert!(fluss_bucket(&[], 3).is_err() && fluss_bucket(&[1], 0).is_err() && kafka_bucket(&[], 0).is_err());
        assert_eq!(kafka_bucket(&[], 1).expect("Kafka hashes an empty key"), 0);
    }

    #[test]
    fn every_nan_has_the_same_bucket() {
        let key = |bits| key_bytes(&schema(&[DataType::Float]), &[0], &[Datum::Float(f32::from_bits(bits))]);
        assert_eq!(key(0xffc0_0001).expect("a key"), [0, 0, 0xc0, 0x7f]);
        assert_eq!(key(0x7f80_0001).expect("a key"), [0, 0, 0xc0, 0x7f]);
    }
}
