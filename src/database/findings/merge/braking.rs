//! A goal's own brake, and the one on removals: looked at in the merge itself, so that
//! nothing of a flood can start before it was looked at.
use super::{BrakeAt, MergeInto};
use crate::database::transaction::{Tx, within};
use crate::database::values::Ids;
use crate::database::{Doing, Result, brakes};
use crate::model::Millis;
use crate::model::brake::{self, Look};
use crate::model::goal::SubjectKind;
use sqlx::types::Json;

/// Looks at both; the name of the one that holds.
pub(super) async fn look(
    tx: &mut Tx,
    into: &MergeInto,
    returned: i64,
    now: Millis,
) -> Result<Option<String>> {
    // Last copies pass, and what is only listed has nothing to hold.
    let bound = if into.last_copies || into.repair.is_none() { None } else { into.brake };
    let seen = cause(tx, into, bound, returned).await?;
    let mut holding = look_at(tx, &brake::of_goal(&into.goal), seen, bound.is_some(), now).await?;
    let name = brake::of_removals(&into.goal);
    let seen = removals(tx, into, returned).await?;
    let removing = look_at(tx, &name, seen, into.removes, now).await?;
    holding = holding.or(removing);
    if let Some(name) = &holding {
        hold(tx, into, name).await?;
    }
    Ok(holding)
}

async fn look_at(
    tx: &mut Tx,
    name: &str,
    cause: Option<String>,
    there: bool,
    now: Millis,
) -> Result<Option<String>> {
    // A brake that its goal no longer has lets go at once.
    let looks = if there { brake::CLEAR_AFTER } else { 1 };
    let brake = brakes::looked(tx, name, &Look { cause, at: now, looks, patience: 0 }).await?;
    Ok(brake.filter(|brake| brake.holds).map(|brake| brake.name))
}

/// What a goal's own brake sees: more unexplained findings than its bound.
async fn cause(
    tx: &mut Tx,
    into: &MergeInto,
    bound: Option<BrakeAt>,
    returned: i64,
) -> Result<Option<String>> {
    let Some(BrakeAt { bound, population }) = bound else { return Ok(None) };
    let population = match population {
        Some(population) => population,
        None => counter(tx, into.subject).await?,
    };
    let most = bound.most(population);
    if returned <= most {
        return Ok(None);
    }
    let explaining = explaining(tx).await?;
    let unexplained = unexplained(tx, &explaining).await?;
    Ok((unexplained > most)
        .then(|| format!("{unexplained} unexplained findings of {population} looked at; {most} may start")))
}

async fn counter(tx: &mut Tx, kind: SubjectKind) -> Result<i64> {
    let name = match kind {
        SubjectKind::Repository => "repositories",
        SubjectKind::Replica => "replicas",
        SubjectKind::Fileserver => "fileservers",
        SubjectKind::Key => return Ok(0),
    };
    count_of(tx, name).await
}

async fn count_of(tx: &mut Tx, name: &str) -> Result<i64> {
    within!(tx, c => sqlx::query_scalar(
        "/* findings::population */ SELECT COALESCE((SELECT value FROM counters WHERE name = $1), 0)",
    )
    .bind(name).fetch_one(c).await)
    .doing("reading how much there is")
}

/// Fileservers that explain findings: people want their copies elsewhere, or they are past their grace, unless so
/// many are that this itself is doubtful.
async fn explaining(tx: &mut Tx) -> Result<Ids> {
    let ids = within!(tx, c => sqlx::query_scalar(
        "/* findings::explaining */ SELECT id FROM fileservers WHERE intent IN ('evacuate', 'retire') \
            OR (NOT counts AND health = 'offline' \
                AND NOT EXISTS (SELECT 1 FROM brakes b WHERE b.name = 'offline' AND b.holds))",
    )
    .fetch_all(c).await);
    Ok(Ids(ids.doing("reading which fileservers explain findings")?))
}

async fn unexplained(tx: &mut Tx, explaining: &Ids) -> Result<i64> {
    let text = tx.engine().text(
        "/* findings::unexplained, sqlite */ SELECT count(*) FROM incoming i \
          WHERE NOT COALESCE(i.fileserver_id IN (SELECT value FROM json_each($1)), FALSE) \
            AND NOT (i.fileserver_id IS NULL AND EXISTS (SELECT 1 FROM replicas r \
                  WHERE r.repository_id = i.repository_id AND r.fileserver_id IN (SELECT value FROM json_each($1))))",
        "/* findings::unexplained, postgres */ SELECT count(*) FROM incoming i \
          WHERE NOT COALESCE(i.fileserver_id = ANY($1), FALSE) \
            AND NOT (i.fileserver_id IS NULL AND EXISTS (SELECT 1 FROM replicas r \
                  WHERE r.repository_id = i.repository_id AND r.fileserver_id = ANY($1)))",
    );
    within!(tx, c => sqlx::query_scalar(text).bind(explaining).persistent(false).fetch_one(c).await)
        .doing("counting unexplained findings")
}

/// What the brake on removals sees: more of them than no evacuation or removal of a repository explains. A copy that is
/// leaving already was replaced by a repair of ours, one after the other, each under its own limits.
async fn removals(tx: &mut Tx, into: &MergeInto, returned: i64) -> Result<Option<String>> {
    if !into.removes {
        return Ok(None);
    }
    let most = brake::most_removals(count_of(tx, "replicas").await?);
    if returned <= most {
        return Ok(None);
    }
    let unexplained: i64 = within!(tx, c => sqlx::query_scalar(
        "/* findings::unexplained_removals */ SELECT count(*) FROM incoming i \
          WHERE NOT EXISTS (SELECT 1 FROM fileservers f WHERE f.id = i.fileserver_id \
                               AND f.intent IN ('evacuate', 'retire')) \
            AND NOT EXISTS (SELECT 1 FROM repositories p WHERE p.id = i.repository_id AND p.removed_at IS NOT NULL) \
            AND NOT EXISTS (SELECT 1 FROM replicas r WHERE r.repository_id = i.repository_id \
                               AND r.fileserver_id = i.fileserver_id AND r.state IN ('leaving', 'removing'))",
    )
    .persistent(false).fetch_one(c).await)
    .doing("counting unexplained removals")?;
    Ok((unexplained > most).then(|| format!("{unexplained} unexplained removals; {most} may start")))
}

/// Holds what could start; what is running goes on.
async fn hold(tx: &mut Tx, into: &MergeInto, name: &str) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* findings::hold_goal */ UPDATE findings SET state = 'held', held_by = $2, deferral = $3 \
          WHERE goal = $1 AND lane >= 0 AND repair IS NOT NULL \
            AND (state = 'ready' OR (state = 'waiting' AND repaired_at IS NULL AND ripe_at IS NULL))",
    )
    .bind(&into.goal).bind(name).bind(Json(brakes::braked(name))).execute(c).await.map(drop))
    .doing("holding a goal's findings")
}
