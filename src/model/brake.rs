//! Brakes: what holds repairs when a result looks like blindness or a mistake. Pure.
//!
//! A brake has a name, holds from the moment its cause is seen, and lets go when the cause
//! has been gone for a while or a person approved. What its cause is, others say.

use super::Millis;
use serde::{Deserialize, Serialize};

/// The brake of a controller that has not heard from the fleet yet.
pub const START: &str = "start";
/// The brake of a controller that seems to be cut off.
pub const BLIND: &str = "blind";
/// The brake on copying because of many fileservers at once.
pub const OFFLINE: &str = "offline";

/// Evaluations in a row without its cause after which a goal's brake lets go.
pub const CLEAR_AFTER: i64 = 3;

/// Unexplained removals in one evaluation that are never too many, and their share of all replicas in thousandths.
const REMOVALS: (i64, i64) = (50, 1);
/// Fileservers beyond their grace that are never too many, and their share in hundredths.
const BEYOND_GRACE: (i64, i64) = (2, 3);

/// The name of a goal's own brake.
#[must_use]
pub fn of_goal(goal: &str) -> String {
    format!("goal:{goal}")
}

/// The name of the brake on what a goal would have removed.
#[must_use]
pub fn of_removals(goal: &str) -> String {
    format!("removals:{goal}")
}

/// The name of a rack's brake.
#[must_use]
pub fn of_rack(rack: &str) -> String {
    format!("rack:{rack}")
}

/// How many unexplained findings a goal may have before its repairs are held. The larger of the two counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Findings.
    pub count: Option<u64>,
    /// A fraction of the population.
    pub share: Option<f64>,
}

impl Bound {
    /// The most findings among so many that are not too many.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a share of a population needs no more than 52 bits, and rounds down"
    )]
    pub fn most(self, population: i64) -> i64 {
        let count = self.count.map_or(0, |count| i64::try_from(count).unwrap_or(i64::MAX));
        let share = self.share.map_or(0, |share| (share * population.max(0) as f64) as i64);
        count.max(share)
    }
}

/// The most unexplained removals among so many replicas that are not too many.
#[must_use]
pub fn most_removals(replicas: i64) -> i64 {
    let (count, thousandths) = REMOVALS;
    count.max(replicas.saturating_mul(thousandths) / 1_000)
}

/// The most fileservers beyond their grace at once, of so many, that are not too many.
#[must_use]
pub fn most_beyond_grace(fileservers: i64) -> i64 {
    let (count, hundredths) = BEYOND_GRACE;
    count.max(fileservers * hundredths / 100)
}

/// One brake as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brake {
    /// Its name: `start`, `blind`, `offline`, `rack:<name>`, `goal:<name>`, `removals:<goal>`.
    pub name: String,
    /// When its cause was first seen.
    pub since: Millis,
    /// What was seen.
    pub reason: String,
    /// Evaluations in a row without its cause.
    pub clear: i64,
    /// Since when its cause is gone; none: it is there.
    pub clear_since: Option<Millis>,
    /// When a person released it, until its cause is gone.
    pub approved: Option<Millis>,
    /// Whether it holds. One that does not is kept until its findings are released, or its cause is gone.
    pub holds: bool,
}

/// One look at the cause of a brake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What is seen of it; none: it is not there.
    pub cause: Option<String>,
    /// When.
    pub at: Millis,
    /// Looks in a row without the cause that let go …
    pub looks: i64,
    /// … and the time without it that must have passed, too.
    pub patience: Millis,
}

