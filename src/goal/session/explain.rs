//! An engine's error as a person needs it: the place in the file, the code, and the name that was meant.

use super::Problem;
use crate::goal::Goal;
use crate::goal::sql::Query;
use about::About;

mod about;
mod hints;
mod places;

pub use places::{find_word, words_at};

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

/// What an engine has, for an error about what it has not.
#[derive(Debug, Default)]
pub struct Names {
    /// The columns of all tables.
    pub columns: Vec<Known>,
    /// The functions; none: the engine gives hints of its own.
    pub functions: Vec<String>,
}

/// The error that people see.
pub fn problem(goal: &Goal, query: &Query, said: &Said, names: &Names) -> Problem {
    let about = About::of(&said.message);
    let place = about.as_ref().and_then(|about| places::of(&query.text, about));
    let offset = said.offset.or_else(|| place.map(|at| query.file_offset(at)));
    let near =
        about.as_ref().map_or_else(String::new, |about| hints::hint(goal, query, about, offset, names));
    let hint = said.hint.as_ref().filter(|_| near.is_empty());
    let more = hint.map_or(near, |hint| format!("; {hint}"));
    let offset = offset.unwrap_or_else(|| query.file_offset(0));
    Problem::text(goal.at(offset, format!("{} ({}){more}", said.message, said.code)))
}

/// Whether the error is about a name, so that known names are worth asking for.
pub fn is_about_a_name(message: &str) -> bool {
    About::of(message).is_some_and(|about| about.is_a_name())
}

#[cfg(test)]
mod tests;
