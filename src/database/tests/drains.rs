//! Draining, forgetting, coming back empty, and the right to stop.

use super::{fileservers, make, number, on_each_engine, online, repository};
use crate::database::fileservers as room;
use crate::database::{Database, drains, stops};
use crate::model::fleet::{Health, Intent};
use crate::model::id::{FileserverId, RepositoryId};
use tokio::task::JoinSet;

const HOUR: i64 = 3_600_000;

async fn stop(db: &Database, ids: &[FileserverId]) -> stops::Answer {
    stops::ask(db, ids, HOUR, ("a person", Some("a reboot"))).await.expect("an answer")
}

async fn goes_offline(db: &Database, id: FileserverId) {
    let verdict = room::Verdict { health: Health::Offline, ..online(id) };
    room::record_verdicts(db, &[verdict]).await.expect("written");
}

/// Evacuates one if nothing else leaves.
async fn evacuate_alone(db: &Database, id: FileserverId) -> bool {
    let decide =
        |leaving: &[FileserverId], _: &drains::Sums| if leaving.len() == 1 { Ok(()) } else { Err(()) };
    drains::evacuate(db, &[id], false, true, decide).await.expect("decided").is_ok()
}

/// Repositories with fewer good replicas than a push needs, were all stopped that may stop.
const BELOW: &str = "SELECT count(*) FROM repositories p WHERE (SELECT count(*) FROM replicas r \
    WHERE r.repository_id = p.id AND r.in_sync AND r.fileserver_id NOT IN (SELECT fileserver_id FROM stops)) < p.seats / 2 + 1";

