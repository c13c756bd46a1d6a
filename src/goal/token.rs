//! A query as a row of tokens, as the engine that will run it reads them.
//!
//! The engines disagree on where a string or comment ends: PostgreSQL nests comments,
//! has dollar quotes and `E''`; SQLite has `[x]` and takes `$$` for a parameter. A
//! reader that got this wrong would let a second statement hide in what it takes for
//! a string, so the engine is an argument, and what either reads in two ways is
//! refused. Nothing here knows what a statement is; any text gives tokens or an error.

use super::Engine;
use super::text::At;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A bare word: keyword or name.
    Word,
    /// A quoted name; [`Token::name`] gives what is inside.
    Quoted,
    /// A string of any form.
    Text,
    /// A string whose backslashes escape.
    Escaped,
    /// A number.
    Number,
    /// `:name`.
    Param,
    /// One other character, or `::`.
    Symbol,
}

/// A piece of the text that is neither space nor comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl Token {
    /// The token as written.
    #[must_use]
    pub fn text<'a>(&self, source: &'a str) -> &'a str {
        source.get(self.start..self.end).unwrap_or_default()
    }

    /// A name in lower case, without its quotes.
    #[must_use]
    pub fn name(&self, source: &str) -> String {
        let text = self.text(source);
        match self.kind {
            Kind::Quoted => {
                let mut inside = text.chars();
                inside.next();
                inside.next_back();
                inside.as_str().replace("\"\"", "\"").to_lowercase()
            }
            _ => text.to_lowercase(),
        }
    }

    /// Whether it is this bare word (given in lower case).
    #[must_use]
    pub fn is(&self, source: &str, word: &str) -> bool {
        self.kind == Kind::Word && self.text(source).eq_ignore_ascii_case(word)
    }

    /// Whether it is this symbol.
    #[must_use]
    pub fn is_symbol(&self, source: &str, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text(source) == symbol
    }
}

/// The tokens of a text from an offset to its end.
///
/// # Errors
/// At the first string, quoted name or comment that does not end, and at characters that an engine would read
/// otherwise than this.
pub fn tokens(source: &str, from: usize, engine: Engine) -> Result<Vec<Token>, At> {
    let mut reader = Reader { source, at: from.min(source.len()), engine };
    let mut all = Vec::new();
    while let Some(token) = reader.next()? {
        let continues = all.last().is_some_and(|last: &Token| last.kind == Kind::Escaped);
        if continues && matches!(token.kind, Kind::Text | Kind::Escaped) {
            return Err(At::new(
                token.start,
                "a string right after an E'' string is read in two ways: join them with ||",
            ));
        }
        all.push(token);
    }
    Ok(all)
}

