//! R2: rows of many PK tables in RocksDB without a WAL: a database for each table against a column family for each, in
//! one database. `cargo bench --bench r2_stores [TABLES] [BUCKETS]`; docs/decisions/0005 has the figures.

use std::path::Path;
use std::time::{Duration, Instant};

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, Options, WriteBatch, WriteBufferManager, WriteOptions,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROWS: u32 = 100;

fn options(cache: &Cache, buffers: &WriteBufferManager) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_manager(buffers);
    options.set_write_buffer_size(32 << 20);
    options.set_max_open_files(64);
    options
}

fn unlogged() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

fn row(bucket: u32, row: u32) -> (Vec<u8>, Vec<u8>) {
    ([&[0x20], bucket.to_be_bytes().as_slice(), &row.to_be_bytes()].concat(), vec![b'v'; 100])
}

/// Resident memory of this process, MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn files(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

struct Figures {
    open: Duration,
    write: Duration,
    flush: Duration,
    reopen: Duration,
    drop_one: Duration,
    memory: f64,
    files: usize,
}

fn databases(directory: &Path, tables: u32, buckets: u32) -> Outcome<Figures> {
    let cache = Cache::new_lru_cache(256 << 20);
    let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(128 << 20, false, cache.clone());
    let before = resident();
    let place = |table: u32| directory.join(table.to_string());
    let open_all = || -> Outcome<Vec<DB>> {
        (0..tables).map(|table| Ok(DB::open(&options(&cache, &buffers), place(table))?)).collect()
    };
    let from = Instant::now();
    let stores = open_all()?;
    let open = from.elapsed();
    let from = Instant::now();
    for store in &stores {
        for bucket in 0..buckets {
            let mut batch = WriteBatch::default();
            (0..ROWS).map(|at| row(bucket, at)).for_each(|(key, value)| batch.put(key, value));
            store.write_opt(batch, &unlogged())?;
        }
    }
    let write = from.elapsed();
    let from = Instant::now();
    stores.iter().try_for_each(DB::flush)?;
    let flush = from.elapsed();
    drop(stores);
    let from = Instant::now();
    let mut stores = open_all()?;
    let reopen = from.elapsed();
    let (memory, files) = (resident() - before, files(directory));
    let from = Instant::now();
    drop(stores.pop());
    std::fs::remove_dir_all(place(tables - 1))?;
    let drop_one = from.elapsed();
    Ok(Figures { open, write, flush, reopen, drop_one, memory, files })
}

fn families(directory: &Path, tables: u32, buckets: u32) -> Outcome<Figures> {
    let cache = Cache::new_lru_cache(256 << 20);
    let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(128 << 20, false, cache.clone());
    let before = resident();
    let name = |table: u32| format!("t{table}");
    let open_all = || -> Outcome<DB> {
        let families = (0..tables).map(|table| ColumnFamilyDescriptor::new(name(table), options(&cache, &buffers)));
        Ok(DB::open_cf_descriptors(&options(&cache, &buffers), directory, families)?)
    };
    let from = Instant::now();
    let store = open_all()?;
    let open = from.elapsed();
    let from = Instant::now();
    for table in 0..tables {
        let family = store.cf_handle(&name(table)).ok_or("no column family")?;
        for bucket in 0..buckets {
            let mut batch = WriteBatch::default();
            (0..ROWS).map(|at| row(bucket, at)).for_each(|(key, value)| batch.put_cf(&family, key, value));
            store.write_opt(batch, &unlogged())?;
        }
    }
    let write = from.elapsed();
    let from = Instant::now();
    for table in 0..tables {
        store.flush_cf(&store.cf_handle(&name(table)).ok_or("no column family")?)?;
    }
    let flush = from.elapsed();
    drop(store);
    let from = Instant::now();
    let mut store = open_all()?;
    let reopen = from.elapsed();
    let (memory, files) = (resident() - before, files(directory));
    let from = Instant::now();
    store.drop_cf(&name(tables - 1))?;
    let drop_one = from.elapsed();
    Ok(Figures { open, write, flush, reopen, drop_one, memory, files })
}

type Run = fn(&Path, u32, u32) -> Outcome<Figures>;

fn main() -> Outcome<()> {
    let numbers: Vec<u32> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let (tables, buckets) = (numbers.first().copied().unwrap_or(300), numbers.get(1).copied().unwrap_or(10));
    println!("{tables} tables, {buckets} buckets of {ROWS} rows each");
    println!(
        "{:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "", "create", "write", "flush", "open", "drop one", "MB", "files"
    );
    let kinds: [(&str, Run); 2] = [("a database for each", databases), ("a column family each", families)];
    for (what, run) in kinds {
        let directory = tempfile::tempdir()?;
        let figures = run(directory.path(), tables, buckets)?;
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        println!(
            "{what:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9.0} {:>7}",
            ms(figures.open),
            ms(figures.write),
            ms(figures.flush),
            ms(figures.reopen),
            ms(figures.drop_one),
            figures.memory,
            figures.files
        );
    }
    Ok(())
}
