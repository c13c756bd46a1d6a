//! Git's grammar of reference names, so that no name from elsewhere becomes a path outside of `refs/`.

/// Whether a reference may have this name: git's own rules, and below `refs/`.
#[must_use]
pub fn is_reference(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && name.len() <= 4096 && is_well_formed(name)
}

/// Whether a symbolic reference may point at this: a reference, or a name like `HEAD` beside `refs/`.
#[must_use]
pub fn is_target(name: &[u8]) -> bool {
    let beside = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    beside || is_reference(name)
}

fn is_well_formed(name: &[u8]) -> bool {
    let forbidden = |byte: &u8| *byte <= b' ' || *byte == 0x7f || b"~^:?*[\\".contains(byte);
    !name.iter().any(forbidden)
        && !name.ends_with(b".")
        && !name.windows(2).any(|pair| pair == b".." || pair == b"@{")
        && name.split(|byte| *byte == b'/').all(is_component)
}

fn is_component(part: &[u8]) -> bool {
    !part.is_empty() && !part.starts_with(b".") && !part.ends_with(b".lock")
}

/// Names that lie above a name: `refs/heads/a/b` has `refs/heads/a`, `refs/heads` and `refs`.
pub fn above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_allows_are_allowed() {
        for good in [
            &b"refs/heads/main"[..],
            b"refs/x",
            b"refs/heads/\xff\xfe",
            b"refs/heads/@",
            b"refs/heads/a.b",
            b"refs/heads/-x",
        ] {
            assert!(is_reference(good), "{}", good.escape_ascii());
        }
        assert!(is_target(b"HEAD") && is_target(b"refs/heads/none"));
    }

    #[test]
    fn names_that_could_leave_refs_or_confuse_git_are_not() {
        let bad: [&[u8]; 14] = [
            b"",
            b"HEAD",
            b"refs",
            b"refs/",
            b"refs//x",
            b"refs/../config",
            b"refs/heads/..",
            b"refs/heads/.x",
            b"refs/heads/x.lock",
            b"refs/heads/a b",
            b"refs/heads/a\n",
            b"refs/heads/x.",
            b"refs/heads/@{1}",
            b"/refs/heads/x",
        ];
        for bad in bad {
            assert!(!is_reference(bad), "{}", bad.escape_ascii());
        }
        assert!(!is_target(b"config") && !is_target(b"../HEAD") && !is_target(b""));
    }
}
