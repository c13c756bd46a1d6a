//! The goals that run now: read from their files, checked against the repairs, declared in SQL.

use super::Shared;
use crate::database::goals::{Declared, declare};
use crate::goal::Goal;
use crate::goal::library::Entry;
use crate::goal::session::Source;
use crate::repair::Repairs;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Where goals come from: a directory that is looked at again and again.
pub trait GoalFiles: Send + 'static {
    /// Every goal as its file stands now, new texts checked on the real engine, the last
    /// good version of each kept.
    ///
    /// # Errors
    /// When the files cannot be read at all: then what runs goes on.
    fn load<'a>(&'a mut self, source: &'a Source) -> BoxFuture<'a, Result<Vec<Entry>, String>>;
}

/// The goals that run, by name.
pub(super) type Running = BTreeMap<String, Arc<Goal>>;

/// Loads goals and tells who evaluates them.
pub(super) struct Board {
    shared: Arc<Shared>,
    files: Box<dyn GoalFiles>,
    running: watch::Sender<Arc<Running>>,
    declared: Option<Vec<Declared>>,
}

impl Board {
    pub(super) fn new(shared: Arc<Shared>, files: Box<dyn GoalFiles>) -> Self {
        Self { shared, files, running: watch::Sender::new(Arc::default()), declared: None }
    }

    /// Hears of every change.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<Running>> {
        self.running.subscribe()
    }

    /// Looks at the files again; `false` when that, or telling SQL, failed.
    pub(super) async fn reload(&mut self) -> bool {
        let entries = match self.files.load(&self.shared.source).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::error!(error, "goal files could not be read; what runs goes on");
                return false;
            }
        };
        let before = Arc::clone(&self.running.borrow());
        let (running, declared) = accept(entries, &before, &self.shared.repairs);
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

/// Which goals run, and what is said of each. A goal whose repair is not there, or does not
/// take its subject, is refused: its version before runs on.
fn accept(entries: Vec<Entry>, before: &Running, repairs: &Repairs) -> (Running, Vec<Declared>) {
    let (mut running, mut declared) = (Running::new(), Vec::with_capacity(entries.len()));
    for mut entry in entries {
        if let Some(refusal) = entry.running.as_ref().and_then(|goal| refusal(goal, repairs)) {
            entry.error = Some(refusal);
            entry.running =
                before.get(&entry.name).cloned().filter(|old| self::refusal(old, repairs).is_none());
        }
        declared.push(Declared {
            goal: entry.name.clone(),
            digest: entry.running.as_ref().map(|goal| goal.digest.clone()),
            file_error: entry.error,
        });
        if let Some(goal) = entry.running {
            running.insert(entry.name, goal);
        }
    }
    (running, declared)
}

fn refusal(goal: &Goal, repairs: &Repairs) -> Option<String> {
    let name = goal.repair.as_ref()?;
    let path = goal.path.display();
    let Some(repair) = repairs.get(name) else {
        return Some(format!("{path}: no file defines the repair {name:?}"));
    };
    (!repair.takes(goal.subject)).then(|| {
        format!("{path}: repair {name} takes a {}, the goal is about a {}", repair.subject, goal.subject)
    })
}
