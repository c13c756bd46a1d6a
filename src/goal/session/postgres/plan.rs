//! A plan on PostgreSQL: its text and cost as they are, and a second one in which reading a table whole is the last
//! resort, for what the first would do on a larger fleet.

use super::{Door, Failed, Trace, arguments, bindings, close, explained, open, run_time, sample};
use crate::goal::Goal;
use crate::goal::session::plan::{LARGE, MANY, Plan, scans};
use crate::goal::session::{CHECK_TIMEOUT, Problem};
use serde_json::Value as Json;
use sqlx::PgConnection;

pub async fn plan(door: &Door, goal: &Goal, trace: &Trace) -> Result<Plan, Problem> {
    let mut connection = open(door, CHECK_TIMEOUT, trace).await?;
    match read(&mut connection, goal).await {
        Ok(plan) => {
            close(connection).await;
            Ok(plan)
        }
        Err(failed) => Err(explained(connection, goal, &goal.query, failed, CHECK_TIMEOUT).await),
    }
}

async fn read(connection: &mut PgConnection, goal: &Goal) -> Result<Plan, Failed> {
    let bound = bindings(goal, &goal.query, 0, Some(&sample(goal)))?;
    let head = "EXPLAIN ";
    let text = run_time(format!("{head}{}", goal.query.text));
    let lines = sqlx::query_scalar_with(text, arguments(&bound)?).persistent(false);
    let lines: Vec<String> =
        lines.fetch_all(&mut *connection).await.map_err(|error| Failed::Sql(error, Some(head.len())))?;
    let real = tree(connection, goal, &bound).await?;
    let cost = real["Total Cost"].as_f64();
    if !goal.asks_fleet() {
        return Ok(Plan { lines, cost, scans: Vec::new() });
    }
    sqlx::query("/* goal.grown */ SET LOCAL enable_seqscan = off").execute(&mut *connection).await?;
    let grown = tree(connection, goal, &bound).await?;
    let text =
        "/* goal.partial */ SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 WHERE i.indpred IS NOT NULL";
    let partial: Vec<String> = sqlx::query_scalar(text).fetch_all(&mut *connection).await?;
    let mut tables = Vec::new();
    whole(&grown, &partial, &mut tables);
    tables.retain(|table| LARGE.contains(&table.as_str()));
    let text = "/* goal.counters */ SELECT name, value FROM counters";
    let counters: Vec<(String, i64)> = sqlx::query_as(text).fetch_all(&mut *connection).await?;
    let mut now = Vec::new();
    whole(&real, &partial, &mut now);
    let many = |table: &String| counters.iter().any(|(name, rows)| name == table && *rows >= MANY);
    tables.extend(now.into_iter().filter(many));
    Ok(Plan { lines, cost, scans: scans(tables, &counters) })
}

async fn tree(
    connection: &mut PgConnection,
    goal: &Goal,
    bound: &[crate::goal::value::Value],
) -> Result<Json, Failed> {
    let text = run_time(format!("EXPLAIN (FORMAT JSON) {}", goal.query.text));
    let asked = sqlx::query_scalar_with(text, arguments(bound)?).persistent(false);
    let mut answer: Json = asked.fetch_one(connection).await?;
    Ok(answer[0]["Plan"].take())
}

/// Tables that a plan reads whole: one after the other, or along an index that holds all of them.
fn whole(node: &Json, partial: &[String], tables: &mut Vec<String>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let read = match text("Node Type") {
        "Seq Scan" | "Sample Scan" => true,
        "Index Scan" | "Index Only Scan" => {
            node["Index Cond"].is_null() && !partial.iter().any(|index| index == text("Index Name"))
        }
        _ => false,
    };
    if read {
        tables.push(text("Relation Name").to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        whole(child, partial, tables);
    }
}
