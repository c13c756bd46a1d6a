//! What each rule looks for, in the tokens of a goal's query and in the engine's plan.

use crate::goal::file::Population;
use crate::goal::session::plan::Plan;
use crate::goal::text::At;
use crate::goal::token::{Token, tokens};
use crate::goal::value::Value;
use crate::goal::{Engine, Goal, header};

mod kinds;

/// The tokens of a query with the depth of parentheses that each stands in.
struct Text<'a> {
    source: &'a str,
    all: Vec<(usize, Token)>,
}

/// Every rule that a goal breaks, and where.
pub(super) fn look(goal: &Goal, engine: Engine, end: usize, plan: Option<&Plan>) -> Vec<(&'static str, At)> {
    let text = Text::new(&goal.text, end, engine);
    let repairs = goal.repair.is_some();
    let start = text.all.first().map_or(end, |(_, token)| token.start);
    let line = |key: &str| goal.text.find(key).unwrap_or(0);
    let mut found = Vec::new();
    let mut add = |id, at: Option<At>| found.extend(at.map(|at| (id, at)));
    if repairs {
        add("no-condition", text.without_condition(start));
        add("limit-recheck", text.limit().filter(|_| goal.recheck.is_none()));
        let at = At::new(line("repair:"), "a goal with a repair says no population");
        add("no-population", Some(at).filter(|_| goal.population.is_none()));
        let at = At::new(start, "the query returns no reason");
        add("no-reason", Some(at).filter(|_| !goal.query.words.iter().any(|word| word == "reason")));
    }
    add("limit-order", text.limit().filter(|_| text.top("order").is_none()));
    add("select-star", text.star());
    for name in goal.params.keys().filter(|name| !is_used(goal, name)) {
        let at = line(&format!("{name} ="));
        add("unused-param", Some(At::new(at, format!("the parameter {name} is not used"))));
    }
    for name in goal.params.keys() {
        add("other-kind", text.text_param(goal, name));
    }
    for at in text.other_kinds(goal) {
        add("other-kind", Some(at));
    }
    add("not-in-null", text.not_in());
    add("not-in-null", text.compared_with_null());
    add("union-distinct", text.union());
    add("summary-sentence", summary(goal, line("summary:")));
    // From which side a join with the suspects is read depends on how many there are, and here there may be none.
    let by_suspects = goal.query.words.iter().any(|word| word == "suspect");
    for scan in plan.filter(|_| !by_suspects).map_or(&[][..], |plan| &plan.scans) {
        let rows = scan
            .rows
            .map_or_else(String::new, |rows| format!(", {rows} row{} now", if rows == 1 { "" } else { "s" }));
        let at = goal.query.words.binary_search(&scan.table).ok().and_then(|_| text.word(&scan.table));
        let message = format!("it would read all of {}{rows}", scan.table);
        add("large-scan", Some(At::new(at.unwrap_or(start), message)));
    }
    found
}

fn is_used(goal: &Goal, name: &str) -> bool {
    let population = match &goal.population {
        Some(Population::Query(query)) => Some(query),
        _ => None,
    };
    let queries = std::iter::once(&goal.query).chain(&goal.recheck).chain(population);
    queries.into_iter().any(|query| query.names.iter().any(|one| one == name))
}

fn summary(goal: &Goal, at: usize) -> Option<At> {
    let sentence = goal.summary.starts_with(|c: char| !c.is_lowercase()) && goal.summary.ends_with('.');
    (!sentence).then(|| At::new(at, "the summary is no sentence"))
}

impl<'a> Text<'a> {
    fn new(source: &'a str, from: usize, engine: Engine) -> Self {
        let mut depth = 0_usize;
        let read = tokens(source, from, engine).unwrap_or_default();
        let all = read.into_iter().map(|token| {
            if token.is_symbol(source, ")") {
                depth = depth.saturating_sub(1);
            }
            let at = depth;
            if token.is_symbol(source, "(") {
                depth += 1;
            }
            (at, token)
        });
        Self { source, all: all.collect() }
    }

    fn is(&self, index: usize, word: &str) -> bool {
        self.all.get(index).is_some_and(|(_, token)| token.is(self.source, word))
    }

    fn is_symbol(&self, index: usize, symbol: &str) -> bool {
        self.all.get(index).is_some_and(|(_, token)| token.is_symbol(self.source, symbol))
    }

    /// Where tokens from an index on fulfil something.
    fn first(&self, is: impl Fn(usize) -> bool) -> Option<&Token> {
        (0..self.all.len())
            .find(|index| is(*index))
            .and_then(|index| self.all.get(index))
            .map(|(_, token)| token)
    }

    fn word(&self, word: &str) -> Option<usize> {
        self.first(|index| self.is(index, word)).map(|token| token.start)
    }

    /// A word outside of all parentheses.
    fn top(&self, word: &str) -> Option<usize> {
        let top = |index: usize| self.all.get(index).is_some_and(|(depth, _)| *depth == 0);
        self.first(|index| top(index) && self.is(index, word)).map(|token| token.start)
    }

