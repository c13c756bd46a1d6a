//! Rows that are made anew from what lies on disks. What is there stays as it is.

use super::transaction::{Tx, within};
use super::{Database, Doing, Result};
use crate::model::checksum::Checksum;
use crate::model::fleet::ObjectFormat;
use crate::model::id::{FileserverId, RepositoryId};

/// A repository as its copies say that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its number.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// The hash its objects are named by.
    pub object_format: ObjectFormat,
    /// Wanted copies.
    pub wanted: u32,
    /// The highest version that was committed anywhere.
    pub version: i64,
    /// The definitive checksum; none: nobody can say.
    pub checksum: Option<Checksum>,
    /// Bytes of the largest copy.
    pub bytes: i64,
    /// The highest repair epoch that an agent has seen.
    pub repair_epoch: i64,
    /// The highest push epoch that an agent has seen.
    pub push_epoch: i64,
    /// Its copies.
    pub copies: Vec<RestoredCopy>,
}

/// One copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredCopy {
    /// Where.
    pub fileserver_id: FileserverId,
    /// The version that was committed there.
    pub version: i64,
    /// Its checksum; none: damaged.
    pub checksum: Option<Checksum>,
    /// Whether that is the definitive one, at the newest version.
    pub in_sync: bool,
    /// Bytes on disk.
    pub bytes: i64,
}

/// What became of the rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Repositories that were made.
    pub made: Vec<RepositoryId>,
    /// Repositories whose name another has: they were made under a name of their own, which stands here.
    pub renamed: Vec<(RepositoryId, String)>,
}

/// Makes rows for repositories that have none, in one transaction. With `dry` nothing stays, and the answer is what
/// would be made.
///
/// # Errors
/// When the engine fails.
pub async fn restore(db: &Database, all: &[Restored], dry: bool) -> Result<Rebuilt> {
    let mut tx = Tx::begin(db).await?;
    let mut rebuilt = Rebuilt::default();
    for one in all {
        if is_known(&mut tx, one.id).await? {
            continue;
        }
        let name = free_name(&mut tx, one).await?;
        insert(&mut tx, one, &name).await?;
        if name != one.name {
            rebuilt.renamed.push((one.id, name));
        }
        rebuilt.made.push(one.id);
    }
    if !dry {
        tx.commit().await?;
    }
    Ok(rebuilt)
}

/// A row, a tombstone, or an import under way: the disks are not asked what it is.
async fn is_known(tx: &mut Tx, id: RepositoryId) -> Result<bool> {
    let count: i64 = within!(tx, c => sqlx::query_scalar(
        "/* rebuild::is_known */ SELECT (SELECT count(*) FROM repositories WHERE id = $1) \
            + (SELECT count(*) FROM tombstones WHERE repository_id = $1) + (SELECT count(*) FROM imports WHERE id = $1)",
    )
    .bind(id).fetch_one(c).await)
    .doing("looking for a repository's row")?;
    Ok(count > 0)
}

async fn free_name(tx: &mut Tx, one: &Restored) -> Result<String> {
    let taken: i64 = within!(tx, c => sqlx::query_scalar(
        "/* rebuild::name_is_taken */ SELECT (SELECT count(*) FROM repositories WHERE name = $1) \
            + (SELECT count(*) FROM imports WHERE name = $1)",
    )
    .bind(&one.name).fetch_one(c).await)
    .doing("looking whether a name is taken")?;
    // Numbers are given once, so this name is nobody's.
    Ok(if taken > 0 { format!("{}.{}", one.name, one.id) } else { one.name.clone() })
}

async fn insert(tx: &mut Tx, one: &Restored, name: &str) -> Result<()> {
    let doing = "making a repository's rows anew";
    let checksum = one.checksum.as_ref();
    within!(&mut *tx, c => sqlx::query(
        "/* rebuild::repository */ INSERT INTO repositories (id, name, object_format, bytes, wanted, seats, version, \
                checksum, checksum_key, push_epoch, repair_epoch, created_at) \
         SELECT $1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, now FROM clock",
    )
    .bind(one.id).bind(name).bind(one.object_format.as_str()).bind(one.bytes).bind(i64::from(one.wanted))
    .bind(one.version).bind(checksum.map(|sum| sum.sum.to_vec())).bind(checksum.map(|sum| sum.key))
    .bind(one.push_epoch).bind(one.repair_epoch).execute(c).await.map(drop))
    .doing(doing)?;
    for copy in &one.copies {
        let checksum = copy.checksum.as_ref();
        within!(&mut *tx, c => sqlx::query(
            "/* rebuild::replica */ INSERT INTO replicas (repository_id, fileserver_id, state, version, checksum, \
                    checksum_key, in_sync, out_of_sync_since, bytes, state_since) \
             SELECT $1, $2, 'live', $3, $4, $5, $6, CASE WHEN $6 THEN NULL ELSE now END, $7, now FROM clock",
        )
        .bind(one.id).bind(copy.fileserver_id).bind(copy.version).bind(checksum.map(|sum| sum.sum.to_vec()))
        .bind(checksum.map(|sum| sum.key)).bind(copy.in_sync).bind(copy.bytes).execute(c).await.map(drop))
        .doing(doing)?;
        within!(&mut *tx, c => sqlx::query(
            "/* rebuild::tracked */ DELETE FROM inventory WHERE repository_id = $1 AND fileserver_id = $2 \
                AND found = 'untracked'",
        )
        .bind(one.id).bind(copy.fileserver_id).execute(c).await.map(drop))
        .doing(doing)?;
    }
    Ok(())
}

/// Sees to it that no number up to this one is given again.
///
/// # Errors
/// When the engine fails.
pub async fn never_again(db: &Database, highest: RepositoryId) -> Result<()> {
    super::on_writer!(db, p => sqlx::query(
        "/* rebuild::never_again */ UPDATE counters SET value = $1 WHERE name = 'repository_id' AND value < $1",
    )
    .bind(highest).execute(p).await.map(drop))
    .doing("raising the highest number of a repository")
}
