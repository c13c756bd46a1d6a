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
    /// For a copy that takes another's place: how crowded its rack may be, so that no rack rule is broken that
    /// staying would keep, and how full its disk may be with it, in hundredths of a percent.
    instead: Option<Instead>,
}

/// What a copy that takes another's place asks of its own.
#[derive(Debug, Clone, Copy)]
struct Instead {
    crowd: u32,
    fill_below: Option<u128>,
}

/// Whether a fileserver takes new copies at all, room aside.
#[must_use]
pub fn takes_new(one: &Fileserver) -> bool {
    unfit(one).is_none()
}

/// Why a fileserver takes no new copies, whatever they are. What is cheap to know comes first: this is asked of
/// every fileserver for every plan.
fn unfit(one: &Fileserver) -> Option<Cause> {
    let causes = [
        (one.intent != Intent::Serve, Cause::NotServing),
        (one.health != Health::Online, Cause::NotOnline),
        (one.empty_since.is_some(), Cause::EmptyRoot),
        (one.weight <= 0, Cause::NoWeight),
        (one.capacity <= 0, Cause::NoStatus),
    ];
    causes.into_iter().find_map(|(unfit, cause)| unfit.then_some(cause))
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
    NoEmptier,
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
            Self::NoEmptier => "not emptier by enough",
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

/// Like [`destination_under`], for a copy that takes the place of the one on `leaves`: never in a rack that is more
/// crowded than that one's is without it, and with `fill_below` (hundredths of a percent) only where the disk
/// stays below that, all that is under way counted.
///
/// # Errors
/// With the reason, when there is none.
pub fn elsewhere(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    (leaves, fill_below): (FileserverId, Option<u128>),
    pressure: &dyn Pressure,
    seed: u64,
) -> Result<FileserverId, Deferral> {
    let wish = Wish::instead_of(fleet, repository, bytes, leaves, fill_below);
    choose(fleet, &wish, pressure, &mut Draw::new(seed))
}

/// Whether one fileserver may take the copy that takes the place of another, its having a replica that was never
/// finished aside.
///
/// # Errors
/// With the reason, when it may not.
pub fn may_take_instead(
    fleet: &FleetView,
    repository: &RepositoryView,
    bytes: i64,
    (leaves, fill_below): (FileserverId, Option<u128>),
    pressure: &dyn Pressure,
    id: FileserverId,
) -> Result<(), Deferral> {
    let mut wish = Wish::instead_of(fleet, repository, bytes, leaves, fill_below);
    wish.holders = BTreeSet::from([leaves]);
    may(fleet, &wish, pressure, id)
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
    may(fleet, &wish, pressure, id)
}

fn may(fleet: &FleetView, wish: &Wish, pressure: &dyn Pressure, id: FileserverId) -> Result<(), Deferral> {
    let fileserver = fleet.fileservers.get(&id).ok_or_else(|| refusal(wish, &[Cause::NotServing]))?;
    wish.refuses(fleet, pressure, fileserver).map_or(Ok(()), |cause| Err(refusal(wish, &[cause])))
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
    let mut wish = Wish::of_new(BTreeSet::new(), bytes);
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
    let wish = Wish::of_new(holders, bytes);
    choose(fleet, &wish, &Calm, &mut Draw::new(0)).err()
}

impl Wish {
    fn one_more(fleet: &FleetView, repository: &RepositoryView, bytes: i64, new_rack: bool) -> Self {
        Self {
            holders: repository.replicas.iter().map(|replica| replica.fileserver_id).collect(),
            racks: fleet.racks_of(repository),
            bytes: bytes.max(1),
            new_rack,
            instead: None,
        }
    }

    fn instead_of(
        fleet: &FleetView,
        repository: &RepositoryView,
        bytes: i64,
        leaves: FileserverId,
        fill_below: Option<u128>,
    ) -> Self {
        let mut wish = Self::one_more(fleet, repository, bytes, false);
        let rack = fleet.fileservers.get(&leaves).filter(|one| one.counts).map(|one| one.rack_id);
        let mut crowd = 0;
        if let Some(count) = rack.and_then(|rack| wish.racks.get_mut(&rack)) {
            *count = count.saturating_sub(1);
            crowd = *count;
        }
        wish.instead = Some(Instead { crowd, fill_below });
        wish
    }

    fn of_new(holders: BTreeSet<FileserverId>, bytes: i64) -> Self {
        Self { holders, racks: BTreeMap::new(), bytes: bytes.max(1), new_rack: false, instead: None }
    }

    /// The first reason against a fileserver, in the order in which a person would name them.
    fn refuses(&self, fleet: &FleetView, pressure: &dyn Pressure, one: &Fileserver) -> Option<Cause> {
        if self.holders.contains(&one.id) {
            return Some(Cause::Holds);
        }
        if let Some(cause) = unfit(one) {
            return Some(cause);
        }
        let crowd = self.racks.get(&one.rack_id).copied().unwrap_or(0);
        if (self.new_rack && crowd > 0) || self.instead.is_some_and(|other| crowd > other.crowd) {
            return Some(Cause::InRack);
        }
        let room = fleet.room(one).saturating_sub(pressure.arriving(one.id)).max(0);
        if room < self.bytes {
            return Some(Cause::NoRoom(room));
        }
        let ceiling = self.instead.and_then(|other| other.fill_below)?;
        (self.fill(fleet, pressure, one) >= ceiling).then_some(Cause::NoEmptier)
    }

    /// How full a fileserver would be with the copy and all that is under way, in hundredths of a percent.
    fn fill(&self, fleet: &FleetView, pressure: &dyn Pressure, one: &Fileserver) -> u128 {
        let load = fleet.load(one) + i128::from(pressure.arriving(one.id)) + i128::from(self.bytes);
        load.max(0).unsigned_abs() * 10_000 / u128::from(one.capacity.unsigned_abs()).max(1)
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
    let free: Vec<&Fileserver> = able.iter().filter(|one| !pressure.is_barred(one)).copied().collect();
    least_full(fleet, wish, pressure, &free, draw).ok_or_else(|| {
        let barred = able.iter().find_map(|one| pressure.barred(one.id));
        barred.unwrap_or_else(|| refusal(wish, &causes))
    })
}

/// The least full after the reservation, of a few that are drawn with their capacity as their weight.
fn least_full(
    fleet: &FleetView,
    wish: &Wish,
    pressure: &dyn Pressure,
    able: &[&Fileserver],
    draw: &mut Draw,
) -> Option<FileserverId> {
    // What levels disks goes where most is lacking; what is new goes everywhere, by capacity.
    let ceiling = wish.instead.and_then(|other| other.fill_below);
    let lacking = |one: &Fileserver| {
        ceiling.map_or(1, |fill| fill.saturating_sub(wish.fill(fleet, pressure, one)).max(1))
    };
    let weights: Vec<u128> = able
        .iter()
        .map(|one| {
            u128::from(one.capacity.unsigned_abs()) * u128::from(one.weight.unsigned_abs()) * lacking(one)
        })
        .collect();
    // In whole hundredths: a smaller difference is none, and chance spreads what comes.
    let fill = |one: &Fileserver| wish.fill(fleet, pressure, one) / 100;
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
