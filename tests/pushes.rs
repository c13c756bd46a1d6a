//! The rules of pushes, settling and resync, explored: every order of events of a small fleet, breadth first.
//!
//! Two, three and four copies, two pushes, messages that come late or never, routers that stop and wake, agents
//! that give up what they prepared, settling by any subset of voters, resyncs in between. What routers and
//! settlers decide is decided by the program's own functions. In every state that can be reached no acknowledged push is lost
//! and no two copies in sync differ; with the fence, the seats or the comparison with the base left out,
//! one of these is broken, and the search finds it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may end so")]

mod pushes {
    pub mod copies;
    pub mod events;
    pub mod laws;
    pub mod state;
}

use pushes::events::successors;
use pushes::laws::broken;
use pushes::state::{Rules, State};
use std::collections::{HashMap, VecDeque};

/// What a search came to.
struct Explored {
    states: usize,
    /// Pushes that were acknowledged in some state, settled as standing, settled as not standing.
    seen: [bool; 3],
    broken: Option<(String, Vec<String>)>,
}

/// Visits every state that can be reached, until a law is broken.
fn explore(rules: &Rules) -> Explored {
    let first = State::first(rules);
    let mut came_from: HashMap<State, Option<(State, String)>> = HashMap::from([(first, None)]);
    let mut left = VecDeque::from([first]);
    let mut explored = Explored { states: 0, seen: [false; 3], broken: None };
    while let Some(state) = left.pop_front() {
        explored.states += 1;
        state.note(&mut explored.seen);
        if let Some(law) = broken(&state, rules) {
            explored.broken = Some((law, story(&came_from, state)));
            break;
        }
        for (event, next) in successors(&state, rules) {
            let next = next.canonical();
            if let std::collections::hash_map::Entry::Vacant(place) = came_from.entry(next) {
                place.insert(Some((state, event.to_string())));
                left.push_back(next);
            }
        }
    }
    explored
}

fn story(came_from: &HashMap<State, Option<(State, String)>>, end: State) -> Vec<String> {
    let (mut at, mut events) = (end, vec![format!("{end:?}")]);
    while let Some(Some((before, event))) = came_from.get(&at) {
        events.push(event.clone());
        at = *before;
    }
    events.reverse();
    events
}

fn holds(rules: &Rules) {
    let explored = explore(rules);
    if let Some((law, story)) = &explored.broken {
        panic!("{law}\n  {}", story.join("\n  "));
    }
    println!("{} states", explored.states);
    assert!(explored.states > 1_000, "{} states are no search", explored.states);
    assert_eq!(explored.seen, [true; 3], "pushes are acknowledged, and settled both ways");
}

fn fails(rules: &Rules) -> String {
    let explored = explore(rules);
    let (law, story) = explored.broken.expect("what is left out is missed");
    println!("{} states, then: {law}\n  {}", explored.states, story.join("\n  "));
    law
}

#[test]
fn with_two_copies_no_acknowledged_push_is_lost_and_no_two_copies_in_sync_differ() {
    holds(&Rules { takeovers: 2, resyncs: 2, ..Rules::of(2, 2) });
}

#[test]
fn with_three_copies_no_acknowledged_push_is_lost_and_no_two_copies_in_sync_differ() {
    holds(&Rules { takeovers: 1, resyncs: 1, ..Rules::of(3, 3) });
}

#[test]
fn with_three_copies_a_settler_that_is_settled_itself_does_no_harm() {
    holds(&Rules { takeovers: 2, resyncs: 0, ..Rules::of(3, 3) });
}

#[test]
fn with_four_copies_no_acknowledged_push_is_lost_and_no_two_copies_in_sync_differ() {
    holds(&Rules { takeovers: 1, resyncs: 0, ..Rules::of(4, 4) });
}

#[test]
fn with_a_copy_that_follows_no_acknowledged_push_is_lost_and_no_two_copies_in_sync_differ() {
    holds(&Rules { takeovers: 1, resyncs: 0, ..Rules::of(4, 3) });
}

#[test]
fn without_the_fence_copies_in_sync_differ_or_a_push_is_lost() {
    fails(&Rules { fence: false, takeovers: 1, resyncs: 0, ..Rules::of(3, 3) });
}

#[test]
fn without_seats_an_acknowledged_push_is_on_fewer_copies_than_must_have_it() {
    let law = fails(&Rules { seats: false, takeovers: 1, resyncs: 1, ..Rules::of(4, 4) });
    assert!(law.contains("acknowledged"), "{law}");
}

#[test]
fn without_the_comparison_with_the_base_an_acknowledged_push_is_lost() {
    fails(&Rules { base: false, takeovers: 0, resyncs: 0, ..Rules::of(3, 3) });
}
