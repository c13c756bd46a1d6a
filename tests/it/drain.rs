//! Fileservers are emptied while clones go on, refused where it cannot be, cancelled, lost, and found with an empty disk.

use crate::support::process::{Process, signal, trued};
use crate::support::source::{heavy, small};
use crate::support::up::{Copy, Up};
use crate::support::{secs, until};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trued::model::grant::{Action, End, Enrolment, GRANT_HEADER, Grant};
use trued::model::id::RepositoryId;

const REPOSITORIES: usize = 6;

fn imported(up: &Up) {
    for n in 0..REPOSITORIES {
        small(&up.sources(), &format!("r{n}"), 3);
    }
    up.done(&["repo", "import", up.sources().to_str().expect("text")]);
}

/// A signed address of a repository on one fileserver, as a part that may read it would ask.
struct Reader {
    port: u16,
    path: String,
    grant: String,
}

fn reader(up: &Up, name: &str, fileserver: &str) -> Reader {
    let text = std::fs::read_to_string(up.data().join("keys/worker.json")).expect("an enrolment");
    let enrolment: Enrolment = serde_json::from_str(&text).expect("an enrolment");
    let ports: Value =
        serde_json::from_str(&std::fs::read_to_string(up.data().join("ports.json")).expect("ports"))
            .expect("JSON");
    let port = u16::try_from(ports[fileserver].as_u64().expect("a port")).expect("a port");
    let id = up.json(&["repo", "show", name])["id"].as_i64().expect("an id");
    let grant = Grant {
        fleet: enrolment.fleet.clone(),
        part: enrolment.part.id.clone(),
        action: Action::Read,
        repository: Some(RepositoryId(id)),
        destination: End { name: fileserver.to_owned(), url: format!("http://127.0.0.1:{port}") },
        source: None,
        epoch: None,
        expires_at: trued::clock::now() + 600_000,
    };
    let grant = grant.sign(&enrolment.signing_key().expect("a key"));
    Reader { port, path: format!("/v1/repositories/{id}/git"), grant }
}

impl Reader {
    fn clone_to(&self, place: &Path) -> Output {
        Command::new("git")
            .args([
                "-c",
                &format!("http.extraHeader={GRANT_HEADER}: {}", self.grant),
                "clone",
                "-q",
                "--bare",
            ])
            .arg(format!("http://127.0.0.1:{}{}", self.port, self.path))
            .arg(place)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stdin(Stdio::null())
            .output()
            .expect("git runs")
    }

    /// A clone whose client reads slowly: git runs on the fileserver until this is dropped. (One that reads nothing is
    /// not waited for.)
    fn hold(&self, tip: &str) -> Held {
        let body = format!("0032want {tip}\n00000009done\n");
        let mut stream = small_window(self.port);
        write!(
            stream,
            "POST {}/git-upload-pack HTTP/1.1\r\nhost: x\r\n{GRANT_HEADER}: {}\r\n\
             content-type: application/x-git-upload-pack-request\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            self.grant,
            body.len()
        )
        .expect("written");
        let mut first = [0; 16];
        stream.read_exact(&mut first).expect("an answer begins");
        assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
        let (stop, stopped) = mpsc::channel::<()>();
        let mut some = vec![0; 64 << 10];
        let reading = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                if stream.read(&mut some).unwrap_or(0) == 0 {
                    break;
                }
            }
        });
        Held { stop: Some(stop), reading: Some(reading) }
    }
}

/// A connection whose few bytes read are soon told to the other end: with the usual buffers a slow reader seems to read
/// nothing for many seconds.
fn small_window(port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(64 << 10)?;
        socket.connect(([127, 0, 0, 1], port).into()).await?.into_std()
    });
    let stream = connected.expect("it listens");
    stream.set_nonblocking(false).expect("a socket");
    stream
}

/// A clone that goes on until this is dropped.
struct Held {
    stop: Option<mpsc::Sender<()>>,
    reading: Option<JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.reading.take().map(JoinHandle::join);
    }
}

/// A command that goes on beside the test.
fn beside(up: &Up, arguments: &[&str]) -> Process {
    let mut command = trued();
    command.arg("--data").arg(up.data()).args(arguments);
    Process::start(&mut command)
}

fn holds(up: &Up, fileserver: &str) -> i64 {
    up.json(&["fileserver", "show", fileserver])["replicas"].as_i64().expect("a number")
}

fn live_elsewhere(copies: &[Copy], away: &[&str]) -> usize {
    copies
        .iter()
        .filter(|copy| copy.state == "live" && copy.in_sync && !away.contains(&copy.fileserver.as_str()))
        .count()
}

