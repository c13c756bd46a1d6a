//! Redis as the carrier of reminders and nudges between processes.
//!
//! Two keys of its own for each fleet: a list of attempts' ids, never longer than the
//! window, from which idle workers pop; and a channel on which controllers hear that a
//! dispatch round or an evaluation is wanted. All of it may be flushed, lost, doubled or late. Each side
//! waits for Redis with bounded, jittered retries, and nobody waits for either side: a
//! process that cannot reach Redis goes on by looking at SQL.
//!
//! The blocking pop has a connection of its own without a response timeout: with one, the
//! client gives up in the middle of the wait and the connection is spoilt.

use super::post::{Parcel, Post};
use super::{Nudge, Reminders, Wanted};
use crate::model::chance::Chance;
use futures::StreamExt as _;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo as _, RedisError, RedisResult,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest wait for a connection, and for an answer to what does not block.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long Redis keeps a pop waiting, in seconds; a peer that is gone is noticed after twice that.
const POP_SECONDS: u64 = 5;
/// Ids that one waking takes from the list: a worker then claims what it can, and the rest would only wake it in vain.
const POP_MORE: usize = 255;
/// Parcels are sent this far apart at least, so that a busy process sends few.
const GATHER: Duration = Duration::from_millis(10);
/// How often Redis is looked after while there is nothing to send.
const LOOK: Duration = Duration::from_secs(2);
/// The list of a fleet that is no more goes by itself.
const LIST_LIVES: i64 = 3_600;
/// Said on the channel before the goals that are to be evaluated; no goal has the name of all.
const EVALUATE: &str = "evaluate";
const ALL: &str = "*";
/// Waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// How Redis is reached.
#[derive(Debug, Clone, Default)]
pub struct RedisSettings {
    /// `redis://…`, or `rediss://…` for TLS.
    pub url: String,
    /// A file with the password, read at each connecting.
    pub password_file: Option<PathBuf>,
    /// Most ids in the list.
    pub window: usize,
}

/// Why Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RedisProblem {
    /// The URL is none.
    #[error("the URL of Redis cannot be used: {0}")]
    Url(String),
    /// The password cannot be read.
    #[error("cannot read the password of Redis from {path}: {why}")]
    Password {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// Redis or the network refused.
    #[error("{0}")]
    Refused(String),
}

impl From<RedisError> for RedisProblem {
    fn from(error: RedisError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Redis, as one process uses it. Clones share the outbox.
#[derive(Clone)]
pub struct Redis {
    info: ConnectionInfo,
    password_file: Option<PathBuf>,
    list: String,
    channel: String,
    /// Tells this process's own nudges from others'.
    sender: String,
    post: Post,
    chance: Arc<Chance>,
}

impl Redis {
    /// Reads the settings; connects to nothing.
    ///
    /// # Errors
    /// When the URL is none, or the password's file cannot be read.
    pub fn new(settings: &RedisSettings, fleet: &str, chance: Arc<Chance>) -> Result<Self, RedisProblem> {
        let wrong = |error: RedisError| RedisProblem::Url(error.to_string());
        let redis = Self {
            info: settings.url.as_str().into_connection_info().map_err(wrong)?,
            password_file: settings.password_file.clone(),
            list: format!("trued:{fleet}:reminders"),
            channel: format!("trued:{fleet}:nudges"),
            sender: format!("{:016x}", chance.next()),
            post: Post::new(settings.window),
            chance,
        };
        redis.client()?;
        Ok(redis)
    }

    /// What is to be carried.
    #[must_use]
    pub fn post(&self) -> &Post {
        &self.post
    }

    /// Sends what is in the outbox, and looks after Redis, until stopped.
    pub async fn send(self, stop: CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.send_until_it_fails(&mut failures) => ended,
            };
            if self.post.away(&ended.to_string()) {
                tracing::warn!(error = %ended, "Redis does not carry reminders; workers look at SQL by themselves");
            }
            self.wait(&mut failures, &stop).await;
        }
    }

