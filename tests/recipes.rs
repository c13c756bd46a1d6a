//! `docs/writing-a-goal.md` does what it says: its first goal passes its fixture, and each recipe is a goal that
//! loads, runs and returns the subjects that the page names, on the real engines.

#![allow(clippy::unwrap_used, reason = "a test may end so")]

mod goal_support;

use goal_support::{Tables, engines};
use std::path::Path;
use trued::goal::fixture::{self, Case, Expected, Fixture, Scratch};
use trued::goal::{Engine, Goal, library};
use trued::model::goal::SubjectKind;

const PAGE: &str = include_str!("../docs/writing-a-goal.md");

/// A fenced text of the page and the first line after it that says something.
struct Block {
    text: String,
    after: String,
}

fn blocks(language: &str) -> Vec<Block> {
    let opening = format!("```{language}\n");
    let parts = PAGE.split(&opening).skip(1).map(|part| part.split_once("\n```").unwrap());
    let after = |rest: &str| rest.lines().find(|line| !line.is_empty()).unwrap_or_default().to_owned();
    parts.map(|(text, rest)| Block { text: format!("{text}\n"), after: after(rest) }).collect()
}

fn goal(text: &str, engine: Engine) -> Goal {
    let name = text.lines().next().unwrap().strip_prefix("-- goal:").unwrap().trim();
    Goal::parse(Path::new(&format!("{name}.sql")), text, engine).unwrap_or_else(|error| panic!("{error}"))
}

fn cases(text: &str) -> Vec<Case> {
    Fixture::parse(Path::new("docs/writing-a-goal.md"), text).unwrap().case
}

/// The subjects of "Returns `a`, `b`.", up to the sentence's end.
fn promised(line: &str) -> Vec<Expected> {
    let sentence = line.strip_prefix("Returns ").unwrap_or_else(|| panic!("no `Returns …`: {line}"));
    let subjects = sentence.split("`. ").next().unwrap().split('`').skip(1).step_by(2);
    subjects.map(Expected::subject).collect()
}

#[tokio::test]
async fn the_first_goal_of_the_page_passes_its_fixture() {
    let (first, fixture) = (&blocks("sql")[0], cases(&blocks("toml")[0].text));
    assert!(fixture.iter().any(|case| case.expect.is_empty()) && fixture.len() > 1);
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let mut scratch = Scratch::connect(&tables.url).await.unwrap();
        let goal = goal(&first.text, source.engine());
        source.check(&goal).await.unwrap();
        for case in &fixture {
            let diff = fixture::run(&mut scratch, &source, &goal, case).await.unwrap();
            assert_eq!(diff, None, "{} on {:?}", case.name, source.engine());
        }
        drop(scratch);
        tables.drop().await;
    }
}

#[tokio::test]
async fn each_recipe_returns_what_the_page_says() {
    // The goal over a forge's tables asks of none that are here.
    let recipes: Vec<Block> =
        blocks("sql").into_iter().skip(1).filter(|block| !block.text.contains("-- database:")).collect();
    assert_eq!(recipes.len(), 20, "the page promises twenty");
    assert_eq!(PAGE.matches("\n### ").count(), 21, "each has a heading, and so has their fleet");
    let fleet = cases(&blocks("toml").last().unwrap().text).remove(0);
    let known = trued::repair::library::shipped().unwrap();
    let known = known.by_name.iter().map(|(name, repair)| (name.clone(), repair.subject)).collect();
    let mut failed = Vec::new();
    for server in engines() {
        let tables = Tables::new(server.as_deref()).await;
        let source = tables.source();
        let mut scratch = Scratch::connect(&tables.url).await.unwrap();
        for recipe in &recipes {
            let goal = goal(&recipe.text, source.engine());
            library::check(&goal.path, &recipe.text, &source, &known).await.unwrap();
            let case = Case { expect: promised(&recipe.after), ..fleet.clone() };
            assert!(!case.expect.is_empty(), "{}: nothing is promised", goal.name);
            if let Some(diff) = fixture::run(&mut scratch, &source, &goal, &case).await.unwrap() {
                failed.push(format!("{} on {:?}:\n{diff}", goal.name, source.engine()));
            }
        }
        drop(scratch);
        tables.drop().await;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn the_recipes_show_every_kind_of_subject() {
    let goals: Vec<_> = blocks("sql").iter().map(|block| goal(&block.text, Engine::Sqlite)).collect();
    for kind in SubjectKind::ALL {
        assert!(goals.iter().any(|goal| goal.subject == *kind), "no recipe about a {kind}");
    }
    assert!(goals.iter().any(|goal| goal.recheck.is_some()) && goals.iter().any(|goal| goal.suspects));
}
