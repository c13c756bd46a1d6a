//! Brakes: which hold, whose findings they hold, and letting go.
//!
//! What a brake becomes is decided in `model::brake`; here it is remembered. A finding that
//! a brake holds names it, so that a release takes exactly its findings, in batches.
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, Doing, Result, on};
use crate::model::Millis;
use crate::model::brake::{self, Brake, Look};
use crate::model::finding::Deferral;
use crate::model::id::FindingId;
use sqlx::types::Json;

#[derive(sqlx::FromRow)]
struct BrakeRow {
    name: String,
    since: Millis,
    reason: String,
    clear: i64,
    clear_since: Option<Millis>,
    approved: Option<Millis>,
    holds: bool,
}

impl From<BrakeRow> for Brake {
    fn from(row: BrakeRow) -> Self {
        let BrakeRow { name, since, reason, clear, clear_since, approved, holds } = row;
        Self { name, since, reason, clear, clear_since, approved, holds }
    }
}

/// All brakes that hold, were approved, or have findings left to release; by name. Few rows.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<Brake>> {
    let rows: Vec<BrakeRow> = on!(db, p => sqlx::query_as(
        "/* brakes::all */ SELECT name, since, reason, clear, clear_since, approved, holds FROM brakes ORDER BY name",
    )
    .fetch_all(p).await)
    .doing("reading the brakes")?;
    Ok(rows.into_iter().map(Brake::from).collect())
}

/// Looks at the causes of brakes and remembers what became of each.
///
/// # Errors
/// When the engine fails.
pub async fn look(db: &Database, looks: &[(String, Look)]) -> Result<()> {
    retrying!(try_look(db, looks).await)
}

async fn try_look(db: &Database, looks: &[(String, Look)]) -> Result<()> {
    let mut tx = Tx::begin(db).await?;
    for (name, look) in looks {
        looked(&mut tx, name, look).await?;
    }
    tx.commit().await
}

/// Remembers one look, and tells what the brake is now.
pub(super) async fn looked(tx: &mut Tx, name: &str, look: &Look) -> Result<Option<Brake>> {
    let text = tx.engine().text(
        "/* brakes::find, sqlite */ SELECT name, since, reason, clear, clear_since, approved, holds \
           FROM brakes WHERE name = $1",
        "/* brakes::find, postgres */ SELECT name, since, reason, clear, clear_since, approved, holds \
           FROM brakes WHERE name = $1 FOR UPDATE",
    );
    let row: Option<BrakeRow> =
        within!(&mut *tx, c => sqlx::query_as(text).bind(name).fetch_optional(c).await)
            .doing("reading a brake")?;
    let before = row.map(Brake::from);
    let after = brake::after(name, before.clone(), look);
    if let Some(brake) = after.as_ref().filter(|_| after != before) {
        write(tx, brake).await?;
    }
    Ok(after)
}

async fn write(tx: &mut Tx, brake: &Brake) -> Result<()> {
    within!(tx, c => sqlx::query(
        "/* brakes::write */ INSERT INTO brakes (name, since, reason, clear, clear_since, approved, holds) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (name) DO UPDATE SET since = excluded.since, reason = excluded.reason, clear = excluded.clear, \
            clear_since = excluded.clear_since, approved = excluded.approved, holds = excluded.holds",
    )
    .bind(&brake.name).bind(brake.since).bind(&brake.reason).bind(brake.clear).bind(brake.clear_since)
    .bind(brake.approved).bind(brake.holds)
    .execute(c).await.map(drop))
    .doing("writing a brake")
}

/// Releases brakes that hold, by a person's word, until their causes are gone; audited in the same transaction.
/// Returns the names of those that did hold.
///
/// # Errors
/// When the engine fails.
pub async fn approve(db: &Database, names: &[String], who: &str, reason: &str) -> Result<Vec<String>> {
    retrying!(try_approve(db, names, who, reason).await)
}

async fn try_approve(db: &Database, names: &[String], who: &str, reason: &str) -> Result<Vec<String>> {
    let doing = "approving a brake";
    let mut tx = Tx::begin(db).await?;
    let mut released = Vec::new();
    for name in names {
        let row: Option<(Millis, String)> = within!(&mut tx, c => sqlx::query_as(
            "/* brakes::approve */ UPDATE brakes SET holds = FALSE, approved = (SELECT now FROM clock) \
              WHERE name = $1 AND holds RETURNING since, reason",
        )
        .bind(name).fetch_optional(c).await)
        .doing(doing)?;
        let Some((since, saw)) = row else { continue };
        let detail = serde_json::json!({ "since": since, "saw": saw });
        within!(&mut tx, c => sqlx::query(
            "/* brakes::audit */ INSERT INTO audit (at, who, what, subject, reason, detail) \
             SELECT now, $1, 'brake.approve', $2, $3, $4 FROM clock",
        )
        .bind(who).bind(name).bind(reason).bind(Json(&detail)).execute(c).await.map(drop))
        .doing(doing)?;
        released.push(name.clone());
    }
    tx.commit().await?;
    Ok(released)
}

