//! HEAD and references, changed through the API: by the vote of the copies, and by old values.

use crate::push::equal;
use crate::router::{clone_url, done, on_engines};
use crate::support::source::{git, references, small};
use crate::support::up::Up;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

/// Status and body of an answer of the API.
fn post(up: &Up, path: &str, body: &Value) -> (u16, Value) {
    send(up, path, "application/json", body.to_string().as_bytes())
}

/// The same, once all of the body is sent.
fn send(up: &Up, path: &str, kind: &str, body: &[u8]) -> (u16, Value) {
    let file = std::fs::read_to_string(up.data().join("up.json")).expect("it runs");
    let running: Value = serde_json::from_str(&file).expect("JSON");
    let address = running["url"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (_, json) = text.split_once("\r\n\r\n").expect("a body");
    (status, serde_json::from_str(json).unwrap_or(Value::Null))
}

#[test]
fn head_and_references_are_changed_by_the_vote_of_the_copies() {
    on_engines("references", |up| {
        let source = small(&up.sources(), "thing", 3);
        up.done(&["repo", "import", source.to_str().expect("text")]);
        let url = clone_url(up, "thing");
        let tips = ["v0", "v1", "main"].map(|name| git(&source, &["rev-parse", name]));
        let path = "/api/v1/repositories/thing/references";
        let change = |name: &str, old: Option<&str>, new: Option<&str>| json!({ "name": name, "old": old, "new": new });

        let made = json!({ "changes": [
            change("refs/heads/made", None, Some(&tips[0])),
            change("refs/heads/second", None, Some("refs/heads/made")),
        ], "reason": "a test" });
        let (status, ended) = post(up, path, &made);
        assert_eq!(status, 200, "{ended:#}");
        assert!(
            ended["changes"].as_array().expect("changes").iter().all(|one| one["refused"].is_null()),
            "{ended:#}"
        );
        let moved = json!({ "changes": [change("refs/heads/made", Some(&tips[0]), Some(&tips[1]))] });
        assert_eq!(post(up, path, &moved).1["changes"][0]["refused"], Value::Null);
        let stale = json!({ "changes": [
            change("refs/heads/made", Some(&tips[0]), Some(&tips[2])),
            change("refs/heads/beside", None, Some(&tips[2])),
        ] });
        let (status, ended) = post(up, path, &stale);
        assert_eq!((status, &ended["changes"][0]["refused"]), (200, &json!("incorrect old value provided")));
        assert_eq!(ended["changes"][1]["refused"], "atomic push failure", "all or none");
        let (status, ended) =
            post(up, path, &json!({ "changes": [change("refs/heads/x", None, Some("main"))] }));
        assert!(
            status == 400 && ended["message"].as_str().is_some_and(|why| why.contains("\"main\"")),
            "{ended:#}"
        );

        let said = up.done(&["repo", "set-head", "thing", "made", "--reason", "a test"]);
        assert!(said.contains("refs/heads/made"), "{said}");
        let shown = done(&source, &["ls-remote", "-q", "--symref", &url, "HEAD"]);
        assert!(shown.contains("ref: refs/heads/made\tHEAD") && shown.contains(&tips[1]), "{shown}");
        for copy in up.copies("thing") {
            assert_eq!(git(&copy.path, &["symbolic-ref", "HEAD"]), "refs/heads/made", "{}", copy.fileserver);
        }
        let all = equal(up, "thing", 3).expect("equal");
        assert!(
            all.contains(&format!("{} refs/heads/made", tips[1])) && all.contains("refs/heads/second"),
            "{all}"
        );
        assert!(!all.contains("refs/heads/beside"), "{all}");
        up.met(60);
    });
}

#[test]
fn an_empty_repository_that_is_there_is_populated_by_an_import_and_one_that_is_not_empty_is_left() {
    on_engines("populating", |up| {
        let source = small(&up.sources(), "thing", 12);
        git(&source, &["branch", "start", "v0"]);
        git(&source, &["symbolic-ref", "HEAD", "refs/heads/start"]);
        let path = source.to_str().expect("text");
        up.done(&["repo", "create", "thing"]);
        let planned = up.done(&["repo", "import", path, "--dry-run"]);
        assert!(planned.contains("into the repository that is there, which is empty"), "{planned}");
        let populated = up.done(&["repo", "import", path]);
        assert!(
            populated.contains("populated thing (repository 1), which was empty: 3 copies"),
            "{populated}"
        );
        assert_eq!(equal(up, "thing", 3).expect("equal"), references(&source));
        assert!(up.done(&["repo", "import", path]).contains("passed over thing"));

        // What is pushed afterwards builds on it, and another content is not mixed in.
        let url = clone_url(up, "thing");
        done(&source, &["push", "-q", &url, "v3:refs/heads/more"]);
        let refused = up.run(&["repo", "import", path]);
        let words = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{words}");
        assert!(words.contains("already, with other content"), "{words}");
        assert!(equal(up, "thing", 3).expect("equal").contains("refs/heads/more"));

        // One that names objects otherwise is refused in words, before anything of its pack is sent, and by whoever
        // sends it nevertheless the words are read as well, however much it sends.
        let other = up.sources().join("other");
        done(&up.sources(), &["init", "-q", "--object-format=sha256", "other"]);
        done(
            &other,
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.org",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "one",
            ],
        );
        up.done(&["repo", "create", "other"]);
        let refused = up.run(&["repo", "import", other.to_str().expect("text")]);
        let words = String::from_utf8_lossy(&refused.stderr);
        assert!(words.contains("named by sha1, and not by sha256"), "{words}");
        let list = b"HEAD ref:refs/heads/main\n";
        let body = [&list[..], &vec![0; 64 << 20]].concat();
        for (name, format, why) in [
            ("thing", "sha1", "it is not empty"),
            ("other", "sha256", "other names objects by sha1, these are named by sha256"),
            ("nobody", "sha1", "nobody"),
        ] {
            let path = format!(
                "/api/v1/repositories/{name}/populate?object_format={format}&references={}",
                list.len()
            );
            let (status, answer) = send(up, &path, "application/octet-stream", &body);
            assert!((400..500).contains(&status), "{status} {answer}");
            assert!(answer.to_string().contains(why), "{answer}");
        }

        // Of a source that git cannot read to its end nothing comes.
        let broken = small(&up.sources(), "broken", 3);
        let packs = std::fs::read_dir(broken.join(".git/objects/pack")).expect("packs");
        let pack = packs
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "pack"));
        let pack = pack.expect("a pack");
        std::fs::set_permissions(&pack, std::fs::Permissions::from_mode(0o644)).expect("made writable");
        let file = std::fs::OpenOptions::new().write(true).open(&pack).expect("opened");
        file.set_len(file.metadata().expect("its size").len() / 2).expect("cut");
        up.done(&["repo", "create", "broken"]);
        let refused = up.run(&["repo", "import", broken.to_str().expect("text")]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(!equal(up, "broken", 3).expect("equal").contains("refs/tags/v0"));
        up.met(60);
    });
}
