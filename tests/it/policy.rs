//! A judge of the operator's own reads what is pushed, before anything is changed.

use crate::push::{equal_copies, work};
use crate::router::{client, done, said};
use crate::support::engine::Engine;
use crate::support::fleet::Fleet;
use crate::support::source::{git, small};
use crate::support::{secs, until};
use std::os::unix::fs::PermissionsExt as _;

/// As in the documentation: git reads the pushed objects from where the policy is told, and a file is forbidden.
fn program() -> String {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/routers.md")).expect("the page");
    let (_, rest) = page.split_once("A program that forbids a file:").expect("the example");
    let (_, rest) = rest.split_once("```sh\n").expect("its beginning");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn a_policy_reads_what_is_pushed_and_nothing_is_changed_before_it_has_spoken() {
    let directory = tempfile::tempdir().expect("a directory");
    let judge = directory.path().join("judge");
    std::fs::write(&judge, program()).expect("written");
    std::fs::set_permissions(&judge, std::fs::Permissions::from_mode(0o755)).expect("made to run");
    let settings = format!(
        "[goals]\nschedule = \"*/5 * * * * *\"\n[router]\nanonymous_reads = true\nanonymous_writes = true\n\
         [push]\npolicy = \"{}\"\npolicy_objects = true\npolicy_timeout = \"30s\"\n",
        judge.display()
    );
    let engine = Engine::sqlite(directory.path());
    let mut fleet = Fleet::start(directory.path(), &engine.url, 3, &settings);
    fleet.start_worker();
    let sources = directory.path().join("sources");
    small(&sources, "thing", 3);
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    let (router, _) = fleet.add_router("rt-1", &[]);
    let clients = directory.path().join("clients");
    std::fs::create_dir(&clients).expect("a directory");
    let here = work(&clients, &format!("http://{router}/thing.git"), "good");
    done(&here, &["push", "-q", "origin", "good"]);
    let tip = git(&here, &["rev-parse", "HEAD"]);

    std::fs::write(here.join("id_rsa"), "not really").expect("written");
    git(&here, &["add", "."]);
    git(&here, &["commit", "-q", "-m", "a key"]);
    let refused = client(&here, &["push", "origin", "good"]);
    let words = said(&refused);
    assert!(
        !refused.status.success() && words.contains("a private key is not for the repository"),
        "{words}"
    );
    let all = equal_copies(&fleet.copies("thing"), 3).expect("equal");
    assert!(all.contains(&format!("{tip} refs/heads/good")), "{all}");
    // Nothing of the refused push is left where it was taken in.
    until("what was refused is gone", secs(30), || {
        let left: Vec<_> = fleet.copies("thing").iter().flat_map(|copy| staged(&copy.path)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    // Another push goes on, and nothing was found to be damaged by what was read beside it.
    git(&here, &["reset", "-q", "--hard", "HEAD~1"]);
    std::fs::write(here.join("more"), "fine").expect("written");
    git(&here, &["add", "."]);
    git(&here, &["commit", "-q", "-m", "more"]);
    done(&here, &["push", "-q", "origin", "good"]);
    fleet.met(60);
}

/// What is in the staging of the fileserver whose copy this is.
fn staged(copy: &std::path::Path) -> Vec<std::path::PathBuf> {
    let root = copy.ancestors().find(|place| place.join("staging").is_dir()).expect("a root");
    let left = std::fs::read_dir(root.join("staging")).expect("staging");
    left.flatten().map(|entry| entry.path()).collect()
}
