//! A person's decision where no rule has one: what one copy has is definitive from now on.
//!
//! Everything that runs is fenced first, and the version goes above all that any copy has journalled, so that nothing
//! looks as if the database had gone back. Nothing is deleted: what the others have they keep until they are brought
//! to it, and then as lists of references.

use super::{ROUNDS, Settler, end_of, is_ahead, is_bad};
use crate::database::pushes::{Adoption, Place};
use crate::database::{self, pushes, repositories};
use crate::fleet::CallError;
use crate::model::checksum::Checksum;
use crate::model::fleet::ReplicaState;
use crate::model::id::{FileserverId, RepositoryId};
use crate::model::wire::push::{FenceAnswer, FenceRequest};
use futures::future::join_all;

/// What became of a wish to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// It is definitive, at this version.
    Done {
        /// What it has.
        checksum: Checksum,
        /// The repository's version from now on.
        version: i64,
        /// Copies that have the same.
        equal: usize,
    },
    /// It was not done, and why.
    Refused(String),
}

/// Makes what the copy on a fileserver has the definitive references of its repository. An open push is over.
///
/// # Errors
/// When the engine fails.
pub async fn adopt(settler: &Settler<'_>, id: RepositoryId, from: FileserverId) -> database::Result<Adopted> {
    let refused = |why: &str| Ok(Adopted::Refused(why.to_owned()));
    let Some(Fenced { epoch, places, told }) = fence(settler, id).await? else {
        return refused("there is no such repository");
    };
    let Some(row) = repositories::by_ids(settler.database, &[id]).await?.pop() else {
        return refused("there is no such repository");
    };
    if !places.iter().any(|place| place.id == from && reads(place)) {
        return refused("there is no copy to adopt on that fileserver");
    }
    let seen: Vec<_> =
        told.iter().filter_map(|(at, told)| told.as_ref().ok().map(|told| (*at, told))).collect();
    let Some((_, chosen)) = seen.iter().find(|(at, _)| *at == from) else {
        let name = end_of(&places, from).map_or("it", |end| end.name.as_str());
        let bad = told.iter().any(|(at, told)| *at == from && told.as_ref().is_err_and(is_bad));
        let why = if bad { "has no copy whose references can be read" } else { "cannot be reached" };
        return Ok(Adopted::Refused(format!("{name} {why}")));
    };
    let highest = seen.iter().map(|(_, told)| told.journal_version).max().unwrap_or(0);
    let (checksum, version) = (chosen.checksum, row.version.max(highest) + 1);
    let equal: Vec<FileserverId> =
        seen.iter().filter(|(_, told)| told.checksum == checksum).map(|(at, _)| *at).collect();
    let decision = Adoption {
        repository: id,
        epoch,
        version: row.version,
        next: version,
        checksum,
        equal: &equal,
        by: settler.by,
    };
    if pushes::adopt(settler.database, &decision).await? {
        return Ok(Adopted::Done { checksum, version, equal: equal.len() });
    }
    refused("something was written meanwhile: look again")
}

/// What stands behind a fence.
struct Fenced {
    epoch: i64,
    /// Read after the epoch was written: nothing is placed under an older one from then on.
    places: Vec<Place>,
    /// What each copy that reads says.
    told: Vec<(FileserverId, Result<FenceAnswer, CallError>)>,
}

/// Fences every copy that reads under a new epoch, again where agents have seen a higher one; none: there is no such
/// repository.
async fn fence(settler: &Settler<'_>, id: RepositoryId) -> database::Result<Option<Fenced>> {
    let mut round = 1;
    loop {
        let Some(epoch) = pushes::fence_all(settler.database, id).await? else { return Ok(None) };
        let places = pushes::places(settler.database, id).await?;
        let asks = places.iter().filter(|place| reads(place)).map(|place| async move {
            let ask = FenceRequest { epoch: epoch - 1 };
            let told = settler.agents.fence(&place.end, id, epoch, &ask, settler.bounds.fence).await;
            (place.id, told)
        });
        let told = join_all(asks).await;
        let ahead = told.iter().filter(|(_, told)| told.as_ref().is_err_and(is_ahead));
        let ahead = ahead.filter_map(|(at, _)| end_of(&places, *at)).collect();
        if round == ROUNDS || !settler.catch_up(id, ahead).await? {
            return Ok(Some(Fenced { epoch, places, told }));
        }
        round += 1;
    }
}

fn reads(place: &Place) -> bool {
    matches!(place.state, ReplicaState::Live | ReplicaState::Leaving)
}
