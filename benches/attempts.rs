//! What an attempt costs that does nothing: dispatched, reminded of, claimed, rechecked, done, recorded.
//!
//! `cargo bench --bench attempts [-- SECONDS [BACKLOG…]]`, with `TRUED_TEST_POSTGRES_URL` naming a server whose role may
//! make databases, and `TRUED_TEST_REDIS_URL` a Redis, if reminders are to go that way. The dispatch loop is the real
//! one, with the limits of repairs lifted; workers are the real queue with a handler that reads the attempt's facts
//! and writes its ending. Prints rates, and per attempt: transactions, WAL bytes, Redis commands; then, with ten
//! million ended attempts (`-- claims`), what a claim takes. Nothing is left behind. The numbers worth keeping are in
//! `docs/performance.md`.

use base64::Engine as _;
use futures::FutureExt as _;
use sqlx::{Connection as _, PgConnection};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use trued::controller::{Controller, Pace, Settings};
use trued::database::scratch::Scratch;
use trued::database::{Database, attempts};
use trued::fleet::Agents;
use trued::goal::library::Library;
use trued::goal::session::Source;
use trued::model::attempt::{AttemptEvent, Ending, Step};
use trued::model::chance::Chance;
use trued::model::grant::{Enrolment, Part, Role};
use trued::model::wire::{InventoryPage, PartsList, Status};
use trued::queue::{self, Handler, Nudge, Redis, RedisSettings, Reminders, Workers};
use trued::repair::Repairs;
use trued::shutdown::Shutdown;

const FILESERVERS: i64 = 64;
const WORKERS: usize = 2;
const CONCURRENCY: usize = 64;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let numbers: Vec<i64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let seconds = u64::try_from(numbers.first().copied().unwrap_or(20))?;
    let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") else {
        println!("skipped: TRUED_TEST_POSTGRES_URL is not set");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        if words.iter().any(|word| word == "claims") {
            return claims(&Scratch::postgres(&url).await?).await;
        }
        let backlogs = if numbers.len() > 1 { numbers[1..].to_vec() } else { vec![1_000, 350_000] };
        for backlog in backlogs {
            run(&Scratch::postgres(&url).await?, backlog, Duration::from_secs(seconds)).await?;
        }
        Ok(())
    })
}

/// Keeps a backlog of this size open for so long, and counts what ends.
async fn run(scratch: &Scratch, backlog: i64, length: Duration) -> anyhow::Result<()> {
    let mut side = PgConnection::connect(scratch.url()).await?;
    seed(&mut side, backlog).await?;
    let (shutdown, ended) = (Shutdown::new(), Arc::new(AtomicU64::new(0)));
    let chance = Arc::new(Chance::new(1));
    let redis = match std::env::var("TRUED_TEST_REDIS_URL") {
        Ok(url) => {
            let settings = RedisSettings { url, password_file: None, window: 2_000 };
            Some(Redis::new(&settings, &format!("bench-{}", std::process::id()), Arc::clone(&chance))?)
        }
        Err(_) => None,
    };
    let post = redis.as_ref().map(|redis| redis.post().clone());
    let (reminders, nudge) = (Reminders::carried_by(post.clone()), Nudge::carried_by(post));
    if let Some(redis) = redis {
        shutdown.spawn(redis.clone().send(shutdown.token()));
        shutdown.spawn(redis.clone().hear_reminders(reminders.clone(), shutdown.token()));
        shutdown.spawn(redis.hear_nudges(nudge.clone(), shutdown.token()));
    }
    agents(&shutdown, &mut side).await?;
    dispatcher(&shutdown, scratch, &reminders, &nudge).await?;
    for number in 0..WORKERS {
        let work = worker(scratch.database().clone(), &nudge, &ended, number);
        let (db, reminders, chance) = (scratch.database().clone(), reminders.clone(), Arc::clone(&chance));
        let stop = shutdown.token();
        shutdown.spawn(async move { queue::run(workers(number), db, &reminders, work, chance, stop).await });
    }
    // The first rounds wait for agents to be heard.
    let deadline = Instant::now() + Duration::from_mins(1);
    while ended.load(Ordering::Relaxed) < 500 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (before, began) = (measure(&mut side).await?, Instant::now());
    let first = ended.load(Ordering::Relaxed);
    while began.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(500)).await;
        refill(&mut side, backlog).await?;
    }
    let took = began.elapsed();
    let count = ended.load(Ordering::Relaxed) - first;
    print(backlog, count, took, &before, &measure(&mut side).await?);
    shutdown.finish(Duration::from_secs(20)).await;
    Ok(())
}

