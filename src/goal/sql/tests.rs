use super::*;
use crate::goal::text::position;
use proptest::prelude::*;

fn known() -> Vec<String> {
    vec!["now".to_owned(), "age".to_owned()]
}

fn on(engine: Engine, sql: &str) -> Result<Query, At> {
    admit(sql, 0, engine, &known())
}

fn both(sql: &str) -> Query {
    let sqlite = on(Engine::Sqlite, sql).unwrap();
    assert_eq!(on(Engine::Postgres, sql).unwrap().names, sqlite.names);
    sqlite
}

fn refused(sql: &str) -> String {
    let sqlite = on(Engine::Sqlite, sql).unwrap_err();
    let postgres = on(Engine::Postgres, sql).unwrap_err();
    assert_eq!(sqlite, postgres);
    let (line, column) = position(sql, sqlite.offset);
    format!("{line}:{column}: {}", sqlite.message)
}

#[test]
fn names_become_placeholders_each_once() {
    let query = both("SELECT key FROM t WHERE a < :now - :age AND b < :now;");
    assert_eq!(query.text, "SELECT key FROM t WHERE a <  $1  -  $2  AND b <  $1 ");
    assert_eq!(query.names, ["now", "age"]);
}

#[test]
fn names_in_strings_quotes_comments_and_casts_are_left_alone() {
    let text = "SELECT ':now' AS a, 'it''s :age' AS \":now\", /* :now */ 1 AS b -- :age\n FROM t";
    assert_eq!(on(Engine::Postgres, text).unwrap().text, text);
    // In double quotes SQLite would take a name that is no column for a string.
    assert_eq!(on(Engine::Sqlite, text).unwrap().text, text.replace('"', "`"));
    let text = "SELECT $$:now$$, $a$ $$ :age $a$, E'\\':now', x::text, /* /* :now */ :age */ 1 FROM t";
    assert_eq!(on(Engine::Postgres, text).unwrap().text, text);
    let text = "SELECT [:now], `:age` FROM t";
    assert_eq!(on(Engine::Sqlite, text).unwrap().text, text);
}

#[test]
fn positions_lead_back_to_the_file() {
    let sql = "SELECT :now, ä,\n :age, wrong FROM t";
    let query = both(sql);
    let at = query.text.find("wrong").unwrap();
    assert_eq!(&sql[query.file_offset(at)..][..5], "wrong");
    let characters = query.text[..at].chars().count() + 1;
    assert_eq!(query.file_offset_of_char(characters), query.file_offset(at));
    let placeholder = query.text.find("$2").unwrap();
    assert!(sql[query.file_offset(placeholder)..].starts_with(":age"));
}

#[test]
fn an_unknown_name_is_refused_where_it_stands() {
    let said = refused("SELECT key\n FROM t WHERE a < :agee");
    assert!(said.starts_with("2:19: unknown parameter :agee; did you mean :age?"), "{said}");
}

#[test]
fn what_writes_is_refused() {
    for (sql, at) in [
        ("DELETE FROM replicas", "1:1"),
        ("UPDATE replicas SET in_sync = TRUE", "1:1"),
        ("ATTACH 'x' AS y", "1:1"),
        ("PRAGMA query_only = off", "1:1"),
        ("EXPLAIN ANALYZE SELECT 1", "1:1"),
        ("WITH a AS (SELECT 1) DELETE FROM replicas", "1:22"),
        ("WITH a AS (DELETE FROM replicas RETURNING *) SELECT * FROM a", "1:12"),
        ("WITH a AS (SELECT 1) REPLACE INTO t SELECT 1", "1:22"),
        ("WITH a AS (SELECT 1)", "1:21"),
        ("SELECT * INTO t FROM replicas", "1:10"),
        ("SELECT 1 FROM replicas FOR UPDATE", "1:24"),
        ("SELECT 1; DELETE FROM replicas", "1:9"),
        ("SELECT 1;;", "1:9"),
        ("SELECT 1) g; DROP TABLE t; --", "1:12"),
        ("SELECT 1) UNION (SELECT 2", "1:9"),
        ("SELECT (1", "1:8"),
    ] {
        let said = refused(sql);
        assert!(said.starts_with(&format!("{at}: ")), "{sql}: {said}");
    }
}

#[test]
fn reading_forms_are_admitted() {
    for sql in [
        "SELECT 1;  -- the end",
        "WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT n FROM a",
        "with a as (select 1 as \"insert\"), b AS (SELECT replace(x, 'a', 'b') FROM a) select * from b",
        "SELECT substring(name FROM 1 FOR 3) FROM t",
        "SELECT 'today is fine' AS a, 'today' FROM t",
        "SELECT date(x), strftime('%s', y) FROM t",
    ] {
        both(sql);
    }
}

