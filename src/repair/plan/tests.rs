use super::*;
use crate::model::checksum::Checksum;
use crate::model::finding::Subject;
use crate::model::id::RepositoryId;
use crate::repair::testing::{about_replica, finding, fleet, repair, replica, repository, wants_copy};

fn at(fleet: &mut FleetView, id: i64) -> &mut Fileserver {
    fleet.fileservers.get_mut(&FileserverId(id)).unwrap()
}

fn fleet_with(racks: i64, fileservers: i64, view: RepositoryView) -> FleetView {
    let mut fleet = fleet(racks, fileservers);
    fleet.repositories.insert(view.repository.id, view);
    fleet
}

fn stale(view: &mut RepositoryView, on: i64) {
    let replica = view.replicas.iter_mut().find(|one| one.fileserver_id.0 == on).unwrap();
    (replica.in_sync, replica.checksum) = (false, Some(Checksum { key: 1, sum: [9; 32] }));
}

#[test]
fn a_stale_replica_is_resynced_from_the_least_loaded_definitive_one() {
    let mut view = repository(1, &[1, 2, 3]);
    stale(&mut view, 1);
    let mut fleet = fleet_with(3, 3, view);
    at(&mut fleet, 2).load = 900;
    let plan = plan(&about_replica(1, Step::Resync, 1, 1), &repair(Step::Resync), &fleet, 1).unwrap();
    assert_eq!((plan.source_id, plan.destination_id), (Some(FileserverId(3)), Some(FileserverId(1))));
    assert_eq!((plan.bytes, plan.deadline_ms, plan.write_lock), (10, 60_000, false));
}

#[test]
fn nothing_is_copied_from_a_replica_that_is_not_definitive_or_does_not_answer() {
    let mut view = repository(1, &[1, 2, 3, 4]);
    stale(&mut view, 1);
    stale(&mut view, 2);
    view.replicas[2].state = ReplicaState::Removing;
    let mut fleet = fleet_with(4, 4, view);
    let finding = about_replica(1, Step::Resync, 1, 1);
    let planned =
        |fleet: &FleetView| plan(&finding, &repair(Step::Resync), fleet, 1).map(|plan| plan.source_id);
    assert_eq!(planned(&fleet), Ok(Some(FileserverId(4))));
    at(&mut fleet, 4).health = Health::Suspect;
    assert_eq!(planned(&fleet), Err(Deferral::NoSource));
    at(&mut fleet, 4).health = Health::Online;
    at(&mut fleet, 4).empty_since = Some(1);
    assert_eq!(planned(&fleet), Err(Deferral::NoSource));
}

#[test]
fn a_flag_in_sync_without_the_definitive_checksum_is_no_source() {
    let mut view = repository(1, &[1, 2]);
    stale(&mut view, 1);
    view.replicas[1].checksum = None;
    let fleet = fleet_with(3, 3, view);
    let finding = about_replica(1, Step::Resync, 1, 1);
    let Err(Deferral::Stuck { reason }) = plan(&finding, &repair(Step::Resync), &fleet, 1) else {
        panic!("a person is needed");
    };
    assert!(reason.starts_with("unrecoverable here"), "{reason}");
}

#[test]
fn an_evacuating_fileserver_is_a_good_source_and_a_quiesced_one_the_last_resort() {
    let mut fleet = fleet_with(4, 4, repository(1, &[1, 2]));
    at(&mut fleet, 1).intent = Intent::Quiesce;
    (at(&mut fleet, 2).intent, at(&mut fleet, 2).counts, at(&mut fleet, 2).load) =
        (Intent::Evacuate, false, 5_000);
    let source =
        |fleet: &FleetView| plan(&wants_copy(1, 1), &repair(Step::Replicate), fleet, 1).unwrap().source_id;
    assert_eq!(source(&fleet), Some(FileserverId(2)));
    at(&mut fleet, 2).health = Health::Offline;
    assert_eq!(source(&fleet), Some(FileserverId(1)));
}

#[test]
fn a_fileserver_that_does_not_answer_is_waited_for_by_name() {
    let mut fleet = fleet_with(3, 3, repository(1, &[1, 2, 3]));
    at(&mut fleet, 1).health = Health::Offline;
    for step in [Step::Resync, Step::Verify] {
        let answer = plan(&about_replica(1, step, 1, 1), &repair(step), &fleet, 1);
        assert_eq!(answer, Err(Deferral::FileserverAway { fileserver: "fs-01".to_owned() }));
    }
}

#[test]
fn an_empty_root_is_not_filled_before_a_person_accepts_it() {
    let mut fleet = fleet_with(3, 3, repository(1, &[1, 2, 3]));
    at(&mut fleet, 1).empty_since = Some(1);
    let answer = plan(&about_replica(1, Step::Resync, 1, 1), &repair(Step::Resync), &fleet, 1);
    assert!(matches!(answer, Err(Deferral::NoDestination { .. })), "{answer:?}");
}

