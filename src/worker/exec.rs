//! Exec: an operator's own program, run for one finding.
//!
//! The program is the one that this machine's repair file names, never one that SQL names. It
//! gets the finding as one JSON object on its standard input, a cleared environment and a
//! process group of its own; its exit says how the attempt ended: 0 done, 75 try later (no try
//! is used up), anything else failed. The last line that it wrote is kept as the result. At its
//! deadline the whole group is ended. What it does is its own business: whether it helped, the
//! goal's next evaluation says.

use super::Worker;
use super::outcome::Outcome;
use crate::clock;
use crate::database::{fileservers, findings, repositories};
use crate::model::attempt::Attempt;
use crate::model::finding::{Finding, Subject};
use crate::program;
use std::time::Duration;
use tokio_util::task::TaskTracker;

#[cfg(test)]
mod tests;

/// A program that says so could not work now, and not by its own fault (`EX_TEMPFAIL` of sysexits).
const TRY_LATER: i32 = 75;

/// Whether programs may be run here, and who sees to those whose attempt is gone.
#[derive(Debug, Clone)]
pub struct Programs {
    allowed: bool,
    reaper: TaskTracker,
}

impl Programs {
    /// For a worker that runs programs, or that leaves their attempts to others.
    #[must_use]
    pub fn new(allowed: bool) -> Self {
        Self { allowed, reaper: TaskTracker::new() }
    }

    /// Whether attempts that run programs are claimed.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.allowed
    }

    /// Waits until programs that were given up are gone; no longer than their patience.
    pub(super) async fn buried(&self) {
        self.reaper.close();
        let _ = tokio::time::timeout(program::PATIENCE * 2, self.reaper.wait()).await;
    }
}

/// What a program is told.
#[derive(Debug, serde::Serialize)]
struct Told<'a> {
    version: u8,
    goal: &'a str,
    repair: &'a str,
    subject: About,
    finding: i64,
    reason: Option<&'a str>,
    evidence: &'a serde_json::Map<String, serde_json::Value>,
    attempt: Try,
    deadline: String,
    deadline_seconds: u64,
}

#[derive(Debug, serde::Serialize)]
struct Try {
    id: i64,
    number: i32,
    ineffective: i32,
}

/// The subject, with names beside numbers.
#[derive(Debug, Default, serde::Serialize)]
struct About {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fileserver_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fileserver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl Worker {
    /// Runs the program of the attempt's repair.
    pub(super) async fn exec(&self, attempt: &Attempt) -> Outcome {
        match self.try_exec(attempt).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    async fn try_exec(&self, attempt: &Attempt) -> Result<Outcome, Outcome> {
        let command = self.repairs.get(&attempt.repair).map(|repair| repair.exec.clone()).unwrap_or_default();
        let Some(named) = command.first() else {
            return Err(Outcome::Away(format!("this worker has no file for a program {}", attempt.repair)));
        };
        let path = program::checked(named).map_err(Outcome::failed)?;
        let within = Duration::from_millis(u64::try_from(attempt.plan.deadline_ms).unwrap_or(0));
        let Some(finding) = findings::one(&self.database, attempt.finding_id).await? else {
            return Err(Outcome::Stale("its finding is closed".into()));
        };
        let about = self.about(&attempt.subject).await?;
        let input = told(attempt, &finding, about, within)?;
        let ended = program::run(&path, &command[1..], &input, within, &self.programs.reaper).await;
        Ok(verdict(&ended.map_err(Outcome::failed)?, within))
    }

    async fn about(&self, subject: &Subject) -> Result<About, Outcome> {
        let mut about = About { kind: subject.kind().as_str(), ..About::default() };
        if let Some(id) = subject.repository() {
            let Some(known) = repositories::by_ids(&self.database, &[id]).await?.pop() else {
                return Err(Outcome::Stale("there is no such repository any more".into()));
            };
            (about.repository_id, about.repository) = (Some(id.0), Some(known.name));
        }
        if let Some(id) = subject.fileserver() {
            let all = fileservers::all(&self.database).await?;
            let Some(known) = all.into_iter().find(|one| one.id == id) else {
                return Err(Outcome::Stale(format!("fileserver {id} left the fleet")));
            };
            (about.fileserver_id, about.fileserver) = (Some(id.0), Some(known.name));
        }
        if let Subject::Key(key) = subject {
            about.key = Some(key.clone());
        }
        Ok(about)
    }
}

fn told(attempt: &Attempt, finding: &Finding, subject: About, within: Duration) -> Result<Vec<u8>, Outcome> {
    let until = clock::now().saturating_add(super::millis(within));
    let told = Told {
        version: 1,
        goal: &attempt.goal,
        repair: &attempt.repair,
        subject,
        finding: attempt.finding_id.0,
        reason: finding.reason.as_deref(),
        evidence: &finding.evidence,
        attempt: Try { id: attempt.id.0, number: attempt.number, ineffective: finding.ineffective },
        deadline: chrono::DateTime::from_timestamp_millis(until).unwrap_or_default().to_rfc3339(),
        deadline_seconds: within.as_secs(),
    };
    let mut text = serde_json::to_vec(&told).map_err(|error| Outcome::failed(error.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

/// What an end means; the last line speaks for the program.
fn verdict(ended: &program::Ended, within: Duration) -> Outcome {
    let said = |otherwise: String| if ended.said.is_empty() { otherwise } else { ended.said.clone() };
    match ended.how {
        program::How::Exit(0) => Outcome::Succeeded { message: said("done".into()), bytes: 0 },
        program::How::Exit(TRY_LATER) => Outcome::Away(said("it asked to be tried later".into())),
        program::How::Exit(code) => Outcome::failed(match ended.said.as_str() {
            "" => format!("it ended with exit code {code} and no word"),
            words => format!("exit code {code}: {words}"),
        }),
        program::How::Signal => Outcome::failed(said("it was ended by a signal".into())),
        program::How::Deadline => {
            Outcome::failed(format!("it did not end within {} s and was ended", within.as_secs()))
        }
        program::How::TooMuch => {
            Outcome::failed(format!("it wrote more than {} MiB and was ended", program::MOST >> 20))
        }
    }
}
