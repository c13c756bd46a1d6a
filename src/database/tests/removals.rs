//! Repositories are removed, brought back and renamed; ids are never given again; what is set aside is known.

use super::{fileservers, make, number, on_each_engine, repository, sum};
use crate::database::repositories::{self, by_ids, by_name, plan_import, removed_by_name, removed_page};
use crate::database::{DatabaseError, inventory, quarantine};
use crate::model::fleet::{ObjectFormat, ReplicaState};
use crate::model::id::RepositoryId;
use crate::model::wire::QuarantineEntry;

fn refused<T: std::fmt::Debug>(result: crate::database::Result<T>) -> String {
    let Err(DatabaseError::Refused(message)) = result else { panic!("not refused: {result:?}") };
    message
}

on_each_engine! {
    async fn a_removed_repository_gives_its_name_free_and_comes_back_as_it_was(db) {
        let on = fileservers(db, 3).await;
        let one = repository(db, "a", 3, &on).await;
        let before = repositories::replicas_of(db, &[one.id]).await.expect("replicas");
        repositories::remove(db, one.id).await.expect("removed");
        assert!(by_name(db, "a").await.expect("asked").is_none(), "the name is free at once");
        let gone = repositories::replicas_of(db, &[one.id]).await.expect("replicas");
        assert!(gone.iter().all(|replica| replica.state == ReplicaState::Removing), "nothing of it serves");
        refused(repositories::remove(db, one.id).await);
        let two = repository(db, "a", 3, &on).await;
        assert_ne!(one.id, two.id);
        assert!(refused(repositories::undelete(db, one.id, "a").await).contains("exists already"));
        let back = repositories::undelete(db, one.id, "a-again").await.expect("back");
        assert_eq!((back.name.as_str(), back.removed_at, back.checksum), ("a-again", None, Some(sum(1))));
        let after = repositories::replicas_of(db, &[one.id]).await.expect("replicas");
        assert_eq!(after, before, "every replica as it was");
        let doubts = number(db, "SELECT count(*) FROM inventory WHERE found = 'changed'").await;
        assert_eq!(doubts, 3, "and each is compared with its disk at once");
        refused(repositories::undelete(db, one.id, "b").await);
    }

    async fn several_of_one_name_are_told_apart_by_number(db) {
        let on = fileservers(db, 3).await;
        let mut ids = Vec::new();
        for _ in 0..2 {
            let one = repository(db, "a", 3, &on).await;
            repositories::remove(db, one.id).await.expect("removed");
            ids.push(one.id);
        }
        let found = removed_by_name(db, "a").await.expect("asked");
        assert_eq!(found.iter().map(|one| (one.name.as_str(), one.removed_at.is_some())).collect::<Vec<_>>(),
                   [("a", true), ("a", true)]);
        let page = removed_page(db, RepositoryId(0), 10).await.expect("asked");
        assert_eq!(page.iter().map(|one| one.id).collect::<Vec<_>>(), ids);
        assert!(removed_page(db, ids[1], 10).await.expect("asked").is_empty());
    }

    async fn what_was_half_made_or_half_gone_does_not_come_back_as_good(db) {
        let on = fileservers(db, 4).await;
        let one = repository(db, "a", 3, &on[..3]).await;
        make(db, "UPDATE replicas SET state = 'removing' WHERE fileserver_id = (SELECT max(fileserver_id) FROM replicas)").await;
        make(db, "INSERT INTO replicas (repository_id, fileserver_id, state, state_since) \
                  SELECT max(r.repository_id), max(f.id), 'creating', 1 FROM replicas r, fileservers f").await;
        repositories::remove(db, one.id).await.expect("removed");
        repositories::undelete(db, one.id, "a").await.expect("back");
        let after = repositories::replicas_of(db, &[one.id]).await.expect("replicas");
        let good: Vec<_> = after.iter().map(|replica| (replica.state, replica.in_sync)).collect();
        assert_eq!(good, [(ReplicaState::Live, true), (ReplicaState::Live, true), (ReplicaState::Live, false)]);
        make(db, "UPDATE replicas SET in_sync = FALSE, checksum = NULL, checksum_key = NULL").await;
        repositories::remove(db, one.id).await.expect("removed");
        assert!(refused(repositories::undelete(db, one.id, "a").await).contains("no good copy"));
    }

    async fn a_repository_without_a_copy_is_gone_at_once_and_its_number_with_it(db) {
        let on = fileservers(db, 3).await;
        let one = repository(db, "a", 3, &on).await;
        make(db, "DELETE FROM replicas").await;
        repositories::remove(db, one.id).await.expect("removed");
        assert!(by_ids(db, &[one.id]).await.expect("asked").is_empty());
        assert_eq!(number(db, "SELECT count(*) FROM tombstones WHERE name = 'a'").await, 1);
        assert_eq!(number(db, "SELECT value FROM counters WHERE name = 'repositories'").await, 0);
    }

    async fn an_id_that_a_tombstone_or_a_disk_knows_is_never_given(db) {
        let on = fileservers(db, 3).await;
        let entry = QuarantineEntry {
            repository: RepositoryId(70), path: "quarantine/70-1.git".into(), since: 1, reason: "x".into(), bytes: 5,
        };
        for (known, next) in [(0, 1), (50, 51), (60, 61), (70, 71)] {
            match known {
                50 => make(db, "INSERT INTO tombstones (repository_id, name, removed_at) VALUES (50, 'x', 1)").await,
                60 => {
                    let untracked = vec![(RepositoryId(60), 1)];
                    let seen = inventory::Differences { untracked, ..inventory::Differences::default() };
                    inventory::record(db, on[0], &seen).await.expect("recorded");
                }
                70 => assert_eq!(quarantine::note(db, on[0], std::slice::from_ref(&entry)).await.expect("noted"), 1),
                _ => {}
            }
            let plan = plan_import(db, &format!("r{next}"), ObjectFormat::Sha1, 3, 1, &on).await.expect("a plan");
            assert_eq!(plan.id, RepositoryId(next));
        }
        assert_eq!(inventory::unknown(db).await.expect("asked"), [("fs1".to_owned(), 1)], "60 is nobody's");
    }

    async fn what_is_noted_of_a_quarantine_twice_is_one_row(db) {
        let on = fileservers(db, 2).await;
        let one = repository(db, "a", 2, &on).await;
        let entry = QuarantineEntry {
            repository: one.id, path: format!("quarantine/{}-5.git", one.id), since: 5, reason: "why".into(), bytes: 9,
        };
        assert_eq!(quarantine::note(db, on[0], std::slice::from_ref(&entry)).await.expect("noted"), 1);
        assert_eq!(quarantine::note(db, on[0], &[entry]).await.expect("noted"), 0);
        let known = quarantine::of_repositories(db, &[one.id]).await.expect("asked");
        assert_eq!((known.len(), known[0].since, known[0].reason.as_str(), known[0].bytes), (1, 5, "why", 9));
    }

    async fn a_repository_is_renamed_unless_the_name_is_taken_or_coming(db) {
        let on = fileservers(db, 3).await;
        let one = repository(db, "a", 3, &on).await;
        repository(db, "b", 3, &on).await;
        plan_import(db, "c", ObjectFormat::Sha1, 3, 1, &on).await.expect("a plan");
        assert!(refused(repositories::rename(db, one.id, "b").await).contains("exists already"));
        assert!(refused(repositories::rename(db, one.id, "c").await).contains("under way"));
        repositories::rename(db, one.id, "d").await.expect("renamed");
        assert_eq!(by_name(db, "d").await.expect("asked").map(|found| found.id), Some(one.id));
        assert!(by_name(db, "a").await.expect("asked").is_none());
        assert_eq!(number(db, "SELECT count(*) FROM inventory WHERE found = 'changed'").await, 3, "each is told");
    }
}
