//! A fleet of separate processes: controller, worker, agents, as a service would run them.

use super::process::{Process, trued};
use super::up::{Copy, copies, goals_met_since};
use super::{secs, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Separate parts over one database.
pub struct Fleet {
    pub directory: PathBuf,
    pub database_url: String,
    pub url: String,
    pub controller: Option<Process>,
    pub workers: Vec<Process>,
    pub agents: Vec<Process>,
    pub routers: Vec<Process>,
    /// For parts that are started from now on.
    pub environment: Vec<(String, String)>,
    addresses: Vec<String>,
    listen: String,
    settings: PathBuf,
    /// What each agent is started with besides.
    flags: Vec<Vec<String>>,
    others: Vec<Other>,
}

/// A controller beside the first.
struct Other {
    name: String,
    listen: String,
    process: Process,
}

impl Fleet {
    /// Enrols and starts a controller and agents, one a rack, but no worker. `settings` is the text of a configuration file.
    pub fn start(directory: &Path, database_url: &str, fileservers: usize, settings: &str) -> Self {
        let file = directory.join("trued.toml");
        write_shipped(directory);
        let repairs = directory.join("repairs");
        let settings = format!("{settings}\n[repairs]\ndirectory = \"{}\"\n", repairs.display());
        std::fs::write(&file, settings).expect("written");
        let listen = format!("127.0.0.1:{}", free_port());
        let mut fleet = Self {
            directory: directory.to_owned(),
            database_url: database_url.to_owned(),
            url: format!("http://{listen}"),
            controller: None,
            workers: Vec::new(),
            agents: Vec::new(),
            routers: Vec::new(),
            environment: Vec::new(),
            addresses: Vec::new(),
            flags: Vec::new(),
            listen,
            settings: file,
            others: Vec::new(),
        };
        fleet.on_database(&["migrate"]);
        let enrolment = fleet.on_database(&["part", "add", "controller", "ctl-1"]);
        std::fs::write(directory.join("ctl-1.json"), enrolment).expect("written");
        let enrolment = fleet.on_database(&["part", "add", "worker", "wrk-1"]);
        std::fs::write(directory.join("wrk-1.json"), enrolment).expect("written");
        fleet.start_controller();
        for n in 1..=fileservers {
            fleet.add_agent(n);
        }
        fleet.all_online();
        fleet
    }

    /// Starts the controller (again).
    pub fn start_controller(&mut self) {
        let mut command = self.part("serve", "ctl-1.json");
        command.args(["--listen", &self.listen]);
        self.controller = Some(Process::start(&mut command));
        until("the controller answers", secs(60), || {
            let output = self.run(&["status"]);
            let unreachable = output.status.code() == Some(5);
            if unreachable { Err(String::from_utf8_lossy(&output.stderr).into_owned()) } else { Ok(()) }
        });
    }

    /// Starts a worker.
    pub fn start_worker(&mut self) {
        let mut command = self.part("worker", "wrk-1.json");
        self.workers.push(Process::start(&mut command));
    }

    /// Enrols and starts a router, and says where it and its pages are. `before`: what its command line begins with.
    pub fn add_router(&mut self, name: &str, before: &[&str]) -> (String, String) {
        let enrolment = self.on_database(&["part", "add", "router", name]);
        std::fs::write(self.directory.join(format!("{name}.json")), enrolment).expect("written");
        let (listen, pages) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
        let part = self.part("router", &format!("{name}.json"));
        let mut command = Command::new(before.first().map_or(part.get_program(), |first| first.as_ref()));
        command.args(before.iter().skip(1));
        if !before.is_empty() {
            command.arg(part.get_program());
        }
        command.args(part.get_args()).args(["--listen", &listen]).env("TRUED_ROUTER__PAGES", &pages);
        let environment = part.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(environment).env_remove("TRUED_URL");
        let mut process = Process::start(&mut command);
        process.hears("ready", secs(60));
        self.routers.push(process);
        (listen, pages)
    }

    /// Enrols and starts one more controller.
    pub fn add_controller(&mut self, name: &str) {
        let enrolment = self.on_database(&["part", "add", "controller", name]);
        std::fs::write(self.directory.join(format!("{name}.json")), enrolment).expect("written");
        let listen = format!("127.0.0.1:{}", free_port());
        let process = self.other(name, &listen);
        self.others.push(Other { name: name.to_owned(), listen, process });
    }

    fn other(&self, name: &str, listen: &str) -> Process {
        let mut command = self.part("serve", &format!("{name}.json"));
        Process::start(command.args(["--listen", listen]))
    }

    /// `kill -9` and a new start: 0 is the first controller, the others follow.
    pub fn kill_controller(&mut self, n: usize) {
        if n == 0 {
            self.controller.as_mut().expect("running").kill();
            let mut command = self.part("serve", "ctl-1.json");
            self.controller = Some(Process::start(command.args(["--listen", &self.listen])));
            return;
        }
        let (name, listen) = (self.others[n - 1].name.clone(), self.others[n - 1].listen.clone());
        self.others[n - 1].process.kill();
        self.others[n - 1].process = self.other(&name, &listen);
    }

    /// `kill -9` and a new start.
    pub fn kill_worker(&mut self, n: usize) {
        self.workers[n].kill();
        let mut command = self.part("worker", "wrk-1.json");
        self.workers[n] = Process::start(&mut command);
    }

    /// The copies of a repository; none when the API did not answer.
    pub fn copies_if_answered(&self, name: &str) -> Vec<Copy> {
        let output = self.run(&["repo", "show", name, "-o", "json"]);
        serde_json::from_slice(&output.stdout).map(|shown| copies(&shown)).unwrap_or_default()
    }

    fn part(&self, role: &str, enrolment: &str) -> Command {
        let mut command = trued();
        command.env("TRUED_TEST_POINTS", self.points());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.arg("--config").arg(&self.settings).arg(role);
        command
            .args(["--database-url", &self.database_url, "--enrolment"])
            .arg(self.directory.join(enrolment));
        command
    }

    /// With a capacity, so that it is no matter how full the disk of this machine is.
    fn add_agent(&mut self, n: usize) {
        self.add_agent_in(n, n, "100GiB".to_owned());
    }

    /// Adds fileserver `fs-N` in a rack, with so many bytes, and starts its agent.
    pub fn add_agent_in(&mut self, n: usize, rack: usize, capacity: String) {
        self.add(n, &format!("rack-{rack}"), &["--capacity".to_owned(), capacity]);
    }

    fn add(&mut self, n: usize, rack: &str, flags: &[String]) {
        let (name, port) = (format!("fs-{n}"), free_port());
        let address = format!("127.0.0.1:{port}");
        let output = trued()
            .env("TRUED_URL", &self.url)
            .args(["fileserver", "add", &name, "--rack", rack, "--url", &format!("http://{address}")])
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let enrolment = output.stdout;
        let file = self.directory.join(format!("{name}.json"));
        std::fs::write(&file, enrolment).expect("written");
        self.addresses.push(address);
        self.flags.push(flags.to_vec());
        self.agents.push(self.agent(n));
    }

    /// The file with the name of the point at which a process is to end.
    pub fn points(&self) -> PathBuf {
        self.directory.join("points")
    }

    /// Starts agents and workers again that are gone.
    pub fn revive(&mut self) {
        for n in 1..=self.agents.len() {
            if self.agents[n - 1].is_gone() {
                self.agents[n - 1] = self.agent(n);
            }
        }
        self.workers.retain_mut(|worker| !worker.is_gone());
        if self.workers.is_empty() {
            self.start_worker();
        }
    }

    fn agent(&self, n: usize) -> Process {
        let (name, address) = (format!("fs-{n}"), &self.addresses[n - 1]);
        let mut command = trued();
        command.env("TRUED_TEST_POINTS", self.points());
        command.arg("agent").arg("--enrolment").arg(self.directory.join(format!("{name}.json")));
        command
            .arg("--root")
            .arg(self.directory.join(&name))
            .args(["--listen", address])
            .args(&self.flags[n - 1]);
        Process::start(&mut command)
    }

    /// Kills an agent and starts it again, at the same address.
    pub fn restart_agent(&mut self, n: usize) {
        self.agents[n - 1].kill();
        self.agents[n - 1] = self.agent(n);
    }

    /// Where an agent listens.
    pub fn address(&self, n: usize) -> &str {
        &self.addresses[n - 1]
    }

    /// Waits until all are online and count.
    pub fn all_online(&self) {
        until("all fileservers are online and count", secs(60), || {
            let listed = self.json(&["fileserver", "list"]);
            let all = listed["fileservers"].as_array().expect("fileservers");
            let good = all.iter().all(|one| one["health"] == "online" && one["counts"] == true);
            if good { Ok(()) } else { Err(format!("{listed:#}")) }
        });
    }

    /// Runs a command against the API.
    pub fn run(&self, arguments: &[&str]) -> Output {
        trued().args(["--url", &self.url]).args(arguments).output().expect("the program runs")
    }

    /// What a command says, whatever it ends with.
    pub fn done_or_open(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that must succeed.
    pub fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(
            output.status.success(),
            "trued {arguments:?}: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.said()
        );
        String::from_utf8(output.stdout).expect("text")
    }

    fn on_database(&self, arguments: &[&str]) -> String {
        let output =
            trued().args(arguments).args(["--database-url", &self.database_url]).output().expect("runs");
        assert!(output.status.success(), "trued {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command and reads its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let output = self.run(&all);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("trued {all:?}: {error}\n{}", String::from_utf8_lossy(&output.stderr))
        })
    }

    /// The copies of a repository.
    pub fn copies(&self, name: &str) -> Vec<Copy> {
        copies(&self.json(&["repo", "show", name]))
    }

    /// Waits until every goal is met by an evaluation that began after now.
    pub fn met(&self, within: u64) {
        let asked = trued::clock::now();
        until("every goal is met", secs(within), || {
            goals_met_since(&self.json(&["status"]), asked).map_err(|last| format!("{last}\n{}", self.said()))
        });
    }

    /// What controller and workers said.
    pub fn said(&self) -> String {
        let mut said = String::new();
        for process in self.controller.iter().chain(&self.workers).chain(&self.routers) {
            said.push_str(&process.said());
            said.push_str("\n---\n");
        }
        said
    }
}

/// Repairs of the fleet's own, so that a test may change them.
fn write_shipped(directory: &Path) {
    trued::repair::library::write_shipped(&directory.join("repairs")).expect("repairs are written");
}

/// A port that nothing listens on just now, from a range apart from the one that the kernel gives out.
pub fn free_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = u16::try_from(std::process::id() % 40).expect("small") * 200 + 20_000;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % 200;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
