//! The column contract: which columns a goal's rows have, and a row as an [`Exception`].
//!
//! Checked twice: names and types when a goal is loaded, values row by row, where an
//! error names row and column. Everything is bounded: texts are cut, numbers are
//! ranged. Whether a subject comes twice is not seen here (it would need all subjects
//! in memory): the merge, which holds them in SQL, refuses that.

use super::text::nearest;
use crate::model::amount::listed;
use crate::model::finding::{Exception, Hints, Subject};
use crate::model::goal::SubjectKind;
use crate::model::id::{FileserverId, RepositoryId};
use serde_json::{Map, Value};

/// Columns that a row may have; more would be no summary for people.
const MAX_COLUMNS: usize = 64;
/// Columns that an error lists.
const LISTED: usize = 12;
/// Characters of a reason that are kept.
const MAX_REASON: usize = 300;
/// Characters of a text in the evidence that are kept.
const MAX_EVIDENCE: usize = 2_000;
/// Bytes of a key: it is part of a unique index.
const MAX_KEY: usize = 500;
/// The priority of a row that gives none.
const DEFAULT_PRIORITY: i32 = 100;

/// What a column's type is, as far as the contract cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// Whole numbers, or numbers that may be whole.
    Number,
    /// Text.
    Text,
    /// Not known before a row is there.
    Unknown,
    /// Something else, by the engine's name.
    Other(String),
}

/// One column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Type,
}

/// The columns that name the subject.
#[must_use]
pub const fn subject_columns(kind: SubjectKind) -> &'static [&'static str] {
    match kind {
        SubjectKind::Repository => &["repository_id"],
        SubjectKind::Replica => &["repository_id", "fileserver_id"],
        SubjectKind::Fileserver => &["fileserver_id"],
        SubjectKind::Key => &["key"],
    }
}

/// The column that names a repository for a database that does not know the fleet's ids.
pub const BY_NAME: [&str; 1] = ["repository_name"];

const OPTIONAL: [(&str, Type); 6] = [
    ("priority", Type::Number),
    ("reason", Type::Text),
    ("source_id", Type::Number),
    ("destination_id", Type::Number),
    ("bytes", Type::Number),
    ("path", Type::Text),
];

/// Checks a query's columns.
///
/// # Errors
/// The column that is wrong, and the word it stands at in the query, if it is there.
pub fn check(kind: SubjectKind, columns: &[Column]) -> Result<(), (String, Option<String>)> {
    check_subject(kind, subject_columns(kind), columns)
}

/// The same with other columns for the subject.
///
/// # Errors
/// As [`check`].
pub fn check_subject(
    kind: SubjectKind,
    subject: &[&str],
    columns: &[Column],
) -> Result<(), (String, Option<String>)> {
    if columns.len() > MAX_COLUMNS {
        return Err((format!("{} columns are more than {MAX_COLUMNS}", columns.len()), None));
    }
    for (index, column) in columns.iter().enumerate() {
        if columns.iter().take(index).any(|other| other.name == column.name) {
            return Err((format!("column \"{}\" stands twice", column.name), Some(column.name.clone())));
        }
    }
    let text_subject = kind == SubjectKind::Key || subject == BY_NAME;
    for name in subject {
        subject_column(kind, name, columns)?;
        typed(columns, name, if text_subject { &Type::Text } else { &Type::Number })?;
    }
    for (name, kind) in &OPTIONAL {
        typed(columns, name, kind)?;
        misspelt(columns, name)?;
    }
    Ok(())
}

fn subject_column(kind: SubjectKind, name: &str, columns: &[Column]) -> Result<(), (String, Option<String>)> {
    if columns.iter().any(|column| column.name == name) {
        return Ok(());
    }
    let near = nearest(name, columns.iter().map(|column| column.name.as_str()));
    let more = near.map_or_else(
        || returned(name, columns),
        |near| format!("; column \"{near}\": did you mean \"{name}\"?"),
    );
    Err((
        format!("column \"{name}\" is missing: a goal about a {kind} returns it{more}"),
        near.map(str::to_owned),
    ))
}

/// What a query returns instead, and how a column gets the name.
fn returned(name: &str, columns: &[Column]) -> String {
    let plain = if name == "key" { "name" } else { "id" };
    let has = columns.iter().any(|column| column.name == plain);
    let example = if has { format!("; write `{plain} AS {name}`") } else { String::new() };
    let all: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    format!("{example} (it returns {})", listed(&all, LISTED))
}

