//! Pauses: what a person holds until a moment, and why. One that is over is as good as none, and is cleared by the next.
use super::transaction::{Tx, within};
use super::{Database, Doing, Result, on, on_writer};
use crate::model::Millis;
use serde::{Deserialize, Serialize};

/// A pause that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, sqlx::FromRow)]
pub struct Pause {
    /// `goal:<name>`.
    pub name: String,
    /// Who paused it.
    pub who: String,
    /// Why.
    pub reason: String,
    /// Until when; none: until a person ends it.
    pub until: Option<Millis>,
    /// Since when.
    pub at: Millis,
}

impl Pause {
    /// The goal that it is about, if it is about one.
    #[must_use]
    pub fn goal(&self) -> Option<&str> {
        self.name.strip_prefix("goal:")
    }
}

/// The name of a goal's pause.
#[must_use]
pub fn of_goal(goal: &str) -> String {
    format!("goal:{goal}")
}

/// All that hold now, by name.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<Pause>> {
    on!(db, p => sqlx::query_as(
        "/* pauses::all */ SELECT name, who, reason, until, at FROM pauses \
          WHERE until IS NULL OR until > (SELECT now FROM clock) ORDER BY name LIMIT 10000",
    )
    .fetch_all(p).await)
    .doing("reading what is paused")
}

/// Pauses, or changes a pause.
///
/// # Errors
/// When the engine fails.
pub async fn put(db: &Database, name: &str, who: &str, reason: &str, until: Option<Millis>) -> Result<()> {
    let doing = "pausing";
    let mut tx = Tx::begin(db).await?;
    within!(&mut tx, c => sqlx::query(
        "/* pauses::clear */ DELETE FROM pauses WHERE until <= (SELECT now FROM clock)",
    )
    .execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* pauses::put */ INSERT INTO pauses (name, who, reason, until, at) \
         SELECT $1, $2, $3, CAST($4 AS BIGINT), now FROM clock WHERE true ON CONFLICT (name) DO UPDATE \
            SET who = excluded.who, reason = excluded.reason, until = excluded.until, at = excluded.at",
    )
    .bind(name).bind(who).bind(reason).bind(until).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await
}

/// Ends a pause; whether there was one.
///
/// # Errors
/// When the engine fails.
pub async fn end(db: &Database, name: &str) -> Result<bool> {
    let ended = on_writer!(db, p => sqlx::query(
        "/* pauses::end */ DELETE FROM pauses WHERE name = $1",
    )
    .bind(name).execute(p).await.map(|done| done.rows_affected()))
    .doing("ending a pause")?;
    Ok(ended > 0)
}
