//! Agents as child processes: started, watched, started again, and ended with their parent.
//!
//! Each child holds one end of a pipe as its standard input and ends when the other end is gone: so
//! it ends with its parent however that one dies. Children are process groups of their own: a
//! Ctrl-C at the terminal reaches the parent alone, which then ends them in order.

use super::fleet::Member;
use crate::shutdown::Shutdown;
use crate::telemetry::EVENT;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Waits before a dead child is started again: doubled up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A child that lived this long was well: the next wait is short again.
const WELL_AFTER: Duration = Duration::from_mins(1);

/// How long a child has to end before it is killed: longer than an agent waits for its own work.
const ENDS_WITHIN: Duration = Duration::from_millis(8_500);

/// A running agent, and the end of the pipe that keeps it so: waiting for a child would close it.
type Running = (Child, Option<ChildStdin>);

/// All agents of `trued up`.
#[derive(Debug, Clone)]
pub struct Children {
    members: Vec<Member>,
    respawn: bool,
    capacity: i64,
    strays: Vec<String>,
    pids: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Children {
    /// Agents to be started, each with so many bytes, and without these variables: their parent has said of them that
    /// they do nothing, once for all.
    #[must_use]
    pub fn new(members: Vec<Member>, respawn: bool, capacity: i64, strays: Vec<String>) -> Self {
        Self { members, respawn, capacity, strays, pids: Arc::default() }
    }

    /// Starts them all, each with a task that watches it.
    ///
    /// # Errors
    /// When the program cannot be started at all.
    pub fn start(&self, shutdown: &Shutdown) -> anyhow::Result<()> {
        for member in &self.members {
            let child = self.spawn(member)?;
            let (children, member, stop) = (self.clone(), member.clone(), shutdown.token());
            shutdown.spawn(async move { children.watch(&member, child, &stop).await });
        }
        Ok(())
    }

    /// A line for each, with what a person needs to find or kill it.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |member: &Member| {
            let pid = pids.get(&member.name).map_or("-".to_owned(), ToString::to_string);
            format!(
                "fileserver   {}  pid {pid}  http://127.0.0.1:{}  {}",
                member.name,
                member.port,
                member.root.display()
            )
        };
        self.members.iter().map(line).collect()
    }

    fn spawn(&self, member: &Member) -> anyhow::Result<Running> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let mut command = Command::new(program);
        for name in &self.strays {
            command.env_remove(name);
        }
        let mut child = command
            .args(self.arguments(member))
            .arg("--until-stdin-closes")
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting the agent of {}", member.name))?;
        if let Some(pid) = child.id() {
            self.pids.lock().unwrap_or_else(PoisonError::into_inner).insert(member.name.clone(), pid);
        }
        let pipe = child.stdin.take();
        Ok((child, pipe))
    }

    fn arguments(&self, member: &Member) -> Vec<String> {
        vec![
            "agent".to_owned(),
            "--enrolment".to_owned(),
            member.enrolment.display().to_string(),
            "--root".to_owned(),
            member.root.display().to_string(),
            "--listen".to_owned(),
            format!("127.0.0.1:{}", member.port),
            "--capacity".to_owned(),
            self.capacity.to_string(),
        ]
    }

    async fn watch(&self, member: &Member, running: Running, stop: &CancellationToken) {
        let (mut child, mut pipe) = running;
        let mut wait = FIRST_WAIT;
        loop {
            let started = Instant::now();
            let ended = tokio::select! {
                ended = child.wait() => ended,
                () = stop.cancelled() => return end(&mut child, pipe, &member.name).await,
            };
            let how = ended.map_or_else(|error| error.to_string(), describe);
            self.pids.lock().unwrap_or_else(PoisonError::into_inner).remove(&member.name);
            if !self.respawn {
                let by_hand = format!("trued {}", self.arguments(member).join(" "));
                tracing::warn!(target: EVENT, "the agent of {} {how}; by hand: {by_hand}", member.name);
                return;
            }
            if started.elapsed() > WELL_AFTER {
                wait = FIRST_WAIT;
            }
            tracing::warn!(target: EVENT, "the agent of {} {how}; it is started again in {wait:?}", member.name);
            (child, pipe) = loop {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => return,
                }
                wait = (wait * 2).min(LONGEST_WAIT);
                match self.spawn(member) {
                    Ok(running) => break running,
                    Err(error) => tracing::error!(target: EVENT, "{error:#}; next try in {wait:?}"),
                }
            };
        }
    }
}

/// Ends a child: its standard input is closed, and what does not end by that is killed.
async fn end(child: &mut Child, pipe: Option<ChildStdin>, name: &str) {
    drop(pipe);
    if tokio::time::timeout(ENDS_WITHIN, child.wait()).await.is_err() {
        tracing::warn!("the agent of {name} did not end in time and is killed");
        let _ = child.kill().await;
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was ended by signal {signal}"),
        (None, Some(code)) => format!("ended with exit code {code}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn how_a_child_ended_is_said_in_words() {
        assert_eq!(describe(ExitStatus::from_raw(9)), "was ended by signal 9");
        assert_eq!(describe(ExitStatus::from_raw(2 << 8)), "ended with exit code 2");
    }
}
