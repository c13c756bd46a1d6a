//! Statements that answer people: status, backlog, why. Each is bounded, and reads by an index or a
//! table that is small while all is well; none reads the replicas of the fleet.

pub mod backlog;
pub mod story;
pub mod tally;
pub mod work;

pub use backlog::{BacklogCounts, BacklogFilter, BacklogRow};
pub use story::{About, AttemptRow, ClosedRow, FlagRow};
pub use tally::{Ended, EvaluationTally};
pub use work::LiveRow;
