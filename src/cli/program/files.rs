//! Goal and repair files of a program: where they are, loaded and watched, and shared between its parts.

use super::super::args::Global;
use super::super::failure::Failure;
use super::super::settings;
use crate::config::{Config, Layers};
use crate::database::{Database, goals};
use crate::goal::Goal;
use crate::goal::library::{self, Entry, Fallbacks, Library};
use crate::goal::session::Source;
use crate::goal::setting::{self, Setting};
use crate::http;
use crate::model::finding::Subject;
use crate::repair::{self, Repairs};
use crate::worker::Recheck;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Where goals and repairs are read.
#[derive(Debug, Clone)]
pub struct Directories {
    /// Goal files.
    pub goals: PathBuf,
    /// Repair files; none: those that the program carries with it.
    pub repairs: Option<PathBuf>,
}

/// The directories that the configuration names. Goals must be somewhere; repairs that nobody placed
/// are those that the program carries with it.
#[must_use]
pub fn directory(layers: &Layers, config: &Config) -> Directories {
    let repairs = settings::shipped(layers, "repairs.directory", &config.goals.repairs);
    let repairs = (!layers.is_default("repairs.directory") || repairs.is_dir()).then_some(repairs);
    Directories { goals: settings::shipped(layers, "goals.directory", &config.goals.directory), repairs }
}

impl Directories {
    /// All repairs.
    ///
    /// # Errors
    /// When a file is not one.
    pub fn repairs(&self) -> anyhow::Result<Repairs> {
        let loaded = match &self.repairs {
            Some(directory) => repair::library::load(directory),
            None => repair::library::shipped(),
        };
        loaded.map_err(|error| Failure::usage(super::super::failure::sentence(&error.into())).into())
    }
}

/// The repairs that the configuration names.
///
/// # Errors
/// When the configuration or a file is wrong.
pub fn repairs(global: &Global) -> anyhow::Result<Repairs> {
    let (layers, config) = settings::with_flags(global, &[])?;
    directory(&layers, &config).repairs()
}

/// The repair files that the configuration names; none where the program's own are used.
///
/// # Errors
/// When the configuration is wrong, or the directory cannot be read.
pub fn repair_files(global: &Global) -> anyhow::Result<Vec<PathBuf>> {
    let (layers, config) = settings::with_flags(global, &[])?;
    Ok(directory(&layers, &config)
        .repairs
        .map(|path| repair::library::files_of(&path))
        .transpose()?
        .unwrap_or_default())
}

/// What goals must know of repairs.
#[must_use]
pub fn subjects(repairs: &Repairs) -> library::Repairs {
    repairs.by_name.iter().map(|(name, repair)| (name.clone(), repair.subject)).collect()
}

/// The goals of a process as they are loaded now; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<RwLock<Loaded>>);

#[derive(Debug, Default)]
struct Loaded {
    /// As their files say.
    plain: Vec<Entry>,
    /// With what was set over them when they were looked at last.
    set: Vec<Entry>,
}

impl Shared {
    /// All of them, as their files say.
    #[must_use]
    pub fn plain(&self) -> Vec<Entry> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).plain.clone()
    }

    /// The version of a goal that runs, with what is set over it.
    fn running(&self, goal: &str) -> Option<Arc<Goal>> {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        loaded.set.iter().find(|entry| entry.name == goal).and_then(|entry| entry.running.clone())
    }

    fn set(&self, loaded: Loaded) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }
}

/// A directory of goals that is looked at again and again, for all parts of the process but the
/// controller: it has a library of its own, and is the one that tells people and SQL. Which version of an edited
/// goal runs is what SQL says that controllers found out.
#[derive(Debug)]
pub struct Files {
    library: Library,
    shared: Shared,
    over: Over,
    /// What the configuration sets over goals that there are not, as it was told.
    strangers: Vec<String>,
}

/// What is set over goals' files.
#[derive(Debug, Clone)]
pub struct Over {
    /// Where people set it.
    pub db: Database,
    /// What the configuration sets.
    pub configured: Arc<Vec<Setting>>,
    /// What edits gave way to, in the controller of this process.
    pub fallbacks: Fallbacks,
}

impl Files {
    /// Loads a directory for the first time.
    ///
    /// # Errors
    /// When it is missing or cannot be read.
    pub async fn open(
        directory: &Path,
        source: Source,
        repairs: &Repairs,
        shared: Shared,
        over: Over,
    ) -> anyhow::Result<Self> {
        let library = load(directory, source, repairs).await?.with(&over.fallbacks);
        let mut files = Self { library, shared, over, strangers: Vec::new() };
        files.share().await;
        Ok(files)
    }

    /// Looks again.
    ///
    /// # Errors
    /// When the directory cannot be read; then everything stays as it was.
    pub async fn look(&mut self) -> Result<(), String> {
        self.library.reload().await.map_err(|problem| problem.message)?;
        self.share().await;
        Ok(())
    }

    /// Says loudly what is set over goals that there are not. A start does not fail of it: the goal may have been
    /// removed while everything ran.
    fn tell_strangers(&mut self) {
        let names: Vec<&str> = self.library.entries().map(|entry| entry.name.as_str()).collect();
        let strangers = setting::strangers(&self.over.configured, &names);
        for one in strangers.iter().filter(|one| !self.strangers.contains(one)) {
            tracing::error!(
                target: "trued::event", kind = "setting.unfit", directory = %self.library.dir().display(),
                "{one}; what is set over it does nothing",
            );
        }
        self.strangers = strangers;
    }

    /// Shares what runs, with what is set over it; when SQL is away, without what people set there.
    async fn share(&mut self) {
        self.tell_strangers();
        if self.library.is_open() {
            match goals::states(&self.over.db).await {
                Ok(states) => self.library.heed(&states),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "which versions of goals run could not be read"
                ),
            }
        }
        let over = http::steering::over(&self.over.db, &self.over.configured).await;
        let over = over.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what is set over goals could not be read"
            );
            self.over.configured.to_vec()
        });
        let plain: Vec<_> = self.library.entries().cloned().collect();
        let set = plain.iter().map(|entry| entry.set(&over)).collect();
        self.shared.set(Loaded { plain, set });
    }
}

/// Loads a directory of goals.
///
/// # Errors
/// When it is missing or cannot be read.
pub async fn load(directory: &Path, source: Source, repairs: &Repairs) -> anyhow::Result<Library> {
    let loaded = Library::load(directory, source, subjects(repairs)).await;
    loaded.map_err(|problem| {
        Failure::usage(problem.message)
            .hint("goals.directory (TRUED_GOALS__DIRECTORY) names the directory of goal files")
            .into()
    })
}

/// Asks the goals of this process again.
#[derive(Debug, Clone)]
pub struct Asking {
    /// Where they are asked.
    pub source: Source,
    /// Which they are.
    pub goals: Shared,
}

impl Recheck for Asking {
    fn holds<'a>(&'a self, goal: &'a str, subject: &'a Subject) -> BoxFuture<'a, Option<bool>> {
        async move {
            let running = self.goals.running(goal)?;
            match self.source.recheck(&running, subject).await {
                Ok(holds) => Some(holds),
                Err(problem) => {
                    tracing::warn!(goal.name = goal, subject = %subject, "recheck: {}", problem.message);
                    None
                }
            }
        }
        .boxed()
    }
}
