//! Goals with what their files say.

use super::{GoalRow, SettingShown};
use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// All goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalList {
    /// By name.
    pub goals: Vec<GoalListed>,
    /// Files that look like goals and that nobody reads, a sentence for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One goal with what its file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalListed {
    /// How it stands.
    #[serde(flatten)]
    pub row: GoalRow,
    /// Evaluations in a row that did not finish.
    pub failures: i64,
    /// When the last evaluation that finished began.
    pub finished_at: Option<Millis>,
    /// The statement.
    pub summary: Option<String>,
    /// What its rows are about.
    pub subject: Option<String>,
    /// The remedy.
    pub repair: Option<String>,
    /// When it is evaluated; none: the default.
    pub schedule: Option<String>,
    /// Longest evaluation.
    pub timeout_ms: Option<Millis>,
    /// Where its text was read.
    pub path: Option<String>,
    /// What it looks at, as its file says; in `show` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub population: Option<String>,
    /// Its parameters as its file gives them, `name = value`; in `show` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<String>,
    /// The query; in `show` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// What is set over its file, the later over the earlier; in `show` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingShown>,
    /// Which version runs, where it is not the text on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_version: Option<OtherVersion>,
}

/// The version of a goal that runs, where it is another one than the text on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherVersion {
    /// Digest of its text.
    pub digest: String,
    /// Since when it runs in the place of an edit that never came to an end.
    pub since: Option<Millis>,
    /// Why the text on disk does not run.
    pub why: String,
    /// Whether it is what this answer tells of; else this process has only the text on disk, and tells of that.
    pub shown: bool,
}
