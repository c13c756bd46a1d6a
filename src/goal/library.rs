//! The goals of a directory: loaded whole, read again when asked, the last good version of each kept.
//!
//! A text becomes the running one only when it parses, its repair exists and takes its
//! subject, and the real engine prepared it. A bad or half-written text changes nothing
//! but the goal's error. What is unlike before is read twice, a moment apart, so that a
//! file in the middle of being saved is neither taken nor missed. Files that are no
//! goals (hidden ones, editors' backups, other endings) are passed over.

use super::file::{Goal, MAX_FILE_BYTES, stem};
use super::session::{Problem, Source};
use super::setting::{self, Setting};
use crate::model::goal::{GoalStatus, SubjectKind};
use futures::stream::{self, StreamExt as _};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

mod fallbacks;
pub mod strays;

pub use super::shipped::{shipped, write_shipped};
pub use fallbacks::Fallbacks;

/// Goals of one directory; a fleet has dozens.
const MAX_FILES: usize = 1_000;
/// Goals examined at a time.
const EXAMINED: usize = 4;
/// Between the two readings of what changed.
const SETTLING: Duration = Duration::from_millis(200);
/// So long a goal runs on whose file is gone. Half of an edit, a directory that is being changed, or a person's slip
/// look the same as a removal that is meant: this one closes all its findings, and has time.
pub const GONE_AFTER: Duration = Duration::from_mins(10);

/// The known repairs, and the subject that each takes.
pub type Repairs = BTreeMap<String, SubjectKind>;

/// One goal's file as it stands: what runs, and what is wrong with the newest text.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The goal's name.
    pub name: String,
    /// The version that runs; none: no good one was ever loaded.
    pub running: Option<Arc<Goal>>,
    /// Why the text on disk is not what runs: `goals/x.sql:7:12: …`.
    pub error: Option<String>,
    /// Digest of the text on disk, where it never came to an end and the version before it runs in its place.
    pub gave_way: Option<String>,
}

impl Entry {
    /// The same, with these settings over what runs.
    #[must_use]
    pub fn set(&self, over: &[Setting]) -> Self {
        let running = self.running.as_ref().map(|goal| Arc::new(setting::over(goal, over).0));
        Self { running, ..self.clone() }
    }
}

/// The goals of one directory.
#[derive(Debug)]
pub struct Library {
    dir: PathBuf,
    source: Source,
    repairs: Repairs,
    slots: BTreeMap<String, Slot>,
    fallbacks: Fallbacks,
    gone_after: Duration,
}

/// An entry, and the text that was judged last; none: it has to be judged again.
#[derive(Debug)]
struct Slot {
    entry: Entry,
    judged: Option<Read>,
    /// The version that ran before this one, until this one has shown that it comes to an end.
    before: Option<Arc<Goal>>,
    /// Since when its file is gone.
    gone: Option<Instant>,
}

/// What a reading of the directory found under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Read {
    Text { path: PathBuf, text: String },
    Unreadable { path: PathBuf, why: String },
}

impl Library {
    /// Loads a directory. Files that are no good are entries with an error; they stop nothing.
    ///
    /// # Errors
    /// When the directory is missing or cannot be read.
    pub async fn load(dir: &Path, source: Source, repairs: Repairs) -> Result<Self, Problem> {
        let (slots, fallbacks) = (BTreeMap::new(), Fallbacks::default());
        let mut library =
            Self { dir: dir.to_owned(), source, repairs, slots, fallbacks, gone_after: GONE_AFTER };
        let found = library.read().await?;
        library.judge(found).await;
        Ok(library)
    }

    /// Reads the directory again; returns whether any entry is another than before. The last good version of
    /// each goal stays; a goal whose file is gone goes after a while ([`GONE_AFTER`]).
    ///
    /// # Errors
    /// When the directory is missing or cannot be read; then everything stays as it was.
    pub async fn reload(&mut self) -> Result<bool, Problem> {
        let found = self.read().await?;
        if self.is_as_judged(&found) {
            return Ok(false);
        }
        tokio::time::sleep(SETTLING).await;
        let mut again = self.read().await?;
        let missed = self.miss(|name| !found.contains_key(name) && !again.contains_key(name));
        again.retain(|name, read| found.get(name) == Some(read));
        let changed = self.judge(again).await;
        Ok(changed || missed)
    }

