use super::super::testing::eventually;
use super::*;
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);

fn git() -> (tempfile::TempDir, Git) {
    let root = tempfile::tempdir().unwrap();
    let git = Git::find(root.path()).unwrap();
    (root, git)
}

fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

async fn run(git: &Git, repository: Option<&Path>, arguments: &[&str]) -> GitOutput {
    let command = git.command(repository, words(arguments));
    command.run(b"", 1 << 20, MINUTE, &CancellationToken::new()).await.unwrap()
}

async fn repository(git: &Git, root: &Path) -> PathBuf {
    let path = root.join("r.git");
    let made = run(git, None, &["init", "--quiet", "--bare", path.to_str().unwrap()]).await;
    assert!(made.ok(), "{}", made.words());
    path
}

#[test]
fn old_versions_are_known_by_their_numbers() {
    assert_eq!(parse_version("2.39.5"), Some((2, 39)));
    assert_eq!(parse_version("2.50.1.windows.1"), Some((2, 50)));
    assert_eq!(parse_version("git"), None);
    assert!((2, 38) < OLDEST);
}

#[tokio::test]
async fn nothing_of_the_callers_environment_reaches_git() {
    let (_root, git) = git();
    let answer = run(&git, None, &["-c", "alias.env=!env", "env"]).await;
    let answer = String::from_utf8(answer.stdout).unwrap();
    for line in answer.lines() {
        let name = line.split('=').next().unwrap();
        let known = name.starts_with("GIT_")
            || ["PATH", "HOME", "LANG", "LC_ALL", "PWD", "SHLVL", "_", "OLDPWD"].contains(&name);
        assert!(known, "{line}");
    }
    assert!(answer.contains("HOME=") && !answer.contains("CARGO"));
}

#[tokio::test]
async fn a_repository_of_another_owner_is_used_and_hooks_are_not() {
    let (root, git) = git();
    let path = repository(&git, root.path()).await;
    let settings = run(&git, Some(&path), &["config", "--get-all", "safe.directory"]).await;
    assert_eq!(settings.stdout, b"*\n");
    let hooks = run(&git, Some(&path), &["rev-parse", "--git-path", "hooks"]).await;
    assert_eq!(
        String::from_utf8(hooks.stdout).unwrap().trim(),
        root.path().canonicalize().unwrap().join("empty").to_str().unwrap()
    );
}

#[tokio::test]
async fn variables_that_are_not_allowed_stop_the_start() {
    let (_root, git) = git();
    let bad = git.command(None, words(&["version"])).env("GIT_PROTOCOL", "version=2:ext=1".into());
    assert!(matches!(bad.spawn(), Err(GitError::Start(_))));
    let bad = git.command(None, words(&["version"])).env("GIT_SSH_COMMAND", "true".into());
    assert!(matches!(bad.spawn(), Err(GitError::Start(_))));
    let good = git.command(None, words(&["version"])).env("GIT_PROTOCOL", "version=2".into());
    assert!(good.run(b"", 100, MINUTE, &CancellationToken::new()).await.unwrap().ok());
}

#[tokio::test]
async fn secret_settings_are_not_on_the_command_line() {
    let (root, git) = git();
    let path = repository(&git, root.path()).await;
    let command = git.command(Some(&path), words(&["config", "http.extraHeader"]));
    let command = command.setting("http.extraHeader", "trued-grant: abc");
    assert!(!format!("{:?}", command.arguments).contains("abc"));
    let answer = command.run(b"", 100, MINUTE, &CancellationToken::new()).await.unwrap();
    assert_eq!(answer.stdout, b"trued-grant: abc\n");
}

#[tokio::test]
async fn too_much_output_ends_git() {
    let (_root, git) = git();
    let command = git.command(None, words(&["help", "-a"]));
    let answer = command.run(b"", 10, MINUTE, &CancellationToken::new()).await;
    assert!(matches!(answer, Err(GitError::TooMuch(10))), "{answer:?}");
    assert_eq!(git.running(), 0);
}

#[tokio::test]
async fn a_git_that_takes_too_long_or_is_cancelled_is_gone_with_its_children() {
    let (root, git) = git();
    let pid = root.path().join("pid");
    let script = format!("!sh -c 'trap \"\" TERM; echo $$ > {}; sleep 100'", pid.display());
    let command = git.command(None, vec!["-c".into(), format!("alias.x={script}").into(), "x".into()]);
    let cancel = CancellationToken::new();
    let waiting = command.run(b"", 10, MINUTE, &cancel);
    let (answer, ()) = tokio::join!(waiting, async {
        while std::fs::read_to_string(&pid).unwrap_or_default().trim().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(git.running(), 1);
        cancel.cancel();
    });
    assert!(matches!(answer, Err(GitError::Cancelled)));
    assert_eq!(git.running(), 0);
    let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[tokio::test]
async fn a_git_that_is_dropped_is_reaped() {
    let (root, git) = git();
    let path = repository(&git, root.path()).await;
    let running = git.command(Some(&path), words(&["cat-file", "--batch"])).spawn().unwrap();
    assert_eq!(git.running(), 1);
    drop(running);
    git.settled().await;
    assert_eq!(git.running(), 0);
}

#[tokio::test]
async fn nobody_can_have_a_lock_whole_while_a_git_that_inherited_it_lives() {
    use rustix::fs::FlockOperation::{NonBlockingLockExclusive, NonBlockingLockShared};
    let (root, git) = git();
    let path = repository(&git, root.path()).await;
    let lock = root.path().join("r.lock");
    let writer = std::fs::File::create(&lock).unwrap();
    let whole = || rustix::fs::flock(std::fs::File::open(&lock).unwrap(), NonBlockingLockExclusive).is_ok();
    let start = || git.command(Some(&path), words(&["cat-file", "--batch"])).holding(lock.clone()).spawn();
    rustix::fs::flock(&writer, NonBlockingLockExclusive).unwrap();
    assert!(matches!(start(), Err(GitError::Start(_))), "somebody else writes");
    rustix::fs::flock(&writer, NonBlockingLockShared).unwrap();
    let running = start().unwrap();
    drop(writer);
    assert!(!whole(), "the git has a share of it");
    assert!(running.finish(MINUTE, &CancellationToken::new()).await.unwrap().ok());
    assert!(eventually(async || whole()).await);
}
