//! Repositories: looking up, and how many copies are wanted.
use super::rows::{self, ReplicaRow, RepositoryRow};
use super::transaction::{Tx, retrying, within};
use super::values::{Ids, Words};
use super::{Database, DatabaseError, Doing, Engine, Result, on, replicas};
use crate::model::fleet::{Replica, Repository};
use crate::model::id::RepositoryId;
use std::collections::BTreeMap;

mod import;
mod removal;

pub use import::{Import, abandon_import, finish_import, import, plan_import, replan_import};
pub use removal::{remove, removed_by_name, removed_page, rename, undelete};

/// Most ids in one question.
const MOST_IDS: usize = 10_000;

/// Most copies that may be wanted of one repository.
pub const MOST_WANTED: u32 = 64;

/// One by its name.
///
/// # Errors
/// When the engine fails.
pub async fn by_name(db: &Database, name: &str) -> Result<Option<Repository>> {
    let row: Option<RepositoryRow> = on!(db, p => sqlx::query_as(
        "/* repositories::by_name */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE name = $1",
    )
    .bind(name).fetch_optional(p).await)
    .doing("looking up a repository")?;
    row.map(Repository::try_from).transpose()
}

/// The ids of these names; those that there are not are left out.
///
/// # Errors
/// When the engine fails.
pub async fn ids_of_names(db: &Database, names: &[String]) -> Result<BTreeMap<String, RepositoryId>> {
    let text = db.engine().text(
        "/* repositories::ids_of_names, sqlite */ SELECT name, id FROM repositories \
          WHERE name IN (SELECT value FROM json_each($1))",
        "/* repositories::ids_of_names, postgres */ SELECT name, id FROM repositories WHERE name = ANY($1)",
    );
    let names = Words(names.to_vec());
    let rows: Vec<(String, RepositoryId)> =
        on!(db, p => sqlx::query_as(text).bind(&names).fetch_all(p).await)
            .doing("looking up repositories by their names")?;
    Ok(rows.into_iter().collect())
}

/// Those with these ids, in no order; missing ones are left out. At most 10,000 ids a call.
///
/// # Errors
/// When there are more ids, or the engine fails.
pub async fn by_ids(db: &Database, ids: &[RepositoryId]) -> Result<Vec<Repository>> {
    let ids = bounded(ids)?;
    let text = db.engine().text(
        "/* repositories::by_ids, sqlite */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE id IN (SELECT value FROM json_each($1))",
        "/* repositories::by_ids, postgres */ SELECT id, name, object_format, bytes, wanted, seats, version, \
                checksum, checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE id = ANY($1)",
    );
    let rows: Vec<RepositoryRow> =
        on!(db, p => sqlx::query_as(text).bind(&ids).fetch_all(p).await).doing("looking up repositories")?;
    rows::all(rows)
}

/// A page by name, after a name. `behind_only`: those that an open finding is about.
///
/// # Errors
/// When the engine fails.
pub async fn page(db: &Database, after: &str, limit: i64, behind_only: bool) -> Result<Vec<Repository>> {
    let text = if behind_only {
        "/* repositories::page_behind */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories \
          WHERE name > $1 AND removed_at IS NULL \
            AND id IN (SELECT repository_id FROM findings WHERE repository_id IS NOT NULL) \
          ORDER BY name LIMIT $2"
    } else {
        "/* repositories::page */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE name > $1 AND removed_at IS NULL ORDER BY name LIMIT $2"
    };
    let rows: Vec<RepositoryRow> =
        on!(db, p => sqlx::query_as(text).bind(after).bind(limit).fetch_all(p).await)
            .doing("listing repositories")?;
    rows::all(rows)
}

/// All replica rows of these repositories.
///
/// # Errors
/// When there are more than 10,000 ids, or the engine fails.
pub async fn replicas_of(db: &Database, ids: &[RepositoryId]) -> Result<Vec<Replica>> {
    let ids = bounded(ids)?;
    let text = db.engine().text(
        "/* repositories::replicas_of, sqlite */ SELECT repository_id, fileserver_id, state, version, checksum, \
                checksum_key, in_sync, out_of_sync_since, bytes, verified_at, damage, \
                copied_from \
           FROM replicas WHERE repository_id IN (SELECT value FROM json_each($1)) \
          ORDER BY repository_id, fileserver_id",
        "/* repositories::replicas_of, postgres */ SELECT repository_id, fileserver_id, state, version, checksum, \
                checksum_key, in_sync, out_of_sync_since, bytes, verified_at, damage, \
                copied_from \
           FROM replicas WHERE repository_id = ANY($1) ORDER BY repository_id, fileserver_id",
    );
    let rows: Vec<ReplicaRow> =
        on!(db, p => sqlx::query_as(text).bind(&ids).fetch_all(p).await).doing("reading replicas")?;
    rows::all(rows)
}

