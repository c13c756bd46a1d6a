//! The decision of one dispatch round.
//!
//! [`admit`] reads one snapshot and answers for each finding in it. It promises that no
//! limit is exceeded whatever it decides, that a repository gets one attempt at most,
//! and that something starts whenever something can. It writes nothing: whoever carries
//! the decisions out may still be refused by SQL, and then the next round decides anew.

use super::limits::Limits;
use super::order::Turns;
use crate::model::Millis;
use crate::model::attempt::{Attempt, Plan};
use crate::model::finding::{Deferral, Finding, Lane, Subject};
use crate::model::id::AttemptId;
use crate::repair::plan::plan_under;
use crate::repair::view::FleetView;
use crate::repair::{Repair, Repairs};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// After so many attempts without effect another finding about the same subject goes first: it may be the one that helps.
pub const TIRED_AFTER: i32 = 3;

/// What a round decides from.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Ready findings: the head of each lane, in any order.
    pub findings: &'a [Finding],
    /// The fleet.
    pub fleet: &'a FleetView,
    /// Live attempts.
    pub running: &'a [Attempt],
    /// All repairs.
    pub repairs: &'a Repairs,
    /// Attempts admitted in the last minute, by repair.
    pub started: &'a BTreeMap<String, u32>,
    /// Attempts that may be in flight in the whole fleet; last copies have as many again.
    pub fleet_in_flight: u32,
    /// The moment of the facts.
    pub now: Millis,
    /// Chance, as an argument.
    pub seed: u64,
}

/// What is decided about one finding.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// Its repair starts.
    Admit {
        /// Index in `findings`.
        finding: usize,
        /// What is done.
        plan: Plan,
    },
    /// Its repair waits.
    Defer {
        /// Index in `findings`.
        finding: usize,
        /// Why.
        deferral: Deferral,
        /// Until when it need not be looked at; `None`: it stays ready.
        until: Option<Millis>,
    },
    /// An attempt that only reads is in its way and is to be cancelled; the next round decides about the finding.
    Yield {
        /// Index in `findings`; it stays ready.
        finding: usize,
        /// The attempt to cancel.
        attempt: AttemptId,
    },
}

impl Admission {
    /// Index of the finding that is decided about.
    #[must_use]
    pub const fn finding(&self) -> usize {
        match self {
            Self::Admit { finding, .. } | Self::Defer { finding, .. } | Self::Yield { finding, .. } => {
                *finding
            }
        }
    }
}

/// How long a deferral stands before the finding is looked at again; `None`: it stays ready, since what it waits for
/// ends at any moment. The others leave the head of their lane, or what cannot be done would hide what can.
#[must_use]
pub const fn patience(deferral: &Deferral) -> Option<Millis> {
    match deferral {
        Deferral::RepairAtLimit { .. }
        | Deferral::FileserverAtLimit { .. }
        | Deferral::RackAtLimit { .. }
        | Deferral::FleetAtLimit { .. } => None,
        Deferral::RepositoryBusy | Deferral::SubjectBusy => Some(5_000),
        Deferral::FileserverAway { .. } | Deferral::QuorumAtRisk | Deferral::CopyNeeded { .. } => {
            Some(10_000)
        }
        Deferral::NoSource | Deferral::NoDestination { .. } | Deferral::CoolingDown { .. } => Some(15_000),
        Deferral::NotEnoughSpace { .. }
        | Deferral::Paused { .. }
        | Deferral::Braked { .. }
        | Deferral::Stuck { .. }
        | Deferral::Undone { .. }
        | Deferral::Ripening { .. } => Some(60_000),
    }
}

/// One decision for each finding, deterministic for the same facts.
#[must_use]
pub fn admit(facts: &Facts<'_>) -> Vec<Admission> {
    let mut round = Round::new(facts);
    let mut turns = Turns::new(facts.findings, facts.seed);
    let mut decisions = Vec::with_capacity(facts.findings.len());
    let mut admitted = false;
    while let Some(finding) = turns.next(admitted) {
        admitted = false;
        for finding in round.rivals_of(finding).into_iter().chain([finding]) {
            if !round.decided.insert(finding) {
                continue;
            }
            let decision = round.decide(finding).unwrap_or_else(|deferral| round.defer(finding, deferral));
            admitted |= matches!(decision, Admission::Admit { .. });
            decisions.push(decision);
        }
    }
    decisions
}

/// Findings by subject, where there are several and one of them is tired.
fn rivals(findings: &[Finding]) -> BTreeMap<Subject, Vec<usize>> {
    let tired = findings.iter().filter(|one| one.ineffective >= TIRED_AFTER);
    let mut rivals: BTreeMap<Subject, Vec<usize>> =
        tired.map(|one| (one.subject.at_once(), Vec::new())).collect();
    if rivals.is_empty() {
        return rivals;
    }
    for (index, finding) in findings.iter().enumerate() {
        if let Some(all) = rivals.get_mut(&finding.subject.at_once()) {
            all.push(index);
        }
    }
    rivals
}

