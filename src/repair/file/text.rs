//! The text of a repair file: TOML to a [`Repair`], every bound checked on the way.

use super::{Deadline, FileError, Repair, Retry, Throttle, subject_of};
use crate::model::Millis;
use crate::model::attempt::Step;
use crate::model::goal::SubjectKind;
use crate::repair::limits::{Key, RATES};
use crate::repair::units;
use serde::Deserialize;
use std::ops::{Range, RangeInclusive};
use std::path::{Component, Path};
use std::str::FromStr;
use toml::Spanned;

/// A second to a day: shorter spins, longer is forgotten.
const WAITS: RangeInclusive<Millis> = 1_000..=86_400_000;

/// A program and its arguments are written by hand.
const MAX_ARGUMENTS: usize = 64;
const MAX_ARGUMENT_BYTES: usize = 8 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    summary: Spanned<String>,
    subject: Spanned<String>,
    step: Option<Spanned<String>>,
    exec: Option<Spanned<Vec<String>>>,
    throttle: RawThrottle,
    deadline: RawDeadline,
    retry: RawRetry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThrottle {
    in_flight: Spanned<i64>,
    per_fileserver: Spanned<i64>,
    per_rack: Spanned<i64>,
    starts_per_minute: Spanned<i64>,
    bytes_per_second: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDeadline {
    base: Spanned<String>,
    per_gib: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRetry {
    first: Spanned<String>,
    max: Spanned<String>,
    lock_after: Spanned<i64>,
    stuck_after: Spanned<i64>,
}

/// The file that is being read, for messages.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Option<Range<usize>>, message: impl Into<String>) -> FileError {
        let start = span.map_or(0, |span| span.start.min(self.text.len()));
        let line = 1 + self.text.bytes().take(start).filter(|byte| *byte == b'\n').count();
        FileError { file: self.file.to_owned(), line, message: message.into() }
    }

    /// What the TOML reader says, with the key of the line it stopped at where it names none.
    fn syntax(&self, error: &toml::de::Error) -> FileError {
        let message = error.message().replace('\n', ", ");
        let found = self.error(error.span(), "");
        let line = self.text.lines().nth(found.line - 1).unwrap_or_default();
        let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| !message.contains(*key));
        let message = key.map_or_else(|| message.clone(), |key| format!("{key}: {message}"));
        FileError { message: meant(&message), ..found }
    }

    fn word<T: FromStr>(&self, key: &str, value: &Spanned<String>) -> Result<T, FileError>
    where
        T::Err: std::fmt::Display,
    {
        value.get_ref().parse().map_err(|error| {
            let known = ALL_WORDS.iter().copied();
            self.error(Some(value.span()), format!("{key}: {error}{}", near(value.get_ref(), known)))
        })
    }

    fn number<T: TryFrom<i64>>(
        &self,
        key: &str,
        value: &Spanned<i64>,
        bounds: RangeInclusive<i64>,
    ) -> Result<T, FileError> {
        let number = *value.get_ref();
        let refused = || {
            let message = format!("{key}: {number} is not within {} to {}", bounds.start(), bounds.end());
            self.error(Some(value.span()), message)
        };
        if !bounds.contains(&number) {
            return Err(refused());
        }
        T::try_from(number).map_err(|_| refused())
    }

    /// A limit: what a file may say, a person may set at run time.
    fn limit(&self, key: &str, value: &Spanned<i64>) -> Result<u32, FileError> {
        self.number(key, value, Key::bounds_of(key))
    }

    fn duration(
        &self,
        key: &str,
        value: &Spanned<String>,
        bounds: RangeInclusive<Millis>,
    ) -> Result<Millis, FileError> {
        let at = Some(value.span());
        let ms = units::duration(value.get_ref())
            .map_err(|error| self.error(at.clone(), format!("{key}: {error}")))?;
        if bounds.contains(&ms) {
            return Ok(ms);
        }
        let (from, to) = (units::show_duration(*bounds.start()), units::show_duration(*bounds.end()));
        Err(self.error(at, format!("{key}: {:?} is not within {from} to {to}", value.get_ref())))
    }
}

/// Every word that a step or a subject may be.
const ALL_WORDS: [&str; Step::ALL.len() + SubjectKind::ALL.len()] = {
    let mut words = [""; Step::ALL.len() + SubjectKind::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = if at < Step::ALL.len() {
            Step::ALL[at].as_str()
        } else {
            SubjectKind::ALL[at - Step::ALL.len()].as_str()
        };
        at += 1;
    }
    words
};

/// `; did you mean x?`, or nothing.
fn near<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    known
        .map(|word| (strsim::jaro_winkler(unknown, word), word))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.85)
        .map_or_else(String::new, |(_, word)| format!("; did you mean {word}?"))
}

/// The TOML reader lists what it knows; which of it was meant stands at the end.
fn meant(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(unknown) if message.contains("unknown field") => format!("{message}{}", near(unknown, quoted)),
        _ => message.to_owned(),
    }
}

