//! Copies that take a push's objects, until enough of them are ready.
//!
//! What one copy alone refuses is that copy's trouble: it does not take part. What as many say as must agree is the
//! push's own fault, in git's words.

use super::Pushing;
use super::fan::{Lane, lane};
use super::view::View;
use crate::database::pushes::Place;
use crate::fleet::{CallError, Watch};
use crate::model::fleet::quorum;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::RefusalCode;
use crate::model::wire::push::{Command, IngestRequest, Ready, RefName};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A copy that takes part.
#[derive(Debug, Clone)]
pub(super) struct Taker {
    /// Where.
    pub(super) place: Place,
    /// What its agent calls the push's objects.
    pub(super) ingest: String,
    /// The highest epoch of an earlier push that it has heard of.
    pub(super) pushed: i64,
}

type Told = (FileserverId, Result<Ready, CallError>);

/// Copies whose agents take a pack now. Dropped, their calls hang up.
pub(super) struct Intake {
    repository: RepositoryId,
    takers: BTreeMap<FileserverId, Taker>,
    calls: JoinSet<Told>,
    needed: usize,
    asked: usize,
}

/// What came of it.
pub(super) struct Gathered {
    /// Copies that have the objects.
    pub(super) ready: Vec<Taker>,
    /// How many ought to.
    pub(super) asked: usize,
    /// Commands that cannot stand, with git's words.
    pub(super) unfit: BTreeMap<RefName, String>,
}

/// Why nobody is asked to vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unready {
    /// The objects are not good, in git's words.
    Rejected(String),
    /// Too few copies have them, in words for people.
    Few(String),
}

impl Intake {
    /// Asks every copy to take a push's objects, and begins to send; what is poured into the lanes goes there.
    pub(super) async fn begin(
        pushing: &Arc<Pushing>,
        view: &View,
        commands: &[Command],
    ) -> (Vec<Lane>, Self) {
        let repository = view.repository.id;
        let most_bytes = i64::try_from(pushing.settings.largest).unwrap_or(0);
        let ask = IngestRequest { commands: commands.to_vec(), most_bytes };
        let needed = quorum(view.repository.seats) as usize;
        let asked = view.takers.iter().map(|place| take(pushing, repository, place, &ask));
        let takers = those_in_time(asked, needed, pushing.settings.patience).await;
        let (mut lanes, mut calls) = (Vec::new(), JoinSet::new());
        for taker in &takers {
            let (lane, stream, cut) = lane(taker.place.id);
            let watch = watching(pushing.settings.quiet, cut);
            let (pushing, taker) = (Arc::clone(pushing), taker.clone());
            lanes.push(lane);
            calls.spawn(async move {
                let (to, id) = (&taker.place.end, repository);
                (taker.place.id, pushing.agents.send_pack(to, id, &taker.ingest, stream, &watch).await)
            });
        }
        let takers = takers.into_iter().map(|taker| (taker.place.id, taker)).collect();
        (lanes, Self { repository, takers, calls, needed, asked: view.takers.len() })
    }

    /// Nothing comes of it: every copy forgets what it took.
    pub(super) fn leave(mut self, pushing: &Arc<Pushing>) {
        self.calls.abort_all();
        let_go(pushing, self.repository, self.takers.into_values().collect());
    }

    /// Waits until all have answered; once enough have, the rest has as long again as all took so far.
    pub(super) async fn gather(
        mut self,
        pushing: &Arc<Pushing>,
        begun: Instant,
    ) -> Result<Gathered, Unready> {
        let (mut readies, mut failed) = (Vec::new(), Vec::new());
        let mut until = None;
        loop {
            let next = async {
                match until {
                    Some(until) => {
                        tokio::time::timeout_at(until, self.calls.join_next()).await.ok().flatten()
                    }
                    None => self.calls.join_next().await,
                }
            };
            match next.await {
                Some(Ok((id, Ok(ready)))) => readies.push((id, ready)),
                Some(Ok((id, Err(error)))) => failed.push((id, error)),
                Some(Err(_)) => {}
                None => break,
            }
            if until.is_none() && readies.len() >= self.needed {
                until = Some(Instant::now() + begun.elapsed().max(pushing.settings.patience));
            }
        }
        self.calls.abort_all();
        for (id, error) in &failed {
            let error = error as &dyn std::error::Error;
            tracing::info!(error, fileserver.id = %id, "a copy does not take part in a push");
        }
        let gathered = judge(&self.takers, readies, &failed, self.needed).map(|(ready, unfit)| Gathered {
            ready,
            asked: self.asked,
            unfit,
        });
        let used: Vec<FileserverId> = match &gathered {
            Ok(gathered) => gathered.ready.iter().map(|taker| taker.place.id).collect(),
            Err(_) => Vec::new(),
        };
        let unused = self.takers.into_values().filter(|taker| !used.contains(&taker.place.id));
        let_go(pushing, self.repository, unused.collect());
        gathered
    }
}

