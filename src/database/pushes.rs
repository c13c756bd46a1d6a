//! Pushes: opened, renewed, taken over, closed. The row is the repository's write order.
//!
//! Everybody locks the repository's row first, then its replicas. At most one push of a repository is
//! open; its epoch is given with it and raised by whoever takes it over, and whoever closes it must
//! hold that epoch: so a router that was stopped past its lease can close nothing, and acknowledge
//! nothing. Leases use the database's clock. What was decided is written here and decided elsewhere,
//! but for the voters, who are chosen within the transaction from what it sees.

use super::repositories::lock;
use super::rows;
use super::transaction::{Tx, retrying, within};
use super::values::{checksum, word};
use super::{Database, DatabaseError, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::checksum::Checksum;
use crate::model::fleet::{Health, Intent, ReplicaState, Repository};
use crate::model::grant::End;
use crate::model::id::{FileserverId, RackId, RepositoryId};
use crate::model::push::{Candidate, Chosen, TooFew, choose};
use crate::model::wire::push::Command;
use sqlx::types::Json;

mod adopt;
mod close;
mod settle;

pub use adopt::{
    Adoption, adopt, adoption, catch_up, fence_all, history_lost, is_history_lost, wish_adoption,
};
pub use close::{Closing, abort, commit};
pub use settle::{TakenOver, close_settled, expired, take_over, undecided};

/// What an agent tells of an epoch from here on is not believed: none was ever given.
const HIGHEST_EPOCH: i64 = 1 << 62;

/// A replica as a push sees it, with how its agent is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its fileserver.
    pub id: FileserverId,
    /// How that is called.
    pub end: End,
    /// Its rack.
    pub rack: RackId,
    /// What the replica may do.
    pub state: ReplicaState,
    /// Whether it has the definitive checksum.
    pub in_sync: bool,
    /// What the operator wants of the fileserver.
    pub intent: Intent,
    /// What was last seen of it.
    pub health: Health,
    /// Whether live replicas there count.
    pub counts: bool,
    /// Its root is another than the one that held its replicas.
    pub empty: bool,
}

impl Place {
    /// Whether its agent may be asked at all.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.health != Health::Offline && !self.empty
    }

    /// Whether it takes pushes: it reads, is in sync, and its agent may be asked.
    #[must_use]
    pub fn takes_pushes(&self) -> bool {
        let reads = matches!(self.state, ReplicaState::Live | ReplicaState::Leaving);
        reads && self.in_sync && self.answers()
    }

    fn candidate(&self, ready: &[FileserverId]) -> Candidate {
        Candidate {
            fileserver: self.id,
            rack: self.rack,
            state: self.state,
            intent: self.intent,
            counts: self.counts,
            in_sync: self.in_sync,
            ready: ready.contains(&self.id),
        }
    }
}

#[derive(sqlx::FromRow)]
struct PlaceRow {
    fileserver_id: FileserverId,
    name: String,
    url: String,
    rack_id: RackId,
    state: String,
    in_sync: bool,
    intent: String,
    health: String,
    counts: bool,
    empty_since: Option<Millis>,
}

impl TryFrom<PlaceRow> for Place {
    type Error = DatabaseError;

    fn try_from(row: PlaceRow) -> Result<Self> {
        Ok(Self {
            id: row.fileserver_id,
            end: End { name: row.name, url: row.url },
            rack: row.rack_id,
            state: word(&row.state)?,
            in_sync: row.in_sync,
            intent: word(&row.intent)?,
            health: word(&row.health)?,
            counts: row.counts,
            empty: row.empty_since.is_some(),
        })
    }
}

/// Every replica of a repository.
///
/// # Errors
/// When the engine fails.
pub async fn places(db: &Database, repository: RepositoryId) -> Result<Vec<Place>> {
    let rows: Vec<PlaceRow> = on!(db, p => sqlx::query_as(
        "/* pushes::places */ SELECT r.fileserver_id, f.name, f.url, f.rack_id, r.state, r.in_sync, f.intent, f.health, \
                f.counts, f.empty_since \
           FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = $1 ORDER BY r.fileserver_id",
    )
    .bind(repository).fetch_all(p).await)
    .doing("reading where a repository is")?;
    rows::all(rows)
}

async fn places_within(tx: &mut Tx, repository: RepositoryId) -> Result<Vec<Place>> {
    let rows: Vec<PlaceRow> = within!(tx, c => sqlx::query_as(
        "/* pushes::places_within */ SELECT r.fileserver_id, f.name, f.url, f.rack_id, r.state, r.in_sync, f.intent, \
                f.health, f.counts, f.empty_since \
           FROM replicas r JOIN fileservers f ON f.id = r.fileserver_id WHERE r.repository_id = $1 ORDER BY r.fileserver_id",
    )
    .bind(repository).fetch_all(c).await)
    .doing("reading where a repository is")?;
    rows::all(rows)
}

