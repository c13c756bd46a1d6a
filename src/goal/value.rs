//! Values in a goal's header: durations, sizes, percentages, integers, text.
//!
//! A value is typed by how it is written, once, when the file is read; what the
//! query gets is a bound value of that type, never text.

use crate::model::Millis;
use crate::model::amount::fraction_hint;

/// What a name in a query is bound to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A duration in milliseconds, a size in bytes, or a plain integer.
    Integer(i64),
    /// A percentage, as a fraction: `20%` is 0.2.
    Fraction(f64),
    /// Anything else.
    Text(String),
}

impl Value {
    /// For people.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Integer(_) => "a number, a duration such as 7d or a size such as 100MiB",
            Self::Fraction(_) => "a percentage such as 20%",
            Self::Text(_) => "a text",
        }
    }
}

const DURATIONS: [(&str, i64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, i64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PiB", 1 << 50),
];

/// Units in words, and how they are written.
const WORDS: [(&str, &str); 16] = [
    ("millisecond", "ms"),
    ("second", "s"),
    ("sec", "s"),
    ("minute", "m"),
    ("min", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("byte", "B"),
    ("kilobyte", "kB"),
    ("megabyte", "MB"),
    ("gigabyte", "GB"),
    ("terabyte", "TB"),
    ("kibibyte", "KiB"),
    ("mebibyte", "MiB"),
    ("gibibyte", "GiB"),
    ("tebibyte", "TiB"),
];

/// What bytes may look like, for error messages.
pub const BYTES_FORM: &str = "a number of bytes, like 1073741824 or \"1 GiB\"";

/// What a text that is no duration ought to have been, with a `; ` before it where that is known.
#[must_use]
pub fn duration_hint(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("; the unit is missing: {text}s, if these are seconds");
    }
    let fraction = fraction_hint(text);
    if fraction.is_empty() { unit_hint(text, &DURATIONS) } else { fraction }
}

/// What a duration may look like, for error messages.
pub const DURATION_FORM: &str = "a duration such as 500ms, 30s, 5m, 2h or 7d";

impl Value {
    /// Reads a value; digits with a unit are a duration, size or percentage, digits alone an integer, text in
    /// quotes is text, and so is what begins with no digit.
    ///
    /// # Errors
    /// When it begins like a number and is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(inner) = quoted(text) {
            return Ok(Self::Text(inner.to_owned()));
        }
        if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
            return Ok(Self::Text(text.to_owned()));
        }
        if let Some(number) = text.strip_suffix('%') {
            return percentage(number)
                .map(|percent| Self::Fraction(percent / 100.0))
                .ok_or_else(|| wrong(text));
        }
        if let Ok(integer) = text.parse::<i64>() {
            return Ok(Self::Integer(integer));
        }
        scaled(text, &DURATIONS)
            .or_else(|| scaled(text, &SIZES))
            .map(Self::Integer)
            .ok_or_else(|| wrong(text))
    }
}

/// What the unit of a value says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `7d`.
    Time,
    /// `100MiB`.
    Bytes,
}

impl Unit {
    /// Of a value as it is written; none: it has no unit.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let time = scaled(text, &DURATIONS).map(|_| Self::Time);
        time.or_else(|| scaled(text, &SIZES).map(|_| Self::Bytes))
    }

    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Time => "a duration",
            Self::Bytes => "a size",
        }
    }
}

/// A duration in milliseconds.
#[must_use]
pub fn duration(text: &str) -> Option<Millis> {
    scaled(text, &DURATIONS)
}

/// A size in bytes.
///
/// # Errors
/// With the units there are, and the one that was meant.
pub fn size(text: &str) -> Result<i64, String> {
    scaled(text, &SIZES).ok_or_else(|| match fraction_hint(text) {
        hint if hint.is_empty() => format!("\"{text}\" is not {BYTES_FORM}{}", unit_hint(text, &SIZES)),
        hint => format!("\"{text}\" is not {BYTES_FORM}{hint}"),
    })
}

/// A percentage from 0 to 100, without its sign.
#[must_use]
pub fn percentage(number: &str) -> Option<f64> {
    let plain = number.trim_end();
    let percent: f64 =
        plain.chars().all(|c| c.is_ascii_digit() || c == '.').then(|| plain.parse().ok())??;
    (0.0..=100.0).contains(&percent).then_some(percent)
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote).and_then(|rest| rest.strip_suffix(*quote)))
}

fn scaled(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: i64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start();
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*scale)
}

fn wrong(text: &str) -> String {
    let fraction = fraction_hint(text);
    if !fraction.is_empty() {
        return format!("\"{text}\" is no value{fraction}");
    }
    let units: Vec<_> = DURATIONS.iter().chain(&SIZES).copied().collect();
    format!(
        "\"{text}\" is no value: write {DURATION_FORM}, a size such as 100MiB or 2GB, a percentage such as 20%, \
         an integer, or text (in quotes where it begins with a digit){}",
        unit_hint(text, &units)
    )
}

