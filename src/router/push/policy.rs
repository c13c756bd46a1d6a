//! What the operator forbids, judged once for all copies: one copy's own refusal would make it stale.
//!
//! Names alone are judged here. Sizes and numbers are bounded where they are read.

pub mod judge;

use crate::model::wire::push::{Command, RefName};
use std::collections::BTreeMap;

/// Which commands are forbidden, and why.
pub(super) fn forbidden(commands: &[Command], protected: &[String]) -> BTreeMap<RefName, String> {
    let names = commands.iter().map(|command| &command.name);
    let names = names.filter(|name| protected.iter().any(|pattern| covers(pattern.as_bytes(), &name.0)));
    names.map(|name| (name.clone(), "protected: no push may change it".to_owned())).collect()
}

fn covers(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings_of_names_are_protected() {
        let named = |text: &str| Command { name: RefName(text.as_bytes().to_vec()), old: None, new: None };
        let commands = ["refs/heads/main", "refs/heads/mainly", "refs/tags/v1", "refs/heads/x"].map(named);
        let protected = ["refs/heads/main".to_owned(), "refs/tags/*".to_owned()];
        let found = forbidden(&commands, &protected);
        let found: Vec<_> = found.keys().map(ToString::to_string).collect();
        assert_eq!(found, ["refs/heads/main", "refs/tags/v1"]);
        assert!(forbidden(&commands, &[]).is_empty());
    }
}
