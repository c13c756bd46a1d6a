//! A database that went back in time: what the disks know is found, nothing of it is overwritten, a person decides.

use crate::push::{equal, work};
use crate::router::{client, clone_url, done, said};
use crate::support::source::{git, references, small};
use crate::support::up::Up;
use crate::support::{secs, until, until_or_tell};
use std::path::Path;

/// The database's files: SQLite keeps what was written last beside it.
const FILES: [&str; 3] = ["trued.db", "trued.db-wal", "trued.db-shm"];

fn stop(up: &mut Up) {
    up.process().signal("TERM");
    up.process().ends(secs(30));
}

/// Puts the files of one place where those of another are.
fn put(from: &Path, to: &Path) {
    for name in FILES {
        let _ = std::fs::remove_file(to.join(name));
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).expect("copied");
        }
    }
}

#[test]
fn a_restored_database_loses_no_push_and_overwrites_nothing() {
    let mut up = Up::start(&["--fileservers", "3"]);
    let sources = up.sources();
    for name in ["lost", "kept"] {
        let source = small(&sources, name, 3);
        up.done(&["repo", "import", source.to_str().expect("text")]);
    }
    let place = up.directory.path().join("clients");
    std::fs::create_dir(&place).expect("a directory");
    let here = work(&place, &clone_url(&up, "lost"), "before");
    done(&here, &["push", "-q", "origin", "before"]);
    up.met(60);

    stop(&mut up);
    let backup = up.directory.path().join("backup");
    std::fs::create_dir(&backup).expect("a directory");
    put(&up.data(), &backup);
    up.again();
    // Its address is another one now, and each push is an epoch that the backup does not know.
    done(&here, &["remote", "set-url", "origin", &clone_url(&up, "lost")]);
    for n in 0..5 {
        git(&here, &["commit", "-q", "--allow-empty", "-m", &format!("after {n}")]);
        done(&here, &["push", "-q", "origin", "before"]);
    }
    let tip = git(&here, &["rev-parse", "HEAD"]);
    let acknowledged = equal(&up, "lost", 3).expect("equal");
    assert!(acknowledged.contains(&tip), "{acknowledged}");
    stop(&mut up);
    put(&backup, &up.data());
    up.again();

    // Nobody pushes, and nobody asks: the disks are compared.
    until("HISTORY_LOST is raised", secs(60), || {
        let status = up.json(&["status"]);
        let details = status["health"]["details"].as_array().cloned().unwrap_or_default();
        let lost = details.iter().find(|one| one["code"] == "HISTORY_LOST");
        match lost.and_then(|one| one["sentence"].as_str()) {
            Some(sentence) if sentence.contains("lost") && !sentence.contains("kept") => Ok(()),
            _ => Err(format!("{status:#}")),
        }
    });
    let why = up.done(&["why", "lost"]);
    assert!(why.contains("which the database does not know"), "{why}");
    done(&here, &["remote", "set-url", "origin", &clone_url(&up, "lost")]);
    let refused = client(&here, &["push", "-q", "origin", "HEAD:refs/heads/late"]);
    assert!(!refused.status.success() && said(&refused).contains("HISTORY_LOST"), "{}", said(&refused));
    // The other repository goes on.
    let other = work(&place, &clone_url(&up, "kept"), "other");
    done(&other, &["push", "-q", "origin", "other"]);
    let copies = up.copies("lost");
    assert_eq!(copies.len(), 3);
    for copy in &copies {
        assert_eq!(references(&copy.path), acknowledged, "{copy:?}");
    }

    up.done(&["repo", "adopt", "lost", "--from", &copies[0].fileserver, "--reason", "a restore", "--yes"]);
    until_or_tell(
        "it is adopted",
        secs(60),
        || {
            let status = up.json(&["status"]);
            let lost = status["health"]["codes"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == "HISTORY_LOST"));
            if lost { Err(format!("{status:#}")) } else { Ok(()) }
        },
        || format!("{:#}", up.json(&["attempts"])),
    );
    done(&here, &["push", "-q", "origin", "HEAD:refs/heads/late"]);
    up.met(60);
    let all = equal(&up, "lost", 3).expect("equal");
    assert!(all.contains(&format!("{tip} refs/heads/before")), "{all}");
    assert!(all.contains(&format!("{tip} refs/heads/late")), "{all}");
}
