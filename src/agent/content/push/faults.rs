//! Which faults of pushed objects are refused: git's own severities, or what the operator makes of them.
//!
//! Only pushes are judged. What was accepted once is copied as it is, or old histories could not be.

use crate::agent::git::Git;
use crate::agent::layout::Layout;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(20);

/// The option of `index-pack` that checks objects.
pub(super) fn strict(severities: &str) -> String {
    if severities.is_empty() { "--strict".to_owned() } else { format!("--strict={severities}") }
}

/// Why severities could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// A fault or a severity is none; says which, or what they look like.
    Words(String),
    /// Git could not be asked; its words.
    Git(String),
}

/// Reads `fault=severity, …` and asks git whether it knows them; as git reads them.
///
/// # Errors
/// When a word is none that git knows, or git cannot be asked.
pub async fn severities(git: &Git, layout: &Layout, text: &str) -> Result<String, Unread> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Ok(String::new());
    }
    let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits =
        |word: &&str| word.split_once('=').is_some_and(|(fault, severity)| plain(fault) && plain(severity));
    if let Some(bad) = words.iter().find(|word| !fits(word)) {
        let form = format!("{bad:?} is not of the form fault=ignore, fault=warn or fault=error");
        return Err(Unread::Words(form));
    }
    let severities = words.join(",");
    // Git reads the option before it looks for the pack, which is not there.
    let none = layout.root().join("no-such.pack");
    let arguments = vec!["index-pack".into(), strict(&severities).into(), none.into()];
    let answer = git.command(None, arguments).run(b"", 4_096, WITHIN, &CancellationToken::new()).await;
    let words = answer.map_err(|error| Unread::Git(error.to_string()))?.words();
    if words.contains("no-such.pack") {
        return Ok(severities);
    }
    let known = "faults are named in `git help fsck`, severities are ignore, warn and error";
    Err(Unread::Words(format!("{words}; {known}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wrong_word_and_a_git_that_does_not_answer_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        let git = Git::find(layout.root()).unwrap();
        let good = severities(&git, &layout, " zeroPaddedFilemode=ignore, missingEmail=warn ").await;
        assert_eq!(good, Ok("zeroPaddedFilemode=ignore,missingEmail=warn".into()));
        for (bad, why) in
            [("zero", "of the form"), ("noSuchFault=warn", "noSuchFault"), ("missingEmail=x", "x")]
        {
            let Err(Unread::Words(words)) = severities(&git, &layout, bad).await else { panic!("{bad}") };
            assert!(words.to_lowercase().contains(&why.to_lowercase()), "{words}");
        }
        let gone = Layout::new(root.path().join("no-such-directory"));
        let answer = severities(&git, &gone, "missingEmail=warn").await;
        assert!(matches!(answer, Ok(_) | Err(Unread::Git(_))), "{answer:?}");
    }
}
