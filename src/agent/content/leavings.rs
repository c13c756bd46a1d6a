//! What a copy that was broken off left in staging: what of it is gone on with, and how long it waits for that.
//!
//! Only object files of the list that is copied now are kept, and only as much of them as the list says. Everything
//! else (references, configuration, files of another source, what a git had begun) is made anew.

use super::{disk, packs};
use crate::model::wire::Refusal;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Removes all of a directory but these files as long as they are not longer than they should be. Returns the bytes
/// that stay.
pub(super) fn keep(staging: &Path, wanted: &BTreeMap<String, i64>) -> Result<i64, Refusal> {
    let mut kept = 0;
    for name in names(staging) {
        if name != "objects" {
            remove(&staging.join(name))?;
        }
    }
    for directory in names(&staging.join("objects")) {
        let below = format!("objects/{directory}");
        let path = staging.join(&below);
        if !fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            remove(&path)?;
            continue;
        }
        for name in names(&path) {
            kept += keep_one(staging, &format!("{below}/{name}"), wanted)?;
        }
    }
    Ok(kept)
}

fn keep_one(staging: &Path, name: &str, wanted: &BTreeMap<String, i64>) -> Result<i64, Refusal> {
    let path = staging.join(name);
    let bytes = fs::symlink_metadata(&path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .and_then(|metadata| i64::try_from(metadata.len()).ok());
    let most = wanted.get(name).filter(|_| packs::is_object_path(name)).copied();
    match (bytes, most) {
        (Some(bytes), Some(most)) if bytes <= most => Ok(bytes),
        _ => remove(&path).map(|()| 0),
    }
}

fn remove(path: &Path) -> Result<(), Refusal> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return disk::remove_tree(path);
    }
    fs::remove_file(path).map_err(|error| disk::refusal("cannot remove", path, &error))
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_list_stay_and_no_more_of_them_than_it_says() {
        let place = tempfile::tempdir().unwrap();
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let [half, long, other] = ["pack", "idx", "rev"].map(|end| format!("objects/pack/pack-{hash}.{end}"));
        let loose = format!("objects/ab/{}", &hash[2..]);
        for (name, bytes) in [
            (half.as_str(), 50),
            (&long, 101),
            (&other, 1),
            (&loose, 10),
            ("objects/pack/tmp_pack_1", 7),
            ("objects/info/alternates", 7),
            ("refs/heads/main", 41),
            ("config", 9),
        ] {
            fs::create_dir_all(place.path().join(name).parent().unwrap()).unwrap();
            fs::write(place.path().join(name), vec![1; bytes]).unwrap();
        }
        std::os::unix::fs::symlink("/etc", place.path().join("objects/cd")).unwrap();
        let wanted = [(half.clone(), 100), (long, 100), (loose.clone(), 10)].into_iter().collect();
        assert_eq!(keep(place.path(), &wanted).unwrap(), 60);
        let left: Vec<_> = names(&place.path().join("objects/pack"));
        assert_eq!(left, [half.rsplit_once('/').unwrap().1]);
        assert!(place.path().join(loose).is_file() && Path::new("/etc").is_dir());
        assert_eq!(names(place.path()), ["objects"]);
        assert!(!place.path().join("objects/cd").exists());
    }

    #[test]
    fn nothing_is_kept_of_what_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(keep(&place.path().join("none"), &BTreeMap::new()).unwrap(), 0);
    }
}
