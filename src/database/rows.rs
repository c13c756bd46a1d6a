//! Rows as the engines give them, read into the model's nouns.
//!
//! A word or a checksum that this program does not know is an error that says so, never
//! a guess. Statements list their columns: `*` would break prepared statements when a
//! later program adds one.

use super::values::{checksum, small, word};
use super::{DatabaseError, Result};
use crate::model::Millis;
use crate::model::attempt::{Attempt, Plan};
use crate::model::finding::{Deferral, Finding, Hints, Lane, Subject};
use crate::model::fleet::{Fileserver, Replica, Repository};
use crate::model::goal::GoalStatus;
use crate::model::id::{AttemptId, EvaluationId, FileserverId, FindingId, RackId, RepositoryId};
use sqlx::types::Json;

/// Reads a whole answer.
pub(crate) fn all<R, T>(rows: Vec<R>) -> Result<Vec<T>>
where
    T: TryFrom<R, Error = DatabaseError>,
{
    rows.into_iter().map(T::try_from).collect()
}

pub(crate) fn subject(text: &str) -> Result<Subject> {
    Subject::parse(text).ok_or_else(|| DatabaseError::Unreadable(format!("a subject {text:?}")))
}

/// `id, name, object_format, bytes, wanted, seats, version, checksum, checksum_key, push_epoch, repair_epoch,
/// write_lock_until, removed_at` of `repositories`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct RepositoryRow {
    id: RepositoryId,
    name: String,
    object_format: String,
    bytes: i64,
    wanted: i64,
    seats: i64,
    version: i64,
    checksum: Option<Vec<u8>>,
    checksum_key: Option<i64>,
    push_epoch: i64,
    repair_epoch: i64,
    write_lock_until: Option<Millis>,
    removed_at: Option<Millis>,
}

impl TryFrom<RepositoryRow> for Repository {
    type Error = DatabaseError;

    fn try_from(row: RepositoryRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            name: row.name,
            object_format: word(&row.object_format)?,
            bytes: row.bytes,
            wanted: small(row.wanted, "wanted copies")?,
            seats: small(row.seats, "seats")?,
            version: row.version,
            checksum: checksum(row.checksum.as_deref(), row.checksum_key)?,
            push_epoch: row.push_epoch,
            repair_epoch: row.repair_epoch,
            write_lock_until: row.write_lock_until,
            removed_at: row.removed_at,
        })
    }
}

/// `repository_id, fileserver_id, state, version, checksum, checksum_key, in_sync, out_of_sync_since, bytes,
/// verified_at, damage, copied_from` of `replicas`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct ReplicaRow {
    repository_id: RepositoryId,
    fileserver_id: FileserverId,
    state: String,
    version: Option<i64>,
    checksum: Option<Vec<u8>>,
    checksum_key: Option<i64>,
    in_sync: bool,
    out_of_sync_since: Option<Millis>,
    bytes: i64,
    verified_at: Option<Millis>,
    damage: Option<String>,
    copied_from: Option<FileserverId>,
}

impl TryFrom<ReplicaRow> for Replica {
    type Error = DatabaseError;

    fn try_from(row: ReplicaRow) -> Result<Self> {
        Ok(Self {
            repository_id: row.repository_id,
            fileserver_id: row.fileserver_id,
            state: word(&row.state)?,
            version: row.version,
            checksum: checksum(row.checksum.as_deref(), row.checksum_key)?,
            in_sync: row.in_sync,
            out_of_sync_since: row.out_of_sync_since,
            bytes: row.bytes,
            verified_at: row.verified_at,
            damage: row.damage,
            copied_from: row.copied_from,
        })
    }
}

/// The columns of `fileservers` that the model knows, with the rack's name as `rack`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct FileserverRow {
    id: FileserverId,
    name: String,
    rack_id: RackId,
    rack: String,
    url: String,
    intent: String,
    health: String,
    health_since: Millis,
    offline_ms: Millis,
    counts: bool,
    empty_since: Option<Millis>,
    compared_start_id: Option<String>,
    start_id: Option<String>,
    root_id: Option<String>,
    root: Option<String>,
    capacity: i64,
    disk_used: i64,
    disk_free: i64,
    load: i64,
    processes: i64,
    long_reads: i64,
    weight: i64,
    agent_version: Option<String>,
    git_version: Option<String>,
    inventory_generation: i64,
    seen_at: Option<Millis>,
}

impl TryFrom<FileserverRow> for Fileserver {
    type Error = DatabaseError;