fn bounded(ids: &[RepositoryId]) -> Result<Ids> {
    if ids.len() > MOST_IDS {
        return Err(DatabaseError::Refused(format!("at most {MOST_IDS} repositories are asked for at once")));
    }
    Ok(Ids(ids.iter().map(|id| id.0).collect()))
}

/// Changes how many copies are wanted, and lowers the seats where fewer are wanted than there are seats
/// (only with no push open). They rise where enough copies are live and in sync already. Returns the repository
/// as it then is.
///
/// # Errors
/// When seats would fall while a push is open, the number is 0 or beyond [`MOST_WANTED`], there is no such
/// repository, or the engine fails.
pub async fn set_wanted(db: &Database, id: RepositoryId, wanted: u32) -> Result<Repository> {
    if wanted == 0 || wanted > MOST_WANTED {
        return Err(DatabaseError::Refused(format!(
            "from 1 to {MOST_WANTED} copies can be wanted, not {wanted}"
        )));
    }
    retrying!(try_set_wanted(db, id, wanted).await)
}

async fn try_set_wanted(db: &Database, id: RepositoryId, wanted: u32) -> Result<Repository> {
    let doing = "changing how many copies are wanted";
    let mut tx = Tx::begin(db).await?;
    let before = lock(&mut tx, id)
        .await?
        .filter(|repository| repository.removed_at.is_none())
        .ok_or_else(|| DatabaseError::Refused(format!("there is no repository {id}")))?;
    if wanted < before.seats && push_is_open(&mut tx, id).await? {
        return Err(DatabaseError::Refused(
            "a push is under way and its verdict needs the seats as they are: try again".to_owned(),
        ));
    }
    let seats = before.seats.min(wanted);
    within!(&mut tx, c => sqlx::query(
        "/* repositories::set_wanted */ UPDATE repositories SET wanted = $2, seats = $3 \
          WHERE id = $1 AND (wanted <> $2 OR seats <> $3)",
    )
    .bind(id).bind(i64::from(wanted)).bind(i64::from(seats))
    .execute(c).await.map(drop))
    .doing(doing)?;
    if !push_is_open(&mut tx, id).await? {
        replicas::raise_seats(&mut tx, id).await?;
    }
    let after = lock(&mut tx, id).await?;
    tx.commit().await?;
    Ok(after.unwrap_or(before))
}

/// Locks a repository's row against every other writer and reads it as it now is. Whoever writes replicas,
/// epochs, versions or seats does this first.
pub(super) async fn lock(tx: &mut Tx, id: RepositoryId) -> Result<Option<Repository>> {
    let text = tx.engine().text(
        "/* repositories::lock, sqlite */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE id = $1",
        "/* repositories::lock, postgres */ SELECT id, name, object_format, bytes, wanted, seats, version, checksum, \
                checksum_key, push_epoch, repair_epoch, write_lock_until, removed_at \
           FROM repositories WHERE id = $1 FOR NO KEY UPDATE",
    );
    let row: Option<RepositoryRow> = within!(tx, c => sqlx::query_as(text).bind(id).fetch_optional(c).await)
        .doing("locking a repository")?;
    row.map(Repository::try_from).transpose()
}

/// Locks many repositories' rows, in the order of their numbers. `SQLite` locks the file already.
pub(super) async fn lock_all(tx: &mut Tx, ids: &Ids) -> Result<()> {
    if tx.engine() == Engine::Sqlite {
        return Ok(());
    }
    within!(tx, c => sqlx::query(
        "/* repositories::lock_all, postgres */ SELECT id FROM repositories WHERE id = ANY($1::bigint[]) \
          ORDER BY id FOR NO KEY UPDATE",
    )
    .bind(ids).execute(c).await.map(drop))
    .doing("locking repositories")
}

/// Whether a push is open. True to the end of the transaction if the repository's row is locked.
pub(super) async fn push_is_open(tx: &mut Tx, id: RepositoryId) -> Result<bool> {
    let open: i64 = within!(tx, c => sqlx::query_scalar(
        "/* repositories::push_is_open */ SELECT count(*) FROM pushes \
          WHERE repository_id = $1 AND state = 'open'",
    )
    .bind(id).fetch_one(c).await)
    .doing("looking for an open push")?;
    Ok(open > 0)
}