/// A call that ends with its lane, or when its agent is silent for too long.
fn watching(quiet: Duration, cancel: CancellationToken) -> Watch {
    Watch { cancel, quiet, progress: watch::channel(None).0 }
}

/// Those that take it. Once enough do, the rest has so long: one that hangs holds no push up for longer.
async fn those_in_time<T>(
    asked: impl Iterator<Item = impl Future<Output = Option<T>>>,
    needed: usize,
    patience: Duration,
) -> Vec<T> {
    let mut asked: FuturesUnordered<_> = asked.collect();
    let (mut takers, mut until) = (Vec::new(), None);
    loop {
        let answer = match until {
            Some(until) => tokio::time::timeout_at(until, asked.next()).await.unwrap_or(None),
            None => asked.next().await,
        };
        let Some(answer) = answer else { return takers };
        takers.extend(answer);
        if until.is_none() && takers.len() >= needed {
            until = Some(Instant::now() + patience);
        }
    }
}

async fn take(pushing: &Pushing, id: RepositoryId, place: &Place, ask: &IngestRequest) -> Option<Taker> {
    let call = pushing.agents.ingest(&place.end, id, ask, pushing.settings.call).await;
    match call {
        Ok(answer) => Some(Taker { place: place.clone(), ingest: answer.ingest, pushed: answer.pushed }),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::info!(error, fileserver.name = place.end.name, "a copy does not take a push");
            None
        }
    }
}

/// Tells agents that nothing more comes, while the push goes on: one that hangs is no reason to wait. One that cannot
/// be told forgets by itself.
pub(super) fn let_go(pushing: &Arc<Pushing>, id: RepositoryId, takers: Vec<Taker>) {
    if takers.is_empty() {
        return;
    }
    let told = Arc::clone(pushing);
    pushing.tasks.spawn(async move {
        let drops = takers.iter().map(|taker| {
            let pushing = &told;
            async move {
                let (to, within) = (&taker.place.end, pushing.settings.call);
                if let Err(error) = pushing.agents.drop_ingest(to, id, &taker.ingest, within).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "an agent was not told that a push is over");
                }
            }
        });
        join_all(drops).await;
    });
}

/// Those that say the same of every command are ready, if they are enough; the largest group is believed.
fn judge(
    takers: &BTreeMap<FileserverId, Taker>,
    readies: Vec<(FileserverId, Ready)>,
    failed: &[(FileserverId, CallError)],
    needed: usize,
) -> Result<(Vec<Taker>, BTreeMap<RefName, String>), Unready> {
    let have = readies.len();
    let mut groups: BTreeMap<Vec<RefName>, Vec<(FileserverId, Ready)>> = BTreeMap::new();
    for (id, ready) in readies {
        let mut names: Vec<RefName> = ready.unfit.iter().map(|unfit| unfit.name.clone()).collect();
        names.sort();
        groups.entry(names).or_default().push((id, ready));
    }
    let largest = groups.into_values().max_by_key(Vec::len).unwrap_or_default();
    if largest.len() >= needed {
        let ready = largest.iter().filter_map(|(id, _)| takers.get(id).cloned()).collect();
        let unfit = largest.into_iter().next().map(|(_, ready)| ready.unfit).unwrap_or_default();
        let unfit = unfit.into_iter().map(|unfit| (unfit.name, unfit.why)).collect();
        return Ok((ready, unfit));
    }
    let rejected = failed.iter().filter_map(|(_, error)| rejection(error)).collect::<Vec<_>>();
    match rejected.first() {
        Some(words) if rejected.len() >= needed || have == 0 => Err(Unready::Rejected((*words).to_owned())),
        _ => Err(Unready::Few(format!("{have} copies took the objects, {needed} must: try again"))),
    }
}

