//! What a router adds: `ls-remote`, a clone and a push of one reference through a router, from an agent alone, and from
//! `git http-backend` behind nginx, in turn and in one run.
//!
//! `cargo bench --bench router [-- MEGABYTES ROUNDS]` (500 and 9). Needs `nginx` and `fcgiwrap`. A push through the
//! router goes to three copies; the plain one beside it is three pushes at once, to three repositories of their own on
//! the same disk. Prints medians and their ratios. The numbers worth keeping are in `docs/performance.md`.

use anyhow::{Context as _, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trued::model::grant::{Action, End, Enrolment, GRANT_HEADER, Grant};
use trued::model::id::RepositoryId;

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<usize>().ok());
    let (megabytes, rounds) = (numbers.next().unwrap_or(500), numbers.next().unwrap_or(9));
    let directory = tempfile::tempdir()?;
    let place = directory.path();
    let source = source(place, megabytes)?;
    let fleet = Fleet::start(place, &source)?;
    let nginx = Nginx::start(place, &source)?;
    let clients = Clients { place, fleet: &fleet, nginx: &nginx };
    println!("{megabytes} MB, 1,000 tags, {rounds} rounds; medians");
    clients.listing(rounds * 5)?;
    clients.clones(rounds)?;
    clients.pushes(rounds * 3)
}

/// Commits of noise, a tag for each, and tags on the last one.
fn source(place: &Path, megabytes: usize) -> anyhow::Result<PathBuf> {
    let path = place.join("source");
    std::fs::create_dir(&path)?;
    git(&path, &["init", "-q", "-b", "main"])?;
    let mut noise = vec![0_u8; 1 << 20];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..megabytes {
        for chunk in noise.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.copy_from_slice(&state.to_le_bytes());
        }
        std::fs::write(path.join(format!("noise-{number}")), &noise)?;
    }
    git(&path, &["add", "."])?;
    git(&path, &["commit", "-q", "-m", "noise"])?;
    let tip = git(&path, &["rev-parse", "HEAD"])?;
    let mut packed = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    for number in 0..1_000 {
        writeln!(packed, "{tip} refs/tags/t{number:04}")?;
    }
    std::fs::write(path.join(".git/packed-refs"), packed)?;
    git(&path, &["repack", "-q", "-a", "-d"])?;
    Ok(path)
}

/// One process that is ended with its group.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let command =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self(command.spawn().with_context(|| format!("{command:?} does not start"))?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// `trued up` with three copies, and how an agent alone is read.
struct Fleet {
    router: String,
    agent: String,
    /// What a client shows to it.
    header: String,
    _running: Running,
}

