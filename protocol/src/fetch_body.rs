//! A Fetch response as a list of pieces: envelope bytes and untouched record batches.
//!
//! The codec crate copies record bytes into its buffer; here they stay what they are (slices, or
//! ranges of a file), so a fetch costs no copy in user space. Layout after FetchResponse.json,
//! versions 4 to 18.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use crate::frame;

/// A piece of a response frame.
#[derive(Debug, Clone)]
pub enum Piece<R> {
    /// Encoded here.
    Envelope(Bytes),
    /// Record batches as they were handed in.
    Records(R),
}

/// One topic partition's part of the response.
#[derive(Debug, Clone)]
pub struct FetchPartition<R> {
    /// Topic partition number.
    pub index: i32,
    /// Kafka error code.
    pub error_code: i16,
    /// -1 on errors.
    pub high_watermark: i64,
    /// -1 on errors.
    pub last_stable_offset: i64,
    /// -1 on errors.
    pub log_start_offset: i64,
    /// (producer id, first offset); `None` for read_uncommitted.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// Where the log of the asked epoch ends, when it diverges (KIP-595): (epoch, end offset).
    pub diverging: Option<(i32, i64)>,
    /// Whole batches and their length in bytes.
    pub records: Option<(R, usize)>,
}

impl<R> Default for FetchPartition<R> {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: 0,
            high_watermark: 0,
            last_stable_offset: 0,
            log_start_offset: 0,
            aborted: None,
            diverging: None,
            records: None,
        }
    }
}

/// One topic's part of the response.
#[derive(Debug, Clone)]
pub struct FetchTopic<R> {
    /// Used below version 13.
    pub name: String,
    /// Used from version 13 on.
    pub id: [u8; 16],
    /// Partitions in request order.
    pub partitions: Vec<FetchPartition<R>>,
}

struct Writer<R> {
    version: i16,
    pieces: Vec<Piece<R>>,
    buf: BytesMut,
    /// Length of all pieces, bytes.
    total: usize,
}

impl<R> Writer<R> {
    fn end_envelope(&mut self) {
        self.total += self.buf.len();
        self.pieces.push(Piece::Envelope(self.buf.split().freeze()));
    }

    fn flexible(&self) -> bool {
        self.version >= 12
    }

    fn array_len(&mut self, n: usize) {
        if self.flexible() { self.uvarint(n as u64 + 1) } else { self.buf.put_i32(n as i32) }
    }

    fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buf.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.buf.put_u8(value as u8);
    }

    fn tags(&mut self) {
        if self.flexible() {
            self.buf.put_u8(0);
        }
    }

    fn records(&mut self, records: Option<(R, usize)>) {
        self.array_len(records.as_ref().map_or(0, |(_, len)| *len));
        if let Some((records, len)) = records {
            self.end_envelope();
            self.total += len;
            self.pieces.push(Piece::Records(records));
        }
    }

    fn partition(&mut self, partition: FetchPartition<R>) {
        self.buf.put_i32(partition.index);
        self.buf.put_i16(partition.error_code);
        self.buf.put_i64(partition.high_watermark);
        self.buf.put_i64(partition.last_stable_offset);
        if self.version >= 5 {
            self.buf.put_i64(partition.log_start_offset);
        }
        match &partition.aborted {
            None if self.flexible() => self.buf.put_u8(0),
            None => self.buf.put_i32(-1),
            Some(aborted) => {
                self.array_len(aborted.len());
                for (producer_id, first_offset) in aborted {
                    self.buf.put_i64(*producer_id);
                    self.buf.put_i64(*first_offset);
                    self.tags();
                }
            }
        }
        if self.version >= 11 {
            self.buf.put_i32(-1);
        }
        self.records(partition.records);
        match partition.diverging {
            Some((epoch, end_offset)) if self.flexible() => {
                // Tag 0: EpochEndOffset {epoch i32, end offset i64, no tags}.
                self.buf.put_slice(&[1, 0, 13]);
                self.buf.put_i32(epoch);
                self.buf.put_i64(end_offset);
                self.buf.put_u8(0);
            }
            _ => self.tags(),
        }
    }

    fn topic(&mut self, topic: FetchTopic<R>) {
        if self.version >= 13 {
            self.buf.put_slice(&topic.id);
        } else if self.flexible() {
            self.uvarint(topic.name.len() as u64 + 1);
            self.buf.put_slice(topic.name.as_bytes());
        } else {
            self.buf.put_i16(topic.name.len() as i16);
            self.buf.put_slice(topic.name.as_bytes());
        }
        self.array_len(topic.partitions.len());
        for partition in topic.partitions {
            self.partition(partition);
        }
        self.tags();
    }
}

/// Encodes a whole response frame, its length first, as pieces to be written one after the other.
#[must_use]
pub fn encode<R>(
    version: i16,
    correlation_id: i32,
    error_code: i16,
    session_id: i32,
    topics: Vec<FetchTopic<R>>,
) -> Vec<Piece<R>> {
    let buf = frame::start_response(ApiKey::Fetch, version, correlation_id, 256);
    let mut writer = Writer { version, pieces: Vec::new(), buf, total: 0 };
    writer.buf.put_i32(0);
    if version >= 7 {
        writer.buf.put_i16(error_code);
        writer.buf.put_i32(session_id);
    }
    writer.array_len(topics.len());
    for topic in topics {
        writer.topic(topic);
    }
    writer.tags();
    writer.end_envelope();
    if let Some(Piece::Envelope(first)) = writer.pieces.first_mut() {
        let mut head = BytesMut::from(first.as_ref());
        let extra = writer.total - head.len();
        frame::finish_response(&mut head, extra);
        *first = head.freeze();
    }
    writer.pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use kafka_protocol::messages::FetchResponse;
    use kafka_protocol::protocol::Decodable;

    #[test]
    fn the_codec_crate_reads_every_version() {
        for version in 4..=18 {
            let good = FetchPartition {
                index: 1,
                high_watermark: 9,
                last_stable_offset: 8,
                log_start_offset: 2,
                aborted: Some(vec![(7, 3)]),
                records: Some((Bytes::from_static(b"abcde"), 5)),
                ..FetchPartition::default()
            };
            let bad = FetchPartition { index: 2, error_code: 3, high_watermark: -1, ..FetchPartition::default() };
            let topic = FetchTopic { name: "t".into(), id: [5; 16], partitions: vec![good, bad] };
            let pieces = encode(version, 42, 0, 0, vec![topic]);
            let mut bytes = BytesMut::new();
            for Piece::Envelope(piece) | Piece::Records(piece) in pieces {
                bytes.put(piece);
            }
            let mut bytes = bytes.freeze();
            assert_eq!(bytes.get_i32() as usize, bytes.len());
            assert_eq!(bytes.get_i32(), 42);
            if version >= 12 {
                assert_eq!(bytes.get_u8(), 0);
            }
            let decoded = FetchResponse::decode(&mut bytes, version).expect("decodes");
            assert!(bytes.is_empty(), "version {version}");
            let partitions = &decoded.responses[0].partitions;
            assert_eq!(partitions[0].records.as_deref(), Some(&b"abcde"[..]));
            assert_eq!(partitions[0].aborted_transactions.as_ref().map(Vec::len), Some(1));
            assert_eq!(partitions[1].aborted_transactions, None);
            assert_eq!(partitions[1].records.as_deref(), Some(&b""[..]));
            assert_eq!(partitions[1].high_watermark, -1);
        }
    }
}
