//! What tickets and handles say: which buckets of which table are to be read, or which statement is to be run.
//!
//! One byte, the version 1; a protobuf message; the first 16 bytes of an HMAC-SHA-256 over both. The key is drawn at
//! each start, so a ticket lives as long as the server that gave it. No protobuf message begins with a byte 1, which
//! tells our tickets from those of Flight SQL.

use hmac::{Hmac, Mac};
use prost::Message;
use sha2::Sha256;
use tonic::Status;

const VERSION: u8 = 1;
const TAG_LEN: usize = 16;

/// What the bearer may have.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Grant {
    /// A scan, or a statement.
    #[prost(oneof = "Work", tags = "1, 2")]
    pub(crate) work: Option<Work>,
}

/// What a ticket is for.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Work {
    /// Rows of buckets.
    #[prost(message, tag = "1")]
    Scan(Scan),
    /// A statement.
    #[prost(message, tag = "2")]
    Query(Query),
}

/// A scan of one bucket.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scan {
    /// The table's id.
    #[prost(uint64, tag = "1")]
    pub(crate) table: u64,
    /// The bucket's number.
    #[prost(uint32, tag = "2")]
    pub(crate) bucket: u32,
    /// The partition's id, of a partitioned table.
    #[prost(int64, optional, tag = "3")]
    pub(crate) partition: Option<i64>,
    /// How many columns the table had, which are those that the flight's schema names.
    #[prost(uint32, tag = "4")]
    pub(crate) columns: u32,
}

/// A statement, prepared or ready to run.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Query {
    /// Its text.
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    /// The database that was the current one.
    #[prost(string, tag = "2")]
    pub(crate) database: String,
    /// Its parameters, a stream of Arrow IPC; empty where there are none.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) parameters: Vec<u8>,
    /// Random: what changes something runs once for each.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) id: Vec<u8>,
}

/// Whether bytes claim to be a ticket of ours.
pub(crate) fn is_ours(ticket: &[u8]) -> bool {
    ticket.first() == Some(&VERSION)
}

/// Makes and reads tickets.
pub(crate) struct Tickets {
    key: [u8; 32],
}

impl Tickets {
    /// With a key of its own.
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        let (first, second) = key.split_at_mut(16);
        first.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        second.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self { key }
    }

    fn mac(&self, signed: &[u8]) -> Result<Hmac<Sha256>, Status> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).map_err(|error| Status::internal(error.to_string()))?;
        mac.update(signed);
        Ok(mac)
    }

    /// The ticket for some work.
    ///
    /// # Errors
    /// INTERNAL only.
    pub(crate) fn make(&self, work: Work) -> Result<Vec<u8>, Status> {
        let mut ticket = vec![VERSION];
        ticket.extend(Grant { work: Some(work) }.encode_to_vec());
        let tag = self.mac(&ticket)?.finalize().into_bytes();
        ticket.extend(tag.iter().take(TAG_LEN));
        Ok(ticket)
    }

    /// The work that a ticket is for.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for anything that this server did not make since its start.
    pub(crate) fn read(&self, ticket: &[u8]) -> Result<Work, Status> {
        let foreign = || Status::invalid_argument("not a ticket of this server, or one from before its last start");
        let signed_len = ticket.len().checked_sub(TAG_LEN).ok_or_else(foreign)?;
        let (signed, tag) = ticket.split_at_checked(signed_len).ok_or_else(foreign)?;
        self.mac(signed)?.verify_truncated_left(tag).map_err(|_| foreign())?;
        let (_, body) = signed.split_first().filter(|(version, _)| **version == VERSION).ok_or_else(foreign)?;
        Grant::decode(body).map_err(|_| foreign())?.work.ok_or_else(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_made_here_is_read() {
        let tickets = Tickets::new();
        let query = Query { text: "SELECT 1".into(), database: "d".into(), parameters: vec![1], id: vec![2] };
        for work in [Work::Scan(Scan { table: 7, bucket: 3, partition: Some(0), columns: 2 }), Work::Query(query)] {
            let ticket = tickets.make(work.clone()).expect("makes");
            assert!(is_ours(&ticket));
            assert_eq!(tickets.read(&ticket).expect("ours"), work);
            for at in 0..ticket.len() {
                let mut bad = ticket.clone();
                bad[at] ^= 1;
                assert_eq!(tickets.read(&bad).expect_err("tampered").code(), tonic::Code::InvalidArgument);
                assert_eq!(tickets.read(&ticket[..at]).expect_err("cut").code(), tonic::Code::InvalidArgument);
            }
            assert!(Tickets::new().read(&ticket).is_err(), "another server's");
            assert!(tickets.read(&[ticket.as_slice(), &[0]].concat()).is_err());
        }
    }
}
