//! Just enough Rust to tell code from comments, literals and tests.

/// What a stretch of text is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Splits a text into stretches of one kind, in order.
fn stretches(text: &str) -> Vec<(Kind, &str)> {
    let (mut parts, mut at, mut begin) = (Vec::new(), 0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let found = comment(rest).map(|length| (Kind::Comment, length));
        let after_word = text[..at].ends_with(|one: char| one.is_alphanumeric() || one == '_');
        let found =
            found.or_else(|| if after_word { None } else { literal(rest).map(|n| (Kind::Literal, n)) });
        if let Some((kind, length)) = found {
            parts.push((Kind::Code, &text[begin..at]));
            parts.push((kind, &rest[..length]));
            at += length;
            begin = at;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    parts.push((Kind::Code, &text[begin..]));
    parts
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.starts_with("/*").then(|| rest.find("*/").map_or(rest.len(), |end| end + 2))
}

/// The length of a string or character that begins here.
fn literal(rest: &str) -> Option<usize> {
    let prefix = ["br", "b", "r", "c", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix);
        after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
    });
    if let Some(prefix) = prefix {
        let after = &rest[prefix.len()..];
        let hashes = after.len() - after.trim_start_matches('#').len();
        if hashes > 0 || prefix.ends_with('r') {
            if !prefix.ends_with('r') {
                return None;
            }
            let close = format!("\"{}", "#".repeat(hashes));
            let begin = prefix.len() + hashes + 1;
            return Some(rest[begin..].find(&close).map_or(rest.len(), |end| begin + end + close.len()));
        }
        let begin = prefix.len() + 1;
        return Some(begin + quoted(&rest[begin..], '"'));
    }
    let begins = usize::from(rest.starts_with("b'"));
    let after = rest[begins..].strip_prefix('\'')?;
    let mut ahead = after.chars();
    match (ahead.next()?, ahead.next()) {
        ('\\', _) => Some(begins + 1 + quoted(after, '\'')),
        (one, Some('\'')) => Some(begins + 2 + one.len_utf8()),
        _ => None, // a lifetime
    }
}

/// The length up to and with the closing quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, one) in text.char_indices() {
        if !escaped && one == quote {
            return at + 1;
        }
        escaped = !escaped && one == '\\';
    }
    text.len()
}

/// The text with comments and literals blanked, line for line.
fn code(text: &str) -> String {
    let blank = |part: &str| part.chars().map(|one| if one == '\n' { '\n' } else { ' ' }).collect::<String>();
    let keep = |(kind, part): (Kind, &str)| if kind == Kind::Code { part.to_owned() } else { blank(part) };
    stretches(text).into_iter().map(keep).collect()
}

/// The text without comments, literals and what is compiled for tests only, line for line.
pub fn running_code(text: &str) -> String {
    let mut left = code(text);
    while let Some(begin) = left.find("#[cfg(test)]") {
        let length = item(&left[begin..]);
        let blank: String =
            left[begin..begin + length].chars().map(|one| if one == '\n' { '\n' } else { ' ' }).collect();
        left.replace_range(begin..begin + length, &blank);
    }
    left
}

/// The length of an item with its attributes: to its semicolon, or to the brace that closes it.
fn item(text: &str) -> usize {
    let mut depth = 0_i32;
    for (at, one) in text.char_indices() {
        match one {
            '{' | '[' | '(' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' | ']' | ')' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// What follows `crate::`, with its line; in running code and in tests alike.
pub fn imports(text: &str) -> Vec<(usize, String)> {
    let code = code(text);
    let mut found = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let line = 1 + code[..at].matches('\n').count();
        let rest = &code[at + path.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            found.extend(names_of_group(group).into_iter().map(|name| (line, name)));
        } else {
            found.push((line, first_word(rest)));
        }
    }
    found
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|one| one.is_alphanumeric() || *one == '_').collect()
}

