//! Emptying fileservers: proven first, watched with what is in the way; and those that are lost or came back empty.

use super::fileservers::{find, record};
use super::problem::{Answer, Problem};
use super::shapes::{Blocker, Changed, Confirmed, DrainList, DrainRow, Evacuate};
use super::state::Api;
use crate::database::drains::{self, Drain, Sums};
use crate::database::{fileservers, flows};
use crate::model::Millis;
use crate::model::finding::Deferral;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::id::FileserverId;
use crate::repair::feasibility::{self, Feasible, Infeasible, Need};
use crate::repair::units::show_size;
use crate::repair::view::FleetView;
use axum::Json;
use axum::extract::{Path, Query, State};
use std::collections::BTreeSet;

/// Findings in the way that are looked at, and those that are named.
const LOOKED_AT: i64 = 500;
const NAMED: usize = 50;

/// `POST /api/v1/drains`
///
/// # Errors
/// When there is no such fileserver, it cannot be done (`unsafe`, with the sums), or the engine fails.
pub async fn begin(State(api): State<Api>, Json(ask): Json<Evacuate>) -> Answer<Changed> {
    Ok(Json(evacuate(&api, &ask).await?))
}

/// Makes fileservers leave, all or none.
///
/// # Errors
/// As [`begin`].
pub async fn evacuate(api: &Api, ask: &Evacuate) -> Result<Changed, Problem> {
    let mut asked = Vec::new();
    for name in &ask.fileservers {
        let one = find(api, name).await?;
        if one.intent == Intent::Retire {
            return Err(Problem::refused(format!("fileserver {} is retired", one.name)));
        }
        // One that is being emptied was proven when that was asked for.
        if one.intent != Intent::Evacuate {
            asked.push(one);
        }
    }
    if asked.is_empty() {
        let message = format!("{} is being emptied already", ask.fileservers.join(", "));
        return Ok(Changed { message, changed: false });
    }
    let names: Vec<&str> = asked.iter().map(|one| one.name.as_str()).collect();
    let ids: Vec<FileserverId> = asked.iter().map(|one| one.id).collect();
    let names = names.join(", ");
    let view = view(api).await?;
    let write = !ask.dry_run;
    let decided =
        drains::evacuate(&api.db, &ids, false, write, |leaving, sums| decide(&view, leaving, sums)).await?;
    let proven = decided.map_err(|why| {
        Problem::unsafe_now(format!("{names} cannot be emptied: {why}"))
            .hint("add fileservers or disks, or let others serve again; nothing was changed")
    })?;
    let sums = format!("{} to be placed, {} can be", show_size(proven.needed), show_size(proven.placeable));
    if ask.dry_run {
        return Ok(Changed { message: format!("{names} would be emptied: {sums}"), changed: false });
    }
    for one in &asked {
        let detail =
            serde_json::json!({ "was": one.intent, "is": Intent::Evacuate, "needed": proven.needed });
        record(api, "fileserver.evacuate", &one.name, ask.reason.as_deref(), detail).await?;
    }
    (api.hooks.evaluate)(&["replicas-suffice".to_owned()]);
    Ok(Changed { message: format!("{names} is being emptied: {sums}"), changed: true })
}

fn decide(view: &FleetView, leaving: &[FileserverId], sums: &Sums) -> Result<Feasible, Infeasible> {
    let need = Need {
        repositories: sums.repositories,
        wanted: u32::try_from(sums.wanted).unwrap_or(u32::MAX),
        bytes: sums.bytes,
        once: sums.once,
        largest: sums.largest,
        held: sums.held.iter().copied().collect(),
    };
    let leaving: BTreeSet<FileserverId> = leaving.iter().copied().collect();
    feasibility::prove(view, &leaving, &need)
}

async fn view(api: &Api) -> Result<FleetView, Problem> {
    let all = fileservers::all(&api.db).await?;
    let mut view = FleetView {
        fileservers: all.into_iter().map(|one| (one.id, one)).collect(),
        fill_limit: api.fill_limit,
        ..FleetView::default()
    };
    for flow in flows::all(&api.db).await? {
        *view.arriving.slot(flow.fileserver_id) = flow.arriving + flow.landed;
        *view.leaving.slot(flow.fileserver_id) = flow.leaving;
    }
    Ok(view)
}

/// Which fileservers are asked about.
#[derive(Debug, serde::Deserialize)]
pub struct Asked {
    /// Names, with commas between; none: all that are being emptied.
    #[serde(default)]
    fileservers: String,
}

