//! The nouns of trued, their states, and the few laws that two stages share.
//!
//! Nothing here does I/O, reads a clock, or waits: every stage of the program may
//! import this module, and it imports none of them. Times are milliseconds since
//! 1970 in UTC ([`Millis`]), sizes are bytes.

pub mod amount;
pub mod attempt;
pub mod brake;
pub mod chance;
pub mod checksum;
pub mod contents;
pub mod cron;
pub mod finding;
pub mod fleet;
pub mod goal;
pub mod grant;
pub mod id;
pub mod per_id;
pub mod published;
pub mod push;
pub mod refname;
pub mod token;
pub mod wire;

/// A moment or a length of time, in milliseconds. Moments count from 1970-01-01 UTC.
pub type Millis = i64;
