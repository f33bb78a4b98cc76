//! What a statement asks for.

use std::fmt;

use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::row::ColumnSpec;

/// A table's name as a statement gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// Its database; the session's where `None`.
    pub database: Option<String>,
    /// Its name in the database.
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.database {
            Some(database) => write!(f, "{database}.{}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

/// Names and values in the order they were written: a partition's columns, or options.
pub type Pairs = Vec<(String, String)>;

/// A statement. Nothing is checked but its grammar: names, types and options are the catalog's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `CREATE DATABASE [IF NOT EXISTS] d [COMMENT '…'] [WITH (…)]`
    CreateDatabase {
        /// The database.
        name: String,
        /// Whether one that exists is left as it is.
        if_not_exists: bool,
        /// What people say about it.
        comment: Option<String>,
        /// Its attributes.
        properties: Pairs,
    },
    /// `DROP DATABASE [IF EXISTS] d [RESTRICT | CASCADE]`
    DropDatabase {
        /// The database.
        name: String,
        /// Whether a missing one is no error.
        if_exists: bool,
        /// Whether its tables go with it.
        cascade: bool,
    },
    /// `USE d`
    UseDatabase(String),
    /// `USE CATALOG c`
    UseCatalog(String),
    /// `CREATE TABLE [IF NOT EXISTS] t (…) …`
    CreateTable {
        /// The table.
        name: TableName,
        /// Whether one that exists is left as it is.
        if_not_exists: bool,
        /// What it is to be.
        table: Box<TableDescriptor>,
    },
    /// `DROP TABLE [IF EXISTS] t`
    DropTable {
        /// The table.
        name: TableName,
        /// Whether a missing one is no error.
        if_exists: bool,
    },
    /// `ALTER TABLE t ADD [IF NOT EXISTS] PARTITION (k = 'v', …)`
    AddPartition {
        /// The table.
        table: TableName,
        /// Whether one that exists is left as it is.
        if_not_exists: bool,
        /// Partition columns and their values.
        partition: Pairs,
    },
    /// `ALTER TABLE t ADD [COLUMN] c …` or `ADD (c …, …)`
    AddColumns {
        /// The table.
        table: TableName,
        /// The columns, in order.
        columns: Vec<ColumnSpec>,
    },
    /// `ALTER TABLE t DROP [IF EXISTS] PARTITION (k = 'v', …)`
    DropPartition {
        /// The table.
        table: TableName,
        /// Whether a missing one is no error.
        if_exists: bool,
        /// Partition columns and their values.
        partition: Pairs,
    },
    /// `ALTER TABLE t SET ('k' = 'v', …)`
    SetOptions {
        /// The table.
        table: TableName,
        /// Options and their new values.
        options: Pairs,
    },
    /// `ALTER TABLE t RESET ('k', …)`
    ResetOptions {
        /// The table.
        table: TableName,
        /// Options that get their defaults back.
        options: Vec<String>,
    },
    /// `SHOW DATABASES [LIKE '…']`
    ShowDatabases {
        /// Pattern of SQL's LIKE.
        like: Option<String>,
    },
    /// `SHOW TABLES [FROM | IN d] [LIKE '…']`
    ShowTables {
        /// The database; the session's where `None`.
        database: Option<String>,
        /// Pattern of SQL's LIKE.
        like: Option<String>,
    },
    /// `SHOW PARTITIONS t`
    ShowPartitions(TableName),
    /// `SHOW CREATE TABLE t`
    ShowCreateTable(TableName),
    /// `DESCRIBE t`
    Describe(TableName),
    /// Anything else, as it was written: the SQL engine's.
    Query(String),
}