fn workers(number: usize) -> Workers {
    Workers {
        name: format!("bench-{number}"),
        concurrency: CONCURRENCY,
        lease_ms: 60_000,
        steps: Step::ALL.to_vec(),
        sweep: Duration::from_secs(1),
    }
}

/// Rechecks, does nothing, and records.
fn worker(db: Database, nudge: &Nudge, ended: &Arc<AtomicU64>, _: usize) -> Handler {
    let (nudge, ended) = (nudge.clone(), Arc::clone(ended));
    Arc::new(move |attempt| {
        let (db, nudge, ended) = (db.clone(), nudge.clone(), Arc::clone(&ended));
        async move {
            let holds = attempts::holds(&db, attempt.id, attempt.epoch).await;
            if !matches!(holds, Ok(true)) {
                return;
            }
            let ending = Ending {
                event: AttemptEvent::Succeed,
                message: "nothing to do".into(),
                bytes: 0,
                blame: None,
            };
            if matches!(attempts::finish(&db, attempt.id, attempt.epoch, &ending, 0).await, Ok(true)) {
                ended.fetch_add(1, Ordering::Relaxed);
                nudge.dispatch();
            }
        }
        .boxed()
    })
}

/// The dispatch loop as it is, over no goal.
async fn dispatcher(
    shutdown: &Shutdown,
    scratch: &Scratch,
    reminders: &Reminders,
    nudge: &Nudge,
) -> anyhow::Result<()> {
    let goals = tempfile::tempdir()?;
    let source = Source::new(scratch.url()).map_err(|problem| anyhow::anyhow!(problem.message))?;
    let library = Library::load(goals.path(), source.clone(), BTreeMap::default()).await;
    let controller = Controller {
        name: "bench".into(),
        settings: Settings {
            audit_slice: 0,
            in_flight: 10_000,
            pace: Pace { online: Duration::from_hours(1), ..Pace::default() },
            ..Settings::default()
        },
        database: scratch.database().clone(),
        source,
        goals: library.map_err(|problem| anyhow::anyhow!(problem.message))?,
        repairs: Arc::new(lifted()?),
        agents: Agents::new(&enrolment())?,
        reminders: reminders.clone(),
        nudge: nudge.clone(),
        metrics: Arc::default(),
        pace: Arc::new(AtomicU32::new(100)),
        chance: Arc::new(Chance::new(7)),
    };
    let stop = shutdown.token();
    shutdown.spawn(async move {
        controller.run(stop).await;
        drop(goals);
    });
    Ok(())
}

/// The shipped repairs without their limits.
fn lifted() -> anyhow::Result<Repairs> {
    let mut repairs = trued::repair::library::shipped()?;
    for repair in repairs.by_name.values_mut() {
        let throttle = &mut Arc::make_mut(repair).throttle;
        throttle.in_flight = 10_000;
        throttle.per_fileserver = 10_000;
        throttle.per_rack = 10_000;
        throttle.starts_per_minute = u32::MAX;
    }
    Ok(repairs)
}

fn enrolment() -> Enrolment {
    let base64 = base64::engine::general_purpose::STANDARD;
    let part =
        Part { id: "bench".into(), name: "bench".into(), role: Role::Controller, public_key: String::new() };
    let (fleet, secret_key) = ("fleet".into(), base64.encode([7; 32]));
    Enrolment { fleet, part, secret_key, parts: vec![], checksum_key: None }
}

/// Fileservers whose agents say that all is well, and hold what SQL says.
async fn agents(shutdown: &Shutdown, side: &mut PgConnection) -> anyhow::Result<()> {
    for number in 1..=FILESERVERS {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        sqlx::query("UPDATE fileservers SET url = $1 WHERE id = $2")
            .bind(url)
            .bind(number)
            .execute(&mut *side)
            .await?;
        let router = axum::Router::new()
            .route("/v1/status", axum::routing::get(move || async move { axum::Json(status(number)) }))
            .route("/v1/inventory", axum::routing::get(move || async move { axum::Json(inventory(number)) }));
        let stop = shutdown.token();
        shutdown.spawn(async move {
            let _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        });
    }
    Ok(())
}

