//! Settling: deciding a push whose router is gone. Shared by routers, who meet its row, and workers, whose goal finds it.
//!
//! First the row is taken over, so that its old router can close nothing and acknowledge nothing. Then every copy that
//! can be reached is fenced: what it tells behind the fence is final. What that means is decided by
//! [`push::settle`](crate::model::push::settle); here it is only done. Nothing is done twice that
//! matters: whoever breaks off leaves a row that the next one takes over.

use crate::database::pushes::{Place, TakenOver};
use crate::database::{self, Database, DatabaseError, pushes};
use crate::fleet::{Agents, CallError, Watch};
use crate::model::Millis;
use crate::model::fleet::{ReplicaState, quorum};
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::push::{Fenced, Open, Settled, Unsettled, settle as decide};
use crate::model::wire::push::FenceRequest;
use crate::model::wire::{Identity, RefusalCode, ResyncRequest};
use futures::future::join_all;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

mod adopt;

pub use adopt::{Adopted, adopt};

/// How often a push is taken over again in one go, because agents have seen higher epochs.
const ROUNDS: usize = 3;

/// How settling is done.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long the row is the settler's without a renewal.
    pub lease: Duration,
    /// How long a voter may take to end what runs, and to tell its checksum.
    pub fence: Duration,
    /// Longest silence of a voter that is brought to the others.
    pub quiet: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(20),
            fence: Duration::from_secs(30),
            quiet: Duration::from_secs(15),
        }
    }
}

/// Who settles, and with what.
#[derive(Debug, Clone, Copy)]
pub struct Settler<'a> {
    /// Where pushes are.
    pub database: &'a Database,
    /// Whom it calls.
    pub agents: &'a Agents,
    /// Its name, for the row.
    pub by: &'a str,
    /// How.
    pub bounds: Bounds,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// No push is open whose lease is over, or somebody else has taken it over.
    Nothing,
    /// It stands.
    Committed,
    /// It does not.
    Aborted,
    /// Not yet: too few copies answer, in words for people.
    Waits(String),
    /// No rule decides it, in words for people.
    Person(String),
}

