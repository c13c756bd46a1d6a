//! Whether fileservers may be stopped, and the right to: a yes is kept, so that others see it.
//!
//! Asking and answering is one transaction that locks the fileservers. A hundred people who ask at
//! once about fileservers that share repositories get as many yeses as leave each repository a quorum.
use super::drains::lock;
use super::transaction::{Tx, within};
use super::values::Ids;
use super::{Database, Doing, Result, on_writer};
use crate::model::Millis;
use crate::model::id::FileserverId;

/// What would be, were they stopped now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Repositories that have a replica there.
    pub repositories: i64,
    /// Of these, those that would have fewer good replicas than a push needs.
    pub below: i64,
    /// Those that would, if any one more of theirs stopped.
    pub one_more: i64,
    /// Fileservers that others were told may stop.
    pub reserved: Vec<FileserverId>,
    /// Until when the right is kept; none: it was not given.
    pub until: Option<Millis>,
}

/// Answers, and keeps the right for `keep` milliseconds where the answer is yes; `keep` 0: only answers.
///
/// # Errors
/// When the engine fails.
pub async fn ask(
    db: &Database,
    ids: &[FileserverId],
    keep: Millis,
    (who, reason): (&str, Option<&str>),
) -> Result<Answer> {
    let mut tx = Tx::begin(db).await?;
    lock(&mut tx).await?;
    let reserved = others(&mut tx, ids).await?;
    let stopped = Ids(ids.iter().chain(&reserved).map(|id| id.0).collect());
    let asked = Ids(ids.iter().map(|id| id.0).collect());
    let (repositories, below, one_more) = count(&mut tx, &asked, &stopped).await?;
    let mut until = None;
    if below == 0 && keep > 0 {
        for id in ids {
            until = Some(reserve(&mut tx, *id, keep, who, reason).await?);
        }
        tx.commit().await?;
    }
    Ok(Answer { repositories, below, one_more, reserved, until })
}

/// Gives rights back before they end.
///
/// # Errors
/// When the engine fails.
pub async fn release(db: &Database, ids: &[FileserverId]) -> Result<u64> {
    let text = db.engine().text(
        "/* stops::release, sqlite */ DELETE FROM stops WHERE fileserver_id IN (SELECT value FROM json_each($1))",
        "/* stops::release, postgres */ DELETE FROM stops WHERE fileserver_id = ANY($1)",
    );
    let ids = Ids(ids.iter().map(|id| id.0).collect());
    on_writer!(db, p => sqlx::query(text).bind(&ids).execute(p).await.map(|done| done.rows_affected()))
        .doing("giving back the right to stop fileservers")
}

/// Forgets rights that ended, and reads those that others have.
async fn others(tx: &mut Tx, asked: &[FileserverId]) -> Result<Vec<FileserverId>> {
    let doing = "reading who may stop";
    within!(&mut *tx, c => sqlx::query("/* stops::expire */ DELETE FROM stops WHERE until <= (SELECT now FROM clock)")
        .execute(c).await.map(drop))
    .doing(doing)?;
    let all: Vec<FileserverId> = within!(tx, c => sqlx::query_scalar(
        "/* stops::all */ SELECT fileserver_id FROM stops ORDER BY fileserver_id",
    )
    .fetch_all(c).await)
    .doing(doing)?;
    Ok(all.into_iter().filter(|id| !asked.contains(id)).collect())
}

async fn count(tx: &mut Tx, asked: &Ids, stopped: &Ids) -> Result<(i64, i64, i64)> {
    let text = tx.engine().text(
        "/* stops::count, sqlite */ SELECT count(*), COALESCE(sum(CASE WHEN good < quorum THEN 1 ELSE 0 END), 0), \
                COALESCE(sum(CASE WHEN good = quorum THEN 1 ELSE 0 END), 0) \
           FROM (SELECT p.seats / 2 + 1 AS quorum, (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id \
                          WHERE o.repository_id = p.id AND o.state IN ('live', 'leaving') AND o.in_sync AND g.health = 'online' \
                            AND g.empty_since IS NULL AND g.id NOT IN (SELECT value FROM json_each($2))) AS good \
                   FROM repositories p WHERE p.removed_at IS NULL \
                    AND p.id IN (SELECT repository_id FROM replicas WHERE fileserver_id IN (SELECT value FROM json_each($1)) \
                                    AND state IN ('live', 'leaving'))) AS looked",
        "/* stops::count, postgres */ SELECT count(*), COALESCE(sum(CASE WHEN good < quorum THEN 1 ELSE 0 END), 0), \
                COALESCE(sum(CASE WHEN good = quorum THEN 1 ELSE 0 END), 0) \
           FROM (SELECT p.seats / 2 + 1 AS quorum, (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id \
                          WHERE o.repository_id = p.id AND o.state IN ('live', 'leaving') AND o.in_sync AND g.health = 'online' \
                            AND g.empty_since IS NULL AND g.id <> ALL($2)) AS good \
                   FROM repositories p WHERE p.removed_at IS NULL \
                    AND p.id IN (SELECT repository_id FROM replicas WHERE fileserver_id = ANY($1) \
                                    AND state IN ('live', 'leaving'))) AS looked",
    );
    within!(tx, c => sqlx::query_as(text).bind(asked).bind(stopped).fetch_one(c).await)
        .doing("counting repositories that would fall below quorum")
}

async fn reserve(
    tx: &mut Tx,
    id: FileserverId,
    keep: Millis,
    who: &str,
    reason: Option<&str>,
) -> Result<Millis> {
    within!(tx, c => sqlx::query_scalar(
        "/* stops::reserve */ INSERT INTO stops (fileserver_id, until, who, reason) \
         SELECT $1, now + $2, $3, $4 FROM clock WHERE true \
         ON CONFLICT (fileserver_id) DO UPDATE SET until = excluded.until, who = excluded.who, reason = excluded.reason \
         RETURNING until",
    )
    .bind(id).bind(keep).bind(who).bind(reason).fetch_one(c).await)
    .doing("keeping the right to stop a fileserver")
}
