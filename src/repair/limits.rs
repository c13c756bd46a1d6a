//! Limits that a person sets while everything runs, over what files and configuration say.
//!
//! A limit is named `REPAIR.KEY`, as its key stands in the repair's file, or `fleet.in_flight`.
//! It is bounded as the file is: a limit that would hang the fleet is refused where it is set,
//! and one that got into SQL in another way is not used. Pure: rows in, repairs out.

use super::file::{Repair, Throttle};
use super::library::Repairs;
use super::units;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The fleet's own: attempts queued or running, of all repairs.
pub const FLEET: &str = "fleet.in_flight";
/// As the configuration bounds it.
const FLEET_BOUNDS: RangeInclusive<i64> = 1..=10_000;

/// One kind of limit that each repair has.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// As its file spells it.
    pub name: &'static str,
    /// What it may be.
    pub bounds: (i64, i64),
    get: fn(&Throttle) -> i64,
    set: fn(&mut Throttle, i64),
}

/// What `bytes_per_second` may be besides 0: below 64 KiB a copy of a middling repository would take weeks and look dead.
pub const RATES: RangeInclusive<i64> = (64 << 10)..=(1 << 40);

fn small(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// All of them, in the order of the file.
pub const KEYS: [Key; 5] = [
    Key {
        name: "in_flight",
        bounds: (1, 100_000),
        get: |one| one.in_flight.into(),
        set: |one, value| one.in_flight = small(value),
    },
    Key {
        name: "per_fileserver",
        bounds: (1, 1_000),
        get: |one| one.per_fileserver.into(),
        set: |one, value| one.per_fileserver = small(value),
    },
    Key {
        name: "per_rack",
        bounds: (1, 10_000),
        get: |one| one.per_rack.into(),
        set: |one, value| one.per_rack = small(value),
    },
    Key {
        name: "starts_per_minute",
        bounds: (1, 1_000_000),
        get: |one| one.starts_per_minute.into(),
        set: |one, value| one.starts_per_minute = small(value),
    },
    Key {
        name: "bytes_per_second",
        bounds: (*RATES.start(), *RATES.end()),
        get: |one| one.bytes_per_second,
        set: |one, value| one.bytes_per_second = value,
    },
];

impl Key {
    /// The bounds of a key of the file.
    #[must_use]
    pub fn bounds_of(name: &str) -> RangeInclusive<i64> {
        KEYS.iter().find(|key| key.name == name).map_or(0..=i64::MAX, |key| key.bounds.0..=key.bounds.1)
    }

    fn is_rate(&self) -> bool {
        self.name == "bytes_per_second"
    }

    fn allows(&self, value: i64) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&value) || self.is_rate() && value == 0
    }

    fn allowed(&self) -> String {
        let (from, to) = self.bounds;
        if self.is_rate() {
            "\"0\" (no bound), or 64KiB to 1TiB".to_owned()
        } else {
            format!("{from} to {to}")
        }
    }
}

/// What a name stands for.
enum Limit<'a> {
    Fleet,
    Of(&'a Repair, &'static Key),
}

/// Why a limit is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// There is no such limit.
    #[error("there is no limit {name}")]
    Unknown {
        /// As it was given.
        name: String,
    },
    /// The value is none, or not within its bounds.
    #[error("{name}: {value} is not within {allowed}; it stays {kept}")]
    Bounds {
        /// The limit.
        name: String,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: String,
        /// What holds on.
        kept: i64,
    },
}

/// One limit as it holds now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// `REPAIR.KEY`, or `fleet.in_flight`.
    pub name: String,
    /// What holds.
    pub value: i64,
    /// What its file or the configuration says.
    pub written: i64,
    /// What it may be.
    pub allowed: String,
    /// Whether it was set at run time.
    pub set: bool,
}

/// The limits that files and configuration write, and what was set over them.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// The repairs as their files say.
    pub repairs: &'a Repairs,
    /// The fleet's limit as the configuration says.
    pub in_flight: u32,
    /// What was set at run time: names and values.
    pub set: &'a [(String, i64)],
}

impl<'a> Limits<'a> {
    /// Attempts in the whole fleet.
    #[must_use]
    pub fn fleet_in_flight(&self) -> u32 {
        let set = self.set_of(FLEET).filter(|value| FLEET_BOUNDS.contains(value));
        set.map_or(self.in_flight, small)
    }

    /// The repairs with what was set.
    #[must_use]
    pub fn repairs(&self) -> Repairs {
        let mut repairs = self.repairs.clone();
        for (name, value) in self.set {
            let Some(Limit::Of(repair, key)) = self.find(name).filter(|limit| limit.allows(*value)) else {
                continue;
            };
            if let Some(one) = repairs.by_name.get_mut(&repair.name) {
                (key.set)(&mut Arc::make_mut(one).throttle, *value);
            }
        }
        repairs
    }

