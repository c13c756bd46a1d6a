//! Disks level themselves and then stay quiet: the shipped goal on a real engine, the real planner, and a fleet in
//! which only the copying is pretended. Random fleets, each from a seed that a failure names.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use trued::database::findings::{Merge, MergeInto};
use trued::database::scratch::Scratch;
use trued::database::{fileservers, flows, repositories};
use trued::goal::session::Source;
use trued::goal::{Engine, Goal};
use trued::model::attempt::Plan;
use trued::model::chance::Chance;
use trued::model::finding::{Deferral, Exception, Finding, FindingState, Lane};
use trued::model::fleet::{Intent, Replica, ReplicaState};
use trued::model::goal::SubjectKind;
use trued::model::id::{EvaluationId, FileserverId, FindingId, RepositoryId};
use trued::repair::Repair;
use trued::repair::placement;
use trued::repair::plan::plan_under;
use trued::repair::pressure::Pressure;
use trued::repair::view::{FleetView, RepositoryView};

/// The checksum that everything has.
const SUM: &str = "x'0101010101010101010101010101010101010101010101010101010101010101'";

/// What one dispatch sends towards and what it lets a fileserver take part in.
#[derive(Default)]
struct Round {
    arriving: BTreeMap<FileserverId, i64>,
    busy: BTreeMap<FileserverId, u32>,
}

const AT_ONCE: u32 = 8;

impl Pressure for Round {
    fn arriving(&self, id: FileserverId) -> i64 {
        self.arriving.get(&id).copied().unwrap_or(0)
    }
    fn busy(&self, id: FileserverId) -> u32 {
        self.busy.get(&id).copied().unwrap_or(0)
    }
    fn barred(&self, id: FileserverId) -> Option<Deferral> {
        let limited = || Deferral::FileserverAtLimit { fileserver: id.to_string(), limit: AT_ONCE };
        (self.busy(id) >= AT_ONCE).then(limited)
    }
}

struct Simulation {
    scratch: Scratch,
    pool: SqlitePool,
    source: Source,
    goal: Goal,
    repair: Repair,
    chance: Chance,
    moved: i64,
}

impl Simulation {
    async fn new(seed: u64) -> Self {
        let scratch = Scratch::sqlite().await.unwrap();
        let pool = SqlitePoolOptions::new().max_connections(1).connect(scratch.url()).await.unwrap();
        // Nothing of it outlives the test.
        sqlx::query("PRAGMA synchronous = OFF").execute(&pool).await.unwrap();
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/goals/disks-balance.sql"));
        let goal = Goal::parse(path, &std::fs::read_to_string(path).unwrap(), Engine::Sqlite);
        let repairs = trued::repair::library::shipped().unwrap();
        Self {
            source: Source::new(scratch.url()).unwrap(),
            scratch,
            pool,
            goal: goal.unwrap(),
            repair: repairs.get("rebalance").unwrap().clone(),
            chance: Chance::new(seed),
            moved: 0,
        }
    }

    fn below(&self, bound: u64) -> i64 {
        i64::try_from(self.chance.next() % bound).unwrap()
    }

