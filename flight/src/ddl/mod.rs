//! Flink's DDL as Fluss documents it: texts to statements over [`TableDescriptor`].
//!
//! Recursive descent without recursion: nothing in this grammar nests. What is no DDL of ours comes
//! back as [`Statement::Query`]. Keywords are of any case; names are case-sensitive and may be in back
//! quotes or double quotes; strings are in single quotes; a quote within is doubled.
//!
//! [`TableDescriptor`]: sluice_engine::catalog::descriptor::TableDescriptor

mod cursor;
mod lexer;
mod statement;
mod table;
mod types;

use std::fmt;

use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::{Error, ErrorKind};

use cursor::Cursor;
pub use statement::{Pairs, Statement, TableName};

/// Why a text is no statement, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DdlError {
    /// `InvalidArgument`, or `Unsupported` for what Flink has and this server lacks.
    pub kind: ErrorKind,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What was expected.
    pub message: String,
}

impl DdlError {
    fn at(text: &str, offset: usize, kind: ErrorKind, message: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        Self { kind, line: before.matches('\n').count() + 1, column, message: message.into() }
    }
}

impl fmt::Display for DdlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for DdlError {}

impl From<DdlError> for Error {
    fn from(error: DdlError) -> Self {
        Self::new(error.kind, error.to_string())
    }
}

/// The one statement of a text; semicolons around it are ignored.
///
/// # Errors
/// [`DdlError`] for a text of no statement or several, and for one that breaks the grammar.
pub fn parse(text: &str) -> Result<Statement, DdlError> {
    let mut cursor = Cursor::new(text)?;
    if !cursor.next_statement() {
        return Err(cursor.expected("a statement"));
    }
    let parsed = statement(&mut cursor)?;
    if cursor.next_statement() {
        return Err(cursor.expected("the end after one statement"));
    }
    Ok(parsed)
}

/// The columns and constraints between the parentheses of CREATE TABLE, alone.
///
/// # Errors
/// [`DdlError`] for a text that breaks the grammar.
pub fn parse_columns(text: &str) -> Result<TableDescriptor, DdlError> {
    table::columns(&mut Cursor::new(text)?)
}

/// The statements of a script; errors have their place in the whole of it.
///
/// # Errors
/// [`DdlError`] for the first statement that breaks the grammar.
pub fn parse_script(text: &str) -> Result<Vec<Statement>, DdlError> {
    let mut cursor = Cursor::new(text)?;
    let mut statements = Vec::new();
    while cursor.next_statement() {
        statements.push(statement(&mut cursor)?);
    }
    Ok(statements)
}

/// The texts of a script's statements, without semicolons and without the blanks and comments around
/// them. Semicolons in strings, quoted names and comments part nothing.
///
/// # Errors
/// [`DdlError`] for a string, quoted name or comment that is not closed.
pub fn split_statements(text: &str) -> Result<Vec<&str>, DdlError> {
    let mut cursor = Cursor::new(text)?;
    let mut pieces = Vec::new();
    while cursor.next_statement() {
        let start = cursor.offset();
        pieces.push(cursor.rest_from(start));
    }
    Ok(pieces)
}

fn statement(cursor: &mut Cursor<'_>) -> Result<Statement, DdlError> {
    let start = cursor.offset();
    let parsed = match ddl(cursor)? {
        Some(parsed) => parsed,
        None => Statement::Query(cursor.rest_from(start).to_owned()),
    };
    if cursor.at_end() { Ok(parsed) } else { Err(cursor.expected("';' or the end of the statement")) }
}

