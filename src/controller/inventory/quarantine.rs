//! What agents have in quarantine and SQL does not know of: copies that a resync exchanged for
//! new ones, and removals whose outcome was never written.

use super::CompareError;
use crate::database::{Database, quarantine};
use crate::fleet::Agents;
use crate::model::grant::End;
use crate::model::id::FileserverId;

/// Entries of one page.
const PAGE: usize = 5_000;

/// Pages through a fileserver's quarantine and writes down what is new. Returns how many were.
///
/// # Errors
/// When either side did not answer to the end; what was written until then is true all the same.
pub(in crate::controller) async fn note(
    db: &Database,
    agents: &Agents,
    id: FileserverId,
    to: &End,
) -> Result<u64, CompareError> {
    let (mut after, mut new) = (String::new(), 0);
    loop {
        let page = agents.quarantined(to, &after, PAGE).await?;
        new += quarantine::note(db, id, &page.entries).await?;
        match page.entries.last() {
            Some(last) if page.more && last.path > after => after.clone_from(&last.path),
            _ if page.more => return Err(CompareError::Stuck),
            _ => return Ok(new),
        }
    }
}
