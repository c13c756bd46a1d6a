//! Settle: decide a push whose router is gone. It names no fileserver: all that hold the repository are asked.

use super::Done;
use crate::fleet::Watch;
use crate::model::attempt::Attempt;
use crate::settle::{Bounds, Ended, Settler};
use crate::worker::Worker;
use crate::worker::outcome::Outcome;

pub(in crate::worker) async fn settle(worker: &Worker, attempt: &Attempt, watch: &Watch) -> Done {
    let Some(id) = attempt.plan.repository_id else {
        return Err(Outcome::Stale("the plan names no repository".into()));
    };
    let bounds = Bounds { quiet: watch.quiet, fence: worker.settings.checksum, ..Bounds::default() };
    let (database, agents, by) = (&worker.database, &worker.agents, worker.name.as_str());
    match (Settler { database, agents, by, bounds }).settle(id, None).await? {
        Ended::Nothing => Err(Outcome::Stale("no push is left without its router any more".into())),
        Ended::Committed => Ok(done("the push stands: a copy had it, and a quorum has it now")),
        Ended::Aborted => Ok(done("the push does not stand: no voter had it")),
        Ended::Waits(why) => Err(Outcome::Away(why)),
        Ended::Person(why) => Err(Outcome::failed(why)),
    }
}

fn done(message: &str) -> Outcome {
    Outcome::Succeeded { message: message.into(), bytes: 0 }
}
