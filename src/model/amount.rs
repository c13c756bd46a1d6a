//! Sizes and counts in words, and what a fraction of a unit ought to have been.
//!
//! Whoever reads files reads numbers in its own spelling; how they are shown to people is one for all.

/// Units of sizes, each a whole multiple of those before it.
const BINARY: [(&str, i64); 6] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];
const DECIMAL: [(&str, i64); 5] =
    [("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];
const TIME: [(&str, i64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Most digits of a fraction that are looked at.
const DIGITS: usize = 9;

/// Bytes as people read them: the largest unit that leaves at least one, a tenth where there is one.
#[must_use]
pub fn show_size(bytes: i64) -> String {
    let (unit, scale) = BINARY.iter().rev().find(|(_, scale)| bytes.abs() >= *scale).unwrap_or(&BINARY[0]);
    let (whole, rest) = (bytes / scale, (bytes % scale).abs());
    match (rest > 0 && whole.abs() < 100).then(|| i128::from(rest) * 10 / i128::from(*scale)) {
        Some(tenth) if tenth > 0 => format!("{whole}.{tenth} {unit}"),
        _ => format!("{whole} {unit}"),
    }
}

/// Two sizes that are compared: in full beside it where they would look the same and are not.
#[must_use]
pub fn show_both(one: i64, other: i64) -> (String, String) {
    let (first, second) = (show_size(one), show_size(other));
    if first != second || one == other {
        return (first, second);
    }
    (format!("{first} ({one} bytes)"), format!("{second} ({other} bytes)"))
}

/// A number of things in words: `1 row`, `2 rows`, `3 copies`.
#[must_use]
pub fn counted(many: impl TryInto<i128>, what: &str) -> String {
    let many = many.try_into().unwrap_or(i128::MAX);
    format!("{many} {}", plural(many == 1, what))
}

/// The word for one thing, or for several.
#[must_use]
pub fn plural(one: bool, what: &str) -> String {
    match what.strip_suffix('y') {
        _ if one => what.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o']) => format!("{stem}ies"),
        _ if what.ends_with("sh") => format!("{what}es"),
        _ => format!("{what}s"),
    }
}

/// The first of some names, and how many more there are: `a, b and 3 more`.
#[must_use]
pub fn listed<T: AsRef<str>>(all: &[T], most: usize) -> String {
    listed_by(all, most, ", ")
}

/// The same of longer ones, with something else between them: `a is wrong; b is wrong; and 3 more`.
#[must_use]
pub fn listed_by<T: AsRef<str>>(all: &[T], most: usize, between: &str) -> String {
    let first: Vec<&str> = all.iter().take(most).map(AsRef::as_ref).collect();
    let (rest, before) = (all.len() - first.len(), if between == ", " { " " } else { between });
    let more = if rest == 0 { String::new() } else { format!("{before}and {rest} more") };
    first.join(between) + &more
}

/// What to write for a fraction of a unit: `; fractions are not allowed: write 1536MiB` of `1.5GiB`. Empty: it is none.
#[must_use]
pub fn fraction_hint(text: &str) -> String {
    whole(text).map_or_else(String::new, |whole| format!("; fractions are not allowed: write {whole}"))
}

/// The same amount in a smaller unit, or the nearest that is whole.
fn whole(text: &str) -> Option<String> {
    let (number, unit) = text.trim().split_at_checked(text.trim().find(|c: char| c.is_alphabetic())?)?;
    let (before, after) = number.trim().split_once(['.', ','])?;
    let all_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if (before.is_empty() && after.is_empty())
        || !all_digits(before)
        || !all_digits(after)
        || after.len() > DIGITS
    {
        return None;
    }
    // `1.5 gib` is a fraction too; what a single letter in the wrong case means cannot be known.
    let same = |name: &str| name == unit || (unit.len() > 1 && name.eq_ignore_ascii_case(unit));
    let position = |units: &[(&str, i64)]| units.iter().position(|(name, _)| same(name));
    let all = [&TIME[..], &BINARY[..], &DECIMAL[..]];
    let (units, at) = all.into_iter().find_map(|units| Some((units, position(units)?)))?;
    let tens = 10_i128.pow(u32::try_from(after.len()).ok()?);
    let parts: i128 = format!("{before}{after}").parse().ok()?;
    // In the smallest unit, times `tens`.
    let amount = parts.checked_mul(units[at].1.into())?;
    let smaller = units[..=at].iter().rev();
    let exact = smaller.clone().find(|(_, scale)| amount % (i128::from(*scale) * tens) == 0);
    let near = || smaller.clone().skip(1).find(|(_, scale)| amount >= i128::from(*scale) * tens);
    let (name, scale) = exact.or_else(near).unwrap_or(&units[0]);
    let scale = i128::from(*scale) * tens;
    let rounded = (amount + scale / 2) / scale;
    Some(format!("{}{name}", rounded.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_unit_and_in_full_where_two_would_look_the_same() {
        assert_eq!(
            [show_size(501), show_size(5 << 30), show_size(3 << 29), show_size(-2048)],
            ["501 B", "5 GiB", "1.5 GiB", "-2 KiB"]
        );
        let (one, other) = show_both(5 << 30, (5 << 30) + 7);
        assert_eq!([one.as_str(), other.as_str()], ["5 GiB (5368709120 bytes)", "5 GiB (5368709127 bytes)"]);
        assert_eq!(show_both(1, 1), ("1 B".into(), "1 B".into()));
    }

    #[test]
    fn one_thing_is_one_and_no_things_are_several() {
        let all = [counted(1, "row"), counted(0, "row"), counted(2, "copy"), counted(3, "push")];
        assert_eq!(all, ["1 row", "0 rows", "2 copies", "3 pushes"]);
        assert_eq!([counted(1, "repository"), counted(2, "key")], ["1 repository", "2 keys"]);
    }

    #[test]
    fn of_many_names_the_first_are_told_and_the_others_counted() {
        let all = ["a", "b", "c"];
        assert_eq!([listed(&all, 3), listed(&all, 1)], ["a, b, c", "a and 2 more"]);
        assert_eq!(listed_by(&all, 2, "; "), "a; b; and 1 more");
        assert_eq!(listed::<&str>(&[], 2), "");
    }

    #[test]
    fn a_fraction_of_a_unit_is_told_with_the_whole_amount() {
        for (text, meant) in [
            ("1.5GiB", "1536MiB"),
            ("1.5 GiB", "1536MiB"),
            ("1,5GiB", "1536MiB"),
            ("1.0GiB", "1GiB"),
            (".5TiB", "512GiB"),
            ("2.5GB", "2500MB"),
            ("1.3GiB", "1331MiB"),
            ("0.0001GiB", "105KiB"),
            ("1.7B", "2B"),
            ("1.5 gib", "1536MiB"),
            ("1.5h", "90m"),
            ("0.5d", "12h"),
            ("1.5ms", "2ms"),
        ] {
            assert_eq!(fraction_hint(text), format!("; fractions are not allowed: write {meant}"), "{text}");
        }
        for text in
            ["1GiB", "1.5", "1.5 gibibytes", "..GiB", "1.5.5GiB", "GiB", "", "v1.5s", "1.-5s", "1.5%", "1.5M"]
        {
            assert_eq!(fraction_hint(text), "", "{text}");
        }
    }
}
