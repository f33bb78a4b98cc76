//! Commands of our own in tickets and descriptors, as JSON (docs/compatibility.md): no protobuf message of Flight SQL
//! begins with a brace.

use serde::Deserialize;
use tonic::Status;

/// A command.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Command {
    /// Rows of keys: the ticket of DoGet has the keys, DoExchange sends them.
    Lookup(Lookup),
    /// How DoPut writes.
    Put(Put),
}

/// `{"lookup": {"table": "d.t", "keys": [[1, "a"], …]}}`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lookup {
    /// `database.table`, or a table of the default database.
    pub(crate) table: String,
    /// Each with the primary key's columns in key order.
    #[serde(default)]
    pub(crate) keys: Vec<Vec<serde_json::Value>>,
}

/// `{"put": {"table": "d.t", "mode": "delete"}}`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    /// `database.table`, or a table of the default database.
    pub(crate) table: String,
    /// What rows do.
    #[serde(default)]
    pub(crate) mode: Mode,
}

/// What rows do that are put into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// What the kind of table says: append, or upsert the columns that are there.
    #[default]
    Write,
    /// Delete by key.
    Delete,
}

impl Command {
    /// Reads a command; `None` for bytes that claim to be none.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with the place.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Status> {
        if bytes.first() != Some(&b'{') {
            return Ok(None);
        }
        let read = serde_json::from_slice(bytes);
        read.map(Some).map_err(|error| Status::invalid_argument(format!("not a command: {error}")))
    }
}
