//! The suspects, and the audit that they miss nothing.

use super::{evaluate, fileservers, make, number, on_each_engine, repository, repository_rows};
use crate::database::Database;
use crate::database::suspects::{Refreshed, audit, refresh};
use crate::model::finding::Subject;
use crate::model::id::RepositoryId;

/// So many repositories whose copies are all well.
async fn all_well(db: &Database, many: u32) -> Vec<i64> {
    let on = fileservers(db, 3).await;
    let mut ids = Vec::new();
    for number in 1..=many {
        ids.push(repository(db, &format!("r{number}"), 3, &on).await.id.0);
    }
    ids
}

async fn suspect(db: &Database) -> i64 {
    number(db, "SELECT count(*) FROM suspect").await
}

async fn rotate(db: &Database, size: i64) -> audit::Slice {
    audit::rotate(db, size, 0).await.expect("rotated").expect("it was time")
}

on_each_engine! {
    async fn slices_go_round_and_each_id_is_in_one(db) {
        let ids = all_well(db, 5).await;
        assert_eq!(refresh(db).await.expect("refreshed"), Refreshed::default(), "no slice before the first");
        for (first, size) in [(0, 2), (2, 2), (4, 1), (0, 2)] {
            rotate(db, 2).await;
            refresh(db).await.expect("refreshed");
            assert_eq!(suspect(db).await, size);
            assert_eq!(number(db, "SELECT min(repository_id) FROM suspect").await, ids[first]);
        }
        let stands = audit::rotate(db, 2, 3_600_000).await.expect("rotated");
        assert_eq!(stands, None, "a slice stands for its period");
    }

    async fn a_fleet_smaller_than_a_slice_is_all_suspect_and_nothing_is_written_for_it(db) {
        all_well(db, 3).await;
        rotate(db, 100).await;
        assert_eq!(refresh(db).await.expect("refreshed"), Refreshed { added: 3, removed: 0 });
        rotate(db, 100).await;
        assert_eq!(refresh(db).await.expect("refreshed"), Refreshed::default());
    }

    async fn counts_that_are_wrong_are_mended_and_counted(db) {
        let ids = all_well(db, 4).await;
        // As a bulk load leaves them that went past the triggers.
        make(db, "UPDATE repositories SET replica_count = 3, rack_count = 1, wanted = 2 WHERE name = 'r2'").await;
        make(db, "UPDATE repositories SET replica_count = 9 WHERE name = 'r3'").await;
        make(db, "UPDATE counters SET value = value + 7 WHERE name IN ('replicas', 'repositories')").await;
        let first = rotate(db, 2).await;
        assert_eq!((first.after, first.until, first.mended), (0, ids[1], 3), "two populations, and one of the slice");
        assert_eq!(number(db, "SELECT value FROM counters WHERE name = 'replicas'").await, 12);
        assert_eq!(number(db, "SELECT value FROM counters WHERE name = 'repositories'").await, 4);
        assert_eq!(number(db, "SELECT replica_count FROM repositories WHERE name = 'r3'").await, 9, "later");
        assert_eq!(rotate(db, 2).await.mended, 1);
        assert_eq!(number(db, "SELECT count(*) FROM repositories WHERE replica_count = 3 AND rack_count = 3").await, 4);
        assert_eq!(audit::drift(db).await.expect("drift"), 4);
        rotate(db, 2).await;
        assert_eq!(rotate(db, 2).await.mended, 0);
        assert_eq!(audit::drift(db).await.expect("drift"), 4, "what is right is not counted again");
    }

    async fn a_lost_copy_behind_a_wrong_count_is_a_suspect_once_the_audit_came_by(db) {
        let ids = all_well(db, 3).await;
        make(db, "DELETE FROM replicas WHERE fileserver_id = 1 AND repository_id = (SELECT max(id) FROM repositories)").await;
        make(db, "UPDATE repositories SET replica_count = 3, rack_count = 3").await;
        refresh(db).await.expect("refreshed");
        assert_eq!(suspect(db).await, 0, "the view is blind to it");
        while rotate(db, 1).await.mended == 0 {}
        rotate(db, 1).await;
        refresh(db).await.expect("refreshed");
        let of_view = "SELECT repository_id FROM suspects";
        assert_eq!(number(db, of_view).await, ids[2], "and it stays one when the slice has moved on");
    }

    async fn a_finding_that_the_view_would_not_give_is_drift_until_it_is_closed(db) {
        let ids = all_well(db, 4).await;
        rotate(db, 2).await;
        refresh(db).await.expect("refreshed");
        // A goal whose exceptions are not among the suspects: its scope is wrong.
        let merged = evaluate(db, "a", &repository_rows([ids[1]])).await;
        let slice = audit::slice(db).await.expect("a slice");
        let missed = audit::missed(db, "a", merged.evaluation, slice, 10).await.expect("missed");
        assert_eq!(missed, [Subject::Repository(RepositoryId(ids[1]))]);
        audit::record(db, &[ids[1]]).await.expect("recorded");
        assert_eq!(audit::drift(db).await.expect("drift"), 1);
        rotate(db, 2).await;
        refresh(db).await.expect("refreshed");
        assert_eq!((suspect(db).await, number(db, "SELECT min(repository_id) FROM suspect").await), (3, ids[1]));
        let merged = evaluate(db, "a", &repository_rows([ids[1]])).await;
        assert_eq!((merged.opened, merged.closed), (0, 0), "it does not flap with the slices");
        evaluate(db, "a", &[]).await;
        refresh(db).await.expect("refreshed");
        assert_eq!(suspect(db).await, 2);
    }

    async fn what_the_view_gives_is_not_drift(db) {
        let ids = all_well(db, 2).await;
        make(db, "UPDATE repositories SET wanted = 4 WHERE name = 'r1'").await;
        rotate(db, 5).await;
        refresh(db).await.expect("refreshed");
        let merged = evaluate(db, "a", &repository_rows([ids[0]])).await;
        let slice = audit::slice(db).await.expect("a slice");
        assert!(audit::missed(db, "a", merged.evaluation, slice, 10).await.expect("missed").is_empty());
    }
}
