//! Joining the parts of one process: what each is handed, and which tasks it runs.

use super::super::args::Global;
use super::super::enrolment;
use super::super::failure::Failure;
use super::super::settings;
use super::asking;
use super::files::{self, Asking, Directories, Files, Over, Shared, subjects};
use super::route::{self, Routing};
use crate::agent::layout::Layout;
use crate::config::Config;
use crate::controller::{self, Controller, Pace};
use crate::database::fleet::Fleet;
use crate::database::{Database, parts};
use crate::fleet::Agents;
use crate::goal::library::Fallbacks;
use crate::goal::session::Source;
use crate::goal::setting::Setting;
use crate::http::sampler::Sampler;
use crate::http::{self, Api, Hooks, Limited};
use crate::model::chance::Chance;
use crate::model::fleet::Fileserver;
use crate::model::grant::{Action, End, Enrolment, Grant};
use crate::model::id::RepositoryId;
use crate::queue::{Nudge, Post, Redis, RedisSettings, Reminders};
use crate::repair::Repairs;
use crate::router::authorize::Access;
use crate::router::push;
use crate::shutdown::Shutdown;
use crate::telemetry::PushMetrics;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::router::RouterMetrics;
use crate::worker::{self, Worker};
use anyhow::Context as _;
use futures::FutureExt as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// What all parts of one process share.
pub struct Base {
    config: Config,
    db: Database,
    fleet: Fleet,
    source: Source,
    repairs: Arc<Repairs>,
    goals: Shared,
    configured: Arc<Vec<Setting>>,
    fallbacks: Fallbacks,
    directories: Directories,
    files: Mutex<Option<Files>>,
    pace: Arc<AtomicU32>,
    kept: AtomicBool,
    redis: Option<Redis>,
    sender: Mutex<Option<Redis>>,
    reminders: Reminders,
    nudge: Nudge,
    chance: Arc<Chance>,
}

/// What a controller with the API needs beside.
pub struct Controlling<'a> {
    /// Who it is.
    pub enrolment: &'a Enrolment,
    /// Where the API answers.
    pub listener: TcpListener,
    /// What is read at `/metrics`.
    pub metrics: Metrics,
}

impl Base {
    /// Loads goals and repairs.
    ///
    /// # Errors
    /// When files are missing or wrong, or the database's URL will not do for goals.
    pub async fn new(
        _: &Global,
        config: Config,
        db: Database,
        fleet: Fleet,
        directories: Directories,
    ) -> anyhow::Result<Self> {
        let source = asking::source(&config, &db).await?;
        let repairs = Arc::new(directories.repairs()?);
        let goals = Shared::default();
        let chance = Arc::new(Chance::new(enrolment::seed()?));
        let redis = redis(&config, &fleet.fleet_id, &chance)?;
        let post = redis.as_ref().map(|redis| redis.post().clone());
        let configured = config.goals.settings.iter().cloned().map(settings::setting).collect();
        let configured: Arc<Vec<Setting>> = Arc::new(configured);
        let fallbacks = Fallbacks::default();
        let over = Over { db: db.clone(), configured: Arc::clone(&configured), fallbacks: fallbacks.clone() };
        let files = Files::open(&directories.goals, source.clone(), &repairs, goals.clone(), over).await?;
        Ok(Self {
            config,
            db,
            fleet,
            source,
            repairs,
            goals,
            configured,
            fallbacks,
            directories,
            files: Mutex::new(Some(files)),
            kept: AtomicBool::new(false),
            pace: Arc::new(AtomicU32::new(controller::pressure::FULL)),
            sender: Mutex::new(redis.clone()),
            redis,
            reminders: Reminders::carried_by(post.clone()),
            nudge: Nudge::carried_by(post),
            chance,
        })
    }

    /// Starts a controller and the API.
    ///
    /// # Errors
    /// When the enrolment's key is none.
    pub async fn control(&self, shutdown: &Shutdown, with: Controlling<'_>) -> anyhow::Result<()> {
        let agents = Agents::new(with.enrolment)?;
        let library = files::load(&self.directories.goals, self.source.clone(), &self.repairs).await?;
        let library = library.with(&self.fallbacks);
        let controller = Controller {
            name: with.enrolment.part.name.clone(),
            settings: self.controller_settings(),
            database: self.db.clone(),
            source: self.source.clone(),
            goals: library,
            repairs: Arc::clone(&self.repairs),
            agents,
            reminders: self.reminders.clone(),
            nudge: self.nudge.clone(),
            metrics: Arc::default(),
            pace: Arc::clone(&self.pace),
            chance: Arc::clone(&self.chance),
        };
        let api = self.api(shutdown, with.enrolment, with.metrics)?;
        let stop = shutdown.token();
        self.watch_goals(shutdown);
        self.send(shutdown);
        if let Some(redis) = self.redis.clone() {
            shutdown.spawn(redis.hear_nudges(self.nudge.clone(), stop.clone()));
        }
        shutdown.spawn(controller.run(stop.clone()));
        shutdown.spawn(async move {
            if let Err(error) = http::serve(with.listener, api).await {
                tracing::error!(error = &error as &dyn std::error::Error, "the API ended");
                stop.cancel();
            }
        });
        tell_seen(&self.db, shutdown, &with.enrolment.part.id);
        Ok(())
    }

