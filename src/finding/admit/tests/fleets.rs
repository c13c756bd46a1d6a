//! Whole fleets on a manual clock: random goals, faults and lost workers; the real decisions, a toy execution.
//!
//! Each seed is one fleet. While faults come and go, and after they have ended, no limit is ever exceeded, nothing
//! idles that may run, and no repair leaves fewer verified copies than min(wanted, what there was). Once faults have
//! ended everything that can be mended is mended. `TRUED_TEST_SEEDS` runs another number of seeds, `TRUED_TEST_SEED`
//! one of them.

use super::*;
use crate::model::finding::FindingState;
use crate::model::fleet::Replica;
use crate::model::per_id::PerId;
use crate::repair::safety;
use crate::repair::testing::finding;
use crate::repair::view::RepositoryView;

mod toys;

use toys::{Dice, any_repository, effect};

const TICK: Millis = 10_000;
/// Rounds in which faults happen, and rounds within which all must be well after that.
const FAULTY: u32 = 25;
const PATIENCE: u32 = 400;
const EVALUATE_EVERY: u32 = 3;

/// An attempt under way, and when it will have ended.
struct Under {
    attempt: Attempt,
    ends: u32,
}

struct Sim {
    seed: u64,
    dice: Dice,
    tick: u32,
    now: Millis,
    fleet: FleetView,
    repairs: Repairs,
    fleet_in_flight: u32,
    open: BTreeMap<(String, Subject), Finding>,
    under: Vec<Under>,
    /// When, of which repair, and whether the rate binds it.
    starts: Vec<(u32, String, bool)>,
    ids: i64,
    /// Copies are moved away from it.
    crowded: FileserverId,
    /// Whether the last round cancelled what only reads.
    made_way: bool,
}

