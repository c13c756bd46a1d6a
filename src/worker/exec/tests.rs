//! Programs in shell: how they end, and that nothing of them is left.

use super::verdict;
use crate::program::{Ended, How, checked, run};
use crate::worker::outcome::Outcome;
use rustix::process::{Pid, test_kill_process};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::task::TaskTracker;

const LONG: Duration = Duration::from_mins(1);

async fn sh(script: &str, within: Duration) -> Ended {
    let arguments = ["-c".to_owned(), script.to_owned()];
    run(Path::new("/bin/sh"), &arguments, b"{\"goal\":\"a\"}\n", within, &TaskTracker::new()).await.unwrap()
}

fn number(path: &Path) -> Pid {
    let text = std::fs::read_to_string(path).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

async fn gone(pid: Pid) {
    let gone = async {
        while test_kill_process(pid).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("it is ended");
}

#[tokio::test]
async fn its_exit_decides_and_its_last_line_speaks() {
    let succeeded = verdict(&sh("echo first; echo sent to the team; echo >&2 noise", LONG).await, LONG);
    assert_eq!(succeeded, Outcome::Succeeded { message: "sent to the team".into(), bytes: 0 });
    let later = verdict(&sh("echo the pager is busy; exit 75", LONG).await, LONG);
    assert_eq!(later, Outcome::Away("the pager is busy".into()));
    let failed = verdict(&sh("echo no such team >&2; exit 3", LONG).await, LONG);
    assert_eq!(failed, Outcome::failed("exit code 3: no such team"));
    let silent = verdict(&sh("exit 1", LONG).await, LONG);
    assert_eq!(silent, Outcome::failed("it ended with exit code 1 and no word"));
    let killed = verdict(&sh("kill -KILL $$", LONG).await, LONG);
    assert_eq!(killed, Outcome::failed("it was ended by a signal"));
}

#[tokio::test]
async fn it_gets_the_finding_and_no_environment_but_what_is_listed() {
    assert_eq!(sh("cat", LONG).await.said, "{\"goal\":\"a\"}");
    let names = sh("env | cut -d= -f1 | sort | tr '\\n' ' '", LONG).await.said;
    let listed = |name: &str| {
        matches!(name, "PATH" | "HOME" | "LANG" | "TZ" | "TMPDIR" | "PWD" | "_" | "SHLVL" | "OLDPWD")
    };
    assert!(names.split_whitespace().all(listed), "{names}");
    assert_eq!(sh("pwd", LONG).await.said, "/");
}

#[tokio::test]
async fn one_that_does_not_read_its_input_is_not_hurt_by_it() {
    let arguments = ["-c".to_owned(), "exec <&-; echo done".to_owned()];
    let much = vec![b'x'; 1 << 20];
    let ended = run(Path::new("/bin/sh"), &arguments, &much, LONG, &TaskTracker::new()).await.unwrap();
    assert_eq!((ended.how, ended.said.as_str()), (How::Exit(0), "done"));
}

#[tokio::test]
async fn output_without_end_is_cut_off_and_the_program_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let ended = sh(&format!("echo $$ > {}; exec yes", file.display()), LONG).await;
    assert_eq!(ended.how, How::TooMuch);
    gone(number(&file)).await;
    let Outcome::Failed { message, .. } = verdict(&ended, LONG) else { panic!("it must have failed") };
    assert_eq!(message, "it wrote more than 16 MiB and was ended");
}

#[tokio::test]
async fn a_child_that_outlives_its_program_is_ended_and_does_not_hold_up_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let begun = Instant::now();
    // The child keeps the program's output open.
    let ended = sh(&format!("sleep 600 & echo $! > {}; echo left one behind", file.display()), LONG).await;
    assert_eq!((ended.how, ended.said.as_str()), (How::Exit(0), "left one behind"));
    assert!(begun.elapsed() < Duration::from_secs(30));
    gone(number(&file)).await;
}

#[tokio::test]
async fn at_its_deadline_the_whole_group_is_ended_even_where_it_will_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!("trap '' TERM; sleep 600 & echo $! > {}; while :; do sleep 1; done", file.display());
    let ended = sh(&script, Duration::from_secs(1)).await;
    assert_eq!(ended.how, How::Deadline);
    gone(number(&file)).await;
    let Outcome::Failed { message, .. } = verdict(&ended, Duration::from_secs(1)) else {
        panic!("it must have failed")
    };
    assert_eq!(message, "it did not end within 1 s and was ended");
}

#[tokio::test]
async fn a_program_whose_attempt_is_given_up_is_ended_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let arguments = ["-c".to_owned(), format!("echo $$ > {}; exec sleep 600", file.display())];
    let reaper = TaskTracker::new();
    let running = run(Path::new("/bin/sh"), &arguments, b"", LONG, &reaper);
    let started = async {
        while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! { _ = running => panic!("it goes on"), () = started => {} }
    reaper.close();
    reaper.wait().await;
    gone(number(&file)).await;
}

fn program(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tell");
    std::fs::write(&path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    (directory, path)
}

#[test]
fn only_what_nobody_else_can_change_is_run() {
    let (_kept, good) = program(0o755);
    assert!(checked(good.to_str().unwrap()).is_ok());
    let (_kept, plain) = program(0o644);
    assert!(checked(plain.to_str().unwrap()).unwrap_err().ends_with("is not a program"));
    let (_kept, shared) = program(0o775);
    let refused = checked(shared.to_str().unwrap()).unwrap_err();
    assert!(refused.ends_with("can be written by others than its owner"), "{refused}");
    let (directory, inside) = program(0o755);
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = checked(inside.to_str().unwrap()).unwrap_err();
    assert!(refused.ends_with("can be written by others than its owner"), "{refused}");
    assert!(checked("/nonexistent/tell").is_err());
    assert!(checked("/usr/bin").unwrap_err().ends_with("is not a program"));
}