impl Fleet {
    fn start(place: &Path, source: &Path) -> anyhow::Result<Self> {
        let data = place.join("data");
        let mut up = trued();
        up.args(["up", "--fileservers", "3", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let running = Running::start(&mut up)?;
        let ask = |arguments: &[&str]| said(trued().arg("--data").arg(&data).args(arguments));
        eventually("the fleet takes a repository", || {
            data.join("up.json").exists() && ask(&["status"]).is_ok()
        })?;
        let source = source.to_str().context("a path in UTF-8")?;
        ask(&["repo", "import", source, "--name", "noise"])?;
        let shown: serde_json::Value = serde_json::from_str(&ask(&["repo", "show", "noise", "-o", "json"])?)?;
        let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned).context("a text");
        let (router, name) = (text(&shown["clone_url"])?, text(&shown["replicas"][0]["fileserver"])?);
        let id = shown["id"].as_i64().context("a number")?;
        let one: serde_json::Value =
            serde_json::from_str(&ask(&["fileserver", "show", &name, "-o", "json"])?)?;
        let end = End { name, url: text(&one["url"])? };
        let database = format!("sqlite:{}", data.join("trued.db").display());
        let part = said(trued().args(["part", "add", "router", "bench", "--database-url", &database]))?;
        let header = grant(&serde_json::from_str(&part)?, RepositoryId(id), &end)?;
        let agent = format!("{}/v1/repositories/{id}/git", end.url);
        eventually("the agent believes the new part", || {
            said(client(place, &header).args(["ls-remote", "-q", &agent])).is_ok()
        })?;
        Ok(Self { router, agent, header, _running: running })
    }
}

fn grant(enrolment: &Enrolment, id: RepositoryId, to: &End) -> anyhow::Result<String> {
    let grant = Grant {
        fleet: enrolment.fleet.clone(),
        part: enrolment.part.id.clone(),
        action: Action::Read,
        repository: Some(id),
        destination: to.clone(),
        source: None,
        epoch: None,
        expires_at: trued::clock::now() + 86_400_000,
    };
    let key = enrolment.signing_key().context("a key")?;
    Ok(format!("{GRANT_HEADER}: {}", grant.sign(&key)))
}

/// nginx before `git http-backend`, over four bare repositories.
struct Nginx {
    url: String,
    _running: [Running; 2],
}

impl Nginx {
    fn start(place: &Path, source: &Path) -> anyhow::Result<Self> {
        let root = place.join("plain");
        std::fs::create_dir(&root)?;
        for name in ["read", "one", "two", "three"] {
            let to = root.join(name);
            let (from, to) = (source.to_str().context("text")?, to.to_str().context("text")?);
            git(place, &["clone", "-q", "--mirror", "--no-local", from, to])?;
            git(&root.join(name), &["config", "http.receivepack", "true"])?;
        }
        let listen = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (socket, settings) = (place.join("fcgi.sock"), place.join("nginx.conf"));
        std::fs::write(&settings, configuration(place, &listen.to_string(), &socket)?)?;
        let mut wrap = Command::new("fcgiwrap");
        wrap.args(["-c", "4", "-s"]).arg(format!("unix:{}", socket.display()));
        let wrap = Running::start(&mut wrap)?;
        eventually("fcgiwrap listens", || socket.exists())?;
        let mut nginx = Command::new("/usr/sbin/nginx");
        nginx.arg("-p").arg(place).arg("-c").arg(&settings).args(["-g", "daemon off;"]);
        let nginx = Running::start(&mut nginx)?;
        eventually("nginx listens", || std::net::TcpStream::connect(listen).is_ok())?;
        Ok(Self { url: format!("http://{listen}"), _running: [nginx, wrap] })
    }

    fn repository(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }
}

fn configuration(place: &Path, listen: &str, socket: &Path) -> anyhow::Result<String> {
    let backend = format!("{}/git-http-backend", said(Command::new("git").arg("--exec-path"))?);
    let user = said(Command::new("id").args(["-u", "-n"]))?;
    let group = said(Command::new("id").args(["-g", "-n"]))?;
    let user = if user == "root" { format!("user {user} {group};") } else { String::new() };
    let (place, socket) = (place.display(), socket.display());
    Ok(format!(
        "{user} pid {place}/nginx.pid; error_log {place}/nginx.log; worker_processes 2; events {{}}
         http {{
           access_log off; client_max_body_size 0; tcp_nodelay on;
           client_body_temp_path {place}/t1; fastcgi_temp_path {place}/t2; proxy_temp_path {place}/t3;
           uwsgi_temp_path {place}/t4; scgi_temp_path {place}/t5;
           server {{ listen {listen}; location / {{
             fastcgi_pass unix:{socket}; fastcgi_buffering off; fastcgi_request_buffering off; fastcgi_read_timeout 600;
             fastcgi_param SCRIPT_FILENAME {backend}; fastcgi_param GIT_PROJECT_ROOT {place}/plain;
             fastcgi_param GIT_HTTP_EXPORT_ALL 1; fastcgi_param PATH_INFO $uri; fastcgi_param QUERY_STRING $query_string;
             fastcgi_param REQUEST_METHOD $request_method; fastcgi_param CONTENT_TYPE $content_type;
             fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param REMOTE_USER bench;
             fastcgi_param REMOTE_ADDR $remote_addr;
         }} }} }}"
    ))
}

/// Who asks.
struct Clients<'a> {
    place: &'a Path,
    fleet: &'a Fleet,
    nginx: &'a Nginx,
}

