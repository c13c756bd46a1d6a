use super::*;
use crate::goal::Engine;
use std::path::Path;

fn said(header: &str, from: &str, message: &str) -> String {
    let head = format!("-- goal: x\n-- summary: X.\n-- subject: repository\n{header}--\n");
    let text = format!("{head}SELECT 1 AS repository_id FROM {from} WHERE zorkmid > 3\n");
    let goal = Goal::parse(Path::new("goals/x.sql"), &text, Engine::Sqlite).unwrap();
    let known = [("racks", "id"), ("racks", "name"), ("fileservers", "rack_id"), ("fileservers", "url")];
    let mut known: Vec<Known> = known.map(|(table, name)| (table.to_owned(), name.to_owned())).into();
    known.extend((0..99).map(|n| ("wide".to_owned(), format!("c{n}"))));
    let said = Said { message: message.to_owned(), code: "SQLite 1".to_owned(), offset: None, hint: None };
    let names = Names { columns: known, functions: Vec::new() };
    problem(&goal, &goal.query, &said, &names).message
}

#[test]
fn a_column_like_no_other_is_told_with_those_of_its_table() {
    let page = "; all are in docs/reference/columns.md";
    let bare = said("", "racks", "no such column: zorkmid");
    assert!(bare.ends_with(&format!("zorkmid (SQLite 1); columns of racks: id, name{page}")), "{bare}");
    for from in ["racks r, fileservers f", "racks AS r JOIN fileservers AS f ON TRUE"] {
        for message in ["no such column: f.zorkmid", "column f.zorkmid does not exist"] {
            let one = said("", from, message);
            assert!(one.ends_with(&format!("; columns of fileservers: rack_id, url{page}")), "{one}");
        }
    }
    let both = said("", "racks, fileservers", "no such column: zorkmid");
    assert!(both.contains("; columns of fileservers: rack_id, url; columns of racks: id, name"), "{both}");
    let param = said("-- param: zorkmid = 1GiB\n", "racks", "no such column: zorkmid");
    assert!(param.ends_with("(SQLite 1); the parameter is written :zorkmid"), "{param}");
    let wide = said("", "wide", "no such column: zorkmid");
    assert!(wide.contains("c39 and 59 more") && !wide.contains("c40"), "{wide}");
    let near = said("", "racks", "no such column: nmae");
    assert!(near.ends_with("; did you mean \"name\"?"), "{near}");
    let forge = said("-- database: forge\n", "racks", "no such column: zorkmid");
    assert!(forge.ends_with("; columns of racks: id, name"), "{forge}");
}

/// What is said of a query of one's own, with its place.
fn of(query: &str, message: &str) -> String {
    let text = format!("-- goal: x\n-- summary: X.\n-- subject: repository\n--\n{query}\n");
    let goal = Goal::parse(Path::new("x.sql"), &text, Engine::Sqlite).unwrap();
    let known = [("racks", "id"), ("racks", "name"), ("fileservers", "id"), ("parts", "id")];
    let columns = known.map(|(table, name)| (table.to_owned(), name.to_owned())).into();
    let names = Names { columns, functions: ["substr", "max", "length"].map(str::to_owned).into() };
    let said = Said { message: message.to_owned(), code: "SQLite 1".to_owned(), offset: None, hint: None };
    problem(&goal, &goal.query, &said, &names).message
}

#[test]
fn a_table_like_no_other_is_told_with_those_that_may_be_read() {
    let query = "SELECT 1 AS repository_id FROM zorkmids";
    for message in ["no such table: zorkmids", "relation \"zorkmids\" does not exist"] {
        let said = of(query, message);
        assert!(said.starts_with("x.sql:5:32: "), "{said}");
        // A table that goals may not read is no help.
        assert!(
            said.ends_with(
                "; tables and views: fileservers, racks; docs/reference/tables.md says what each holds"
            ),
            "{said}"
        );
    }
    let near = of("SELECT 1 AS repository_id FROM rakcs", "no such table: rakcs");
    assert!(near.ends_with("(SQLite 1); did you mean \"racks\"?"), "{near}");
    let schema = of("SELECT 1 AS repository_id FROM public.racks", "no such table: public.racks");
    assert!(schema.ends_with("; tables are written without a schema: racks"), "{schema}");
    let private = of("SELECT 1 AS repository_id FROM parts", "permission denied for table parts");
    assert!(private.contains("; parts is not published; tables and views: fileservers, racks;"), "{private}");
}

#[test]
fn a_name_before_a_point_that_is_no_table_of_the_query_is_told_with_those_it_reads() {
    let query = "SELECT p.id AS repository_id FROM racks p WHERE q.id > 3";
    for message in ["no such column: q.id", "missing FROM-clause entry for table \"q\""] {
        let said = of(query, message);
        assert!(said.contains("; no table of the query is called q (it reads racks)"), "{said}");
        assert!(said.starts_with("x.sql:5:49: ") || said.starts_with("x.sql:5:51: "), "{said}");
    }
    // What a WITH is called is known to the query, if to no table.
    let with =
        of("WITH q AS (SELECT 1) SELECT q.zorkmid AS repository_id FROM q", "no such column: q.zorkmid");
    assert!(!with.contains("no table of the query"), "{with}");
}

