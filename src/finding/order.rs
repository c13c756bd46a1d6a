//! Whose turn it is.
//!
//! Last copies come first, all of them. Then the lanes take turns, each giving its most
//! urgent finding (priority, then age), so that one busy fileserver never hides the
//! others. One slot in eight goes to the oldest finding of any lane, so that nothing
//! waits for ever behind what is more urgent. A turn that ends in a deferral uses up no
//! slot.

use crate::model::finding::{Finding, Lane};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// Every so many slots one goes to the oldest.
const OLDEST_EVERY: u64 = 8;

/// Hands out indexes of findings, each once.
#[derive(Debug)]
pub struct Turns {
    last: VecDeque<usize>,
    /// The lanes in the order of their turns; none is empty.
    lanes: VecDeque<VecDeque<usize>>,
    oldest: VecDeque<usize>,
    given: Vec<bool>,
    slot: u64,
}

impl Turns {
    /// The order of a round. The seed says where in the cycle of eight it begins: a round that has room for one
    /// attempt only gives it to the oldest one time in eight.
    pub fn new(findings: &[Finding], seed: u64) -> Self {
        let mut lanes: BTreeMap<Lane, Vec<usize>> = BTreeMap::new();
        for (index, finding) in findings.iter().enumerate() {
            lanes.entry(finding.lane).or_default().push(index);
        }
        let urgency = |index: &usize| {
            let finding = &findings[*index];
            (Reverse(finding.priority), finding.opened_at, finding.id)
        };
        for lane in lanes.values_mut() {
            lane.sort_by_key(urgency);
        }
        let last: VecDeque<usize> = lanes.remove(&Lane::Last).unwrap_or_default().into();
        let mut oldest: Vec<usize> = lanes.values().flatten().copied().collect();
        oldest.sort_by_key(|index| (findings[*index].opened_at, findings[*index].id));
        let mut lanes: Vec<VecDeque<usize>> = lanes.into_values().map(Into::into).collect();
        lanes.sort_by_key(|lane| lane.front().map(urgency));
        Self {
            last,
            lanes: lanes.into(),
            oldest: oldest.into(),
            given: vec![false; findings.len()],
            slot: seed % OLDEST_EVERY,
        }
    }

    /// The next finding to decide about. `admitted`: whether the one before got its slot.
    pub fn next(&mut self, admitted: bool) -> Option<usize> {
        self.slot = self.slot.wrapping_add(u64::from(admitted));
        let index = match self.last.pop_front() {
            Some(index) => Some(index),
            None if self.slot.is_multiple_of(OLDEST_EVERY) => self.next_oldest(),
            None => self.next_in_turn(),
        }?;
        self.given[index] = true;
        Some(index)
    }

    fn next_oldest(&mut self) -> Option<usize> {
        while let Some(index) = self.oldest.pop_front() {
            if !self.given[index] {
                return Some(index);
            }
        }
        None
    }

    fn next_in_turn(&mut self) -> Option<usize> {
        while let Some(mut lane) = self.lanes.pop_front() {
            let found = lane.pop_front();
            if !lane.is_empty() {
                self.lanes.push_back(lane);
            }
            if let Some(index) = found.filter(|index| !self.given[*index]) {
                return Some(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::FileserverId;
    use crate::repair::testing::wants_copy;

    fn findings(rows: &[(Lane, i32, i64)]) -> Vec<Finding> {
        let one = |(id, (lane, priority, opened_at)): (i64, &(Lane, i32, i64))| {
            let mut finding = wants_copy(id, id);
            (finding.lane, finding.priority, finding.opened_at) = (*lane, *priority, *opened_at);
            finding
        };
        (1..).zip(rows).map(one).collect()
    }

    fn order(findings: &[Finding], seed: u64, admitted: bool) -> Vec<usize> {
        let mut turns = Turns::new(findings, seed);
        let mut order = Vec::new();
        while let Some(index) = turns.next(admitted && !order.is_empty()) {
            order.push(index);
        }
        order
    }

    const BUSY: Lane = Lane::Fileserver(FileserverId(1));
    const CALM: Lane = Lane::Fileserver(FileserverId(2));

    #[test]
    fn last_copies_come_first_and_lanes_take_turns() {
        let rows = [(BUSY, 500, 1), (BUSY, 400, 1), (BUSY, 300, 1), (CALM, 10, 9), (Lane::Last, 1, 99)];
        assert_eq!(order(&findings(&rows), 1, false), [4, 0, 3, 1, 2]);
    }

    #[test]
    fn in_a_lane_priority_comes_before_age_and_age_before_number() {
        let rows = [(CALM, 10, 5), (CALM, 10, 4), (CALM, 20, 9), (CALM, 10, 4)];
        assert_eq!(order(&findings(&rows), 1, false), [2, 1, 3, 0]);
    }

    #[test]
    fn one_slot_in_eight_goes_to_the_oldest() {
        let mut rows = vec![(BUSY, 500, 100); 40];
        rows.push((BUSY, 1, 1));
        let place = |seed| order(&findings(&rows), seed, true).iter().position(|index| *index == 40);
        let places: Vec<_> = (0..8).map(|seed| place(seed).unwrap_or(99)).collect();
        assert_eq!(places, [0, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn every_finding_is_given_once() {
        let rows: Vec<_> = (0..50_i64)
            .map(|id| (Lane::from_sql(id % 5 - 1), i32::try_from(id * 7 % 11).unwrap(), id * 13 % 17))
            .collect();
        for (seed, admitted) in [(0, true), (3, true), (0, false), (5, false)] {
            let mut order = order(&findings(&rows), seed, admitted);
            order.sort_unstable();
            assert_eq!(order, (0..50).collect::<Vec<_>>());
        }
    }
}
