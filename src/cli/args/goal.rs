//! `trued goal`: its verbs and their flags.

use super::{Change, checked_duration, checked_schedule};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trued goal`
#[derive(Debug, Args)]
pub struct GoalCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: GoalVerb,
}

/// What to do with goals.
#[derive(Debug, Subcommand)]
pub enum GoalVerb {
    /// List goals.
    List,
    /// Show one goal with the query that runs, and say where that is not the text on disk.
    Show {
        /// Its name.
        name: String,
    },
    /// Check goal files on the real engine: text, columns, plan, and rules of good taste. Exit code 1 when one does
    /// not check.
    Check {
        /// The files.
        #[arg(required_unless_present = "lint_rules", value_name = "FILE")]
        files: Vec<PathBuf>,
        /// List the rules instead: id, why, and what to do.
        #[arg(long)]
        lint_rules: bool,
        /// Check on this database, without the API.
        #[arg(long, value_name = "URL")]
        database_url: Option<String>,
    },
    /// Show what a goal returns now, with what is set over it at this moment; changes nothing. Exit code 3 when it
    /// returns rows.
    Run {
        /// Its name.
        name: String,
        /// At most so many rows.
        #[arg(long, default_value_t = 100, value_name = "N")]
        limit: usize,
    },
    /// Say that what a brake saw is right: its repairs start, until its cause is gone. A goal that looks at nothing
    /// any more (`GOAL_DEAD`) may do so from now on.
    Approve {
        /// The goal whose brakes hold.
        #[arg(required_unless_present = "brake")]
        name: Option<String>,
        /// Another brake by its name, for example `offline` or `rack:r1`; `trued status` names those that hold.
        #[arg(long, value_name = "NAME", conflicts_with = "name")]
        brake: Option<String>,
        /// Reason and dry run.
        #[command(flatten)]
        change: Change,
    },
    /// Evaluate goals at once and wait for the result; none named: all.
    Evaluate {
        /// Their names.
        names: Vec<String>,
        /// Longest wait.
        #[arg(long, default_value = "60s", value_parser = checked_duration, value_name = "DURATION")]
        wait: String,
    },
    /// Compare an edited file with what runs, on the data of now; changes nothing. Exit code 1 when it does not check.
    Diff {
        /// The file.
        file: PathBuf,
        /// Rows of each kind to show.
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Show how the engine would answer the query of a goal that runs.
    Explain {
        /// Its name.
        name: String,
    },
    /// Show a goal's evaluations, latest first: when, how long, how many, error.
    History {
        /// Its name.
        name: String,
        /// At most so many.
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
    },
    /// Run the fixtures in tests/NAME.toml beside goal files, on a database of their own; none named: all goals of the
    /// directory. Exit code 1 when a case fails.
    Test {
        /// Names of goals, or files.
        #[arg(value_name = "NAME|FILE")]
        goals: Vec<String>,
        /// Run them on this PostgreSQL server too; the role must be allowed to create databases.
        #[arg(long, env = "TRUED_TEST_POSTGRES_URL", value_name = "URL", hide_env_values = true)]
        postgres: Option<String>,
    },
    /// Hold a goal's repairs until a time; it is still evaluated.
    #[command(group = clap::ArgGroup::new("end").required(true).args(["until", "length"]))]
    Pause {
        /// Its name.
        name: String,
        /// Until this moment, such as 2026-03-01T08:00:00Z.
        #[arg(long, value_name = "TIME", value_parser = checked_moment, conflicts_with = "length")]
        until: Option<String>,
        /// For so long, such as 2h.
        #[arg(id = "length", long = "for", value_name = "DURATION", value_parser = checked_duration)]
        length: Option<String>,
        /// Why; kept with who and when.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// End a goal's pause.
    Resume {
        /// Its name.
        name: String,
        /// Why and whether.
        #[command(flatten)]
        change: Change,
    },
    /// Set values over a goal's file, at run time, until they are taken back.
    Set {
        /// Its name.
        name: String,
        /// What is set.
        #[command(flatten)]
        values: SetValues,
        /// Why; kept with who and when.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Values over a goal's file.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = true)]
pub struct SetValues {
    /// Repair, or observe: findings, no repairs.
    #[arg(long, value_name = "repair|observe")]
    pub mode: Option<String>,
    /// When it is evaluated: cron with seconds, UTC.
    #[arg(long, value_parser = checked_schedule, value_name = "CRON")]
    pub schedule: Option<String>,
    /// More findings than this count or share hold new repairs; or none.
    #[arg(long, value_name = "BRAKE")]
    pub brake: Option<String>,
    /// A parameter of the file; may be repeated.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = checked_param)]
    pub params: Vec<String>,
    /// Take a value back: mode, schedule, brake or param.NAME; may be repeated.
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
}

fn checked_moment(text: &str) -> Result<String, String> {
    chrono::DateTime::parse_from_rfc3339(text)
        .map(|_| text.to_owned())
        .map_err(|_| "not a moment such as 2026-03-01T08:00:00Z".to_owned())
}

fn checked_param(text: &str) -> Result<String, String> {
    text.split_once('=').map(|_| text.to_owned()).ok_or_else(|| "not NAME=VALUE".to_owned())
}
