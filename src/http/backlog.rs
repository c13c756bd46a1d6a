//! The backlog as a list.

use super::problem::{Answer, Problem};
use super::shapes::BacklogList;
use super::state::Api;
use crate::database::report::{self, BacklogFilter};
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;

/// Rows in one answer where nobody says how many.
const USUAL: i64 = 100;

/// Most rows in one answer.
const MOST: i64 = 10_000;

/// What is asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    goal: Option<String>,
    fileserver: Option<String>,
    state: Option<String>,
    limit: Option<i64>,
    after: Option<i64>,
}

impl Asked {
    /// What is meant.
    pub(super) fn filter(&self) -> Result<BacklogFilter, Problem> {
        let state = self.state.as_deref().filter(|word| !word.is_empty()).map(str::parse).transpose();
        let state = state
            .map_err(|error: crate::model::token::UnknownWord| Problem::bad_request(error.to_string()))?;
        Ok(BacklogFilter { goal: self.goal.clone(), fileserver: self.fileserver.clone(), state })
    }

    /// Of a snapshot: the number that it goes on behind.
    pub(super) fn after(&self) -> i64 {
        self.after.unwrap_or(0)
    }
}

/// `GET /api/v1/backlog?goal=&fileserver=&state=&limit=`
///
/// # Errors
/// When the state is not one, or the engine fails.
pub async fn list(State(api): State<Api>, Query(asked): Query<Asked>) -> Answer<BacklogList> {
    let filter = asked.filter()?;
    let limit = asked.limit.unwrap_or(USUAL).clamp(1, MOST);
    let mut findings = report::backlog::list(&api.db, &filter, limit + 1).await?;
    let more = i64::try_from(findings.len()).is_ok_and(|count| count > limit);
    findings.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(Json(BacklogList { findings, more }))
}
