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

/// Reads `fault=severity, …` and asks git whether it knows them; as git reads them.
///
/// # Errors
/// With git's words, or what a fault looks like.
pub async fn severities(git: &Git, layout: &Layout, text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        return Ok(String::new());
    }
    let plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fits =
        |word: &&str| word.split_once('=').is_some_and(|(fault, severity)| plain(fault) && plain(severity));
    if let Some(bad) = words.iter().find(|word| !fits(word)) {
        return Err(format!("{bad:?} is not of the form fault=ignore, fault=warn or fault=error"));
    }
    let severities = words.join(",");
    // Git reads the option before it looks for the pack, which is not there.
    let none = layout.root().join("no-such.pack");
    let arguments = vec!["index-pack".into(), strict(&severities).into(), none.into()];
    let answer = git.command(None, arguments).run(b"", 4_096, WITHIN, &CancellationToken::new()).await;
    let words = answer.map_err(|error| error.to_string())?.words();
    if words.contains("no-such.pack") {
        return Ok(severities);
    }
    Err(format!("{words}; faults are named in `git help fsck`, severities are ignore, warn and error"))
}
