//! The laws of a round, for any fleet, any findings, any limits.

use super::*;

/// A world in which much can be wrong, with limits small enough to bind.
fn any_world() -> impl Strategy<Value = World> {
    let one_repository = (prop::collection::btree_set(1..9_i64, 1..4), 0..5_usize, 1..200_i64);
    let one_finding = (0..12_i64, 0..4_usize, 0..4_usize, 0..4_i32, 0..4_i64);
    let limits = (1..4_u32, 1..3_u32, 1..4_u32, 1..6_u32, 1..6_u32);
    (
        1..5_i64,
        prop::collection::vec(one_repository, 1..12),
        prop::collection::vec(one_finding, 0..24),
        limits,
        prop::collection::vec(0..10_usize, 8),
    )
        .prop_map(|(racks, repositories, findings, limits, health)| {
            let (in_flight, per_fileserver, per_rack, starts, fleet_in_flight) = limits;
            let mut world = World::new(racks, 8).limits(|repair| {
                let throttle = &mut repair.throttle;
                (throttle.in_flight, throttle.per_fileserver) = (in_flight, per_fileserver);
                (throttle.per_rack, throttle.starts_per_minute) = (per_rack, starts);
            });
            world.fleet_in_flight = fleet_in_flight;
            for (fileserver, health) in world.fleet.fileservers.values_mut().zip(health) {
                fileserver.health = Health::ALL[health.saturating_sub(7)];
            }
            for (id, (on, stale, bytes)) in (1..).zip(repositories) {
                let on: Vec<i64> = on.into_iter().collect();
                let mut view = repository(id, &on);
                view.repository.bytes = bytes;
                if let Some(replica) = view.replicas.get_mut(stale) {
                    (replica.in_sync, replica.checksum) = (false, None);
                }
                world.fleet.repositories.insert(RepositoryId(id), view);
            }
            for (id, row) in (1..).zip(findings) {
                let finding = finding_of(&world, id, row);
                world.findings.extend(finding);
            }
            world
        })
}

fn finding_of(world: &World, id: i64, row: (i64, usize, usize, i32, i64)) -> Option<Finding> {
    let (repository, step, at, priority, opened_at) = row;
    let view = world.fleet.repositories.get(&RepositoryId(repository))?;
    let replica = &view.replicas[at % view.replicas.len()];
    let mut finding = match Step::ALL[step] {
        Step::Replicate => wants_copy(id, repository),
        step => about_replica(id, step, repository, replica.fileserver_id.0),
    };
    (finding.priority, finding.opened_at) = (priority * 100, opened_at);
    if step == 1 && priority == 3 {
        finding.lane = Lane::Last;
    }
    Some(finding)
}

/// Counted anew from plain attempts, apart from the code: no limit is exceeded.
pub(super) fn check_limits(world: &World) -> Result<(), TestCaseError> {
    for last in [false, true] {
        let pool: Vec<_> = world.running.iter().filter(|one| (one.lane == Lane::Last) == last).collect();
        prop_assert!(pool.len() <= world.fleet_in_flight as usize, "fleet");
        for repair in world.repairs.by_name.values() {
            let of: Vec<_> = pool.iter().copied().filter(|one| one.repair == repair.name).collect();
            prop_assert!(of.len() <= repair.throttle.in_flight as usize, "in flight of {}", repair.name);
            check_ends(world, repair, &of)?;
        }
    }
    let subjects: BTreeSet<_> = world.running.iter().map(|one| one.subject.at_once()).collect();
    prop_assert_eq!(subjects.len(), world.running.len(), "two attempts for one subject");
    Ok(())
}

fn check_ends(world: &World, repair: &Repair, attempts: &[&Attempt]) -> Result<(), TestCaseError> {
    let ends =
        |one: &Attempt| one.plan.source_id.into_iter().chain(one.plan.destination_id).collect::<Vec<_>>();
    let throttle = repair.throttle;
    for fileserver in world.fleet.fileservers.values() {
        let here = attempts.iter().filter(|one| ends(one).contains(&fileserver.id)).count();
        prop_assert!(here <= throttle.per_fileserver as usize, "{} at {}", repair.name, fileserver.name);
        let stands = |id: &FileserverId| world.fleet.fileservers[id].rack_id == fileserver.rack_id;
        let here = attempts.iter().filter(|one| ends(one).iter().any(stands)).count();
        prop_assert!(here <= throttle.per_rack as usize, "{} in {}", repair.name, fileserver.rack);
    }
    Ok(())
}

/// Whatever else is on its way, copies that are new do not fill a disk beyond its limit.
pub(super) fn check_space(world: &World) -> Result<(), TestCaseError> {
    for one in world.fleet.fileservers.values() {
        let new = |at: &&Attempt| at.plan.step.begins_copy() && at.plan.destination_id == Some(one.id);
        let arriving: i64 = world.running.iter().filter(new).map(|at| at.plan.bytes).sum();
        let full = one.disk_used + arriving;
        prop_assert!(
            arriving == 0 || full * 100 <= one.capacity * world.fleet.fill_limit,
            "{} is over",
            one.name
        );
    }
    Ok(())
}

/// Carries a round's decisions out, as the dispatcher would. Returns the findings that left.
fn carry_out(world: &mut World, decisions: &[Admission]) -> Vec<Finding> {
    let mut admitted = BTreeSet::new();
    for decision in decisions {
        match decision {
            Admission::Admit { finding, plan } => {
                let finding = &world.findings[*finding];
                world.running.push(attempt(1_000 + finding.id.0, finding, plan.clone()));
                *world.started.entry(finding.repair.clone().unwrap()).or_insert(0) += 1;
                if let Some(here) = plan.destination_id.filter(|_| plan.step.brings_bytes()) {
                    *world.fleet.arriving.slot(here) += plan.bytes;
                }
                admitted.insert(finding.id);
            }
            // Only what reads yields, and it brings no bytes.
            Admission::Yield { attempt, .. } => world.running.retain(|one| one.id != *attempt),
            Admission::Defer { .. } => {}
        }
    }
    world.findings.extract_if(.., |finding| admitted.contains(&finding.id)).collect()
}

