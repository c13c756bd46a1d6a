//! Another agent, to read a repository from: its references, its list of files, their bytes, its git.
//!
//! It is shown the grant that came with the request. Small calls are tried three times; a file's stream that breaks
//! goes on from where it broke. What a peer says is checked before it is believed.

use super::disk;
use super::packs;
use super::references::References;
use crate::agent::store::{Source, Store};
use crate::model::fleet::ObjectFormat;
use crate::model::grant::GRANT_HEADER;
use crate::model::id::RepositoryId;
use crate::model::wire::{Manifest, ManifestFile, Refusal, RefusalCode};
use futures::StreamExt as _;
use reqwest::{Method, Response, StatusCode};
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

/// The longest silence of a peer.
const QUIET: Duration = Duration::from_secs(30);
/// The largest list of references or files that is taken.
const LIST_MOST: usize = 1024 * 1024 * 1024;
/// Tries of a small call, and tries of a file that bring nothing more.
const TRIES: u32 = 4;
/// Tries of one file altogether: each may bring a little.
const TRIES_ALTOGETHER: u32 = 100;
/// Object files in one copy.
const FILES_MOST: usize = 5_000_000;

/// One source, for one piece of work.
pub(super) struct Peer<'a> {
    http: &'a reqwest::Client,
    source: &'a Source,
    cancel: &'a CancellationToken,
}

impl<'a> Peer<'a> {
    /// The source of this work.
    pub(super) fn new(store: &'a Store, source: &'a Source, cancel: &'a CancellationToken) -> Self {
        Self { http: &store.http, source, cancel }
    }

    /// Its fileserver's name.
    pub(super) fn name(&self) -> &str {
        &self.source.name
    }

    /// Where its git answers.
    pub(super) fn git_url(&self, id: RepositoryId) -> String {
        self.url(id, "git")
    }

    /// The header that shows the grant to its git.
    pub(super) fn grant_line(&self) -> String {
        format!("{GRANT_HEADER}: {}", self.source.grant)
    }

    /// Its HEAD and references.
    pub(super) async fn references(
        &self,
        id: RepositoryId,
        format: ObjectFormat,
    ) -> Result<References, Refusal> {
        let text = self.body(Method::GET, &self.url(id, "references")).await?;
        let parsed = disk::blocking(move || Ok(References::parse(&text, format))).await?;
        parsed.map_err(|what| self.failed(&what))
    }

