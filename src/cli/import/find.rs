//! Finding repositories below paths: bare and ordinary ones, to a bounded depth; links are not followed.

use super::super::failure::Failure;
use std::path::{Path, PathBuf};

/// Directories below a path that are looked into.
const DEEPEST: usize = 8;

/// Most repositories of one command.
const MOST: usize = 100_000;

/// All repositories at or below these paths, sorted within each.
///
/// # Errors
/// When a path is not there, or nothing below it is a repository.
pub fn below(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if !path.exists() {
            return Err(Failure::usage(format!("there is no {}", path.display())).into());
        }
        let before = all.len();
        walk(path, DEEPEST, &mut all);
        if all.len() == before {
            return Err(Failure::usage(format!(
                "neither {} nor anything below it is a repository",
                path.display()
            ))
            .into());
        }
        if all.len() > MOST {
            return Err(Failure::usage(format!("more than {MOST} repositories; name fewer at a time")).into());
        }
    }
    Ok(all)
}

fn walk(path: &Path, deeper: usize, into: &mut Vec<PathBuf>) {
    if is_repository(path) {
        into.push(path.to_owned());
        return;
    }
    if deeper == 0 || into.len() > MOST {
        return;
    }
    // What cannot be read is passed over: it is not named by the person who asked.
    let Ok(entries) = std::fs::read_dir(path) else { return };
    let mut inner: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    inner.sort();
    for path in inner {
        walk(&path, deeper - 1, into);
    }
}

fn is_repository(path: &Path) -> bool {
    path.join(".git").exists() || is_git_directory(path)
}

/// Whether a directory looks like git's own.
#[must_use]
pub fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir()
}

/// A repository's name: that of its directory, without `.git`.
#[must_use]
pub fn name_of(path: &Path) -> String {
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let own = if whole.file_name().is_some_and(|name| name == ".git") {
        whole.parent().unwrap_or(&whole).to_owned()
    } else {
        whole
    };
    let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_suffix(".git").filter(|rest| !rest.is_empty()).unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(path: &Path) {
        for inner in ["objects", "refs"] {
            std::fs::create_dir_all(path.join(inner)).unwrap();
        }
        std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    #[test]
    fn bare_and_ordinary_repositories_are_found_and_not_looked_into() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        bare(&top.join("b/bare.git"));
        bare(&top.join("a/ordinary/.git"));
        bare(&top.join("a/ordinary/vendored.git"));
        std::os::unix::fs::symlink(top, top.join("a/loop")).unwrap();
        let found = below(&[top.to_owned()]).unwrap();
        assert_eq!(found, [top.join("a/ordinary"), top.join("b/bare.git")]);
        assert_eq!(found.iter().map(|path| name_of(path)).collect::<Vec<_>>(), ["ordinary", "bare"]);
        assert_eq!(name_of(&top.join("a/ordinary/.git")), "ordinary");
    }

    #[test]
    fn nothing_to_import_is_wrong_usage() {
        let directory = tempfile::tempdir().unwrap();
        assert!(below(&[directory.path().to_owned()]).is_err());
        assert!(below(&[directory.path().join("missing")]).is_err());
    }
}
