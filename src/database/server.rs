//! PostgreSQL as one process uses it: its addresses, the pool of now, and how it stands.
//!
//! A pool may become useless in ways that its connections do not notice: its server hangs,
//! is read-only after a failover, or another address is the one to write to. Then the whole
//! pool is renewed, and statements that wait on the old one are given up with an error: a
//! statement is never waited for longer than the database is known to be away.

use super::standing::{Standing, State};
use super::{Doing, PATIENCE, Result, address};
use crate::clock;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection as _};
use std::future::Future;
use std::str::FromStr as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// Connections to PostgreSQL of one process.
const CONNECTIONS: u32 = 20;

/// A connection that was idle for less is not tried before it is used.
const TRUSTED: Duration = Duration::from_secs(2);

/// Clones share one pool.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    addresses: Vec<PgConnectOptions>,
    current: RwLock<Current>,
    renewed: watch::Sender<u64>,
    standing: watch::Sender<Standing>,
}

struct Current {
    pool: PgPool,
    at: usize,
}

/// Without secrets.
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("at", &self.name(self.at())).finish_non_exhaustive()
    }
}

impl Server {
    /// Connects to the first of the URL's servers that takes writes; else to the first that answers.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let mut addresses = Vec::new();
        for url in address::each(url) {
            let mut options = PgConnectOptions::from_str(&url).doing("reading the database's URL")?;
            if !url.contains("application_name=") {
                options = options.application_name("trued");
            }
            addresses.push(options.disable_statement_logging());
        }
        let at = first(&addresses).await?;
        let current = Current { pool: pool(&addresses[at]), at };
        let server = Self {
            inner: Arc::new(Inner {
                addresses,
                current: RwLock::new(current),
                renewed: watch::Sender::new(0),
                standing: watch::Sender::default(),
            }),
        };
        super::pooler::refuse(&server.inner.addresses[at]).await?;
        Ok(server)
    }

    /// The pool of now, held until it is renewed.
    pub(crate) fn leash(&self) -> Leash {
        // In this order: a renewal in between is noticed.
        let renewed = self.inner.renewed.subscribe();
        Leash { pool: self.pool(), server: self.clone(), renewed }
    }

    /// The pool of now.
    pub(crate) fn pool(&self) -> PgPool {
        self.inner.current.read().unwrap_or_else(PoisonError::into_inner).pool.clone()
    }

    /// Closes the pool.
    pub(super) async fn close(&self) {
        self.pool().close().await;
    }

    pub(super) fn standing(&self) -> Standing {
        self.inner.standing.borrow().clone()
    }

    /// Which address is used.
    pub(super) fn at(&self) -> usize {
        self.inner.current.read().unwrap_or_else(PoisonError::into_inner).at
    }

    pub(super) fn addresses(&self) -> &[PgConnectOptions] {
        &self.inner.addresses
    }

    /// An address for people.
    pub(super) fn name(&self, at: usize) -> String {
        let options = &self.inner.addresses[at];
        match options.get_socket() {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    /// A new pool at an address; what waits on the old one is given up.
    pub(super) fn renew(&self, at: usize) {
        {
            let mut current = self.inner.current.write().unwrap_or_else(PoisonError::into_inner);
            *current = Current { pool: pool(&self.inner.addresses[at]), at };
        }
        self.inner.renewed.send_modify(|count| *count += 1);
    }

    /// Notes a look. `true`: the state is another one.
    pub(super) fn stands(&self, state: &Seen, note: impl FnOnce(&mut Standing)) -> bool {
        let mut news = false;
        self.inner.standing.send_modify(|standing| {
            news = std::mem::discriminant(&standing.state) != std::mem::discriminant(&state.at(0));
            let since = match &standing.state {
                State::ReadOnly { since, .. } | State::Away { since, .. } if !news => *since,
                _ => clock::now(),
            };
            standing.state = state.at(since);
            note(standing);
        });
        news
    }
}

/// What a look saw.
#[derive(Debug, Clone)]
pub(super) enum Seen {
    Here,
    ReadOnly(String),
    Away(String),
}

impl Seen {
    fn at(&self, since: crate::model::Millis) -> State {
        match self {
            Self::Here => State::Here,
            Self::ReadOnly(server) => State::ReadOnly { since, server: server.clone() },
            Self::Away(why) => State::Away { since, why: why.clone() },
        }
    }
}

/// A pool for as long as it is the one of now.
#[derive(Clone)]
pub(crate) struct Leash {
    pool: PgPool,
    server: Server,
    renewed: watch::Receiver<u64>,
}

impl std::fmt::Debug for Leash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leash").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Leash {
    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Waits for a statement, but not past the renewal of its pool.
    pub(crate) async fn hold<T>(
        &self,
        statement: impl Future<Output = std::result::Result<T, sqlx::Error>>,
    ) -> std::result::Result<T, sqlx::Error> {
        let away = self.server.inner.standing.borrow().trouble().filter(|_| self.is_in_vain());
        if let Some(why) = away {
            return Err(given_up(why));
        }
        let mut renewed = self.renewed.clone();
        tokio::select! {
            biased;
            result = statement => result,
            _ = renewed.changed() => Err(given_up("the connection was given up, another takes its place".to_owned())),
        }
    }

    fn is_in_vain(&self) -> bool {
        self.server.inner.standing.borrow().is_away()
    }
}

fn given_up(why: String) -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why))
}

/// Connects when it is first used.
fn pool(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .idle_timeout(Duration::from_mins(5))
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > TRUSTED {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(options.clone())
}

/// The place of the first server that takes writes; else of the first that answers.
async fn first(addresses: &[PgConnectOptions]) -> Result<usize> {
    let mut answers = None;
    let mut refused = sqlx::Error::PoolTimedOut;
    for (at, options) in addresses.iter().enumerate() {
        let asked = async {
            let mut connection = options.connect().await?;
            let read_only = super::keeper::is_read_only(&mut connection).await?;
            connection.close().await?;
            Ok(read_only)
        };
        match tokio::time::timeout(PATIENCE, asked).await.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
            Ok(false) => return Ok(at),
            Ok(true) => answers = answers.or(Some(at)),
            Err(error) => refused = error,
        }
    }
    answers.ok_or(refused).doing("connecting to PostgreSQL")
}