    fn try_from(row: FileserverRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            name: row.name,
            rack_id: row.rack_id,
            rack: row.rack,
            url: row.url,
            intent: word(&row.intent)?,
            health: word(&row.health)?,
            health_since: row.health_since,
            offline_ms: row.offline_ms,
            counts: row.counts,
            empty_since: row.empty_since,
            compared_start_id: row.compared_start_id,
            start_id: row.start_id,
            root_id: row.root_id,
            root: row.root,
            capacity: row.capacity,
            disk_used: row.disk_used,
            disk_free: row.disk_free,
            load: row.load,
            processes: row.processes,
            long_reads: row.long_reads,
            weight: row.weight,
            agent_version: row.agent_version,
            git_version: row.git_version,
            inventory_generation: row.inventory_generation,
            seen_at: row.seen_at,
        })
    }
}

/// `id, goal, subject, repair, lane, priority, reason, hints, evidence, opened_at, opened_evaluation, state,
/// deferral, tries, ineffective, next_at` of `findings`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct FindingRow {
    id: FindingId,
    goal: String,
    subject: String,
    repair: Option<String>,
    lane: i64,
    priority: i32,
    reason: Option<String>,
    hints: Json<Hints>,
    evidence: Json<serde_json::Map<String, serde_json::Value>>,
    opened_at: Millis,
    opened_evaluation: EvaluationId,
    state: String,
    deferral: Option<Json<Deferral>>,
    tries: i32,
    ineffective: i32,
    next_at: Millis,
}

impl TryFrom<FindingRow> for Finding {
    type Error = DatabaseError;

    fn try_from(row: FindingRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            goal: row.goal,
            subject: subject(&row.subject)?,
            repair: row.repair,
            lane: Lane::from_sql(row.lane),
            priority: row.priority,
            reason: row.reason,
            hints: row.hints.0,
            evidence: row.evidence.0,
            opened_at: row.opened_at,
            opened_evaluation: row.opened_evaluation,
            state: word(&row.state)?,
            deferral: row.deferral.map(|deferral| deferral.0),
            tries: row.tries,
            ineffective: row.ineffective,
            next_at: row.next_at,
        })
    }
}

/// `id, finding_id, goal, subject, repair, number, state, lane, priority, plan, epoch, worker, lease_until,
/// queued_at, started_at, progress` of `attempts`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct AttemptRow {
    id: AttemptId,
    finding_id: FindingId,
    goal: String,
    subject: String,
    repair: String,
    number: i32,
    state: String,
    lane: i64,
    priority: i32,
    plan: Json<Plan>,
    epoch: i64,
    worker: Option<String>,
    lease_until: Option<Millis>,
    queued_at: Millis,
    started_at: Option<Millis>,
    progress: Option<String>,
}

impl TryFrom<AttemptRow> for Attempt {
    type Error = DatabaseError;

    fn try_from(row: AttemptRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            finding_id: row.finding_id,
            goal: row.goal,
            subject: subject(&row.subject)?,
            repair: row.repair,
            number: row.number,
            state: word(&row.state)?,
            lane: Lane::from_sql(row.lane),
            priority: row.priority,
            plan: row.plan.0,
            epoch: row.epoch,
            worker: row.worker,
            lease_until: row.lease_until,
            queued_at: row.queued_at,
            started_at: row.started_at,
            progress: row.progress,
        })
    }
}

/// `goal, state, findings, at_least, evaluated_at, finished_at, took_ms, error, failures, file_error, digest, ended,
/// gave_way, gave_way_at` of `goal_states`.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct GoalStateRow {
    goal: String,
    state: String,
    findings: i64,
    at_least: bool,
    evaluated_at: Option<Millis>,
    finished_at: Option<Millis>,
    took_ms: Option<Millis>,
    error: Option<String>,
    failures: i64,
    file_error: Option<String>,
    digest: Option<String>,
    ended: Option<String>,
    gave_way: Option<String>,
    gave_way_at: Option<Millis>,
}

impl TryFrom<GoalStateRow> for GoalStatus {
    type Error = DatabaseError;

    fn try_from(row: GoalStateRow) -> Result<Self> {
        Ok(Self {
            goal: row.goal,
            state: word(&row.state)?,
            findings: row.findings,
            at_least: row.at_least,
            evaluated_at: row.evaluated_at,
            finished_at: row.finished_at,
            took_ms: row.took_ms,
            error: row.error,
            failures: row.failures,
            file_error: row.file_error,
            digest: row.digest,
            ended: row.ended,
            gave_way: row.gave_way,
            gave_way_at: row.gave_way_at,
        })
    }
}
