//! Fixtures: small fleets, and the subjects that a goal must return of each.
//!
//! `goals/tests/<name>.toml` holds named cases. A case says only what matters to it;
//! [`Case`] names the defaults. Running one writes its fleet into a scratch database
//! that has the tables, evaluates the goal at the case's moment, and then asks the
//! recheck for every subject of the fleet, so that both ways of asking agree.

use super::Goal;
use super::session::{Problem, Source};
use super::value;
use crate::model::Millis;
use crate::model::finding::{Exception, FindingState, Subject};
use crate::model::fleet::{Health, Intent, ReplicaState};
use crate::model::goal::{GoalState, SubjectKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use tokio::sync::mpsc;

mod away;
mod compare;
mod expected;
mod given;
mod read;
mod scratch;
mod values;

pub use away::{AdoptionRow, LostHistoryRow, PushRow, QuarantineRow, RemovingRow};
pub use expected::{Expected, ExpectedRow};
pub use scratch::Scratch;

/// The moment of every case: 2026-03-01 12:00 UTC. Times in cases are lengths of time before it.
pub const MOMENT: Millis = 1_772_366_400_000;

/// The cases of one goal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// In the file's order.
    pub case: Vec<Case>,
}

/// A small fleet, and what is expected of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// A sentence.
    pub name: String,
    /// None given: a, b, c and d, one in each of four racks.
    #[serde(default)]
    pub fileservers: Vec<FileserverRow>,
    /// The repositories.
    #[serde(default)]
    pub repositories: Vec<RepositoryRow>,
    /// Replicas that are not as [`RepositoryRow::on`] makes them.
    #[serde(default)]
    pub replicas: Vec<ReplicaRow>,
    /// Differences between disks and tables.
    #[serde(default)]
    pub inventory: Vec<InventoryRow>,
    /// What is remembered of goals; those that findings name are added.
    #[serde(default)]
    pub goal_states: Vec<GoalStateRow>,
    /// Open findings.
    #[serde(default)]
    pub findings: Vec<FindingRow>,
    /// Attempts that ended.
    #[serde(default)]
    pub attempts: Vec<AttemptRow>,
    /// Copies that were set aside.
    #[serde(default)]
    pub quarantine: Vec<QuarantineRow>,
    /// Names of repositories that are gone; their numbers follow those of the others.
    #[serde(default)]
    pub tombstones: Vec<String>,
    /// Removals that a worker is at: repositories by name, with the goal.
    #[serde(default)]
    pub removing: Vec<RemovingRow>,
    /// Pushes that are open.
    #[serde(default)]
    pub pushes: Vec<PushRow>,
    /// Copies that a person wishes to be adopted.
    #[serde(default)]
    pub adoptions: Vec<AdoptionRow>,
    /// Copies that know more than the database.
    #[serde(default)]
    pub lost_histories: Vec<LostHistoryRow>,
    /// Exactly these subjects are returned.
    pub expect: Vec<Expected>,
}

/// A fileserver: serving, online and counting where nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileserverRow {
    /// Its name.
    pub name: String,
    /// Its rack's name; none: a rack of its own.
    pub rack: Option<String>,
    /// What people want of it.
    pub intent: Option<Intent>,
    /// What was seen of it.
    pub health: Option<Health>,
    /// Whether its replicas count.
    pub counts: Option<bool>,
    /// Bytes that new copies may take; none: a terabyte.
    pub free: Option<i64>,
    /// Bytes that its agent may use; none: two terabytes.
    pub capacity: Option<i64>,
    /// Bytes of them used; none: 0.
    pub used: Option<i64>,
    /// Its share of new copies, in hundredths; none: 100.
    pub weight: Option<i64>,
    /// For how long its health has been what it is; none: since now.
    pub since: Option<String>,
    /// Its agent's version, or `never`; none: this program's.
    pub agent: Option<String>,
    /// Its git's version, or `never`; none: 2.45.0.
    pub git: Option<String>,
}

