//! Imports: a plan with grants, then one transaction once a quorum of agents gave its word.
//!
//! The content goes from the command to the agents and never through here.

use super::fileservers::record;
use super::problem::{Answer, Problem};
use super::repositories::check_wanted;
use super::shapes::{Changed, FinishImport, ImportCopy, ImportPlan, PlanImport, RepositoryShown};
use super::state::Api;
use crate::clock;
use crate::database::{fileservers, parts, repositories};
use crate::model::Millis;
use crate::model::checksum::Checksum;
use crate::model::fleet::{Fileserver, Health, Intent, quorum};
use crate::model::grant::{End, Part, Receipt, Role, SignedReceipt};
use crate::model::id::{FileserverId, RepositoryId};
use crate::repair::placement;
use crate::repair::view::FleetView;
use axum::Json;
use axum::extract::{Path, State};
use std::collections::BTreeMap;

/// How long an import's grants are good for: a large repository over a slow line, with room.
const GRANT_FOR: Millis = 24 * 3_600_000;

/// Longest name of a repository.
const LONGEST_NAME: usize = 512;

/// `POST /api/v1/imports`: chooses fileservers and signs a grant for each. Asked again for an import under
/// way, it answers with that one, on other fileservers where the first ones are gone.
///
/// # Errors
/// When the name is taken or none, fewer fileservers than a quorum can take it, or the engine fails.
pub async fn plan(State(api): State<Api>, Json(ask): Json<PlanImport>) -> Answer<ImportPlan> {
    check_repository_name(&ask.name)?;
    check_wanted(ask.wanted)?;
    if repositories::by_name(&api.db, &ask.name).await?.is_some() {
        return Err(Problem::refused(format!("there is a repository {:?} already", ask.name)));
    }
    let all = fileservers::all(&api.db).await?;
    let chosen = choose(&api, &all, &ask)?;
    if ask.dry_run {
        return Ok(Json(answer(&api, RepositoryId(0), &ask, &all, &chosen)));
    }
    let import =
        repositories::plan_import(&api.db, &ask.name, ask.object_format, ask.wanted, ask.bytes, &chosen)
            .await?;
    if import.object_format != ask.object_format {
        return Err(Problem::refused(format!(
            "an import of {:?} with object format {} is under way",
            ask.name, import.object_format
        )));
    }
    let places = if usable(&all, &import.fileservers) {
        import.fileservers
    } else {
        repositories::replan_import(&api.db, import.id, &chosen).await?;
        chosen
    };
    let ask = PlanImport { wanted: import.wanted, ..ask };
    Ok(Json(answer(&api, import.id, &ask, &all, &places)))
}

fn choose(api: &Api, all: &[Fileserver], ask: &PlanImport) -> Result<Vec<FileserverId>, Problem> {
    let view = FleetView {
        fileservers: all.iter().map(|one| (one.id, one.clone())).collect(),
        fill_limit: api.fill_limit,
        ..FleetView::default()
    };
    // Chance only spreads equals: the name and the moment are enough of it.
    let seed = blake3::hash(format!("{}\0{}", ask.name, clock::now()).as_bytes());
    let seed = seed.as_bytes().iter().take(8).fold(0_u64, |seed, byte| seed << 8 | u64::from(*byte));
    let chosen = placement::new_repository(&view, ask.wanted, ask.bytes, seed);
    let needed = quorum(ask.wanted);
    if u32::try_from(chosen.len()).unwrap_or(u32::MAX) < needed {
        let why = placement::missing_place(&view, &chosen, ask.bytes);
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        return Err(Problem::refused(format!(
            "{} of {} wanted copies of {} can be placed, {needed} are needed{why}",
            chosen.len(),
            ask.wanted,
            ask.name
        ))
        .hint("`trued fileserver list` shows which serve, are online and have room"));
    }
    Ok(chosen)
}

fn usable(all: &[Fileserver], places: &[FileserverId]) -> bool {
    places.iter().all(|id| {
        all.iter().any(|one| one.id == *id && one.health == Health::Online && one.intent == Intent::Serve)
    })
}

fn answer(
    api: &Api,
    id: RepositoryId,
    ask: &PlanImport,
    all: &[Fileserver],
    places: &[FileserverId],
) -> ImportPlan {
    let expires = clock::now() + GRANT_FOR;
    let copies = places.iter().filter_map(|place| all.iter().find(|one| one.id == *place)).map(|one| {
        let grant = if id.0 == 0 { String::new() } else { (api.hooks.sign_import)(id, one, expires) };
        let to = End { name: one.name.clone(), url: one.url.clone() };
        ImportCopy { to, rack: one.rack.clone(), grant }
    });
    ImportPlan {
        id,
        name: ask.name.clone(),
        wanted: ask.wanted,
        quorum: quorum(ask.wanted),
        copies: copies.collect(),
    }
}

