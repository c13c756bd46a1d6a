//! What a push changed is the agent's own doing, and nothing else is: a change that was there before it stays one.

use super::{Inventory, look};
use crate::model::id::RepositoryId;
use std::io;

impl Inventory {
    /// Whether a repository looks as the agent left it, so far as is known: asked before a push changes it.
    pub(in crate::agent) fn is_as_expected(&self, id: RepositoryId) -> io::Result<bool> {
        let looked = look::look(&self.layout.repository(id))?;
        let known = self.lock().entries.get(&id).copied();
        let expected = match known {
            Some(entry) if entry.changed => None,
            Some(entry) => entry.expected,
            // Not met by the sweep yet: what stands beside it is what it will be compared with.
            None => self.kept(id).map(|kept| kept.expected),
        };
        Ok(expected.is_some() && expected == looked.map(|looked| looked.print))
    }

    /// A push changed this repository, which was as expected before, or was not. Also while it is verified or packed.
    pub(in crate::agent) fn pushed(&self, id: RepositoryId, as_expected: bool) -> io::Result<()> {
        let looked = look::look(&self.layout.repository(id))?;
        let known = self.lock().entries.get(&id).copied();
        if as_expected && known.is_none_or(|entry| !entry.changed) {
            let generation = self.lock().generation;
            return self.settle(id, looked.as_ref(), generation).map(drop);
        }
        if known.is_some() {
            let (now, version) = (looked.map(|looked| looked.print), self.version_beside(id));
            self.lock().entry(id, |entry| {
                entry.seen = now;
                entry.changed = true;
                entry.version = version;
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::Layout;
    use super::super::super::testing::make_repository;
    use super::*;
    use std::fs;

    const ID: RepositoryId = RepositoryId(7);

    #[test]
    fn a_push_is_expected_and_hides_no_change_that_was_there_before() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let place = layout.repository(ID);
        make_repository(&place);
        let inventory = Inventory::new(layout);
        inventory.touched(ID).unwrap();
        let push = |name: &str| fs::copy(place.join("refs/heads/loose"), place.join("refs/heads").join(name));
        let changed = || inventory.lock().entries[&ID].changed;

        let before = inventory.is_as_expected(ID).unwrap();
        push("one").unwrap();
        inventory.pushed(ID, before).unwrap();
        assert!(!changed());

        push("stray").unwrap();
        let before = inventory.is_as_expected(ID).unwrap();
        push("two").unwrap();
        inventory.pushed(ID, before).unwrap();
        assert!(changed(), "the stray one is still to be found");
        let before = inventory.is_as_expected(ID).unwrap();
        push("three").unwrap();
        inventory.pushed(ID, before).unwrap();
        assert!(changed());
    }
}
