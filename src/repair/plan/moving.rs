//! Where a replica goes that is to leave its fileserver.

use super::{Planner, gone};
use crate::model::finding::{Deferral, Finding};
use crate::model::fleet::ReplicaState;
use crate::model::id::FileserverId;
use crate::repair::placement;

/// Evidence by which a goal bounds how full the new place may be, in hundredths of a percent: the copy, and all
/// that is under way, counted. It is what keeps a goal that levels disks from moving bytes to and fro.
const FILL_BELOW: &str = "fill_below";

impl Planner<'_> {
    /// The fileserver that takes what is to leave: where such a copy was begun and never finished, if it may still
    /// go there; where the goal says; else where placement says.
    pub(super) fn moved_place(&self, seed: u64) -> Result<FileserverId, Deferral> {
        let leaves = self.finding.subject.fileserver().ok_or_else(gone)?;
        self.repository.on(leaves).filter(|replica| replica.state == ReplicaState::Live).ok_or_else(gone)?;
        let (fleet, repository, pressure) = (self.fleet, self.repository, self.pressure);
        let bytes = self.finding.hints.bytes.unwrap_or(0).max(repository.repository.bytes);
        let instead = (leaves, fill_below(self.finding));
        let free = |id| placement::may_take_instead(fleet, repository, bytes, instead, pressure, id);
        if let Some(id) = self.finding.hints.destination_id {
            if repository.on(id).is_some_and(|replica| replica.state != ReplicaState::Creating) {
                let causes = vec![("with the repository on it".to_owned(), 1)];
                return Err(Deferral::NoDestination { causes });
            }
            return free(id).and_then(|()| pressure.barred(id).map_or(Ok(id), Err));
        }
        let begun = repository.replicas.iter().filter(|replica| replica.state == ReplicaState::Creating);
        match begun.map(|replica| replica.fileserver_id).find(|id| free(*id).is_ok()) {
            Some(id) => pressure.barred(id).map_or(Ok(id), Err),
            None => placement::elsewhere(fleet, repository, bytes, instead, pressure, seed),
        }
    }
}

fn fill_below(finding: &Finding) -> Option<u128> {
    let value = finding.evidence.get(FILL_BELOW)?;
    value.as_i64().map(|fill| fill.max(0).unsigned_abs().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attempt::Step;
    use crate::model::id::RepositoryId;
    use crate::repair::plan::plan;
    use crate::repair::testing::{about_replica, fleet, repair, replica, repository};
    use crate::repair::view::FleetView;

    /// Racks of two: fileservers n and n + 4 stand together. The repository is on 1, 2 and 3.
    fn eight() -> FleetView {
        let mut fleet = fleet(4, 8);
        fleet.repositories.insert(RepositoryId(1), repository(1, &[1, 2, 3]));
        fleet
    }

    fn from_first(below: Option<i64>) -> Finding {
        let mut finding = about_replica(1, Step::Move, 1, 1);
        finding.evidence.extend(below.map(|below| (FILL_BELOW.to_owned(), below.into())));
        finding
    }

    fn places(fleet: &FleetView, finding: &Finding) -> Vec<i64> {
        let mut all: Vec<i64> = (0..60)
            .filter_map(|seed| plan(finding, &repair(Step::Move), fleet, seed).ok())
            .filter_map(|plan| plan.destination_id)
            .map(|id| id.0)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn a_replica_moves_within_its_rack_or_to_a_rack_without_a_copy_and_nowhere_else() {
        assert_eq!(places(&eight(), &from_first(None)), [4, 5, 8]);
    }

    #[test]
    fn no_place_is_taken_that_would_not_stay_below_the_bound_with_all_that_is_under_way() {
        let mut fleet = eight();
        let finding = from_first(Some(3_000));
        fleet.fileservers.get_mut(&FileserverId(4)).unwrap().disk_used = 280;
        fleet.fileservers.get_mut(&FileserverId(8)).unwrap().disk_used = 250;
        assert_eq!(places(&fleet, &finding), [8]);
        *fleet.arriving.slot(FileserverId(8)) = 45;
        assert_eq!(places(&fleet, &finding), [4], "what is on its way counts");
        *fleet.leaving.slot(FileserverId(8)) = 45;
        assert_eq!(places(&fleet, &finding), [8], "and what is about to leave");
        for one in fleet.fileservers.values_mut() {
            one.disk_used = 400;
        }
        let why = plan(&finding, &repair(Step::Move), &fleet, 1).unwrap_err().to_string();
        assert_eq!(
            why,
            "no fileserver may take the copy: 3 with the repository on it, 2 in a rack that has a copy, \
             3 not emptier by enough"
        );
    }

    #[test]
    fn with_fewer_racks_than_copies_a_rack_never_gets_more_crowded_than_the_one_that_is_left() {
        let mut two = fleet(2, 8);
        two.repositories.insert(RepositoryId(1), repository(1, &[1, 2, 3]));
        // Odd ones stand in rack 1 with two copies: what leaves one of them may go to either rack.
        assert_eq!(places(&two, &from_first(None)), [4, 5, 6, 7, 8]);
        // What leaves the only copy of rack 2 stays in rack 2.
        let mut from_second = about_replica(1, Step::Move, 1, 2);
        from_second.evidence = from_first(None).evidence;
        assert_eq!(places(&two, &from_second), [4, 6, 8]);
    }

    #[test]
    fn what_is_asked_for_by_name_is_done_or_said_why_not() {
        let mut finding = from_first(None);
        finding.hints.destination_id = Some(FileserverId(5));
        assert_eq!(places(&eight(), &finding), [5]);
        finding.hints.destination_id = Some(FileserverId(6));
        let why = plan(&finding, &repair(Step::Move), &eight(), 1).unwrap_err().to_string();
        assert_eq!(why, "no fileserver may take the copy: 1 in a rack that has a copy");
    }

    #[test]
    fn full_disks_are_said_with_the_sums() {
        let mut fleet = eight();
        for one in fleet.fileservers.values_mut() {
            (one.disk_used, one.disk_free) = (895, 105);
        }
        let why = plan(&from_first(None), &repair(Step::Move), &fleet, 1);
        assert_eq!(why, Err(Deferral::NotEnoughSpace { needed: 10, placeable: 5 }));
    }

    #[test]
    fn a_replica_that_is_not_live_is_not_moved_and_one_begun_elsewhere_is_gone_on_with() {
        let mut fleet = eight();
        let view = fleet.repositories.get_mut(&RepositoryId(1)).unwrap();
        let mut begun = replica(1, 8);
        (begun.state, begun.in_sync, begun.checksum) = (ReplicaState::Creating, false, None);
        view.replicas.push(begun);
        assert_eq!(places(&fleet, &from_first(None)), [8]);
        fleet.repositories.get_mut(&RepositoryId(1)).unwrap().replicas[0].state = ReplicaState::Leaving;
        assert_eq!(places(&fleet, &from_first(None)), [0_i64; 0]);
    }
}
