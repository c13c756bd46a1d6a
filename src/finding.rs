//! Compare, order, throttle, admit. Pure: facts in, decisions out.

pub mod admit;

pub use admit::{Admission, Facts, admit};
