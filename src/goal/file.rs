//! One goal file: its header and its query.
//!
//! [`Goal::parse`] is total: any text gives a goal or an error that names file, line
//! and column. It checks what text alone can show; tables and columns are judged by
//! the real engine ([`session`](super::session)).

use super::Engine;
use super::header::{self, Line};

use super::sql::{self, Query};
use super::text::{At, FileError, did_you_mean};
use super::value::{self, Value};
use crate::model::Millis;
use crate::model::brake::Bound;
use crate::model::goal::{Mode, Severity, SubjectKind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The longest file that is read: a goal is a page, not a book.
pub const MAX_FILE_BYTES: usize = 256 * 1024;

/// The names that `recheck` may use beside the goal's own: the one subject that is asked for.
pub const SUBJECT_NAMES: [&str; 5] = ["subject", "repository_id", "repository_name", "fileserver_id", "key"];

/// A goal as its file says, checked as far as text alone can be.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// Its name, the file's stem.
    pub name: String,
    /// The statement in a sentence.
    pub summary: String,
    /// What its rows are about.
    pub subject: SubjectKind,
    /// The remedy; none: findings are only listed.
    pub repair: Option<String>,
    /// Cron with seconds, UTC; none: the configured default.
    pub schedule: Option<cron::Schedule>,
    /// Longest evaluation, milliseconds.
    pub timeout: Millis,
    /// Rows kept as findings.
    pub max_rows: u64,
    /// Repair, or observe.
    pub mode: Mode,
    /// Evaluations in a row before a repair may start.
    pub in_a_row: u32,
    /// Whether its findings wait in the lane of last copies.
    pub last_copies: bool,
    /// For people and alerts.
    pub severity: Severity,
    /// Whether its exceptions are always among the suspects.
    pub suspects: bool,
    /// How many unexplained findings hold new repairs.
    pub brake: Brake,
    /// What was looked at.
    pub population: Option<Population>,
    /// What its names are bound to.
    pub params: BTreeMap<String, Value>,
    /// Which configured database it is asked of.
    pub database: String,
    /// Where the text was read.
    pub path: PathBuf,
    /// The query, as written.
    pub sql: String,
    /// The query, as an engine gets it.
    pub query: Query,
    /// The query for one subject, where the goal gives one.
    pub recheck: Option<Query>,
    /// The whole file, for places in errors.
    pub text: Arc<str>,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub digest: String,
}

/// How many unexplained findings hold new repairs until a person approves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Brake {
    /// However many there are, repairs start.
    Never,
    /// More than the larger of the two.
    Above {
        /// Findings.
        count: Option<u64>,
        /// A fraction of the population.
        share: Option<f64>,
    },
}

impl Brake {
    /// Where there is a repair and the file says nothing.
    pub const DEFAULT: Self = Self::Above { count: Some(100), share: Some(0.2) };

    /// Reads `100`, `20%`, both, or `none`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::Never);
        }
        let (mut count, mut share) = (None, None);
        let parts = text.split(|c: char| c.is_whitespace() || c == ',');
        for part in parts.filter(|part| !part.is_empty() && *part != "and") {
            let percent = part.strip_suffix('%').and_then(value::percentage).map(|percent| percent / 100.0);
            match (percent, part.parse::<u64>()) {
                (Some(percent), _) if share.is_none() => share = Some(percent),
                (_, Ok(number)) if count.is_none() => count = Some(number),
                _ => return None,
            }
        }
        (count.is_some() || share.is_some()).then_some(Self::Above { count, share })
    }

    /// Whether so many findings among so many are too many.
    #[must_use]
    pub fn holds(self, findings: u64, population: u64) -> bool {
        let signed = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.bound().is_some_and(|bound| signed(findings) > bound.most(signed(population)))
    }

    /// The most findings that are not too many; none: never too many.
    #[must_use]
    pub const fn bound(self) -> Option<Bound> {
        match self {
            Self::Never => None,
            Self::Above { count, share } => Some(Bound { count, share }),
        }
    }
}

/// What an evaluation looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Population {
    /// The counter of this name: `repositories`, `replicas` or `fileservers`.
    Counter(&'static str),
    /// A query that gives one number.
    Query(Query),
}

/// The database that a goal is asked of where its header names none.
pub const FLEET: &str = "fleet";

