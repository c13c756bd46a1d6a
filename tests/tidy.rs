//! The house's own rules as a test: what a reader may rely on everywhere, checked from the text alone.
//!
//! Each rule fails with the sentence that was broken and every place that breaks it.
//! Nothing is compiled, connected to or run here, so this is the fastest suite to run
//! before a commit: `cargo test --test tidy`.

mod tidy {
    pub mod files;
    pub mod rust;
    pub mod sql;
}

use std::collections::{BTreeMap, BTreeSet};
use tidy::files::{self, File};
use tidy::{rust, sql};

/// Who may import whom. `config`, `telemetry`, `clock` and `shutdown` are everybody's but `model`'s.
const IMPORTS: &[(&str, &[&str], &str)] = &[
    ("model", &[], "model imports nothing: nouns do not know who uses them"),
    ("goal", &["model"], "goals do not know that repairs run"),
    ("repair", &["model"], "a plan is made from facts that it is handed"),
    ("finding", &["model", "repair"], "admission decides and does nothing else"),
    ("database", &["model"], "the database remembers and does not decide"),
    ("queue", &["model", "database"], "the queue only reminds; what it reminds of is claimed in SQL"),
    ("fleet", &["model"], "the client side of agents knows only what is said to them"),
    ("agent", &["model"], "agents do not know the database"),
    (
        "controller",
        &["model", "goal", "repair", "finding", "database", "queue", "fleet"],
        "controllers decide; agents and workers do",
    ),
    (
        "settle",
        &["model", "database", "fleet"],
        "settling is shared by those who meet an open push, and knows none of them",
    ),
    (
        "router",
        &["model", "database", "queue", "fleet", "settle", "program"],
        "routers know copies and pushes, and not why anybody repairs",
    ),
    ("program", &["model"], "a program is run for whoever asks, and not known why"),
    (
        "worker",
        &["model", "repair", "database", "queue", "fleet", "settle", "program"],
        "workers do not know that goals exist",
    ),
    (
        "http",
        &["model", "goal", "repair", "database", "queue"],
        "the API never calls an agent: an operator's wish is a row",
    ),
    ("clock", &["model"], "the clock is read, and reads nothing"),
    ("shutdown", &["model"], "whoever owns tasks does not know what they do"),
    ("body", &[], "a body is bounded whoever sends it and whatever it carries"),
    ("config", &["model"], "configuration is values, not parts"),
    ("telemetry", &["model"], "telemetry is told, and asks nobody"),
];
const EVERYBODYS: &[&str] = &["body", "config", "telemetry", "clock", "shutdown"];

/// Words that the glossary has another word for, and that no identifier of ours needs.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("invariant", "goal"),
    ("violation", "finding"),
    ("zone", "rack"),
    ("daemon", "agent"),
    ("sidecar", "agent"),
    ("cordon", "quiesce"),
    ("decommission", "evacuate or retire"),
    ("blueprint", "plan"),
];

/// Fails with the rule and every place that breaks it.
fn hold(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}\n  {}", broken.join("\n  "));
}

fn rooms() -> BTreeSet<String> {
    let library = files::read("src/lib.rs");
    let name = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    library.lines().filter_map(name).collect()
}

#[test]
fn rooms_import_only_what_the_house_allows() {
    let rooms = rooms();
    let mut broken = Vec::new();
    for file in files::sources().iter().filter(|file| file.room() != "cli") {
        let Some((_, allowed, why)) = IMPORTS.iter().find(|(room, ..)| *room == file.room()) else {
            continue;
        };
        for (line, imported) in rust::imports(&file.text) {
            let shared = EVERYBODYS.contains(&imported.as_str()) && file.room() != "model";
            let allowed = imported == file.room() || shared || allowed.contains(&imported.as_str());
            if rooms.contains(&imported) && !allowed {
                broken.push(format!("{}:{line}: {} imports {imported}: {why}", file.path, file.room()));
            }
        }
    }
    hold("data goes round, imports never do", &broken);
}

