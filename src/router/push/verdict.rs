//! An open push to its end: prepare, votes, verdict, commits, outcome.
//!
//! A vote is not a commit: the push stands when a quorum has *done* it and SQL says so. Where commits were sent and too
//! few say that they did it, nobody may guess: the router fences and settles its own push, as anybody would.

use super::Pushing;
use super::ready::{Gathered, Taker};
use crate::database::pushes::{self, Closing, Open};
use crate::fleet::CallError;
use crate::model::fleet::quorum;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::push::{Ballot, Verdict, tally};
use crate::model::wire::push::{Command, FinishAnswer, FinishRequest, PrepareRequest, Vote};
use crate::settle::Ended as Settled;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::time::Duration;
use tokio::time::Instant;

/// The least time that a copy has to prepare or to commit; each command adds a millisecond.
const LEAST: Duration = Duration::from_secs(3);
/// A commit syncs files and directories: it may take longer than a vote.
const COMMIT_LEAST: Duration = Duration::from_secs(15);
/// Between two tries to write an outcome.
const AGAIN: Duration = Duration::from_millis(300);

/// How an open push ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It stands, and so many copies have it; `behind`: whether some that read do not.
    Committed {
        /// Whether a copy was left behind.
        behind: bool,
    },
    /// It does not, in words for people.
    Aborted(String),
    /// Nobody knows yet, in words for people.
    Unknown(String),
}

/// One open push and who takes part in it.
pub(super) struct Running<'a> {
    pub(super) pushing: &'a Pushing,
    pub(super) repository: RepositoryId,
    pub(super) open: &'a Open,
    pub(super) gathered: &'a Gathered,
    pub(super) commands: &'a [Command],
}