impl Settler<'_> {
    /// Settles the open push of a repository if its lease is over, or if it is `own` (number and epoch).
    ///
    /// # Errors
    /// When the engine fails; agents that fail are not errors.
    pub async fn settle(&self, id: RepositoryId, own: Option<(i64, i64)>) -> database::Result<Ended> {
        let mut own = own;
        for _ in 0..ROUNDS {
            let Some(taken) = pushes::take_over(self.database, id, self.by, own, self.lease()).await? else {
                return Ok(Ended::Nothing);
            };
            let span = tracing::info_span!("push.settle", repository.id = %id, push.id = taken.closing.id);
            let work = tracing::Instrument::instrument(self.decided(&taken), span);
            let ended = tokio::select! {
                ended = work => ended?,
                () = self.keep(&taken) => Some(Ended::Nothing),
            };
            match ended {
                Some(ended) => return Ok(ended),
                // Once more, under an epoch above those that agents have seen.
                None => own = Some((taken.closing.id, taken.closing.epoch)),
            }
        }
        Ok(Ended::Waits("agents go on to see higher epochs than the database gives".to_owned()))
    }

    fn lease(&self) -> Millis {
        Millis::try_from(self.bounds.lease.as_millis()).unwrap_or(Millis::MAX)
    }

    /// Renews the row's lease; ends when another has it.
    async fn keep(&self, taken: &TakenOver) {
        loop {
            tokio::time::sleep(self.bounds.lease / 3).await;
            let (id, epoch) = (taken.closing.id, taken.closing.epoch);
            if matches!(pushes::renew(self.database, id, epoch, self.lease()).await, Ok(false)) {
                return;
            }
        }
    }

    /// None: agents have seen higher epochs than the database gave, which gives higher ones from now on.
    async fn decided(&self, taken: &TakenOver) -> database::Result<Option<Ended>> {
        let Some(base) = taken.repository.checksum else {
            return self.person(taken, "the database holds no definitive checksum").await.map(Some);
        };
        let (seats, base_version) = (taken.repository.seats, taken.closing.base_version);
        let open = Open { base_version, base, new: taken.new, seats };
        let (fenced, ahead) = self.fence(taken).await;
        if self.catch_up(taken.repository.id, ahead).await? {
            return Ok(None);
        }
        let told = Told { taken, open: &open, fenced: &fenced };
        let ended = match decide(&taken.voters, &fenced, &open) {
            Settled::Wait => Ended::Waits(told.reached()),
            Settled::Person(why) => self.person(taken, &words(&why, &taken.places)).await?,
            Settled::Aborted { equal, .. } => {
                let equal = told.with_followers(equal, &open.base);
                self.close(taken, false, &equal).await?
            }
            Settled::Committed { bring, equal, .. } => self.commit(&told, &bring, equal).await?,
        };
        Ok(Some(ended))
    }

    /// Where agents have seen a higher epoch: whether it is above what the database gave, which then went back.
    async fn catch_up(&self, id: RepositoryId, ahead: Vec<&End>) -> database::Result<bool> {
        let asks = ahead.into_iter().map(|end| self.agents.epochs(end, id));
        let seen = join_all(asks).await.into_iter().filter_map(Result::ok).map(|seen| seen.push).max();
        let raised = match seen {
            Some(seen) => pushes::catch_up(self.database, id, seen).await?,
            None => false,
        };
        if raised {
            tracing::warn!(
                repository.id = id.0,
                "agents have seen higher push epochs than the database gave: it went back"
            );
        }
        Ok(raised)
    }

    /// Fences every copy that reads: voters, and those that follow, who may have the commands too. Who has seen a
    /// higher epoch stands apart.
    async fn fence<'t>(&self, taken: &'t TakenOver) -> (Vec<Fenced>, Vec<&'t End>) {
        let reads = |place: &&Place| matches!(place.state, ReplicaState::Live | ReplicaState::Leaving);
        // An offline fileserver is asked too: what was last seen of it may be over.
        let asks = taken.places.iter().filter(reads).filter(|place| !place.empty).map(|place| async move {
            let ask = FenceRequest { epoch: taken.fence() };
            let (to, id) = (&place.end, taken.repository.id);
            let call = self.agents.fence(to, id, taken.closing.epoch, &ask, self.bounds.fence).await;
            let (voter, nothing) = (place.id, Fenced { voter: place.id, checksum: None, journal_version: 0 });
            match call {
                Ok(told) => {
                    let (checksum, journal_version) = (Some(told.checksum), told.journal_version);
                    (Some(Fenced { voter, checksum, journal_version }), None)
                }
                Err(error) if is_bad(&error) => (Some(nothing), None),
                Err(error) => {
                    let ahead = is_ahead(&error).then_some(&place.end);
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, fileserver.name = place.end.name, "a copy could not be fenced");
                    (None, ahead)
                }
            }
        });
        let (fenced, ahead): (Vec<_>, Vec<_>) = join_all(asks).await.into_iter().unzip();
        (fenced.into_iter().flatten().collect(), ahead.into_iter().flatten().collect())
    }

    /// Brings the others to what those have that have it; it stands once a quorum is equal.
    async fn commit(
        &self,
        told: &Told<'_>,
        bring: &[FileserverId],
        mut equal: Vec<FileserverId>,
    ) -> database::Result<Ended> {
        let taken = told.taken;
        let source = equal.iter().find_map(|id| end_of(&taken.places, *id)).cloned();
        if let Some(source) = source {
            let brought = bring.iter().map(|id| self.bring(taken, &source, *id));
            equal.extend(join_all(brought).await.into_iter().flatten());
        }
        let needed = quorum(taken.repository.seats) as usize;
        if equal.len() < needed {
            let have = equal.len();
            return Ok(Ended::Waits(format!(
                "{have} copies have the push, {needed} must, and others cannot be brought there now"
            )));
        }
        let equal = told.with_followers(equal, &told.open.new);
        self.close(taken, true, &equal).await
    }

    async fn bring(&self, taken: &TakenOver, source: &End, id: FileserverId) -> Option<FileserverId> {
        let to = end_of(&taken.places, id)?;
        let (repository, closing) = (&taken.repository, taken.closing);
        let ask = ResyncRequest {
            identity: Identity {
                repository: repository.id,
                name: repository.name.clone(),
                object_format: repository.object_format,
                wanted: repository.wanted,
                version: closing.base_version + 1,
            },
            fence: Some(taken.fence()),
            bytes_per_second: 0,
            rebuild: false,
        };
        let (progress, _seen) = watch::channel(None);
        let watch = Watch { cancel: CancellationToken::new(), quiet: self.bounds.quiet, progress };
        match self.agents.bring(to, source, repository.id, closing.epoch, &ask, &watch).await {
            Ok(answer) => (answer.checksum == taken.new).then_some(id),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    fileserver.name = to.name,
                    "a copy could not be brought to a push that stands"
                );
                None
            }
        }
    }

    async fn close(
        &self,
        taken: &TakenOver,
        stands: bool,
        equal: &[FileserverId],
    ) -> database::Result<Ended> {
        let checksum = if stands { Some(taken.new) } else { taken.repository.checksum };
        let checksum =
            checksum.ok_or_else(|| DatabaseError::Unreadable("no definitive checksum".to_owned()))?;
        let closed =
            pushes::close_settled(self.database, taken.closing, stands, &checksum, equal, self.by).await?;
        if !closed {
            return Ok(Ended::Nothing);
        }
        tracing::info!(stands, copies = equal.len(), "a push whose router was gone is settled");
        Ok(if stands { Ended::Committed } else { Ended::Aborted })
    }

    async fn person(&self, taken: &TakenOver, why: &str) -> database::Result<Ended> {
        pushes::undecided(self.database, taken.closing, why).await?;
        Ok(Ended::Person(why.to_owned()))
    }
}