#[test]
fn a_name_that_several_tables_have_is_told_with_what_the_query_calls_them() {
    for (from, said) in [
        ("racks a, racks AS b WHERE id > 1", "a.id or b.id"),
        ("fileservers f JOIN racks ON racks.id = f.id", "f.id or racks.id"),
        ("fileservers, racks", "fileservers.id or racks.id"),
    ] {
        let one = of(&format!("SELECT id AS repository_id FROM {from}"), "ambiguous column name: id");
        assert!(one.ends_with(&format!("; say which: {said}")), "{one}");
    }
}

#[test]
fn a_variant_for_postgres_is_told_that_it_is_not_used_on_sqlite() {
    let text = "-- goal: x\n-- summary: X.\n-- subject: key\n--\nSELECT pg_size_pretty(1) AS key\n";
    let goal = Goal::parse(Path::new("x.postgres.sql"), text, Engine::Sqlite).unwrap();
    let message = "no such function: pg_size_pretty".to_owned();
    let said = Said { message, code: "SQLite 1".to_owned(), offset: None, hint: None };
    let names = Names { columns: Vec::new(), functions: vec!["substr".to_owned()] };
    let said = problem(&goal, &goal.query, &said, &names).message;
    assert!(said.contains("; this variant is for PostgreSQL, and this fleet is on SQLite"), "{said}");
    assert!(!said.contains("belongs into a NAME"), "{said}");
}

#[test]
fn what_was_meant_where_a_word_cannot_stand_is_told() {
    for (text, word, meant) in [
        ("SELECT id FORM racks", "racks", "; did you mean FROM where FORM stands?"),
        ("SELECT id FROM racks WERE id > 1", "id > 1", "; did you mean WHERE where WERE stands?"),
        ("SELECT id FROM racks GROPU BY id", "BY", "; did you mean GROUP where GROPU stands?"),
        ("SELECT id, FROM racks", "FROM", "; the comma before FROM is one too many"),
        ("SELECT 1 FROM racks WHERE name ILIKE 'a'", "ILIKE", "; SQLite has no ILIKE"),
        (
            "SELECT 1 FROM racks WHERE bytes > 1 GiB",
            "GiB",
            "; a size is a parameter: `-- param: most = 1GiB`",
        ),
        ("SELECT 1 FROM racks WHERE id > {most}", "{", "; a parameter is declared with `-- param:"),
        ("SELECT 1 FROM racks WHERE id > 1 && id < 9", "& id", "; write AND where && stands"),
        ("SELECT 1 FROM racks racks2 racks3", "racks3", ""),
    ] {
        let at = text.find(word);
        let word = word.split(' ').next().unwrap();
        let hint = syntax::hint(text, word, at);
        assert!(hint.starts_with(meant) && hint.is_empty() == meant.is_empty(), "{text}: {hint}");
    }
    let both = "operator does not exist: boolean && boolean";
    assert!(of("SELECT 1 AS repository_id FROM racks", both).ends_with("; write AND where && stands"));
    let cast = of("SELECT 1 AS repository_id FROM racks", "unrecognized token: \":\"");
    assert!(cast.ends_with("; a type is written CAST(x AS type)"), "{cast}");
    let from = of("SELECT id AS repository_id", "no such column: id");
    assert!(from.ends_with("; the query has no FROM: say which table it reads"), "{from}");
}

#[test]
fn a_text_in_the_wrong_quotes_is_told_with_the_right_ones() {
    let double = of("SELECT id AS repository_id FROM racks WHERE name = \"linux\"", "no such column: linux");
    assert!(double.ends_with("; double quotes are for names: a text is written 'linux'"), "{double}");
    let curly = of("SELECT id AS repository_id FROM racks WHERE name = ‘linux’", "no such column: ‘linux’");
    assert!(curly.ends_with("; a text stands between straight quotes: 'linux'"), "{curly}");
}

#[test]
fn what_is_wrong_with_a_call_a_word_or_a_clause_has_its_place_and_is_not_sought_in_comments() {
    let select = "SELECT id AS repository_id /* greatest( 1GiB having */ FROM racks";
    for (tail, message, place, hint) in [
        (" WHERE greatest(id) > 1", "no such function: greatest", 73, "; what PostgreSQL alone has belongs"),
        (" WHERE lenght(name) > 1", "no such function: lenght", 73, "; did you mean \"length\"?; what"),
        (" WHERE substr(name) > 1", "wrong number of arguments to function substr()", 73, ""),
        (" WHERE count(*) > 1", "misuse of aggregate: count()", 73, "stands in HAVING, behind GROUP BY"),
        (
            " WHERE id > 1GiB",
            "unrecognized token: \"1GiB\"",
            78,
            "a size is a parameter: `-- param: most = 1GiB`",
        ),
        (" WHERE id > 1.5GiB", "unrecognized token: \"1.5GiB\"", 78, "a number with a unit is a parameter"),
        (" HAVING id > 1", "HAVING clause on a non-aggregate query", 67, ""),
        (
            " UNION SELECT id, name FROM racks",
            "SELECTs to the left and right of UNION do not have the same number of result columns",
            67,
            "",
        ),
        (" ORDER BY 7", "1st ORDER BY term out of range - should be between 1 and 1", 67, ""),
        (", fileservers", "ambiguous column name: id", 8, "; say which: fileservers.id or racks.id"),
        (
            ", fileservers",
            "column reference \"id\" is ambiguous",
            8,
            "; say which: fileservers.id or racks.id",
        ),
    ] {
        let said = of(&format!("{select}{tail}"), message);
        assert!(said.starts_with(&format!("x.sql:5:{place}: {message} (SQLite 1)")), "{tail}: {said}");
        assert!(said.contains(hint), "{tail}: {said}");
    }
}