#[test]
fn every_room_has_a_rule() {
    let ruled: BTreeSet<_> = IMPORTS.iter().map(|(room, ..)| (*room).to_owned()).collect();
    let unruled: Vec<_> = rooms().into_iter().filter(|room| room != "cli" && !ruled.contains(room)).collect();
    hold("each room says in tests/tidy.rs whom it may import", &unruled);
}

#[test]
fn a_module_opens_with_what_it_is_for() {
    let silent = |file: &&File| !file.text.starts_with("//!");
    let broken: Vec<_> =
        files::sources().iter().filter(|file| !file.is_test()).filter(silent).map(File::place).collect();
    hold("a module opens with `//!`: what it is for, what it promises, what it does not do", &broken);
}

#[test]
fn a_file_is_read_in_one_sitting() {
    let long = |file: &&File| file.text.lines().count() > 450;
    let broken: Vec<_> =
        files::sources().iter().chain(&files::tests()).filter(long).map(File::place).collect();
    hold("a file has at most 450 lines", &broken);
}

#[test]
fn modules_stand_beside_their_folders() {
    let broken: Vec<_> =
        files::sources().iter().filter(|file| file.path.ends_with("/mod.rs")).map(File::place).collect();
    hold("`foo.rs` with `foo/` beside it, no `mod.rs`", &broken);
}

#[test]
fn running_code_does_not_give_up() {
    let forbidden =
        [".unwrap()", ".expect(", ".expect_err(", ".unwrap_err()", "todo!", "unimplemented!", "dbg!"];
    let mut broken = Vec::new();
    for file in files::sources().iter().filter(|file| !file.is_test()) {
        for (number, line) in (1..).zip(rust::running_code(&file.text).lines()) {
            for word in forbidden.iter().filter(|word| line.contains(**word)) {
                broken.push(format!("{}:{number}: {word}", file.path));
            }
        }
    }
    hold("an error is a value: nothing but tests unwraps, expects, or is left to do", &broken);
}

#[test]
fn one_word_stands_for_one_thing() {
    let mut broken = Vec::new();
    for file in files::sources().iter().filter(|file| !file.is_test()) {
        for (line, identifier) in rust::identifiers(&rust::running_code(&file.text)) {
            let words = rust::words_of(&identifier);
            let found = OTHER_WORDS.iter().find(|(other, _)| words.iter().any(|word| word == other));
            if let Some((_, ours)) = found {
                broken.push(format!("{}:{line}: {identifier}: the word is {ours}", file.path));
            }
        }
    }
    hold("the glossary has one word for one thing", &broken);
}

#[test]
fn every_statement_names_its_function() {
    let mut broken = Vec::new();
    for file in files::sources().iter().filter(|file| file.room() == "database" && !file.is_test()) {
        for (line, text) in rust::literals(&file.text) {
            if sql::is_statement(&text) {
                broken.push(format!("{}:{line}: {}", file.path, text.chars().take(40).collect::<String>()));
            }
        }
    }
    hold(
        "each SQL text begins with `/* room::function */`, so that the database's activity view reads like code",
        &broken,
    );
}

#[test]
fn statements_live_in_the_database_alone() {
    let mut broken = Vec::new();
    for file in
        files::sources().iter().filter(|file| !matches!(file.room(), "database" | "goal") && !file.is_test())
    {
        for (line, _) in rust::literals(&file.text).iter().filter(|(_, text)| sql::is_statement(text)) {
            broken.push(format!("{}:{line}", file.path));
        }
    }
    hold("every SQL text but the goals' is in src/database/", &broken);
}

