//! Records inside a batch: a bounded reader, a builder, and the five codecs.
//!
//! Written by hand because the codec crate's record types lose repeated header keys, drop the last
//! offset delta and allocate from counts on the wire. Nothing here is on the produce or fetch path
//! of a raw topic except [`scan`], which only steps over the bytes.
//!
//! ```text
//! record: length varint | attributes i8 | timestamp delta varlong | offset delta varint
//!         | key length varint (-1 null) key | value length varint (-1 null) value
//!         | header count varint | (key length varint key, value length varint (-1 null) value)*
//! ```

use std::borrow::Cow;
use std::io::Read;

use crate::batch::{BatchHeader, HEADER_LEN, NO_PRODUCER_ID, compute_crc, set_position};
use crate::error::DecodeError;

/// One record, borrowed from its batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// Added to the batch's base offset.
    pub offset_delta: i32,
    /// Added to the batch's base timestamp, in ms.
    pub timestamp_delta: i64,
    /// `None` is null, which is not the same as empty.
    pub key: Option<&'a [u8]>,
    /// `None` is null, which is not the same as empty.
    pub value: Option<&'a [u8]>,
    /// In order, repeats kept (KIP-82).
    pub headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Record<'a> {
    /// A record without headers at delta 0.
    #[must_use]
    pub fn new(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Self {
        Self { key, value, ..Self::default() }
    }
}

/// How many records out of bounds are named: a batch can hold millions, and each costs the answer a text.
pub const OUT_OF_BOUNDS_MAX: usize = 100;

/// What stepping over a batch's records shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Largest record timestamp, in ms.
    pub max_timestamp: i64,
    /// Offset delta of the first record that carries it.
    pub max_timestamp_delta: i32,
    /// The first record whose key is null, if any.
    pub first_null_key: Option<usize>,
    /// The first [`OUT_OF_BOUNDS_MAX`] records whose timestamps lie outside the bounds asked for, and those timestamps.
    pub out_of_bounds: Vec<(usize, i64)>,
}

struct Cursor<'a> {
    rest: &'a [u8],
    index: usize,
}

impl<'a> Cursor<'a> {
    fn fail<T>(&self, reason: &'static str) -> Result<T, DecodeError> {
        Err(DecodeError::InvalidRecord { index: self.index, reason })
    }

    fn varlong(&mut self) -> Result<i64, DecodeError> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i as u32).min(63);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(((value >> 1) as i64) ^ -((value & 1) as i64));
            }
        }
        self.fail("a variable-length number does not end")
    }

    fn varint(&mut self) -> Result<i32, DecodeError> {
        match i32::try_from(self.varlong()?) {
            Ok(value) => Ok(value),
            Err(_) => self.fail("a number is larger than 32 bits"),
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(n) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => self.fail("a length reaches past the end of the record"),
        }
    }

    fn nullable(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match usize::try_from(self.varint()?) {
            Ok(n) => self.take(n).map(Some),
            Err(_) => Ok(None),
        }
    }
}

/// Steps over the records of `payload` (decompressed), calling `each`; checks that there are
/// exactly `count` and that nothing follows them.
fn walk<'a>(
    payload: &'a [u8],
    count: i32,
    headers_wanted: bool,
    mut each: impl FnMut(usize, Record<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut cursor = Cursor { rest: payload, index: 0 };
    for index in 0..usize::try_from(count).unwrap_or(0) {
        cursor.index = index;
        let Ok(length) = usize::try_from(cursor.varint()?) else {
            return cursor.fail("negative record length");
        };
        let body = cursor.take(length)?;
        let mut inner = Cursor { rest: body, index };
        let record = read_record(&mut inner, headers_wanted)?;
        if !inner.rest.is_empty() {
            return inner.fail("the record's length does not match its fields");
        }
        each(index, record)?;
    }
    if cursor.rest.is_empty() { Ok(()) } else { cursor.fail("more bytes than the batch's record count explains") }
}

fn read_record<'a>(cursor: &mut Cursor<'a>, headers_wanted: bool) -> Result<Record<'a>, DecodeError> {
    cursor.take(1)?;
    let timestamp_delta = cursor.varlong()?;
    let offset_delta = cursor.varint()?;
    let key = cursor.nullable()?;
    let value = cursor.nullable()?;
    let header_count = cursor.varint()?;
    if header_count < 0 || header_count as usize > cursor.rest.len() {
        return cursor.fail("the header count is larger than the record");
    }
    let mut headers = Vec::new();
    for _ in 0..header_count {
        let Some(name) = cursor.nullable()? else {
            return cursor.fail("a header key is null");
        };
        let content = cursor.nullable()?;
        if headers_wanted {
            headers.push((name, content));
        }
    }
    Ok(Record { offset_delta, timestamp_delta, key, value, headers })
}

