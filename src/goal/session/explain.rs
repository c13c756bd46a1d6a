//! An engine's error as a person needs it: the place in the file, the code, and the name that was meant.

use super::Problem;
use crate::goal::Goal;
use crate::goal::sql::Query;
use crate::goal::text::did_you_mean;

/// What an engine said about a query.
pub struct Said {
    /// In its words.
    pub message: String,
    /// SQLSTATE, or SQLite's number.
    pub code: String,
    /// The offset in the file, where the engine gave a place.
    pub offset: Option<usize>,
    /// Its own hint.
    pub hint: Option<String>,
}

/// A table's or view's name and one of its columns.
pub type Known = (String, String);

/// The error that people see. `known` are the columns of all tables, for a name that does not exist.
pub fn problem(goal: &Goal, query: &Query, said: &Said, known: &[Known]) -> Problem {
    let missing = missing_name(&said.message);
    let near = match &missing {
        Some((What::Column, name)) => did_you_mean(name, columns_of(known, &query.words)),
        Some((What::Table, name)) => did_you_mean(name, known.iter().map(|(table, _)| table.as_str())),
        None => String::new(),
    };
    let hint = said.hint.as_ref().filter(|_| near.is_empty());
    let more = hint.map_or(near, |hint| format!("; {hint}"));
    let place = missing.and_then(|(_, name)| find_word(&query.text, &name)).map(|at| query.file_offset(at));
    let offset = said.offset.or(place).unwrap_or_else(|| query.file_offset(0));
    Problem::text(goal.at(offset, format!("{} ({}){more}", said.message, said.code)))
}

/// Whether the error is about a name that does not exist, so that known names are worth asking for.
pub fn is_about_a_name(message: &str) -> bool {
    missing_name(message).is_some()
}

#[derive(Clone, Copy)]
enum What {
    Column,
    Table,
}

fn missing_name(message: &str) -> Option<(What, String)> {
    let (what, name) = if let Some(name) = message.strip_prefix("no such column: ") {
        (What::Column, name)
    } else if let Some(name) = message.strip_prefix("no such table: ") {
        (What::Table, name)
    } else {
        let named = message.strip_suffix(" does not exist")?;
        match (named.strip_prefix("column "), named.strip_prefix("relation ")) {
            (Some(name), _) => (What::Column, name),
            (_, Some(name)) => (What::Table, name),
            _ => return None,
        }
    };
    let name = name.split(" - should this be").next().unwrap_or(name).trim_matches('"');
    Some((what, name.rsplit('.').next().unwrap_or(name).trim_matches('"').to_owned()))
}

/// Columns of the tables that a query names; of all, where it names none.
fn columns_of<'a>(known: &'a [Known], words: &'a [String]) -> impl Iterator<Item = &'a str> {
    let is_named = move |table: &String| words.binary_search(table).is_ok();
    let any = known.iter().any(|(table, _)| is_named(table));
    known.iter().filter(move |(table, _)| !any || is_named(table)).map(|(_, column)| column.as_str())
}

/// Where a word stands in a text as a whole word, in whatever case.
pub fn find_word(text: &str, word: &str) -> Option<usize> {
    words_at(text, word).next()
}

/// Everywhere it stands.
pub fn words_at<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let lower = text.to_ascii_lowercase();
    let word = word.to_ascii_lowercase();
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let named = word.chars().all(part);
    let found: Vec<usize> = if word.is_empty() {
        Vec::new()
    } else {
        lower
            .match_indices(&word)
            .filter(|(at, _)| {
                let before = lower[..*at].chars().next_back().is_some_and(part);
                let after = lower[at + word.len()..].chars().next().is_some_and(part);
                !named || (!before && !after)
            })
            .map(|(at, _)| at)
            .collect()
    };
    found.into_iter()
}