#[test]
fn verifying_needs_no_source_and_never_locks() {
    let fleet = fleet_with(3, 3, repository(1, &[1]));
    let mut finding = about_replica(1, Step::Verify, 1, 1);
    finding.ineffective = 1_000;
    let plan = plan(&finding, &repair(Step::Verify), &fleet, 1).unwrap();
    assert_eq!((plan.source_id, plan.destination_id, plan.write_lock), (None, Some(FileserverId(1)), false));
}

#[test]
fn the_write_lock_is_taken_after_enough_ineffective_attempts() {
    let fleet = fleet_with(3, 3, repository(1, &[1, 2]));
    let mut finding = wants_copy(1, 1);
    for (ineffective, locks) in [(4, false), (5, true), (6, true)] {
        finding.ineffective = ineffective;
        assert_eq!(plan(&finding, &repair(Step::Replicate), &fleet, 1).unwrap().write_lock, locks);
    }
}

#[test]
fn a_copy_that_was_begun_is_gone_on_with_where_it_is_still_fine() {
    let mut view = repository(1, &[1, 2]);
    view.replicas.push(replica(1, 6));
    view.replicas[2].state = ReplicaState::Creating;
    let mut fleet = fleet_with(3, 9, view);
    let to =
        |fleet: &FleetView, seed| plan(&wants_copy(1, 1), &repair(Step::Replicate), fleet, seed).unwrap();
    assert!((0..50).all(|seed| to(&fleet, seed).destination_id == Some(FileserverId(6))));
    at(&mut fleet, 6).intent = Intent::Quiesce;
    assert!((0..50).all(|seed| matches!(to(&fleet, seed).destination_id, Some(FileserverId(3 | 9)))));
}

#[test]
fn a_copy_that_was_begun_in_a_rack_that_has_one_by_now_is_left() {
    let mut view = repository(1, &[1, 2]);
    view.replicas.push(replica(1, 4));
    view.replicas[2].state = ReplicaState::Creating;
    let fleet = fleet_with(3, 9, view);
    let to = |seed| {
        plan(&wants_copy(1, 1), &repair(Step::Replicate), &fleet, seed).unwrap().destination_id.unwrap()
    };
    assert!((0..50).all(|seed| to(seed).0 % 3 == 0), "rack 3 has no copy");
}

#[test]
fn too_few_racks_are_not_mended_within_the_same_racks() {
    let fleet = fleet_with(2, 6, repository(1, &[1, 2, 3]));
    let mut finding = wants_copy(1, 1);
    assert!(plan(&finding, &repair(Step::Replicate), &fleet, 1).is_ok());
    finding.goal = "racks-differ".to_owned();
    assert_eq!(
        plan(&finding, &repair(Step::Replicate), &fleet, 1).unwrap_err().to_string(),
        "no fileserver may take the copy: 3 with the repository on it, 3 in a rack that has a copy"
    );
}

#[test]
fn a_goal_may_name_source_and_destination_and_is_told_when_that_cannot_be() {
    let mut fleet = fleet_with(3, 9, repository(1, &[1, 2]));
    let mut finding = wants_copy(1, 1);
    finding.hints.source_id = Some(FileserverId(2));
    finding.hints.destination_id = Some(FileserverId(9));
    let planned = plan(&finding, &repair(Step::Replicate), &fleet, 1).unwrap();
    assert_eq!((planned.source_id, planned.destination_id), (Some(FileserverId(2)), Some(FileserverId(9))));
    at(&mut fleet, 9).health = Health::Offline;
    let answer = plan(&finding, &repair(Step::Replicate), &fleet, 1);
    assert_eq!(answer.unwrap_err().to_string(), "no fileserver may take the copy: 1 not online");
    finding.hints.destination_id = Some(FileserverId(1));
    let answer = plan(&finding, &repair(Step::Replicate), &fleet, 1);
    assert_eq!(
        answer.unwrap_err().to_string(),
        "no fileserver may take the copy: 1 with the repository on it"
    );
}

#[test]
fn a_repository_or_replica_that_is_gone_has_no_plan() {
    let fleet = fleet_with(3, 3, repository(1, &[1]));
    for finding in [about_replica(1, Step::Resync, 1, 2), about_replica(1, Step::Resync, 7, 1)] {
        let answer = plan(&finding, &repair(Step::Resync), &fleet, 1);
        assert!(matches!(answer, Err(Deferral::NoDestination { .. })), "{answer:?}");
    }
}

#[test]
fn a_push_is_settled_at_no_fileserver_that_could_be_away() {
    let mut fleet = fleet_with(3, 3, repository(1, &[1, 2, 3]));
    at(&mut fleet, 1).health = Health::Offline;
    let finding = finding(1, Step::Settle, Subject::Repository(RepositoryId(1)));
    let planned = plan(&finding, &repair(Step::Settle), &fleet, 1).unwrap();
    assert_eq!((planned.repository_id, planned.destination_id), (Some(RepositoryId(1)), None));
    assert!(!planned.write_lock);
}
