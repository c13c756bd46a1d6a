//! Origins made with git itself, and fileservers that serve the read routes straight from this room's functions.

use crate::agent::content;
use crate::agent::git::Git;
use crate::agent::layout::Layout;
use crate::agent::store::{Source, Store, Work};
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::id::RepositoryId;
use crate::model::wire::{
    CopyAnswer, Identity, ImportAnswer, ImportRequest, Manifest, Refusal, RefusalCode, RepackAnswer,
    ReplicateRequest, ResyncRequest, VerifyAnswer,
};
use axum::body::{Body, Bytes};
use axum::extract::{Path as At, RawQuery, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::{delete, get, post};
use base64::Engine as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::sync::CancellationToken;

pub(super) const ID: RepositoryId = RepositoryId(0x1234);

/// Runs git on a repository, without the agent's rooms.
pub(super) fn git(at: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let (code, output, words) = try_git(at, arguments, input);
    assert_eq!(code, Some(0), "git {arguments:?}: {words}");
    output
}

pub(super) fn try_git(at: &Path, arguments: &[&str], input: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .current_dir(at)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_AUTHOR_DATE", "1000000000 +0000"),
        ])
        .envs([
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
            ("GIT_COMMITTER_DATE", "1000000000 +0000"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    (output.status.code(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn word(output: Vec<u8>) -> String {
    String::from_utf8(output).unwrap().trim().to_owned()
}

/// A repository outside of the fleet.
pub(super) struct Origin {
    _place: tempfile::TempDir,
    pub(super) path: PathBuf,
    pub(super) format: ObjectFormat,
}

impl Origin {
    pub(super) fn empty(format: ObjectFormat) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("origin.git");
        git(
            place.path(),
            &["init", "-q", "--bare", "-b", "main", &format!("--object-format={format}"), "origin.git"],
            b"",
        );
        Self { _place: place, path, format }
    }

    /// One with a short history on `main`.
    pub(super) fn new(format: ObjectFormat) -> Self {
        let origin = Self::empty(format);
        let first = origin.commit("one", None);
        let second = origin.commit("two", Some(&first));
        origin.reference("refs/heads/main", &second);
        origin.reference("refs/heads/old", &first);
        origin
    }

    pub(super) fn git(&self, arguments: &[&str], input: &[u8]) -> String {
        word(git(&self.path, arguments, input))
    }

    pub(super) fn blob(&self, content: &str) -> String {
        self.git(&["hash-object", "-w", "--stdin"], content.as_bytes())
    }

    pub(super) fn commit(&self, content: &str, parent: Option<&str>) -> String {
        let blob = self.blob(content);
        let tree = self.git(&["mktree"], format!("100644 blob {blob}\tfile\n").as_bytes());
        let message = &content[..content.len().min(40)];
        let mut arguments = vec!["commit-tree", "-m", message, &tree];
        arguments.extend(parent.iter().flat_map(|parent| ["-p", *parent]));
        self.git(&arguments, b"")
    }

    pub(super) fn reference(&self, name: &str, oid: &str) {
        self.git(&["update-ref", "--no-deref", name, oid], b"");
    }

    pub(super) fn symbolic(&self, name: &str, to: &str) {
        self.git(&["symbolic-ref", name, to], b"");
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        git(&self.path, &["pack-objects", "-q", "--all", "--stdout"], b"")
    }

    fn request(&self, version: i64) -> ImportRequest {
        let references = content::References::read(&self.path, self.format).unwrap();
        let head = references.head.clone();
        let text = base64::engine::general_purpose::STANDARD.encode(references.to_text());
        ImportRequest { identity: identity(self.format, version), head, references: text }
    }
}

pub(super) fn identity(object_format: ObjectFormat, version: i64) -> Identity {
    Identity { repository: ID, name: "a/b".to_owned(), object_format, wanted: 3, version }
}

/// What git and the files say of a repository: all references, HEAD, and symbolic references that point at nothing.
pub(super) fn picture(repository: &Path) -> String {
    let listed = git(repository, &["for-each-ref", "--format=%(objectname) %(refname) %(symref)"], b"");
    let head = std::fs::read_to_string(repository.join("HEAD")).unwrap();
    let found = Command::new("grep").args(["-rs", "^ref:", "refs"]).current_dir(repository).output().unwrap();
    let mut symbolic: Vec<_> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
    symbolic.sort();
    format!("{head}{}{}", listed.escape_ascii(), symbolic.join("\n"))
}

pub(super) fn assert_sound(repository: &Path) {
    let (code, _, words) = try_git(repository, &["fsck", "--connectivity-only"], b"");
    assert_eq!(code, Some(0), "{words}");
}

/// The copy is as sound as the origin: git also complains about symbolic references that point at nothing.
pub(super) fn assert_as_sound(repository: &Path, origin: &Path) {
    let [one, two] = [repository, origin].map(|at| try_git(at, &["fsck", "--connectivity-only"], b""));
    assert_eq!(one.0, two.0, "{}", one.2);
}

pub(super) fn work() -> Work {
    Work { cancel: CancellationToken::new(), progress: Arc::new(|_| {}) }
}

/// A fileserver: a root, and a server for peers.
pub(super) struct Fileserver {
    pub(super) root: tempfile::TempDir,
    pub(super) store: Arc<Store>,
    pub(super) url: String,
    /// So many more files break off in the middle.
    pub(super) cuts: Arc<AtomicI64>,
    _server: tokio::task::JoinSet<()>,
}

#[derive(Clone)]
struct Served {
    store: Arc<Store>,
    cuts: Arc<AtomicI64>,
}

impl Fileserver {
    pub(super) async fn start(name: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new(root.path());
        for directory in [layout.repositories(), layout.staging(), layout.quarantine(), layout.journal()] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let store = Arc::new(store(root.path(), name));
        let cuts = Arc::new(AtomicI64::new(0));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes(Served { store: Arc::clone(&store), cuts: Arc::clone(&cuts) });
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { root, store, url, cuts, _server: server }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.store.layout.repository(ID)
    }

    pub(super) fn source(&self) -> Source {
        Source { name: self.store.fileserver.clone(), url: self.url.clone(), grant: "grant".to_owned() }
    }

    pub(super) async fn import(&self, origin: &Origin) -> Result<ImportAnswer, Refusal> {
        let request = origin.request(1);
        if !git(&origin.path, &["for-each-ref"], b"").is_empty() || matches!(request.head, Target::Object(_))
        {
            content::import_pack(&self.store, ID, origin.format, &origin.pack()[..], &work()).await?;
        }
        content::import_finish(&self.store, ID, &request).await
    }

    pub(super) async fn replicate_from(&self, from: &Self) -> Result<CopyAnswer, Refusal> {
        let ask = ReplicateRequest { identity: from.identity(), bytes_per_second: 0 };
        content::replicate(&self.store, ID, &from.source(), &ask, &work()).await
    }

    pub(super) async fn resync_from(&self, from: &Self) -> Result<CopyAnswer, Refusal> {
        let ask =
            ResyncRequest { identity: from.identity(), fence: None, bytes_per_second: 0, rebuild: false };
        content::resync(&self.store, ID, &from.source(), &ask, &work()).await
    }

    pub(super) async fn verify(&self) -> VerifyAnswer {
        content::verify(&self.store, ID, &work()).await.unwrap()
    }

    pub(super) async fn scrub(&self) -> VerifyAnswer {
        content::scrub(&self.store, ID, &work()).await.unwrap()
    }

    pub(super) async fn repack(&self) -> RepackAnswer {
        content::repack(&self.store, ID, &work()).await.unwrap()
    }

    pub(super) fn identity(&self) -> Identity {
        content::identity::read(&self.store.layout.identity(ID)).unwrap()
    }

    pub(super) fn is_clean(&self) -> bool {
        std::fs::read_dir(self.store.layout.staging()).unwrap().next().is_none()
    }
}

fn store(root: &Path, name: &str) -> Store {
    let git = Git::find(root).unwrap();
    Store::new(Layout::new(root), git, &crate::agent::testing::enrolment("fleet", name), None).unwrap()
}

/// Two fileservers, the first of which has what the origin has, and the second a copy of that.
pub(super) async fn pair(origin: &Origin) -> (Fileserver, Fileserver) {
    let (one, two) = (Fileserver::start("fs1").await, Fileserver::start("fs2").await);
    one.import(origin).await.unwrap();
    two.replicate_from(&one).await.unwrap();
    (one, two)
}

fn routes(served: Served) -> axum::Router {
    axum::Router::new()
        .route("/v1/repositories/{id}/references", get(references))
        .route("/v1/repositories/{id}/hold", post(hold))
        .route("/v1/repositories/{id}/hold/{hold}", delete(release))
        .route("/v1/repositories/{id}/files/{*path}", get(file))
        .route("/v1/repositories/{id}/git/info/refs", get(advertise))
        .route("/v1/repositories/{id}/git/git-upload-pack", post(upload))
        .with_state(served)
}

type Answer = Result<Response<Body>, (StatusCode, axum::Json<Refusal>)>;

fn no(refusal: Refusal) -> (StatusCode, axum::Json<Refusal>) {
    (StatusCode::CONFLICT, axum::Json(refusal))
}

fn allowed(headers: &HeaderMap) -> Result<(), (StatusCode, axum::Json<Refusal>)> {
    if headers.get("trued-grant").is_some_and(|grant| grant == "grant") {
        return Ok(());
    }
    Err(no(Refusal::new(RefusalCode::Forbidden, "no grant")))
}

async fn references(State(served): State<Served>, At(id): At<i64>, headers: HeaderMap) -> Answer {
    allowed(&headers)?;
    let text = content::references(&served.store, RepositoryId(id)).await.map_err(no)?;
    Ok(Response::new(text.into()))
}

async fn hold(
    State(served): State<Served>,
    At(id): At<i64>,
    headers: HeaderMap,
) -> Result<axum::Json<Manifest>, (StatusCode, axum::Json<Refusal>)> {
    allowed(&headers)?;
    content::hold(&served.store, RepositoryId(id)).await.map(axum::Json).map_err(no)
}

async fn release(
    State(served): State<Served>,
    At((id, hold)): At<(i64, String)>,
    headers: HeaderMap,
) -> Answer {
    allowed(&headers)?;
    content::release(&served.store, RepositoryId(id), &hold).await.map_err(no)?;
    Ok(Response::new(Body::empty()))
}

async fn file(State(served): State<Served>, At((id, path)): At<(i64, String)>, headers: HeaderMap) -> Answer {
    allowed(&headers)?;
    let (mut file, size) = content::open_file(&served.store, RepositoryId(id), &path).await.map_err(no)?;
    let range = headers.get("range").map(|range| range.to_str().unwrap().to_owned());
    let from =
        range.map_or(0, |range| range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap());
    file.seek(std::io::SeekFrom::Start(from)).await.unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len() as u64, size - from);
    let mut parts: Vec<Result<Bytes, std::io::Error>> = vec![Ok(bytes.clone().into())];
    if bytes.len() > 1 && served.cuts.fetch_sub(1, Ordering::SeqCst) > 0 {
        let forever = served.cuts.load(Ordering::SeqCst) > 1_000_000;
        bytes.truncate(if forever { 0 } else { bytes.len() / 2 });
        parts = vec![Ok(bytes.into()), Err(std::io::Error::other("cut"))];
    }
    // A pause lets what was sent arrive before the connection breaks.
    let stream = futures::StreamExt::then(futures::stream::iter(parts), |part| async {
        if part.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        part
    });
    let status = if from > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    Ok(Response::builder().status(status).body(Body::from_stream(stream)).unwrap())
}

async fn upload_pack(
    served: &Served,
    id: i64,
    headers: &HeaderMap,
    more: &[&str],
    input: &[u8],
) -> Result<Vec<u8>, (StatusCode, axum::Json<Refusal>)> {
    let directory = content::directory(&served.store, RepositoryId(id)).await.map_err(no)?;
    let mut arguments = vec!["upload-pack".into(), "--strict".into(), "--stateless-rpc".into()];
    arguments.extend(more.iter().map(std::ffi::OsString::from));
    arguments.push(".".into());
    let protocol = headers.get("git-protocol").map_or("version=0", |value| value.to_str().unwrap());
    let command = served.store.git.command(Some(&directory), arguments).env("GIT_PROTOCOL", protocol.into());
    let answer =
        command.run(input, 1 << 28, Duration::from_mins(1), &CancellationToken::new()).await.unwrap();
    assert!(answer.ok(), "{}", answer.words());
    Ok(answer.stdout)
}

async fn advertise(
    State(served): State<Served>,
    At(id): At<i64>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    allowed(&headers)?;
    assert_eq!(query.as_deref(), Some("service=git-upload-pack"));
    assert_eq!(headers["git-protocol"], "version=2");
    let text = upload_pack(&served, id, &headers, &["--http-backend-info-refs"], b"").await?;
    let answer = Response::builder().header("content-type", "application/x-git-upload-pack-advertisement");
    Ok(answer.body(text.into()).unwrap())
}

async fn upload(State(served): State<Served>, At(id): At<i64>, headers: HeaderMap, body: Bytes) -> Answer {
    allowed(&headers)?;
    let body = if headers.contains_key("content-encoding") { inflate(&body) } else { body.to_vec() };
    let text = upload_pack(&served, id, &headers, &[], &body).await?;
    let answer = Response::builder().header("content-type", "application/x-git-upload-pack-result");
    Ok(answer.body(text.into()).unwrap())
}

fn inflate(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut child =
        Command::new("gzip").arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let body = body.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&body).unwrap());
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output.stdout
}

impl Fileserver {
    pub(super) async fn finish(&self, origin: &Origin) -> Result<ImportAnswer, Refusal> {
        content::import_finish(&self.store, ID, &origin.request(1)).await
    }

    pub(super) async fn stream(&self, format: ObjectFormat, pack: &[u8]) -> Result<(), Refusal> {
        content::import_pack(&self.store, ID, format, pack, &work()).await.map(drop)
    }

    pub(super) async fn import_as_is(&self, origin: &Origin) -> Result<ImportAnswer, Refusal> {
        self.stream(origin.format, &origin.pack()).await?;
        self.finish(origin).await
    }
}