fn typed(columns: &[Column], name: &str, wanted: &Type) -> Result<(), (String, Option<String>)> {
    let Some(column) = columns.iter().find(|column| column.name == name) else { return Ok(()) };
    if column.kind == *wanted || column.kind == Type::Unknown {
        return Ok(());
    }
    // Of what has a name and an id, the name was probably taken.
    let is_id = matches!(name, "repository_id" | "fileserver_id") && column.kind == Type::Text;
    let more = if is_id { format!("; write `id AS {name}`") } else { String::new() };
    let (found, wanted) = (described(&column.kind), described(wanted));
    Err((format!("column \"{name}\" is {found} and must be {wanted}{more}"), Some(name.to_owned())))
}

fn described(kind: &Type) -> String {
    match kind {
        Type::Number => "a number".to_owned(),
        Type::Text => "text".to_owned(),
        Type::Unknown => "unknown".to_owned(),
        Type::Other(name) => name.clone(),
    }
}

/// One letter off an optional column would silently become evidence.
fn misspelt(columns: &[Column], name: &str) -> Result<(), (String, Option<String>)> {
    if columns.iter().any(|column| column.name == name) {
        return Ok(());
    }
    match columns.iter().find(|column| strsim::osa_distance(&column.name, name) == 1) {
        Some(column) => {
            Err((format!("column \"{}\": did you mean \"{name}\"?", column.name), Some(column.name.clone())))
        }
        None => Ok(()),
    }
}

/// A row (counted from 1) as an exception.
///
/// # Errors
/// Naming row and column, and the column once more, by which its place in the query is found.
pub fn exception(
    kind: SubjectKind,
    row: u64,
    mut values: Map<String, Value>,
) -> Result<Exception, (String, String)> {
    let subject = subject(kind, row, &mut values)?;
    let priority = whole(row, "priority", values.remove("priority"))?;
    let priority = priority.unwrap_or(DEFAULT_PRIORITY.into());
    let priority = i32::try_from(priority)
        .ok()
        .filter(|priority| (0..=999).contains(priority))
        .ok_or_else(|| wrong(row, "priority", &format!("is {priority}, not between 0 and 999")))?;
    let reason = text(row, "reason", values.remove("reason"))?.map(|reason| cut(reason, MAX_REASON));
    let hints = Hints {
        source_id: whole(row, "source_id", values.remove("source_id"))?.map(FileserverId),
        destination_id: whole(row, "destination_id", values.remove("destination_id"))?.map(FileserverId),
        bytes: whole(row, "bytes", values.remove("bytes"))?,
        path: text(row, "path", values.remove("path"))?,
    };
    for value in values.values_mut() {
        if let Value::String(text) = value {
            *text = cut(std::mem::take(text), MAX_EVIDENCE);
        }
    }
    Ok(Exception { subject, priority, reason, hints, evidence: values })
}

/// What is wrong with a column of a row, and the column.
fn wrong(row: u64, name: &str, why: &str) -> (String, String) {
    (format!("row {row}: column \"{name}\" {why}"), name.to_owned())
}

fn no_subject(row: u64, name: &str) -> (String, String) {
    let why = "is NULL or missing: leave such rows out, by WHERE … IS NOT NULL or an inner JOIN";
    wrong(row, name, why)
}

fn subject(
    kind: SubjectKind,
    row: u64,
    values: &mut Map<String, Value>,
) -> Result<Subject, (String, String)> {
    let mut id = |name: &str| whole(row, name, values.remove(name))?.ok_or_else(|| no_subject(row, name));
    Ok(match kind {
        SubjectKind::Repository => Subject::Repository(RepositoryId(id("repository_id")?)),
        SubjectKind::Replica => {
            Subject::Replica(RepositoryId(id("repository_id")?), FileserverId(id("fileserver_id")?))
        }
        SubjectKind::Fileserver => Subject::Fileserver(FileserverId(id("fileserver_id")?)),
        SubjectKind::Key => {
            let key = text(row, "key", values.remove("key"))?.ok_or_else(|| no_subject(row, "key"))?;
            if key.is_empty() || key.len() > MAX_KEY {
                return Err(wrong(row, "key", &format!("is empty or longer than {MAX_KEY} bytes")));
            }
            Subject::Key(key)
        }
    })
}

fn whole(row: u64, name: &str, value: Option<Value>) -> Result<Option<i64>, (String, String)> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_i64().or_else(|| whole_fraction(&value)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(row, name, &format!("is {value} and must be a whole number"))),
        },
    }
}

