//! Draining: fileservers that are being emptied, and those that will never return.
//!
//! An evacuation is begun in one transaction with its proof, so that two of them never count on
//! the same room. Who is lost is asked nothing any more: its replicas are forgotten row by row,
//! each only while as many good ones as are wanted stand elsewhere, under the repository's lock.
use super::transaction::{Tx, retrying, within};
use super::values::Ids;
use super::{Database, DatabaseError, Doing, Result, on, on_writer, repositories};
use crate::model::Millis;
use crate::model::finding::Deferral;
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// Replicas of one lost fileserver that are looked at in one round.
const LOOKED_AT: i64 = 2_000;

/// Sums over the repositories that would have too few countable copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many.
    pub repositories: i64,
    /// The most copies that one of them wants.
    pub wanted: i64,
    /// Bytes of all copies that are to be made.
    pub bytes: i64,
    /// Bytes of each once.
    pub once: i64,
    /// Bytes of the largest.
    pub largest: i64,
    /// Bytes that each leaving fileserver holds of them.
    pub held: Vec<(FileserverId, i64)>,
}

/// One fileserver that is being emptied.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Drain {
    /// The fileserver.
    pub id: FileserverId,
    /// Its name.
    pub name: String,
    /// Its health.
    pub health: String,
    /// Since when it is being emptied.
    pub since: Millis,
    /// Replicas it held then.
    pub replicas: i64,
    /// Replicas it held when it was last looked.
    pub left: i64,
    /// Since when it is as many.
    pub moved_at: Millis,
    /// When a person said that it will never return.
    pub lost_at: Option<Millis>,
    /// Git processes that ran there at its last status.
    pub processes: i64,
    /// When that status arrived.
    pub seen_at: Option<Millis>,
    /// Whether an attempt works on a repository that it holds.
    pub working: bool,
}

/// Makes fileservers leave, if `decide` says that it can be: it is told every fileserver that leaves then, and
/// the sums. Nobody else begins or ends an evacuation meanwhile. `write`: without it nothing is changed.
///
/// # Errors
/// When the engine fails. The inner error is what `decide` said.
pub async fn evacuate<T, E>(
    db: &Database,
    ids: &[FileserverId],
    lost: bool,
    write: bool,
    decide: impl FnOnce(&[FileserverId], &Sums) -> std::result::Result<T, E>,
) -> Result<std::result::Result<T, E>> {
    let mut tx = Tx::begin(db).await?;
    let intents = lock(&mut tx).await?;
    let leaves =
        |id: &FileserverId, intent: &str| ids.contains(id) || matches!(intent, "evacuate" | "retire");
    let leaving: Vec<FileserverId> =
        intents.into_iter().filter(|(id, intent)| leaves(id, intent)).map(|(id, _)| id).collect();
    let sums = sums(&mut tx, &numbers(&leaving)).await?;
    let decided = decide(&leaving, &sums);
    if decided.is_ok() && write {
        begin(&mut tx, &numbers(ids), lost).await?;
        tx.commit().await?;
    }
    Ok(decided)
}

fn numbers(ids: &[FileserverId]) -> Ids {
    Ids(ids.iter().map(|id| id.0).collect())
}

/// Every fileserver with its intent; nobody else who locks them decides until the end of the transaction.
pub(super) async fn lock(tx: &mut Tx) -> Result<Vec<(FileserverId, String)>> {
    let text = tx.engine().text(
        "/* drains::lock, sqlite */ SELECT id, intent FROM fileservers ORDER BY id",
        "/* drains::lock, postgres */ SELECT id, intent FROM fileservers ORDER BY id FOR NO KEY UPDATE",
    );
    within!(tx, c => sqlx::query_as(text).fetch_all(c).await).doing("locking the fileservers")
}

