//! TLS to PostgreSQL and Redis, passwords from files, and a pooler that is refused.

use crate::support::fleet::free_port;
use crate::support::postgres::Server;
use crate::support::process::{Process, trued};
use crate::support::redis::Redis;
use crate::support::{secs, until};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output};

/// An authority, and a certificate of its for this machine.
fn certificates(directory: &Path) {
    let script = "set -e
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\nbasicConstraints=CA:FALSE\\n' > server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=another -keyout another.key -out another.pem";
    let output = Command::new("sh").args(["-c", script]).current_dir(directory).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn postgresql_and_redis_are_reached_by_tls_with_passwords_from_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let Some(server) = Server::start(place, &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    let Some(mut redis) = Redis::place() else { return eprintln!("skipped: no redis-server is installed") };
    certificates(place);
    let key = std::fs::read_to_string(place.join("server.key")).expect("a key");
    server.write("server.key", &key);
    server.write("server.crt", &std::fs::read_to_string(place.join("server.pem")).expect("a certificate"));
    server.ask("postgres", "ALTER SYSTEM SET ssl = on");
    server.ask("postgres", "CREATE ROLE me LOGIN CREATEROLE PASSWORD 'se/cret'");
    server.ask("postgres", "ALTER DATABASE trued OWNER TO me");
    // Once, and awaited: a server that is asked to read its rules reads them a little later.
    server.write("pg_hba.conf", "hostssl all all 127.0.0.1/32 scram-sha-256\n");
    server.ask("postgres", "SELECT pg_reload_conf()");
    until("nobody is let in without a password", secs(20), || {
        let asked = Command::new("psql").args(["-w", "-X", "-d", &server.url(), "-c", "SELECT 1"]).output();
        if asked.expect("psql runs").status.success() { Err("still let in".to_owned()) } else { Ok(()) }
    });
    let (ca, another, password) = (place.join("ca.pem"), place.join("another.pem"), place.join("password"));
    std::fs::write(&password, "se/cret\n").expect("written");
    let url = |mode: &str, root: &Path| {
        format!("postgres://me@localhost:{}/trued?sslmode={mode}&sslrootcert={}", server.port, root.display())
    };
    let migrate = |url: &str| {
        trued()
            .args(["migrate", "--database-url", url])
            .env("TRUED_DATABASE__PASSWORD_FILE", &password)
            .output()
            .expect("it runs")
    };
    let refused = migrate(&url("disable", &ca));
    assert!(!refused.status.success() && said(&refused).contains("pg_hba.conf"), "{}", said(&refused));
    let refused = migrate(&url("verify-full", &another));
    assert!(!refused.status.success(), "a server of another authority is not believed: {}", said(&refused));
    let done = migrate(&url("verify-full", &ca));
    assert!(done.status.success(), "{}", said(&done));

    redis.start_tls(place, "other secret");
    let redis_password = place.join("redis-password");
    std::fs::write(&redis_password, "other secret\n").expect("written");
    let added = trued()
        .args(["part", "add", "controller", "ctl-1", "--database-url", &url("verify-full", &ca)])
        .env("TRUED_DATABASE__PASSWORD_FILE", &password)
        .output()
        .expect("it runs");
    assert!(added.status.success(), "{}", said(&added));
    let enrolment = place.join("ctl-1.json");
    std::fs::write(&enrolment, &added.stdout).expect("written");
    let listen = format!("127.0.0.1:{}", free_port());
    let mut command = trued();
    command
        .args(["serve", "--listen", &listen, "--database-url", &url("verify-full", &ca), "--enrolment"])
        .arg(&enrolment)
        .env("TRUED_DATABASE__PASSWORD_FILE", &password)
        .env("TRUED_QUEUE__REDIS", format!("rediss://localhost:{}", redis.port))
        .env("TRUED_QUEUE__REDIS_PASSWORD_FILE", &redis_password)
        .env("SSL_CERT_FILE", &ca);
    let mut serve = Process::start(&mut command);
    serve.hears("Redis carries reminders", secs(30));
    let metrics = get(&listen, "/metrics");
    assert!(metrics.contains("trued_redis_up 1") && metrics.contains("trued_sql_up 1"), "{metrics}");

    // Readiness goes first: it still answers, and says that it is not ready.
    assert!(get(&listen, "/readyz").contains("200 OK"));
    serve.signal("TERM");
    until("it says that it is not ready", secs(5), || {
        let answer = get(&listen, "/readyz");
        if answer.contains("503") { Ok(()) } else { Err(answer) }
    });
    assert_eq!(serve.ends(secs(20)), Some(0), "{}", serve.said());
}

/// Status line, headers and body.
fn get(listen: &str, path: &str) -> String {
    let Ok(mut stream) = std::net::TcpStream::connect(listen) else { return String::new() };
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: {listen}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_with_a_sentence() {
    if Command::new("pgbouncer").arg("-V").output().is_err() {
        return eprintln!("skipped: pgbouncer is not installed");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let Some(server) = Server::start(directory.path(), &[]) else {
        return eprintln!("skipped: no PostgreSQL server is installed");
    };
    for (mode, good) in [("transaction", false), ("session", true)] {
        let port = free_port();
        let file = directory.path().join(format!("{mode}.ini"));
        let text = format!(
            "[databases]\ntrued = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = {mode}\nignore_startup_parameters = extra_float_digits\n\
             unix_socket_dir =\n",
            server.port
        );
        std::fs::write(&file, text).expect("written");
        let _pooler = Server::beside(&["pgbouncer", file.to_str().expect("text")]);
        until("the pooler listens", secs(10), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        let url = format!("postgres://postgres@127.0.0.1:{port}/trued");
        let output = trued().args(["migrate", "--database-url", &url]).output().expect("it runs");
        assert_eq!(output.status.success(), good, "{mode}: {}", said(&output));
        if !good {
            assert!(said(&output).contains("pooler in transaction mode"), "{}", said(&output));
        }
    }
}