const COUNTERS: [&str; 3] = ["repositories", "replicas", "fileservers"];

impl Goal {
    /// Reads a goal's file for one engine. The path gives the goal's name and the place in errors.
    ///
    /// # Errors
    /// Naming file, line and column, the key, and what would be allowed.
    pub fn parse(path: &Path, text: &str, engine: Engine) -> Result<Self, FileError> {
        read(path, text, engine).map_err(|at| at.in_file(path, text))
    }

    /// Whether it is asked of the fleet's own database.
    #[must_use]
    pub fn asks_fleet(&self) -> bool {
        self.database == FLEET
    }

    /// Whether its rows name repositories (`repository_name`): another database need not know their ids.
    #[must_use]
    pub fn is_by_name(&self) -> bool {
        let named = || self.query.words.iter().any(|word| word == "repository_name");
        !self.asks_fleet() && self.subject == SubjectKind::Repository && named()
    }

    /// An error at a byte of this goal's file, as people see it.
    #[must_use]
    pub fn at(&self, offset: usize, message: String) -> String {
        At::new(offset, message).in_file(&self.path, &self.text).to_string()
    }
}

/// The database that a text's header names, as far as the header can be read.
#[must_use]
pub fn database(text: &str) -> &str {
    let header = header::read(text).ok();
    header
        .and_then(|header| header.lines.iter().find(|line| line.key == "database").map(|line| line.value))
        .unwrap_or(FLEET)
}

/// The goal's name that a file's name stands for, and the engine it is for, where it names one.
#[must_use]
pub fn stem(path: &Path) -> Option<(&str, Option<Engine>)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".sql")?;
    let variant = [Engine::Postgres, Engine::Sqlite]
        .into_iter()
        .find_map(|engine| Some((stem.strip_suffix(engine.as_str())?.strip_suffix('.')?, Some(engine))));
    Some(variant.unwrap_or((stem, None)))
}

fn read(path: &Path, text: &str, engine: Engine) -> Result<Goal, At> {
    if text.len() > MAX_FILE_BYTES {
        return Err(At::new(0, format!("the file is longer than {MAX_FILE_BYTES} bytes")));
    }
    if text.trim().is_empty() {
        return Err(At::new(0, "the file is empty"));
    }
    let header = header::read(text)?;
    let keys = Keys { lines: &header.lines, end: header.end };
    let name = keys.name(path)?;
    let params = keys.params()?;
    let known = names(&params, &[]);
    let query = sql::admit(text, header.end, engine, &known)?;
    super::constant::check(text, header.end, engine)?;
    whole(text)?;
    let repair = keys.find("repair").filter(|line| line.value != "none").map(|line| line.value.to_owned());
    let subject = keys.required_word("subject", SubjectKind::ALL, SubjectKind::as_str)?;
    Ok(Goal {
        name,
        summary: keys.required("summary")?.value.to_owned(),
        subject,
        schedule: keys.schedule()?,
        timeout: keys.timeout()?.unwrap_or(30_000),
        max_rows: keys.positive("max-rows", "a whole number", integer)?.map_or(500_000, i64::unsigned_abs),
        mode: keys.word("mode", Mode::ALL, Mode::as_str)?.unwrap_or(Mode::Repair),
        in_a_row: keys.in_a_row()?,
        last_copies: keys.one_of("lane", &["common", "last-copies"])? == Some("last-copies"),
        severity: keys.word("severity", Severity::ALL, Severity::as_str)?.unwrap_or(Severity::Normal),
        suspects: keys.one_of("scope", &["all", "suspects"])? == Some("suspects"),
        brake: keys.brake(repair.is_some())?,
        population: keys.population(text, engine, &known)?,
        database: keys.find("database").map_or(FLEET, |line| line.value).to_owned(),
        recheck: keys.recheck(text, engine, &names(&params, &SUBJECT_NAMES))?,
        sql: body(text, header.end).to_owned(),
        repair,
        params,
        query,
        path: path.to_owned(),
        text: Arc::from(text),
        digest: blake3::hash(text.as_bytes()).to_hex().to_string(),
    })
}

