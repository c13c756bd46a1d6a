//! Rows past a goal's bound, counts that are lower bounds, and evaluations that are cut off.

use super::{evaluate, goal, make, next_moment, number, on_each_engine, repository_rows};
use crate::database::Database;
use crate::database::findings::{Merge, MergeInto, Merged};
use crate::database::goals;
use crate::model::finding::Exception;
use crate::model::goal::GoalStatus;

/// An evaluation of a goal that keeps three findings.
async fn bounded(db: &Database, rows: &[Exception], more: bool) -> Merged {
    let now = db.now().await.expect("the clock");
    let into = MergeInto { most: 3, ..goal("a", now) };
    let mut merge = Merge::begin(db, into).await.expect("a merge");
    for chunk in rows.chunks(2) {
        merge.add(chunk).await.expect("rows");
    }
    if more {
        merge.more();
    }
    merge.finish(1).await.expect("merged")
}

async fn status(db: &Database) -> GoalStatus {
    goals::states(db).await.expect("states").remove(0)
}

async fn kept(db: &Database) -> (i64, i64) {
    let sum = "SELECT CAST(COALESCE(sum(repository_id), 0) AS BIGINT) FROM findings";
    (number(db, "SELECT count(*) FROM findings").await, number(db, sum).await)
}

on_each_engine! {
    async fn rows_past_the_bound_are_counted_and_not_kept(db) {
        let merged = bounded(db, &repository_rows(1..=9), false).await;
        assert_eq!((merged.returned, merged.at_least, merged.opened), (9, false, 3));
        assert_eq!(kept(db).await, (3, 6));
        let status = status(db).await;
        assert_eq!((status.findings, status.at_least), (9, false));
        assert_eq!(number(db, "SELECT findings FROM evaluations").await, 9);
    }

    async fn the_order_of_rows_neither_opens_nor_closes_what_is_past_the_bound(db) {
        bounded(db, &repository_rows(1..=9), false).await;
        let merged = bounded(db, &repository_rows((1..=9).rev()), false).await;
        assert_eq!((merged.returned, merged.opened, merged.closed, merged.changed), (9, 0, 0, 0));
        assert_eq!(kept(db).await, (3, 6));
        // One of them is put right: another takes its place, and the two others stand.
        let merged = bounded(db, &repository_rows((2..=9).rev()), false).await;
        assert_eq!((merged.returned, merged.opened, merged.closed), (8, 1, 1));
        assert_eq!(kept(db).await, (3, 2 + 3 + 9));
    }

    async fn what_was_not_read_to_its_end_closes_nothing_and_counts_at_least(db) {
        bounded(db, &repository_rows(1..=2), false).await;
        let merged = bounded(db, &repository_rows(5..=8), true).await;
        assert_eq!((merged.returned, merged.at_least, merged.opened, merged.closed), (4, true, 1, 0));
        assert_eq!(kept(db).await, (3, 1 + 2 + 5));
        let state = status(db).await;
        assert_eq!((state.findings, state.at_least), (4, true));
        let merged = bounded(db, &repository_rows(5..=5), false).await;
        assert_eq!((merged.closed, merged.at_least), (2, false), "now it is known");
        assert!(!status(db).await.at_least);
    }

    async fn what_did_not_come_is_not_judged(db) {
        bounded(db, &repository_rows(1..=2), false).await;
        make(db, "UPDATE findings SET state = 'waiting', repaired_at = (SELECT now FROM clock)").await;
        next_moment(db).await;
        bounded(db, &repository_rows(2..=2), true).await;
        let judged = "SELECT repository_id FROM findings WHERE ineffective = 1";
        assert_eq!(number(db, judged).await, 2);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE ineffective = 0").await, 1);
    }

    async fn a_connection_cut_after_row_500_of_1000_changes_nothing(db) {
        evaluate(db, "a", &repository_rows(400..=600)).await;
        let before = (kept(db).await, status(db).await);
        let rows = repository_rows(1..=1_000);
        let now = next_moment(db).await;
        let mut merge = Merge::begin(db, goal("a", now)).await.expect("a merge");
        merge.add(&rows[..500]).await.expect("rows");
        cut(db).await;
        if db.engine() == crate::database::Engine::Postgres {
            assert!(merge.add(&rows[500..]).await.is_err(), "its connection is gone");
        }
        drop(merge);
        assert_eq!((kept(db).await, status(db).await), before);
        assert_eq!(number(db, "SELECT count(*) FROM evaluations").await, 1);
        assert_eq!(number(db, "SELECT count(*) FROM finding_history").await, 0);
        // Whoever comes next finds the way free.
        evaluate(db, "a", &rows).await;
        assert_eq!(kept(db).await.0, 1_000);
    }
}

/// Ends the session that collects rows. A file has no sessions: there the evaluation's process is gone.
async fn cut(db: &Database) {
    let crate::database::Pools::Postgres(server) = db.pools() else { return };
    let text = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
                 WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE '/* findings::add%'";
    let ended: i64 = sqlx::query_scalar(text).fetch_one(&server.pool()).await.expect("ended");
    assert_eq!(ended, 1);
}
