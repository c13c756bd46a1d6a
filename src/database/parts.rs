//! Parts and their public keys.
//!
//! An id is given once: a part that was withdrawn never comes back under it.
use super::transaction::{Tx, within};
use super::values::word;
use super::{Database, DatabaseError, Doing, Result, on, on_writer};
use crate::model::grant::Part;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

#[derive(sqlx::FromRow)]
struct PartRow {
    id: String,
    role: String,
    name: String,
    public_key: Vec<u8>,
}

impl TryFrom<PartRow> for Part {
    type Error = DatabaseError;

    fn try_from(row: PartRow) -> Result<Self> {
        let public_key = STANDARD.encode(row.public_key);
        Ok(Self { id: row.id, name: row.name, role: word(&row.role)?, public_key })
    }
}

/// All parts that are not withdrawn, sorted by id.
///
/// # Errors
/// When the engine fails.
pub async fn list(db: &Database) -> Result<Vec<Part>> {
    let rows: Vec<PartRow> = on!(db, p => sqlx::query_as(
        "/* parts::list */ SELECT id, role, name, public_key FROM parts WHERE withdrawn_at IS NULL",
    )
    .fetch_all(p).await)
    .doing("reading the parts")?;
    let mut parts: Vec<Part> = super::rows::all(rows)?;
    // By bytes, and not by the server's collation: agents compare a digest of this list.
    parts.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(parts)
}

/// Adds a part; refused where its id is taken by another key. One that is there is left.
///
/// # Errors
/// When the id is taken, or the engine fails.
pub async fn add(db: &Database, part: &Part) -> Result<()> {
    let mut tx = Tx::begin(db).await?;
    insert(&mut tx, part).await?;
    tx.commit().await
}

/// As [`add`], within a transaction.
pub(super) async fn insert(tx: &mut Tx, part: &Part) -> Result<()> {
    let doing = "adding a part";
    let key = STANDARD.decode(&part.public_key).ok().filter(|key| key.len() == 32).ok_or_else(|| {
        DatabaseError::Refused(format!("the public key of part {} is not 32 bytes in base64", part.id))
    })?;
    let inserted = within!(tx, c => sqlx::query(
        "/* parts::insert */ INSERT INTO parts (id, role, name, public_key, created_at) \
         SELECT $1, $2, $3, $4, now FROM clock WHERE true ON CONFLICT (id) DO NOTHING",
    )
    .bind(&part.id).bind(part.role.as_str()).bind(&part.name).bind(&key)
    .execute(c).await.map(|done| done.rows_affected()))
    .doing(doing)?;
    if inserted == 1 {
        return Ok(());
    }
    let same: i64 = within!(tx, c => sqlx::query_scalar(
        "/* parts::same */ SELECT count(*) FROM parts \
          WHERE id = $1 AND role = $2 AND public_key = $3 AND withdrawn_at IS NULL",
    )
    .bind(&part.id).bind(part.role.as_str()).bind(&key)
    .fetch_one(c).await)
    .doing(doing)?;
    if same == 1 {
        return Ok(());
    }
    Err(DatabaseError::Refused(format!("the id {} is taken by another part or key", part.id)))
}

/// Says that a part has started, or is there.
///
/// # Errors
/// When the engine fails.
pub async fn seen(db: &Database, id: &str, started: bool) -> Result<()> {
    on_writer!(db, p => sqlx::query(
        "/* parts::seen */ UPDATE parts SET seen_at = (SELECT now FROM clock), \
           started_at = CASE WHEN $2 THEN (SELECT now FROM clock) ELSE started_at END WHERE id = $1",
    )
    .bind(id).bind(started)
    .execute(p).await.map(drop))
    .doing("noting that a part is there")
}
