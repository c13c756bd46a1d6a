//! What other parts saw of a fileserver, weighed against what this controller saw itself: pure.
//!
//! Each rack of observers has one voice, so that a rack that is cut off cannot outvote the fleet; where observers of
//! one rack disagree, it has none. Silence is no voice. The controller has a voice too, and where nobody has a
//! majority, its own holds: one blind router changes nothing.

use super::detector::Seen;
use crate::database::routing::Voice;
use crate::model::Millis;
use crate::model::id::FileserverId;
use std::collections::BTreeMap;

/// Observations that are older are not heard.
pub(super) const YOUNGER: Millis = 30_000;

/// What is believed of a fileserver: what this controller saw, unless a majority of all voices says otherwise.
pub(super) fn weighed(own: Seen, fileserver: FileserverId, voices: &[Voice]) -> Seen {
    let mut racks: BTreeMap<i64, Option<bool>> = BTreeMap::new();
    for voice in voices.iter().filter(|voice| voice.fileserver == fileserver) {
        let said = racks.entry(voice.rack).or_insert(Some(voice.online));
        if *said != Some(voice.online) {
            *said = None;
        }
    }
    let said = |online: bool| racks.values().filter(|voice| **voice == Some(online)).count();
    let own_online = own == Seen::Answered;
    let (with, against) = (said(own_online) + 1, said(!own_online));
    match own {
        _ if against <= with => own,
        Seen::Answered => Seen::Troubled,
        Seen::Missed | Seen::Troubled => Seen::Answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: FileserverId = FileserverId(1);

    fn voice(observer: &str, rack: i64, online: bool) -> Voice {
        Voice { observer: observer.into(), rack, fileserver: ID, online }
    }

    #[test]
    fn one_blind_router_and_a_whole_blind_rack_change_nothing() {
        let blind = [voice("a", 1, false), voice("b", 1, false), voice("c", 1, false)];
        assert_eq!(weighed(Seen::Answered, ID, &blind), Seen::Answered);
        assert_eq!(weighed(Seen::Answered, ID, &[]), Seen::Answered);
        assert_eq!(weighed(Seen::Missed, ID, &[]), Seen::Missed);
    }

    #[test]
    fn two_racks_that_cannot_read_from_it_outvote_a_status_that_is_well() {
        let failing = [voice("a", 1, false), voice("b", 2, false)];
        assert_eq!(weighed(Seen::Answered, ID, &failing), Seen::Troubled);
        let torn = [voice("a", 1, false), voice("b", 2, false), voice("c", 2, true)];
        assert_eq!(weighed(Seen::Answered, ID, &torn), Seen::Answered, "a torn rack has no voice");
        let others = [voice("a", 1, false), voice("b", 2, false)]
            .map(|one| Voice { fileserver: FileserverId(2), ..one });
        assert_eq!(weighed(Seen::Answered, ID, &others), Seen::Answered);
    }

    #[test]
    fn a_controller_that_is_cut_off_from_a_fileserver_that_serves_is_outvoted() {
        let serving = [voice("a", 1, true), voice("b", 2, true)];
        assert_eq!(weighed(Seen::Missed, ID, &serving), Seen::Answered);
        assert_eq!(weighed(Seen::Missed, ID, &serving[..1]), Seen::Missed);
    }

    proptest! {
        #[test]
        fn whatever_one_rack_says_it_never_decides(
            said in prop::collection::vec(any::<bool>(), 0..20), own in any::<bool>()
        ) {
            let own = if own { Seen::Answered } else { Seen::Missed };
            let voices: Vec<_> = said.iter().enumerate().map(|(n, online)| voice(&n.to_string(), 7, *online)).collect();
            prop_assert_eq!(weighed(own, ID, &voices), own);
        }
    }
}
