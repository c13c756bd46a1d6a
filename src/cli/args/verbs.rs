//! Commands that have verbs of their own: parts, repositories, fileservers.

mod drains;

pub use drains::{AcceptEmpty, Evacuate, Lost, OkToStop, Quiesce};

use crate::http::repositories::MOST_WANTED;
use crate::model::fleet::ObjectFormat;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `trued part`
#[derive(Debug, Args)]
pub struct PartCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: PartVerb,
}

/// What to do with parts.
#[derive(Debug, Subcommand)]
pub enum PartVerb {
    /// Add a part and print its enrolment file: keep it secret.
    Add {
        /// What it is.
        role: AddedRole,
        /// Its name.
        name: String,
        /// Straight in the database, without the API.
        #[arg(long, value_name = "URL")]
        database_url: Option<String>,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// List all parts.
    List,
}

/// Roles of parts that are added by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AddedRole {
    /// Repairs.
    Worker,
    /// Evaluates, dispatches, observes.
    Controller,
    /// Takes Git clients' requests.
    Router,
}

/// Flags of every change.
#[derive(Debug, Clone, Default, Args)]
pub struct Change {
    /// Why; kept with who and when.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

/// `trued repo`
#[derive(Debug, Args)]
pub struct RepoCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: RepoVerb,
}

/// What to do with repositories.
#[derive(Debug, Subcommand)]
pub enum RepoVerb {
    /// Import repositories of this machine: bare or ordinary ones, and directories of them.
    Import(Import),
    /// Create an empty repository.
    Create {
        /// Its name.
        name: String,
        /// Copies wanted.
        #[arg(long, alias = "wanted", default_value_t = 3, value_parser = copies(), value_name = "N")]
        replicas: u32,
        /// The hash its objects are named by: sha1 or sha256.
        #[arg(long, default_value = "sha1", value_name = "FORMAT")]
        object_format: ObjectFormat,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// List repositories.
    List {
        /// Only those that an open finding is about; exit code 3 when there are any.
        #[arg(long)]
        behind: bool,
        /// Those that were removed and can be brought back.
        #[arg(long, conflicts_with = "behind")]
        removed: bool,
        /// At most so many.
        #[arg(long, default_value_t = 1_000, value_name = "N")]
        limit: usize,
    },
    /// Show one repository with its copies.
    Show {
        /// Its name or number.
        name: String,
    },
    /// Point HEAD at another branch, by the vote of its copies as for a push.
    SetHead {
        /// Its name or number.
        name: String,
        /// The branch: its short name, or refs/heads/….
        branch: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Remove a repository: it serves nothing at once, its copies are unlinked after the retention.
    Remove {
        /// Its name or number.
        name: String,
        /// Do not ask for the name typed back.
        #[arg(long)]
        yes: bool,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Make what one copy has definitive, where no rule can decide; the other copies are brought to it.
    Adopt {
        /// Its name or number.
        name: String,
        /// The fileserver whose copy it is.
        #[arg(long, value_name = "FILESERVER")]
        from: String,
        /// Do not ask for the name typed back.
        #[arg(long)]
        yes: bool,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Bring a removed repository back as it was, within the retention.
    Undelete {
        /// The name that it had, or its number.
        name: String,
        /// Another name for it.
        #[arg(long = "name", value_name = "NAME")]
        new_name: Option<String>,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Give a repository another name.
    Rename {
        /// Its name or number.
        name: String,
        /// Its new name.
        new_name: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Change how many copies are wanted.
    SetReplicas {
        /// Its name or number.
        name: String,
        /// Copies wanted.
        #[arg(value_parser = copies())]
        wanted: u32,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
}

/// As many copies as can be wanted: judged before anybody is asked.
fn copies() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=u64::from(MOST_WANTED))
}

/// `trued repo import`
#[derive(Debug, Args)]
pub struct Import {
    /// Repositories, or directories that hold some.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The name, for a single repository; else each directory's own, without .git.
    #[arg(long)]
    pub name: Option<String>,
    /// Put before each name.
    #[arg(long, default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Copies wanted.
    #[arg(long, default_value_t = 3, value_parser = copies(), value_name = "N")]
    pub replicas: u32,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

/// `trued fileserver`
#[derive(Debug, Args)]
pub struct FileserverCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: FileserverVerb,
}

/// What to do with fileservers.
#[derive(Debug, Subcommand)]
pub enum FileserverVerb {
    /// List fileservers.
    List,
    /// Show one fileserver.
    Show {
        /// Its name or number.
        name: String,
    },
    /// Add a fileserver and print its agent's enrolment file: keep it secret.
    Add {
        /// Its name.
        name: String,
        /// The rack that it stands in.
        #[arg(long)]
        rack: String,
        /// Address of its agent, such as <http://10.0.0.7:7100>; that of the API is --api here.
        // The same id as the global flag: clap then takes this one in its place.
        #[arg(id = "url", long = "url", value_name = "URL")]
        agent_url: String,
        /// Address of the API.
        #[arg(long, env = "TRUED_URL", value_name = "URL")]
        api: Option<String>,
        /// Straight in the database, without the API.
        #[arg(long, value_name = "URL")]
        database_url: Option<String>,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Let it take new copies, reads and pushes.
    Serve {
        /// Its name or number.
        name: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Give it nothing new; what it holds stays and counts.
    Quiesce(Quiesce),
    /// Empty it: its copies no longer count, others are made elsewhere, then these go.
    Evacuate(Evacuate),
    /// Let it leave the fleet; refused while it holds a copy.
    Retire {
        /// Its name or number.
        name: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Say that it will never return: its copies are forgotten as others suffice.
    Lost(Lost),
    /// Say that it is right that its disk is empty: every copy is made anew.
    AcceptEmpty(AcceptEmpty),
    /// Whether they may be stopped at once without leaving a repository below quorum; exit code 4: no.
    OkToStop(OkToStop),
}
