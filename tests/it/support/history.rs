//! What SQL remembers of attempts, read past the program.

use std::str::FromStr as _;

/// One ended attempt.
#[derive(Debug, Clone)]
pub struct Ended {
    pub repository: i64,
    pub repair: String,
    pub outcome: String,
    pub epoch: i64,
    pub queued_at: i64,
    pub started_at: Option<i64>,
    pub finished_at: i64,
}

const TEXT: &str = "SELECT repository_id, repair, outcome, epoch, queued_at, started_at, finished_at \
                      FROM attempt_history ORDER BY finished_at, id";

type Row = (i64, String, String, i64, i64, Option<i64>, i64);

/// All ended attempts, in the order of their ends.
pub fn attempts(url: &str) -> Vec<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rows: Vec<Row> = runtime.block_on(async {
        if url.starts_with("sqlite:") {
            use sqlx::ConnectOptions as _;
            let options = sqlx::sqlite::SqliteConnectOptions::from_str(url).expect("a URL").read_only(true);
            let mut connection = options.connect().await.expect("the file opens");
            sqlx::query_as(TEXT).fetch_all(&mut connection).await.expect("rows")
        } else {
            use sqlx::Connection as _;
            let mut connection = sqlx::PgConnection::connect(url).await.expect("the server answers");
            sqlx::query_as(TEXT).fetch_all(&mut connection).await.expect("rows")
        }
    });
    let ended = |(repository, repair, outcome, epoch, queued_at, started_at, finished_at): Row| Ended {
        repository,
        repair,
        outcome,
        epoch,
        queued_at,
        started_at,
        finished_at,
    };
    rows.into_iter().map(ended).collect()
}

/// No goal was evaluated twice in one time of its schedule: two that finished began further apart than half of it.
pub fn assert_evaluated_once_a_schedule(url: &str, period_ms: i64) {
    let text = "SELECT goal, began_at FROM evaluations WHERE error IS NULL ORDER BY goal, began_at";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rows: Vec<(String, i64)> = runtime.block_on(async {
        use sqlx::Connection as _;
        let mut connection = sqlx::PgConnection::connect(url).await.expect("the server answers");
        sqlx::query_as(text).fetch_all(&mut connection).await.expect("rows")
    });
    // The first of all is made at once, whenever the next is due.
    let mut seen = std::collections::HashSet::new();
    let rows: Vec<_> = rows.into_iter().filter(|(goal, _)| !seen.insert(goal.clone())).collect();
    let twice: Vec<_> =
        rows.windows(2).filter(|two| two[0].0 == two[1].0 && two[1].1 - two[0].1 < period_ms / 2).collect();
    assert!(rows.len() > 10, "goals were evaluated");
    // A controller that starts evaluates what is overdue at once, so a kill may bring one forward.
    assert!(twice.len() * 50 <= rows.len(), "evaluated twice in a schedule: {twice:?} of {}", rows.len());
}

/// No two attempts on one repository ran at the same time, and each claim had an epoch of its own.
pub fn assert_one_at_a_time(attempts: &[Ended]) {
    for (n, one) in attempts.iter().enumerate() {
        let Some(began) = one.started_at else { continue };
        for other in attempts[..n].iter().filter(|other| other.repository == one.repository) {
            let overlaps =
                other.started_at.is_some_and(|start| start < one.finished_at && began < other.finished_at);
            assert!(!overlaps, "two at once: {other:?} and {one:?}");
            assert!(
                other.started_at.is_none() || other.epoch != one.epoch,
                "one epoch twice: {other:?} and {one:?}"
            );
        }
    }
}
