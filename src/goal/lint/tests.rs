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
        ("other-kind", "-- param: size = big\n".into(), end("AND bytes > :size")),
        ("other-kind", "-- param: size=big\n".into(), end("AND bytes <= :size")),
        ("other-kind", "-- param: size = big\n".into(), end("AND :size < bytes")),
        ("other-kind", "-- param: size = \"1GiB\"\n".into(), end("AND bytes > :size")),
        ("other-kind", String::new(), end("AND removed_at = false")),
        ("other-kind", "-- param: max = 1d\n".into(), end("AND bytes > :max")),
        (
            "other-kind",
            String::new(),
            "SELECT f.id AS repository_id, 'r' AS reason FROM fileservers f WHERE f.counts".into(),
        ),
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
    assert!(remarks[0].fix.ends_with("`-- lint: ignore large-scan REASON`"), "{}", remarks[0].fix);
}

#[test]
fn a_goal_with_a_schedule_is_not_told_to_have_one() {
    let all = remarks("-- schedule: 0 15 3 * * *\n", GOOD, Some(&scans_all()));
    let fix = &all[0].fix;
    assert!(fix.starts_with("it has a schedule of its own: where that is rare enough, say so"), "{fix}");
}

#[test]
fn what_is_compared_and_of_two_kinds_is_told_with_what_to_write() {
    let params = "-- param: age = 1d\n-- param: share = 1%\n-- param: size = 1GiB\n";
    let uses = ":age > 0 AND :share > 0 AND :size > 0";
    let said = |condition: &str| {
        let all = remarks(params, &format!("{GOOD} AND {uses} AND {condition}"), None);
        all.into_iter().map(|one| one.message).collect::<Vec<_>>().join("\n")
    };
    for (condition, message) in [
        ("bytes > :age", "bytes is a number of bytes, and :age is a duration (1d): write a size, such as"),
        ("repositories.bytes > :share", ":share is a percentage (1%): write a size"),
        (":age < bytes", ":age is a duration"),
        ("removed_at < :age", "removed_at is a moment, and :age is a duration (1d): write :now - :age"),
        ("removed_at < :size", ":size is a size (1GiB): a moment is written :now - :age"),
        ("removed_at = false", "is compared with false: write removed_at IS NULL"),
        ("removed_at = 0", "is compared with 0: write removed_at IS NULL"),
        ("removed_at <> 0", "write removed_at IS NOT NULL"),
        ("true = removed_at", "write removed_at IS NOT NULL"),
        ("bytes > '1GiB'", "with the text '1GiB': write 1073741824, or :most with `-- param: most = 1GiB`"),
        (
            "bytes > 'much'",
            "with the text 'much': write a number of bytes, or :most with `-- param: most = 1GiB`",
        ),
        ("removed_at > '2026-01-01'", "milliseconds since 1970, and is compared with the text '2026-01-01'"),
    ] {
        let said = said(condition);
        assert!(said.contains(message) && said.lines().count() == 1, "{condition}: {said}");
    }
    for good in [
        "bytes > :size",
        "bytes > :share * 100",
        "removed_at < :now - :age",
        "bytes > '7'",
        "removed_at > 0",
        "bytes = 0",
    ] {
        assert_eq!(said(good), "", "{good}");
    }
    let forge = "-- database: forge\n";
    assert_eq!(ids(forge, &format!("{GOOD} AND removed_at = 'x'")), Vec::<String>::new());
}

#[test]
fn an_id_of_another_table_is_told() {
    let said = |sql: &str| {
        let all = remarks("", sql, None);
        all.into_iter().map(|one| one.message).collect::<Vec<_>>().join("\n")
    };
    let wrong = said(
        "SELECT f.id AS repository_id, 'r' AS reason FROM repositories r JOIN fileservers f ON f.id = r.id",
    );
    assert!(
        wrong.contains("7:8: this id is one of fileservers, and repository_id is the id of a repository")
            || wrong.contains("this id is one of fileservers, and repository_id is the id of a repository"),
        "{wrong}"
    );
    for good in [
        "SELECT r.id AS repository_id, 'r' AS reason FROM repositories r JOIN fileservers f ON f.id = r.id",
        "SELECT q.id AS repository_id, 'r' AS reason FROM repositories AS q WHERE miscounted",
        "WITH x AS (SELECT id FROM repositories WHERE miscounted) SELECT x.id AS repository_id, 'r' AS reason FROM x",
    ] {
        assert_eq!(said(good), "", "{good}");
    }
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