fn end(world: &mut World, index: usize) {
    let ended = world.running.remove(index);
    if let Some(here) = ended.plan.destination_id.filter(|_| ended.plan.step.brings_bytes()) {
        *world.fleet.arriving.slot(here) -= ended.plan.bytes;
    }
}

/// Whether a finding could start if nothing else ran.
fn eligible(world: &World, finding: &Finding) -> bool {
    let repair = world.repairs.get(finding.repair.as_ref().unwrap()).unwrap();
    crate::repair::plan::plan(finding, repair, &world.fleet, 1).is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_finding_gets_one_decision_and_the_same_facts_the_same_decisions(world in any_world(), seed: u64) {
        let decisions = world.admit(seed);
        prop_assert_eq!(&decisions, &world.admit(seed));
        let mut decided: Vec<_> = decisions.iter().map(Admission::finding).collect();
        decided.sort_unstable();
        prop_assert_eq!(decided, (0..world.findings.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_limit_is_exceeded_in_any_schedule(
        mut world in any_world(), seed: u64, ends in prop::collection::vec(any::<prop::sample::Index>(), 12),
    ) {
        let mut starts: BTreeMap<String, u32> = BTreeMap::new();
        for (round, index) in (0_u64..).zip(ends) {
            let decisions = world.admit(seed.wrapping_add(round));
            for finding in carry_out(&mut world, &decisions).iter().filter(|one| one.lane != Lane::Last) {
                *starts.entry(finding.repair.clone().unwrap()).or_insert(0) += 1;
            }
            check_limits(&world)?;
            check_space(&world)?;
            for (repair, starts) in &starts {
                let limit = world.repairs.get(repair).unwrap().throttle.starts_per_minute;
                prop_assert!(*starts <= limit, "{starts} starts of {repair}");
            }
            if !world.running.is_empty() {
                let index = index.index(world.running.len());
                end(&mut world, index);
            }
            if round % 3 == 2 {
                world.started.clear();
                starts.clear();
            }
        }
    }

    #[test]
    fn with_every_limit_at_one_everything_that_can_finishes(world in any_world(), seed: u64) {
        let mut world = world.limits(|repair| {
            let throttle = &mut repair.throttle;
            (throttle.in_flight, throttle.per_fileserver, throttle.per_rack) = (1, 1, 1);
            throttle.starts_per_minute = 1;
        });
        world.fleet_in_flight = 1;
        for round in 0..100 {
            let could = world.findings.iter().any(|finding| eligible(&world, finding));
            let decisions = world.admit(seed.wrapping_add(round));
            let started = carry_out(&mut world, &decisions).len();
            prop_assert_eq!(could, started > 0, "nothing was in flight");
            if !could {
                return Ok(());
            }
            while !world.running.is_empty() {
                end(&mut world, 0);
            }
            world.started.clear();
        }
        prop_assert!(false, "a hundred rounds did not finish {} findings", world.findings.len());
    }

    #[test]
    fn what_a_round_leaves_the_next_cannot_start_either(mut world in any_world(), seed: u64) {
        let decisions = world.admit(seed);
        carry_out(&mut world, &decisions);
        let again = world.admit(seed.wrapping_add(1));
        let more = again.iter().filter(|one| matches!(one, Admission::Admit { .. })).count();
        prop_assert_eq!(more, 0, "more could have started at once");
    }
}

#[test]
fn a_removing_replica_is_neither_source_nor_subject() {
    let mut world = World::new(3, 3).with(1, &[1, 2]);
    for replica in &mut world.fleet.repositories.get_mut(&RepositoryId(1)).unwrap().replicas {
        replica.state = ReplicaState::Removing;
    }
    let world = world.finds(wants_copy(1, 1)).finds(about_replica(2, Step::Verify, 1, 1));
    assert!(world.admit(1).iter().all(|one| matches!(one, Admission::Defer { .. })));
}

#[test]
fn a_subject_that_the_repair_does_not_take_is_a_matter_for_a_person() {
    let mut finding = wants_copy(1, 1);
    finding.subject = Subject::Key("x".to_owned());
    let world = World::new(3, 3).finds(finding);
    assert!(world.told(1).contains("repair re-replicate is done to a repository, not to a key"));
}

/// A fleet of the size that a round is meant for: 300 fileservers, the heads of all their lanes.
#[test]
fn a_full_round_starts_what_its_limits_allow() {
    let mut world = World::new(30, 300);
    for id in 1..=2_400 {
        let on = [1 + id % 300, 1 + (id + 7) % 300];
        world = world.with(id, &on);
        let mut finding = wants_copy(id, id);
        finding.lane = Lane::Fileserver(FileserverId(on[0]));
        world.findings.push(finding);
    }
    let decisions = world.admit(1);
    let admitted = decisions.iter().filter(|one| matches!(one, Admission::Admit { .. })).count();
    assert_eq!(admitted, 400, "the repair's own limit is what binds");
    let at_limit = Deferral::RepairAtLimit { repair: "re-replicate".to_owned(), limit: 400 };
    let waits = |one: &&Admission| matches!(one, Admission::Defer { deferral, until: None, .. } if *deferral == at_limit);
    assert_eq!(decisions.iter().filter(waits).count(), 2_000);
}
