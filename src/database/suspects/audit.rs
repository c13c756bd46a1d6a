//! The audit: a slice of all ids is among the suspects for a while, and then the next.
//!
//! Whatever is wrong with the set is found within one pass: counts of a repository that
//! are not those of its replicas are mended when its slice comes, and an exception that
//! a goal finds there, and that the view would not have given, is drift. It is counted,
//! and its repository stays a suspect for as long as a finding about it is open.
use crate::database::transaction::{Tx, retrying, within};
use crate::database::values::Ids;
use crate::database::{Database, Doing, Engine, Result, on, on_writer, rows};
use crate::model::Millis;
use crate::model::finding::Subject;
use crate::model::id::EvaluationId;

/// The end of a pass: the last slice has no upper bound, so that new ids are in it.
const END: i64 = i64::MAX;
/// Repositories whose counts are mended in one transaction.
const MENDED_AT_ONCE: i64 = 1_000;
/// Transactions that mend in one rotation; what is left then is mended in the next pass.
const MENDINGS: usize = 100;

/// A slice of ids, and what its beginning mended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Ids above this.
    pub after: i64,
    /// Up to this one.
    pub until: i64,
    /// Repositories whose counts were wrong, and populations that were.
    pub mended: i64,
}

/// The slice that stands; empty before the first.
///
/// # Errors
/// When the engine fails.
pub async fn slice(db: &Database) -> Result<Slice> {
    let (after, until, ..) = position(db).await?;
    Ok(Slice { after, until, mended: 0 })
}

/// What the audit has found ever since: exceptions that the view had missed, and counts that were wrong.
///
/// # Errors
/// When the engine fails.
pub async fn drift(db: &Database) -> Result<i64> {
    on!(db, p => sqlx::query_scalar("/* suspects::drift */ SELECT value FROM counters WHERE name = 'audit_drift'")
        .fetch_one(p).await)
    .doing("reading what the audit has found")
}

/// Goes on to the next slice of `size` ids when the one before has stood for `period`, and mends the counts of its
/// repositories; with the first slice of a pass, also the populations. `None`: it is not time yet. A refresh puts
/// the slice among the suspects. The caller holds the lease of the suspects.
///
/// # Errors
/// When the engine fails; then the slice stands.
pub async fn rotate(db: &Database, size: i64, period: Millis) -> Result<Option<Slice>> {
    let (_, until, at, now) = position(db).await?;
    if now - at < period {
        return Ok(None);
    }
    let after = if until == END { 0 } else { until };
    let until = upper_bound(db, after, size.max(1)).await?;
    let mut mended = if after == 0 { retrying!(mend_populations(db).await)? } else { 0 };
    for _ in 0..MENDINGS {
        let wrong = miscounted(db, after, until).await?;
        if wrong.0.is_empty() {
            break;
        }
        mended += retrying!(mend(db, &wrong).await)?;
    }
    let slice = Slice { after, until, mended };
    retrying!(keep(db, slice).await)?;
    Ok(Some(slice))
}

/// Bounds and beginning of the slice, and the moment.
async fn position(db: &Database) -> Result<(i64, i64, Millis, Millis)> {
    on!(db, p => sqlx::query_as(
        "/* suspects::position */ SELECT \
           (SELECT value FROM counters WHERE name = 'audit_after'), \
           (SELECT value FROM counters WHERE name = 'audit_until'), \
           (SELECT value FROM counters WHERE name = 'audit_at'), \
           (SELECT now FROM clock)",
    )
    .fetch_one(p).await)
    .doing("reading where the audit is")
}

async fn upper_bound(db: &Database, after: i64, size: i64) -> Result<i64> {
    let last: Option<i64> = on!(db, p => sqlx::query_scalar(
        "/* suspects::upper_bound */ SELECT id FROM repositories WHERE id > $1 ORDER BY id LIMIT 1 OFFSET $2",
    )
    .bind(after).bind(size - 1).fetch_optional(p).await)
    .doing("choosing the audit's next slice")?;
    Ok(last.unwrap_or(END))
}

/// Repositories of a slice whose counts are not those of their replicas, as they stood a moment ago.
async fn miscounted(db: &Database, after: i64, until: i64) -> Result<Ids> {
    on!(db, p => sqlx::query_scalar(
        "/* suspects::miscounted */ SELECT p.id FROM repositories p \
           LEFT JOIN replicas r ON r.repository_id = p.id AND r.repository_id > $1 AND r.repository_id <= $2 \
           LEFT JOIN fileservers f ON f.id = r.fileserver_id \
          WHERE p.id > $1 AND p.id <= $2 \
          GROUP BY p.id, p.replica_count, p.rack_count \
         HAVING count(r.fileserver_id) <> p.replica_count OR count(DISTINCT f.rack_id) <> p.rack_count \
          ORDER BY p.id LIMIT $3",
    )
    .bind(after).bind(until).bind(MENDED_AT_ONCE).fetch_all(p).await)
    .doing("comparing counts with replicas")
    .map(Ids)
}

