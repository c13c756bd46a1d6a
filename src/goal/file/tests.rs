use super::*;
use proptest::prelude::*;

const GOOD: &str = "-- goal:       replicas-verified
-- summary:    Every replica was compared.
-- subject:    replica
-- repair:     verify
-- schedule:   0 */5 * * * *
-- timeout:    45s
-- max-rows:   1,000
-- mode:       observe
-- for:        3
-- brake:      50 10%
-- population: replicas
-- recheck:    SELECT 1 FROM replicas WHERE repository_id = :repository_id AND verified_at < :now - :age
-- param:      age = 7d
-- param:      share = 20%
-- severity:   high
-- scope:      suspects
-- database:   other
-- lane:       last-copies
--
-- Prose: with a colon, and goals: too.
SELECT repository_id, fileserver_id FROM replicas WHERE verified_at < :now - :age
";

fn parse(text: &str) -> Result<Goal, String> {
    parse_named("goals/replicas-verified.sql", text)
}

fn parse_named(path: &str, text: &str) -> Result<Goal, String> {
    Goal::parse(Path::new(path), text, Engine::Sqlite).map_err(|error| error.to_string())
}

fn said(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn every_key_is_read() {
    let goal = parse(GOOD).unwrap();
    assert_eq!(goal.name, "replicas-verified");
    assert_eq!(goal.summary, "Every replica was compared.");
    assert_eq!(goal.subject, SubjectKind::Replica);
    assert_eq!(goal.repair.as_deref(), Some("verify"));
    assert!(goal.schedule.is_some());
    assert_eq!((goal.timeout, goal.max_rows, goal.in_a_row), (45_000, 1_000, 3));
    assert_eq!((goal.mode, goal.severity), (Mode::Observe, Severity::High));
    assert_eq!(goal.brake, Brake::Above { count: Some(50), share: Some(0.1) });
    assert_eq!(goal.population, Some(Population::Counter("replicas")));
    assert_eq!(goal.params["age"], Value::Integer(604_800_000));
    assert_eq!(goal.params["share"], Value::Fraction(0.2));
    assert!(goal.suspects && goal.last_copies);
    assert_eq!(goal.database, "other");
    assert_eq!(goal.recheck.unwrap().names, ["repository_id", "now", "age"]);
    assert_eq!(goal.query.names, ["now", "age"]);
    assert!(goal.sql.starts_with("-- Prose"));
}

#[test]
fn what_is_not_said_has_the_documented_default() {
    let text = "-- goal: a\n-- summary: A.\n-- subject: key\n\nSELECT 'x' AS key;";
    let goal = parse_named("a.sql", text).unwrap();
    assert_eq!((goal.repair, goal.schedule, goal.timeout), (None, None, 30_000));
    assert_eq!((goal.max_rows, goal.mode, goal.in_a_row), (500_000, Mode::Repair, 1));
    assert_eq!((goal.brake, goal.population), (Brake::Never, None));
    assert_eq!((goal.severity, goal.suspects, goal.last_copies), (Severity::Normal, false, false));
    assert_eq!(goal.database, "fleet");
    let repaired = text.replace("key\n\n", "key\n-- repair: verify\n\n");
    assert_eq!(parse_named("a.sql", &repaired).unwrap().brake, Brake::DEFAULT);
}

#[test]
fn mistakes_name_file_line_column_and_what_is_allowed() {
    for (from, to, expected) in [
        ("-- timeout:", "-- timout:", ":6:4: unknown key \"timout\"; did you mean \"timeout\"?"),
        ("45s", "45", ":6:16: key timeout: \"45\" is not a duration such as 500ms"),
        ("45s", "0s", "above 0"),
        (
            "observe",
            "observ",
            ":8:16: key mode: \"observ\" is not one of repair, observe; did you mean \"observe\"?",
        ),
        (
            "replica\n",
            "replicas\n",
            ":3:16: key subject: \"replicas\" is not one of repository, replica, fileserver, key",
        ),
        ("0 */5 * * * *", "*/5 * * * *", "five fields lack the seconds"),
        ("-- severity:   high", "-- mode: repair", "key mode stands twice"),
        ("-- summary:    Every replica was compared.\n", "", "key summary is missing"),
        ("-- timeout:    45s", "-- timeout 45s", ":6:4: a header line is `-- key: value`"),
        ("--\n-- Prose", "--\n-- scope: all\n-- Prose", "key scope stands after the header's end"),
        ("--\n-- Prose", "--\n-- scope: all\n-- Prose", "; line 19, a `--` alone, ended it"),
        ("-- mode:", "\n-- mode:", "; line 8, which is empty, ended it: remove that line"),
        ("-- goal: ", "goal: ", ":1:1: this line lacks its `--`: write `-- goal:"),
        ("-- mode:  ", "mode:  ", ":8:1: this line lacks its `--`: write `-- mode:"),
        (
            "WHERE verified_at < :now - :age\n",
            "\n-- severity: hihg\n",
            "key severity stands after the header's",
        ),
        ("0 */5 * * * *", "0 15 25 * * *", "; hours are 0 to 23, and \"25\" was given"),
        ("replicas-verified", "replicas-verifed", "must have the name of its file"),
        ("50 10%", "lots", "is not a count, a share such as 20%, both, or none"),
        ("population: replicas", "population: replica", "did you mean \"replicas\"?"),
        ("age = 7d", "age = 7 days", ":13:16: param age: \"7 days\" is no value"),
        ("age = 7d", "now = 7d", "param now: this name is taken"),
        ("recheck:    SELECT", "recheck:    DELETE", ":12:16: recheck: a goal is one SELECT"),
        (
            "verified_at < :now - :age\n",
            "verified_at < :now - :aeg\n",
            ":12:101: recheck: unknown parameter :aeg; did you mean :age?",
        ),
        (
            "WHERE repository_id = :repository_id AND verified_at < :now - :age",
            "WHERE verified_at < :now - :age",
            ":12:16: recheck: it names no subject, and would say the same of all: compare with one of :subject,",
        ),
        ("-- goal: ", "-- Every replica\n-- goal: ", ":1:4: a file begins with its header, `-- goal: NAME`"),
        (
            "-- goal: ",
            "Every replica\n-- goal: ",
            ":1:1: this line is no comment: a file begins with its header",
        ),
        (
            "-- param:      age",
            "- param:      age",
            ":13:3: this line lacks its `--`: write `-- param:      age = 7d`",
        ),
        (
            "-- mode:  ",
            "lint: ignore x y\n-- mode:  ",
            ":8:1: this line lacks its `--`: write `-- lint: ignore x y`",
        ),
        (
            "\nSELECT repository_id,",
            "\nSELECT 5000 AS priority, repository_id,",
            ":21:8: column \"priority\" is 5000",
        ),
        ("0 */5 * * * *", "\"0 */5 * * * *\"", "; it is written without quotes"),
        ("suspects", "suspect", "did you mean \"suspects\"?"),
    ] {
        let said = said(from, to);
        assert!(said.starts_with("goals/replicas-verified.sql:") && said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused_or_ends_at_a_line() {
    let whole = GOOD.len();
    for cut in 0..whole {
        let result = parse(&GOOD[..cut]);
        assert!(result.is_err(), "cut at {cut}");
    }
}

#[test]
fn byte_order_marks_and_carriage_returns_do_no_harm() {
    let windows = format!("\u{feff}{}", GOOD.replace('\n', "\r\n"));
    assert_eq!(parse(&windows).unwrap().params, parse(GOOD).unwrap().params);
}

#[test]
fn names_of_files_give_goal_and_engine() {
    assert_eq!(stem(Path::new("goals/a-b.sql")), Some(("a-b", None)));
    assert_eq!(stem(Path::new("a.postgres.sql")), Some(("a", Some(Engine::Postgres))));
    assert_eq!(stem(Path::new("a.sqlite.sql")), Some(("a", Some(Engine::Sqlite))));
    assert_eq!(stem(Path::new("a.txt")), None);
}

#[test]
fn a_brake_holds_above_the_larger_of_count_and_share() {
    assert!(!Brake::DEFAULT.holds(100, 10));
    assert!(Brake::DEFAULT.holds(101, 10));
    assert!(!Brake::DEFAULT.holds(2_000, 10_000));
    assert!(Brake::DEFAULT.holds(2_001, 10_000));
    assert!(!Brake::Never.holds(u64::MAX, 1));
}

proptest! {
    #[test]
    fn any_text_is_a_goal_or_an_error_and_nothing_panics(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn a_good_file_with_any_bytes_put_in_never_panics(at in 0..GOOD.len(), more in ".{0,12}", cut in 0_usize..20) {
        let end = (at + cut).min(GOOD.len());
        if GOOD.is_char_boundary(at) && GOOD.is_char_boundary(end) {
            let _ = parse(&format!("{}{more}{}", &GOOD[..at], &GOOD[end..]));
        }
    }

    #[test]
    fn any_header_line_never_panics(key in "[a-z-]{0,10}", value in ".{0,30}") {
        let _ = parse(&format!("-- {key}: {value}\n{GOOD}"));
    }
}
