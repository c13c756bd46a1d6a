//! What must hold in every state.

use super::state::{Push, Rules, State};
use trued::model::push::quorum;

/// The law that a state breaks.
pub fn broken(state: &State, rules: &Rules) -> Option<String> {
    for (push, phase) in state.pushes.iter().enumerate() {
        if *phase != Push::Acknowledged {
            continue;
        }
        if !state.definitive.has(push) {
            return Some(format!("acknowledged push {push} is not in what is definitive"));
        }
        let have = state.all().filter(|at| state.copies[*at].content.has(push)).count();
        if have < quorum(rules.initial_seats) as usize {
            return Some(format!("acknowledged push {push} is on {have} copies"));
        }
        let lacks = |at: &usize| state.copies[*at].in_sync && !state.copies[*at].content.has(push);
        if state.all().any(|at| lacks(&at)) {
            return Some(format!("a copy is in sync without acknowledged push {push}"));
        }
    }
    let right = |at: usize| {
        let content = state.copies[at].content;
        content == state.definitive || state.row.is_some_and(|row| row.new == content)
    };
    let wrong = state.all().filter(|at| state.copies[*at].in_sync).any(|at| !right(at));
    wrong.then(|| "copies in sync differ".to_owned())
}