/// A write lock: nobody pushes meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WriteLock {
    /// Why, for the pusher.
    pub reason: String,
    /// How much longer it holds if nobody renews it.
    pub left_ms: Millis,
}

/// A push that is open, as whoever waits for it sees it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Ahead {
    /// Its number.
    pub id: i64,
    /// Its lease, in what is left of it; negative: anybody may settle it.
    pub left_ms: Millis,
    /// Why no rule can decide it.
    pub undecided: Option<String>,
}

/// What holds a repository's pushes up now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its write lock.
    pub lock: Option<WriteLock>,
    /// The push before.
    pub ahead: Option<Ahead>,
}

/// What is in the way of a push, for one who has not opened it yet.
///
/// # Errors
/// When the engine fails.
pub async fn standing(db: &Database, repository: RepositoryId) -> Result<Standing> {
    let doing = "looking at what is in the way of a push";
    let lock = on!(db, p => sqlx::query_as(
        "/* pushes::lock_of */ SELECT COALESCE(write_lock_reason, '') AS reason, \
                write_lock_until - (SELECT now FROM clock) AS left_ms \
           FROM repositories WHERE id = $1 AND write_lock_until > (SELECT now FROM clock)",
    )
    .bind(repository).fetch_optional(p).await)
    .doing(doing)?;
    let ahead = on!(db, p => sqlx::query_as(
        "/* pushes::ahead */ SELECT id, lease_until - (SELECT now FROM clock) AS left_ms, undecided FROM pushes \
          WHERE repository_id = $1 AND state = 'open'",
    )
    .bind(repository).fetch_optional(p).await)
    .doing(doing)?;
    Ok(Standing { lock, ahead })
}

/// The highest epoch of a repository whose push is over: a fence up to here ends nothing that may still stand.
/// None: there is no such repository.
///
/// # Errors
/// When the engine fails.
pub async fn closed_epoch(db: &Database, repository: RepositoryId) -> Result<Option<i64>> {
    on!(db, p => sqlx::query_scalar(
        "/* pushes::closed_epoch */ SELECT COALESCE((SELECT u.epoch - 1 FROM pushes u \
                 WHERE u.repository_id = p.id AND u.state = 'open'), p.push_epoch) FROM repositories p WHERE p.id = $1",
    )
    .bind(repository).fetch_optional(p).await)
    .doing("reading the last closed push")
}

/// What is to be opened.
#[derive(Debug, Clone)]
pub struct Opening<'a> {
    /// Of which repository.
    pub repository: RepositoryId,
    /// Who runs it.
    pub router: &'a str,
    /// The version that its commands were decided at.
    pub base_version: i64,
    /// Those that stand.
    pub commands: &'a [Command],
    /// What the checksum becomes.
    pub new: Checksum,
    /// Fileservers whose copies have its objects.
    pub ready: &'a [FileserverId],
    /// How long it is its router's without a renewal.
    pub lease_ms: Millis,
    /// The highest push epoch that an agent has seen: the push's is above it, also where the database went back.
    pub above: i64,
}

/// A push that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub id: i64,
    /// Its epoch.
    pub epoch: i64,
    /// The version that it builds on.
    pub base_version: i64,
    /// The definitive checksum.
    pub base: Checksum,
    /// What it becomes.
    pub new: Checksum,
    /// How many replicas share in its verdict.
    pub seats: u32,
    /// Who votes, and who follows.
    pub chosen: Chosen,
}

/// What became of the wish to open one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// It is open.
    Open(Open),
    /// There is no such repository any more.
    Removed,
    /// Nobody pushes now.
    Locked(WriteLock),
    /// Another push came in between: references are to be read again.
    Moved,
    /// Another push is open: it is waited for, or settled where its lease is over.
    Busy(Ahead),
    /// Fewer copies than must agree.
    TooFew(TooFew),
}

/// Opens a push, and chooses its voters.
///
/// # Errors
/// When the engine fails.
pub async fn open(db: &Database, ask: &Opening<'_>) -> Result<Opened> {
    retrying!(try_open(db, ask).await)
}

