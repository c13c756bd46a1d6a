//! What is remembered of a goal between evaluations.

use super::Millis;
use crate::words;
use serde::{Deserialize, Serialize};

words!(
    /// What the last evaluation of a goal said.
    GoalState, "goal state" {
        /// It found no row.
        Met = "met",
        /// It found rows.
        Unmet = "unmet",
        /// It did not finish, or was never run.
        Unknown = "unknown",
    }
);

words!(
    /// What a goal's rows are about.
    SubjectKind, "subject" {
        /// A repository: `repository_id`.
        Repository = "repository",
        /// A repository on a fileserver: `repository_id`, `fileserver_id`.
        Replica = "replica",
        /// A fileserver: `fileserver_id`.
        Fileserver = "fileserver",
        /// A plain text: `key`.
        Key = "key",
    }
);

words!(
    /// Whether a goal's findings are repaired or only listed.
    Mode, "mode" {
        /// Findings become attempts.
        Repair = "repair",
        /// Findings are listed, nothing starts.
        Observe = "observe",
    }
);

words!(
    /// How much a goal matters to people and alerts.
    Severity, "severity" {
        /// Tidiness.
        Low = "low",
        /// Ordinary.
        Normal = "normal",
        /// Somebody is woken.
        High = "high",
    }
);

/// One row of `goal_states`: the last word of one goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalStatus {
    /// The goal's name.
    pub goal: String,
    /// Met, unmet or unknown.
    pub state: GoalState,
    /// Exceptions that the last evaluation that finished returned, whether or not all are kept as findings.
    pub findings: i64,
    /// Whether there may be more than that: counting them all took too long.
    pub at_least: bool,
    /// When the last evaluation began.
    pub evaluated_at: Option<Millis>,
    /// When the last evaluation that finished began.
    pub finished_at: Option<Millis>,
    /// How long the last evaluation took.
    pub took_ms: Option<Millis>,
    /// Why it is unknown.
    pub error: Option<String>,
    /// Evaluations in a row that did not finish.
    pub failures: i64,
    /// Why the file on disk is not the one that runs: the message of its error.
    pub file_error: Option<String>,
    /// Digest of the text that runs.
    pub digest: Option<String>,
    /// Digest of the text that was last evaluated to its end.
    pub ended: Option<String>,
    /// Digest of the text on disk, where it never came to an end and the version before it runs in its place.
    pub gave_way: Option<String>,
    /// Since when it does.
    pub gave_way_at: Option<Millis>,
}
