//! Pauses and settings over goals, and tables that come late to a database.

use super::{evaluate, goal, merge, next_moment, number, on_each_engine, repository_rows};
use crate::database::findings::{self, BrakeAt, MergeInto};
use crate::database::{Database, SchemaState, brakes, on_writer, pauses, settings};
use crate::model::brake::Bound;
use crate::model::finding::Deferral;

const HELD: &str = "SELECT count(*) FROM findings WHERE state = 'held'";
const READY: &str = "SELECT count(*) FROM findings WHERE state = 'ready'";

fn paused(by: &str) -> Deferral {
    Deferral::Paused { by: by.to_owned(), until: None, reason: "a rack moves".to_owned() }
}

async fn run(db: &Database, text: &'static str) {
    on_writer!(db, p => sqlx::query(text).execute(p).await.map(drop)).expect("written");
}

on_each_engine! {
    async fn a_pause_holds_in_batches_and_lets_go_of_its_own_alone(db) {
        evaluate(db, "a", &repository_rows(1..=5)).await;
        evaluate(db, "b", &repository_rows(1..=2)).await;
        assert_eq!(findings::hold_goal(db, "a", &paused("anna"), 3).await.expect("held"), 3);
        assert_eq!(findings::hold_goal(db, "a", &paused("anna"), 3).await.expect("held"), 2);
        assert_eq!(findings::hold_goal(db, "a", &paused("anna"), 3).await.expect("held"), 0, "nothing is written twice");
        assert_eq!(findings::hold_goal(db, "a", &paused("berta"), 9).await.expect("held"), 5, "another pause is told");
        assert_eq!((number(db, HELD).await, number(db, READY).await), (5, 2));
        assert_eq!(number(db, "SELECT count(*) FROM findings WHERE held_by IS NOT NULL").await, 0);
        assert_eq!(findings::release_but(db, &["a".to_owned()], 9).await.expect("released"), 0);
        assert_eq!(findings::release_but(db, &[], 9).await.expect("released"), 5);
        assert_eq!(number(db, READY).await, 7);
    }

    async fn a_brake_does_not_release_what_a_pause_holds_nor_a_pause_what_a_brake_holds(db) {
        let bound = Bound { count: Some(10), share: None };
        let brake = Some(BrakeAt { bound, population: Some(20) });
        merge(db, MergeInto { brake, ..goal("a", next_moment(db).await) }, &repository_rows(1..=11)).await;
        evaluate(db, "b", &repository_rows(1..=3)).await;
        assert_eq!(findings::hold_goal(db, "b", &paused("anna"), 99).await.expect("held"), 3);
        assert_eq!(findings::hold_goal(db, "a", &paused("anna"), 99).await.expect("held"), 0, "a brake was first");
        assert_eq!(findings::release_but(db, &["b".to_owned()], 99).await.expect("released"), 0);
        brakes::approve(db, &["goal:a".to_owned()], "local", "right").await.expect("approved");
        assert_eq!(brakes::release(db, 99).await.expect("released"), 11);
        assert_eq!(number(db, HELD).await, 3, "the pause goes on");
        assert_eq!(findings::release_but(db, &[], 99).await.expect("released"), 3);
    }

    async fn a_pause_that_is_over_is_none_and_settings_are_one_value_each(db) {
        let now = db.now().await.expect("now");
        pauses::put(db, "goal:a", "anna", "night", Some(now - 1)).await.expect("put");
        assert!(pauses::all(db).await.expect("pauses").is_empty());
        pauses::put(db, "goal:a", "anna", "night", Some(now + 600_000)).await.expect("put");
        assert_eq!(pauses::all(db).await.expect("pauses")[0].goal(), Some("a"));
        settings::put(db, "a", "mode", "observe", "anna", "look first").await.expect("put");
        settings::put(db, "a", "mode", "repair", "berta", "seen").await.expect("put");
        let all = settings::all(db).await.expect("settings");
        assert_eq!((all.len(), all[0].value.as_str(), all[0].who.as_str()), (1, "repair", "berta"));
        assert!(settings::remove(db, "a", "mode").await.expect("removed"));
        assert!(!settings::remove(db, "a", "mode").await.expect("removed"));
    }

    async fn a_database_that_has_later_migrations_takes_an_earlier_one_that_it_lacks(db) {
        run(db, "DROP INDEX findings_held_by_goal").await;
        run(db, "DROP TABLE goal_settings").await;
        run(db, "DELETE FROM _sqlx_migrations WHERE version = 5").await;
        assert_eq!(db.schema().await.expect("state"), SchemaState::Behind(1));
        assert_eq!(db.migrate().await.expect("migrated"), 1);
        assert_eq!(db.schema().await.expect("state"), SchemaState::Current);
        assert!(settings::all(db).await.expect("settings").is_empty());
    }
}