/// A repository: three copies wanted, a month old, where nothing else is said.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepositoryRow {
    /// Its name.
    pub name: String,
    /// Copies it ought to have.
    pub wanted: Option<i64>,
    /// Bytes of one copy.
    pub bytes: Option<i64>,
    /// How long ago it was made.
    pub age: Option<String>,
    /// Whether it was removed.
    #[serde(default)]
    pub removed: bool,
    /// How long ago it was removed; none: now.
    pub removed_for: Option<String>,
    /// Fileservers with a live copy in sync, verified an hour ago.
    #[serde(default)]
    pub on: Vec<String>,
}

/// A replica: live, in sync, verified an hour ago, where nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaRow {
    /// The repository's name.
    pub repository: String,
    /// The fileserver's name.
    pub fileserver: String,
    /// What it may do.
    pub state: Option<ReplicaState>,
    /// For how long it has been out of sync.
    pub out_of_sync: Option<String>,
    /// Whether its checksum is unknown.
    #[serde(default)]
    pub damaged: bool,
    /// Its version; repositories have version 5.
    pub version: Option<i64>,
    /// How long ago it was compared with its disk, or `never`.
    pub verified: Option<String>,
    /// For how long its state has been what it is; none: since now.
    pub since: Option<String>,
    /// Bytes on its disk; none: a megabyte, as repositories have.
    pub bytes: Option<i64>,
    /// Packs, as last counted; none: 1.
    pub packs: Option<i64>,
    /// Loose objects, as last counted; none: 0.
    pub loose: Option<i64>,
    /// Whether it has a bitmap and a commit-graph.
    #[serde(default)]
    pub indexed: bool,
    /// How long ago its objects were checked; none: never.
    pub scrubbed: Option<String>,
}

/// A difference that the inventory found.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InventoryRow {
    /// The repository's name.
    pub repository: String,
    /// The fileserver's name.
    pub fileserver: String,
    /// `missing`, `changed` or `untracked`.
    pub found: String,
    /// For how long; none: since now.
    pub since: Option<String>,
}

/// What is remembered of a goal: evaluated a minute ago where nothing else is said.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalStateRow {
    /// The goal's name.
    pub goal: String,
    /// `met`, `unmet` or `unknown`.
    pub state: GoalState,
    /// Findings after the last evaluation that finished.
    #[serde(default)]
    pub findings: i64,
    /// Evaluations in a row that did not finish.
    #[serde(default)]
    pub failures: i64,
    /// How long ago the last evaluation began; none: a minute.
    pub evaluated: Option<String>,
    /// How long the last evaluation took.
    pub took: Option<String>,
    /// Why it is unknown.
    pub error: Option<String>,
}

/// An open finding.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingRow {
    /// The goal's name.
    pub goal: String,
    /// As the tables have it: `replica:1:2`; ids count from 1 in the case's order.
    pub subject: String,
    /// Its repair; none: it is only listed.
    pub repair: Option<String>,
    /// What it waits for.
    pub state: FindingState,
    /// How long ago it was opened; none: an hour.
    pub opened: Option<String>,
    /// For how long its repair could have started; none: as long as it is open.
    pub due: Option<String>,
    /// Attempts that failed.
    #[serde(default)]
    pub tries: i64,
}

/// An attempt that ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptRow {
    /// Its repair.
    pub repair: String,
    /// How long ago it ended.
    pub ended: String,
    /// How it ended; none: `succeeded`.
    pub outcome: Option<String>,
    /// What it did; none: a step of its repair's name.
    pub step: Option<String>,
    /// The name of the repository it was done to; none: one that the case does not hold.
    pub repository: Option<String>,
    /// The name of the fileserver that was changed.
    pub destination: Option<String>,
}

/// Why a fixture could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// The file is no fixture.
    #[error("{0}")]
    File(String),
    /// The scratch database failed.
    #[error("writing a case into the scratch database")]
    Scratch(#[from] sqlx::Error),
    /// The goal failed.
    #[error(transparent)]
    Goal(#[from] Problem),
}

impl Fixture {
    /// Reads a fixture's file. The path is for errors.
    ///
    /// # Errors
    /// Naming file, line and column, the case, the key and what is allowed.
    pub fn parse(path: &Path, text: &str) -> Result<Self, FixtureError> {
        read::read(path, text, None)
    }

    /// The same, and what is expected must be what a goal about this kind of subject can return.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_for(path: &Path, text: &str, kind: SubjectKind) -> Result<Self, FixtureError> {
        read::read(path, text, Some(kind))
    }
}