// Case 7, and what must be shown of refusals: at once, with the sums, and nothing changed.
#[test]
fn three_fileservers_and_three_copies_are_refused_in_two_seconds_with_the_sums() {
    let up = Up::start(&["--fileservers", "3"]);
    imported(&up);
    for extra in [&["--dry-run"][..], &["--watch"], &[]] {
        let began = Instant::now();
        let output = up.run(&[&["fileserver", "evacuate", "fs-1", "--reason", "old"], extra].concat());
        let took = began.elapsed();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("needs 3 others, has 2") && took < secs(2), "{took:?}: {said}");
    }
    assert_eq!(up.json(&["fileserver", "show", "fs-1"])["intent"], "serve");
    let retire = up.run(&["fileserver", "retire", "fs-1"]);
    assert_eq!(retire.status.code(), Some(4), "it holds copies");
    let lost = up.run(&["fileserver", "lost", "fs-1"]);
    assert_eq!(lost.status.code(), Some(2), "nobody confirmed it");
    let lost = up.run(&["fileserver", "lost", "fs-1", "--yes"]);
    assert_eq!(lost.status.code(), Some(4), "it answers");
}

// Cases 8 and 17: two at once while clones run; copies that leave are sources, and it is over only when nothing runs.
#[test]
fn two_are_emptied_at_once_while_clones_run_and_it_ends_only_when_nothing_runs_there() {
    let up = Up::start(&["--fileservers", "5"]);
    imported(&up);
    let source = heavy(&up.sources(), "heavy", 48 << 20);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    let first = up.copies("heavy")[0].fileserver.clone();
    let second = up
        .copies("r0")
        .iter()
        .map(|copy| copy.fileserver.clone())
        .find(|name| *name != first)
        .expect("another");
    let tip = crate::support::source::git(&source, &["rev-parse", "HEAD"]);
    let held = reader(&up, "heavy", &first).hold(&tip);

    let mut watch = beside(&up, &["fileserver", "evacuate", &first, &second, "--watch", "--timeout", "180s"]);
    let clones = up.directory.path().join("clones");
    let mut whole = 0;
    until("both are empty", secs(150), || {
        // A clone from whoever holds it now; a copy may go between the question and the clone.
        if let Some(copy) = up.copies("r1").into_iter().find(|copy| copy.state != "creating") {
            let place = clones.join(whole.to_string());
            whole += usize::from(reader(&up, "r1", &copy.fileserver).clone_to(&place).status.success());
        }
        for name in (0..REPOSITORIES).map(|n| format!("r{n}")).chain(["heavy".to_owned()]) {
            let good =
                up.copies(&name).iter().filter(|copy| copy.in_sync && copy.state != "creating").count();
            assert!(good >= 3, "{name} has {good} good copies");
        }
        let left = holds(&up, &first) + holds(&up, &second);
        if left == 0 { Ok(()) } else { Err(format!("{left} left\n{}", watch.said())) }
    });
    assert!(whole > 0, "clones went on");
    watch.hears(&format!("{first}  evacuating (1 process)"), secs(30));
    let status = String::from_utf8_lossy(&up.run(&["status"]).stdout).into_owned();
    assert!(status.contains("evacuating"), "{status}");
    drop(held);
    assert_eq!(watch.ends(secs(60)), Some(0), "{}", watch.said());
    assert!(watch.said().contains(&format!("{first}  empty, nothing runs there")), "{}", watch.said());
    for name in (0..REPOSITORIES).map(|n| format!("r{n}")) {
        assert_eq!(live_elsewhere(&up.copies(&name), &[&first, &second]), 3);
    }
    up.done(&["fileserver", "retire", &first, "--reason", "sold"]);
    assert_eq!(up.json(&["fileserver", "show", &first])["intent"], "retire");
}

// Cases 9 and 18: what is in the way is named, one by one, the time that is given is kept, and it can be cancelled.
#[test]
fn a_drain_that_cannot_go_on_names_what_is_in_the_way_and_is_cancelled() {
    let mut up = Up::start(&["--fileservers", "4", "--no-respawn", "--grace", "1h"]);
    imported(&up);
    let holders: Vec<String> = up.copies("r0").into_iter().map(|copy| copy.fileserver).collect();
    let place =
        (1..=4).map(|n| format!("fs-{n}")).find(|name| !holders.contains(name)).expect("one without r0");
    let stopped = agent(up.process().pid(), &place);
    // Proven while all seemed to be there; the only place for r0 then says nothing any more.
    until("it is begun before the silence is noticed", secs(90), || {
        signal(stopped, "STOP");
        let begun = up.run(&["fileserver", "evacuate", &holders[0], "--reason", "a test"]);
        if begun.status.success() {
            return Ok(());
        }
        signal(stopped, "CONT");
        std::thread::sleep(secs(2));
        Err(String::from_utf8_lossy(&begun.stderr).into_owned())
    });
    let began = Instant::now();
    let output = up.run(&["fileserver", "evacuate", &holders[0], "--watch", "--timeout", "40s"]);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let refused_again = output.status.code() == Some(4);
    assert!(!refused_again, "what is being emptied already is not proven anew: {said}");
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(began.elapsed() < secs(60));
    assert!(said.contains("in the way: repository r0: no fileserver may take the copy"), "{said}");
    up.done(&["fileserver", "serve", &holders[0], "--reason", "changed my mind"]);
    signal(stopped, "CONT");
    up.met(120);
    assert!(live_elsewhere(&up.copies("r0"), &[]) >= 3);
    assert_eq!(up.json(&["fileserver", "show", &holders[0]])["intent"], "serve");
}

