//! What is compared and is of two kinds: sizes and durations, moments and truths, numbers and texts; and ids of
//! something else. What a column is, its name says: only the fleet's own tables are judged.

use super::Text;
use crate::goal::Goal;
use crate::goal::text::At;
use crate::goal::token::{Kind, Token};
use crate::goal::value::{Unit, Value, size};
use crate::goal::{header, sql};
use crate::model::published::PUBLISHED;

/// What a column holds.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    Bytes,
    Moment,
}

impl Column {
    fn of(name: &str) -> Option<Self> {
        let is_bytes = matches!(name, "bytes" | "disk_free" | "disk_used" | "capacity");
        let is_moment = name == "since" || name.ends_with("_at") || name.ends_with("_since");
        match (is_bytes, is_moment) {
            (true, _) => Some(Self::Bytes),
            (_, true) => Some(Self::Moment),
            _ => None,
        }
    }
}

/// Columns that hold ids, and the tables whose ids those are.
const IDS: [(&str, &str); 4] = [
    ("repository_id", "repositories"),
    ("fileserver_id", "fileservers"),
    ("source_id", "fileservers"),
    ("destination_id", "fileservers"),
];

/// A column, a comparison, and what it is compared with.
struct Compared {
    column: usize,
    operator: String,
    value: usize,
}

impl Text<'_> {
    /// Every comparison of two kinds, and every id of another table.
    pub(super) fn other_kinds(&self, goal: &Goal) -> Vec<At> {
        if !goal.asks_fleet() {
            return Vec::new();
        }
        let compared = (0..self.all.len()).filter_map(|index| self.compared(index));
        let wrong = compared.filter_map(|one| {
            let column = self.token(one.column)?;
            let said = self.wrong(goal, Column::of(&column.name(self.source))?, &one)?;
            Some(At::new(column.start, said))
        });
        wrong.chain((0..self.all.len()).filter_map(|index| self.foreign_id(index))).collect()
    }

    fn token(&self, index: usize) -> Option<&Token> {
        self.all.get(index).map(|(_, token)| token)
    }

    fn text(&self, index: usize) -> &str {
        self.token(index).map_or("", |token| token.text(self.source))
    }

    fn is_any(&self, index: Option<usize>, symbols: &[&str]) -> bool {
        index.is_some_and(|index| symbols.iter().any(|symbol| self.is_symbol(index, symbol)))
    }

    /// The comparison that a column stands in with one other thing, on either side of it.
    fn compared(&self, column: usize) -> Option<Compared> {
        let token = self.token(column).filter(|token| matches!(token.kind, Kind::Word | Kind::Quoted))?;
        Column::of(&token.name(self.source))?;
        let start = if self.is_any(column.checked_sub(1), &["."]) { column.checked_sub(2)? } else { column };
        let (operators, counting) = (["<", ">", "=", "!"], ["+", "-", "*", "/", "|", "."]);
        let is_operator = |index: Option<usize>| self.is_any(index, &operators);
        let many = (1..=2).take_while(|step| is_operator(Some(column + step))).count();
        let value = column + many + 1;
        let ends = |first: usize, last: usize| {
            !self.is_any(first.checked_sub(1), &counting) && !self.is_any(Some(last + 1), &counting)
        };
        if many > 0 && ends(start, value) {
            let operator = (1..=many).map(|step| self.text(column + step)).collect();
            return Some(Compared { column, operator, value });
        }
        let many = (1..=2).take_while(|step| is_operator(start.checked_sub(*step))).count();
        let value = start.checked_sub(many + 1).filter(|value| many > 0 && ends(*value, column))?;
        let operator = (1..=many).rev().map(|step| self.text(start - step)).collect();
        Some(Compared { column, operator, value })
    }

    fn wrong(&self, goal: &Goal, column: Column, one: &Compared) -> Option<String> {
        let name = self.text(one.column);
        let value = self.token(one.value)?;
        let said = value.text(self.source);
        match (column, value.kind) {
            (_, Kind::Param) => param(goal, column, name, said.trim_start_matches(':')),
            (_, Kind::Text) => text(column, name, said),
            (Column::Moment, Kind::Word | Kind::Number) => {
                let is = match said.to_ascii_lowercase().as_str() {
                    "false" | "0" => false,
                    "true" | "1" => true,
                    _ => return None,
                };
                let equal = match one.operator.as_str() {
                    "=" | "==" => true,
                    "<>" | "!=" => false,
                    _ => return None,
                };
                let meant = if is == equal { "IS NOT NULL" } else { "IS NULL" };
                Some(format!("{name} is a moment, and is compared with {said}: write {name} {meant}"))
            }
            _ => None,
        }
    }

    /// `id AS repository_id` where the id is that of another table.
    fn foreign_id(&self, index: usize) -> Option<At> {
        let (depth, token) = self.all.get(index)?;
        if *depth > 0 || !token.is(self.source, "id") || !self.is(index + 1, "as") {
            return None;
        }
        let (name, own) = IDS.iter().find(|(name, _)| self.is(index + 2, name))?;
        let of = self.is_any(index.checked_sub(1), &["."]).then(|| index.checked_sub(2)).flatten();
        let table = self.table(of.map(|of| self.text(of)))?;
        if table == *own {
            return None;
        }
        let what = own
            .strip_suffix("ies")
            .map_or_else(|| own.trim_end_matches('s').to_owned(), |stem| format!("{stem}y"));
        Some(At::new(token.start, format!("this id is one of {table}, and {name} is the id of a {what}")))
    }

    /// The published table that a query calls so; of no name, its only one.
    fn table(&self, called: Option<&str>) -> Option<&'static str> {
        let reads = |index: usize| {
            index.checked_sub(1).is_some_and(|before| {
                self.is(before, "from") || self.is(before, "join") || self.is_symbol(before, ",")
            })
        };
        let published = |index: usize| PUBLISHED.iter().copied().find(|table| self.is(index, table));
        let mut tables = (0..self.all.len()).filter(|index| reads(*index)).filter_map(|index| {
            let table = published(index)?;
            let alias = if self.is(index + 1, "as") { index + 2 } else { index + 1 };
            Some((table, self.text(alias)))
        });
        let Some(called) = called else {
            let froms =
                (0..self.all.len()).filter(|index| self.is(*index, "from") || self.is(*index, "join"));
            let only = tables.next()?.0;
            return (froms.count() == 1 && tables.next().is_none()).then_some(only);
        };
        let same = |word: &str| word.eq_ignore_ascii_case(called);
        let named: Vec<_> = tables.filter(|(table, alias)| same(alias) || same(table)).collect();
        let (first, _) = named.first()?;
        named.iter().all(|(table, _)| table == first).then_some(*first)
    }
}

