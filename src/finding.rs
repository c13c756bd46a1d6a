//! Compare, order, throttle, admit. Pure: facts in, decisions out.
//!
//! One call decides one dispatch round. For each ready finding there is exactly one
//! decision: a plan without open choices, a reason to wait, or the attempt that must
//! yield first. Limits are derived from the live attempts each time, never kept.

pub mod admit;
mod limits;
mod order;
pub mod undo;

pub use admit::{Admission, Facts, TIRED_AFTER, admit};
