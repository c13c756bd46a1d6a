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

/// Tables whose columns are told where a name is like none of them, and columns of each.
const TABLES: usize = 3;
const COLUMNS: usize = 40;

/// A table's or view's name and one of its columns.
pub type Known = (String, String);

/// The error that people see. `known` are the columns of all tables, for a name that does not exist.
pub fn problem(goal: &Goal, query: &Query, said: &Said, known: &[Known]) -> Problem {
    let missing = missing_name(&said.message);
    let near = match &missing {
        Some((What::Column, name)) => {
            let near = did_you_mean(name, columns_of(known, &query.words));
            if near.is_empty() { listed(goal, query, qualifier(&said.message), known) } else { near }
        }
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

/// What stands before the point of a name that does not exist: a table, or what the query calls it.
fn qualifier(message: &str) -> Option<String> {
    let name = message.strip_prefix("no such column: ").or_else(|| message.strip_prefix("column "))?;
    let (before, _) = name.split(' ').next()?.rsplit_once('.')?;
    Some(before.rsplit('.').next().unwrap_or(before).trim_matches('"').to_lowercase())
}

/// The columns that there are, where none is like the name: those of the table that the name was sought in, if it
/// says so, else of the first tables of the query.
fn listed(goal: &Goal, query: &Query, qualifier: Option<String>, known: &[Known]) -> String {
    let mut tables: Vec<&str> = known.iter().map(|(table, _)| table.as_str()).collect();
    tables.sort_unstable();
    tables.dedup();
    tables.retain(|table| query.words.binary_search_by(|word| word.as_str().cmp(table)).is_ok());
    if let Some(qualifier) = qualifier {
        let meant = |table: &&str| *table == qualifier || is_called(&query.text, table, &qualifier);
        if let Some(table) = tables.iter().copied().find(|table| meant(table)) {
            tables = vec![table];
        }
    }
    let mut text = String::new();
    for table in tables.into_iter().take(TABLES) {
        let columns: Vec<_> =
            known.iter().filter(|(of, _)| of == table).map(|(_, name)| name.as_str()).collect();
        let (first, rest) = columns.split_at(columns.len().min(COLUMNS));
        let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        text.extend(["; columns of ", table, ": ", &first.join(", "), &more]);
    }
    // The page is about the fleet's own tables.
    if goal.asks_fleet() {
        text.push_str("; all are in docs/reference/columns.md");
    }
    text
}

/// Whether a query calls a table so: `table name` or `table AS name`.
fn is_called(text: &str, table: &str, name: &str) -> bool {
    words_at(text, table).any(|at| {
        let after = text.get(at + table.len()..).unwrap_or_default().trim_start_matches('"');
        let mut words = after
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'));
        let first = words.next().unwrap_or_default();
        let called = if first.eq_ignore_ascii_case("as") { words.next().unwrap_or_default() } else { first };
        called.eq_ignore_ascii_case(name)
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Engine;
    use std::path::Path;

    fn said(header: &str, from: &str, message: &str) -> String {
        let head = format!("-- goal: x\n-- summary: X.\n-- subject: repository\n{header}--\n");
        let text = format!("{head}SELECT 1 AS repository_id FROM {from} WHERE zorkmid > 3\n");
        let goal = Goal::parse(Path::new("goals/x.sql"), &text, Engine::Sqlite).unwrap();
        let known = [("racks", "id"), ("racks", "name"), ("fileservers", "rack_id"), ("fileservers", "url")];
        let mut known: Vec<Known> = known.map(|(table, name)| (table.to_owned(), name.to_owned())).into();
        known.extend((0..99).map(|n| ("wide".to_owned(), format!("c{n}"))));
        let said =
            Said { message: message.to_owned(), code: "SQLite 1".to_owned(), offset: None, hint: None };
        problem(&goal, &goal.query, &said, &known).message
    }

    #[test]
    fn a_column_like_no_other_is_told_with_those_of_its_table() {
        let page = "; all are in docs/reference/columns.md";
        let bare = said("", "racks", "no such column: zorkmid");
        assert!(bare.ends_with(&format!("zorkmid (SQLite 1); columns of racks: id, name{page}")), "{bare}");
        for from in ["racks r, fileservers f", "racks AS r JOIN fileservers AS f ON TRUE"] {
            for message in ["no such column: f.zorkmid", "column f.zorkmid does not exist"] {
                let one = said("", from, message);
                assert!(one.ends_with(&format!("; columns of fileservers: rack_id, url{page}")), "{one}");
            }
        }
        let both = said("", "racks, fileservers", "no such column: zorkmid");
        assert!(
            both.contains("; columns of fileservers: rack_id, url; columns of racks: id, name"),
            "{both}"
        );
        let wide = said("", "wide", "no such column: zorkmid");
        assert!(wide.contains("c39 and 59 more") && !wide.contains("c40"), "{wide}");
        let near = said("", "racks", "no such column: nmae");
        assert!(near.ends_with("; did you mean \"name\"?"), "{near}");
        let forge = said("-- database: forge\n", "racks", "no such column: zorkmid");
        assert!(forge.ends_with("; columns of racks: id, name"), "{forge}");
    }
}
