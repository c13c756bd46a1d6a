//! Tidying: damage stays written until the copy was made anew, and half-made copies are finished or forgotten.

use super::super::testing::{fleet, sum};
use crate::database::replicas::{Taken, begin_copy, record};
use crate::database::scratch::Scratch;
use crate::model::attempt::Step;
use crate::model::finding::Subject;
use crate::model::fleet::ReplicaState;
use crate::model::wire::RefusalCode;

on_each_engine! {
async fn a_scrub_that_finds_nothing_is_noted(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.admit(Step::Scrub, None, 2).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "as it ought to be"));
    let noted = "SELECT count(*) FROM replicas WHERE scrubbed_at IS NOT NULL AND indexed AND packs = 1";
    assert_eq!(fleet.number(noted).await, 1);
}

async fn damaged_objects_keep_a_copy_out_of_sync_until_it_was_made_anew(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(2, None);
    fleet.admit(Step::Scrub, None, 2).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.as_str()), ("succeeded", "damaged: a pack is cut off"));
    let replica = fleet.replica(2).await.unwrap();
    assert_eq!(replica.damage.as_deref(), Some("a pack is cut off"), "git's own words are kept");
    assert!(!replica.in_sync && replica.checksum.is_none());
    // Its references are well, and whoever compares the copies says so: that makes no object whole.
    fleet.put(2, Some(sum(1)));
    let here = fleet.ids[1];
    let taken = Taken {
        fileserver_id: here,
        checksum: Some(sum(1)),
        bytes: None,
        packs_loose: None,
        verified_generation: Some(9),
    };
    record(fleet.db(), fleet.repository.id, fleet.repository.version, 1, &[taken]).await.unwrap();
    assert!(!fleet.replica(2).await.unwrap().in_sync);
    fleet.resolve().await;
    fleet.admit(Step::Resync, Some(1), 2).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert!(fleet.calls().contains(&"fs-1 verify".to_owned()), "the source is looked at first");
    let replica = fleet.replica(2).await.unwrap();
    assert!(replica.in_sync && replica.damage.is_none());
}

async fn how_a_copy_is_packed_is_written_after_it_was_packed(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.number("UPDATE replicas SET packs = 90 WHERE fileserver_id = 1 RETURNING fileserver_id").await;
    fleet.admit(Step::Repack, None, 1).await;
    assert_eq!(fleet.end().await, ("succeeded".to_owned(), "packed".to_owned()));
    assert_eq!(fleet.number("SELECT max(packs) FROM replicas").await, 1);
    assert!(fleet.replica(1).await.unwrap().in_sync, "it changes no reference");
}

async fn a_half_made_copy_that_is_whole_becomes_a_replica(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    begin_copy(fleet.db(), fleet.repository.id, fleet.ids[3], 0).await.unwrap();
    fleet.put(4, Some(sum(1)));
    fleet.admit(Step::Resume, None, 4).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    let replica = fleet.replica(4).await.unwrap();
    assert!(replica.in_sync && replica.state == ReplicaState::Live);
}

async fn a_half_made_copy_that_is_not_whole_is_forgotten(scratch) {
    for there in [None, Some(Some(sum(7))), Some(None)] {
        let scratch = if scratch.url().starts_with("sqlite:") { Scratch::sqlite().await.unwrap() } else {
            Scratch::postgres(&std::env::var("TRUED_TEST_POSTGRES_URL").unwrap()).await.unwrap()
        };
        let mut fleet = fleet(scratch, 4, 3).await;
        begin_copy(fleet.db(), fleet.repository.id, fleet.ids[3], 0).await.unwrap();
        if let Some(there) = there {
            fleet.put(4, there);
        }
        fleet.admit(Step::Resume, None, 4).await;
        assert_eq!(fleet.end().await.0, "succeeded");
        assert!(fleet.replica(4).await.is_none());
    }
}

async fn epochs_of_a_database_that_went_back_rise_above_what_an_agent_has_seen(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.put(3, Some(sum(9)));
    fleet.disks.lock().unwrap().epochs.insert(fleet.repository.id, 57);
    fleet.admit(Step::Resync, Some(1), 3).await;
    let (outcome, _) = fleet.end().await;
    assert_eq!(outcome, "failed");
    assert_eq!(fleet.number("SELECT repair_epoch FROM repositories").await, 57);
    fleet.resolve().await;
    fleet.admit(Step::Resync, Some(1), 3).await;
    assert_eq!(fleet.end().await.0, "succeeded");
    assert_eq!(fleet.number("SELECT repair_epoch FROM repositories").await, 58);
}

async fn a_copy_that_broke_off_keeps_its_place_and_its_source(scratch) {
    let mut fleet = fleet(scratch, 4, 3).await;
    fleet.disks.lock().unwrap().refusing.insert("fs-4".into(), RefusalCode::SourceFailed);
    fleet.admit(Step::Replicate, Some(2), 4).await;
    assert_eq!(fleet.end().await.0, "failed");
    let replica = fleet.replica(4).await.unwrap();
    assert_eq!((replica.state, replica.copied_from), (ReplicaState::Creating, Some(fleet.ids[1])));
}

async fn a_push_that_is_not_open_any_more_is_not_settled(scratch) {
    let mut fleet = fleet(scratch, 3, 3).await;
    fleet.admit_about(Subject::Repository(fleet.repository.id), Step::Settle, None, 1).await;
    let (outcome, message) = fleet.end().await;
    assert_eq!((outcome.as_str(), message.contains("without its router")), ("stale", true), "{message}");
    assert!(fleet.calls().is_empty());
}
}
