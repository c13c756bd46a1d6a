//! The queue: reminders, and an apalis backend of ours over the attempts table.
//!
//! SQL holds every attempt; the queue holds nothing that cannot be lost. A reminder says
//! "look", never what to do: workers then claim the best by priority, and they sweep SQL
//! every few seconds anyway. So a reminder that is lost, doubled or late does no harm.
//! No other module names apalis's types, and none of its retries, schedules, heartbeats
//! or acknowledgements is used: those are ours, in SQL.

mod backend;
mod feeder;
mod nudge;
mod reminders;
mod run;

#[cfg(test)]
mod tests;

pub use nudge::{Nudge, Wanted};
pub use reminders::{Listener, Reminders};
pub use run::{Handler, Workers, run};
