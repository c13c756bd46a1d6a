//! Evaluating: one read-only session per evaluation, on either engine, with bounds of time and rows.
use super::Goal;
use crate::model::Millis;
use crate::model::finding::{Exception, Subject};
use tokio::sync::mpsc;

/// Where goals are asked: what a session is opened with. Never shares a connection with `database`.
#[derive(Debug, Clone)]
pub struct Source {}

/// Why an evaluation did not finish, or a goal cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// `goals/x.sql:7:12: column "rack" does not exist (42703); did you mean "rack_id"?`
    pub message: String,
    /// Whether the text is at fault (as against the time it took, or the engine being away).
    pub text: bool,
}

/// How an evaluation that finished ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluated {
    /// The moment that `:now` was bound to, by the database's clock.
    pub now: Millis,
    /// Rows sent.
    pub rows: u64,
    /// Whether there were more than `max-rows`.
    pub more: bool,
}

impl Source {
    /// Goals will be asked of this database (`sqlite:PATH`, `postgres://…`).
    ///
    /// # Errors
    /// When the URL is of neither kind.
    pub fn new(_url: &str) -> Result<Self, Problem> {
        todo!()
    }

    /// Prepares the query on the real engine and checks its columns; runs nothing of it on rows.
    ///
    /// # Errors
    /// Naming file, line and column.
    pub async fn check(&self, _goal: &Goal) -> Result<(), Problem> {
        todo!()
    }

    /// Evaluates, sending rows in batches; the channel's bound is the memory's. Rows that were sent before an
    /// error are the receiver's to throw away.
    ///
    /// # Errors
    /// When it did not finish: the goal is unknown.
    pub async fn evaluate(
        &self,
        _goal: &Goal,
        _rows: mpsc::Sender<Vec<Exception>>,
    ) -> Result<Evaluated, Problem> {
        todo!()
    }

    /// Asks again for one subject.
    ///
    /// # Errors
    /// When it could not be asked: the finding is taken to hold.
    pub async fn recheck(&self, _goal: &Goal, _subject: &Subject) -> Result<bool, Problem> {
        todo!()
    }
}
