//! A client that is not git's own: dulwich clones, fetches and pushes through a router. Skipped where it is not
//! installed (`pip install dulwich`).

use crate::push::equal;
use crate::router::{clone_url, on_engines};
use crate::support::source::small;
use std::process::Command;

/// Clone, commit, push; then a second clone, a fetch of what came in between, and a deletion.
const PROGRAM: &str = r#"
import os, sys
from dulwich import porcelain
from dulwich.repo import Repo

url, place = sys.argv[1], sys.argv[2]

def commit(path, name):
    with open(os.path.join(path, name), "w") as file:
        file.write(name)
    porcelain.add(path, [os.path.join(path, name)])
    who = b"Someone <someone@example.org>"
    return porcelain.commit(path, message=name.encode(), author=who, committer=who)

one, two = os.path.join(place, "one"), os.path.join(place, "two")
porcelain.clone(url, one, errstream=open(os.devnull, "wb"))
porcelain.clone(url, two, errstream=open(os.devnull, "wb"))
first = commit(one, "first")
porcelain.push(one, url, b"HEAD:refs/heads/dulwich", outstream=open(os.devnull, "w"), errstream=open(os.devnull, "wb"))
fetched = porcelain.fetch(two, url, errstream=open(os.devnull, "wb"))
assert fetched.refs[b"refs/heads/dulwich"] == first, fetched.refs
assert first in Repo(two).object_store
porcelain.push(one, url, b"HEAD:refs/heads/gone", outstream=open(os.devnull, "w"), errstream=open(os.devnull, "wb"))
porcelain.push(one, url, b":refs/heads/gone", outstream=open(os.devnull, "w"), errstream=open(os.devnull, "wb"))
print(first.decode())
"#;

#[test]
fn a_client_that_is_not_gits_own_clones_fetches_and_pushes() {
    let found = Command::new("python3").args(["-c", "import dulwich"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        return eprintln!("skipped: dulwich is not installed");
    }
    on_engines("dulwich", |up| {
        let source = small(&up.sources(), "thing", 5);
        up.done(&["repo", "import", source.to_str().expect("text")]);
        let place = up.directory.path().join("clients");
        std::fs::create_dir(&place).expect("a directory");
        let url = clone_url(up, "thing");
        let output =
            Command::new("python3").args(["-c", PROGRAM, &url]).arg(&place).output().expect("python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tip = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let all = equal(up, "thing", 3).expect("equal");
        assert!(all.contains(&format!("{tip} refs/heads/dulwich")), "{all}");
        assert!(!all.contains("refs/heads/gone"), "{all}");
    });
}
