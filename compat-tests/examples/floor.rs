//! The floor (experiment R5): the least a server can do and still be a Kafka broker to librdkafka.
//!
//! `floor ADDR PARTITIONS RECORD_SIZE [DIR]` serves one topic, `floor`. Produce: read the frame, write the record
//! batch to a file (page cache), answer. Fetch: send batches that were built beforehand from memory; the topic has
//! no end, any offset is served. Nothing is checked, kept in order between connections or kept at all; one thread
//! per connection. The CPU that the same client costs it is what no design that copies bytes once in and once out
//! can beat.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;

/// Fetch answers hold this many bytes per topic partition at most, as the client's default asks.
const FETCH_BYTES: usize = 1 << 20;
/// Uncompressed batches of about the size that librdkafka sends under load.
const BATCH_BYTES: usize = 100_000;
/// (api key, least version, greatest version); the greatest that is not "flexible" keeps the encoding short.
const APIS: [(i16, i16, i16); 5] = [(0, 7, 7), (1, 11, 11), (2, 2, 2), (3, 4, 4), (18, 0, 3)];
const UNSUPPORTED_VERSION: i16 = 35;

struct Floor {
    port: u16,
    partitions: Vec<(File, AtomicI64)>,
    batch: Vec<u8>,
    batch_records: i64,
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [addr, partitions, size, dir @ ..] = args.as_slice() else {
        return Err(io::Error::other("floor ADDR PARTITIONS RECORD_SIZE [DIR]"));
    };
    let dir = dir.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let number = |word: &String| word.parse::<usize>().map_err(io::Error::other);
    let listener = TcpListener::bind(addr)?;
    let (batch, batch_records) = batch(number(size)?);
    let mut files = Vec::new();
    for i in 0..number(partitions)? {
        let path = dir.join(format!("floor-{}-{i}.log", std::process::id()));
        let file = File::create(&path)?;
        // unlinked at once: the kernel frees it with the process
        std::fs::remove_file(&path)?;
        files.push((file, AtomicI64::new(0)));
    }
    let floor = Arc::new(Floor { port: listener.local_addr()?.port(), partitions: files, batch, batch_records });
    for stream in listener.incoming() {
        let (floor, stream) = (Arc::clone(&floor), stream?);
        thread::spawn(move || {
            if let Err(error) = floor.serve(stream)
                && error.kind() != io::ErrorKind::UnexpectedEof
            {
                eprintln!("connection: {error}");
            }
        });
    }
    Ok(())
}

impl Floor {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let (mut frame, mut out) = (Vec::new(), Out(Vec::new()));
        loop {
            let mut size = [0; 4];
            stream.read_exact(&mut size)?;
            let size = u32::from_be_bytes(size) as usize;
            if frame.len() < size {
                frame.resize(size, 0);
            }
            stream.read_exact(&mut frame[..size])?;
            let mut request = In(&frame[..size]);
            let (api, version, correlation) = (request.i16()?, request.i16()?, request.i32()?);
            request.string()?;
            out.0.clear();
            out.i32(0).i32(correlation);
            let answer = match api {
                0 => self.produce(request, &mut out)?,
                1 => self.fetch(request, &mut out)?,
                2 => self.list_offsets(request, &mut out)?,
                3 => self.metadata(&mut out),
                18 => api_versions(version, &mut out),
                _ => return Err(io::Error::other(format!("api key {api}"))),
            };
            if answer {
                let size = out.0.len() as i32 - 4;
                out.0[..4].copy_from_slice(&size.to_be_bytes());
                stream.write_all(&out.0)?;
            }
        }
    }

    /// One topic per request is all that a client of one topic sends.
    fn produce(&self, mut request: In<'_>, out: &mut Out) -> io::Result<bool> {
        request.string()?;
        let (acks, _timeout, _topics) = (request.i16()?, request.i32()?, request.i32()?);
        request.string()?;
        let partitions = request.i32()?;
        out.i32(1).string("floor").i32(partitions);
        for _ in 0..partitions {
            let (index, length) = (request.i32()?, request.i32()?);
            let records = request.take(length as usize)?;
            let (mut file, end) = self.partition(index)?;
            file.write_all(records)?;
            let last_offset_delta = In(records.get(23..).unwrap_or_default()).i32()?;
            let base = end.fetch_add(i64::from(last_offset_delta) + 1, Relaxed);
            out.i32(index).i16(0).i64(base).i64(-1).i64(0);
        }
        out.i32(0);
        Ok(acks != 0)
    }

    fn fetch(&self, mut request: In<'_>, out: &mut Out) -> io::Result<bool> {
        request.take(4 + 4 + 4 + 4 + 1 + 4 + 4)?;
        if request.i32()? == 0 {
            out.i32(0).i16(0).i32(0).i32(0);
            return Ok(true);
        }
        request.string()?;
        let partitions = request.i32()?;
        out.i32(0).i16(0).i32(0).i32(1).string("floor").i32(partitions);
        let batches = (FETCH_BYTES / self.batch.len()).max(1);
        for _ in 0..partitions {
            let (index, _epoch, offset) = (request.i32()?, request.i32()?, request.i64()?);
            request.take(8 + 4)?;
            out.i32(index).i16(0).i64(i64::MAX).i64(i64::MAX).i64(0).i32(0).i32(-1);
            out.i32((batches * self.batch.len()) as i32);
            let first = offset / self.batch_records;
            for number in first..first + batches as i64 {
                out.i64(number * self.batch_records).bytes(&self.batch[8..]);
            }
        }
        Ok(true)
    }

    fn list_offsets(&self, mut request: In<'_>, out: &mut Out) -> io::Result<bool> {
        request.take(4 + 1 + 4)?;
        request.string()?;
        let partitions = request.i32()?;
        out.i32(0).i32(1).string("floor").i32(partitions);
        for _ in 0..partitions {
            let (index, time) = (request.i32()?, request.i64()?);
            let offset = if time == -2 { 0 } else { self.partition(index)?.1.load(Relaxed) };
            out.i32(index).i16(0).i64(-1).i64(offset);
        }
        Ok(true)
    }

    fn metadata(&self, out: &mut Out) -> bool {
        out.i32(0).i32(1).i32(1).string("127.0.0.1").i32(i32::from(self.port)).i16(-1);
        out.string("floor").i32(1).i32(1).i16(0).string("floor").bytes(&[0]).i32(self.partitions.len() as i32);
        for index in 0..self.partitions.len() as i32 {
            out.i16(0).i32(index).i32(1).i32(1).i32(1).i32(1).i32(1);
        }
        true
    }

    fn partition(&self, index: i32) -> io::Result<(&File, &AtomicI64)> {
        let found = usize::try_from(index).ok().and_then(|index| self.partitions.get(index));
        found.map(|(file, end)| (file, end)).ok_or_else(|| io::Error::other("no such topic partition"))
    }
}

