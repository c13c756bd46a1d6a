//! Where a copy goes.
//!
//! A fileserver may take a copy if it serves, is online with the root its replicas were
//! written to, does not have the repository in any state, and stays below the fill limit
//! after the reservation. Of those, only the ones in the least crowded racks are looked
//! at, so that two copies share a rack only where no other rack could take one. Of
//! those, several are drawn by chance, weighted by capacity, and the least full is
//! taken: the choice is spread, and no stampede hits the emptiest disk.
//!
//! The same facts and the same seed give the same answer, on every machine.

use super::pressure::{Calm, Pressure};
use super::view::{FleetView, RepositoryView};
use crate::model::finding::Deferral;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::id::{FileserverId, RackId};
use std::collections::{BTreeMap, BTreeSet};

mod draw;

use draw::Draw;

/// How many candidates are drawn before the least full of them is taken.
const CANDIDATES: usize = 3;

/// What a copy asks of its place.
#[derive(Debug)]
struct Wish {
    /// Fileservers that have the repository, in any state.
    holders: BTreeSet<FileserverId>,
    /// Copies that count, by rack.
    racks: BTreeMap<RackId, u32>,
    /// What it will take; at least one, so that a full disk does not take an empty repository either.
    bytes: i64,
    /// Only a rack without a copy will do.
    new_rack: bool,
}

/// Why a fileserver may not take the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Holds,
    NotServing,
    NotOnline,
    EmptyRoot,
    NoWeight,
    NoStatus,
    InRack,
    NoRoom(i64),
}

impl Cause {
    const fn words(self) -> &'static str {
        match self {
            Self::Holds => "with the repository on it",
            Self::NotServing => "not serving",
            Self::NotOnline => "not online",
            Self::EmptyRoot => "with an empty root",
            Self::NoWeight => "of weight 0",
            Self::NoStatus => "without a first status",
            Self::InRack => "in a rack that has a copy",
            Self::NoRoom(_) => "without room",
        }
    }
}

/// The fileserver for one more copy: serving, online, below the fill limit after the reservation, in a rack without
/// a copy while there is one; the least full of several candidates drawn by `seed`, weighted by capacity.
///
/// # Errors
/// With the reason, when there is none.
pub fn destination(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    seed: u64,
) -> Result<FileserverId, Deferral> {
    destination_under(fleet, repository, bytes, false, &Calm, seed)
}

/// Like [`destination`], beside other work: a fileserver at its limit is passed over for another in an equally good
/// rack, never for one in a worse rack. `new_rack`: only a rack without a countable copy will do.
///
/// # Errors
/// With the reason, when there is none.
pub fn destination_under(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    new_rack: bool,
    pressure: &dyn Pressure,
    seed: u64,
) -> Result<FileserverId, Deferral> {
    let wish = Wish::one_more(fleet, repository, bytes, new_rack);
    choose(fleet, &wish, pressure, &mut Draw::new(seed))
}

/// Whether one fileserver may take one more copy, its having a replica that was never finished aside.
///
/// # Errors
/// With the reason, when it may not.
pub fn may_take(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    new_rack: bool,
    pressure: &dyn Pressure,
    id: FileserverId,
) -> Result<(), Deferral> {
    let mut wish = Wish::one_more(fleet, repository, bytes, new_rack);
    wish.holders.clear();
    let fileserver = fleet.fileservers.get(&id).ok_or_else(|| refusal(&wish, &[Cause::NotServing]))?;
    wish.refuses(fleet, pressure, fileserver).map_or(Ok(()), |cause| Err(refusal(&wish, &[cause])))
}

/// Whether a rack is as good as any other that could take the copy now.
#[must_use]
pub fn is_best_rack(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    pressure: &dyn Pressure,
    id: FileserverId,
) -> bool {
    let wish = Wish::one_more(fleet, repository, bytes, false);
    let crowd = |one: &Fileserver| wish.racks.get(&one.rack_id).copied().unwrap_or(0);
    let best =
        fleet.fileservers.values().filter(|one| wish.refuses(fleet, pressure, one).is_none()).map(crowd);
    fleet.fileservers.get(&id).is_some_and(|one| best.min().is_none_or(|least| crowd(one) <= least))
}

/// Fileservers for all copies of a new repository, at most one in each rack while racks suffice; fewer than `wanted`
/// where there are no more, best first.
#[must_use]
pub fn new_repository(fleet: &FleetView, wanted: u32, bytes: i64, seed: u64) -> Vec<FileserverId> {
    let mut draw = Draw::new(seed);
    let mut wish =
        Wish { holders: BTreeSet::new(), racks: BTreeMap::new(), bytes: bytes.max(1), new_rack: false };
    let mut chosen = Vec::new();
    while chosen.len() < wanted as usize {
        let Ok(id) = choose(fleet, &wish, &Calm, &mut draw) else { break };
        if let Some(fileserver) = fleet.fileservers.get(&id) {
            *wish.racks.entry(fileserver.rack_id).or_insert(0) += 1;
        }
        wish.holders.insert(id);
        chosen.push(id);
    }
    chosen
}

