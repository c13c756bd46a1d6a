//! `trued inventory` and its verbs.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `trued inventory`
#[derive(Debug, Args)]
pub struct InventoryCommand {
    /// What to do.
    #[command(subcommand)]
    pub verb: InventoryVerb,
}

/// What to do with what lies on disks.
#[derive(Debug, Subcommand)]
pub enum InventoryVerb {
    /// Compare disks with the database, and list every difference. Changes nothing. Exit code 3: there are some.
    Verify {
        /// Whom to ask.
        #[command(flatten)]
        asked: Asked,
    },
    /// Make the database's rows anew from what lies on disks; rows that are there stay. Changes no disk.
    Import {
        /// Whom to ask.
        #[command(flatten)]
        asked: Asked,
        /// An agent's enrolment file: an empty database gets the fleet's checksum key from it.
        #[arg(long, value_name = "FILE")]
        key_from: Option<PathBuf>,
        /// Only say what would be made.
        #[arg(long)]
        dry_run: bool,
    },
}

/// The database, the controller in whose name agents are asked, and which of them.
#[derive(Debug, Args)]
pub struct Asked {
    /// The controller's enrolment file; without it, the one in DIR of --data.
    #[arg(long, value_name = "FILE")]
    pub enrolment: Option<PathBuf>,
    /// The database; without it, the configured one, or the one in DIR of --data.
    #[arg(long, value_name = "URL")]
    pub database_url: Option<String>,
    /// A fileserver, by name; one that the database does not know as NAME=RACK@URL. May be repeated; none: all that the
    /// database knows.
    #[arg(long = "fileserver", value_name = "NAME")]
    pub fileservers: Vec<String>,
}
