//! The dispatch loop: about once a second, the most urgent findings that limits allow become
//! attempts.
//!
//! A round reads the head of each lane, never the backlog, so it costs the same with ten
//! findings as with 350,000. It decides by `finding::admit`, which is pure, writes what was
//! decided, and reminds the queue. Limits are derived from live attempts, read in the round.

use super::braking;
use super::braking::Braking;
use super::metrics::{add, set};
use super::paused::Paused;
use super::right::Right;
use super::{Shared, millis, pressure, undoing};
use crate::database::{self, Database, attempts, fileservers, findings, flows, repositories};
use crate::finding::{Admission, Facts, TIRED_AFTER, admit};
use crate::model::Millis;
use crate::model::attempt::{Attempt, Plan};
use crate::model::finding::{Deferral, Finding, Lane};
use crate::model::fleet::Fileserver;
use crate::model::id::{FileserverId, FindingId, RepositoryId};
use crate::model::per_id::PerId;
use crate::repair::limits::Limits;
use crate::repair::view::{FleetView, RepositoryView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// A controller that dies leaves dispatching to another after this long.
const LEASE: Duration = Duration::from_secs(5);
/// Rounds that are only wanted are this far apart: each attempt that ends wants one.
const GAP: Duration = Duration::from_millis(200);
/// The longest rest between two rounds while the database is slow.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// Findings that become ready at a time, and how long a round goes on with it: the rest comes next round.
const DUE: i64 = 250;
const DUE_FOR: Duration = Duration::from_millis(15);
/// Attempts taken from lost workers in one round, and as many cancelled: the rest comes next round.
const LOST: i64 = 1_000;
/// Findings that one round looks at, over all lanes. Each costs its repository and its replicas read, and often a
/// deferral written: with as many again, half of a round's time went to those that the next round looks at anyway.
const LOOKED_AT: usize = 1_200;
/// Of one lane at most and at least this many; one in eight is the oldest, so that nothing starves.
const HEAD: std::ops::RangeInclusive<usize> = 8..=256;
/// Of the other findings about subjects that were tried in vain.
const RIVALS: i64 = 1_000;
/// Repositories read by one statement.
const IDS: usize = 5_000;

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Findings that were looked at.
    pub(super) looked_at: usize,
    /// Attempts made.
    pub(super) admitted: usize,
    /// Findings whose reason to wait changed.
    pub(super) deferred: u64,
}

/// Dispatches until stopped.
pub(super) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut right = Right::new(&shared.database, "dispatch", &shared.holder, LEASE);
    let mut rest = Duration::ZERO;
    let wanted = async || {
        tokio::time::sleep(GAP.min(shared.settings.dispatch)).await;
        shared.nudge.dispatch_wanted().await;
    };
    let (mut braking, mut paused) = (Braking::default(), Paused::default());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(shared.chance.around(shared.settings.dispatch) + rest) => {}
            () = wanted(), if rest.is_zero() => {}
        }
        if !right.held().await {
            continue;
        }
        let began = Instant::now();
        let span = tracing::debug_span!("dispatch.round");
        let round = tokio::select! {
            () = stop.cancelled() => break,
            round = round(&shared, &mut braking, &mut paused).instrument(span) => round,
        };
        add(&shared.metrics.rounds, 1);
        set(&shared.metrics.round_ms, u64::try_from(millis(began.elapsed())).unwrap_or(0));
        rest = pressure::rest(began.elapsed(), shared.pace(), LONGEST_REST);
        match round {
            Ok(round) => tracing::debug!(?round, "dispatched"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a dispatch round failed");
            }
        }
    }
    right.release().await;
}

