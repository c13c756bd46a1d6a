//! Goal and repair files of a program: where they are, loaded and watched, and shared between its parts.

use super::super::args::Global;
use super::super::failure::Failure;
use super::super::settings;
use crate::config::{Config, Layers};
use crate::database::Database;
use crate::goal::library::{self, Entry, Library};
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
pub struct Shared(Arc<RwLock<Vec<Entry>>>);

impl Shared {
    /// All of them.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, entries: Vec<Entry>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = entries;
    }
}

/// A directory of goals that is looked at again and again, for all parts of the process but the
/// controller: it has a library of its own, and is the one that tells people and SQL.
#[derive(Debug)]
pub struct Files {
    library: Library,
    shared: Shared,
    over: Over,
}

/// What is set over goals' files.
#[derive(Debug, Clone)]
pub struct Over {
    /// Where people set it.
    pub db: Database,
    /// What the configuration sets.
    pub configured: Arc<Vec<Setting>>,
}

impl Files {
    /// Loads a directory for the first time.
    ///
    /// # Errors
    /// When it is missing or cannot be read, or something is set over a goal that there is not.
    pub async fn open(
        directory: &Path,
        source: Source,
        repairs: &Repairs,
        shared: Shared,
        over: Over,
    ) -> anyhow::Result<Self> {
        let library = load(directory, source, repairs).await?;
        let names: Vec<&str> = library.entries().map(|entry| entry.name.as_str()).collect();
        // Only at the start: a goal whose file goes while this runs keeps what is set over it.
        settings::goals::refuse_strangers(&over.configured, &names, directory)?;
        let files = Self { library, shared, over };
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

    /// Shares what runs, with what is set over it; when SQL is away, without what people set there.
    async fn share(&self) {
        let over = http::steering::over(&self.over.db, &self.over.configured).await;
        let over = over.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what is set over goals could not be read"
            );
            self.over.configured.to_vec()
        });
        let entries = self.library.entries().cloned().map(|mut entry| {
            entry.running = entry.running.map(|goal| Arc::new(setting::over(&goal, &over).0));
            entry
        });
        self.shared.set(entries.collect());
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
            let entries = self.goals.entries();
            let running =
                entries.into_iter().find(|entry| entry.name == goal).and_then(|entry| entry.running);
            let running = running?;
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
