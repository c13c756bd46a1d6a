//! The table `suspect`, kept equal to the view `suspects` by differences.
//!
//! Goals join the table and not the view, so that the planner knows its size. Only what
//! differs is written: in a quiet fleet a refresh writes nothing. Beside what the view
//! gives it holds the audit's slice, and what the audit found that the view does not give.
use super::transaction::{Tx, retrying, within};
use super::{Database, Doing, Engine, Pools, Result};

pub mod audit;

/// Changed rows from which new statistics are worth their price.
const MUCH: u64 = 1_000;

/// What a refresh did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refreshed {
    /// Rows put in.
    pub added: u64,
    /// Rows taken out.
    pub removed: u64,
}

/// Makes the table equal to the view and the audit's slice, in one transaction; analyzes it when it changed much.
///
/// # Errors
/// When the engine fails; then goals over suspects are unknown.
pub async fn refresh(db: &Database) -> Result<Refreshed> {
    let refreshed = retrying!(change(db).await)?;
    if refreshed.added + refreshed.removed >= MUCH {
        analyze(db).await?;
    }
    Ok(refreshed)
}

async fn change(db: &Database) -> Result<Refreshed> {
    let doing = "refreshing the suspects";
    let mut tx = Tx::begin(db).await?;
    if tx.engine() == Engine::Postgres {
        // Two refreshes at once would put in the same rows. Readers do not wait for this.
        within!(&mut tx, c => sqlx::query("/* suspects::alone, postgres */ LOCK TABLE suspect IN SHARE ROW EXCLUSIVE MODE")
            .execute(c).await.map(drop))
        .doing(doing)?;
    }
    let added = within!(&mut tx, c => sqlx::query(
        "/* suspects::add */ INSERT INTO suspect (repository_id) \
         SELECT repository_id FROM suspects EXCEPT SELECT repository_id FROM suspect",
    )
    .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    let sliced = within!(&mut tx, c => sqlx::query(
        "/* suspects::add_slice */ INSERT INTO suspect (repository_id) SELECT p.id FROM repositories p \
          WHERE p.id > (SELECT value FROM counters WHERE name = 'audit_after') \
            AND p.id <= (SELECT value FROM counters WHERE name = 'audit_until') \
            AND NOT EXISTS (SELECT 1 FROM suspect s WHERE s.repository_id = p.id)",
    )
    .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    let removed = within!(&mut tx, c => sqlx::query(
        "/* suspects::remove */ DELETE FROM suspect WHERE repository_id IN \
         (SELECT repository_id FROM suspect \
           WHERE NOT (repository_id > (SELECT value FROM counters WHERE name = 'audit_after') \
                  AND repository_id <= (SELECT value FROM counters WHERE name = 'audit_until')) \
             AND NOT (drift AND EXISTS (SELECT 1 FROM findings f WHERE f.repository_id = suspect.repository_id)) \
          EXCEPT SELECT repository_id FROM suspects)",
    )
    .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    tx.commit().await?;
    Ok(Refreshed { added: added + sliced, removed })
}

/// `SQLite` plans these joins by primary key whatever the size; `PostgreSQL` must know it.
async fn analyze(db: &Database) -> Result<()> {
    if let Pools::Postgres(server) = db.pools() {
        sqlx::query("/* suspects::analyze, postgres */ ANALYZE suspect, fileservers")
            .execute(&server.pool())
            .await
            .doing("analyzing the suspects")?;
    }
    Ok(())
}