async fn sums(tx: &mut Tx, leaving: &Ids) -> Result<Sums> {
    let doing = "summing what must find a place";
    let text = tx.engine().text(
        "/* drains::sums, sqlite */ SELECT count(*), COALESCE(max(wanted), 0), COALESCE(sum(missing * bytes), 0), \
                COALESCE(sum(bytes), 0), COALESCE(max(bytes), 0) \
           FROM (SELECT p.wanted, p.bytes, p.wanted - (SELECT count(*) FROM replicas o JOIN fileservers f ON f.id = o.fileserver_id \
                          WHERE o.repository_id = p.id AND o.state = 'live' AND f.counts \
                            AND f.id NOT IN (SELECT value FROM json_each($1))) AS missing \
                   FROM repositories p \
                  WHERE p.removed_at IS NULL \
                    AND p.id IN (SELECT repository_id FROM replicas WHERE fileserver_id IN (SELECT value FROM json_each($1)) \
                                    AND state IN ('live', 'leaving'))) AS short \
          WHERE missing > 0",
        "/* drains::sums, postgres */ SELECT count(*), COALESCE(max(wanted), 0), \
                CAST(COALESCE(sum(missing * bytes), 0) AS BIGINT), CAST(COALESCE(sum(bytes), 0) AS BIGINT), COALESCE(max(bytes), 0) \
           FROM (SELECT p.wanted, p.bytes, p.wanted - (SELECT count(*) FROM replicas o JOIN fileservers f ON f.id = o.fileserver_id \
                          WHERE o.repository_id = p.id AND o.state = 'live' AND f.counts AND f.id <> ALL($1)) AS missing \
                   FROM repositories p \
                  WHERE p.removed_at IS NULL \
                    AND p.id IN (SELECT repository_id FROM replicas WHERE fileserver_id = ANY($1) \
                                    AND state IN ('live', 'leaving'))) AS short \
          WHERE missing > 0",
    );
    let (repositories, wanted, bytes, once, largest) =
        within!(&mut *tx, c => sqlx::query_as::<_, (i64, i64, i64, i64, i64)>(text).bind(leaving).fetch_one(c).await)
            .doing(doing)?;
    let text = tx.engine().text(
        "/* drains::held, sqlite */ SELECT r.fileserver_id, COALESCE(sum(r.bytes), 0) FROM replicas r \
          WHERE r.fileserver_id IN (SELECT value FROM json_each($1)) AND r.state IN ('live', 'leaving') GROUP BY r.fileserver_id",
        "/* drains::held, postgres */ SELECT r.fileserver_id, CAST(COALESCE(sum(r.bytes), 0) AS BIGINT) FROM replicas r \
          WHERE r.fileserver_id = ANY($1) AND r.state IN ('live', 'leaving') GROUP BY r.fileserver_id",
    );
    let held = within!(tx, c => sqlx::query_as(text).bind(leaving).fetch_all(c).await).doing(doing)?;
    Ok(Sums { repositories, wanted, bytes, once, largest, held })
}

async fn begin(tx: &mut Tx, ids: &Ids, lost: bool) -> Result<()> {
    let text = tx.engine().text(
        "/* drains::begin, sqlite */ UPDATE fileservers SET intent = 'evacuate', counts = FALSE, \
           lost_at = CASE WHEN $2 THEN (SELECT now FROM clock) ELSE lost_at END, \
           drain_since = (SELECT now FROM clock), drain_moved_at = (SELECT now FROM clock), \
           drain_replicas = (SELECT count(*) FROM replicas r WHERE r.fileserver_id = fileservers.id), \
           drain_left = (SELECT count(*) FROM replicas r WHERE r.fileserver_id = fileservers.id) \
          WHERE id IN (SELECT value FROM json_each($1))",
        "/* drains::begin, postgres */ UPDATE fileservers SET intent = 'evacuate', counts = FALSE, \
           lost_at = CASE WHEN $2 THEN (SELECT now FROM clock) ELSE lost_at END, \
           drain_since = (SELECT now FROM clock), drain_moved_at = (SELECT now FROM clock), \
           drain_replicas = (SELECT count(*) FROM replicas r WHERE r.fileserver_id = fileservers.id), \
           drain_left = (SELECT count(*) FROM replicas r WHERE r.fileserver_id = fileservers.id) \
          WHERE id = ANY($1)",
    );
    within!(tx, c => sqlx::query(text).bind(ids).bind(lost).execute(c).await.map(drop))
        .doing("beginning to empty fileservers")
}

/// All that are being emptied.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<Drain>> {
    on!(db, p => sqlx::query_as(
        "/* drains::all */ SELECT f.id, f.name, f.health, f.drain_since AS since, COALESCE(f.drain_replicas, 0) AS replicas, \
                COALESCE(f.drain_left, 0) AS \"left\", COALESCE(f.drain_moved_at, f.drain_since) AS moved_at, f.lost_at, \
                f.processes, f.seen_at, \
                EXISTS (SELECT 1 FROM attempts a JOIN replicas r ON r.repository_id = a.repository_id AND r.fileserver_id = f.id \
                         WHERE a.state = 'running') AS working \
           FROM fileservers f WHERE f.intent = 'evacuate' AND f.drain_since IS NOT NULL ORDER BY f.name",
    )
    .fetch_all(p).await)
    .doing("reading which fileservers are being emptied")
}

