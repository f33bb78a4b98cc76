//! A body that passes the shape check decodes or is refused: no panic, no allocation out of proportion
//! (`run.sh` sets the bounds), and walker and decoder agree on where it ends.

#![no_main]

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, RequestKind};
use libfuzzer_sys::fuzz_target;
use sluice_protocol::shape::{ShapeLimits, check_request};

fuzz_target!(|data: &[u8]| {
    let Some(([key, version], body)) = data.split_first_chunk::<2>() else { return };
    let (key, version) = (i16::from(*key), i16::from(*version % 20));
    let Ok(api) = ApiKey::try_from(key) else { return };
    let range = api.valid_versions();
    if version < range.min || version > range.max {
        return;
    }
    let limits = ShapeLimits::default();
    let Ok(walked) = check_request(key, version, body, &limits) else { return };
    assert!(walked.elements <= limits.elements_max && walked.consumed <= body.len());
    let mut rest = Bytes::copy_from_slice(body);
    if RequestKind::decode(api, &mut rest, version).is_ok() {
        assert_eq!(rest.len(), body.len() - walked.consumed, "{api:?} v{version}");
    }
});
