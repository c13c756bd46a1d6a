//! What forbids taking a copy away, from what SQL remembers. Pure.
//!
//! A removal needs at least as many *other* copies as are wanted, each countable, holding the
//! definitive checksum, compared with its disk, on a fileserver that answers. This is asked when
//! it is planned; the worker asks those copies' agents again before it marks anything.

use super::view::{FleetView, RepositoryView, answers};
use crate::model::finding::Deferral;
use crate::model::fleet::{Replica, ReplicaState, quorum};
use crate::model::id::FileserverId;

/// Whether a replica may be the reason why another can go: it stays, it counts, and it is known to be good.
#[must_use]
pub fn vouches(fleet: &FleetView, repository: &RepositoryView, replica: &Replica) -> bool {
    replica.state == ReplicaState::Live
        && repository.is_definitive(replica)
        && replica.verified_at.is_some()
        && fleet.fileservers.get(&replica.fileserver_id).is_some_and(|one| one.counts && answers(one))
}

/// Whether the replica on a fileserver can be spared.
///
/// # Errors
/// With the reason, when it cannot.
pub fn may_remove(
    fleet: &FleetView,
    repository: &RepositoryView,
    from: FileserverId,
) -> Result<(), Deferral> {
    let others = repository.replicas.iter().filter(|one| one.fileserver_id != from);
    let good = others.filter(|one| vouches(fleet, repository, one)).count();
    let (good, wanted) = (u32::try_from(good).unwrap_or(u32::MAX), repository.repository.wanted);
    if good < quorum(repository.repository.seats) {
        return Err(Deferral::QuorumAtRisk);
    }
    if good < wanted {
        return Err(Deferral::CopyNeeded { others: good, wanted });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checksum::Checksum;
    use crate::model::fleet::{Health, Intent};
    use crate::repair::testing::{fleet, repository};

    /// Five fileservers with a copy each of a repository that wants three; the fifth copy is to go.
    fn scene() -> (FleetView, RepositoryView) {
        (fleet(5, 5), repository(1, &[1, 2, 3, 5]))
    }

    const GOING: FileserverId = FileserverId(5);

    #[test]
    fn a_copy_goes_only_when_the_wanted_number_of_others_is_known_to_be_good() {
        let (fleet, view) = scene();
        assert_eq!(may_remove(&fleet, &view, GOING), Ok(()));
        let two = repository(1, &[1, 2, 5]);
        assert_eq!(may_remove(&fleet, &two, GOING), Err(Deferral::CopyNeeded { others: 2, wanted: 3 }));
        let one = repository(1, &[1, 5]);
        assert_eq!(may_remove(&fleet, &one, GOING), Err(Deferral::QuorumAtRisk));
    }

    #[test]
    fn every_single_doubt_about_another_copy_is_a_veto() {
        type Doubt = fn(&mut FleetView, &mut RepositoryView);
        let doubts: [(&str, Doubt); 9] = [
            ("leaving", |_, view| view.replicas[0].state = ReplicaState::Leaving),
            ("being made", |_, view| view.replicas[0].state = ReplicaState::Creating),
            ("being removed", |_, view| view.replicas[0].state = ReplicaState::Removing),
            ("out of sync", |_, view| view.replicas[0].in_sync = false),
            ("another checksum", |_, view| {
                view.replicas[0].checksum = Some(Checksum { key: 1, sum: [9; 32] });
            }),
            ("never verified", |_, view| view.replicas[0].verified_at = None),
            ("on a fileserver that does not count", |fleet, _| at(fleet, 1).counts = false),
            ("on a silent fileserver", |fleet, _| at(fleet, 1).health = Health::Suspect),
            ("below an empty root", |fleet, _| at(fleet, 1).empty_since = Some(1)),
        ];
        for (name, doubt) in doubts {
            let (mut fleet, mut view) = scene();
            doubt(&mut fleet, &mut view);
            assert!(may_remove(&fleet, &view, GOING).is_err(), "{name}");
        }
    }

    #[test]
    fn a_quiesced_fileserver_counts_and_its_copies_vouch() {
        let (mut fleet, view) = scene();
        at(&mut fleet, 1).intent = Intent::Quiesce;
        assert_eq!(may_remove(&fleet, &view, GOING), Ok(()));
    }

    fn at(fleet: &mut FleetView, id: i64) -> &mut crate::model::fleet::Fileserver {
        fleet.fileservers.get_mut(&FileserverId(id)).unwrap()
    }
}
