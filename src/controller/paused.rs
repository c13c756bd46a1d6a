//! Goals that a person paused: still evaluated, but nothing starts for them.
//!
//! Ready findings of a paused goal are held in batches, so that they take no place at the head of a lane; when the
//! pause ends, or says something else, they are let go in batches.

use crate::database::pauses::{self, Pause};
use crate::database::{Database, Result, findings};
use crate::model::finding::{Deferral, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// Findings held, or let go, in one round and statement.
const BATCH: i64 = 10_000;

/// What is paused, as the last round saw it.
#[derive(Debug)]
pub(super) struct Paused {
    now: BTreeMap<String, Pause>,
    /// Whether there may be findings that a pause holds which is over.
    releasing: bool,
    /// Goals whose findings are yet to be held, or to be told another reason.
    holding: BTreeSet<String>,
}

impl Default for Paused {
    /// Another controller may have held, and ended before it let go.
    fn default() -> Self {
        Self { now: BTreeMap::new(), releasing: true, holding: BTreeSet::new() }
    }
}

impl Paused {
    /// Reads what is paused now; lets go what is not any more, and holds what has come.
    pub(super) async fn look(&mut self, db: &Database) -> Result<()> {
        let now: BTreeMap<_, _> = pauses::all(db)
            .await?
            .into_iter()
            .filter_map(|pause| Some((pause.goal()?.to_owned(), pause)))
            .collect();
        self.releasing |= self.now.keys().any(|goal| !now.contains_key(goal));
        let other = now.iter().filter(|(goal, pause)| self.now.get(*goal) != Some(*pause));
        self.holding.extend(other.map(|(goal, _)| goal.clone()));
        self.now = now;
        if self.releasing {
            let goals: Vec<_> = self.now.keys().cloned().collect();
            let let_go = findings::release_but(db, &goals, BATCH).await?;
            self.releasing = let_go > 0;
            if let_go > 0 {
                tracing::info!(findings = let_go, "let go what a pause held");
            }
        }
        self.hold_more(db).await
    }

    /// Holds what is paused among ready findings, and more of the same goals; gives the others back.
    pub(super) async fn hold(&mut self, db: &Database, mut ready: Vec<Finding>) -> Result<Vec<Finding>> {
        let paused = ready.iter().filter(|finding| self.now.contains_key(&finding.goal));
        self.holding.extend(paused.map(|finding| finding.goal.clone()));
        self.hold_more(db).await?;
        ready.retain(|finding| !self.now.contains_key(&finding.goal));
        Ok(ready)
    }

    async fn hold_more(&mut self, db: &Database) -> Result<()> {
        for goal in std::mem::take(&mut self.holding) {
            let Some(pause) = self.now.get(&goal) else { continue };
            let held = findings::hold_goal(db, &goal, &deferral(pause), BATCH).await?;
            if held > 0 {
                tracing::info!(goal.name = goal, findings = held, "held, the goal is paused");
                self.holding.insert(goal);
            }
        }
        Ok(())
    }
}

fn deferral(pause: &Pause) -> Deferral {
    Deferral::Paused { by: pause.who.clone(), until: pause.until, reason: pause.reason.clone() }
}