/// `POST /api/v1/imports/{id}/finish`: checks the agents' words; with a quorum of the same checksum the
/// repository exists.
///
/// # Errors
/// When there is no such import, a word is not an agent's, fewer than a quorum agree, or the engine fails.
pub async fn finish(
    State(api): State<Api>,
    Path(id): Path<i64>,
    Json(ask): Json<FinishImport>,
) -> Answer<RepositoryShown> {
    let id = RepositoryId(id);
    let import = repositories::import(&api.db, id)
        .await?
        .ok_or_else(|| Problem::not_found(format!("no import of number {id} is under way")))?;
    let parts = parts::list(&api.db).await?;
    let all = fileservers::all(&api.db).await?;
    let mut holders: BTreeMap<FileserverId, Receipt> = BTreeMap::new();
    for signed in &ask.receipts {
        let receipt = open(&api, signed, id, &parts)?;
        let holder = all.iter().find(|one| one.name == receipt.fileserver);
        let holder = holder.filter(|one| import.fileservers.contains(&one.id)).ok_or_else(|| {
            Problem::refused(format!("{} is not among the fileservers of this import", receipt.fileserver))
        })?;
        holders.insert(holder.id, receipt);
    }
    let (checksum, agreeing) = agreed(&holders, quorum(import.wanted))?;
    let repository = repositories::finish_import(&api.db, id, &checksum, &agreeing).await?;
    let detail = serde_json::json!({ "copies": agreeing.len(), "wanted": repository.wanted });
    record(&api, "repo.import", &repository.name, None, detail).await?;
    Ok(Json(super::repositories::shown(&api, repository).await?))
}

/// `POST /api/v1/imports/{id}/abandon`: forgets an import that will not be finished.
///
/// # Errors
/// When there is no such import, or the engine fails.
pub async fn abandon(State(api): State<Api>, Path(id): Path<i64>) -> Answer<Changed> {
    let id = RepositoryId(id);
    let import = repositories::import(&api.db, id)
        .await?
        .ok_or_else(|| Problem::not_found(format!("no import of number {id} is under way")))?;
    repositories::abandon_import(&api.db, id).await?;
    Ok(Json(Changed { message: format!("the import of {} is given up", import.name), changed: true }))
}

fn open(api: &Api, signed: &SignedReceipt, id: RepositoryId, parts: &[Part]) -> Result<Receipt, Problem> {
    let key_of = |name: &str| parts.iter().find(|part| part.id == name && part.role == Role::Agent)?.key();
    let receipt = signed.open(key_of).map_err(|error| Problem::refused(format!("a receipt: {error}")))?;
    if receipt.fleet != api.fleet || receipt.repository != id {
        return Err(Problem::refused("a receipt is about another repository or fleet"));
    }
    Ok(receipt)
}

/// The checksum that a quorum has, and who has it.
fn agreed(
    holders: &BTreeMap<FileserverId, Receipt>,
    quorum: u32,
) -> Result<(Checksum, Vec<(FileserverId, i64)>), Problem> {
    let with = |checksum: &Checksum| -> Vec<_> {
        let same = holders.iter().filter(|(_, receipt)| receipt.checksum == *checksum);
        same.map(|(id, receipt)| (*id, receipt.bytes)).collect()
    };
    let best = holders
        .values()
        .map(|receipt| (receipt.checksum, with(&receipt.checksum)))
        .max_by_key(|(_, holders)| holders.len());
    match best {
        Some((checksum, same)) if u32::try_from(same.len()).is_ok_and(|count| count >= quorum) => {
            Ok((checksum, same))
        }
        best => Err(Problem::refused(format!(
            "{} of {quorum} needed copies agree",
            best.map_or(0, |(_, same)| same.len())
        ))),
    }
}

/// A name for a repository must be one.
///
/// # Errors
/// When it is none.
pub fn check_repository_name(name: &str) -> Result<(), Problem> {
    let odd = name.is_empty()
        || name.len() > LONGEST_NAME
        || name.starts_with('/')
        || name.ends_with('/')
        || name.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        || name.chars().any(|c| c.is_control() || c == '@')
        || name.parse::<i64>().is_ok();
    if odd {
        return Err(Problem::bad_request(format!(
            "{name:?} is not a name for a repository: no empty part, no '.' or '..' as a part, no '@', no control character, not a bare number, at most {LONGEST_NAME} bytes"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(sum: u8) -> Receipt {
        Receipt {
            fleet: "f".into(),
            fileserver: "fs".into(),
            repository: RepositoryId(1),
            checksum: Checksum { key: 1, sum: [sum; 32] },
            bytes: 10,
            at: 0,
        }
    }

    #[test]
    fn a_quorum_must_have_the_same_checksum() {
        let holders = |sums: &[u8]| -> BTreeMap<_, _> {
            sums.iter().zip(1..).map(|(sum, id)| (FileserverId(id), receipt(*sum))).collect()
        };
        let (checksum, same) = agreed(&holders(&[7, 8, 7]), 2).unwrap();
        assert_eq!((checksum.sum[0], same), (7, vec![(FileserverId(1), 10), (FileserverId(3), 10)]));
        assert!(agreed(&holders(&[7, 8, 9]), 2).is_err());
        assert!(agreed(&holders(&[7]), 2).is_err());
        assert!(agreed(&holders(&[]), 1).is_err());
    }

    #[test]
    fn names_that_could_be_taken_for_something_else_are_refused() {
        for good in ["trued", "group/sub/repo", "Ünïcode", "a.b-c_d"] {
            assert!(check_repository_name(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "../a", "a/..", "12", "a\nb", "a@fs-1"] {
            assert!(check_repository_name(bad).is_err(), "{bad}");
        }
    }
}
