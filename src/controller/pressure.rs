//! Pressure: at what share of its pace a controller goes, from how slow the database answers. Pure.
//!
//! The brake on it is called `sql`. Down it goes by halves, as soon as the database was
//! slow twice in a row; up by small steps, each after it was quick for a while, so that
//! trued never is the load that keeps its own database down. In between it stays.

use std::time::Duration;

/// The whole pace, in hundredths.
pub const FULL: u32 = 100;
/// However slow the database is, so much is still done: last copies must not wait for ever.
const LEAST: u32 = 3;
/// One step up.
const STEP: u32 = 10;
/// Looks in a row that were slow, before the pace is halved.
const SLOW: u32 = 2;
/// Looks in a row that were quick, before it goes a step up.
const QUICK: u32 = 3;

/// From where on the database is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// A question and its answer took longer.
    pub round_trip: Duration,
    /// A standby is further behind. Zero: nobody minds.
    pub lag: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { round_trip: Duration::from_millis(100), lag: Duration::from_secs(30) }
    }
}

/// What one look saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// How long a question and its answer took.
    pub round_trip: Duration,
    /// How far the slowest standby is behind.
    pub lag: Duration,
}

impl Look {
    fn is_slow(&self, bounds: &Bounds) -> bool {
        self.round_trip > bounds.round_trip || (!bounds.lag.is_zero() && self.lag > bounds.lag)
    }

    /// Well below the bounds, so that a pace is not given back only to be taken again.
    fn is_quick(&self, bounds: &Bounds) -> bool {
        self.round_trip <= bounds.round_trip / 2 && (bounds.lag.is_zero() || self.lag <= bounds.lag / 2)
    }
}

/// The pace, and what was seen since it last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// In hundredths of the whole.
    pub pace: u32,
    slow: u32,
    quick: u32,
}

impl Default for Pressure {
    fn default() -> Self {
        Self { pace: FULL, slow: 0, quick: 0 }
    }
}

impl Pressure {
    /// The pace after one more look.
    #[must_use]
    pub fn after(self, look: &Look, bounds: &Bounds) -> Self {
        let slow = if look.is_slow(bounds) { self.slow + 1 } else { 0 };
        let quick = if look.is_quick(bounds) { self.quick + 1 } else { 0 };
        if slow >= SLOW {
            return Self { pace: (self.pace / 2).max(LEAST), slow: 0, quick: 0 };
        }
        if quick >= QUICK {
            return Self { pace: (self.pace + STEP).min(FULL), slow: 0, quick: 0 };
        }
        Self { pace: self.pace, slow, quick }
    }
}

/// So much of a bound is left at a pace; never nothing.
#[must_use]
pub fn share(of: u32, pace: u32) -> u32 {
    let share = u64::from(of) * u64::from(pace.min(FULL)) / u64::from(FULL);
    u32::try_from(share).unwrap_or(of).max(1)
}

/// How long to rest after work that took so long, so that it fills no more than the pace's share of the time.
#[must_use]
pub fn rest(took: Duration, pace: u32, longest: Duration) -> Duration {
    let pace = pace.clamp(1, FULL);
    (took * (FULL - pace) / pace).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn look(millis: u64) -> Look {
        Look { round_trip: Duration::from_millis(millis), lag: Duration::ZERO }
    }

    fn run(pressure: Pressure, looks: &[u64]) -> Vec<u32> {
        let mut now = pressure;
        looks
            .iter()
            .map(|millis| {
                now = now.after(&look(*millis), &Bounds::default());
                now.pace
            })
            .collect()
    }

    #[test]
    fn a_slow_database_halves_the_pace_again_and_again_and_never_ends_it() {
        let paces = run(Pressure::default(), &[200; 16]);
        assert_eq!(paces[..6], [100, 50, 50, 25, 25, 12]);
        assert_eq!(paces[15], LEAST);
    }

    #[test]
    fn one_slow_answer_is_none() {
        assert!(run(Pressure::default(), &[200, 1, 200, 1, 200, 1]).iter().all(|pace| *pace == FULL));
    }

    #[test]
    fn the_pace_comes_back_in_steps_and_only_while_it_is_quick() {
        let slow = Pressure { pace: 25, ..Pressure::default() };
        assert_eq!(run(slow, &[1; 9]), [25, 25, 35, 35, 35, 45, 45, 45, 55]);
        assert!(run(slow, &[80; 30]).iter().all(|pace| *pace == 25), "neither slow nor quick: it stays");
        assert_eq!(run(slow, &[1; 40]).last(), Some(&FULL));
    }

    #[test]
    fn a_standby_that_is_far_behind_slows_too_unless_nobody_minds() {
        let behind = Look { lag: Duration::from_mins(1), ..look(1) };
        let twice = |bounds: Bounds| Pressure::default().after(&behind, &bounds).after(&behind, &bounds).pace;
        assert_eq!(twice(Bounds::default()), 50);
        assert_eq!(twice(Bounds { lag: Duration::ZERO, ..Bounds::default() }), FULL);
    }

    #[test]
    fn work_fills_no_more_than_its_share_of_the_time() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        assert_eq!(rest(second, 100, minute), Duration::ZERO);
        assert_eq!(rest(second, 50, minute), second);
        assert_eq!(rest(second, 25, minute), 3 * second);
        assert_eq!(rest(minute, LEAST, minute), minute);
        assert_eq!((share(2_000, 25), share(2_000, 100), share(1, 3)), (500, 2_000, 1));
    }

    proptest! {
        #[test]
        fn the_pace_stays_in_its_bounds_and_never_leaps_up(looks in proptest::collection::vec(0..500_u64, 1..200)) {
            let mut before = FULL;
            for pace in run(Pressure::default(), &looks) {
                prop_assert!((LEAST..=FULL).contains(&pace) && pace <= before + STEP && pace >= before / 2);
                before = pace;
            }
        }
    }
}
