//! Just enough SQL to compare migrations, read goals' headers and recognise statements.

use std::collections::BTreeMap;

/// Whether a literal is a statement without the comment that names its function.
pub fn is_statement(literal: &str) -> bool {
    let text = literal.trim_start();
    let verbs = [
        "SELECT ",
        "INSERT INTO ",
        "UPDATE ",
        "DELETE FROM ",
        "WITH ",
        "CREATE ",
        "ALTER ",
        "DROP ",
        "ANALYZE",
    ];
    // A word in capitals alone is a word; a statement goes on.
    verbs.iter().any(|verb| text.starts_with(verb)) && text.len() > 12
}

/// The keys of a goal's header: its first lines of `-- key: value`.
pub fn header(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| {
        let (key, value) = line.strip_prefix("--")?.split_once(':')?;
        let plain = key.trim().chars().all(|one| one.is_ascii_lowercase() || one == '-');
        plain.then(|| (key.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().map_while(pair).collect()
}

/// Words whose value differs from one call to the next.
pub fn unrepeatable(text: &str) -> Vec<String> {
    let calls = [
        "now(",
        "random(",
        "clock_timestamp(",
        "statement_timestamp(",
        "timeofday(",
        "datetime(",
        "strftime(",
    ];
    let names = ["current_timestamp", "current_date", "current_time", "localtimestamp"];
    let code = without_comments(text).to_lowercase().replace(" (", "(");
    let found = calls.iter().chain(&names).filter(|word| {
        code.match_indices(**word)
            .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    });
    found.map(|word| (*word).to_owned()).collect()
}

/// Tables and the names of their columns, in order; columns added later included.
pub fn tables(text: &str) -> Vec<(String, Vec<String>)> {
    let mut tables = Vec::new();
    for statement in without_comments(text).split(';') {
        let statement = statement.trim();
        let Some(rest) = statement.strip_prefix("CREATE TABLE ") else { continue };
        let Some((name, body)) = rest.split_once('(') else { continue };
        let name = name.trim_start_matches("IF NOT EXISTS ").trim().to_owned();
        let columns = split_outside(body).into_iter().filter_map(|part| column(&part)).collect();
        tables.push((name, columns));
    }
    tables
}

fn column(part: &str) -> Option<String> {
    let first = part.split_whitespace().next()?;
    let constraint = ["PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT", "EXCLUDE"];
    (!constraint.contains(&first)).then(|| first.to_owned())
}

/// The parts of a list between its commas, up to the parenthesis that ends it.
fn split_outside(body: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0_i32);
    for one in body.chars() {
        match one {
            '(' => depth += 1,
            ')' if depth == 0 => break,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(one);
        }
    }
    parts
}

fn without_comments(text: &str) -> String {
    let line = |line: &str| line.split("--").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn tables_are_read_with_their_columns() {
    let text = "-- x (a, b);\nCREATE TABLE t (\n  id BIGINT, -- one; two\n  n NUMERIC(3, 4) CHECK (n IN (1, 2)),\n  PRIMARY KEY (id, n)\n);";
    assert_eq!(tables(text), [("t".to_owned(), vec!["id".to_owned(), "n".to_owned()])]);
}

#[test]
fn only_calls_that_change_are_unrepeatable() {
    assert!(unrepeatable("SELECT :now, known(x) -- now()").is_empty());
    assert_eq!(unrepeatable("SELECT NOW (), CURRENT_DATE"), ["now(", "current_date"]);
}