    async fn send_until_it_fails(&self, failures: &mut u32) -> RedisProblem {
        let mut connection = match self.connect(Some(PATIENCE)).await {
            Ok(connection) => connection,
            Err(problem) => return problem,
        };
        loop {
            let parcel = tokio::time::timeout(LOOK, self.post.take()).await.unwrap_or_default();
            let count = parcel.ids.len();
            if let Err(error) = self.deliver(&mut connection, parcel).await {
                self.post.count(0, count);
                return error.into();
            }
            self.post.count(count, 0);
            *failures = 0;
            if self.post.here() {
                tracing::info!("Redis carries reminders");
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// An empty parcel asks for nothing but a sign that Redis takes what is written.
    async fn deliver(&self, connection: &mut MultiplexedConnection, parcel: Parcel) -> RedisResult<()> {
        let mut pipe = redis::pipe();
        let nudges = nudges(&self.sender, &parcel);
        if !parcel.ids.is_empty() {
            let window = isize::try_from(self.post.window()).unwrap_or(isize::MAX);
            pipe.cmd("RPUSH").arg(&self.list).arg(Vec::from(parcel.ids)).ignore();
            pipe.cmd("LTRIM").arg(&self.list).arg(-window).arg(-1).ignore();
            pipe.cmd("EXPIRE").arg(&self.list).arg(LIST_LIVES).ignore();
        } else if nudges.is_empty() {
            pipe.cmd("SET").arg(format!("{}:alive", self.list)).arg(1).arg("EX").arg(60).ignore();
        }
        for nudge in nudges {
            pipe.cmd("PUBLISH").arg(&self.channel).arg(nudge).ignore();
        }
        pipe.query_async(connection).await
    }

    /// Wakes this process's workers when an idle one finds an id in the list, until stopped.
    pub async fn hear_reminders(self, reminders: Reminders, stop: CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.pop_until_it_fails(&reminders, &mut failures) => ended,
            };
            tracing::debug!(error = %ended, "reminders of other processes are not heard");
            self.wait(&mut failures, &stop).await;
        }
    }

    async fn pop_until_it_fails(&self, reminders: &Reminders, failures: &mut u32) -> RedisProblem {
        let mut connection = match self.connect(None).await {
            Ok(connection) => connection,
            Err(problem) => return problem,
        };
        loop {
            // A worker that is busy leaves the reminder to one that is not.
            reminders.listened_to().await;
            let popped =
                tokio::time::timeout(2 * Duration::from_secs(POP_SECONDS), self.pop(&mut connection)).await;
            match popped {
                Ok(Ok(true)) => reminders.ring(),
                Ok(Ok(false)) => {}
                Ok(Err(error)) => return error.into(),
                Err(_) => return RedisProblem::Refused("no answer to a blocking pop".to_owned()),
            }
            *failures = 0;
        }
    }

    async fn pop(&self, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
        let first: Option<(String, i64)> =
            redis::cmd("BLPOP").arg(&self.list).arg(POP_SECONDS).query_async(connection).await?;
        if first.is_none() {
            return Ok(false);
        }
        let _: Option<Vec<i64>> =
            redis::cmd("LPOP").arg(&self.list).arg(POP_MORE).query_async(connection).await?;
        Ok(true)
    }

    /// Rings this process's controller when another process wants a dispatch round or an evaluation, until stopped.
    pub async fn hear_nudges(self, nudge: Nudge, stop: CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.listen_until_it_fails(&nudge, &mut failures) => ended,
            };
            tracing::debug!(error = %ended, "nudges of other processes are not heard");
            self.wait(&mut failures, &stop).await;
        }
    }

    async fn listen_until_it_fails(&self, nudge: &Nudge, failures: &mut u32) -> RedisProblem {
        let silent = || RedisProblem::Refused("no answer while listening for nudges".to_owned());
        let connecting = async {
            let mut connection = self.client()?.get_async_pubsub().await?;
            connection.subscribe(&self.channel).await?;
            Ok::<_, RedisProblem>(connection)
        };
        let connection = match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(problem)) => return problem,
            Err(_) => return silent(),
        };
        let (mut sink, mut messages) = connection.split();
        loop {
            match tokio::time::timeout(Duration::from_secs(POP_SECONDS), messages.next()).await {
                Ok(Some(message)) => {
                    if let Ok(text) = message.get_payload::<String>() {
                        ring(nudge, &text, &self.sender);
                    }
                }
                Ok(None) => return RedisProblem::Refused("Redis closed the connection".to_owned()),
                Err(_) => match tokio::time::timeout(PATIENCE, sink.ping::<redis::Value>()).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return error.into(),
                    Err(_) => return silent(),
                },
            }
            *failures = 0;
        }
    }

    async fn connect(&self, answers_within: Option<Duration>) -> Result<MultiplexedConnection, RedisProblem> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(answers_within);
        Ok(self.client()?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    fn client(&self) -> Result<Client, RedisProblem> {
        let mut info = self.info.clone();
        if let Some(path) = &self.password_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| RedisProblem::Password { path: path.clone(), why: error.to_string() })?;
            let settings = info.redis_settings().clone().set_password(text.trim_end_matches(['\r', '\n']));
            info = info.set_redis_settings(settings);
        }
        Client::open(info).map_err(|error| RedisProblem::Url(error.to_string()))
    }

    async fn wait(&self, failures: &mut u32, stop: &CancellationToken) {
        let wait = LONGEST_WAIT.min(FIRST_WAIT * (1 << (*failures).min(6)));
        *failures += 1;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(self.chance.around(wait)) => {}
        }
    }
}