/// A parameter of another kind than the column that it is compared with.
fn param(goal: &Goal, column: Column, name: &str, param: &str) -> Option<String> {
    let written = header::param(&goal.text, param)?;
    let kind = match (goal.params.get(param)?, Unit::of(written)) {
        (Value::Fraction(_), _) => "a percentage",
        (Value::Integer(_), Some(unit)) => unit.words(),
        _ => return None,
    };
    match (column, kind) {
        (Column::Bytes, "a size") => None,
        (Column::Bytes, _) => Some(format!(
            "{name} is a number of bytes, and :{param} is {kind} ({written}): write a size, such as \
             `-- param: {param} = 1GiB`"
        )),
        (Column::Moment, "a duration") => {
            Some(format!("{name} is a moment, and :{param} is a duration ({written}): write :now - :{param}"))
        }
        (Column::Moment, _) => Some(format!(
            "{name} is a moment, and :{param} is {kind} ({written}): a moment is written :now - :age, with \
             `-- param: age = 7d`"
        )),
    }
}

/// A text that is compared with a number; digits alone are taken for one.
fn text(column: Column, name: &str, written: &str) -> Option<String> {
    let inner = sql::unquoted(written);
    if inner.trim().parse::<i64>().is_ok() {
        return None;
    }
    Some(match column {
        Column::Bytes => {
            let (bytes, example) = size(inner)
                .map_or(("a number of bytes".to_owned(), "1GiB"), |bytes| (bytes.to_string(), inner));
            format!(
                "{name} is a number, and is compared with the text {written}: write {bytes}, or :most with \
                 `-- param: most = {example}`"
            )
        }
        Column::Moment => format!(
            "{name} is a number of milliseconds since 1970, and is compared with the text {written}: write :now - \
             :age, with `-- param: age = 7d`"
        ),
    })
}
