//! Repositories: lists, one with its copies, wanted copies.

use super::fileservers::record;
use super::problem::{Answer, Problem, did_you_mean};
use super::removals::{quarantined, removed_by_id};
use super::shapes::{Changed, ReplicaShown, RepositoryList, RepositoryRow, RepositoryShown, SetWanted};
use super::state::Api;
use crate::database::pushes::{self, Standing};
use crate::database::{fileservers, repositories};
use crate::model::amount::counted;
use crate::model::fleet::{Fileserver, Health, Replica, ReplicaState, Repository, quorum};
use crate::model::id::{FileserverId, RepositoryId};
use axum::Json;
use axum::extract::{Path, Query, State};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Repositories in one answer where nobody says how many.
const USUAL: i64 = 100;

/// Most repositories in one answer.
const MOST: i64 = 1_000;

/// Most copies of one repository that may be wanted.
pub const MOST_WANTED: u32 = 16;

/// What does not stand for itself in an address.
const IN_ADDRESSES: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'+');

/// What is asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    #[serde(default)]
    after: String,
    limit: Option<i64>,
    #[serde(default)]
    behind: bool,
    #[serde(default)]
    removed: bool,
}

/// `GET /api/v1/repositories?after=&limit=&behind=&removed=`; those that were removed are paged by number.
///
/// # Errors
/// When the engine fails.
pub async fn list(State(api): State<Api>, Query(asked): Query<Asked>) -> Answer<RepositoryList> {
    let limit = asked.limit.unwrap_or(USUAL).clamp(1, MOST);
    let page = if asked.removed {
        let after = asked.after.parse().unwrap_or(0);
        repositories::removed_page(&api.db, RepositoryId(after), limit).await?
    } else {
        repositories::page(&api.db, &asked.after, limit, asked.behind).await?
    };
    let full = i64::try_from(page.len()).is_ok_and(|count| count >= limit);
    let key = |last: &Repository| if asked.removed { last.id.to_string() } else { last.name.clone() };
    let next = page.last().filter(|_| full).map(key);
    let ids: Vec<_> = page.iter().map(|one| one.id).collect();
    let replicas = repositories::replicas_of(&api.db, &ids).await?;
    let fleet = by_id(&api).await?;
    let rows = page.into_iter().map(|one| {
        let id = one.id;
        let own = replicas.iter().filter(|replica| replica.repository_id == id);
        row(one, own, &fleet)
    });
    // That page holds what open findings are about: it says more than the copies' numbers alone.
    let repositories = rows.map(|row| RepositoryRow { behind: row.behind || asked.behind, ..row }).collect();
    Ok(Json(RepositoryList { repositories, next }))
}

fn row<'a>(
    one: Repository,
    replicas: impl Iterator<Item = &'a Replica>,
    fleet: &BTreeMap<FileserverId, Fileserver>,
) -> RepositoryRow {
    let (mut countable, mut good) = (0, 0);
    for replica in replicas.filter(|replica| replica.state == ReplicaState::Live) {
        let Some(server) = fleet.get(&replica.fileserver_id) else { continue };
        countable += u32::from(server.counts);
        good += u32::from(server.counts && replica.in_sync && server.health != Health::Offline);
    }
    RepositoryRow {
        id: one.id,
        name: one.name,
        object_format: one.object_format,
        wanted: one.wanted,
        countable,
        good,
        seats: one.seats,
        version: one.version,
        bytes: one.bytes,
        behind: good < one.wanted && one.removed_at.is_none(),
        removed_at: one.removed_at,
    }
}

/// `GET /api/v1/repositories/{name}`
///
/// # Errors
/// When there is no such repository, or the engine fails.
pub async fn show(State(api): State<Api>, Path(name): Path<String>) -> Answer<RepositoryShown> {
    let one = find(&api, &name).await?;
    Ok(Json(shown(&api, one).await?))
}

/// A repository with its copies.
///
/// # Errors
/// When the engine fails.
pub async fn shown(api: &Api, mut one: Repository) -> Result<RepositoryShown, Problem> {
    if one.removed_at.is_some()
        && let Some(removed) = removed_by_id(api, one.id).await?
    {
        one = removed;
    }
    let fleet = by_id(api).await?;
    let mut replicas: Vec<_> = repositories::replicas_of(&api.db, &[one.id])
        .await?
        .into_iter()
        .filter_map(|replica| {
            let server = fleet.get(&replica.fileserver_id)?;
            Some(ReplicaShown {
                fileserver: server.name.clone(),
                rack: server.rack.clone(),
                path: (api.hooks.path_of)(server, one.id),
                state: replica.state,
                in_sync: replica.in_sync,
                checksum: replica.checksum.map(|checksum| checksum.shown()),
                verified_at: replica.verified_at,
            })
        })
        .collect();
    replicas.sort_by(|a, b| a.fileserver.cmp(&b.fileserver));
    Ok(RepositoryShown {
        id: one.id,
        clone_url: clone_url(&api.clone_base, &one),
        name: one.name,
        wanted: one.wanted,
        seats: one.seats,
        version: one.version,
        checksum: one.checksum.map(|checksum| checksum.shown()),
        removed_at: one.removed_at,
        pushes_wait: pushes_wait(&pushes::standing(&api.db, one.id).await?),
        replicas,
        quarantined: quarantined(api, one.id).await?,
    })
}