async fn try_open(db: &Database, ask: &Opening<'_>) -> Result<Opened> {
    let mut tx = Tx::begin(db).await?;
    let Some(row) = lock(&mut tx, ask.repository).await?.filter(|row| row.removed_at.is_none()) else {
        return Ok(Opened::Removed);
    };
    if let Some(instead) = in_the_way(&mut tx, &row, ask.base_version).await? {
        return Ok(instead);
    }
    let Some(base) = row.checksum.filter(|base| base.key == ask.new.key) else { return Ok(Opened::Moved) };
    let places = places_within(&mut tx, row.id).await?;
    let candidates: Vec<Candidate> = places.iter().map(|place| place.candidate(ask.ready)).collect();
    let chosen = match choose(&candidates, row.seats) {
        Ok(chosen) => chosen,
        Err(few) => return Ok(Opened::TooFew(few)),
    };
    let epoch = raise_epoch(&mut tx, row.id, ask.above).await?;
    let id = insert(&mut tx, ask, epoch, &chosen.voters).await?;
    tx.commit().await?;
    let (base_version, new, seats) = (ask.base_version, ask.new, row.seats);
    Ok(Opened::Open(Open { id, epoch, base_version, base, new, seats, chosen }))
}

async fn in_the_way(tx: &mut Tx, row: &Repository, base_version: i64) -> Result<Option<Opened>> {
    let doing = "looking at what is in the way of a push";
    let lock: Option<WriteLock> = within!(&mut *tx, c => sqlx::query_as(
        "/* pushes::locked */ SELECT COALESCE(write_lock_reason, '') AS reason, \
                write_lock_until - (SELECT now FROM clock) AS left_ms \
           FROM repositories WHERE id = $1 AND write_lock_until > (SELECT now FROM clock)",
    )
    .bind(row.id).fetch_optional(c).await)
    .doing(doing)?;
    if let Some(lock) = lock {
        return Ok(Some(Opened::Locked(lock)));
    }
    let ahead: Option<Ahead> = within!(tx, c => sqlx::query_as(
        "/* pushes::busy */ SELECT id, lease_until - (SELECT now FROM clock) AS left_ms, undecided FROM pushes \
          WHERE repository_id = $1 AND state = 'open'",
    )
    .bind(row.id).fetch_optional(c).await)
    .doing(doing)?;
    let moved = (row.version != base_version).then_some(Opened::Moved);
    Ok(ahead.map(Opened::Busy).or(moved))
}

/// The next push epoch of a repository whose row is locked, above one that was seen elsewhere.
async fn raise_epoch(tx: &mut Tx, repository: RepositoryId, above: i64) -> Result<i64> {
    within!(tx, c => sqlx::query_scalar(
        "/* pushes::raise_epoch */ UPDATE repositories \
            SET push_epoch = 1 + CASE WHEN push_epoch < $2 AND $2 < $3 THEN $2 ELSE push_epoch END \
          WHERE id = $1 RETURNING push_epoch",
    )
    .bind(repository).bind(above).bind(HIGHEST_EPOCH).fetch_one(c).await)
    .doing("giving a push its epoch")
}

async fn insert(tx: &mut Tx, ask: &Opening<'_>, epoch: i64, voters: &[FileserverId]) -> Result<i64> {
    within!(tx, c => sqlx::query_scalar(
        "/* pushes::open */ INSERT INTO pushes (repository_id, state, base_version, epoch, router, commands, new_checksum, \
                checksum_key, voters, opened_at, lease_until) \
         SELECT $1, 'open', $2, $3, $4, $5, $6, $7, $8, now, now + $9 FROM clock RETURNING id",
    )
    .bind(ask.repository).bind(ask.base_version).bind(epoch).bind(ask.router).bind(Json(ask.commands))
    .bind(ask.new.sum.to_vec()).bind(ask.new.key).bind(Json(voters)).bind(ask.lease_ms)
    .fetch_one(c).await)
    .doing("opening a push")
}

/// Renews a push's lease. `false`: it is closed, or another has taken it over.
///
/// # Errors
/// When the engine fails.
pub async fn renew(db: &Database, id: i64, epoch: i64, lease_ms: Millis) -> Result<bool> {
    let renewed = on_writer!(db, p => sqlx::query(
        "/* pushes::renew */ UPDATE pushes SET lease_until = (SELECT now FROM clock) + $3 \
          WHERE id = $1 AND epoch = $2 AND state = 'open'",
    )
    .bind(id).bind(epoch).bind(lease_ms).execute(p).await.map(|done| done.rows_affected()))
    .doing("renewing a push's lease")?;
    Ok(renewed == 1)
}

/// How a push ended, for one who lost it. None: it is still open, or was pruned long ago.
///
/// # Errors
/// When the engine fails.
pub async fn ended(db: &Database, id: i64) -> Result<Option<bool>> {
    let state: Option<String> = on!(db, p => sqlx::query_scalar(
        "/* pushes::ended */ SELECT state FROM pushes WHERE id = $1 AND state <> 'open'",
    )
    .bind(id).fetch_optional(p).await)
    .doing("reading how a push ended")?;
    Ok(state.map(|state| state == "committed"))
}

/// What a row's checksum columns say.
fn new_checksum(sum: Option<&[u8]>, key: Option<i64>) -> Result<Option<Checksum>> {
    checksum(sum, key)
}
