//! The decision of one dispatch round.
use crate::model::Millis;
use crate::model::attempt::{Attempt, Plan};
use crate::model::finding::{Deferral, Finding};
use crate::repair::Repairs;
use crate::repair::view::FleetView;
use std::collections::BTreeMap;

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
    /// Attempts that may be in flight in the whole fleet.
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
}

/// One decision for each finding, deterministic for the same facts.
#[must_use]
pub fn admit(_facts: &Facts<'_>) -> Vec<Admission> {
    todo!()
}
