//! Places in a goal's file, and errors that name them.
//!
//! Every error about a goal's text carries line and column in the *file*, counted in
//! characters from 1, whatever was cut out of the file before an engine saw it.

use std::path::{Path, PathBuf};

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {message}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// What is wrong at a byte of a text; the file's name is added by who knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// Offset in the file, in bytes.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
}

impl At {
    /// An error at an offset.
    pub fn new(offset: usize, message: impl Into<String>) -> Self {
        Self { offset, message: message.into() }
    }

    /// The error with its file's name, line and column.
    #[must_use]
    pub fn in_file(self, path: &Path, text: &str) -> FileError {
        let (line, column) = position(text, self.offset);
        FileError { path: path.to_owned(), line, column, message: self.message }
    }
}

/// What was read as text.
///
/// # Errors
/// With the line of the first byte that is none.
pub fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = good.split(|byte| *byte == b'\n').count();
        format!("line {line}: it is not UTF-8 text")
    })
}

/// Line and column of an offset in bytes; an offset past the end is the end.
#[must_use]
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The candidate that a mistyped word was probably meant to be.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| *candidate != word)
        .map(|candidate| (likeness(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness >= 0.82)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// 1 for the same; a letter off or an abbreviation (`repo_id`) is near, whatever the spelling's distance says.
fn likeness(word: &str, candidate: &str) -> f64 {
    let letters = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    if word != candidate && letters(word) == letters(candidate) {
        // Another number is another thing: `fs-4` is no slip for `fs-77`.
        return if strsim::osa_distance(word, candidate) == 1 { 0.95 } else { 0.0 };
    }
    let spelling = strsim::jaro_winkler(word, candidate);
    let (short, long) = if word.len() < candidate.len() { (word, candidate) } else { (candidate, word) };
    let mut letters = long.chars();
    let abbreviates = short.len() >= 4
        && short.chars().next() == long.chars().next()
        && short.chars().all(|letter| letters.any(|one| one == letter));
    match () {
        () if strsim::osa_distance(word, candidate) == 1 => spelling.max(0.95),
        () if abbreviates => spelling.max(0.85),
        () => spelling,
    }
}

/// `; did you mean "x"?`, or nothing.
#[must_use]
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_in_characters_from_one() {
        assert_eq!(position("aß\ncd", 0), (1, 1));
        assert_eq!(position("aß\ncd", 3), (1, 3));
        assert_eq!(position("aß\ncd", 2), (1, 2), "inside a character is its beginning");
        assert_eq!(position("aß\ncd", 4), (2, 1));
        assert_eq!(position("aß\ncd", 99), (2, 3));
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_line() {
        assert_eq!(utf8(b"a\nb\n".to_vec()), Ok("a\nb\n".to_owned()));
        assert_eq!(utf8(b"a\nb\xffc\n".to_vec()), Err("line 2: it is not UTF-8 text".to_owned()));
    }

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        assert_eq!(nearest("repo_id", ["repository_id", "fileserver_id"]), Some("repository_id"));
        assert_eq!(nearest("rack", ["rack_id", "name"]), Some("rack_id"));
        assert_eq!(nearest("xyzzy", ["rack_id", "name"]), None);
        assert_eq!(nearest("fs-77", ["fs-4", "fs-12"]), None, "another number is another thing");
        assert_eq!(nearest("fs-77", ["fs-4", "fs-7"]), Some("fs-7"), "a digit too many is a slip");
    }
}
