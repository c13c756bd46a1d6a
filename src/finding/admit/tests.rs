use super::*;
use crate::model::attempt::Step;
use crate::model::finding::Subject;
use crate::model::fleet::{Health, ReplicaState};
use crate::model::id::{FileserverId, RepositoryId};
use crate::repair::testing::{about_replica, attempt, finding, fleet, repair, repository, wants_copy};
use proptest::prelude::*;
use std::sync::Arc;

mod fleets;
mod laws;

fn repairs(change: impl Fn(&mut Repair)) -> Repairs {
    let one = |step: &Step| {
        let mut repair = repair(*step);
        change(&mut repair);
        (repair.name.clone(), Arc::new(repair))
    };
    Repairs { by_name: Step::ALL.iter().map(one).collect() }
}

/// Everything that a round needs, owned.
#[derive(Debug)]
struct World {
    fleet: FleetView,
    findings: Vec<Finding>,
    running: Vec<Attempt>,
    repairs: Repairs,
    started: BTreeMap<String, u32>,
    fleet_in_flight: u32,
}

impl World {
    fn new(racks: i64, fileservers: i64) -> Self {
        Self {
            fleet: fleet(racks, fileservers),
            findings: Vec::new(),
            running: Vec::new(),
            repairs: repairs(|_| ()),
            started: BTreeMap::new(),
            fleet_in_flight: 1_000,
        }
    }

    fn with(mut self, id: i64, on: &[i64]) -> Self {
        self.fleet.repositories.insert(RepositoryId(id), repository(id, on));
        self
    }

    fn stale(mut self, id: i64, on: i64) -> Self {
        let view = self.fleet.repositories.get_mut(&RepositoryId(id)).unwrap();
        let replica = view.replicas.iter_mut().find(|one| one.fileserver_id.0 == on).unwrap();
        (replica.in_sync, replica.checksum) = (false, None);
        self
    }

    fn finds(mut self, finding: Finding) -> Self {
        self.findings.push(finding);
        self
    }

    fn limits(mut self, change: impl Fn(&mut Repair)) -> Self {
        self.repairs = repairs(change);
        self
    }

    fn runs(mut self, finding: &Finding, seed: u64) -> Self {
        let repair = self.repairs.get(finding.repair.as_ref().unwrap()).unwrap();
        let plan = crate::repair::plan::plan(finding, repair, &self.fleet, seed).unwrap();
        self.running.push(attempt(900 + finding.id.0, finding, plan));
        self
    }

    fn admit(&self, seed: u64) -> Vec<Admission> {
        admit(&Facts {
            findings: &self.findings,
            fleet: &self.fleet,
            running: &self.running,
            repairs: &self.repairs,
            started: &self.started,
            fleet_in_flight: self.fleet_in_flight,
            now: 1_000,
            seed,
        })
    }