/// Steps over the records of a batch whose payload is decoded; allocates only for what is out of bounds.
///
/// `bounds` are the smallest and largest timestamps allowed; -1 (no timestamp) is always allowed.
///
/// # Errors
/// [`DecodeError::InvalidRecord`] for the first record that is malformed or missing.
pub fn scan(header: &BatchHeader, payload: &[u8], bounds: (i64, i64)) -> Result<Scan, DecodeError> {
    let mut out = Scan { max_timestamp: -1, max_timestamp_delta: 0, first_null_key: None, out_of_bounds: Vec::new() };
    walk(payload, header.record_count, false, |index, record| {
        let timestamp = header.base_timestamp.saturating_add(record.timestamp_delta);
        if timestamp > out.max_timestamp {
            (out.max_timestamp, out.max_timestamp_delta) = (timestamp, index as i32);
        }
        if record.key.is_none() && out.first_null_key.is_none() {
            out.first_null_key = Some(index);
        }
        let outside = (timestamp < bounds.0 || timestamp > bounds.1) && timestamp != -1;
        if outside && out.out_of_bounds.len() < OUT_OF_BOUNDS_MAX {
            out.out_of_bounds.push((index, timestamp));
        }
        Ok(())
    })?;
    Ok(out)
}

/// Decodes every record of a whole batch; its payload may decode to at most `limit` bytes.
///
/// # Errors
/// A [`DecodeError`] for an unknown codec, a payload that does not decode or a malformed record.
pub fn for_each(
    batch: &[u8],
    limit: usize,
    mut each: impl FnMut(&BatchHeader, &Record<'_>),
) -> Result<(), DecodeError> {
    let header = BatchHeader::read(batch).ok_or(DecodeError::Truncated { what: "batch header" })?;
    let raw = batch.get(HEADER_LEN..).unwrap_or_default();
    let payload = decompress(header.codec(), raw, limit)?;
    walk(&payload, header.record_count, true, |_, record| {
        each(&header, &record);
        Ok(())
    })
}

/// The names of the codecs, as in the topic config `compression.type`.
pub const CODEC_NAMES: [&str; 5] = ["uncompressed", "gzip", "snappy", "lz4", "zstd"];

const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
const XERIAL_HEADER_LEN: usize = 16;

/// Decodes a payload of codec number `codec` to at most `limit` bytes.
///
/// # Errors
/// [`DecodeError::UnknownCodec`], [`DecodeError::Decompress`] or [`DecodeError::DecompressedTooLarge`].
pub fn decompress(codec: i16, raw: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
    match codec {
        0 => Ok(Cow::Borrowed(raw)),
        1 => read_capped("gzip", flate2::read::MultiGzDecoder::new(raw), limit),
        2 => unsnap(raw, limit).map(Cow::Owned),
        3 => read_capped("lz4", lz4_flex::frame::FrameDecoder::new(raw), limit),
        4 => match zstd::stream::read::Decoder::new(raw) {
            Ok(reader) => read_capped("zstd", reader, limit),
            Err(error) => Err(DecodeError::Decompress { codec: "zstd", reason: error.to_string() }),
        },
        codec => Err(DecodeError::UnknownCodec { codec }),
    }
}

fn read_capped(codec: &'static str, reader: impl Read, limit: usize) -> Result<Cow<'static, [u8]>, DecodeError> {
    let mut out = Vec::new();
    let outcome = reader.take(limit as u64 + 1).read_to_end(&mut out);
    outcome.map_err(|error| DecodeError::Decompress { codec, reason: error.to_string() })?;
    if out.len() > limit { Err(DecodeError::DecompressedTooLarge { limit }) } else { Ok(Cow::Owned(out)) }
}

/// Snappy comes raw, or in xerial's framing: a 16-byte header, then blocks of i32 length and raw snappy.
fn unsnap(raw: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    if !raw.starts_with(XERIAL_MAGIC) {
        return unsnap_block(raw, limit);
    }
    let mut rest = raw.get(XERIAL_HEADER_LEN..).unwrap_or_default();
    let mut out = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let block = usize::try_from(i32::from_be_bytes(*length)).ok().and_then(|n| tail.split_at_checked(n));
        let Some((block, tail)) = block else {
            return Err(DecodeError::Decompress { codec: "snappy", reason: "a block reaches past the end".into() });
        };
        out.extend_from_slice(&unsnap_block(block, limit - out.len())?);
        rest = tail;
    }
    Ok(out)
}

fn unsnap_block(raw: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let fault = |error: snap::Error| DecodeError::Decompress { codec: "snappy", reason: error.to_string() };
    if snap::raw::decompress_len(raw).map_err(fault)? > limit {
        return Err(DecodeError::DecompressedTooLarge { limit });
    }
    snap::raw::Decoder::new().decompress_vec(raw).map_err(fault)
}

/// Encodes a payload with codec number `codec` at the codec's default level.
///
/// # Errors
/// [`DecodeError::UnknownCodec`], or [`DecodeError::Decompress`] with the codec's own words.
pub fn compress(codec: i16, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
    use std::io::Write;
    let fault =
        |codec: &'static str, error: std::io::Error| DecodeError::Decompress { codec, reason: error.to_string() };
    match codec {
        0 => Ok(payload.to_vec()),
        1 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(payload).and_then(|()| encoder.finish()).map_err(|error| fault("gzip", error))
        }
        2 => snap::raw::Encoder::new()
            .compress_vec(payload)
            .map_err(|error| DecodeError::Decompress { codec: "snappy", reason: error.to_string() }),
        3 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(payload).map_err(|error| fault("lz4", error))?;
            encoder.finish().map_err(|error| DecodeError::Decompress { codec: "lz4", reason: error.to_string() })
        }
        4 => zstd::stream::encode_all(payload, 0).map_err(|error| fault("zstd", error)),
        codec => Err(DecodeError::UnknownCodec { codec }),
    }
}

