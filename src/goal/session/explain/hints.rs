//! What would be right in the place of what an engine does not know.

use super::about::About;
use super::places::words_at;
use super::{Known, Names, syntax};
use crate::goal::Goal;
use crate::goal::sql::Query;
use crate::goal::text::did_you_mean;
use crate::goal::value::Unit;
use crate::model::amount::listed as first_of;
use crate::model::published::PUBLISHED;

/// Tables whose columns are told where a name is like none of them, and columns of each.
const TABLES: usize = 3;
const COLUMNS: usize = 40;
/// Tables that are told where a name is like none of them: all that a fleet publishes, and some.
const LISTED: usize = 40;

/// What may stand behind a table, and is no name for it.
const AFTER_A_TABLE: [&str; 18] = [
    "where",
    "join",
    "on",
    "left",
    "right",
    "full",
    "inner",
    "cross",
    "natural",
    "using",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "union",
    "except",
    "intersect",
];

/// What would be right, with a `; ` before it; empty: nothing is known to be. `at`: where the mistake stands in the
/// goal's file.
pub fn hint(goal: &Goal, query: &Query, about: &About, at: Option<usize>, names: &Names) -> String {
    let known = &names.columns;
    match about {
        About::Column { name, of } => column(goal, query, name, of.as_deref(), at, known),
        About::Table { name, of } => table(goal, name, of.as_deref(), known),
        About::Private(name) => format!("; {name} is not published{}", all_tables(goal, known)),
        About::Alias(name) => alias(query, name, known),
        About::Ambiguous(name) => ambiguous(query, name, known),
        About::Function(name) => function(name, &names.functions),
        About::Token(token) => token_hint(token),
        About::Misplaced(word) => syntax::hint(&goal.text, word, at),
        About::Call(name) if is_aggregate(name) => {
            "; a condition on count() and its like stands in HAVING, behind GROUP BY".to_owned()
        }
        About::Call(_) | About::Clause(_) => String::new(),
    }
}

fn is_aggregate(name: &str) -> bool {
    ["count", "sum", "min", "max", "avg", "total"].iter().any(|one| name.eq_ignore_ascii_case(one))
}

fn column(
    goal: &Goal,
    query: &Query,
    name: &str,
    of: Option<&str>,
    at: Option<usize>,
    known: &[Known],
) -> String {
    if !query.words.iter().any(|word| word == "from") {
        return "; the query has no FROM: say which table it reads".to_owned();
    }
    if let Some(param) = goal.params.keys().find(|param| param.eq_ignore_ascii_case(name)) {
        return format!("; the parameter is written :{param}");
    }
    let published = |table: &str| !goal.asks_fleet() || PUBLISHED.contains(&table);
    let near = did_you_mean(name, columns_of(known, &query.words, published));
    if !near.is_empty() {
        return near;
    }
    if at.is_some_and(|at| is_quoted(&goal.text, at)) {
        return format!("; double quotes are for names: a text is written '{name}'");
    }
    if name.starts_with(['‘', '’', '“', '”', '´']) {
        let plain = name.trim_matches(['‘', '’', '“', '”', '´']);
        return format!("; a text stands between straight quotes: '{plain}'");
    }
    match of {
        Some(of) if !stands_alone(&query.text, of) => alias(query, of, known),
        of => listed(goal, query, of, known),
    }
}

/// Whether a word stands anywhere but before a point: as a table, or as what the query calls one.
fn stands_alone(text: &str, word: &str) -> bool {
    words_at(text, word)
        .any(|at| !text.get(at + word.len()..).unwrap_or_default().starts_with(['.', '`', '"']))
}

/// Whether what stands at an offset of a file, or right before it, is a double quote.
fn is_quoted(text: &str, at: usize) -> bool {
    let (before, after) = text.split_at_checked(at).unwrap_or_default();
    after.starts_with('"') || before.ends_with('"')
}

fn table(goal: &Goal, name: &str, schema: Option<&str>, known: &[Known]) -> String {
    let all = tables(goal, known);
    if schema.is_some() && all.iter().any(|table| table.eq_ignore_ascii_case(name)) {
        return format!("; tables are written without a schema: {}", name.to_lowercase());
    }
    let near = did_you_mean(name, all);
    if near.is_empty() { all_tables(goal, known) } else { near }
}

/// The tables and views that a goal may read, in their order.
fn tables<'a>(goal: &Goal, known: &'a [Known]) -> Vec<&'a str> {
    let mut all: Vec<&str> = known.iter().map(|(table, _)| table.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    if goal.asks_fleet() {
        all.retain(|table| PUBLISHED.contains(table));
    }
    all
}

/// All of them in words.
fn all_tables(goal: &Goal, known: &[Known]) -> String {
    let all = tables(goal, known);
    let page = if goal.asks_fleet() { "; docs/reference/tables.md says what each holds" } else { "" };
    if all.is_empty() {
        return page.to_owned();
    }
    format!("; tables and views: {}{page}", first_of(&all, LISTED))
}