pub(super) fn parse(name: &str, file: &str, text: &str) -> Result<Repair, FileError> {
    let source = Source { file, text };
    check_name(name).map_err(|message| source.error(None, message))?;
    let raw: Raw = toml::from_str(text).map_err(|error| source.syntax(&error))?;
    let (step, exec) = act(&source, &raw)?;
    let repair = Repair {
        name: name.to_owned(),
        summary: summary(&source, &raw.summary)?,
        subject: source.word("subject", &raw.subject)?,
        step,
        exec,
        throttle: throttle(&source, &raw.throttle)?,
        deadline: deadline(&source, &raw.deadline)?,
        retry: retry(&source, &raw.retry)?,
    };
    let Some(wanted) = subject_of(repair.step).filter(|wanted| *wanted != repair.subject) else {
        return Ok(repair);
    };
    let message = format!("subject: step {} is done to a {wanted}, not to a {}", repair.step, repair.subject);
    Err(source.error(Some(raw.subject.span()), message))
}

fn check_name(name: &str) -> Result<(), String> {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name == "fleet" {
        return Err("the file's name \"fleet\" is taken by the fleet's own limits".to_owned());
    }
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if starts && name.len() <= 64 && name.bytes().all(lower) {
        return Ok(());
    }
    Err(format!("the file's name {name:?} is not lower case letters, digits and \"-\", 64 at most"))
}

fn summary(source: &Source<'_>, value: &Spanned<String>) -> Result<String, FileError> {
    let text = value.get_ref().trim();
    if text.is_empty() || text.len() > 200 || text.contains('\n') {
        let message = "summary: say what it does in one line of 1 to 200 bytes";
        return Err(source.error(Some(value.span()), message));
    }
    Ok(text.to_owned())
}

/// The one thing that it does: a built-in step, or a program.
fn act(source: &Source<'_>, raw: &Raw) -> Result<(Step, Vec<String>), FileError> {
    match (&raw.step, &raw.exec) {
        (Some(step), None) => match source.word("step", step)? {
            Step::Exec => {
                let message =
                    "step: a program of your own is named by exec = [\"/path/to/it\", …], not by step";
                Err(source.error(Some(step.span()), message))
            }
            step => Ok((step, Vec::new())),
        },
        (None, Some(exec)) => {
            check_program(exec.get_ref()).map_err(|message| source.error(Some(exec.span()), message))?;
            Ok((Step::Exec, exec.get_ref().clone()))
        }
        (Some(_), Some(exec)) => {
            Err(source.error(Some(exec.span()), "exec: a repair has a step or a program, not both"))
        }
        (None, None) => {
            Err(source.error(None, "say what it does: step = \"…\", or exec = [\"/path/to/program\"]"))
        }
    }
}

/// A fixed list, never a shell's line; found by its path alone, never by a search.
fn check_program(exec: &[String]) -> Result<(), String> {
    let Some(program) = exec.first() else {
        return Err("exec: the list is empty; the program's path comes first".to_owned());
    };
    let plain =
        Path::new(program).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !program.starts_with('/') || !plain || program.ends_with('/') {
        return Err(format!("exec: {program:?} is not the absolute path of a program"));
    }
    if exec.len() > MAX_ARGUMENTS || exec.iter().map(String::len).sum::<usize>() > MAX_ARGUMENT_BYTES {
        return Err(format!("exec: more than {MAX_ARGUMENTS} words or {MAX_ARGUMENT_BYTES} bytes"));
    }
    match exec.iter().find(|word| word.contains('\0')) {
        Some(word) => Err(format!("exec: {word:?} contains a zero byte")),
        None => Ok(()),
    }
}

fn throttle(source: &Source<'_>, raw: &RawThrottle) -> Result<Throttle, FileError> {
    let rate = &raw.bytes_per_second;
    let bytes_per_second = units::size(rate.get_ref())
        .map_err(|error| source.error(Some(rate.span()), format!("bytes_per_second: {error}")))?;
    if bytes_per_second != 0 && !RATES.contains(&bytes_per_second) {
        let message = format!(
            "bytes_per_second: {:?} is neither \"0\" (no bound) nor within 64KiB to 1TiB",
            rate.get_ref()
        );
        return Err(source.error(Some(rate.span()), message));
    }
    Ok(Throttle {
        in_flight: source.limit("in_flight", &raw.in_flight)?,
        per_fileserver: source.limit("per_fileserver", &raw.per_fileserver)?,
        per_rack: source.limit("per_rack", &raw.per_rack)?,
        starts_per_minute: source.limit("starts_per_minute", &raw.starts_per_minute)?,
        bytes_per_second,
    })
}

fn deadline(source: &Source<'_>, raw: &RawDeadline) -> Result<Deadline, FileError> {
    Ok(Deadline {
        base_ms: source.duration("base", &raw.base, WAITS)?,
        per_gib_ms: source.duration("per_gib", &raw.per_gib, 0..=86_400_000)?,
    })
}

fn retry(source: &Source<'_>, raw: &RawRetry) -> Result<Retry, FileError> {
    let retry = Retry {
        first_ms: source.duration("first", &raw.first, WAITS)?,
        max_ms: source.duration("max", &raw.max, WAITS)?,
        lock_after: source.number("lock_after", &raw.lock_after, 1..=1_000)?,
        stuck_after: source.number("stuck_after", &raw.stuck_after, 1..=1_000)?,
    };
    if retry.max_ms < retry.first_ms {
        let message = format!("max: {:?} is less than first, {:?}", raw.max.get_ref(), raw.first.get_ref());
        return Err(source.error(Some(raw.max.span()), message));
    }
    Ok(retry)
}
