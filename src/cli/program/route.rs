//! Joining a router: its configuration, who may, its own pages.

use super::super::enrolment;
use super::super::failure::Failure;
use crate::config::{Config, RouterConfig};
use crate::database::fleet::Fleet;
use crate::database::{Database, fileservers};
use crate::fleet::{Agents, CallError};
use crate::http;
use crate::model::chance::Chance;
use crate::model::grant::{End, Enrolment};
use crate::model::wire::RefusalCode;
use crate::queue::{Nudge, Post};
use crate::router::authorize::forge::Forge;
use crate::router::authorize::tokens::TokenFile;
use crate::router::authorize::{Access, Authorizer};
use crate::router::names::Names;
use crate::router::push;
use crate::router::{Router, Settings};
use crate::shutdown::Shutdown;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::router::RouterMetrics;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A controller tells agents of new parts when it next asks how they are: `observe.period`, 10 s.
const BELIEVED_WITHIN: Duration = Duration::from_secs(30);
/// As proxies have it for clients that stand still.
const GONE_AFTER: Duration = Duration::from_mins(1);
/// Longest wait for one agent.
const ASK_WITHIN: Duration = Duration::from_secs(1);

/// What a router is joined from.
pub struct Routing<'a> {
    /// The whole configuration.
    pub config: &'a Config,
    /// The fleet's memory.
    pub db: Database,
    /// The fleet's identity.
    pub fleet: &'a Fleet,
    /// Who it is.
    pub enrolment: &'a Enrolment,
    /// Wants goals evaluated, where a push left copies behind.
    pub nudge: Nudge,
    /// What carries nudges to other processes, where something does.
    pub post: Option<Post>,
    /// What it counts.
    pub counted: RouterMetrics,
}

/// What everybody may.
#[must_use]
pub const fn anonymous(config: &RouterConfig) -> Option<Access> {
    match (config.anonymous_writes, config.anonymous_reads) {
        (true, _) => Some(Access::Write),
        (false, true) => Some(Access::Read),
        (false, false) => None,
    }
}

/// Waits until the agents that answer believe a router that was just added: a controller tells them of it. Those that
/// do not answer are not waited for, and none for ever.
pub async fn until_believed(db: &Database, agents: &Agents, shutdown: &Shutdown) {
    let (until, stop) = (Instant::now() + BELIEVED_WITHIN, shutdown.token());
    loop {
        let all = fileservers::all(db).await.unwrap_or_default();
        let asks = all.iter().map(async |one| {
            let to = End { name: one.name.clone(), url: one.url.clone() };
            let answer = agents.status(&to, ASK_WITHIN).await;
            matches!(answer, Err(CallError::Refused(refusal)) if refusal.code == RefusalCode::Forbidden)
        });
        let strange = join_all(asks).await.into_iter().filter(|strange| *strange).count();
        if strange == 0 || stop.is_cancelled() {
            return;
        }
        if Instant::now() > until {
            tracing::warn!(agents = strange, "agents do not know this router's key, and refuse its reads");
            return;
        }
        tokio::time::sleep(ASK_WITHIN / 2).await;
    }
}

/// Who may read and write.
///
/// # Errors
/// When the file of tokens cannot be read, or the authorizer's address will not do.
pub fn authorizer(config: &RouterConfig, anybody: Option<Access>) -> anyhow::Result<Authorizer> {
    let tokens = config.token_file.as_deref().map(TokenFile::open).transpose();
    let tokens =
        tokens.map_err(|error| Failure::usage(error.to_string()).hint("router.token_file names the file"))?;
    let forge = match config.authorizer.as_str() {
        "" => None,
        url => Some(
            Forge::new(url, config.authorizer_cache).map_err(|error| Failure::usage(error.to_string()))?,
        ),
    };
    let authorizer = Authorizer::new(anybody, tokens, forge);
    if authorizer.lets_nobody_in() {
        tracing::warn!(
            "nobody may read or write through this router: \
             router.anonymous_reads, router.token_file and router.authorizer are all unset"
        );
    }
    Ok(authorizer)
}

impl Routing<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// When the enrolment's key is none.
    pub fn start(
        self,
        shutdown: &Shutdown,
        listener: TcpListener,
        pages: Option<(TcpListener, Metrics)>,
        authorizer: Authorizer,
    ) -> anyhow::Result<Agents> {
        let Self { config, db, fleet, enrolment, nudge, post, counted } = self;
        let agents = Agents::new(enrolment)?;
        let chance = Arc::new(Chance::new(enrolment::seed()?));
        let pushing = push::Pushing {
            database: db.clone(),
            agents: agents.clone(),
            checksum_key: fleet.checksum_key.clone(),
            router: enrolment.part.name.clone(),
            settings: push::Settings::of(&config.push),
            judge: judge(config)?,
            nudge,
            metrics: counted.pushes(),
            chance: Arc::clone(&chance),
            tasks: shutdown.clone(),
        };
        let router = Router {
            settings: settings(&config.router, &enrolment.part.name),
            database: db.clone(),
            agents: agents.clone(),
            authorizer,
            pushing: Arc::new(pushing),
            metrics: Arc::new(counted),
            chance,
        };
        let names = router.start(shutdown, listener);
        if let Some((listener, metrics)) = pages {
            show(shutdown, listener, (db, post), metrics, names);
        }
        Ok(agents)
    }
}

fn judge(config: &Config) -> anyhow::Result<Option<push::Judge>> {
    push::Judge::of(&config.push).map_err(|error| Failure::usage(error.to_string()).into())
}

fn settings(config: &RouterConfig, name: &str) -> Settings {
    Settings {
        name: name.to_owned(),
        rack: config.rack.clone(),
        requests: config.requests,
        deadline: config.deadline,
        patience: config.patience.min(config.deadline),
        overload: i64::from(config.overload) * 1_000,
        gone_after: GONE_AFTER,
        sql_away: config.sql_away,
        remembered: config.remembered,
        filters: config.filters.clone(),
    }
}

fn show(
    shutdown: &Shutdown,
    listener: TcpListener,
    (db, post): (Database, Option<Post>),
    metrics: Metrics,
    names: Arc<Names>,
) {
    let part = http::part::Part {
        db,
        post,
        leaving: shutdown.leaving(),
        stopping: shutdown.token(),
        metrics: Arc::new(metrics),
        // It serves reads for a while yet, and balancers that took every router out at once would end that.
        without_sql: Some(Arc::new(move || names.trouble())),
    };
    shutdown.spawn(async move {
        if let Err(error) = http::part::serve(listener, part).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the pages ended");
        }
    });
}