on_each_engine! {
    async fn a_hundred_who_ask_at_once_never_leave_a_repository_below_quorum(db) {
        let on = fileservers(db, 12).await;
        for n in 0..12 {
            let places = [on[n], on[(n + 1) % 12], on[(n + 5) % 12]];
            repository(db, &format!("r{n}"), 3, &places).await;
        }
        let mut asks = JoinSet::new();
        for n in 0..100 {
            let (db, id) = (db.clone(), on[n * 7 % 12]);
            asks.spawn(async move { stop(&db, &[id]).await });
        }
        let answers = asks.join_all().await;
        assert_eq!(number(db, BELOW).await, 0);
        let yes = answers.iter().filter(|one| one.until.is_some()).count();
        assert!(yes > 0 && yes < 100, "{yes} of 100");
        assert!(answers.iter().all(|one| one.until.is_some() == (one.below == 0)));
    }

    async fn the_answer_counts_those_below_quorum_and_those_one_more_would_bring_there(db) {
        let on = fileservers(db, 4).await;
        repository(db, "three", 3, &on[..3]).await;
        repository(db, "one", 1, &on[..1]).await;
        let no = stop(db, &on[..1]).await;
        assert_eq!((no.repositories, no.below, no.one_more, no.until), (2, 1, 1, None), "the only copy of one");
        let yes = stop(db, &on[1..2]).await;
        assert_eq!((yes.repositories, yes.below, yes.one_more), (1, 0, 1));
        let second = stop(db, &on[2..3]).await;
        assert_eq!((second.below, second.reserved.as_slice()), (1, &on[1..2]), "others see who may stop");
        stops::release(db, &on[1..2]).await.expect("given back");
        assert_eq!(stop(db, &on[2..3]).await.below, 0);
        make(db, "UPDATE stops SET until = 1").await;
        assert_eq!(stop(db, &on[1..2]).await.below, 0, "a right ends by itself");
    }

    async fn of_two_evacuations_at_once_the_second_counts_the_first(db) {
        let on = fileservers(db, 4).await;
        repository(db, "r", 3, &on[..3]).await;
        let (one, two) = tokio::join!(evacuate_alone(db, on[0]), evacuate_alone(db, on[1]));
        assert!(one != two, "one is refused");
        assert_eq!(drains::all(db).await.expect("drains").len(), 1);
    }

    async fn what_must_find_a_place_is_what_would_have_too_few_copies(db) {
        let on = fileservers(db, 5).await;
        repository(db, "both", 3, &on[..3]).await;
        repository(db, "spare", 2, &on[2..5]).await;
        let decide = |leaving: &[FileserverId], sums: &drains::Sums| Err::<(), _>((leaving.to_vec(), sums.clone()));
        let (leaving, sums) = drains::evacuate(db, &on[1..3], false, true, decide).await.expect("decided").unwrap_err();
        assert_eq!(leaving, on[1..3]);
        assert_eq!((sums.repositories, sums.wanted, sums.bytes, sums.once, sums.largest), (1, 3, 200, 100, 100));
        assert!(drains::all(db).await.expect("drains").is_empty(), "a no changes nothing");
    }

    async fn a_drain_is_noted_while_it_shrinks_and_ends_when_it_is_cancelled(db) {
        let on = fileservers(db, 4).await;
        repository(db, "r", 3, &on[..3]).await;
        assert!(evacuate_alone(db, on[0]).await);
        let begun = drains::all(db).await.expect("drains").remove(0);
        assert_eq!((begun.replicas, begun.left, begun.working), (1, 1, false));
        assert_eq!(drains::note(db).await.expect("noted"), 0, "as many as before");
        make(db, "DELETE FROM replicas WHERE fileserver_id = 1").await;
        assert_eq!(drains::note(db).await.expect("noted"), 1);
        let empty = drains::all(db).await.expect("drains").remove(0);
        assert!((empty.replicas, empty.left) == (1, 0) && empty.moved_at >= begun.moved_at);
        room::set_intent(db, on[0], Intent::Serve).await.expect("set");
        assert!(drains::all(db).await.expect("drains").is_empty());
        assert_eq!(number(db, "SELECT count(*) FROM fileservers WHERE drain_since IS NOT NULL").await, 0);
    }

    async fn a_lost_fileservers_replica_is_forgotten_only_while_enough_good_ones_stand_elsewhere(db) {
        let on = fileservers(db, 4).await;
        repository(db, "kept", 3, &on[..3]).await;
        repository(db, "last", 1, &on[..1]).await;
        goes_offline(db, on[0]).await;
        drains::evacuate(db, &[on[0]], true, true, |_, _| Ok::<_, ()>(())).await.expect("decided").unwrap();
        assert_eq!(drains::forget_lost(db, RepositoryId(0)).await.expect("looked"), (0, None), "two of three");
        // A third one elsewhere, first not good, then good.
        make(db, "INSERT INTO replicas (repository_id, fileserver_id, state, state_since, in_sync, verified_at) \
                  VALUES (1, 4, 'live', 1, FALSE, 1)").await;
        assert_eq!(drains::forget_lost(db, RepositoryId(0)).await.expect("looked").0, 0, "one is not in sync");
        make(db, "UPDATE replicas SET in_sync = TRUE, verified_at = 1").await;
        assert_eq!(drains::forget_lost(db, RepositoryId(0)).await.expect("looked").0, 1);
        assert_eq!(number(db, "SELECT count(*) FROM replicas WHERE fileserver_id = 1").await, 1, "the last copy is never forgotten");
        assert!(drains::all(db).await.expect("drains")[0].lost_at.is_some());
    }

    async fn a_lost_one_that_answers_again_is_left_to_its_agent(db) {
        let on = fileservers(db, 4).await;
        repository(db, "r", 3, &on[..3]).await;
        make(db, "INSERT INTO replicas (repository_id, fileserver_id, state, state_since, in_sync, verified_at) \
                  VALUES (1, 4, 'live', 1, TRUE, 1)").await;
        make(db, "UPDATE replicas SET verified_at = 1").await;
        drains::evacuate(db, &[on[0]], true, true, |_, _| Ok::<_, ()>(())).await.expect("decided").unwrap();
        assert_eq!(drains::forget_lost(db, RepositoryId(0)).await.expect("looked").0, 0);
    }

    // Case 2: the records said "present" of a disk that had been replaced by an empty one.
    async fn an_accepted_empty_root_holds_nothing_that_is_in_sync(db) {
        let on = fileservers(db, 3).await;
        repository(db, "r", 3, &on).await;
        assert!(drains::accept_empty(db, on[0]).await.is_err(), "its root is the one that it was");
        make(db, "UPDATE fileservers SET root_id = 'old', seen_root_id = 'new', empty_since = 5, compared_start_id = 's' WHERE id = 1").await;
        assert_eq!(drains::accept_empty(db, on[0]).await.expect("accepted"), 1);
        assert_eq!(number(db, "SELECT count(*) FROM replicas WHERE fileserver_id = 1 AND checksum IS NULL AND NOT in_sync \
                                  AND out_of_sync_since IS NOT NULL").await, 1);
        assert_eq!(number(db, "SELECT count(*) FROM replicas WHERE in_sync").await, 2, "the others are as they were");
        let now = room::all(db).await.expect("fileservers").remove(0);
        assert_eq!((now.root_id.as_deref(), now.empty_since, now.compared_start_id), (Some("new"), None, None));
    }
}
