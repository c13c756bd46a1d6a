//! What values are: durations, sizes, counts, addresses, schedules. Text in, a checked value out.

use crate::model::Millis;
use crate::model::amount::fraction_hint;
use crate::model::token::UnknownWord;
use crate::model::wire::read::Filter;
use std::net::SocketAddr;
use std::str::FromStr as _;

/// What a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A length of time: `20s`, `1h30m`.
    Duration,
    /// Bytes: `10GiB`.
    Size,
    /// A whole number within bounds.
    Count {
        /// Smallest.
        min: u32,
        /// Largest.
        max: u32,
    },
    /// `true` or `false`.
    Switch,
    /// `HOST:PORT`, numbers only.
    Address,
    /// As an address; may be empty.
    MaybeAddress,
    /// `sqlite:PATH` or `postgres://…`; may be empty.
    DatabaseUrl,
    /// `redis://…` or `rediss://…`; may be empty.
    RedisUrl,
    /// Cron with seconds.
    Schedule,
    /// `http://…` or `https://…`; may be empty.
    HttpUrl,
    /// Kinds of filters of partial clones, separated by spaces; may be empty.
    Filters,
}

impl Kind {
    /// Checks a value; the error says what is allowed.
    ///
    /// # Errors
    /// With a sentence.
    pub fn check(self, text: &str) -> Result<(), String> {
        match self {
            Self::Text => Ok(()),
            Self::Duration => duration(text).map(|_| ()),
            Self::Size => size(text).map(|_| ()),
            Self::Count { min, max } => count(text, min, max).map(|_| ()),
            Self::Switch => switch(text).map(|_| ()),
            Self::Address => address(text).map(|_| ()),
            Self::MaybeAddress if text.is_empty() => Ok(()),
            Self::MaybeAddress => address(text).map(|_| ()),
            Self::DatabaseUrl => database_url(text),
            Self::RedisUrl => redis_url(text),
            Self::Schedule => schedule(text).map(|_| ()),
            Self::HttpUrl => http_url(text),
            Self::Filters => filters(text).map(|_| ()),
        }
    }

    /// What may be written, for people.
    #[must_use]
    pub const fn allowed(self) -> &'static str {
        match self {
            Self::Text => "a text",
            Self::Duration => "a duration such as 500ms, 20s, 30m, 2h, 7d",
            Self::Size => "a size such as 0, 512MiB, 10GiB",
            Self::Count { .. } => "a whole number",
            Self::Switch => "true or false",
            Self::Address | Self::MaybeAddress => "an address such as 127.0.0.1:7080",
            Self::DatabaseUrl => "sqlite:PATH or postgres://…",
            Self::RedisUrl => "redis://HOST:PORT or rediss://HOST:PORT",
            Self::Schedule => "cron with seconds, such as 0 */2 * * * *",
            Self::HttpUrl => "http://HOST:PORT/PATH",
            Self::Filters => "kinds of filters, such as blob:none tree",
        }
    }
}

/// Reads `500ms`, `20s`, `1h30m`, `7d` as milliseconds.
///
/// # Errors
/// When it is not of that form, or too long.
pub fn duration(text: &str) -> Result<Millis, String> {
    let wrong =
        || format!("{text:?} is not a duration such as 500ms, 20s, 30m, 2h, 7d{}", fraction_hint(text));
    let mut total: Millis = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: Millis = rest[..digits].parse().map_err(|_| wrong())?;
        let after = &rest[digits..];
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit: Millis = match &after[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        total = number.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = &after[letters..];
    }
    Ok(total)
}

/// Reads `1048576`, `512MiB`, `10GiB` as bytes.
///
/// # Errors
/// When it is not of that form, or too large.
pub fn size(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a size such as 0, 512MiB, 10GiB{}", fraction_hint(text));
    let text_trimmed = text.trim();
    let digits = text_trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(text_trimmed.len());
    let number: i64 = text_trimmed[..digits].parse().map_err(|_| wrong())?;
    let unit: i64 = match text_trimmed[digits..].trim() {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Reads `true` or `false`.
///
/// # Errors
/// When it is neither.
pub fn switch(text: &str) -> Result<bool, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is neither true nor false"))
}

/// Reads a whole number within bounds.
///
/// # Errors
/// When it is none, or out of bounds.
pub fn count(text: &str, min: u32, max: u32) -> Result<u32, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("{text:?} is not a whole number from {min} to {max}"))
}

/// Reads an address with a port.
///
/// # Errors
/// When it is none.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is not an address such as 127.0.0.1:7080"))
}

/// Reads a cron schedule with seconds.
///
/// # Errors
/// Saying so where a five-field line lacks seconds.
pub fn schedule(text: &str) -> Result<cron::Schedule, String> {
    if text.split_whitespace().count() == 5 {
        return Err(format!(
            "{text:?} has five fields: seconds come first here, for example \"0 {}\"",
            text.trim()
        ));
    }
    cron::Schedule::from_str(text).map_err(|error| {
        let why = crate::model::cron::why(text, &error);
        format!("{text:?} is not cron with seconds, such as \"0 */2 * * * *\": {why}")
    })
}