fn status(number: i64) -> Status {
    Status {
        fileserver: format!("fs-{number}"),
        start_id: format!("start-{number}"),
        root_id: format!("root-{number}"),
        root: format!("/root-{number}"),
        capacity: 1 << 40,
        whole_disk: false,
        disk_used: 1,
        disk_free: 1 << 40,
        load: 0,
        processes: 0,
        long_reads: 0,
        agent_version: "bench".into(),
        git_version: "2".into(),
        inventory_generation: 1,
        inventory_complete: true,
        parts_digest: PartsList { parts: Vec::new() }.digest(),
        locks_removed: 0,
        highest_repair_epoch: 0,
        highest_push_epoch: 0,
        trouble: None,
    }
}

fn inventory(number: i64) -> InventoryPage {
    InventoryPage { start_id: format!("start-{number}"), generation: 1, entries: Vec::new(), more: false }
}

/// A fleet, and a ready finding about a replica of each of so many repositories.
async fn seed(side: &mut PgConnection, backlog: i64) -> anyhow::Result<()> {
    let texts = [
        "INSERT INTO racks (name) SELECT 'rack-' || n FROM generate_series(1, $2) AS n WHERE $1 > 0",
        "INSERT INTO fileservers (name, rack_id, url, health, health_since, counts, start_id, compared_start_id, root_id, \
                seen_root_id, capacity, disk_free, inventory_generation) \
         SELECT 'fs-' || n, n, 'http://127.0.0.1:1', 'online', 0, true, 'start-' || n, 'start-' || n, 'root-' || n, \
                'root-' || n, 1::bigint << 40, 1::bigint << 40, 1 FROM generate_series(1, $2) AS n WHERE $1 > 0",
        "INSERT INTO repositories (id, name, bytes, checksum, checksum_key, created_at) \
         SELECT n, 'r' || n, 100, decode(repeat('01', 32), 'hex'), 1, 0 FROM generate_series(1, $1) AS n WHERE $2 > 0",
        "INSERT INTO replicas (repository_id, fileserver_id, state, version, checksum, checksum_key, in_sync, state_since) \
         SELECT n, 1 + n % $2, 'live', 0, decode(repeat('01', 32), 'hex'), 1, true, 0 FROM generate_series(1, $1) AS n",
        "INSERT INTO findings (goal, subject, repository_id, fileserver_id, repair, lane, priority, hints, evidence, \
                opened_at, opened_evaluation, state, next_at) \
         SELECT 'bench', 'replica:' || n || ':' || (1 + n % $2), n, 1 + n % $2, 'verify', 0, 500, '{}', '{}', 0, 1, 'ready', 0 \
           FROM generate_series(1, $1) AS n",
    ];
    for text in texts {
        sqlx::query(text).bind(backlog).bind(FILESERVERS).execute(&mut *side).await?;
    }
    sqlx::raw_sql("ANALYZE").execute(&mut *side).await?;
    Ok(())
}

/// What an evaluation would do: what was repaired and is still there is ready again.
async fn refill(side: &mut PgConnection, _: i64) -> anyhow::Result<()> {
    let text = "UPDATE findings SET state = 'ready', deferral = NULL, repaired_at = NULL WHERE repaired_at IS NOT NULL";
    sqlx::query(text).execute(side).await?;
    Ok(())
}

struct Measure {
    transactions: i64,
    wal: i64,
    redis: Option<i64>,
}

async fn measure(side: &mut PgConnection) -> anyhow::Result<Measure> {
    sqlx::query("SELECT pg_stat_clear_snapshot()").execute(&mut *side).await?;
    let text = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let transactions = sqlx::query_scalar(text).fetch_one(&mut *side).await?;
    let text = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
    let wal = sqlx::query_scalar(text).fetch_one(&mut *side).await?;
    Ok(Measure { transactions, wal, redis: redis_commands() })
}

