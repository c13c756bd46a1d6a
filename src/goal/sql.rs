//! Admits one reading statement, and puts bound values in the place of names.
//!
//! What comes out is a [`Query`]: text with `$1`, `$2`, …, what each is bound to, and
//! the way back from an engine's position to the file's. It promises exactly one
//! statement, a SELECT or a WITH that ends in a SELECT, with balanced parentheses, so
//! that it may be put into parentheses as a whole. It does not know tables or columns:
//! the real engine's PREPARE judges those.

use super::Engine;
use super::functions;
use super::text::{At, nearest};
use super::token::{Kind, Token, tokens};

/// One admitted statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What the engine gets, without a semicolon.
    pub text: String,
    /// The names that `$1`, `$2`, … stand for, in this order, each once.
    pub names: Vec<String>,
    /// The bare and quoted names in it, for suggestions.
    pub words: Vec<String>,
    pieces: Vec<Piece>,
}

/// A run of the query's text and where it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    at: usize,
    file: usize,
    len: usize,
}

impl Query {
    /// The offset in the file of an offset in [`Query::text`], both in bytes.
    #[must_use]
    pub fn file_offset(&self, at: usize) -> usize {
        let after = self.pieces.partition_point(|piece| piece.at <= at);
        let piece = after.checked_sub(1).and_then(|index| self.pieces.get(index));
        piece.map_or(0, |piece| piece.file + (at - piece.at).min(piece.len))
    }

    /// The offset in the file of the `n`th character (from 1) of [`Query::text`], as PostgreSQL counts.
    #[must_use]
    pub fn file_offset_of_char(&self, n: usize) -> usize {
        let at = self.text.char_indices().nth(n.saturating_sub(1)).map_or(self.text.len(), |(at, _)| at);
        self.file_offset(at)
    }
}

/// Admits the statement that begins at an offset of a file's text. `known` are the names that may be bound.
///
/// # Errors
/// Saying where and why it is not admitted.
pub fn admit(source: &str, from: usize, engine: Engine, known: &[String]) -> Result<Query, At> {
    let mut all = tokens(source, from, engine).map_err(|at| no_query(source, from, engine, at))?;
    if all.last().is_some_and(|last| last.is_symbol(source, ";")) {
        all.pop();
    }
    let Some(first) = all.first() else { return Err(At::new(source.len(), "there is no query")) };
    one_statement(source, &all)?;
    balanced(source, &all)?;
    if first.is(source, "with") {
        reading_with(source, &all)?;
    } else if !first.is(source, "select") {
        return Err(begun(source, first, all.get(1)));
    }
    for (index, token) in all.iter().enumerate() {
        refuse_token(source, &all, index, token)?;
    }
    bind(source, &all, engine, known)
}

/// Statements that are no SELECT, and are not mistaken for prose.
const VERBS: [&str; 17] = [
    "insert", "update", "delete", "merge", "replace", "pragma", "create", "drop", "alter", "values",
    "explain", "attach", "vacuum", "set", "copy", "truncate", "begin",
];

/// What to say of a text that begins with no SELECT: the word, and what is probably to be done.
fn begun(source: &str, first: &Token, next: Option<&Token>) -> At {
    let word = first.text(source);
    let line = source.get(first.start..).unwrap_or_default().lines().next().unwrap_or_default().trim();
    if next.is_some_and(|next| next.start == first.end && next.text(source).starts_with(':')) {
        return At::new(first.start, format!("this line lacks its `--`: write `-- {line}`"));
    }
    let upper = word.to_uppercase();
    let near =
        ["SELECT", "WITH"].into_iter().find(|verb| strsim::osa_distance(&upper, verb) <= verb.len() / 3);
    let hint = match near {
        Some(near) => format!("; did you mean {near}?"),
        None if is_any(word, &VERBS) => String::new(),
        None => "; if it is prose, begin the line with `--`".to_owned(),
    };
    let message = "a goal is one SELECT (or WITH … SELECT): it only reads";
    At::new(first.start, format!("{message}, and \"{word}\" begins here{hint}"))
}

