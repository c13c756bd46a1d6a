//! Routing: from a name to the copies that may be read now, and what routers saw of fileservers.

use super::values::word;
use super::{Database, DatabaseError, Doing, Result, on, on_writer};
use crate::model::Millis;
use crate::model::fleet::{Health, Intent, ReplicaState};
use crate::model::grant::End;
use crate::model::id::{FileserverId, RepositoryId};
use sqlx::types::Json;

/// A repository, and where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its number.
    pub id: RepositoryId,
    /// Its name.
    pub name: String,
    /// Its copies that are live or leaving, and in sync.
    pub copies: Vec<Place>,
}

/// A copy that may be read, and how its fileserver stood when SQL was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The fileserver.
    pub fileserver: FileserverId,
    /// Its name and its agent's address.
    pub end: End,
    /// The rack that it stands in.
    pub rack: String,
    /// What the operator wants of it.
    pub intent: Intent,
    /// What the controllers last saw of it.
    pub health: Health,
    /// Whether its root is another than the one that held its copies.
    pub empty: bool,
    /// Load average over one minute, in thousandths.
    pub load: i64,
    /// What the copy may do.
    pub state: ReplicaState,
}

#[derive(sqlx::FromRow)]
struct RouteRow {
    id: RepositoryId,
    name: String,
    fileserver_id: Option<FileserverId>,
    state: Option<String>,
    fileserver: Option<String>,
    url: Option<String>,
    rack: Option<String>,
    intent: Option<String>,
    health: Option<String>,
    empty_since: Option<Millis>,
    load: Option<i64>,
}

/// The repository of this name, or of that one if there is none of the first.
///
/// # Errors
/// When the engine fails.
pub async fn by_name(db: &Database, name: &str, or: &str) -> Result<Option<Route>> {
    let rows: Vec<RouteRow> = on!(db, p => sqlx::query_as(
        "/* routing::by_name */ SELECT r.id, r.name, p.fileserver_id, p.state, f.name AS fileserver, f.url, \
                k.name AS rack, f.intent, f.health, f.empty_since, f.load \
           FROM repositories r \
           LEFT JOIN replicas p ON p.repository_id = r.id AND p.in_sync AND p.state IN ('live', 'leaving') \
           LEFT JOIN fileservers f ON f.id = p.fileserver_id \
           LEFT JOIN racks k ON k.id = f.rack_id \
          WHERE r.name IN ($1, $2) AND r.removed_at IS NULL ORDER BY r.id, p.fileserver_id",
    )
    .bind(name).bind(or).fetch_all(p).await)
    .doing("looking up where a repository can be read")?;
    let exact = rows.iter().any(|row| row.name == name);
    let mut route: Option<Route> = None;
    for row in rows.into_iter().filter(|row| !exact || row.name == name) {
        let (id, name) = (row.id, row.name.clone());
        let route = route.get_or_insert_with(|| Route { id, name, copies: Vec::new() });
        route.copies.extend(place(row)?);
    }
    Ok(route)
}

fn place(row: RouteRow) -> Result<Option<Place>> {
    let RouteRow { fileserver_id, state, fileserver, url, rack, intent, health, empty_since, load, .. } = row;
    let (Some(id), Some(name), Some(url), Some(state), Some(intent), Some(health)) =
        (fileserver_id, fileserver, url, state, intent, health)
    else {
        return Ok(None);
    };
    Ok(Some(Place {
        fileserver: id,
        end: End { name, url },
        rack: rack.unwrap_or_default(),
        intent: word(&intent)?,
        health: word(&health)?,
        empty: empty_since.is_some(),
        load: load.unwrap_or(0),
        state: word(&state)?,
    }))
}

/// What an observer saw of one fileserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observed {
    /// The fileserver.
    pub fileserver: FileserverId,
    /// Whether it answers.
    pub online: bool,
}

#[derive(serde::Serialize)]
struct ObservedRow {
    id: i64,
    verdict: &'static str,
}

/// Writes what an observer saw, all in one statement, at the database's now. An observer of no known rack stands in
/// rack 0: together they have one voice.
///
/// # Errors
/// When the engine fails.
pub async fn observe(db: &Database, observer: &str, rack: &str, seen: &[Observed]) -> Result<u64> {
    let rows: Vec<_> = seen
        .iter()
        .map(|one| ObservedRow {
            id: one.fileserver.0,
            verdict: if one.online { Health::Online.as_str() } else { Health::Offline.as_str() },
        })
        .collect();
    let text = db.engine().text(
        "/* routing::observe, sqlite */ INSERT INTO observations (observer, rack_id, fileserver_id, verdict, at) \
         SELECT $1, COALESCE((SELECT id FROM racks WHERE name = $2), 0), f.id, v.value->>'verdict', \
                (SELECT now FROM clock) \
           FROM json_each($3) AS v JOIN fileservers f ON f.id = v.value->>'id' WHERE true \
         ON CONFLICT (observer, fileserver_id) DO UPDATE SET rack_id = excluded.rack_id, \
           verdict = excluded.verdict, at = excluded.at",
        "/* routing::observe, postgres */ INSERT INTO observations (observer, rack_id, fileserver_id, verdict, at) \
         SELECT $1, COALESCE((SELECT id FROM racks WHERE name = $2), 0), f.id, v.verdict, \
                (SELECT now FROM clock) \
           FROM jsonb_to_recordset($3) AS v (id BIGINT, verdict TEXT) JOIN fileservers f ON f.id = v.id \
         ON CONFLICT (observer, fileserver_id) DO UPDATE SET rack_id = excluded.rack_id, \
           verdict = excluded.verdict, at = excluded.at",
    );
    on_writer!(db, p => sqlx::query(text)
        .bind(observer).bind(rack).bind(Json(&rows)).execute(p).await.map(|done| done.rows_affected()))
    .doing("recording what was seen of fileservers")
}

/// A voice about a fileserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voice {
    /// Who looked.
    pub observer: String,
    /// The rack that it stands in; 0: none that is known.
    pub rack: i64,
    /// What it looked at.
    pub fileserver: FileserverId,
    /// What it saw.
    pub online: bool,
}

#[derive(sqlx::FromRow)]
struct VoiceRow {
    observer: String,
    rack_id: i64,
    fileserver_id: FileserverId,
    verdict: String,
}

/// Observations that are younger than so much, by the database's clock.
///
/// # Errors
/// When the engine fails.
pub async fn voices(db: &Database, younger: Millis) -> Result<Vec<Voice>> {
    let rows: Vec<VoiceRow> = on!(db, p => sqlx::query_as(
        "/* routing::voices */ SELECT observer, rack_id, fileserver_id, verdict FROM observations \
          WHERE at > (SELECT now FROM clock) - $1 ORDER BY observer, fileserver_id",
    )
    .bind(younger).fetch_all(p).await)
    .doing("reading what was seen of fileservers")?;
    let voice = |row: VoiceRow| {
        let health: Health = word(&row.verdict)?;
        Ok::<_, DatabaseError>(Voice {
            observer: row.observer,
            rack: row.rack_id,
            fileserver: row.fileserver_id,
            online: health == Health::Online,
        })
    };
    rows.into_iter().map(voice).collect()
}
