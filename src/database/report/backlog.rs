//! The backlog: open findings that need a repair, counted and listed.

use super::super::{Database, DatabaseError, Result, on};
use crate::model::Millis;
use crate::model::finding::{Deferral, FindingState};
use serde::{Deserialize, Serialize};

/// How many findings of the backlog are in each state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BacklogCounts {
    /// Findings by state.
    pub states: Vec<(FindingState, i64)>,
    /// When the oldest was opened.
    pub oldest: Option<Millis>,
    /// What could start now, by repair: how many, and since when the first of them could.
    pub ready: Vec<(String, i64, Millis)>,
}

impl BacklogCounts {
    /// How many are in this state.
    #[must_use]
    pub fn of(&self, state: FindingState) -> i64 {
        self.states.iter().find(|(one, _)| *one == state).map_or(0, |(_, count)| *count)
    }

    /// How many there are.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.states.iter().map(|(_, count)| count).sum()
    }
}

/// Which findings are meant; what is not given leaves nothing out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogFilter {
    /// Of this goal.
    pub goal: Option<String>,
    /// About this fileserver.
    pub fileserver: Option<String>,
    /// In this state.
    pub state: Option<FindingState>,
}

/// One open finding, with names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BacklogRow {
    /// Its number.
    pub id: i64,
    /// The goal that is not met.
    pub goal: String,
    /// What it is about.
    pub subject: String,
    /// The repository's name.
    pub repository: Option<String>,
    /// The fileserver's name.
    pub fileserver: Option<String>,
    /// The remedy.
    pub repair: Option<String>,
    /// What its repair is doing.
    pub state: FindingState,
    /// Higher is sooner.
    pub priority: i32,
    /// The goal's words.
    pub reason: Option<String>,
    /// Why its repair waits.
    pub waits: Option<String>,
    /// When it was first returned.
    pub opened_at: Millis,
    /// Attempts that failed.
    pub tries: i32,
    /// Attempts after which it was returned again.
    pub ineffective: i32,
    /// Before this nothing starts.
    pub next_at: Millis,
    /// What its running attempt last said.
    pub progress: Option<String>,
}

/// Counts the backlog by state, with its oldest.
///
/// # Errors
/// When the engine fails, or a state is a word of a newer program.
pub async fn counts(db: &Database) -> Result<BacklogCounts> {
    let rows: Vec<(String, String, i64, i64, i64)> = on!(db, p => sqlx::query_as(
        "/* report::backlog::counts */
         SELECT state, repair, count(*), min(opened_at), min(next_at) FROM findings WHERE repair IS NOT NULL
          GROUP BY state, repair ORDER BY state, repair",
    )
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "counting the backlog", source })?;
    let mut counts = BacklogCounts { oldest: rows.iter().map(|row| row.3).min(), ..BacklogCounts::default() };
    for (state, repair, many, _, since) in rows {
        let state: FindingState = word(&state)?;
        match counts.states.iter_mut().find(|(one, _)| *one == state) {
            Some((_, count)) => *count += many,
            None => counts.states.push((state, many)),
        }
        if state == FindingState::Ready {
            counts.ready.push((repair, many, since));
        }
    }
    Ok(counts)
}

/// Numbers of open findings that a filter matches, ascending, after one, at most `limit`: what a verb acts on.
///
/// # Errors
/// When the engine fails.
pub async fn ids(db: &Database, filter: &BacklogFilter, after: i64, limit: i64) -> Result<Vec<i64>> {
    on!(db, p => sqlx::query_scalar(
        "/* report::backlog::ids */
         SELECT n.id FROM findings n LEFT JOIN fileservers f ON f.id = n.fileserver_id
          WHERE n.id > $5 AND n.repair IS NOT NULL AND ($1 = '' OR n.goal = $1) AND ($2 = '' OR f.name = $2)
            AND ($3 = '' OR n.state = $3)
          ORDER BY n.id LIMIT $4",
    )
    .bind(filter.goal.as_deref().unwrap_or_default())
    .bind(filter.fileserver.as_deref().unwrap_or_default())
    .bind(filter.state.map_or("", FindingState::as_str))
    .bind(limit)
    .bind(after)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "choosing findings", source })
}

