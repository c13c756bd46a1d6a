//! One small struct a concern, made from the layers once at start.

mod push;
mod router;

pub use push::PushConfig;
pub use router::RouterConfig;

use super::layers::{ConfigError, GoalSetting, Layers};
use super::value;
use crate::model::Millis;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The whole configuration, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the fleet is remembered; empty: not said.
    pub database_url: String,
    /// Where goals are asked of it as a role of its own; empty: not said.
    pub goals_url: String,
    /// Other databases that goals may be asked of: names and URLs.
    pub databases: BTreeMap<String, String>,
    /// The API.
    pub http: HttpConfig,
    /// Goals and repairs.
    pub goals: GoalsConfig,
    /// What holds for the fleet.
    pub fleet: FleetConfig,
    /// Asking agents.
    pub observe: ObserveConfig,
    /// Findings to attempts.
    pub dispatch: DispatchConfig,
    /// Workers.
    pub worker: WorkerConfig,
    /// The queue.
    pub queue: QueueConfig,
    /// When the database is slow.
    pub pressure: PressureConfig,
    /// The audit of the suspects.
    pub audit: AuditConfig,
    /// How long what has ended is kept.
    pub retention: RetentionConfig,
    /// Pushes.
    pub push: PushConfig,
    /// Routers.
    pub router: RouterConfig,
    /// Agents.
    pub agent: AgentConfig,
}

/// `http.*`
#[derive(Debug, Clone, Copy)]
pub struct HttpConfig {
    /// Address of the API.
    pub listen: SocketAddr,
    /// How long it still answers when asked to stop.
    pub drain: Duration,
}

/// `goals.*`, `repairs.*`
#[derive(Debug, Clone)]
pub struct GoalsConfig {
    /// Directory of goal files.
    pub directory: PathBuf,
    /// Directory of repair files.
    pub repairs: PathBuf,
    /// When goals that name no schedule are evaluated.
    pub schedule: cron::Schedule,
    /// How often files are looked at.
    pub poll: Duration,
    /// Goals evaluated at a time.
    pub parallel: usize,
    /// What is set over goals' files here.
    pub settings: Vec<GoalSetting>,
}

/// `fleet.*`
#[derive(Debug, Clone, Copy)]
pub struct FleetConfig {
    /// Offline time before replicas stop to count.
    pub grace: Millis,
    /// Time that a rack that is silent as a whole is waited for.
    pub rack_grace: Millis,
    /// Percent of a disk that new copies may fill.
    pub fill_limit: i64,
}

/// `observe.*`
#[derive(Debug, Clone, Copy)]
pub struct ObserveConfig {
    /// Time between two questions.
    pub period: Duration,
    /// Longest wait for a status.
    pub timeout: Duration,
}

/// `dispatch.*`
#[derive(Debug, Clone, Copy)]
pub struct DispatchConfig {
    /// Time between two rounds.
    pub period: Duration,
    /// Attempts in the whole fleet.
    pub in_flight: u32,
}

/// `worker.*`
#[derive(Debug, Clone, Copy)]
pub struct WorkerConfig {
    /// Attempts at a time.
    pub concurrency: usize,
    /// How long a silent worker keeps an attempt.
    pub lease: Millis,
    /// How long attempts may still take when asked to stop.
    pub shutdown_grace: Duration,
    /// Address of a worker's own pages.
    pub listen: Option<SocketAddr>,
    /// Whether operators' own programs run.
    pub exec: bool,
}

/// `queue.*`
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Time between two looks without a reminder.
    pub sweep: Duration,
    /// Where Redis is; empty: there is none.
    pub redis: String,
    /// The file of its password.
    pub redis_password_file: Option<PathBuf>,
    /// Most reminders that it holds.
    pub window: usize,
}

/// `pressure.*`
#[derive(Debug, Clone, Copy)]
pub struct PressureConfig {
    /// Longer is slow.
    pub round_trip: Duration,
    /// Further behind is slow; zero: nobody minds.
    pub lag: Duration,
}

/// `audit.*`
#[derive(Debug, Clone, Copy)]
pub struct AuditConfig {
    /// Ids at a time; 0: none.
    pub slice: u32,
    /// How long a slice stands.
    pub period: Duration,
}