/// An apostrophe in prose opens a string that does not end: what the text begins with is what is wrong.
fn no_query(source: &str, from: usize, engine: Engine, at: At) -> At {
    let before =
        source.get(..at.offset).and_then(|before| tokens(before, from, engine).ok()).unwrap_or_default();
    match before.first() {
        Some(first) if !first.is(source, "select") && !first.is(source, "with") => {
            begun(source, first, before.get(1))
        }
        _ => at,
    }
}

/// A string without its quotes.
#[must_use]
pub fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text)
}

fn one_statement(source: &str, all: &[Token]) -> Result<(), At> {
    match all.iter().find(|token| token.is_symbol(source, ";")) {
        Some(token) => Err(At::new(token.start, "a second statement begins here: a goal is one SELECT")),
        None => Ok(()),
    }
}

fn balanced(source: &str, all: &[Token]) -> Result<(), At> {
    let mut open = Vec::new();
    for token in all.iter().filter(|token| token.kind == Kind::Symbol) {
        match token.text(source) {
            "(" => open.push(token.start),
            ")" if open.pop().is_none() => {
                return Err(At::new(token.start, "this parenthesis closes nothing"));
            }
            _ => {}
        }
    }
    open.pop().map_or(Ok(()), |start| Err(At::new(start, "this parenthesis is not closed")))
}

const WRITES: [&str; 5] = ["insert", "update", "delete", "merge", "replace"];

/// The first verb outside of parentheses is what a WITH does.
fn reading_with(source: &str, all: &[Token]) -> Result<(), At> {
    let mut depth = 0_usize;
    for token in all.iter().skip(1) {
        match token.text(source) {
            "(" if token.kind == Kind::Symbol => depth += 1,
            ")" if token.kind == Kind::Symbol => depth = depth.saturating_sub(1),
            _ if depth > 0 || token.kind != Kind::Word => {}
            _ if token.is(source, "select") => return Ok(()),
            word => {
                if WRITES.iter().chain(&["values", "table"]).any(|verb| word.eq_ignore_ascii_case(verb)) {
                    return Err(At::new(
                        token.start,
                        format!("{} is refused: a goal only reads", word.to_uppercase()),
                    ));
                }
            }
        }
    }
    Err(At::new(all.last().map_or(0, |last| last.end), "this WITH has no SELECT at its end"))
}

fn refuse_token(source: &str, all: &[Token], index: usize, token: &Token) -> Result<(), At> {
    let text = token.text(source);
    let before = index.checked_sub(1).and_then(|before| all.get(before));
    let next = all.get(index + 1);
    let opens = next.is_some_and(|next| next.is_symbol(source, "("));
    let refuse = |why: String| Err(At::new(token.start, why));
    match token.kind {
        Kind::Text | Kind::Escaped if is_clock_text(source, text, before, next) => refuse(
            "a moment written so reads the clock, and an evaluation must be repeatable: use :now".to_owned(),
        ),
        Kind::Word | Kind::Quoted if functions::is_inner(&token.name(source)) => {
            refuse(format!("{text} is refused: it tells of the engine, and a goal asks about the fleet"))
        }
        Kind::Word | Kind::Quoted if opens => refuse_call(source, all, index),
        Kind::Word if before.is_some_and(|before| before.is_symbol(source, "(")) && is_any(text, &WRITES) => {
            refuse(format!("{} is refused: a goal only reads", text.to_uppercase()))
        }
        Kind::Word if is_any(text, &functions::CLOCK_WORDS) => {
            refuse(format!("{text} is refused: an evaluation must be repeatable: use :now"))
        }
        Kind::Word if token.is(source, "into") => {
            refuse("SELECT … INTO is refused: a goal only reads".to_owned())
        }
        Kind::Word if token.is(source, "for") && next.is_some_and(|next| is_lock(source, next)) => {
            refuse("FOR UPDATE and its like take locks, and a goal only reads".to_owned())
        }
        _ => Ok(()),
    }
}

