//! What has ended goes when it is old enough, and nothing else does.

use super::{evaluate, fileservers, make, number, on_each_engine, repository_rows};
use crate::database::audit::{self, Change};
use crate::database::goals;
use crate::database::history::{History, prune};
use crate::database::routing::{Observed, observe};

on_each_engine! {
    async fn closed_findings_are_pruned_by_age_in_bounded_batches(db) {
        evaluate(db, "a", &repository_rows(1..=10)).await;
        evaluate(db, "a", &repository_rows(10..=10)).await;
        make(db, "UPDATE finding_history SET closed_at = repository_id * 100").await;
        assert_eq!(prune(db, History::Findings, 501, 3).await.expect("pruned"), 3);
        assert_eq!(number(db, "SELECT min(closed_at) FROM finding_history").await, 400, "the oldest go first");
        assert_eq!(prune(db, History::Findings, 501, 3).await.expect("pruned"), 2);
        assert_eq!(prune(db, History::Findings, 501, 3).await.expect("pruned"), 0);
        assert_eq!(number(db, "SELECT count(*) FROM finding_history").await, 4);
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 1, "what is open is not history");
    }

    async fn evaluations_are_pruned_and_the_last_word_of_a_goal_stays(db) {
        evaluate(db, "a", &repository_rows(1..=2)).await;
        evaluate(db, "a", &repository_rows(1..=2)).await;
        make(db, "UPDATE evaluations SET began_at = 5 WHERE id = (SELECT min(id) FROM evaluations)").await;
        assert_eq!(prune(db, History::Evaluations, 6, 100).await.expect("pruned"), 1);
        assert_eq!(number(db, "SELECT count(*) FROM evaluations").await, 1);
        assert_eq!(prune(db, History::Evaluations, i64::MAX, 100).await.expect("pruned"), 1);
        assert_eq!(goals::states(db).await.expect("states")[0].findings, 2);
    }

    async fn who_changed_what_goes_with_the_years_and_what_observers_saw_with_the_days(db) {
        for n in 1..=5 {
            let change = Change {
                who: "alice", what: "fileserver.quiesce", subject: "fs-1", reason: None, detail: n.into(),
            };
            audit::append(db, &change).await.expect("kept");
        }
        make(db, "UPDATE audit SET at = id").await;
        assert_eq!(prune(db, History::Audit, 4, 2).await.expect("pruned"), 2);
        assert_eq!(prune(db, History::Audit, 4, 2).await.expect("pruned"), 1);
        assert_eq!(number(db, "SELECT min(at) FROM audit").await, 4);
        let seen = fileservers(db, 2).await;
        let all = [0, 1].map(|n| Observed { fileserver: seen[n], online: true });
        for observer in ["rt-1", "rt-2"] {
            observe(db, observer, "rack2", &all).await.expect("written");
        }
        make(db, "UPDATE observations SET at = 7 WHERE observer = 'rt-1'").await;
        assert_eq!(prune(db, History::Observations, 8, 1).await.expect("pruned"), 1);
        assert_eq!(prune(db, History::Observations, 8, 100).await.expect("pruned"), 1);
        assert_eq!(number(db, "SELECT count(*) FROM observations WHERE observer = 'rt-2'").await, 2);
    }

    async fn ended_attempts_are_pruned_by_their_end(db) {
        make(
            db,
            "INSERT INTO attempt_history (id, finding_id, goal, subject, repair, step, number, outcome, plan, bytes, \
                    epoch, queued_at, finished_at, message) \
             SELECT id, id, 'a', 'repository:1', 'resync', 'resync', 1, 'succeeded', '{}', 0, 0, 1, id * 10, 'm' \
               FROM (SELECT 1 AS id UNION ALL SELECT 2 UNION ALL SELECT 3) AS n",
        )
        .await;
        assert_eq!(prune(db, History::Attempts, 30, 100).await.expect("pruned"), 2);
        assert_eq!(number(db, "SELECT id FROM attempt_history").await, 3);
    }

    async fn what_was_tried_is_kept_while_a_finding_waits_for_a_person(db) {
        evaluate(db, "a", &repository_rows(1..=2)).await;
        make(
            db,
            "INSERT INTO attempt_history (id, finding_id, goal, subject, repair, step, number, outcome, plan, bytes, \
                    epoch, queued_at, finished_at, message) \
             SELECT id, id, goal, subject, 'resync', 'resync', 1, 'failed', '{}', 0, 0, 1, 10, 'm' FROM findings",
        )
        .await;
        make(db, "UPDATE findings SET state = 'stuck' WHERE id = (SELECT min(id) FROM findings)").await;
        assert_eq!(prune(db, History::Attempts, 30, 100).await.expect("pruned"), 1);
        make(db, "UPDATE findings SET state = 'waiting'").await;
        assert_eq!(prune(db, History::Attempts, 30, 100).await.expect("pruned"), 1);
    }
}
