//! `trued serve`, `worker`, `router`, `agent`: one part each; and the joining of parts that `up` uses too.

pub mod asking;
pub mod files;
pub mod join;
pub mod notify;
pub mod route;

use super::args::{Agent, Global, Router, Serve, Worker};
use super::failure::{Exit, Failure};
use super::{enrolment, migrate, settings};
use crate::agent::{self, AgentError, Listen, Options, PushSettings, SweepSettings};
use crate::config::Config;
use crate::http;
use crate::model::chance::Chance;
use crate::model::grant::Role;
use crate::queue::Nudge;
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::Metrics;
use join::{Base, Controlling};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Everything but running attempts ends within this time of being asked to.
pub const ENDS_WITHIN: Duration = Duration::from_secs(9);

/// How a program goes when it is asked to.
#[derive(Debug, Clone, Copy)]
pub struct Leave {
    /// It says that it is not ready, and still answers, for so long.
    pub drain: Duration,
    /// Then everything ends within this.
    pub within: Duration,
}

impl Leave {
    fn of(config: &Config, api: bool, worker: bool) -> Self {
        let drain = if api { config.http.drain } else { Duration::ZERO };
        let within =
            if worker { ENDS_WITHIN.max(config.worker.shutdown_grace + HANDING_BACK) } else { ENDS_WITHIN };
        Self { drain, within }
    }
}

/// What it takes to give attempts back after their grace.
const HANDING_BACK: Duration = Duration::from_secs(5);

/// `trued serve`
///
/// # Errors
/// When it cannot start.
pub async fn serve(global: &Global, ask: Serve) -> anyhow::Result<Exit> {
    let flags = [
        ("--database-url", "database.url", ask.database_url),
        ("--listen", "http.listen", ask.listen.map(|address| address.to_string())),
        ("--schedule", "goals.schedule", ask.schedule),
        ("--grace", "fleet.grace", ask.grace),
    ];
    let (layers, config) = settings::with_flags(global, &flags)?;
    let url = settings::required(config.database_url.clone())?;
    let controller = enrolment::read(&ask.enrolment, Role::Controller)?;
    let worker = ask.worker_enrolment.as_deref().filter(|_| ask.worker);
    let worker = worker.map(|path| enrolment::read(path, Role::Worker)).transpose()?;
    let listener = http::bind(config.http.listen, &layers.given("http.listen", Some("--listen"))).await?;
    let (db, fleet) = migrate::open_current(&url).await?;
    enrolment::belongs(&ask.enrolment, &controller, &fleet)?;
    if let (Some(path), Some(worker)) = (&ask.worker_enrolment, &worker) {
        enrolment::belongs(path, worker, &fleet)?;
    }
    let goals = files::directory(&layers, &config);
    let leave = Leave::of(&config, true, worker.is_some());
    let base = Base::new(global, config, db, fleet, goals).await?;
    let shutdown = Shutdown::new();
    let address = listener.local_addr()?;
    base.control(&shutdown, Controlling { enrolment: &controller, listener, metrics: Metrics::default() })
        .await?;
    if let Some(worker) = worker {
        base.work(&shutdown, &worker)?;
    }
    eprintln!("ready: http://{address}");
    notify::ready(&shutdown);
    run_until_stopped(&shutdown, leave).await
}

/// `trued worker`
///
/// # Errors
/// When it cannot start.
pub async fn worker(global: &Global, ask: Worker) -> anyhow::Result<Exit> {
    let flags = [("--database-url", "database.url", ask.database_url)];
    let (layers, config) = settings::with_flags(global, &flags)?;
    let url = settings::required(config.database_url.clone())?;
    let enrolment = enrolment::read(&ask.enrolment, Role::Worker)?;
    let (db, fleet) = migrate::open_current(&url).await?;
    enrolment::belongs(&ask.enrolment, &enrolment, &fleet)?;
    let goals = files::directory(&layers, &config);
    let leave = Leave::of(&config, false, true);
    let pages = match config.worker.listen {
        Some(address) => Some(http::bind(address, &layers.given("worker.listen", None)).await?),
        None => None,
    };
    let base = Base::new(global, config, db, fleet, goals).await?;
    let shutdown = Shutdown::new();
    base.work(&shutdown, &enrolment)?;
    if let Some(listener) = pages {
        base.show(&shutdown, listener);
    }
    eprintln!("ready: worker {}", enrolment.part.name);
    notify::ready(&shutdown);
    run_until_stopped(&shutdown, leave).await
}

