//! One push from its request to its report.

use super::commands::{self, Asked, Bounds, CommandsError, Heard};
use super::fan::{PourError, pour};
use super::line::{self, Placed};
use super::pktline::{Incoming, PacketError};
use super::policy::judge::Said;
use super::ready::{Gathered, Intake, Taker, Unready, let_go};
use super::report::{Report, alive, words};
use super::verdict::{Ended, Running};
use super::view::View;
use super::{Answer, Pushed, Pushing, policy};
use crate::body::{ByteStream, drain};
use crate::database::pushes;
use crate::model::fleet::Repository;
use crate::model::id::RepositoryId;
use crate::model::push::quorum;
use crate::model::wire::push::{Command, RefName};
use bytes::Bytes;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

const TYPE: &str = "application/x-git-receive-pack-result";
/// Bytes of one command with its packet: a long name, two objects.
const COMMAND: usize = 512;
/// How long a judge may go on reading beyond its time: clocks differ.
const GRACE: Duration = Duration::from_secs(30);

/// Answers `git-receive-pack`: takes a push, and tells how it ended. Dropped before the body's end, nothing came of it.
pub async fn receive_pack(pushing: &Arc<Pushing>, pushed: &Pushed, body: ByteStream) -> Answer {
    let span = tracing::info_span!("router.push", repository.id = %pushed.repository, pusher = pushed.pusher);
    receive(pushing, pushed, body).instrument(span).await
}

async fn receive(pushing: &Arc<Pushing>, pushed: &Pushed, body: ByteStream) -> Answer {
    let begun = Instant::now();
    let view = match View::read(pushing, pushed.repository).await {
        Ok(Some(view)) => view,
        Ok(None) => return Answer::sentence(404, "there is no such repository"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a push could not be routed");
            return Answer::sentence(503, "the database is away: nobody can push now");
        }
    };
    let mut incoming = Incoming::new(body);
    let references = pushing.settings.references;
    let bounds = Bounds { commands: references, bytes: (references * COMMAND).max(64 * COMMAND) };
    let heard = match commands::read(&mut incoming, view.repository.object_format, bounds).await {
        Ok(heard) => heard,
        Err(error) => return unreadable(incoming, &error).await,
    };
    match heard {
        Heard::Probe => Answer::whole(200, TYPE, "0000"),
        Heard::Refused(asked, why) => refused(pushing, incoming.rest(), &asked, &why, begun).await,
        Heard::Push(asked) => push(pushing, &view, asked, incoming.rest(), &pushed.pusher, begun).await,
    }
}

/// What is too much is said with a status that git shows; what broke off is heard by nobody.
async fn unreadable(incoming: Incoming, error: &CommandsError) -> Answer {
    let status = match error {
        CommandsError::TooMuch(_) => 413,
        CommandsError::Malformed(_) | CommandsError::Packets(PacketError::Malformed | PacketError::Cut) => {
            400
        }
        CommandsError::Packets(PacketError::Broken(_)) => return Answer::sentence(400, "the push broke off"),
    };
    drain(incoming.rest()).await;
    Answer::sentence(status, &error.to_string())
}

fn names(asked: &Asked) -> impl Iterator<Item = RefName> {
    asked.commands.iter().map(|command| command.name.clone())
}

/// Refuses every reference of a push whose pack was not read yet.
async fn refused(pushing: &Pushing, rest: ByteStream, asked: &Asked, why: &str, begun: Instant) -> Answer {
    drain(rest).await;
    tracing::info!(why, "a push is refused");
    pushing.metrics.ended("refused", 0, begun.elapsed());
    Answer::whole(200, TYPE, Report::refused(names(asked), why).encode(asked.wishes))
}