/// Counts what is left on each, and notes since when it is as many. A drain that was begun by another version gets
/// its beginning here. Returns how many changed.
///
/// # Errors
/// When the engine fails.
pub async fn note(db: &Database) -> Result<u64> {
    if !on!(db, p => sqlx::query_scalar::<_, bool>(
        "/* drains::any */ SELECT EXISTS (SELECT 1 FROM fileservers WHERE intent = 'evacuate')",
    )
    .fetch_one(p).await)
    .doing("looking for fileservers that are being emptied")?
    {
        return Ok(0);
    }
    on_writer!(db, p => sqlx::query(
        "/* drains::note */ UPDATE fileservers SET drain_left = c.held, drain_moved_at = (SELECT now FROM clock), \
           drain_since = COALESCE(drain_since, (SELECT now FROM clock)), drain_replicas = COALESCE(drain_replicas, c.held) \
          FROM (SELECT f.id, (SELECT count(*) FROM replicas r WHERE r.fileserver_id = f.id) AS held \
                  FROM fileservers f WHERE f.intent = 'evacuate') AS c \
         WHERE fileservers.id = c.id AND fileservers.drain_left IS DISTINCT FROM c.held",
    )
    .execute(p).await.map(|done| done.rows_affected()))
    .doing("noting what is left on fileservers that are being emptied")
}

/// What one fileserver holds now: replicas and their bytes.
///
/// # Errors
/// When the engine fails.
pub async fn held(db: &Database, id: FileserverId) -> Result<(i64, i64)> {
    on!(db, p => sqlx::query_as(
        "/* drains::holds */ SELECT count(*), CAST(COALESCE(sum(bytes), 0) AS BIGINT) FROM replicas WHERE fileserver_id = $1",
    )
    .bind(id).fetch_one(p).await)
    .doing("counting what a fileserver holds")
}

/// Forgets replicas of lost fileservers, of repositories above `after`: each only if as many as are wanted stand
/// elsewhere, live, in sync, verified, on fileservers that count and are online. Returns how many went, and where
/// to go on; none: from the beginning.
///
/// # Errors
/// When the engine fails.
pub async fn forget_lost(db: &Database, after: RepositoryId) -> Result<(u64, Option<RepositoryId>)> {
    let window: Vec<RepositoryId> = on!(db, p => sqlx::query_scalar(
        "/* drains::lost_replicas */ SELECT r.repository_id FROM fileservers f JOIN replicas r ON r.fileserver_id = f.id \
          WHERE f.lost_at IS NOT NULL AND f.intent = 'evacuate' AND r.repository_id > $1 ORDER BY r.repository_id LIMIT $2",
    )
    .bind(after).bind(LOOKED_AT).fetch_all(p).await)
    .doing("looking at replicas of lost fileservers")?;
    let Some(last) = window.last().copied() else { return Ok((0, None)) };
    let ids = Ids(window.iter().map(|id| id.0).collect());
    let gone = retrying!(try_forget(db, &ids).await)?;
    let more = i64::try_from(window.len()).unwrap_or(0) >= LOOKED_AT;
    Ok((gone, more.then_some(last)))
}

async fn try_forget(db: &Database, ids: &Ids) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    repositories::lock_all(&mut tx, ids).await?;
    let text = tx.engine().text(
        "/* drains::forget, sqlite */ DELETE FROM replicas WHERE repository_id IN (SELECT value FROM json_each($1)) \
            AND fileserver_id IN (SELECT id FROM fileservers WHERE lost_at IS NOT NULL AND intent = 'evacuate' AND health <> 'online') \
            AND NOT EXISTS (SELECT 1 FROM pushes u WHERE u.repository_id = replicas.repository_id AND u.state = 'open') \
            AND (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id \
                  WHERE o.repository_id = replicas.repository_id AND o.state = 'live' AND o.in_sync AND o.verified_at IS NOT NULL \
                    AND g.counts AND g.health = 'online') \
             >= (SELECT p.wanted FROM repositories p WHERE p.id = replicas.repository_id)",
        "/* drains::forget, postgres */ DELETE FROM replicas WHERE repository_id = ANY($1) \
            AND fileserver_id IN (SELECT id FROM fileservers WHERE lost_at IS NOT NULL AND intent = 'evacuate' AND health <> 'online') \
            AND NOT EXISTS (SELECT 1 FROM pushes u WHERE u.repository_id = replicas.repository_id AND u.state = 'open') \
            AND (SELECT count(*) FROM replicas o JOIN fileservers g ON g.id = o.fileserver_id \
                  WHERE o.repository_id = replicas.repository_id AND o.state = 'live' AND o.in_sync AND o.verified_at IS NOT NULL \
                    AND g.counts AND g.health = 'online') \
             >= (SELECT p.wanted FROM repositories p WHERE p.id = replicas.repository_id)",
    );
    let gone =
        within!(&mut tx, c => sqlx::query(text).bind(ids).execute(c).await.map(|done| done.rows_affected()))
            .doing("forgetting replicas of lost fileservers")?;
    tx.commit().await?;
    Ok(gone)
}

