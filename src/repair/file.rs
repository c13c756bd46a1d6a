//! One repair file.
use crate::model::Millis;
use crate::model::attempt::Step;
use crate::model::goal::SubjectKind;

/// A kind of remedy, as its file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// Its name, the file's stem.
    pub name: String,
    /// What it does, in a sentence.
    pub summary: String,
    /// What it is done to.
    pub subject: SubjectKind,
    /// The one safe step.
    pub step: Step,
    /// Bounds on work in flight.
    pub throttle: Throttle,
    /// How long it may take.
    pub deadline: Deadline,
    /// When it is tried again.
    pub retry: Retry,
}

/// Bounds on work in flight; both ends of a copy are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// Attempts in the whole fleet.
    pub in_flight: u32,
    /// Attempts that a fileserver takes part in.
    pub per_fileserver: u32,
    /// Attempts that a rack takes part in.
    pub per_rack: u32,
    /// Attempts admitted in a minute.
    pub starts_per_minute: u32,
    /// Of one copy; 0: unlimited.
    pub bytes_per_second: i64,
}

/// Longest silence of an attempt: `base + per_gib × size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// Milliseconds.
    pub base_ms: Millis,
    /// Milliseconds a GiB.
    pub per_gib_ms: Millis,
}

/// Backoff: doubles from `first` to `max`, with full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Milliseconds.
    pub first_ms: Millis,
    /// Milliseconds.
    pub max_ms: Millis,
    /// Ineffective attempts before the next takes the write lock.
    pub lock_after: i32,
    /// Ineffective attempts before a person is asked.
    pub stuck_after: i32,
}

impl Retry {
    /// The longest wait after the `n`th try (from 1), before jitter.
    #[must_use]
    pub fn ceiling(&self, n: i32) -> Millis {
        let doublings = u32::try_from(n.saturating_sub(1)).unwrap_or(0).min(40);
        self.first_ms.saturating_mul(1_i64 << doublings).min(self.max_ms)
    }
}