#[test]
fn goals_say_what_they_are() {
    let repairs = files::below("repairs", "toml");
    let repairs: BTreeSet<_> = repairs.iter().map(|file| file.stem().to_owned()).collect();
    let goals: Vec<_> = files::below("goals", "sql");
    let mut broken = Vec::new();
    for file in &goals {
        let mut refuse = |what: String| broken.push(format!("{}: {what}", file.path));
        let header = sql::header(&file.text);
        let name = file.stem().split('.').next().unwrap_or_default();
        for key in ["goal", "summary", "subject"].iter().filter(|key| !header.contains_key(**key)) {
            refuse(format!("no `-- {key}:`"));
        }
        if header.get("goal").is_some_and(|goal| goal != name) {
            refuse("the header names another goal than the file".to_owned());
        }
        if let Some(repair) = header.get("repair").filter(|name| !repairs.contains(*name)) {
            refuse(format!("no file defines its repair {repair}"));
        }
        for word in sql::unrepeatable(&file.text) {
            refuse(format!("{word}: an evaluation must be repeatable; use :now"));
        }
    }
    hold("a goal says what it is, and gives the same answer for the same facts", &broken);
    assert!(!goals.is_empty(), "no goal is shipped");
}

#[test]
fn every_shipped_goal_has_a_page_for_the_person_on_call() {
    let index = files::read("docs/README.md");
    let pages = files::below("docs/goals", "md");
    let mut broken = Vec::new();
    for goal in files::below("goals", "sql") {
        let name = goal.stem().split('.').next().unwrap_or_default();
        let Some(page) = pages.iter().find(|page| page.stem() == name) else {
            broken.push(format!("docs/goals/{name}.md: missing"));
            continue;
        };
        if !index.contains(&format!("](goals/{name}.md)")) {
            broken.push(format!("docs/README.md: no link to goals/{name}.md"));
        }
        let parts =
            ["**States:**", "**Why it matters:**", "**A finding looks like**", "**What repairs it:**"];
        let by_hand = page.text.contains("**By hand:**") || page.text.contains("**By hand**");
        if !by_hand || parts.iter().any(|part| !page.text.contains(part)) {
            broken.push(format!("{}: lacks one of {}, **By hand:**", page.path, parts.join(", ")));
        }
        let repaired = sql::header(&goal.text).contains_key("repair");
        if repaired && !page.text.contains("**It may wait for:**") {
            broken.push(format!("{}: does not say what its repair may wait for", page.path));
        }
    }
    hold("a goal that is shipped has a page that a person on call can follow", &broken);
}

#[test]
fn both_engines_have_the_same_tables() {
    let of = |engine: &str| files::below(&format!("migrations/{engine}"), "sql");
    let (postgres, sqlite) = (of("postgres"), of("sqlite"));
    let names = |files: &[File]| files.iter().map(|file| file.stem().to_owned()).collect::<Vec<_>>();
    assert_eq!(
        names(&postgres),
        names(&sqlite),
        "migrations of both engines have the same numbers and names"
    );
    assert!(!postgres.is_empty(), "no migration was found");
    let tables = |files: &[File]| -> BTreeMap<String, Vec<String>> {
        files.iter().flat_map(|file| sql::tables(&file.text)).collect()
    };
    assert_eq!(
        tables(&postgres),
        tables(&sqlite),
        "tables of both engines have the same columns in the same order"
    );
    assert!(tables(&postgres).len() > 10, "tables were not recognised");
}

#[test]
fn every_configuration_key_gives_its_reason() {
    let text = files::read("config/trued.toml");
    let lines: Vec<_> = text.lines().collect();
    let is_key = |line: &str| line.split_once('=').is_some_and(|(key, _)| rust::is_identifier(key.trim()));
    let silent = |index: &usize| *index == 0 || !lines[index - 1].starts_with('#');
    let keys: Vec<_> = (0..lines.len()).filter(|index| is_key(lines[*index])).collect();
    assert!(keys.len() > 5, "keys were not recognised");
    let broken = keys
        .into_iter()
        .filter(silent)
        .map(|index| format!("config/trued.toml:{}: {}", index + 1, lines[index]));
    hold("each key has a comment above it: unit, default, reason", &broken.collect::<Vec<_>>());
}