/// `retention.*`
#[derive(Debug, Clone, Copy)]
pub struct RetentionConfig {
    /// Closed findings.
    pub findings: Duration,
    /// Ended attempts.
    pub attempts: Duration,
    /// Evaluations.
    pub evaluations: Duration,
    /// Closed pushes.
    pub pushes: Duration,
    /// Who changed what.
    pub audit: Duration,
}

/// `agent.*`
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Bytes it says it has; none: the whole disk.
    pub capacity: Option<i64>,
    /// Bytes per second that all copies share, in and out; 0: no bound.
    pub bytes_per_second: i64,
    /// Reads by git at a time.
    pub reads: usize,
    /// Packs of pushes that are taken in at a time.
    pub push_packs: usize,
    /// Pushes between their announcement and their end.
    pub pushes: usize,
    /// How long one that nobody goes on with is kept.
    pub push_wait: Duration,
    /// What is made of faults in pushed objects; empty: what git makes of them.
    pub fsck: String,
    /// Shortest time between two sweeps.
    pub sweep: Duration,
}

impl Config {
    /// Reads the layers' values into types.
    ///
    /// # Errors
    /// When a value is not of its key's kind; the layers have checked that already.
    pub fn from_layers(layers: &Layers) -> Result<Self, ConfigError> {
        let read = Reader { layers };
        let capacity = read.as_kind("agent.capacity", value::size)?;
        Ok(Self {
            database_url: read.database_url()?,
            goals_url: layers.text("database.goals_url"),
            databases: layers.databases().map(|(name, url, _)| (name.to_owned(), url.to_owned())).collect(),
            http: HttpConfig {
                listen: read.as_kind("http.listen", value::address)?,
                drain: read.duration("http.drain")?,
            },
            goals: GoalsConfig {
                directory: layers.text("goals.directory").into(),
                repairs: layers.text("repairs.directory").into(),
                schedule: read.as_kind("goals.schedule", value::schedule)?,
                poll: read.duration("goals.poll")?,
                parallel: read.count("goals.parallel")? as usize,
                settings: layers.goal_settings(),
            },
            fleet: FleetConfig {
                grace: read.as_kind("fleet.grace", value::duration)?,
                rack_grace: read.as_kind("fleet.rack_grace", value::duration)?,
                fill_limit: i64::from(read.count("fleet.fill_limit")?),
            },
            observe: ObserveConfig {
                period: read.duration("observe.period")?,
                timeout: read.duration("observe.timeout")?,
            },
            dispatch: DispatchConfig {
                period: read.duration("dispatch.period")?,
                in_flight: read.count("dispatch.in_flight")?,
            },
            worker: WorkerConfig {
                concurrency: read.count("worker.concurrency")? as usize,
                lease: read.as_kind("worker.lease", value::duration)?,
                shutdown_grace: read.duration("worker.shutdown_grace")?,
                listen: read.maybe("worker.listen", value::address)?,
                exec: read.as_kind("worker.exec", value::switch)?,
            },
            queue: QueueConfig {
                sweep: read.duration("queue.sweep")?,
                redis: layers.text("queue.redis"),
                redis_password_file: read.file("queue.redis_password_file"),
                window: read.count("queue.window")? as usize,
            },
            pressure: PressureConfig {
                round_trip: read.duration("pressure.round_trip")?,
                lag: read.duration("pressure.lag")?,
            },
            audit: AuditConfig { slice: read.count("audit.slice")?, period: read.duration("audit.period")? },
            retention: RetentionConfig {
                findings: read.duration("retention.findings")?,
                attempts: read.duration("retention.attempts")?,
                evaluations: read.duration("retention.evaluations")?,
                pushes: read.duration("retention.pushes")?,
                audit: read.duration("retention.audit")?,
            },
            push: read.push()?,
            router: read.router()?,
            agent: AgentConfig {
                capacity: (capacity > 0).then_some(capacity),
                bytes_per_second: read.as_kind("agent.bytes_per_second", value::size)?,
                reads: read.count("agent.reads")? as usize,
                push_packs: read.count("agent.push_packs")? as usize,
                pushes: read.count("agent.pushes")? as usize,
                push_wait: read.duration("agent.push_wait")?,
                fsck: layers.text("agent.fsck"),
                sweep: read.duration("agent.sweep")?,
            },
        })
    }
}

