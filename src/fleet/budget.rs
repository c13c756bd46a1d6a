//! A budget of retries: each request earns a share of one, each retry costs one.
//!
//! A count a request would multiply a fleet's load just when it is at its worst; a share of all requests cannot. A
//! reserve lets a few retries pass when there was no traffic to earn them.

use std::sync::atomic::{AtomicI64, Ordering};

/// What one retry costs.
const ONE: i64 = 100;

/// What is left, shared by all requests of a process.
#[derive(Debug)]
pub struct Budget {
    left: AtomicI64,
    share: i64,
    most: i64,
}

impl Budget {
    /// Each request earns `percent` of a retry; at most `reserve` retries are kept, and as many are there at first.
    #[must_use]
    pub fn new(percent: u32, reserve: u32) -> Self {
        let most = i64::from(reserve) * ONE;
        Self { left: AtomicI64::new(most), share: i64::from(percent), most }
    }

    /// A request begins.
    pub fn earn(&self) {
        let earned = |left: i64| Some((left + self.share).min(self.most));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earned);
    }

    /// Takes a retry, if there is one.
    pub fn take(&self) -> bool {
        let taken = |left: i64| (left >= ONE).then_some(left - ONE);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fleet_that_fails_whole_gets_a_fifth_more_load_and_not_three_times_as_much() {
        let budget = Budget::new(20, 10);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.earn();
            retries += (0..3).filter(|_| budget.take()).count();
        }
        assert!((200..=210).contains(&retries), "{retries}");
    }

    #[test]
    fn a_few_failures_in_quiet_times_are_all_retried() {
        let budget = Budget::new(20, 10);
        assert!((0..10).all(|_| budget.take()) && !budget.take());
    }

    proptest! {
        #[test]
        fn retries_never_exceed_their_share_and_the_reserve(acts in prop::collection::vec(any::<bool>(), 0..500)) {
            let budget = Budget::new(20, 5);
            let (mut earned, mut taken) = (0_i64, 0_i64);
            for earns in acts {
                if earns { budget.earn(); earned += 1 } else if budget.take() { taken += 1 }
                prop_assert!(taken * 100 <= earned * 20 + 500);
            }
        }
    }
}
