//! Settle: decide a push whose router is gone, or do what a person decided. It names no fileserver: all that hold the repository are asked.

use super::Done;
use crate::database::pushes;
use crate::fleet::Watch;
use crate::model::amount::counted;
use crate::model::attempt::Attempt;
use crate::settle::{Adopted, Bounds, Ended, Settler, adopt};
use crate::worker::Worker;
use crate::worker::outcome::Outcome;

pub(in crate::worker) async fn settle(worker: &Worker, attempt: &Attempt, watch: &Watch) -> Done {
    let Some(id) = attempt.plan.repository_id else {
        return Err(Outcome::Stale("the plan names no repository".into()));
    };
    let bounds = Bounds { quiet: watch.quiet, fence: worker.settings.checksum, ..Bounds::default() };
    let (database, agents, by) = (&worker.database, &worker.agents, worker.name.as_str());
    let settler = Settler { database, agents, by, bounds };
    if let Some(from) = pushes::adoption(database, id).await? {
        return match adopt(&settler, id, from).await? {
            Adopted::Done { version, equal, .. } => Ok(done(&format!(
                "the copy was adopted: version {version}, now on {}",
                counted(equal, "copy")
            ))),
            Adopted::Refused(why) => Err(Outcome::failed(why)),
        };
    }
    match settler.settle(id, None).await? {
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