/// A name before a point that is no table of the query.
fn alias(query: &Query, name: &str, known: &[Known]) -> String {
    let tables = tables_of(query, known);
    let near = did_you_mean(name, tables.iter().copied());
    let named = if tables.is_empty() { String::new() } else { format!(" (it reads {})", tables.join(", ")) };
    format!("; no table of the query is called {name}{named}{near}")
}

fn ambiguous(query: &Query, name: &str, known: &[Known]) -> String {
    let mut tables = tables_of(query, known);
    tables.retain(|table| known.iter().any(|(of, column)| of == table && column.eq_ignore_ascii_case(name)));
    let all: Vec<_> = tables.iter().flat_map(|table| called(&query.text, table)).collect();
    let all: Vec<_> = all.iter().map(|table| format!("{table}.{name}")).collect();
    if all.is_empty() { String::new() } else { format!("; say which: {}", all.join(" or ")) }
}

fn function(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let near = did_you_mean(name, known.iter().map(String::as_str));
    format!("{near}; what PostgreSQL alone has belongs into a NAME.postgres.sql beside this file")
}

/// A size or a duration where SQL has only numbers.
fn token_hint(token: &str) -> String {
    let digits = token.starts_with(|c: char| c.is_ascii_digit());
    match Unit::of(token) {
        Some(unit) => {
            format!("; {} is a parameter: `-- param: most = {token}`, and :most here", unit.words())
        }
        None if digits => {
            "; a number with a unit is a parameter: `-- param: most = 1GiB`, and :most here".to_owned()
        }
        None if token.starts_with(':') => "; a type is written CAST(x AS type)".to_owned(),
        None if token.starts_with(['{', '}']) => syntax::PARAMETER.to_owned(),
        None => String::new(),
    }
}

/// The columns that there are, where none is like the name: those of the table that the name was sought in, if it
/// says so, else of the first tables of the query.
fn listed(goal: &Goal, query: &Query, qualifier: Option<&str>, known: &[Known]) -> String {
    let mut tables = tables_of(query, known);
    if let Some(qualifier) = qualifier {
        let meant = |table: &&str| *table == qualifier || is_called(&query.text, table, qualifier);
        if let Some(table) = tables.iter().copied().find(|table| meant(table)) {
            tables = vec![table];
        }
    }
    let mut text = String::new();
    for table in tables.into_iter().take(TABLES) {
        let columns: Vec<_> =
            known.iter().filter(|(of, _)| of == table).map(|(_, name)| name.as_str()).collect();
        text.extend(["; columns of ", table, ": ", &first_of(&columns, COLUMNS)]);
    }
    // The page is about the fleet's own tables.
    if goal.asks_fleet() {
        text.push_str("; all are in docs/reference/columns.md");
    }
    text
}

/// The tables that a query names.
fn tables_of<'a>(query: &Query, known: &'a [Known]) -> Vec<&'a str> {
    let mut tables: Vec<&str> = known.iter().map(|(table, _)| table.as_str()).collect();
    tables.sort_unstable();
    tables.dedup();
    tables.retain(|table| query.words.binary_search_by(|word| word.as_str().cmp(table)).is_ok());
    tables
}

/// Whether a query calls a table so: `table name` or `table AS name`.
fn is_called(text: &str, table: &str, name: &str) -> bool {
    called(text, table).any(|called| called.eq_ignore_ascii_case(name))
}

/// What a query calls a table, wherever it reads it: `table`, `table name` or `table AS name`.
fn called<'a>(text: &'a str, table: &'a str) -> impl Iterator<Item = &'a str> {
    words_at(text, table).filter_map(move |at| {
        let after = text.get(at + table.len()..).unwrap_or_default().trim_start_matches(['"', '`']);
        if after.starts_with('.') {
            return None;
        }
        let (first, rest) = next_word(after);
        let name = if first.eq_ignore_ascii_case("as") { next_word(rest).0 } else { first };
        let goes_on = name.is_empty() || AFTER_A_TABLE.iter().any(|word| name.eq_ignore_ascii_case(word));
        Some(if goes_on { table } else { name })
    })
}

/// The word that a text begins with, and what follows it; empty where something else stands there.
fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let text = text.strip_prefix(['"', '`']).unwrap_or(text);
    text.split_at(text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()))
}

/// Columns of the tables that a query names; of all that it may read, where it names none.
fn columns_of<'a>(
    known: &'a [Known],
    words: &'a [String],
    published: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &'a str> {
    let is_named = move |table: &String| words.binary_search(table).is_ok();
    let any = known.iter().any(|(table, _)| is_named(table));
    let may = move |table: &String| if any { is_named(table) } else { published(table) };
    known.iter().filter(move |(table, _)| may(table)).map(|(_, column)| column.as_str())
}
