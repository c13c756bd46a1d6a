//! Child processes that are killed with the test, whole group, whatever happens.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The program under test.
pub fn trued() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trued"));
    command.env_remove("TRUED_URL").env("NO_COLOR", "1");
    command
}

/// A process with everything it said.
pub struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it in a group of its own, collecting both outputs.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("the program starts");
        let said = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take(), &said);
        collect(child.stderr.take(), &said);
        Self { child, said }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Whether it has ended, however.
    pub fn is_gone(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Everything it said so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("no panic while held").clone()
    }

    /// Waits until it has said this.
    pub fn hears(&mut self, what: &str, within: Duration) {
        super::until(&format!("process says {what:?}"), within, || {
            let said = self.said();
            if said.contains(what) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("ended with {status} before it said {what:?}; it said:\n{said}");
            }
            Err(said)
        });
    }

    /// Sends a signal by name to the process alone, not its group.
    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for its end by itself.
    pub fn ends(&mut self, within: Duration) -> Option<i32> {
        let mut code = None;
        super::until("process ends", within, || match self.child.try_wait() {
            Ok(Some(status)) => {
                code = status.code();
                Ok(())
            }
            other => Err(format!("{other:?}")),
        });
        code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = rustix::process::Pid::from_raw(self.pid()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        self.kill();
    }
}

/// Sends a signal by name to one process.
pub fn signal(pid: i32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.is_ok_and(|status| status.success()), "kill -{name} {pid}");
}

#[allow(clippy::disallowed_methods, reason = "a reader thread that ends with its pipe")]
fn collect(from: Option<impl Read + Send + 'static>, said: &Arc<Mutex<String>>) {
    let Some(from) = from else { return };
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let mut said = said.lock().expect("no panic while held");
            said.push_str(&String::from_utf8_lossy(&line));
            said.push('\n');
        }
    });
}