/// Accepts that a fileserver came back with an empty root: what it held is marked as damaged, in batches, and
/// only then is the new root taken for its own; so every copy is made anew, and none is read or counted before.
/// Broken off, it is simply asked for again. Returns how many replicas were marked.
///
/// # Errors
/// When its root is not another one, or the engine fails.
pub async fn accept_empty(db: &Database, id: FileserverId) -> Result<u64> {
    let empty: Option<Option<Millis>> = on!(db, p => sqlx::query_scalar(
        "/* drains::empty_since */ SELECT empty_since FROM fileservers WHERE id = $1",
    )
    .bind(id).fetch_optional(p).await)
    .doing("looking at a fileserver's root")?;
    if empty.flatten().is_none() {
        return Err(DatabaseError::Refused("its root is the one that held its replicas".to_owned()));
    }
    let (mut marked, mut after) = (0, RepositoryId(0));
    loop {
        let ids: Vec<RepositoryId> = on!(db, p => sqlx::query_scalar(
            "/* drains::held_page */ SELECT repository_id FROM replicas WHERE fileserver_id = $1 AND repository_id > $2 \
              ORDER BY repository_id LIMIT $3",
        )
        .bind(id).bind(after).bind(LOOKED_AT).fetch_all(p).await)
        .doing("reading what a fileserver held")?;
        let Some(last) = ids.last().copied() else { break };
        let page = Ids(ids.iter().map(|id| id.0).collect());
        marked += retrying!(try_mark(db, id, &page).await)?;
        after = last;
    }
    on_writer!(db, p => sqlx::query(
        "/* drains::accept_root */ UPDATE fileservers SET root_id = seen_root_id, empty_since = NULL, compared_start_id = NULL \
          WHERE id = $1 AND empty_since IS NOT NULL AND seen_root_id IS NOT NULL",
    )
    .bind(id).execute(p).await.map(drop))
    .doing("accepting a fileserver's new root")?;
    Ok(marked)
}

async fn try_mark(db: &Database, id: FileserverId, page: &Ids) -> Result<u64> {
    let mut tx = Tx::begin(db).await?;
    repositories::lock_all(&mut tx, page).await?;
    let text = tx.engine().text(
        "/* drains::mark, sqlite */ UPDATE replicas SET checksum = NULL, checksum_key = NULL, in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE fileserver_id = $1 AND repository_id IN (SELECT value FROM json_each($2)) AND state IN ('live', 'leaving')",
        "/* drains::mark, postgres */ UPDATE replicas SET checksum = NULL, checksum_key = NULL, in_sync = FALSE, \
           out_of_sync_since = COALESCE(out_of_sync_since, (SELECT now FROM clock)) \
          WHERE fileserver_id = $1 AND repository_id = ANY($2) AND state IN ('live', 'leaving')",
    );
    let marked =
        within!(&mut tx, c => sqlx::query(text).bind(id).bind(page).execute(c).await.map(|done| done.rows_affected()))
            .doing("marking what a fileserver held")?;
    tx.commit().await?;
    Ok(marked)
}

/// One finding about a repository that a fileserver holds, which does not start.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocking {
    /// The repository's name.
    pub repository: String,
    /// The goal.
    pub goal: String,
    /// The finding's state.
    pub state: String,
    /// Why it waits.
    pub deferral: Option<Deferral>,
}

/// Findings that wait for something, about repositories that a fileserver holds; those that need a person first.
///
/// # Errors
/// When the engine fails.
pub async fn blockers(db: &Database, id: FileserverId, limit: i64) -> Result<Vec<Blocking>> {
    let rows: Vec<(String, String, String, Option<Json<Deferral>>)> = on!(db, p => sqlx::query_as(
        "/* drains::blockers */ SELECT p.name, f.goal, f.state, f.deferral \
           FROM findings f JOIN repositories p ON p.id = f.repository_id \
          WHERE f.repair IS NOT NULL AND (f.state IN ('stuck', 'held') OR f.deferral IS NOT NULL) \
            AND EXISTS (SELECT 1 FROM replicas r WHERE r.repository_id = f.repository_id AND r.fileserver_id = $1) \
          ORDER BY CASE f.state WHEN 'stuck' THEN 0 WHEN 'held' THEN 1 ELSE 2 END, f.id LIMIT $2",
    )
    .bind(id).bind(limit).fetch_all(p).await)
    .doing("reading what is in the way of emptying a fileserver")?;
    let blocking = |(repository, goal, state, deferral): (String, String, String, Option<Json<Deferral>>)| {
        Blocking { repository, goal, state, deferral: deferral.map(|one| one.0) }
    };
    Ok(rows.into_iter().map(blocking).collect())
}
