//! In which order copies are tried: filter, sort, and no I/O. Chance is an argument.

use super::detector::Sight;
use crate::database::routing::Place;
use crate::model::chance::Chance;
use crate::model::fleet::{Health, Intent};
use crate::model::id::FileserverId;

/// How this router sees a fileserver now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// From its own traffic.
    pub sight: Sight,
    /// Whether a request may go there now: probation allows one at a time.
    pub may_try: bool,
    /// Requests of this router that run there.
    pub running: i64,
    /// Whether it said lately that it is busy.
    pub busy: bool,
    /// Its load, where a heartbeat told it later than SQL did; in thousandths.
    pub load: Option<i64>,
}

/// What tells copies apart beside themselves.
#[derive(Debug, Clone, Copy)]
pub struct Taste<'a> {
    /// The rack that the router stands in.
    pub rack: &'a str,
    /// Load, in thousandths, from which a fileserver comes last.
    pub overload: i64,
}

/// Places in `places`, best first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Those to be tried.
    pub good: Vec<usize>,
    /// Those that this router believes offline: only where all others failed, for a belief may be old.
    pub resort: Vec<usize>,
}

/// The order: not overloaded and not quiesced first, then the router's own rack, then load, then chance.
pub fn order(
    places: &[Place],
    seen: impl Fn(FileserverId) -> Seen,
    taste: Taste<'_>,
    chance: &Chance,
) -> Order {
    let readable = places.iter().enumerate().filter(|(_, place)| !place.empty);
    let mut ranked: Vec<_> = readable
        .map(|(index, place)| {
            let seen = seen(place.fileserver);
            (rank(place, &seen, taste), chance.next(), index, seen.may_try)
        })
        .collect();
    ranked.sort_unstable();
    let mut order = Order::default();
    for (.., index, may_try) in ranked {
        if may_try { order.good.push(index) } else { order.resort.push(index) }
    }
    order
}

/// Lower is better.
fn rank(place: &Place, seen: &Seen, taste: Taste<'_>) -> (bool, bool, i64) {
    let load = seen.load.unwrap_or(place.load);
    let last = seen.busy
        || load >= taste.overload
        || place.intent != Intent::Serve
        || place.health == Health::Offline;
    let elsewhere = taste.rack.is_empty() || place.rack != taste.rack;
    // A whole point of load weighs as much as a request of our own that runs there.
    (last, elsewhere, seen.running.saturating_add(load / 1_000))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::fleet::ReplicaState;
    use crate::model::grant::End;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const CALM: Seen = Seen { sight: Sight::Online, may_try: true, running: 0, busy: false, load: None };
    const TASTE: Taste<'_> = Taste { rack: "r1", overload: 32_000 };

    pub(crate) fn place(id: i64, rack: &str) -> Place {
        Place {
            fileserver: FileserverId(id),
            end: End { name: format!("fs-{id}"), url: String::new() },
            rack: rack.to_owned(),
            intent: Intent::Serve,
            health: Health::Online,
            empty: false,
            load: 0,
            state: ReplicaState::Live,
        }
    }

    fn good(places: &[Place], seen: impl Fn(FileserverId) -> Seen) -> Vec<i64> {
        let order = order(places, seen, TASTE, &Chance::new(1));
        order.good.into_iter().map(|index| places[index].fileserver.0).collect()
    }

    #[test]
    fn the_own_rack_comes_first_then_the_least_loaded() {
        let mut places = [place(1, "r2"), place(2, "r3"), place(3, "r1")];
        places[0].load = 5_000;
        places[2].load = 30_000;
        assert_eq!(good(&places, |_| CALM), [3, 2, 1]);
        let running = |id: FileserverId| Seen { running: if id.0 == 2 { 9 } else { 0 }, ..CALM };
        assert_eq!(good(&places, running), [3, 1, 2]);
    }

    #[test]
    fn overloaded_busy_quiesced_and_evacuating_ones_come_last_and_still_serve() {
        let mut places = [place(1, "r1"), place(2, "r1"), place(3, "r2"), place(4, "r1"), place(5, "r1")];
        places[0].load = 32_000;
        places[1].intent = Intent::Quiesce;
        places[3].intent = Intent::Evacuate;
        let busy = |id: FileserverId| Seen { busy: id.0 == 5, ..CALM };
        let found = good(&places, busy);
        assert_eq!((found[0], found.len()), (3, 5));
    }

    #[test]
    fn what_is_offline_for_this_router_is_a_last_resort_and_an_empty_root_is_none() {
        let mut places = [place(1, "r1"), place(2, "r2"), place(3, "r3")];
        places[2].empty = true;
        let seen = |id: FileserverId| match id.0 {
            1 => Seen { sight: Sight::Offline, may_try: false, ..CALM },
            _ => CALM,
        };
        let order = order(&places, seen, TASTE, &Chance::new(1));
        assert_eq!(order, Order { good: vec![1], resort: vec![0] });
    }

    #[test]
    fn equals_are_tried_in_turn_by_chance() {
        let places: Vec<_> = (1..=3).map(|id| place(id, "r9")).collect();
        let chance = Chance::new(7);
        let first: BTreeSet<_> = (0..60).map(|_| order(&places, |_| CALM, TASTE, &chance).good[0]).collect();
        assert_eq!(first.len(), 3, "each was first at some time");
    }

    proptest! {
        #[test]
        fn every_copy_that_can_be_read_is_in_the_order_once_and_good_ones_go_first(
            facts in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 0..64_000_i64), 0..8),
            seed in any::<u64>(),
        ) {
            let places: Vec<_> = facts.iter().zip(1..).map(|((empty, quiesced, ..), id)| {
                let intent = if *quiesced { Intent::Quiesce } else { Intent::Serve };
                Place { empty: *empty, intent, ..place(id, "r1") }
            }).collect();
            let seen = |id: FileserverId| {
                let (.., may_try, load) = facts[usize::try_from(id.0 - 1).unwrap()];
                Seen { may_try, load: Some(load), ..CALM }
            };
            let order = order(&places, seen, TASTE, &Chance::new(seed));
            let all: BTreeSet<_> = order.good.iter().chain(&order.resort).copied().collect();
            prop_assert_eq!(all.len(), order.good.len() + order.resort.len());
            prop_assert_eq!(all, (0..places.len()).filter(|at| !places[*at].empty).collect());
            let last: Vec<bool> = order.good.iter().map(|at| {
                places[*at].intent != Intent::Serve || facts[*at].3 >= TASTE.overload
            }).collect();
            prop_assert!(last.is_sorted(), "{:?}", last);
        }
    }
}