/// What a brake becomes after a look; none: there is none.
#[must_use]
pub fn after(name: &str, before: Option<Brake>, look: &Look) -> Option<Brake> {
    match (before, &look.cause) {
        (None, None) => None,
        (None, Some(reason)) => Some(Brake {
            name: name.to_owned(),
            since: look.at,
            reason: reason.clone(),
            clear: 0,
            clear_since: None,
            approved: None,
            holds: true,
        }),
        // A cause that returns to a brake that was letting go begins it anew; an approved one stays approved.
        (Some(brake), Some(reason)) => {
            let again = !brake.holds && brake.approved.is_none();
            Some(Brake {
                since: if again { look.at } else { brake.since },
                reason: reason.clone(),
                clear: 0,
                clear_since: None,
                holds: brake.approved.is_none(),
                ..brake
            })
        }
        (Some(brake), None) => {
            let clear_since = brake.clear_since.unwrap_or(look.at);
            let clear = (brake.clear + 1).min(look.looks);
            let gone = clear >= look.looks && look.at - clear_since >= look.patience;
            let approved = brake.approved.filter(|_| !gone);
            Some(Brake {
                clear,
                clear_since: Some(clear_since),
                approved,
                holds: brake.holds && !gone,
                ..brake
            })
        }
    }
}

impl Brake {
    /// Whether nothing is left of it but findings that it once held.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        !self.holds && self.approved.is_none()
    }

    /// The goal whose own brake, or brake on removals, it is.
    #[must_use]
    pub fn goal(&self) -> Option<&str> {
        self.name.strip_prefix("goal:").or_else(|| self.name.strip_prefix("removals:"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cause: Option<&str>, at: Millis) -> Look {
        Look { cause: cause.map(str::to_owned), at, looks: CLEAR_AFTER, patience: 0 }
    }

    #[test]
    fn the_larger_of_count_and_share_counts() {
        let bound = |count, share| Bound { count, share };
        assert_eq!(bound(Some(100), Some(0.2)).most(10), 100);
        assert_eq!(bound(Some(100), Some(0.2)).most(10_000), 2_000);
        assert_eq!(bound(None, Some(0.5)).most(7), 3);
        assert_eq!(bound(Some(5), None).most(1_000_000), 5);
        assert_eq!((most_removals(1_000), most_removals(1_000_000)), (50, 1_000));
        assert_eq!((most_beyond_grace(4), most_beyond_grace(300)), (2, 9));
    }

    #[test]
    fn a_brake_lets_go_only_after_several_looks_without_its_cause() {
        let mut brake = after("goal:a", None, &look(Some("120 of 130"), 1));
        for at in 2..=3 {
            brake = after("goal:a", brake, &look(None, at));
            assert!(brake.as_ref().unwrap().holds);
        }
        // Flickering begins the count anew.
        brake = after("goal:a", brake, &look(Some("121 of 130"), 4));
        for at in 5..=6 {
            brake = after("goal:a", brake, &look(None, at));
        }
        assert!(brake.as_ref().unwrap().holds);
        brake = after("goal:a", brake, &look(None, 7));
        assert!(brake.as_ref().unwrap().is_over());
    }

    #[test]
    fn an_approval_lasts_until_the_cause_is_gone() {
        let brake = after("goal:a", None, &look(Some("many"), 1)).unwrap();
        let mut brake = Some(Brake { approved: Some(2), holds: false, ..brake });
        brake = after("goal:a", brake, &look(Some("more"), 3));
        assert!(!brake.as_ref().unwrap().holds && brake.as_ref().unwrap().approved.is_some());
        for at in 4..=6 {
            brake = after("goal:a", brake, &look(None, at));
        }
        assert!(brake.as_ref().unwrap().is_over());
        let again = after("goal:a", brake, &look(Some("many"), 7)).unwrap();
        assert!(again.holds && again.since == 7, "another flood is held again");
    }

    #[test]
    fn patience_is_time_without_the_cause() {
        let patient = |cause: Option<&str>, at| Look { looks: 1, patience: 30_000, ..look(cause, at) };
        let brake = after(BLIND, None, &patient(Some("cut off"), 0));
        let brake = after(BLIND, brake, &patient(None, 1_000));
        let brake = after(BLIND, brake, &patient(None, 30_999));
        assert!(brake.as_ref().unwrap().holds);
        assert!(after(BLIND, brake, &patient(None, 31_000)).unwrap().is_over());
    }
}
