//! Whom this agent believes: the parts of its enrolment, then those that a controller last sent.
//!
//! The list that was sent is kept on disk with the digest of the enrolment that it followed:
//! a new enrolment file, which only an operator of this machine can place, wins over it.

use super::durable::{self, Sync};
use super::layout::Layout;
use crate::model::grant::{Enrolment, Part, Role};
use crate::model::wire::{PartsList, Refusal, RefusalCode};
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::sync::{PoisonError, RwLock};

/// More parts than any fleet has; bounds what a message can make us keep.
const MOST_PARTS: usize = 20_000;

/// The parts that may ask.
#[derive(Debug)]
pub(super) struct Parts {
    layout: Layout,
    enrolment: String,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    list: Vec<Part>,
    digest: String,
    keys: HashMap<String, (Role, VerifyingKey)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    enrolment: String,
    parts: Vec<Part>,
}

impl Parts {
    /// The parts that were last sent, or else those of the enrolment.
    pub(super) fn load(layout: &Layout, enrolment: &Enrolment) -> io::Result<Self> {
        let first = sorted(enrolment.parts.clone());
        let digest = first.digest();
        let kept: Option<Kept> = match std::fs::read(layout.parts_file()) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let list = match kept {
            Some(kept) if kept.enrolment == digest => sorted(kept.parts),
            _ => first,
        };
        let known = RwLock::new(Known::of(&list));
        Ok(Self { layout: layout.clone(), enrolment: digest, known })
    }

    /// The role and key of a part.
    pub(super) fn find(&self, part: &str) -> Option<(Role, VerifyingKey)> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).keys.get(part).copied()
    }

    /// The digest of the list that is believed.
    pub(super) fn digest(&self) -> String {
        self.known.read().unwrap_or_else(PoisonError::into_inner).digest.clone()
    }

    /// The list that is believed.
    pub(super) fn list(&self) -> PartsList {
        PartsList { parts: self.known.read().unwrap_or_else(PoisonError::into_inner).list.clone() }
    }

    /// Believes another list from now on, also after a restart.
    pub(super) fn replace(&self, list: PartsList) -> Result<(), Refusal> {
        let bad = |why: String| Refusal::new(RefusalCode::BadRequest, why);
        if list.parts.len() > MOST_PARTS {
            return Err(bad(format!("{} parts are more than {MOST_PARTS}", list.parts.len())));
        }
        if let Some(part) = list.parts.iter().find(|part| part.key().is_none()) {
            return Err(bad(format!("the key of part {} cannot be read", part.id)));
        }
        if !list.parts.iter().any(|part| part.role == Role::Controller) {
            return Err(bad("a list without a controller could never be replaced again".to_owned()));
        }
        let list = sorted(list.parts);
        let known = Known::of(&list);
        if known.digest == self.digest() {
            return Ok(());
        }
        let kept = Kept { enrolment: self.enrolment.clone(), parts: list.parts };
        let mut believed = self.known.write().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_vec(&kept)
            .map_err(io::Error::from)
            .and_then(|text| durable::write(&self.layout.parts_file(), &text, Sync::Durable))
            .map_err(|error| Refusal::new(RefusalCode::Failed, format!("cannot keep the parts: {error}")))?;
        *believed = known;
        Ok(())
    }
}

impl Known {
    fn of(list: &PartsList) -> Self {
        let keys = list.parts.iter().filter_map(|part| Some((part.id.clone(), (part.role, part.key()?))));
        Self { list: list.parts.clone(), digest: list.digest(), keys: keys.collect() }
    }
}

fn sorted(mut parts: Vec<Part>) -> PartsList {
    parts.sort_by(|a, b| a.id.cmp(&b.id));
    PartsList { parts }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{enrolment, part};
    use super::*;

    #[test]
    fn a_list_that_was_sent_survives_a_restart_until_the_enrolment_changes() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout::new(directory.path());
        let mut enrolment = enrolment("fleet", "alpha");
        let parts = Parts::load(&layout, &enrolment).unwrap();
        assert!(parts.find("worker").is_some());

        let list = PartsList { parts: vec![part("controller", Role::Controller)] };
        parts.replace(list.clone()).unwrap();
        assert!(parts.find("worker").is_none());
        assert_eq!(parts.digest(), list.digest());
        assert!(Parts::load(&layout, &enrolment).unwrap().find("worker").is_none());

        enrolment.parts.push(part("second-controller", Role::Controller));
        let parts = Parts::load(&layout, &enrolment).unwrap();
        assert!(parts.find("second-controller").is_some() && parts.find("worker").is_some());
    }

    #[test]
    fn a_list_that_would_lock_everybody_out_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::load(&Layout::new(directory.path()), &enrolment("fleet", "alpha")).unwrap();
        let refused = parts.replace(PartsList { parts: vec![part("worker", Role::Worker)] }).unwrap_err();
        assert_eq!(refused.code, RefusalCode::BadRequest);
        assert!(parts.find("controller").is_some());
    }
}
