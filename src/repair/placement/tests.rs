use super::*;
use crate::model::fleet::ReplicaState;
use crate::repair::testing::{fleet, replica, repository};
use proptest::prelude::*;

fn refused(fleet: &FleetView, repository: &RepositoryView, bytes: i64) -> String {
    destination(fleet, repository, bytes, 1).unwrap_err().to_string()
}

#[test]
fn a_rack_without_a_copy_comes_before_every_emptier_disk() {
    let mut fleet = fleet(3, 9);
    for (id, one) in &mut fleet.fileservers {
        one.disk_used = if id.0 % 3 == 0 { 700 } else { 0 };
    }
    for seed in 0..100 {
        let id = destination(&fleet, &repository(1, &[1, 2]), 10, seed).unwrap();
        assert_eq!(id.0 % 3, 0, "only rack 3 has no copy");
    }
}

#[test]
fn evacuating_fileserver_is_never_a_destination() {
    let mut fleet = fleet(3, 3);
    fleet.fileservers.get_mut(&FileserverId(3)).unwrap().intent = Intent::Evacuate;
    assert_eq!(
        refused(&fleet, &repository(1, &[1, 2]), 10),
        "no fileserver may take the copy: 2 with the repository on it, 1 not serving"
    );
}

#[test]
fn the_sums_are_said_when_only_room_is_missing() {
    let fleet = fleet(3, 3);
    assert_eq!(refused(&fleet, &repository(1, &[1, 2]), 501), "needs 501 B, 500 B can be placed");
    assert!(destination(&fleet, &repository(1, &[1, 2]), 500, 1).is_ok());
}

#[test]
fn what_is_on_its_way_takes_room() {
    let mut fleet = fleet(3, 3);
    *fleet.arriving.slot(FileserverId(3)) = 450;
    assert_eq!(refused(&fleet, &repository(1, &[1, 2]), 51), "needs 51 B, 50 B can be placed");
}

#[test]
fn a_copy_that_no_longer_counts_does_not_occupy_its_rack_but_its_fileserver_stays_taken() {
    let mut fleet = fleet(3, 6);
    fleet.fileservers.get_mut(&FileserverId(3)).unwrap().counts = false;
    fleet.fileservers.get_mut(&FileserverId(3)).unwrap().health = Health::Offline;
    for seed in 0..50 {
        let id = destination(&fleet, &repository(1, &[1, 2, 3]), 10, seed).unwrap();
        assert_eq!(id, FileserverId(6), "the other fileserver of rack 3");
    }
}

#[test]
fn a_limit_is_waited_for_rather_than_crowding_a_rack() {
    struct Full;
    impl Pressure for Full {
        fn arriving(&self, _: FileserverId) -> i64 {
            0
        }
        fn busy(&self, _: FileserverId) -> u32 {
            0
        }
        fn barred(&self, id: FileserverId) -> Option<Deferral> {
            (id.0 == 3).then(|| Deferral::FileserverAtLimit { fileserver: "fs-03".into(), limit: 1 })
        }
    }
    let fleet = fleet(3, 5);
    let answer = destination_under(&fleet, &repository(1, &[1, 2]), 10, false, &Full, 1);
    assert_eq!(answer, Err(Deferral::FileserverAtLimit { fileserver: "fs-03".into(), limit: 1 }));
}

#[test]
fn new_copies_spread_over_fileservers_by_capacity() {
    let mut fleet = fleet(1, 4);
    let large = fleet.fileservers.get_mut(&FileserverId(1)).unwrap();
    (large.capacity, large.disk_used, large.disk_free) = (2_000, 800, 1_200);
    let mut counts = BTreeMap::new();
    for seed in 0..2_000 {
        *counts.entry(new_repository(&fleet, 1, 0, seed)[0]).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 4, "equally full: each is chosen sometimes");
    assert!(counts[&FileserverId(1)] > 2 * counts[&FileserverId(2)] * 7 / 10, "{counts:?}");
}