    /// Notes whose file is gone: the last good version runs on for a while, with an error. What has no good version
    /// goes at once; what has one and never came to an end does when SQL says so ([`Self::heed`]). Returns whether
    /// any entry is another than before.
    fn miss(&mut self, is_gone: impl Fn(&str) -> bool) -> bool {
        let (now, before) = (Instant::now(), self.slots.len());
        let mut changed = false;
        for (_, slot) in self.slots.iter_mut().filter(|(name, _)| is_gone(name)) {
            slot.judged = None;
            if slot.gone.is_none() {
                slot.gone = Some(now);
                let path = slot.entry.running.as_ref().map(|goal| goal.path.display().to_string());
                let error = format!(
                    "{}: the file is gone; the goal itself goes {} minutes after it",
                    path.unwrap_or_default(),
                    self.gone_after.as_secs() / 60
                );
                slot.entry.error = Some(error);
                changed = true;
            }
        }
        let keep = |slot: &Slot| slot.gone.is_none_or(|since| now - since < self.gone_after);
        self.slots.retain(|_, slot| slot.gone.is_none() || (slot.entry.running.is_some() && keep(slot)));
        changed || self.slots.len() != before
    }

    /// The same, sharing with other libraries of the process what edits gave way to.
    #[must_use]
    pub fn with(self, fallbacks: &Fallbacks) -> Self {
        Self { fallbacks: fallbacks.clone(), ..self }
    }