    /// The files of a first copy, held against deletion. Paths that no copy may have are refused.
    pub(super) async fn hold(&self, id: RepositoryId, format: ObjectFormat) -> Result<Manifest, Refusal> {
        let text = self.body(Method::POST, &self.url(id, "hold")).await?;
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| self.failed(&format!("its list of files cannot be read: {error}")))?;
        if manifest.object_format != format {
            return Err(
                self.failed(&format!("its objects are named by {}, not {format}", manifest.object_format))
            );
        }
        if manifest.files.len() > FILES_MOST {
            return Err(self.failed(&format!("it lists more than {FILES_MOST} files")));
        }
        let bad = manifest.files.iter().find(|file| !packs::is_object_path(&file.path) || file.bytes < 0);
        match bad {
            Some(bad) => Err(self.failed(&format!("its list of files has {:?}", bad.path))),
            None => Ok(manifest),
        }
    }

    /// Ends a hold. Nothing is lost if that fails: it ends by itself.
    pub(super) async fn release(&self, id: RepositoryId, hold: &str) {
        let _ = self.send(Method::DELETE, &self.url(id, &format!("hold/{hold}")), 0).await;
    }

    /// Streams one file to its place in a copy, synced, from where an earlier try had come; `took` is told of bytes and
    /// may wait.
    pub(super) async fn file<F: Future<Output = ()>>(
        &self,
        id: RepositoryId,
        file: &ManifestFile,
        copy: &Path,
        took: impl Fn(usize) -> F,
    ) -> Result<(), Refusal> {
        let path = copy.join(&file.path);
        let parent = path.parent().unwrap_or(copy);
        let unwritten = |error: std::io::Error| disk::refusal("cannot write", &path, &error);
        tokio::fs::create_dir_all(parent).await.map_err(unwritten)?;
        let mut to = tokio::fs::OpenOptions::new();
        let mut to = to.create(true).append(true).open(&path).await.map_err(unwritten)?;
        let size = u64::try_from(file.bytes).unwrap_or(0);
        let mut have = to.metadata().await.map_err(unwritten)?.len();
        let (mut tries, mut all) = (0, 0);
        while have != size {
            let before = have;
            all += 1;
            let broke = self.stream(id, file, &mut to, &mut have, &took).await?;
            if have == size {
                break;
            }
            tries = if have > before { 0 } else { tries + 1 };
            if have > size || tries >= TRIES || all >= TRIES_ALTOGETHER {
                return Err(self.failed(&format!("{}: {broke} after {have} of {size} bytes", file.path)));
            }
            self.pause(tries).await?;
        }
        to.flush().await.map_err(unwritten)?;
        to.sync_all().await.map_err(unwritten)
    }

    /// One try: goes on from `have`; says how the stream ended.
    async fn stream<F: Future<Output = ()>>(
        &self,
        id: RepositoryId,
        file: &ManifestFile,
        to: &mut tokio::fs::File,
        have: &mut u64,
        took: &impl Fn(usize) -> F,
    ) -> Result<String, Refusal> {
        let answer = match self.send(Method::GET, &self.url(id, &format!("files/{}", file.path)), *have).await
        {
            Ok(answer) => answer,
            Err(Broke::Final(refusal)) => return Err(refusal),
            Err(Broke::Again(why)) => return Ok(why),
        };
        if *have > 0 && answer.status() != StatusCode::PARTIAL_CONTENT {
            return Err(self.failed(&format!("{}: it cannot go on from the middle of a file", file.path)));
        }
        let size = u64::try_from(file.bytes).unwrap_or(0);
        let mut stream = answer.bytes_stream();
        loop {
            let next = self.patiently(stream.next()).await?;
            let chunk = match next {
                None => return Ok("its stream went silent".to_owned()),
                Some(None) => return Ok("its stream ended".to_owned()),
                Some(Some(Err(error))) => return Ok(chain(&error)),
                Some(Some(Ok(chunk))) => chunk,
            };
            *have += chunk.len() as u64;
            if *have > size {
                return Ok("it sent more than it listed".to_owned());
            }
            let unwritten = |error| disk::refusal("cannot write", Path::new(&file.path), &error);
            to.write_all(&chunk).await.map_err(unwritten)?;
            // What is told of has reached the file: a later attempt goes on from it.
            to.flush().await.map_err(unwritten)?;
            took(chunk.len()).await;
        }
    }

    async fn body(&self, method: Method, url: &str) -> Result<Vec<u8>, Refusal> {
        let mut tries = 1;
        loop {
            match self.try_body(method.clone(), url).await {
                Ok(body) => return Ok(body),
                Err(Broke::Final(refusal)) => return Err(refusal),
                Err(Broke::Again(why)) if tries >= TRIES => return Err(self.failed(&why)),
                Err(Broke::Again(_)) => self.pause(tries).await?,
            }
            tries += 1;
        }
    }

    async fn try_body(&self, method: Method, url: &str) -> Result<Vec<u8>, Broke> {
        let answer = self.send(method, url, 0).await?;
        let mut stream = answer.bytes_stream();
        let mut body = Vec::new();
        loop {
            match self.patiently(stream.next()).await? {
                None => return Err(Broke::Again("its answer went silent".to_owned())),
                Some(None) => return Ok(body),
                Some(Some(Err(error))) => return Err(Broke::Again(chain(&error))),
                Some(Some(Ok(chunk))) if body.len() + chunk.len() > LIST_MOST => {
                    return Err(self.failed("its answer is larger than is taken").into());
                }
                Some(Some(Ok(chunk))) => body.extend_from_slice(&chunk),
            }
        }
    }

    async fn send(&self, method: Method, url: &str, from: u64) -> Result<Response, Broke> {
        let mut request = self.http.request(method, url).header(GRANT_HEADER, &self.source.grant);
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let answer = match self.patiently(request.send()).await? {
            None => return Err(Broke::Again("it did not answer".to_owned())),
            Some(Err(error)) => return Err(Broke::Again(chain(&error))),
            Some(Ok(answer)) => answer,
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let text = self.patiently(answer.bytes()).await?.and_then(Result::ok).unwrap_or_default();
        let refusal: Option<Refusal> = serde_json::from_slice(&text).ok();
        match refusal {
            Some(refusal) if refusal.code == RefusalCode::Busy => Err(Broke::Again(refusal.message)),
            Some(refusal) => Err(self.failed(&refusal.to_string()).into()),
            None => Err(self.failed(&format!("it answered {status}")).into()),
        }
    }

    /// Waits for a peer's next sign, for a while and unless cancelled. `None`: it was silent.
    async fn patiently<T>(&self, sign: impl Future<Output = T>) -> Result<Option<T>, Refusal> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(cancelled()),
            sign = tokio::time::timeout(QUIET, sign) => Ok(sign.ok()),
        }
    }

    async fn pause(&self, tries: u32) -> Result<(), Refusal> {
        let pause = Duration::from_millis(100 << tries.min(5));
        tokio::select! {
            () = self.cancel.cancelled() => Err(cancelled()),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    fn url(&self, id: RepositoryId, rest: &str) -> String {
        format!("{}/v1/repositories/{id}/{rest}", self.source.url.trim_end_matches('/'))
    }

    fn failed(&self, what: &str) -> Refusal {
        Refusal::new(RefusalCode::SourceFailed, format!("source {}: {what}", self.source.name))
    }
}

/// How a try ended that brought nothing: for good, or perhaps not.
enum Broke {
    Final(Refusal),
    Again(String),
}

impl From<Refusal> for Broke {
    fn from(refusal: Refusal) -> Self {
        Self::Final(refusal)
    }
}

/// The refusal of work that was cancelled.
pub(super) fn cancelled() -> Refusal {
    Refusal::new(RefusalCode::Cancelled, "the work was cancelled")
}

/// An error with what it came from: the outermost alone says only that a request failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
