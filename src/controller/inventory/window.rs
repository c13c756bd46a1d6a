//! One window of a comparison: entries of the agent against beliefs of SQL. Pure.

use crate::database::inventory::Differences;
use crate::model::id::RepositoryId;
use crate::model::wire::InventoryEntry;
use std::collections::BTreeSet;

/// Everything that is known of some range of repositories on one fileserver.
pub(super) struct Window<'a> {
    /// What the agent says, in the order of repositories.
    pub(super) entries: &'a [InventoryEntry],
    /// What SQL believes to be there: live or leaving.
    pub(super) expected: &'a BTreeSet<RepositoryId>,
    /// Of the entries that are not expected: those that SQL knows there in another state, or
    /// that an import is making.
    pub(super) known: &'a BTreeSet<RepositoryId>,
    /// What a live attempt is changing there.
    pub(super) busy: &'a BTreeSet<RepositoryId>,
    /// Whether an expected one without an entry is missing, or merely unchanged.
    pub(super) whole: bool,
}

impl Window<'_> {
    /// The differences, and the lowest generation of what was passed over.
    pub(super) fn differences(&self) -> (Differences, Option<i64>) {
        let mut differences = Differences::default();
        let mut held: Option<i64> = None;
        for entry in self.entries {
            if self.busy.contains(&entry.repository) {
                held = Some(held.map_or(entry.generation, |held| held.min(entry.generation)));
                continue;
            }
            self.judge(entry, &mut differences);
        }
        if self.whole {
            let listed: BTreeSet<_> = self.entries.iter().map(|entry| entry.repository).collect();
            let absent = self.expected.iter().filter(|id| !listed.contains(id) && !self.busy.contains(id));
            // Never seen in this start, so no generation is its own.
            differences.missing.extend(absent.map(|id| (*id, 0)));
        }
        (differences, held)
    }

    /// What agents journalled of copies that are where they are believed to be, and left in peace.
    pub(super) fn journalled(&self) -> Vec<(RepositoryId, i64)> {
        let stands = |entry: &&InventoryEntry| {
            let id = &entry.repository;
            entry.present && entry.version > 0 && self.expected.contains(id) && !self.busy.contains(id)
        };
        self.entries.iter().filter(stands).map(|entry| (entry.repository, entry.version)).collect()
    }

    fn judge(&self, entry: &InventoryEntry, differences: &mut Differences) {
        let (id, generation) = (entry.repository, entry.generation);
        match (entry.present, self.expected.contains(&id)) {
            (false, true) => differences.missing.push((id, generation)),
            (false, false) => differences.agree.push(id),
            (true, true) => {
                differences.agree.push(id);
                if entry.changed {
                    differences.changed.push((id, generation));
                }
            }
            (true, false) if self.known.contains(&id) => {}
            (true, false) => differences.untracked.push((id, generation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(list: &[i64]) -> BTreeSet<RepositoryId> {
        list.iter().copied().map(RepositoryId).collect()
    }

    fn entry(id: i64, generation: i64, present: bool, changed: bool) -> InventoryEntry {
        InventoryEntry { repository: RepositoryId(id), generation, present, changed, bytes: 0, version: 0 }
    }

    fn compare(
        entries: &[InventoryEntry],
        expected: &[i64],
        known: &[i64],
        busy: &[i64],
        whole: bool,
    ) -> (Differences, Option<i64>) {
        let (expected, known, busy) = (ids(expected), ids(known), ids(busy));
        Window { entries, expected: &expected, known: &known, busy: &busy, whole }.differences()
    }

    #[test]
    fn a_whole_comparison_finds_missing_changed_and_untracked() {
        let entries = [entry(1, 5, true, false), entry(3, 6, true, true), entry(4, 7, true, false)];
        let (found, held) = compare(&entries, &[1, 2, 3], &[], &[], true);
        assert_eq!(found.missing, [(RepositoryId(2), 0)]);
        assert_eq!(found.changed, [(RepositoryId(3), 6)]);
        assert_eq!(found.untracked, [(RepositoryId(4), 7)]);
        assert_eq!(found.agree, [RepositoryId(1), RepositoryId(3)]);
        assert_eq!(held, None);
    }

    #[test]
    fn what_is_not_on_a_page_of_changes_is_not_missing() {
        let (found, _) = compare(&[entry(2, 9, false, false)], &[1, 2, 3], &[], &[], false);
        assert_eq!(found.missing, [(RepositoryId(2), 9)]);
    }

    #[test]
    fn a_copy_in_the_making_is_not_untracked_and_one_under_repair_is_looked_at_again() {
        let entries = [entry(1, 5, true, false), entry(2, 8, false, false), entry(3, 6, true, true)];
        let (found, held) = compare(&entries, &[2, 3], &[1], &[2, 3], true);
        assert_eq!(found, Differences::default());
        assert_eq!(held, Some(6));
    }

    #[test]
    fn versions_of_what_is_strange_or_being_changed_are_not_compared() {
        let entries: Vec<_> = [(1, true, 7), (2, true, 0), (3, false, 7), (4, true, 7), (5, true, 7)]
            .map(|(id, present, version)| InventoryEntry { version, ..entry(id, 5, present, false) })
            .to_vec();
        let (expected, known, busy) = (ids(&[1, 2, 3, 4]), ids(&[]), ids(&[4]));
        let window =
            Window { entries: &entries, expected: &expected, known: &known, busy: &busy, whole: true };
        assert_eq!(window.journalled(), [(RepositoryId(1), 7)]);
    }

    proptest! {
        #[test]
        fn each_repository_is_judged_once_and_as_a_plain_comparison_would(
            there in prop::collection::btree_map(1..40_i64, (1..100_i64, any::<bool>(), any::<bool>()), 0..30),
            expected in prop::collection::btree_set(1..40_i64, 0..30),
            busy in prop::collection::btree_set(1..40_i64, 0..5),
        ) {
            let entries: Vec<_> =
                there.iter().map(|(id, (gen_, here, new))| entry(*id, *gen_, *here, *new)).collect();
            let list: Vec<_> = expected.iter().copied().collect();
            let busy_list: Vec<_> = busy.iter().copied().collect();
            let (found, _) = compare(&entries, &list, &[], &busy_list, true);
            for id in 1..40 {
                let here = there.get(&id).is_some_and(|one| one.1);
                let flags = found.missing.iter().filter(|one| one.0.0 == id).count()
                    + found.untracked.iter().filter(|one| one.0.0 == id).count();
                let differs = here != expected.contains(&id) && !busy.contains(&id);
                prop_assert_eq!(flags, usize::from(differs), "repository {}", id);
            }
        }
    }
}
