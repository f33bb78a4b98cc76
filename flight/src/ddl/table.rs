//! CREATE TABLE.

use sluice_engine::ErrorKind;
use sluice_engine::catalog::descriptor::TableDescriptor;
use sluice_engine::row::ColumnSpec;

use super::DdlError;
use super::cursor::Cursor;
use super::statement::Statement;
use super::types::data_type;

type Parsed<T> = Result<T, DdlError>;

/// What follows `CREATE TABLE`.
pub(super) fn create_table(cursor: &mut Cursor<'_>) -> Parsed<Statement> {
    let if_not_exists = cursor.if_not_exists()?;
    let name = cursor.table_name()?;
    let mut table = TableDescriptor::default();
    cursor.list(|cursor| element(cursor, &mut table))?;
    while !cursor.at_end() {
        clause(cursor, &mut table)?;
    }
    Ok(Statement::CreateTable { name, if_not_exists, table: Box::new(table) })
}

/// What stands between the parentheses, to the end of the text.
pub(super) fn columns(cursor: &mut Cursor<'_>) -> Parsed<TableDescriptor> {
    let mut table = TableDescriptor::default();
    element(cursor, &mut table)?;
    while cursor.takes_symbol(",") {
        element(cursor, &mut table)?;
    }
    if cursor.sees_end() { Ok(table) } else { Err(cursor.expected("',' or the end")) }
}

/// What follows `ALTER TABLE t ADD`: one column, or several between parentheses. They go to the end (table-model §16).
pub(super) fn added_columns(cursor: &mut Cursor<'_>) -> Parsed<Vec<ColumnSpec>> {
    let mut added = TableDescriptor::default();
    if cursor.sees_symbol("(") {
        cursor.list(|cursor| added_column(cursor, &mut added))?;
        return Ok(added.columns);
    }
    cursor.takes(&["COLUMN"]);
    added_column(cursor, &mut added)?;
    Ok(added.columns)
}

fn added_column(cursor: &mut Cursor<'_>, added: &mut TableDescriptor) -> Parsed<()> {
    let start = cursor.offset();
    column(cursor, added)?;
    let refused = |at: usize, what: &str| Err(cursor.fault(at, ErrorKind::InvalidArgument, what));
    if !added.primary_key.is_empty() {
        return refused(start, "a column that is added cannot be the primary key");
    }
    if cursor.sees(&["FIRST"]) || cursor.sees(&["AFTER"]) {
        return refused(cursor.offset(), "a column can be added at the end only");
    }
    Ok(())
}

/// A column, or a constraint of the table. A column may be called `primary` or `constraint`: its type
/// then tells it from the keyword.
fn element(cursor: &mut Cursor<'_>, table: &mut TableDescriptor) -> Parsed<()> {
    if cursor.takes(&["PRIMARY", "KEY"]) {
        return table_key(cursor, table);
    }
    if cursor.sees(&["WATERMARK", "FOR"]) || cursor.sees(&["LIKE"]) || cursor.sees(&["UNIQUE"]) {
        return Err(unsupported(cursor, "this clause"));
    }
    let start = cursor.offset();
    if cursor.takes(&["CONSTRAINT"]) {
        cursor.name("a constraint's name")?;
        if cursor.takes(&["PRIMARY", "KEY"]) {
            return table_key(cursor, table);
        }
        cursor.seek(start);
    }
    column(cursor, table)
}

fn unsupported(cursor: &Cursor<'_>, what: &str) -> DdlError {
    cursor.fault(cursor.offset(), ErrorKind::Unsupported, format!("{what} is not offered by this server"))
}

fn table_key(cursor: &mut Cursor<'_>, table: &mut TableDescriptor) -> Parsed<()> {
    let offset = cursor.offset();
    let key = cursor.names("a column's name")?;
    set_key(cursor, offset, table, key)
}

