//! Working politely: a git that has no hurry works for a second and rests for a multiple of that, and steps aside while
//! the machine has more to do than it can.
//!
//! It rests by being stopped, so it costs nothing but its memory meanwhile. It never rests for ever: work that is
//! never done is no work.

use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How politely a git works.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long it works at a time.
    pub work: Duration,
    /// It rests so many times as long as it worked.
    pub rest: u32,
    /// It goes on resting while the machine's load is above this, in thousandths.
    pub load: i64,
    /// But not longer than this.
    pub longest_rest: Duration,
}

impl Default for Pace {
    /// A second in three, and one in sixty while the load is above twice the number of processors.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            work: Duration::from_secs(1),
            rest: 2,
            load: i64::try_from(processors).unwrap_or(1).saturating_mul(2_000),
            longest_rest: Duration::from_mins(1),
        }
    }
}

impl Pace {
    /// Stops and continues what `signal` reaches, until this is dropped. `told` hears what is done, and how long it
    /// was worked.
    pub(super) async fn keep(self, signal: impl Fn(Signal), told: impl Fn(&str, Duration)) {
        let mut worked = Duration::ZERO;
        loop {
            let began = Instant::now();
            tokio::time::sleep(self.work).await;
            worked += began.elapsed();
            told("working", worked);
            signal(Signal::STOP);
            self.rest(began.elapsed(), worked, &told).await;
            signal(Signal::CONT);
        }
    }

    async fn rest(&self, slice: Duration, worked: Duration, told: &impl Fn(&str, Duration)) {
        let began = Instant::now();
        tokio::time::sleep(slice.saturating_mul(self.rest)).await;
        while load() > self.load && began.elapsed() < self.longest_rest {
            told("stepping aside, the machine is busy", worked);
            tokio::time::sleep(self.work).await;
        }
    }
}

/// The load of one minute in thousandths.
pub(in crate::agent) fn load() -> i64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|number| {
        let (whole, part) = number.split_once('.')?;
        Some(whole.parse::<i64>().ok()? * 1000 + part.parse::<i64>().ok()? * 10)
    });
    first.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// What it hears within this time, and when, in milliseconds.
    async fn signals(pace: Pace, within: Duration) -> Vec<(Signal, u128)> {
        let (heard, began) = (Mutex::new(Vec::new()), Instant::now());
        let hear = |signal| heard.lock().unwrap().push((signal, began.elapsed().as_millis()));
        let _ = tokio::time::timeout(within, pace.keep(hear, |_, _| {})).await;
        heard.into_inner().unwrap()
    }

    #[tokio::test]
    async fn it_rests_a_multiple_of_the_time_that_it_worked() {
        let (work, longest_rest) = (Duration::from_millis(50), Duration::from_mins(1));
        let pace = Pace { work, rest: 2, load: i64::MAX, longest_rest };
        let heard = signals(pace, Duration::from_millis(400)).await;
        let [(Signal::STOP, stopped), (Signal::CONT, went_on), ..] = heard[..] else { panic!("{heard:?}") };
        assert!(stopped >= 50 && went_on - stopped >= 100, "{heard:?}");
    }

    #[tokio::test]
    async fn it_steps_aside_under_load_but_not_for_ever() {
        let (work, longest_rest) = (Duration::from_millis(20), Duration::from_millis(300));
        let heard = signals(Pace { work, rest: 1, load: -1, longest_rest }, Duration::from_secs(2)).await;
        let [(Signal::STOP, stopped), (Signal::CONT, went_on), ..] = heard[..] else { panic!("{heard:?}") };
        assert!(went_on - stopped >= 300, "{heard:?}");
    }

    #[test]
    fn the_load_of_this_machine_is_read_in_thousandths() {
        assert!(load() >= 0);
        assert_eq!(load() % 10, 0);
    }
}
