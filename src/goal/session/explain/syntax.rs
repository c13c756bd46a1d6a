//! What was probably meant where a word cannot stand.

use crate::goal::value::Unit;

/// What to write in the place of `{name}`.
pub const PARAMETER: &str = "; a parameter is declared with `-- param: name = …` and written :name";

/// Words that begin a clause, and are mistaken for a name when they are misspelt.
const KEYWORDS: [&str; 8] = ["SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "JOIN"];

/// What would be right, with a `; ` before it; empty: nothing is known to be. `at`: where the word stands in the file.
pub fn hint(text: &str, word: &str, at: Option<usize>) -> String {
    if word.eq_ignore_ascii_case("ilike") {
        return "; SQLite has no ILIKE: write lower(x) LIKE 'text'".to_owned();
    }
    if word.starts_with('&') {
        return "; write AND where && stands".to_owned();
    }
    if word.starts_with(['{', '}']) {
        return PARAMETER.to_owned();
    }
    let before = at.and_then(|at| text.get(..at)).unwrap_or_default().trim_end();
    if word.eq_ignore_ascii_case("from") && before.ends_with(',') {
        return "; the comma before FROM is one too many".to_owned();
    }
    let (rest, previous) = last_word(before);
    if is_number(previous)
        && let Some(unit) = Unit::of(&format!("{previous}{word}"))
    {
        return format!(
            "; {} is a parameter: `-- param: most = {previous}{word}`, and :most here",
            unit.words()
        );
    }
    // A misspelt keyword is taken for the name that a column or table is given: the word after it is the wrong one.
    let (_, earlier) = last_word(rest);
    [word, previous, earlier].into_iter().find_map(misspelt).unwrap_or_default()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// What stands before the last word of a text, and the word; empty where something else stands there.
fn last_word(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    let start = text
        .char_indices()
        .rev()
        .take_while(|(_, c)| c.is_alphanumeric() || *c == '_')
        .last()
        .map_or(text.len(), |(at, _)| at);
    text.split_at(start)
}

fn misspelt(word: &str) -> Option<String> {
    let upper = word.to_ascii_uppercase();
    let near = KEYWORDS.iter().find(|keyword| strsim::osa_distance(&upper, keyword) == 1)?;
    Some(format!("; did you mean {near} where {word} stands?"))
}