/// Counts again under the repositories' locks: whoever changes replicas takes these first, so what is seen then is
/// all there is.
async fn mend(db: &Database, wrong: &Ids) -> Result<i64> {
    let doing = "mending the counts of repositories";
    let mut tx = Tx::begin(db).await?;
    if tx.engine() == Engine::Postgres {
        within!(&mut tx, c => sqlx::query(
            "/* suspects::lock, postgres */ SELECT id FROM repositories WHERE id = ANY($1) ORDER BY id FOR UPDATE",
        )
        .bind(wrong).execute(c).await.map(drop))
        .doing(doing)?;
    }
    let text = tx.engine().text(
        "/* suspects::mend, sqlite */ UPDATE repositories SET replica_count = c.replicas, rack_count = c.racks \
           FROM (SELECT p.value AS id, count(r.fileserver_id) AS replicas, count(DISTINCT f.rack_id) AS racks \
                   FROM json_each($1) p LEFT JOIN replicas r ON r.repository_id = p.value \
                   LEFT JOIN fileservers f ON f.id = r.fileserver_id GROUP BY p.value) c \
          WHERE repositories.id = c.id AND (replica_count <> c.replicas OR rack_count <> c.racks)",
        "/* suspects::mend, postgres */ UPDATE repositories SET replica_count = c.replicas, rack_count = c.racks \
           FROM (SELECT p.id, count(r.fileserver_id) AS replicas, count(DISTINCT f.rack_id) AS racks \
                   FROM unnest(CAST($1 AS BIGINT[])) AS p (id) LEFT JOIN replicas r ON r.repository_id = p.id \
                   LEFT JOIN fileservers f ON f.id = r.fileserver_id GROUP BY p.id) c \
          WHERE repositories.id = c.id AND (replica_count <> c.replicas OR rack_count <> c.racks)",
    );
    let mended = within!(&mut tx, c => sqlx::query(text).bind(wrong)
        .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    tx.commit().await?;
    Ok(i64::try_from(mended).unwrap_or(i64::MAX))
}

/// The counters' own row locks hold up placement changes while all is counted, once a pass: some seconds at a
/// hundred million replicas.
async fn mend_populations(db: &Database) -> Result<i64> {
    let doing = "mending the populations";
    let mut tx = Tx::begin(db).await?;
    if tx.engine() == Engine::Postgres {
        within!(&mut tx, c => sqlx::query(
            "/* suspects::lock_populations, postgres */ SELECT value FROM counters \
              WHERE name IN ('fileservers', 'replicas', 'repositories') ORDER BY name FOR UPDATE",
        )
        .execute(c).await.map(drop))
        .doing(doing)?;
    }
    let counted: (i64, i64, i64) = within!(&mut tx, c => sqlx::query_as(
        "/* suspects::populations */ SELECT (SELECT count(*) FROM repositories), (SELECT count(*) FROM replicas), \
                (SELECT count(*) FROM fileservers)",
    )
    .fetch_one(c).await)
    .doing(doing)?;
    let mut mended = 0;
    for (name, value) in [("repositories", counted.0), ("replicas", counted.1), ("fileservers", counted.2)] {
        let changed = within!(&mut tx, c => sqlx::query(
            "/* suspects::mend_population */ UPDATE counters SET value = $2 WHERE name = $1 AND value <> $2",
        )
        .bind(name).bind(value).execute(c).await.map(|done| done.rows_affected()))
        .doing(doing)?;
        mended += i64::try_from(changed).unwrap_or_default();
    }
    tx.commit().await?;
    Ok(mended)
}

async fn keep(db: &Database, slice: Slice) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* suspects::keep_slice */ UPDATE counters SET value = CASE name WHEN 'audit_after' THEN $1 \
            WHEN 'audit_until' THEN $2 WHEN 'audit_at' THEN (SELECT now FROM clock) ELSE value + $3 END \
          WHERE name IN ('audit_after', 'audit_until', 'audit_at') OR (name = 'audit_drift' AND $3 > 0)",
    )
    .bind(slice.after).bind(slice.until).bind(slice.mended)
    .execute(p).await.map(drop))
    .doing("going on to the audit's next slice")
}

/// Subjects that an evaluation opened findings about in this slice, and whose repositories the view does not give:
/// at most `limit`. A few may have been put right since.
///
/// # Errors
/// When the engine fails.
pub async fn missed(
    db: &Database,
    goal: &str,
    evaluation: EvaluationId,
    slice: Slice,
    limit: i64,
) -> Result<Vec<Subject>> {
    let subjects: Vec<String> = on!(db, p => sqlx::query_scalar(
        "/* suspects::missed */ SELECT f.subject FROM findings f \
          WHERE f.goal = $1 AND f.opened_evaluation = $2 AND f.repository_id > $3 AND f.repository_id <= $4 \
            AND NOT EXISTS (SELECT 1 FROM suspects s WHERE s.repository_id = f.repository_id) \
          ORDER BY f.id LIMIT $5",
    )
    .bind(goal).bind(evaluation).bind(slice.after).bind(slice.until).bind(limit).fetch_all(p).await)
    .doing("looking for exceptions that only the audit found")?;
    subjects.iter().map(|text| rows::subject(text)).collect()
}

/// Counts these repositories as drift, and keeps them among the suspects while findings about them are open.
///
/// # Errors
/// When the engine fails.
pub async fn record(db: &Database, repositories: &[i64]) -> Result<()> {
    retrying!(try_record(db, repositories).await)
}

async fn try_record(db: &Database, repositories: &[i64]) -> Result<()> {
    let doing = "recording what the audit found";
    let mut tx = Tx::begin(db).await?;
    let text = tx.engine().text(
        "/* suspects::mark_drift, sqlite */ UPDATE suspect SET drift = TRUE \
          WHERE repository_id IN (SELECT value FROM json_each($1))",
        "/* suspects::mark_drift, postgres */ UPDATE suspect SET drift = TRUE WHERE repository_id = ANY($1)",
    );
    let ids = Ids(repositories.to_vec());
    within!(&mut tx, c => sqlx::query(text).bind(&ids).execute(c).await.map(drop)).doing(doing)?;
    let many = i64::try_from(repositories.len()).unwrap_or(i64::MAX);
    within!(&mut tx, c => sqlx::query(
        "/* suspects::count_drift */ UPDATE counters SET value = value + $1 WHERE name = 'audit_drift'",
    )
    .bind(many).execute(c).await.map(drop))
    .doing(doing)?;
    tx.commit().await
}