/// 3.0, as engines give it for sums, is whole.
#[allow(clippy::cast_possible_truncation, reason = "the range is checked before")]
fn whole_fraction(value: &Value) -> Option<i64> {
    let number = value.as_f64()?;
    (number.fract() == 0.0 && number.abs() < 9.0e15).then_some(number as i64)
}

fn text(row: u64, name: &str, value: Option<Value>) -> Result<Option<String>, (String, String)> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(wrong(row, name, &format!("is {value} and must be text"))),
    }
}

fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn columns(names: &[(&str, Type)]) -> Vec<Column> {
        names.iter().map(|(name, kind)| Column { name: (*name).to_owned(), kind: kind.clone() }).collect()
    }

    fn row(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn columns_must_name_the_subject_with_the_right_type() {
        let ok = columns(&[("repository_id", Type::Number), ("priority", Type::Unknown), ("x", Type::Text)]);
        assert_eq!(check(SubjectKind::Repository, &ok), Ok(()));
        let near = check(SubjectKind::Repository, &columns(&[("repo_id", Type::Number)])).unwrap_err();
        assert!(near.0.contains("did you mean \"repository_id\"?"), "{}", near.0);
        assert_eq!(near.1.as_deref(), Some("repo_id"));
        let plain = columns(&[("id", Type::Number), ("name", Type::Text)]);
        let plain = check(SubjectKind::Repository, &plain).unwrap_err().0;
        assert!(plain.ends_with("; write `id AS repository_id` (it returns id, name)"), "{plain}");
        let other = check(SubjectKind::Key, &columns(&[("zorkmid", Type::Text)])).unwrap_err().0;
        assert!(other.ends_with("returns it (it returns zorkmid)"), "{other}");
        let text = check(SubjectKind::Repository, &columns(&[("repository_id", Type::Text)])).unwrap_err().0;
        assert!(text.ends_with("is text and must be a number; write `id AS repository_id`"), "{text}");
        for wrong in [
            columns(&[("repository_id", Type::Text)]),
            columns(&[("repository_id", Type::Number), ("priority", Type::Text)]),
            columns(&[("repository_id", Type::Number), ("reason", Type::Number)]),
            columns(&[("repository_id", Type::Number), ("priorty", Type::Number)]),
            columns(&[("repository_id", Type::Number), ("x", Type::Text), ("x", Type::Text)]),
        ] {
            assert!(check(SubjectKind::Repository, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_row_becomes_an_exception_and_what_is_left_is_evidence() {
        let values =
            json!({"repository_id": 7, "fileserver_id": 3, "reason": "behind", "bytes": 5.0, "version": 4});
        let exception = exception(SubjectKind::Replica, 1, row(&values)).unwrap();
        assert_eq!(exception.subject, Subject::Replica(RepositoryId(7), FileserverId(3)));
        assert_eq!((exception.priority, exception.reason.as_deref()), (100, Some("behind")));
        assert_eq!(exception.hints, Hints { bytes: Some(5), ..Hints::default() });
        assert_eq!(Value::Object(exception.evidence), json!({"version": 4}));
    }

    #[test]
    fn errors_name_row_and_column() {
        for (values, part) in [
            (json!({"repository_id": null}), "row 4: column \"repository_id\" is NULL or missing"),
            (json!({}), "row 4: column \"repository_id\" is NULL or missing"),
            (
                json!({"repository_id": "7"}),
                "row 4: column \"repository_id\" is \"7\" and must be a whole number",
            ),
            (
                json!({"repository_id": 7, "priority": 1000}),
                "row 4: column \"priority\" is 1000, not between 0 and 999",
            ),
            (json!({"repository_id": 7, "reason": 1}), "row 4: column \"reason\" is 1 and must be text"),
        ] {
            let said = exception(SubjectKind::Repository, 4, row(&values)).unwrap_err();
            assert!(said.0.starts_with(part) && said.0.contains(&format!("\"{}\"", said.1)), "{}", said.0);
        }
        assert!(exception(SubjectKind::Key, 1, row(&json!({"key": "x".repeat(501)}))).is_err());
    }

    #[test]
    fn long_texts_are_cut_and_not_kept_whole() {
        let values = json!({"key": "a", "reason": "ä".repeat(1_000), "more": "b".repeat(9_000)});
        let exception = exception(SubjectKind::Key, 1, row(&values)).unwrap();
        assert_eq!(exception.reason.unwrap().chars().count(), 301);
        assert!(exception.evidence["more"].as_str().unwrap().len() < 2_010);
    }
}
