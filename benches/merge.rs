//! What it costs to merge a goal's rows into the open findings: into none, and into the same ones again.
//!
//! `cargo bench --bench merge [-- ROWS]`; SQLite always, PostgreSQL where `TRUED_TEST_POSTGRES_URL` names a server.
//! Prints seconds, rates of the first and the last tenth of the rows, bytes written, and their ratios. Nothing is
//! left behind. The numbers worth keeping are in `docs/performance.md`.

use sqlx::{Connection as _, PgConnection, SqliteConnection};
use std::time::{Duration, Instant};
use trued::database::Database;
use trued::database::findings::{Merge, MergeInto, Merged};
use trued::database::scratch::Scratch;
use trued::model::finding::{Exception, Hints, Subject};
use trued::model::goal::SubjectKind;
use trued::model::id::RepositoryId;

/// One fileserver of three hundred at 38 million repositories.
const ROWS: i64 = 380_000;
/// As a goal's session sends them.
const BATCH: i64 = 500;

struct Cost {
    collecting: Duration,
    merging: Duration,
    first_tenth: Duration,
    last_tenth: Duration,
    bytes: i64,
    merged: Merged,
}

fn main() -> anyhow::Result<()> {
    let rows = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(ROWS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        measure("SQLite", &Scratch::sqlite().await?, rows).await?;
        if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
            measure("PostgreSQL", &Scratch::postgres(&url).await?, rows).await?;
        }
        Ok(())
    })
}

async fn measure(engine: &str, scratch: &Scratch, rows: i64) -> anyhow::Result<()> {
    let new = merge(scratch, rows, 0).await?;
    print(engine, "into an empty ledger", rows, &new);
    let equal = merge(scratch, rows, 0).await?;
    print(engine, "into an equal ledger", rows, &equal);
    let other = merge(scratch, rows, rows / 100).await?;
    print(engine, "one in a hundred is new", rows, &other);
    let none = merge(scratch, 0, 0).await?;
    print(engine, "all are met again", 0, &none);
    let ratio = |part: f64, whole: f64| part / whole.max(f64::MIN_POSITIVE);
    println!(
        "{engine}: the equal ledger takes {:.2} of the time and {:.5} of the bytes of the empty one",
        ratio(total(&equal), total(&new)),
        ratio(float(equal.bytes), float(new.bytes)),
    );
    Ok(())
}

fn total(cost: &Cost) -> f64 {
    (cost.collecting + cost.merging).as_secs_f64()
}

#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn float(bytes: i64) -> f64 {
    bytes as f64
}

fn print(engine: &str, what: &str, rows: i64, cost: &Cost) {
    println!(
        "{engine}, {rows} rows, {what}: {:.2} s ({:.2} collecting, {:.2} merging), {:.2} MB written, {:?}",
        total(cost),
        cost.collecting.as_secs_f64(),
        cost.merging.as_secs_f64(),
        float(cost.bytes) / 1e6,
        (cost.merged.opened, cost.merged.closed, cost.merged.changed),
    );
    if rows > 0 {
        let slower = cost.last_tenth.as_secs_f64() / cost.first_tenth.as_secs_f64();
        println!("  the last tenth of the rows was collected in {slower:.2} of the time of the first");
    }
}

async fn merge(scratch: &Scratch, rows: i64, shift: i64) -> anyhow::Result<Cost> {
    empty_wal(scratch).await?;
    let before = written(scratch).await?;
    let (db, began) = (scratch.database(), Instant::now());
    let mut merge = Merge::begin(db, into(db).await?).await?;
    let mut marks = Vec::new();
    for start in (1..=rows).step_by(usize::try_from(BATCH)?) {
        marks.push(began.elapsed());
        let batch: Vec<_> = (start..(start + BATCH).min(rows + 1)).map(|id| row(id + shift)).collect();
        merge.add(&batch).await?;
    }
    let collecting = began.elapsed();
    marks.push(collecting);
    let merged = merge.finish(0).await?;
    let merging = began.elapsed().saturating_sub(collecting);
    let (tenth, last) = (marks.len() / 10, marks.len() - 1);
    let (first_tenth, last_tenth) = (marks[tenth], collecting.saturating_sub(marks[last - tenth]));
    let bytes = written(scratch).await? - before;
    Ok(Cost { collecting, merging, first_tenth, last_tenth, bytes, merged })
}

async fn into(db: &Database) -> anyhow::Result<MergeInto> {
    Ok(MergeInto {
        goal: "replicas-suffice".into(),
        digest: "d".to_owned(),
        subject: SubjectKind::Repository,
        repair: Some("re-replicate".into()),
        last_copies: false,
        began_at: db.now().await?,
        backoff_ms: vec![0, 60_000],
        stuck_after: 3,
        most: 500_000,
        in_a_row: 1,
        brake: None,
        removes: false,
    })
}

/// As `replicas-suffice` returns them.
fn row(id: i64) -> Exception {
    let evidence = serde_json::json!({ "wanted": 3, "countable": 2 });
    let serde_json::Value::Object(evidence) = evidence else { unreachable!() };
    Exception {
        subject: Subject::Repository(RepositoryId(id * 100)),
        priority: 600,
        reason: Some("2 of 3 copies".into()),
        hints: Hints::default(),
        evidence,
    }
}

/// PostgreSQL: the position in the WAL. SQLite: the size of its WAL, which is emptied before each merge and takes one
/// whole.
async fn written(scratch: &Scratch) -> anyhow::Result<i64> {
    if let Some(path) = scratch.url().strip_prefix("sqlite:") {
        let wal = std::fs::metadata(format!("{path}-wal")).map_or(0, |file| file.len());
        return Ok(i64::try_from(wal)?);
    }
    let mut connection = PgConnection::connect(scratch.url()).await?;
    let text = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    Ok(sqlx::query_scalar(text).fetch_one(&mut connection).await?)
}

async fn empty_wal(scratch: &Scratch) -> anyhow::Result<()> {
    if scratch.url().starts_with("sqlite:") {
        let mut connection = SqliteConnection::connect(scratch.url()).await?;
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    }
    Ok(())
}