/// What most ready findings of a repair wait for, in words, among a thousand of them; none: nothing was decided yet.
///
/// # Errors
/// When the engine fails.
pub async fn mostly_waits(db: &Database, repair: &str) -> Result<Option<String>> {
    let most: Option<(Option<String>, i64)> = on!(db, p => sqlx::query_as(
        "/* report::backlog::mostly_waits */
         SELECT s.why, count(*) AS many FROM (SELECT CAST(deferral AS TEXT) AS why FROM findings
                  WHERE state = 'ready' AND repair = $1 AND deferral IS NOT NULL LIMIT 1000) s
          GROUP BY s.why ORDER BY many DESC LIMIT 1",
    )
    .bind(repair)
    .fetch_optional(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "reading what the backlog waits for", source })?;
    Ok(most.and_then(|(why, _)| why).map(|text| waits(&text)))
}

/// Open findings with a repair, most urgent first, after a place in that order, at most `limit`.
///
/// # Errors
/// When the engine fails, or a row cannot be read.
pub async fn list(db: &Database, filter: &BacklogFilter, limit: i64) -> Result<Vec<BacklogRow>> {
    let rows: Vec<Selected> = on!(db, p => sqlx::query_as(
        "/* report::backlog::list */
         SELECT n.id, n.goal, n.subject, r.name AS repository, f.name AS fileserver, n.repair, n.state, n.priority,
                n.reason, CAST(n.deferral AS TEXT) AS deferral, n.opened_at, n.tries, n.ineffective, n.next_at,
                a.progress
           FROM findings n
           LEFT JOIN repositories r ON r.id = n.repository_id
           LEFT JOIN fileservers f ON f.id = n.fileserver_id
           LEFT JOIN attempts a ON a.finding_id = n.id
          WHERE n.repair IS NOT NULL AND ($1 = '' OR n.goal = $1) AND ($2 = '' OR f.name = $2)
            AND ($3 = '' OR n.state = $3)
          ORDER BY n.priority DESC, n.id LIMIT $4",
    )
    .bind(filter.goal.as_deref().unwrap_or_default())
    .bind(filter.fileserver.as_deref().unwrap_or_default())
    .bind(filter.state.map_or("", FindingState::as_str))
    .bind(limit)
    .fetch_all(p)
    .await)
    .map_err(|source| DatabaseError::Sql { doing: "listing the backlog", source })?;
    rows.into_iter().map(Selected::read).collect()
}

#[derive(sqlx::FromRow)]
pub(super) struct Selected {
    id: i64,
    goal: String,
    subject: String,
    repository: Option<String>,
    fileserver: Option<String>,
    repair: Option<String>,
    state: String,
    priority: i32,
    reason: Option<String>,
    deferral: Option<String>,
    opened_at: i64,
    tries: i32,
    ineffective: i32,
    next_at: i64,
    progress: Option<String>,
}

impl Selected {
    pub(super) fn read(self) -> Result<BacklogRow> {
        Ok(BacklogRow {
            id: self.id,
            state: word(&self.state)?,
            waits: self.deferral.map(|text| waits(&text)),
            goal: self.goal,
            subject: self.subject,
            repository: self.repository,
            fileserver: self.fileserver,
            repair: self.repair,
            priority: self.priority,
            reason: self.reason,
            opened_at: self.opened_at,
            tries: self.tries,
            ineffective: self.ineffective,
            next_at: self.next_at,
            progress: self.progress,
        })
    }
}

/// A deferral in words; one that a newer program wrote is shown as it stands.
fn waits(text: &str) -> String {
    serde_json::from_str::<Deferral>(text).map_or_else(|_| text.to_owned(), |deferral| deferral.to_string())
}

fn word(text: &str) -> Result<FindingState> {
    text.parse()
        .map_err(|error: crate::model::token::UnknownWord| DatabaseError::Unreadable(error.to_string()))
}
