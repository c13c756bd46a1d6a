//! Who votes, what votes mean, how an open push is settled.

use super::super::*;
use super::{key, listing};
use crate::model::fleet::{Intent, ObjectFormat, ReplicaState};
use crate::model::id::{FileserverId, RackId};
use crate::model::wire::push::Vote;
use proptest::prelude::*;

fn candidate(id: i64, rack: i64) -> Candidate {
    Candidate {
        fileserver: FileserverId(id),
        rack: RackId(rack),
        state: ReplicaState::Live,
        intent: Intent::Serve,
        counts: true,
        in_sync: true,
        ready: true,
    }
}

fn ids(numbers: &[i64]) -> Vec<FileserverId> {
    numbers.iter().copied().map(FileserverId).collect()
}

fn sum(digit: &str) -> Checksum {
    listing(&[&format!("main {digit}")]).checksum(&key(), ObjectFormat::Sha1)
}

#[test]
fn countable_copies_vote_first_one_of_each_rack_first_and_the_rest_follow() {
    let leaving = Candidate { state: ReplicaState::Leaving, ..candidate(1, 9) };
    let evacuating = Candidate { intent: Intent::Evacuate, counts: false, ..candidate(2, 8) };
    let quiesced = Candidate { intent: Intent::Quiesce, ..candidate(5, 2) };
    let all = [leaving, evacuating, candidate(3, 1), candidate(4, 1), quiesced];
    let chosen = choose(&all, 3).unwrap();
    assert_eq!((chosen.voters, chosen.followers), (ids(&[3, 5, 4]), ids(&[1, 2])));
    let chosen = choose(&all, 4).unwrap();
    assert_eq!((chosen.voters, chosen.followers), (ids(&[3, 5, 4, 1]), ids(&[2])));
}

#[test]
fn what_is_stale_not_ready_or_on_its_way_in_or_out_neither_votes_nor_follows() {
    let all = [
        Candidate { in_sync: false, ..candidate(1, 1) },
        Candidate { ready: false, ..candidate(2, 2) },
        Candidate { state: ReplicaState::Creating, ..candidate(3, 3) },
        Candidate { state: ReplicaState::Removing, ..candidate(4, 4) },
        candidate(5, 5),
        Candidate { intent: Intent::Retire, ..candidate(6, 6) },
    ];
    assert_eq!(choose(&all, 3), Err(TooFew { able: 1, seats: 3, needed: 2 }));
    let chosen = choose(&all, 1).unwrap();
    assert_eq!((chosen.voters, chosen.followers), (ids(&[5]), ids(&[6])));
}

fn cast(before: &str, after: &str) -> Ballot {
    Ballot::Cast(Vote { before: sum(before), after: sum(after), journal_version: 1 })
}

fn tallied(ballots: &[Ballot], seats: u32) -> Tally {
    let ballots: Vec<_> = (1..).map(FileserverId).zip(ballots.iter().cloned()).collect();
    tally(&ballots, seats, &sum("1"), &sum("2"))
}

#[test]
fn two_copies_from_a_snapshot_do_not_outvote_the_good_one() {
    let tally = tallied(&[cast("3", "4"), cast("3", "4"), cast("1", "2")], 3);
    assert_eq!((tally.verdict, tally.strayed), (Verdict::Abort, ids(&[1, 2])));
    let tally = tallied(&[cast("3", "4"), cast("1", "2"), cast("1", "2")], 3);
    assert_eq!((tally.verdict, tally.strayed), (Verdict::Commit { to: ids(&[2, 3]) }, ids(&[1])));
    // The same change from another beginning is not the same.
    assert_eq!(tallied(&[cast("1", "3"), cast("3", "2")], 2).verdict, Verdict::Abort);
}

#[test]
fn a_verdict_waits_as_long_as_a_quorum_may_still_come_about() {
    assert_eq!(tallied(&[cast("1", "2"), Ballot::Awaited, Ballot::Lost], 3).verdict, Verdict::Wait);
    assert_eq!(tallied(&[cast("1", "2"), Ballot::Lost, Ballot::Lost], 3).verdict, Verdict::Abort);
    let tally = tallied(&[cast("1", "2"), cast("1", "2"), Ballot::Awaited], 3);
    assert_eq!((tally.verdict, tally.awaited), (Verdict::Commit { to: ids(&[1, 2]) }, 1));
    // Four seats bear one loss, and two of them are no quorum.
    assert_eq!(tallied(&[cast("1", "2"), cast("1", "2")], 4).verdict, Verdict::Abort);
}

fn open(seats: u32) -> Open {
    Open { base_version: 6, base: sum("1"), new: sum("2"), seats }
}