/// What is said on the channel, a line each: who says it, then the goals to be evaluated, or nothing more for a
/// dispatch round. A program that does not know the longer lines hears a wish for a round, which does no harm.
fn nudges(sender: &str, parcel: &Parcel) -> Vec<String> {
    let mut lines: Vec<String> = parcel.dispatch.then(|| sender.to_owned()).into_iter().collect();
    if parcel.evaluate.all {
        lines.push(format!("{sender} {EVALUATE} {ALL}"));
    } else if !parcel.evaluate.goals.is_empty() {
        let goals: Vec<&str> = parcel.evaluate.goals.iter().map(String::as_str).collect();
        lines.push(format!("{sender} {EVALUATE} {}", goals.join(" ")));
    }
    lines
}

/// Rings for what another process said.
fn ring(nudge: &Nudge, line: &str, own: &str) {
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some(sender), _) if sender == own => {}
        (_, Some(EVALUATE)) => {
            let goals: BTreeSet<String> = words.map(str::to_owned).collect();
            nudge.ring_evaluate(&Wanted { all: goals.contains(ALL), goals });
        }
        _ => nudge.ring_dispatch(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> RedisSettings {
        RedisSettings { url: url.to_owned(), password_file: None, window: 10 }
    }

    fn redis(settings: &RedisSettings) -> Result<Redis, RedisProblem> {
        Redis::new(settings, "fleet", Arc::new(Chance::new(1)))
    }

    #[test]
    fn a_url_that_is_none_is_refused_before_anything_is_started() {
        assert!(redis(&settings("redis://127.0.0.1:1/0")).is_ok());
        assert!(redis(&settings("rediss://127.0.0.1:1")).is_ok(), "TLS is built in");
        for wrong in ["http://127.0.0.1", "redis://", "redis"] {
            assert!(matches!(redis(&settings(wrong)), Err(RedisProblem::Url(_))), "{wrong}");
        }
    }

    #[test]
    fn a_password_comes_from_its_file_without_the_line_s_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let with = RedisSettings { password_file: Some(path.clone()), ..settings("redis://127.0.0.1:1") };
        assert!(matches!(redis(&with), Err(RedisProblem::Password { .. })));
        std::fs::write(&path, "se cret\n").unwrap();
        let client = redis(&with).unwrap().client().unwrap();
        let settings = client.get_connection_info().redis_settings();
        assert_eq!(settings.password(), Some("se cret"));
    }

    #[tokio::test]
    async fn what_one_process_wants_another_hears_and_nobody_hears_himself() {
        use futures::FutureExt as _;
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let some = Parcel {
            dispatch: true,
            evaluate: Wanted { all: false, goals: names(&["a", "b"]) },
            ..Parcel::default()
        };
        let lines = nudges("me", &some);
        let nudge = Nudge::new();
        let all_from = |nudge: &Nudge, lines: &[String], own: &str| {
            for line in lines {
                ring(nudge, line, own);
            }
        };
        all_from(&nudge, &lines, "me");
        assert!(nudge.wanted().now_or_never().is_none() && nudge.dispatch_wanted().now_or_never().is_none());
        all_from(&nudge, &lines, "you");
        assert!(nudge.dispatch_wanted().now_or_never().is_some());
        let wanted = nudge.wanted().now_or_never().unwrap();
        assert!(wanted.includes("a") && wanted.includes("b") && !wanted.includes("c"));
        let all = Parcel { evaluate: Wanted { all: true, ..Wanted::default() }, ..Parcel::default() };
        all_from(&nudge, &nudges("me", &all), "you");
        assert!(nudge.wanted().now_or_never().unwrap().all);
        assert!(nudge.dispatch_wanted().now_or_never().is_none());
    }

    // Nothing is waited for: the outbox takes what nobody carries, and says that nobody does.
    #[tokio::test]
    async fn without_redis_reminders_are_forgotten_and_the_reason_is_said() {
        let redis = redis(&settings("redis://127.0.0.1:1")).unwrap();
        let (post, stop) = (redis.post().clone(), CancellationToken::new());
        let reminders = Reminders::carried_by(Some(post.clone()));
        reminders.remind(&[crate::model::id::AttemptId(7)]);
        let sending = redis.send(stop.clone());
        let said = async {
            while !matches!(post.carrier(), super::super::Carrier::Away { .. }) {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(sending, said) }).await.unwrap();
        let super::super::Carrier::Away { why, .. } = post.carrier() else { panic!() };
        assert!(why.contains("refused"), "{why}");
    }
}
