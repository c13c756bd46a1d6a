//! Each git of this machine as a client, whatever its version. Agents run the first one on the PATH.

use crate::push::equal;
use crate::router::{client_by, clone_url};
use crate::support::secs;
use crate::support::source::{git, small};
use crate::support::up::Up;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// By version, where they are.
fn gits() -> BTreeMap<String, PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/local/bin".into()]);
    let version = |program: &Path| {
        let output = Command::new(program).arg("--version").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    places.map(|place| place.join("git")).filter_map(|program| Some((version(&program)?, program))).collect()
}

/// One of them, in a work tree.
struct Client<'a> {
    program: &'a Path,
    here: PathBuf,
}

impl Client<'_> {
    fn run(&self, arguments: &[&str]) -> Output {
        let someone = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"];
        client_by(self.program, secs(120), &self.here, &[&someone, arguments].concat())
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {words}", self.program.display());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn is_refused(&self, arguments: &[&str]) {
        assert!(!self.run(arguments).status.success(), "{} {arguments:?}", self.program.display());
    }
}

#[test]
fn every_git_of_this_machine_reads_and_pushes() {
    let up = Up::start(&["--fileservers", "3"]);
    let source = small(&up.sources(), "thing", 12);
    up.done(&["repo", "import", source.to_str().expect("text")]);
    let url = clone_url(&up, "thing");
    for (number, (version, program)) in gits().iter().enumerate() {
        println!("{version}: {}", program.display());
        let place = up.directory.path().join(format!("clients-{number}"));
        std::fs::create_dir(&place).expect("a directory");
        let outside = Client { program, here: place.clone() };
        for protocol in ["0", "1", "2"] {
            let option = format!("protocol.version={protocol}");
            outside.done(&["-c", &option, "clone", "-q", "--mirror", &url, &format!("v{protocol}")]);
        }
        outside.done(&["clone", "-q", "--depth", "2", &url, "shallow"]);
        let shallow = Client { program, here: place.join("shallow") };
        assert_eq!(shallow.done(&["rev-list", "--count", "HEAD"]), "2");
        shallow.done(&["fetch", "-q", "--unshallow"]);
        assert_eq!(shallow.done(&["rev-list", "--count", "HEAD"]), "12");
        outside.done(&["clone", "-q", "--filter=blob:none", &url, "partial"]);

        let client = Client { program, here: place.join("partial") };
        let name = |what: &str| format!("refs/heads/c{number}/{what}");
        client.done(&["commit", "-q", "--allow-empty", "-m", "one"]);
        client.done(&["push", "-q", "origin", &format!("HEAD:{}", name("one"))]);
        client.done(&["tag", "-a", &format!("t{number}"), "-m", "a tag"]);
        client.done(&["push", "-q", "origin", "--tags", "--push-option=ci.skip"]);
        client.done(&["commit", "-q", "--amend", "--allow-empty", "-m", "another"]);
        client.is_refused(&["push", "-q", "origin", &format!("HEAD:{}", name("one"))]);
        client.done(&["fetch", "-q"]);
        client.done(&["push", "-q", "--force-with-lease", "origin", &format!("HEAD:{}", name("one"))]);
        let many: Vec<String> = (0..300).map(|n| format!("HEAD:{}", name(&format!("many/{n}")))).collect();
        let mut push = vec!["push", "-q", "--atomic", "origin"];
        push.extend(many.iter().map(String::as_str));
        client.done(&push);
        let both = [format!("HEAD:{}", name("two")), format!("HEAD:{}", name("one/below"))];
        client.is_refused(&["push", "-q", "--atomic", "origin", &both[0], &both[1]]);
        client.done(&["push", "-q", "origin", &format!(":{}", name("many/7")), &both[0]]);
        let all = equal(&up, "thing", 3).expect("equal");
        let tip = git(&client.here, &["rev-parse", "HEAD"]);
        for what in ["one", "two", "many/0", "many/299"] {
            assert!(all.contains(&format!("{tip} {}", name(what))), "{version}: {what} in {all}");
        }
        assert!(
            !all.contains(&format!(" {} ", name("many/7"))) && !all.contains("below"),
            "{version}: {all}"
        );
        assert!(all.contains(&format!("refs/tags/t{number}")), "{version}: {all}");
    }
}
