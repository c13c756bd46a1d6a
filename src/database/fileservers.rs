//! Fileservers and racks.
//!
//! A fileserver's change of health or intent is one update of one row: no replica is
//! rewritten. What people want (`intent`) and what was seen (`health`, `counts`) are
//! written by different functions and never by one.
use super::rows::{self, FileserverRow};
use super::transaction::{Tx, within};
use super::{Database, DatabaseError, Doing, Result, on, on_writer, parts};
use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::grant::Part;
use crate::model::id::FileserverId;
use crate::model::wire::Status;
use sqlx::types::Json;

/// All of them, by name; a few hundred rows.
///
/// # Errors
/// When the engine fails.
pub async fn all(db: &Database) -> Result<Vec<Fileserver>> {
    let rows: Vec<FileserverRow> = on!(db, p => sqlx::query_as(
        "/* fileservers::all */ SELECT f.id, f.name, f.rack_id, r.name AS rack, f.url, f.intent, f.health, \
                f.health_since, f.offline_ms, f.counts, f.empty_since, f.compared_start_id, f.start_id, f.root_id, f.root, \
                f.capacity, f.disk_used, f.disk_free, f.load, f.processes, f.long_reads, f.weight, f.agent_version, \
                f.git_version, f.inventory_generation, f.seen_at \
           FROM fileservers f JOIN racks r ON r.id = f.rack_id ORDER BY f.name",
    )
    .fetch_all(p).await)
    .doing("reading the fileservers")?;
    rows::all(rows)
}

/// Adds a fileserver (its rack is made when it is new) with its agent's part, in one transaction.
/// An existing one of the same name, rack and key is left, its URL is changed.
///
/// # Errors
/// When the name is taken by another rack or key, or the engine fails.
pub async fn add(db: &Database, name: &str, rack: &str, url: &str, part: &Part) -> Result<FileserverId> {
    let doing = "adding a fileserver";
    let mut tx = Tx::begin(db).await?;
    parts::insert(&mut tx, part).await?;
    within!(&mut tx, c => sqlx::query(
        "/* fileservers::add_rack */ INSERT INTO racks (name) VALUES ($1) ON CONFLICT (name) DO NOTHING",
    )
    .bind(rack).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* fileservers::add */ INSERT INTO fileservers (name, rack_id, url, health_since) \
         SELECT $1, r.id, $3, (SELECT now FROM clock) FROM racks r WHERE r.name = $2 \
         ON CONFLICT (name) DO UPDATE SET url = excluded.url \
          WHERE fileservers.rack_id = excluded.rack_id AND fileservers.url <> excluded.url",
    )
    .bind(name).bind(rack).bind(url).execute(c).await.map(drop))
    .doing(doing)?;
    let (id, found): (FileserverId, String) = within!(&mut tx, c => sqlx::query_as(
        "/* fileservers::added */ SELECT f.id, r.name FROM fileservers f JOIN racks r ON r.id = f.rack_id \
          WHERE f.name = $1",
    )
    .bind(name).fetch_one(c).await)
    .doing(doing)?;
    if found != rack {
        return Err(DatabaseError::Refused(format!(
            "fileserver {name} stands in rack {found}, not in {rack}"
        )));
    }
    tx.commit().await?;
    Ok(id)
}

/// Has a fileserver that answers now count, as if its inventory had been compared.
///
/// # Errors
/// When the engine fails.
pub async fn count(db: &Database, id: FileserverId) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* fileservers::count */ UPDATE fileservers SET health = 'online', counts = TRUE, \
           health_since = (SELECT now FROM clock) WHERE id = $1",
    )
    .bind(id).execute(p).await.map(drop))
    .doing("having a fileserver count")
}

/// Changes the address of a fileserver's agent.
///
/// # Errors
/// When there is no such fileserver, or the engine fails.
pub async fn set_url(db: &Database, id: FileserverId, url: &str) -> Result<()> {
    let changed = on_writer!(db, p => sqlx::query(
        "/* fileservers::set_url */ UPDATE fileservers SET url = $2 WHERE id = $1",
    )
    .bind(id).bind(url).execute(p).await.map(|done| done.rows_affected()))
    .doing("changing a fileserver's address")?;
    there(id, changed)
}

