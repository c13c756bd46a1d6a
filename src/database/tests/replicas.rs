//! Checksums are written at one version, under one epoch, and never beside an open push.

use super::{fileservers, make, next_moment, number, on_each_engine, repository, sum};
use crate::database::replicas::{Packed, Recorded, Taken, abandon_copy, begin_copy, finish_copy, record};
use crate::database::transaction::{Tx, within};
use crate::database::{Database, DatabaseError, inventory, repositories};
use crate::model::checksum::Checksum;
use crate::model::fleet::{Replica, ReplicaState};
use crate::model::id::{FileserverId, RepositoryId};
use tokio::task::JoinSet;

fn taken(fileserver_id: FileserverId, checksum: Option<Checksum>) -> Taken {
    Taken { fileserver_id, checksum, bytes: None, packs_loose: None, verified_generation: None }
}

async fn replica(db: &Database, id: RepositoryId, on: FileserverId) -> Replica {
    let all = repositories::replicas_of(db, &[id]).await.expect("replicas");
    all.into_iter().find(|one| one.fileserver_id == on).expect("a replica")
}

async fn again(db: &Database, name: &str) -> crate::model::fleet::Repository {
    repositories::by_name(db, name).await.expect("a look").expect("a repository")
}

on_each_engine! {
    async fn what_was_taken_is_compared_with_the_definitive_checksum(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let all = [taken(on[0], Some(sum(1))), taken(on[1], Some(sum(2))), taken(on[2], None)];
        assert_eq!(record(db, id, 1, 0, &all).await.expect("recorded"), Recorded::Written);
        assert!(replica(db, id, on[0]).await.in_sync);
        let stale = replica(db, id, on[1]).await;
        assert_eq!((stale.in_sync, stale.checksum), (false, Some(sum(2))));
        let since = stale.out_of_sync_since.expect("since when");
        let gone = replica(db, id, on[2]).await;
        assert_eq!((gone.in_sync, gone.checksum, gone.state), (false, None, ReplicaState::Live));
        next_moment(db).await;
        record(db, id, 1, 0, &[taken(on[1], Some(sum(3)))]).await.expect("recorded");
        assert_eq!(replica(db, id, on[1]).await.out_of_sync_since, Some(since), "since the first time");
        let other_key = Checksum { key: 2, ..sum(1) };
        record(db, id, 1, 0, &[taken(on[1], Some(other_key))]).await.expect("recorded");
        assert!(!replica(db, id, on[1]).await.in_sync, "checksums of two keys are not compared");
        record(db, id, 1, 0, &[taken(on[1], Some(sum(1)))]).await.expect("recorded");
        let mended = replica(db, id, on[1]).await;
        assert_eq!((mended.in_sync, mended.out_of_sync_since, mended.version), (true, None, Some(1)));
    }

    async fn a_result_of_an_old_epoch_is_refused(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on[..2]).await.id;
        make(db, "UPDATE repositories SET repair_epoch = 5").await;
        for epoch in [4, 6] {
            let bad = [taken(on[0], Some(sum(9)))];
            assert_eq!(record(db, id, 1, epoch, &bad).await.expect("asked"), Recorded::OldEpoch);
            assert_eq!(begin_copy(db, id, on[2], epoch).await.expect("asked"), Recorded::OldEpoch);
            assert_eq!(finish_copy(db, id, 1, epoch, &bad[0]).await.expect("asked"), Recorded::OldEpoch);
            assert_eq!(abandon_copy(db, id, on[2], epoch).await.expect("asked"), Recorded::OldEpoch);
        }
        assert!(replica(db, id, on[0]).await.in_sync);
        assert_eq!(again(db, "r").await.repair_epoch, 5);
    }

    async fn nothing_is_recorded_at_another_version_beside_a_push_or_for_what_is_gone(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let bad = [taken(on[0], None)];
        assert_eq!(record(db, id, 2, 0, &bad).await.expect("asked"), Recorded::Moved);
        make(
            db,
            "INSERT INTO pushes (repository_id, state, base_version, epoch, router, commands, voters, opened_at, \
             lease_until) SELECT id, 'open', 1, 1, 'x', '[]', '[]', 1, 1 FROM repositories",
        )
        .await;
        assert_eq!(record(db, id, 1, 0, &bad).await.expect("asked"), Recorded::Moved);
        let lower = repositories::set_wanted(db, id, 2).await;
        assert!(matches!(lower, Err(DatabaseError::Refused(_))), "seats do not fall beside a push");
        make(db, "UPDATE pushes SET state = 'aborted'").await;
        make(db, "UPDATE repositories SET removed_at = 1").await;
        assert_eq!(record(db, id, 1, 0, &bad).await.expect("asked"), Recorded::Moved);
        assert_eq!(record(db, RepositoryId(99), 1, 0, &bad).await.expect("asked"), Recorded::Moved);
        assert!(replica(db, id, on[0]).await.in_sync);
    }

    async fn a_verification_answers_the_flags_up_to_its_generation(db) {
        let on = fileservers(db, 2).await;
        let id = repository(db, "r", 2, &on).await.id;
        let flags = inventory::Differences { changed: vec![(id, 7)], ..inventory::Differences::default() };
        inventory::record(db, on[0], &flags).await.expect("flagged");
        inventory::record(db, on[1], &flags).await.expect("flagged");
        make(db, "UPDATE replicas SET verified_at = 1").await;
        let verified = |on, generation| Taken {
            verified_generation: Some(generation),
            bytes: Some(500),
            packs_loose: Some(Packed { packs: 2, loose: 3, indexed: true }),
            ..taken(on, Some(sum(1)))
        };
        let both = [verified(on[0], 6), verified(on[1], 7)];
        record(db, id, 1, 0, &both).await.expect("recorded");
        assert_eq!(number(db, "SELECT count(*) FROM inventory").await, 1, "what came later is not answered");
        assert_eq!(number(db, "SELECT count(*) FROM replicas WHERE packs = 2 AND loose = 3").await, 2);
        assert!(replica(db, id, on[0]).await.verified_at > Some(1));
        assert_eq!(again(db, "r").await.bytes, 500);
    }

    async fn a_copy_counts_when_it_is_whole_and_not_before(db) {
        let on = fileservers(db, 4).await;
        let id = repository(db, "r", 3, &on[..3]).await.id;
        assert_eq!(repositories::set_wanted(db, id, 4).await.expect("set").seats, 3, "seats wait for the copy");
        assert_eq!(begin_copy(db, id, on[3], 0).await.expect("begun"), Recorded::Written);
        assert_eq!(begin_copy(db, id, on[3], 0).await.expect("begun"), Recorded::Written);
        assert!(matches!(begin_copy(db, id, on[0], 0).await, Err(DatabaseError::Refused(_))));
        record(db, id, 1, 0, &[taken(on[3], Some(sum(1)))]).await.expect("asked");
        let creating = replica(db, id, on[3]).await;
        assert_eq!((creating.state, creating.in_sync), (ReplicaState::Creating, false));
        assert_eq!(number(db, "SELECT count(*) FROM countable_replicas").await, 3);
        assert_eq!(abandon_copy(db, id, on[3], 0).await.expect("abandoned"), Recorded::Written);
        assert_eq!(repositories::replicas_of(db, &[id]).await.expect("replicas").len(), 3);
        let whole = Taken { bytes: Some(9), ..taken(on[3], Some(sum(1))) };
        assert_eq!(finish_copy(db, id, 1, 0, &whole).await.expect("asked"), Recorded::Moved, "it was given up");
        begin_copy(db, id, on[3], 0).await.expect("begun");
        assert_eq!(finish_copy(db, id, 2, 0, &whole).await.expect("asked"), Recorded::Moved);
        assert!(finish_copy(db, id, 1, 0, &taken(on[3], None)).await.is_err());
        assert_eq!(finish_copy(db, id, 1, 0, &whole).await.expect("finished"), Recorded::Written);
        let live = replica(db, id, on[3]).await;
        assert_eq!((live.state, live.in_sync, live.version), (ReplicaState::Live, true, Some(1)));
        assert!(live.verified_at.is_some());
        let now = again(db, "r").await;
        assert_eq!((now.seats, now.wanted), (4, 4));
        assert_eq!(repositories::set_wanted(db, id, 2).await.expect("set").seats, 2);
        let again = repositories::set_wanted(db, id, 4).await.expect("set");
        assert_eq!(again.seats, 4, "copies that are there give their seats at once");
        assert_eq!(number(db, "SELECT replica_count FROM repositories").await, 4);
        assert_eq!(number(db, "SELECT rack_count FROM repositories").await, 4);
        assert_eq!(abandon_copy(db, id, on[3], 0).await.expect("asked"), Recorded::Written);
        assert_eq!(number(db, "SELECT count(*) FROM replicas").await, 4, "only a copy in the making is forgotten");
    }

    async fn a_copy_of_an_older_state_is_live_but_not_in_sync_and_gives_no_seat(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 2, &on[..2]).await.id;
        repositories::set_wanted(db, id, 3).await.expect("set");
        begin_copy(db, id, on[2], 0).await.expect("begun");
        finish_copy(db, id, 1, 0, &taken(on[2], Some(sum(7)))).await.expect("finished");
        let live = replica(db, id, on[2]).await;
        assert_eq!((live.state, live.in_sync), (ReplicaState::Live, false));
        assert_eq!(again(db, "r").await.seats, 2);
        record(db, id, 1, 0, &[taken(on[2], Some(sum(1)))]).await.expect("recorded");
        assert_eq!(again(db, "r").await.seats, 3, "resynced, it shares in verdicts");
    }

    async fn a_checksum_writer_that_races_a_push_never_makes_a_stale_copy_in_sync(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let mut tasks = JoinSet::new();
        for writer in 0..3 {
            let (db, on) = (db.clone(), on.clone());
            tasks.spawn(async move {
                for _ in 0..40 {
                    // What a worker does: read the version, take checksums (of that version), write them.
                    let read = again(&db, "r").await;
                    let sum = read.checksum.expect("a checksum");
                    tokio::task::yield_now().await;
                    let one = [taken(on[writer], Some(sum))];
                    record(&db, id, read.version, 0, &one).await.expect("asked");
                }
            });
        }
        let (pusher, first) = (db.clone(), on[0]);
        tasks.spawn(async move {
            for version in 2..30 {
                push(&pusher, id, version, first).await;
            }
        });
        let checker = db.clone();
        tasks.spawn(async move {
            for _ in 0..60 {
                assert_eq!(number(&checker, FALSELY_IN_SYNC).await, 0);
            }
        });
        tasks.join_all().await;
        assert_eq!(number(db, FALSELY_IN_SYNC).await, 0);
        assert_eq!(again(db, "r").await.version, 29);
    }
}

const FALSELY_IN_SYNC: &str = "SELECT count(*) FROM replicas r JOIN repositories p ON p.id = r.repository_id \
                               WHERE r.in_sync AND r.checksum <> p.checksum";

/// An outcome: the next version with another checksum, one voter in sync, the others not.
async fn push(db: &Database, id: RepositoryId, version: i64, voter: FileserverId) {
    let mut tx = Tx::begin(db).await.expect("a transaction");
    let sum = vec![u8::try_from(version).expect("small"); 32];
    within!(&mut tx, c => sqlx::query("UPDATE repositories SET version = $2, checksum = $3 WHERE id = $1")
        .bind(id).bind(version).bind(&sum).execute(c).await.map(drop))
    .expect("the outcome");
    tokio::task::yield_now().await;
    within!(&mut tx, c => sqlx::query(
        "UPDATE replicas SET in_sync = (fileserver_id = $2), \
           checksum = CASE WHEN fileserver_id = $2 THEN $3 ELSE checksum END WHERE repository_id = $1")
        .bind(id).bind(voter).bind(&sum).execute(c).await.map(drop))
    .expect("its voters");
    tx.commit().await.expect("committed");
}
