use super::*;
use crate::goal::session::plan::Scan;
use std::path::Path;

const HEAD: &str = "-- goal: x\n-- summary: All is well.\n-- subject: repository\n-- repair: mend\n-- population: repositories\n";
const GOOD: &str = "SELECT id AS repository_id, 'r' AS reason FROM repositories WHERE miscounted";

fn remarks(more: &str, sql: &str, plan: Option<&Plan>) -> Vec<Remark> {
    let text = format!("{HEAD}{more}--\n{sql}\n");
    let goal = Goal::parse(Path::new("goals/x.sql"), &text, Engine::Sqlite).unwrap();
    lint(&goal, Engine::Sqlite, plan)
}

fn ids(more: &str, sql: &str) -> Vec<String> {
    remarks(more, sql, None).into_iter().map(|remark| remark.id).collect()
}

fn scans_all() -> Plan {
    Plan { scans: vec![Scan { table: "repositories".into(), rows: Some(7) }], ..Plan::default() }
}

#[test]
fn a_good_goal_needs_no_remark() {
    assert_eq!(ids("", GOOD), Vec::<String>::new());
}

#[test]
fn each_rule_is_broken_by_its_example_and_by_it_alone() {
    let end = |more: &str| format!("{GOOD} {more}");
    let examples = [
        (
            "no-condition",
            String::new(),
            "SELECT id AS repository_id, 'r' AS reason FROM repositories".to_owned(),
        ),
        ("no-condition", String::new(), GOOD.replace("miscounted", "true")),
        ("no-condition", String::new(), GOOD.replace("miscounted", "1 = 1")),
        (
            "limit-order",
            "-- recheck: SELECT 1 FROM repositories WHERE id = :subject\n".into(),
            end("LIMIT 5"),
        ),
        ("limit-recheck", String::new(), end("ORDER BY id LIMIT 5")),
        ("select-star", String::new(), GOOD.replace("SELECT id", "SELECT repositories.*, id")),
        ("no-reason", String::new(), GOOD.replace(", 'r' AS reason", "")),
        ("unused-param", "-- param: age = 7d\n".into(), GOOD.to_owned()),
        ("text-param", "-- param: size = big\n".into(), end("AND bytes > :size")),
        ("text-param", "-- param: size=big\n".into(), end("AND bytes <= :size")),
        ("text-param", "-- param: size = big\n".into(), end("AND :size < bytes")),
        ("text-param", "-- param: size = \"1GiB\"\n".into(), end("AND bytes > :size")),
        ("not-in-null", String::new(), end("AND id NOT IN (SELECT repository_id FROM findings)")),
        ("not-in-null", String::new(), end("AND removed_at = NULL")),
        ("not-in-null", String::new(), end("AND removed_at <> NULL")),
        ("not-in-null", String::new(), end("AND removed_at != null")),
        ("union-distinct", String::new(), format!("{GOOD} UNION {GOOD}")),
    ];
    for (id, more, sql) in examples {
        assert_eq!(ids(&more, &sql), [id], "{sql}");
    }
    assert!(
        ids("", &end("AND id NOT IN (SELECT p.id FROM repositories p)")).is_empty(),
        "a key is never NULL"
    );
}

#[test]
fn a_comparison_with_null_is_told_with_its_place() {
    let remarks = remarks("", &format!("{GOOD} AND removed_at != NULL"), None);
    let said = "goals/x.sql:7:93: <> NULL is never true: write IS NOT NULL";
    assert_eq!((remarks[0].message.as_str(), remarks[0].refused), (said, false));
}

#[test]
fn a_large_table_that_is_read_whole_is_named_with_its_place_and_rows() {
    let remarks = remarks("", GOOD, Some(&scans_all()));
    assert_eq!(remarks[0].message, "goals/x.sql:7:48: it would read all of repositories, 7 rows now");
    assert!(!remarks[0].refused);
}

#[test]
fn an_ignore_needs_an_id_and_a_reason_and_is_told_when_it_is_not_needed() {
    let starred = GOOD.replace("SELECT id", "SELECT repositories.*, id");
    assert!(ids("-- lint: ignore select-star people want to see all of it\n", &starred).is_empty());
    for (ignore, said) in [
        ("-- lint: ignore select-star\n", "gives no reason"),
        ("-- lint: ignore select-sta because\n", "did you mean \"select-star\"?"),
        ("-- lint: ignore no-condition because\n", "cannot be ignored"),
        ("-- lint: off\n", "is no `lint: ignore ID reason`"),
    ] {
        let remarks = remarks(ignore, &starred, None);
        assert!(remarks[0].refused && remarks[0].message.contains(said), "{remarks:?}");
        assert!(remarks[0].message.starts_with("goals/x.sql:6:1: "), "{remarks:?}");
    }
    let unused = remarks("-- lint: ignore select-star because\n", GOOD, None);
    assert!(unused[0].message.contains("nothing here needs `ignore select-star`") && !unused[0].refused);
    let scan = "-- lint: ignore large-scan once a day\n";
    assert!(ids(scan, GOOD).is_empty(), "without a plan nobody knows");
    assert!(remarks(scan, GOOD, Some(&scans_all())).is_empty());
    assert!(!remarks(scan, GOOD, Some(&Plan::default())).is_empty());
}

#[test]
fn what_is_said_of_a_plan_is_what_the_check_says_of_it() {
    let said = |more: &str, sql: &str| {
        let text = format!("{HEAD}{more}--\n{sql}\n");
        let goal = Goal::parse(Path::new("goals/x.sql"), &text, Engine::Sqlite).unwrap();
        of_plan(&goal, Engine::Sqlite, &scans_all())
    };
    assert_eq!(said("", GOOD), (remarks("", GOOD, Some(&scans_all())), vec![]));
    let (warned, ignored) = said("-- lint: ignore large-scan once a day\n", GOOD);
    assert!(warned.is_empty());
    assert_eq!(ignored[0].what, "it would read all of repositories, 7 rows now");
    assert_eq!(ignored[0].reason, "once a day");
    let of_suspects = GOOD.replace("WHERE", "JOIN suspect ON repository_id = id WHERE");
    assert_eq!(said("", &of_suspects), (vec![], vec![]));
}

#[test]
fn rules_of_safety_refuse_and_there_are_at_most_a_dozen_in_all() {
    let all = remarks("", "SELECT id AS repository_id, 'r' AS reason FROM repositories", None);
    assert!(all[0].refused);
    assert!(RULES.len() <= 12);
    for rule in RULES {
        assert!(!rule.why.is_empty() && !rule.fix.is_empty());
    }
}
