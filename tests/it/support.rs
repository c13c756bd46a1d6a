//! What the integration tests share: real repositories, real processes, waiting on conditions.

pub mod engine;
pub mod fleet;
pub mod history;
pub mod postgres;
pub mod process;
pub mod redis;
pub mod source;
pub mod up;

use std::time::{Duration, Instant};

/// Waits until `true`, asking again every 100 ms; fails with `what` and the last thing seen.
pub fn until(what: &str, within: Duration, seen: impl FnMut() -> Result<(), String>) {
    until_or_tell(what, within, seen, String::new);
}

/// The same; a failure tells the story too, which is asked for then alone.
pub fn until_or_tell(
    what: &str,
    within: Duration,
    mut seen: impl FnMut() -> Result<(), String>,
    story: impl Fn() -> String,
) {
    let deadline = Instant::now() + within;
    loop {
        match seen() {
            Ok(()) => return,
            Err(last) if Instant::now() > deadline => {
                panic!("not within {within:?}: {what}; last seen: {last}\n{}", story())
            }
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Seconds, for short.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