fn names_of_group(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut begins) = (Vec::new(), 0_i32, true);
    for (at, one) in group.char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            _ if begins && !one.is_whitespace() => {
                names.push(first_word(&group[at..]));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

/// String literals outside of tests and comments, without quotes, with their lines.
pub fn literals(text: &str) -> Vec<(usize, String)> {
    let running: Vec<_> = running_code(text).lines().map(str::to_owned).collect();
    let (mut line, mut found, mut at) = (1, Vec::new(), 0);
    // A test's lines are blank in the running code, whatever they hold in the file.
    let blank = |line: usize, part: &str| {
        let whole = text.lines().nth(line - 1).unwrap_or_default();
        let code = code(whole);
        running.get(line - 1).is_some_and(|kept| kept.trim().is_empty() && !code.trim().is_empty())
            && !part.is_empty()
    };
    for (kind, part) in stretches(text) {
        if kind == Kind::Literal && part.contains('"') && !blank(line, part) && !in_tests(text, at) {
            let inner = part.trim_start_matches(['b', 'r', 'c', '#']).trim_end_matches('#').trim_matches('"');
            found.push((line, inner.replace("\\n", "\n")));
        }
        line += part.matches('\n').count();
        at += part.len();
    }
    found
}

/// Whether a place is after the test module's head: by habit it is a file's last item.
fn in_tests(text: &str, at: usize) -> bool {
    text.find("#[cfg(test)]\nmod tests {").is_some_and(|begin| at > begin)
}

/// Identifiers with their lines.
pub fn identifiers(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        let words = line.split(|one: char| !one.is_alphanumeric() && one != '_');
        found.extend(words.filter(|word| is_identifier(word)).map(|word| (number, word.to_owned())));
    }
    found
}

/// Whether a text could name something.
pub fn is_identifier(text: &str) -> bool {
    let begins = text.starts_with(|one: char| one.is_ascii_alphabetic() || one == '_');
    begins && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
}

/// The words of a name, in lower case: `RepairAtLimit`, `repair_at_limit`.
pub fn words_of(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for one in identifier.chars() {
        if one == '_' || one.is_ascii_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| one != '_') {
            word.push(one.to_ascii_lowercase());
        }
    }
    words
}

/// First texts that a function is called with, with their lines: names of metrics, paths of routes.
pub fn calls_with_text(text: &str, call: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(call) {
        let line = 1 + text[..at].matches('\n').count();
        found.extend(text[at + call.len()..].split('"').nth(1).map(|first| (line, first.to_owned())));
    }
    found
}

#[test]
fn code_is_told_from_what_is_not() {
    let text = "a // .unwrap()\n'x: \"\\\".unwrap()\" r#\"\"todo!\"# '\"' b'\"' b; /* dbg! */ c";
    assert_eq!(code(text).split_whitespace().collect::<Vec<_>>(), ["a", "'x:", "b;", "c"]);
}

#[test]
fn tests_do_not_run() {
    let text = "fn a() { b.c() }\n#[cfg(test)]\nmod tests {\n fn d() { e.unwrap() }\n}\n#[cfg(test)]\npub mod f;\nfn g() {}";
    let running = running_code(text);
    assert!(!running.contains("unwrap") && !running.contains("mod f") && running.contains("fn g"));
    assert_eq!(running.lines().count(), text.lines().count());
}

#[test]
fn imports_are_seen_in_lists_and_in_paths() {
    let text = "use crate::{goal::{file, x}, repair};\nfn a() { crate::fleet::b() } // crate::agent";
    let names: Vec<_> = imports(text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["goal", "repair", "fleet"]);
}

#[test]
fn literals_of_tests_are_left_out() {
    let text = "const A: &str = \"SELECT 1\";\n#[cfg(test)]\nmod tests {\n const B: &str = \"DELETE\";\n}\n";
    assert_eq!(literals(text), [(1, "SELECT 1".to_owned())]);
}
