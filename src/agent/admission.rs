//! Who may ask what: every request shows a grant, and nothing is done before it was checked.
//!
//! A grant must be signed by a part that is known here, whose role may do what is asked, for this
//! fleet, this fileserver, this repository, and it must not be over. Epochs are checked where the
//! repository's journal is ([`super::epochs`]). Refusals name what did not fit, never the grant itself.

use super::parts::Parts;
use crate::model::Millis;
use crate::model::grant::{Action, Grant};
use crate::model::id::RepositoryId;
use crate::model::wire::{Refusal, RefusalCode};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Longer than any grant that is signed; bounds the work of checking one.
const LONGEST_GRANT: usize = 8 * 1024;
/// Bounds the holds that are remembered; the oldest end is forgotten first.
const MOST_HELD: usize = 10_000;

/// Checks grants.
#[derive(Debug)]
pub(super) struct Admission {
    fleet: String,
    fileserver: String,
    parts: Parts,
    /// Grants under which a hold was taken here, by digest, and until when it lasts: a long copy
    /// began in time and may go on reading what it holds.
    held: Mutex<HashMap<[u8; 32], Millis>>,
}

/// A grant that was checked, with its text to show to a source.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) grant: Grant,
    pub(super) text: String,
}

impl Admission {
    pub(super) fn new(fleet: String, fileserver: String, parts: Parts) -> Self {
        Self { fleet, fileserver, parts, held: Mutex::default() }
    }

    /// The parts that are believed.
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Checks the grant shown for an action, on a repository or on the fileserver itself.
    ///
    /// # Errors
    /// `Forbidden`, with what did not fit.
    pub(super) fn check(
        &self,
        text: Option<&str>,
        action: Action,
        repository: Option<RepositoryId>,
        now: Millis,
    ) -> Result<Admitted, Refusal> {
        let text = text.ok_or_else(|| forbidden("no grant was shown"))?;
        if text.len() > LONGEST_GRANT {
            return Err(forbidden("the grant is too long"));
        }
        let mut role = None;
        let grant = Grant::open(text, |part| {
            let (its_role, key) = self.parts.find(part)?;
            role = Some(its_role);
            Some(key)
        })
        .map_err(|error| forbidden(error.to_string()))?;
        let role = role.ok_or_else(|| forbidden("the grant names no part"))?;
        if grant.fleet != self.fleet {
            return Err(forbidden("the grant is of another fleet"));
        }
        if !role.may(grant.action) {
            return Err(forbidden(format!("a {role} may not ask for {}", grant.action)));
        }
        self.check_place(&grant, action)?;
        if grant.repository != repository {
            return Err(forbidden("the grant is for another repository"));
        }
        if grant.expires_at < now && !self.is_held(text, action, now) {
            return Err(forbidden("the grant is over"));
        }
        Ok(Admitted { grant, text: text.to_owned() })
    }

    /// A destination reads from its source under the very grant that told it to copy.
    fn check_place(&self, grant: &Grant, action: Action) -> Result<(), Refusal> {
        if action == Action::Read && matches!(grant.action, Action::Repair | Action::Settle) {
            let source = grant.source.as_ref().map(|end| end.name.as_str());
            return if source == Some(self.fileserver.as_str()) {
                Ok(())
            } else {
                Err(forbidden(format!("the grant does not name {} as its source", self.fileserver)))
            };
        }
        // Who may have a copy read through may look at what is known of it: workers of before ask so.
        let looks = action == Action::Observe && grant.action == Action::Verify && grant.repository.is_some();
        if grant.action != action && !looks {
            return Err(forbidden(format!("the grant is for {}, this is {action}", grant.action)));
        }
        if grant.destination.name != self.fileserver {
            return Err(forbidden(format!("the grant is for fileserver {}", grant.destination.name)));
        }
        Ok(())
    }

    /// Remembers that a hold was taken under this grant.
    pub(super) fn remember_hold(&self, text: &str, until: Millis, now: Millis) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, until| *until >= now);
        if held.len() >= MOST_HELD
            && let Some(first) = held.iter().min_by_key(|(_, until)| **until).map(|(grant, _)| *grant)
        {
            held.remove(&first);
        }
        held.insert(*blake3::hash(text.as_bytes()).as_bytes(), until);
    }

    fn is_held(&self, text: &str, action: Action, now: Millis) -> bool {
        action == Action::Read
            && self
                .held
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(blake3::hash(text.as_bytes()).as_bytes())
                .is_some_and(|until| *until >= now)
    }
}