/// The unit that was meant, and all units, where a number with a unit stands there: units are told apart by upper
/// and lower case, and a gigabyte is no gibibyte.
fn unit_hint(text: &str, units: &[(&str, i64)]) -> String {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0);
    let Some((number, unit)) = digits.and_then(|at| text.split_at_checked(at)) else { return String::new() };
    let unit = unit.trim();
    if !unit.starts_with(|c: char| c.is_ascii_alphabetic()) || units.iter().any(|(name, _)| *name == unit) {
        return String::new();
    }
    // Whether minutes or a million were meant by an `M` cannot be known.
    let alike = |name: &str| unit != "M" && name.eq_ignore_ascii_case(unit);
    let lower = unit.to_ascii_lowercase();
    let word = WORDS.iter().find(|(word, _)| *word == lower.trim_end_matches('s')).map(|(_, name)| *name);
    let found = units.iter().map(|(name, _)| *name).find(|name| alike(name) || word == Some(name));
    let letter = ["K", "G", "T"].into_iter().find(|letter| letter.eq_ignore_ascii_case(unit));
    let letter = letter.filter(|_| units.iter().any(|(name, _)| *name == "GiB"));
    let near = match (found, letter) {
        (Some(name), _) => format!("; did you mean \"{number}{name}\"?"),
        (None, Some(letter)) => {
            let decimal = if letter == "K" { "kB".to_owned() } else { format!("{letter}B") };
            format!("; did you mean \"{number}{letter}iB\" or \"{number}{decimal}\"?")
        }
        (None, None) => String::new(),
    };
    let all = units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    format!("{near} (units: {all})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_typed_by_how_they_are_written() {
        assert_eq!(Value::parse("7d"), Ok(Value::Integer(604_800_000)));
        assert_eq!(Value::parse("100MiB"), Ok(Value::Integer(104_857_600)));
        assert_eq!(Value::parse("2 GB"), Ok(Value::Integer(2_000_000_000)));
        assert_eq!(Value::parse("20%"), Ok(Value::Fraction(0.2)));
        assert_eq!(Value::parse("-3"), Ok(Value::Integer(-3)));
        assert_eq!(Value::parse("'7d'"), Ok(Value::Text("7d".into())));
        assert_eq!(Value::parse("serve"), Ok(Value::Text("serve".into())));
    }

    #[test]
    fn what_begins_like_a_number_must_be_one() {
        for text in
            ["7 days", "101%", "1e400", "99999999999999999999", "9223372036854775807d", "0x10", "5 Mib"]
        {
            assert!(Value::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wrong_unit_is_told_with_the_units_there_are_and_the_one_that_was_meant() {
        for (text, meant) in [("1GIB", "1GiB"), ("1 gb", "1GB"), ("5 Mib", "5MiB"), ("7D", "7d")] {
            let said = Value::parse(text).unwrap_err();
            assert!(
                said.contains(&format!("; did you mean \"{meant}\"? (units: ms, s, m, h, d, B, KiB")),
                "{said}"
            );
        }
        for (text, meant) in [
            ("1 gigabyte", "\"1GB\"?"),
            ("7 days", "\"7d\"?"),
            ("1G", "\"1GiB\" or \"1GB\"?"),
            ("1k", "\"1KiB\" or \"1kB\"?"),
        ] {
            let said = Value::parse(text).unwrap_err();
            assert!(said.contains(&format!("; did you mean {meant} (units: ms,")), "{said}");
        }
        assert!(!duration_hint("1G").contains("did you mean"), "a duration is no size");
        for text in ["1 M", "3 parsecs"] {
            let said = Value::parse(text).unwrap_err();
            assert!(said.ends_with("kB, MB, GB, TB, PiB)") && !said.contains("did you mean"), "{said}");
        }
        for text in ["0x10", "101%", "9223372036854775807d"] {
            assert!(!Value::parse(text).unwrap_err().contains("did you mean"), "{text}");
        }
        for (text, meant) in
            [("1.5GiB", "1536MiB"), ("1,5 GiB", "1536MiB"), ("0.5h", "30m"), ("2.5TB", "2500GB")]
        {
            let said = Value::parse(text).unwrap_err();
            assert_eq!(said, format!("\"{text}\" is no value; fractions are not allowed: write {meant}"));
        }
        let said = size("1.5GiB").unwrap_err();
        assert!(said.ends_with("\"1 GiB\"; fractions are not allowed: write 1536MiB"), "{said}");
        assert_eq!(duration_hint("1.5s"), "; fractions are not allowed: write 1500ms");
        assert_eq!(duration_hint("30"), "; the unit is missing: 30s, if these are seconds");
        assert_eq!(size("1 GiB"), Ok(1 << 30));
        let said = size("1 gib").unwrap_err();
        assert!(
            said.starts_with(
                "\"1 gib\" is not a number of bytes, like 1073741824 or \"1 GiB\"; did you mean"
            )
        );
    }
}