/// A statement of ours; `None` where it is none, with nothing taken.
fn ddl(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, DdlError> {
    let parsed = if cursor.takes(&["CREATE", "TABLE"]) {
        table::create_table(cursor)?
    } else if cursor.takes(&["CREATE", "DATABASE"]) {
        create_database(cursor)?
    } else if cursor.takes(&["DROP", "TABLE"]) {
        Statement::DropTable { if_exists: cursor.if_exists()?, name: cursor.table_name()? }
    } else if cursor.takes(&["DROP", "DATABASE"]) {
        drop_database(cursor)?
    } else if cursor.takes(&["ALTER", "TABLE"]) {
        alter_table(cursor)?
    } else if cursor.takes(&["USE", "CATALOG"]) {
        Statement::UseCatalog(cursor.name("a catalog's name")?)
    } else if cursor.takes(&["USE"]) {
        Statement::UseDatabase(cursor.name("a database's name")?)
    } else if cursor.takes(&["DESCRIBE"]) || cursor.takes(&["DESC"]) {
        Statement::Describe(cursor.table_name()?)
    } else {
        return show(cursor);
    };
    Ok(Some(parsed))
}

fn create_database(cursor: &mut Cursor<'_>) -> Result<Statement, DdlError> {
    let if_not_exists = cursor.if_not_exists()?;
    let name = cursor.name("a database's name")?;
    let comment = if cursor.takes(&["COMMENT"]) { Some(cursor.string("a comment in single quotes")?) } else { None };
    let properties = if cursor.takes(&["WITH"]) { cursor.properties()? } else { Vec::new() };
    Ok(Statement::CreateDatabase { name, if_not_exists, comment, properties })
}

fn drop_database(cursor: &mut Cursor<'_>) -> Result<Statement, DdlError> {
    let if_exists = cursor.if_exists()?;
    let name = cursor.name("a database's name")?;
    let cascade = cursor.takes(&["CASCADE"]);
    if !cascade {
        cursor.takes(&["RESTRICT"]);
    }
    Ok(Statement::DropDatabase { name, if_exists, cascade })
}

fn alter_table(cursor: &mut Cursor<'_>) -> Result<Statement, DdlError> {
    let table = cursor.table_name()?;
    if cursor.takes(&["ADD"]) {
        let if_not_exists = cursor.if_not_exists()?;
        if if_not_exists || cursor.sees(&["PARTITION"]) {
            cursor.keywords(&["PARTITION"])?;
            return Ok(Statement::AddPartition { table, if_not_exists, partition: cursor.partition()? });
        }
        return Ok(Statement::AddColumns { table, columns: table::added_columns(cursor)? });
    }
    if cursor.sees(&["DROP", "PARTITION"]) || cursor.sees(&["DROP", "IF"]) {
        cursor.keywords(&["DROP"])?;
        let if_exists = cursor.if_exists()?;
        cursor.keywords(&["PARTITION"])?;
        return Ok(Statement::DropPartition { table, if_exists, partition: cursor.partition()? });
    }
    for (word, what) in [("DROP", "dropping a column"), ("RENAME", "renaming"), ("MODIFY", "modifying a column")] {
        if cursor.sees(&[word]) {
            let what = format!("{what} is not offered: a table's columns are only ever added to");
            return Err(cursor.fault(cursor.offset(), ErrorKind::Unsupported, what));
        }
    }
    if cursor.takes(&["SET"]) {
        return Ok(Statement::SetOptions { table, options: cursor.properties()? });
    }
    if cursor.takes(&["RESET"]) {
        let options = cursor.list(|cursor| cursor.string("a key in single quotes"))?;
        return Ok(Statement::ResetOptions { table, options });
    }
    Err(cursor.expected("ADD, ADD PARTITION, DROP PARTITION, SET or RESET"))
}

fn show(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, DdlError> {
    let parsed = if cursor.takes(&["SHOW", "DATABASES"]) {
        Statement::ShowDatabases { like: like(cursor)? }
    } else if cursor.takes(&["SHOW", "TABLES"]) {
        let named = cursor.takes(&["FROM"]) || cursor.takes(&["IN"]);
        let database = if named { Some(cursor.name("a database's name")?) } else { None };
        Statement::ShowTables { database, like: like(cursor)? }
    } else if cursor.takes(&["SHOW", "PARTITIONS"]) {
        Statement::ShowPartitions(cursor.table_name()?)
    } else if cursor.takes(&["SHOW", "CREATE", "TABLE"]) {
        Statement::ShowCreateTable(cursor.table_name()?)
    } else {
        return Ok(None);
    };
    Ok(Some(parsed))
}

fn like(cursor: &mut Cursor<'_>) -> Result<Option<String>, DdlError> {
    if cursor.takes(&["LIKE"]) { cursor.string("a pattern in single quotes").map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests;
