//! What the API answers and takes, as JSON. The commands read the same types.
//! Times are milliseconds since 1970 UTC unless their name says otherwise, sizes are bytes.

mod changes;
mod drains;
mod goals;
mod references;
mod removals;
mod work;

pub use changes::{
    AddFileserver, AddPart, Approve, Changed, Enrolled, FinishImport, ImportCopy, ImportPlan, PlanImport,
    SetIntent, SetWanted,
};
pub use work::{
    AttemptList, BacklogIds, CancelAttempt, Chosen, FindingStory, LimitList, LimitRow, Moved, RepairList,
    RepairRow, SetLimit,
};

pub use drains::{AskToStop, Blocker, Confirmed, DrainList, DrainRow, DrainShown, Evacuate, MayStop, Named};
pub use goals::{GoalList, GoalListed, OtherVersion};
pub use references::{ChangeReferences, ReferenceChange, ReferenceChanged, ReferencesChanged, SetHead};
pub use removals::{AdoptCopy, QuarantinedShown, RemoveRepository, RenameRepository, UndeleteRepository};

use crate::database::report::{AttemptRow, BacklogRow, ClosedRow, FlagRow};
use crate::model::Millis;
use crate::model::fleet::{Health, Intent, ObjectFormat, ReplicaState};
use crate::model::goal::GoalState;
use crate::model::id::RepositoryId;
use serde::{Deserialize, Serialize};

mod steering;

pub use steering::{
    DiffGoal, GoalDiff, GoalHistory, GoalPlan, PauseGoal, PausedGoal, ResumeGoal, SetGoal, SettingShown,
    stands_out,
};

/// The fleet at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How each goal stands.
    pub goals: Vec<GoalRow>,
    /// What is to be done.
    pub backlog: Backlog,
    /// All fileservers.
    pub fileservers: Vec<FileserverRow>,
    /// Fileservers that are being emptied.
    #[serde(default)]
    pub drains: Vec<DrainShown>,
    /// What holds repairs, or was released by a person.
    #[serde(default)]
    pub brakes: Vec<BrakeRow>,
    /// The brake that a slow database puts on; none: it holds nothing.
    #[serde(default)]
    pub pressure: Option<PressureRow>,
    /// What a person should know of.
    pub health: HealthReport,
    /// What is not as it should be set up, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The brake that a slow database puts on dispatch and evaluation, by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureRow {
    /// Its name.
    pub name: String,
    /// What is left of the pace of this controller, in hundredths.
    pub pace: u32,
    /// How long a question to the database and its answer took last.
    pub round_trip_ms: Option<Millis>,
    /// How far the slowest standby is behind.
    pub lag_ms: Millis,
}

/// One brake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrakeRow {
    /// Its name.
    pub name: String,
    /// What it saw.
    pub reason: String,
    /// When it first saw it.
    pub since: Millis,
    /// Whether it holds; one that does not was released by a person, until its cause is gone.
    pub holds: bool,
    /// When a person released it.
    pub approved: Option<Millis>,
    /// Findings that it holds.
    pub held: i64,
}

/// How one goal stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalRow {
    /// Its name.
    pub name: String,
    /// Met, unmet, unknown.
    pub state: GoalState,
    /// Exceptions that it returned last.
    pub findings: i64,
    /// Whether there may be more than that: counting them all took too long.
    pub at_least: bool,
    /// When the last evaluation began.
    pub evaluated_at: Option<Millis>,
    /// How long it took.
    pub took_ms: Option<Millis>,
    /// Why it is unknown, or why its file is not what runs.
    pub error: Option<String>,
    /// Why its file is not what runs; the last good version does, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_error: Option<String>,
    /// Whether no version of it runs: its file does not check, and none that did was loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_version: bool,
    /// The pause that holds its repairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedGoal>,
}

/// The backlog in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// Open findings that need a repair.
    pub total: i64,
    /// Of them: backing off, or judged by the next evaluation.
    pub waiting: i64,
    /// Start as soon as limits allow.
    pub ready: i64,
    /// Have an attempt.
    pub running: i64,
    /// Held by a brake or a pause.
    pub held: i64,
    /// Need a person.
    pub stuck: i64,
    /// Age of the oldest; none: there is none.
    pub oldest_seconds: Option<i64>,
}

/// The backlog itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BacklogList {
    /// Most urgent first.
    pub findings: Vec<BacklogRow>,
    /// Whether there are more than were asked for.
    pub more: bool,
}

/// What a person should know of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// `HEALTH_OK`, `HEALTH_WARN`, `HEALTH_ERR`.
    pub level: String,
    /// Stable codes, for example `GOAL_STALE`.
    pub codes: Vec<String>,
    /// The same with a sentence and a hint each.
    #[serde(default)]
    pub details: Vec<HealthCode>,
}

/// One code that is raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCode {
    /// The code; `docs/runbook/` has a page of its name.
    pub code: String,
    /// What is so.
    pub sentence: String,
    /// What to look at or do.
    pub hint: String,
}

/// All fileservers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileserverList {
    /// By name.
    pub fileservers: Vec<FileserverRow>,
}

/// One fileserver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileserverRow {
    /// Its name.
    pub name: String,
    /// Its rack.
    pub rack: String,
    /// What people want of it.
    pub intent: Intent,
    /// What was last seen of it.
    pub health: Health,
    /// Whether its replicas count.
    pub counts: bool,
    /// How many it has.
    pub replicas: i64,
    /// Bytes used.
    pub disk_used: i64,
    /// Bytes that new copies may take.
    pub disk_free: i64,
}

