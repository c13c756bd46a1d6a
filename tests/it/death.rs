//! A fileserver dies: nothing before its grace, then its repositories get other copies; it returns and is left alone.

use crate::support::process::{signal, trued};
use crate::support::source::small;
use crate::support::up::Up;
use crate::support::{secs, until};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_dead_fileserver_is_replaced_after_its_grace_and_counts_again_when_it_returns() {
    let mut up = Up::start(&["--grace", "20s", "--no-respawn"]);
    for n in 0..6 {
        small(&up.sources(), &format!("r{n}"), 3);
    }
    up.done(&["repo", "import", up.sources().to_str().expect("text")]);
    up.met(60);
    let victim = up.copies("r0")[0].fileserver.clone();
    let (pid, command_line) = agent(up.process().pid(), &victim);

    signal(pid, "KILL");
    let died = Instant::now();
    health_becomes(&up, &victim, "offline", secs(15));
    while died.elapsed() < Duration::from_secs(18) {
        assert_eq!(up.copies("r0").len(), 3, "no copy is made before the grace");
        std::thread::sleep(Duration::from_millis(500));
    }
    until("every repository has three copies on others", secs(90), || {
        let lives = |name: &String| {
            up.copies(name)
                .iter()
                .filter(|copy| copy.fileserver != victim && copy.state == "live" && copy.in_sync)
                .count()
        };
        let short: Vec<_> = (0..6).map(|n| format!("r{n}")).filter(|name| lives(name) < 3).collect();
        if short.is_empty() { Ok(()) } else { Err(format!("{short:?}")) }
    });
    let before = up.copies("r0").len();

    let mut again = trued();
    again.args(command_line);
    let _agent = crate::support::process::Process::start(&mut again);
    health_becomes(&up, &victim, "online", secs(10));
    until("it counts again", secs(30), || {
        let listed = up.json(&["fileserver", "list"]);
        let all = listed["fileservers"].as_array().expect("fileservers");
        if all.iter().any(|one| one["name"] == victim.as_str() && one["counts"] == true) {
            Ok(())
        } else {
            Err(format!("{listed:#}"))
        }
    });
    up.met(60);
    assert_eq!(up.copies("r0").len(), before, "surplus copies are left alone");
}

#[test]
fn children_end_when_their_parent_is_killed_and_a_second_start_resumes() {
    let mut up = Up::start(&[]);
    small(&up.sources(), "kept", 3);
    up.done(&["repo", "import", up.sources().join("kept").to_str().expect("text")]);
    let pid = up.process().pid();
    let children: Vec<i32> = (1..=4).map(|n| agent(pid, &format!("fs-{n}")).0).collect();
    up.process().kill();
    until("all agents are gone", secs(10), || {
        let left: Vec<_> = children
            .iter()
            .filter(|pid| std::path::Path::new(&format!("/proc/{pid}/exe")).exists())
            .collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    up.again();
    up.met(60);
    assert_eq!(up.copies("kept").len(), 3);
    up.process().signal("TERM");
    let code = up.process().ends(secs(10));
    assert_eq!(code, Some(0), "{}", up.process().said());
}

fn health_becomes(up: &Up, name: &str, health: &str, within: Duration) {
    until(&format!("{name} is {health}"), within, || {
        let listed = up.json(&["fileserver", "list"]);
        let all = listed["fileservers"].as_array().expect("fileservers");
        if all.iter().any(|one| one["name"] == name && one["health"] == health) {
            Ok(())
        } else {
            Err(format!("{listed:#}"))
        }
    });
}

/// The agent of a fileserver below `up`: its process, and its command line as a person would type it.
fn agent(up: i32, name: &str) -> (i32, Vec<String>) {
    let found = Command::new("pgrep")
        .args(["-P", &up.to_string(), "-f", &format!("{name}(\\.json)?( |$)")])
        .output()
        .expect("pgrep runs");
    let pid = String::from_utf8_lossy(&found.stdout)
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .expect("an agent");
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("a command line");
    let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    (pid, words.skip(1).filter(|word| !word.is_empty() && word != "--until-stdin-closes").collect())
}
