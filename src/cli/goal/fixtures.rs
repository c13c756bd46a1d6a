//! `trued goal test`: the cases of goals' fixtures, on databases of their own that are gone afterwards.
//!
//! Every goal must have a case that is met and one that is unmet: a goal that was never seen to find anything, or
//! never seen to be quiet, is not known to work.

use super::super::args::{Global, Output};
use super::super::failure::{Exit, Failure};
use super::super::{output, program};
use super::{check, files};
use crate::database::scratch;
use crate::goal::fixture::{self, Fixture, Scratch};
use crate::goal::library::{self, strays};
use crate::goal::session::Source;
use crate::goal::text::did_you_mean;
use crate::goal::{Engine, file};
use crate::model::goal::SubjectKind;
use anyhow::Context as _;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How one case went.
#[derive(Debug, Serialize)]
struct Outcome {
    goal: String,
    engine: &'static str,
    /// None: the goal or its fixture as a whole.
    case: Option<String>,
    passed: bool,
    /// Expected (`-`) against returned (`+`), or what is wrong.
    diff: Option<String>,
}

/// Runs fixtures.
///
/// # Errors
/// When there is no such goal, or a database cannot be made.
pub async fn run(global: &Global, goals: &[String], postgres: Option<&str>) -> anyhow::Result<Exit> {
    let files = meant(global, goals)?;
    let mut outcomes = Vec::new();
    let sqlite = scratch::Scratch::sqlite().await?;
    on(global, &sqlite, &files, &mut outcomes).await?;
    sqlite.close().await;
    if let Some(url) = postgres.filter(|url| !url.is_empty()) {
        let server = server(url).await?;
        on(global, &server, &files, &mut outcomes).await?;
        server.close().await;
    }
    let failed = outcomes.iter().filter(|one| !one.passed).count();
    match global.output {
        Output::Json => {
            output::answer(global.output, &serde_json::json!({ "results": outcomes }), String::new)?;
        }
        Output::Table => outcomes.iter().for_each(|one| output::line(&shown(one))),
    }
    eprintln!("{} passed, {failed} failed", outcomes.len() - failed);
    Ok(if failed > 0 { Exit::Failed } else { Exit::Done })
}

/// A scratch database on the server of `--postgres`.
async fn server(url: &str) -> anyhow::Result<scratch::Scratch> {
    is_url(url)?;
    let made = scratch::Scratch::postgres(url).await;
    made.context("making a database on the server of --postgres (or TRUED_TEST_POSTGRES_URL)")
}

/// What stands there is not repeated: it may hold a password.
fn is_url(url: &str) -> Result<(), Failure> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(());
    }
    Err(Failure::usage("--postgres (or TRUED_TEST_POSTGRES_URL) is no URL of a PostgreSQL server")
        .hint("write it like postgres://user@localhost/postgres, of a role that may create databases"))
}

fn shown(one: &Outcome) -> String {
    let word = if one.passed { "ok    " } else { "FAILED" };
    let case = one.case.as_ref().map_or(String::new(), |case| format!(": {case}"));
    let diff = one.diff.as_ref().map_or(String::new(), |diff| format!("\n  {}", diff.replace('\n', "\n  ")));
    format!("{word} {} on {}{case}{diff}", one.goal, one.engine)
}

/// The goal files that are meant, by path.
fn meant(global: &Global, goals: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let directory = files::directory(global)?;
    if goals.is_empty() {
        return files::all(&directory);
    }
    goals.iter().map(|goal| files::found(&directory, goal)).collect()
}

async fn on(
    global: &Global,
    scratch: &scratch::Scratch,
    files: &[PathBuf],
    outcomes: &mut Vec<Outcome>,
) -> anyhow::Result<()> {
    let source = Source::new(scratch.url()).map_err(|problem| anyhow::anyhow!(problem.message))?;
    let mut writer = Scratch::connect(scratch.url()).await.context("connecting to a scratch database")?;
    let repairs = program::files::subjects(&program::files::repairs(global)?);
    for path in files.iter().filter(|path| is_for(path, source.engine())) {
        let name = file::stem(path).map_or_else(String::new, |(name, _)| name.to_owned());
        let outcome = |case: Option<&str>, diff: Option<String>| Outcome {
            goal: name.clone(),
            engine: source.engine().as_str(),
            case: case.map(ToOwned::to_owned),
            passed: diff.is_none(),
            diff,
        };
        let text = check::read(global, path)?;
        let goal = match library::check(path, &text, &source, &repairs).await {
            Ok(goal) => goal,
            Err(problem) => {
                outcomes.push(outcome(None, Some(problem.message)));
                continue;
            }
        };
        let fixture = match fixture_of(path, &name, goal.subject) {
            Ok(fixture) => fixture,
            Err(why) => {
                outcomes.push(outcome(None, Some(why)));
                continue;
            }
        };
        for case in &fixture.case {
            let diff = match fixture::run(&mut writer, &source, &goal, case).await {
                Ok(diff) => diff,
                Err(error) => Some(super::super::failure::sentence(&error.into())),
            };
            outcomes.push(outcome(Some(&case.name), diff));
        }
    }
    Ok(())
}