/// One fileserver with all that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileserverShown {
    /// As in the list.
    #[serde(flatten)]
    pub row: FileserverRow,
    /// Address of its agent.
    pub url: String,
    /// Since when its health is what it is.
    pub health_since: Millis,
    /// Time spent offline, summed over flaps.
    pub offline_ms: Millis,
    /// Since when its root is another than the one that held its replicas.
    pub empty_since: Option<Millis>,
    /// Bytes that it may use.
    pub capacity: i64,
    /// Load average, in thousandths.
    pub load: i64,
    /// Git processes.
    pub processes: i64,
    /// Reads that have run for over a minute.
    #[serde(default)]
    pub long_reads: i64,
    /// Version of the agent.
    pub agent_version: Option<String>,
    /// Version of git.
    pub git_version: Option<String>,
    /// When its last status arrived.
    pub seen_at: Option<Millis>,
}

/// A page of repositories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepositoryList {
    /// By name.
    pub repositories: Vec<RepositoryRow>,
    /// The name to ask after for the next page; none: this is the last.
    pub next: Option<String>,
}

/// One repository in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepositoryRow {
    /// Its number.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// The hash its objects are named by.
    pub object_format: ObjectFormat,
    /// Copies wanted.
    pub wanted: u32,
    /// Copies that count.
    pub countable: u32,
    /// Of them: in sync on an online fileserver.
    pub good: u32,
    /// Replicas that share in a push's verdict.
    pub seats: u32,
    /// Pushes that stand.
    pub version: i64,
    /// Bytes of one copy.
    pub bytes: i64,
    /// Whether fewer good copies than wanted are there, or an open finding is about it.
    pub behind: bool,
    /// When it was removed; in the list of removed ones only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Millis>,
}

/// One repository with its copies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepositoryShown {
    /// Its number.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// Where Git clients find it; none: nobody told the API where routers are, or it was removed.
    #[serde(default)]
    pub clone_url: Option<String>,
    /// Copies wanted.
    pub wanted: u32,
    /// Replicas that share in a push's verdict.
    pub seats: u32,
    /// Pushes that stand.
    pub version: i64,
    /// The definitive checksum, as people see it.
    pub checksum: Option<String>,
    /// When it was removed; its copies serve nothing since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Millis>,
    /// Why pushes to it wait now, in words; none: they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushes_wait: Option<String>,
    /// Its copies.
    pub replicas: Vec<ReplicaShown>,
    /// Its copies that were set aside: they serve nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quarantined: Vec<QuarantinedShown>,
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaShown {
    /// Its fileserver.
    pub fileserver: String,
    /// That one's rack.
    pub rack: String,
    /// Where it is there.
    pub path: String,
    /// What it may do.
    pub state: ReplicaState,
    /// Whether it has the definitive checksum.
    pub in_sync: bool,
    /// Its checksum, as people see it.
    pub checksum: Option<String>,
    /// When it was last compared with its disk.
    pub verified_at: Option<Millis>,
}

/// The story of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// What it is about, by name.
    pub subject: String,
    /// The same, by number.
    pub id: String,
    /// When this was asked.
    pub now: Millis,
    /// The repository, where it is about one.
    pub repository: Option<RepositoryShown>,
    /// The fileserver, where it is about one.
    pub fileserver: Option<FileserverShown>,
    /// What each goal says.
    pub goals: Vec<GoalSays>,
    /// What inventories say.
    pub flags: Vec<FlagRow>,
    /// Live attempts, then ended ones, latest first.
    pub attempts: Vec<AttemptRow>,
    /// Closed findings, latest first.
    pub closed: Vec<ClosedRow>,
}

/// What one goal says about a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalSays {
    /// The goal.
    pub goal: String,
    /// How it stands as a whole.
    pub state: GoalState,
    /// When it was last evaluated.
    pub evaluated_at: Option<Millis>,
    /// What it returns about this subject; none: it holds here.
    pub findings: Vec<BacklogRow>,
    /// The pause that holds its repairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<PausedGoal>,
}

/// Names of goals; none: all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluateGoals {
    /// Which.
    pub goals: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// When, by the database's clock: evaluations that begin later are the answer.
    pub at: Millis,
    /// Which goals.
    pub goals: Vec<String>,
}

/// A goal file to be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckGoal {
    /// Its path, for messages and its name.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// What the check found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckedGoal {
    /// What is wrong; none: nothing.
    pub problem: Option<String>,
    /// What the lint says.
    #[serde(default)]
    pub remarks: Vec<crate::goal::lint::Remark>,
    /// The planner's estimate, where the engine gives one.
    #[serde(default)]
    pub cost: Option<f64>,
}

/// What a goal returns now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalRun {
    /// The goal.
    pub goal: String,
    /// The moment that `:now` was.
    pub now: Millis,
    /// Its rows, the first of them.
    pub rows: Vec<crate::model::finding::Exception>,
    /// Names of the rows' subjects, by their texts.
    #[serde(default)]
    pub names: std::collections::BTreeMap<String, String>,
    /// All rows.
    pub total: u64,
    /// Whether there are more than it may return.
    pub more: bool,
    /// Which version runs, where it is not the text on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_version: Option<OtherVersion>,
}

/// Whether a repository holds the references that were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// Whether there is a repository of this name.
    pub exists: bool,
    /// Whether it holds just these.
    pub same: bool,
    /// Whether it holds others, namely none: then it may be populated.
    #[serde(default)]
    pub is_empty: bool,
    /// The hash that its objects are named by.
    #[serde(default)]
    pub object_format: Option<ObjectFormat>,
}
