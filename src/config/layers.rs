//! Layers of values: defaults, files, environment, flags; each remembers where it came from.

use super::keys::{self, KEYS, Key};
use super::value::{self, Kind, mask_url};
use super::variables;
use crate::model::goal::Mode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use toml::de::{DeTable, DeValue};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave one.
    Default,
    /// A file and its line.
    File(PathBuf, usize),
    /// A variable of the environment.
    Environment(String),
    /// A flag of the command.
    Flag(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// What is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the configuration {path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// A file is not TOML.
    #[error("{path}:{line}: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The parser's words.
        why: String,
    },
    /// There is no such key.
    #[error("{origin}: unknown key {key}; {suggestion}")]
    UnknownKey {
        /// Where it stands.
        origin: String,
        /// The key.
        key: String,
        /// The nearest key, or those there are.
        suggestion: String,
    },
    /// The value is not of the key's kind.
    #[error("{origin}: {key}: {why}")]
    Value {
        /// Where it stands.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong, and what may be written.
        why: String,
    },
}

/// One value over a goal's file, for this environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalSetting {
    /// The goal.
    pub goal: String,
    /// `mode`, `schedule`, `brake` or `param.<name>`.
    pub name: String,
    /// As it would stand in the goal's file.
    pub value: String,
    /// Where it stands.
    pub origin: String,
}

/// All values with their origins.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, (String, Origin)>,
    databases: BTreeMap<String, (String, Origin)>,
    goals: BTreeMap<(String, String), (String, Origin)>,
    strays: Vec<(String, String)>,
}

/// Most databases beside the fleet's.
const MAX_DATABASES: usize = 64;

impl Layers {
    /// Defaults, the file `config/trued.toml`'s like at `/etc/trued/trued.toml` if it is there, the
    /// file of `--config`, and the environment's `TRUED_SECTION__KEY`. Names of that form must be keys; others that
    /// begin with `TRUED_` are noted as strays.
    ///
    /// # Errors
    /// On the first thing that is wrong.
    pub fn load(
        system: &Path,
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Self::default();
        if system.exists() {
            layers.read(system)?;
        }
        if let Some(path) = file {
            layers.read(path)?;
        }
        for (name, value) in environment {
            layers.variable(&name, value)?;
        }
        Ok(layers)
    }

    /// Puts a flag's value over everything else.
    ///
    /// # Errors
    /// When the value is not of the key's kind.
    pub fn flag(&mut self, flag: &str, key: &str, value: &str) -> Result<(), ConfigError> {
        self.put(key, value.to_owned(), Origin::Flag(flag.to_owned()))
    }

    /// Puts a value where nobody gave one.
    pub fn fallback(&mut self, key: &str, value: impl Into<String>) {
        if let Some(key) = keys::find(key) {
            self.values.entry(key.name).or_insert_with(|| (value.into(), Origin::Default));
        }
    }

    /// The value of a key, as text.
    #[must_use]
    pub fn text(&self, key: &str) -> String {
        match self.values.get(key) {
            Some((value, _)) => value.clone(),
            None => keys::find(key).map_or_else(String::new, |key| key.default.to_owned()),
        }
    }

    /// Whether nobody gave this key a value.
    #[must_use]
    pub fn is_default(&self, key: &str) -> bool {
        !self.values.contains_key(key)
    }

    /// By what a key was given, in an error's words; a key that nobody gave is named by the flag that could.
    #[must_use]
    pub fn given(&self, key: &str, flag: Option<&str>) -> String {
        match self.values.get(key).map(|(_, origin)| origin) {
            Some(Origin::Flag(flag)) => flag.clone(),
            Some(Origin::Environment(name)) => name.clone(),
            Some(origin @ Origin::File(..)) => format!("{key} ({origin})"),
            None | Some(Origin::Default) => flag.unwrap_or(key).to_owned(),
        }
    }

    /// Variables of the environment that look like ours and are none: their names, each with a sentence.
    pub fn strays(&self) -> impl Iterator<Item = (&str, &str)> {
        self.strays.iter().map(|(name, why)| (name.as_str(), why.as_str()))
    }

