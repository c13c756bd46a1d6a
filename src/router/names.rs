//! Names: what a client's address asks for, and which repository that is. SQL alone maps a name to a repository, so a
//! client's text never becomes a path anywhere.
//!
//! While SQL is away, repositories that were asked for lately are remembered for a while, for reads; what was renamed,
//! removed or found out of sync meanwhile is not seen then.

use super::Settings;
use crate::database::Database;
use crate::database::routing::{self, Route};
use crate::telemetry::metrics::router::RouterMetrics;
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Longest name of a repository.
const LONGEST: usize = 512;
/// Longest wait for SQL's answer; then it counts as away.
const WITHIN: Duration = Duration::from_secs(2);
/// Once it did, it is asked by one request in this time.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// One of Git's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Reads.
    UploadPack,
    /// Pushes.
    ReceivePack,
}

/// What is asked of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `GET …/info/refs?service=…`
    Advertisement(Service),
    /// `POST …/git-upload-pack` or `…/git-receive-pack`
    Request(Service),
    /// Files, as clients from before 2010 read them.
    Dumb,
}

/// An address that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The name as the client wrote it, decoded, without slashes around it.
    pub name: String,
    /// What is asked.
    pub what: What,
}

impl Asked {
    /// Reads an address; none: it is no address of a repository's.
    #[must_use]
    pub fn read(path: &str, query: Option<&str>) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let asks = |service: &str| query.is_some_and(|all| all.split('&').any(|one| one == service));
        let (name, what) = if let Some(name) = path.strip_suffix("/info/refs") {
            let service = match () {
                () if asks("service=git-upload-pack") => What::Advertisement(Service::UploadPack),
                () if asks("service=git-receive-pack") => What::Advertisement(Service::ReceivePack),
                () => What::Dumb,
            };
            (name, service)
        } else if let Some(name) = path.strip_suffix("/git-upload-pack") {
            (name, What::Request(Service::UploadPack))
        } else if let Some(name) = path.strip_suffix("/git-receive-pack") {
            (name, What::Request(Service::ReceivePack))
        } else if let Some(name) = path.strip_suffix("/HEAD") {
            (name, What::Dumb)
        } else {
            (path.split_once("/objects/")?.0, What::Dumb)
        };
        let name = percent_decode_str(name).decode_utf8().ok()?;
        is_plausible(&name).then(|| Self { name: name.into_owned(), what })
    }

    /// The name without `.git`, which it is known by if not by itself.
    #[must_use]
    pub fn bare(&self) -> &str {
        self.name.strip_suffix(".git").filter(|bare| is_plausible(bare)).unwrap_or(&self.name)
    }
}

/// Whether a repository could have this name: whatever could not is not looked up.
fn is_plausible(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST
        && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
        && !name.chars().any(|c| c.is_control() || c == '\\')
}

/// Why nobody knows whether there is such a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database is away")]
pub struct SqlAway;

/// Looks up names.
#[derive(Debug)]
pub struct Names {
    db: Database,
    sql_away: Duration,
    metrics: Arc<RouterMetrics>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    remembered: Remembered,
    /// Since when SQL is away, and when it was last asked.
    away: Option<(Instant, Instant)>,
}

/// Rows in two generations: the older half goes at once, so that no order has to be kept.
#[derive(Debug)]
struct Remembered {
    half: usize,
    young: HashMap<String, Arc<Route>>,
    old: HashMap<String, Arc<Route>>,
}

impl Names {
    /// Nothing is remembered yet.
    #[must_use]
    pub fn new(db: Database, settings: &Settings, metrics: Arc<RouterMetrics>) -> Self {
        let half = settings.remembered.div_ceil(2);
        let remembered = Remembered { half, young: HashMap::new(), old: HashMap::new() };
        Self { db, sql_away: settings.sql_away, metrics, state: Mutex::new(State { remembered, away: None }) }
    }

    /// The repository that is asked for, as SQL has it now; without SQL, as it was last.
    ///
    /// # Errors
    /// When SQL is away, and for longer than is allowed or the repository is not remembered.
    pub async fn find(&self, asked: &Asked) -> Result<Option<Arc<Route>>, SqlAway> {
        if !self.is_to_be_asked(Instant::now()) {
            return self.recall(&asked.name, Instant::now()).map(Some);
        }
        let ask = routing::by_name(&self.db, &asked.name, asked.bare());
        match tokio::time::timeout(WITHIN, ask).await {
            Ok(Ok(found)) => Ok(self.learn(&asked.name, found.map(Arc::new))),
            Ok(Err(error)) => {
                self.lose(&error.to_string(), Instant::now());
                self.recall(&asked.name, Instant::now()).map(Some)
            }
            Err(_) => {
                self.lose("no answer", Instant::now());
                self.recall(&asked.name, Instant::now()).map(Some)
            }
        }
    }