/// Commands that Redis has processed, by its own count; none: there is no Redis.
fn redis_commands() -> Option<i64> {
    let url = std::env::var("TRUED_TEST_REDIS_URL").ok()?;
    let (password, place) = match url.strip_prefix("redis://")?.rsplit_once('@') {
        Some((who, place)) => (Some(who.trim_start_matches(':').to_owned()), place.to_owned()),
        None => (None, url.strip_prefix("redis://")?.to_owned()),
    };
    let mut stream = std::net::TcpStream::connect(place.trim_end_matches('/')).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let login = password.map_or_else(String::new, |password| format!("AUTH {password}\r\n"));
    stream.write_all(format!("{login}INFO stats\r\nQUIT\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let line = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:"))?;
    line.trim().parse().ok()
}

#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn print(backlog: i64, count: u64, took: Duration, before: &Measure, after: &Measure) {
    let each = |total: i64| total as f64 / count.max(1) as f64;
    let redis = before.redis.zip(after.redis).map_or_else(
        || "no Redis".to_owned(),
        |(before, after)| format!("{:.3} Redis commands", each(after - before)),
    );
    println!(
        "{backlog} open findings: {count} attempts in {:.1} s, {:.0} a second; each {:.2} transactions, {:.0} bytes of WAL, {redis}",
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64(),
        each(after.transactions - before.transactions),
        each(after.wal - before.wal),
    );
}

/// What a claim of sixteen takes with an empty history, and with ten million ended attempts.
async fn claims(scratch: &Scratch) -> anyhow::Result<()> {
    const ENDED: i64 = 10_000_000;
    let mut side = PgConnection::connect(scratch.url()).await?;
    seed(&mut side, 20_000).await?;
    let empty = claim_and_finish(scratch, &mut side, 0).await?;
    let text = "INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, repair, step, number, outcome, plan, \
                destination_id, bytes, epoch, worker, queued_at, started_at, finished_at, message) \
         SELECT n, n, 'bench', 'replica:1:1', 1 + n % 20000, 'verify', 'verify', 1, 'succeeded', '{}', 1, 0, 1, 'w', n, n, n, 'm' \
           FROM generate_series($1, $2) AS n";
    for start in (1..=ENDED).step_by(500_000) {
        sqlx::query(text).bind(start + 1_000_000_000).bind(start + 1_000_499_999).execute(&mut side).await?;
    }
    sqlx::raw_sql("ANALYZE").execute(&mut side).await?;
    let full = claim_and_finish(scratch, &mut side, 1).await?;
    let (empty, full) = (empty.as_secs_f64() * 1e3, full.as_secs_f64() * 1e3);
    println!(
        "a claim of 16: {empty:.2} ms with no ended attempt, {full:.2} ms with {ENDED}: {:.2} of it",
        full / empty
    );
    Ok(())
}

/// The median time of a claim.
async fn claim_and_finish(scratch: &Scratch, side: &mut PgConnection, turn: i64) -> anyhow::Result<Duration> {
    let text = "INSERT INTO attempts (finding_id, goal, subject, repository_id, repair, step, number, state, lane, priority, \
                plan, destination_id, queued_at) \
         SELECT n + 100000 * $1, 'bench', 'replica:' || n || ':1', n, 'verify', 'verify', 1, 'queued', 0, 500, \
                jsonb_build_object('step', 'verify', 'repository_id', n, 'source_id', NULL, 'destination_id', 1, 'bytes', 0, \
                       'deadline_ms', 1000, 'bytes_per_second', 0, 'write_lock', false), 1, 0 \
           FROM generate_series(1, 8000) AS n";
    sqlx::query(text).bind(turn).execute(&mut *side).await?;
    let db = scratch.database();
    let steps: Vec<&str> = Step::ALL.iter().map(|step| step.as_str()).collect();
    let mut took = Vec::new();
    loop {
        let began = Instant::now();
        let claimed = attempts::claim(db, "bench", 16, 60_000, &steps).await?;
        if claimed.is_empty() {
            break;
        }
        took.push(began.elapsed());
    }
    sqlx::query("DELETE FROM attempts").execute(side).await?;
    took.sort_unstable();
    Ok(took[took.len() / 2])
}
