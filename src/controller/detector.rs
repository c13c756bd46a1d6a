//! One fileserver's health from what was seen of it: pure.
//!
//! One missed status makes it suspect, and it is then asked every second; three in a row
//! make it offline. An agent that answers and says that something is wrong with it counts
//! as a missed one. Time offline adds up over flaps and is forgotten only after a long time
//! online, so that a fileserver which comes and goes does not count for ever.

use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health};
use std::time::Duration;

/// As many statuses missed in a row make a fileserver offline.
const MISSES: u32 = 3;

/// Between two looks at most this much time is added to what was spent offline: a clock
/// that jumps by an hour must not use up anybody's grace.
const LONGEST_STEP: Millis = 30_000;

/// How often agents are asked. From the death of an agent to `offline` it takes at most
/// `online + 2 × suspect + timeout`, 13 s as shipped.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// One that is online. Default 10 s.
    pub online: Duration,
    /// One that is suspect. Default 1 s.
    pub suspect: Duration,
    /// One that is offline, so that its return is seen soon. Default 2 s.
    pub offline: Duration,
    /// Longest wait for an answer; not above `suspect`. Default 1 s.
    pub timeout: Duration,
    /// After this long online, earlier time offline is forgotten. Default 1 h.
    pub forget: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            online: Duration::from_secs(10),
            suspect: Duration::from_secs(1),
            offline: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            forget: Duration::from_hours(1),
        }
    }
}

/// What one question brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A status without trouble.
    Answered,
    /// A status that says that something is wrong.
    Troubled,
    /// None.
    Missed,
}

/// The health of one fileserver, and how long it has been offline altogether.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Detector {
    /// What was last seen.
    pub health: Health,
    /// Since when.
    pub since: Millis,
    /// Time spent offline, over flaps.
    pub offline_ms: Millis,
    missed: u32,
    counted_until: Millis,
    /// Whether it ever answered: what was never there has lost no time.
    ever: bool,
}

impl Detector {
    /// Goes on from what SQL remembers. Time in which nobody looked is not counted.
    #[must_use]
    pub fn resume(row: &Fileserver, now: Millis) -> Self {
        Self {
            health: row.health,
            since: row.health_since,
            offline_ms: row.offline_ms,
            missed: u32::from(row.health == Health::Suspect),
            counted_until: now,
            ever: row.seen_at.is_some(),
        }
    }

    /// Takes in one observation; whether the health changed.
    pub fn observe(&mut self, seen: Seen, now: Millis, forget: Duration) -> bool {
        self.count(now);
        let next = match seen {
            Seen::Answered => {
                self.missed = 0;
                self.ever = true;
                Health::Online
            }
            Seen::Troubled | Seen::Missed => {
                self.missed = self.missed.saturating_add(1);
                match self.health {
                    Health::Offline => Health::Offline,
                    _ if self.missed >= MISSES => Health::Offline,
                    _ => Health::Suspect,
                }
            }
        };
        let changed = next != self.health;
        if changed {
            (self.health, self.since) = (next, now);
        }
        let forget = Millis::try_from(forget.as_millis()).unwrap_or(Millis::MAX);
        if self.health == Health::Online && now - self.since >= forget {
            self.offline_ms = 0;
        }
        changed
    }

    /// How long to wait before the next question, from the beginning of the last one.
    #[must_use]
    pub const fn interval(&self, pace: &Pace) -> Duration {
        match self.health {
            Health::Online => pace.online,
            Health::Suspect => pace.suspect,
            Health::Offline => pace.offline,
        }
    }