    fn limit(&self) -> Option<At> {
        let at = self.top("limit").or_else(|| self.top("fetch"))?;
        Some(At::new(at, "the goal ends in a LIMIT"))
    }

    /// No condition anywhere, or one that is always true.
    fn without_condition(&self, start: usize) -> Option<At> {
        let words = ["where", "having", "on", "using", "natural", "except", "intersect", "filter"];
        if !words.iter().any(|word| self.word(word).is_some()) {
            return Some(At::new(start, "the query has no condition"));
        }
        let ends = |index: usize| {
            index >= self.all.len()
                || self.is_symbol(index, ";")
                || ["order", "group", "limit", "union"].iter().any(|word| self.is(index, word))
        };
        let same = |index: usize| {
            let text = |index: usize| self.all.get(index).map(|(_, token)| token.text(self.source));
            self.is_symbol(index + 1, "=") && text(index) == text(index + 2) && ends(index + 3)
        };
        let always = |index: usize| (self.is(index, "true") && ends(index + 1)) || same(index);
        let top = |index: usize| self.all.get(index).is_some_and(|(depth, _)| *depth == 0);
        let found = self.first(|index| top(index) && self.is(index, "where") && always(index + 1))?;
        Some(At::new(found.start, "the condition is always true"))
    }

    fn star(&self) -> Option<At> {
        let top = |index: usize| self.all.get(index).is_some_and(|(depth, _)| *depth == 0);
        let star = |index: usize| {
            self.is_symbol(index + 1, "*")
                && (self.is(index, "select") || self.is(index, "distinct") || self.is_symbol(index, "."))
        };
        let found = self.first(|index| top(index) && star(index))?;
        Some(At::new(found.start, "the columns are not named"))
    }

    /// A subquery of an `id` alone is left out: it is a key, and never NULL.
    fn not_in(&self) -> Option<At> {
        let key = |mut index: usize| {
            if self.is_symbol(index + 1, ".") {
                index += 2;
            }
            self.is(index, "id") && self.is(index + 1, "from")
        };
        let found = self.first(|index| {
            self.is(index, "not")
                && self.is(index + 1, "in")
                && self.is_symbol(index + 2, "(")
                && self.is(index + 3, "select")
                && !key(index + 4)
        })?;
        Some(At::new(found.start, "NOT IN with a subquery that may return NULL"))
    }

    /// `= NULL`, `<> NULL` and `!= NULL`, which are never true.
    fn compared_with_null(&self) -> Option<At> {
        let pair = |index: usize, first: &str, second: &str| {
            self.is_symbol(index, first) && self.is_symbol(index + 1, second) && self.is(index + 2, "null")
        };
        let differs = |index: usize| pair(index, "<", ">") || pair(index, "!", "=");
        let equals = |index: usize| self.is_symbol(index, "=") && self.is(index + 1, "null");
        let found = self.first(|index| differs(index) || equals(index))?;
        let (operator, meant) =
            if found.is_symbol(self.source, "=") { ("=", "IS NULL") } else { ("<>", "IS NOT NULL") };
        Some(At::new(found.start, format!("{operator} NULL is never true: write {meant}")))
    }

    /// A parameter that is a text without quotes, and is compared by size or counted with.
    fn text_param(&self, goal: &Goal, name: &str) -> Option<At> {
        let Some(Value::Text(text)) = goal.params.get(name) else { return None };
        // In quotes it is meant to be one, but for what would be a number without them.
        let is_quoted = header::param(&goal.text, name).is_some_and(|value| value.starts_with(['"', '\'']));
        if is_quoted && matches!(Value::parse(text), Ok(Value::Text(_)) | Err(_)) {
            return None;
        }
        let is_any =
            |index: usize, symbols: &[&str]| symbols.iter().any(|symbol| self.is_symbol(index, symbol));
        let by_size = |index: usize| {
            let after = is_any(index + 1, &["<", ">", "+", "-", "*", "/"]);
            let before = |back: usize, symbols: &[&str]| index >= back && is_any(index - back, symbols);
            after
                || before(1, &["<", ">", "+", "-", "*", "/"])
                || (before(1, &["="]) && before(2, &["<", ">"]))
        };
        let written = format!(":{name}");
        let is_it = |index: usize| {
            self.all
                .get(index)
                .is_some_and(|(_, token)| token.text(self.source).eq_ignore_ascii_case(&written))
        };
        let found = self.first(|index| is_it(index) && by_size(index))?;
        let quotes = if is_quoted { " (without the quotes it would be a number)" } else { "" };
        let message =
            format!("{written} is the text \"{text}\"{quotes}, and is compared by size or counted with");
        Some(At::new(found.start, message))
    }

    fn union(&self) -> Option<At> {
        let found = self.first(|index| self.is(index, "union") && !self.is(index + 1, "all"))?;
        Some(At::new(found.start, "UNION without ALL"))
    }
}
