//! The queue: reminders, and an apalis backend of ours over the attempts table.
//!
//! SQL holds every attempt; the queue holds nothing that cannot be lost. A reminder says
//! "look", never what to do: workers then claim the best by priority, and they sweep SQL
//! every few seconds anyway. So a reminder that is lost, doubled or late does no harm.
//! No other module names apalis's types or Redis's, and none of apalis's retries, schedules,
//! heartbeats or acknowledgements is used: those are ours, in SQL. Redis carries reminders
//! and nudges between processes; without it they are found by looking, later.

mod backend;
mod feeder;
mod nudge;
mod over_redis;
mod post;
mod reminders;
mod run;

#[cfg(test)]
mod tests;

pub use nudge::{Nudge, Wanted};
pub use over_redis::{Redis, RedisProblem, RedisSettings};
pub use post::{Carried, Carrier, Post};
pub use reminders::{Listener, Reminders};
pub use run::{Handler, Workers, run};