/// `trued router`
///
/// # Errors
/// When it cannot start.
pub async fn router(global: &Global, ask: Router) -> anyhow::Result<Exit> {
    let flags = [
        ("--database-url", "database.url", ask.database_url),
        ("--listen", "router.listen", ask.listen.map(|address| address.to_string())),
    ];
    let (layers, config) = settings::with_flags(global, &flags)?;
    let url = settings::required(config.database_url.clone())?;
    let enrolment = enrolment::read(&ask.enrolment, Role::Router)?;
    let given = layers.given("router.listen", Some("--listen"));
    let listener = http::bind_anywhere(config.router.listen, &given).await?;
    let (metrics, counted) = Metrics::with_router();
    let pages = match config.router.pages {
        Some(address) => Some((http::bind(address, &layers.given("router.pages", None)).await?, metrics)),
        None => None,
    };
    let authorizer = route::authorizer(&config.router, route::anonymous(&config.router))?;
    let (db, fleet) = migrate::open_current(&url).await?;
    enrolment::belongs(&ask.enrolment, &enrolment, &fleet)?;
    let leave = Leave { drain: config.http.drain, within: ENDS_WITHIN.max(config.router.shutdown_grace) };
    let shutdown = Shutdown::new();
    let address = listener.local_addr()?;
    let keep = (db.clone(), shutdown.token());
    shutdown.spawn(async move { keep.0.keep(keep.1).await });
    join::tell_seen(&db, &shutdown, &enrolment.part.id);
    let chance = Arc::new(Chance::new(enrolment::seed()?));
    let redis = join::redis(&config, &fleet.fleet_id, &chance)?;
    let post = redis.as_ref().map(|redis| redis.post().clone());
    if let Some(redis) = redis {
        shutdown.spawn(redis.send(shutdown.token()));
    }
    let known = db.clone();
    let with = route::Routing {
        config: &config,
        db,
        fleet: &fleet,
        enrolment: &enrolment,
        nudge: Nudge::only_carried_by(post.clone()),
        post,
        counted,
    };
    let agents = with.start(&shutdown, listener, pages, authorizer)?;
    route::until_believed(&known, &agents, &shutdown).await;
    eprintln!("ready: router {} at http://{address}", enrolment.part.name);
    notify::ready(&shutdown);
    run_until_stopped(&shutdown, leave).await
}

/// `trued agent`
///
/// # Errors
/// When it cannot start.
pub async fn agent(global: &Global, ask: Agent) -> anyhow::Result<Exit> {
    let flags = [("--capacity", "agent.capacity", ask.capacity)];
    let (_, config) = settings::with_flags(global, &flags)?;
    let enrolment = enrolment::read(&ask.enrolment, Role::Agent)?;
    let options = agent_options(&config, Options::new(enrolment, ask.root, Listen::At(ask.listen)));
    let shutdown = Shutdown::new();
    let stop = shutdown.token();
    let parent = ask.until_stdin_closes;
    shutdown.spawn(async move {
        tokio::select! {
            () = stopped() => {}
            () = stdin_closes(), if parent => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
    });
    agent::run(options, shutdown.token(), |address| {
        notify::ready(&shutdown);
        // A child's parent tells where everything is.
        if !parent {
            eprintln!("ready: http://{address}");
        }
    })
    .await
    .map_err(|error| agent_failure(error, parent))?;
    notify::stopping(ENDS_WITHIN);
    shutdown.finish(ENDS_WITHIN).await;
    Ok(Exit::Done)
}

fn agent_options(config: &Config, options: Options) -> Options {
    let sweep = SweepSettings { least: config.agent.sweep, ..SweepSettings::default() };
    let agent = &config.agent;
    let pushes = PushSettings {
        at_once: agent.push_packs,
        most: agent.pushes,
        waits: agent.push_wait,
        ..PushSettings::default()
    };
    Options {
        capacity: agent.capacity,
        bytes_per_second: agent.bytes_per_second,
        sweep,
        reads: agent.reads,
        pushes,
        fsck: agent.fsck.clone(),
        ..options
    }
}

/// `child`: of `trued up`, which gives it its address: nobody can give it another.
fn agent_failure(error: AgentError, child: bool) -> anyhow::Error {
    let usage = !matches!(error, AgentError::Io { .. });
    let address = matches!(error, AgentError::PortInUse { .. } | AgentError::Listen { .. });
    let error = anyhow::Error::from(error);
    if !usage {
        return error;
    }
    let failure = Failure::usage(super::failure::sentence(&error));
    if address && !child { failure.hint("give another address with --listen") } else { failure }.into()
}

/// Waits for Ctrl-C or SIGTERM, says that it is not ready any more, then waits for all tasks to end. A second
/// signal cuts the first wait short.
///
/// # Errors
/// When some had not ended in time.
pub async fn run_until_stopped(shutdown: &Shutdown, leave: Leave) -> anyhow::Result<Exit> {
    let stop: CancellationToken = shutdown.token();
    tokio::select! {
        () = stopped() => {
            shutdown.leave();
            notify::stopping(leave.drain + leave.within);
            tokio::select! {
                () = tokio::time::sleep(leave.drain) => {}
                () = stopped() => {}
            }
        }
        () = stop.cancelled() => {}
    }
    if shutdown.finish(leave.within).await {
        return Ok(Exit::Done);
    }
    Err(Failure::new(Exit::TimedOut, "some work had not ended when the program did").into())
}

/// Waits for Ctrl-C or SIGTERM.
pub async fn stopped() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be heard: the program ends only when it is killed");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Waits until standard input ends: whoever held its other end is gone.
async fn stdin_closes() {
    let mut stdin = tokio::io::stdin();
    let mut nothing = [0; 64];
    while stdin.read(&mut nothing).await.is_ok_and(|count| count > 0) {}
}
