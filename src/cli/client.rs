//! The API, as the commands ask it.

use super::args::Global;
use super::failure::{Exit, Failure};
use crate::http::problem::Problem;
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest that a body may take with its answer: a repository of many gigabytes.
const STREAMING: Duration = Duration::from_hours(12);
/// Longest wait for an answer: a goal's evaluation may take its timeout.
const PATIENCE: Duration = Duration::from_mins(1);

/// What `trued up` writes into its data directory for the commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpFile {
    /// Address of the API.
    pub url: String,
    /// The process.
    pub pid: u32,
}

impl UpFile {
    /// Where it is below a data directory.
    #[must_use]
    pub fn path(data: &Path) -> PathBuf {
        data.join("up.json")
    }
}

/// A client of one API.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

impl Client {
    /// The API that `--url` or the data directory names.
    ///
    /// # Errors
    /// When neither does.
    pub fn new(global: &Global) -> anyhow::Result<Self> {
        let text = match &global.url {
            Some(url) => url.clone(),
            None => from_data(&global.data)?,
        };
        let no_address = || {
            let failure = Failure::usage(format!("{text:?} is not an address such as http://127.0.0.1:7080"));
            if text.contains("://") { failure } else { failure.hint(format!("http://{text} may be meant")) }
        };
        let mut base: Url = text.parse().map_err(|_| no_address())?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(no_address().into());
        }
        base.set_path("/api/v1/");
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(Duration::from_secs(5))
            .no_proxy()
            // A command makes a few calls, far apart at times: each has a connection of its own, which nobody closes
            // just as it goes out.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { http, base })
    }

    /// Asks: path parts are escaped, a query may follow.
    ///
    /// # Errors
    /// When nobody answers, or the answer is no.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        self.send(self.http.request(Method::GET, self.address(path)?).query(query)).await
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<T> {
        self.send(self.http.request(Method::POST, self.address(path)?).json(body)).await
    }

    /// Asks for a setting.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn put<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<T> {
        self.send(self.http.request(Method::PUT, self.address(path)?).json(body)).await
    }

    /// Streams bytes and asks about them.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn ask_about<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        bytes: Vec<u8>,
    ) -> anyhow::Result<T> {
        self.stream(path, query, bytes.into()).await
    }

    /// The same with a body that comes bit by bit.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn stream<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        bytes: reqwest::Body,
    ) -> anyhow::Result<T> {
        let request = self.http.request(Method::POST, self.address(path)?).query(query).timeout(STREAMING);
        let kind = (reqwest::header::CONTENT_TYPE, "application/octet-stream");
        self.send(request.header(kind.0, kind.1).body(bytes)).await
    }

    fn address(&self, path: &[&str]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::usage("the address has no path"))?
            .pop_if_empty()
            .extend(path);
        Ok(url)
    }

    async fn send<T: DeserializeOwned>(&self, request: reqwest::RequestBuilder) -> anyhow::Result<T> {
        let answer = request.send().await.map_err(|error| self.silent(&error))?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(|error| self.silent(&error))?;
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|error| {
                Failure::new(Exit::Failed, format!("{} answered what cannot be read: {error}", self.base))
                    .into()
            });
        }
        Err(match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => failure(problem),
            Err(_) => Failure::new(
                Exit::Failed,
                format!("{}: {status}: {}", self.base, String::from_utf8_lossy(&bytes).trim()),
            ),
        }
        .into())
    }

    fn silent(&self, error: &reqwest::Error) -> Failure {
        let (host, port) = (self.base.host_str().unwrap_or_default(), self.base.port_or_known_default());
        let at = format!("{host}:{}", port.unwrap_or_default());
        if error.is_timeout() && !error.is_connect() {
            let message = format!("{at} did not answer within {PATIENCE:?}");
            return Failure::new(Exit::TimedOut, message);
        }
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Failure::new(Exit::Unreachable, format!("nobody answers at {at}: {cause}"))
            .hint("does `trued up` (or `trued serve`) run? another address is given with --url or TRUED_URL")
    }
}

fn from_data(data: &Path) -> anyhow::Result<String> {
    let path = UpFile::path(data);
    let Ok(text) = std::fs::read_to_string(&path) else {
        let why = if data.is_dir() { "" } else { ": there is no such directory" };
        return Err(Failure::new(Exit::Unreachable, format!("nothing runs in {}{why}", data.display()))
            .hint("start `trued up`, or name its directory with --data, or an API with --url")
            .into());
    };
    let file: UpFile = serde_json::from_str(&text)
        .map_err(|error| Failure::new(Exit::Failed, format!("{}: {error}", path.display())))?;
    Ok(file.url)
}

fn failure(problem: Problem) -> Failure {
    let exit = match problem.code.as_str() {
        "bad-request" | "not-found" => Exit::Usage,
        "unsafe" => Exit::Unsafe,
        "unavailable" => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Failure { exit, message: problem.message, hint: problem.hint }
}

#[cfg(test)]
mod tests {
    use super::super::args::{Log, Output};
    use super::super::failure::exit_of;
    use super::*;

    fn global(url: Option<&str>, data: &Path) -> Global {
        Global {
            url: url.map(ToOwned::to_owned),
            data: data.to_owned(),
            output: Output::Table,
            log_format: Log::Text,
            config: None,
        }
    }

    #[test]
    fn names_with_slashes_are_one_part_of_the_path() {
        let client = Client::new(&global(Some("http://127.0.0.1:1"), Path::new("."))).unwrap();
        let url = client.address(&["repositories", "group/repo"]).unwrap();
        assert_eq!(url.as_str(), "http://127.0.0.1:1/api/v1/repositories/group%2Frepo");
    }

    #[tokio::test]
    async fn nobody_there_is_exit_code_5_and_a_wrong_address_2() {
        let directory = tempfile::tempdir().unwrap();
        let error = Client::new(&global(None, directory.path())).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Unreachable);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let client = Client::new(&global(Some(&format!("http://{free}")), directory.path())).unwrap();
        let error = client.get::<serde_json::Value>(&["status"], &[]).await.unwrap_err();
        assert_eq!(exit_of(&error), Exit::Unreachable);
        let error = Client::new(&global(Some("ftp://x"), directory.path())).unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
    }
}
