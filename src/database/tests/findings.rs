//! The merge of evaluations, and what dispatch sees of it.

use super::{about, evaluate, goal, make, merge, next_moment, number, on_each_engine, repository_rows};
use crate::database::findings::{self, Merge};
use crate::database::{Database, DatabaseError, goals};
use crate::model::finding::{Deferral, Finding, FindingState, Lane, Subject};
use crate::model::goal::GoalState;
use crate::model::id::{FileserverId, FindingId, RepositoryId};

async fn head(db: &Database) -> Vec<Finding> {
    findings::lane_head(db, Lane::Common, 1_000, 1_000).await.expect("a lane's head")
}

/// As an attempt that succeeded at a moment leaves its finding.
async fn repaired(db: &Database) {
    make(db, "UPDATE findings SET state = 'waiting', repaired_at = (SELECT now FROM clock)").await;
}

on_each_engine! {
    async fn what_is_returned_opens_and_what_is_not_closes_into_history(db) {
        let merged = evaluate(db, "a", &repository_rows(1..=3)).await;
        assert_eq!((merged.returned, merged.opened, merged.closed, merged.changed), (3, 3, 0, 0));
        let merged = evaluate(db, "a", &repository_rows(2..=4)).await;
        assert_eq!((merged.returned, merged.opened, merged.closed, merged.changed), (3, 1, 1, 0));
        assert_eq!(number(db, "SELECT count(*) FROM finding_history WHERE subject = 'repository:1'").await, 1);
        assert_eq!(number(db, "SELECT count(*) FROM finding_history WHERE closed_at < opened_at").await, 0);
        let open = head(db).await;
        assert_eq!(open.len(), 3);
        assert_eq!(open[0].subject, Subject::Repository(RepositoryId(2)));
        assert_eq!(open[0].evidence, repository_rows([2])[0].evidence);
        assert_eq!(open[0].state, FindingState::Ready);
    }

    async fn merging_the_same_set_twice_writes_no_finding(db) {
        let rows = repository_rows(1..=2_500);
        evaluate(db, "a", &rows).await;
        make(db, "CREATE TABLE written (what TEXT)").await;
        watch(db).await;
        let merged = evaluate(db, "a", &rows).await;
        assert_eq!((merged.returned, merged.opened, merged.closed, merged.changed), (2_500, 0, 0, 0));
        assert_eq!(number(db, "SELECT count(*) FROM written").await, 0);
        make(db, "UPDATE findings SET tries = 1 WHERE subject = 'repository:7'").await;
        assert_eq!(number(db, "SELECT count(*) FROM written").await, 1, "the watch must see writes");
    }

    async fn what_is_returned_otherwise_changes_and_nothing_else(db) {
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let mut rows = repository_rows(1..=3);
        rows[1].priority = 900;
        rows[2].evidence.insert("countable".to_owned(), 1.into());
        let merged = evaluate(db, "a", &rows).await;
        assert_eq!((merged.opened, merged.closed, merged.changed), (0, 0, 2));
        assert_eq!(head(db).await[0].priority, 900);
    }

    async fn goals_do_not_touch_each_others_findings(db) {
        evaluate(db, "a", &repository_rows(1..=3)).await;
        evaluate(db, "b", &repository_rows(2..=2)).await;
        let merged = evaluate(db, "b", &[]).await;
        assert_eq!(merged.closed, 1);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE goal = 'a'").await, 3);
        let states = goals::states(db).await.expect("states");
        let shown: Vec<_> = states.iter().map(|state| (state.goal.as_str(), state.state, state.findings)).collect();
        assert_eq!(shown, [("a", GoalState::Unmet, 3), ("b", GoalState::Met, 0)]);
    }

    async fn a_subject_that_comes_twice_is_refused_by_its_name_and_nothing_changes(db) {
        for batches in [vec![vec![5, 6, 5]], vec![vec![5, 6], vec![7, 6]]] {
            let now = db.now().await.expect("the clock");
            let mut merge = Merge::begin(db, goal("a", now)).await.expect("a merge");
            for batch in &batches {
                merge.add(&repository_rows(batch.iter().copied())).await.expect("rows");
            }
            let last = merge.finish(1).await;
            let Err(DatabaseError::Refused(message)) = last else { panic!("it was not refused") };
            let twice = if batches.len() == 1 { "repository:5 " } else { "repository:6 " };
            assert!(message.starts_with(twice), "{message}");
        }
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 0);
        evaluate(db, "a", &repository_rows(5..=6)).await;
    }

    async fn a_merge_that_is_dropped_changes_nothing_and_holds_up_nobody(db) {
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let now = db.now().await.expect("the clock");
        let mut merge = Merge::begin(db, goal("a", now)).await.expect("a merge");
        merge.add(&repository_rows(7..=9)).await.expect("rows");
        // Others write while rows are being collected.
        evaluate(db, "b", &repository_rows(1..=1)).await;
        drop(merge);
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE goal = 'a'").await, 3);
        evaluate(db, "a", &repository_rows(1..=2)).await;
    }

    async fn many_evaluations_at_once_leave_connections_for_others(db) {
        let now = db.now().await.expect("the clock");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..40 {
            let db = db.clone();
            tasks.spawn(async move {
                let mut merge = Merge::begin(&db, goal(&format!("g{number}"), now)).await.expect("a merge");
                merge.add(&repository_rows(1..=5)).await.expect("rows");
                // What a dispatcher does meanwhile.
                findings::ready_lanes(&db).await.expect("lanes");
                merge.add(&repository_rows(6..=9)).await.expect("rows");
                merge.finish(1).await.expect("merged").opened
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().sum::<i64>(), 40 * 9);
    }

    async fn an_evaluation_that_began_earlier_is_not_merged_after_a_later_one(db) {
        let early = db.now().await.expect("the clock");
        next_moment(db).await;
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let mut merge = Merge::begin(db, goal("a", early)).await.expect("a merge");
        merge.add(&repository_rows(1..=1)).await.expect("rows");
        assert!(matches!(merge.finish(1).await, Err(DatabaseError::Refused(_))));
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 3);
    }

    async fn ineffective_attempts_back_off_and_at_last_are_stuck(db) {
        let rows = repository_rows(1..=1);
        evaluate(db, "a", &rows).await;
        for (ineffective, state) in
            [(1, FindingState::Waiting), (2, FindingState::Waiting), (3, FindingState::Stuck)]
        {
            repaired(db).await;
            next_moment(db).await;
            evaluate(db, "a", &rows).await;
            let finding = &findings::of_repository(db, RepositoryId(1)).await.expect("findings")[0];
            assert_eq!((finding.ineffective, finding.state), (ineffective, state));
            match (&finding.deferral, ineffective) {
                (Some(Deferral::CoolingDown { until: Some(until) }), 1 | 2) => {
                    let wait = if ineffective == 1 { 0 } else { 60_000 };
                    assert!((until - db.now().await.expect("the clock") - wait).abs() < 20_000);
                    assert_eq!(finding.next_at, *until);
                }
                (Some(Deferral::Stuck { reason }), 3) => assert!(reason.starts_with("3 attempts")),
                other => panic!("{other:?}"),
            }
        }
        evaluate(db, "a", &[]).await;
        assert_eq!(number(db, "SELECT count(*) FROM finding_history WHERE ineffective = 3").await, 1);
    }

    async fn an_attempt_that_ended_after_the_evaluation_began_is_not_judged_by_it(db) {
        let rows = repository_rows(1..=1);
        evaluate(db, "a", &rows).await;
        let began = next_moment(db).await;
        next_moment(db).await;
        repaired(db).await;
        merge(db, goal("a", began), &rows).await;
        let finding = &findings::of_repository(db, RepositoryId(1)).await.expect("findings")[0];
        assert_eq!((finding.ineffective, finding.state), (0, FindingState::Waiting));
        assert_eq!(findings::promote_due(db, 10).await.expect("promoted"), 0, "it awaits an evaluation");
        next_moment(db).await;
        evaluate(db, "a", &rows).await;
        assert_eq!(findings::of_repository(db, RepositoryId(1)).await.expect("findings")[0].ineffective, 1);
        assert_eq!(findings::promote_due(db, 10).await.expect("promoted"), 1);
    }

    async fn findings_without_a_repair_are_listed_and_never_ready(db) {
        let now = db.now().await.expect("the clock");
        let observe = |began_at| crate::database::findings::MergeInto { repair: None, ..goal("a", began_at) };
        merge(db, observe(now), &repository_rows(1..=2)).await;
        assert_eq!(findings::promote_due(db, 10).await.expect("promoted"), 0);
        assert!(head(db).await.is_empty());
        let merged = evaluate(db, "a", &repository_rows(1..=2)).await;
        assert_eq!(merged.changed, 2, "the goal repairs now");
        assert_eq!(head(db).await.len(), 2);
        let later = db.now().await.expect("the clock");
        merge(db, observe(later), &repository_rows(1..=2)).await;
        assert!(head(db).await.is_empty());
    }

    async fn lanes_are_told_apart_and_their_heads_hold_the_urgent_and_the_oldest(db) {
        let mut rows = repository_rows(1..=20);
        for (row, priority) in rows.iter_mut().zip(0..) {
            row.priority = priority;
        }
        evaluate(db, "a", &rows).await;
        let now = db.now().await.expect("the clock");
        let replicas = crate::database::findings::MergeInto {
            subject: crate::model::goal::SubjectKind::Replica,
            ..goal("b", now)
        };
        let on = |fileserver| about(Subject::Replica(RepositoryId(1), FileserverId(fileserver)), 5);
        merge(db, replicas, &[on(7), on(9)]).await;
        let last = crate::database::findings::MergeInto { last_copies: true, ..goal("c", now) };
        merge(db, last, &repository_rows(1..=1)).await;
        let lanes = findings::ready_lanes(db).await.expect("lanes");
        let fileserver = |id| Lane::Fileserver(FileserverId(id));
        assert_eq!(lanes, [Lane::Last, Lane::Common, fileserver(7), fileserver(9)]);
        let head = findings::lane_head(db, Lane::Common, 3, 2).await.expect("a head");
        let subjects: Vec<_> = head.iter().map(|finding| finding.subject.to_string()).collect();
        assert_eq!(subjects, ["repository:20", "repository:19", "repository:18", "repository:2", "repository:1"]);
        let all = findings::lane_head(db, Lane::Common, 20, 20).await.expect("a head");
        assert_eq!(all.len(), 20, "each once");
    }

    async fn the_same_reason_is_not_written_twice(db) {
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let ids: Vec<FindingId> = head(db).await.iter().map(|finding| finding.id).collect();
        let busy = |id| (id, Deferral::NoDestination { causes: vec![("full".to_owned(), 2)] }, None);
        let deferred: Vec<_> = ids.iter().copied().map(busy).collect();
        assert_eq!(findings::defer(db, &deferred).await.expect("deferred"), 3);
        assert_eq!(findings::defer(db, &deferred).await.expect("deferred"), 0);
        assert_eq!(head(db).await[0].deferral, Some(deferred[0].1.clone()));
        let until = db.now().await.expect("the clock") + 600_000;
        let later = [(ids[0], Deferral::CoolingDown { until: Some(until) }, Some(until))];
        assert_eq!(findings::defer(db, &later).await.expect("deferred"), 1);
        assert_eq!(head(db).await.len(), 2);
        assert_eq!(findings::defer(db, &later).await.expect("deferred"), 0, "it is not ready any more");
        assert_eq!(findings::promote_due(db, 10).await.expect("promoted"), 0);
        make(db, "UPDATE findings SET next_at = 1 WHERE state = 'waiting'").await;
        assert_eq!(findings::promote_due(db, 10).await.expect("promoted"), 1);
        assert_eq!(head(db).await[0].deferral, None);
    }

    async fn a_goal_that_is_gone_leaves_nothing_open(db) {
        let declared = |name: &str| goals::Declared {
            goal: name.to_owned(),
            digest: Some("d".to_owned()),
            file_error: None,
            gave_way: None,
        };
        goals::declare(db, &[declared("a"), declared("b")]).await.expect("declared");
        let states = goals::states(db).await.expect("states");
        assert!(states.iter().all(|state| state.state == GoalState::Unknown && state.digest.is_some()));
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let broken = goals::Declared { file_error: Some("a.sql:1:1: no".to_owned()), ..declared("a") };
        goals::declare(db, &[broken]).await.expect("declared");
        let states = goals::states(db).await.expect("states");
        assert_eq!((states.len(), states[0].state), (1, GoalState::Unmet));
        assert_eq!(states[0].file_error.as_deref(), Some("a.sql:1:1: no"));
        // A controller that began with such a file has no version that runs: nobody looks any more.
        let none = goals::Declared { digest: None, file_error: Some("a.sql:1:1: no".to_owned()), ..declared("a") };
        goals::declare(db, &[none]).await.expect("declared");
        let states = goals::states(db).await.expect("states");
        assert_eq!((states[0].state, states[0].error.as_deref()), (GoalState::Unknown, Some("a.sql:1:1: no")));
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 3, "nor is anything of it closed");
        goals::declare(db, &[]).await.expect("declared");
        assert_eq!(number(db, "SELECT count(*) FROM findings").await, 0);
        assert_eq!(number(db, "SELECT count(*) FROM finding_history").await, 3);
    }

    async fn an_edit_that_gave_way_is_remembered_with_since_when(db) {
        let declared = |digest: &str, gave_way: Option<&str>| goals::Declared {
            goal: "a".to_owned(),
            digest: Some(digest.to_owned()),
            file_error: gave_way.map(|_| "a.sql:1:1: timed out".to_owned()),
            gave_way: gave_way.map(str::to_owned),
        };
        let state = async || goals::states(db).await.expect("states").remove(0);
        goals::declare(db, &[declared("d", None)]).await.expect("declared");
        evaluate(db, "a", &repository_rows(1..=3)).await;
        assert_eq!((state().await.ended.as_deref(), state().await.gave_way_at), (Some("d"), None));
        goals::declare(db, &[declared("d", Some("edit"))]).await.expect("declared");
        let since = state().await.gave_way_at;
        assert!(since.is_some());
        make(db, "UPDATE goal_states SET gave_way_at = 7").await;
        goals::declare(db, &[declared("e", Some("edit"))]).await.expect("declared");
        assert_eq!((state().await.gave_way.as_deref(), state().await.gave_way_at), (Some("edit"), Some(7)));
        goals::declare(db, &[declared("f", None)]).await.expect("declared");
        assert_eq!((state().await.gave_way, state().await.gave_way_at), (None, None));
        assert_eq!(state().await.ended.as_deref(), Some("d"));
    }

    async fn an_evaluation_that_failed_changes_no_finding(db) {
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let now = db.now().await.expect("the clock");
        goals::record_failure(db, "a", now, 7, "it took too long").await.expect("recorded");
        goals::record_failure(db, "a", now, 7, "it took too long").await.expect("recorded");
        let state = &goals::states(db).await.expect("states")[0];
        assert_eq!((state.state, state.failures, state.findings), (GoalState::Unknown, 2, 3));
        assert_eq!(head(db).await.len(), 3);
        evaluate(db, "a", &repository_rows(1..=3)).await;
        let state = &goals::states(db).await.expect("states")[0];
        assert_eq!((state.state, state.failures, state.error.as_deref()), (GoalState::Unmet, 0, None));
    }
}

/// Notes each row of `findings` that is written.
async fn watch(db: &Database) {
    if db.engine() == crate::database::Engine::Sqlite {
        make(
            db,
            "CREATE TRIGGER w1 AFTER INSERT ON findings BEGIN INSERT INTO written VALUES ('insert'); END",
        )
        .await;
        make(
            db,
            "CREATE TRIGGER w2 AFTER UPDATE ON findings BEGIN INSERT INTO written VALUES ('update'); END",
        )
        .await;
        make(
            db,
            "CREATE TRIGGER w3 AFTER DELETE ON findings BEGIN INSERT INTO written VALUES ('delete'); END",
        )
        .await;
    } else {
        make(
            db,
            "CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO written VALUES (TG_OP); RETURN NULL; END $$",
        )
        .await;
        make(
            db,
            "CREATE TRIGGER w AFTER INSERT OR UPDATE OR DELETE ON findings \
             FOR EACH ROW EXECUTE FUNCTION watch()",
        )
        .await;
    }
}
