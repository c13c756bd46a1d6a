//! The goals that run now: looked at again and again in their directory, declared in SQL.

use super::Shared;
use super::edits::Verdict;
use crate::database::goals::{Declared, declare, states};
use crate::database::settings;
use crate::goal::Goal;
use crate::goal::library::{Entry, Library};
use crate::goal::setting::{self, Setting};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The goals that run, by name.
pub(super) type Running = BTreeMap<String, Version>;

/// The version of a goal that runs, with what is set over it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Version {
    /// It.
    pub(super) goal: Arc<Goal>,
    /// The version to fall back on, as long as this one has not shown that it comes to an end.
    pub(super) before: Option<Arc<Goal>>,
}

/// How a version of a goal was evaluated.
#[derive(Debug)]
pub(super) struct Seen {
    /// Its name.
    pub(super) goal: String,
    /// The version's text.
    pub(super) digest: String,
    /// How.
    pub(super) how: How,
}

/// How an evaluation of a version ended.
#[derive(Debug)]
pub(super) enum How {
    /// All of its rows came.
    Whole,
    /// It took too long, in words, and what that says of an edit.
    Late(String, Verdict),
}

/// Loads goals and tells who evaluates them.
pub(super) struct Board {
    shared: Arc<Shared>,
    library: Library,
    running: watch::Sender<Arc<Running>>,
    declared: Option<Vec<Declared>>,
    /// Settings that do not fit their goals.
    wrong: Vec<String>,
}

impl Board {
    pub(super) fn new(shared: Arc<Shared>, library: Library) -> Self {
        Self {
            shared,
            library,
            running: watch::Sender::new(Arc::default()),
            declared: None,
            wrong: Vec::new(),
        }
    }

    /// Hears of every change.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Running>> {
        self.running.subscribe()
    }

    /// Takes note of how a version of a goal was evaluated. `true`: it is to be evaluated again, the one before it or
    /// the same, which was late by chance.
    pub(super) fn note(&mut self, seen: &Seen) -> bool {
        match &seen.how {
            How::Late(_, Verdict::Unknown) => false,
            How::Late(why, Verdict::GivesWay) => self.library.give_way(&seen.goal, &seen.digest, why),
            How::Whole | How::Late(_, Verdict::Ends) => {
                self.library.ended(&seen.goal, &seen.digest);
                matches!(seen.how, How::Late(..))
            }
        }
    }

    /// Looks at the files again; `false` when that, or telling SQL, failed.
    pub(super) async fn reload(&mut self) -> bool {
        if let Err(problem) = self.library.reload().await {
            tracing::error!(error = problem.message, "goal files could not be read; what runs goes on");
            return false;
        }
        if self.library.is_open() {
            match states(&self.shared.database).await {
                Ok(states) => self.library.heed(&states),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "goal states could not be read");
                    return false;
                }
            }
        }
        let Some(running) = self.running().await else { return false };
        let declared: Vec<_> = self.library.entries().map(declared).collect();
        let before = Arc::clone(&self.running.borrow());
        if *before != running {
            self.running.send_replace(Arc::new(running));
        }
        if self.declared.as_ref() == Some(&declared) {
            return true;
        }
        if let Err(error) = declare(&self.shared.database, &declared).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "goals could not be declared");
            return false;
        }
        self.announce(&declared);
        self.declared = Some(declared);
        true
    }

    /// The goals that run, with what is set over them; `None` when SQL could not be asked.
    async fn running(&mut self) -> Option<Running> {
        let set = match settings::all(&self.shared.database).await {
            Ok(set) => set,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what is set over goals could not be read"
                );
                return None;
            }
        };
        let mut all = self.shared.settings.configured.clone();
        all.extend(set.into_iter().map(|one| Setting {
            origin: format!("set by {}: {}", one.who, one.reason),
            goal: one.goal,
            name: one.name,
            value: one.value,
        }));
        let (mut running, mut wrong) = (Running::new(), Vec::new());
        for goal in self.library.running() {
            let set = |goal: &Arc<Goal>| {
                let (set, errors) = setting::over(goal, &all);
                (if set == **goal { Arc::clone(goal) } else { Arc::new(set) }, errors)
            };
            let before = self.library.before(&goal.name).map(|before| set(before).0);
            let (set, errors) = set(goal);
            wrong.extend(errors.into_iter().map(|error| format!("{}: {error}", goal.name)));
            running.insert(goal.name.clone(), Version { goal: set, before });
        }
        if self.wrong != wrong {
            for error in &wrong {
                tracing::warn!(error, "a setting over a goal does not fit, and does nothing");
            }
            self.wrong = wrong;
        }
        Some(running)
    }

    /// Says each new error once.
    fn announce(&self, declared: &[Declared]) {
        let old = |goal: &str| self.declared.iter().flatten().find(|one| one.goal == goal);
        for one in declared {
            let Some(error) = &one.file_error else { continue };
            if old(&one.goal).and_then(|old| old.file_error.as_ref()) != Some(error) {
                let what =
                    if one.digest.is_some() { "the last good version runs on" } else { "it does not run" };
                tracing::error!(
                    target: "trued::event", kind = "goal.file", goal = one.goal, error,
                    "goal {}: {error}; {what}", one.goal,
                );
            }
        }
    }
}

fn declared(entry: &Entry) -> Declared {
    Declared {
        goal: entry.name.clone(),
        digest: entry.running.as_ref().map(|goal| goal.digest.clone()),
        file_error: entry.error.clone(),
        gave_way: entry.gave_way.clone(),
    }
}
