//! The tree of commands, flags and their help.

mod goal;
mod inventory;
pub mod told;
mod verbs;
mod work;

pub use goal::{GoalCommand, GoalVerb, SetValues};
pub use inventory::{Asked, InventoryCommand, InventoryVerb};
pub use verbs::{
    AcceptEmpty, AddedRole, Change, Evacuate, FileserverCommand, FileserverVerb, Import, Lost, OkToStop,
    PartCommand, PartVerb, Quiesce, RepoCommand, RepoVerb,
};

pub use work::{
    AttemptVerb, Attempts, Backlog, BacklogVerb, Choice, Filter, LimitVerb, LimitsCommand, RepairCommand,
    RepairVerb,
};

use crate::config::value;
use crate::telemetry::LogFormat;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Self-healing storage for Git.
#[derive(Debug, Parser)]
#[command(name = "trued", version, about, propagate_version = true, max_term_width = 100)]
pub struct Arguments {
    /// Flags of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Address of the API; without it, the one that DIR of --data names.
    #[arg(long, global = true, env = "TRUED_URL", value_name = "URL")]
    pub url: Option<String>,
    /// Data directory of `trued up`.
    #[arg(long, global = true, default_value = "./trued-data", value_name = "DIR")]
    pub data: PathBuf,
    /// How answers are written.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// How log lines are written.
    #[arg(long, global = true, value_enum, default_value_t = Log::Text)]
    pub log_format: Log,
    /// A configuration file, over /etc/trued/trued.toml.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Log {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl From<Log> for LogFormat {
    fn from(log: Log) -> Self {
        match log {
            Log::Text => Self::Text,
            Log::Json => Self::Json,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything on this machine: controller, worker, API, and fileservers' agents.
    Up(Up),
    /// Run a controller and the API.
    Serve(Serve),
    /// Run a worker.
    Worker(Worker),
    /// Run a router: Git clients' requests over HTTP.
    Router(Router),
    /// Run a fileserver's agent.
    Agent(Agent),
    /// Bring the database's tables up to date.
    Migrate(Migrate),
    /// What lies on disks, against the database.
    Inventory(InventoryCommand),
    /// Parts of the fleet and their keys.
    Part(PartCommand),
    /// Repositories.
    Repo(RepoCommand),
    /// Fileservers.
    Fileserver(FileserverCommand),
    /// Goals.
    Goal(GoalCommand),
    /// Repairs, with the limits that hold.
    Repair(RepairCommand),
    /// Open findings that need a repair.
    Backlog(Backlog),
    /// Attempts that are queued or running.
    Attempts(Attempts),
    /// Limits: what holds, who owns it, and setting them while everything runs.
    Limits(LimitsCommand),
    /// Why a repository, replica or fileserver is as it is: goals, repairs, their story.
    Why(Why),
    /// The fleet at a glance. Exit code 3: findings are open; 7: a goal is unknown.
    Status,
    /// The configuration.
    Config(ConfigCommand),
}

/// `trued up`
#[derive(Debug, Args)]
pub struct Up {
    /// Address of the API.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// How many fileservers, each in a rack of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64), value_name = "N")]
    pub fileservers: u16,
    /// When goals that name no schedule are evaluated: cron with seconds, UTC.
    #[arg(long, value_parser = checked_schedule, value_name = "CRON")]
    pub schedule: Option<String>,
    /// How long a fileserver may be offline before its copies are made elsewhere.
    #[arg(long, value_parser = checked_duration, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Leave agents that die dead.
    #[arg(long)]
    pub no_respawn: bool,
    /// The database, instead of a file in the data directory.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Address that Git clients clone from; without it, a free port of this machine's own, the same at each start.
    #[arg(long, value_name = "ADDR")]
    pub router_listen: Option<SocketAddr>,
    /// Bytes that each fileserver says it has, such as 10GiB; without it, an equal share of the disk.
    #[arg(long, value_parser = checked_size, value_name = "SIZE")]
    pub capacity: Option<String>,
}

/// `trued serve`
#[derive(Debug, Args)]
pub struct Serve {
    /// The controller's enrolment file, from `trued part add controller NAME`.
    #[arg(long, value_name = "FILE")]
    pub enrolment: PathBuf,
    /// Run a worker too.
    #[arg(long, requires = "worker_enrolment")]
    pub worker: bool,
    /// That worker's enrolment file.
    #[arg(long, value_name = "FILE")]
    pub worker_enrolment: Option<PathBuf>,
    /// The database.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Address of the API.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// When goals that name no schedule are evaluated: cron with seconds, UTC.
    #[arg(long, value_parser = checked_schedule, value_name = "CRON")]
    pub schedule: Option<String>,
    /// How long a fileserver may be offline before its copies are made elsewhere.
    #[arg(long, value_parser = checked_duration, value_name = "DURATION")]
    pub grace: Option<String>,
}

/// `trued worker`
#[derive(Debug, Args)]
pub struct Worker {
    /// The worker's enrolment file, from `trued part add worker NAME`.
    #[arg(long, value_name = "FILE")]
    pub enrolment: PathBuf,
    /// The database.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
}

/// `trued router`
#[derive(Debug, Args)]
pub struct Router {
    /// The router's enrolment file, from `trued part add router NAME`.
    #[arg(long, value_name = "FILE")]
    pub enrolment: PathBuf,
    /// The database.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Address that Git clients' requests come to.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
}

/// `trued agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// The agent's enrolment file, from `trued fileserver add NAME`.
    #[arg(long, value_name = "FILE")]
    pub enrolment: PathBuf,
    /// The directory that it owns.
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Address to listen on.
    #[arg(long, value_name = "ADDR")]
    pub listen: SocketAddr,
    /// Bytes that it says it has, such as 10GiB.
    #[arg(long, value_parser = checked_size, value_name = "SIZE")]
    pub capacity: Option<String>,
    /// End when standard input ends: the parent is gone.
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// `trued migrate`
#[derive(Debug, Args)]
pub struct Migrate {
    /// The database.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// Only say how its tables stand, and make no file; exit code 1: migrations are missing, 2: a newer trued made
    /// them, or there are none.
    #[arg(long)]
    pub check: bool,
}

/// `trued why`
#[derive(Debug, Args)]
pub struct Why {
    /// A repository or fileserver by name or number, or REPOSITORY@FILESERVER.
    pub subject: String,
}

/// `trued config`
#[derive(Debug, Args)]
pub struct ConfigCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Read all of it, with what it sets over goals, and say what is wrong; opens nothing but files.
    Check,
    /// Show every key with its value; passwords are masked.
    Show {
        /// Where each value came from.
        #[arg(long)]
        origin: bool,
    },
}

fn checked_duration(text: &str) -> Result<String, String> {
    value::duration(text).map(|_| text.to_owned())
}

fn checked_size(text: &str) -> Result<String, String> {
    value::size(text).map(|_| text.to_owned())
}

fn checked_schedule(text: &str) -> Result<String, String> {
    value::schedule(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_tree_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn wrong_flags_are_told_what_is_near() {
        let error = parse("trued statu").unwrap_err().to_string();
        assert!(error.contains("status"), "{error}");
        let error = parse("trued up --fileserver 3").unwrap_err().to_string();
        assert!(error.contains("--fileservers"), "{error}");
    }

    #[test]
    fn values_are_checked_before_anything_is_opened() {
        for wrong in [
            "trued up --grace soon",
            "trued up --fileservers 0",
            "trued up --capacity much",
            "trued backlog --state asleep",
            "trued backlog retry --state asleep --reason x",
            "trued backlog bump 7 --priority 1000 --reason x",
            "trued limits set re-replicate.in_flight",
            "trued repo create x --object-format md5",
            "trued serve --worker --enrolment x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let schedule = ["trued", "up", "--schedule", "*/5 * * * *"];
        let error = Arguments::try_parse_from(schedule).unwrap_err().to_string();
        assert!(error.contains("seconds come first"), "{error}");
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        assert!(parse("trued --url http://127.0.0.1:1 status -o json").is_ok());
        assert!(parse("trued status -o json --url http://127.0.0.1:1").is_ok());
        assert!(parse("trued up --data ./d --no-respawn").is_ok());
    }

    #[test]
    fn the_address_of_a_new_fileserver_is_not_taken_for_the_api() {
        let line = "trued fileserver add fs-9 --rack r --url http://agent:1 --api http://api:1";
        let Command::Fileserver(FileserverCommand { verb }) = parse(line).unwrap().command else { panic!() };
        let FileserverVerb::Add { agent_url, api, .. } = verb else { panic!() };
        assert_eq!((agent_url.as_str(), api.as_deref()), ("http://agent:1", Some("http://api:1")));
        assert!(parse("trued fileserver add fs-9 --rack r").is_err());
    }
}