/// What holds pushes up longer than another push does.
fn pushes_wait(standing: &Standing) -> Option<String> {
    if let Some(lock) = &standing.lock {
        let why = if lock.reason.is_empty() { "it is being repaired" } else { &lock.reason };
        return Some(format!(
            "the write lock is held, for {} s if nobody renews it: {why}",
            lock.left_ms / 1000 + 1
        ));
    }
    let ahead = standing.ahead.as_ref()?;
    match &ahead.undecided {
        Some(why) => Some(format!("push {} waits for a person: {why}", ahead.id)),
        None if ahead.left_ms < 0 => Some(format!(
            "the router of push {} is gone for {} s; it will be settled",
            ahead.id,
            -ahead.left_ms / 1000
        )),
        None => None,
    }
}

/// Where clients find it: below the routers' address, by its name as addresses have it.
fn clone_url(base: &str, one: &Repository) -> Option<String> {
    if base.is_empty() || one.removed_at.is_some() {
        return None;
    }
    let name = utf8_percent_encode(one.name.trim_end_matches(".git"), IN_ADDRESSES);
    Some(format!("{base}/{name}.git"))
}

/// `PUT /api/v1/repositories/{name}/wanted`
///
/// # Errors
/// When the number is out of bounds, a push is open, or the engine fails.
pub async fn set_wanted(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<SetWanted>,
) -> Answer<Changed> {
    check_wanted(ask.wanted)?;
    let one = find(&api, &name).await?;
    if one.wanted == ask.wanted {
        let message = format!("{} of {} {} wanted already", copies(one.wanted), one.name, are(one.wanted));
        return Ok(Json(Changed { message, changed: false }));
    }
    if ask.dry_run {
        let message =
            format!("{}: {} would be wanted instead of {}", one.name, copies(ask.wanted), one.wanted);
        return Ok(Json(Changed { message, changed: false }));
    }
    let after = repositories::set_wanted(&api.db, one.id, ask.wanted).await?;
    let detail = serde_json::json!({ "was": one.wanted, "is": ask.wanted });
    record(&api, "repo.set-replicas", &one.name, ask.reason.as_deref(), detail).await?;
    let bears = after.seats.saturating_sub(quorum(after.seats));
    let message = format!(
        "{}: {} {} wanted instead of {}; {}, so pushes stand while {} of them {} away",
        one.name,
        copies(after.wanted),
        are(after.wanted),
        one.wanted,
        counted(after.seats, "seat"),
        if bears == 0 { "none".to_owned() } else { bears.to_string() },
        if bears == 1 || bears == 0 { "is" } else { "are" },
    );
    Ok(Json(Changed { message, changed: true }))
}

fn copies(many: u32) -> String {
    counted(many, "copy")
}

const fn are(many: u32) -> &'static str {
    if many == 1 { "is" } else { "are" }
}

/// Copies wanted must be a number that makes sense.
///
/// # Errors
/// When it is none.
pub fn check_wanted(wanted: u32) -> Result<(), Problem> {
    if (1..=MOST_WANTED).contains(&wanted) {
        return Ok(());
    }
    Err(Problem::bad_request(format!("{} cannot be wanted: 1 to {MOST_WANTED} can", copies(wanted))))
}

/// A repository by name or number.
///
/// # Errors
/// When there is none, with a near name, or the engine fails.
pub async fn find(api: &Api, name: &str) -> Result<Repository, Problem> {
    if let Some(one) = look_up(api, name).await? {
        return Ok(one);
    }
    let problem = Problem::not_found(format!("there is no repository {name:?}"));
    // Names are sorted: what is typed half stands next to what is meant, without reading them all.
    let start: String = name.chars().take(1).collect();
    let near = repositories::page(&api.db, &start, USUAL, false).await?;
    Err(match did_you_mean(name, near.iter().map(|one| one.name.as_str())) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("`trued repo list` names them"),
    })
}

/// A repository by name or number, if there is one.
///
/// # Errors
/// When the engine fails.
pub async fn look_up(api: &Api, name: &str) -> Result<Option<Repository>, Problem> {
    if let Some(one) = repositories::by_name(&api.db, name).await? {
        return Ok(Some(one));
    }
    let Ok(number) = name.parse() else { return Ok(None) };
    Ok(repositories::by_ids(&api.db, &[RepositoryId(number)]).await?.pop())
}

/// All fileservers by number.
///
/// # Errors
/// When the engine fails.
pub async fn by_id(api: &Api) -> Result<BTreeMap<FileserverId, Fileserver>, Problem> {
    Ok(fileservers::all(&api.db).await?.into_iter().map(|one| (one.id, one)).collect())
}