/// `GET /api/v1/drains`
///
/// # Errors
/// When there is no such fileserver, or the engine fails.
pub async fn list(State(api): State<Api>, Query(asked): Query<Asked>) -> Answer<DrainList> {
    let mut wanted = Vec::new();
    for name in asked.fileservers.split(',').filter(|name| !name.is_empty()) {
        wanted.push(find(&api, name).await?.id);
    }
    let mut rows = Vec::new();
    for drain in drains::all(&api.db).await? {
        if wanted.is_empty() || wanted.contains(&drain.id) {
            rows.push(row(&api, drain).await?);
        }
    }
    Ok(Json(DrainList { drains: rows }))
}

async fn row(api: &Api, drain: Drain) -> Result<DrainRow, Problem> {
    let (left, bytes) = drains::held(&api.db, drain.id).await?;
    let mut blockers = Vec::new();
    let online = drain.health == Health::Online.as_str();
    if !online && drain.lost_at.is_none() {
        let why =
            "does not answer: nothing of it can be taken away, and nobody knows what runs there".to_owned();
        blockers.push(Blocker { subject: drain.name.clone(), why });
    }
    if left > 0 {
        let found = drains::blockers(&api.db, drain.id, LOOKED_AT).await?;
        blockers.extend(found.into_iter().filter_map(blocker).take(NAMED));
    }
    Ok(DrainRow {
        done: is_done(&drain, left),
        name: drain.name,
        since: drain.since,
        replicas: drain.replicas.max(left),
        left,
        bytes,
        processes: drain.processes,
        lost: drain.lost_at.is_some(),
        moved_at: drain.moved_at,
        blockers,
    })
}

/// Nothing is left, that was noted, and a later status says that nothing runs. Nobody asks who is lost.
fn is_done(drain: &Drain, left: i64) -> bool {
    let empty = left == 0 && drain.left == 0;
    let quiet = drain.health == Health::Online.as_str()
        && drain.processes == 0
        && drain.seen_at.is_some_and(|seen| seen > drain.moved_at);
    empty && (quiet || drain.lost_at.is_some())
}

/// What a person may do something about; limits and turns pass by themselves.
fn blocker(found: drains::Blocking) -> Option<Blocker> {
    let passing = |why: &Deferral| {
        matches!(
            why,
            Deferral::RepositoryBusy
                | Deferral::RepairAtLimit { .. }
                | Deferral::FileserverAtLimit { .. }
                | Deferral::RackAtLimit { .. }
                | Deferral::FleetAtLimit { .. }
                | Deferral::CoolingDown { .. }
                | Deferral::Ripening { .. }
        )
    };
    let why = match found.deferral {
        Some(why) if passing(&why) && found.state != "stuck" => return None,
        Some(why) => why.to_string(),
        None => format!("{} ({})", found.state, found.goal),
    };
    Some(Blocker { subject: format!("repository {}", found.repository), why })
}

/// `POST /api/v1/fileservers/{name}/lost`
///
/// # Errors
/// When there is no such fileserver, it answers, or the engine fails.
pub async fn lost(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<Confirmed>,
) -> Answer<Changed> {
    let one = find(&api, &name).await?;
    if one.health == Health::Online {
        return Err(Problem::unsafe_now(format!("fileserver {} answers: it is not lost", one.name))
            .hint("`trued fileserver evacuate` empties one that answers"));
    }
    if ask.dry_run {
        let (held, _) = drains::held(&api.db, one.id).await?;
        let message = format!(
            "{} would never be asked again; its {held} replicas would be forgotten as others suffice",
            one.name
        );
        return Ok(Json(Changed { message, changed: false }));
    }
    // Nothing is proven: it is gone, whether others have room or not.
    let done: Result<(), Infeasible> =
        drains::evacuate(&api.db, &[one.id], true, true, |_, _| Ok(())).await?;
    done.map_err(|why| Problem::failed(why.to_string()))?;
    let detail = serde_json::json!({ "was": one.intent });
    record(&api, "fileserver.lost", &one.name, ask.reason.as_deref(), detail).await?;
    (api.hooks.evaluate)(&["replicas-suffice".to_owned()]);
    let message = format!("fileserver {} is lost: its replicas are forgotten as others suffice", one.name);
    Ok(Json(Changed { message, changed: true }))
}

