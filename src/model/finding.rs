//! Findings: one exception to one goal about one subject, and why its repair waits.

use super::Millis;
use super::amount::{counted, show_both};
use super::goal::SubjectKind;
use super::id::{EvaluationId, FileserverId, FindingId, RepositoryId};
use crate::words;
use serde::{Deserialize, Serialize};

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A repository.
    Repository(RepositoryId),
    /// A repository on a fileserver.
    Replica(RepositoryId, FileserverId),
    /// A fileserver.
    Fileserver(FileserverId),
    /// A plain text.
    Key(String),
}

impl Subject {
    /// The repository concerned, if one is.
    #[must_use]
    pub const fn repository(&self) -> Option<RepositoryId> {
        match self {
            Self::Repository(id) | Self::Replica(id, _) => Some(*id),
            _ => None,
        }
    }

    /// The fileserver concerned, if one is.
    #[must_use]
    pub const fn fileserver(&self) -> Option<FileserverId> {
        match self {
            Self::Fileserver(id) | Self::Replica(_, id) => Some(*id),
            _ => None,
        }
    }

    /// What one attempt at a time works on: a replica's whole repository, else the subject itself.
    #[must_use]
    pub fn at_once(&self) -> Self {
        match self {
            Self::Replica(id, _) => Self::Repository(*id),
            other => other.clone(),
        }
    }

    /// The kind of subject.
    #[must_use]
    pub const fn kind(&self) -> SubjectKind {
        match self {
            Self::Repository(_) => SubjectKind::Repository,
            Self::Replica(..) => SubjectKind::Replica,
            Self::Fileserver(_) => SubjectKind::Fileserver,
            Self::Key(_) => SubjectKind::Key,
        }
    }

    /// Reads the text that [`Display`](std::fmt::Display) writes, as kept in `findings.subject`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "repository" => Self::Repository(RepositoryId(rest.parse().ok()?)),
            "fileserver" => Self::Fileserver(FileserverId(rest.parse().ok()?)),
            "replica" => {
                let (repository, fileserver) = rest.split_once(':')?;
                Self::Replica(RepositoryId(repository.parse().ok()?), FileserverId(fileserver.parse().ok()?))
            }
            "key" => Self::Key(rest.to_owned()),
            _ => return None,
        })
    }
}

/// `repository:12`, `replica:12:3`, `fileserver:3`, `key:…`: unique within a goal.
impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repository(id) => write!(f, "repository:{id}"),
            Self::Replica(repository, fileserver) => write!(f, "replica:{repository}:{fileserver}"),
            Self::Fileserver(id) => write!(f, "fileserver:{id}"),
            Self::Key(key) => write!(f, "key:{key}"),
        }
    }
}

/// What is to be done where a goal returns a subject twice.
pub const ONCE: &str = "return each subject once, by GROUP BY, DISTINCT or EXISTS";

/// One row that a goal's query returned, checked against the column contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exception {
    /// What it is about.
    pub subject: Subject,
    /// 0 to 999, higher is sooner.
    pub priority: i32,
    /// A short text for people.
    pub reason: Option<String>,
    /// Columns `source_id`, `destination_id`, `bytes`, `path` where the goal gave them, for the plan.
    pub hints: Hints,
    /// Every other column, for people.
    pub evidence: serde_json::Map<String, serde_json::Value>,
}

/// What a goal may say about the plan of a finding's repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// The fileserver to copy from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<FileserverId>,
    /// The fileserver to copy to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_id: Option<FileserverId>,
    /// Bytes that the repair will move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The copy in quarantine that is meant, by its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

words!(
    /// What an open finding's repair is doing.
    FindingState, "finding state" {
        /// Not yet: backing off, or its last attempt awaits the next evaluation.
        Waiting = "waiting",
        /// May start as soon as limits allow.
        Ready = "ready",
        /// An attempt is queued or running.
        Running = "running",
        /// A brake or a pause holds it.
        Held = "held",
        /// A person is needed.
        Stuck = "stuck",
    }
);

/// One open finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its number.
    pub id: FindingId,
    /// The goal that is not met.
    pub goal: String,
    /// What it is about.
    pub subject: Subject,
    /// The remedy; none: it is only listed.
    pub repair: Option<String>,
    /// The lane it waits in.
    pub lane: Lane,
    /// 0 to 999, higher is sooner.
    pub priority: i32,
    /// A short text for people.
    pub reason: Option<String>,
    /// What the goal said about the plan.
    pub hints: Hints,
    /// Every other column of its row.
    pub evidence: serde_json::Map<String, serde_json::Value>,
    /// When it was first returned.
    pub opened_at: Millis,
    /// The evaluation that first returned it.
    pub opened_evaluation: EvaluationId,
    /// What its repair is doing.
    pub state: FindingState,
    /// Why it waits.
    pub deferral: Option<Deferral>,
    /// Attempts that ended in failure since it opened; waiting and pauses use none up.
    pub tries: i32,
    /// Attempts that succeeded and after which it was returned again.
    pub ineffective: i32,
    /// Before this moment nothing starts.
    pub next_at: Millis,
}

/// Where a finding waits its turn. A lane that is at its limit is passed over, so that
/// one busy fileserver never hides the findings of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Last copies: no limit of other repairs can fill it.
    Last,
    /// Findings about no one fileserver.
    Common,
    /// Findings about one fileserver, or caused by its loss.
    Fileserver(FileserverId),
}