struct Reader<'a> {
    source: &'a str,
    at: usize,
    engine: Engine,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<Option<Token>, At> {
        self.skip_blank()?;
        let start = self.at;
        let Some(first) = self.peek(0) else { return Ok(None) };
        let kind = match first {
            b'\'' => self.until_quote(b'\'', false, "string")?,
            b'"' => self.until_quote(b'"', false, "quoted name")?,
            b'`' | b'[' if self.engine == Engine::Sqlite => self.sqlite_name(first)?,
            b'$' => self.dollar()?,
            b':' => self.colon(),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number(),
            _ if is_word_start(first) => self.word()?,
            b'#' if self.engine == Engine::Sqlite => {
                return Err(At::new(start, "a comment begins with --, and # means nothing here"));
            }
            b'?' | b'@' if self.engine == Engine::Sqlite => {
                return Err(At::new(
                    start,
                    "a parameter is written :name and declared with -- param: name = value",
                ));
            }
            _ => self.symbol()?,
        };
        Ok(Some(Token { kind, start, end: self.at }))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &[u8] {
        self.source.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn skip_blank(&mut self) -> Result<(), At> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => self.line_comment(),
                (Some(b'/'), Some(b'*')) => self.block_comment()?,
                _ => return Ok(()),
            }
        }
    }

    /// PostgreSQL ends it at a carriage return too, SQLite only at a line feed.
    fn line_comment(&mut self) {
        let postgres = self.engine == Engine::Postgres;
        while self.peek(0).is_some_and(|byte| byte != b'\n' && !(postgres && byte == b'\r')) {
            self.at += 1;
        }
    }

    fn block_comment(&mut self) -> Result<(), At> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) if depth == 0 || self.engine == Engine::Postgres => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (Some(_), _) => self.at += 1,
                (None, _) => return Err(At::new(start, "this comment does not end")),
            }
        }
    }

    fn until_quote(&mut self, quote: u8, escapes: bool, what: &str) -> Result<Kind, At> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                Some(b'\\') if escapes => self.at += 2,
                Some(byte) if byte == quote && self.peek(1) == Some(quote) => self.at += 2,
                Some(byte) if byte == quote => break,
                Some(_) => self.at += 1,
                None => return Err(At::new(start, format!("this {what} does not end"))),
            }
        }
        self.at += 1;
        Ok(match (quote, escapes) {
            (b'\'', true) => Kind::Escaped,
            (b'\'', false) => Kind::Text,
            _ => Kind::Quoted,
        })
    }

    fn sqlite_name(&mut self, open: u8) -> Result<Kind, At> {
        if open == b'`' {
            return self.until_quote(b'`', false, "quoted name");
        }
        let start = self.at;
        while self.peek(0).is_some_and(|byte| byte != b']') {
            self.at += 1;
        }
        if self.peek(0).is_none() {
            return Err(At::new(start, "this quoted name does not end"));
        }
        self.at += 1;
        Ok(Kind::Quoted)
    }

    /// `$tag$ … $tag$` on PostgreSQL; a raw `$1` belongs to this program, and on SQLite `$` begins a parameter.
    fn dollar(&mut self) -> Result<Kind, At> {
        let start = self.at;
        let tag_end = self.rest().iter().skip(1).position(|byte| !(is_word_part(*byte) && *byte != b'$'));
        let tag = tag_end.and_then(|end| self.rest().get(..end + 2)).unwrap_or_default();
        let is_quote = tag.ends_with(b"$") && !tag.get(1).is_some_and(u8::is_ascii_digit);
        if self.engine == Engine::Sqlite || !is_quote {
            let more = if is_quote { " (SQLite has no dollar quotes)" } else { "" };
            return Err(At::new(
                start,
                format!("a parameter is written :name and declared with -- param: name = value{more}"),
            ));
        }
        let inside = self.rest().get(tag.len()..).unwrap_or_default();
        let Some(length) = inside.windows(tag.len()).position(|window| window == tag) else {
            return Err(At::new(start, "this dollar-quoted string does not end"));
        };
        self.at += length + 2 * tag.len();
        Ok(Kind::Text)
    }

    fn colon(&mut self) -> Kind {
        self.at += 1;
        match self.peek(0) {
            Some(b':') => {
                self.at += 1;
                Kind::Symbol
            }
            Some(first) if is_word_start(first) => {
                while self.peek(0).is_some_and(|byte| is_word_part(byte) && byte != b'$') {
                    self.at += 1;
                }
                Kind::Param
            }
            _ => Kind::Symbol,
        }
    }

    fn number(&mut self) -> Kind {
        while let Some(byte) = self.peek(0) {
            let exponent = matches!(byte, b'e' | b'E')
                && matches!(self.peek(1), Some(b'+' | b'-'))
                && self.peek(2).is_some_and(|digit| digit.is_ascii_digit());
            match byte {
                _ if exponent => self.at += 2,
                b'.' => self.at += 1,
                _ if is_word_part(byte) && byte != b'$' => self.at += 1,
                _ => break,
            }
        }
        Kind::Number
    }

    fn word(&mut self) -> Result<Kind, At> {
        let start = self.at;
        while self.peek(0).is_some_and(is_word_part) {
            self.at += 1;
        }
        if self.engine == Engine::Sqlite {
            return Ok(Kind::Word);
        }
        let word = &self.source.as_bytes()[start..self.at];
        match (word, self.peek(0), self.peek(1)) {
            (b"e" | b"E", Some(b'\''), _) => self.until_quote(b'\'', true, "string"),
            (b"u" | b"U", Some(b'&'), Some(b'\'' | b'"')) => {
                Err(At::new(start, "U& strings and names are not admitted: write the characters themselves"))
            }
            _ => Ok(Kind::Word),
        }
    }

    fn symbol(&mut self) -> Result<Kind, At> {
        if self.peek(0).is_some_and(|byte| byte.is_ascii_control()) {
            return Err(At::new(self.at, "a control character is not admitted here"));
        }
        self.at += 1;
        Ok(Kind::Symbol)
    }
}

/// Both engines take every byte beyond ASCII for a letter.
const fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

const fn is_word_part(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit() || byte == b'$'
}
