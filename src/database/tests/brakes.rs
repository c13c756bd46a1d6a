//! Brakes in the merge, their release, and findings that must last before they start.

use super::{
    fileservers, goal, make, merge, next_moment, number, on_each_engine, repository, repository_rows,
};
use crate::database::brakes;
use crate::database::findings::{self, BrakeAt, MergeInto};
use crate::model::Millis;
use crate::model::brake::{Bound, CLEAR_AFTER};

fn braked(began_at: Millis) -> MergeInto {
    let bound = Bound { count: Some(10), share: Some(0.2) };
    MergeInto { brake: Some(BrakeAt { bound, population: Some(20) }), ..goal("a", began_at) }
}

on_each_engine! {
    async fn a_flood_is_held_from_its_first_moment_and_released_by_approval(db) {
        merge(db, braked(next_moment(db).await), &repository_rows(1..=11)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'held' AND held_by = 'goal:a'").await, 11);
        assert_eq!(brakes::held(db).await.expect("held"), [("goal:a".to_owned(), 11)]);
        // Who grows is held, too, and nothing comes out by itself.
        merge(db, braked(next_moment(db).await), &repository_rows(1..=12)).await;
        findings::promote_due(db, 100).await.expect("promoted");
        assert!(findings::ready_lanes(db).await.expect("lanes").is_empty());
        let names = ["goal:a".to_owned(), "removals:a".to_owned()];
        assert_eq!(brakes::approve(db, &names, "local", "a real flood").await.expect("approved"), ["goal:a"]);
        assert!(brakes::approve(db, &names, "local", "again").await.expect("approved").is_empty());
        let audited = "SELECT count(*) FROM audit WHERE what = 'brake.approve' AND reason = 'a real flood'";
        assert_eq!(number(db, audited).await, 1);
        assert_eq!(brakes::release(db, 5).await.expect("released"), 5, "in batches");
        brakes::release(db, 100).await.expect("released");
        assert_eq!(findings::promote_due(db, 100).await.expect("promoted"), 12);
        // It stays released while the flood lasts.
        merge(db, braked(next_moment(db).await), &repository_rows(1..=13)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 13);
    }

    async fn a_brake_lets_go_after_several_evaluations_without_its_cause(db) {
        merge(db, braked(next_moment(db).await), &repository_rows(1..=11)).await;
        for _ in 1..CLEAR_AFTER {
            merge(db, braked(next_moment(db).await), &repository_rows(1..=10)).await;
            brakes::release(db, 100).await.expect("released");
            assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'held'").await, 10);
        }
        merge(db, braked(next_moment(db).await), &repository_rows(1..=10)).await;
        assert_eq!(brakes::release(db, 100).await.expect("released"), 10);
        brakes::release(db, 100).await.expect("forgotten");
        assert!(brakes::all(db).await.expect("brakes").is_empty());
    }

    async fn explained_findings_and_last_copies_are_not_counted(db) {
        let ids = fileservers(db, 3).await;
        for name in 1..=12 {
            repository(db, &format!("r{name}"), 3, &ids).await;
        }
        make(db, "UPDATE fileservers SET counts = FALSE, health = 'offline' WHERE name = 'fs2'").await;
        merge(db, braked(next_moment(db).await), &repository_rows(1..=12)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'held'").await, 0);
        // The same is doubtful while too many fileservers are away at once.
        make(db, "INSERT INTO brakes (name, since, reason) VALUES ('offline', 1, 'x')").await;
        merge(db, braked(next_moment(db).await), &repository_rows(1..=12)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'held'").await, 12);
        let last = MergeInto { goal: "last".to_owned(), last_copies: true, ..braked(next_moment(db).await) };
        merge(db, last, &repository_rows(1..=12)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE goal = 'last' AND state = 'ready'").await, 12);
    }

    async fn many_unexplained_removals_are_held_whatever_the_goals_own_brake(db) {
        let removing = |at| MergeInto { removes: true, ..goal("a", at) };
        merge(db, removing(next_moment(db).await), &repository_rows(1..=50)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'held'").await, 0);
        merge(db, removing(next_moment(db).await), &repository_rows(1..=51)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE held_by = 'removals:a'").await, 51);
    }

    async fn a_subject_must_be_returned_as_often_in_a_row_as_its_goal_asks(db) {
        let lasting = |at| MergeInto { in_a_row: 3, ..goal("a", at) };
        for _ in 1..=2 {
            merge(db, lasting(next_moment(db).await), &repository_rows(1..=2)).await;
            findings::promote_due(db, 100).await.expect("promoted");
            assert!(findings::ready_lanes(db).await.expect("lanes").is_empty());
        }
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE deferral IS NOT NULL AND ripe_at = 3").await, 2);
        // One goes away and comes again: it begins anew.
        merge(db, lasting(next_moment(db).await), &repository_rows(1..=1)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 1);
        merge(db, lasting(next_moment(db).await), &repository_rows(1..=2)).await;
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE state = 'ready'").await, 1);
        assert_eq!(number(db, "SELECT ripe_at FROM findings WHERE repository_id = 2").await, 6);
    }
}
