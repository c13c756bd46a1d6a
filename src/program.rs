//! Running an operator's own programs: which may be run, and one from its start to the end of everything it started.

mod check;
mod output;

pub use check::checked;
pub use output::MOST;

use output::Tail;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

/// How long a group may take to end by itself after it was asked to.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long what is left in a pipe is waited for once its writer is gone.
const REST: Duration = Duration::from_millis(200);
/// The environment that a program keeps; everything else might be a secret.
const KEPT: &[&str] = &["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By itself.
    Exit(i32),
    /// By a signal that was not ours.
    Signal,
    /// At its deadline.
    Deadline,
    /// For writing without end.
    TooMuch,
}

/// What is left of a program.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub how: How,
    /// The last line of its output; of its errors, where there was none.
    pub said: String,
}

/// Runs a program to its end or its deadline. Dropped before that, everything is ended as well: `reaper` sees to it.
///
/// # Errors
/// In words, when it could not be started.
pub async fn run(
    program: &Path,
    arguments: &[String],
    input: &[u8],
    within: Duration,
    reaper: &TaskTracker,
) -> Result<Ended, String> {
    let mut group = Group::start(program, arguments, reaper)?;
    let (mut stdout, mut stderr) = (Tail::default(), Tail::default());
    let pipes =
        (group.child_mut()?.stdin.take(), group.child_mut()?.stdout.take(), group.child_mut()?.stderr.take());
    let how = {
        let talk = talk(pipes, input, &mut stdout, &mut stderr);
        let work = watch(group.child_mut()?, talk);
        tokio::time::timeout(within, work).await.unwrap_or(How::Deadline)
    };
    group.end().await;
    let mut said = stdout.last_line();
    if said.is_empty() {
        said = stderr.last_line();
    }
    Ok(Ended { how, said })
}

/// Waits for the program itself: a child of its may hold its pipes open for ever.
async fn watch(child: &mut Child, talk: impl Future<Output = bool>) -> How {
    tokio::pin!(talk);
    let mut talked = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            whole = &mut talk, if !talked => {
                if !whole {
                    return How::TooMuch;
                }
                talked = true;
            }
        }
    };
    if !talked {
        let _ = tokio::time::timeout(REST, talk).await;
    }
    status.ok().and_then(|status| status.code()).map_or(How::Signal, How::Exit)
}

type Pipes = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// Feeds it and hears it out; `false`: it wrote too much.
async fn talk(pipes: Pipes, input: &[u8], stdout: &mut Tail, stderr: &mut Tail) -> bool {
    let (Some(mut to), Some(mut out), Some(mut err)) = pipes else { return true };
    let feed = async {
        // One that does not read its input may be right: its exit says so.
        let _ = to.write_all(input).await;
        drop(to);
        Ok(())
    };
    let hear = async { if stdout.read(&mut out).await { Ok(()) } else { Err(()) } };
    let errors = async { if stderr.read(&mut err).await { Ok(()) } else { Err(()) } };
    tokio::try_join!(feed, hear, errors).is_ok()
}

/// A program and its process group; all of it is ended when this is dropped.
struct Group {
    child: Option<Child>,
    id: Option<Pid>,
    reaper: TaskTracker,
}

impl Group {
    fn start(program: &Path, arguments: &[String], reaper: &TaskTracker) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/").process_group(0);
        command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child =
            command.spawn().map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child: Some(child), id, reaper: reaper.clone() })
    }

    fn child_mut(&mut self) -> Result<&mut Child, String> {
        self.child.as_mut().ok_or_else(|| "its end was already awaited".to_owned())
    }

    async fn end(&mut self) {
        if let Some(child) = self.child.take() {
            end(child, self.id).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(self.reaper.spawn_on(end(child, self.id), &runtime)),
            // No runtime is left to wait in: at once and without patience.
            Err(_) => signal(self.id, Signal::KILL),
        }
    }
}

/// TERM, two seconds, KILL: the program and whoever is left of what it started.
async fn end(mut child: Child, group: Option<Pid>) {
    signal(group, Signal::TERM);
    let emptied = async {
        let _ = child.wait().await;
        emptied(group).await;
    };
    if tokio::time::timeout(PATIENCE, emptied).await.is_err() {
        signal(group, Signal::KILL);
        let _ = child.wait().await;
        let _ = tokio::time::timeout(PATIENCE, self::emptied(group)).await;
    }
}

/// Waits until nobody is left in the group.
async fn emptied(group: Option<Pid>) {
    let Some(group) = group else { return };
    while test_kill_process_group(group).is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // It fails only when nobody is left to hear it.
        let _ = kill_process_group(group, signal);
    }
}