/// Receives the pack; what follows goes on in a task of its own, which tells the client.
async fn push(
    pushing: &Arc<Pushing>,
    view: &View,
    asked: Asked,
    rest: ByteStream,
    pusher: &str,
    begun: Instant,
) -> Answer {
    let id = view.repository.id;
    let mut barred = policy::forbidden(&asked.commands, &pushing.settings.protected);
    if let Some(why) = in_the_way(pushing, view).await {
        return refused(pushing, rest, &asked, &why, begun).await;
    }
    let judge = pushing.judge.as_ref();
    if let Some(judge) = judge.filter(|judge| !judge.reads) {
        match judge.ask(&view.repository, pusher, &asked, None).await {
            Said::But(refused) => barred.extend(refused),
            Said::No(why) => return refused(pushing, rest, &asked, &why, begun).await,
        }
    }
    let free: Vec<Command> =
        asked.commands.iter().filter(|command| !barred.contains_key(&command.name)).cloned().collect();
    if free.is_empty() || (asked.wishes.atomic && !barred.is_empty()) {
        return forbidden(pushing, rest, &asked, &barred, begun).await;
    }
    let (lanes, intake) = Intake::begin(pushing, view, &free).await;
    if lanes.len() < quorum(view.repository.seats) as usize {
        drop(intake);
        let why = format!("{} copies can take a push now, too few to agree: try again", lanes.len());
        return refused(pushing, rest, &asked, &why, begun).await;
    }
    let settings = &pushing.settings;
    let rest = if asked.brings_objects() { rest } else { futures::stream::empty().boxed() };
    let bytes = match pour(rest, lanes, settings.stall, settings.largest).await {
        // Git's client sends a pack of nothing rather than no pack.
        Ok(0) if asked.brings_objects() => {
            intake.leave(pushing);
            pushing.metrics.ended("refused", 0, begun.elapsed());
            let report = Report::unpack_failed(names(&asked), "eof before pack header was fully read");
            return Answer::whole(200, TYPE, report.encode(asked.wishes));
        }
        Ok(bytes) => bytes,
        Err(PourError::Broken(_)) => return Answer::sentence(400, "the push broke off"),
        // Why nobody takes it, the calls say: objects that are not good are refused before their end.
        Err(PourError::Nobody) => 0,
        Err(error @ PourError::TooLarge(_)) => {
            intake.leave(pushing);
            pushing.metrics.ended("refused", 0, begun.elapsed());
            let report = Report::unpack_failed(names(&asked), &error.to_string());
            return Answer::whole(200, TYPE, report.encode(asked.wishes));
        }
    };
    let reads = judge.is_some_and(|judge| judge.reads);
    let inquiry = reads.then(|| Inquiry { repository: view.repository.clone(), pusher: pusher.to_owned() });
    let task = Task { pushing: Arc::clone(pushing), id, asked, barred, inquiry, intake, bytes, begun };
    Answer { status: 200, content_type: TYPE, body: task.start() }
}

/// What forbids every push now.
pub(super) async fn in_the_way(pushing: &Pushing, view: &View) -> Option<String> {
    match pushes::standing(&pushing.database, view.repository.id).await {
        Ok(standing) => standing.lock.map(|lock| line::locked(&lock)).or_else(|| view.too_few()),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a push could not be routed");
            Some("the database is away: nobody can push now".to_owned())
        }
    }
}

async fn forbidden(
    pushing: &Pushing,
    rest: ByteStream,
    asked: &Asked,
    barred: &BTreeMap<RefName, String>,
    begun: Instant,
) -> Answer {
    drain(rest).await;
    pushing.metrics.ended("refused", 0, begun.elapsed());
    let why = |name| barred.get(name).cloned().unwrap_or_else(|| "atomic push failure".to_owned());
    let references = asked.commands.iter().map(|one| (one.name.clone(), Some(why(&one.name)))).collect();
    Answer::whole(200, TYPE, Report { unpack: None, references }.encode(asked.wishes))
}

/// A push whose bytes are here.
pub(super) struct Task {
    pub(super) pushing: Arc<Pushing>,
    pub(super) id: RepositoryId,
    pub(super) asked: Asked,
    pub(super) barred: BTreeMap<RefName, String>,
    /// What a judge is yet to be asked who reads what is pushed.
    pub(super) inquiry: Option<Inquiry>,
    pub(super) intake: Intake,
    pub(super) bytes: u64,
    pub(super) begun: Instant,
}

/// Whose push of what a judge is to be asked about.
pub(super) struct Inquiry {
    repository: Repository,
    pusher: String,
}

impl Inquiry {
    /// Asks, with the objects of a copy that has them.
    async fn ask(&self, pushing: &Pushing, asked: &Asked, at: &Taker) -> Said {
        let Some(judge) = &pushing.judge else { return Said::But(BTreeMap::new()) };
        let (id, lasting) = (self.repository.id, judge.within + GRACE);
        let objects = pushing.agents.pushed_objects(&at.place.end, id, &at.ingest, lasting);
        judge.ask(&self.repository, &self.pusher, asked, Some(&objects)).await
    }
}

/// What the client is told, and how it is counted.
pub(super) struct Told {
    outcome: &'static str,
    pub(super) report: Report,
    /// For people.
    pub(super) words: Option<String>,
}

