//! The table of pushes: what each one waits for, and what is forgotten.

use super::PushSettings;
use crate::agent::content::Ingested;
use crate::model::id::RepositoryId;
use crate::model::wire::push::{FinishAnswer, IngestAnswer, IngestRequest};
use crate::model::wire::{Refusal, RefusalCode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often old ones are looked for.
const EVERY: Duration = Duration::from_secs(30);
/// How long the answer of one that ended is kept for a caller that did not hear it.
const TOLD_AGAIN: Duration = Duration::from_mins(2);
/// How long a pack waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// All pushes of this agent.
#[derive(Debug)]
pub(in crate::agent) struct Pushes {
    settings: PushSettings,
    start: i64,
    numbers: AtomicU64,
    turns: Arc<Semaphore>,
    sessions: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    id: RepositoryId,
    since: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Announced(Arc<IngestRequest>),
    /// Its pack comes.
    Receiving(CancellationToken),
    Ready(Ingested),
    /// Somebody prepares it; `unwanted`: its verdict came before its vote, so that it does not become ready again.
    Preparing {
        unwanted: bool,
    },
    Prepared {
        epoch: i64,
        orders: mpsc::Sender<Order>,
    },
    /// None: not by a verdict.
    Ended {
        epoch: i64,
        answer: Option<Box<FinishAnswer>>,
    },
}

/// A verdict, and whom to tell how it went.
#[derive(Debug)]
pub(in crate::agent) struct Order {
    pub(super) commit: bool,
    pub(super) reply: oneshot::Sender<Result<FinishAnswer, Refusal>>,
}

/// What there is to finish.
#[derive(Debug)]
pub(in crate::agent) enum Finishing {
    /// Whom to tell the verdict.
    Prepared(mpsc::Sender<Order>),
    /// It was finished before.
    Ended(Box<FinishAnswer>),
}

impl Pushes {
    pub(in crate::agent) fn new(settings: PushSettings) -> Arc<Self> {
        Arc::new(Self {
            start: crate::clock::now(),
            numbers: AtomicU64::new(1),
            turns: Arc::new(Semaphore::new(settings.at_once)),
            sessions: Mutex::default(),
            settings,
        })
    }

    pub(super) fn settings(&self) -> PushSettings {
        self.settings
    }

    /// Forgets what is too old, from time to time.
    pub(in crate::agent) async fn keep(self: Arc<Self>, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let old = self.take_old();
            // Their directories go with them.
            let _ = tokio::task::spawn_blocking(move || drop(old)).await;
        }
    }

    /// Announces a push. `pushed`: the highest epoch of any push of the repository that was heard of.
    ///
    /// # Errors
    /// `Busy` when there are as many as may be.
    pub(in crate::agent) fn begin(
        &self,
        id: RepositoryId,
        ask: IngestRequest,
        pushed: i64,
    ) -> Result<IngestAnswer, Refusal> {
        drop(self.take_old());
        let mut sessions = self.lock();
        if sessions.len() >= self.settings.most {
            return Err(Refusal::new(RefusalCode::Busy, "as many pushes are under way here as may be"));
        }
        // Never given twice, also by a later start: a late caller finds nothing rather than another's push.
        let ingest = format!("{:x}-{:x}", self.start, self.numbers.fetch_add(1, Ordering::Relaxed));
        let state = State::Announced(Arc::new(ask));
        sessions.insert(ingest.clone(), Session { id, since: Instant::now(), state });
        Ok(IngestAnswer { ingest, pushed })
    }

    /// Begins to take the pack of one that was announced. It is forgotten if that does not end well.
    ///
    /// # Errors
    /// `NotFound`; `Exists` when its pack has come or comes.
    pub(in crate::agent) fn receive(
        self: &Arc<Self>,
        id: RepositoryId,
        ingest: &str,
        cancel: &CancellationToken,
    ) -> Result<Receiving, Refusal> {
        let mut sessions = self.lock();
        let session = find(&mut sessions, id, ingest)?;
        let State::Announced(ask) = &session.state else {
            return Err(Refusal::new(RefusalCode::Exists, "the pack of this push came already"));
        };
        let ask = Arc::clone(ask);
        session.state = State::Receiving(cancel.clone());
        session.since = Instant::now();
        Ok(Receiving { pushes: Arc::clone(self), ingest: ingest.to_owned(), ask, done: false })
    }

    /// Takes the objects of one that is ready, to prepare it.
    ///
    /// # Errors
    /// `NotFound` where it is not known, `BadRequest` where it is not ready.
    pub(super) fn take(self: &Arc<Self>, id: RepositoryId, ingest: &str) -> Result<Taken, Refusal> {
        let mut sessions = self.lock();
        let session = find(&mut sessions, id, ingest)?;
        match std::mem::replace(&mut session.state, State::Preparing { unwanted: false }) {
            State::Ready(ingested) => Ok(Taken {
                pushes: Arc::clone(self),
                id,
                ingest: ingest.to_owned(),
                ingested: Some(ingested),
            }),
            other => {
                session.state = other;
                Err(Refusal::new(RefusalCode::BadRequest, "this push is not ready to be prepared"))
            }
        }
    }

    /// Where the objects of one are that is ready; none: it brought none.
    ///
    /// # Errors
    /// `NotFound` where it is not known, `BadRequest` where it is not ready.
    pub(in crate::agent) fn objects(
        &self,
        id: RepositoryId,
        ingest: &str,
    ) -> Result<Option<PathBuf>, Refusal> {
        match &find(&mut self.lock(), id, ingest)?.state {
            State::Ready(ingested) => Ok(ingested.objects().map(Path::to_owned)),
            _ => {
                Err(Refusal::new(RefusalCode::BadRequest, "the objects of this push are not to be read now"))
            }
        }
    }

    /// What a verdict is told to. An abort ends one that did not come to its vote too: nobody asks for it again, and
    /// its objects would be held for minutes.
    ///
    /// # Errors
    /// `NotFound` where it is not known; `BadRequest` where it is not prepared, or under another epoch;
    /// `Cancelled` where it has ended without a verdict.
    pub(in crate::agent) fn finish(
        &self,
        id: RepositoryId,
        ingest: &str,
        epoch: i64,
        commit: bool,
    ) -> Result<Finishing, Refusal> {
        let mut sessions = self.lock();
        match &mut find(&mut sessions, id, ingest)?.state {
            State::Prepared { epoch: own, orders } if *own == epoch => {
                Ok(Finishing::Prepared(orders.clone()))
            }
            State::Ready(_) if !commit => {
                let gone = sessions.remove(ingest);
                drop(sessions);
                drop(gone);
                Err(super::over())
            }
            State::Preparing { unwanted } if !commit => {
                *unwanted = true;
                Err(super::over())
            }
            State::Ended { epoch: own, answer: Some(answer) } if *own == epoch => {
                Ok(Finishing::Ended(answer.clone()))
            }
            State::Ended { epoch: own, answer: None } if *own == epoch => Err(super::over()),
            _ => Err(Refusal::new(RefusalCode::BadRequest, "this push is not prepared under this epoch")),
        }
    }

    /// Forgets one that is not prepared; one that is not known is forgotten already.
    ///
    /// # Errors
    /// `Busy` when it is prepared: it ends by a verdict, or by itself.
    pub(in crate::agent) fn forget(&self, id: RepositoryId, ingest: &str) -> Result<(), Refusal> {
        let mut sessions = self.lock();
        let Ok(session) = find(&mut sessions, id, ingest) else { return Ok(()) };
        match &session.state {
            State::Preparing { .. } | State::Prepared { .. } => {
                return Err(Refusal::new(RefusalCode::Busy, "this push is prepared: finish it"));
            }
            State::Receiving(cancel) => cancel.cancel(),
            State::Announced(_) | State::Ready(_) | State::Ended { .. } => {}
        }
        let gone = sessions.remove(ingest);
        drop(sessions);
        drop(gone);
        Ok(())
    }

    /// What nobody goes on with.
    fn take_old(&self) -> Vec<Session> {
        let mut sessions = self.lock();
        let waits = self.settings.waits;
        let is_old = |session: &Session| match session.state {
            State::Announced(_) | State::Ready(_) => session.since.elapsed() > waits,
            State::Ended { .. } => session.since.elapsed() > TOLD_AGAIN,
            State::Receiving(_) | State::Preparing { .. } | State::Prepared { .. } => false,
        };
        sessions.extract_if(|_, session| is_old(session)).map(|(_, session)| session).collect()
    }

    fn set(&self, ingest: &str, state: State) {
        if let Some(session) = self.lock().get_mut(ingest) {
            session.state = state;
            session.since = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find<'a>(
    sessions: &'a mut HashMap<String, Session>,
    id: RepositoryId,
    ingest: &str,
) -> Result<&'a mut Session, Refusal> {
    let session = sessions.get_mut(ingest).filter(|session| session.id == id);
    session.ok_or_else(|| Refusal::new(RefusalCode::NotFound, "no such push here: it is over, or too old"))
}

/// One whose pack comes.
#[derive(Debug)]
pub(in crate::agent) struct Receiving {
    pushes: Arc<Pushes>,
    /// Its name.
    pub(in crate::agent) ingest: String,
    /// What was announced.
    pub(in crate::agent) ask: Arc<IngestRequest>,
    done: bool,
}

impl Receiving {
    /// Waits for its turn.
    ///
    /// # Errors
    /// `Busy`.
    pub(in crate::agent) async fn turn(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        match tokio::time::timeout(TURN, Arc::clone(&self.pushes.turns).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(Refusal::new(RefusalCode::Busy, "as many packs are taken in here as may be"))
            }
        }
    }

    /// All of it came.
    pub(in crate::agent) fn ready(mut self, ingested: Ingested) {
        self.done = true;
        self.pushes.set(&self.ingest, State::Ready(ingested));
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.done {
            let gone = self.pushes.lock().remove(&self.ingest);
            drop(gone);
        }
    }
}

