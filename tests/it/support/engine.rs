//! The engines that a test runs on: SQLite always, PostgreSQL where a server is given.

use std::process::Command;

/// A database of the test's own.
pub struct Engine {
    /// For `--database-url`.
    pub url: String,
    server: Option<(String, String)>,
}

/// Where `script/test` says that PostgreSQL is.
pub fn postgres_server() -> Option<String> {
    std::env::var("TRUED_TEST_POSTGRES_URL").ok().filter(|url| !url.is_empty())
}

impl Engine {
    /// A file below a directory.
    pub fn sqlite(directory: &std::path::Path) -> Self {
        Self { url: format!("sqlite:{}", directory.join("trued.sqlite").display()), server: None }
    }

    /// A fresh database on the server.
    pub fn postgres(server: &str, name: &str) -> Self {
        let name = format!("it_{name}_{}", std::process::id());
        remove(server, &name);
        psql(server, &format!("CREATE DATABASE {name}"));
        let (base, rest) = server.rsplit_once('/').expect("a database in the URL");
        let query = rest.split_once('?').map_or(String::new(), |(_, query)| format!("?{query}"));
        Self { url: format!("{base}/{name}{query}"), server: Some((server.to_owned(), name)) }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some((server, name)) = &self.server {
            remove(server, name);
        }
    }
}

/// The database, and the role that its goals were asked as: roles are the server's.
fn remove(server: &str, name: &str) {
    let role =
        psql(server, &format!("SELECT 'trued_goals_' || oid FROM pg_database WHERE datname = '{name}'"));
    psql(server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    if !role.trim().is_empty() {
        psql(server, &format!("DROP ROLE IF EXISTS {}", role.trim()));
    }
}

fn psql(server: &str, statement: &str) -> String {
    let output = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", "-d", server, "-c", statement])
        .output()
        .expect("psql runs");
    assert!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
