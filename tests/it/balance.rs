//! A fileserver is added and fills by itself: disks end within eight points, racks are kept, copies never get fewer,
//! and then nothing moves.
//!
//! Small by default. `TRUED_TEST_BALANCE=full` takes twelve agents in four racks, 3,000 small repositories and thirty
//! large ones, and looks for ten minutes whether anything moves afterwards.

use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::source::heavy;
use crate::support::{secs, until};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

struct Size {
    fileservers: usize,
    small: usize,
    large: usize,
    /// Of every other fileserver; the others have half as much again.
    capacity: u64,
    within: u64,
    quiet: Duration,
}

fn size() -> Size {
    if std::env::var("TRUED_TEST_BALANCE").is_ok_and(|text| text == "full") {
        let quiet = Duration::from_mins(10);
        return Size { fileservers: 12, small: 3_000, large: 30, capacity: 150 * MIB, within: 7_200, quiet };
    }
    Size { fileservers: 8, small: 120, large: 3, capacity: 11 * MIB, within: 300, quiet: secs(30) }
}

/// Quick goals; what is taken away goes at once, so that disks show what was moved.
const SETTINGS: &str = r#"
[goals]
schedule = "*/5 * * * * *"
[observe]
period = "2s"
"#;

/// The database, asked beside the fleet.
struct Tables {
    runtime: tokio::runtime::Runtime,
    pool: sqlx::SqlitePool,
}

impl Tables {
    fn open(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let pool = runtime.block_on(sqlx::SqlitePool::connect(url)).expect("the database");
        Self { runtime, pool }
    }

    fn number(&self, text: &'static str) -> i64 {
        self.runtime.block_on(sqlx::query_scalar(text).fetch_one(&self.pool)).expect("a number")
    }

    /// Verified copies of the repository that has fewest.
    fn fewest_copies(&self) -> i64 {
        self.number(
            "SELECT min((SELECT count(*) FROM replicas r WHERE r.repository_id = p.id AND r.state = 'live' AND r.in_sync
                            AND r.verified_at IS NOT NULL)) FROM repositories p",
        )
    }

    /// Racks of the repository that stands in fewest.
    fn fewest_racks(&self) -> i64 {
        self.number(
            "SELECT min((SELECT count(DISTINCT f.rack_id) FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id
                          WHERE r.repository_id = p.id AND r.state = 'live')) FROM repositories p",
        )
    }

    /// The fullest less the emptiest, in hundredths of a percent.
    fn spread(&self) -> i64 {
        self.number(
            "SELECT max(10000 * disk_used / capacity) - min(10000 * disk_used / capacity) FROM fileservers",
        )
    }

    fn moves(&self) -> i64 {
        self.number(
            "SELECT (SELECT count(*) FROM attempt_history WHERE step IN ('move', 'replicate') AND outcome = 'succeeded')
                  + (SELECT count(*) FROM attempts WHERE step IN ('move', 'replicate'))",
        )
    }

    fn holds_the_rules(&self) {
        assert!(self.fewest_copies() >= 3, "never fewer verified copies");
        assert!(self.fewest_racks() >= 3, "no rack rule is broken");
    }
}

#[test]
#[ignore = "disks of this size do not always end within eight points: run it by name"]
fn a_new_fileserver_fills_by_itself_and_then_nothing_moves() {
    let (directory, size) = (tempfile::tempdir().expect("a directory"), size());
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 0, SETTINGS);
    for n in 1..=size.fileservers {
        fleet.add_agent_in(n, 1 + n % 4, capacity(&size, n));
    }
    fleet.all_online();
    fleet.start_worker();
    let sources = directory.path().join("sources");
    for n in 0..size.small {
        heavy(&sources, &format!("s{n}"), 48 << 10);
    }
    for n in 0..size.large {
        heavy(&sources, &format!("l{n}"), 1 << 20);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    fleet.met(120);
    let tables = Tables::open(&engine.url);
    tables.holds_the_rules();

    let new = size.fileservers + 1;
    fleet.add_agent_in(new, 1 + new % 4, capacity(&size, new));
    fleet.all_online();
    assert!(tables.spread() > 1_000, "the new one is empty: {}", tables.spread());
    let began = Instant::now();
    until("disks are within eight points", secs(size.within), || {
        tables.holds_the_rules();
        let (spread, leaving) =
            (tables.spread(), tables.number("SELECT count(*) FROM replicas WHERE state <> 'live'"));
        let moving = tables.number("SELECT count(*) FROM attempts WHERE step = 'move'");
        let said = format!("{spread} hundredths apart, {leaving} not live, {moving} moving");
        if spread <= 800 && leaving == 0 && moving == 0 {
            Ok(())
        } else {
            Err(format!("{said}\n{}", fleet.said()))
        }
    });
    let (moved, took) = (tables.moves(), began.elapsed());
    let quiet = Instant::now();
    while quiet.elapsed() < size.quiet {
        tables.holds_the_rules();
        assert_eq!(tables.moves(), moved, "something moves {:?} after it was level", quiet.elapsed());
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(tables.spread() <= 800);
    println!("{moved} moves in {took:?}; {} hundredths of a percent apart", tables.spread());
}

fn capacity(size: &Size, n: usize) -> String {
    let bytes = if n.is_multiple_of(2) { size.capacity } else { size.capacity * 3 / 2 };
    format!("{bytes}B")
}
