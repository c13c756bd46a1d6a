//! Trying and steering goals: what the API answers and takes, as JSON.

use super::{CheckedGoal, GoalRow, OtherVersion};
use crate::database::evaluations::EvaluationRow;
use crate::goal::lint::{Ignored, Remark};
use crate::goal::trial::DifferentRow;
use crate::model::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A pause of a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PausedGoal {
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Until when; none: until a person ends it.
    pub until: Option<Millis>,
    /// Since when.
    pub since: Millis,
}

/// Asks how an edit differs from what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffGoal {
    /// The file's path, for messages and the goal's name.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Rows of each kind in the answer.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// How an edit differs from what runs, on the data of now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalDiff {
    /// The goal.
    pub goal: String,
    /// What the check said; with a problem there is nothing to compare.
    #[serde(flatten)]
    pub checked: CheckedGoal,
    /// The moment that `:now` was for both.
    pub now: Millis,
    /// Rows of the running version; none: none runs.
    pub before: Option<u64>,
    /// Rows of the edit.
    pub after: u64,
    /// Subjects that only the edit returns.
    pub added: u64,
    /// Subjects that only the running version returns.
    pub removed: u64,
    /// Subjects that both return, otherwise.
    pub changed: u64,
    /// Whether there were more rows than are compared.
    pub more: bool,
    /// The first of them, by subject.
    pub rows: Vec<DifferentRow>,
    /// Names of the rows' subjects, by their texts.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// The remedy of the edit; none: findings are only listed.
    pub repair: Option<String>,
    /// Attempts that would start because of added subjects: one a repository.
    pub attempts: u64,
    /// Bytes that they would move.
    pub bytes: i64,
    /// Why they would not start at once: a pause, a brake, `for`.
    pub held: Vec<String>,
}

/// How the engine would answer a goal's query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalPlan {
    /// The goal.
    pub goal: String,
    /// `sqlite` or `postgres`.
    pub engine: String,
    /// The plan.
    #[serde(flatten)]
    pub plan: crate::goal::session::plan::Plan,
    /// What the rules of `goal check` say of it.
    #[serde(default)]
    pub remarks: Vec<Remark>,
    /// What they would say, and why the file has it left out.
    #[serde(default)]
    pub ignored: Vec<Ignored>,
    /// Which version runs, where it is not the text on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_version: Option<OtherVersion>,
}

/// The evaluations of a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalHistory {
    /// The goal.
    pub goal: String,
    /// When this was asked.
    pub now: Millis,
    /// Latest first.
    pub evaluations: Vec<EvaluationRow>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Pauses a goal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseGoal {
    /// Until when.
    #[serde(default)]
    pub until: Option<Millis>,
    /// For how long, in place of a moment.
    #[serde(default)]
    pub for_ms: Option<Millis>,
    /// Why.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Ends a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeGoal {
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Sets values over a goal's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetGoal {
    /// Name and value: `mode`, `schedule`, `brake`, `param.<name>`.
    #[serde(default)]
    pub set: Vec<(String, String)>,
    /// Names whose values are taken back.
    #[serde(default)]
    pub unset: Vec<String>,
    /// Why.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A value over, or of, a goal's file, as `show` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingShown {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it came from.
    pub origin: String,
    /// Why it does nothing, where it does not fit the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether a goal needs a look: its file is in error, or it is paused.
#[must_use]
pub fn stands_out(goal: &GoalRow) -> bool {
    goal.file_error.is_some() || goal.paused.is_some()
}
