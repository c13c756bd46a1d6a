//! From what was seen of a fileserver to what is written about it: pure.

use super::detector::Detector;
use crate::database::fileservers::Verdict;
use crate::model::Millis;
use crate::model::fleet::{Fileserver, Health, Intent};
use crate::model::wire::Status;

/// While a fileserver is offline its time is written this often, not at each look.
const WRITE_EVERY: Millis = 5_000;

/// Whether a fileserver's live replicas count towards what is wanted.
///
/// Intent serve or quiesce, its root the one that held its replicas, and not offline beyond
/// the grace. Once false it becomes true again only when it is online and the inventory of
/// its agent's present start was compared: who was away long may have lost anything.
#[must_use]
pub fn counts(row: &Fileserver, detector: &Detector, empty: bool, compared: bool, grace: Millis) -> bool {
    let wanted = matches!(row.intent, Intent::Serve | Intent::Quiesce);
    let gone = detector.health == Health::Offline && detector.offline_ms >= grace;
    if !wanted || empty || gone {
        return false;
    }
    row.counts || (detector.health == Health::Online && compared)
}

/// Whether the inventory of the agent's present start was compared.
#[must_use]
pub fn compared(row: &Fileserver, status: Option<&Status>) -> bool {
    let start = status.map(|status| status.start_id.as_str());
    start.is_some() && row.compared_start_id.as_deref() == start
}

/// Whether the agent's root is another one than SQL knows.
#[must_use]
pub fn other_root(row: &Fileserver, status: &Status) -> bool {
    row.root_id.as_ref().is_some_and(|root| *root != status.root_id)
}

/// What is to be written, if anything is.
#[must_use]
pub fn verdict(
    row: &Fileserver,
    detector: &Detector,
    empty_since: Option<Millis>,
    compared: bool,
    grace: Millis,
) -> Option<Verdict> {
    let counts = counts(row, detector, empty_since.is_some(), compared, grace);
    let told = (detector.health, counts, empty_since) != (row.health, row.counts, row.empty_since)
        || (detector.offline_ms - row.offline_ms).abs() >= WRITE_EVERY
        || (detector.offline_ms == 0 && row.offline_ms != 0);
    told.then_some(Verdict {
        id: row.id,
        health: detector.health,
        health_since: detector.since,
        offline_ms: detector.offline_ms,
        counts,
        empty_since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::fileserver;

    const GRACE: Millis = 20_000;

    fn seen(row: &Fileserver, health: Health, offline_ms: Millis) -> Detector {
        let mut row = row.clone();
        (row.health, row.offline_ms) = (health, offline_ms);
        Detector::resume(&row, 0)
    }

    #[test]
    fn offline_counts_within_the_grace_and_not_beyond_it() {
        let row = fileserver(1);
        assert!(counts(&row, &seen(&row, Health::Offline, GRACE - 1), false, false, GRACE));
        assert!(!counts(&row, &seen(&row, Health::Offline, GRACE), false, true, GRACE));
    }

    #[test]
    fn one_that_returns_counts_only_after_its_inventory_was_compared() {
        let mut row = fileserver(1);
        row.counts = false;
        assert!(!counts(&row, &seen(&row, Health::Online, GRACE), false, false, GRACE));
        assert!(counts(&row, &seen(&row, Health::Online, GRACE), false, true, GRACE));
        assert!(!counts(&row, &seen(&row, Health::Suspect, GRACE), false, true, GRACE));
    }

    #[test]
    fn one_that_restarted_within_the_grace_goes_on_counting() {
        let row = fileserver(1);
        assert!(counts(&row, &seen(&row, Health::Online, 5_000), false, false, GRACE));
    }

    #[test]
    fn quiesced_counts_evacuated_and_empty_do_not() {
        let mut row = fileserver(1);
        let online = seen(&row, Health::Online, 0);
        row.intent = Intent::Quiesce;
        assert!(counts(&row, &online, false, true, GRACE));
        assert!(!counts(&row, &online, true, true, GRACE));
        for intent in [Intent::Evacuate, Intent::Retire] {
            row.intent = intent;
            assert!(!counts(&row, &online, false, true, GRACE));
        }
    }

    #[test]
    fn nothing_is_written_while_nothing_changes() {
        let row = fileserver(1);
        assert_eq!(verdict(&row, &seen(&row, Health::Online, 0), None, true, GRACE), None);
        let offline = verdict(&row, &seen(&row, Health::Offline, 0), None, true, GRACE).unwrap();
        assert!(offline.counts && offline.health == Health::Offline);
        let empty = verdict(&row, &seen(&row, Health::Online, 0), Some(9), true, GRACE).unwrap();
        assert!(!empty.counts && empty.empty_since == Some(9));
    }
}
