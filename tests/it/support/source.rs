//! Real repositories to import, and looks at copies, with git alone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs git and returns what it wrote; fails the test with git's words.
pub fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = git_command(repository, arguments).output().expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

/// Whether git ends well.
pub fn git_passes(repository: &Path, arguments: &[&str]) -> bool {
    git_command(repository, arguments).output().is_ok_and(|output| output.status.success())
}

fn git_command(repository: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(repository)
        .args(["-c", "safe.directory=*", "-c", "user.name=Someone", "-c", "user.email=someone@example.org"])
        .args(arguments)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null());
    command
}

/// A repository with `commits` commits, as many tags, packed, one symbolic reference beside HEAD.
pub fn small(parent: &Path, name: &str, commits: usize) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    git(&path, &["init", "-q", "-b", "main"]);
    for n in 0..commits {
        std::fs::write(path.join("file"), format!("{name} {n}\n")).expect("a file");
        git(&path, &["add", "file"]);
        git(&path, &["commit", "-q", "-m", &format!("{name} {n}")]);
        git(&path, &["tag", &format!("v{n}")]);
    }
    git(&path, &["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    git(&path, &["pack-refs", "--all"]);
    git(&path, &["gc", "-q"]);
    path
}

/// A repository with one commit of `bytes` bytes that do not compress.
pub fn heavy(parent: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    git(&path, &["init", "-q", "-b", "main"]);
    let mut noise = vec![0; bytes];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for chunk in noise.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let length = chunk.len();
        chunk.copy_from_slice(&state.to_le_bytes()[..length]);
    }
    std::fs::write(path.join("noise"), noise).expect("a file");
    git(&path, &["add", "noise"]);
    git(&path, &["commit", "-q", "-m", "noise"]);
    path
}

/// A bare repository with `count` references on one commit.
pub fn many_references(parent: &Path, name: &str, count: usize) -> PathBuf {
    let path = parent.join(name);
    std::fs::create_dir_all(&path).expect("a directory");
    git(&path, &["init", "-q", "--bare", "-b", "main"]);
    let tree = git(&path, &["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let commit = git(&path, &["commit-tree", "-m", "root", &tree]);
    let mut commands = format!("create refs/heads/main {commit}\n");
    for n in 0..count {
        let _ = writeln!(commands, "create refs/heads/topic/{}/b{n} {commit}", n % 97);
    }
    let mut child = git_command(&path, &["-c", "core.fsync=none", "update-ref", "--stdin"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("git runs");
    child.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("git reads");
    assert!(child.wait().expect("git ends").success());
    path
}

/// HEAD and all references, symbolic ones as such: what must be the same in every copy.
pub fn references(repository: &Path) -> String {
    try_references(repository)
        .unwrap_or_else(|| panic!("the references of {} can be read", repository.display()))
}

/// The same; none while git cannot read them.
pub fn try_references(repository: &Path) -> Option<String> {
    let read = |arguments: &[&str]| {
        let output = git_command(repository, arguments).output().expect("git runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    };
    let head = read(&["symbolic-ref", "-q", "HEAD"]).or_else(|| read(&["rev-parse", "HEAD"]))?;
    let all = read(&["for-each-ref", "--format=%(objectname) %(refname) %(symref)"])?;
    Some(format!("HEAD {head}\n{all}"))
}
