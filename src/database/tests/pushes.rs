//! Pushes in SQL: one at a time, under an epoch, closed once.

use super::{fileservers, make, number, on_each_engine, repository, sum};
use crate::database::history::{History, prune};
use crate::database::pushes::{self, Adoption, Closing, Open, Opened, Opening};
use crate::database::replicas::{Recorded, Taken, record};
use crate::database::{Database, repositories};
use crate::model::fleet::Replica;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::push::{Command, RefName};

const LEASE: i64 = 60_000;

fn commands() -> Vec<Command> {
    vec![Command { name: RefName(b"refs/heads/\xff".to_vec()), old: None, new: None }]
}

async fn wish(db: &Database, id: RepositoryId, base_version: i64, ready: &[FileserverId]) -> Opened {
    let (commands, new) = (commands(), sum(2));
    let ask = Opening {
        repository: id,
        router: "r1",
        base_version,
        commands: &commands,
        new,
        ready,
        lease_ms: LEASE,
        above: 0,
    };
    pushes::open(db, &ask).await.expect("asked")
}

async fn opened(db: &Database, id: RepositoryId, base_version: i64, ready: &[FileserverId]) -> Open {
    match wish(db, id, base_version, ready).await {
        Opened::Open(open) => open,
        other => panic!("{other:?}"),
    }
}

fn closing(id: RepositoryId, open: &Open) -> Closing {
    Closing { repository: id, id: open.id, epoch: open.epoch, base_version: open.base_version }
}

async fn replica(db: &Database, id: RepositoryId, on: FileserverId) -> Replica {
    let all = repositories::replicas_of(db, &[id]).await.expect("replicas");
    all.into_iter().find(|replica| replica.fileserver_id == on).expect("a replica")
}

async fn in_sync(db: &Database, id: RepositoryId, on: &[FileserverId]) -> Vec<bool> {
    let mut all = Vec::new();
    for one in on {
        all.push(replica(db, id, *one).await.in_sync);
    }
    all
}

async fn version(db: &Database, id: RepositoryId) -> i64 {
    repositories::by_ids(db, &[id]).await.expect("asked")[0].version
}