    fn count(&mut self, now: Millis) {
        if self.health == Health::Offline && self.ever {
            self.offline_ms += (now - self.counted_until).clamp(0, LONGEST_STEP);
        }
        self.counted_until = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::fileserver;
    use proptest::prelude::*;

    #[test]
    fn a_fileserver_that_never_answered_has_lost_no_time_of_its_grace() {
        let mut row = fileserver(1);
        (row.health, row.seen_at) = (Health::Offline, None);
        let mut detector = Detector::resume(&row, 0);
        detector.observe(Seen::Missed, 20_000, Duration::from_hours(1));
        detector.observe(Seen::Answered, 30_000, Duration::from_hours(1));
        assert_eq!((detector.health, detector.offline_ms), (Health::Online, 0));
    }

    const HOUR: Duration = Duration::from_hours(1);

    fn online() -> Detector {
        Detector::resume(&fileserver(1), 0)
    }

    #[test]
    fn one_missed_status_makes_suspect_and_three_make_offline() {
        let mut detector = online();
        assert!(detector.observe(Seen::Missed, 10_000, HOUR));
        assert_eq!(detector.health, Health::Suspect);
        assert!(!detector.observe(Seen::Missed, 11_000, HOUR));
        assert!(detector.observe(Seen::Missed, 12_000, HOUR));
        assert_eq!((detector.health, detector.since), (Health::Offline, 12_000));
    }

    #[test]
    fn a_death_is_noticed_within_fifteen_seconds_wherever_it_falls() {
        let pace = Pace::default();
        let worst = pace.online + pace.suspect * (MISSES - 1) + pace.timeout;
        assert!(worst <= Duration::from_secs(14), "leaves a second to write it: {worst:?}");
        assert!(pace.timeout <= pace.suspect && pace.offline + pace.timeout < Duration::from_secs(10));
    }

    #[test]
    fn one_answer_brings_it_back_and_trouble_does_not() {
        let mut detector = online();
        for now in 1..=3 {
            detector.observe(Seen::Troubled, now, HOUR);
        }
        assert_eq!(detector.health, Health::Offline);
        assert!(!detector.observe(Seen::Troubled, 4, HOUR));
        assert!(detector.observe(Seen::Answered, 5, HOUR));
        assert_eq!((detector.health, detector.since), (Health::Online, 5));
    }

    #[test]
    fn flapping_does_not_reset_the_time_offline_and_an_hour_online_does() {
        let mut detector = online();
        let mut now = 0;
        for _ in 0..3 {
            for _ in 0..13 {
                now += 1_000;
                detector.observe(Seen::Missed, now, HOUR);
            }
            now += 1_000;
            detector.observe(Seen::Answered, now, HOUR);
        }
        assert_eq!(detector.offline_ms, 3 * 11_000);
        detector.observe(Seen::Answered, now + 3_599_999, HOUR);
        assert_eq!(detector.offline_ms, 33_000);
        detector.observe(Seen::Answered, now + 3_600_000, HOUR);
        assert_eq!(detector.offline_ms, 0);
    }

    #[test]
    fn a_clock_that_jumps_uses_up_no_grace() {
        let mut detector = online();
        for now in [1, 2, 3] {
            detector.observe(Seen::Missed, now, HOUR);
        }
        detector.observe(Seen::Missed, 3_600_003, HOUR);
        detector.observe(Seen::Missed, 3, HOUR);
        assert_eq!(detector.offline_ms, LONGEST_STEP);
    }

    #[test]
    fn a_fresh_controller_goes_on_where_sql_stands() {
        let mut row = fileserver(1);
        (row.health, row.offline_ms, row.health_since) = (Health::Suspect, 7, 5);
        let mut detector = Detector::resume(&row, 1_000);
        detector.observe(Seen::Missed, 1_001, HOUR);
        assert_eq!((detector.health, detector.since), (Health::Suspect, 5));
        detector.observe(Seen::Missed, 1_002, HOUR);
        assert_eq!((detector.health, detector.offline_ms), (Health::Offline, 7));
    }

    proptest! {
        #[test]
        fn offline_only_after_three_misses_in_a_row_and_time_never_runs_back(
            steps in prop::collection::vec((0..3_u8, 0..20_000_i64), 1..200)
        ) {
            let (mut detector, mut now, mut row) = (online(), 0, 0);
            for (kind, pause) in steps {
                now += pause;
                let before = detector.offline_ms;
                let was = detector.health;
                let seen = [Seen::Answered, Seen::Missed, Seen::Troubled][usize::from(kind)];
                row = if seen == Seen::Answered { 0 } else { row + 1 };
                detector.observe(seen, now, Duration::from_hours(9_000));
                prop_assert!(detector.offline_ms >= before && detector.offline_ms <= now);
                prop_assert_eq!(detector.health == Health::Online, row == 0);
                if detector.health == Health::Offline && was != Health::Offline {
                    prop_assert!(row >= 3);
                }
            }
        }
    }
}