fn http_url(text: &str) -> Result<(), String> {
    let known = ["http://", "https://"].iter().any(|start| text.starts_with(start));
    if text.is_empty() || known && !text.contains(char::is_whitespace) {
        return Ok(());
    }
    Err(format!("{text:?} is not an address such as http://127.0.0.1:8080/path"))
}

/// Reads kinds of filters, separated by spaces.
///
/// # Errors
/// When git knows no such filter.
pub fn filters(text: &str) -> Result<Vec<Filter>, String> {
    text.split_whitespace().map(|word| word.parse().map_err(|error: UnknownWord| error.to_string())).collect()
}

fn database_url(text: &str) -> Result<(), String> {
    let known = ["sqlite:", "postgres://", "postgresql://"];
    if text.is_empty() || known.iter().any(|start| text.starts_with(start)) {
        return Ok(());
    }
    Err(format!("{:?} is neither sqlite:PATH nor postgres://…", mask_url(text)))
}

fn redis_url(text: &str) -> Result<(), String> {
    if text.is_empty() || text.starts_with("redis://") || text.starts_with("rediss://") {
        return Ok(());
    }
    Err(format!("{:?} is neither redis://HOST:PORT nor rediss://HOST:PORT", mask_url(text)))
}

/// A URL with this password, in place of any other.
#[must_use]
pub fn with_password(url: &str, password: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (who, hosts) = rest[..end].rsplit_once('@').unwrap_or(("", &rest[..end]));
    let user = who.split(':').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escaped: String = password
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("{scheme}://{user}:{escaped}@{hosts}{}", &rest[end..])
}

/// A database URL without its password.
#[must_use]
pub fn mask_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    // A password may hold an unescaped @: the last one before the path ends the user part.
    let masked = match rest[..end].rfind('@') {
        Some(at) => match rest[..at].split_once(':') {
            Some((user, _)) => format!("{user}:…{}", &rest[at..]),
            None => rest.to_owned(),
        },
        None => rest.to_owned(),
    };
    let masked = mask_parameter(&masked);
    format!("{scheme}://{masked}")
}

fn mask_parameter(rest: &str) -> String {
    let Some(start) = rest.find("password=") else { return rest.to_owned() };
    let from = start + "password=".len();
    let end = rest[from..].find('&').map_or(rest.len(), |length| from + length);
    format!("{}…{}", &rest[..from], &rest[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_units_and_refused_without() {
        assert_eq!(duration("20s"), Ok(20_000));
        assert_eq!(duration("1h30m"), Ok(5_400_000));
        assert_eq!(duration("500ms"), Ok(500));
        for wrong in ["", "20", "s", "20 s", "1y", "99999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong:?} must be refused");
        }
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        assert_eq!(size("10GiB"), Ok(10 << 30));
        assert_eq!(size("1MB"), Ok(1_000_000));
        assert_eq!(size("0"), Ok(0));
        assert!(size("1.5GiB").unwrap_err().ends_with("10GiB; fractions are not allowed: write 1536MiB"));
        assert!(duration("1.5h").unwrap_err().ends_with("7d; fractions are not allowed: write 90m"));
        for wrong in ["", "GiB", "1gib", "-1", "99999999999TiB"] {
            assert!(size(wrong).is_err(), "{wrong:?} must be refused");
        }
    }

    #[test]
    fn a_schedule_of_five_fields_is_told_that_it_lacks_seconds() {
        assert!(schedule("*/5 * * * * *").is_ok());
        assert!(schedule("*/5 * * * *").is_err_and(|error| error.contains("seconds come first")));
        let error = schedule("whenever it suits you or not").unwrap_err();
        let said = "such as \"0 */2 * * * *\": seconds are 0 to 59, and \"whenever\" was given";
        assert!(error.ends_with(said), "{error}");
    }

    #[test]
    fn a_password_is_put_in_escaped() {
        assert_eq!(with_password("postgres://me@h/db", "a/b@c%"), "postgres://me:a%2Fb%40c%25@h/db");
        assert_eq!(with_password("postgres://me:old@h,i/db?x=1", "new"), "postgres://me:new@h,i/db?x=1");
        assert_eq!(with_password("sqlite:trued.db", "new"), "sqlite:trued.db");
    }

    #[test]
    fn passwords_never_show() {
        assert_eq!(mask_url("postgres://me:se@cret@host/db"), "postgres://me:…@host/db");
        assert_eq!(
            mask_url("postgres://me@host/db?password=secret&x=1"),
            "postgres://me@host/db?password=…&x=1"
        );
        assert_eq!(mask_url("sqlite:trued.db"), "sqlite:trued.db");
    }
}