    /// Starts a worker.
    ///
    /// # Errors
    /// When the enrolment's key is none.
    pub fn work(&self, shutdown: &Shutdown, enrolment: &Enrolment) -> anyhow::Result<()> {
        let lease = Duration::from_millis(u64::try_from(self.config.worker.lease).unwrap_or_default());
        let worker = Worker {
            name: enrolment.part.name.clone(),
            settings: worker::Settings {
                concurrency: self.config.worker.concurrency,
                lease,
                renew: lease / 3,
                sweep: self.config.queue.sweep,
                grace: self.config.worker.shutdown_grace,
                ..worker::Settings::default()
            },
            database: self.db.clone(),
            agents: Agents::new(enrolment)?,
            repairs: Arc::clone(&self.repairs),
            recheck: Arc::new(Asking { source: self.source.clone(), goals: self.goals.clone() }),
            programs: worker::Programs::new(self.config.worker.exec),
            reminders: self.reminders.clone(),
            nudge: self.nudge.clone(),
            chance: Arc::clone(&self.chance),
        };
        self.watch_goals(shutdown);
        self.send(shutdown);
        if let Some(redis) = self.redis.clone() {
            shutdown.spawn(redis.hear_reminders(self.reminders.clone(), shutdown.token()));
        }
        shutdown.spawn(worker.run(shutdown.token()));
        tell_seen(&self.db, shutdown, &enrolment.part.id);
        Ok(())
    }