on_each_engine! {
    async fn a_push_is_opened_with_voters_and_an_epoch_and_closed_with_who_did_it(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let open = opened(db, id, 1, &on).await;
        assert_eq!((open.epoch, open.base, open.seats), (1, sum(1), 3));
        assert_eq!((open.chosen.voters.clone(), open.chosen.followers.len()), (on.clone(), 0));
        assert_eq!(pushes::closed_epoch(db, id).await.expect("asked"), Some(0), "its own epoch is not over");
        assert!(pushes::renew(db, open.id, 1, LEASE).await.expect("renewed"));
        assert_eq!(pushes::ended(db, open.id).await.expect("asked"), None);
        let done = pushes::commit(db, closing(id, &open), &sum(2), &on[..2], 500).await;
        assert!(done.expect("closed"));
        let row = &repositories::by_ids(db, &[id]).await.expect("asked")[0];
        assert_eq!((row.version, row.checksum, row.bytes, row.push_epoch), (2, Some(sum(2)), 500, 1));
        assert_eq!(in_sync(db, id, &on).await, [true, true, false]);
        let good = replica(db, id, on[0]).await;
        assert_eq!((good.version, good.checksum, good.bytes), (Some(2), Some(sum(2)), 500));
        assert!(replica(db, id, on[2]).await.out_of_sync_since.is_some());
        assert_eq!(pushes::ended(db, open.id).await.expect("asked"), Some(true));
        assert_eq!(pushes::closed_epoch(db, id).await.expect("asked"), Some(1));
        assert!(!pushes::renew(db, open.id, 1, LEASE).await.expect("asked"), "it is closed");
        assert!(!pushes::abort(db, closing(id, &open), &[]).await.expect("asked"), "and closed once");
    }

    async fn only_one_is_open_and_it_builds_on_what_is_there(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        assert_eq!(wish(db, id, 0, &on).await, Opened::Moved);
        assert_eq!(wish(db, RepositoryId(99), 1, &on).await, Opened::Removed);
        assert!(matches!(wish(db, id, 1, &on[..1]).await, Opened::TooFew(few) if few.needed == 2));
        let open = opened(db, id, 1, &on).await;
        let Opened::Busy(ahead) = wish(db, id, 1, &on).await else { panic!("another is open") };
        assert!(ahead.id == open.id && ahead.left_ms > LEASE / 2 && ahead.undecided.is_none());
        pushes::abort(db, closing(id, &open), &on[2..]).await.expect("closed");
        assert_eq!(version(db, id).await, 1, "nothing came of it");
        assert_eq!(in_sync(db, id, &on).await, [true, true, false], "a copy that strayed is found out at once");
        let next = opened(db, id, 1, &on).await;
        assert_eq!((next.epoch, next.chosen.voters.len()), (2, 2), "and does not vote");
    }

    async fn a_write_lock_keeps_pushes_out_and_says_why(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        make(db, "UPDATE repositories SET write_lock_until = (SELECT now FROM clock) + 9000, write_lock_reason = 'w'").await;
        let Opened::Locked(lock) = wish(db, id, 1, &on).await else { panic!("it is locked") };
        assert!(lock.reason == "w" && lock.left_ms > 5_000);
        assert_eq!(pushes::standing(db, id).await.expect("asked").lock.expect("locked").reason, "w");
        make(db, "UPDATE repositories SET write_lock_until = (SELECT now FROM clock) - 1").await;
        opened(db, id, 1, &on).await;
    }

    async fn two_routers_that_open_at_once_open_one(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        for round in 1..=20 {
            let (one, two) = tokio::join!(wish(db, id, round, &on), wish(db, id, round, &on));
            let (mut open, mut busy) = (Vec::new(), 0);
            for opened in [one, two] {
                match opened {
                    Opened::Open(one) => open.push(one),
                    Opened::Busy(_) => busy += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!((open.len(), busy), (1, 1));
            assert!(pushes::commit(db, closing(id, &open[0]), &sum(1), &on, 0).await.expect("closed"));
        }
        assert_eq!(version(db, id).await, 21);
    }

    async fn a_push_that_was_taken_over_cannot_be_closed_by_its_router(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let open = opened(db, id, 1, &on).await;
        assert!(pushes::take_over(db, id, "r2", None, LEASE).await.expect("asked").is_none(), "its lease holds");
        assert!(pushes::expired(db, 10).await.expect("asked").is_empty());
        make(db, "UPDATE pushes SET lease_until = (SELECT now FROM clock) - 1").await;
        assert_eq!(pushes::expired(db, 10).await.expect("asked"), [id]);
        let taken = pushes::take_over(db, id, "r2", None, LEASE).await.expect("asked").expect("taken");
        assert_eq!((taken.closing.epoch, taken.fence(), taken.new), (2, 1, sum(2)));
        assert_eq!((taken.voters.clone(), taken.places.len()), (on.clone(), 3));
        assert!(pushes::take_over(db, id, "r3", None, LEASE).await.expect("asked").is_none(), "one settles it");
        assert!(!pushes::renew(db, open.id, open.epoch, LEASE).await.expect("asked"));
        assert!(!pushes::commit(db, closing(id, &open), &sum(2), &on, 0).await.expect("asked"));
        assert!(!pushes::abort(db, closing(id, &open), &[]).await.expect("asked"));
        assert_eq!(pushes::closed_epoch(db, id).await.expect("asked"), Some(1), "what its router held is over");
        let settled = pushes::close_settled(db, taken.closing, false, &sum(1), &on[..2], "r2").await;
        assert!(settled.expect("settled"));
        assert_eq!(version(db, id).await, 2, "an abort is a version too: one who was not reached may have committed");
        assert_eq!(in_sync(db, id, &on).await, [true, true, false]);
        assert_eq!(replica(db, id, on[0]).await.version, Some(2));
        assert_eq!(number(db, "SELECT count(*) FROM pushes WHERE state = 'aborted' AND settled_by = 'r2'").await, 1);
        assert!(opened(db, id, 2, &on).await.epoch > taken.closing.epoch);
    }

    async fn a_router_takes_its_own_push_over_without_waiting(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let open = opened(db, id, 1, &on).await;
        let own = Some((open.id, open.epoch));
        let taken = pushes::take_over(db, id, "r1", own, LEASE).await.expect("asked").expect("its own");
        assert!(pushes::take_over(db, id, "r1", own, LEASE).await.expect("asked").is_none(), "that epoch is over");
        assert!(pushes::undecided(db, taken.closing, "few fit").await.expect("noted"));
        let ahead = pushes::standing(db, id).await.expect("asked").ahead.expect("it is open");
        assert_eq!(ahead.undecided.as_deref(), Some("few fit"));
        let done = pushes::close_settled(db, taken.closing, true, &sum(2), &on, "r1").await;
        assert!(done.expect("settled"));
        assert_eq!(in_sync(db, id, &on).await, [true, true, true]);
    }

    async fn nobody_writes_checksums_beside_an_open_push_and_damage_stays_out_of_sync(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let open = opened(db, id, 1, &on).await;
        let taken = Taken {
            fileserver_id: on[0],
            checksum: None,
            bytes: None,
            packs_loose: None,
            verified_generation: None,
        };
        assert_eq!(record(db, id, 1, 0, std::slice::from_ref(&taken)).await.expect("asked"), Recorded::Moved);
        make(db, "UPDATE replicas SET damage = 'a pack is cut off' WHERE fileserver_id = 2").await;
        assert!(pushes::commit(db, closing(id, &open), &sum(2), &on, 0).await.expect("closed"));
        assert_eq!(in_sync(db, id, &on).await, [true, false, true]);
    }

    async fn a_person_adopts_what_one_copy_has(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        let open = opened(db, id, 1, &on).await;
        let epoch = pushes::fence_all(db, id).await.expect("fenced").expect("it is there");
        assert!(!pushes::commit(db, closing(id, &open), &sum(2), &on, 0).await.expect("asked"), "it is over");
        let right = Adoption {
            repository: id,
            epoch,
            version: 1,
            next: 8,
            checksum: sum(9),
            equal: &on[1..2],
            by: "p",
        };
        let stale = Adoption { epoch: epoch - 1, ..right.clone() };
        assert!(!pushes::adopt(db, &stale).await.expect("asked"), "an epoch that is over adopts nothing");
        pushes::wish_adoption(db, id, on[0]).await.expect("wished");
        pushes::wish_adoption(db, id, on[1]).await.expect("wished");
        assert_eq!(pushes::adoption(db, id).await.expect("asked"), Some(on[1]));
        assert!(pushes::adopt(db, &right).await.expect("adopted"));
        assert_eq!(pushes::adoption(db, id).await.expect("asked"), None, "the wish is over");
        assert_eq!((version(db, id).await, in_sync(db, id, &on).await), (8, vec![false, true, false]));
        assert_eq!(replica(db, id, on[1]).await.checksum, Some(sum(9)));
        assert!(pushes::standing(db, id).await.expect("asked").ahead.is_none());
    }

    async fn closed_pushes_are_pruned_by_age_and_open_ones_never(db) {
        let on = fileservers(db, 3).await;
        let id = repository(db, "r", 3, &on).await.id;
        for version in 1..=4 {
            let open = opened(db, id, version, &on).await;
            pushes::commit(db, closing(id, &open), &sum(1), &on, 0).await.expect("closed");
        }
        opened(db, id, 5, &on).await;
        make(db, "UPDATE pushes SET closed_at = id * 100 WHERE state <> 'open'").await;
        assert_eq!(prune(db, History::Pushes, 301, 2).await.expect("pruned"), 2);
        assert_eq!(prune(db, History::Pushes, i64::MAX, 100).await.expect("pruned"), 2);
        assert_eq!(number(db, "SELECT count(*) FROM pushes WHERE state = 'open'").await, 1);
    }
}
