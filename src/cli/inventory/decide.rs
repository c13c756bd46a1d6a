//! What one repository's copies say that it is. Pure: the same copies give the same answer.
//!
//! The highest version that was committed anywhere is the repository's; what most copies of that version have is
//! definitive. Where as many say one thing as another, nobody decides: no checksum is definitive then, so nothing is
//! overwritten, and a person chooses.

use crate::database::rebuild::{Restored, RestoredCopy};
use crate::model::checksum::Checksum;
use crate::model::contents::Held;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::Identity;
use std::collections::BTreeMap;

/// One copy: where, the fileserver's name, and what lies there.
pub(super) type Copy = (FileserverId, String, Held);

/// What the copies of a repository come to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    /// What is to be made; none: no copy says what it is.
    pub(super) restored: Option<Restored>,
    /// What does not fit together, one sentence each.
    pub(super) conflicts: Vec<String>,
}

/// Decides about the copies of one repository.
pub(super) fn decide(id: RepositoryId, copies: &[Copy]) -> Decision {
    let mut conflicts: Vec<String> = copies
        .iter()
        .filter(|(_, _, held)| held.identity.is_none())
        .map(|(_, name, _)| format!("{name} does not say what it is"))
        .collect();
    let known: Vec<(&Copy, &Identity)> =
        copies.iter().filter_map(|copy| Some((copy, copy.2.identity.as_ref()?))).collect();
    let Some(version) = known.iter().map(|(_, identity)| identity.version).max() else {
        return Decision { restored: None, conflicts };
    };
    let newest: Vec<_> = known.iter().filter(|(_, identity)| identity.version == version).copied().collect();
    let Some(identity) = most(newest.iter().map(|(_, identity)| identity.name.clone()))
        .first()
        .and_then(|name| newest.iter().find(|(_, identity)| identity.name == *name))
        .map(|(_, identity)| (*identity).clone())
    else {
        return Decision { restored: None, conflicts };
    };
    conflicts.extend(differing(&known, &identity));
    let checksum = definitive(&newest, &mut conflicts);
    let copies = known.iter().map(|(copy, said)| restored(copy, said, version, checksum.as_ref())).collect();
    let held = || known.iter().map(|((_, _, held), _)| held);
    let restored = Restored {
        id,
        name: identity.name,
        object_format: identity.object_format,
        wanted: identity.wanted,
        version,
        checksum,
        bytes: held().map(|held| held.bytes).max().unwrap_or(0),
        repair_epoch: held().map(|held| held.epochs.repair).max().unwrap_or(0),
        push_epoch: held().map(|held| held.epochs.push).max().unwrap_or(0),
        copies,
    };
    Decision { restored: Some(restored), conflicts }
}

fn restored(copy: &Copy, said: &Identity, version: i64, definitive: Option<&Checksum>) -> RestoredCopy {
    let (fileserver_id, _, held) = copy;
    let in_sync = said.version == version && held.checksum.is_some() && held.checksum.as_ref() == definitive;
    RestoredCopy {
        fileserver_id: *fileserver_id,
        version: said.version,
        checksum: held.checksum,
        in_sync,
        bytes: held.bytes,
    }
}

/// What most copies of the newest version have; none: nobody has the most, or none can be read.
fn definitive(newest: &[(&Copy, &Identity)], conflicts: &mut Vec<String>) -> Option<Checksum> {
    for ((_, name, held), _) in newest.iter().filter(|((_, _, held), _)| held.checksum.is_none()) {
        let why = held.problem.as_deref().unwrap_or("its references cannot be read");
        conflicts.push(format!("{name} is damaged: {why}"));
    }
    let sums = newest.iter().filter_map(|((_, _, held), _)| held.checksum);
    let ranked = most(sums.map(|sum| (sum.key, sum.sum)));
    if ranked.is_empty() {
        return None;
    }
    let count = |one: &(i64, [u8; 32])| {
        let same = |held: &Held| held.checksum.is_some_and(|sum| (sum.key, sum.sum) == *one);
        newest.iter().filter(|((_, _, held), _)| same(held)).count()
    };
    match ranked.as_slice() {
        [first, second, ..] if count(first) == count(second) => {
            conflicts.push("as many copies say one thing as another: a person decides".to_owned());
            None
        }
        [(key, sum), rest @ ..] => {
            if !rest.is_empty() {
                conflicts
                    .push("copies of one version differ: what most of them have is definitive".to_owned());
            }
            Some(Checksum { key: *key, sum: *sum })
        }
        [] => None,
    }
}

