//! What is said of fileservers that leave, stop, or came back empty.

use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// Empties fileservers, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evacuate {
    /// Their names.
    pub fileservers: Vec<String>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only prove that it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A change that a person confirmed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmed {
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// All that are being emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainList {
    /// One each.
    pub drains: Vec<DrainRow>,
}

/// How far the emptying of a fileserver is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRow {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Millis,
    /// Replicas it held then.
    pub replicas: i64,
    /// Replicas it holds now.
    pub left: i64,
    /// Bytes of those.
    pub bytes: i64,
    /// Git processes that ran there at its last status.
    pub processes: i64,
    /// Whether a person said that it will never return.
    pub lost: bool,
    /// When the number of its replicas last changed.
    pub moved_at: Millis,
    /// Nothing is left, and a later status says that nothing runs.
    pub done: bool,
    /// What is in the way, one by one.
    pub blockers: Vec<Blocker>,
}

/// One thing in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// What.
    pub subject: String,
    /// Why, in a sentence.
    pub why: String,
}

/// A drain as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainShown {
    /// The fileserver.
    pub name: String,
    /// How far it is.
    pub percent: i64,
    /// Replicas that are left.
    pub left: i64,
    /// How long it takes at the rate so far.
    pub seconds_left: Option<i64>,
    /// Git processes that run there.
    pub processes: i64,
    /// Whether it will never return.
    pub lost: bool,
}

/// Asks whether fileservers may be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskToStop {
    /// Their names.
    pub fileservers: Vec<String>,
    /// How long the right is kept, in milliseconds.
    pub keep_ms: Millis,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only answer.
    #[serde(default)]
    pub dry_run: bool,
}

/// Fileservers by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Their names.
    pub fileservers: Vec<String>,
}

/// Whether they may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MayStop {
    /// Yes or no.
    pub ok: bool,
    /// Repositories that have a replica there.
    pub repositories: i64,
    /// Of these, those that would take no push.
    pub below: i64,
    /// Those that would, if any one more of theirs stopped.
    pub one_more: i64,
    /// Fileservers that others were told may stop.
    pub stopped_by_others: Vec<String>,
    /// Until when the right is kept; none: it was not given.
    pub until: Option<Millis>,
}