/// Writes the intent; `counts` follows it at once where it becomes false (evacuate, retire).
///
/// # Errors
/// When there is no such fileserver, it is to retire and holds a replica, or the engine fails.
pub async fn set_intent(db: &Database, id: FileserverId, intent: Intent) -> Result<()> {
    let doing = "changing a fileserver's intent";
    let mut tx = Tx::begin(db).await?;
    let changed = within!(&mut tx, c => sqlx::query(
        "/* fileservers::set_intent */ UPDATE fileservers SET intent = $2, \
           counts = CASE WHEN $2 IN ('evacuate', 'retire') THEN FALSE ELSE counts END, \
           drain_since = CASE WHEN $2 = 'evacuate' THEN COALESCE(drain_since, (SELECT now FROM clock)) END, \
           drain_replicas = CASE WHEN $2 = 'evacuate' THEN drain_replicas END, \
           drain_left = CASE WHEN $2 = 'evacuate' THEN drain_left END, \
           drain_moved_at = CASE WHEN $2 = 'evacuate' THEN drain_moved_at END, \
           lost_at = CASE WHEN $2 = 'evacuate' THEN lost_at END WHERE id = $1",
    )
    .bind(id).bind(intent.as_str()).execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    there(id, changed)?;
    if intent == Intent::Retire {
        let holds: i64 = within!(&mut tx, c => sqlx::query_scalar(
            "/* fileservers::holds */ SELECT count(*) FROM \
               (SELECT 1 AS one FROM replicas WHERE fileserver_id = $1 LIMIT 1) AS held",
        )
        .bind(id).fetch_one(c).await)
        .doing(doing)?;
        if holds > 0 {
            return Err(DatabaseError::Refused(
                "the fileserver still holds replicas: evacuate it before it retires".to_owned(),
            ));
        }
    }
    tx.commit().await
}

fn there(id: FileserverId, rows: u64) -> Result<()> {
    if rows == 1 { Ok(()) } else { Err(DatabaseError::Refused(format!("there is no fileserver {id}"))) }
}

/// Writes what a status said (start, root, disk, load, versions, trouble, `seen_at`). One row.
///
/// The root is kept as `seen_root_id`: `root_id`, the one that held the replicas, follows when the inventory
/// was compared ([`inventory_compared`]). Until then an agent on an empty disk cannot pass for the old one.
///
/// # Errors
/// When the engine fails.
pub async fn record_status(db: &Database, id: FileserverId, status: &Status, at: Millis) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* fileservers::record_status */ UPDATE fileservers SET start_id = $2, seen_root_id = $3, capacity = $4, \
           disk_used = $5, disk_free = $6, load = $7, processes = $8, long_reads = $9, agent_version = $10, \
           git_version = $11, trouble = $12, seen_at = $13, root = $14, locks_removed = $15, \
           whole_disk = $16 WHERE id = $1",
    )
    .bind(id).bind(&status.start_id).bind(&status.root_id).bind(status.capacity)
    .bind(status.disk_used).bind(status.disk_free).bind(status.load).bind(status.processes)
    .bind(status.long_reads).bind(&status.agent_version).bind(&status.git_version).bind(&status.trouble)
    .bind(at).bind(&status.root).bind(status.locks_removed).bind(status.whole_disk)
    .execute(p).await.map(drop))
    .doing("recording a fileserver's status")
}

/// What observation decided about one fileserver: one update of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The fileserver.
    pub id: FileserverId,
    /// Its health.
    pub health: Health,
    /// Since when.
    pub health_since: Millis,
    /// Accumulated offline time.
    pub offline_ms: Millis,
    /// Whether its replicas count.
    pub counts: bool,
    /// Whether its root is not the one that held its replicas.
    pub empty_since: Option<Millis>,
}

#[derive(serde::Serialize)]
struct VerdictRow {
    id: i64,
    health: &'static str,
    health_since: Millis,
    offline_ms: Millis,
    counts: bool,
    empty_since: Option<Millis>,
}

