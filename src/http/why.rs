//! Why: for one subject, what each goal says, what its repair waits for, and what was done.

use super::problem::{Answer, Problem, did_you_mean};
use super::shapes::{GoalSays, Why};
use super::state::Api;
use super::{fileservers, repositories, steering};
use crate::database::report::{About, story};
use crate::database::{self, goals, pauses};
use crate::model::finding::Subject;
use crate::model::fleet::{Fileserver, Repository};
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;

/// Open findings, and live attempts, in one story.
const MOST_OPEN: i64 = 200;

/// Ended attempts, and closed findings, in one story.
const MOST_ENDED: i64 = 50;

/// What is asked about.
#[derive(Debug, Clone, Deserialize)]
pub struct Asked {
    subject: String,
}

/// What a text names.
enum Named {
    Repository(Repository),
    Replica(Repository, Fileserver),
    Fileserver(Fileserver),
}

/// `GET /api/v1/why?subject=`: a repository or fileserver by name or number, `REPOSITORY@FILESERVER`, or a
/// subject as findings show it.
///
/// # Errors
/// When nothing is named so, or the engine fails.
pub async fn show(State(api): State<Api>, Query(asked): Query<Asked>) -> Answer<Why> {
    let named = resolve(&api, &asked.subject).await?;
    let about = named.about();
    let open = story::open(&api.db, about, MOST_OPEN).await?;
    let states = goals::states(&api.db).await?;
    let mut attempts = story::live(&api.db, about, MOST_OPEN).await?;
    attempts.extend(story::ended(&api.db, about, MOST_ENDED).await?);
    let pauses = pauses::all(&api.db).await?;
    let flags = match named.repository() {
        Some(one) => story::flags(&api.db, one.id).await?,
        None => Vec::new(),
    };
    let says = states.into_iter().map(|status| GoalSays {
        findings: open.iter().filter(|finding| finding.goal == status.goal).cloned().collect(),
        paused: steering::of(&pauses, &status.goal),
        goal: status.goal,
        state: status.state,
        evaluated_at: status.evaluated_at,
    });
    Ok(Json(Why {
        subject: named.to_string(),
        id: named.subject().to_string(),
        now: api.db.now().await?,
        goals: says.collect(),
        flags,
        attempts,
        closed: story::closed(&api.db, about, MOST_ENDED).await?,
        repository: match named.repository() {
            Some(one) => Some(repositories::shown(&api, one.clone()).await?),
            None => None,
        },
        fileserver: match named {
            Named::Fileserver(one) => Some(fileservers::shown(&api, one).await?),
            _ => None,
        },
    }))
}

impl Named {
    fn about(&self) -> About {
        match self {
            Self::Repository(one) => About::Repository(one.id),
            Self::Replica(one, server) => About::Replica(one.id, server.id),
            Self::Fileserver(server) => About::Fileserver(server.id),
        }
    }

    fn subject(&self) -> Subject {
        match self {
            Self::Repository(one) => Subject::Repository(one.id),
            Self::Replica(one, server) => Subject::Replica(one.id, server.id),
            Self::Fileserver(server) => Subject::Fileserver(server.id),
        }
    }

    fn repository(&self) -> Option<&Repository> {
        match self {
            Self::Repository(one) | Self::Replica(one, _) => Some(one),
            Self::Fileserver(_) => None,
        }
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repository(one) => write!(f, "repository {}", one.name),
            Self::Replica(one, server) => write!(f, "replica of {} on {}", one.name, server.name),
            Self::Fileserver(server) => write!(f, "fileserver {}", server.name),
        }
    }
}

async fn resolve(api: &Api, text: &str) -> Result<Named, Problem> {
    match Subject::parse(text) {
        Some(Subject::Repository(id)) => return repository(api, &id.to_string()).await,
        Some(Subject::Fileserver(id)) => {
            return Ok(Named::Fileserver(fileservers::find(api, &id.to_string()).await?));
        }
        Some(Subject::Replica(id, server)) => {
            return replica(api, &id.to_string(), &server.to_string()).await;
        }
        Some(Subject::Key(_)) | None => {}
    }
    if let Some(one) = repositories::look_up(api, text).await? {
        return Ok(Named::Repository(one));
    }
    let all = database::fileservers::all(&api.db).await?;
    if let Some(one) = all.iter().find(|one| one.name == text) {
        return Ok(Named::Fileserver(one.clone()));
    }
    if let Some((name, server)) = text.rsplit_once('@') {
        return replica(api, name, server).await;
    }
    if let Some(hint) = did_you_mean(text, all.iter().map(|one| one.name.as_str())) {
        let message = format!("{text:?} is neither a repository nor a fileserver");
        return Err(Problem::not_found(message).hint(hint));
    }
    repository(api, text).await
}

async fn repository(api: &Api, name: &str) -> Result<Named, Problem> {
    Ok(Named::Repository(repositories::find(api, name).await?))
}

async fn replica(api: &Api, name: &str, server: &str) -> Result<Named, Problem> {
    let one = repositories::find(api, name).await?;
    Ok(Named::Replica(one, fileservers::find(api, server).await?))
}
