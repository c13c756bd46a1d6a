//! Brakes: whether a flood of findings looks like blindness rather than damage. Pure.
//!
//! Decided from what this controller itself hears, once a dispatch round, by the *shape* of
//! the failure. One death of four agents is no shape of blindness and is never held.

use crate::model::Millis;
use crate::model::id::FileserverId;
use std::collections::{BTreeMap, BTreeSet};

/// The brake of a controller that has not heard from the fleet yet.
pub const START: &str = "start";
/// The brake of a controller that seems to be cut off.
pub const BLIND: &str = "blind";

/// So long a fresh controller waits for fileservers that SQL had as online.
const START_PATIENCE: Millis = 5 * 60_000;
/// Silences within this time are one event.
const ONE_EVENT: Millis = 30_000;
/// A brake is released this long after its cause is gone.
const RELEASE: Millis = 30_000;

/// What this controller has heard since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// When it started.
    pub started: Millis,
    /// Fileservers that SQL had as online then.
    pub expected: BTreeSet<FileserverId>,
    /// Fileservers that answered at least once since.
    pub heard: BTreeSet<FileserverId>,
    /// Since when those are silent that are silent now and were online before.
    pub silent: BTreeMap<FileserverId, Millis>,
}

/// Which brake holds everything now, if one does.
#[must_use]
pub fn holding(sight: &Sight, now: Millis) -> Option<&'static str> {
    if blind(sight) {
        return Some(BLIND);
    }
    start(sight, now).then_some(START)
}

/// A fresh controller waits until it has heard from the fileservers that SQL had as online,
/// all but max(1, 10 %) of them, five minutes at most; and while it knows nothing of anybody
/// it waits even for the one that may be missing.
#[must_use]
pub fn start(sight: &Sight, now: Millis) -> bool {
    let unheard = || sight.expected.iter().filter(|id| !sight.heard.contains(id));
    let unknown = unheard().filter(|id| !sight.silent.contains_key(id)).count();
    let allowed = (sight.expected.len() / 10).max(1);
    let waited = now - sight.started >= START_PATIENCE;
    !waited && (unheard().count() > allowed || (unknown > 0 && sight.heard.is_empty()))
}

/// More than half of those that were online, and at least two, fell silent within 30 s and
/// are silent still (or one came back less than 30 s ago).
#[must_use]
pub fn blind(sight: &Sight) -> bool {
    let known = sight.expected.union(&sight.heard).count();
    let mut times: Vec<Millis> = sight.silent.values().copied().collect();
    times.sort_unstable();
    let together = (0..times.len())
        .map(|first| times[first..].iter().take_while(|at| **at - times[first] <= ONE_EVENT).count())
        .max()
        .unwrap_or(0);
    together >= 2 && together * 2 > known
}

/// Keeps a brake for a while after its cause is gone, so that a flickering view does not
/// let bursts through.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hold {
    last: Option<(&'static str, Millis)>,
}

impl Hold {
    /// Which brake holds now. `start` needs no keeping: what was heard once stays heard.
    pub fn update(&mut self, holding: Option<&'static str>, now: Millis) -> Option<&'static str> {
        if let Some(brake) = holding {
            self.last = Some((brake, now));
            return Some(brake);
        }
        match self.last {
            Some((BLIND, at)) if (0..RELEASE).contains(&(now - at)) => Some(BLIND),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::RangeInclusive<i64>) -> BTreeSet<FileserverId> {
        range.map(FileserverId).collect()
    }

    /// A controller that started at 0 with `n` fileservers online in SQL, and heard all of them.
    fn sighted(n: i64) -> Sight {
        Sight { expected: ids(1..=n), heard: ids(1..=n), ..Sight::default() }
    }

    fn silent(mut sight: Sight, since: &[(i64, Millis)]) -> Sight {
        sight.silent = since.iter().map(|(id, at)| (FileserverId(*id), *at)).collect();
        sight
    }

    #[test]
    fn the_death_of_one_agent_of_four_is_never_held() {
        assert_eq!(holding(&silent(sighted(4), &[(2, 100_000)]), 101_000), None);
        // Nor when the controller starts after it.
        let mut fresh = silent(sighted(4), &[(2, 3_000)]);
        fresh.heard.remove(&FileserverId(2));
        assert_eq!(holding(&fresh, 4_000), None);
    }

    #[test]
    fn a_fresh_controller_waits_for_all_but_a_tenth() {
        let mut fresh = sighted(40);
        fresh.heard = ids(1..=35);
        assert_eq!(holding(&fresh, 1_000), Some(START));
        fresh.heard = ids(1..=36);
        assert_eq!(holding(&fresh, 1_000), None);
        fresh.heard = BTreeSet::new();
        assert_eq!(holding(&fresh, START_PATIENCE - 1), Some(START));
        assert_eq!(holding(&fresh, START_PATIENCE), None);
    }

    #[test]
    fn a_controller_that_heard_nobody_waits_even_for_the_last_one() {
        let mut fresh = sighted(1);
        fresh.heard.clear();
        assert_eq!(holding(&fresh, 0), Some(START));
        assert_eq!(holding(&silent(fresh, &[(1, 3_000)]), 4_000), None, "its silence is known by now");
        assert_eq!(holding(&Sight::default(), 0), None, "a fleet without fileservers has nothing to hold");
    }

    #[test]
    fn more_than_half_at_once_is_blindness() {
        assert!(!blind(&silent(sighted(4), &[(1, 0), (2, 0)])), "half is not more than half");
        assert!(blind(&silent(sighted(4), &[(1, 0), (2, 10_000), (3, 30_000)])));
        assert!(!blind(&silent(sighted(1), &[(1, 0)])), "one alone is never blindness");
        assert!(blind(&silent(sighted(2), &[(1, 0), (2, 5)])));
    }

    #[test]
    fn deaths_that_come_one_by_one_are_not_blindness() {
        let one_by_one = silent(sighted(4), &[(1, 0), (2, 40_000), (3, 80_000)]);
        assert!(!blind(&one_by_one));
    }

    #[test]
    fn blindness_is_released_only_some_time_after_its_cause_is_gone() {
        let mut hold = Hold::default();
        assert_eq!(hold.update(Some(BLIND), 0), Some(BLIND));
        assert_eq!(hold.update(None, RELEASE - 1), Some(BLIND));
        assert_eq!(hold.update(None, RELEASE), None);
        assert_eq!(hold.update(Some(START), RELEASE + 1), Some(START));
        assert_eq!(hold.update(None, RELEASE + 2), None);
    }
}
