//! Limits that a person set at run time: few rows, read in every dispatch round.
use super::transaction::{Tx, retrying, within};
use super::{Database, Doing, Result, on};
use crate::model::Millis;
use sqlx::types::Json;

/// One limit that was set.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SetLimit {
    /// `REPAIR.KEY`, or `fleet.in_flight`.
    pub name: String,
    /// What it is.
    pub value: i64,
    /// Who set it.
    pub who: String,
    /// When.
    pub at: Millis,
    /// Why.
    pub reason: Option<String>,
}

/// All that are set, by name.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<SetLimit>> {
    on!(db, p => sqlx::query_as(
        "/* limits::all */ SELECT name, value, who, at, reason FROM limits ORDER BY name",
    )
    .fetch_all(p).await)
    .doing("reading the limits")
}

/// Sets a limit, or gives it back to its file (no value); audited in the same transaction. `false`: it was so already.
///
/// # Errors
/// When the engine fails.
pub async fn set(db: &Database, name: &str, value: Option<i64>, who: &str, reason: &str) -> Result<bool> {
    retrying!(try_set(db, name, value, who, reason).await)
}

async fn try_set(db: &Database, name: &str, value: Option<i64>, who: &str, reason: &str) -> Result<bool> {
    let doing = "setting a limit";
    let mut tx = Tx::begin(db).await?;
    let old: Option<i64> = within!(&mut tx, c => sqlx::query_scalar(
        "/* limits::one */ SELECT value FROM limits WHERE name = $1",
    )
    .bind(name).fetch_optional(c).await)
    .doing(doing)?;
    if old == value {
        return Ok(false);
    }
    match value {
        Some(value) => within!(&mut tx, c => sqlx::query(
            "/* limits::set */ INSERT INTO limits (name, value, who, at, reason) SELECT $1, $2, $3, now, $4 FROM clock \
              WHERE true ON CONFLICT (name) DO UPDATE SET value = excluded.value, who = excluded.who, \
                at = excluded.at, reason = excluded.reason",
        )
        .bind(name).bind(value).bind(who).bind(reason).execute(c).await.map(drop)),
        None => within!(&mut tx, c => sqlx::query("/* limits::unset */ DELETE FROM limits WHERE name = $1")
            .bind(name).execute(c).await.map(drop)),
    }
    .doing(doing)?;
    let detail = serde_json::json!({ "old": old, "new": value });
    within!(&mut tx, c => sqlx::query(
        "/* limits::audit */ INSERT INTO audit (at, who, what, subject, reason, detail) \
         SELECT now, $1, 'limit.set', $2, $3, $4 FROM clock",
    )
    .bind(who).bind(name).bind(reason).bind(Json(&detail)).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await?;
    Ok(true)
}