    /// Racks of two to four disks of different sizes, one or two of which are new; repositories of very different
    /// sizes on all the others.
    async fn build(&self) {
        let racks = 4 + self.below(3);
        let mut id: i64 = 0;
        for rack in 1..=racks {
            self.run(&format!("INSERT INTO racks (id, name) VALUES ({rack}, 'rack-{rack}')")).await;
            for _ in 0..2 + self.below(2) {
                id += 1;
                let capacity = [8_000, 10_000, 20_000][usize::try_from(self.below(3)).unwrap()];
                self.run(&format!(
                    "INSERT INTO fileservers (id, name, rack_id, url, health, health_since, counts, capacity, disk_free, seen_at)
                     VALUES ({id}, 'fs-{id:02}', {rack}, 'http://nowhere.invalid', 'online', 1, TRUE, {capacity}, {capacity}, 9000000000000)"
                )).await;
            }
        }
        let new: BTreeSet<i64> = (0..=self.below(2)).map(|_| 1 + self.below(id.unsigned_abs())).collect();
        let room: i64 = self.number("SELECT sum(capacity) FROM fileservers").await;
        let mut view = self.view(&[]).await;
        for id in &new {
            view.fileservers.get_mut(&FileserverId(*id)).unwrap().intent = Intent::Quiesce;
        }
        self.run("BEGIN").await;
        let (mut held, mut repository) = (0, 0);
        let fill = 35 + self.below(30);
        while held < room * fill / 100 {
            repository += 1;
            let bytes = if self.below(40) == 0 { 100 + self.below(300) } else { 1 + self.below(40) };
            let places = placement::new_repository(&view, 3, bytes, self.chance.next());
            if places.len() < 3 {
                break;
            }
            self.run(&format!(
                "INSERT INTO repositories (id, name, bytes, wanted, seats, version, checksum, checksum_key, created_at)
                 VALUES ({repository}, 'r{repository}', {bytes}, 3, 3, 1, {SUM}, 1, 1)"
            )).await;
            for place in places {
                self.put(repository, place, bytes).await;
                let one = view.fileservers.get_mut(&place).unwrap();
                (one.disk_used, one.disk_free) = (one.disk_used + bytes, one.disk_free - bytes);
            }
            held += 3 * bytes;
        }
        self.run("COMMIT").await;
    }