fn differing(known: &[(&Copy, &Identity)], chosen: &Identity) -> Vec<String> {
    let mut conflicts = Vec::new();
    for ((_, place, _), said) in known {
        if said.version != chosen.version {
            let (has, is) = (said.version, chosen.version);
            conflicts.push(format!("{place} has version {has}, the newest is {is}"));
        }
        if said.name != chosen.name {
            conflicts.push(format!("{place} calls it {}, others {}", said.name, chosen.name));
        }
        if said.object_format != chosen.object_format {
            conflicts.push(format!("{place} names its objects by {}", said.object_format));
        }
    }
    conflicts
}

/// The values, the most frequent first, those that are as frequent in their own order.
fn most<T: Ord + Clone>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut ranked: Vec<_> = counts.into_iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked.into_iter().map(|(value, _)| value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::contents::EpochsAnswer;
    use crate::model::fleet::ObjectFormat;

    const ID: RepositoryId = RepositoryId(9);

    fn copy(fileserver: i64, name: &str, version: i64, sum: Option<u8>) -> Copy {
        let identity = Identity {
            repository: ID,
            name: name.to_owned(),
            object_format: ObjectFormat::Sha1,
            wanted: 3,
            version,
        };
        let held = Held {
            repository: ID,
            identity: Some(identity),
            checksum: sum.map(|byte| Checksum { key: 1, sum: [byte; 32] }),
            problem: None,
            bytes: 10 * fileserver,
            epochs: EpochsAnswer { repair: fileserver, push: 7 - fileserver },
        };
        (FileserverId(fileserver), format!("fs-{fileserver}"), held)
    }

    fn in_sync(decision: &Decision) -> Vec<i64> {
        let copies = &decision.restored.as_ref().unwrap().copies;
        copies.iter().filter(|copy| copy.in_sync).map(|copy| copy.fileserver_id.0).collect()
    }

    #[test]
    fn copies_that_agree_are_what_they_say_with_the_highest_epochs() {
        let decision = decide(ID, &[copy(1, "a", 4, Some(1)), copy(2, "a", 4, Some(1))]);
        assert!(decision.conflicts.is_empty(), "{:?}", decision.conflicts);
        let made = decision.restored.clone().unwrap();
        assert_eq!((made.name.as_str(), made.version, made.bytes, made.wanted), ("a", 4, 20, 3));
        assert_eq!((made.repair_epoch, made.push_epoch), (2, 6));
        assert_eq!(in_sync(&decision), [1, 2]);
    }

    #[test]
    fn the_highest_version_wins_over_any_number_of_older_ones() {
        let copies = [copy(1, "old", 3, Some(1)), copy(2, "old", 3, Some(1)), copy(3, "new", 4, Some(2))];
        let decision = decide(ID, &copies);
        assert_eq!(in_sync(&decision), [3]);
        assert_eq!(decision.restored.unwrap().name, "new");
        assert_eq!(decision.conflicts.len(), 4, "two versions, two names: {:?}", decision.conflicts);
    }

    #[test]
    fn an_old_copy_that_looks_like_the_new_ones_is_not_taken_for_one() {
        let decision = decide(ID, &[copy(1, "a", 3, Some(1)), copy(2, "a", 4, Some(1))]);
        assert_eq!(in_sync(&decision), [2]);
    }

    #[test]
    fn what_most_have_is_definitive_and_nobody_decides_a_tie() {
        let three = [copy(1, "a", 4, Some(1)), copy(2, "a", 4, Some(2)), copy(3, "a", 4, Some(1))];
        let decision = decide(ID, &three);
        assert_eq!(in_sync(&decision), [1, 3]);
        assert_eq!(decision.conflicts.len(), 1);
        let decision = decide(ID, &three[..2]);
        assert!(in_sync(&decision).is_empty() && decision.restored.unwrap().checksum.is_none());
        assert!(decision.conflicts[0].contains("a person decides"));
    }

    #[test]
    fn a_copy_that_is_damaged_or_says_nothing_is_told() {
        let mut mute = copy(2, "a", 4, Some(1));
        mute.2.identity = None;
        let decision = decide(ID, &[copy(1, "a", 4, None), mute.clone()]);
        assert_eq!(decision.conflicts.len(), 2, "{:?}", decision.conflicts);
        assert_eq!(decision.restored.unwrap().copies.len(), 1);
        assert_eq!(decide(ID, &[mute]).restored, None);
    }
}