/// One round.
pub(super) async fn round(
    shared: &Shared,
    braking: &mut Braking,
    paused: &mut Paused,
) -> database::Result<Round> {
    let db = &shared.database;
    tidy(shared).await?;
    let fileservers = fileservers::all(db).await?;
    let brakes = braking.look(shared, &fileservers).await?;
    promote(db).await?;
    paused.look(db).await?;
    let running = attempts::live(db).await?;
    let set: Vec<(String, i64)> =
        database::limits::all(db).await?.into_iter().map(|row| (row.name, row.value)).collect();
    let limits = Limits { repairs: &shared.repairs, in_flight: shared.settings.in_flight, set: &set };
    // As many attempts in the whole fleet as the database's pace allows.
    let fleet_in_flight = pressure::share(limits.fleet_in_flight(), shared.pace());
    let found = paused.hold(db, heads(shared, running.len(), fleet_in_flight).await?).await?;
    if found.is_empty() {
        return Ok(Round::default());
    }
    let looked_at = found.len();
    let now = db.now().await?;
    let fleet = view(shared, fileservers, &found, &running);
    let (fleet, started) = tokio::try_join!(fleet, attempts::started_since(db, now - 60_000))?;
    let (ready, held) = braking::hold(shared, found, &fleet, &brakes).await?;
    if ready.is_empty() {
        return Ok(Round { looked_at, admitted: 0, deferred: held });
    }
    let started =
        started.into_iter().map(|(repair, n)| (repair, u32::try_from(n).unwrap_or(u32::MAX))).collect();
    let repairs = limits.repairs();
    let facts = Facts {
        findings: &ready,
        fleet: &fleet,
        running: &running,
        repairs: &repairs,
        started: &started,
        fleet_in_flight,
        now,
        seed: shared.chance.next(),
    };
    let Decided { admitted, deferred, yielding } = split(admit(&facts), &ready);
    for repository in yielding {
        let cancelled = attempts::yield_repository(db, repository, &shared.repairs.yielding()).await?;
        add(&shared.metrics.cancelled, u64::from(cancelled));
    }
    let admitted = undoing::without(shared, admitted, now).await?;
    let made = if admitted.is_empty() { Vec::new() } else { attempts::admit(db, &admitted).await? };
    let deferred = if deferred.is_empty() { 0 } else { findings::defer(db, &deferred).await? };
    if !made.is_empty() {
        add(&shared.metrics.admitted, made.len() as u64);
        shared.reminders.remind(&made);
    }
    Ok(Round { looked_at, admitted: made.len(), deferred: deferred + held })
}

/// Whatever is due becomes ready, for a bounded time: fifty thousand that are due at the same second do not hold up
/// the most urgent of them.
async fn promote(db: &Database) -> database::Result<()> {
    let began = Instant::now();
    while findings::promote_due(db, DUE).await? >= DUE.unsigned_abs() && began.elapsed() < DUE_FOR {}
    Ok(())
}

/// Attempts whose worker is gone, and those that nobody needs any more.
async fn tidy(shared: &Shared) -> database::Result<()> {
    let lost = attempts::take_lost(&shared.database, LOST).await?;
    add(&shared.metrics.lost, lost.len() as u64);
    for attempt in &lost {
        tracing::warn!(
            target: "trued::event",
            kind = "attempt.lost", attempt = %attempt.id, goal = attempt.goal, subject = %attempt.subject,
            worker = attempt.worker,
            "{} of {} was lost: its worker stopped renewing its lease", attempt.repair, attempt.subject,
        );
    }
    let cancelled = attempts::cancel_obsolete(&shared.database, LOST).await?;
    add(&shared.metrics.cancelled, cancelled);
    Ok(())
}

/// The heads of all lanes. When as many attempts are live as may be, only last copies are looked at.
async fn heads(shared: &Shared, live: usize, most: u32) -> database::Result<Vec<Finding>> {
    let mut lanes = findings::ready_lanes(&shared.database).await?;
    if live >= most as usize {
        lanes.retain(|lane| *lane == Lane::Last);
    }
    // The lane of last copies first, the others from a new place each round.
    lanes.sort_unstable();
    let fixed = usize::from(lanes.first() == Some(&Lane::Last));
    if let Some(others) = lanes.get_mut(fixed..).filter(|others| !others.is_empty()) {
        let by = usize::try_from(shared.chance.next() % others.len() as u64).unwrap_or(0);
        others.rotate_left(by);
    }
    let (by_priority, oldest) = head_sizes(lanes.len());
    // With very many lanes each round looks at some of them; where it begins changes from round to round.
    lanes.truncate(LOOKED_AT / *HEAD.start());
    let ready = findings::heads(&shared.database, &lanes, by_priority, oldest).await?;
    with_rivals(shared, ready).await
}

/// And the other findings about subjects that were tried in vain: they go first, wherever in their lane they stand.
async fn with_rivals(shared: &Shared, mut ready: Vec<Finding>) -> database::Result<Vec<Finding>> {
    let tired = ready.iter().filter(|one| one.ineffective >= TIRED_AFTER);
    let tired: BTreeSet<RepositoryId> = tired.filter_map(|one| one.subject.repository()).collect();
    if tired.is_empty() {
        return Ok(ready);
    }
    let known: BTreeSet<FindingId> = ready.iter().map(|one| one.id).collect();
    let tired: Vec<RepositoryId> = tired.into_iter().collect();
    let others = findings::ready_about(&shared.database, &tired, RIVALS).await?;
    ready.extend(others.into_iter().filter(|one| !known.contains(&one.id)));
    Ok(ready)
}

