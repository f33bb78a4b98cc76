//! Splits SQL into tokens that know where they are.

use sluice_engine::ErrorKind;

use super::DdlError;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A bare word: a keyword or a name.
    Word,
    /// A name in back quotes or double quotes.
    Quoted,
    /// A string in single quotes.
    Text,
    /// A number without sign.
    Number,
    /// Any other character.
    Symbol,
    /// The end of the text.
    End,
}

/// A token: its kind and the bytes it takes in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// The tokens of `text`, with [`Kind::End`] as the last. Comments are left out.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, DdlError> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let token = lexer.token()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

/// What a quoted token holds: without its quotes, and each doubled quote once.
pub(super) fn unquoted(raw: &str) -> String {
    let mut chars = raw.chars();
    let Some(quote) = chars.next() else { return String::new() };
    chars.next_back();
    let doubled: String = [quote, quote].iter().collect();
    chars.as_str().replace(&doubled, &quote.to_string())
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, at: usize, message: &str) -> DdlError {
        DdlError::at(self.text, at, ErrorKind::InvalidArgument, message)
    }

    fn skip_while(&mut self, matches: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !matches(c)).unwrap_or(rest.len());
    }

    fn skip_blanks(&mut self) -> Result<(), DdlError> {
        loop {
            self.skip_while(char::is_whitespace);
            if self.rest().starts_with("--") {
                self.skip_while(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                let Some(length) = self.rest().find("*/") else {
                    return Err(self.error(self.at, "this comment is not closed; expected '*/'"));
                };
                self.at += length + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token, DdlError> {
        let start = self.at;
        let kind = match self.rest().chars().next() {
            None => Kind::End,
            Some(quote @ ('\'' | '`' | '"')) => {
                self.quoted(quote)?;
                if quote == '\'' { Kind::Text } else { Kind::Quoted }
            }
            Some(c) if is_word_start(c) => {
                self.skip_while(is_word);
                Kind::Word
            }
            Some(c) if c.is_ascii_digit() => {
                self.skip_while(|c| c.is_ascii_alphanumeric() || c == '.');
                Kind::Number
            }
            Some(c) => {
                self.at += c.len_utf8();
                Kind::Symbol
            }
        };
        Ok(Token { kind, start, end: self.at })
    }

    /// Moves past a quoted token; a doubled quote is part of it.
    fn quoted(&mut self, quote: char) -> Result<(), DdlError> {
        let start = self.at;
        self.at += 1;
        loop {
            let Some(length) = self.rest().find(quote) else {
                return Err(self.error(start, &format!("this text is not closed; expected {quote}")));
            };
            self.at += length + 1;
            if !self.rest().starts_with(quote) {
                return Ok(());
            }
            self.at += 1;
        }
    }
}