#[test]
fn calls_that_are_not_repeatable_or_reach_out_are_refused_with_reasons() {
    for (sql, part) in [
        ("SELECT now()", "now() is refused"),
        ("SELECT random ()", "another answer"),
        ("SELECT CURRENT_TIMESTAMP", "use :now"),
        ("SELECT 'now'", "use :now"),
        ("SELECT timestamp 'today'", "use :now"),
        ("SELECT ' Yesterday '::date", "use :now"),
        ("SELECT age(x) FROM t", "use :now"),
        ("SELECT datetime()", "use :now"),
        ("SELECT strftime('%s')", "use :now"),
        ("SELECT pg_sleep(100)", "must not wait"),
        ("SELECT \"pg_sleep\"(100)", "must not wait"),
        ("SELECT pg_catalog . pg_sleep /* */ (1)", "must not wait"),
        ("SELECT pg_terminate_backend(1)", "other sessions"),
        ("SELECT pg_advisory_lock(1)", "changes something"),
        ("SELECT set_config('a', 'b', false)", "changes something"),
        ("SELECT lo_create(1)", "changes something"),
        ("SELECT pg_read_file('/etc/passwd')", "files"),
        ("SELECT query_to_xml('delete', true, true, '')", "runs text"),
        ("SELECT load_extension('x')", "files"),
    ] {
        let said = refused(sql);
        assert!(said.contains(part), "{sql}: {said}");
    }
}

#[test]
fn no_statement_hides_where_the_engines_read_differently() {
    for (engine, sql) in [
        (Engine::Sqlite, "SELECT $$; ATTACH 'x' AS y; $$"),
        (Engine::Sqlite, "SELECT /* /* */ 1; ATTACH 'x' AS y; /* */ */ 2"),
        (Engine::Sqlite, "SELECT E'\\'; ATTACH 'x' AS y; --'"),
        (Engine::Postgres, "SELECT E'a'\n'b\\''; DELETE FROM x --'"),
        (Engine::Postgres, "SELECT 1 -- a\r; DELETE FROM x"),
        (Engine::Postgres, "SELECT U&\"pg!005fsleep\" UESCAPE '!' (1)"),
        (Engine::Postgres, "SELECT $1"),
        (Engine::Sqlite, "SELECT ?1"),
        (Engine::Sqlite, "SELECT @x"),
        (Engine::Sqlite, "SELECT 1 \0; DELETE FROM x"),
    ] {
        assert!(on(engine, sql).is_err(), "{sql}");
    }
}

#[test]
fn what_does_not_end_is_refused_where_it_begins() {
    for (sql, at) in [("SELECT 'a", "1:8"), ("SELECT \"a", "1:8"), ("SELECT 1 /* x", "1:10"), ("", "1:1")] {
        assert!(refused(sql).starts_with(at), "{sql}");
    }
    assert_eq!(on(Engine::Postgres, "SELECT $a$ $b$").unwrap_err().offset, 7);
    assert_eq!(on(Engine::Sqlite, "SELECT [a").unwrap_err().offset, 7);
}

proptest! {
    #[test]
    fn any_text_is_admitted_or_refused_and_nothing_panics(text in ".{0,200}", postgres: bool) {
        let engine = if postgres { Engine::Postgres } else { Engine::Sqlite };
        let _ = on(engine, &text);
        let _ = on(engine, &format!("SELECT {text}"));
    }

    #[test]
    fn texts_of_awkward_pieces_never_panic_and_positions_stay_inside(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "'", "\"", "$", "$$", "$a$", "/*", "*/", "--", "\n", ":now", "::", ":", "E'", "\\", "ä", "(", ")", ";",
            "[", "]", "`", "SELECT", " ", "1e+", "x", ":age",
        ]), 0..40),
        postgres: bool,
    ) {
        let text = format!("SELECT {}", pieces.concat());
        let engine = if postgres { Engine::Postgres } else { Engine::Sqlite };
        match on(engine, &text) {
            Ok(query) => {
                for at in 0..=query.text.len() {
                    prop_assert!(query.file_offset(at) <= text.len());
                }
            }
            Err(at) => prop_assert!(at.offset <= text.len()),
        }
    }
}

#[test]
fn what_begins_with_no_select_is_told_with_the_word_and_what_is_to_be_done() {
    let said = |text: &str| admit(text, 0, Engine::Sqlite, &[]).unwrap_err().message;
    for (text, word, hint) in [
        ("SELCT 1", "SELCT", "; did you mean SELECT?"),
        ("wiht x AS (SELECT 1) SELECT 1", "wiht", "; did you mean WITH?"),
        ("DELETE FROM racks", "DELETE", ""),
        ("PRAGMA x", "PRAGMA", ""),
        ("Racks that differ", "Racks", "; if it is prose, begin the line with `--`"),
        ("Racks that don't\nSELECT 1", "Racks", "; if it is prose, begin the line with `--`"),
    ] {
        let begins = format!("it only reads, and \"{word}\" begins here{hint}");
        assert!(said(text).ends_with(&begins), "{}", said(text));
    }
    assert_eq!(
        said("lint: ignore large-scan once\nSELECT 1"),
        "this line lacks its `--`: write `-- lint: ignore large-scan once`"
    );
    assert_eq!(said("SELECT 'a"), "this string does not end");
}