/// `POST /api/v1/fileservers/{name}/accept-empty`
///
/// # Errors
/// When there is no such fileserver, its root is not another one, or the engine fails.
pub async fn accept_empty(
    State(api): State<Api>,
    Path(name): Path<String>,
    Json(ask): Json<Confirmed>,
) -> Answer<Changed> {
    let one = find(&api, &name).await?;
    if one.empty_since.is_none() {
        return Err(Problem::refused(format!(
            "fileserver {}: its root is the one that held its replicas",
            one.name
        )));
    }
    if ask.dry_run {
        let (held, bytes) = drains::held(&api.db, one.id).await?;
        let message = format!("{held} replicas of {} would be made anew ({})", one.name, show_size(bytes));
        return Ok(Json(Changed { message, changed: false }));
    }
    let marked = drains::accept_empty(&api.db, one.id).await?;
    let detail = serde_json::json!({ "replicas": marked });
    record(&api, "fileserver.accept-empty", &one.name, ask.reason.as_deref(), detail).await?;
    (api.hooks.evaluate)(&["replicas-match".to_owned()]);
    let message =
        format!("fileserver {}: its new root is accepted, {marked} replicas are made anew", one.name);
    Ok(Json(Changed { message, changed: true }))
}

/// Retires one that holds nothing.
///
/// # Errors
/// When it holds a replica (`unsafe`), or the engine fails.
pub async fn may_retire(api: &Api, one: &Fileserver) -> Result<(), Problem> {
    let (held, _) = drains::held(&api.db, one.id).await?;
    if held == 0 {
        return Ok(());
    }
    Err(Problem::unsafe_now(format!("fileserver {} still holds {held} replicas", one.name))
        .hint(format!("trued fileserver evacuate {} --watch, then retire it", one.name)))
}

/// How far a drain is, in percent, and how long it takes at the rate so far; none: nothing went yet.
#[must_use]
pub fn progress(drain: &Drain, now: Millis) -> (i64, Option<Millis>) {
    let total = drain.replicas.max(drain.left).max(1);
    let gone = total - drain.left;
    let ahead = (gone > 0).then(|| drain.left.saturating_mul((now - drain.since).max(0)) / gone);
    (gone * 100 / total, ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain() -> Drain {
        Drain {
            id: FileserverId(1),
            name: "fs-1".into(),
            health: "online".into(),
            since: 1_000,
            replicas: 200,
            left: 0,
            moved_at: 5_000,
            lost_at: None,
            processes: 0,
            seen_at: Some(6_000),
            working: false,
        }
    }

    // Case 8: a drain is not complete while something runs there.
    #[test]
    fn a_drain_is_done_only_when_a_later_status_says_that_nothing_runs() {
        assert!(is_done(&drain(), 0));
        assert!(!is_done(&Drain { processes: 1, ..drain() }, 0));
        assert!(
            !is_done(&Drain { seen_at: Some(4_000), ..drain() }, 0),
            "that was before the last replica went"
        );
        assert!(!is_done(&Drain { health: "offline".into(), ..drain() }, 0), "nobody knows what runs there");
        assert!(!is_done(&drain(), 1) && !is_done(&Drain { left: 1, ..drain() }, 0));
        let lost = Drain { health: "offline".into(), lost_at: Some(1), ..drain() };
        assert!(is_done(&lost, 0));
    }

    #[test]
    fn progress_is_in_percent_with_the_time_that_is_left_at_the_rate_so_far() {
        let half = Drain { left: 100, ..drain() };
        assert_eq!(progress(&half, 61_000), (50, Some(60_000)));
        assert_eq!(progress(&Drain { left: 200, ..drain() }, 61_000), (0, None));
        assert_eq!(progress(&drain(), 61_000), (100, Some(0)));
    }

    #[test]
    fn what_passes_by_itself_is_no_blocker() {
        let found = |state: &str, deferral| drains::Blocking {
            repository: "big".into(),
            goal: "replicas-suffice".into(),
            state: state.into(),
            deferral,
        };
        assert!(blocker(found("ready", Some(Deferral::RepositoryBusy))).is_none());
        let full = Deferral::NotEnoughSpace { needed: 5, placeable: 1 };
        let named = blocker(found("waiting", Some(full))).unwrap();
        assert_eq!(
            (named.subject.as_str(), named.why.as_str()),
            ("repository big", "needs 5 B, 1 B can be placed")
        );
        assert_eq!(blocker(found("held", None)).unwrap().why, "held (replicas-suffice)");
    }
}