fn forbidden(why: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Forbidden, why)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::testing::{enrolment, grant, key};
    use super::*;
    use crate::model::grant::{End, Role};

    const NOW: Millis = 1_000_000;

    fn admission() -> (tempfile::TempDir, Admission) {
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::load(&Layout::new(directory.path()), &enrolment("fleet", "alpha")).unwrap();
        (directory, Admission::new("fleet".into(), "alpha".into(), parts))
    }

    fn fresh(role: Role, action: Action) -> Grant {
        Grant { expires_at: NOW + 1, ..grant(role, action, Some(RepositoryId(7)), "alpha") }
    }

    fn ask(admission: &Admission, grant: &Grant, action: Action) -> Result<Admitted, Refusal> {
        let text = grant.sign(&key(&grant.part));
        admission.check(Some(&text), action, Some(RepositoryId(7)), NOW)
    }

    #[test]
    fn every_role_may_do_what_the_matrix_says_and_nothing_else() {
        let (_directory, admission) = admission();
        for role in Role::ALL {
            for granted in Action::ALL {
                for asked in Action::ALL {
                    let answer = ask(&admission, &fresh(*role, *granted), *asked);
                    let looks = (*granted, *asked) == (Action::Verify, Action::Observe);
                    let expected = role.may(*granted) && (granted == asked || looks);
                    assert_eq!(answer.is_ok(), expected, "{role} with {granted} asks for {asked}");
                    if let Err(refusal) = answer {
                        assert_eq!(refusal.code, RefusalCode::Forbidden);
                    }
                }
            }
        }
    }

    #[test]
    fn a_repair_grant_lets_its_destination_read_from_its_source_only() {
        let (_directory, admission) = admission();
        let mut grant = fresh(Role::Worker, Action::Repair);
        grant.destination.name = "beta".into();
        grant.source = Some(End { name: "alpha".into(), url: String::new() });
        ask(&admission, &grant, Action::Read).unwrap();
        ask(&admission, &grant, Action::Repair).unwrap_err();
        ask(&admission, &grant, Action::Verify).unwrap_err();
        grant.source = Some(End { name: "gamma".into(), url: String::new() });
        ask(&admission, &grant, Action::Read).unwrap_err();
        grant.source = None;
        ask(&admission, &grant, Action::Read).unwrap_err();
        // So does one to settle: the copies are brought to one that has what was pushed.
        let mut settle = fresh(Role::Router, Action::Settle);
        settle.destination.name = "beta".into();
        settle.source = Some(End { name: "alpha".into(), url: String::new() });
        ask(&admission, &settle, Action::Read).unwrap();
        ask(&admission, &settle, Action::Settle).unwrap_err();
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_sentence() {
        let (_directory, admission) = admission();
        let good = fresh(Role::Worker, Action::Read);
        ask(&admission, &good, Action::Read).unwrap();
        let cases = [
            (Grant { fleet: "other".into(), ..good.clone() }, "another fleet"),
            (Grant { repository: Some(RepositoryId(8)), ..good.clone() }, "another repository"),
            (Grant { repository: None, ..good.clone() }, "another repository"),
            (Grant { expires_at: NOW - 1, ..good.clone() }, "is over"),
            (Grant { part: "stranger".into(), ..good.clone() }, "not known"),
            (
                Grant { destination: End { name: "beta".into(), url: String::new() }, ..good.clone() },
                "fileserver beta",
            ),
        ];
        for (grant, why) in cases {
            let refusal = ask(&admission, &grant, Action::Read).unwrap_err();
            assert!(refusal.message.contains(why), "{refusal}");
        }
        let forged = good.sign(&key("somebody else"));
        let refusal = admission.check(Some(&forged), Action::Read, Some(RepositoryId(7)), NOW).unwrap_err();
        assert!(refusal.message.contains("not signed") && !refusal.message.contains(&forged));
        assert!(admission.check(None, Action::Read, Some(RepositoryId(7)), NOW).is_err());
        assert!(admission.check(Some("x"), Action::Read, Some(RepositoryId(7)), NOW).is_err());
    }

    #[test]
    fn a_copy_that_began_in_time_goes_on_reading_what_it_holds() {
        let (_directory, admission) = admission();
        let mut grant = fresh(Role::Worker, Action::Repair);
        grant.source = Some(End { name: "alpha".into(), url: String::new() });
        let text = grant.sign(&key(&grant.part));
        admission.remember_hold(&text, NOW + 500, NOW);
        let read = |action, now| admission.check(Some(&text), action, Some(RepositoryId(7)), now);
        read(Action::Read, NOW + 400).unwrap();
        read(Action::Repair, NOW + 400).unwrap_err();
        read(Action::Read, NOW + 501).unwrap_err();
    }
}