impl Lane {
    /// How SQL keeps it: −1 last copies, 0 common, else the fileserver's number.
    #[must_use]
    pub const fn to_sql(self) -> i64 {
        match self {
            Self::Last => -1,
            Self::Common => 0,
            Self::Fileserver(id) => id.0,
        }
    }

    /// The reverse of [`Lane::to_sql`].
    #[must_use]
    pub const fn from_sql(number: i64) -> Self {
        match number {
            -1 => Self::Last,
            0 => Self::Common,
            id => Self::Fileserver(FileserverId(id)),
        }
    }
}

/// Why a finding's repair does not start now. Shown to people word for word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Deferral {
    /// Another attempt works on this repository.
    RepositoryBusy,
    /// Another attempt works on this fileserver or key.
    SubjectBusy,
    /// The repair has as many attempts in flight as it may.
    RepairAtLimit {
        /// The repair.
        repair: String,
        /// Its limit.
        limit: u32,
    },
    /// A fileserver takes part in as many attempts as it may.
    FileserverAtLimit {
        /// Its name.
        fileserver: String,
        /// Its limit.
        limit: u32,
    },
    /// A rack takes part in as many attempts as it may.
    RackAtLimit {
        /// Its name.
        rack: String,
        /// Its limit.
        limit: u32,
    },
    /// The fleet has as many attempts in flight, or started in this minute, as it may.
    FleetAtLimit {
        /// The limit.
        limit: u32,
    },
    /// It backs off after an attempt, or that attempt awaits the next evaluation.
    CoolingDown {
        /// Until when; `None`: until the next evaluation.
        until: Option<Millis>,
    },
    /// The step would leave too few replicas for a push to stand.
    QuorumAtRisk,
    /// The step would leave fewer verified copies than are wanted.
    CopyNeeded {
        /// Other countable copies that hold the definitive checksum, were verified, and answer.
        others: u32,
        /// How many are wanted.
        wanted: u32,
    },
    /// No replica that can be reached has the definitive checksum.
    NoSource,
    /// No fileserver may take the copy.
    NoDestination {
        /// Candidates left out, counted by cause, for example `("in a rack that has a copy", 3)`.
        causes: Vec<(String, u32)>,
    },
    /// Fileservers would take the copy if they had room.
    NotEnoughSpace {
        /// Bytes needed.
        needed: i64,
        /// Bytes that the best candidate can take.
        placeable: i64,
    },
    /// A person holds it.
    Paused {
        /// Who.
        by: String,
        /// Until when.
        until: Option<Millis>,
        /// Why.
        reason: String,
    },
    /// A brake holds it.
    Braked {
        /// The brake's name.
        name: String,
    },
    /// The fileserver that it is about does not answer.
    FileserverAway {
        /// Its name.
        fileserver: String,
    },
    /// A person is needed.
    Stuck {
        /// Why.
        reason: String,
    },
    /// Another goal undoes what its repair does; a person is needed.
    Undone {
        /// The other goal.
        by: String,
    },
    /// Its goal asks for several evaluations in a row that return it.
    Ripening {
        /// How many.
        evaluations: i64,
        /// Which finished evaluation of its goal is the last of them.
        until: i64,
    },
}

impl std::fmt::Display for Deferral {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RepositoryBusy => f.write_str("another attempt works on this repository"),
            Self::SubjectBusy => f.write_str("another attempt works on this subject"),
            Self::RepairAtLimit { repair, limit } => {
                write!(f, "repair {repair} is at its limit of {}", counted(*limit, "attempt"))
            }
            Self::FileserverAtLimit { fileserver, limit } => {
                write!(f, "fileserver {fileserver} is at its limit of {}", counted(*limit, "attempt"))
            }
            Self::RackAtLimit { rack, limit } => {
                write!(f, "rack {rack} is at its limit of {}", counted(*limit, "attempt"))
            }
            Self::FleetAtLimit { limit } => {
                write!(f, "the fleet is at its limit of {}", counted(*limit, "attempt"))
            }
            Self::CoolingDown { until: Some(_) } => f.write_str("backing off after an attempt"),
            Self::CoolingDown { until: None } => {
                f.write_str("its attempt is done; the next evaluation judges")
            }
            Self::QuorumAtRisk => f.write_str("the step would leave too few replicas for a push to stand"),
            Self::CopyNeeded { others, wanted } => {
                let are = if *others == 1 { "other is" } else { "others are" };
                write!(f, "the copy is needed: {others} {are} known to be good, {wanted} are wanted")
            }
            Self::NoSource => f.write_str("no replica that can be reached has the definitive checksum"),
            Self::NoDestination { causes } => {
                f.write_str("no fileserver may take the copy")?;
                for (i, (cause, count)) in causes.iter().enumerate() {
                    write!(f, "{}{count} {cause}", if i == 0 { ": " } else { ", " })?;
                }
                Ok(())
            }
            Self::NotEnoughSpace { needed, placeable } => {
                let (needed, placeable) = show_both(*needed, *placeable);
                write!(f, "needs {needed}, {placeable} can be placed")
            }
            Self::Paused { by, reason, .. } => write!(f, "paused by {by}: {reason}"),
            Self::Braked { name } => write!(f, "held by the brake {name}"),
            Self::FileserverAway { fileserver } => write!(f, "fileserver {fileserver} does not answer"),
            Self::Stuck { reason } => write!(f, "stuck: {reason}"),
            Self::Undone { by } => {
                write!(f, "stuck: goal {by} undoes what its repair does, and it undoes that again")
            }
            Self::Ripening { evaluations, until } => write!(
                f,
                "must be returned by {evaluations} evaluations in a row, up to its goal's evaluation {until}"
            ),
        }
    }
}
