//! A place among the tokens of a text, and the small pieces that every statement is made of.

use sluice_engine::ErrorKind;

use super::DdlError;
use super::lexer::{Kind, Token, tokens, unquoted};
use super::statement::{Pairs, TableName};

/// The parser's place in a text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
}

type Parsed<T> = Result<T, DdlError>;

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Parsed<Self> {
        Ok(Self { text, tokens: tokens(text)?, at: 0 })
    }

    fn ahead(&self, count: usize) -> Token {
        let end = Token { kind: Kind::End, start: self.text.len(), end: self.text.len() };
        self.tokens.get(self.at + count).copied().unwrap_or(end)
    }

    fn raw(&self, token: Token) -> &'a str {
        self.text.get(token.start..token.end).unwrap_or_default()
    }

    /// Where the next token begins, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.ahead(0).start
    }

    /// Goes back to, or on to, the first token at or after an offset.
    pub(super) fn seek(&mut self, offset: usize) {
        self.at = self.tokens.partition_point(|token| token.start < offset);
    }

    pub(super) fn fault(&self, offset: usize, kind: ErrorKind, message: impl Into<String>) -> DdlError {
        DdlError::at(self.text, offset, kind, message)
    }

    /// The error that the next token is not what was expected.
    pub(super) fn expected(&self, what: &str) -> DdlError {
        let token = self.ahead(0);
        let found = match token.kind {
            Kind::End => "the end of the statement".to_owned(),
            _ if self.raw(token) == ";" => "the end of the statement".to_owned(),
            Kind::Text | Kind::Quoted => self.raw(token).to_owned(),
            _ => format!("'{}'", self.raw(token)),
        };
        self.fault(token.start, ErrorKind::InvalidArgument, format!("expected {what}, found {found}"))
    }

    /// Whether the tokens `count` ahead are these keywords.
    pub(super) fn sees(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(place, word)| {
            let token = self.ahead(place);
            token.kind == Kind::Word && self.raw(token).eq_ignore_ascii_case(word)
        })
    }

    /// Takes these keywords if all of them are next.
    pub(super) fn takes(&mut self, words: &[&str]) -> bool {
        let seen = self.sees(words);
        if seen {
            self.at += words.len();
        }
        seen
    }

    pub(super) fn keywords(&mut self, words: &[&str]) -> Parsed<()> {
        for word in words {
            if !self.takes(&[word]) {
                return Err(self.expected(word));
            }
        }
        Ok(())
    }

    pub(super) fn sees_symbol(&self, symbol: &str) -> bool {
        self.ahead(0).kind == Kind::Symbol && self.raw(self.ahead(0)) == symbol
    }

    pub(super) fn takes_symbol(&mut self, symbol: &str) -> bool {
        let seen = self.sees_symbol(symbol);
        self.at += usize::from(seen);
        seen
    }

    pub(super) fn symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.takes_symbol(symbol) { Ok(()) } else { Err(self.expected(&format!("'{symbol}'"))) }
    }

    /// Takes a token of `kind`, as it is written.
    fn token(&mut self, kind: Kind, what: &str) -> Parsed<&'a str> {
        let token = self.ahead(0);
        if token.kind != kind {
            return Err(self.expected(what));
        }
        self.at += 1;
        Ok(self.raw(token))
    }

    pub(super) fn word(&mut self, what: &str) -> Parsed<&'a str> {
        self.token(Kind::Word, what)
    }

    pub(super) fn name(&mut self, what: &str) -> Parsed<String> {
        match self.ahead(0).kind {
            Kind::Quoted => self.token(Kind::Quoted, what).map(unquoted),
            _ => self.token(Kind::Word, what).map(str::to_owned),
        }
    }

    pub(super) fn string(&mut self, what: &str) -> Parsed<String> {
        self.token(Kind::Text, what).map(unquoted)
    }

    /// A whole number that fits.
    pub(super) fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        let offset = self.offset();
        let raw = self.token(Kind::Number, what)?;
        let message = || format!("expected {what}, found '{raw}'");
        raw.parse().map_err(|_| self.fault(offset, ErrorKind::InvalidArgument, message()))
    }

    /// `(item, …)`, at least one.
    pub(super) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.symbol("(")?;
        let mut items = vec![item(self)?];
        while self.takes_symbol(",") {
            items.push(item(self)?);
        }
        if !self.takes_symbol(")") {
            return Err(self.expected("',' or ')'"));
        }
        Ok(items)
    }

    pub(super) fn names(&mut self, what: &str) -> Parsed<Vec<String>> {
        self.list(|cursor| cursor.name(what))
    }

    /// `[database.]table`
    pub(super) fn table_name(&mut self) -> Parsed<TableName> {
        let first = self.name("a table's name")?;
        if !self.takes_symbol(".") {
            return Ok(TableName { database: None, table: first });
        }
        Ok(TableName { database: Some(first), table: self.name("a table's name")? })
    }

    pub(super) fn if_not_exists(&mut self) -> Parsed<bool> {
        let given = self.takes(&["IF"]);
        if given {
            self.keywords(&["NOT", "EXISTS"])?;
        }
        Ok(given)
    }

    pub(super) fn if_exists(&mut self) -> Parsed<bool> {
        let given = self.takes(&["IF"]);
        if given {
            self.keywords(&["EXISTS"])?;
        }
        Ok(given)
    }

    /// Pairs whose names are each given once.
    fn pairs(&mut self, mut pair: impl FnMut(&mut Self) -> Parsed<(String, String)>) -> Parsed<Pairs> {
        let mut seen = std::collections::HashSet::new();
        self.list(|cursor| {
            let offset = cursor.offset();
            let (name, value) = pair(cursor)?;
            if !seen.insert(name.clone()) {
                return Err(cursor.fault(offset, ErrorKind::InvalidArgument, format!("'{name}' is given twice")));
            }
            Ok((name, value))
        })
    }

    /// `('key' = 'value', …)`; `take` may refuse a pair, and its error then has the key's place.
    pub(super) fn properties_into(
        &mut self,
        mut take: impl FnMut(&str, &str) -> sluice_engine::Result<()>,
    ) -> Parsed<Pairs> {
        self.pairs(|cursor| {
            let offset = cursor.offset();
            let key = cursor.string("a key in single quotes")?;
            cursor.symbol("=")?;
            let value = cursor.string("a value in single quotes")?;
            take(&key, &value).map_err(|error| cursor.fault(offset, error.kind, error.message))?;
            Ok((key, value))
        })
    }

    /// `('key' = 'value', …)`
    pub(super) fn properties(&mut self) -> Parsed<Pairs> {
        self.properties_into(|_, _| Ok(()))
    }

    /// `(column = value, …)` of a partition.
    pub(super) fn partition(&mut self) -> Parsed<Pairs> {
        self.pairs(|cursor| {
            let column = cursor.name("a partition column")?;
            cursor.symbol("=")?;
            Ok((column, cursor.partition_value()?))
        })
    }

    /// A string, a number, TRUE or FALSE, as text.
    fn partition_value(&mut self) -> Parsed<String> {
        let what = "a partition's value";
        if self.takes_symbol("-") {
            return Ok(format!("-{}", self.token(Kind::Number, what)?));
        }
        match self.ahead(0).kind {
            Kind::Number => self.token(Kind::Number, what).map(str::to_owned),
            Kind::Word if self.sees(&["TRUE"]) || self.sees(&["FALSE"]) => self.word(what).map(str::to_ascii_lowercase),
            _ => self.string(what),
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.sees_end() || self.sees_symbol(";")
    }

    /// Whether the text is over.
    pub(super) fn sees_end(&self) -> bool {
        self.ahead(0).kind == Kind::End
    }

    /// Moves to the end of the statement and gives the text from `start` to there.
    pub(super) fn rest_from(&mut self, start: usize) -> &'a str {
        while !self.at_end() {
            self.at += 1;
        }
        let end = self.tokens.get(self.at.wrapping_sub(1)).map_or(start, |token| token.end.max(start));
        self.text.get(start..end).unwrap_or_default()
    }

    /// Moves past semicolons; false at the end of the text.
    pub(super) fn next_statement(&mut self) -> bool {
        while self.takes_symbol(";") {}
        !self.at_end()
    }
}