struct Reader<'a> {
    layers: &'a Layers,
}

impl Reader<'_> {
    fn as_kind<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
        read(&self.layers.text(key)).map_err(|why| ConfigError::Value {
            origin: "configuration".into(),
            key: key.to_owned(),
            why,
        })
    }

    fn duration(&self, key: &str) -> Result<Duration, ConfigError> {
        let ms = self.as_kind(key, value::duration)?;
        Ok(Duration::from_millis(u64::try_from(ms).unwrap_or_default()))
    }

    /// Nothing where the value is empty.
    fn maybe<T>(&self, key: &str, of: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, ConfigError> {
        if self.layers.text(key).is_empty() { Ok(None) } else { self.as_kind(key, of).map(Some) }
    }

    /// With the password of its file.
    fn database_url(&self) -> Result<String, ConfigError> {
        let url = self.layers.text("database.url");
        let Some(path) = self.file("database.password_file") else { return Ok(url) };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ConfigError::Unreadable { path, why: error.to_string() })?;
        Ok(value::with_password(&url, text.trim_end_matches(['\r', '\n'])))
    }

    /// A path; nothing where the value is empty.
    fn file(&self, key: &str) -> Option<PathBuf> {
        Some(self.layers.text(key)).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn count(&self, key: &str) -> Result<u32, ConfigError> {
        self.as_kind(key, |text| value::count(text, 0, u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;
    use std::path::Path;

    const NOWHERE: &str = "/nonexistent/trued.toml";

    fn load(text: &str) -> Result<Layers, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trued.toml");
        std::fs::write(&path, text).unwrap();
        Layers::load(Path::new(NOWHERE), Some(&path), std::iter::empty())
    }

    fn message(text: &str) -> String {
        let message = load(text).unwrap_err().to_string();
        let at = message.find("trued.toml").unwrap();
        message[at..].to_owned()
    }

    #[test]
    fn the_reference_file_names_every_key_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/trued.toml");
        let layers = Layers::load(Path::new(NOWHERE), Some(&path), std::iter::empty()).unwrap();
        for key in KEYS {
            assert!(!layers.is_default(key.name), "config/trued.toml lacks {}", key.name);
            assert_eq!(layers.text(key.name), key.default, "{}", key.name);
        }
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        Config::from_layers(&Layers::default()).unwrap();
        for key in KEYS {
            key.kind.check(key.default).unwrap();
            assert!(key.reason.ends_with('.'), "{} needs a reason that is a sentence", key.name);
        }
    }

    #[test]
    fn an_unknown_key_names_file_line_key_and_the_nearest() {
        let said = message("[fleet]\ngrace = \"20s\"\n\n[goals]\nschedul = \"x\"\n");
        insta::assert_snapshot!(said, @"trued.toml:5: unknown key goals.schedul; did you mean goals.schedule?");
        let said = message("[nonsense]\nx = 1\n");
        insta::assert_snapshot!(said, @"trued.toml:2: unknown key nonsense.x; sections are: database, http, goals, repairs, fleet, observe, dispatch, worker, queue, pressure, audit, retention, push, router, agent");
    }

    #[test]
    fn a_wrong_value_says_what_is_allowed() {
        let said = message("[fleet]\ngrace = 20\n");
        insta::assert_snapshot!(said, @r#"trued.toml:2: fleet.grace: "20" is not a duration such as 500ms, 20s, 30m, 2h, 7d"#);
        let said = message("[fleet\n");
        assert!(said.starts_with("trued.toml:1: "), "{said}");
    }

    #[test]
    fn environment_goes_over_files_and_flags_over_both() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trued.toml");
        std::fs::write(&path, "[fleet]\ngrace = \"1m\"\n[observe]\nperiod = \"7s\"\n").unwrap();
        let environment = [("TRUED_FLEET__GRACE".to_owned(), "2m".to_owned()), ("HOME".into(), "/".into())];
        let mut layers = Layers::load(Path::new(NOWHERE), Some(&path), environment.into_iter()).unwrap();
        assert_eq!(layers.text("fleet.grace"), "2m");
        layers.flag("--grace", "fleet.grace", "20s").unwrap();
        let config = Config::from_layers(&layers).unwrap();
        assert_eq!((config.fleet.grace, config.observe.period), (20_000, Duration::from_secs(7)));
    }

    #[test]
    fn databases_are_sections_with_a_url_and_their_variables_are_read() {
        let layers = load("[databases.forge]\nurl = \"sqlite:/srv/forge.db\"\n").unwrap();
        let config = Config::from_layers(&layers).unwrap();
        assert_eq!(config.databases["forge"], "sqlite:/srv/forge.db");
        let environment = [("TRUED_DATABASES__FORGE__URL".to_owned(), "postgres://h/forge".to_owned())];
        let layers = Layers::load(Path::new(NOWHERE), None, environment.into_iter()).unwrap();
        assert_eq!(
            layers.databases().next().map(|(name, url, _)| (name, url)),
            Some(("forge", "postgres://h/forge"))
        );
        let said = message("[databases.forge]\nurl = \"mysql://x\"\n");
        insta::assert_snapshot!(said, @r#"trued.toml:2: databases.forge.url: "mysql://x" is neither sqlite:PATH nor postgres://…"#);
        let said = message("[databases.fleet]\nurl = \"sqlite:x\"\n");
        assert!(said.contains("and not \"fleet\""), "{said}");
        let said = message("[databases]\nurl = \"sqlite:x\"\n");
        assert!(said.contains("[databases.NAME]"), "{said}");
    }

    #[test]
    fn the_password_of_a_file_goes_into_the_url_and_shows_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "se/cret\n").unwrap();
        let path = path.display();
        let layers =
            load(&format!("[database]\nurl = \"postgres://me@h/db\"\npassword_file = \"{path}\"\n")).unwrap();
        assert_eq!(Config::from_layers(&layers).unwrap().database_url, "postgres://me:se%2Fcret@h/db");
        assert!(layers.shown().iter().all(|(_, value, _)| !value.contains("cret")));
        let layers = load("[database]\npassword_file = \"/nowhere/at/all\"\n").unwrap();
        assert!(matches!(Config::from_layers(&layers), Err(ConfigError::Unreadable { .. })));
    }

    #[test]
    fn a_goal_has_settings_of_its_own() {
        let text = "[goal.replicas-match]\nmode = \"observe\"\nbrake = 50\nparam.age = \"3d\"\n[goal.x]\nschedule = \"0 0 3 * * *\"\n";
        let settings = Config::from_layers(&load(text).unwrap()).unwrap().goals.settings;
        let shown: Vec<_> =
            settings.iter().map(|one| format!("{} {}={}", one.goal, one.name, one.value)).collect();
        let expected = [
            "replicas-match brake=50",
            "replicas-match mode=observe",
            "replicas-match param.age=3d",
            "x schedule=0 0 3 * * *",
        ];
        assert_eq!(shown, expected);
        assert!(settings[2].origin.ends_with("trued.toml:4"), "{}", settings[2].origin);
        let said = message("[goal.x]\nmod = \"observe\"\n");
        insta::assert_snapshot!(said, @"trued.toml:2: unknown key goal.x.mod; keys there are: mode, schedule, brake, param.NAME");
        assert!(message("[goal.x]\nschedule = \"* * * * *\"\n").contains("seconds come first"));
        assert!(message("[goal.x]\nmode = \"sleep\"\n").starts_with("trued.toml:2: goal.x.mode: "));
        assert!(message("[goal]\nx = 1\n").contains("a table such as"));
    }

    #[test]
    fn an_unknown_variable_is_an_error_too() {
        let environment = [("TRUED_FLEET__GRAZE".to_owned(), "2m".to_owned())];
        let error = Layers::load(Path::new(NOWHERE), None, environment.into_iter()).unwrap_err();
        insta::assert_snapshot!(error, @"environment TRUED_FLEET__GRAZE: unknown key fleet.graze; did you mean fleet.grace?");
    }
}
