//! [`KvStore`] on RocksDB; the only file that names it.

use std::path::Path;

use rocksdb::{DB, Direction, IteratorMode, Options, WriteBatch, WriteOptions};

use super::{Change, KvStore};
use crate::error::{Error, ErrorKind, Result};

/// Write buffer of one store: these are small.
const WRITE_BUFFER_BYTES: usize = 4 << 20;

/// A small RocksDB whose WAL is synced on every write.
pub struct RocksStore(DB);

fn fault(doing: &str, error: &rocksdb::Error) -> Error {
    let kind = if error.as_ref().contains("No space left") { ErrorKind::NoSpace } else { ErrorKind::StorageFailed };
    Error::new(kind, format!("{doing}: {error}"))
}

impl RocksStore {
    /// Opens or creates the store in `directory`.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn open(directory: &Path) -> Result<Self> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_open_files(64);
        options.set_keep_log_file_num(2);
        options.set_max_background_jobs(2);
        options.set_paranoid_checks(true);
        let what = format!("opening {}", directory.display());
        DB::open(&options, directory).map(Self).map_err(|error| fault(&what, &error))
    }
}

impl KvStore for RocksStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(key).map_err(|error| fault("reading a key", &error))
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        for item in self.0.iterator(IteratorMode::From(prefix, Direction::Forward)) {
            let (key, value) = item.map_err(|error| fault("scanning keys", &error))?;
            if !key.starts_with(prefix) {
                break;
            }
            found.push((key.into_vec(), value.into_vec()));
        }
        Ok(found)
    }

    fn write(&self, changes: &[Change]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.0.write_opt(batch, &options).map_err(|error| fault("writing keys", &error))
    }
}