    /// Every key with the value to show and its origin; secrets are masked.
    #[must_use]
    pub fn shown(&self) -> Vec<(&'static Key, String, Origin)> {
        KEYS.iter()
            .map(|key| {
                let value = self.text(key.name);
                let value = if key.secret { mask_url(&value) } else { value };
                let origin = self.values.get(key.name).map_or(Origin::Default, |(_, origin)| origin.clone());
                (key, value, origin)
            })
            .collect()
    }

    /// The databases of `[databases.NAME]`: their names, URLs and origins. URLs are secret.
    pub fn databases(&self) -> impl Iterator<Item = (&str, &str, &Origin)> {
        self.databases.iter().map(|(name, (url, origin))| (name.as_str(), url.as_str(), origin))
    }

    /// `databases.NAME.url`.
    fn put_database(&mut self, rest: &str, url: String, origin: Origin) -> Result<(), ConfigError> {
        let key = format!("databases.{rest}");
        let Some((name, "url")) = rest.rsplit_once('.') else {
            return Err(wrong(&key, &origin, "a database has one key: url, in [databases.NAME]".to_owned()));
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        if name.is_empty() || name.len() > 40 || !name.chars().all(plain) || name == "fleet" {
            let why = "a database's name is of lower case letters, digits, - and _, and not \"fleet\"";
            return Err(wrong(&key, &origin, why.to_owned()));
        }
        Kind::DatabaseUrl.check(&url).map_err(|why| wrong(&key, &origin, why))?;
        if url.is_empty() {
            return Err(wrong(&key, &origin, "sqlite:PATH or postgres://… is expected".to_owned()));
        }
        self.databases.insert(name.to_owned(), (url, origin));
        if self.databases.len() > MAX_DATABASES {
            let origin = Origin::Default;
            return Err(wrong("databases", &origin, format!("more than {MAX_DATABASES} databases")));
        }
        Ok(())
    }

    fn variable(&mut self, name: &str, value: String) -> Result<(), ConfigError> {
        let Some(rest) = name.strip_prefix("TRUED_") else { return Ok(()) };
        let Some((section, key)) = rest.split_once("__") else {
            let stray = variables::stray(name, &value);
            self.strays.extend(stray.map(|why| (name.to_owned(), why)));
            return Ok(());
        };
        if section == "DATABASES" {
            let key = key.to_lowercase().replace("__", ".");
            return self.put_database(&key, value, Origin::Environment(name.to_owned()));
        }
        let key = format!("{}.{}", section.to_lowercase(), key.to_lowercase());
        self.put(&key, value, Origin::Environment(name.to_owned()))
    }

    fn read(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), why: error.to_string() })?;
        let table = DeTable::parse(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(&text, error.span().map_or(0, |span| span.start)),
            why: error.message().to_owned(),
        })?;
        for (section, value) in table.get_ref() {
            let line = line_of(&text, section.span().start);
            let origin = Origin::File(path.to_owned(), line);
            let Some(inner) = value.get_ref().as_table() else {
                return Err(unknown(section.get_ref(), &origin));
            };
            if *section.get_ref() == "goal" {
                self.goal_tables(path, &text, inner)?;
                continue;
            }
            for (key, value) in inner {
                let origin = Origin::File(path.to_owned(), line_of(&text, key.span().start));
                let name = format!("{}.{}", section.get_ref(), key.get_ref());
                if section.get_ref() == "databases" {
                    self.read_database(path, &text, key.get_ref(), value.get_ref())?;
                    continue;
                }
                let value = scalar(value.get_ref(), &name, &origin)?;
                self.put(&name, value, origin)?;
            }
        }
        Ok(())
    }

    fn read_database(
        &mut self,
        path: &Path,
        text: &str,
        name: &str,
        value: &toml::de::DeValue<'_>,
    ) -> Result<(), ConfigError> {
        let inner = value.as_table().into_iter().flatten();
        for (key, value) in inner {
            let origin = Origin::File(path.to_owned(), line_of(text, key.span().start));
            let Some(url) = value.get_ref().as_str() else {
                let key = format!("databases.{name}.{}", key.get_ref());
                return Err(wrong(&key, &origin, "a text is expected".to_owned()));
            };
            self.put_database(&format!("{name}.{}", key.get_ref()), url.to_owned(), origin)?;
        }
        if value.as_table().is_none() {
            let origin = Origin::File(path.to_owned(), 1);
            let why = "a database is a section of its own: [databases.NAME] with url".to_owned();
            return Err(wrong(&format!("databases.{name}"), &origin, why));
        }
        Ok(())
    }

    /// What is set over goals' files, by goal and name: `[goal.<name>]`.
    #[must_use]
    pub fn goal_settings(&self) -> Vec<GoalSetting> {
        let settings = self.goals.iter().map(|((goal, name), (value, origin))| GoalSetting {
            goal: goal.clone(),
            name: name.clone(),
            value: value.clone(),
            origin: origin.to_string(),
        });
        settings.collect()
    }

    /// Reads `[goal.<name>]` tables; what a value means is known when the goal's file is.
    fn goal_tables(&mut self, path: &Path, text: &str, goals: &DeTable<'_>) -> Result<(), ConfigError> {
        for (goal, table) in goals {
            let at = |start| Origin::File(path.to_owned(), line_of(text, start));
            let (goal, origin) = (goal.get_ref().to_string(), at(goal.span().start));
            let Some(table) = table.get_ref().as_table() else {
                return Err(wrong(
                    &format!("goal.{goal}"),
                    &origin,
                    "a table such as [goal.NAME] is expected".into(),
                ));
            };
            for (key, value) in table {
                let origin = at(key.span().start);
                match (key.get_ref().as_ref(), value.get_ref().as_table()) {
                    ("param", Some(params)) => {
                        for (param, value) in params {
                            let name = format!("param.{}", param.get_ref());
                            self.goal_setting(&goal, name, value.get_ref(), at(param.span().start))?;
                        }
                    }
                    ("mode" | "schedule" | "brake", _) => {
                        self.goal_setting(&goal, key.get_ref().to_string(), value.get_ref(), origin)?;
                    }
                    (unknown, _) => {
                        let key = format!("goal.{goal}.{unknown}");
                        let suggestion = "keys there are: mode, schedule, brake, param.NAME".to_owned();
                        return Err(ConfigError::UnknownKey { origin: origin.to_string(), key, suggestion });
                    }
                }
            }
        }
        Ok(())
    }

    fn goal_setting(
        &mut self,
        goal: &str,
        name: String,
        value: &DeValue<'_>,
        origin: Origin,
    ) -> Result<(), ConfigError> {
        let full = format!("goal.{goal}.{name}");
        let value = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            _ => return Err(wrong(&full, &origin, "text or a whole number is expected".into())),
        };
        let checked = match name.as_str() {
            "schedule" => value::schedule(&value).map(drop),
            "mode" => Mode::from_str(&value).map(drop).map_err(|error| error.to_string()),
            _ => Ok(()),
        };
        checked.map_err(|why| wrong(&full, &origin, why))?;
        self.goals.insert((goal.to_owned(), name), (value, origin));
        Ok(())
    }

    fn put(&mut self, name: &str, value: String, origin: Origin) -> Result<(), ConfigError> {
        let key = keys::find(name).ok_or_else(|| unknown(name, &origin))?;
        key.kind.check(&value).map_err(|why| wrong(name, &origin, why))?;
        self.values.insert(key.name, (value, origin));
        Ok(())
    }
}

fn scalar(value: &toml::de::DeValue<'_>, name: &str, origin: &Origin) -> Result<String, ConfigError> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Boolean(yes) => Ok(yes.to_string()),
        _ => match keys::find(name) {
            Some(key) => Err(wrong(name, origin, format!("{} is expected", key.kind.allowed()))),
            None => Err(unknown(name, origin)),
        },
    }
}

fn unknown(name: &str, origin: &Origin) -> ConfigError {
    ConfigError::UnknownKey {
        origin: origin.to_string(),
        key: name.to_owned(),
        suggestion: keys::suggestion(name),
    }
}

fn wrong(name: &str, origin: &Origin, why: String) -> ConfigError {
    ConfigError::Value { origin: origin.to_string(), key: name.to_owned(), why }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).fold(1, |line, byte| line + usize::from(byte == b'\n'))
}