#[test]
fn every_metric_is_documented() {
    let page = files::read("docs/reference/metrics.md");
    let (mut broken, mut seen) = (Vec::new(), 0);
    for file in files::sources().iter().filter(|file| file.room() == "telemetry" && !file.is_test()) {
        for (line, name) in rust::calls_with_text(&file.text, "keep(") {
            seen += 1;
            if !page.contains(&format!("`trued_{name}")) {
                broken
                    .push(format!("{}:{line}: trued_{name} is not in docs/reference/metrics.md", file.path));
            }
        }
    }
    assert!(seen > 20, "metrics are made by keep(): only {seen} were found");
    hold("each metric is in the reference", &broken);
}

#[test]
fn every_table_is_documented() {
    let page = files::read("docs/reference/tables.md");
    let migrations = files::below("migrations/sqlite", "sql");
    let names = migrations.iter().flat_map(|file| sql::tables(&file.text)).map(|(name, _)| name);
    hold(
        "each table is in docs/reference/tables.md",
        &names.filter(|name| !page.contains(&format!("`{name}`"))).collect::<Vec<_>>(),
    );
}

#[test]
fn every_column_is_documented() {
    let page = files::read("docs/reference/columns.md");
    let mut broken = Vec::new();
    for file in files::below("migrations/sqlite", "sql") {
        for (table, columns) in sql::tables(&file.text) {
            let section = page.split(&format!("## `{table}`\n")).nth(1).unwrap_or_default();
            let section = section.split("\n## ").next().unwrap_or_default();
            let missing = columns.iter().filter(|column| !section.contains(&format!("| `{column}` |")));
            broken.extend(missing.map(|column| format!("{table}.{column}")));
        }
        let added = file.text.lines().filter_map(|line| line.trim().strip_prefix("ALTER TABLE "));
        for (table, rest) in added.filter_map(|line| line.split_once(" ADD COLUMN ")) {
            let column = rest.split_whitespace().next().unwrap_or_default();
            if !page.contains(&format!("| `{column}` |")) {
                broken.push(format!("{table}.{column}"));
            }
        }
    }
    hold("each column is in docs/reference/columns.md", &broken);
}

#[test]
fn every_word_of_a_fixture_is_documented() {
    let page = files::read("docs/reference/fixtures.md");
    let text = ["src/goal/fixture.rs", "src/goal/fixture/away.rs", "src/goal/fixture/expected.rs"]
        .map(files::read)
        .concat();
    let fields =
        text.lines().filter_map(|line| line.strip_prefix("    pub ")).filter_map(|line| line.split_once(':'));
    let words = fields.map(|(name, _)| name).filter(|name| !name.contains(' ') && *name != "case");
    let missing = words.filter(|name| !page.contains(&format!("`{name}`"))).map(str::to_owned);
    hold("each word of a fixture is in docs/reference/fixtures.md", &missing.collect::<Vec<_>>());
}

#[test]
fn every_route_is_documented() {
    let page = files::read("docs/reference/http.md");
    let mut broken = Vec::new();
    for (line, route) in rust::calls_with_text(&files::read("src/http.rs"), ".route(") {
        if !page.contains(&format!("{route}`")) {
            broken.push(format!("src/http.rs:{line}: {route}"));
        }
    }
    hold("each route is in docs/reference/http.md", &broken);
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files::pages() {
        for (line, link) in files::links(&file.text) {
            if !files::exists(&file.path, &link) {
                broken.push(format!("{}:{line}: {link}", file.path));
            }
        }
    }
    hold("a link between pages leads to a page", &broken);
}

#[test]
fn texts_are_clean() {
    // In halves, so that this file does not find itself.
    let machines =
        [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut broken = Vec::new();
    for file in files::everything() {
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            broken.push(format!("{}: no newline at its end", file.path));
        }
        for (number, line) in (1..).zip(file.text.lines()) {
            let trailing = line.ends_with(' ') || line.contains('\t') || line.ends_with('\r');
            if trailing {
                broken.push(format!("{}:{number}: trailing space, tab, or carriage return", file.path));
            }
            for machine in machines.iter().filter(|path| line.contains(**path)) {
                broken.push(format!("{}:{number}: {machine}: a path of somebody's machine", file.path));
            }
        }
    }
    hold("texts hold no trailing space, no tab, and no path of somebody's machine", &broken);
}
