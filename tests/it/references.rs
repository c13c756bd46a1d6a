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
    let file = std::fs::read_to_string(up.data().join("up.json")).expect("it runs");
    let running: Value = serde_json::from_str(&file).expect("JSON");
    let address = running["url"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body.as_bytes()).expect("sent");
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
fn an_empty_repository_that_is_there_is_filled_by_an_import_and_one_that_is_not_empty_is_left() {
    on_engines("filling", |up| {
        let source = small(&up.sources(), "thing", 12);
        git(&source, &["branch", "start", "v0"]);
        git(&source, &["symbolic-ref", "HEAD", "refs/heads/start"]);
        let path = source.to_str().expect("text");
        up.done(&["repo", "create", "thing"]);
        let planned = up.done(&["repo", "import", path, "--dry-run"]);
        assert!(planned.contains("if it is empty"), "{planned}");
        let filled = up.done(&["repo", "import", path]);
        assert!(filled.contains("filled thing (repository 1), which was empty: 3 copies"), "{filled}");
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
