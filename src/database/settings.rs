//! What people set over goals' files at run time. What a value means is not known here.
use super::{Database, Doing, Result, on, on_writer};
use crate::model::Millis;

/// One value over a goal's file.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct GoalSetting {
    /// The goal.
    pub goal: String,
    /// `mode`, `schedule`, `brake` or `param.<name>`.
    pub name: String,
    /// As it would stand in the file.
    pub value: String,
    /// Who set it.
    pub who: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Millis,
}

/// All of them, by goal and name: a few.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<GoalSetting>> {
    on!(db, p => sqlx::query_as(
        "/* settings::all */ SELECT goal, name, value, who, reason, at FROM goal_settings \
          ORDER BY goal, name LIMIT 10000",
    )
    .fetch_all(p).await)
    .doing("reading what is set over goals")
}

/// Sets a value.
///
/// # Errors
/// When the engine fails.
pub async fn put(db: &Database, goal: &str, name: &str, value: &str, who: &str, reason: &str) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* settings::put */ INSERT INTO goal_settings (goal, name, value, who, reason, at) \
         SELECT $1, $2, $3, $4, $5, now FROM clock WHERE true ON CONFLICT (goal, name) DO UPDATE \
            SET value = excluded.value, who = excluded.who, reason = excluded.reason, at = excluded.at",
    )
    .bind(goal).bind(name).bind(value).bind(who).bind(reason).execute(p).await.map(drop))
    .doing("setting a value over a goal")
}

/// Takes a value back; whether there was one.
///
/// # Errors
/// When the engine fails.
pub async fn remove(db: &Database, goal: &str, name: &str) -> Result<bool> {
    let gone = on_writer!(db, p => sqlx::query(
        "/* settings::remove */ DELETE FROM goal_settings WHERE goal = $1 AND name = $2",
    )
    .bind(goal).bind(name).execute(p).await.map(|done| done.rows_affected()))
    .doing("taking back a value that was set over a goal")?;
    Ok(gone > 0)
}
