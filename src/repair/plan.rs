//! A repair made exact for one finding.
use super::file::Repair;
use super::view::FleetView;
use crate::model::attempt::Plan;
use crate::model::finding::{Deferral, Finding};

/// The plan for a finding, with no choice left open.
///
/// # Errors
/// With the reason, when there is none.
pub fn plan(_finding: &Finding, _repair: &Repair, _fleet: &FleetView, _seed: u64) -> Result<Plan, Deferral> {
    todo!()
}
