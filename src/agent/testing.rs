//! What the agent's own tests share: keys that follow from names, grants, an enrolment.

use crate::model::checksum::ChecksumKey;
use crate::model::grant::{Action, End, Enrolment, Grant, Part, Role};
use crate::model::id::RepositoryId;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;

/// The secret key of the part of this id.
pub(crate) fn key(part: &str) -> SigningKey {
    SigningKey::from_bytes(blake3::hash(part.as_bytes()).as_bytes())
}

/// A part whose key is [`key`] of its id.
pub(crate) fn part(id: &str, role: Role) -> Part {
    let public_key = STANDARD.encode(key(id).verifying_key().as_bytes());
    Part { id: id.to_owned(), name: id.to_owned(), role, public_key }
}

/// An agent's enrolment, in a fleet with one part of each role, named as the role.
pub(crate) fn enrolment(fleet: &str, fileserver: &str) -> Enrolment {
    Enrolment {
        fleet: fleet.to_owned(),
        part: part(fileserver, Role::Agent),
        secret_key: STANDARD.encode(key(fileserver).as_bytes()),
        parts: Role::ALL.iter().map(|role| part(role.as_str(), *role)).collect(),
        checksum_key: Some(ChecksumKey { id: 1, secret: [7; 32] }),
    }
}

/// A grant of the part that is named as its role, not over until long after these tests.
pub(crate) fn grant(
    role: Role,
    action: Action,
    repository: Option<RepositoryId>,
    destination: &str,
) -> Grant {
    Grant {
        fleet: "fleet".to_owned(),
        part: role.as_str().to_owned(),
        action,
        repository,
        destination: End { name: destination.to_owned(), url: String::new() },
        source: None,
        epoch: None,
        expires_at: i64::MAX,
    }
}

/// Makes a bare repository with a branch in `packed-refs`, a loose one and a pack, by the machine's git.
pub(crate) fn make_repository(path: &std::path::Path) {
    let work = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .current_dir(work.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "--quiet", "."]);
    std::fs::write(work.path().join("file"), "content\n".repeat(100)).unwrap();
    git(&["add", "file"]);
    git(&["commit", "--quiet", "-m", "first"]);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    git(&["clone", "--quiet", "--bare", ".", path.to_str().unwrap()]);
    let here = format!("--git-dir={}", path.display());
    git(&[&here, "repack", "--quiet", "-a", "-d"]);
    git(&[&here, "pack-refs", "--all"]);
    git(&[&here, "update-ref", "refs/heads/loose", "main"]);
}

/// Whether it comes true within some seconds. A lock that was let go is free a moment later: a child that another test
/// starts has it too, until it becomes another program.
pub(super) async fn eventually(mut is: impl AsyncFnMut() -> bool) -> bool {
    for _ in 0..250 {
        if is().await {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    false
}