/// One that is being prepared; ready again when this is dropped before it was, unless it is not wanted any more.
#[derive(Debug)]
pub(super) struct Taken {
    pushes: Arc<Pushes>,
    id: RepositoryId,
    ingest: String,
    ingested: Option<Ingested>,
}

impl Taken {
    pub(super) fn id(&self) -> RepositoryId {
        self.id
    }

    /// Its objects.
    ///
    /// # Errors
    /// `Failed` when they were given away, which does not happen before it is prepared.
    pub(super) fn ingested(&mut self) -> Result<&mut Ingested, Refusal> {
        self.ingested.as_mut().ok_or_else(super::lost)
    }

    /// It is prepared: verdicts go there.
    pub(super) fn prepared(mut self, epoch: i64, orders: mpsc::Sender<Order>) -> Ending {
        self.pushes.set(&self.ingest, State::Prepared { epoch, orders });
        Ending {
            pushes: Arc::clone(&self.pushes),
            ingest: self.ingest.clone(),
            epoch,
            answer: None,
            _ingested: self.ingested.take(),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(ingested) = self.ingested.take() else { return };
        let mut sessions = self.pushes.lock();
        let Some(session) = sessions.get_mut(&self.ingest) else { return };
        if matches!(session.state, State::Preparing { unwanted: true }) {
            sessions.remove(&self.ingest);
        } else {
            session.state = State::Ready(ingested);
            session.since = Instant::now();
        }
    }
}

/// One that is prepared, until it has ended; its objects are held against deletion as long.
#[derive(Debug)]
pub(super) struct Ending {
    pushes: Arc<Pushes>,
    ingest: String,
    epoch: i64,
    answer: Option<Box<FinishAnswer>>,
    _ingested: Option<Ingested>,
}

impl Ending {
    /// How it ended, where that was by a verdict.
    pub(super) fn ended(mut self, answer: Option<FinishAnswer>) {
        self.answer = answer.map(Box::new);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let state = State::Ended { epoch: self.epoch, answer: self.answer.take() };
        self.pushes.set(&self.ingest, state);
    }
}
