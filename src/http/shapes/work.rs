//! Findings, attempts, repairs and limits, as operators see and change them.

use crate::database::report::{AttemptRow, BacklogRow, ClosedRow, LiveRow};
use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// What a filter matches, by number: the snapshot that a verb acts on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogIds {
    /// Findings, ascending.
    pub ids: Vec<i64>,
    /// The number to ask after for the rest; none: this is all.
    pub next: Option<i64>,
}

/// What is to be done to chosen findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// Findings by number.
    pub ids: Vec<i64>,
    /// Why.
    pub reason: String,
    /// What chose them, in words; for the audit.
    #[serde(default)]
    pub filter: String,
    /// Of a bump: 0 to 999.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Of a cancel: nothing starts for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Millis>,
}

/// How many findings were changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Of those that were chosen.
    pub moved: u64,
}

/// One finding with its story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindingStory {
    /// When this was asked.
    pub now: Millis,
    /// Where it is open.
    pub open: Option<BacklogRow>,
    /// Where it is closed.
    pub closed: Option<ClosedRow>,
    /// What its goal's row said.
    pub evidence: serde_json::Value,
    /// The live attempt, then what was tried, latest first.
    pub attempts: Vec<AttemptRow>,
}

/// Live attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptList {
    /// When this was asked.
    pub now: Millis,
    /// By number.
    pub attempts: Vec<LiveRow>,
    /// Whether there are more.
    pub more: bool,
}

/// Why an attempt is ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelAttempt {
    /// Why.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// All limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitList {
    /// The fleet's, then each repair's.
    pub limits: Vec<LimitRow>,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    /// `REPAIR.KEY`, or `fleet.in_flight`.
    pub name: String,
    /// What holds.
    pub value: i64,
    /// Who owns it: `file`, `configuration` or `run time`.
    pub owner: String,
    /// What its file or the configuration says.
    pub written: i64,
    /// What it may be.
    pub allowed: String,
    /// Who set it at run time.
    pub who: Option<String>,
    /// When.
    pub at: Option<Millis>,
    /// Why.
    pub reason: Option<String>,
}

/// Sets a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimit {
    /// What it is to be, as a file has it; none: what its file says.
    #[serde(default)]
    pub value: Option<String>,
    /// Why.
    pub reason: String,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// All repairs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RepairList {
    /// By name.
    pub repairs: Vec<RepairRow>,
}

/// One repair, with the limits that hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairRow {
    /// Its name.
    pub name: String,
    /// What it does.
    pub summary: String,
    /// What it is done to.
    pub subject: String,
    /// Its step.
    pub step: String,
    /// The program, where that is the step.
    pub exec: Vec<String>,
    /// Attempts that are queued or running.
    pub in_flight: i64,
    /// Its limits, as they hold.
    pub limits: Vec<LimitRow>,
    /// Longest silence: milliseconds.
    pub deadline_ms: Millis,
    /// And so much more for each GiB.
    pub per_gib_ms: Millis,
    /// Backoff begins with: milliseconds.
    pub first_ms: Millis,
    /// And ends with.
    pub max_ms: Millis,
    /// Ineffective attempts before the next takes the write lock.
    pub lock_after: i32,
    /// Ineffective attempts before a person is asked.
    pub stuck_after: i32,
}
