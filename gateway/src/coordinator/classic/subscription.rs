//! Reads the topics out of a consumer's subscription, the metadata of protocol type `consumer`.
//!
//! The bytes come from clients and are only looked at to protect offsets of subscribed topics from OffsetDelete, so
//! whatever does not parse means "not known", never an error to the member.

use std::collections::BTreeSet;

/// Adds the topics of one subscription to `topics`. `None` if the bytes are not a subscription.
///
/// ```text
///   0  version  i16   not negative; every version starts like version 0
///   2  count    i32
///   6  topics   count * { length i16, UTF-8 bytes }
///   .  user data and later fields, not read
/// ```
pub(super) fn read_topics(metadata: &[u8], topics: &mut BTreeSet<String>) -> Option<()> {
    let (version, rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    if count > rest.len() / 2 {
        return None;
    }
    for _ in 0..count {
        let (length, after_length) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (topic, after_topic) = after_length.split_at_checked(length)?;
        topics.insert(str::from_utf8(topic).ok()?.to_owned());
        rest = after_topic;
    }
    Some(())
}
