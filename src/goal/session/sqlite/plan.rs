//! A plan on SQLite. `EXPLAIN QUERY PLAN` names aliases, so which tables are read whole is seen in the program that
//! SQLite made: a cursor on a table, or on an index that holds all of it, that is rewound.

use super::{Door, Failed, Session, arguments, bindings, explained, run_time, sample};
use crate::goal::Goal;
use crate::goal::session::plan::{LARGE, Plan, scans};
use crate::goal::session::{CHECK_TIMEOUT, Problem};
use sqlx::Row as _;
use std::collections::{BTreeMap, BTreeSet};

pub async fn plan(door: &Door, goal: &Goal) -> Result<Plan, Problem> {
    let mut session = Session::open(door, CHECK_TIMEOUT).await?;
    match read(&mut session, goal).await {
        Ok(plan) => Ok(plan),
        Err(Failed::Problem(problem)) => Err(problem),
        Err(Failed::Sql(error)) => {
            Err(explained(&mut session, goal, &goal.query, error, CHECK_TIMEOUT).await)
        }
    }
}

async fn read(session: &mut Session, goal: &Goal) -> Result<Plan, Failed> {
    let bound = bindings(goal, &goal.query, 0, Some(&sample(goal)))?;
    let text = run_time(format!("EXPLAIN QUERY PLAN {}", goal.query.text));
    let rows = sqlx::query_with(text, arguments(&bound)?).persistent(false);
    let rows = rows.fetch_all(&mut session.connection).await?;
    let mut depths = BTreeMap::from([(0, 0)]);
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, parent): (i64, i64) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
        let depth = depths.get(&parent).copied().unwrap_or(0);
        depths.insert(id, depth + 1);
        lines.push(format!("{}{}", "  ".repeat(depth), row.try_get_unchecked::<String, _>(3)?));
    }
    if !goal.asks_fleet() {
        return Ok(Plan { lines, cost: None, scans: Vec::new() });
    }
    let tables = read_whole(session, goal, &bound).await?;
    let counters: Vec<(String, i64)> = sqlx::query_as("/* goal.counters */ SELECT name, value FROM counters")
        .fetch_all(&mut session.connection)
        .await?;
    Ok(Plan { lines, cost: None, scans: scans(tables, &counters) })
}

async fn read_whole(
    session: &mut Session,
    goal: &Goal,
    bound: &[crate::goal::value::Value],
) -> Result<Vec<String>, Failed> {
    let text = "/* goal.roots */ SELECT rootpage, tbl_name FROM sqlite_schema
                 WHERE rootpage > 0 AND (type = 'table' OR coalesce(sql, '') NOT LIKE '% WHERE %')";
    let roots: Vec<(i64, String)> = sqlx::query_as(text).fetch_all(&mut session.connection).await?;
    let roots: BTreeMap<_, _> = roots.into_iter().collect();
    let text = run_time(format!("EXPLAIN {}", goal.query.text));
    let program = sqlx::query_with(text, arguments(bound)?).persistent(false);
    let program = program.fetch_all(&mut session.connection).await?;
    let (mut opened, mut rewound) = (Vec::new(), BTreeSet::new());
    for row in program {
        let cursor: i64 = row.try_get_unchecked(2)?;
        match row.try_get_unchecked::<String, _>(1)?.as_str() {
            "OpenRead" | "ReopenIdx" => opened.push((cursor, row.try_get_unchecked::<i64, _>(3)?)),
            "Rewind" | "Last" | "Count" => {
                rewound.insert(cursor);
            }
            _ => {}
        }
    }
    let whole = opened.iter().filter(|(cursor, _)| rewound.contains(cursor));
    let tables =
        whole.filter_map(|(_, root)| roots.get(root)).filter(|table| LARGE.contains(&table.as_str()));
    Ok(tables.cloned().collect())
}
