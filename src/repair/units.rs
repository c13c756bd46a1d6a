//! Durations and sizes as people write them in repair files: `"30s"`, `"2m"`, `"100MiB"`.
//!
//! One number, one unit, nothing else: `"1h30m"` and `"1.5h"` are refused, because a
//! file that says `"90m"` is read by everybody in the same way.

use crate::model::Millis;
use crate::model::amount::fraction_hint;
pub use crate::model::amount::show_size;

const DURATIONS: &[(&str, i64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: &[(&str, i64)] =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Milliseconds of a text like `30s`, `2m`, `1h`.
///
/// # Errors
/// With what is wrong and the units that are known.
pub fn duration(text: &str) -> Result<Millis, String> {
    scaled(text, DURATIONS, "a duration like \"30s\", \"2m\" or \"1h\"")
}

/// Bytes of a text like `100MiB`, or `0`.
///
/// # Errors
/// With what is wrong and the units that are known.
pub fn size(text: &str) -> Result<i64, String> {
    if text == "0" {
        return Ok(0);
    }
    scaled(text, SIZES, "a size like \"512KiB\", \"100MiB\" or \"0\"")
}

/// A duration as this module reads it back, in the largest unit that divides it.
#[must_use]
pub fn show_duration(ms: Millis) -> String {
    let (unit, scale) =
        DURATIONS.iter().rev().find(|(_, scale)| ms != 0 && ms % scale == 0).unwrap_or(&("s", 1_000));
    format!("{}{unit}", ms / scale)
}

fn scaled(text: &str, units: &[(&str, i64)], wanted: &str) -> Result<i64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let wrong = || match fraction_hint(text) {
        hint if hint.is_empty() => format!("{text:?} is not {wanted} (units: {})", known()),
        hint => format!("{text:?} is not {wanted}{hint}"),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    let scale = scale.ok_or_else(wrong)?;
    number.checked_mul(scale).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_as_people_write_them() {
        assert_eq!(duration("30s"), Ok(30_000));
        assert_eq!(duration("2m"), Ok(120_000));
        assert_eq!(duration("1h"), Ok(3_600_000));
        assert_eq!(duration("250ms"), Ok(250));
        assert_eq!(size("100MiB"), Ok(100 << 20));
        assert_eq!(size("0"), Ok(0));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in ["", "s", "30", "1h30m", "1.5h", "-1s", "30 s", "30S", "5minutes", "9999999999999999d"] {
            assert!(duration(text).is_err(), "{text:?} must not be a duration");
        }
        for text in ["", "100", "100MB", "1 GiB", "-1B", "9999999999TiB"] {
            assert!(size(text).is_err(), "{text:?} must not be a size");
        }
    }

    #[test]
    fn a_fraction_is_told_with_the_whole_amount() {
        assert!(size("1.5GiB").unwrap_err().ends_with("; fractions are not allowed: write 1536MiB"));
        assert!(duration("1.5h").unwrap_err().ends_with("; fractions are not allowed: write 90m"));
    }

    #[test]
    fn a_duration_that_is_shown_is_read_back_the_same() {
        for ms in [1, 999, 1_000, 61_000, 90 * 60_000, 3_600_000, 86_400_000, 0] {
            assert_eq!(duration(&show_duration(ms)), Ok(ms));
        }
    }
}