    async fn put(&self, repository: i64, place: FileserverId, bytes: i64) {
        self.run(&format!(
            "INSERT INTO replicas (repository_id, fileserver_id, state, version, checksum, checksum_key, in_sync, bytes,
                                   verified_at, state_since)
             VALUES ({repository}, {place}, 'live', 1, {SUM}, 1, TRUE, {bytes}, 1, 1)"
        )).await;
        self.run(&format!(
            "UPDATE fileservers SET disk_used = disk_used + {bytes}, disk_free = disk_free - {bytes} WHERE id = {place}"
        )).await;
    }

    /// What no longer counts goes, as another goal has it.
    async fn remove_leaving(&self) {
        self.run(
            "UPDATE fileservers SET disk_used = disk_used - l.bytes, disk_free = disk_free + l.bytes
               FROM (SELECT fileserver_id, sum(bytes) AS bytes FROM replicas WHERE state = 'leaving' GROUP BY 1) l
              WHERE l.fileserver_id = fileservers.id",
        ).await;
        self.run("DELETE FROM replicas WHERE state = 'leaving'").await;
    }

    #[allow(clippy::disallowed_types, reason = "numbers of a test, in its own database")]
    async fn run(&self, text: &str) {
        sqlx::query(sqlx::AssertSqlSafe(text.to_owned())).execute(&self.pool).await.unwrap();
    }

    async fn number(&self, text: &'static str) -> i64 {
        sqlx::query_scalar(text).fetch_one(&self.pool).await.unwrap()
    }

    async fn view(&self, ids: &[RepositoryId]) -> FleetView {
        let db = self.scratch.database();
        let mut view = FleetView { fill_limit: 90, ..FleetView::default() };
        view.fileservers = fileservers::all(db).await.unwrap().into_iter().map(|one| (one.id, one)).collect();
        for one in repositories::by_ids(db, ids).await.unwrap() {
            view.repositories.insert(one.id, RepositoryView { repository: one, replicas: Vec::new() });
        }
        for replica in repositories::replicas_of(db, ids).await.unwrap() {
            view.repositories.get_mut(&replica.repository_id).unwrap().replicas.push(replica);
        }
        for flow in flows::all(db).await.unwrap() {
            *view.leaving.slot(flow.fileserver_id) = flow.leaving;
        }
        view
    }

    /// One evaluation, merged as a controller does it: its open findings are what the next one remembers.
    async fn evaluate(&self) -> Vec<Exception> {
        let db = self.scratch.database();
        let began_at = db.now().await.unwrap();
        let (rows, _) = self.source.collect(&self.goal, u64::MAX).await.unwrap();
        let into = MergeInto {
            goal: self.goal.name.clone(),
            digest: "d".into(),
            subject: SubjectKind::Replica,
            repair: Some("rebalance".into()),
            last_copies: false,
            began_at,
            backoff_ms: vec![0],
            stuck_after: 12,
            most: 500_000,
            in_a_row: 1,
            brake: None,
            removes: false,
        };
        let mut merge = Merge::begin(db, into).await.unwrap();
        merge.add(&rows).await.unwrap();
        merge.finish(1).await.unwrap();
        rows
    }

    /// One dispatch: plans for what was returned, as far as limits go, each carried out at once.
    async fn dispatch(&mut self, rows: &[Exception], taken: &mut BTreeSet<RepositoryId>) -> usize {
        let ids: Vec<RepositoryId> = rows.iter().filter_map(|row| row.subject.repository()).collect();
        let view = self.view(&ids).await;
        let (mut round, mut done) = (Round::default(), 0);
        for (index, row) in rows.iter().enumerate() {
            let repository = row.subject.repository().unwrap();
            if taken.contains(&repository) {
                continue;
            }
            let finding = finding(index, row);
            let Ok(plan) = plan_under(&finding, &self.repair, &view, &round, self.chance.next()) else {
                continue;
            };
            taken.insert(repository);
            for end in [plan.source_id, plan.destination_id].into_iter().flatten() {
                *round.busy.entry(end).or_insert(0) += 1;
            }
            *round.arriving.entry(plan.destination_id.unwrap()).or_insert(0) += plan.bytes;
            self.carry_out(&plan, row.subject.fileserver().unwrap(), &view).await;
            done += 1;
        }
        done
    }

    async fn carry_out(&mut self, plan: &Plan, leaves: FileserverId, view: &FleetView) {
        let (id, to) = (repository_of(plan), plan.destination_id.unwrap());
        let before = &view.repositories[&id];
        assert!(before.on(to).is_none(), "it is there already");
        let racks = |on: Vec<FileserverId>| -> usize {
            on.iter().map(|id| view.fileservers[id].rack_id).collect::<BTreeSet<_>>().len()
        };
        let live: Vec<FileserverId> =
            before.replicas.iter().filter(|one| is_live(one)).map(|one| one.fileserver_id).collect();
        let after: Vec<FileserverId> =
            live.iter().copied().filter(|one| *one != leaves).chain([to]).collect();
        assert!(racks(after.clone()) >= racks(live.clone()), "the rack rule: {live:?} to {after:?}");
        assert!(after.len() >= live.len(), "never fewer that count");
        self.put(id.0, to, plan.bytes).await;
        self.run(&format!(
            "UPDATE replicas SET state = 'leaving' WHERE repository_id = {id} AND fileserver_id = {leaves}"
        ))
        .await;
        self.run(&format!(
            "INSERT INTO attempt_history (id, finding_id, goal, subject, repository_id, repair, step, number, outcome, plan,
                                          destination_id, bytes, epoch, queued_at, finished_at, message)
             SELECT 1 + COALESCE(max(id), 0), 1, 'disks-balance', 'replica:{id}:{leaves}', {id}, 'rebalance', 'move', 1, 'succeeded',
                    '{{}}', {to}, {bytes}, 1, 1, (SELECT now FROM clock), 'as a test says' FROM attempt_history",
            bytes = plan.bytes,
        )).await;
        self.moved += plan.bytes;
    }

    /// By how much one is fuller than another that could take something of it: a rack that has a copy of everything
    /// takes nothing more, and what was moved stays. In hundredths of a percent.
    async fn apart(&self) -> i64 {
        self.number(
            "SELECT COALESCE(max(10000 * f.disk_used / f.capacity - 10000 * g.disk_used / g.capacity), 0)
               FROM fileservers f JOIN fileservers g ON g.id <> f.id
              WHERE EXISTS (
                SELECT 1 FROM replicas r JOIN repositories p ON p.id = r.repository_id
                 WHERE r.fileserver_id = f.id AND p.bytes < g.capacity / 60
                   AND NOT EXISTS (SELECT 1 FROM replicas o WHERE o.repository_id = p.id AND o.fileserver_id = g.id)
                   AND NOT EXISTS (SELECT 1 FROM attempt_history h
                                    WHERE h.repository_id = p.id AND h.destination_id = f.id)
                   AND (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id
                         WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.rack_id = g.rack_id)
                    <= (SELECT count(*) FROM replicas o JOIN fileservers h ON h.id = o.fileserver_id
                         WHERE o.repository_id = p.id AND o.fileserver_id <> f.id AND h.rack_id = f.rack_id))",
        )
        .await
    }

    /// How full each is, in hundredths of a percent.
    async fn fills(&self) -> Vec<i64> {
        sqlx::query_scalar("SELECT 10000 * disk_used / capacity FROM fileservers ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .unwrap()
    }
}

