//! Record batches: what is accepted decodes within its limit, the same way twice.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_protocol::batch::{BatchHeader, HEADER_LEN, compute_crc, set_max_timestamp, validate_produced};
use sluice_protocol::records::{compress, decompress, for_each, scan};

const LIMIT: usize = 1 << 20;

/// The bytes with length, magic and checksum put right, so that the rest is looked at.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    let length = i32::try_from(bytes.len().checked_sub(12)?).ok()?;
    bytes.get_mut(..8)?.fill(0);
    bytes.get_mut(8..12)?.copy_from_slice(&length.to_be_bytes());
    *bytes.get_mut(16)? = 2;
    let crc = compute_crc(&bytes);
    bytes.get_mut(17..21)?.copy_from_slice(&crc.to_be_bytes());
    Some(bytes)
}

fn check(bytes: &[u8]) {
    let mut seen = 0;
    let read = for_each(bytes, LIMIT, |_, record| {
        seen += 1;
        assert!(record.headers.len() <= bytes.len().max(LIMIT));
    });
    let Ok((header, len)) = validate_produced(bytes) else { return };
    assert!(len <= bytes.len() && header.record_count > 0);
    let _ = (header.last_offset(), header.last_sequence());
    let Ok(plain) = decompress(header.codec(), &bytes[HEADER_LEN..len], LIMIT) else { return };
    assert!(plain.len() <= LIMIT);
    let scanned = scan(&header, &plain, (i64::MIN, i64::MAX));
    if len == bytes.len() {
        assert_eq!(scanned.is_ok(), read.is_ok(), "both walk the same records");
    }
    if let Ok(scanned) = scanned {
        assert!(scanned.max_timestamp_delta < header.record_count && scanned.out_of_bounds.is_empty());
        if len == bytes.len() {
            assert_eq!(seen, header.record_count);
        }
        for codec in 0..5 {
            let packed = compress(codec, &plain).expect("compresses");
            assert_eq!(decompress(codec, &packed, LIMIT).expect("decompresses"), plain);
        }
        let mut stamped = bytes[..len].to_vec();
        set_max_timestamp(&mut stamped, scanned.max_timestamp, true);
        assert_eq!(BatchHeader::read(&stamped).map(|header| header.crc), Some(compute_crc(&stamped)));
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Some(bytes) = sealed(data) {
        check(&bytes);
    }
    if let Some((codec, payload)) = data.split_first() {
        if let Ok(plain) = decompress(i16::from(codec % 6), payload, LIMIT) {
            assert!(plain.len() <= LIMIT.max(payload.len()));
        }
    }
});
