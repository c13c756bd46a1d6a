//! Two agents over sockets: an import, a first copy from a peer, damage, a repair, a verification.

use super::*;
use crate::model::checksum::{Checksum, Target};
use crate::model::fleet::ObjectFormat;
use crate::model::wire::{
    ChecksumRequest, CopyAnswer, Identity, ImportAnswer, ImportRequest, Line, ReplicateRequest,
    ResyncRequest, VerifyAnswer,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use std::path::PathBuf;

struct Fleet {
    alpha: Running,
    beta: Running,
    root: tempfile::TempDir,
}

impl Fleet {
    async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let named = |name: &str| {
            let mut options = options(&root.path().join(name));
            options.enrolment = enrolment("fleet", name);
            options
        };
        let (alpha, beta) = (start(named("alpha")).await, start(named("beta")).await);
        Self { alpha, beta, root }
    }

    async fn stop(self) {
        self.alpha.stop().await;
        self.beta.stop().await;
    }

    /// The copy on beta.
    fn copy(&self) -> PathBuf {
        Layout::new(self.root.path().join("beta")).repository(ID)
    }

    fn to_beta(&self, action: Action, epoch: i64) -> Grant {
        let source = Some(End { name: "alpha".into(), url: self.alpha.url.clone() });
        Grant { source, epoch: Some(epoch), ..grant(Role::Worker, action, Some(ID), "beta") }
    }

    async fn verify(&self, epoch: i64) -> VerifyAnswer {
        let ask = ChecksumRequest { fence: None };
        long_work(&self.beta, "verify", &self.to_beta(Action::Verify, epoch), &ask).await
    }

    async fn entry(&self) -> crate::model::wire::InventoryEntry {
        let grant = grant(Role::Controller, Action::Observe, None, "beta");
        let page: InventoryPage =
            self.beta.ask(Method::GET, "/v1/inventory", &grant, "").await.json().await.unwrap();
        page.entries.into_iter().next().unwrap()
    }

    /// Imports a repository that git made to alpha, and says its checksum.
    async fn import(&self) -> Checksum {
        let origin = self.root.path().join("origin.git");
        make_repository(&origin);
        let import = grant(Role::Controller, Action::Import, Some(ID), "alpha");
        let pack = std::fs::read_dir(origin.join("objects/pack")).unwrap();
        let pack =
            pack.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "pack").unwrap();
        let put = reqwest::Client::new()
            .put(format!("{}/v1/repositories/{ID}/import/pack?object_format=sha1", self.alpha.url))
            .header(GRANT_HEADER, import.sign(&key(&import.part)))
            .body(std::fs::read(pack).unwrap());
        let answer = put.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
        let here = format!("--git-dir={}", origin.display());
        let tip = Command::new("git").args([&here, "rev-parse", "main"]).output().unwrap().stdout;
        let tip = String::from_utf8(tip).unwrap();
        let tip = tip.trim();
        let references = format!("HEAD ref:refs/heads/main\n{tip} refs/heads/loose\n{tip} refs/heads/main\n");
        let ask = ImportRequest {
            identity: identity(),
            head: Target::Symbolic("refs/heads/main".into()),
            references: STANDARD.encode(references),
        };
        let body = serde_json::to_string(&ask).unwrap();
        let answer = self.alpha.ask(Method::POST, "/v1/repositories/7/import", &import, &body).await;
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
        answer.json::<ImportAnswer>().await.unwrap().checksum
    }
}

fn identity() -> Identity {
    Identity { repository: ID, name: "a/b".into(), object_format: ObjectFormat::Sha1, wanted: 2, version: 1 }
}

/// Long work's answer.
async fn long_work<T: serde::de::DeserializeOwned>(
    agent: &Running,
    work: &str,
    grant: &Grant,
    ask: &impl Serialize,
) -> T {
    let body = serde_json::to_string(ask).unwrap();
    let answer = agent.ask(Method::POST, &format!("/v1/repositories/7/{work}"), grant, &body).await;
    let text = answer.text().await.unwrap();
    match serde_json::from_str(text.lines().last().unwrap()).unwrap() {
        Line::Done(answer) => answer,
        Line::Error(refusal) => panic!("{work}: {refusal}"),
        Line::Progress(_) => panic!("{work} was broken off: {text}"),
    }
}

