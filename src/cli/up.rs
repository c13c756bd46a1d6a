//! `trued up`: everything on this machine. Controller, worker and API in this process, an agent
//! process for each fileserver, so that a person can really kill one. A second start resumes.

pub mod child;
pub mod directory;
pub mod door;
pub mod fleet;
pub mod waits;

use super::args::{Global, Up};
use super::client::UpFile;
use super::failure::Exit;
use super::program::files::{self, Directories};
use super::program::join::{Base, Controlling};
use super::program::{ENDS_WITHIN, notify, stopped};
use super::{migrate, output, settings};
use crate::config::{Config, Layers};
use crate::database::{Database, fileservers};
use crate::goal::library::write_shipped;
use crate::http;
use crate::repair;
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::Metrics;
use anyhow::Context as _;
use child::Children;
use directory::DataDirectory;
use door::{FrontDoor, anybody};
use fleet::Members;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use waits::{Waits, absent, missing, writes};

/// How long "ready" waits for all agents to be online.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long attempts may go on when a person ends it: they are taken up at the next start.
const GRACE: Duration = Duration::from_secs(5);

/// Time between two looks at that.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs it until Ctrl-C or SIGTERM.
///
/// # Errors
/// When it cannot start.
pub async fn run(global: &Global, ask: Up) -> anyhow::Result<Exit> {
    let (layers, mut config) = asked_for(global, &ask)?;
    let ends_within = ENDS_WITHIN.max(config.worker.shutdown_grace + Duration::from_secs(4));
    // First what may be refused, then what changes something.
    let listener = http::bind(config.http.listen, &layers.given("http.listen", Some("--listen"))).await?;
    let address = listener.local_addr()?;
    let routing = FrontDoor::configured(&layers, &config).await?;
    let mut waits = Waits::begin();
    let data = DataDirectory::take(&global.data)?;
    let (db, identity) = waits.during("the database to be opened", database(&config, &data)).await?;
    let directories = directories(&layers, &config, &data)?;
    let prepared = fleet::prepare(&db, &identity, &data, ask.fileservers, routing.port()?);
    let members = waits.during("the database to take the fleet's parts", prepared).await?;
    let capacity = match config.agent.capacity {
        Some(configured) => configured,
        None => share_of_disk(data.path(), members.agents.len())?,
    };
    let routing = routing.open(members.router_port).await?;
    let cloned_from = format!("http://{}", routing.local_addr()?);
    if config.router.url.is_empty() {
        config.router.url.clone_from(&cloned_from);
    }
    let anybody = anybody(&layers, &config, routing.local_addr()?);
    let shutdown = Shutdown::new();
    let goals = std::path::absolute(&directories.goals)?;
    let base = Base::new(global, config, db.clone(), identity, directories);
    let base = waits.during("goals to be tried on the database", base).await?;
    let strays = layers.strays().map(|(name, _)| name.to_owned()).collect();
    let children = Children::new(members.agents.clone(), !ask.no_respawn, capacity, strays);
    children.start(&shutdown)?;
    let (metrics, counted) = Metrics::with_router();
    let control = base.control(&shutdown, Controlling { enrolment: &members.controller, listener, metrics });
    waits.during("the controller to load its goals", control).await?;
    base.work(&shutdown, &members.worker)?;
    base.route(&shutdown, &members.router, routing, anybody, counted)?;
    data.announce(&UpFile { url: format!("http://{address}"), pid: std::process::id() })?;
    let stop = shutdown.token();
    tokio::select! {
        ready = ready(&db, &members, &mut waits) => {
            tell(address, &cloned_from, &data, &goals, &children, ready?);
            notify::ready(&shutdown);
            tokio::select! {
                () = stopped() => {}
                () = stop.cancelled() => {}
            }
        }
        () = stopped() => {}
        () = stop.cancelled() => {}
    }
    eprintln!("stopping");
    let in_time = shutdown.finish(ends_within).await;
    data.withdraw();
    let _ = tokio::time::timeout(Duration::from_millis(500), db.close()).await;
    if !in_time {
        eprintln!("some work had not ended and is taken up at the next start");
    }
    Ok(Exit::Done)
}