impl Clients<'_> {
    fn listing(&self, rounds: usize) -> anyhow::Result<()> {
        let list = |url: &str| {
            let mut command = client(self.place, &self.fleet.header);
            timed(|| said(command.args(["ls-remote", "-q", url])).map(drop))
        };
        let urls = [&self.fleet.router, &self.fleet.agent, &self.nginx.repository("read")].map(String::clone);
        let took = in_turn(rounds, 3, |which, _| list(&urls[which]))?;
        table("ls-remote", &["router", "agent alone", "http-backend"], &took);
        Ok(())
    }

    fn clones(&self, rounds: usize) -> anyhow::Result<()> {
        let to = self.place.join("clone");
        let clone = |url: &str| {
            let mut command = client(self.place, &self.fleet.header);
            let took = timed(|| said(command.args(["clone", "-q", "--bare", url]).arg(&to)).map(drop));
            std::fs::remove_dir_all(&to)?;
            took
        };
        let urls = [&self.fleet.router, &self.fleet.agent, &self.nginx.repository("read")].map(String::clone);
        let took = in_turn(rounds, 3, |which, _| clone(&urls[which]))?;
        table("clone", &["router", "agent alone", "http-backend"], &took);
        Ok(())
    }

    fn pushes(&self, rounds: usize) -> anyhow::Result<()> {
        let source = self.place.join("source");
        let three = ["one", "two", "three"].map(|name| self.nginx.repository(name));
        let took = in_turn(rounds, 3, |which, round| {
            let message = format!("{which} {round}");
            let commit = git(&source, &["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", &message])?;
            let change = format!("{commit}:refs/heads/b{which}-{round}");
            let to = match which {
                0 => std::slice::from_ref(&self.fleet.router),
                1 => &three[..],
                _ => &three[..1],
            };
            timed(|| at_once(&source, to, &change))
        })?;
        table("push", &["router, three copies", "http-backend, three at once", "http-backend, one"], &took);
        Ok(())
    }
}

/// Pushes to all of them at the same time.
fn at_once(source: &Path, to: &[String], change: &str) -> anyhow::Result<()> {
    let started: Result<Vec<Child>, _> = to
        .iter()
        .map(|url| {
            let mut command = client(source, "x-bench: 1");
            command.args(["push", "-q", url, change]).stderr(Stdio::null()).spawn()
        })
        .collect();
    for mut child in started? {
        ensure!(child.wait()?.success(), "a push failed");
    }
    Ok(())
}

/// Each one in turn, so often; the times by which one it was.
fn in_turn(
    rounds: usize,
    many: usize,
    mut once: impl FnMut(usize, usize) -> anyhow::Result<Duration>,
) -> anyhow::Result<Vec<Vec<Duration>>> {
    let mut took = vec![Vec::with_capacity(rounds); many];
    // The first one warms the disk's cache, and is not counted.
    for round in 0..=rounds {
        for (which, times) in took.iter_mut().enumerate() {
            let time = once(which, round)?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    Ok(took)
}

fn table(what: &str, names: &[&str], took: &[Vec<Duration>]) {
    let medians: Vec<f64> = took.iter().map(|times| median(times)).collect();
    for (name, time) in names.iter().zip(&medians) {
        let ratios =
            medians.iter().map(|other| format!("{:6.3}", time / other)).collect::<Vec<_>>().join(" ");
        println!("{what:10} {name:28} {:9.1} ms   against each: {ratios}", time * 1e3);
    }
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

fn timed(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

/// Asks again until it is so, for a minute.
fn eventually(what: &str, mut is: impl FnMut() -> bool) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_mins(1);
    while !is() {
        ensure!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn trued() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trued"));
    command.env_remove("TRUED_URL").env("NO_COLOR", "1");
    command
}

/// A git that shows a header with each request.
fn client(place: &Path, header: &str) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(place)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .args(["-c", "protocol.version=2", "-c", &format!("http.extraHeader={header}")])
        .stdin(Stdio::null());
    command
}

fn git(place: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = client(place, "x-bench: 1");
    said(command.args(["-c", "user.name=n", "-c", "user.email=e@localhost"]).args(arguments))
}

/// What a command writes; its own words where it fails.
fn said(command: &mut Command) -> anyhow::Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("{command:?} does not run"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {words}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
