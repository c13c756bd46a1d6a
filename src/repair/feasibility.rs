//! Whether fileservers can be emptied: proven from sums, before anything is moved.
//!
//! Draining that has nowhere to go would say nothing for days. So it is asked first: are there
//! enough fileservers, enough racks, and enough room below the fill limit, everything else
//! counted that leaves or is on its way? The sums are bounds: what they refuse cannot be done.
//! What they allow may still wait for single repositories; those are named while it goes on.

use super::placement::takes_new;
use super::view::FleetView;
use crate::model::amount::show_both;
use crate::model::fleet::Fileserver;
use crate::model::id::{FileserverId, RackId};
use std::collections::{BTreeMap, BTreeSet};

/// What must find a place, summed over the repositories that would have too few countable copies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Need {
    /// How many repositories.
    pub repositories: i64,
    /// The most copies that one of them wants.
    pub wanted: u32,
    /// Bytes of all copies that are to be made.
    pub bytes: i64,
    /// Bytes of each repository once: no rack takes more than one copy of it.
    pub once: i64,
    /// Bytes of the largest.
    pub largest: i64,
    /// Bytes that each of the leaving fileservers holds of them.
    pub held: BTreeMap<FileserverId, i64>,
}

/// What was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feasible {
    /// Bytes that are to be placed.
    pub needed: i64,
    /// Bytes that could be.
    pub placeable: i64,
}

/// Why fileservers cannot be emptied, with the sums.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Infeasible {
    /// Too few fileservers would be left.
    #[error("needs {needed} others, has {has}")]
    Fileservers {
        /// As many as the most copies wanted of a repository there.
        needed: usize,
        /// Others that count and stay.
        has: usize,
    },
    /// Copies would have to share racks that stand apart now.
    #[error("needs {needed} racks, has {has} others")]
    Racks {
        /// As many as the most copies wanted, or as there are.
        needed: usize,
        /// Racks that stay.
        has: usize,
    },
    /// Too little room.
    #[error("needs {} {place}, {} can be placed", show_both(*needed, *placeable).0, show_both(*needed, *placeable).1)]
    Bytes {
        /// Bytes that are to be placed.
        needed: i64,
        /// Bytes that can be.
        placeable: i64,
        /// Where.
        place: String,
    },
    /// No fileserver has room for the largest.
    #[error("its largest repository needs {} on one fileserver, {} can be placed", show_both(*needed, *placeable).0, show_both(*needed, *placeable).1)]
    Largest {
        /// Bytes of it.
        needed: i64,
        /// The largest room.
        placeable: i64,
    },
}

/// Whether all of `leaving` can be emptied. `leaving` names every fileserver whose replicas do not count or would
/// not, those that leave already included; `need` was summed for just these.
///
/// # Errors
/// With the first sum that does not suffice.
pub fn prove(
    fleet: &FleetView,
    leaving: &BTreeSet<FileserverId>,
    need: &Need,
) -> Result<Feasible, Infeasible> {
    if need.repositories == 0 {
        return Ok(Feasible { needed: 0, placeable: 0 });
    }
    let stays = |one: &&Fileserver| !leaving.contains(&one.id);
    let others: Vec<&Fileserver> =
        fleet.fileservers.values().filter(stays).filter(|one| one.counts).collect();
    let wanted = usize::try_from(need.wanted).unwrap_or(usize::MAX);
    if others.len() < wanted {
        return Err(Infeasible::Fileservers { needed: wanted, has: others.len() });
    }
    let racks: BTreeSet<RackId> = others.iter().map(|one| one.rack_id).collect();
    let left: BTreeSet<RackId> =
        leaving.iter().filter_map(|id| fleet.fileservers.get(id)).map(|one| one.rack_id).collect();
    let before = racks.union(&left).count();
    if racks.len() < wanted.min(before) {
        return Err(Infeasible::Racks { needed: wanted.min(before), has: racks.len() });
    }
    let rooms = rooms(fleet, leaving);
    let fewest = if racks.len() <= wanted { bound_to_racks(fleet, need, &rooms) } else { None };
    if let Some(refusal) = fewest {
        return Err(refusal);
    }
    let placeable = rooms.values().map(|room| room.sum.min(need.once)).fold(0, i64::saturating_add);
    if placeable < need.bytes {
        let place =
            if left.iter().any(|rack| rooms.contains_key(rack)) { "elsewhere" } else { "in other racks" };
        return Err(Infeasible::Bytes { needed: need.bytes, placeable, place: place.to_owned() });
    }
    let largest = rooms.values().map(|room| room.largest).max().unwrap_or(0);
    if largest < need.largest {
        return Err(Infeasible::Largest { needed: need.largest, placeable: largest });
    }
    Ok(Feasible { needed: need.bytes, placeable })
}

/// The room of one rack.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    sum: i64,
    largest: i64,
}

/// Of every rack that has a fileserver which takes new copies and stays.
fn rooms(fleet: &FleetView, leaving: &BTreeSet<FileserverId>) -> BTreeMap<RackId, Room> {
    let mut rooms: BTreeMap<RackId, Room> = BTreeMap::new();
    let takers = fleet.fileservers.values().filter(|one| !leaving.contains(&one.id) && takes_new(one));
    for one in takers {
        let (here, room) = (rooms.entry(one.rack_id).or_default(), fleet.room(one));
        here.sum = here.sum.saturating_add(room);
        here.largest = here.largest.max(room);
    }
    rooms
}

