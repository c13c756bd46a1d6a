//! The shapes of failures, and what each holds.

use super::*;
use crate::controller::testing::fileserver;
use crate::model::attempt::Step;
use crate::model::finding::{Finding, Lane};
use crate::model::id::RackId;
use crate::repair::testing::{repository, wants_copy};
use crate::repair::view::FleetView;

fn ids(range: std::ops::RangeInclusive<i64>) -> BTreeSet<FileserverId> {
    range.map(FileserverId).collect()
}

/// A controller that started at 0 with `n` fileservers online in SQL, and heard all of them.
fn sighted(n: i64) -> Sight {
    Sight { expected: ids(1..=n), heard: ids(1..=n), ..Sight::default() }
}

fn silent(mut sight: Sight, since: &[(i64, Millis)]) -> Sight {
    sight.silent = since.iter().map(|(id, at)| (FileserverId(*id), *at)).collect();
    sight
}

#[test]
fn the_death_of_one_agent_of_four_is_never_held() {
    assert_eq!(holding(&silent(sighted(4), &[(2, 100_000)]), 101_000), None);
    // Nor when the controller starts after it.
    let mut fresh = silent(sighted(4), &[(2, 3_000)]);
    fresh.heard.remove(&FileserverId(2));
    assert_eq!(holding(&fresh, 4_000), None);
}

#[test]
fn a_fresh_controller_waits_for_all_but_a_tenth() {
    let mut fresh = sighted(40);
    fresh.heard = ids(1..=35);
    assert_eq!(holding(&fresh, 1_000), Some(START));
    fresh.heard = ids(1..=36);
    assert_eq!(holding(&fresh, 1_000), None);
    fresh.heard = BTreeSet::new();
    assert_eq!(holding(&fresh, START_PATIENCE - 1), Some(START));
    assert_eq!(holding(&fresh, START_PATIENCE), None);
}

#[test]
fn a_controller_that_heard_nobody_waits_even_for_the_last_one() {
    let mut fresh = sighted(1);
    fresh.heard.clear();
    assert_eq!(holding(&fresh, 0), Some(START));
    assert_eq!(holding(&silent(fresh, &[(1, 3_000)]), 4_000), None, "its silence is known by now");
    assert_eq!(holding(&Sight::default(), 0), None, "a fleet without fileservers has nothing to hold");
}

#[test]
fn more_than_half_at_once_is_blindness() {
    assert!(!blind(&silent(sighted(4), &[(1, 0), (2, 0)])), "half is not more than half");
    assert!(blind(&silent(sighted(4), &[(1, 0), (2, 10_000), (3, 30_000)])));
    assert!(!blind(&silent(sighted(1), &[(1, 0)])), "one alone is never blindness");
    assert!(blind(&silent(sighted(2), &[(1, 0), (2, 5)])));
}

#[test]
fn deaths_that_come_one_by_one_are_not_blindness() {
    let one_by_one = silent(sighted(4), &[(1, 0), (2, 40_000), (3, 80_000)]);
    assert!(!blind(&one_by_one));
}

fn scene<'a>(sight: &'a Sight, fileservers: &'a [Fileserver], now: Millis) -> Scene<'a> {
    Scene { sight: Some(sight), seen_at: now, fileservers, rack_grace: 3_600_000, now }
}

fn names(looks: &[(String, Look)]) -> Vec<&str> {
    looks.iter().filter(|(_, look)| look.cause.is_some()).map(|(name, _)| name.as_str()).collect()
}

/// So many fileservers, two to a rack, of which the first are offline since 0 and beyond their grace.
fn fleet(many: i64, away: i64) -> Vec<Fileserver> {
    (1..=many)
        .map(|id| {
            let mut one = fileserver(id);
            (one.rack_id, one.rack) = (RackId((id + 1) / 2), format!("rack-{}", (id + 1) / 2));
            if id <= away {
                (one.health, one.counts) = (Health::Offline, false);
            }
            one
        })
        .collect()
}

#[test]
fn a_rack_that_is_silent_as_a_whole_is_waited_for_and_no_longer_than_its_grace() {
    let sight = sighted(40);
    assert!(names(&looks(&scene(&sight, &fleet(40, 1), 1), &[])).is_empty(), "half a rack");
    assert_eq!(names(&looks(&scene(&sight, &fleet(40, 2), 1), &[])), ["rack:rack-1"]);
    assert!(names(&looks(&scene(&sight, &fleet(40, 2), 3_600_000), &[])).is_empty());
    let mut alone = fleet(3, 3);
    alone.retain(|one| one.id.0 == 3);
    assert!(names(&looks(&scene(&sighted(1), &alone, 1), &[])).is_empty(), "a rack of one");
}

#[test]
fn many_beyond_their_grace_at_once_are_doubtful() {
    let sight = sighted(300);
    let offline =
        |many, away| names(&looks(&scene(&sight, &fleet(many, away), 3_600_000), &[])).contains(&OFFLINE);
    assert!(!offline(4, 2) && offline(4, 3), "two are ordinary in a small fleet");
    assert!(!offline(300, 9) && offline(300, 10), "3 % in a large one");
}

fn view(fileservers: Vec<Fileserver>, on: &[i64]) -> FleetView {
    let repository = repository(1, on);
    FleetView {
        fileservers: fileservers.into_iter().map(|one| (one.id, one)).collect(),
        repositories: BTreeMap::from([(repository.repository.id, repository)]),
        fill_limit: 90,
        ..FleetView::default()
    }
}

fn held(name: &str) -> Brake {
    let look = Look { cause: Some("x".into()), at: 0, looks: 1, patience: 0 };
    brake::after(name, None, &look).unwrap()
}

#[test]
fn copying_because_of_a_silent_rack_is_held_and_nothing_else_is() {
    let finding = wants_copy(1, 1);
    let rack = [held("rack:rack-1")];
    let of = |on: &[i64], brakes: &[Brake]| {
        keeper(&finding, Some(Step::Replicate), &view(fleet(8, 2), on), brakes)
    };
    assert_eq!(of(&[1, 3, 5], &rack).as_deref(), Some("rack:rack-1"));
    assert_eq!(of(&[3, 5], &rack), None, "no copy of it is away");
    assert_eq!(of(&[1, 3], &rack), None, "one would be missing all the same");
    let view = view(fleet(8, 2), &[1, 3, 5]);
    assert_eq!(keeper(&finding, Some(Step::Resync), &view, &rack), None, "nothing is copied away");
    let last = Finding { lane: Lane::Last, ..finding.clone() };
    assert_eq!(keeper(&last, Some(Step::Replicate), &view, &rack), None, "a last copy passes");
    let blind = [held(BLIND)];
    assert_eq!(keeper(&last, Some(Step::Replicate), &view, &blind).as_deref(), Some(BLIND));
    let offline = [held(OFFLINE)];
    assert_eq!(keeper(&finding, Some(Step::Replicate), &view, &offline).as_deref(), Some(OFFLINE));
    let approved = [Brake { holds: false, approved: Some(1), ..held(OFFLINE) }];
    assert_eq!(keeper(&finding, Some(Step::Replicate), &view, &approved), None);
}

#[test]
fn a_goals_own_brake_holds_its_findings_alone() {
    let view = view(fleet(4, 0), &[1, 3]);
    let held_by = |goal: &str| {
        keeper(
            &Finding { goal: goal.into(), ..wants_copy(1, 1) },
            Some(Step::Replicate),
            &view,
            &[held("goal:a")],
        )
    };
    assert_eq!(held_by("a").as_deref(), Some("goal:a"));
    assert_eq!(held_by("b"), None);
}
