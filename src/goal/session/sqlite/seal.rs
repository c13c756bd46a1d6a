//! What SQLite would do for a text: the program that it makes of it, read before it runs.
//!
//! A file knows no roles, so this stands where the privileges of PostgreSQL's role stand:
//! nothing is written, and on the fleet's database nothing is opened but published tables.
//! The program names tables by their pages; which page is whose is asked in the same
//! transaction, so that the two are of one moment.

use super::run_time;
use sqlx::{Row as _, SqliteConnection};
use std::collections::BTreeMap;

/// Instructions that write, or act on the file.
const WRITING: [&str; 14] = [
    "OpenWrite",
    "CreateBtree",
    "Clear",
    "Destroy",
    "SetCookie",
    "ParseSchema",
    "SqlExec",
    "Vacuum",
    "IncrVacuum",
    "JournalMode",
    "Checkpoint",
    "VCreate",
    "VDestroy",
    "VUpdate",
];

/// Functions that reach out of the database.
const REACHING: [&str; 5] = ["sqlite_attach", "sqlite_detach", "load_extension", "readfile", "writefile"];

/// Why a text is not run.
pub struct Refused {
    pub why: String,
    /// The table that it is about.
    pub table: Option<String>,
}

/// Why a text is not run, if it is not. `published`: the tables it may read; none: all.
pub async fn refusal(
    connection: &mut SqliteConnection,
    text: &str,
    published: Option<&[&str]>,
) -> Result<Option<Refused>, sqlx::Error> {
    let program = sqlx::query(run_time(format!("EXPLAIN {text}")))
        .persistent(false)
        .fetch_all(&mut *connection)
        .await?;
    let pages: Vec<(i64, String)> = sqlx::query_as(
        "/* goal.pages */ SELECT rootpage, lower(tbl_name) FROM sqlite_schema WHERE rootpage > 0",
    )
    .persistent(false)
    .fetch_all(connection)
    .await?;
    let pages: BTreeMap<i64, String> = pages.into_iter().collect();
    for step in &program {
        let (name, first): (String, i64) = (step.try_get("opcode")?, step.try_get("p1")?);
        let (second, third): (i64, i64) = (step.try_get("p2")?, step.try_get("p3")?);
        let more: Option<String> = step.try_get("p4")?;
        let step = Step { name: &name, first, second, third, more: more.as_deref().unwrap_or_default() };
        if let Some(refused) = step.refusal(&pages, published) {
            return Ok(Some(refused));
        }
    }
    Ok(None)
}

/// One instruction.
struct Step<'a> {
    name: &'a str,
    first: i64,
    second: i64,
    third: i64,
    more: &'a str,
}

impl Step<'_> {
    fn refusal(&self, pages: &BTreeMap<i64, String>, published: Option<&[&str]>) -> Option<Refused> {
        let writes = WRITING.contains(&self.name) || (self.name == "Transaction" && self.second != 0);
        if writes {
            return Some(Refused { why: "it would write, and a goal only reads".to_owned(), table: None });
        }
        if self.calls() && REACHING.iter().any(|name| self.more.starts_with(name)) {
            let why = format!("{} is refused: a goal reads tables only", self.more);
            return Some(Refused { why, table: None });
        }
        let published = published?;
        let opens = matches!(self.name, "OpenRead" | "ReopenIdx");
        let elsewhere = self.name == "Transaction" && self.first != 0;
        if !opens && !elsewhere {
            return None;
        }
        let table = (self.third == 0).then(|| pages.get(&self.second)).flatten();
        match table {
            _ if elsewhere => Some(Refused { why: "it would use another database".to_owned(), table: None }),
            Some(table) if published.contains(&table.as_str()) => None,
            table => {
                let name = table.map_or("of the engine's own", String::as_str);
                let why = format!(
                    "table {name} is not published; tables and views: {}; docs/reference/tables.md says what each \
                     holds",
                    published.join(", ")
                );
                Some(Refused { why, table: table.cloned() })
            }
        }
    }

    fn calls(&self) -> bool {
        matches!(self.name, "Function" | "PureFunc")
    }
}