/// How many findings of each lane are looked at: by priority, and the oldest.
fn head_sizes(lanes: usize) -> (i64, i64) {
    let each = (LOOKED_AT / lanes.max(1)).clamp(*HEAD.start(), *HEAD.end());
    let oldest = each / 8;
    (i64::try_from(each - oldest).unwrap_or(8), i64::try_from(oldest).unwrap_or(1))
}

/// The fleet, and the repositories that findings and live attempts are about. What does not need each other is read
/// side by side.
async fn view(
    shared: &Shared,
    fileservers: Vec<Fileserver>,
    ready: &[Finding],
    running: &[Attempt],
) -> database::Result<FleetView> {
    let db = &shared.database;
    let ids: BTreeSet<RepositoryId> = ready
        .iter()
        .filter_map(|finding| finding.subject.repository())
        .chain(running.iter().filter_map(|attempt| attempt.plan.repository_id))
        .collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let asks = ready.iter().any(|finding| places(shared, finding));
    let flows = async { if asks { flows::all(db).await } else { Ok(Vec::new()) } };
    let (repositories, flows) = tokio::try_join!(known(db, &ids), flows)?;
    let mut view = FleetView {
        fileservers: fileservers.into_iter().map(|one| (one.id, one)).collect(),
        repositories,
        arriving: arriving(running),
        fill_limit: shared.settings.fill_limit,
        ..FleetView::default()
    };
    for flow in flows {
        // What live attempts bring is counted already, resyncs included.
        *view.arriving.slot(flow.fileserver_id) += flow.landed;
        *view.leaving.slot(flow.fileserver_id) = flow.leaving;
    }
    Ok(view)
}

/// Repositories with their replicas.
async fn known(
    db: &Database,
    ids: &[RepositoryId],
) -> database::Result<BTreeMap<RepositoryId, RepositoryView>> {
    let mut known: BTreeMap<RepositoryId, RepositoryView> = BTreeMap::new();
    for some in ids.chunks(IDS) {
        let (rows, replicas) =
            tokio::try_join!(repositories::by_ids(db, some), repositories::replicas_of(db, some))?;
        known.extend(
            rows.into_iter().map(|row| (row.id, RepositoryView { repository: row, replicas: vec![] })),
        );
        for replica in replicas {
            if let Some(one) = known.get_mut(&replica.repository_id) {
                one.replicas.push(replica);
            }
        }
    }
    Ok(known)
}

/// Whether a finding's repair chooses a place: for the others nobody asks what is under way.
fn places(shared: &Shared, finding: &Finding) -> bool {
    let repair = finding.repair.as_deref().and_then(|name| shared.repairs.get(name));
    repair.is_some_and(|repair| repair.step.begins_copy())
}

/// Bytes that live attempts bring to each fileserver.
fn arriving(running: &[Attempt]) -> PerId<FileserverId, i64> {
    let mut arriving = PerId::default();
    for plan in running.iter().map(|attempt| &attempt.plan).filter(|plan| plan.step.brings_bytes()) {
        if let Some(here) = plan.destination_id {
            *arriving.slot(here) += plan.bytes.max(0);
        }
    }
    arriving
}

/// What is to be written of a round's decisions.
#[derive(Default)]
struct Decided {
    admitted: Vec<(Finding, Plan)>,
    deferred: Vec<(FindingId, Deferral, Option<Millis>)>,
    /// Repositories whose attempt only reads, and is in the way of a more urgent finding.
    yielding: Vec<RepositoryId>,
}

fn split(decisions: Vec<Admission>, ready: &[Finding]) -> Decided {
    let mut decided = Decided::default();
    for decision in decisions {
        let Some(finding) = ready.get(decision.finding()) else { continue };
        match decision {
            Admission::Admit { plan, .. } => decided.admitted.push((finding.clone(), plan)),
            Admission::Defer { deferral, until, .. } => decided.deferred.push((finding.id, deferral, until)),
            Admission::Yield { .. } => decided.yielding.extend(finding.subject.repository()),
        }
    }
    decided
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_bounded_however_many_lanes_there_are() {
        for lanes in [0, 1, 4, 30, 300, 5_000] {
            let (by_priority, oldest) = head_sizes(lanes);
            assert!(oldest >= 1 && by_priority >= 7 * oldest, "one slot in eight goes to the oldest");
            let lanes_read = lanes.min(LOOKED_AT / *HEAD.start());
            assert!(lanes_read * usize::try_from(by_priority + oldest).unwrap() <= LOOKED_AT + 256);
        }
    }
}
