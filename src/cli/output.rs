//! Writing answers: tables and JSON on stdout, times with their age, sizes in units.

use super::args::Output;
use crate::model::Millis;
use crate::model::amount::plural;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;
use std::io::Write as _;

/// Writes a line of data. A reader that went away is not an error.
pub fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes an answer in the form that was asked for.
///
/// # Errors
/// When it cannot be written as JSON; never in practice.
pub fn answer<T: Serialize>(output: Output, value: &T, table: impl FnOnce() -> String) -> anyhow::Result<()> {
    match output {
        Output::Json => line(&serde_json::to_string_pretty(value)?),
        Output::Table => line(table().trim_end()),
    }
    Ok(())
}

/// A table of these columns and rows.
pub fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A moment in UTC with its age.
#[must_use]
pub fn moment(at: Millis, now: Millis) -> String {
    let time = chrono::DateTime::from_timestamp_millis(at).unwrap_or_default();
    format!("{} ({} ago)", time.format("%Y-%m-%d %H:%M:%SZ"), age(now - at))
}

/// A moment in UTC with its age, or a dash.
#[must_use]
pub fn moment_or_dash(at: Option<Millis>, now: Millis) -> String {
    at.map_or_else(|| "-".to_owned(), |at| moment(at, now))
}

/// A length of time in its two largest units.
#[must_use]
pub fn age(length: Millis) -> String {
    let seconds = length.max(0) / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// Bytes in the unit that fits.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn size(bytes: i64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes.max(0) as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// A number with thousands set apart.
#[must_use]
pub fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// `yes` or `no`.
#[must_use]
pub const fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// A number of things in words: `1 row`, `1,200 rows`.
#[must_use]
pub fn counted(many: u64, what: &str) -> String {
    format!("{} {}", number(i64::try_from(many).unwrap_or(i64::MAX)), plural(many == 1, what))
}

/// A text in lines of at most so many characters, each after the first behind an indent; it breaks at spaces, and a
/// word that is longer than a line has one of its own: nothing is lost.
#[must_use]
pub fn wrapped(text: &str, most: usize, indent: &str) -> String {
    let words = text.trim_start();
    let (mut all, mut line) = (String::new(), text.strip_suffix(words).unwrap_or_default().to_owned());
    for word in words.split_whitespace() {
        let begun = !line.trim_start().is_empty();
        if begun && line.chars().count() + 1 + word.chars().count() > most {
            all.push_str(&line);
            all.push('\n');
            indent.clone_into(&mut line);
        } else if begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    all + &line
}

/// The text up to a length, with a mark where it was cut.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_at_spaces_and_nothing_of_it_is_lost() {
        assert_eq!(wrapped("  one two three four", 9, "    "), "  one two\n    three\n    four");
        assert_eq!(wrapped("  a-word-of-many-letters b", 9, "  "), "  a-word-of-many-letters\n  b");
        assert_eq!(
            [counted(1, "row"), counted(0, "row"), counted(1_200, "row")],
            ["1 row", "0 rows", "1,200 rows"]
        );
    }

    #[test]
    fn ages_sizes_and_numbers_are_short() {
        assert_eq!(
            [age(5_000), age(65_000), age(7_860_000), age(90_000_000)],
            ["5s", "1m05s", "2h11m", "1d01h"]
        );
        assert_eq!([size(12), size(2048), size(10 << 30)], ["12 B", "2.0 KiB", "10.0 GiB"]);
        assert_eq!([number(3412), number(12), number(1_234_567)], ["3,412", "12", "1,234,567"]);
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn a_moment_is_utc_with_its_age() {
        assert_eq!(moment(0, 60_000), "1970-01-01 00:00:00Z (1m00s ago)");
    }

    #[test]
    fn tables_have_no_trailing_blanks() {
        let text = table(&["A", "B"], [vec!["1".to_owned(), String::new()]]);
        assert!(text.lines().all(|line| line == line.trim_end()), "{text:?}");
    }
}