    /// All limits, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Held> {
        let of = |repair: &'a Arc<Repair>| KEYS.iter().map(move |key| (repair, key));
        let names = self
            .repairs
            .by_name
            .values()
            .flat_map(of)
            .map(|(repair, key)| format!("{}.{}", repair.name, key.name));
        std::iter::once(FLEET.to_owned()).chain(names).filter_map(|name| self.held(&name)).collect()
    }

    /// One limit.
    #[must_use]
    pub fn held(&self, name: &str) -> Option<Held> {
        let limit = self.find(name)?;
        let written = match &limit {
            Limit::Fleet => self.in_flight.into(),
            Limit::Of(repair, key) => (key.get)(&repair.throttle),
        };
        let set = self.set_of(name).filter(|value| limit.allows(*value));
        let (value, set) = (set.unwrap_or(written), set.is_some());
        Some(Held { name: name.to_owned(), value, written, allowed: limit.allowed(), set })
    }

    /// Reads a value for a limit.
    ///
    /// # Errors
    /// When there is no such limit, or the value is not within its bounds.
    pub fn read(&self, name: &str, text: &str) -> Result<i64, LimitError> {
        let (limit, held) = self
            .find(name)
            .zip(self.held(name))
            .ok_or_else(|| LimitError::Unknown { name: name.to_owned() })?;
        let text = text.trim();
        let value = match &limit {
            Limit::Of(_, key) if key.is_rate() => units::size(text).ok().or_else(|| text.parse().ok()),
            _ => text.parse().ok(),
        };
        value.filter(|value| limit.allows(*value)).ok_or_else(|| LimitError::Bounds {
            name: name.to_owned(),
            value: text.to_owned(),
            allowed: held.allowed,
            kept: held.value,
        })
    }

    fn set_of(&self, name: &str) -> Option<i64> {
        self.set.iter().find(|(one, _)| one == name).map(|(_, value)| *value)
    }

    fn find(&self, name: &str) -> Option<Limit<'a>> {
        if name == FLEET {
            return Some(Limit::Fleet);
        }
        let (repair, key) = name.split_once('.')?;
        let key = KEYS.iter().find(|one| one.name == key)?;
        Some(Limit::Of(self.repairs.get(repair)?, key))
    }
}

impl Limit<'_> {
    fn allows(&self, value: i64) -> bool {
        match self {
            Self::Fleet => FLEET_BOUNDS.contains(&value),
            Self::Of(_, key) => key.allows(value),
        }
    }

    fn allowed(&self) -> String {
        match self {
            Self::Fleet => format!("{} to {}", FLEET_BOUNDS.start(), FLEET_BOUNDS.end()),
            Self::Of(_, key) => key.allowed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attempt::Step;
    use crate::repair::testing::repair;

    fn repairs() -> Repairs {
        let one = repair(Step::Replicate);
        Repairs { by_name: [(one.name.clone(), Arc::new(one))].into() }
    }

    fn set(name: &str, value: i64) -> Vec<(String, i64)> {
        vec![(name.to_owned(), value)]
    }

    #[test]
    fn what_is_set_holds_and_everything_else_stays_as_it_is_written() {
        let (repairs, set) = (repairs(), set("re-replicate.per_fileserver", 9));
        let limits = Limits { repairs: &repairs, in_flight: 2_000, set: &set };
        let held = limits.repairs();
        let throttle = held.get("re-replicate").unwrap().throttle;
        assert_eq!((throttle.per_fileserver, throttle.in_flight), (9, 400));
        assert_eq!(
            repairs.get("re-replicate").unwrap().throttle.per_fileserver,
            4,
            "the file's own is untouched"
        );
        let one = limits.held("re-replicate.per_fileserver").unwrap();
        assert_eq!((one.value, one.written, one.set), (9, 4, true));
        assert_eq!(limits.all().len(), 1 + KEYS.len());
        assert_eq!(limits.fleet_in_flight(), 2_000);
    }

    // A hundred million once hung a store for eight hours.
    #[test]
    fn a_limit_out_of_bounds_is_refused_by_name_and_the_old_one_stays() {
        let (repairs, none) = (repairs(), Vec::new());
        let limits = Limits { repairs: &repairs, in_flight: 2_000, set: &none };
        let refused = |name, text| limits.read(name, text).unwrap_err().to_string();
        assert_eq!(
            refused("re-replicate.in_flight", "100000000"),
            "re-replicate.in_flight: 100000000 is not within 1 to 100000; it stays 400"
        );
        assert_eq!(
            refused("fleet.in_flight", "0"),
            "fleet.in_flight: 0 is not within 1 to 10000; it stays 2000"
        );
        assert!(refused("re-replicate.bytes_per_second", "1KiB").contains("64KiB to 1TiB"));
        assert!(refused("re-replicate.per_rack", "many").contains("many is not within"));
        assert_eq!(refused("re-replicat.in_flight", "1"), "there is no limit re-replicat.in_flight");
        assert_eq!(limits.read("re-replicate.bytes_per_second", "20MiB"), Ok(20 << 20));
        assert_eq!(limits.read("re-replicate.bytes_per_second", "0"), Ok(0));
        assert_eq!(limits.read("fleet.in_flight", " 7 "), Ok(7));
    }

    #[test]
    fn a_row_that_nobody_would_have_been_allowed_to_set_is_not_used() {
        let repairs = repairs();
        for (name, value) in
            [("re-replicate.in_flight", 0), ("re-replicate.per_rack", 100_000_000), ("fleet.in_flight", -1)]
        {
            let set = set(name, value);
            let limits = Limits { repairs: &repairs, in_flight: 2_000, set: &set };
            assert_eq!(limits.repairs().by_name, repairs.by_name);
            assert_eq!(limits.fleet_in_flight(), 2_000);
            assert!(!limits.held(name).unwrap().set);
        }
    }
}