/// Why no fileserver beside those chosen takes a copy of a new repository; `None` where one does.
#[must_use]
pub fn missing_place(fleet: &FleetView, chosen: &[FileserverId], bytes: i64) -> Option<Deferral> {
    let holders = chosen.iter().copied().collect();
    let wish = Wish { holders, racks: BTreeMap::new(), bytes: bytes.max(1), new_rack: false };
    choose(fleet, &wish, &Calm, &mut Draw::new(0)).err()
}

impl Wish {
    fn one_more(fleet: &FleetView, repository: &RepositoryView, bytes: i64, new_rack: bool) -> Self {
        Self {
            holders: repository.replicas.iter().map(|replica| replica.fileserver_id).collect(),
            racks: fleet.racks_of(repository),
            bytes: bytes.max(1),
            new_rack,
        }
    }

    /// The first reason against a fileserver, in the order in which a person would name them.
    fn refuses(&self, fleet: &FleetView, pressure: &dyn Pressure, one: &Fileserver) -> Option<Cause> {
        if self.holders.contains(&one.id) {
            return Some(Cause::Holds);
        }
        // What is cheap to know comes first: this is asked of every fileserver for every plan.
        if one.intent != Intent::Serve {
            return Some(Cause::NotServing);
        }
        if one.health != Health::Online {
            return Some(Cause::NotOnline);
        }
        if one.empty_since.is_some() {
            return Some(Cause::EmptyRoot);
        }
        if one.weight <= 0 {
            return Some(Cause::NoWeight);
        }
        if one.capacity <= 0 {
            return Some(Cause::NoStatus);
        }
        if self.new_rack && self.racks.contains_key(&one.rack_id) {
            return Some(Cause::InRack);
        }
        let room = fleet.room(one).saturating_sub(pressure.arriving(one.id)).max(0);
        (room < self.bytes).then_some(Cause::NoRoom(room))
    }
}

fn choose(
    fleet: &FleetView,
    wish: &Wish,
    pressure: &dyn Pressure,
    draw: &mut Draw,
) -> Result<FileserverId, Deferral> {
    let (mut able, mut causes) = (Vec::new(), Vec::new());
    for fileserver in fleet.fileservers.values() {
        match wish.refuses(fleet, pressure, fileserver) {
            None => able.push(fileserver),
            Some(cause) => causes.push(cause),
        }
    }
    let crowd = |one: &Fileserver| wish.racks.get(&one.rack_id).copied().unwrap_or(0);
    let least = able.iter().map(|one| crowd(one)).min().ok_or_else(|| refusal(wish, &causes))?;
    able.retain(|one| crowd(one) == least);
    // A limit passes; a copy in a crowded rack stays. So limits choose among the best racks only.
    let barred = able.iter().find_map(|one| pressure.barred(one.id));
    able.retain(|one| pressure.barred(one.id).is_none());
    least_full(fleet, wish, pressure, &able, draw)
        .ok_or_else(|| barred.unwrap_or_else(|| refusal(wish, &causes)))
}

/// The least full after the reservation, of a few that are drawn with their capacity as their weight.
fn least_full(
    fleet: &FleetView,
    wish: &Wish,
    pressure: &dyn Pressure,
    able: &[&Fileserver],
    draw: &mut Draw,
) -> Option<FileserverId> {
    let weights: Vec<u128> = able
        .iter()
        .map(|one| u128::from(one.capacity.unsigned_abs()) * u128::from(one.weight.unsigned_abs()))
        .collect();
    // In whole hundredths: a smaller difference is none, and chance spreads what comes.
    let fill = |one: &Fileserver| {
        let arriving = fleet.arriving.get(&one.id).copied().unwrap_or(0);
        let used = [one.disk_used, arriving, pressure.arriving(one.id), wish.bytes];
        used.into_iter().map(i128::from).sum::<i128>().max(0).unsigned_abs() * 100
            / u128::from(one.capacity.unsigned_abs()).max(1)
    };
    let drawn = draw.without_replacement(&weights, CANDIDATES);
    drawn.into_iter().map(|index| able[index]).min_by_key(|one| fill(one)).map(|one| one.id)
}

/// What people are told: room, if that alone was missing somewhere; else each cause with its count.
fn refusal(wish: &Wish, causes: &[Cause]) -> Deferral {
    let rooms =
        causes.iter().filter_map(|cause| if let Cause::NoRoom(room) = cause { Some(*room) } else { None });
    if let Some(placeable) = rooms.max() {
        return Deferral::NotEnoughSpace { needed: wish.bytes, placeable };
    }
    let mut counted: BTreeMap<Cause, u32> = BTreeMap::new();
    for cause in causes {
        *counted.entry(*cause).or_insert(0) += 1;
    }
    let causes = counted.into_iter().map(|(cause, count)| (cause.words().to_owned(), count)).collect();
    Deferral::NoDestination { causes }
}

#[cfg(test)]
mod tests;
