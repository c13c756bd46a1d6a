//! A read: one copy after the other until the first byte, then that one's bytes.
//!
//! Tries draw on the router's budget of retries, and all of them together on the request's deadline. What a failure
//! says of a fileserver goes to its view. After the first byte nothing is tried again: a stream that breaks then ends
//! the connection, which git shows as an error.

use super::Settings;
use super::choose::{self, Taste};
use super::detector::Ended;
use super::hold::{self, Held};
use super::names::{Asked, Names};
use super::replay::Replay;
use super::views::{Trying, Views};
use crate::database::routing::{Place, Route};
use crate::fleet::budget::Budget;
use crate::fleet::{Agents, Blocks, CallError, Class, GitRead};
use crate::model::chance::Chance;
use crate::model::id::RepositoryId;
use crate::model::wire::RefusalCode;
use crate::telemetry::metrics::router::RouterMetrics;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between two rounds over all copies, about.
const PAUSE: Duration = Duration::from_millis(250);

/// What reads are made with.
#[derive(Debug)]
pub struct Reads {
    /// Bounds and habits.
    pub settings: Arc<Settings>,
    /// Calls agents.
    pub agents: Agents,
    /// What is thought of fileservers.
    pub views: Arc<Views>,
    /// Looks repositories up again between rounds.
    pub names: Arc<Names>,
    /// What retries draw on.
    pub budget: Budget,
    /// What is counted.
    pub metrics: Arc<RouterMetrics>,
    /// Spreads equals.
    pub chance: Arc<Chance>,
}

/// Why a read did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nobody can read this.
    #[error("{0}")]
    Wrong(String),
    /// No copy could be read, for now.
    #[error("no copy of it can be read just now")]
    NoCopy,
    /// As many retries as may.
    #[error("too many reads are being tried again")]
    Spent,
}

/// A read that began.
#[derive(Debug)]
pub struct Begun {
    /// Its first bytes.
    pub head: Vec<Bytes>,
    /// What follows; none: that was all.
    pub rest: Option<Following>,
    /// How many copies were tried.
    pub tries: u32,
}

/// The rest of an answer, and the fileserver that it comes from.
pub struct Following {
    /// The blocks.
    pub blocks: Blocks,
    /// Told how it ends.
    pub trying: Trying,
}

impl std::fmt::Debug for Following {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Following").field("trying", &self.trying).finish_non_exhaustive()
    }
}

/// What one try brought.
enum Tried {
    Begun(Begun),
    /// This copy does not have what is wanted: git's answer, if all others say the same.
    Lacks(Begun),
    Failed(CallError),
}

impl Reads {
    /// Begins a read. `replay`: the client's words; none: it asks for the advertisement.
    ///
    /// # Errors
    /// As [`ReadError`].
    pub async fn begin(
        &self,
        asked: &Asked,
        route: Arc<Route>,
        ask: &GitRead,
        mut replay: Option<Replay>,
    ) -> Result<Begun, ReadError> {
        self.budget.earn();
        let deadline = Instant::now() + self.settings.deadline;
        let (mut route, mut tries, mut lacking) = (route, 0, None);
        loop {
            let mut again = false;
            let places = self.order(&route);
            for (place, left) in places.iter().zip((0..places.len()).rev()) {
                if tries > 0 && !self.budget.take() {
                    return Err(ReadError::Spent);
                }
                let body = match &mut replay {
                    None => None,
                    Some(replay) => match replay.body() {
                        // It was too large to be kept, and is gone with the copy that had it.
                        None => return lacking.ok_or(ReadError::NoCopy),
                        body => body,
                    },
                };
                tries += 1;
                let until = self.until(deadline, left);
                match self.attempt(route.id, place, ask, body, until).await {
                    Tried::Begun(begun) => return Ok(Begun { tries, ..begun }),
                    Tried::Lacks(begun) => lacking = Some(Begun { tries, ..begun }),
                    Tried::Failed(error) => {
                        if error.class() == Class::GiveUp {
                            return Err(give_up(error));
                        }
                        again |= error.class() == Class::Again;
                        tracing::debug!(
                            repository.id = route.id.0,
                            fileserver.name = place.end.name,
                            error = &error as &dyn std::error::Error,
                            "a copy could not be read"
                        );
                    }
                }
            }
            if let Some(lacking) = lacking {
                return Ok(lacking);
            }
            let pause = self.chance.around(PAUSE);
            if !(again || places.is_empty()) || Instant::now() + pause >= deadline {
                tracing::warn!(repository.id = route.id.0, tries, "no copy could be read");
                return Err(ReadError::NoCopy);
            }
            tokio::time::sleep(pause).await;
            // Another copy may be in sync by now, or an address be another.
            match self.names.find(asked).await {
                Ok(Some(found)) => route = found,
                Ok(None) => return Err(ReadError::NoCopy),
                Err(_) => {}
            }
        }
    }

    /// Copies in the order in which they are tried.
    fn order(&self, route: &Route) -> Vec<Place> {
        let now = Instant::now();
        let taste = Taste { rack: &self.settings.rack, overload: self.settings.overload };
        let order = choose::order(&route.copies, |id| self.views.seen(id, now), taste, &self.chance);
        order.good.iter().chain(&order.resort).filter_map(|at| route.copies.get(*at).cloned()).collect()
    }

    /// The last copy gets all the time there is; others a share of it.
    fn until(&self, deadline: Instant, left: usize) -> Instant {
        if left == 0 { deadline } else { deadline.min(Instant::now() + self.settings.patience) }
    }

    async fn attempt(
        &self,
        id: RepositoryId,
        place: &Place,
        ask: &GitRead,
        body: Option<reqwest::Body>,
        until: Instant,
    ) -> Tried {
        let mut trying = self.views.begin(place);
        let within = until.saturating_duration_since(Instant::now());
        let tried = async {
            let blocks = self.agents.read_git(&place.end, id, ask, body, within).await?;
            hold::hold(blocks, &place.end.name, until).await
        };
        match tried.await {
            Ok(Held { begun, rest }) => {
                trying.end(Ended::Well);
                let lacks = hold::lacks_what_is_wanted(&begun);
                self.metrics.tried(if lacks { "not-our-ref" } else { "begun" });
                let rest = rest.map(|blocks| Following { blocks, trying });
                let begun = Begun { head: begun, rest, tries: 0 };
                if lacks { Tried::Lacks(begun) } else { Tried::Begun(begun) }
            }
            Err(error) => {
                self.metrics.tried(error.word());
                trying.end(if error.is_the_fileservers() { Ended::Badly } else { Ended::Silent });
                if matches!(&error, CallError::Refused(refusal) if refusal.code == RefusalCode::Busy) {
                    self.views.busy(place.fileserver, Instant::now());
                }
                Tried::Failed(error)
            }
        }
    }
}

fn give_up(error: CallError) -> ReadError {
    match error {
        CallError::Refused(refusal) if refusal.code == RefusalCode::BadRequest => {
            ReadError::Wrong(refusal.message)
        }
        _ => ReadError::NoCopy,
    }
}