/// A fleet with everything in it that placement must look at.
fn any_fleet() -> impl Strategy<Value = FleetView> {
    let one =
        (0..4_usize, 0..3_usize, any::<bool>(), 0..12_u8, 0..3_i64, 0..1_100_i64, 0..600_i64, 0..300_i64);
    (1..5_i64, prop::collection::vec(one, 0..14), 50..=100_i64).prop_map(|(racks, rows, fill_limit)| {
        let mut fleet = fleet(racks, i64::try_from(rows.len()).unwrap());
        fleet.fill_limit = fill_limit;
        for (one, row) in fleet.fileservers.values_mut().zip(rows) {
            let (intent, health, counts, odd, weight, used, free, arriving) = row;
            one.intent = if intent == 3 { Intent::Evacuate } else { Intent::Serve };
            one.health = if health == 2 { Health::Suspect } else { Health::Online };
            (one.counts, one.disk_used, one.disk_free) = (counts, used, free);
            one.weight = weight * 100;
            one.empty_since = (odd == 0).then_some(1);
            one.capacity = if odd == 1 { 0 } else { 1_000 };
            *fleet.arriving.slot(one.id) = arriving;
        }
        fleet
    })
}

fn any_repository() -> impl Strategy<Value = RepositoryView> {
    prop::collection::btree_map(1..15_i64, 0..4_usize, 0..6).prop_map(|on| {
        let mut view = repository(1, &[]);
        for (fileserver, state) in on {
            let mut one = replica(1, fileserver);
            one.state = ReplicaState::ALL[state];
            view.replicas.push(one);
        }
        view
    })
}

/// Written apart from the code: may this fileserver take the copy at all?
fn able(fleet: &FleetView, view: &RepositoryView, bytes: i64, one: &Fileserver) -> bool {
    let arriving = fleet.arriving.get(one.id);
    view.replicas.iter().all(|replica| replica.fileserver_id != one.id)
        && one.intent == Intent::Serve
        && one.health == Health::Online
        && one.empty_since.is_none()
        && one.weight > 0
        && one.capacity > 0
        && (one.disk_used + arriving + bytes) * 100 <= one.capacity * fleet.fill_limit
        && arriving + bytes <= one.disk_free
}

fn copies_in_rack(fleet: &FleetView, view: &RepositoryView, rack: RackId) -> usize {
    let countable = |replica: &&crate::model::fleet::Replica| {
        let on = fleet.fileservers.get(&replica.fileserver_id);
        replica.state == ReplicaState::Live && on.is_some_and(|one| one.counts && one.rack_id == rack)
    };
    view.replicas.iter().filter(countable).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn one_more_copy_keeps_every_rule_that_can_be_kept(
        fleet in any_fleet(), view in any_repository(), bytes in 0..600_i64, seed: u64,
    ) {
        let answer = destination(&fleet, &view, bytes, seed);
        prop_assert_eq!(&answer, &destination(&fleet, &view, bytes, seed), "same seed, same answer");
        let able: Vec<_> = fleet.fileservers.values().filter(|one| able(&fleet, &view, bytes.max(1), one)).collect();
        match answer {
            Ok(id) => {
                let chosen = &fleet.fileservers[&id];
                prop_assert!(able.iter().any(|one| one.id == id), "{} may not take it", chosen.name);
                let crowd = copies_in_rack(&fleet, &view, chosen.rack_id);
                for other in &able {
                    prop_assert!(crowd <= copies_in_rack(&fleet, &view, other.rack_id), "rack rule broken");
                }
            }
            Err(deferral) => {
                prop_assert!(able.is_empty(), "{deferral}, though {} could take it", able[0].name);
                let named = matches!(deferral, Deferral::NoDestination { .. } | Deferral::NotEnoughSpace { .. });
                prop_assert!(named, "{deferral}");
            }
        }
    }

    #[test]
    fn a_new_repository_gets_as_many_racks_as_there_can_be(
        fleet in any_fleet(), wanted in 0..8_u32, bytes in 1..600_i64, seed: u64,
    ) {
        let chosen = new_repository(&fleet, wanted, bytes, seed);
        prop_assert_eq!(&chosen, &new_repository(&fleet, wanted, bytes, seed));
        let view = repository(1, &[]);
        let able: Vec<_> = fleet.fileservers.values().filter(|one| able(&fleet, &view, bytes, one)).collect();
        prop_assert_eq!(chosen.len(), able.len().min(wanted as usize));
        let unique: BTreeSet<_> = chosen.iter().collect();
        prop_assert_eq!(unique.len(), chosen.len());
        prop_assert!(chosen.iter().all(|id| able.iter().any(|one| one.id == *id)));
        let racks_able: BTreeSet<_> = able.iter().map(|one| one.rack_id).collect();
        let racks: BTreeSet<_> = chosen.iter().map(|id| fleet.fileservers[id].rack_id).collect();
        prop_assert_eq!(racks.len(), racks_able.len().min(wanted as usize));
    }
}
