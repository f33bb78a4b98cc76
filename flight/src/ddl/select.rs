//! The one query there is: all columns of one table.

use super::cursor::Cursor;
use super::{DdlError, TableName};

/// `SELECT * FROM [database.]table [LIMIT n]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    /// The table.
    pub table: TableName,
    /// Rows at most.
    pub limit: Option<u64>,
}

/// Reads a [`Select`]; a semicolon may follow.
///
/// # Errors
/// [`DdlError`] for any other text.
pub fn parse_select(text: &str) -> Result<Select, DdlError> {
    let mut cursor = Cursor::new(text)?;
    cursor.keywords(&["SELECT"])?;
    cursor.symbol("*")?;
    cursor.keywords(&["FROM"])?;
    let table = cursor.table_name()?;
    let limit = if cursor.takes(&["LIMIT"]) { Some(cursor.number("a number of rows")?) } else { None };
    if !cursor.at_end() || cursor.next_statement() {
        return Err(cursor.expected("LIMIT or the end of the statement"));
    }
    Ok(Select { table, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_tables_are_read_and_nothing_else() {
        let named = |database: Option<&str>, table: &str, limit| Select {
            table: TableName { database: database.map(str::to_owned), table: table.to_owned() },
            limit,
        };
        assert_eq!(parse_select("SELECT * FROM t"), Ok(named(None, "t", None)));
        assert_eq!(parse_select(" select * from `a.b` limit 0 ;"), Ok(named(None, "a.b", Some(0))));
        assert_eq!(parse_select("Select *\nFrom \"default\".\"T\"\"x\""), Ok(named(Some("default"), "T\"x", None)));
        for other in [
            "",
            "SELECT 1",
            "SELECT a FROM t",
            "SELECT * FROM t WHERE a = 1",
            "SELECT * FROM t u",
            "SELECT * FROM t LIMIT -1",
            "SELECT * FROM t LIMIT 1.5",
            "SELECT * FROM t LIMIT 18446744073709551616",
            "SELECT * FROM t; SELECT * FROM t",
            "SELECT * FROM a.b.c",
            "SELECT * FROM 't'",
        ] {
            assert!(parse_select(other).is_err(), "{other}");
        }
    }
}