impl Running<'_> {
    /// Brings it to its end, renewing its lease meanwhile.
    pub(super) async fn end(&self) -> Ended {
        tokio::select! {
            biased;
            ended = self.work() => ended,
            () = self.keep() => self.look_up().await,
        }
    }

    async fn work(&self) -> Ended {
        let ballots = self.vote().await;
        let (base, new, seats) = (&self.open.base, &self.open.new, self.open.seats);
        let tally = tally(&ballots, seats, base, new);
        let Verdict::Commit { to } = tally.verdict else {
            return self.abort(&ballots, &tally.strayed).await;
        };
        self.pushing.metrics.votes("counted", to.len());
        self.pushing.metrics.votes("lost", ballots.len() - to.len() - tally.strayed.len());
        self.pushing.metrics.votes("strayed", tally.strayed.len());
        let (done, followed, bytes) = self.commit(&to).await;
        if done.len() < quorum(seats) as usize {
            self.pushing.metrics.quorum_missed();
            return self.settle().await;
        }
        let equal: Vec<FileserverId> = done.into_iter().chain(followed).collect();
        self.outcome(&equal, bytes).await
    }

    fn closing(&self) -> Closing {
        let (id, epoch, base_version) = (self.open.id, self.open.epoch, self.open.base_version);
        Closing { repository: self.repository, id, epoch, base_version }
    }

    /// Renews the lease; ends when another has the push.
    async fn keep(&self) {
        loop {
            tokio::time::sleep(self.pushing.settings.lease / 3).await;
            let (db, lease) = (&self.pushing.database, self.pushing.lease_ms());
            match pushes::renew(db, self.open.id, self.open.epoch, lease).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a push's lease is not renewed");
                }
            }
        }
    }

    fn limit(&self, least: Duration) -> Duration {
        least + Duration::from_millis(self.commands.len() as u64)
    }

    fn takers_of(&self, ids: &[FileserverId]) -> Vec<&Taker> {
        self.gathered.ready.iter().filter(|taker| ids.contains(&taker.place.id)).collect()
    }

    async fn prepare(&self, taker: &Taker) -> Result<Vote, CallError> {
        let ask = PrepareRequest { base_version: self.open.base_version, commands: self.commands.to_vec() };
        let (agents, to, within) = (&self.pushing.agents, &taker.place.end, self.limit(LEAST));
        agents.prepare(to, self.repository, &taker.ingest, self.open.epoch, &ask, within).await
    }

    async fn finish(&self, taker: &Taker, commit: bool) -> Result<FinishAnswer, CallError> {
        let ask = FinishRequest { commit };
        let (agents, to, within) = (&self.pushing.agents, &taker.place.end, self.limit(COMMIT_LEAST));
        agents.finish(to, self.repository, &taker.ingest, self.open.epoch, &ask, within).await
    }

    /// Has every voter prepare, and waits for their votes: for all, or for the rest a moment once enough agree.
    async fn vote(&self) -> Vec<(FileserverId, Ballot)> {
        let voters = &self.open.chosen.voters;
        let mut ballots: Vec<_> = voters.iter().map(|id| (*id, Ballot::Awaited)).collect();
        let mut calls: FuturesUnordered<_> = self
            .takers_of(voters)
            .into_iter()
            .map(|taker| async move { (taker.place.id, self.prepare(taker).await) })
            .collect();
        let mut until = Instant::now() + self.limit(LEAST);
        while let Ok(Some((id, vote))) = tokio::time::timeout_at(until, calls.next()).await {
            let ballot = vote.map_or_else(
                |error| {
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, fileserver.id = %id, push.id = self.open.id, "a copy did not vote");
                    Ballot::Lost
                },
                Ballot::Cast,
            );
            if let Some(mine) = ballots.iter_mut().find(|(voter, _)| *voter == id) {
                mine.1 = ballot;
            }
            match tally(&ballots, self.open.seats, &self.open.base, &self.open.new).verdict {
                Verdict::Abort => break,
                Verdict::Commit { .. } => until = until.min(Instant::now() + self.pushing.settings.patience),
                Verdict::Wait => {}
            }
        }
        ballots
    }

    async fn abort(&self, ballots: &[(FileserverId, Ballot)], strayed: &[FileserverId]) -> Ended {
        let agree =
            ballots.iter().filter(|(id, ballot)| matches!(ballot, Ballot::Cast(_)) && !strayed.contains(id));
        let (agree, needed) = (agree.count(), quorum(self.open.seats));
        self.pushing.metrics.votes("counted", agree);
        self.pushing.metrics.votes("strayed", strayed.len());
        self.pushing.metrics.votes("lost", ballots.len() - agree - strayed.len());
        self.pushing.metrics.quorum_missed();
        // No commit was sent: whatever agents hear of it, none of them can have it.
        let closed = self.written(|| pushes::abort(&self.pushing.database, self.closing(), strayed)).await;
        let calls: FuturesUnordered<_> =
            self.gathered.ready.iter().map(|taker| self.finish(taker, false)).collect();
        let told = calls.for_each(|_| async {});
        let _ = tokio::time::timeout(self.pushing.settings.patience, told).await;
        let why = format!("{agree} of {} copies agreed, {needed} must: try again", self.open.seats);
        match closed {
            Some(true) | None => Ended::Aborted(why),
            Some(false) => self.look_up().await,
        }
    }

    /// Tells those who agreed to commit, others to abort, and followers to do the same; who has done it, of voters and
    /// of followers, and the bytes of the largest copy.
    async fn commit(&self, to: &[FileserverId]) -> (Vec<FileserverId>, Vec<FileserverId>, i64) {
        crate::shutdown::reached("push.verdict");
        let chosen = &self.open.chosen;
        let mut calls: FuturesUnordered<_> = self
            .gathered
            .ready
            .iter()
            .map(|taker| async move {
                let id = taker.place.id;
                let done = if to.contains(&id) {
                    self.finish(taker, true).await
                } else if chosen.followers.contains(&id) {
                    self.follow(taker).await
                } else {
                    self.finish(taker, false).await
                };
                (id, done)
            })
            .collect();
        let (mut done, mut followed, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut until = Instant::now() + self.limit(COMMIT_LEAST);
        while let Ok(Some((id, answer))) = tokio::time::timeout_at(until, calls.next()).await {
            match answer {
                Ok(answer) if answer.committed && answer.checksum == self.open.new => {
                    bytes = bytes.max(answer.bytes);
                    if to.contains(&id) { &mut done } else { &mut followed }.push(id);
                }
                Ok(_) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::info!(error, fileserver.id = %id, push.id = self.open.id, "a copy did not commit");
                }
            }
            if done.len() >= quorum(self.open.seats) as usize {
                until = until.min(Instant::now() + self.pushing.settings.patience);
            }
        }
        crate::shutdown::reached("push.done");
        (done, followed, bytes)
    }

    /// One that does not vote does the same after the verdict, if it comes out equal.
    async fn follow(&self, taker: &Taker) -> Result<FinishAnswer, CallError> {
        let vote = self.prepare(taker).await?;
        let equal = vote.before == self.open.base && vote.after == self.open.new;
        self.finish(taker, equal).await
    }

    async fn outcome(&self, equal: &[FileserverId], bytes: i64) -> Ended {
        let (db, new) = (&self.pushing.database, &self.open.new);
        match self.written(|| pushes::commit(db, self.closing(), new, equal, bytes)).await {
            Some(true) => Ended::Committed { behind: equal.len() < self.gathered.asked },
            Some(false) => self.look_up().await,
            None => Ended::Unknown(
                "the copies have it, but the database went away before that was written; it will be settled: fetch \
                 and look before you push again"
                    .to_owned(),
            ),
        }
    }

    /// Writes an ending, again and again while SQL is away, for a bounded time; none: it could not be.
    async fn written<F>(&self, write: impl Fn() -> F) -> Option<bool>
    where
        F: Future<Output = crate::database::Result<bool>>,
    {
        let until = Instant::now() + self.pushing.settings.outcome;
        loop {
            match tokio::time::timeout_at(until, write()).await {
                Ok(Ok(written)) => return Some(written),
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a push's ending is not written"
                    );
                }
                Err(_) => return None,
            }
            if Instant::now() >= until {
                return None;
            }
            tokio::time::sleep(self.pushing.chance.around(AGAIN)).await;
        }
    }

    /// Commits were sent, and too few copies say that they did it.
    async fn settle(&self) -> Ended {
        let own = Some((self.open.id, self.open.epoch));
        match self.pushing.settler().settle(self.repository, own).await {
            Ok(Settled::Committed) => Ended::Committed { behind: true },
            Ok(Settled::Aborted) => Ended::Aborted("too few copies could write it: try again".to_owned()),
            Ok(Settled::Nothing) => self.look_up().await,
            Ok(Settled::Waits(why) | Settled::Person(why)) => Ended::Unknown(format!("{why}; {UNKNOWN}")),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "a push is not settled");
                Ended::Unknown(UNKNOWN.to_owned())
            }
        }
    }

    /// How somebody else ended it.
    async fn look_up(&self) -> Ended {
        match pushes::ended(&self.pushing.database, self.open.id).await {
            Ok(Some(true)) => Ended::Committed { behind: true },
            Ok(Some(false)) => {
                Ended::Aborted("its router was too slow, and it was settled: try again".to_owned())
            }
            Ok(None) | Err(_) => Ended::Unknown(format!("its router was too slow; {UNKNOWN}")),
        }
    }
}

/// What a client is told to do when nobody knows.
const UNKNOWN: &str =
    "whether the push stands is not known yet, it will be settled: fetch and look before you push again";
