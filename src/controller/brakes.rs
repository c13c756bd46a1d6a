//! Brakes: whether a flood of findings looks like blindness rather than damage. Pure.
//!
//! Decided once a dispatch round, from what this controller itself hears and from the
//! fileservers as SQL has them, by the *shape* of the failure. One death of four agents is no shape of blindness and is never held.

use crate::model::Millis;
use crate::model::brake::{self, BLIND, Brake, Look, OFFLINE, START};
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::id::FileserverId;
use std::collections::{BTreeMap, BTreeSet};

mod keeper;

pub use keeper::keeper;

/// So long a fresh controller waits for fileservers that SQL had as online.
const START_PATIENCE: Millis = 5 * 60_000;
/// Silences within this time are one event.
const ONE_EVENT: Millis = 30_000;
/// A brake is released this long after its cause is gone.
const RELEASE: Millis = 30_000;

/// What this controller has heard since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// When it started.
    pub started: Millis,
    /// Fileservers that SQL had as online then.
    pub expected: BTreeSet<FileserverId>,
    /// Fileservers that answered at least once since.
    pub heard: BTreeSet<FileserverId>,
    /// Since when those are silent that are silent now and were online before.
    pub silent: BTreeMap<FileserverId, Millis>,
}

/// Which brake holds everything now, if one does.
#[must_use]
pub fn holding(sight: &Sight, now: Millis) -> Option<&'static str> {
    if blind(sight) {
        return Some(BLIND);
    }
    start(sight, now).then_some(START)
}

/// A fresh controller waits until it has heard from the fileservers that SQL had as online,
/// all but max(1, 10 %) of them, five minutes at most; and while it knows nothing of anybody
/// it waits even for the one that may be missing.
#[must_use]
pub fn start(sight: &Sight, now: Millis) -> bool {
    let unheard = || sight.expected.iter().filter(|id| !sight.heard.contains(id));
    let unknown = unheard().filter(|id| !sight.silent.contains_key(id)).count();
    let allowed = (sight.expected.len() / 10).max(1);
    let waited = now - sight.started >= START_PATIENCE;
    !waited && (unheard().count() > allowed || (unknown > 0 && sight.heard.is_empty()))
}

/// More than half of those that were online, and at least two, fell silent within 30 s and
/// are silent still (or one came back less than 30 s ago).
#[must_use]
pub fn blind(sight: &Sight) -> bool {
    let known = sight.expected.union(&sight.heard).count();
    let mut times: Vec<Millis> = sight.silent.values().copied().collect();
    times.sort_unstable();
    let together = (0..times.len())
        .map(|first| times[first..].iter().take_while(|at| **at - times[first] <= ONE_EVENT).count())
        .max()
        .unwrap_or(0);
    together >= 2 && together * 2 > known
}

/// What a round looks from.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// What was heard; none: nobody was asked yet.
    pub sight: Option<&'a Sight>,
    /// The moment of the sight, by this process's clock.
    pub seen_at: Millis,
    /// All fileservers as SQL has them.
    pub fileservers: &'a [Fileserver],
    /// So long the rack that is silent as a whole is waited for.
    pub rack_grace: Millis,
    /// The moment of the look, by the database's clock.
    pub now: Millis,
}

/// A look at each cause that is there, and at each brake that is. Goals look at theirs themselves.
#[must_use]
pub fn looks(scene: &Scene<'_>, brakes: &[Brake]) -> Vec<(String, Look)> {
    let mut causes = racks(scene);
    causes.extend(offline(scene.fileservers).map(|cause| (OFFLINE.to_owned(), cause)));
    // Before the first look at any agent nothing is known: that is a start, too.
    let sight = scene.sight.map_or(Some(START), |sight| holding(sight, scene.seen_at));
    if let Some(name) = sight {
        let why = if name == START {
            "the agents were not heard yet"
        } else {
            "more than half of the fileservers fell silent within 30 s"
        };
        causes.insert(name.to_owned(), why.to_owned());
    }
    let ours = brakes.iter().filter(|brake| brake.goal().is_none()).map(|brake| brake.name.clone());
    let names: BTreeSet<String> = causes.keys().cloned().chain(ours).collect();
    let look = |name: String| {
        // What was heard once stays heard: the start needs no keeping.
        let patience = if name == START { 0 } else { RELEASE };
        let cause = causes.get(&name).cloned();
        (name, Look { cause, at: scene.now, looks: 1, patience })
    };
    let changes = |(name, look): &(String, Look)| {
        let before = brakes.iter().find(|brake| brake.name == *name).cloned();
        brake::after(name, before.clone(), look) != before
    };
    names.into_iter().map(look).filter(changes).collect()
}

/// Racks of at least two fileservers of which each is silent, and not longer than the rack is waited for.
fn racks(scene: &Scene<'_>) -> BTreeMap<String, String> {
    let mut racks: BTreeMap<&str, Vec<&Fileserver>> = BTreeMap::new();
    for one in scene.fileservers.iter().filter(|one| one.intent != Intent::Retire) {
        racks.entry(&one.rack).or_default().push(one);
    }
    let silent = |(rack, all): (&str, Vec<&Fileserver>)| {
        let since = all.iter().map(|one| one.health_since).max()?;
        let whole = all.len() >= 2 && all.iter().all(|one| one.health == Health::Offline);
        let waited_for = scene.now - since < scene.rack_grace;
        (whole && waited_for).then(|| {
            (brake::of_rack(rack), format!("all {} fileservers of rack {rack} are silent", all.len()))
        })
    };
    racks.into_iter().filter_map(silent).collect()
}

/// More fileservers beyond their grace at once than is ordinary.
fn offline(fileservers: &[Fileserver]) -> Option<String> {
    let many = fileservers.iter().filter(|one| beyond_grace(one)).count();
    let of = fileservers.len();
    let most = brake::most_beyond_grace(i64::try_from(of).unwrap_or(i64::MAX));
    (i64::try_from(many).unwrap_or(i64::MAX) > most)
        .then(|| format!("{many} of {of} fileservers are beyond their grace at once"))
}

fn beyond_grace(one: &Fileserver) -> bool {
    one.health == Health::Offline && !one.counts && matches!(one.intent, Intent::Serve | Intent::Quiesce)
}

#[cfg(test)]
mod tests;