fn set_key(cursor: &mut Cursor<'_>, offset: usize, table: &mut TableDescriptor, key: Vec<String>) -> Parsed<()> {
    if !table.primary_key.is_empty() {
        return Err(cursor.fault(offset, ErrorKind::InvalidArgument, "a second primary key; expected at most one"));
    }
    table.primary_key = key;
    if cursor.takes(&["NOT"]) {
        cursor.keywords(&["ENFORCED"])?;
    }
    Ok(())
}

fn column(cursor: &mut Cursor<'_>, table: &mut TableDescriptor) -> Parsed<()> {
    let name = cursor.name("a column's name")?;
    if cursor.sees(&["AS"]) {
        return Err(unsupported(cursor, "a computed column"));
    }
    let data_type = data_type(cursor)?;
    let mut column = ColumnSpec { name, data_type, nullable: true, comment: None };
    while column_clause(cursor, &mut column, table)? {}
    table.columns.push(column);
    Ok(())
}

/// One clause after a column's type; false where there is none.
fn column_clause(cursor: &mut Cursor<'_>, column: &mut ColumnSpec, table: &mut TableDescriptor) -> Parsed<bool> {
    let offset = cursor.offset();
    if cursor.takes(&["NOT"]) {
        cursor.keywords(&["NULL"])?;
        column.nullable = false;
    } else if cursor.takes(&["NULL"]) {
        column.nullable = true;
    } else if cursor.takes(&["COMMENT"]) {
        column.comment = Some(cursor.string("a comment in single quotes")?);
    } else if cursor.takes(&["CONSTRAINT"]) {
        cursor.name("a constraint's name")?;
        cursor.keywords(&["PRIMARY", "KEY"])?;
        set_key(cursor, offset, table, vec![column.name.clone()])?;
    } else if cursor.takes(&["PRIMARY"]) {
        cursor.keywords(&["KEY"])?;
        set_key(cursor, offset, table, vec![column.name.clone()])?;
    } else if cursor.sees(&["METADATA"]) || cursor.sees(&["DEFAULT"]) || cursor.sees(&["UNIQUE"]) {
        return Err(unsupported(cursor, "this clause"));
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// One clause after the columns; each at most once, in any order.
fn clause(cursor: &mut Cursor<'_>, table: &mut TableDescriptor) -> Parsed<()> {
    if table.comment.is_none() && cursor.takes(&["COMMENT"]) {
        table.comment = Some(cursor.string("a comment in single quotes")?);
    } else if table.partition_keys.is_empty() && cursor.takes(&["PARTITIONED"]) {
        cursor.keywords(&["BY"])?;
        table.partition_keys = cursor.names("a partition column")?;
    } else if table.bucket_key.is_empty() && table.buckets.is_none() && cursor.takes(&["DISTRIBUTED"]) {
        distribution(cursor, table)?;
    } else if cursor.takes(&["WITH"]) {
        cursor.properties_into(|key, value| table.set(key, value))?;
    } else if cursor.sees(&["AS"]) || cursor.sees(&["LIKE"]) {
        return Err(unsupported(cursor, "CREATE TABLE from a query or another table"));
    } else {
        return Err(cursor.expected("COMMENT, PARTITIONED BY, DISTRIBUTED BY, WITH or ';', each once"));
    }
    Ok(())
}

/// `BY [HASH] (…) [INTO n BUCKETS]` or `INTO n BUCKETS`
fn distribution(cursor: &mut Cursor<'_>, table: &mut TableDescriptor) -> Parsed<()> {
    let keyed = cursor.takes(&["BY"]);
    if keyed {
        if cursor.sees(&["RANGE"]) {
            return Err(unsupported(cursor, "distribution by range"));
        }
        cursor.takes(&["HASH"]);
        table.bucket_key = cursor.names("a bucket key column")?;
    }
    if !keyed || cursor.sees(&["INTO"]) {
        cursor.keywords(&["INTO"])?;
        table.buckets = Some(cursor.number("a number of buckets")?);
        cursor.keywords(&["BUCKETS"])?;
    }
    Ok(())
}
