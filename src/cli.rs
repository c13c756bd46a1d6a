//! The commands; the one place where all parts of the program are joined.
//!
//! Data goes to stdout, all else to stderr. An error is one sentence, with a hint where one
//! helps, and its exit code says of what kind it was ([`failure::Exit`]).

pub mod args;
pub mod attempts;
pub mod backlog;
pub mod client;
pub mod confirm;
pub mod drain;
pub mod enrolment;
pub mod failure;
pub mod fileserver;
pub mod goal;
pub mod import;
pub mod inventory;
pub mod limits;
pub mod migrate;
pub mod output;
pub mod part;
pub mod program;
pub mod repair;
pub mod repo;
pub mod settings;
pub mod status;
pub mod story;
pub mod up;
pub mod why;

use args::{Arguments, Command};
use clap::Parser as _;
use failure::Exit;
use std::process::ExitCode;

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let error = args::told::told(error, &std::env::args().collect::<Vec<_>>());
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage as u8 } else { 0 });
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("trued: cannot start threads: {error}");
            return ExitCode::from(Exit::Failed as u8);
        }
    };
    let outcome = runtime.block_on(run(arguments));
    // Blocking reads of standard input, if any, must not hold the process.
    runtime.shutdown_background();
    match outcome {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) => {
            failure::print(&error);
            ExitCode::from(failure::exit_of(&error) as u8)
        }
    }
}

/// Runs one command.
///
/// # Errors
/// As the command.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { global, command } = arguments;
    let people = matches!(command, Command::Up(_));
    let long = matches!(
        command,
        Command::Up(_) | Command::Serve(_) | Command::Worker(_) | Command::Router(_) | Command::Agent(_)
    );
    // A short command's own lines are enough; what runs for long tells what it does.
    let filter = match (long, people) {
        // Its events are lines on stdout already.
        (_, true) => "warn,sqlx=error,trued::event=off",
        (true, false) => "info,sqlx=warn",
        (false, false) => "warn,sqlx=error",
    };
    crate::telemetry::init(global.log_format.into(), filter, people)?;
    match command {
        Command::Up(up) => Box::pin(up::run(&global, up)).await,
        Command::Serve(serve) => program::serve(&global, serve).await,
        Command::Worker(worker) => program::worker(&global, worker).await,
        Command::Router(router) => program::router(&global, router).await,
        Command::Agent(agent) => program::agent(&global, agent).await,
        Command::Migrate(ask) => migrate::run(&global, ask).await,
        Command::Inventory(ask) => inventory::run(&global, ask).await,
        Command::Part(ask) => part::run(&global, ask).await,
        Command::Repo(ask) => repo::run(&global, ask).await,
        Command::Fileserver(ask) => fileserver::run(&global, ask).await,
        Command::Goal(ask) => goal::run(&global, ask).await,
        Command::Repair(ask) => repair::run(&global, ask).await,
        Command::Backlog(ask) => backlog::run(&global, ask).await,
        Command::Attempts(ask) => attempts::run(&global, ask).await,
        Command::Limits(ask) => limits::run(&global, ask).await,
        Command::Why(ask) => why::run(&global, &ask).await,
        Command::Status => status::run(&global).await,
        Command::Config(ask) => settings::run(&global, &ask),
    }
}
