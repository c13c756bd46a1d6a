//! Pushes as a router makes them: over a socket, with real packs, to a repository that was imported.

mod ends;
mod fenced;
mod killed;
mod taken;

use super::*;
use crate::agent::PushSettings;
use crate::model::checksum::{Checksum, Target};
use crate::model::fleet::ObjectFormat;
use crate::model::push::{self, Listing};
use crate::model::wire::push::{
    Command as Change, FenceAnswer, FenceRequest, FinishAnswer, FinishRequest, IngestAnswer, IngestRequest,
    PrepareRequest, Ready, RefName, Vote,
};
use crate::model::wire::{ChecksumAnswer, ChecksumRequest, Identity, ImportAnswer, ImportRequest, Line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

/// An agent with one repository, and a work tree that it was imported from.
struct World {
    agent: Running,
    root: tempfile::TempDir,
    work: tempfile::TempDir,
    format: ObjectFormat,
}

/// The machine's git in the work tree; what it wrote.
fn git_in(work: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .current_dir(work)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn name(text: &str) -> RefName {
    RefName(text.as_bytes().to_vec())
}

fn change(reference: &str, old: Option<&str>, new: Option<&str>) -> Change {
    let target = |oid: &str| Target::Object(oid.to_owned());
    Change { name: name(reference), old: old.map(target), new: new.map(target) }
}

impl World {
    async fn new() -> Self {
        Self::with(ObjectFormat::Sha1, PushSettings::default()).await
    }

    async fn with(format: ObjectFormat, pushes: PushSettings) -> Self {
        let (root, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        git_in(work.path(), &["init", "--quiet", &format!("--object-format={format}")], b"");
        let agent = start(Options { pushes, ..options(root.path()) }).await;
        let world = Self { agent, root, work, format };
        world.commit("first");
        world.import().await;
        until(async || world.agent.status().await.inventory_complete.then_some(())).await;
        world
    }

    /// Stops the agent and starts another one in its root.
    async fn restart(self) -> Self {
        let Self { agent, root, work, format } = self;
        agent.stop().await;
        Self { agent: start(options(root.path())).await, root, work, format }
    }

    fn git(&self, arguments: &[&str], input: &[u8]) -> String {
        String::from_utf8(git_in(self.work.path(), arguments, input)).unwrap().trim().to_owned()
    }

    /// A commit on the work tree's branch, with a file of its own.
    fn commit(&self, file: &str) -> String {
        std::fs::write(self.work.path().join(file), format!("{file}\n").repeat(200)).unwrap();
        self.git(&["add", "."], b"");
        self.git(&["commit", "--quiet", "-m", file], b"");
        self.tip()
    }

    fn tip(&self) -> String {
        self.git(&["rev-parse", "HEAD"], b"")
    }

    /// A pack of what `new` has and `old` does not.
    fn pack(&self, new: &str, old: &str, arguments: &[&str]) -> Vec<u8> {
        let input = if old.is_empty() { format!("{new}\n") } else { format!("{new}\n^{old}\n") };
        let fixed = [&["pack-objects", "--revs", "--stdout", "-q"], arguments].concat();
        git_in(self.work.path(), &fixed, input.as_bytes())
    }

    async fn import(&self) {
        let grant = grant(Role::Controller, Action::Import, Some(ID), "alpha");
        let path = format!("/v1/repositories/{ID}/import/pack?object_format={}", self.format);
        let pack = self.pack(&self.tip(), "", &[]);
        let answer = self.send(Method::PUT, &path, &grant, pack).await;
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
        let ask = ImportRequest {
            identity: Identity {
                repository: ID,
                name: "a/b".into(),
                object_format: self.format,
                wanted: 1,
                version: 1,
            },
            head: Target::Symbolic("refs/heads/main".into()),
            references: STANDARD
                .encode(format!("HEAD ref:refs/heads/main\n{} refs/heads/main\n", self.tip())),
        };
        let path = format!("/v1/repositories/{ID}/import");
        let _: ImportAnswer = self.post(&path, &grant, &ask).await.unwrap();
    }

    async fn send(&self, method: Method, path: &str, grant: &Grant, body: Vec<u8>) -> reqwest::Response {
        reqwest::Client::new()
            .request(method, format!("{}{path}", self.agent.url))
            .header(GRANT_HEADER, grant.sign(&key(&grant.part)))
            .body(body)
            .send()
            .await
            .unwrap()
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        grant: &Grant,
        ask: &impl Serialize,
    ) -> Result<T, Refusal> {
        let answer = self.send(Method::POST, path, grant, serde_json::to_vec(ask).unwrap()).await;
        if answer.status().is_success() {
            Ok(answer.json().await.unwrap())
        } else {
            Err(answer.json().await.unwrap())
        }
    }

    /// Announces commands.
    async fn begin(&self, commands: &[Change]) -> String {
        let ask = IngestRequest { commands: commands.to_vec(), most_bytes: 0 };
        self.begin_as(&ask).await
    }

    async fn begin_as(&self, ask: &IngestRequest) -> String {
        let answer: IngestAnswer =
            self.post(&format!("/v1/repositories/{ID}/pushes"), &pusher(None), ask).await.unwrap();
        answer.ingest
    }

    /// Streams a pack.
    async fn stream(&self, ingest: &str, pack: Vec<u8>) -> Result<Ready, Refusal> {
        let path = format!("/v1/repositories/{ID}/pushes/{ingest}/pack");
        let answer = self.send(Method::PUT, &path, &pusher(None), pack).await;
        if !answer.status().is_success() {
            return Err(answer.json().await.unwrap());
        }
        let text = answer.text().await.unwrap();
        match serde_json::from_str(text.lines().last().unwrap()).unwrap() {
            Line::Done(ready) => Ok(ready),
            Line::Error(refusal) => Err(refusal),
            Line::Progress(_) => panic!("broken off: {text}"),
        }
    }

    /// Announces and streams.
    async fn ready(&self, commands: &[Change], pack: Vec<u8>) -> (String, Ready) {
        let ingest = self.begin(commands).await;
        let ready = self.stream(&ingest, pack).await.unwrap();
        (ingest, ready)
    }

    async fn prepare(&self, ingest: &str, epoch: i64, commands: &[Change]) -> Result<Vote, Refusal> {
        let ask = PrepareRequest { base_version: epoch, commands: commands.to_vec() };
        let path = format!("/v1/repositories/{ID}/pushes/{ingest}/prepare");
        self.post(&path, &pusher(Some(epoch)), &ask).await
    }

    async fn finish(&self, ingest: &str, epoch: i64, commit: bool) -> Result<FinishAnswer, Refusal> {
        let path = format!("/v1/repositories/{ID}/pushes/{ingest}/finish");
        self.post(&path, &pusher(Some(epoch)), &FinishRequest { commit }).await
    }

    /// A whole push whose base version is its epoch.
    async fn push(&self, epoch: i64, commands: &[Change], pack: Vec<u8>) -> FinishAnswer {
        let (ingest, ready) = self.ready(commands, pack).await;
        assert_eq!(ready.unfit, []);
        let before = self.listing().await;
        let vote = self.prepare(&ingest, epoch, commands).await.unwrap();
        assert_eq!(vote.before, self.sum(&before));
        let mut then = before;
        then.apply(commands);
        assert_eq!(vote.after, self.sum(&then), "the vote says what will be");
        assert_eq!(Some(vote.after), push::after(&checksum_key(), &vote.before, commands));
        let done = self.finish(&ingest, epoch, true).await.unwrap();
        assert!(done.committed && done.checksum == vote.after && done.bytes > 0, "{done:?}");
        assert_eq!(self.listing().await, then);
        done
    }

    async fn fence(&self, settler: i64, epoch: i64) -> Result<FenceAnswer, Refusal> {
        let grant = Grant { epoch: Some(settler), ..grant(Role::Router, Action::Settle, Some(ID), "alpha") };
        self.post(&format!("/v1/repositories/{ID}/fence"), &grant, &FenceRequest { epoch }).await
    }

    async fn listing(&self) -> Listing {
        let grant = grant(Role::Router, Action::Read, Some(ID), "alpha");
        let answer = self.agent.ask(Method::GET, "/v1/repositories/7/references", &grant, "").await;
        Listing::parse(&answer.bytes().await.unwrap(), self.format).unwrap()
    }

    async fn version(&self) -> i64 {
        self.checksum().await.journal_version
    }

    async fn checksum(&self) -> ChecksumAnswer {
        let grant = grant(Role::Worker, Action::Verify, Some(ID), "alpha");
        self.post(&format!("/v1/repositories/{ID}/checksum"), &grant, &ChecksumRequest::default())
            .await
            .unwrap()
    }

    fn sum(&self, listing: &Listing) -> Checksum {
        listing.checksum(&checksum_key(), self.format)
    }

    fn layout(&self) -> Layout {
        Layout::new(self.root.path())
    }

    fn place(&self) -> PathBuf {
        self.layout().repository(ID)
    }

    /// Nothing is left of pushes: no directory in staging, no lock, nothing written down as prepared.
    fn assert_tidy(&self) {
        let staged: Vec<_> = std::fs::read_dir(self.layout().staging()).unwrap().flatten().collect();
        assert!(staged.is_empty(), "{staged:?}");
        let prepared = std::fs::read_dir(self.layout().prepared_pushes()).into_iter().flatten().flatten();
        assert_eq!(prepared.count(), 0);
        let locks = locks(&self.place());
        assert!(locks.is_empty(), "{locks:?}");
    }

    /// The copy is whole, for git as well.
    fn assert_whole(&self) {
        let here = format!("--git-dir={}", self.place().display());
        self.git(&[&here, "fsck", "--full", "--strict"], b"");
    }
}

fn locks(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|ending| ending == "lock") {
            found.push(path);
        }
    }
    found
}

fn checksum_key() -> crate::model::checksum::ChecksumKey {
    enrolment("fleet", "alpha").checksum_key.unwrap()
}

fn pusher(epoch: Option<i64>) -> Grant {
    Grant { epoch, ..grant(Role::Router, Action::Push, Some(ID), "alpha") }
}
