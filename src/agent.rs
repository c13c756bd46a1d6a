//! The program on a fileserver: it owns a root directory of replicas, and answers signed requests about them.
//!
//! It knows nothing of SQL, goals or repairs: it does what a grant allows, one safe action at a time,
//! and says what it saw.

pub mod content;
pub mod git;
pub mod layout;
pub mod store;

mod admission;
mod bandwidth;
mod durable;
mod epochs;
mod holds;
mod inventory;
mod leftovers;
mod long;
mod parts;
mod push;
mod root;
mod server;
mod space;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod upload_pack;

pub use inventory::sweep::SweepSettings;
pub use push::PushSettings;
pub(crate) use root::lock_alone;

use crate::model::Millis;
use crate::model::grant::{Enrolment, Role};
use crate::shutdown::Shutdown;
use admission::Admission;
use bandwidth::Bandwidth;
use epochs::Epochs;
use git::Git;
use inventory::sweep::Sweeper;
use layout::Layout;
use parts::Parts;
use push::Pushes;
use server::Agent;
use status::Monitor;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use upload_pack::Reads;

/// How long work may take to end when the agent stops: git gets TERM, two seconds, KILL.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Where an agent listens.
#[derive(Debug)]
pub enum Listen {
    /// At this address; port 0 takes any free one.
    At(SocketAddr),
    /// On a socket that is bound and listens already.
    Bound(std::net::TcpListener),
}

/// What an agent starts with.
#[derive(Debug)]
pub struct Options {
    /// Who it is, whom it believes, the checksum key.
    pub enrolment: Enrolment,
    /// Its root; made and set up when it is new.
    pub root: PathBuf,
    /// Where it listens.
    pub listen: Listen,
    /// Bytes that its repositories may use. Default: none, what the disk has.
    pub capacity: Option<i64>,
    /// Bytes per second that all copies share, in and out. Default 0: no bound.
    pub bytes_per_second: i64,
    /// How often every repository is looked at. Default: [`SweepSettings::default`].
    pub sweep: SweepSettings,
    /// Copies, imports and verifications at a time; more wait ten seconds and are then refused as busy.
    /// Default: 32.
    pub copies: usize,
    /// Checksums and lists of references at a time, likewise. Default: 16.
    pub checks: usize,
    /// Git reads at a time, likewise. Default: 256.
    pub reads: usize,
    /// Bounds of pushes. Default: [`PushSettings::default`].
    pub pushes: PushSettings,
    /// What is made of faults in pushed objects, as `fault=ignore|warn|error, …` by git's names. Default: empty, git's
    /// own severities.
    pub fsck: String,
}