    /// Whether reads go on without SQL now.
    #[must_use]
    pub fn is_without_sql(&self) -> bool {
        self.lock().away.is_some()
    }

    /// What keeps reads from going on, if SQL has been away for longer than that is allowed.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let (since, _) = self.lock().away?;
        (since.elapsed() >= self.sql_away)
            .then(|| format!("the database has been away for longer than {:?}", self.sql_away))
    }

    /// While it is away, one request in a while asks; the others do not wait for it.
    fn is_to_be_asked(&self, now: Instant) -> bool {
        let mut state = self.lock();
        match &mut state.away {
            None => true,
            Some((_, asked)) if now >= *asked + ASK_AGAIN => {
                *asked = now;
                true
            }
            Some(_) => false,
        }
    }

    fn learn(&self, name: &str, found: Option<Arc<Route>>) -> Option<Arc<Route>> {
        let mut state = self.lock();
        if state.away.take().is_some() {
            tracing::info!("the database is back: reads go by its rows again");
        }
        self.metrics.without_sql(false);
        match &found {
            Some(route) => state.remembered.put(name, route),
            None => state.remembered.forget(name),
        }
        found
    }

    fn lose(&self, why: &str, now: Instant) {
        let mut state = self.lock();
        if state.away.is_none() {
            tracing::warn!(why, "the database is away: reads go on from the last known rows");
            state.away = Some((now, now));
        }
        self.metrics.without_sql(true);
    }

    fn recall(&self, name: &str, now: Instant) -> Result<Arc<Route>, SqlAway> {
        let state = self.lock();
        let in_time = state.away.is_none_or(|(since, _)| now < since + self.sql_away);
        if !in_time {
            return Err(SqlAway);
        }
        state.remembered.get(name).ok_or(SqlAway)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn put(&mut self, name: &str, route: &Arc<Route>) {
        if self.half == 0 {
            return;
        }
        if self.young.len() >= self.half && !self.young.contains_key(name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name.to_owned(), Arc::clone(route));
    }

    fn get(&self, name: &str) -> Option<Arc<Route>> {
        self.young.get(name).or_else(|| self.old.get(name)).cloned()
    }

    fn forget(&mut self, name: &str) {
        self.young.remove(name);
        self.old.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::RepositoryId;

    fn asked(address: &str) -> Option<Asked> {
        let (path, query) =
            address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
        Asked::read(path, query)
    }

    #[test]
    fn addresses_of_git_are_understood_with_slashes_and_with_or_without_git() {
        let upload = What::Advertisement(Service::UploadPack);
        for (address, name, bare, what) in [
            ("/a.git/info/refs?service=git-upload-pack", "a.git", "a", upload),
            ("/g/s/a/info/refs?service=git-upload-pack", "g/s/a", "g/s/a", upload),
            ("/a/git-upload-pack", "a", "a", What::Request(Service::UploadPack)),
            ("/a.git/git-receive-pack", "a.git", "a", What::Request(Service::ReceivePack)),
            ("/%C3%9Cber.git/HEAD", "Über.git", "Über", What::Dumb),
            ("/a/info/refs", "a", "a", What::Dumb),
            ("/a/objects/info/packs", "a", "a", What::Dumb),
            ("/a%2Fb/git-upload-pack", "a/b", "a/b", What::Request(Service::UploadPack)),
        ] {
            let found = asked(address).unwrap_or_else(|| panic!("{address}"));
            assert_eq!((found.name.as_str(), found.bare(), found.what), (name, bare, what), "{address}");
        }
    }

    #[test]
    fn what_could_be_a_path_is_no_name() {
        for address in [
            "/../x/git-upload-pack",
            "/a/../b/git-upload-pack",
            "/%2e%2e/x/git-upload-pack",
            "/a/%2E%2E%2Fb/git-upload-pack",
            "/a%00b/git-upload-pack",
            "/a%0ab/git-upload-pack",
            "//etc/passwd/git-upload-pack",
            "/a\\..\\b/git-upload-pack",
            "/%ff%fe/git-upload-pack",
            "/git-upload-pack",
            "/info/refs?service=git-upload-pack",
            "/",
            "/a",
            "/metrics",
        ] {
            assert_eq!(asked(address), None, "{address}");
        }
        assert!(asked(&format!("/{}/git-upload-pack", "x".repeat(600))).is_none());
        assert_eq!(asked("/.git/git-upload-pack").unwrap().bare(), ".git");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_latest_stay() {
        let mut all = Remembered { half: 10, young: HashMap::new(), old: HashMap::new() };
        let route = |id| Arc::new(Route { id: RepositoryId(id), name: String::new(), copies: Vec::new() });
        for n in 0..1_000 {
            all.put(&n.to_string(), &route(n));
            assert!(all.young.len() + all.old.len() <= 20);
        }
        assert!((990..1_000).all(|n| all.get(&n.to_string()).is_some()));
        all.forget("999");
        assert!(all.get("999").is_none() && all.get("3").is_none());
    }
}
