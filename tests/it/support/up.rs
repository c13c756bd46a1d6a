//! `trued up` below a temporary directory, and commands against it.

use super::process::{Process, trued};
use super::{secs, until_or_tell};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

/// One fleet on this machine.
pub struct Up {
    /// Where sources and data live; removed at the end.
    pub directory: tempfile::TempDir,
    process: Option<Process>,
    arguments: Vec<String>,
}

impl Up {
    /// Starts it with a schedule of five seconds and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        let mut up = Self::idle(arguments);
        up.again();
        up
    }

    /// Everything in place, nothing started.
    pub fn idle(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        Self { directory: tempfile::tempdir().expect("a directory"), process: None, arguments }
    }

    /// Starts it (again).
    pub fn again(&mut self) {
        let mut command = trued();
        command.args(["up", "--listen", "127.0.0.1:0", "--schedule", "*/5 * * * * *", "--data"]);
        command.arg(self.data()).args(&self.arguments);
        let mut process = Process::start(&mut command);
        process.hears("ready", secs(60));
        self.process = Some(process);
    }

    /// The process of `up` itself.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it was started")
    }

    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// All metrics, as text.
    pub fn metrics(&self) -> String {
        use std::io::{Read as _, Write as _};
        let file = std::fs::read_to_string(self.data().join("up.json")).expect("it runs");
        let up: Value = serde_json::from_str(&file).expect("JSON");
        let address = up["url"].as_str().expect("an address").trim_start_matches("http://").to_owned();
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            .expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// A place for sources.
    pub fn sources(&self) -> PathBuf {
        let path = self.directory.path().join("sources");
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// Runs a command against it.
    pub fn run(&self, arguments: &[&str]) -> Output {
        trued().arg("--data").arg(self.data()).args(arguments).output().expect("the program runs")
    }

    /// Runs a command that must succeed.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        let up = self.process.as_ref().map(Process::said).unwrap_or_default();
        assert!(
            output.status.success(),
            "trued {arguments:?}: {:?}\n{err}\n--- up said\n{up}",
            output.status
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command and reads its JSON, whatever its exit code.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let output = self.run(&all);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!(
                "trued {all:?}: {error}\n{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// What a person would look at when a goal stays unmet: the backlog, its attempts, what was said.
    fn story(&self) -> String {
        let backlog = self.json(&["backlog"]);
        let attempts = self.json(&["attempts"]);
        let said = self.process.as_ref().map(Process::said).unwrap_or_default();
        format!("--- backlog {backlog:#}\n--- attempts {attempts:#}\n--- up said\n{said}")
    }

    /// The copies of a repository.
    pub fn copies(&self, name: &str) -> Vec<Copy> {
        copies(&self.json(&["repo", "show", name]))
    }

    /// Waits until every goal is met by an evaluation that began after now, and says how long it took.
    pub fn met(&self, within: u64) -> std::time::Duration {
        let began = std::time::Instant::now();
        let asked = trued::clock::now();
        let seen = || goals_met_since(&self.json(&["status"]), asked);
        until_or_tell("every goal is met", secs(within), seen, || self.story());
        began.elapsed()
    }
}

/// Whether each goal is met by an evaluation that began after a moment.
pub fn goals_met_since(status: &Value, moment: i64) -> Result<(), String> {
    let goals = status["goals"].as_array().expect("goals");
    assert!(!goals.is_empty(), "no goal is listed");
    let met =
        |goal: &Value| goal["state"] == "met" && goal["evaluated_at"].as_i64().is_some_and(|at| at > moment);
    if goals.iter().all(met) { Ok(()) } else { Err(format!("{status:#}")) }
}

/// One copy as `repo show` tells it.
#[derive(Debug, Clone)]
pub struct Copy {
    pub fileserver: String,
    pub rack: String,
    pub path: PathBuf,
    pub state: String,
    pub in_sync: bool,
}

/// The copies in the JSON of `repo show`.
pub fn copies(shown: &Value) -> Vec<Copy> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let copy = |one: &Value| Copy {
        fileserver: text(&one["fileserver"]).expect("a fileserver"),
        rack: text(&one["rack"]).expect("a rack"),
        path: PathBuf::from(text(&one["path"]).expect("a path")),
        state: text(&one["state"]).expect("a state"),
        in_sync: one["in_sync"].as_bool().expect("in_sync"),
    };
    shown["replicas"].as_array().expect("replicas").iter().map(copy).collect()
}

/// Whether all copies are live, in sync, readable, and have the source's references.
pub fn are_whole(copies: &[Copy], source: &Path) -> Result<(), String> {
    for copy in copies {
        let good = copy.state == "live"
            && copy.in_sync
            && super::source::git_passes(&copy.path, &["fsck", "--connectivity-only"])
            && super::source::try_references(&copy.path) == super::source::try_references(source);
        if !good {
            return Err(format!("{copy:?}"));
        }
    }
    Ok(())
}

/// All copies are live, in sync, in different racks, pass a connectivity check, and have the source's references.
pub fn assert_whole(copies: &[Copy], source: &Path, wanted: usize) {
    assert_eq!(copies.len(), wanted, "{copies:#?}");
    let racks: std::collections::BTreeSet<_> = copies.iter().map(|copy| &copy.rack).collect();
    assert_eq!(racks.len(), wanted, "racks: {copies:#?}");
    for copy in copies {
        assert!(copy.state == "live" && copy.in_sync, "{copy:?}");
        assert!(super::source::git_passes(&copy.path, &["fsck", "--connectivity-only"]), "{copy:?}");
        assert_eq!(super::source::references(&copy.path), super::source::references(source), "{copy:?}");
    }
}