impl Sim {
    fn new(seed: u64, ones: bool) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (racks, servers) = (1 + dice.below(4), 2 + dice.below(7));
        let mut fleet = fleet(racks, servers);
        for one in fleet.fileservers.values_mut() {
            one.capacity = 1_000 + 500 * dice.below(4);
            one.disk_free = one.capacity - one.disk_used;
        }
        for id in 1..=1 + dice.below(8) {
            let view = any_repository(&mut dice, id, servers);
            fleet.repositories.insert(RepositoryId(id), view);
        }
        let limit =
            |dice: &mut Dice, most| if ones { 1 } else { u32::try_from(1 + dice.below(most)).unwrap() };
        let throttle = [limit(&mut dice, 5), limit(&mut dice, 3), limit(&mut dice, 4), limit(&mut dice, 8)];
        let repairs = repairs(|repair| {
            let one = &mut repair.throttle;
            [one.in_flight, one.per_fileserver, one.per_rack, one.starts_per_minute] = throttle;
            (repair.retry.first_ms, repair.retry.max_ms) = (1_000, 40_000);
        });
        let fleet_in_flight = limit(&mut dice, 6);
        let (open, under, starts) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self {
            seed,
            dice,
            tick: 0,
            now: 0,
            fleet,
            repairs,
            fleet_in_flight,
            open,
            under,
            starts,
            ids: 0,
            crowded: FileserverId(1),
            made_way: false,
        }
    }

    fn says(&self, what: &str) -> String {
        format!("seed {} at tick {}: {what}", self.seed, self.tick)
    }

    fn run(&mut self) {
        while self.tick < FAULTY {
            self.faults();
            self.step();
        }
        for one in self.fleet.fileservers.values_mut() {
            (one.health, one.counts) = (Health::Online, true);
        }
        while self.tick < FAULTY + PATIENCE {
            self.step();
            if self.tick.is_multiple_of(EVALUATE_EVERY) && self.under.is_empty() && self.all_is_done() {
                return;
            }
        }
        let left: Vec<_> =
            self.open.values().map(|one| format!("{} {} {:?}", one.goal, one.subject, one.state)).collect();
        panic!("{}", self.says(&format!("never came to rest: {left:?}")));
    }

    fn step(&mut self) {
        self.tick += 1;
        self.now += TICK;
        self.endings();
        if self.tick.is_multiple_of(EVALUATE_EVERY) {
            self.evaluate();
        }
        self.dispatch();
        self.laws();
    }

    /// What remains open is what nobody could mend now.
    fn all_is_done(&self) -> bool {
        self.open.values().all(|one| {
            let repair = self.repairs.get(one.repair.as_ref().unwrap()).unwrap();
            crate::repair::plan::plan(one, repair, &self.fleet, 1).is_err()
        })
    }

    fn faults(&mut self) {
        let mut dice = std::mem::replace(&mut self.dice, Dice(1));
        for one in self.fleet.fileservers.values_mut() {
            if one.health == Health::Online && dice.one_in(25) {
                (one.health, one.counts) = (Health::Offline, dice.one_in(2));
            } else if one.health != Health::Online && dice.one_in(4) {
                (one.health, one.counts) = (Health::Online, true);
            }
        }
        for view in self.fleet.repositories.values_mut() {
            // What is damaged is never the last one: nobody could mend that.
            if dice.one_in(12) && verified(view) > 1 {
                let at = usize::try_from(dice.below(view.replicas.len() as u64)).unwrap();
                (view.replicas[at].in_sync, view.replicas[at].checksum) = (false, None);
            }
            if dice.one_in(30) {
                view.repository.wanted = u32::try_from(1 + dice.below(4)).unwrap();
            }
        }
        // A worker dies: nobody says how its attempt ended.
        if !self.under.is_empty() && dice.one_in(6) {
            let at = usize::try_from(dice.below(self.under.len() as u64)).unwrap();
            let lost = self.under.remove(at);
            self.again(&lost.attempt, 0);
        }
        self.dice = dice;
    }

    /// Attempts whose time is over: done, failed, or no longer true.
    fn endings(&mut self) {
        let tick = self.tick;
        let (ended, under): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under).into_iter().partition(|one| one.ends <= tick);
        self.under = under;
        for Under { attempt, .. } in ended {
            let fails = self.tick < FAULTY && self.dice.one_in(5);
            if fails || !self.perform(&attempt) {
                self.again(&attempt, 1);
            } else if let Some(finding) = self.open.get_mut(&(attempt.goal.clone(), attempt.subject.clone()))
            {
                // The next evaluation judges.
                (finding.state, finding.next_at) = (FindingState::Waiting, Millis::MAX);
            }
        }
    }

    fn again(&mut self, attempt: &Attempt, failed: i32) {
        let chance = self.dice.next();
        let Some(finding) = self.open.get_mut(&(attempt.goal.clone(), attempt.subject.clone())) else {
            return;
        };
        finding.tries += failed;
        let retry = self.repairs.get(&attempt.repair).unwrap().retry;
        let wait = if failed > 0 { retry.backoff(finding.tries, chance) } else { 0 };
        (finding.state, finding.next_at) = (FindingState::Waiting, self.now + wait);
    }

    /// Does a step as a worker would; `false`: its plan is no longer true.
    fn perform(&mut self, attempt: &Attempt) -> bool {
        let plan = &attempt.plan;
        let up = |id: &FileserverId| self.fleet.fileservers[id].health == Health::Online;
        let (Some(repository), Some(here)) = (plan.repository_id, plan.destination_id) else { return false };
        let there = [Some(here), plan.source_id].into_iter().flatten().all(|id| up(&id));
        let view = &self.fleet.repositories[&repository];
        let good = |id: FileserverId| view.on(id).is_some_and(|one| view.is_definitive(one));
        if !there || plan.source_id.is_some_and(|id| !good(id)) {
            return false;
        }
        // A worker asks the others once more before it takes a copy away.
        let spared = || safety::may_remove(&self.fleet, &self.fleet.repositories[&repository], here).is_ok();
        if plan.step == Step::Remove && !spared() {
            return false;
        }
        let view = self.fleet.repositories.get_mut(&repository).unwrap();
        let (before, wanted) = (verified(view), view.repository.wanted as usize);
        effect(plan.step, view, here, attempt.subject.fileserver());
        let after = verified(view);
        let said = format!(
            "seed {}: {} left {after} of {before} verified copies, {wanted} wanted",
            self.seed, plan.step
        );
        assert!(after >= before.min(wanted), "{said}");
        if plan.step.begins_copy() || plan.step == Step::Remove {
            let bytes =
                if plan.step == Step::Remove { -view.repository.bytes } else { view.repository.bytes };
            let one = self.fleet.fileservers.get_mut(&here).unwrap();
            (one.disk_used, one.disk_free) = (one.disk_used + bytes, one.disk_free - bytes);
        }
        true
    }

    /// Every goal at once; a finding keeps what was tried, one that is no longer returned closes.
    fn evaluate(&mut self) {
        let mut returned = Vec::new();
        for (id, view) in &self.fleet.repositories {
            let counted = |one: &&Replica| {
                one.state == ReplicaState::Live && self.fleet.fileservers[&one.fileserver_id].counts
            };
            let countable = view.replicas.iter().filter(counted).count();
            if countable < view.repository.wanted as usize {
                returned.push((Step::Replicate, Subject::Repository(*id), countable == 1));
            }
            for one in view.replicas.iter().filter(|one| !one.in_sync) {
                returned.push((Step::Resync, Subject::Replica(*id, one.fileserver_id), false));
            }
            for one in view.replicas.iter().filter(|one| one.in_sync && one.verified_at.is_none()) {
                returned.push((Step::Verify, Subject::Replica(*id, one.fileserver_id), false));
            }
            for spare in self.spare(view) {
                returned.push((Step::Remove, Subject::Replica(*id, spare), false));
            }
            for one in view.replicas.iter().filter(|one| one.in_sync && one.fileserver_id == self.crowded) {
                if one.state == ReplicaState::Live {
                    returned.push((Step::Move, Subject::Replica(*id, one.fileserver_id), false));
                }
            }
        }
        let mut open = BTreeMap::new();
        for (step, subject, last) in returned {
            self.ids += 1;
            let mut fresh = finding(self.ids, step, subject);
            (fresh.opened_at, fresh.lane) = (self.now, if last { Lane::Last } else { fresh.lane });
            let key = (fresh.goal.clone(), fresh.subject.clone());
            let mut one = self.open.remove(&key).unwrap_or(fresh);
            if one.next_at == Millis::MAX {
                // It was mended, and is returned again.
                one.ineffective += 1;
                one.next_at = self.now;
            }
            open.insert(key, one);
        }
        self.open = open;
    }

    /// Copies that leave and, where more count than are wanted, the last of them: once others suffice.
    fn spare(&self, view: &RepositoryView) -> Vec<FileserverId> {
        let vouching: Vec<&Replica> =
            view.replicas.iter().filter(|one| safety::vouches(&self.fleet, view, one)).collect();
        let wanted = view.repository.wanted as usize;
        if vouching.len() < wanted {
            return Vec::new();
        }
        let leaving = view.replicas.iter().filter(|one| one.state == ReplicaState::Leaving);
        let excess = vouching.iter().skip(wanted).take(1).copied();
        leaving.chain(excess).map(|one| one.fileserver_id).collect()
    }

    fn dispatch(&mut self) {
        let now = self.now;
        for one in self.open.values_mut() {
            if one.state == FindingState::Waiting && one.next_at <= now {
                one.state = FindingState::Ready;
            }
        }
        let (ready, decisions) = self.decide();
        let mut taken = 0;
        // The next round starts what these make way for.
        self.made_way = decisions.iter().any(|one| matches!(one, Admission::Yield { .. }));
        for decision in decisions {
            match decision {
                Admission::Admit { finding, plan } => {
                    taken += 1;
                    self.start(&ready[finding], plan);
                }
                Admission::Yield { attempt, .. } => {
                    let at = self.under.iter().position(|one| one.attempt.id == attempt).unwrap();
                    let yields = self.under.remove(at);
                    assert!(self.repairs.get(&yields.attempt.repair).unwrap().yields());
                    self.again(&yields.attempt, 0);
                }
                // They stay ready here: patience would only make the simulation longer.
                Admission::Defer { .. } => {}
            }
        }
        if taken == 0 && self.under.is_empty() && !self.made_way {
            let could = |one: &&Finding| {
                let repair = self.repairs.get(one.repair.as_ref().unwrap()).unwrap();
                self.started(&repair.name) < repair.throttle.starts_per_minute
                    && crate::repair::plan::plan(one, repair, &self.fleet, 1).is_ok()
            };
            let idle = ready.iter().find(could).map(|one| format!("{} of {}", one.goal, one.subject));
            assert_eq!(idle, None, "{}", self.says("nothing runs although it could"));
        }
    }

    fn decide(&mut self) -> (Vec<Finding>, Vec<Admission>) {
        let ready: Vec<Finding> =
            self.open.values().filter(|one| one.state == FindingState::Ready).cloned().collect();
        let running: Vec<Attempt> = self.under.iter().map(|one| one.attempt.clone()).collect();
        self.fleet.arriving = PerId::default();
        for plan in running.iter().map(|one| &one.plan).filter(|plan| plan.step.brings_bytes()) {
            *self.fleet.arriving.slot(plan.destination_id.unwrap()) += plan.bytes;
        }
        let started = self.repairs.by_name.keys().map(|name| (name.clone(), self.started(name))).collect();
        let facts = Facts {
            findings: &ready,
            fleet: &self.fleet,
            running: &running,
            repairs: &self.repairs,
            started: &started,
            fleet_in_flight: self.fleet_in_flight,
            now: self.now,
            seed: self.dice.next(),
        };
        let decisions = admit(&facts);
        (ready, decisions)
    }

    /// Starts of the last minute, last copies among them: they count, although no rate binds them.
    fn started(&self, repair: &str) -> u32 {
        let since = self.tick.saturating_sub(6);
        u32::try_from(self.starts.iter().filter(|(at, name, _)| *at > since && name == repair).count())
            .unwrap()
    }

    fn start(&mut self, finding: &Finding, plan: Plan) {
        self.ids += 1;
        let ends = self.tick + 1 + u32::try_from(self.dice.below(4)).unwrap();
        let attempt = attempt(self.ids, finding, plan);
        self.starts.push((self.tick, attempt.repair.clone(), finding.lane != Lane::Last));
        self.under.push(Under { attempt, ends });
        self.open.get_mut(&(finding.goal.clone(), finding.subject.clone())).unwrap().state =
            FindingState::Running;
    }

    /// No limit is exceeded, no disk filled beyond its own; and what a round left, another could not start either.
    fn laws(&mut self) {
        let world = World {
            fleet: self.fleet.clone(),
            findings: Vec::new(),
            running: self.under.iter().map(|one| one.attempt.clone()).collect(),
            repairs: self.repairs.clone(),
            started: BTreeMap::new(),
            fleet_in_flight: self.fleet_in_flight,
        };
        super::laws::check_limits(&world).unwrap_or_else(|error| panic!("{}", self.says(&error.to_string())));
        super::laws::check_space(&world).unwrap_or_else(|error| panic!("{}", self.says(&error.to_string())));
        for repair in self.repairs.by_name.values() {
            let since = self.tick.saturating_sub(6);
            let bound =
                self.starts.iter().filter(|(at, name, bound)| *bound && *at > since && *name == repair.name);
            let started = u32::try_from(bound.count()).unwrap();
            assert!(started <= repair.throttle.starts_per_minute, "{}", self.says("too many starts"));
        }
        let (_, again) = self.decide();
        let more = again.iter().filter(|one| matches!(one, Admission::Admit { .. })).count();
        assert!(more == 0 || self.made_way, "{}", self.says("more could have started at once"));
    }
}

/// Copies that are as they ought to be, wherever they are.
fn verified(view: &RepositoryView) -> usize {
    view.replicas.iter().filter(|one| view.is_definitive(one)).count()
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(one) = number("TRUED_TEST_SEED") {
        return one..one + 1;
    }
    0..number("TRUED_TEST_SEEDS").unwrap_or(usual)
}

#[test]
fn whatever_happens_limits_hold_nothing_idles_no_copy_is_lost_and_all_is_mended_in_the_end() {
    for seed in seeds(2_000) {
        Sim::new(seed, false).run();
    }
}

#[test]
fn with_every_limit_at_one_all_is_mended_all_the_same() {
    for seed in seeds(1_000) {
        Sim::new(seed, true).run();
    }
}