/// What follows the header. The lone `--` between them ends the header and says nothing to a reader.
fn body(text: &str, end: usize) -> &str {
    let rest = text.get(end..).unwrap_or_default().trim();
    let after = rest
        .strip_prefix("--")
        .filter(|after| after.is_empty() || after.starts_with(['\n', '\r', ' ', '\t']));
    match after.map(|after| after.split_once('\n').unwrap_or((after, ""))) {
        Some((line, below)) if line.trim().is_empty() => below.trim_start(),
        _ => rest,
    }
}

/// A file that ends in the middle of a line was probably not saved whole, and half a query may well be one:
/// without its WHERE it would return everything.
fn whole(text: &str) -> Result<(), At> {
    if text.ends_with('\n') || text.ends_with(';') {
        return Ok(());
    }
    Err(At::new(
        text.len(),
        "the file ends in the middle of a line: it may be half-written; end it with a line end or a semicolon",
    ))
}

fn names(params: &BTreeMap<String, Value>, more: &[&str]) -> Vec<String> {
    let now = std::iter::once("now");
    now.chain(params.keys().map(String::as_str)).chain(more.iter().copied()).map(str::to_owned).collect()
}

fn integer(text: &str) -> Option<i64> {
    text.replace([',', '_'], "").parse().ok()
}

/// The header's lines, asked key by key.
struct Keys<'a> {
    lines: &'a [Line<'a>],
    end: usize,
}

impl<'a> Keys<'a> {
    fn find(&self, key: &str) -> Option<&'a Line<'a>> {
        self.lines.iter().find(|line| line.key == key)
    }

    fn required(&self, key: &str) -> Result<&'a Line<'a>, At> {
        let line = self.find(key).ok_or_else(|| {
            let example = match key {
                "goal" => "the name of its file",
                "summary" => "a sentence that holds when all is well",
                "subject" => "repository, replica, fileserver or key",
                _ => "",
            };
            let example =
                if example.is_empty() { String::new() } else { format!(": `-- {key}: …`, {example}") };
            At::new(self.end, format!("key {key} is missing in the header{example}"))
        })?;
        if line.value.is_empty() {
            return Err(At::new(line.value_at, format!("key {key} has no value")));
        }
        Ok(line)
    }

    fn name(&self, path: &Path) -> Result<String, At> {
        let line = self.required("goal")?;
        let well_formed =
            line.value.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !well_formed || line.value.len() > 100 {
            let message = format!("goal \"{}\" is no name: lower case letters, digits and -", line.value);
            return Err(At::new(line.value_at, message));
        }
        match stem(path) {
            Some((stem, _)) if stem == line.value => Ok(line.value.to_owned()),
            other => {
                let file = other.map_or_else(String::new, |(stem, _)| format!(", which is {stem}"));
                let message = format!(
                    "goal \"{0}\" must have the name of its file{file}: rename the goal, or the file to {0}.sql",
                    line.value
                );
                Err(At::new(line.value_at, message))
            }
        }
    }