/// The configuration, with what the command line says over it.
fn asked_for(global: &Global, ask: &Up) -> anyhow::Result<(Layers, Config)> {
    let (layers, mut config) = settings::with_flags(
        global,
        &[
            ("--database-url", "database.url", ask.database_url.clone()),
            ("--listen", "http.listen", ask.listen.map(|address| address.to_string())),
            ("--schedule", "goals.schedule", ask.schedule.clone()),
            ("--grace", "fleet.grace", ask.grace.clone()),
            ("--capacity", "agent.capacity", ask.capacity.clone()),
            ("--router-listen", "router.listen", ask.router_listen.map(|address| address.to_string())),
        ],
    )?;
    if layers.is_default("worker.shutdown_grace") {
        config.worker.shutdown_grace = GRACE;
    }
    Ok((layers, config))
}

/// Goals and repairs: as configured, else kept in the data directory, where people edit them. Shipped
/// files that are missing there are written out at each start: a goal is switched off by `mode: observe`,
/// not by deleting its file.
fn directories(layers: &Layers, config: &Config, data: &DataDirectory) -> anyhow::Result<Directories> {
    let mut found = files::directory(layers, config);
    if layers.is_default("goals.directory") {
        found.goals = data.path().join("goals");
        write_shipped(&found.goals).with_context(|| format!("writing goals to {}", found.goals.display()))?;
    }
    if layers.is_default("repairs.directory") {
        let repairs = data.path().join("repairs");
        repair::library::write_shipped(&repairs)
            .with_context(|| format!("writing repairs to {}", repairs.display()))?;
        found.repairs = Some(repairs);
    }
    Ok(found)
}

/// All agents stand on one disk. If each took the whole of it for its own, the fleet would believe in several, and
/// in each being full of what others keep there.
fn share_of_disk(data: &Path, agents: usize) -> anyhow::Result<i64> {
    let stat =
        rustix::fs::statvfs(data).with_context(|| format!("asking for the disk of {}", data.display()))?;
    let total = stat.f_blocks.saturating_mul(stat.f_frsize);
    Ok(i64::try_from(total / u64::try_from(agents.max(1))?).unwrap_or(i64::MAX))
}

async fn database(
    config: &Config,
    data: &DataDirectory,
) -> anyhow::Result<(Database, crate::database::fleet::Fleet)> {
    let url = match config.database_url.as_str() {
        "" => format!("sqlite:{}", data.path().join("trued.db").display()),
        url => url.to_owned(),
    };
    let db = migrate::open(&url).await?;
    db.migrate().await?;
    let identity = migrate::ensure_fleet(&db).await?;
    // Refused: the note in `status` says so.
    migrate::mend_role(&db, config).await?;
    Ok((db, identity))
}

/// Waits until all agents are online; `false`: not all were in time. A fleet whose database takes no writes, for want
/// of room say, is not ready however long it lasts.
async fn ready(db: &Database, members: &Members, waits: &mut Waits) -> anyhow::Result<bool> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        let all = waits.during("the database to answer", fileservers::all(db)).await?;
        let absent = absent(&all, &members.agents);
        if absent.is_empty() {
            return Ok(true);
        }
        let (late, due) = (Instant::now() > until, waits.is_due());
        if late || due {
            let refused = writes(db, &members.controller.part.id).await;
            if late && refused.is_none() {
                return Ok(false);
            }
            if due {
                eprintln!("{}", waits.line(&missing(&absent, refused.as_deref())));
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn tell(
    address: SocketAddr,
    cloned_from: &str,
    data: &DataDirectory,
    goals: &Path,
    children: &Children,
    all: bool,
) {
    let state = if all { "ready" } else { "ready, but not all fileservers are online" };
    output::line(&format!("{state}: http://{address}"));
    output::line(&format!("router       {cloned_from}  (git clone {cloned_from}/NAME.git)"));
    output::line(&format!("data         {}", data.path().display()));
    output::line(&format!("goals        {}", goals.display()));
    for line in children.lines() {
        output::line(&line);
    }
    output::line("next         trued repo import PATH…    trued status    trued why NAME    (Ctrl-C stops)");
}