fn fenced(voter: i64, digit: &str) -> Fenced {
    let journal_version = if digit == "2" { 7 } else { 6 };
    Fenced { voter: FileserverId(voter), checksum: Some(sum(digit)), journal_version }
}

fn settled(voters: &[i64], answers: &[Fenced], seats: u32) -> Settled {
    settle(&ids(voters), answers, &open(seats))
}

#[test]
fn one_copy_with_the_new_references_brings_the_others_there() {
    let answers = [fenced(1, "2"), fenced(2, "1"), fenced(3, "5")];
    let expected = Settled::Committed { bring: ids(&[2]), equal: ids(&[1]), out: ids(&[3]) };
    assert_eq!(settled(&[1, 2, 3], &answers, 3), expected);
    let expected = Settled::Committed { bring: ids(&[2]), equal: ids(&[1]), out: ids(&[3]) };
    assert_eq!(settled(&[1, 2, 3], &answers[..2], 3), expected, "not reached is out as well");
}

#[test]
fn nobody_with_the_new_references_means_that_nobody_read_ok() {
    let answers = [fenced(1, "1"), fenced(3, "1")];
    assert_eq!(settled(&[1, 2, 3], &answers, 3), Settled::Aborted { equal: ids(&[1, 3]), out: ids(&[2]) });
}

#[test]
fn too_few_reached_waits_and_too_few_that_fit_is_for_a_person() {
    assert_eq!(settled(&[1, 2, 3], &[fenced(1, "2")], 3), Settled::Wait);
    // An answer of one that did not vote is none.
    assert_eq!(settled(&[1, 2, 3], &[fenced(1, "2"), fenced(9, "2")], 3), Settled::Wait);
    let gone = Fenced { checksum: None, ..fenced(2, "1") };
    let few = Settled::Person(Unsettled::FewFit { fit: 1, needed: 2 });
    assert_eq!(settled(&[1, 2], &[fenced(1, "2"), gone], 2), few);
    assert_eq!(settled(&[1, 2], &[fenced(1, "1"), fenced(2, "4")], 2), few);
    let ahead = Fenced { journal_version: 9, ..fenced(2, "1") };
    let lost = Settled::Person(Unsettled::HistoryLost(ids(&[2])));
    assert_eq!(settled(&[1, 2, 3], &[fenced(1, "1"), ahead], 3), lost);
}

proptest! {
    /// Whoever is reached, an acknowledged push is never aborted and one that nobody has never stands.
    #[test]
    fn no_choice_of_reached_voters_undoes_what_a_quorum_did(
        seats in 1_u32..6,
        has_new in prop::collection::vec(any::<bool>(), 6),
        reached in prop::collection::vec(any::<bool>(), 6),
    ) {
        let voters: Vec<i64> = (1..=i64::from(seats)).collect();
        let voted = || voters.iter().zip(&has_new);
        let answers: Vec<Fenced> = voted()
            .zip(&reached)
            .filter(|(_, reached)| **reached)
            .map(|((voter, new), _)| fenced(*voter, if *new { "2" } else { "1" }))
            .collect();
        let committed = voted().filter(|(_, new)| **new).count();
        match settled(&voters, &answers, seats) {
            Settled::Wait => prop_assert!(answers.len() < quorum(seats) as usize),
            Settled::Aborted { .. } => prop_assert!(committed < quorum(seats) as usize),
            Settled::Committed { bring, equal, .. } => {
                prop_assert!(committed > 0 && !equal.is_empty());
                prop_assert!(bring.len() + equal.len() >= quorum(seats) as usize);
            }
            Settled::Person(why) => prop_assert!(false, "{:?}", why),
        }
    }

    #[test]
    fn voters_are_a_quorum_without_repetition_and_never_more_than_the_seats(
        racks in prop::collection::vec((0_i64..3, any::<bool>(), any::<bool>()), 0..8),
        seats in 1_u32..6,
    ) {
        let all: Vec<Candidate> = (1..)
            .zip(&racks)
            .map(|(id, (rack, in_sync, counts))| Candidate {
                in_sync: *in_sync,
                counts: *counts,
                ..candidate(id, *rack)
            })
            .collect();
        let able = all.iter().filter(|one| one.in_sync).count();
        match choose(&all, seats) {
            Err(few) => prop_assert!(able < few.needed as usize),
            Ok(chosen) => {
                prop_assert!(chosen.voters.len() >= quorum(seats) as usize);
                prop_assert!(chosen.voters.len() <= seats as usize);
                prop_assert_eq!(chosen.voters.len() + chosen.followers.len(), able);
                let mut both = [chosen.voters, chosen.followers].concat();
                both.sort_unstable();
                both.dedup();
                prop_assert_eq!(both.len(), able);
            }
        }
    }
}