    /// Whether SQL may know more of an entry: of a version that came to no end here yet, or of one whose file is gone.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let is_open = |slot: &Slot| slot.before.is_some() || slot.gone.is_some();
        !self.fallbacks.is_empty() || self.slots.values().any(is_open)
    }

    /// Takes over what SQL knows, from whichever controller: a version that was evaluated to its end needs no other to
    /// fall back on, one that gave way does so here, and a goal whose file is gone has nothing to lose if none of its
    /// evaluations ever came to an end: it goes at once.
    pub fn heed(&mut self, states: &[GoalStatus]) {
        self.slots.retain(|name, slot| {
            let state = states.iter().find(|state| state.goal == *name);
            let barren = state.is_none_or(|state| state.finished_at.is_none());
            if let Some(state) = state {
                slot.heed(state, self.fallbacks.get(name));
            }
            !(slot.gone.is_some() && barren)
        });
    }

    /// All entries, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.values().map(|slot| &slot.entry)
    }

    /// The goals that run, by name.
    pub fn running(&self) -> impl Iterator<Item = &Arc<Goal>> {
        self.entries().filter_map(|entry| entry.running.as_ref())
    }

    /// The entry of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.slots.get(name).map(|slot| &slot.entry)
    }

    /// A version of a goal was evaluated to its end: it needs no other to fall back on.
    pub fn ended(&mut self, name: &str, digest: &str) {
        if let Some(slot) = self.slots.get_mut(name).filter(|slot| slot.runs(digest)) {
            slot.before = None;
        }
    }

    /// The version to fall back on, as long as the one that runs has not shown that it comes to an end.
    #[must_use]
    pub fn before(&self, name: &str) -> Option<&Arc<Goal>> {
        self.slots.get(name).and_then(|slot| slot.before.as_ref())
    }

    /// Has a version of a goal give way to the one before it, if it never came to an end: no check finds out that a
    /// query has none. Returns whether that is so; it lasts until the file has another text.
    pub fn give_way(&mut self, name: &str, digest: &str, why: &str) -> bool {
        let Some(slot) = self.slots.get_mut(name).filter(|slot| slot.runs(digest)) else { return false };
        let Some(running) = &slot.entry.running else { return false };
        let start = running.query.file_offset(0);
        let why = why.strip_prefix(&format!("{}: ", running.path.display())).unwrap_or(why);
        let error = running.at(start, format!("{why}, and was never evaluated to its end"));
        let gave_way = slot.give_way(error);
        if let Some(running) = slot.entry.running.as_ref().filter(|_| gave_way) {
            self.fallbacks.put(running);
        }
        gave_way
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn is_as_judged(&self, found: &BTreeMap<String, Read>) -> bool {
        self.slots.len() == found.len()
            && found.iter().all(|(name, read)| {
                self.slots.get(name).is_some_and(|slot| slot.judged.as_ref() == Some(read))
            })
    }

    /// Judges what is unlike what was judged before; returns whether any entry changed.
    async fn judge(&mut self, found: BTreeMap<String, Read>) -> bool {
        let mut changed = false;
        let new = |(name, read): &(String, Read)| {
            self.slots.get(name).is_none_or(|slot| slot.judged.as_ref() != Some(read))
        };
        let new: Vec<_> = found.into_iter().filter(new).collect();
        // Side by side: one whose database does not answer holds up no other.
        let (source, repairs) = (&self.source, &self.repairs);
        let examined: Vec<_> = new.iter().map(|(_, read)| examine(read, source, repairs)).collect();
        let verdicts: Vec<_> = stream::iter(examined).buffered(EXAMINED).collect().await;
        for ((name, read), verdict) in new.into_iter().zip(verdicts) {
            if let Some(slot) = self.slots.get_mut(&name) {
                slot.gone = None;
            }
            let entry = Entry { name: name.clone(), running: None, error: None, gave_way: None };
            let slot =
                self.slots.entry(name).or_insert(Slot { entry, judged: None, before: None, gone: None });
            if slot.entry.running.is_none() {
                changed |= slot.run_unjudged(&read, &self.source, &verdict);
            }
            changed |= slot.settle(read, verdict);
        }
        changed
    }

    async fn read(&self) -> Result<BTreeMap<String, Read>, Problem> {
        let files = list(&self.dir).await.map_err(|error| Problem {
            message: format!("goals directory {}: {error}", self.dir.display()),
            text: false,
            late: false,
        })?;
        let engine = self.source.engine();
        let mut found = BTreeMap::new();
        for path in files {
            let Some((name, variant)) = stem(&path).map(|(name, variant)| (name.to_owned(), variant)) else {
                continue;
            };
            match variant {
                Some(other) if other != engine => {
                    let why = format!(
                        "there is no text for {0}: {name}.sql or {name}.{0}.sql is needed",
                        engine.as_str()
                    );
                    found.entry(name).or_insert(Read::Unreadable { path, why });
                }
                Some(_) => {
                    found.insert(name, open(path).await);
                }
                None => {
                    let own = self.dir.join(format!("{name}.{}.sql", engine.as_str()));
                    if !matches!(tokio::fs::try_exists(&own).await, Ok(true)) {
                        found.insert(name, open(path).await);
                    }
                }
            }
        }
        Ok(found)
    }
}

impl Slot {
    fn runs(&self, digest: &str) -> bool {
        self.entry.running.as_ref().is_some_and(|goal| goal.digest == digest)
    }

    fn heed(&mut self, state: &GoalStatus, fallback: Option<Arc<Goal>>) {
        let runs = |digest: &Option<String>| digest.as_ref().is_some_and(|digest| self.runs(digest));
        let is_it = |goal: &Arc<Goal>| state.digest.as_ref() == Some(&goal.digest);
        if runs(&state.ended) {
            self.before = None;
        } else if runs(&state.gave_way)
            && let Some(before) = self.before.clone().filter(is_it).or_else(|| fallback.filter(is_it))
        {
            self.before = Some(before);
            self.give_way(state.file_error.clone().unwrap_or_default());
        }
    }

    fn give_way(&mut self, error: String) -> bool {
        let Some(before) = self.before.take() else { return false };
        self.entry.error = Some(error);
        self.entry.gave_way = self.entry.running.replace(before).map(|edit| edit.digest.clone());
        true
    }

    /// Lets a goal run whose own database is away since before this start: its evaluations say that it is
    /// unknown, where otherwise it would keep the state it had. It is judged when the database is back.
    fn run_unjudged(&mut self, read: &Read, source: &Source, verdict: &Result<Goal, Problem>) -> bool {
        let (Err(Problem { text: false, .. }), Read::Text { path, text }) = (verdict, read) else {
            return false;
        };
        let Ok(goal) = Goal::parse(path, text, source.engine_of(text)) else { return false };
        if goal.asks_fleet() {
            return false;
        }
        self.entry.running = Some(Arc::new(goal));
        true
    }

