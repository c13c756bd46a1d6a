//! Repositories in which git failed while it served.
//!
//! Such a failure may come of an object that neither references nor pack trailers show, so the verification that
//! follows checks them all. A reader who makes git fail on purpose gets that once an hour, not once a request.

use crate::model::Millis;
use crate::model::id::RepositoryId;
use std::collections::HashMap;

/// The shortest time between two checks of one repository.
const PAUSE: Millis = 60 * 60 * 1000;
/// More are forgotten: they are found by the next failure, or by the scrub.
const MOST: usize = 10_000;

/// Which failed, and when each was last checked.
#[derive(Debug, Default)]
pub(super) struct Failed {
    known: HashMap<RepositoryId, State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    failed: bool,
    checked_at: Option<Millis>,
}

impl Failed {
    /// Git failed.
    pub(super) fn fail(&mut self, id: RepositoryId) {
        if self.known.len() < MOST || self.known.contains_key(&id) {
            self.known.entry(id).or_default().failed = true;
        }
    }

    /// Whether all objects are to be checked now; if so, that is taken for done.
    pub(super) fn take(&mut self, id: RepositoryId, now: Millis) -> bool {
        let over = |state: &State| state.checked_at.is_none_or(|at| now - at >= PAUSE || now < at);
        self.known.retain(|one, state| *one == id || state.failed || !over(state));
        let Some(state) = self.known.get_mut(&id) else { return false };
        if !state.failed || !over(state) {
            return false;
        }
        *state = State { failed: false, checked_at: Some(now) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_every_object_checked_once_an_hour() {
        let (mut failed, id) = (Failed::default(), RepositoryId(7));
        assert!(!failed.take(id, 0), "nothing failed");
        failed.fail(id);
        assert!(failed.take(id, 1_000) && !failed.take(id, 1_001));
        failed.fail(id);
        assert!(!failed.take(id, PAUSE), "too soon");
        assert!(failed.take(id, PAUSE + 1_000), "it is not forgotten");
        failed.take(RepositoryId(8), 9 * PAUSE);
        assert!(failed.known.is_empty(), "what is over is forgotten");
    }
}
