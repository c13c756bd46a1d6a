//! Git's own clients through a router: every way to read, dying and hanging fileservers, a database that is away, and
//! a router that sees nobody.

use crate::support::engine::{Engine, postgres_server};
use crate::support::fleet::Fleet;
use crate::support::postgres::Server;
use crate::support::process::signal;
use crate::support::source::{git, git_passes, many_references, references, small};
use crate::support::up::Up;
use crate::support::{secs, until};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Runs git as a client anywhere would, with nobody to ask for a password.
pub fn client(directory: &Path, arguments: &[&str]) -> Output {
    client_by(Path::new("git"), secs(120), directory, &[&["-c", "protocol.version=2"], arguments].concat())
}

/// As [`client`], by one of several gits, with the protocol that it prefers, and for so long at most.
pub fn client_by(program: &Path, within: Duration, directory: &Path, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .arg(within.as_secs().to_string())
        .arg(program)
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null())
        .output()
        .expect("git runs")
}

pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn done(directory: &Path, arguments: &[&str]) -> String {
    let output = client(directory, arguments);
    assert!(output.status.success(), "git {arguments:?}: {}", said(&output));
    said(&output)
}

/// Status line, headers and body of a page.
fn page(listen: &str, path: &str) -> String {
    let Ok(mut stream) = std::net::TcpStream::connect(listen) else { return String::new() };
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Runs a test on SQLite, and on PostgreSQL where there is one.
pub fn on_engines(name: &str, test: impl Fn(&Up)) {
    test(&Up::start(&[]));
    if let Some(server) = postgres_server() {
        let engine = Engine::postgres(&server, name);
        test(&Up::start(&["--database-url", &engine.url]));
    }
}

/// Where a repository is cloned from, as `repo show` says.
pub fn clone_url(up: &Up, name: &str) -> String {
    up.json(&["repo", "show", name])["clone_url"].as_str().expect("an address").to_owned()
}

#[test]
fn git_reads_through_a_router_in_every_way_it_knows() {
    on_engines("router_reads", |up| {
        let sources = up.sources();
        let source = small(&sources, "plain", 12);
        many_references(&sources, "many.git", 1_500);
        let sha256 = sources.join("long");
        std::fs::create_dir(&sha256).expect("a directory");
        git(&sha256, &["init", "-q", "--object-format=sha256", "-b", "main"]);
        git(&sha256, &["commit", "-q", "--allow-empty", "-m", "one"]);
        up.done(&["repo", "import", sources.to_str().expect("text"), "--prefix", "team/sub/"]);
        up.done(&["repo", "create", "empty", "--wanted", "3"]);
        let place = up.directory.path().join("clones");
        std::fs::create_dir(&place).expect("a directory");
        let url = clone_url(up, "team/sub/plain");
        assert!(url.ends_with("/team/sub/plain.git"), "{url}");

        for version in ["0", "1", "2"] {
            let (option, target) = (format!("protocol.version={version}"), format!("v{version}"));
            done(&place, &["-c", &option, "clone", "-q", "--mirror", &url, &target]);
            assert_eq!(
                git(&place.join(&target), &["rev-parse", "main"]),
                git(&source, &["rev-parse", "main"])
            );
            assert_eq!(
                git(&place.join(&target), &["for-each-ref", "--format=%(objectname) %(refname)"]),
                git(&source, &["for-each-ref", "--format=%(objectname) %(refname)"])
            );
        }
        done(&place, &["clone", "-q", url.trim_end_matches(".git"), "without"]);
        done(&place, &["clone", "-q", "--depth", "2", &url, "shallow"]);
        assert_eq!(git(&place.join("shallow"), &["rev-list", "--count", "HEAD"]), "2");
        done(&place.join("shallow"), &["fetch", "-q", "--deepen", "3"]);
        assert_eq!(git(&place.join("shallow"), &["rev-list", "--count", "HEAD"]), "5");
        done(&place.join("shallow"), &["fetch", "-q", "--unshallow"]);
        assert_eq!(git(&place.join("shallow"), &["rev-list", "--count", "HEAD"]), "12");

        done(&place, &["clone", "-q", "--no-checkout", "--filter=blob:none", &url, "partial"]);
        let missing = git(&place.join("partial"), &["rev-list", "--objects", "--missing=print", "HEAD"]);
        assert!(missing.lines().any(|line| line.starts_with('?')), "{missing}");
        done(&place.join("partial"), &["checkout", "-q", "main"]);
        let refused = client(&place, &["clone", "-q", "--filter=sparse:oid=main:file", &url, "sparse"]);
        assert!(!refused.status.success(), "this filter is not among those that are allowed");

        done(&place, &["clone", "-q", &clone_url(up, "team/sub/long"), "sha256"]);
        assert_eq!(git(&place.join("sha256"), &["rev-parse", "--show-object-format"]), "sha256");
        done(&place, &["clone", "-q", &clone_url(up, "empty"), "empty"]);
        four_hundred_references(&place, &clone_url(up, "team/sub/many"));

        let missing = client(&place, &["clone", "-q", &url.replace("plain", "nothing"), "nothing"]);
        assert!(said(&missing).contains("not found"), "{}", said(&missing));
    });
}

/// A client that has a branch of its own for each of many: what it asks for and has is packed with gzip.
fn four_hundred_references(place: &Path, url: &str) {
    done(place, &["init", "-q", "wants"]);
    let clone = place.join("wants");
    let refspecs: Vec<String> = (0..400)
        .map(|n| format!("+refs/heads/topic/{0}/b{n}:refs/remotes/origin/topic/{0}/b{n}", n % 97))
        .collect();
    for n in 0..300 {
        git(&clone, &["commit", "-q", "--allow-empty", "-m", &n.to_string()]);
    }
    let mut arguments = vec!["fetch", "-q", url];
    arguments.extend(refspecs.iter().map(String::as_str));
    let output = Command::new("git")
        .args(&arguments)
        .current_dir(&clone)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TRACE_CURL", "1")
        .output()
        .expect("git runs");
    let traced = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(output.status.success(), "{traced}");
    assert!(traced.contains("content-encoding: gzip"), "the request was packed");
    let fetched = git(&clone, &["for-each-ref", "--format=%(refname)", "refs/remotes"]);
    assert_eq!(fetched.lines().count(), 400);
}

/// Reads in all: a few by default, `TRUED_TEST_READS` where there is time (the full number is 2,000).
fn how_many() -> usize {
    std::env::var("TRUED_TEST_READS").ok().and_then(|text| text.parse().ok()).unwrap_or(160)
}

const SETTINGS: &str = "[goals]\nschedule = \"0 0 0 1 1 *\"\n[router]\nanonymous_reads = true\n";

fn fleet(directory: &Path, database_url: &str, fileservers: usize) -> (Fleet, PathBuf) {
    let fleet = Fleet::start(directory, database_url, fileservers, SETTINGS);
    let sources = directory.join("sources");
    for n in 0..4 {
        small(&sources, &format!("r{n}"), 6);
    }
    fleet.done(&["repo", "import", sources.to_str().expect("text")]);
    (fleet, sources)
}

/// Clones, fetches and lists from several clients at once until so many were done; what failed, in git's words.
fn read_on(place: &Path, router: &str, count: usize, meanwhile: impl FnOnce(&AtomicBool)) -> Vec<String> {
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count {
                            return failed;
                        }
                        let (url, target) = (format!("http://{router}/r{}.git", n % 4), format!("c{n}"));
                        let began = Instant::now();
                        let output = match n % 3 {
                            0 => client(place, &["ls-remote", "-q", &url]),
                            1 => client(place, &["clone", "-q", "--bare", &url, &target]),
                            _ => client(place, &["clone", "-q", "--bare", "--depth", "1", &url, &target]),
                        };
                        if !output.status.success() {
                            failed.push(format!("{n} after {:?}: {}", began.elapsed(), said(&output)));
                        }
                        let _ = std::fs::remove_dir_all(place.join(&target));
                    }
                })
            })
            .collect();
        let watch = scope.spawn(|| {
            for client in clients {
                failed.extend(client.join().expect("no panic"));
            }
            over.store(true, Ordering::Relaxed);
        });
        meanwhile(&over);
        watch.join().expect("no panic");
    });
    failed
}