/// A common text is for both engines, unless it has a variant that takes its place.
fn is_for(path: &Path, engine: Engine) -> bool {
    match file::stem(path) {
        Some((_, Some(only))) => only == engine,
        Some((name, None)) => !path.with_file_name(format!("{name}.{}.sql", engine.as_str())).is_file(),
        None => false,
    }
}

fn fixture_of(path: &Path, name: &str, kind: SubjectKind) -> Result<Fixture, String> {
    let place = path.with_file_name("tests").join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&place).map_err(|error| unread(&place, name, &error))?;
    let fixture = Fixture::parse_for(&place, &text, kind).map_err(|error| error.to_string())?;
    let met = fixture.case.iter().any(|case| case.expect.is_empty());
    let unmet = fixture.case.iter().any(|case| !case.expect.is_empty());
    let place = place.display();
    match (met, unmet) {
        (true, true) => Ok(fixture),
        (false, _) => Err(format!("{place}: no case is met: one [[case]] must say expect = []")),
        (_, false) => {
            let example = match kind {
                SubjectKind::Repository => "expect = [\"p\"], p a repository of the case",
                SubjectKind::Replica => "expect = [\"p@a\"], p a repository of the case and a a fileserver",
                SubjectKind::Fileserver => "expect = [\"a\"], a a fileserver of the case",
                SubjectKind::Key => "expect = [\"…\"], a key that the goal returns",
            };
            Err(format!(
                "{place}: no case is unmet: one [[case]] must expect some subject, such as {example}"
            ))
        }
    }
}

/// Why a fixture could not be read, and what was meant, if one beside it is called alike.
fn unread(place: &Path, name: &str, error: &std::io::Error) -> String {
    if error.kind() != std::io::ErrorKind::NotFound {
        return format!("{}: {error}", place.display());
    }
    let goals = place.parent().and_then(Path::parent);
    if let Some(found) = goals.and_then(|goals| strays::fixture_astray(goals, name)) {
        let (found, place) = (found.display(), place.display());
        return format!("there is no fixture {place}; {found} is where nobody looks: move it there");
    }
    let beside = place.parent().and_then(|tests| std::fs::read_dir(tests).ok());
    let names: Vec<String> = beside
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    let near = did_you_mean(name, names.iter().map(String::as_str));
    format!(
        "there is no fixture {}{near}; a goal has a case that is met and one that is unmet: docs/reference/fixtures.md",
        place.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MET: &str = "[[case]]\nname = \"met\"\nexpect = []\n";

    fn of(kind: SubjectKind, text: Option<&str>) -> String {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tests")).unwrap();
        let name = if text.is_some() { "repositories-are-small" } else { "repositories-are-smal" };
        std::fs::write(directory.path().join(format!("tests/{name}.toml")), text.unwrap_or(MET)).unwrap();
        let path = directory.path().join("repositories-are-small.sql");
        fixture_of(&path, "repositories-are-small", kind).unwrap_err()
    }

    #[test]
    fn a_fixture_that_is_missing_or_proves_little_is_told_with_what_to_write() {
        let missing = of(SubjectKind::Repository, None);
        assert!(missing.starts_with("there is no fixture ") && !missing.contains("os error"), "{missing}");
        assert!(
            missing.contains("small.toml; did you mean \"repositories-are-smal\"?; a goal has"),
            "{missing}"
        );
        let quiet = of(SubjectKind::Replica, Some(MET));
        assert!(quiet.contains("must expect some subject, such as expect = [\"p@a\"]"), "{quiet}");
        let loud = of(SubjectKind::Key, Some(&MET.replace("[]", "[\"k\"]")));
        assert!(loud.ends_with("small.toml: no case is met: one [[case]] must say expect = []"), "{loud}");
    }

    #[test]
    fn a_fixture_that_lies_elsewhere_is_named_with_the_place_where_it_belongs() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("x.toml"), MET).unwrap();
        let said = fixture_of(&directory.path().join("x.sql"), "x", SubjectKind::Key).unwrap_err();
        let (is, belongs) = (directory.path().join("x.toml"), directory.path().join("tests/x.toml"));
        let (is, belongs) = (is.display(), belongs.display());
        assert_eq!(said, format!("there is no fixture {belongs}; {is} is where nobody looks: move it there"));
    }

    #[test]
    fn a_server_that_is_no_url_is_told_with_its_flag() {
        let failure = is_url("localhost").unwrap_err();
        assert!(failure.message.starts_with("--postgres ") && failure.hint.is_some(), "{failure:?}");
        assert_eq!(is_url("postgres://localhost/postgres"), Ok(()));
    }

    #[test]
    fn an_expected_name_that_the_case_does_not_give_is_told_before_anything_runs() {
        let text = format!("{MET}[[case]]\nname = \"few\"\nexpect = [\"zorkmid\"]\n");
        let wrong = of(SubjectKind::Repository, Some(&text));
        let said = "small.toml:6:11: case \"few\": expect: the case has no repository \"zorkmid\" (it has no repositories)";
        assert!(wrong.ends_with(said), "{wrong}");
    }
}
