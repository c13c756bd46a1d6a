//! Goals that undo each other on a repository: add, remove, add. Pure.
//!
//! Each of their repairs does what it says, so no attempt is ineffective and nothing backs
//! off: only the sequence shows it.

use crate::model::id::RepositoryId;

/// What a repair does to the number of a repository's replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// One more.
    Adds,
    /// One fewer.
    Removes,
}

impl Direction {
    /// That of a step, by its word: history may hold steps of a newer program. A move has none: what it adds and
    /// what leaves for it are one.
    #[must_use]
    pub fn of(step: &str) -> Option<Self> {
        match step {
            "replicate" => Some(Self::Adds),
            "remove" => Some(Self::Removes),
            _ => None,
        }
    }
}

/// One attempt that succeeded and changed how many replicas there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The repository.
    pub repository: RepositoryId,
    /// For which goal.
    pub goal: String,
    /// What it did.
    pub direction: Direction,
}

/// The goal that undoes what `next` is about to do again; `before`: the repository's moves, oldest first.
#[must_use]
pub fn undone_by<'a>(next: &Move, before: &'a [Move]) -> Option<&'a str> {
    let [.., first, second] = before else { return None };
    let again = first.goal == next.goal && first.direction == next.direction;
    let undone = second.goal != next.goal && second.direction != next.direction;
    (again && undone).then_some(second.goal.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(goal: &str, direction: Direction) -> Move {
        Move { repository: RepositoryId(1), goal: goal.into(), direction }
    }

    #[test]
    fn add_remove_add_by_two_goals_is_undoing() {
        use Direction::{Adds, Removes};
        let before = [moved("suffice", Adds), moved("excess", Removes)];
        assert_eq!(undone_by(&moved("suffice", Adds), &before), Some("excess"));
        assert_eq!(undone_by(&moved("racks", Adds), &before), None, "another goal adds for its own reason");
        assert_eq!(undone_by(&moved("excess", Removes), &before), None, "not yet: nothing was added again");
        let rotated = [moved("excess", Removes), moved("suffice", Adds)];
        assert_eq!(undone_by(&moved("excess", Removes), &rotated), Some("suffice"));
    }

    #[test]
    fn ordinary_work_that_recurs_is_not() {
        use Direction::{Adds, Removes};
        assert_eq!(undone_by(&moved("suffice", Adds), &[]), None);
        let lost_again = [moved("suffice", Adds), moved("suffice", Adds)];
        assert_eq!(undone_by(&moved("suffice", Adds), &lost_again), None);
        let evacuated = [moved("evacuate", Removes), moved("evacuate", Removes)];
        assert_eq!(undone_by(&moved("suffice", Adds), &evacuated), None);
    }
}