fn is_live(replica: &Replica) -> bool {
    replica.state == ReplicaState::Live
}

fn repository_of(plan: &Plan) -> RepositoryId {
    plan.repository_id.unwrap()
}

fn finding(index: usize, row: &Exception) -> Finding {
    Finding {
        id: FindingId(i64::try_from(index).unwrap()),
        goal: "disks-balance".into(),
        subject: row.subject.clone(),
        repair: Some("rebalance".into()),
        lane: Lane::Common,
        priority: row.priority,
        reason: row.reason.clone(),
        hints: row.hints.clone(),
        evidence: row.evidence.clone(),
        opened_at: 0,
        opened_evaluation: EvaluationId(1),
        state: FindingState::Ready,
        deferral: None,
        tries: 0,
        ineffective: 0,
        next_at: 0,
    }
}

fn spread(fills: &[i64]) -> i64 {
    fills.iter().max().unwrap() - fills.iter().min().unwrap()
}

/// Bytes above the mean: no way of levelling moves less.
async fn least(simulation: &Simulation) -> i64 {
    simulation
        .number(
            "SELECT CAST(sum(max(0, disk_used - capacity * m.fill)) AS INTEGER)
               FROM fileservers, (SELECT 1.0 * sum(disk_used) / sum(capacity) AS fill FROM fileservers) m",
        )
        .await
}

async fn levels_and_stays_quiet(seed: u64) {
    let mut simulation = Simulation::new(seed).await;
    simulation.build().await;
    let (began, least) = (simulation.fills().await, least(&simulation).await);
    let mut rounds = 0;
    loop {
        let rows = simulation.evaluate().await;
        if rows.is_empty() {
            break;
        }
        rounds += 1;
        assert!(rounds < 60, "seed {seed}: no end in sight, {began:?} is {:?}", simulation.fills().await);
        let mut taken = BTreeSet::new();
        while simulation.dispatch(&rows, &mut taken).await > 0 {}
        simulation.remove_leaving().await;
    }
    let ended = simulation.fills().await;
    // Racks may close the emptiest disks. What is left over the mean is then shared by the others, of which each takes only
    // a little more than the mean, as what moved once stays; and making room takes moves of its own.
    let apart = simulation.apart().await;
    let (most, factor) = if spread(&ended) > apart { (1_400, 4) } else { (800, 2) };
    if spread(&began) > 1_000 {
        assert!(apart <= most, "seed {seed}: {began:?} ended as {ended:?}, {apart} apart");
    }
    assert!(
        simulation.moved <= factor * least,
        "seed {seed}: {} bytes were moved, {least} would do",
        simulation.moved
    );
    let moved = simulation.moved;
    for _ in 0..3 {
        assert_eq!(simulation.evaluate().await, [], "seed {seed}: it began again at {ended:?}");
    }
    assert_eq!(simulation.moved, moved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_fleets_end_within_eight_points_and_then_nothing_moves() {
    let seeds = std::env::var("TRUED_TEST_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        levels_and_stays_quiet(seed).await;
    }
}
