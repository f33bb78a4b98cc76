//! [`KvStore`] on RocksDB; the only file that names it.

use std::path::Path;

use rocksdb::{BlockBasedOptions, Cache, DB, Options, ReadOptions, WriteBatch, WriteBufferManager, WriteOptions};

use super::{Change, KvStore, Visitor};
use crate::error::{Error, ErrorKind, Result};

/// Write buffer of one small store.
const WRITE_BUFFER_BYTES: usize = 4 << 20;
/// Blocks of all PK tables that are kept in memory, and in the same cache their write buffers.
const CACHE_BYTES: usize = 256 << 20;
/// Write buffers of all PK tables; a store flushes the largest of its own beyond it, writers are never stopped.
const WRITE_BUFFERS_BYTES: usize = 128 << 20;
/// Write buffer of one PK table.
const TABLET_BUFFER_BYTES: usize = 32 << 20;
/// Bits of the Bloom filter for each key: about one lookup in a hundred of a missing key reads a block.
const BLOOM_BITS: f64 = 10.0;

/// A RocksDB.
pub struct RocksStore {
    db: DB,
    /// Whether each write is synced; else there is no log of writes.
    logged: bool,
}

fn fault(doing: &str, error: &rocksdb::Error) -> Error {
    let kind = if error.as_ref().contains("No space left") { ErrorKind::NoSpace } else { ErrorKind::StorageFailed };
    Error::new(kind, format!("{doing}: {error}"))
}

fn open(options: &Options, directory: &Path, logged: bool) -> Result<RocksStore> {
    let what = format!("opening {}", directory.display());
    let db = DB::open(options, directory).map_err(|error| fault(&what, &error))?;
    Ok(RocksStore { db, logged })
}

impl RocksStore {
    /// Opens or creates a small store in `directory`, whose WAL is synced on every write.
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
        open(&options, directory, true)
    }
}

/// What the stores of all PK tables share.
pub struct TabletStores {
    cache: Cache,
    buffers: WriteBufferManager,
}

impl Default for TabletStores {
    fn default() -> Self {
        let cache = Cache::new_lru_cache(CACHE_BYTES);
        // Stalling one table's writers for another's buffers is not allowed.
        let buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(WRITE_BUFFERS_BYTES, false, cache.clone());
        Self { cache, buffers }
    }
}

impl TabletStores {
    /// Opens or creates the store of a PK table in `directory`. There is no WAL: the table's logs are it.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn open(&self, directory: &Path) -> Result<RocksStore> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&self.cache);
        blocks.set_bloom_filter(BLOOM_BITS, false);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_write_buffer_manager(&self.buffers);
        options.set_write_buffer_size(TABLET_BUFFER_BYTES);
        options.set_max_open_files(64);
        options.set_keep_log_file_num(2);
        options.set_max_background_jobs(2);
        options.set_paranoid_checks(true);
        std::fs::create_dir_all(directory)
            .map_err(|error| Error::io(format!("creating {}", directory.display()), &error))?;
        open(&options, directory, false)
    }
}

impl KvStore for RocksStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.db.get(key).map_err(|error| fault("reading a key", &error))
    }

    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let found = self.db.multi_get(keys);
        found.into_iter().map(|value| value.map_err(|error| fault("reading keys", &error))).collect()
    }

    fn visit(&self, prefixes: &[&[u8]], each: Visitor<'_>) -> Result<()> {
        let mut options = ReadOptions::default();
        // A scan of a whole table must not push out what lookups need.
        options.fill_cache(false);
        // One iterator is one moment.
        let mut iterator = self.db.raw_iterator_opt(options);
        for prefix in prefixes {
            iterator.seek(prefix);
            while let Some((key, value)) = iterator.item().filter(|(key, _)| key.starts_with(prefix)) {
                if !each(key, value) {
                    return Ok(());
                }
                iterator.next();
            }
            iterator.status().map_err(|error| fault("scanning keys", &error))?;
        }
        Ok(())
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
        options.set_sync(self.logged);
        options.disable_wal(!self.logged);
        self.db.write_opt(batch, &options).map_err(|error| fault("writing keys", &error))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(|error| fault("flushing keys", &error))
    }
}
