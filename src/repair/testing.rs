//! Small fleets for tests: a builder that states only what matters to the test.

use super::file::{Deadline, Repair, Retry, Throttle, subject_of};
use super::view::{FleetView, RepositoryView};
use crate::model::attempt::{Attempt, AttemptState, Plan, Step};
use crate::model::checksum::Checksum;
use crate::model::finding::{Finding, FindingState, Hints, Lane, Subject};
use crate::model::fleet::{Fileserver, Health, Intent, ObjectFormat, Replica, ReplicaState, Repository};
use crate::model::goal::SubjectKind;
use crate::model::id::{AttemptId, EvaluationId, FileserverId, FindingId, RackId, RepositoryId};

/// A fleet of `fileservers` spread over `racks` in turn: fileserver n stands in rack 1 + (n − 1) mod racks.
#[must_use]
pub fn fleet(racks: i64, fileservers: i64) -> FleetView {
    let one = |id: i64| (FileserverId(id), fileserver(id, 1 + (id - 1) % racks));
    FleetView { fileservers: (1..=fileservers).map(one).collect(), fill_limit: 90, ..FleetView::default() }
}

/// One fileserver that serves, is online, and has 600 of 1,000 bytes free.
#[must_use]
pub fn fileserver(id: i64, rack: i64) -> Fileserver {
    Fileserver {
        id: FileserverId(id),
        name: format!("fs-{id:02}"),
        rack_id: RackId(rack),
        rack: format!("rack-{rack}"),
        url: format!("http://fs-{id:02}"),
        intent: Intent::Serve,
        health: Health::Online,
        health_since: 0,
        offline_ms: 0,
        counts: true,
        empty_since: None,
        compared_start_id: None,
        start_id: None,
        root_id: None,
        root: None,
        capacity: 1_000,
        disk_used: 400,
        disk_free: 600,
        load: 0,
        processes: 0,
        long_reads: 0,
        weight: 100,
        agent_version: None,
        git_version: None,
        inventory_generation: 0,
        seen_at: Some(0),
    }
}

/// The checksum that is definitive in these fleets.
#[must_use]
pub const fn definitive() -> Checksum {
    Checksum { key: 1, sum: [1; 32] }
}

/// A replica that is live and in sync.
#[must_use]
pub fn replica(repository: i64, fileserver: i64) -> Replica {
    Replica {
        repository_id: RepositoryId(repository),
        fileserver_id: FileserverId(fileserver),
        state: ReplicaState::Live,
        version: Some(1),
        checksum: Some(definitive()),
        in_sync: true,
        out_of_sync_since: None,
        bytes: 10,
        verified_at: Some(0),
        damage: None,
        copied_from: None,
    }
}

/// A repository of 10 bytes that wants three replicas and has live ones, in sync, on these fileservers.
#[must_use]
pub fn repository(id: i64, on: &[i64]) -> RepositoryView {
    RepositoryView {
        repository: Repository {
            id: RepositoryId(id),
            name: format!("repo-{id}"),
            object_format: ObjectFormat::Sha1,
            bytes: 10,
            wanted: 3,
            seats: 3,
            version: 1,
            checksum: Some(definitive()),
            push_epoch: 0,
            repair_epoch: 0,
            write_lock_until: None,
            removed_at: None,
        },
        replicas: on.iter().map(|fileserver| replica(id, *fileserver)).collect(),
    }
}

/// A repair with generous limits and the shipped repairs' name for its step.
#[must_use]
pub fn repair(step: Step) -> Repair {
    let name = match step {
        Step::Replicate => "re-replicate",
        Step::Move => "rebalance",
        Step::Resync => "resync",
        Step::Verify => "verify",
        Step::Scrub => "scrub",
        Step::Repack => "repack",
        Step::Resume => "resume",
        Step::Remove => "evacuate",
        Step::Purge => "purge",
        Step::Settle => "settle",
        Step::Exec => "tell",
    };
    Repair {
        name: name.to_owned(),
        summary: "A repair of a test.".to_owned(),
        subject: subject_of(step).unwrap_or(SubjectKind::Key),
        step,
        exec: if step == Step::Exec { vec!["/usr/bin/true".to_owned()] } else { Vec::new() },
        throttle: Throttle {
            in_flight: 400,
            per_fileserver: 4,
            per_rack: 40,
            starts_per_minute: 6_000,
            bytes_per_second: 0,
        },
        deadline: Deadline { base_ms: 60_000, per_gib_ms: 60_000 },
        retry: Retry { first_ms: 30_000, max_ms: 3_600_000, lock_after: 5, stuck_after: 12 },
    }
}

/// A ready finding of an ordinary goal for this step.
#[must_use]
pub fn finding(id: i64, step: Step, subject: Subject) -> Finding {
    let (goal, priority) = match step {
        Step::Replicate => ("replicas-suffice", 200),
        Step::Resync => ("replicas-match", 100),
        Step::Move => ("disks-balance", 20),
        Step::Verify => ("replicas-verified", 50),
        Step::Scrub => ("replicas-scrubbed", 20),
        Step::Repack => ("replicas-packed", 30),
        Step::Resume => ("changes-finish", 250),
        Step::Remove => ("fileservers-evacuate", 100),
        Step::Purge => ("quarantine-purged", 10),
        Step::Settle => ("writes-settle", 400),
        Step::Exec => ("things-told", 20),
    };
    Finding {
        id: FindingId(id),
        goal: goal.to_owned(),
        lane: subject.fileserver().map_or(Lane::Common, Lane::Fileserver),
        subject,
        repair: Some(repair(step).name),
        priority,
        reason: None,
        hints: Hints::default(),
        evidence: serde_json::Map::new(),
        opened_at: id,
        opened_evaluation: EvaluationId(1),
        state: FindingState::Ready,
        deferral: None,
        tries: 0,
        ineffective: 0,
        next_at: 0,
    }
}

/// A finding about a repository that a copy is to be made of.
#[must_use]
pub fn wants_copy(id: i64, repository: i64) -> Finding {
    finding(id, Step::Replicate, Subject::Repository(RepositoryId(repository)))
}

/// A finding about a replica.
#[must_use]
pub fn about_replica(id: i64, step: Step, repository: i64, fileserver: i64) -> Finding {
    finding(id, step, Subject::Replica(RepositoryId(repository), FileserverId(fileserver)))
}

/// The live attempt that an admitted plan became.
#[must_use]
pub fn attempt(id: i64, finding: &Finding, plan: Plan) -> Attempt {
    Attempt {
        id: AttemptId(id),
        finding_id: finding.id,
        goal: finding.goal.clone(),
        subject: finding.subject.clone(),
        repair: finding.repair.clone().unwrap_or_default(),
        number: 1,
        state: AttemptState::Queued,
        lane: finding.lane,
        priority: finding.priority,
        plan,
        epoch: 0,
        worker: None,
        lease_until: None,
        queued_at: 0,
        started_at: None,
        progress: None,
    }
}