#[tokio::test]
async fn a_copy_is_made_damaged_found_and_mended() {
    let fleet = Fleet::start().await;
    let definitive = fleet.import().await;

    let ask = ReplicateRequest { identity: identity(), bytes_per_second: 0 };
    let made: CopyAnswer = long_work(&fleet.beta, "replicate", &fleet.to_beta(Action::Repair, 1), &ask).await;
    assert_eq!(made.checksum, definitive);
    let verified = fleet.verify(2).await;
    assert_eq!((verified.checksum, verified.problem), (Some(definitive), None));
    let whole = until(async || Some(fleet.entry().await).filter(|entry| entry.bytes > 0)).await;
    assert!(whole.present && !whole.changed, "the agent's own writes are not flagged: {whole:?}");

    std::fs::write(fleet.copy().join("refs/heads/stray"), "0123456789012345678901234567890123456789\n")
        .unwrap();
    let flagged = until(async || Some(fleet.entry().await).filter(|entry| entry.changed)).await;
    let verified = fleet.verify(3).await;
    assert!(verified.checksum != Some(definitive) && verified.generation >= flagged.generation);

    let ask = ResyncRequest { identity: identity(), fence: Some(4), bytes_per_second: 0, rebuild: false };
    let mended: CopyAnswer = long_work(&fleet.beta, "resync", &fleet.to_beta(Action::Repair, 4), &ask).await;
    assert_eq!(mended.checksum, definitive);
    assert_eq!(fleet.verify(5).await.checksum, Some(definitive));
    assert!(!fleet.entry().await.changed);

    std::fs::remove_dir_all(fleet.copy()).unwrap();
    until(async || Some(fleet.entry().await).filter(|entry| !entry.present)).await;
    let mended: CopyAnswer = long_work(&fleet.beta, "resync", &fleet.to_beta(Action::Repair, 6), &ask).await;
    assert_eq!(mended.checksum, definitive);
    assert!(fleet.entry().await.present);

    let late = fleet.to_beta(Action::Repair, 5);
    let body = serde_json::to_string(&ask).unwrap();
    let answer = fleet.beta.ask(Method::POST, "/v1/repositories/7/resync", &late, &body).await;
    assert_eq!(answer.json::<Refusal>().await.unwrap().code, RefusalCode::OldEpoch);
    fleet.stop().await;
}

#[tokio::test]
async fn a_read_that_fails_has_every_object_checked() {
    let fleet = Fleet::start().await;
    let definitive = fleet.import().await;
    let ask = ReplicateRequest { identity: identity(), bytes_per_second: 0 };
    let _: CopyAnswer = long_work(&fleet.beta, "replicate", &fleet.to_beta(Action::Repair, 1), &ask).await;
    // The pack becomes loose objects, and one that no reference names becomes empty.
    let (copy, aside) = (fleet.copy(), fleet.root.path().join("aside.pack"));
    let packs = copy.join("objects/pack");
    for file in std::fs::read_dir(&packs).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pack") {
            std::fs::rename(&path, &aside).unwrap();
        } else {
            std::fs::remove_file(&path).unwrap();
        }
    }
    let git = |arguments: &[&str], input: std::process::Stdio| {
        let here = format!("--git-dir={}", copy.display());
        let output = Command::new("git").arg(here).args(arguments).stdin(input).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["unpack-objects", "-q"], std::fs::File::open(&aside).unwrap().into());
    let tree = git(&["ls-tree", "main"], std::process::Stdio::null());
    let blob = tree.split_whitespace().nth(2).unwrap();
    let blob = copy.join(format!("objects/{}/{}", &blob[..2], &blob[2..]));
    std::fs::remove_file(&blob).unwrap();
    std::fs::write(&blob, "").unwrap();
    let seen = fleet.verify(2).await;
    assert!(seen.problem.is_none() && !seen.deep, "a verification alone does not see it");

    let read = grant(Role::Worker, Action::Read, Some(ID), "beta");
    let mut clone = Command::new("git");
    clone
        .args(["-c", &format!("http.extraHeader={GRANT_HEADER}: {}", read.sign(&key(&read.part)))])
        .args(["clone", "-q", "--bare", &format!("{}/v1/repositories/{ID}/git", fleet.beta.url)])
        .arg(fleet.root.path().join("clone.git"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    let failed = tokio::task::spawn_blocking(move || clone.output().unwrap());
    assert!(!failed.await.unwrap().status.success(), "the object is not there to be read");
    until(async || Some(fleet.entry().await).filter(|entry| entry.changed)).await;
    let seen = fleet.verify(3).await;
    assert!(seen.deep && seen.problem.is_some(), "{seen:?}");

    let ask = ResyncRequest { identity: identity(), fence: None, bytes_per_second: 0, rebuild: true };
    let mended: CopyAnswer = long_work(&fleet.beta, "resync", &fleet.to_beta(Action::Repair, 4), &ask).await;
    assert!(mended.rebuilt && mended.checksum == definitive);
    fleet.stop().await;
}
