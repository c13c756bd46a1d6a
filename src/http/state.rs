//! What every handler works with.

use super::sampler::Sampler;
use crate::database::Database;
use crate::goal::library::{Entry, Repairs};
use crate::goal::session::Source;
use crate::goal::setting::Setting;
use crate::model::Millis;
use crate::model::checksum::ChecksumKey;
use crate::model::fleet::Fileserver;
use crate::model::id::RepositoryId;
use crate::model::push::Listing;
use crate::model::wire::push::{Command, RefName};
use crate::queue::{Carrier, Post};
use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use tokio_util::sync::CancellationToken;

/// Signs a grant to import a repository on a fileserver, until a moment.
pub type SignImport = dyn Fn(RepositoryId, &Fileserver, Millis) -> String + Send + Sync;

/// Asks controllers to evaluate these goals at once.
pub type Evaluate = dyn Fn(&[String]) + Send + Sync;

/// Where a fileserver keeps a repository.
pub type PathOf = dyn Fn(&Fileserver, RepositoryId) -> String + Send + Sync;

/// How changes of references ended: each, in the order asked for, and why it was not changed; or why nothing was.
pub type ReferencesEnded = Result<Vec<(RefName, Option<String>)>, String>;

/// Changes references of a repository, each by its old value; all or none, if so wished.
pub type ChangeReferences =
    dyn Fn(RepositoryId, Vec<Command>, bool) -> BoxFuture<'static, ReferencesEnded> + Send + Sync;

/// Points HEAD of a repository at a branch, by its full name.
pub type SetHead = dyn Fn(RepositoryId, String) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// Whether a repository has no reference.
pub type IsVacant = dyn Fn(RepositoryId) -> BoxFuture<'static, Result<bool, String>> + Send + Sync;

/// Populates an empty repository with these references and a pack of everything that they lead to.
pub type Populate = dyn Fn(
        RepositoryId,
        Listing,
        BoxStream<'static, std::io::Result<Bytes>>,
    ) -> BoxFuture<'static, Result<(), String>>
    + Send
    + Sync;

/// What the API is handed because it may not do it itself.
#[derive(Clone)]
pub struct Hooks {
    /// Signs a grant to import a repository on a fileserver, until a moment.
    pub sign_import: Arc<SignImport>,
    /// Asks controllers to evaluate these goals at once; none named: all.
    pub evaluate: Arc<Evaluate>,
    /// Where a fileserver keeps a repository: absolute once its agent has said where its root is, else below it.
    pub path_of: Arc<PathOf>,
    /// Changes references by the vote of their copies.
    pub change_references: Arc<ChangeReferences>,
    /// Points HEAD elsewhere, in the same way.
    pub set_head: Arc<SetHead>,
    /// Whether a repository may be populated.
    pub is_vacant: Arc<IsVacant>,
    /// Populates a repository that is empty, by the vote of its copies.
    pub populate: Arc<Populate>,
    /// The goals as they are loaded now, as their files say: what is set over them is read when it matters.
    pub goals: Arc<dyn Fn() -> Vec<Entry> + Send + Sync>,
}

/// The limits as files and configuration write them.
#[derive(Debug, Clone, Default)]
pub struct Limited {
    /// The repairs.
    pub repairs: Arc<crate::repair::Repairs>,
    /// Attempts in the whole fleet.
    pub in_flight: u32,
}

/// The state of the API. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    /// The fleet's memory.
    pub db: Database,
    /// Where goals are asked.
    pub source: Source,
    /// The known repairs and what each takes, for checking goals.
    pub repairs: Arc<Repairs>,
    /// The limits as files and configuration write them.
    pub limited: Limited,
    /// All repairs, for what a change of a goal would do.
    pub remedies: Arc<crate::repair::Repairs>,
    /// What the configuration sets over goals' files.
    pub configured: Arc<Vec<Setting>>,
    /// What it is handed.
    pub hooks: Hooks,
    /// The fleet's id.
    pub fleet: String,
    /// The fleet's checksum key, for agents' enrolments.
    pub checksum_key: ChecksumKey,
    /// Where clients reach the routers; empty: nobody said.
    pub clone_base: String,
    /// Percent of a disk that new copies may fill.
    pub fill_limit: i64,
    /// What carries reminders between processes; none: nothing does.
    pub post: Option<Post>,
    /// At what share of its pace the controller beside it goes, in hundredths.
    pub pace: Arc<AtomicU32>,
    /// Cancelled when the program was asked to stop and still answers.
    pub leaving: CancellationToken,
    /// Metrics, and when they were last read from SQL.
    pub sampler: Arc<Sampler>,
    /// Cancelled when the program stops.
    pub stopping: CancellationToken,
}

impl Api {
    /// What is wrong with Redis, if it is used and something is.
    #[must_use]
    pub fn redis_away(&self) -> Option<String> {
        match self.post.as_ref()?.carrier() {
            Carrier::Away { why, .. } => Some(why),
            Carrier::Unknown | Carrier::Here => None,
        }
    }
}
