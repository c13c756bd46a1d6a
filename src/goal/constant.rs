//! Constants in the place of columns that have a meaning: what every row would be refused for is refused at once.

use super::Engine;
use super::text::At;
use super::token::{Kind, Token, tokens};

/// Columns that are numbers, and columns that are texts.
const NUMBERS: [&str; 6] =
    ["priority", "repository_id", "fileserver_id", "source_id", "destination_id", "bytes"];
const TEXTS: [&str; 3] = ["reason", "path", "key"];

/// What may be a priority.
const PRIORITY: &str = "a whole number from 0 to 999";

/// Looks at the constants that the query of a file returns.
///
/// # Errors
/// At the first that its column cannot be.
pub fn check(source: &str, from: usize, engine: Engine) -> Result<(), At> {
    let all = tokens(source, from, engine)?;
    let mut depth = 0_usize;
    for (index, token) in all.iter().enumerate() {
        match token.text(source) {
            "(" if token.kind == Kind::Symbol => depth += 1,
            ")" if token.kind == Kind::Symbol => depth = depth.saturating_sub(1),
            _ if depth == 0 && matches!(token.kind, Kind::Number | Kind::Text) => {
                constant(source, &all, index).map_or(Ok(()), Err)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn constant(source: &str, all: &[Token], index: usize) -> Option<At> {
    let literal = all.get(index)?;
    let signed = index.checked_sub(1).and_then(|at| all.get(at)).filter(|one| one.is_symbol(source, "-"));
    let before = index.checked_sub(if signed.is_some() { 2 } else { 1 }).and_then(|at| all.get(at))?;
    let begins = ["select", "distinct", "all"].iter().any(|word| before.is(source, word));
    if !begins && !before.is_symbol(source, ",") {
        return None;
    }
    let name = all.get(index + 1).filter(|next| !next.is(source, "as")).or_else(|| all.get(index + 2))?;
    let name = Some(name).filter(|name| matches!(name.kind, Kind::Word | Kind::Quoted))?.name(source);
    let start = signed.map_or(literal.start, |sign| sign.start);
    let written = source.get(start..literal.end)?;
    let wrong = |what: &str| At::new(start, format!("column \"{name}\" is {written}, and is {what}"));
    let is_text = literal.kind == Kind::Text;
    if name == "priority" && (is_text || !is_priority(written)) {
        return Some(wrong(PRIORITY));
    }
    if NUMBERS.contains(&name.as_str()) && is_text {
        return Some(wrong("a number"));
    }
    (TEXTS.contains(&name.as_str()) && !is_text).then(|| wrong("a text, in single quotes"))
}

/// Hexadecimal numbers and their like are left to the engine.
fn is_priority(written: &str) -> bool {
    let number = written.replace(char::is_whitespace, "").parse::<f64>();
    number.map_or(true, |number| number.fract() == 0.0 && (0.0..=999.0).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(query: &str) -> Option<(usize, String)> {
        check(query, 0, Engine::Sqlite).err().map(|at| (at.offset, at.message))
    }

    #[test]
    fn a_constant_that_its_column_cannot_be_is_refused_with_what_may_be() {
        let priority = "and is a whole number from 0 to 999";
        for (query, at, message) in [
            ("SELECT 5000 AS priority", 7, format!("column \"priority\" is 5000, {priority}")),
            ("SELECT id, -1 AS priority", 11, format!("column \"priority\" is -1, {priority}")),
            ("SELECT id, 'high' priority", 11, format!("column \"priority\" is 'high', {priority}")),
            ("SELECT id, 1.5 AS priority", 11, format!("column \"priority\" is 1.5, {priority}")),
            ("SELECT 1 AS reason", 7, "column \"reason\" is 1, and is a text, in single quotes".into()),
            ("SELECT 'a' AS \"bytes\"", 7, "column \"bytes\" is 'a', and is a number".into()),
        ] {
            assert_eq!(said(query), Some((at, message)), "{query}");
        }
        for query in [
            "SELECT 999 AS priority, 0 priority, 'r' AS reason, 3.0 AS priority",
            "SELECT 5000 AS weight, id + 5000 AS priority, x - 1 AS priority",
            "SELECT * FROM (SELECT 5000 AS priority)",
            "SELECT CASE WHEN a THEN 5000 END AS priority",
        ] {
            assert_eq!(said(query), None, "{query}");
        }
    }
}