/// What an agent says of objects that are not good.
fn rejection(error: &CallError) -> Option<&str> {
    match error {
        CallError::Refused(refusal) if refusal.code == RefusalCode::Rejected => Some(&refusal.message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fleet::{Health, Intent, ReplicaState};
    use crate::model::grant::End;
    use crate::model::id::RackId;
    use crate::model::wire::Refusal;
    use crate::model::wire::push::Unfit;

    fn takers() -> BTreeMap<FileserverId, Taker> {
        let taker = |id: i64| {
            let place = Place {
                id: FileserverId(id),
                end: End { name: format!("fs-{id}"), url: String::new() },
                rack: RackId(id),
                state: ReplicaState::Live,
                in_sync: true,
                intent: Intent::Serve,
                health: Health::Online,
                counts: true,
                empty: false,
            };
            (place.id, Taker { place, ingest: "i".to_owned(), pushed: 0 })
        };
        (1..=3).map(taker).collect()
    }

    fn ready(id: i64, unfit: &[&str]) -> (FileserverId, Ready) {
        let unfit = unfit.iter().map(|name| Unfit {
            name: RefName(name.as_bytes().to_vec()),
            why: "missing necessary objects".to_owned(),
        });
        (FileserverId(id), Ready { bytes: 1, objects: 1, unfit: unfit.collect() })
    }

    fn rejected(id: i64) -> (FileserverId, CallError) {
        (FileserverId(id), Refusal::new(RefusalCode::Rejected, "index-pack abnormal exit").into())
    }

    #[tokio::test]
    async fn one_that_hangs_is_waited_for_a_moment_once_enough_answered() {
        let patience = Duration::from_millis(50);
        let answer = async |hangs: bool, said: Option<u64>| {
            if hangs { std::future::pending().await } else { said }
        };
        let asked = [(false, Some(1)), (true, Some(2)), (false, Some(3))];
        let asked = asked.into_iter().map(|(hangs, said)| answer(hangs, said));
        let mut takers = those_in_time(asked, 2, patience).await;
        takers.sort_unstable();
        assert_eq!(takers, [1, 3]);
        let few = [(false, Some(1)), (false, None)].map(|(hangs, said)| answer(hangs, said));
        assert_eq!(those_in_time(few.into_iter(), 2, patience).await, [1]);
    }

    #[test]
    fn a_copy_that_lacks_what_the_others_have_does_not_take_part() {
        let told = vec![ready(1, &[]), ready(2, &["refs/heads/a"]), ready(3, &[])];
        let (ready, unfit) = judge(&takers(), told, &[], 2).ok().unwrap();
        let ready: Vec<_> = ready.iter().map(|taker| taker.place.id.0).collect();
        assert_eq!((ready, unfit.len()), (vec![1, 3], 0));
    }

    #[test]
    fn what_all_say_of_a_command_is_so() {
        let told =
            vec![ready(1, &["refs/heads/a"]), ready(2, &["refs/heads/a"]), ready(3, &["refs/heads/a"])];
        let (ready, unfit) = judge(&takers(), told, &[], 2).ok().unwrap();
        assert_eq!((ready.len(), unfit.len()), (3, 1));
    }

    #[test]
    fn objects_that_a_quorum_rejects_are_bad_and_what_one_rejects_is_its_own_trouble() {
        let one = judge(&takers(), vec![ready(2, &[]), ready(3, &[])], &[rejected(1)], 2);
        assert_eq!(one.ok().unwrap().0.len(), 2);
        let two = judge(&takers(), vec![ready(3, &[])], &[rejected(1), rejected(2)], 2);
        assert_eq!(two.err(), Some(Unready::Rejected("index-pack abnormal exit".to_owned())));
        let few = judge(&takers(), vec![ready(3, &[])], &[rejected(1)], 2);
        assert!(matches!(few.err(), Some(Unready::Few(_))));
    }
}
