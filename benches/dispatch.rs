//! What a dispatch round costs while 350,000 findings are open and 50,000 of them became due in the same second.
//!
//! `cargo bench --bench dispatch [-- OPEN DUE ROUNDS]`; SQLite always, PostgreSQL where `TRUED_TEST_POSTGRES_URL`
//! names a server. After each round everything that it started is done, so that each next round has work, and every
//! fileserver was heard of. Prints the
//! median and the 99th percentile of the rounds, the first round's time, what was started, and the growth of the
//! process's memory. The numbers worth keeping are in `docs/performance.md`.

use base64::Engine as _;
use sqlx::{Connection as _, PgConnection};
use std::sync::Arc;
use std::time::Duration;
use trued::controller::{Controller, Settings};
use trued::database::scratch::{Crowd, Scratch};
use trued::database::{Database, attempts};
use trued::fleet::Agents;
use trued::goal::library::Library;
use trued::goal::session::Source;
use trued::model::attempt::{AttemptEvent, Ending};
use trued::model::chance::Chance;
use trued::model::grant::{Enrolment, Part, Role};
use trued::queue::{Nudge, Reminders};
use trued::repair::{Repairs, library};

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<i64>().ok());
    let (open, due) = (numbers.next().unwrap_or(350_000), numbers.next().unwrap_or(50_000));
    let rounds = usize::try_from(numbers.next().unwrap_or(200))?;
    let crowd = Crowd { fileservers: 300, open, due };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        measure("SQLite", &Scratch::sqlite().await?, crowd, rounds).await?;
        if let Ok(url) = std::env::var("TRUED_TEST_POSTGRES_URL") {
            measure("PostgreSQL", &Scratch::postgres(&url).await?, crowd, rounds).await?;
        }
        Ok(())
    })
}

async fn measure(engine: &str, scratch: &Scratch, crowd: Crowd, rounds: usize) -> anyhow::Result<()> {
    let db = scratch.database();
    crowd.fill(db).await?;
    if scratch.url().starts_with("postgres") {
        // As autovacuum does a minute after such a load; in the middle of a measurement it would be measured, too. Tables
        // that are empty are left: vacuumed, they would be believed to stay so.
        let text = "VACUUM ANALYZE findings, repositories, replicas";
        sqlx::raw_sql(text).execute(&mut PgConnection::connect(scratch.url()).await?).await?;
    }
    let directory = tempfile::tempdir()?;
    let source = Source::new(scratch.url())?;
    let goals = Library::load(directory.path(), source.clone(), std::collections::BTreeMap::new()).await?;
    let metrics = Arc::default();
    let controller = Controller {
        name: "bench".into(),
        settings: Settings::default(),
        database: db.clone(),
        source,
        goals,
        repairs: Arc::new(repairs()?),
        agents: Agents::new(&enrolment())?,
        reminders: Reminders::in_process(),
        nudge: Nudge::new(),
        metrics: Arc::clone(&metrics),
        pace: Arc::new(std::sync::atomic::AtomicU32::new(100)),
        chance: Arc::new(Chance::new(1)),
    };
    let before = resident();
    let mut took = controller.measure(rounds, async || finish_all(db).await.unwrap_or_default()).await?;
    let first = took.first().copied().unwrap_or_default();
    took.sort_unstable();
    let at =
        |share: usize| took.get((took.len() * share / 100).min(took.len() - 1)).copied().unwrap_or_default();
    println!(
        "{engine}, {} open, {} due at once, {rounds} rounds: first {:.1} ms, median {:.1} ms, 99th percentile {:.1} ms; \
         {} started; {} MB more memory",
        crowd.open,
        crowd.due,
        ms(first),
        ms(at(50)),
        ms(at(99)),
        metrics.admitted.load(std::sync::atomic::Ordering::Relaxed),
        resident().saturating_sub(before) / 1024,
    );
    Ok(())
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The shipped repairs; only the rate does not bind, so that each round has as much to start as it may.
fn repairs() -> anyhow::Result<Repairs> {
    let mut repairs = library::shipped()?;
    for repair in repairs.by_name.values_mut() {
        Arc::make_mut(repair).throttle.starts_per_minute = 1_000_000;
    }
    Ok(repairs)
}

/// Workers that do at once what was started, and agents that say how they are.
async fn finish_all(db: &Database) -> anyhow::Result<()> {
    let done = Ending { event: AttemptEvent::Succeed, message: "done".into(), bytes: 0, blame: None };
    for attempt in attempts::claim(db, "w", 1_000, 600_000, &["replicate"]).await? {
        attempts::finish(db, attempt.id, attempt.epoch, &done, 0).await?;
    }
    Ok(Crowd::heard(db).await?)
}

/// Kibibytes that the process has in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn enrolment() -> Enrolment {
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let public_key = base64.encode(key.verifying_key().to_bytes());
    let part = Part { id: "c".into(), name: "c".into(), role: Role::Controller, public_key };
    Enrolment {
        fleet: "fleet".into(),
        part,
        secret_key: base64.encode([7; 32]),
        parts: vec![],
        checksum_key: None,
    }
}