#[test]
fn no_read_fails_while_fileservers_are_killed_and_stopped_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let (mut fleet, sources) = fleet(directory.path(), &engine.url, 3);
    let (router, pages) = fleet.add_router("rt-1", &[]);
    let place = directory.path().join("clones");
    std::fs::create_dir(&place).expect("a directory");
    let (mut killed, mut stopped) = (0, 0);
    let failed = read_on(&place, &router, how_many(), |over| {
        for n in (0..3).cycle() {
            if over.load(Ordering::Relaxed) {
                break;
            }
            if killed > stopped {
                signal(fleet.agents[n].pid(), "STOP");
                std::thread::sleep(secs(3));
                signal(fleet.agents[n].pid(), "CONT");
                stopped += 1;
            } else {
                fleet.agents[n].kill();
                std::thread::sleep(secs(1));
                fleet.restart_agent(n + 1);
                killed += 1;
            }
            let address = fleet.address(n + 1).to_owned();
            until("the agent answers again", secs(30), || {
                if page(&address, "/livez").contains("200 OK") { Ok(()) } else { Err(String::new()) }
            });
        }
    });
    assert!(failed.is_empty(), "{} of {}: {failed:#?}\n{}", failed.len(), how_many(), fleet.said());
    assert!(killed > 0, "nothing was killed");
    let metrics = page(&pages, "/metrics");
    let saved =
        metrics.lines().find(|line| line.starts_with("trued_router_reads_saved_total")).expect("a count");
    assert!(page(&pages, "/readyz").contains("200 OK"));
    println!("{} reads, {killed} killed, {stopped} stopped; {saved}", how_many());
    assert_ne!(saved, "trued_router_reads_saved_total 0", "no copy had to take over: nothing was shown");
    done(&place, &["clone", "-q", "--mirror", &format!("http://{router}/r1"), "last"]);
    assert!(git_passes(&place.join("last"), &["fsck", "--strict"]));
    fleet.routers[0].signal("TERM");
    until("it says that it is not ready", secs(5), || {
        let answer = page(&pages, "/readyz");
        if answer.contains("503") { Ok(()) } else { Err(answer) }
    });
    assert_eq!(fleet.routers[0].ends(secs(45)), Some(0), "{}", fleet.said());
    assert!(references(&sources.join("r1")).contains(&git(&place.join("last"), &["rev-parse", "main"])));
}