    fn one_of(&self, key: &str, allowed: &[&'static str]) -> Result<Option<&'static str>, At> {
        let Some(line) = self.find(key) else { return Ok(None) };
        if let Some(word) = allowed.iter().find(|word| **word == line.value) {
            return Ok(Some(word));
        }
        let near = did_you_mean(line.value, allowed.iter().copied());
        Err(bad(line, &format!("one of {}", allowed.join(", ")), &near))
    }

    fn word<T: FromStr + Copy>(
        &self,
        key: &str,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Result<Option<T>, At> {
        let words: Vec<_> = all.iter().map(|one| as_str(*one)).collect();
        Ok(self.one_of(key, &words)?.and_then(|word| word.parse().ok()))
    }

    fn required_word<T: FromStr + Copy>(
        &self,
        key: &str,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Result<T, At> {
        let line = self.required(key)?;
        self.word(key, all, as_str)?.ok_or_else(|| bad(line, "a known word", ""))
    }

    fn positive(&self, key: &str, form: &str, read: fn(&str) -> Option<i64>) -> Result<Option<i64>, At> {
        let Some(line) = self.find(key) else { return Ok(None) };
        let number = read(line.value).filter(|number| *number > 0);
        number.map(Some).ok_or_else(|| bad(line, &format!("{form}, above 0"), ""))
    }

    fn timeout(&self) -> Result<Option<i64>, At> {
        let hint = self.find("timeout").map_or_else(String::new, |line| value::duration_hint(line.value));
        let read = self.positive("timeout", value::DURATION_FORM, value::duration);
        read.map_err(|at| At::new(at.offset, at.message + &hint))
    }

    fn in_a_row(&self) -> Result<u32, At> {
        let number = self.positive("for", "a whole number of evaluations", integer)?.unwrap_or(1);
        let line = self.find("for");
        u32::try_from(number)
            .map_err(|_| line.map_or(At::new(0, ""), |line| bad(line, "a smaller number", "")))
    }

    fn schedule(&self) -> Result<Option<cron::Schedule>, At> {
        let Some(line) = self.find("schedule") else { return Ok(None) };
        let form = "cron with seconds, UTC, such as `0 */2 * * * *`";
        let schedule = cron::Schedule::from_str(line.value).map_err(|error| {
            bad(line, form, &format!("; {}", crate::model::cron::why(line.value, &error)))
        })?;
        Ok(Some(schedule))
    }

    fn params(&self) -> Result<BTreeMap<String, Value>, At> {
        let mut params = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.key == "param") {
            let form = "name = value, the name in lower case, digits and _";
            let (name, text) = line.value.split_once('=').ok_or_else(|| bad(line, form, ""))?;
            let (name, text) = (name.trim(), text.trim());
            let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
            if !starts || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                return Err(bad(line, form, ""));
            }
            let taken = name == "now" || SUBJECT_NAMES.contains(&name) || params.contains_key(name);
            if taken {
                return Err(At::new(line.value_at, format!("param {name}: this name is taken")));
            }
            let value =
                Value::parse(text).map_err(|why| At::new(line.value_at, format!("param {name}: {why}")))?;
            params.insert(name.to_owned(), value);
        }
        Ok(params)
    }

    /// `100`, `20%`, both, or `none`.
    fn brake(&self, repairs: bool) -> Result<Brake, At> {
        let Some(line) = self.find("brake") else {
            return Ok(if repairs { Brake::DEFAULT } else { Brake::Never });
        };
        Brake::parse(line.value).ok_or_else(|| bad(line, BRAKE_FORM, ""))
    }

    fn population(&self, text: &str, engine: Engine, known: &[String]) -> Result<Option<Population>, At> {
        let Some(line) = self.find("population") else { return Ok(None) };
        if let Some(counter) = COUNTERS.iter().find(|counter| **counter == line.value) {
            return Ok(Some(Population::Counter(counter)));
        }
        if !line.value.contains(char::is_whitespace) {
            let near = did_you_mean(line.value, COUNTERS);
            return Err(bad(line, &format!("one of {}, or a query on one line", COUNTERS.join(", ")), &near));
        }
        Ok(self.query(text, "population", engine, known)?.map(Population::Query))
    }

    /// One that asks for no subject would say the same of all.
    fn recheck(&self, text: &str, engine: Engine, known: &[String]) -> Result<Option<Query>, At> {
        let query = self.query(text, "recheck", engine, known)?;
        let asks = |query: &Query| query.names.iter().any(|name| SUBJECT_NAMES.contains(&name.as_str()));
        match (query, self.find("recheck")) {
            (Some(query), Some(line)) if !asks(&query) => {
                let names = SUBJECT_NAMES.map(|name| format!(":{name}")).join(", ");
                let why = "recheck: it names no subject, and would say the same of all";
                Err(At::new(line.value_at, format!("{why}: compare with one of {names}")))
            }
            (query, _) => Ok(query),
        }
    }

    /// A query that stands in the header, on one line.
    fn query(&self, text: &str, key: &str, engine: Engine, known: &[String]) -> Result<Option<Query>, At> {
        let Some(line) = self.find(key) else { return Ok(None) };
        let until = text.get(..line.value_at + line.value.len()).unwrap_or(text);
        let query = sql::admit(until, line.value_at, engine, known);
        query.map(Some).map_err(|at| At::new(at.offset, format!("{key}: {}", at.message)))
    }
}

const BRAKE_FORM: &str = "a count, a share such as 20%, both, or none";

fn bad(line: &Line<'_>, allowed: &str, more: &str) -> At {
    At::new(line.value_at, format!("key {}: \"{}\" is not {allowed}{more}", line.key, line.value))
}

#[cfg(test)]
mod tests;