impl Options {
    /// Options with every default.
    #[must_use]
    pub fn new(enrolment: Enrolment, root: impl Into<PathBuf>, listen: Listen) -> Self {
        Self {
            enrolment,
            root: root.into(),
            listen,
            capacity: None,
            bytes_per_second: 0,
            sweep: SweepSettings::default(),
            copies: 32,
            checks: 16,
            reads: 256,
            pushes: PushSettings::default(),
            fsck: String::new(),
        }
    }
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The root is another's.
    #[error("{} is not this agent's root: {why}", root.display())]
    WrongRoot {
        /// The root.
        root: PathBuf,
        /// Whose it is.
        why: String,
    },
    /// The root was written by a newer version.
    #[error("{} is of format {found}, this version knows {known} at most", root.display())]
    NewerRoot {
        /// The root.
        root: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// Another agent works in the root.
    #[error("another agent works in {}", root.display())]
    RootInUse {
        /// The root.
        root: PathBuf,
    },
    /// Something listens at the address already.
    #[error("{address} is in use by another program")]
    PortInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system does not let it listen there.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// The enrolment is not an agent's, or lacks a key.
    #[error("the enrolment does not fit: {0}")]
    Enrolment(String),
    /// Git is missing or too old.
    #[error("git does not fit: {0}")]
    GitTooOld(String),
    /// Git does not know a fault or a severity.
    #[error("agent.fsck does not fit: {0}")]
    Fsck(String),
    /// Something on disk or of the network failed.
    #[error("{doing} failed")]
    Io {
        /// What was being done.
        doing: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl AgentError {
    fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}

/// Runs an agent until `shutdown` is cancelled; `ready` is told where it listens once it serves.
/// Running work is ended then, and waited for, for at most eight seconds.
///
/// # Errors
/// When it cannot start; nothing was changed then in a root that is not its own.
pub async fn run(
    options: Options,
    shutdown: CancellationToken,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), AgentError> {
    check(&options.enrolment)?;
    let (listener, address) = listen(options.listen).await?;
    let root = std::path::absolute(&options.root).map_err(AgentError::io("naming the root"))?;
    let layout = Layout::new(root);
    let (taken, enrolment) = (layout.clone(), options.enrolment.clone());
    let root = tokio::task::spawn_blocking(move || root::take(&taken, &enrolment))
        .await
        .map_err(std::io::Error::other)
        .map_err(AgentError::io("taking the root"))??;
    let git = Git::find(layout.root()).map_err(|error| AgentError::GitTooOld(format!("{error:#}")))?;
    let fsck = content::severities(&git, &layout, &options.fsck).await.map_err(|why| match why {
        content::Unread::Words(why) => AgentError::Fsck(why),
        content::Unread::Git(why) => AgentError::GitTooOld(why),
    })?;
    clear_leftovers(&layout)?;
    let parts = Parts::load(&layout, &options.enrolment).map_err(AgentError::io("reading parts.json"))?;
    let mut store = Store::new(layout.clone(), git, &options.enrolment, options.capacity)
        .map_err(AgentError::Enrolment)?;
    store.bandwidth = Arc::new(Bandwidth::new(options.bytes_per_second));
    store.fsck = fsck;
    let tasks = Shutdown::new();
    let agent = Arc::new(Agent {
        admission: Admission::new(store.fleet.clone(), store.fileserver.clone(), parts),
        store: Arc::new(store),
        epochs: Epochs::new(layout),
        monitor: Monitor::new(root.owner.clone()),
        reads: Arc::new(Reads::default()),
        tasks: tasks.clone(),
        copies: Arc::new(Semaphore::new(options.copies)),
        checks: Arc::new(Semaphore::new(options.checks)),
        serving: Arc::new(Semaphore::new(options.reads)),
        pushes: Pushes::new(options.pushes),
    });
    push::mend(&agent).await;
    watch(&agent, root.owner.clone(), options.sweep).await;
    tracing::info!(fileserver.name = agent.store.fileserver, %address, "the agent serves");
    ready(address);
    server::serve(listener, Arc::clone(&agent), shutdown).await;
    if !tasks.finish(STOP_WITHIN).await {
        tracing::warn!("some work had not ended when the agent stopped");
    }
    // Held until here: the root's lock, and with it the right to work there.
    drop(root);
    Ok(())
}

/// Starts what runs beside the requests, after one look at the disk for the first status.
async fn watch(agent: &Arc<Agent>, owner: root::Owner, settings: SweepSettings) {
    let (store, monitor, tasks) = (&agent.store, &agent.monitor, &agent.tasks);
    let sweeper = Arc::new(Sweeper {
        inventory: Arc::clone(&store.inventory),
        epochs: Arc::clone(&agent.epochs),
        owner,
        settings,
    });
    monitor.look(store).await;
    tasks.spawn(sweeper.run(tasks.token()));
    let (layout, space, epochs) = (store.layout.clone(), Arc::clone(&store.space), Arc::clone(&agent.epochs));
    tasks.spawn(leftovers::keep(layout, space, epochs, tasks.token()));
    tasks.spawn(Arc::clone(&agent.pushes).keep(tasks.token()));
    tasks.spawn(Arc::clone(monitor).watch(Arc::clone(store), tasks.token()));
    tasks.spawn(Arc::clone(monitor).test(Arc::clone(store), tasks.token()));
}

fn check(enrolment: &Enrolment) -> Result<(), AgentError> {
    let bad = |why: &str| Err(AgentError::Enrolment(why.to_owned()));
    if enrolment.part.role != Role::Agent {
        return Err(AgentError::Enrolment(format!("it is a {}'s", enrolment.part.role)));
    }
    if enrolment.checksum_key.is_none() {
        return bad("it has no checksum key");
    }
    if enrolment.signing_key().is_none() {
        return bad("its secret key cannot be read");
    }
    Ok(())
}

async fn listen(listen: Listen) -> Result<(TcpListener, SocketAddr), AgentError> {
    let listener = match listen {
        Listen::At(address) => TcpListener::bind(address).await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => AgentError::PortInUse { address },
            _ => AgentError::Listen { address, source: error },
        }),
        Listen::Bound(listener) => listener
            .set_nonblocking(true)
            .and_then(|()| TcpListener::from_std(listener))
            .map_err(AgentError::io("taking the listening socket")),
    }?;
    let address = listener.local_addr().map_err(AgentError::io("asking for the address"))?;
    Ok((listener, address))
}

fn clear_leftovers(layout: &Layout) -> Result<(), AgentError> {
    let cleared = leftovers::clear(layout, moment(crate::clock::now()))
        .map_err(AgentError::io("clearing what dead work left in staging"))?;
    if cleared > 0 {
        tracing::info!(cleared, "cleared what dead work left in staging");
    }
    Ok(())
}

/// A moment as file systems tell it.
fn moment(millis: Millis) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
