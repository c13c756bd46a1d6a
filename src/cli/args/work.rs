//! Commands about findings, attempts, repairs and limits.

use super::checked_duration;
use super::verbs::Change;
use crate::model::finding::FindingState;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trued backlog`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Backlog {
    /// What to do; nothing: list it.
    #[command(subcommand)]
    pub verb: Option<BacklogVerb>,
    /// Which findings.
    #[command(flatten)]
    pub filter: Filter,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub limit: u32,
}

/// Which findings are meant; what is not given leaves nothing out.
#[derive(Debug, Clone, Default, Args)]
pub struct Filter {
    /// Of this goal.
    #[arg(long)]
    pub goal: Option<String>,
    /// About this fileserver.
    #[arg(long)]
    pub fileserver: Option<String>,
    /// In this state: waiting, ready, running, held or stuck.
    #[arg(long)]
    pub state: Option<FindingState>,
}

/// Which findings a verb acts on, why, and whether.
#[derive(Debug, Clone, Default, Args)]
pub struct Choice {
    /// Findings by number; none: those that the filter matches now.
    #[arg(value_name = "ID")]
    pub ids: Vec<i64>,
    /// Which findings.
    #[command(flatten)]
    pub filter: Filter,
    /// Do not ask for the number of findings.
    #[arg(long)]
    pub yes: bool,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}

/// What to do with the backlog.
#[derive(Debug, Subcommand)]
pub enum BacklogVerb {
    /// Show one finding with its story: evidence, what it waits for, what was tried.
    Show {
        /// Its number.
        id: i64,
    },
    /// Begin findings anew that are stuck or back off: what was tried no longer counts.
    Retry {
        /// Which.
        #[command(flatten)]
        choice: Choice,
    },
    /// End the attempts of findings, and let nothing start for them for a while.
    Cancel {
        /// For how long.
        #[arg(long = "for", default_value = "1h", value_parser = checked_duration, value_name = "DURATION")]
        wait: String,
        /// Which.
        #[command(flatten)]
        choice: Choice,
    },
    /// Give findings another priority than their goal does.
    Bump {
        /// 0 to 999, higher is sooner.
        #[arg(long, default_value_t = 999, value_parser = clap::value_parser!(i32).range(0..=999), value_name = "N")]
        priority: i32,
        /// Which.
        #[command(flatten)]
        choice: Choice,
    },
}

/// `trued attempts`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Attempts {
    /// What to do; nothing: list them.
    #[command(subcommand)]
    pub verb: Option<AttemptVerb>,
    /// Show them again and again: a table on a terminal, a line of JSON each time in a pipe.
    #[arg(long)]
    pub watch: bool,
    /// Time between two looks.
    #[arg(long, default_value = "1s", value_parser = checked_duration, value_name = "DURATION")]
    pub every: String,
}

/// What to do with attempts.
#[derive(Debug, Subcommand)]
pub enum AttemptVerb {
    /// End one; its finding waits a minute.
    Cancel {
        /// Its number.
        id: i64,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
}

/// `trued limits`
#[derive(Debug, Args)]
pub struct LimitsCommand {
    /// What to do; nothing: show them.
    #[command(subcommand)]
    pub verb: Option<LimitVerb>,
}

/// What to do with limits.
#[derive(Debug, Subcommand)]
pub enum LimitVerb {
    /// Show all, and who owns each: a file, the configuration, or whoever set it at run time.
    Show,
    /// Set one while everything runs: it holds within seconds, and until it is unset.
    Set {
        /// `REPAIR.KEY` as its file spells it, or `fleet.in_flight`.
        name: String,
        /// A number; of `bytes_per_second` also 20MiB.
        value: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Give one back to its file.
    Unset {
        /// `REPAIR.KEY`, or `fleet.in_flight`.
        name: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
}

/// `trued repair`
#[derive(Debug, Args)]
pub struct RepairCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: RepairVerb,
}

/// What to do with repairs.
#[derive(Debug, Subcommand)]
pub enum RepairVerb {
    /// List repairs.
    List,
    /// Show one with its limits.
    Show {
        /// Its name.
        name: String,
    },
    /// Check repair files; none named: those that the configuration names. Exit code 1 when one does not check.
    Check {
        /// The files.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}
