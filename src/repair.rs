//! Repairs: parse a repair file; placement, source, plan. Pure but for reading the files.
//!
//! A repair does one next safe action and ends; the goal looks again. Planning turns
//! a finding and a view of the fleet into a [`Plan`](crate::model::attempt::Plan)
//! without open choices, or says why there is none. Time and chance are arguments.
//! This module knows nothing of goals, SQL or agents.

pub mod feasibility;
pub mod file;
pub mod library;
pub mod limits;
pub mod placement;
pub mod plan;
pub mod pressure;
pub mod safety;
pub mod units;
pub mod view;

#[cfg(test)]
pub mod testing;

pub use file::Repair;
pub use library::Repairs;
