//! When a goal is due: its cron schedule, shifted by a stable offset. Pure.

use crate::model::Millis;
use crate::model::chance;
use chrono::{DateTime, Utc};
use cron::Schedule;
use std::str::FromStr as _;

/// The schedule of goals that name none, unless configured otherwise.
pub const DEFAULT: &str = "0 */2 * * * *";

/// Goals are spread over at most this fraction of their period …
const SPREAD: Millis = 4;
/// … and never over more than this: a person who waits for a goal sees it soon after its time.
const LONGEST_SPREAD: Millis = 10_000;

/// The default schedule; `None` never happens, a test says so.
#[must_use]
pub fn default() -> Option<Schedule> {
    Schedule::from_str(DEFAULT).ok()
}

/// When a goal is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The moment.
    pub at: Millis,
    /// The time to the one after it.
    pub period: Millis,
}

/// The next time after `now` at which the goal of this name is due. A schedule without
/// another time is asked again in an hour.
#[must_use]
pub fn next(schedule: &Schedule, goal: &str, now: Millis) -> Due {
    const HOUR: Millis = 3_600_000;
    let offset = offset(goal, period(schedule, now));
    // The offset belongs to the time before it, so it is taken off before asking.
    let mut times = schedule.after(&moment(now - offset)).map(|at| at.timestamp_millis());
    match (times.next(), times.next()) {
        (Some(first), Some(second)) => Due { at: first + offset, period: second - first },
        (Some(first), None) => Due { at: first + offset, period: HOUR },
        _ => Due { at: now + HOUR, period: HOUR },
    }
}

/// How many times were missed between two moments, up to a bound.
#[must_use]
pub fn missed(schedule: &Schedule, goal: &str, from: Millis, until: Millis) -> u64 {
    const MOST: usize = 1_000;
    let offset = offset(goal, period(schedule, from));
    let times = schedule.after(&moment(from - offset)).map(|at| at.timestamp_millis() + offset);
    times.take(MOST).take_while(|at| *at <= until).count() as u64
}

fn period(schedule: &Schedule, now: Millis) -> Millis {
    let mut times = schedule.after(&moment(now)).map(|at| at.timestamp_millis());
    match (times.next(), times.next()) {
        (Some(first), Some(second)) => second - first,
        _ => 0,
    }
}

fn offset(goal: &str, period: Millis) -> Millis {
    let spread = (period / SPREAD).clamp(0, LONGEST_SPREAD);
    let hash = chance::of_text(goal);
    i64::try_from(hash % u64::try_from(spread + 1).unwrap_or(1)).unwrap_or(0)
}

fn moment(at: Millis) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(at).unwrap_or(DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every_five_seconds() -> Schedule {
        Schedule::from_str("*/5 * * * * *").unwrap()
    }

    #[test]
    fn the_default_schedule_is_every_two_minutes() {
        assert_eq!(next(&default().unwrap(), "replicas-match", 1_000_000).period, 120_000);
    }

    #[test]
    fn goals_do_not_all_start_in_one_second_and_each_keeps_its_place() {
        let schedule = default().unwrap();
        let places: Vec<_> = (0..20)
            .map(|n| {
                let name = format!("goal-{n}");
                let due = next(&schedule, &name, 0);
                assert_eq!(next(&schedule, &name, due.at).at - due.at, 120_000);
                due.at % 120_000
            })
            .collect();
        assert!(places.iter().all(|place| (0..=LONGEST_SPREAD).contains(place)));
        let distinct: std::collections::BTreeSet<_> = places.iter().map(|place| place / 1_000).collect();
        assert!(distinct.len() > 5, "{places:?}");
    }

    #[test]
    fn late_evaluations_are_counted_as_missed() {
        let schedule = every_five_seconds();
        let due = next(&schedule, "g", 0);
        assert_eq!(missed(&schedule, "g", due.at, due.at + 4_999), 0);
        assert_eq!(missed(&schedule, "g", due.at, due.at + 15_000), 3);
    }

    #[test]
    fn a_schedule_without_another_time_is_no_end() {
        let past = Schedule::from_str("0 0 0 1 1 * 2001").unwrap();
        assert!(next(&past, "g", 1_700_000_000_000).at > 1_700_000_000_000);
    }

    proptest! {
        #[test]
        fn the_next_time_is_always_ahead_and_within_a_period(now in 0..4_000_000_000_000_i64, name in "[a-z-]{1,20}") {
            let due = next(&every_five_seconds(), &name, now);
            prop_assert!(due.at > now && due.at <= now + 5_000 && due.period == 5_000);
        }
    }
}
