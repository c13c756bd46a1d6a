//! Where in a query the thing stands that an engine complains about.

use super::about::About;

/// The place of what an error is about; none: it stands nowhere, or cannot be told from others like it.
pub fn of(text: &str, about: &About) -> Option<usize> {
    match about {
        About::Column { name, of } => {
            // As PostgreSQL has it, a name begins with the table that stands before its point.
            let before = of.as_ref().map(|of| format!("{of}."));
            let whole = before.and_then(|before| {
                let behind = |at: &usize| ends_with(&text[..*at], &before);
                words_at(text, name).find(behind).map(|at| at - before.len())
            });
            whole.or_else(|| find_word(text, name))
        }
        About::Table { name, .. } | About::Private(name) | About::Alias(name) => find_word(text, name),
        About::Ambiguous(name) => words_at(text, name).find(|at| is_bare(text, *at)),
        About::Function(name) | About::Call(name) => calls_at(text, name).next(),
        About::Token(token) => code(text).find(token.as_str()),
        // The engine's session tells which of several places it is.
        About::Misplaced(_) => None,
        About::Clause(word) => {
            let mut all = words_at(text, word);
            all.next().filter(|_| all.next().is_none())
        }
    }
}

fn ends_with(text: &str, end: &str) -> bool {
    let at = text.len().checked_sub(end.len());
    at.and_then(|at| text.get(at..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
}

/// Whether a name stands alone: behind no point, and not as the name that something is given.
fn is_bare(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    let given = before.split_whitespace().next_back().is_some_and(|word| word.eq_ignore_ascii_case("as"));
    !before.ends_with('.') && !given
}

/// Where a function is called.
fn calls_at<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    words_at(text, name)
        .filter(|at| text.get(at + name.len()..).is_some_and(|after| after.trim_start().starts_with('(')))
}

/// Where a word stands in a text as a whole word, in whatever case.
pub fn find_word(text: &str, word: &str) -> Option<usize> {
    words_at(text, word).next()
}

/// Everywhere it stands.
pub fn words_at<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let lower = code(text).to_ascii_lowercase();
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

/// The text with blanks in the place of comments and strings, of the same length: a name in them is no name.
fn code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let blank = match first {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '\'' => rest[1..].find('\'').map_or(rest.len(), |at| at + 2),
            _ => 0,
        };
        if blank == 0 {
            kept.push(first);
        }
        kept.extend(std::iter::repeat_n(' ', blank));
        rest = &rest[if blank == 0 { first.len_utf8() } else { blank }..];
    }
    kept
}
