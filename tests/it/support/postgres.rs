//! PostgreSQL servers of the test's own: started, stopped, paused, copied as standbys, promoted.

use super::fleet::free_port;
use super::process::Process;
use super::{secs, until};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One server: its directory, and its process while it runs.
pub struct Server {
    pub port: u16,
    data: PathBuf,
    settings: Vec<String>,
    process: Option<Process>,
}

/// The directory with the newest server's programs; none: no server is installed.
fn programs() -> Option<PathBuf> {
    let mut found: Vec<_> =
        std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(|one| Some(one.ok()?.path())).collect();
    found.sort_by_key(|path| path.file_name().and_then(|name| name.to_string_lossy().parse::<u32>().ok()));
    found.into_iter().rev().map(|path| path.join("bin")).find(|path| path.join("initdb").is_file())
}

/// The server refuses to run as the superuser: then it runs as the user of the system's own, or as nobody.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("users");
    let ids = |name: &str| {
        let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut words = line.split(':').skip(2);
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    ids("postgres").or_else(|| ids("nobody"))
}

fn program(name: &str) -> Command {
    let mut command = Command::new(programs().expect("a server is installed").join(name));
    command.stdin(Stdio::null()).current_dir("/");
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    command
}

/// Runs a program of the server's that must succeed.
fn done(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A directory that the server's user owns.
fn owned(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir_all(directory).expect("a directory");
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).expect("changed");
    if let Some((user, group)) = unprivileged() {
        std::os::unix::fs::chown(directory, Some(user), Some(group)).expect("given away");
    }
}

impl Server {
    /// A new cluster below a directory, started; none where no server is installed.
    pub fn start(directory: &Path, settings: &[&str]) -> Option<Self> {
        programs()?;
        open_to_all(directory);
        let data = directory.join("primary");
        owned(&data);
        done(program("initdb").arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "--auth=trust",
        ]));
        allow_replication(&data);
        let settings = settings.iter().map(|one| (*one).to_owned()).collect();
        let mut server = Self { port: free_port(), data, settings, process: None };
        server.again();
        server.ask("postgres", "CREATE DATABASE trued");
        Some(server)
    }

    /// A standby of this server, started on a port of its own.
    pub fn standby(&self, directory: &Path, settings: &[&str]) -> Self {
        let data = directory.join("standby");
        owned(&data);
        done(program("pg_basebackup").arg("-D").arg(&data).args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            "postgres",
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
        ]));
        let settings = settings.iter().map(|one| (*one).to_owned()).collect();
        let mut standby = Self { port: free_port(), data, settings, process: None };
        standby.again();
        standby
    }

    /// Starts it (again) and waits until it answers.
    pub fn again(&mut self) {
        let mut command = program("postgres");
        command.arg("-D").arg(&self.data).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_connections=200",
            "wal_level=replica",
        ]
        .into_iter()
        .chain(self.settings.iter().map(String::as_str))
        {
            command.args(["-c", setting]);
        }
        self.process = Some(Process::start(&mut command));
        let port = self.port.to_string();
        until("postgres answers", secs(60), || {
            let ready = program("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            if ready.is_ok_and(|status| status.success()) { Ok(()) } else { Err(self.said()) }
        });
    }

    fn said(&self) -> String {
        self.process.as_ref().map(Process::said).unwrap_or_default()
    }

    /// Ends it at once, sessions and all, and waits for its end.
    pub fn stop(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.signal("INT");
        process.ends(secs(30));
    }

    /// Stops all its processes, as a machine that hangs; or lets them go on.
    pub fn pause(&self, paused: bool) {
        let leader = self.process.as_ref().expect("it runs").pid();
        let signal = if paused { "STOP" } else { "CONT" };
        let sessions = Command::new("pgrep").args(["-P", &leader.to_string()]).output().expect("pgrep runs");
        let sessions = String::from_utf8_lossy(&sessions.stdout).into_owned();
        super::process::signal(leader, signal);
        for pid in sessions.lines().filter_map(|line| line.parse().ok()) {
            let _ = Command::new("kill").args([&format!("-{signal}"), &i32::to_string(&pid)]).status();
        }
    }

    /// Makes a standby the server to write to.
    pub fn promote(&self) {
        done(program("pg_ctl").arg("promote").arg("-w").arg("-D").arg(&self.data));
    }

    /// Writes a file into its directory, as only it may read.
    pub fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.data.join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
        if let Some((user, group)) = unprivileged() {
            std::os::unix::fs::chown(&path, Some(user), Some(group)).expect("given away");
        }
    }

    /// Another program, as the user that the server runs as.
    pub fn beside(line: &[&str]) -> Process {
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).current_dir("/");
        if let Some((user, group)) = unprivileged() {
            command.uid(user).gid(group);
        }
        Process::start(&mut command)
    }

    /// For `--database-url`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/trued", self.port)
    }

    /// Runs statements, and returns what the last one said.
    pub fn ask(&self, database: &str, statement: &str) -> String {
        let url = format!("postgres://postgres@127.0.0.1:{}/{database}", self.port);
        let output = Command::new("psql")
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &url, "-c", statement])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// The server's user must reach what is below.
fn open_to_all(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).expect("changed");
}

fn allow_replication(data: &Path) {
    let file = data.join("pg_hba.conf");
    let mut text = std::fs::read_to_string(&file).expect("it is there");
    text.push_str("host replication all 127.0.0.1/32 trust\n");
    std::fs::write(file, text).expect("written");
}

/// A proxy that adds a delay to every answer, while told to.
pub mod slow {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// Listens for as long as the test's process lives.
    pub struct Proxy {
        pub port: u16,
        delay_ms: Arc<AtomicU64>,
    }

    impl Proxy {
        /// A proxy before a port of this machine, without delay at first.
        pub fn before(to: u16) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let delay_ms = Arc::new(AtomicU64::new(0));
            let delay = Arc::clone(&delay_ms);
            std::thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else {
                        continue;
                    };
                    let none = Arc::new(AtomicU64::new(0));
                    std::thread::spawn(move || pass_on(client, server_too, &none));
                    let delay = Arc::clone(&delay);
                    std::thread::spawn(move || pass_on(server, client_too, &delay));
                }
            });
            Self { port, delay_ms }
        }

        pub fn delay(&self, millis: u64) {
            self.delay_ms.store(millis, Ordering::Relaxed);
        }
    }

    fn pass_on(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length) = from.read(&mut buffer) {
            let delay = delay_ms.load(Ordering::Relaxed);
            if delay > 0 {
                std::thread::sleep(Duration::from_millis(delay));
            }
            if length == 0 || to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
