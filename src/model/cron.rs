//! Why a text is no schedule: the field, what was given there, and what may be.

use super::amount::counted;

/// The fields in their order: name, least and most, and the names that may stand for numbers.
const FIELDS: [(&str, u32, u32, &[&str]); 6] = [
    ("seconds", 0, 59, &[]),
    ("minutes", 0, 59, &[]),
    ("hours", 0, 23, &[]),
    ("days", 1, 31, &[]),
    ("months", 1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    ("weekdays", 1, 7, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Words that people write, and the schedules that they mean.
const WORDS: [(&str, &str); 5] = [
    ("hourly", "0 0 * * * *"),
    ("daily", "0 0 0 * * *"),
    ("weekly", "0 0 0 * * 1"),
    ("monthly", "0 0 0 1 * *"),
    ("yearly", "0 0 0 1 1 *"),
];

/// Why a text that the reader of schedules refused is none.
#[must_use]
pub fn why(text: &str, error: &cron::error::Error) -> String {
    if text.starts_with(['"', '\'', '`']) {
        return "it is written without quotes".to_owned();
    }
    let fields: Vec<_> = text.split_whitespace().collect();
    match *fields.as_slice() {
        [word] => WORDS
            .iter()
            .find(|(name, _)| word.trim_start_matches('@').eq_ignore_ascii_case(name))
            .map_or_else(|| six(1), |(name, meant)| format!("{name} is written `{meant}`")),
        [_, _, _, _, _] => "five fields lack the seconds, which come first".to_owned(),
        [_, _, _, _, _, _] | [_, _, _, _, _, _, _] => fields
            .iter()
            .zip(FIELDS)
            .find_map(|(given, field)| wrong(given, field))
            .unwrap_or_else(|| last_line(error)),
        _ => six(fields.len()),
    }
}

fn six(fields: usize) -> String {
    let all = FIELDS.map(|(name, ..)| name).join(", ");
    format!("it has {}, and there are six: {all}", counted(fields, "field"))
}

/// What is wrong with one field, if it is the numbers or names in it.
fn wrong(given: &str, (field, min, max, names): (&str, u32, u32, &[&str])) -> Option<String> {
    let is_right = |part: &str| {
        if let Ok(number) = part.parse::<u32>() {
            return (min..=max).contains(&number);
        }
        let short = part.get(..3).unwrap_or(part).to_ascii_lowercase();
        matches!(part, "" | "*" | "?") || names.contains(&short.as_str())
    };
    // What stands behind a slash is a step, and may be anything that the reader takes.
    let bounds = given.split(',').filter_map(|part| part.split('/').next());
    let refused = bounds.flat_map(|part| part.split('-')).find(|one| !is_right(one))?;
    let or = match (names.first(), names.last()) {
        (Some(first), Some(last)) => format!(", or names, {first} to {last}"),
        _ => String::new(),
    };
    Some(format!("{field} are {min} to {max}{or}, and \"{refused}\" was given"))
}

/// The sentence alone: above it stand the text once more and a mark below it, which do not survive being put in a line.
fn last_line(error: &cron::error::Error) -> String {
    error.to_string().lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr as _;

    #[test]
    fn a_wrong_schedule_is_told_with_the_field_what_was_given_and_what_may_be() {
        for (text, said) in [
            ("0 15 25 * * *", "hours are 0 to 23, and \"25\" was given"),
            ("0 60 2 * * *", "minutes are 0 to 59, and \"60\" was given"),
            ("0 0 0 0 * *", "days are 1 to 31, and \"0\" was given"),
            ("0 0 0 * 13 *", "months are 1 to 12, or names, jan to dec, and \"13\" was given"),
            ("0 0 0 * * mno", "weekdays are 1 to 7, or names, sun to sat, and \"mno\" was given"),
            ("0 0 1-24 * * *", "hours are 0 to 23, and \"24\" was given"),
            ("daily", "daily is written `0 0 0 * * *`"),
            ("*/5 * * * *", "five fields lack the seconds, which come first"),
            ("\"0 0 3 * * *\"", "it is written without quotes"),
            ("*", "it has 1 field, and there are six: seconds, minutes, hours, days, months, weekdays"),
            ("* *", "it has 2 fields, and there are six: seconds, minutes, hours, days, months, weekdays"),
        ] {
            let error = cron::Schedule::from_str(text).unwrap_err();
            assert_eq!(why(text, &error), said, "{text}");
        }
        for (_, meant) in WORDS {
            assert!(cron::Schedule::from_str(meant).is_ok(), "{meant}");
        }
    }
}
