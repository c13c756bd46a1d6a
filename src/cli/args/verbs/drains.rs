//! Verbs of `trued fileserver` about leaving, stopping and coming back.

use super::super::checked_duration;
use super::Change;
use clap::Args;

/// `trued fileserver evacuate`
#[derive(Debug, Args)]
pub struct Evacuate {
    /// Their names or numbers: all are emptied, or none is.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// Stay, and say how far it is and what is in the way, until nothing is left and nothing runs there.
    #[arg(long)]
    pub watch: bool,
    /// Longest time to watch; exit code 6 when it is over.
    #[arg(long, requires = "watch", value_parser = checked_duration, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}

/// `trued fileserver quiesce`
#[derive(Debug, Args)]
pub struct Quiesce {
    /// Its name or number.
    pub name: String,
    /// Wait until no long read is left: then it is safe to reboot.
    #[arg(long)]
    pub wait: bool,
    /// Longest wait; exit code 6 when it is over.
    #[arg(long, requires = "wait", value_parser = checked_duration, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}

/// `trued fileserver lost`
#[derive(Debug, Args)]
pub struct Lost {
    /// Its name or number.
    pub name: String,
    /// Do not ask for its name.
    #[arg(long)]
    pub yes: bool,
    /// Stay until its last replica is forgotten.
    #[arg(long)]
    pub watch: bool,
    /// Longest time to watch; exit code 6 when it is over.
    #[arg(long, requires = "watch", value_parser = checked_duration, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}

/// `trued fileserver accept-empty`
#[derive(Debug, Args)]
pub struct AcceptEmpty {
    /// Its name or number.
    pub name: String,
    /// Do not ask for its name.
    #[arg(long)]
    pub yes: bool,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}

/// `trued fileserver ok-to-stop`
#[derive(Debug, Args)]
pub struct OkToStop {
    /// Their names or numbers.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// How long a yes is kept for you: others who ask meanwhile count these as stopped.
    #[arg(long = "for", default_value = "30m", value_parser = checked_duration, value_name = "DURATION")]
    pub keep: String,
    /// Give a right back.
    #[arg(long)]
    pub release: bool,
    /// Why and whether.
    #[command(flatten)]
    pub change: Change,
}