/// Builds one batch of records; used by tests, tools and converted topics.
#[derive(Debug)]
pub struct BatchBuilder {
    base_timestamp: i64,
    max_timestamp: i64,
    producer: (i64, i16, i32),
    attributes: i16,
    payload: Vec<u8>,
    count: i32,
    /// Offset delta of the next record.
    next_delta: i32,
}

impl BatchBuilder {
    /// An empty batch whose record timestamps count from `base_timestamp` ms.
    #[must_use]
    pub fn new(base_timestamp: i64) -> Self {
        Self {
            base_timestamp,
            max_timestamp: -1,
            producer: (NO_PRODUCER_ID, -1, -1),
            attributes: 0,
            payload: Vec::new(),
            count: 0,
            next_delta: 0,
        }
    }

    /// Marks the batch as an idempotent producer's, its first record at `sequence`.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, sequence: i32) -> Self {
        self.producer = (id, epoch, sequence);
        self
    }

    /// Sets attribute bits beyond the codec.
    #[must_use]
    pub fn attributes(mut self, attributes: i16) -> Self {
        self.attributes = attributes;
        self
    }

    /// Leaves out offsets up to `delta`: the next record's, or the end of the batch.
    #[must_use]
    pub fn skip_to(mut self, delta: i32) -> Self {
        self.next_delta = self.next_delta.max(delta);
        self
    }

    /// Adds a record at the next offset.
    #[must_use]
    pub fn record(mut self, record: &Record<'_>) -> Self {
        let mut body = vec![0];
        put_varlong(&mut body, record.timestamp_delta);
        put_varlong(&mut body, i64::from(self.next_delta));
        put_nullable(&mut body, record.key);
        put_nullable(&mut body, record.value);
        put_varlong(&mut body, record.headers.len() as i64);
        for (key, value) in &record.headers {
            put_nullable(&mut body, Some(key));
            put_nullable(&mut body, *value);
        }
        put_varlong(&mut self.payload, body.len() as i64);
        self.payload.extend_from_slice(&body);
        self.max_timestamp = self.max_timestamp.max(self.base_timestamp + record.timestamp_delta);
        self.count += 1;
        self.next_delta += 1;
        self
    }

    /// The finished, uncompressed batch at base offset 0.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.payload.len());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&((HEADER_LEN - 12 + self.payload.len()) as i32).to_be_bytes());
        out.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0]);
        out.extend_from_slice(&self.attributes.to_be_bytes());
        out.extend_from_slice(&(self.next_delta - 1).to_be_bytes());
        out.extend_from_slice(&self.base_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        out.extend_from_slice(&self.producer.0.to_be_bytes());
        out.extend_from_slice(&self.producer.1.to_be_bytes());
        out.extend_from_slice(&self.producer.2.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&self.payload);
        let crc = compute_crc(&out);
        if let Some(place) = out.get_mut(17..21) {
            place.copy_from_slice(&crc.to_be_bytes());
        }
        set_position(&mut out, 0, -1);
        out
    }
}

fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    out.push(zigzag as u8);
}

fn put_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varlong(out, -1),
        Some(bytes) => {
            put_varlong(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{validate_produced, with_payload};

    #[test]
    fn keeps_repeated_headers_null_and_empty_and_wide_timestamps() {
        let second = Record {
            timestamp_delta: 1_787_086_231_121,
            headers: vec![(b"x-tag", Some(b"a")), (b"x-tag", Some(b"b")), (b"o", None)],
            ..Record::new(Some(b""), None)
        };
        let batch = BatchBuilder::new(0).record(&Record::new(None, Some(b""))).record(&second).build();
        let mut seen = Vec::new();
        for_each(&batch, 1 << 20, |_, record| {
            seen.push((
                record.key.map(<[u8]>::to_vec),
                record.value.map(<[u8]>::to_vec),
                record.timestamp_delta,
                record.headers.iter().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect::<Vec<_>>(),
            ));
        })
        .expect("decodes");
        assert_eq!(seen[0], (None, Some(vec![]), 0, vec![]));
        assert_eq!((&seen[1].0, &seen[1].1, seen[1].2), (&Some(vec![]), &None, 1_787_086_231_121));
        let tags =
            [(b"x-tag".to_vec(), Some(b"a".to_vec())), (b"x-tag".to_vec(), Some(b"b".to_vec())), (b"o".to_vec(), None)];
        assert_eq!(seen[1].3, tags);
        let header = BatchHeader::read(&batch).expect("header");
        assert_eq!(header.max_timestamp, 1_787_086_231_121);
    }

    #[test]
    fn every_codec_round_trips_and_is_capped() {
        let batch = BatchBuilder::new(5).record(&Record::new(Some(b"key"), Some(&[7; 5000]))).build();
        for codec in 0..5 {
            let packed = with_payload(&batch, codec, &compress(codec, &batch[HEADER_LEN..]).expect("compresses"));
            validate_produced(&packed).expect("valid");
            let mut count = 0;
            for_each(&packed, 1 << 20, |_, record| {
                assert_eq!(record.value, Some(&[7u8; 5000][..]));
                count += 1;
            })
            .expect("decodes");
            assert_eq!(count, 1);
            if codec != 0 {
                let capped = decompress(codec, &packed[HEADER_LEN..], 100);
                assert!(matches!(capped, Err(DecodeError::DecompressedTooLarge { limit: 100 })), "codec {codec}");
                assert!(decompress(codec, b"\x01\x02\x03garbage", 1 << 20).is_err());
            }
        }
        assert_eq!(decompress(7, b"", 1), Err(DecodeError::UnknownCodec { codec: 7 }));
    }

    #[test]
    fn scan_refuses_wrong_counts_and_finds_the_first_largest_timestamp() {
        let at = |delta| Record { timestamp_delta: delta, ..Record::new(Some(b"k"), None) };
        let batch = BatchBuilder::new(100).record(&at(5)).record(&at(9)).record(&at(9)).build();
        let mut header = BatchHeader::read(&batch).expect("header");
        let bounds = (i64::MIN, i64::MAX);
        let scanned = scan(&header, &batch[HEADER_LEN..], bounds).expect("scans");
        assert_eq!((scanned.max_timestamp, scanned.max_timestamp_delta), (109, 1));
        assert_eq!(scan(&header, &batch[HEADER_LEN..], (0, 105)).expect("scans").out_of_bounds, [(1, 109), (2, 109)]);
        for count in [2, 4, i32::MAX] {
            header.record_count = count;
            assert!(scan(&header, &batch[HEADER_LEN..], bounds).is_err(), "count {count}");
        }
    }

    #[test]
    fn arbitrary_payloads_never_panic() {
        let mut state = 1u64;
        for round in 0..20_000u32 {
            let mut bytes = vec![0u8; (round % 80) as usize];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 33) as u8;
            }
            let header =
                BatchHeader { record_count: 3, ..BatchHeader::read(&BatchBuilder::new(0).build()).expect("h") };
            let _ = scan(&header, &bytes, (0, 0));
            for codec in 1..5 {
                let _ = decompress(codec, &bytes, 1 << 16);
            }
        }
    }
}