/// Writes verdicts that differ from what is there; returns how many rows changed. A verdict from before an
/// operator's `evacuate` or `retire` does not make replicas count again.
///
/// # Errors
/// When the engine fails.
pub async fn record_verdicts(db: &Database, verdicts: &[Verdict]) -> Result<u64> {
    if verdicts.is_empty() {
        return Ok(0);
    }
    let rows: Vec<VerdictRow> = verdicts.iter().map(VerdictRow::from).collect();
    let text = db.engine().text(
        "/* fileservers::record_verdicts, sqlite */ UPDATE fileservers SET health = v.health, \
           health_since = v.health_since, offline_ms = v.offline_ms, empty_since = v.empty_since, \
           counts = v.counts AND fileservers.intent IN ('serve', 'quiesce') \
          FROM (SELECT value->>'id' AS id, value->>'health' AS health, value->>'health_since' AS health_since, \
                       value->>'offline_ms' AS offline_ms, value->>'counts' AS counts, \
                       value->>'empty_since' AS empty_since FROM json_each($1)) AS v \
         WHERE fileservers.id = v.id AND (fileservers.health <> v.health \
            OR fileservers.health_since <> v.health_since OR fileservers.offline_ms <> v.offline_ms \
            OR fileservers.counts <> (v.counts AND fileservers.intent IN ('serve', 'quiesce')) \
            OR fileservers.empty_since IS DISTINCT FROM v.empty_since)",
        "/* fileservers::record_verdicts, postgres */ UPDATE fileservers SET health = v.health, \
           health_since = v.health_since, offline_ms = v.offline_ms, empty_since = v.empty_since, \
           counts = v.counts AND fileservers.intent IN ('serve', 'quiesce') \
          FROM jsonb_to_recordset($1) AS v (id BIGINT, health TEXT, health_since BIGINT, offline_ms BIGINT, \
                       counts BOOLEAN, empty_since BIGINT) \
         WHERE fileservers.id = v.id AND (fileservers.health <> v.health \
            OR fileservers.health_since <> v.health_since OR fileservers.offline_ms <> v.offline_ms \
            OR fileservers.counts <> (v.counts AND fileservers.intent IN ('serve', 'quiesce')) \
            OR fileservers.empty_since IS DISTINCT FROM v.empty_since)",
    );
    on_writer!(db, p => sqlx::query(text).bind(Json(&rows)).execute(p).await.map(|done| done.rows_affected()))
        .doing("recording what was decided about fileservers")
}

impl From<&Verdict> for VerdictRow {
    fn from(verdict: &Verdict) -> Self {
        Self {
            id: verdict.id.0,
            health: verdict.health.as_str(),
            health_since: verdict.health_since,
            offline_ms: verdict.offline_ms,
            counts: verdict.counts,
            empty_since: verdict.empty_since,
        }
    }
}

/// Says up to which generation of which start the inventory was compared. `root_id` is adopted with it.
/// Flags of an earlier start are brought below the generation, or no verification would ever clear them.
///
/// # Errors
/// When the engine fails.
pub async fn inventory_compared(
    db: &Database,
    id: FileserverId,
    start_id: &str,
    generation: i64,
) -> Result<()> {
    let doing = "recording that an inventory was compared";
    let mut tx = Tx::begin(db).await?;
    within!(&mut tx, c => sqlx::query(
        "/* fileservers::inventory_compared */ UPDATE fileservers SET compared_start_id = $2, \
           inventory_generation = $3, root_id = COALESCE(seen_root_id, root_id) WHERE id = $1",
    )
    .bind(id).bind(start_id).bind(generation).execute(c).await.map(drop))
    .doing(doing)?;
    within!(&mut tx, c => sqlx::query(
        "/* fileservers::lower_flags */ UPDATE inventory SET generation = $2 \
          WHERE fileserver_id = $1 AND generation > $2",
    )
    .bind(id).bind(generation).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await
}

/// Replica rows per fileserver (by index).
///
/// # Errors
/// When the engine fails.
pub async fn replica_counts(db: &Database) -> Result<Vec<(FileserverId, i64)>> {
    on!(db, p => sqlx::query_as(
        "/* fileservers::replica_counts */ SELECT fileserver_id, count(*) FROM replicas \
          GROUP BY fileserver_id ORDER BY fileserver_id",
    )
    .fetch_all(p).await)
    .doing("counting replicas by fileserver")
}