    /// The decisions as a person would read them.
    fn told(&self, seed: u64) -> String {
        let lines = self.admit(seed).into_iter().map(|decision| {
            let finding = &self.findings[decision.finding()];
            let said = match decision {
                Admission::Admit { plan, .. } => {
                    let from = plan
                        .source_id
                        .map_or_else(String::new, |id| format!(" from {}", self.fleet.name(id)));
                    let to = plan
                        .destination_id
                        .map_or_else(String::new, |id| format!(" on {}", self.fleet.name(id)));
                    format!("{}{to}{from}", plan.step)
                }
                Admission::Defer { deferral, until, .. } => {
                    let until = until.map_or_else(|| "ready".to_owned(), |until| format!("until {until}"));
                    format!("{deferral} ({until})")
                }
                Admission::Yield { attempt, .. } => format!("attempt {attempt} is to yield"),
            };
            format!("{} {}: {said}", finding.goal, finding.subject)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn decisions_read_as_reasons() {
    let mut late = wants_copy(7, 7);
    late.next_at = 9_000;
    let mut unknown = wants_copy(8, 8);
    unknown.repair = Some("re-paint".to_owned());
    let mut world = World::new(3, 6)
        .with(1, &[1, 2])
        .with(2, &[1, 2, 3])
        .with(3, &[4])
        .with(4, &[1, 2])
        .with(5, &[1, 2])
        .with(6, &[1, 5, 6])
        .with(7, &[1])
        .with(8, &[1])
        .stale(2, 3)
        .stale(3, 4)
        .stale(6, 1)
        .finds(wants_copy(1, 1))
        .finds(about_replica(2, Step::Resync, 2, 3))
        .finds(wants_copy(3, 3))
        .finds(wants_copy(4, 4))
        .finds(about_replica(5, Step::Verify, 1, 2))
        .finds(about_replica(6, Step::Resync, 6, 1))
        .finds(late)
        .finds(unknown)
        .finds(about_replica(9, Step::Verify, 99, 1));
    world.fleet.repositories.get_mut(&RepositoryId(4)).unwrap().repository.bytes = 5_000;
    world.fleet.fileservers.get_mut(&FileserverId(1)).unwrap().health = Health::Suspect;
    insta::assert_snapshot!(world.told(1), @r#"
    replicas-suffice repository:1: replicate on fs-06 from fs-02
    replicas-match replica:2:3: resync on fs-03 from fs-02
    replicas-match replica:6:1: fileserver fs-01 does not answer (until 11000)
    replicas-verified replica:1:2: another attempt works on this repository (until 6000)
    replicas-suffice repository:3: stuck: unrecoverable here: no copy anywhere has the definitive checksum; nothing is removed (until 61000)
    replicas-verified replica:99:1: no fileserver may take the copy: 1 on which this replica no longer stands (until 16000)
    replicas-suffice repository:4: needs 4.8 KiB, 500 B can be placed (until 61000)
    replicas-suffice repository:7: backing off after an attempt (until 9000)
    replicas-suffice repository:8: stuck: no file defines the repair re-paint (until 61000)
    "#);
}

fn about(id: i64, subject: Subject) -> Finding {
    finding(id, Step::Exec, subject)
}

#[test]
fn a_program_may_be_about_anything_and_one_runs_at_a_time_for_each() {
    let key = || Subject::Key("backup".to_owned());
    let mut world = World::new(3, 3).with(1, &[1, 2]);
    world.fleet.fileservers.get_mut(&FileserverId(2)).unwrap().health = Health::Offline;
    let mut any = |finding: Finding| {
        let mut repair = repair(Step::Exec);
        repair.subject = finding.subject.kind();
        repair.name = format!("tell-{}", finding.subject.kind());
        let finding = Finding { repair: Some(repair.name.clone()), ..finding };
        world.repairs.by_name.insert(repair.name.clone(), Arc::new(repair));
        world.findings.push(finding);
    };
    any(about(1, key()));
    any(about(2, key()));
    any(about(3, Subject::Fileserver(FileserverId(2))));
    any(about(4, Subject::Repository(RepositoryId(1))));
    any(about(5, Subject::Replica(RepositoryId(1), FileserverId(2))));
    any(about(6, Subject::Repository(RepositoryId(9))));
    insta::assert_snapshot!(world.told(1), @r"
    things-told key:backup: exec
    things-told fileserver:2: exec on fs-02
    things-told key:backup: another attempt works on this subject (until 6000)
    things-told replica:1:2: exec on fs-02
    things-told repository:1: another attempt works on this repository (until 6000)
    things-told repository:9: no fileserver may take the copy: 1 on which this replica no longer stands (until 16000)
    ");
    let running = world.findings[0].clone();
    let world = world.runs(&running, 1);
    assert!(world.told(1).contains("key:backup: another attempt works on this subject"));
}

#[test]
fn limits_read_as_reasons() {
    let world = World::new(3, 6)
        .with(1, &[1, 2])
        .with(2, &[4, 5])
        .with(3, &[1, 5])
        .finds(wants_copy(1, 1))
        .finds(wants_copy(2, 2))
        .finds(wants_copy(3, 3));
    let per_fileserver = world.limits(|repair| repair.throttle.per_fileserver = 1);
    let fileserver = per_fileserver.told(1);
    let per_rack = per_fileserver.limits(|repair| repair.throttle.per_rack = 1);
    let rack = per_rack.told(1);
    let per_repair = per_rack.limits(|repair| repair.throttle.in_flight = 1);
    let in_flight = per_repair.told(1);
    let mut starts = per_repair.limits(|repair| repair.throttle.starts_per_minute = 7);
    starts.started.insert("re-replicate".to_owned(), 6);
    let rate = starts.told(1);
    let mut fleet = starts.limits(|_| ());
    fleet.fleet_in_flight = 2;
    let whole = fleet.told(1);
    insta::assert_snapshot!([fileserver, rack, in_flight, rate, whole].join("\n--\n"), @r#"
    replicas-suffice repository:1: replicate on fs-06 from fs-01
    replicas-suffice repository:2: replicate on fs-03 from fs-04
    replicas-suffice repository:3: fileserver fs-03 is at its limit of 1 attempt (ready)
    --
    replicas-suffice repository:1: replicate on fs-06 from fs-01
    replicas-suffice repository:2: rack rack-3 is at its limit of 1 attempt (ready)
    replicas-suffice repository:3: rack rack-3 is at its limit of 1 attempt (ready)
    --
    replicas-suffice repository:1: replicate on fs-06 from fs-01
    replicas-suffice repository:2: repair re-replicate is at its limit of 1 attempt (ready)
    replicas-suffice repository:3: repair re-replicate is at its limit of 1 attempt (ready)
    --
    replicas-suffice repository:1: replicate on fs-06 from fs-01
    replicas-suffice repository:2: repair re-replicate is at its limit of 7 attempts (ready)
    replicas-suffice repository:3: repair re-replicate is at its limit of 7 attempts (ready)
    --
    replicas-suffice repository:1: replicate on fs-06 from fs-01
    replicas-suffice repository:2: replicate on fs-03 from fs-04
    replicas-suffice repository:3: the fleet is at its limit of 2 attempts (ready)
    "#);
}

#[test]
fn a_scrub_yields_to_a_verification_and_a_verification_to_no_scrub() {
    let scrubbed = World::new(3, 3).with(1, &[1, 2]).runs(&about_replica(1, Step::Scrub, 1, 1), 1);
    let scrubbed = scrubbed.finds(about_replica(2, Step::Verify, 1, 2));
    assert!(scrubbed.told(1).ends_with("attempt 901 is to yield"), "{}", scrubbed.told(1));
    let mut verified = World::new(3, 3).with(1, &[1, 2]).runs(&about_replica(1, Step::Verify, 1, 1), 1);
    let mut scrub = about_replica(2, Step::Scrub, 1, 2);
    scrub.priority = 900;
    verified = verified.finds(scrub);
    assert!(verified.told(1).contains("another attempt works on this repository"));
}

#[test]
fn a_verification_yields_to_a_more_urgent_repair_of_its_repository_only_if_that_could_start() {
    let world = World::new(3, 3).with(1, &[1, 2]).runs(&about_replica(1, Step::Verify, 1, 1), 1);
    let mut world = world.finds(wants_copy(2, 1)).finds(about_replica(3, Step::Verify, 1, 2));
    assert_eq!(
        world.told(1),
        "replicas-suffice repository:1: attempt 901 is to yield\n\
         replicas-verified replica:1:2: another attempt works on this repository (until 6000)"
    );
    world.findings[0].priority = 50;
    assert!(world.told(1).starts_with("replicas-suffice repository:1: another attempt works"));
    world.findings[0].lane = Lane::Last;
    assert!(world.told(1).starts_with("replicas-suffice repository:1: attempt 901"));
    world.fleet.fileservers.get_mut(&FileserverId(3)).unwrap().health = Health::Offline;
    assert!(world.told(1).starts_with("replicas-suffice repository:1: no fileserver may take"));
}

// Two diagnoses of one subject: the useless one won for ever, elsewhere.
#[test]
fn after_three_attempts_without_effect_the_subjects_other_finding_gets_its_turn() {
    let mut useless = about_replica(1, Step::Resync, 1, 1);
    (useless.priority, useless.ineffective) = (900, 2);
    let other = wants_copy(2, 1);
    let mut world = World::new(4, 4).with(1, &[1, 2]).stale(1, 1).finds(useless).finds(other);
    assert!(world.told(1).starts_with("replicas-match replica:1:1: resync on fs-01"), "{}", world.told(1));
    world.findings[0].ineffective = 3;
    let told = world.told(1);
    assert!(told.starts_with("replicas-suffice repository:1: replicate on"), "{told}");
    assert!(
        told.contains("replicas-match replica:1:1: another attempt works on this repository"),
        "both are shown"
    );
    world.findings[1].ineffective = 3;
    assert!(
        world.told(1).starts_with("replicas-match replica:1:1: resync on fs-01"),
        "equally tired: by priority"
    );
    world.findings[1].ineffective = 0;
    world.fleet.repositories.get_mut(&RepositoryId(1)).unwrap().repository.bytes = 5_000;
    let told = world.told(1);
    assert!(told.contains("replicas-suffice repository:1: needs 4.8 KiB"), "{told}");
    assert!(
        told.contains("replicas-match replica:1:1: resync on fs-01"),
        "the other cannot start, so this one does"
    );
}

#[test]
fn a_copy_under_way_yields_to_nothing() {
    let world = World::new(3, 3).with(1, &[1, 2]).runs(&wants_copy(1, 1), 1);
    let mut urgent = wants_copy(2, 1);
    (urgent.lane, urgent.priority) = (Lane::Last, 999);
    let world = world.finds(urgent);
    assert!(world.told(1).contains("another attempt works on this repository"));
}

#[test]
fn last_copies_start_although_everything_else_is_at_its_limit() {
    let tight = |repair: &mut Repair| {
        let throttle = &mut repair.throttle;
        (throttle.in_flight, throttle.per_fileserver, throttle.per_rack) = (1, 1, 1);
        throttle.starts_per_minute = 1;
    };
    let mut world = World::new(3, 3).with(1, &[1, 2]).with(2, &[1, 2]).with(3, &[1, 2]).limits(tight);
    world.fleet_in_flight = 1;
    world.started.insert("re-replicate".to_owned(), 50);
    let mut last = wants_copy(2, 2);
    last.lane = Lane::Last;
    let mut another = wants_copy(3, 3);
    another.lane = Lane::Last;
    let world = world.runs(&wants_copy(1, 1), 1).finds(last).finds(another);
    let decisions = world.admit(1);
    assert!(matches!(decisions[0], Admission::Admit { finding: 0, .. }), "{decisions:?}");
    assert!(matches!(decisions[1], Admission::Defer { finding: 1, .. }), "they have a bound of their own");
}

#[test]
fn bytes_admitted_in_a_round_are_seen_by_the_decisions_after() {
    let mut world = World::new(3, 3);
    for id in 1..=3 {
        world = world.with(id, &[1, 2]).finds(wants_copy(id, id));
        world.fleet.repositories.get_mut(&RepositoryId(id)).unwrap().repository.bytes = 200;
    }
    insta::assert_snapshot!(world.told(1), @r#"
    replicas-suffice repository:1: replicate on fs-03 from fs-01
    replicas-suffice repository:2: replicate on fs-03 from fs-02
    replicas-suffice repository:3: needs 200 B, 100 B can be placed (until 61000)
    "#);
}

#[test]
fn a_source_at_its_limit_is_passed_over_for_another() {
    let mut world = World::new(3, 9).limits(|repair| repair.throttle.per_fileserver = 1);
    for id in 1..=2 {
        world = world.with(id, &[1, 2]).finds(wants_copy(id, id));
    }
    let admitted = world.admit(1).into_iter().filter(|one| matches!(one, Admission::Admit { .. })).count();
    assert_eq!(admitted, 2, "{}", world.told(1));
}