    /// Shows the pages of a part that has no API.
    pub fn show(&self, shutdown: &Shutdown, listener: TcpListener) {
        let part = http::part::Part {
            db: self.db.clone(),
            post: self.post(),
            leaving: shutdown.leaving(),
            stopping: shutdown.token(),
            metrics: Arc::default(),
            without_sql: None,
        };
        shutdown.spawn(async move {
            if let Err(error) = http::part::serve(listener, part).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the pages ended");
            }
        });
    }

    /// Looks after the database, and carries reminders and nudges out, once for all parts of the process.
    fn send(&self, shutdown: &Shutdown) {
        if !self.kept.swap(true, Ordering::Relaxed) {
            let (db, stop) = (self.db.clone(), shutdown.token());
            shutdown.spawn(async move { db.keep(stop).await });
        }
        let redis = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(redis) = redis {
            shutdown.spawn(redis.send(shutdown.token()));
        }
    }

    /// Watches goal files once for all parts of the process: rechecks and the API see the newest ones.
    fn watch_goals(&self, shutdown: &Shutdown) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut files) = files else { return };
        let (poll, stop) = (self.config.goals.poll, shutdown.token());
        shutdown.spawn(async move {
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(poll) => {}
                }
                if let Err(error) = files.look().await {
                    tracing::warn!(error, "goal files could not be read; what runs goes on");
                }
            }
        });
    }

    fn controller_settings(&self) -> controller::Settings {
        let config = &self.config;
        let length =
            |time: crate::model::Millis| Duration::from_millis(u64::try_from(time).unwrap_or_default());
        controller::Settings {
            schedule: Some(config.goals.schedule.clone()),
            reload: config.goals.poll,
            parallel: config.goals.parallel,
            dispatch: config.dispatch.period,
            in_flight: config.dispatch.in_flight,
            fill_limit: config.fleet.fill_limit,
            grace: length(config.fleet.grace),
            rack_grace: length(config.fleet.rack_grace),
            configured: self.configured.to_vec(),
            pace: Pace { online: config.observe.period, timeout: config.observe.timeout, ..Pace::default() },
            audit_slice: config.audit.slice.into(),
            audit_period: config.audit.period,
            retention: controller::Retention {
                findings: config.retention.findings,
                attempts: config.retention.attempts,
                evaluations: config.retention.evaluations,
                pushes: config.retention.pushes,
                audit: config.retention.audit,
                ..controller::Retention::default()
            },
            pressure: controller::pressure::Bounds {
                round_trip: config.pressure.round_trip,
                lag: config.pressure.lag,
            },
        }
    }

    fn post(&self) -> Option<Post> {
        self.redis.as_ref().map(|redis| redis.post().clone())
    }

    fn api(&self, shutdown: &Shutdown, enrolment: &Enrolment, metrics: Metrics) -> anyhow::Result<Api> {
        let key = enrolment.signing_key().context("the enrolment has no key")?;
        let (fleet, part) = (self.fleet.fleet_id.clone(), enrolment.part.id.clone());
        let sign = move |id: RepositoryId, to: &Fileserver, expires_at| {
            let grant = Grant {
                fleet: fleet.clone(),
                part: part.clone(),
                action: Action::Import,
                repository: Some(id),
                destination: End { name: to.name.clone(), url: to.url.clone() },
                source: None,
                epoch: None,
                expires_at,
            };
            grant.sign(&key)
        };
        let (nudge, goals) = (self.nudge.clone(), self.goals.clone());
        let pushing = Arc::new(push::Pushing {
            database: self.db.clone(),
            agents: Agents::new(enrolment)?,
            checksum_key: self.fleet.checksum_key.clone(),
            router: enrolment.part.name.clone(),
            settings: push::Settings::of(&self.config.push),
            judge: None,
            nudge: self.nudge.clone(),
            // An operator's changes are in the audit; the metrics tell of clients' pushes.
            metrics: PushMetrics::default(),
            chance: Arc::clone(&self.chance),
            tasks: shutdown.clone(),
        });
        let (heads, populating, looking) = (Arc::clone(&pushing), Arc::clone(&pushing), Arc::clone(&pushing));
        Ok(Api {
            db: self.db.clone(),
            source: self.source.clone(),
            repairs: Arc::new(subjects(&self.repairs)),
            limited: Limited {
                repairs: Arc::clone(&self.repairs),
                in_flight: self.config.dispatch.in_flight,
            },
            remedies: Arc::clone(&self.repairs),
            configured: Arc::clone(&self.configured),
            hooks: Hooks {
                sign_import: Arc::new(sign),
                evaluate: Arc::new(move |names: &[String]| {
                    for name in names {
                        nudge.evaluate(Some(name));
                    }
                }),
                path_of: Arc::new(|server: &Fileserver, id| path_of(server.root.as_deref(), id)),
                change_references: Arc::new(move |id, commands, atomic| {
                    let pushing = Arc::clone(&pushing);
                    async move { push::change(&pushing, id, commands, atomic).await }.boxed()
                }),
                set_head: Arc::new(move |id, branch| {
                    let pushing = Arc::clone(&heads);
                    async move { push::set_head(&pushing, id, &branch).await }.boxed()
                }),
                is_vacant: Arc::new(move |id| {
                    let pushing = Arc::clone(&looking);
                    async move { push::vacant(&pushing, id).await }.boxed()
                }),
                populate: Arc::new(move |id, listing, pack| {
                    let pushing = Arc::clone(&populating);
                    async move { push::populate(&pushing, id, listing, pack).await }.boxed()
                }),
                goals: Arc::new(move || goals.plain()),
            },
            fleet: self.fleet.fleet_id.clone(),
            checksum_key: self.fleet.checksum_key.clone(),
            clone_base: self.config.router.url.clone(),
            fill_limit: self.config.fleet.fill_limit,
            post: self.post(),
            pace: Arc::clone(&self.pace),
            leaving: shutdown.leaving(),
            sampler: Arc::new(Sampler::of(metrics)),
            stopping: shutdown.token(),
        })
    }

    /// Starts a router; `anybody`: what everybody may.
    ///
    /// # Errors
    /// When the enrolment's key is none, or its files cannot be read.
    pub fn route(
        &self,
        shutdown: &Shutdown,
        enrolment: &Enrolment,
        listener: TcpListener,
        anybody: Option<Access>,
        counted: RouterMetrics,
    ) -> anyhow::Result<()> {
        let authorizer = route::authorizer(&self.config.router, anybody)?;
        let with = Routing {
            config: &self.config,
            db: self.db.clone(),
            fleet: &self.fleet,
            enrolment,
            nudge: self.nudge.clone(),
            post: self.post(),
            counted,
        };
        with.start(shutdown, listener, None, authorizer)?;
        tell_seen(&self.db, shutdown, &enrolment.part.id);
        Ok(())
    }
}

/// Says that a part has started, and then now and again that it is there.
pub fn tell_seen(db: &Database, shutdown: &Shutdown, id: &str) {
    let (db, id, stop) = (db.clone(), id.to_owned(), shutdown.token());
    shutdown.spawn(async move {
        let mut started = true;
        loop {
            if let Err(error) = parts::seen(&db, &id, started).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a part could not be seen");
            } else {
                started = false;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(30)) => {}
            }
        }
    });
}

/// Redis, if the configuration names one.
pub(super) fn redis(config: &Config, fleet: &str, chance: &Arc<Chance>) -> anyhow::Result<Option<Redis>> {
    let queue = &config.queue;
    if queue.redis.is_empty() {
        return Ok(None);
    }
    let settings = RedisSettings {
        url: queue.redis.clone(),
        password_file: queue.redis_password_file.clone(),
        window: queue.window,
    };
    let redis = Redis::new(&settings, fleet, Arc::clone(chance));
    Ok(Some(redis.map_err(|problem| Failure::usage(problem.to_string()).hint("queue.redis names it"))?))
}

fn path_of(root: Option<&str>, id: RepositoryId) -> String {
    Layout::new(root.unwrap_or_default()).repository(id).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_once_the_agent_has_said_where_its_root_is() {
        let id = RepositoryId(258);
        assert_eq!(path_of(Some("/data/fs-1"), id), "/data/fs-1/repositories/01/02/258.git");
        assert_eq!(path_of(None, id), "repositories/01/02/258.git");
    }
}