impl Task {
    /// Goes on under the router's own tasks; the client hears of it by this stream.
    fn start(self) -> ByteStream {
        let (to, from) = mpsc::channel::<Bytes>(4);
        let (pushing, wishes, alive_every) =
            (Arc::clone(&self.pushing), self.asked.wishes, self.pushing.settings.alive);
        let gone = CancellationToken::new();
        let work = async move {
            let told = {
                let mut work = std::pin::pin!(self.run(gone.clone()));
                loop {
                    tokio::select! {
                        biased;
                        told = &mut work => break told,
                        () = tokio::time::sleep(alive_every) => {
                            if let Some(packet) = alive(wishes) {
                                // A client that reads nothing now will read this later, or is gone.
                                let _ = to.try_send(packet);
                            }
                            if to.is_closed() {
                                gone.cancel();
                            }
                        }
                    }
                }
            };
            let said = told.words.as_deref().and_then(|text| words(text, wishes));
            for packet in said.into_iter().chain([told.report.encode(wishes)]) {
                if to.send(packet).await.is_err() {
                    tracing::info!(outcome = told.outcome, "the client of a push does not hear how it ended");
                    break;
                }
            }
        };
        pushing.tasks.spawn(work.in_current_span());
        let body = futures::stream::unfold(from, |mut from| async move {
            from.recv().await.map(|packet| (Ok(packet), from))
        });
        body.boxed()
    }

    pub(super) async fn run(self, gone: CancellationToken) -> Told {
        let Self { pushing, id, asked, mut barred, inquiry, intake, bytes, begun } = self;
        let told = match intake.gather(&pushing, begun).await {
            Err(Unready::Rejected(why)) => Told {
                outcome: "refused",
                report: Report::unpack_failed(names(&asked), &why),
                words: Some(why),
            },
            Err(Unready::Few(why)) => refuse(&asked, &why),
            Ok(gathered) => {
                barred.extend(gathered.unfit.clone());
                let said = match (&inquiry, gathered.ready.first()) {
                    (Some(inquiry), Some(at)) => inquiry.ask(&pushing, &asked, at).await,
                    _ => Said::But(BTreeMap::new()),
                };
                match said {
                    Said::But(refused) => {
                        barred.extend(refused);
                        place(&pushing, id, &asked, &barred, gathered, &gone).await
                    }
                    Said::No(why) => {
                        let_go(&pushing, id, gathered.ready);
                        refuse(&asked, &why)
                    }
                }
            }
        };
        tracing::info!(
            outcome = told.outcome,
            bytes,
            duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "a push ended"
        );
        pushing.metrics.ended(told.outcome, bytes, begun.elapsed());
        told
    }
}

fn refuse(asked: &Asked, why: &str) -> Told {
    Told { outcome: "refused", report: Report::refused(names(asked), why), words: None }
}

async fn place(
    pushing: &Arc<Pushing>,
    id: RepositoryId,
    asked: &Asked,
    barred: &BTreeMap<RefName, String>,
    gathered: Gathered,
    gone: &CancellationToken,
) -> Told {
    let placed = line::open(pushing, id, asked, barred, &gathered, gone).await;
    let told = match placed {
        Ok(Placed::Open(open, judged)) => {
            let (gathered, commands) = (&gathered, &judged.commands);
            let running = Running { pushing, repository: id, open: &open, gathered, commands };
            return tell(pushing, running.end().await, judged.refused);
        }
        Ok(Placed::Nothing(judged)) => {
            let outcome =
                if judged.refused.iter().any(|(_, why)| why.is_none()) { "committed" } else { "refused" };
            Told { outcome, report: Report { unpack: None, references: judged.refused }, words: None }
        }
        Ok(Placed::Refused(why)) => refuse(asked, &why),
        Ok(Placed::Gone) => refuse(asked, "the client went away"),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "a push could not be opened");
            refuse(asked, "the database is away: nobody can push now")
        }
    };
    let_go(pushing, id, gathered.ready);
    told
}

/// The report of a push that was open.
fn tell(pushing: &Pushing, ended: Ended, judged: Vec<(RefName, Option<String>)>) -> Told {
    let with = |why: &str| -> Vec<(RefName, Option<String>)> {
        judged
            .iter()
            .map(|(name, refused)| (name.clone(), refused.clone().or_else(|| Some(why.to_owned()))))
            .collect()
    };
    let (outcome, references, words) = match ended {
        Ended::Committed { behind } => {
            if behind {
                pushing.nudge.evaluate(Some("replicas-match"));
            }
            ("committed", judged, None)
        }
        Ended::Aborted(why) => ("aborted", with(&why), None),
        Ended::Unknown(why) => ("unknown", with("its outcome is not known"), Some(why)),
    };
    Told { outcome, report: Report { unpack: None, references }, words }
}