/// What copies told of one push.
struct Told<'a> {
    taken: &'a TakenOver,
    open: &'a Open,
    fenced: &'a [Fenced],
}

impl Told<'_> {
    /// Those that do not vote and have this too: they stay in sync, and are never counted.
    fn with_followers(
        &self,
        mut equal: Vec<FileserverId>,
        checksum: &crate::model::checksum::Checksum,
    ) -> Vec<FileserverId> {
        let follows = |one: &&Fenced| !self.taken.voters.contains(&one.voter);
        let has = |one: &&Fenced| one.checksum.as_ref() == Some(checksum);
        equal.extend(self.fenced.iter().filter(follows).filter(has).map(|one| one.voter));
        equal
    }

    fn reached(&self) -> String {
        let reached = self.fenced.iter().filter(|one| self.taken.voters.contains(&one.voter)).count();
        let (voters, needed) = (self.taken.voters.len(), quorum(self.open.seats));
        format!("{reached} of {voters} voters can be reached, {needed} are needed to decide the push")
    }
}

fn words(why: &Unsettled, places: &[Place]) -> String {
    match why {
        Unsettled::HistoryLost(ahead) => {
            let names: Vec<&str> =
                ahead.iter().filter_map(|id| end_of(places, *id)).map(|end| end.name.as_str()).collect();
            format!("HISTORY_LOST: {} committed more than the database knows", names.join(", "))
        }
        Unsettled::FewFit { fit, needed } => {
            format!("{fit} voters have the references from before the push or from after it, {needed} must")
        }
    }
}

fn end_of(places: &[Place], id: FileserverId) -> Option<&End> {
    places.iter().find(|place| place.id == id).map(|place| &place.end)
}

/// Whether an answer says that the copy there is damaged or gone, which is an answer.
fn is_bad(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal) if matches!(refusal.code, RefusalCode::Damaged | RefusalCode::NotFound))
}

/// Whether an answer says that a higher epoch was seen there.
fn is_ahead(error: &CallError) -> bool {
    matches!(error, CallError::Refused(refusal) if refusal.code == RefusalCode::OldEpoch)
}