    /// Takes a verdict; one for which the engine was away is asked for again next time.
    fn settle(&mut self, read: Read, verdict: Result<Goal, Problem>) -> bool {
        self.entry.gave_way = None;
        let (error, running) = match verdict {
            Ok(goal) => (None, Some(Arc::new(goal))),
            Err(problem) => {
                self.judged = problem.text.then_some(read);
                let changed = self.entry.error.as_ref() != Some(&problem.message);
                self.entry.error = Some(problem.message);
                return changed;
            }
        };
        self.judged = Some(read);
        let changed = self.entry.error != error || self.entry.running != running;
        let digest = |goal: &Option<Arc<Goal>>| goal.as_ref().map(|goal| goal.digest.clone());
        if digest(&self.entry.running) != digest(&running) {
            self.before = self.before.take().or_else(|| self.entry.running.take());
        }
        self.entry.error = error;
        self.entry.running = running;
        changed
    }
}

/// Whether a text may run: parsed, its repair known, prepared on the real engine.
async fn examine(read: &Read, source: &Source, repairs: &Repairs) -> Result<Goal, Problem> {
    match read {
        Read::Text { path, text } => check(path, text, source, repairs).await,
        Read::Unreadable { path, why } => {
            Err(Problem { message: format!("{}: {why}", path.display()), text: true, late: false })
        }
    }
}

/// Checks one goal's text as the library does before it runs: for the command and for a directory's files.
///
/// # Errors
/// Naming file, line and column; `text` is false when the engine could not be asked.
pub async fn check(path: &Path, text: &str, source: &Source, repairs: &Repairs) -> Result<Goal, Problem> {
    let goal = Goal::parse(path, text, source.engine_of(text))?;
    remedied(&goal, repairs)?;
    source.check(&goal).await?;
    Ok(goal)
}

/// A goal's repair must exist and take the goal's subject.
fn remedied(goal: &Goal, repairs: &Repairs) -> Result<(), Problem> {
    let Some(repair) = &goal.repair else { return Ok(()) };
    let refuse = |message: String| {
        let at = goal.text.find("repair:").unwrap_or(0);
        Err(Problem { message: goal.at(at, message), text: true, late: false })
    };
    match repairs.get(repair) {
        None => {
            let near = super::text::did_you_mean(repair, repairs.keys().map(String::as_str));
            let known = repairs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            refuse(format!("unknown repair \"{repair}\"{near} (repairs: {known})"))
        }
        Some(subject) if *subject != goal.subject => refuse(format!(
            "repair {repair} is done to a {subject}, and this goal is about a {}",
            goal.subject
        )),
        Some(_) => Ok(()),
    }
}

/// Whether a file has a goal's name: hidden files, and what editors leave behind, have not.
#[must_use]
pub fn is_goal_file(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    stem(path).is_some()
        && !name.as_encoded_bytes().starts_with(b".")
        && !name.as_encoded_bytes().starts_with(b"#")
}

/// The goal files of a directory, sorted by name.
async fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = tokio::fs::read_dir(dir).await?;
    let mut files = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        if is_goal_file(Path::new(&entry.file_name())) && !entry.file_type().await?.is_dir() {
            files.push(entry.path());
        }
        if files.len() > MAX_FILES {
            return Err(io::Error::other(format!("more than {MAX_FILES} goals")));
        }
    }
    files.sort();
    Ok(files)
}

async fn open(path: PathBuf) -> Read {
    let bound = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    let read = async {
        if tokio::fs::metadata(&path).await?.len() > bound {
            return Err(io::Error::other(format!("longer than {MAX_FILE_BYTES} bytes")));
        }
        tokio::fs::read(&path).await
    };
    match read.await.map(super::text::utf8) {
        Ok(Ok(text)) => Read::Text { path, text },
        Ok(Err(why)) => Read::Unreadable { path, why },
        Err(error) => Read::Unreadable { path, why: error.to_string() },
    }
}

#[cfg(test)]
mod tests;
