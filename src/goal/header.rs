//! The header of a goal file: `-- key: value` lines from the first line on.
//!
//! It ends at the first line that is an empty comment, empty, or no comment. A line in
//! it that is no `key: value` is an error, and so is a known key further down: a typing
//! mistake must never turn a key into prose.

use super::text::{At, did_you_mean, position};
use std::ops::Range;

/// Every key, in the order of the documentation.
pub const KEYS: [&str; 16] = [
    "goal",
    "summary",
    "subject",
    "repair",
    "schedule",
    "timeout",
    "max-rows",
    "mode",
    "for",
    "brake",
    "population",
    "recheck",
    "param",
    "severity",
    "scope",
    "database",
];

/// Keys that this program adds; `docs/decisions/0001-lane-key.md`.
pub const MORE_KEYS: [&str; 1] = ["lane"];

/// The key of remarks to the lint: it may stand on any comment line, and again.
pub const LINT: &str = "lint";

/// What is said of prose above the header.
const FIRST: &str = "a file begins with its header, `-- goal: NAME` on the first line; prose comes after it, behind an \
                     empty `--` line";

/// One `-- key: value` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The key.
    pub key: &'a str,
    /// The value, without space around it.
    pub value: &'a str,
    /// Where the key stands in the file, in bytes.
    pub key_at: usize,
    /// Where the value stands.
    pub value_at: usize,
}

/// A file's header lines and where what follows them begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header<'a> {
    /// In the file's order.
    pub lines: Vec<Line<'a>>,
    /// Offset of the first byte after the header.
    pub end: usize,
}

/// Reads the header at the beginning of a text.
///
/// # Errors
/// At a line that is no `key: value`, an unknown key, a key that stands twice or too late.
pub fn read(text: &str) -> Result<Header<'_>, At> {
    let mut header = Header { lines: Vec::new(), end: 0 };
    let mut rest_lines = lines(text);
    for range in rest_lines.by_ref() {
        let line = &text[range.clone()];
        let Some(comment) = line.trim_start_matches('\u{feff}').strip_prefix("--") else { break };
        if comment.trim().is_empty() {
            break;
        }
        let read = key_and_value(text, range.start, line)
            .map_err(|at| if header.lines.is_empty() { At::new(at.offset, FIRST) } else { at })?;
        if read.key != LINT {
            known(&read)?;
        }
        if !matches!(read.key, "param" | LINT) && header.lines.iter().any(|other| other.key == read.key) {
            return Err(At::new(read.key_at, format!("key {} stands twice", read.key)));
        }
        header.end = range.end;
        header.lines.push(read);
    }
    refuse_late_keys(text, header.end)?;
    Ok(header)
}

/// A parameter's value as a file has it.
#[must_use]
pub fn param<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = read(text).ok()?.lines.into_iter();
    let mut values = lines.filter(|line| line.key == "param").filter_map(|line| line.value.split_once('='));
    values.find(|(one, _)| one.trim() == name).map(|(_, value)| value.trim())
}

/// The lines of a text as ranges, without their line ends.
fn lines(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        start..start + line.trim_end_matches(['\n', '\r']).len()
    })
}

fn key_and_value<'a>(text: &'a str, start: usize, line: &'a str) -> Result<Line<'a>, At> {
    let dashes = line.find("--").map_or(0, |at| at + 2);
    let after = &line[dashes..];
    let key_at = start + dashes + (after.len() - after.trim_start().len());
    let wrong = || {
        At::new(
            key_at,
            "a header line is `-- key: value`; the header ends with an empty `--` line, prose comes after it",
        )
    };
    let (key, value) = after.split_once(':').ok_or_else(wrong)?;
    let key = key.trim();
    if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        return Err(wrong());
    }
    let value_at = start + line.len() - value.trim_start().len();
    debug_assert!(text.is_char_boundary(value_at));
    Ok(Line { key, value: value.trim(), key_at, value_at })
}

fn known(line: &Line<'_>) -> Result<(), At> {
    let mut keys = KEYS.iter().chain(&MORE_KEYS).copied();
    if keys.clone().any(|key| key == line.key) {
        return Ok(());
    }
    let all = keys.clone().collect::<Vec<_>>().join(", ");
    let near = did_you_mean(line.key, keys.by_ref());
    Err(At::new(line.key_at, format!("unknown key \"{}\"{near} (keys: {all})", line.key)))
}

/// A known key that follows the header would silently do nothing.
fn refuse_late_keys(text: &str, end: usize) -> Result<(), At> {
    let mut is_query = false;
    let after = || lines(text).skip_while(|range| range.end <= end && end > 0);
    for range in after() {
        let line = &text[range.clone()];
        let trimmed = line.trim();
        let is_comment = trimmed.starts_with("--");
        let at = |key: &str| range.start + line.find(key).unwrap_or(0);
        match late_key(trimmed) {
            Some(_) if is_comment && is_query && end == 0 => {
                let first = after().find(|range| !text[range.clone()].trim().is_empty());
                let message = format!("this line is no comment: {FIRST}");
                return Err(At::new(first.map_or(0, |first| first.start), message));
            }
            Some(LINT) if is_comment => {}
            Some(key) if is_comment => {
                let ended = if is_query { String::new() } else { ended(text, after().next()) };
                let message =
                    format!("key {key} stands after the header's end, where it would do nothing{ended}");
                return Err(At::new(at(key), message));
            }
            Some(key) if !is_query => {
                let message = format!(
                    "this line lacks its `--`: write `-- {}`",
                    trimmed.trim_start_matches('-').trim()
                );
                return Err(At::new(at(key), message));
            }
            _ => is_query |= !is_comment && !trimmed.is_empty(),
        }
    }
    Ok(())
}

fn late_key(line: &str) -> Option<&str> {
    let (key, _) = line.trim_start_matches('-').split_once(':')?;
    KEYS.iter().chain(&MORE_KEYS).chain(&[LINT]).copied().find(|known| *known == key.trim())
}

/// Which line ended the header, and what to do about it.
fn ended(text: &str, first: Option<Range<usize>>) -> String {
    let Some(range) = first else { return String::new() };
    let number = position(text, range.start).0;
    match text.get(range).unwrap_or_default().trim() {
        "" => format!("; line {number}, which is empty, ended it: remove that line"),
        "--" => format!("; line {number}, a `--` alone, ended it: write the key above that line"),
        _ => String::new(),
    }
}