/// Holds ready findings by a brake, if it still holds. Returns how many.
///
/// # Errors
/// When the engine fails.
pub async fn hold(db: &Database, name: &str, findings: &[FindingId]) -> Result<u64> {
    if findings.is_empty() {
        return Ok(0);
    }
    let ids = Ids(findings.iter().map(|id| id.0).collect());
    retrying!(try_hold(db, name, &ids).await)
}

async fn try_hold(db: &Database, name: &str, ids: &Ids) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* brakes::hold, sqlite */ UPDATE findings SET state = 'held', held_by = $2, deferral = $3 \
          WHERE id IN (SELECT value FROM json_each($1)) AND state = 'ready' \
            AND EXISTS (SELECT 1 FROM brakes b WHERE b.name = $2 AND b.holds)",
        "/* brakes::hold, postgres */ UPDATE findings SET state = 'held', held_by = $2, deferral = $3 \
          WHERE id = ANY($1) AND state = 'ready' \
            AND EXISTS (SELECT 1 FROM brakes b WHERE b.name = $2 AND b.holds)",
    );
    let held = within!(&mut tx, c => sqlx::query(text).bind(ids).bind(name).bind(Json(braked(name)))
        .execute(c).await.map(|done| done.rows_affected()))
    .doing("holding findings")?;
    tx.commit().await?;
    Ok(held)
}

/// The deferral of what a brake holds.
pub(super) fn braked(name: &str) -> Deferral {
    Deferral::Braked { name: name.to_owned() }
}

/// Gives findings of brakes that no longer hold back to waiting, at most `limit` of each, and forgets brakes of
/// which nothing is left. Returns how many findings were released.
///
/// # Errors
/// When the engine fails.
pub async fn release(db: &Database, limit: i64) -> Result<u64> {
    let mut released = 0;
    for brake in all(db).await?.into_iter().filter(|brake| !brake.holds) {
        // An approved brake may stand for long with nothing to release: looking costs no write lock.
        let any: bool = on!(db, p => sqlx::query_scalar(
            "/* brakes::anything_held */ SELECT EXISTS (SELECT 1 FROM findings WHERE state = 'held' AND held_by = $1)",
        )
        .bind(&brake.name).fetch_one(p).await)
        .doing("looking for findings to release")?;
        if !any && !brake.is_over() {
            continue;
        }
        let many = retrying!(try_release(db, &brake, limit).await)?;
        released += many;
    }
    Ok(released)
}

async fn try_release(db: &Database, brake: &Brake, limit: i64) -> Result<u64> {
    let doing = "releasing what a brake held";
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* brakes::release, sqlite */ UPDATE findings SET state = 'waiting', held_by = NULL, deferral = NULL \
          WHERE id IN (SELECT id FROM findings WHERE state = 'held' AND held_by = $1 ORDER BY id LIMIT $2)",
        "/* brakes::release, postgres */ UPDATE findings SET state = 'waiting', held_by = NULL, deferral = NULL \
          WHERE id = ANY (ARRAY(SELECT id FROM findings WHERE state = 'held' AND held_by = $1 \
                          ORDER BY id LIMIT $2 FOR UPDATE))",
    );
    let released = within!(&mut tx, c => sqlx::query(text).bind(&brake.name).bind(limit)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    if released == 0 && brake.is_over() {
        within!(&mut tx, c => sqlx::query(
            "/* brakes::forget */ DELETE FROM brakes WHERE name = $1 AND NOT holds AND approved IS NULL",
        )
        .bind(&brake.name).execute(c).await.map(drop))
        .doing(doing)?;
    }
    tx.commit().await?;
    Ok(released)
}

/// How many findings each brake holds; by index, in the order of their names.
///
/// # Errors
/// When the engine fails.
pub async fn held(db: &Database) -> Result<Vec<(String, i64)>> {
    on!(db, p => sqlx::query_as(
        "/* brakes::held */ SELECT held_by, count(*) FROM findings \
          WHERE state = 'held' AND held_by IS NOT NULL GROUP BY held_by ORDER BY held_by",
    )
    .fetch_all(p).await)
    .doing("counting what brakes hold")
}
