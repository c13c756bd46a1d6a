//! Who may read and write what: a file of tokens, a forge that is asked, or everybody.
//!
//! Whoever may not read a repository is told what he is told of one that is not there. Whoever shows no credentials,
//! or ones that nobody knows, is asked for some, in the same words for every name.

pub mod forge;
pub mod tokens;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forge::Forge;
use std::sync::Arc;
use std::time::Duration;
use tokens::{Token, TokenFile};
use tokio_util::sync::CancellationToken;

/// Time between two looks at the file of tokens.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Clone and fetch.
    Read,
    /// Push.
    Write,
}

impl Access {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What a client shows: the header as it came, and the secret in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The whole header, for a forge.
    pub header: String,
    /// The password of Basic, or the token of Bearer.
    pub secret: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials { … }")
    }
}

impl Credentials {
    /// Reads an `Authorization` header; none: it is of no kind that git sends.
    #[must_use]
    pub fn read(header: &str) -> Option<Self> {
        let (kind, rest) = header.split_once(' ')?;
        let rest = rest.trim();
        let secret = if kind.eq_ignore_ascii_case("basic") {
            let decoded = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
            decoded.split_once(':')?.1.to_owned()
        } else if kind.eq_ignore_ascii_case("bearer") {
            rest.to_owned()
        } else {
            return None;
        };
        Some(Self { header: header.to_owned(), secret })
    }
}

/// What a repository is known by here.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its name; where there is none of that name, the one that was asked for.
    pub name: &'a str,
    /// Its number; none: there is no such repository.
    pub id: Option<i64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes, to somebody of this name.
    Allowed(String),
    /// No: as if it were not there.
    Hidden,
    /// He may read it and not write it.
    ReadOnly,
    /// Nobody knows who this is.
    Unknown,
    /// The forge does not answer.
    Away,
}

/// The name of somebody who shows nothing.
const ANYBODY: &str = "anybody";

/// Decides.
#[derive(Debug)]
pub struct Authorizer {
    anonymous: Option<Access>,
    tokens: Option<TokenFile>,
    forge: Option<Forge>,
}

impl Authorizer {
    /// Tokens, a forge, everybody: any of them, or none, and then nobody may anything.
    #[must_use]
    pub const fn new(anonymous: Option<Access>, tokens: Option<TokenFile>, forge: Option<Forge>) -> Self {
        Self { anonymous, tokens, forge }
    }

    /// Whether nobody will ever be let in.
    #[must_use]
    pub const fn lets_nobody_in(&self) -> bool {
        self.anonymous.is_none() && self.tokens.is_none() && self.forge.is_none()
    }

    /// Whether this may be done.
    pub async fn may(&self, access: Access, subject: Subject<'_>, shown: Option<&Credentials>) -> Verdict {
        let open = self.is_open(access);
        if let Some(shown) = shown
            && let Some(token) = self.tokens.as_ref().and_then(|tokens| tokens.find(&shown.secret))
        {
            return self.by_token(access, subject.name, &token);
        }
        // Everybody may: what is shown beside does not matter.
        if open {
            return Verdict::Allowed(ANYBODY.to_owned());
        }
        match &self.forge {
            // There are no credentials that would do: asking for some leads nowhere.
            None if self.tokens.is_none() && self.anonymous.is_some() => Verdict::ReadOnly,
            None => Verdict::Unknown,
            Some(forge) => self.by_forge(forge, access, subject, shown).await,
        }
    }

    /// Whether everybody may.
    fn is_open(&self, access: Access) -> bool {
        self.anonymous.is_some_and(|may| may >= access)
    }

    fn by_token(&self, access: Access, name: &str, token: &Token) -> Verdict {
        let covers = token.covers(name);
        if covers && token.access >= access {
            return Verdict::Allowed(token.name.clone());
        }
        let reads = covers || self.is_open(Access::Read);
        match access {
            _ if self.is_open(access) => Verdict::Allowed(token.name.clone()),
            Access::Read if reads => Verdict::Allowed(token.name.clone()),
            Access::Write if reads => Verdict::ReadOnly,
            _ => Verdict::Hidden,
        }
    }

    async fn by_forge(
        &self,
        forge: &Forge,
        access: Access,
        subject: Subject<'_>,
        shown: Option<&Credentials>,
    ) -> Verdict {
        let verdict = forge.ask(access, subject, shown).await;
        if verdict != Verdict::Hidden || access == Access::Read {
            return verdict;
        }
        // It may not be written: whether that may be said depends on whether it may be read.
        let reads = self.is_open(Access::Read)
            || matches!(forge.ask(Access::Read, subject, shown).await, Verdict::Allowed(_));
        if reads { Verdict::ReadOnly } else { Verdict::Hidden }
    }
}

