//! Length-prefixed framing and request headers.
//!
//! ```text
//! request   i32 length | i16 api key | i16 api version | i32 correlation id | client id | [tags] | body
//! response  i32 length | i32 correlation id | [tags] | body
//! ```
//! The header version is a function of (api, version, direction): a flexible request has a header
//! with tagged fields (v2), and its response has one too (v1), except ApiVersions, whose response
//! header is v0 at every version (KIP-511) so that a client can read it before it knows the server.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use crate::error::DecodeError;

/// The header of one request, and where its body starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API key as sent; may name no API that exists.
    pub api_key: i16,
    /// The version as sent; may be outside every range.
    pub api_version: i16,
    /// Echoed in the response.
    pub correlation_id: i32,
    /// The client's name for itself; empty when it sent none.
    pub client_id: String,
}

/// Longest client id kept; longer ones are cut, they serve logs and quotas only.
const CLIENT_ID_LEN_MAX: usize = 1024;

/// Checks a frame's announced length against the server's limit.
///
/// # Errors
/// [`DecodeError::FrameTooLarge`] for negative lengths and for those over `limit`.
pub fn frame_len(prefix: [u8; 4], limit: usize) -> Result<usize, DecodeError> {
    let length = i32::from_be_bytes(prefix);
    match usize::try_from(length) {
        Ok(n) if n <= limit => Ok(n),
        _ => Err(DecodeError::FrameTooLarge { length: i64::from(length), limit }),
    }
}

/// Takes the header off `frame`; what remains is the body.
///
/// An API key or version that the codec does not know is no error here: the caller answers it
/// (ApiVersions with code 35, all else by closing). Its header is then read without tagged fields.
///
/// # Errors
/// [`DecodeError::Truncated`] when the bytes end inside the header.
pub fn read_request_header(frame: &mut Bytes) -> Result<RequestHeader, DecodeError> {
    if frame.remaining() < 10 {
        return Err(DecodeError::Truncated { what: "request header" });
    }
    let api_key = frame.get_i16();
    let api_version = frame.get_i16();
    let correlation_id = frame.get_i32();
    let client_len = frame.get_i16();
    let client_id = match usize::try_from(client_len) {
        Err(_) => String::new(),
        Ok(n) if n <= frame.remaining() => {
            let raw = frame.split_to(n);
            String::from_utf8_lossy(raw.get(..n.min(CLIENT_ID_LEN_MAX)).unwrap_or(&raw)).into_owned()
        }
        Ok(_) => return Err(DecodeError::Truncated { what: "client id" }),
    };
    if is_flexible_request(api_key, api_version) {
        skip_tagged_fields(frame)?;
    }
    Ok(RequestHeader { api_key, api_version, correlation_id, client_id })
}

fn is_flexible_request(api_key: i16, api_version: i16) -> bool {
    let Ok(key) = ApiKey::try_from(api_key) else { return false };
    // A version newer than the codec's keeps the shape of the newest one known: ApiVersions v99 is flexible.
    let range = key.valid_versions();
    key.request_header_version(api_version.clamp(range.min, range.max)) >= 2
}

fn skip_tagged_fields(buf: &mut Bytes) -> Result<(), DecodeError> {
    let count = read_unsigned_varint(buf)?;
    for _ in 0..count {
        let _tag = read_unsigned_varint(buf)?;
        let size = read_unsigned_varint(buf)? as usize;
        if size > buf.remaining() {
            return Err(DecodeError::Truncated { what: "tagged field" });
        }
        buf.advance(size);
    }
    Ok(())
}

fn read_unsigned_varint(buf: &mut Bytes) -> Result<u32, DecodeError> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        if !buf.has_remaining() {
            return Err(DecodeError::Truncated { what: "varint" });
        }
        let byte = buf.get_u8();
        value |= u32::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Truncated { what: "varint of more than five bytes" })
}

/// Starts a response frame: room for the length, the correlation id and, where the header has
/// them, empty tagged fields. [`finish_response`] fills in the length.
#[must_use]
pub fn start_response(key: ApiKey, version: i16, correlation_id: i32, capacity: usize) -> BytesMut {
    let mut buf = BytesMut::with_capacity(capacity + 9);
    buf.put_i32(0);
    buf.put_i32(correlation_id);
    if key != ApiKey::ApiVersions && key.response_header_version(version) >= 1 {
        buf.put_u8(0);
    }
    buf
}

/// Writes the frame's length over its first four bytes; `extra` bytes follow outside `buf`.
pub fn finish_response(buf: &mut BytesMut, extra: usize) {
    let length = (buf.len() - 4 + extra) as u32;
    if let Some(head) = buf.get_mut(..4) {
        head.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_negative_and_oversized_frames() {
        assert!(frame_len((-1i32).to_be_bytes(), 100).is_err());
        assert!(frame_len(101i32.to_be_bytes(), 100).is_err());
        assert_eq!(frame_len(100i32.to_be_bytes(), 100), Ok(100));
    }

    #[test]
    fn reads_a_flexible_header_and_leaves_the_body() {
        let mut frame = Bytes::from_static(&[0, 18, 0, 3, 0, 0, 0, 7, 0, 1, b'c', 1, 0, 1, 9, 0xaa]);
        let header = read_request_header(&mut frame).expect("well formed");
        assert_eq!((header.api_key, header.api_version, header.correlation_id), (18, 3, 7));
        assert_eq!(header.client_id, "c");
        assert_eq!(frame.as_ref(), &[0xaa]);
    }

    #[test]
    fn reads_a_null_client_id_and_an_unknown_api() {
        let mut frame = Bytes::from_static(&[0x7f, 0, 0, 3, 0, 0, 0, 7, 0xff, 0xff, 5]);
        let header = read_request_header(&mut frame).expect("well formed");
        assert_eq!(header.client_id, "");
        assert_eq!(frame.as_ref(), &[5]);
    }

    #[test]
    fn every_truncation_of_a_header_is_an_error() {
        let whole = [0, 18, 0, 3, 0, 0, 0, 7, 0, 1, b'c', 1, 0, 1, 9];
        for cut in 0..whole.len() {
            let mut frame = Bytes::copy_from_slice(&whole[..cut]);
            assert!(read_request_header(&mut frame).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn api_versions_response_header_has_no_tags_at_any_version() {
        for version in 0..=4 {
            assert_eq!(start_response(ApiKey::ApiVersions, version, 1, 0).len(), 8);
        }
        assert_eq!(start_response(ApiKey::Metadata, 12, 1, 0).len(), 9);
        assert_eq!(start_response(ApiKey::Metadata, 1, 1, 0).len(), 8);
    }
}