fn refuse_call(source: &str, all: &[Token], index: usize) -> Result<(), At> {
    let Some(token) = all.get(index) else { return Ok(()) };
    let name = token.name(source);
    if let Some(why) = functions::refusal(&name) {
        return Err(At::new(token.start, format!("{name}() is refused: {why}")));
    }
    let closes = |ahead: usize| all.get(index + ahead).is_some_and(|token| token.is_symbol(source, ")"));
    let defaults = closes(2) || (name == "strftime" && closes(3));
    if defaults && functions::CLOCK_DEFAULTS.contains(&name.as_str()) {
        let why = "without a moment it reads the clock, and an evaluation must be repeatable: use :now";
        return Err(At::new(token.start, format!("{name}() is refused: {why}")));
    }
    Ok(())
}

/// `'now'` anywhere, and `'today'` and its like where they are made a date or time.
fn is_clock_text(source: &str, text: &str, before: Option<&Token>, next: Option<&Token>) -> bool {
    let word = text.trim_start_matches(['E', 'e']).trim_matches('\'').trim().to_lowercase();
    let typed =
        before.is_some_and(|before| is_any(before.text(source), &["date", "timestamp", "timestamptz"]));
    let cast = next.is_some_and(|next| next.is_symbol(source, "::"));
    word == "now" || ((typed || cast) && ["today", "tomorrow", "yesterday"].contains(&word.as_str()))
}

fn is_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn is_lock(source: &str, token: &Token) -> bool {
    token.kind == Kind::Word && is_any(token.text(source), &["update", "share", "no", "key"])
}

/// Writes ` $n ` for each name, the spaces keeping it apart from what stands beside it; and, on SQLite, quoted
/// names in backticks: in double quotes it takes a name that is no column for a string, without a word.
fn bind(source: &str, all: &[Token], engine: Engine, known: &[String]) -> Result<Query, At> {
    let mut query = Query { text: String::new(), names: Vec::new(), words: Vec::new(), pieces: Vec::new() };
    let end = all.last().map_or(source.len(), |last| last.end);
    let mut from = all.first().map_or(end, |first| first.start);
    for token in all {
        if matches!(token.kind, Kind::Word | Kind::Quoted) {
            query.words.push(token.name(source));
        }
        let written = token.text(source);
        let replaced = match token.kind {
            Kind::Param => format!(" ${} ", query.number(written, token.start, known)?),
            Kind::Quoted if engine == Engine::Sqlite && written.starts_with('"') => {
                backticks(token, written)?
            }
            _ => continue,
        };
        query.copy(source, from, token.start);
        query.pieces.push(Piece { at: query.text.len(), file: token.start, len: 0 });
        query.text.push_str(&replaced);
        from = token.end;
    }
    query.copy(source, from, end);
    query.words.sort();
    query.words.dedup();
    Ok(query)
}

fn backticks(token: &Token, written: &str) -> Result<String, At> {
    let name = written.trim_matches('"');
    if name.is_empty() || name.contains(['"', '`']) {
        return Err(At::new(token.start, "a name that is empty or holds quotes is not admitted"));
    }
    Ok(format!("`{name}`"))
}

impl Query {
    fn copy(&mut self, source: &str, from: usize, to: usize) {
        self.pieces.push(Piece { at: self.text.len(), file: from, len: to - from });
        self.text.push_str(&source[from..to]);
    }

    /// The number of the placeholder of a `:name`.
    fn number(&mut self, written: &str, at: usize, known: &[String]) -> Result<usize, At> {
        let name = written.trim_start_matches(':');
        if !known.iter().any(|one| one == name) {
            return Err(unknown_name(at, name, known));
        }
        let found = self.names.iter().position(|one| one == name);
        Ok(1 + found.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }))
    }
}

fn unknown_name(offset: usize, name: &str, known: &[String]) -> At {
    let meant = nearest(name, known.iter().map(String::as_str));
    let hint = match meant {
        Some(near) => format!("did you mean :{near}?"),
        None => format!("declare it with `-- param: {name} = …`"),
    };
    let known = known.iter().map(|one| format!(":{one}")).collect::<Vec<_>>().join(", ");
    At::new(offset, format!("unknown parameter :{name}; {hint} (known: {known})"))
}

#[cfg(test)]
mod tests;