#[test]
fn reads_go_on_while_the_database_is_away_and_say_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(mut server) = Server::start(directory.path(), &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    let place = directory.path().join("fleet");
    std::fs::create_dir(&place).expect("a directory");
    let (mut fleet, _) = fleet(&place, &server.url(), 3);
    fleet.environment.push(("TRUED_ROUTER__SQL_AWAY".into(), "20s".into()));
    let (router, pages) = fleet.add_router("rt-1", &[]);
    let url = |name: &str| format!("http://{router}/{name}.git");
    done(&place, &["ls-remote", "-q", &url("r1")]);
    assert!(page(&pages, "/metrics").contains("trued_router_without_sql 0"));

    server.pause(true);
    done(&place, &["ls-remote", "-q", &url("r1")]);
    server.pause(false);
    server.stop();
    let away = Instant::now();
    done(&place, &["clone", "-q", "--bare", &url("r1"), "one"]);
    assert!(page(&pages, "/metrics").contains("trued_router_without_sql 1"));
    assert!(page(&pages, "/readyz").contains("200 OK"), "reads go on, so it is ready");
    let unknown = client(&place, &["ls-remote", "-q", &url("r2")]);
    assert!(said(&unknown).contains("503"), "it never saw that one: {}", said(&unknown));
    let pushed = client(&place.join("one"), &["push", &url("r1"), "main:other"]);
    assert!(!pushed.status.success(), "pushes do not go on");
    until("reads end after the time that was set", secs(40), || {
        let output = client(&place, &["ls-remote", "-q", &url("r1")]);
        if output.status.success() { Err("they go on".to_owned()) } else { Ok(()) }
    });
    assert!(away.elapsed() >= secs(15), "{:?}", away.elapsed());
    assert!(page(&pages, "/readyz").contains("503"));
    server.again();
    until("reads go by the database again", secs(30), || {
        let output = client(&place, &["ls-remote", "-q", &url("r2")]);
        if output.status.success() { Ok(()) } else { Err(said(&output)) }
    });
    assert!(page(&pages, "/metrics").contains("trued_router_without_sql 0"));
}

fn voices(url: &str) -> Vec<trued::database::routing::Voice> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let db = trued::database::Database::open(url).await.expect("it opens");
        trued::database::routing::voices(&db, 30_000).await.expect("read")
    })
}

#[test]
fn a_router_that_sees_no_fileserver_harms_only_itself() {
    let alone = ["unshare", "-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let possible = Command::new(alone[0]).args(&alone[1..]).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: no network namespace can be made here");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::sqlite(directory.path());
    let (mut fleet, sources) = fleet(directory.path(), &engine.url, 3);
    let (good, _) = fleet.add_router("rt-1", &[]);
    let (blind, _) = fleet.add_router("rt-2", &alone);
    let inside = fleet.routers[1].pid().to_string();
    let url = format!("http://{blind}/r1.git");
    let began = Instant::now();
    for _ in 0..2 {
        let output = Command::new("nsenter")
            .args(["-t", &inside, "-n", "git", "ls-remote", "-q", &url])
            .env("GIT_TERMINAL_PROMPT", "0")
            .output()
            .expect("it runs");
        assert!(said(&output).contains("503"), "its own clients get an error: {}", said(&output));
    }
    println!("two errors took {:?}", began.elapsed());
    until("it said what it saw", secs(20), || {
        let voices = voices(&engine.url);
        let blind = voices.iter().filter(|one| one.observer == "rt-2").collect::<Vec<_>>();
        if !blind.is_empty() && blind.iter().all(|one| !one.online) {
            Ok(())
        } else {
            Err(format!("{voices:?}"))
        }
    });
    for _ in 0..10 {
        let listed = fleet.json(&["fileserver", "list"]);
        let all = listed["fileservers"].as_array().expect("fileservers");
        assert!(all.iter().all(|one| one["health"] == "online" && one["counts"] == true), "{listed:#}");
        std::thread::sleep(secs(1));
    }
    assert_eq!(
        done(directory.path(), &["ls-remote", "-q", &format!("http://{good}/r1.git"), "refs/heads/main"])
            .split_whitespace()
            .next(),
        Some(git(&sources.join("r1"), &["rev-parse", "main"]).as_str())
    );
}