/// The process of a fileserver's agent below `up`.
fn agent(up: i32, name: &str) -> i32 {
    let found = Command::new("pgrep")
        .args(["-P", &up.to_string(), "-f", &format!("{name}(\\.json)?( |$)")])
        .output()
        .expect("pgrep runs");
    String::from_utf8_lossy(&found.stdout)
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .expect("an agent")
}

// Case 2: a disk was replaced by an empty one; nothing is refilled until a person says that it is right, then all is.
#[test]
fn an_empty_disk_is_refilled_once_it_is_accepted() {
    let mut up = Up::start(&["--fileservers", "4"]);
    imported(&up);
    let victim = up.copies("r0")[0].fileserver.clone();
    let before = holds(&up, &victim);
    let up_pid = up.process().pid();
    signal(up_pid, "TERM");
    up.process().ends(secs(30));
    let root = up.data().join("fileservers").join(&victim);
    std::fs::rename(&root, up.directory.path().join("old-disk")).expect("the disk is taken out");
    std::fs::create_dir(&root).expect("an empty disk");
    up.again();
    until("the empty disk is noticed", secs(60), || {
        let status = up.json(&["status"]);
        let codes = status["health"]["codes"].as_array().expect("codes");
        if codes.iter().any(|code| code == "FILESERVER_EMPTY") { Ok(()) } else { Err(format!("{codes:?}")) }
    });
    assert_eq!(holds(&up, &victim), before, "nothing is forgotten");
    let unsure = up.run(&["fileserver", "accept-empty", &victim]);
    assert_eq!(unsure.status.code(), Some(2), "nobody confirmed it");
    up.done(&["fileserver", "accept-empty", &victim, "--yes", "--reason", "a new disk"]);
    until("every copy is on the new disk", secs(120), || {
        let missing: Vec<_> = (0..REPOSITORIES)
            .map(|n| format!("r{n}"))
            .filter(|name| {
                up.copies(name)
                    .iter()
                    .any(|copy| copy.fileserver == victim && (!copy.in_sync || !copy.path.exists()))
            })
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?}")) }
    });
    up.met(120);
}

#[test]
fn a_lost_fileserver_is_forgotten_as_others_suffice_and_then_retires() {
    let mut up = Up::start(&["--fileservers", "5", "--no-respawn", "--grace", "1h"]);
    imported(&up);
    let victim = up.copies("r0")[0].fileserver.clone();
    signal(agent(up.process().pid(), &victim), "KILL");
    until("it is offline", secs(30), || {
        let health = up.json(&["fileserver", "show", &victim])["health"].clone();
        if health == "offline" { Ok(()) } else { Err(health.to_string()) }
    });
    let output =
        up.run(&["fileserver", "lost", &victim, "--yes", "--reason", "fire", "--watch", "--timeout", "150s"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(holds(&up, &victim), 0);
    for n in 0..REPOSITORIES {
        assert_eq!(live_elsewhere(&up.copies(&format!("r{n}")), &[&victim]), 3);
    }
    up.done(&["fileserver", "retire", &victim]);
}

#[test]
fn stopping_is_answered_and_kept_and_quiesce_waits_for_a_status() {
    let up = Up::start(&["--fileservers", "4"]);
    imported(&up);
    let holders: Vec<String> = up.copies("r0").into_iter().map(|copy| copy.fileserver).collect();
    up.done(&["fileserver", "ok-to-stop", &holders[0], "--reason", "a reboot"]);
    let second = up.run(&["fileserver", "ok-to-stop", &holders[1]]);
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    assert_eq!(second.status.code(), Some(4), "{said}");
    assert!(said.contains("would fall below quorum"), "{said}");
    let began = Instant::now();
    up.done(&["fileserver", "quiesce", &holders[0], "--wait", "--timeout", "60s"]);
    assert!(began.elapsed() < Duration::from_secs(45));
    up.done(&["fileserver", "serve", &holders[0]]);
    up.done(&["fileserver", "ok-to-stop", &holders[0], "--release"]);
    up.done(&["fileserver", "ok-to-stop", &holders[1]]);
}