/// Runs one case; `None` when it is as expected, else expected against returned, line by line.
///
/// # Errors
/// When it could not be run at all.
pub async fn run(
    scratch: &mut Scratch,
    source: &Source,
    goal: &Goal,
    case: &Case,
) -> Result<Option<String>, FixtureError> {
    let names = scratch.write(case).await?;
    let returned = evaluate(source, goal).await?;
    let mut lines = compare::compare(goal.subject, case, &names, &returned);
    for subject in asked(goal.subject, case, &names, &returned) {
        let holds = returned.iter().any(|exception| exception.subject == subject);
        if source.recheck_at(goal, &subject, Some(MOMENT)).await? != holds {
            lines.push(compare::disagreement(&names.show(&subject), holds));
        }
    }
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// What is asked again one by one: every subject that the case holds. Keys are made up by goals, so of these the
/// returned and the expected ones.
fn asked(kind: SubjectKind, case: &Case, names: &Names, returned: &[Exception]) -> Vec<Subject> {
    let mut subjects = names.subjects(kind);
    if kind == SubjectKind::Key {
        subjects.extend(returned.iter().map(|row| row.subject.clone()));
        subjects.extend(case.expect.iter().map(|expected| Subject::Key(expected.parts().0.to_owned())));
        subjects.sort();
        subjects.dedup();
    }
    subjects
}

async fn evaluate(source: &Source, goal: &Goal) -> Result<Vec<Exception>, FixtureError> {
    let (sender, mut receiver) = mpsc::channel(4);
    let collect = async {
        let mut all = Vec::new();
        while let Some(mut batch) = receiver.recv().await {
            all.append(&mut batch);
        }
        all
    };
    let (evaluated, returned) = tokio::join!(source.evaluate_at(goal, Some(MOMENT), sender), collect);
    evaluated?;
    Ok(returned)
}

/// The numbers that a case's names were given.
#[derive(Debug, Clone, Default)]
pub struct Names {
    repositories: BTreeMap<String, i64>,
    fileservers: BTreeMap<String, i64>,
}

impl Names {
    fn show(&self, subject: &Subject) -> String {
        let name = |names: &BTreeMap<String, i64>, id: i64| {
            names
                .iter()
                .find(|(_, number)| **number == id)
                .map_or_else(|| id.to_string(), |(name, _)| name.clone())
        };
        match subject {
            Subject::Repository(id) => name(&self.repositories, id.0),
            Subject::Replica(repository, fileserver) => {
                format!(
                    "{}@{}",
                    name(&self.repositories, repository.0),
                    name(&self.fileservers, fileserver.0)
                )
            }
            Subject::Fileserver(id) => name(&self.fileservers, id.0),
            Subject::Key(key) => key.clone(),
        }
    }

    /// Every subject of a kind that the case could return.
    fn subjects(&self, kind: SubjectKind) -> Vec<Subject> {
        use crate::model::id::{FileserverId, RepositoryId};
        let repositories = self.repositories.values().map(|id| RepositoryId(*id));
        let fileservers = self.fileservers.values().map(|id| FileserverId(*id));
        match kind {
            SubjectKind::Repository => repositories.map(Subject::Repository).collect(),
            SubjectKind::Fileserver => fileservers.map(Subject::Fileserver).collect(),
            SubjectKind::Replica => repositories
                .flat_map(|repository| fileservers.clone().map(move |one| Subject::Replica(repository, one)))
                .collect(),
            SubjectKind::Key => Vec::new(),
        }
    }
}

/// A length of time before the moment, as that moment.
fn ago(text: &str) -> Result<Millis, FixtureError> {
    let length = value::duration(text)
        .ok_or_else(|| FixtureError::File(format!("\"{text}\" is not {}", value::DURATION_FORM)))?;
    Ok(MOMENT - length)
}
