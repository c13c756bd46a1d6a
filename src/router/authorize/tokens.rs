//! The file of tokens: a line each, `NAME sha256:DIGEST read|write PATTERN…`.
//!
//! The file holds digests, so reading it gives nobody a token: tokens are to be long and random, which is what makes a
//! plain digest do. In a pattern `*` stands for anything within a part of a name, `**` for anything. The file is read
//! again when it changes; while it cannot be read, or a line of it is wrong, what was read last holds.

use super::Access;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

/// The largest file that is read: a hundred thousand tokens.
const LARGEST: u64 = 16 << 20;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// What may be done with it; writing includes reading.
    pub access: Access,
    patterns: Vec<String>,
}

impl Token {
    /// Whether it is for a repository of this name.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
    }
}

/// What is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the tokens in {path}: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// The system's words.
        why: String,
    },
    /// A line is not one of a token.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
}

type Tokens = HashMap<String, Arc<Token>>;

/// The file as it was last read.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: RwLock<Tokens>,
    /// What the file looked like then: when it was written, how long it was.
    looks: Mutex<Option<(SystemTime, u64)>>,
}

impl TokenFile {
    /// Reads it.
    ///
    /// # Errors
    /// When it cannot be read, or a line is wrong.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        let tokens = read(path)?;
        let looks = Mutex::new(look_of(path));
        Ok(Self { path: path.to_owned(), tokens: RwLock::new(tokens), looks })
    }

    /// The token with this secret.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<Arc<Token>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(&digest(secret)).cloned()
    }

    /// Reads it again if it changed.
    pub fn look(&self) {
        let look = look_of(&self.path);
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if look == *looks {
            return;
        }
        *looks = look;
        match read(&self.path) {
            Ok(tokens) => {
                tracing::info!(tokens = tokens.len(), "the file of tokens was read again");
                *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
            }
            Err(error) => tracing::error!(%error, "the tokens that were read before still hold"),
        }
    }
}

fn look_of(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// What stands in the file for a secret: its SHA-256 in hexadecimal digits.
#[must_use]
pub fn digest(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read(path: &Path) -> Result<Tokens, TokenError> {
    let shown = path.display().to_string();
    let unreadable = |why: String| TokenError::Unreadable { path: shown.clone(), why };
    let size = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
    if size > LARGEST {
        return Err(unreadable(format!("it is larger than {LARGEST} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let mut tokens = Tokens::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (digest, token) =
            token(line).map_err(|why| TokenError::Line { path: shown.clone(), line: number, why })?;
        tokens.insert(digest, Arc::new(token));
    }
    Ok(tokens)
}

fn token(line: &str) -> Result<(String, Token), &'static str> {
    let mut words = line.split_whitespace();
    let name = words.next().ok_or("a name is missing")?;
    let digest = words.next().and_then(|word| word.strip_prefix("sha256:"));
    let digest = digest.filter(|digest| digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
    let digest = digest.ok_or("after the name stands sha256: and the 64 digits of the token's SHA-256")?;
    let access = match words.next() {
        Some("read") => Access::Read,
        Some("write") => Access::Write,
        _ => return Err("after the digest stands read or write"),
    };
    let patterns: Vec<_> = words.map(ToOwned::to_owned).collect();
    if patterns.is_empty() {
        return Err("patterns of repositories are missing; ** is all of them");
    }
    Ok((digest.to_ascii_lowercase(), Token { name: name.to_owned(), access, patterns }))
}

/// `*`: anything but a slash; `**`: anything. Linear in the name for each star, so no pattern is a trap.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    let mut rest = pattern;
    while let Some((&one, after)) = rest.split_first() {
        let deep = one == b'*' && after.first() == Some(&b'*');
        rest = if deep { after.get(1..).unwrap_or_default() } else { after };
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            let passed = at > 0 && {
                let byte = name[at - 1];
                if one == b'*' {
                    next[at - 1] && (deep || byte != b'/')
                } else {
                    reached[at - 1] && byte == one
                }
            };
            next[at] = passed || (one == b'*' && reached[at]);
        }
        reached = next;
    }
    reached.last().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(pattern: &str, name: &str) -> bool {
        matches(pattern.as_bytes(), name.as_bytes())
    }

    #[test]
    fn patterns_stay_within_a_part_unless_they_are_two_stars() {
        for (pattern, name) in [
            ("**", "a/b/c"),
            ("*", "a"),
            ("team/*", "team/x"),
            ("team/**", "team/x/y"),
            ("a*c", "abc"),
            ("a", "a"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("*", "a/b"),
            ("team/*", "team/x/y"),
            ("team/*", "teams/x"),
            ("a", "ab"),
            ("", "a"),
            ("a*", "ba"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_and_what_was_read_before_holds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |secret: &str| format!("ci sha256:{} read **\n", digest(secret));
        std::fs::write(file.path(), line("one")).unwrap();
        let tokens = TokenFile::open(file.path()).unwrap();
        std::fs::write(file.path(), format!("{}\nci nonsense\n", line("two"))).unwrap();
        tokens.look();
        assert!(tokens.find("one").is_some() && tokens.find("two").is_none());
        let error = TokenFile::open(file.path()).unwrap_err().to_string();
        assert!(error.contains(":3: after the name stands sha256:"), "{error}");
        std::fs::write(file.path(), format!("# nobody else\n{}", line("two"))).unwrap();
        tokens.look();
        assert!(tokens.find("one").is_none() && tokens.find("two").is_some());
    }

    #[test]
    fn digests_are_those_of_sha256sum() {
        assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    proptest! {
        #[test]
        fn a_name_fits_itself_and_two_stars_fit_everything(name in "[a-c/]{0,12}", extra in "[a-c/]{0,4}") {
            prop_assert!(fits(&name, &name) && fits("**", &name));
            let suffixed = format!("{name}{extra}");
            prop_assert_eq!(fits(&format!("{name}*"), &suffixed), !extra.contains('/'));
        }
    }
}
