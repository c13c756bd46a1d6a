//! A Redis of the test's own, on a port of its own, that can be paused, filled, flushed and killed.

use super::process::Process;
use super::{secs, until};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// A place for a server, and the server while it runs.
pub struct Redis {
    pub port: u16,
    directory: tempfile::TempDir,
    server: Option<Process>,
}

impl Redis {
    /// A place, nothing started; none where no server is installed.
    pub fn place() -> Option<Self> {
        let installed = Command::new("redis-server").arg("--version").output().is_ok();
        installed.then(|| Self {
            port: super::fleet::free_port(),
            directory: tempfile::tempdir().expect("a directory"),
            server: None,
        })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it, empty, and waits until it answers.
    pub fn start(&mut self) {
        let mut command = Command::new("redis-server");
        let port = self.port.to_string();
        command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(self.directory.path());
        self.server = Some(Process::start(&mut command));
        until("redis answers", secs(20), || match self.ask("PING").as_deref() {
            Some("+PONG\r\n") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Starts it with TLS alone, the certificates of a directory, and a password.
    pub fn start_tls(&mut self, certificates: &std::path::Path, password: &str) {
        let mut command = Command::new("redis-server");
        let port = self.port.to_string();
        command.args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port, "--save", ""]);
        command
            .args(["--requirepass", password, "--tls-auth-clients", "no", "--dir"])
            .arg(self.directory.path());
        for (option, file) in [
            ("--tls-cert-file", "server.pem"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "ca.pem"),
        ] {
            command.arg(option).arg(certificates.join(file));
        }
        let mut server = Process::start(&mut command);
        server.hears("Ready to accept connections", secs(20));
        self.server = Some(server);
    }

    pub fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// A command without spaces in its words, and the answer's text; none: it did not answer.
    pub fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    /// A command that must be answered with OK.
    pub fn done(&self, command: &str) {
        assert_eq!(self.ask(command).as_deref(), Some("+OK\r\n"), "{command}");
    }
}
