//! An engine's error as a person needs it: the place in the file, the code, and the name that was meant.

use super::Problem;
use crate::goal::file::stem;
use crate::goal::sql::Query;
use crate::goal::{Engine, Goal};
use about::About;

mod about;
mod hints;
mod places;
mod syntax;

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
    let near = of_the_variant(goal, &said.code).unwrap_or(near);
    let hint = said.hint.as_ref().filter(|_| near.is_empty());
    let more = hint.map_or(near, |hint| format!("; {hint}"));
    let offset = offset.unwrap_or_else(|| query.file_offset(0));
    Problem::text(goal.at(offset, format!("{} ({}){more}", said.message, said.code)))
}

/// A variant for the other engine is not read here at all, so that nothing in it needs to be changed for this one.
fn of_the_variant(goal: &Goal, code: &str) -> Option<String> {
    let (_, only) = stem(&goal.path)?;
    let is_other = goal.asks_fleet() && only? == Engine::Postgres && code.starts_with("SQLite");
    is_other.then(|| {
        "; this variant is for PostgreSQL, and this fleet is on SQLite, so it is not used here: `trued goal test \
         --postgres URL` tries it"
            .to_owned()
    })
}

/// Whether the error is about a name, so that known names are worth asking for.
pub fn is_about_a_name(message: &str) -> bool {
    About::of(message).is_some_and(|about| about.is_a_name())
}

#[cfg(test)]
mod tests;
