//! Framing and request headers: what is left of a frame is a suffix of it, whatever the bytes.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sluice_protocol::frame::{frame_len, read_request_header};

fuzz_target!(|data: &[u8]| {
    if let Some(prefix) = data.first_chunk::<4>() {
        if let Ok(len) = frame_len(*prefix, 1 << 20) {
            assert!(len <= 1 << 20);
        }
    }
    let mut frame = Bytes::copy_from_slice(data);
    if let Ok(header) = read_request_header(&mut frame) {
        assert!(data.ends_with(&frame));
        assert_eq!(data[..2], header.api_key.to_be_bytes());
        assert_eq!(data[2..4], header.api_version.to_be_bytes());
        assert_eq!(data[4..8], header.correlation_id.to_be_bytes());
        // Invalid UTF-8 is replaced, which makes one byte three.
        assert!(header.client_id.len() <= 3 * 1024);
    }
});
