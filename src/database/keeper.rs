//! The keeper: looks at PostgreSQL each second, says how it stands, and renews the pool when that helps.
//!
//! It has a connection of its own, so that it sees the server and not the queue for the
//! pool, and tries a connection of the pool as well, since those may lead to another server
//! than a new one would. It asks a bounded time: a server that hangs is away. When the
//! database is away or read-only, every address is tried, and the first that takes writes
//! is used from then on.

use super::server::{Seen, Server};
use super::standing::{Safety, risks};
use sqlx::{ConnectOptions as _, PgConnection};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest wait for an answer, and for a new connection: together they are below ten seconds.
const ANSWER: Duration = Duration::from_secs(4);
const CONNECT: Duration = Duration::from_secs(3);
/// How often the server's settings and its standbys' lag are read.
const SETTINGS: Duration = Duration::from_secs(15);

/// What the keeper remembers from one look to the next.
#[derive(Default)]
struct Own {
    connection: Option<PgConnection>,
    settings_at: Option<Instant>,
    looked: bool,
}

/// Looks until stopped.
pub(super) async fn keep(server: &Server, stop: CancellationToken) {
    let mut own = Own::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = look(server, &mut own) => {}
        }
        own.looked = true;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

async fn look(server: &Server, own: &mut Own) {
    if let Some(mut connection) = own.connection.take() {
        let asked = Instant::now();
        if let Some(Ok(false)) = within(ANSWER, is_read_only(&mut connection)).await {
            let round_trip = asked.elapsed();
            server.stands(&Seen::Here, |standing| standing.round_trip = Some(round_trip));
            if !pool_is_good(server).await {
                tracing::warn!("connections to the database lead elsewhere or nowhere; they are renewed");
                server.renew(server.at());
            }
            if own.settings_at.is_none_or(|at| at.elapsed() > SETTINGS) {
                own.settings_at = Some(Instant::now());
                read_settings(server, &mut connection).await;
            }
            own.connection = Some(connection);
            return;
        }
    }
    own.connection = search(server, own.looked).await;
    own.settings_at = None;
}

/// Tries every address at once.
async fn search(server: &Server, renew: bool) -> Option<PgConnection> {
    let tries = server.addresses().iter().map(|options| {
        within(CONNECT, async {
            let mut connection = options.connect().await?;
            let read_only = is_read_only(&mut connection).await?;
            Ok((connection, read_only))
        })
    });
    let (mut readable, mut refused) = (None, None);
    for (at, tried) in futures::future::join_all(tries).await.into_iter().enumerate() {
        match tried {
            Some(Ok((connection, false))) => {
                if renew || at != server.at() || !pool_is_good(server).await {
                    server.renew(at);
                }
                if server.stands(&Seen::Here, |standing| standing.round_trip = None) {
                    tracing::info!(server = server.name(at), "the database is back");
                }
                return Some(connection);
            }
            Some(Ok((_, true))) => readable = readable.or(Some(at)),
            Some(Err(error)) => refused = refused.or(Some(error.to_string())),
            None => {}
        }
    }
    let seen = match readable {
        Some(at) => Seen::ReadOnly(server.name(at)),
        None => Seen::Away(refused.unwrap_or_else(|| format!("no answer within {} s", CONNECT.as_secs()))),
    };
    if server.stands(&seen, |standing| standing.round_trip = None) {
        let said = server.standing().trouble().unwrap_or_default();
        tracing::error!("{said}");
        // What waits there waits in vain, and reading may go on.
        server.renew(readable.unwrap_or(server.at()));
    }
    None
}

/// Whether an idle connection of the pool answers, and leads to a server that takes writes; one that is in use tells
/// by itself.
async fn pool_is_good(server: &Server) -> bool {
    let Some(mut connection) = server.pool().try_acquire() else { return true };
    let good = matches!(within(ANSWER, is_read_only(&mut connection)).await, Some(Ok(false)));
    if !good {
        // Not back to a pool that would ask it once more.
        drop(connection.detach());
    }
    good
}

/// Whether a session's server takes no writes: a standby, or one that is set so.
pub(super) async fn is_read_only(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "/* keeper::is_read_only, postgres */ SELECT current_setting('transaction_read_only') = 'on'",
    )
    .fetch_one(connection)
    .await
}

async fn read_settings(server: &Server, connection: &mut PgConnection) {
    let asking = async {
        let row: (bool, bool, String, String, i64, i64) = sqlx::query_as(
            "/* keeper::settings, postgres */ SELECT current_setting('fsync') = 'on', \
                    current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'), \
                    current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication), \
                    COALESCE((SELECT CAST(EXTRACT(EPOCH FROM max(replay_lag)) * 1000 AS BIGINT) \
                                FROM pg_stat_replication), 0)",
        )
        .fetch_one(&mut *connection)
        .await?;
        Ok::<_, sqlx::Error>(row)
    };
    let Some(Ok((fsync, full_page_writes, synchronous_commit, synchronous_standbys, standbys, lag))) =
        within(ANSWER, asking).await
    else {
        return;
    };
    let safety = Safety { fsync, full_page_writes, synchronous_commit, synchronous_standbys, standbys };
    let risks = risks(&safety, server.addresses().len());
    server.stands(&Seen::Here, |standing| {
        standing.risks = risks;
        standing.lag = Duration::from_millis(u64::try_from(lag).unwrap_or_default());
    });
}

/// Nothing: not in time.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Option<Result<T, sqlx::Error>> {
    tokio::time::timeout(time, work).await.ok()
}
