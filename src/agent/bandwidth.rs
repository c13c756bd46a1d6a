//! The bytes per second that all copies of this fileserver share, in and out.
//!
//! A repair bounds one copy; many at once could still take the whole line away from the people
//! who clone and push. Every piece of a copy waits its turn here, in the order in which pieces
//! came, so no copy starves. Clones are not held up by this.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A pause that was not used may be caught up with for so long.
const SLACK: Duration = Duration::from_millis(100);

/// Holds the total below a rate.
#[derive(Debug)]
pub struct Bandwidth {
    /// Bytes per second; 0: no bound.
    rate: u64,
    /// When all that was let through so far is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Bandwidth {
    /// So many bytes per second; 0 or less: no bound.
    #[must_use]
    pub fn new(rate: i64) -> Self {
        Self { rate: u64::try_from(rate).unwrap_or(0), paid: Mutex::default() }
    }

    /// Waits until so many bytes more may have passed.
    pub async fn pass(&self, bytes: usize) {
        if let Some(due) = self.due(bytes, Instant::now()) {
            tokio::time::sleep_until(due).await;
        }
    }

    /// When bytes that come now may have passed.
    fn due(&self, bytes: usize, now: Instant) -> Option<Instant> {
        if self.rate == 0 {
            return None;
        }
        let cost = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(SLACK).unwrap_or(now);
        let due = paid.map_or(earliest, |paid| paid.max(earliest)) + cost;
        *paid = Some(due);
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_copies_together_stay_below_the_rate() {
        let (line, began) = (Bandwidth::new(1_000_000), Instant::now());
        // Eight copies, each with its next piece as soon as the one before has passed.
        let mut copies = [began; 8];
        for piece in 0..400 {
            let copy = &mut copies[piece % 8];
            *copy = line.due(10_000, *copy).unwrap().max(*copy);
        }
        let took = copies.into_iter().max().unwrap() - began;
        assert!(took >= Duration::from_millis(3_900) && took <= Duration::from_secs(4), "{took:?}");
    }

    #[test]
    fn a_pause_gives_no_burst_and_no_rate_no_wait() {
        let (line, began) = (Bandwidth::new(1_000_000), Instant::now());
        line.due(10_000, began);
        let later = began + Duration::from_mins(1);
        assert_eq!(line.due(1_000_000, later), Some(later + Duration::from_millis(900)));
        assert_eq!(Bandwidth::new(0).due(usize::MAX, began), None);
    }
}
