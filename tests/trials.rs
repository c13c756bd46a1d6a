//! Trying a change of a shipped goal, on the real engines: what differs, and how the engine would answer.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

mod goal_support;

use goal_support::{Tables, engines};
use std::path::Path;
use trued::goal::fixture::{self, Fixture, Scratch};
use trued::goal::lint::lint;
use trued::goal::trial::compare;
use trued::goal::{Engine, Goal, library};

const FLEET: &str = "[[case]]\nname = 'x'\nrepositories = [{ name = 'p', on = ['a', 'b', 'c'] }, { name = 'q', on = ['a', 'b', 'c'] }, { name = 'r', on = ['a', 'b', 'c'] }]\nreplicas = [{ repository = 'p', fileserver = 'a', out_of_sync = '1m' }, { repository = 'q', fileserver = 'b', state = 'leaving', out_of_sync = '1m' }, { repository = 'r', fileserver = 'c', state = 'creating' }]\nexpect = ['p@a', 'q@b']\n";

fn shipped(name: &str, engine: Engine) -> Goal {
    library::shipped(engine).unwrap().into_iter().find(|goal| goal.name == name).unwrap()
}

fn edited(goal: &Goal, from: &str, to: &str, engine: Engine) -> Goal {
    assert!(goal.text.contains(from), "{from}");
    Goal::parse(Path::new(&format!("{}.sql", goal.name)), &goal.text.replace(from, to), engine).unwrap()
}

#[tokio::test]
async fn a_changed_condition_shows_exactly_the_subjects_that_differ() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let engine = source.engine();
        let mut scratch = Scratch::connect(&tables.url).await.unwrap();
        let fixture = Fixture::parse(Path::new("x.toml"), FLEET).unwrap();
        let running = shipped("replicas-match", engine);
        assert_eq!(fixture::run(&mut scratch, &source, &running, &fixture.case[0]).await.unwrap(), None);
        let states = "r.state IN ('live', 'leaving') AND f.health";
        for (to, expected) in [
            (states, vec![]),
            ("r.state IN ('live') AND f.health", vec!["- replica:2:2"]),
            ("r.state IN ('leaving', 'creating') AND f.health", vec!["- replica:1:1", "+ replica:3:3"]),
        ] {
            let edit = edited(&running, states, to, engine);
            let found = compare(&source, Some(&running), &edit, 10).await.unwrap();
            let shown: Vec<_> =
                found.rows.iter().map(|row| format!("{} {}", row.sign, row.subject)).collect();
            assert_eq!(shown, expected, "{engine:?}");
            assert_eq!(found.before, Some(2));
            assert_eq!(found.added + found.removed, expected.len() as u64);
            assert_eq!(found.changed, 0);
        }
        let dearer = edited(
            &running,
            "THEN 500 ELSE 300 END AS priority",
            "THEN 500 ELSE 301 END AS priority",
            engine,
        );
        let found = compare(&source, Some(&running), &dearer, 10).await.unwrap();
        assert_eq!((found.added, found.removed, found.changed), (0, 0, 2));
        assert_eq!((found.rows[0].was_priority, found.rows[0].priority), (Some(300), 301));
        let found = compare(&source, None, &running, 1).await.unwrap();
        assert_eq!((found.before, found.added, found.rows.len()), (None, 2, 1));
        drop(scratch);
        tables.drop().await;
    }
}

#[tokio::test]
async fn a_plan_names_large_tables_that_are_read_whole_and_none_that_are_not() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let goal = |sql: &str| {
            let text =
                format!("-- goal: x\n-- summary: X.\n-- subject: repository\n-- param: n = 4\n--\n{sql}\n");
            Goal::parse(Path::new("x.sql"), &text, source.engine()).unwrap()
        };
        let scans = async |sql: &str| {
            let plan = source.plan(&goal(sql)).await.unwrap();
            assert!(!plan.lines.is_empty());
            assert_eq!(plan.cost.is_some(), source.engine() == Engine::Postgres);
            plan.scans.into_iter().map(|scan| scan.table).collect::<Vec<_>>()
        };
        let whole = "SELECT id AS repository_id FROM repositories WHERE wanted < :n";
        assert_eq!(scans(whole).await, ["repositories"]);
        let view = "SELECT repository_id FROM countable_replicas GROUP BY repository_id HAVING count(*) < :n";
        assert_eq!(scans(view).await, ["replicas"], "also through a view");
        let marked = "SELECT id AS repository_id FROM repositories WHERE miscounted AND wanted < :n";
        assert!(scans(marked).await.is_empty());
        let one = "SELECT id AS repository_id FROM repositories WHERE id = :n";
        assert!(scans(one).await.is_empty());
        tables.drop().await;
    }
}

#[tokio::test]
async fn no_shipped_goal_breaks_a_rule_of_safety_or_has_an_ignore_that_is_wrong() {
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        for goal in library::shipped(source.engine()).unwrap() {
            let plan = source.plan(&goal).await.unwrap();
            let remarks = lint(&goal, source.engine(), Some(&plan));
            let refused: Vec<_> =
                remarks.iter().filter(|remark| remark.refused || remark.id == "lint").collect();
            assert!(refused.is_empty(), "{refused:?}");
        }
        tables.drop().await;
    }
}
