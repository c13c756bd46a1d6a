use super::*;
use std::process::Command;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn ordinary(directory: &Path) {
    git(directory, &["init", "-q", "."]);
    for name in ["one", "two"] {
        std::fs::write(directory.join(name), name).unwrap();
        git(directory, &["add", "."]);
        git(directory, &["commit", "-q", "-m", name]);
    }
}

async fn refusal(path: &Path) -> String {
    let runner = Runner::new().unwrap();
    let content = match Source::open(&runner, path).await {
        Ok(source) => source.content().await.map(|_| ()),
        Err(error) => Err(error),
    };
    content.unwrap_err().to_string()
}

#[tokio::test]
async fn references_are_read_exactly_symbolic_dangling_and_detached_ones_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    ordinary(path);
    git(path, &["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/gone"]);
    git(path, &["checkout", "-q", "--detach"]);
    let runner = Runner::new().unwrap();
    let source = Source::open(&runner, path).await.unwrap();
    let content = source.content().await.unwrap();
    let oid = git(path, &["rev-parse", "HEAD"]);
    assert_eq!(content.head, Target::Object(oid.clone()));
    assert_eq!(
        String::from_utf8(content.text).unwrap(),
        format!("HEAD {oid}\n{oid} refs/heads/main\nref:refs/remotes/origin/gone refs/remotes/origin/HEAD\n")
    );
    assert_eq!(content.tips, [oid]);
}

#[tokio::test]
async fn a_shallow_and_a_partial_and_a_broken_source_are_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("whole");
    std::fs::create_dir(&path).unwrap();
    ordinary(&path);
    let url = format!("file://{}", path.display());
    git(directory.path(), &["clone", "-q", "--depth=1", &url, "shallow"]);
    assert!(refusal(&directory.path().join("shallow")).await.starts_with("it is shallow"));
    git(&path, &["config", "uploadpack.allowFilter", "true"]);
    git(directory.path(), &["clone", "-q", "--filter=blob:none", "--bare", &url, "partial.git"]);
    assert!(refusal(&directory.path().join("partial.git")).await.starts_with("it is a partial clone"));
    git(&path, &["worktree", "add", "-q", "../linked"]);
    assert!(refusal(&directory.path().join("linked")).await.starts_with("it is a linked worktree"));
    std::fs::write(path.join(".git/refs/heads/bad"), "nonsense\n").unwrap();
    assert!(refusal(&path).await.starts_with("it is broken"));
}

#[tokio::test]
async fn a_sha256_repository_is_known_as_one() {
    let directory = tempfile::tempdir().unwrap();
    git(directory.path(), &["init", "-q", "--bare", "--object-format=sha256", "."]);
    let source = Source::open(&Runner::new().unwrap(), directory.path()).await.unwrap();
    let content = source.content().await.unwrap();
    assert_eq!((content.format, content.tips.len()), (ObjectFormat::Sha256, 0));
    assert_eq!(content.text, b"HEAD ref:refs/heads/main\n");
}
