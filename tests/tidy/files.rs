//! The project's own files, as texts with places.

use std::path::{Path, PathBuf};

/// One text file.
pub struct File {
    /// From the project's root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl File {
    /// The first part of a source's path below `src/`: `finding` for `src/finding/admit.rs`.
    pub fn room(&self) -> &str {
        let below = self.path.strip_prefix("src/").unwrap_or(&self.path);
        below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
    }

    /// Whether it holds nothing but tests or what they share.
    pub fn is_test(&self) -> bool {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        matches!(last, "tests.rs" | "testing.rs" | "scratch.rs")
            || ["/tests/", "/testing/"].iter().any(|one| self.path.contains(one))
    }

    /// Its name without the last extension.
    pub fn stem(&self) -> &str {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        last.rsplit_once('.').map_or(last, |(stem, _)| stem)
    }

    /// How messages name it.
    pub fn place(&self) -> String {
        format!("{} ({} lines)", self.path, self.text.lines().count())
    }
}

fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// One file that must be there.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Rust below `src/`.
pub fn sources() -> Vec<File> {
    walk("src", &["rs"])
}

/// Rust below `tests/`.
pub fn tests() -> Vec<File> {
    walk("tests", &["rs"])
}

/// Files directly in a directory, by name.
pub fn below(directory: &str, extension: &str) -> Vec<File> {
    let mut files = walk(directory, &[extension]);
    files.retain(|file| file.path.matches('/').count() == directory.matches('/').count() + 1);
    files
}

/// Pages for people.
pub fn pages() -> Vec<File> {
    let mut files = walk("docs", &["md"]);
    files.extend(at_root(&["md"]));
    files
}

/// Every text of the project.
pub fn everything() -> Vec<File> {
    let mut files = at_root(&["md", "toml"]);
    for directory in
        ["src", "tests", "docs", "goals", "repairs", "migrations", "config", "script", ".ci", "benches"]
    {
        files.extend(walk(directory, &["rs", "md", "toml", "sql", "sh", "html", ""]));
    }
    files
}

/// Targets of Markdown links to files, with their lines.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// Whether a link from a page leads to a file or directory.
pub fn exists(page: &str, link: &str) -> bool {
    root().join(page).parent().is_some_and(|directory| directory.join(link).exists())
}

fn at_root(extensions: &[&str]) -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), &root(), extensions, false, &mut files);
    files
}

fn walk(directory: &str, extensions: &[&str]) -> Vec<File> {
    let mut files = Vec::new();
    collect(&root(), &root().join(directory), extensions, true, &mut files);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn collect(root: &Path, directory: &Path, extensions: &[&str], deep: bool, into: &mut Vec<File>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.map_while(Result::ok) {
        let path = entry.path();
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && deep {
            collect(root, &path, extensions, deep, into);
        } else if path.is_file() && extensions.contains(&extension.as_str()) {
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            into.push(File { path: name, text });
        }
    }
}