/// The answer for an unknown version has the oldest form, so that any client can read it and ask again.
fn api_versions(version: i16, out: &mut Out) -> bool {
    let (known, compact) = (version <= 3, version == 3);
    out.i16(if known { 0 } else { UNSUPPORTED_VERSION });
    if compact {
        out.bytes(&[APIS.len() as u8 + 1]);
    } else {
        out.i32(APIS.len() as i32);
    }
    for (key, least, greatest) in APIS {
        out.i16(key).i16(least).i16(greatest).bytes(if compact { &[0] } else { &[] });
    }
    if known && version > 0 {
        out.i32(0).bytes(if compact { &[0] } else { &[] });
    }
    true
}

/// A record batch (magic 2, CRC left 0: clients do not check it by default) of records of `size` bytes.
fn batch(size: usize) -> (Vec<u8>, i64) {
    let count = (BATCH_BYTES / size.max(1)).max(1) as i64;
    let mut records = Vec::new();
    for delta in 0..count {
        let mut record = vec![0, 0];
        varint(delta, &mut record);
        varint(-1, &mut record);
        varint(size as i64, &mut record);
        record.resize(record.len() + size, b'f');
        record.push(0);
        varint(record.len() as i64, &mut records);
        records.append(&mut record);
    }
    let mut out = Out(Vec::new());
    out.i64(0).i32(49 + records.len() as i32).i32(0).bytes(&[2]).i32(0).i16(0).i32(count as i32 - 1);
    out.i64(0).i64(0).i64(-1).i16(-1).i32(-1).i32(count as i32).bytes(&records);
    (out.0, count)
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, n: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(|| io::Error::other("short request"))?;
        self.0 = rest;
        Ok(head)
    }
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?.try_into().map_err(io::Error::other)
    }
    fn i16(&mut self) -> io::Result<i16> {
        self.array().map(i16::from_be_bytes)
    }
    fn i32(&mut self) -> io::Result<i32> {
        self.array().map(i32::from_be_bytes)
    }
    fn i64(&mut self) -> io::Result<i64> {
        self.array().map(i64::from_be_bytes)
    }
    /// A nullable string, skipped.
    fn string(&mut self) -> io::Result<()> {
        let length = self.i16()?.max(0);
        self.take(length as usize).map(|_| ())
    }
}

struct Out(Vec<u8>);

impl Out {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Out {
        self.0.extend_from_slice(bytes);
        self
    }
    fn i16(&mut self, value: i16) -> &mut Out {
        self.bytes(&value.to_be_bytes())
    }
    fn i32(&mut self, value: i32) -> &mut Out {
        self.bytes(&value.to_be_bytes())
    }
    fn i64(&mut self, value: i64) -> &mut Out {
        self.bytes(&value.to_be_bytes())
    }
    fn string(&mut self, text: &str) -> &mut Out {
        self.i16(text.len() as i16).bytes(text.as_bytes())
    }
}
