//! One repair file: what it says, and what it may say.
//!
//! Reading is strict. An unknown key, a word that is not a step, a limit outside its
//! bounds: each is refused with the line, the key, and what is allowed, because a
//! repair that runs with a limit nobody meant is worse than one that does not start.

use crate::model::Millis;
use crate::model::attempt::Step;
use crate::model::goal::SubjectKind;

mod text;

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
    /// The operator's own program and its arguments, where that is the step; else empty.
    pub exec: Vec<String>,
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

/// What is wrong with a repair file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct FileError {
    /// The file, as it was named to the reader.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, with the key and what is allowed.
    pub message: String,
}

/// The subject that belongs to a step: a step is done to one kind of thing; none: to any, as its file says.
#[must_use]
pub const fn subject_of(step: Step) -> Option<SubjectKind> {
    match step {
        Step::Replicate | Step::Settle => Some(SubjectKind::Repository),
        Step::Resync
        | Step::Verify
        | Step::Move
        | Step::Scrub
        | Step::Repack
        | Step::Resume
        | Step::Remove
        | Step::Purge => Some(SubjectKind::Replica),
        Step::Exec => None,
    }
}

impl Repair {
    /// Reads a repair from a file's text. `file` is how messages name it, `name` is its stem.
    ///
    /// # Errors
    /// With the first thing that is wrong.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, FileError> {
        text::parse(name, file, text)
    }

    /// Whether an attempt of it only reads or tidies, so that it is cancelled when a more urgent
    /// finding needs its repository.
    #[must_use]
    pub const fn yields(&self) -> bool {
        matches!(self.step, Step::Verify | Step::Scrub | Step::Repack)
    }

    /// Whether it has no hurry at all.
    #[must_use]
    pub const fn tidies(&self) -> bool {
        matches!(self.step, Step::Scrub | Step::Repack)
    }

    /// Whether it can be done to such a subject.
    #[must_use]
    pub fn takes(&self, subject: SubjectKind) -> bool {
        self.subject == subject
    }
}

impl Deadline {
    /// The longest silence of an attempt that moves so many bytes, in milliseconds.
    #[must_use]
    pub fn for_bytes(&self, bytes: i64) -> Millis {
        let moving = i128::from(self.per_gib_ms) * i128::from(bytes.max(0)) / i128::from(1_i64 << 30);
        self.base_ms.saturating_add(Millis::try_from(moving).unwrap_or(Millis::MAX))
    }
}

impl Retry {
    /// The longest wait after the `n`th try (from 1), before jitter.
    #[must_use]
    pub fn ceiling(&self, n: i32) -> Millis {
        let doublings = u32::try_from(n.saturating_sub(1)).unwrap_or(0).min(40);
        self.first_ms.saturating_mul(1_i64 << doublings).min(self.max_ms)
    }

    /// The wait after the `n`th try: anywhere from nothing to [`Retry::ceiling`], by chance, so that
    /// what failed together does not come back together.
    #[must_use]
    pub fn backoff(&self, n: i32, chance: u64) -> Millis {
        let wait = (u128::from(chance) * (u128::from(self.ceiling(n).unsigned_abs()) + 1)) >> 64;
        Millis::try_from(wait).unwrap_or(self.max_ms)
    }
}

#[cfg(test)]
mod tests;