/// With no more racks than copies every rack has a copy of everything: what leaves a rack that stays can only go to
/// its own others.
fn bound_to_racks(fleet: &FleetView, need: &Need, rooms: &BTreeMap<RackId, Room>) -> Option<Infeasible> {
    let mut bound: BTreeMap<RackId, (i64, String)> = BTreeMap::new();
    for (id, bytes) in &need.held {
        let Some(one) = fleet.fileservers.get(id) else { continue };
        let sum = bound.entry(one.rack_id).or_insert_with(|| (0, one.rack.clone()));
        sum.0 = sum.0.saturating_add(*bytes);
    }
    bound.into_iter().find_map(|(rack, (needed, name))| {
        let room = rooms.get(&rack)?;
        let place = format!("in rack {name}");
        (room.sum < needed).then_some(Infeasible::Bytes { needed, placeable: room.sum, place })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fleet::{Health, Intent};
    use crate::repair::testing::fleet;

    const GIB: i64 = 1 << 30;

    /// Fileservers of 1000 GiB with 400 used and a fill limit of 90 %: room for 500 each.
    fn large(racks: i64, fileservers: i64) -> FleetView {
        let mut fleet = fleet(racks, fileservers);
        for one in fleet.fileservers.values_mut() {
            (one.capacity, one.disk_used, one.disk_free) = (1_000 * GIB, 400 * GIB, 600 * GIB);
        }
        fleet
    }

    fn need(wanted: u32, gib: i64) -> Need {
        let bytes = gib * GIB;
        Need { repositories: 10, wanted, bytes, once: bytes, largest: GIB, held: BTreeMap::new() }
    }

    fn said(fleet: &FleetView, leaving: &[i64], need: &Need) -> String {
        let leaving = leaving.iter().map(|id| FileserverId(*id)).collect();
        prove(fleet, &leaving, need).map_or_else(|why| why.to_string(), |_| "feasible".to_owned())
    }

    #[test]
    fn three_fileservers_and_three_copies_cannot_spare_one() {
        assert_eq!(said(&large(3, 3), &[1], &need(3, 4)), "needs 3 others, has 2");
        assert_eq!(said(&large(4, 4), &[1], &need(3, 4)), "feasible");
        assert_eq!(
            said(&large(4, 4), &[1, 2], &need(3, 4)),
            "needs 3 others, has 2",
            "several are counted together"
        );
        assert_eq!(said(&large(3, 3), &[1], &need(2, 4)), "feasible");
    }

    #[test]
    fn an_empty_fileserver_can_always_go() {
        assert_eq!(said(&large(1, 1), &[1], &Need::default()), "feasible");
    }

    #[test]
    fn what_is_away_quiesced_or_on_its_way_gives_no_room() {
        let mut fleet = large(4, 4);
        fleet.fileservers.get_mut(&FileserverId(2)).unwrap().intent = Intent::Quiesce;
        fleet.fileservers.get_mut(&FileserverId(3)).unwrap().health = Health::Suspect;
        *fleet.arriving.slot(FileserverId(4)) = 404 * GIB;
        assert_eq!(said(&fleet, &[1], &need(3, 412)), "needs 412 GiB in other racks, 96 GiB can be placed");
        assert_eq!(said(&fleet, &[1], &need(3, 96)), "feasible");
    }

    #[test]
    fn no_rack_takes_two_copies_of_one_repository() {
        let mut fleet = large(4, 8);
        fleet.fileservers.retain(|id, _| ![1, 5, 2, 6, 3, 7].contains(&id.0) || id.0 <= 3);
        // Two copies of each of 300 GiB leave: a rack with room for 1000 takes one of each.
        let mut twice = need(2, 600);
        twice.once = 300 * GIB;
        assert_eq!(said(&fleet, &[1, 2], &twice), "feasible", "one goes to rack 3, one to rack 4");
        fleet.fileservers.get_mut(&FileserverId(3)).unwrap().weight = 0;
        assert_eq!(said(&fleet, &[1, 2], &twice), "needs 600 GiB in other racks, 300 GiB can be placed");
    }

    #[test]
    fn with_as_many_racks_as_copies_what_leaves_a_rack_stays_in_it() {
        let mut bound = need(3, 600);
        bound.held.insert(FileserverId(1), 600 * GIB);
        assert_eq!(said(&large(3, 6), &[1], &bound), "needs 600 GiB in rack rack-1, 500 GiB can be placed");
        assert_eq!(said(&large(4, 8), &[1], &bound), "feasible");
    }

    #[test]
    fn racks_that_stand_apart_are_not_given_up_unsaid() {
        let mut fleet = large(3, 6);
        fleet.fileservers.remove(&FileserverId(4));
        assert_eq!(said(&fleet, &[1], &need(3, 1)), "needs 3 racks, has 2 others");
        assert_eq!(said(&large(1, 6), &[1], &need(3, 1)), "feasible", "one rack is all there ever was");
    }

    #[test]
    fn the_largest_repository_needs_room_in_one_place() {
        let mut fleet = large(5, 5);
        for one in fleet.fileservers.values_mut() {
            one.disk_used = 880 * GIB;
        }
        let mut need = need(3, 30);
        need.largest = 25 * GIB;
        assert_eq!(
            said(&fleet, &[1], &need),
            "its largest repository needs 25 GiB on one fileserver, 20 GiB can be placed"
        );
    }
}
