//! Chance as an argument: numbers that look random and follow from a seed.
//!
//! For jitter, tie-breaking and spreading in time; never for secrets. One value may be
//! shared by many tasks. Whoever joins the parts seeds it once.

use super::Millis;
use std::sync::atomic::{AtomicU64, Ordering};

/// The step of the sequence: 2^64 divided by the golden ratio, as `SplitMix64` has it.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A source of numbers that follow from its seed.
#[derive(Debug, Default)]
pub struct Chance(AtomicU64);

impl Chance {
    /// The sequence that follows from this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// A length of time from 0 to `ceiling`, both included: full jitter.
    pub fn up_to(&self, ceiling: Millis) -> Millis {
        let bound = u64::try_from(ceiling).unwrap_or(0).saturating_add(1);
        Millis::try_from(self.next() % bound).unwrap_or(0)
    }

    /// A length of time within a quarter of `middle`, so that many waiters do not wake at once.
    pub fn around(&self, middle: std::time::Duration) -> std::time::Duration {
        let whole = Millis::try_from(middle.as_millis()).unwrap_or(Millis::MAX / 2);
        let millis = whole - whole / 4 + self.up_to(whole / 2);
        std::time::Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

/// A number that depends on every bit of a text and is the same in every process.
#[must_use]
pub fn of_text(text: &str) -> u64 {
    text.bytes().fold(STEP, |sum, byte| mix(sum ^ u64::from(byte)))
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (one, two) = (Chance::new(7), Chance::new(7));
        assert!((0..100).all(|_| one.next() == two.next()));
        assert_ne!(Chance::new(7).next(), Chance::new(8).next());
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_uses_them() {
        let chance = Chance::new(1);
        let drawn: Vec<_> = (0..2_000).map(|_| chance.up_to(9)).collect();
        assert!((0..=9).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (0..=9).contains(n)));
        assert_eq!(chance.up_to(-5), 0);
        let spread = chance.around(Duration::from_secs(4));
        assert!(spread >= Duration::from_secs(3) && spread <= Duration::from_secs(5));
    }
}