/// Reads the file of tokens again when it changes, until stopped.
pub async fn watch(authorizer: Arc<Authorizer>, stop: CancellationToken) {
    let Some(tokens) = &authorizer.tokens else { return };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_AGAIN) => tokens.look(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-long-secret";

    fn authorizer(anonymous: Option<Access>, rights: &str) -> (tempfile::NamedTempFile, Authorizer) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("# of tests\nci sha256:{} {rights}\n", tokens::digest(SECRET));
        std::fs::write(file.path(), text).unwrap();
        let tokens = TokenFile::open(file.path()).unwrap();
        (file, Authorizer::new(anonymous, Some(tokens), None))
    }

    fn basic(secret: &str) -> Credentials {
        Credentials::read(&format!("Basic {}", STANDARD.encode(format!("whoever:{secret}")))).unwrap()
    }

    async fn ask(authorizer: &Authorizer, access: Access, name: &str, secret: Option<&str>) -> Verdict {
        let shown = secret.map(basic);
        authorizer.may(access, Subject { name, id: None }, shown.as_ref()).await
    }

    #[tokio::test]
    async fn a_token_reads_and_writes_what_its_line_says_and_hides_the_rest() {
        let (_file, writes) = authorizer(None, "write team/*");
        let ci = Verdict::Allowed("ci".into());
        assert_eq!(ask(&writes, Access::Read, "team/a", Some(SECRET)).await, ci);
        assert_eq!(ask(&writes, Access::Write, "team/a", Some(SECRET)).await, ci);
        for name in ["other/a", "team/a/b", "team"] {
            assert_eq!(ask(&writes, Access::Read, name, Some(SECRET)).await, Verdict::Hidden, "{name}");
            assert_eq!(ask(&writes, Access::Write, name, Some(SECRET)).await, Verdict::Hidden, "{name}");
        }
        let (_file, reads) = authorizer(None, "read **");
        assert_eq!(ask(&reads, Access::Read, "any/thing", Some(SECRET)).await, ci);
        assert_eq!(ask(&reads, Access::Write, "any/thing", Some(SECRET)).await, Verdict::ReadOnly);
    }

    #[tokio::test]
    async fn whoever_shows_nothing_or_nonsense_is_asked_who_he_is_whatever_the_name() {
        let (_file, closed) = authorizer(None, "write **");
        for name in ["there", "not-there"] {
            for access in [Access::Read, Access::Write] {
                assert_eq!(ask(&closed, access, name, None).await, Verdict::Unknown);
                assert_eq!(ask(&closed, access, name, Some("guess")).await, Verdict::Unknown);
            }
        }
    }

    #[tokio::test]
    async fn everybody_reads_where_that_is_allowed_and_nobody_writes_by_it() {
        let alone = Authorizer::new(Some(Access::Read), None, None);
        assert_eq!(ask(&alone, Access::Write, "x", None).await, Verdict::ReadOnly);
        let (_file, open) = authorizer(Some(Access::Read), "write team/*");
        assert_eq!(ask(&open, Access::Read, "x", None).await, Verdict::Allowed("anybody".into()));
        assert_eq!(ask(&open, Access::Write, "x", None).await, Verdict::Unknown);
        assert_eq!(ask(&open, Access::Write, "x", Some(SECRET)).await, Verdict::ReadOnly);
        assert_eq!(ask(&open, Access::Read, "x", Some(SECRET)).await, Verdict::Allowed("ci".into()));
        let (_file, home) = authorizer(Some(Access::Write), "read team/*");
        assert_eq!(ask(&home, Access::Write, "x", None).await, Verdict::Allowed("anybody".into()));
        assert_eq!(ask(&home, Access::Write, "x", Some(SECRET)).await, Verdict::Allowed("ci".into()));
    }

    #[test]
    fn credentials_are_read_as_git_sends_them() {
        assert_eq!(Credentials::read("Bearer abc").unwrap().secret, "abc");
        assert_eq!(basic("x:y").secret, "x:y");
        for wrong in ["", "Basic", "Basic %%%", "Digest x", "Negotiate abc"] {
            assert!(Credentials::read(wrong).is_none(), "{wrong}");
        }
        assert!(!format!("{:?}", basic("hidden")).contains("hidden"));
    }
}
