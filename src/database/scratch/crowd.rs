//! A crowd for tests and benchmarks: many repositories that lack a copy, and many more open findings.
//!
//! Made by a few statements over sets, in seconds where rooms would take hours.
use crate::database::{Database, Doing, Result, fileservers, on_writer};
use crate::model::grant::{Part, Role};
use base64::Engine as _;

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Fileservers, online; those that are not there yet are added, in racks of three.
    pub fileservers: i64,
    /// Open findings of the goal `copies-suffice`, whose repair is `re-replicate`.
    pub open: i64,
    /// So many of them are due now and have a repository with two good copies of three; the others wait for a day.
    pub due: i64,
}

/// Any 32 bytes will do: nobody signs with them.
fn key(number: i64) -> String {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Crowd {
    /// Fills a database that holds nothing but fileservers.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn fill(self, db: &Database) -> Result<()> {
        let there = i64::try_from(fileservers::all(db).await?.len()).unwrap_or(0);
        for number in there + 1..=self.fileservers {
            let name = format!("fs-{number}");
            let part =
                Part { id: name.clone(), name: name.clone(), role: Role::Agent, public_key: key(number) };
            let rack = format!("rack-{}", number % (self.fileservers / 3).max(1));
            fileservers::add(db, &name, &rack, "http://127.0.0.1:1", &part).await?;
        }
        let doing = "filling a database for a test";
        on_writer!(db, p => sqlx::query(
            "/* crowd::online */ UPDATE fileservers SET health = 'online', counts = TRUE, capacity = 1000000000000, \
               disk_free = 1000000000000, seen_at = (SELECT now FROM clock)",
        )
        .execute(p).await.map(drop))
        .doing(doing)?;
        on_writer!(db, p => sqlx::query(
            "/* crowd::repositories */ INSERT INTO repositories (id, name, bytes, wanted, seats, version, checksum, \
                    checksum_key, created_at) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             SELECT i, 'crowd/' || CAST(i AS TEXT), 1000, 3, 3, 1, $2, 1, 0 FROM n",
        )
        .bind(self.due).bind(&[1_u8; 32][..]).execute(p).await.map(drop))
        .doing(doing)?;
        for step in [0_i64, 4] {
            on_writer!(db, p => sqlx::query(
                "/* crowd::replicas */ INSERT INTO replicas (repository_id, fileserver_id, state, version, checksum, \
                        checksum_key, in_sync, bytes, verified_at, state_since) \
                 SELECT id, 1 + (id + $1) % $2, 'live', 1, checksum, 1, TRUE, 1000, 0, 0 FROM repositories",
            )
            .bind(step).bind(self.fileservers).execute(p).await.map(drop))
            .doing(doing)?;
        }
        self.findings(db).await
    }

    /// Every fileserver said just now how it is, as those that are there do every few seconds.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn heard(db: &Database) -> Result<()> {
        on_writer!(db, p => sqlx::query("/* crowd::heard */ UPDATE fileservers SET seen_at = (SELECT now FROM clock)")
            .execute(p).await.map(drop))
        .doing("hearing of fileservers for a test")
    }

    async fn findings(self, db: &Database) -> Result<()> {
        on_writer!(db, p => sqlx::query(
            "/* crowd::findings */ INSERT INTO findings (goal, subject, repository_id, repair, lane, priority, hints, \
                    evidence, opened_at, opened_evaluation, state, next_at) \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
             SELECT 'copies-suffice', 'repository:' || CAST(i AS TEXT), i, 're-replicate', 1 + i % $3, \
                    CAST(200 + i % 5 AS INTEGER), '{}', '{\"countable\": 2}', c.now - i, 1, 'waiting', \
                    CASE WHEN i <= $2 THEN c.now ELSE c.now + 86400000 END \
               FROM n, clock c",
        )
        .bind(self.open).bind(self.due).bind(self.fileservers).execute(p).await.map(drop))
        .doing("filling a database for a test")
    }
}

impl super::Scratch {
    /// Makes what is ready so since a while ago.
    ///
    /// # Errors
    /// When the engine fails.
    pub async fn age_ready(&self, by: crate::model::Millis) -> Result<()> {
        on_writer!(self.database(), p => sqlx::query(
            "/* crowd::age_ready */ UPDATE findings SET next_at = next_at - $1 WHERE state = 'ready'",
        )
        .bind(by).execute(p).await.map(drop))
        .doing("making a situation for a test")
    }
}
