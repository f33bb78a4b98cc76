//! What the coordinator keeps: group records and committed offsets (docs/storage-format.md §7).

use sluice_engine::kv::{Change, open_value, seal_value};
use sluice_engine::log::checked::{Reader, Writer};
use sluice_engine::{Error, ErrorKind, Result};
use uuid::Uuid;

use super::classic::GroupRecord;

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Committed {
    /// The next offset to read.
    pub(crate) offset: i64,
    /// The epoch of the record before it; -1 unknown.
    pub(crate) leader_epoch: i32,
    /// When it was committed, ms.
    pub(crate) commit_ms: i64,
    /// When it expires by the client's own wish, ms; -1: by the server's rules.
    pub(crate) expiry_ms: i64,
    /// The client's note.
    pub(crate) metadata: String,
}

/// A topic partition as offsets know it: by the topic's random id, so that they survive a rename and
/// die with the topic.
pub(crate) type Place = (Uuid, i32);

pub(crate) const GROUPS: &[u8] = b"g/";
pub(crate) const OFFSETS: &[u8] = b"o/";

fn group_key(group: &str) -> Vec<u8> {
    [GROUPS, group.as_bytes()].concat()
}

fn offset_key(group: &str, place: &Place) -> Vec<u8> {
    let len = (group.len() as u16).to_be_bytes();
    [OFFSETS, &len, group.as_bytes(), place.0.as_bytes(), &place.1.to_be_bytes()].concat()
}

/// Stores a group's record.
pub(crate) fn put_group(record: &GroupRecord) -> Change {
    (group_key(&record.group_id), Some(seal_value(&record.encode())))
}

/// Removes a group's record.
pub(crate) fn remove_group(group: &str) -> Change {
    (group_key(group), None)
}

/// Stores a committed offset.
pub(crate) fn put_offset(group: &str, place: &Place, committed: &Committed) -> Change {
    let mut out = Writer::default();
    out.i64(committed.offset);
    out.i32(committed.leader_epoch);
    out.i64(committed.commit_ms);
    out.i64(committed.expiry_ms);
    out.u32(committed.metadata.len() as u32);
    out.0.extend_from_slice(committed.metadata.as_bytes());
    (offset_key(group, place), Some(seal_value(&out.0)))
}

/// Removes a committed offset.
pub(crate) fn remove_offset(group: &str, place: &Place) -> Change {
    (offset_key(group, place), None)
}

/// Reads a stored group.
pub(crate) fn read_group(value: &[u8]) -> Result<GroupRecord> {
    GroupRecord::decode(open_value(value)?).map_err(|what| Error::new(ErrorKind::Corrupt, what))
}

/// Reads a stored offset: its group, its place and what was committed.
pub(crate) fn read_offset(key: &[u8], value: &[u8]) -> Result<(String, Place, Committed)> {
    let corrupt = || Error::new(ErrorKind::Corrupt, "a committed offset's key is damaged");
    let rest = key.strip_prefix(OFFSETS).ok_or_else(corrupt)?;
    let (len, rest) = rest.split_first_chunk::<2>().ok_or_else(corrupt)?;
    let (group, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len))).ok_or_else(corrupt)?;
    let (topic, partition) = rest.split_first_chunk::<16>().ok_or_else(corrupt)?;
    let partition = i32::from_be_bytes(partition.try_into().map_err(|_| corrupt())?);
    let mut input = Reader(open_value(value)?);
    let (offset, leader_epoch) = (input.i64()?, input.i32()?);
    let (commit_ms, expiry_ms) = (input.i64()?, input.i64()?);
    let len = input.count(1)?;
    let metadata = String::from_utf8_lossy(input.0.get(..len).unwrap_or_default()).into_owned();
    let committed = Committed { offset, leader_epoch, commit_ms, expiry_ms, metadata };
    Ok((String::from_utf8_lossy(group).into_owned(), (Uuid::from_bytes(*topic), partition), committed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_round_trip() {
        let place = (Uuid::from_u128(77), 3);
        let committed =
            Committed { offset: 5, leader_epoch: -1, commit_ms: 9, expiry_ms: -1, metadata: "müsli".to_owned() };
        let (key, value) = put_offset("a/b", &place, &committed);
        let read = read_offset(&key, &value.expect("a value")).expect("reads");
        assert_eq!(read, ("a/b".to_owned(), place, committed));
    }
}