struct Round<'a> {
    facts: &'a Facts<'a>,
    limits: Limits<'a>,
    /// The live attempt of each repository, fileserver and key.
    attempts: BTreeMap<Subject, &'a Attempt>,
    /// Those that this round has decided to work on, or to clear for work.
    taken: BTreeSet<Subject>,
    /// Findings about a subject of which one is tired.
    rivals: BTreeMap<Subject, Vec<usize>>,
    decided: BTreeSet<usize>,
}

impl<'a> Round<'a> {
    fn new(facts: &'a Facts<'a>) -> Self {
        Self {
            facts,
            limits: Limits::new(facts.fleet, facts.fleet_in_flight, facts.running, facts.started),
            attempts: facts.running.iter().map(|one| (one.subject.at_once(), one)).collect(),
            taken: BTreeSet::new(),
            rivals: rivals(facts.findings),
            decided: BTreeSet::new(),
        }
    }

    /// Findings about the same subject that go before this one, because it was tried without effect more often.
    fn rivals_of(&self, index: usize) -> Vec<usize> {
        let findings = self.facts.findings;
        let one = &findings[index];
        let Some(all) = self.rivals.get(&one.subject.at_once()).filter(|_| one.ineffective >= TIRED_AFTER)
        else {
            return Vec::new();
        };
        let mut before: Vec<usize> =
            all.iter().copied().filter(|other| findings[*other].ineffective < one.ineffective).collect();
        before
            .sort_by_key(|other| (findings[*other].ineffective, Reverse(findings[*other].priority), *other));
        before
    }

    fn decide(&mut self, index: usize) -> Result<Admission, Deferral> {
        let finding = &self.facts.findings[index];
        let repair = self.repair_of(finding)?;
        if finding.next_at > self.facts.now {
            return Err(Deferral::CoolingDown { until: Some(finding.next_at) });
        }
        let in_the_way = self.in_the_way(finding, repair)?;
        if let Some(deferral) = self.limits.exhausted(finding.lane, repair) {
            return Err(deferral);
        }
        // Each finding of a round has its own chance, and the same one in every replay.
        let seed = self.facts.seed ^ finding.id.0.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let pressure = self.limits.pressure(finding.lane, repair);
        let plan = plan_under(finding, repair, self.facts.fleet, &pressure, seed)?;
        if let Some(attempt) = in_the_way {
            self.limits.allows(finding.lane, repair, &plan)?;
            self.taken.insert(finding.subject.at_once());
            return Ok(Admission::Yield { finding: index, attempt });
        }
        self.limits.take(finding.lane, repair, &plan)?;
        self.taken.insert(finding.subject.at_once());
        Ok(Admission::Admit { finding: index, plan })
    }

    fn repair_of(&self, finding: &Finding) -> Result<&'a Repair, Deferral> {
        let stuck = |reason| Deferral::Stuck { reason };
        let name = finding.repair.as_ref().ok_or_else(|| stuck("its goal names no repair".to_owned()))?;
        let repair = self
            .facts
            .repairs
            .get(name)
            .ok_or_else(|| stuck(format!("no file defines the repair {name}")))?;
        if repair.takes(finding.subject.kind()) {
            return Ok(repair);
        }
        Err(stuck(format!(
            "repair {name} is done to a {}, not to a {}",
            repair.subject,
            finding.subject.kind()
        )))
    }

    /// The attempt that would have to end first; `None`: none is in the way.
    ///
    /// # Errors
    /// When one is in the way that does not yield to this finding.
    fn in_the_way(&self, finding: &Finding, repair: &Repair) -> Result<Option<AttemptId>, Deferral> {
        let subject = finding.subject.at_once();
        let busy = || match subject {
            Subject::Repository(_) => Deferral::RepositoryBusy,
            _ => Deferral::SubjectBusy,
        };
        if self.taken.contains(&subject) {
            return Err(busy());
        }
        let Some(attempt) = self.attempts.get(&subject) else { return Ok(None) };
        let running = self.facts.repairs.get(&attempt.repair);
        // What reads does not end what reads; but tidying takes hours, and a verification is not made to wait for it.
        let yields = running.is_some_and(|running| {
            running.yields() && (!repair.yields() || (running.tidies() && !repair.tidies()))
        });
        let urgency = |lane, priority| (lane == Lane::Last, priority);
        let more_urgent = urgency(finding.lane, finding.priority) > urgency(attempt.lane, attempt.priority);
        if yields && more_urgent {
            return Ok(Some(attempt.id));
        }
        Err(busy())
    }

    fn defer(&self, finding: usize, deferral: Deferral) -> Admission {
        let until = match &deferral {
            Deferral::CoolingDown { until: Some(until) } => Some(*until),
            other => patience(other).map(|wait| self.facts.now.saturating_add(wait)),
        };
        Admission::Defer { finding, deferral, until }
    }
}

#[cfg(test)]
mod tests;
