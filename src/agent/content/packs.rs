//! The files that hold objects: which there are, whether they are whole.
//!
//! Two depths. *Trailers*: each pack's last bytes against what its index says they are, sizes, counts; catches
//! truncation and mixed-up files in a few reads. *Whole*: every byte hashed against the trailer; for what was just
//! copied. Neither opens an object.

use super::disk;
use crate::model::fleet::ObjectFormat;
use crate::model::wire::{ManifestFile, Refusal, RefusalCode};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Endings of the files that belong to a pack and are copied with it.
const ENDINGS: &[&str] = &["pack", "idx", "rev", "bitmap", "mtimes"];

/// The object files of a repository.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Names of packs, without ending: `pack-<hash>`.
    pub(super) packs: BTreeSet<String>,
    /// Number of loose objects.
    pub(super) loose: i64,
    /// Whether a bitmap and a commit-graph are there.
    pub(super) indexed: bool,
    /// All of them, with their sizes, packs first.
    pub(super) files: Vec<ManifestFile>,
}

impl Objects {
    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> i64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Whether a path of a manifest is one that a copy may have. Nothing else is ever read or written by its name.
pub(super) fn is_object_path(path: &str) -> bool {
    if let Some(name) = path.strip_prefix("objects/pack/") {
        return name
            .split_once('.')
            .is_some_and(|(stem, ending)| ENDINGS.contains(&ending) && is_pack_name(stem));
    }
    let rest = path.strip_prefix("objects/").and_then(|rest| rest.split_once('/'));
    rest.is_some_and(|(two, more)| {
        two.len() == 2 && is_hex(two) && matches!(more.len(), 38 | 62) && is_hex(more)
    })
}

fn is_pack_name(stem: &str) -> bool {
    stem.strip_prefix("pack-").is_some_and(|hash| matches!(hash.len(), 40 | 64) && is_hex(hash))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lists object files. A link, or a pack under a name that is not git's, is damage.
pub(super) fn scan(repository: &Path) -> Result<Objects, Refusal> {
    let mut objects = Objects::default();
    let root = repository.join("objects");
    let mut fans = Vec::new();
    for name in names(&root)? {
        if name == "pack" {
            scan_directory(repository, "objects/pack", &mut objects)?;
        } else if name.len() == 2 && is_hex(&name) {
            fans.push(format!("objects/{name}"));
        }
    }
    fans.sort();
    for fan in fans {
        scan_directory(repository, &fan, &mut objects)?;
    }
    objects.indexed = has_graph(&root) && objects.files.iter().any(|file| file.path.ends_with(".bitmap"));
    Ok(objects)
}

/// Whether there is a commit-graph, in one file or in a chain of them.
pub(super) fn has_graph(objects: &Path) -> bool {
    ["info/commit-graph", "info/commit-graphs/commit-graph-chain"]
        .iter()
        .any(|name| fs::symlink_metadata(objects.join(name)).is_ok_and(|metadata| metadata.is_file()))
}

fn scan_directory(repository: &Path, directory: &str, into: &mut Objects) -> Result<(), Refusal> {
    let mut files = names(&repository.join(directory))?;
    files.sort();
    for name in files {
        let path = format!("{directory}/{name}");
        if !is_object_path(&path) {
            let foreign = Path::new(&name).extension().is_some_and(|ending| ending == "pack");
            if foreign {
                return Err(damaged(format!("{path} is not named as git names packs")));
            }
            continue;
        }
        let full = repository.join(&path);
        let metadata = match fs::symlink_metadata(&full) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(damaged(format!("cannot look at {path}: {error}"))),
        };
        if !metadata.is_file() {
            return Err(damaged(format!("{path} is not a plain file")));
        }
        match path.strip_prefix("objects/pack/").and_then(|name| name.split_once('.')) {
            Some((stem, "pack" | "idx")) => drop(into.packs.insert(stem.to_owned())),
            Some(_) => {}
            None => into.loose += 1,
        }
        into.files.push(ManifestFile { path, bytes: i64::try_from(metadata.len()).unwrap_or(i64::MAX) });
    }
    Ok(())
}

fn names(directory: &Path) -> Result<Vec<String>, Refusal> {
    let entries = fs::read_dir(directory);
    let entries =
        entries.map_err(|error| damaged(format!("cannot list {}: {error}", directory.display())))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Checks each pack's trailer against its index, and each index's own.
pub(super) fn check_trailers(
    repository: &Path,
    packs: &BTreeSet<String>,
    format: ObjectFormat,
) -> Result<(), Refusal> {
    for stem in packs {
        check_pair(&repository.join("objects/pack"), stem, format)
            .map_err(|what| damaged(format!("{stem}: {what}")))?;
    }
    Ok(())
}

fn check_pair(directory: &Path, stem: &str, format: ObjectFormat) -> Result<(), String> {
    let length = format.hex_len() / 2;
    let index = directory.join(format!("{stem}.idx"));
    check_whole(&index, format).map_err(|what| format!("its index {what}"))?;
    let (said, count) =
        read_index(&index, length).map_err(|error| format!("its index cannot be read: {error}"))?;
    let pack = directory.join(format!("{stem}.pack"));
    let (trailer, header) =
        read_pack(&pack, length).map_err(|error| format!("the pack cannot be read: {error}"))?;
    if header[..4] != *b"PACK" || !matches!(header[4..8], [0, 0, 0, 2 | 3]) {
        return Err("the pack does not begin like one".to_owned());
    }
    if header[8..12] != count {
        return Err("the pack and its index do not have the same number of objects".to_owned());
    }
    if trailer != said {
        return Err("the pack does not end as its index says: it is cut off or another".to_owned());
    }
    Ok(())
}

/// The pack's checksum that an index records, and its number of objects, as they stand in the file.
fn read_index(path: &Path, length: usize) -> std::io::Result<(Vec<u8>, [u8; 4])> {
    let mut file = File::open(path)?;
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    // Version 2 has a header of 8 bytes; both have the fan-out table, whose last number is the count.
    let table = if start[..4] == *b"\xfftOc" { 8 } else { 0 };
    let mut count = [0; 4];
    file.seek(SeekFrom::Start(table + 255 * 4))?;
    file.read_exact(&mut count)?;
    let mut said = vec![0; length];
    file.seek(SeekFrom::End(-2 * i64::try_from(length).unwrap_or(0)))?;
    file.read_exact(&mut said)?;
    Ok((said, count))
}

fn read_pack(path: &Path, length: usize) -> std::io::Result<(Vec<u8>, [u8; 12])> {
    let mut file = File::open(path)?;
    let mut header = [0; 12];
    file.read_exact(&mut header)?;
    let mut trailer = vec![0; length];
    file.seek(SeekFrom::End(-i64::try_from(length).unwrap_or(0)))?;
    file.read_exact(&mut trailer)?;
    Ok((trailer, header))
}

/// Hashes every byte of a pack (or one of its companions) against the hash it ends with.
pub(super) fn check_whole(path: &Path, format: ObjectFormat) -> Result<(), String> {
    match format {
        ObjectFormat::Sha1 => hash_whole::<sha1::Sha1>(path),
        ObjectFormat::Sha256 => hash_whole::<sha2::Sha256>(path),
    }
}

fn hash_whole<D: sha1::Digest>(path: &Path) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let mut file = File::open(path).map_err(unreadable)?;
    let length = <D as sha1::Digest>::output_size();
    let size = file.metadata().map_err(unreadable)?.len();
    let mut left = size.checked_sub(length as u64).ok_or("is cut off")?;
    let mut hasher = D::new();
    let mut buffer = vec![0; 256 * 1024];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = file.read(&mut buffer[..most]).map_err(unreadable)?;
        if count == 0 {
            return Err("shrinks while it is read".to_owned());
        }
        hasher.update(&buffer[..count]);
        left -= count as u64;
    }
    let mut trailer = vec![0; length];
    file.read_exact(&mut trailer).map_err(unreadable)?;
    if hasher.finalize()[..] == trailer[..] { Ok(()) } else { Err("does not match its own hash".to_owned()) }
}

/// Hashes everything that belongs to packs, whole, then compares packs and indexes.
pub(super) fn check_copied(repository: &Path, format: ObjectFormat) -> Result<Objects, Refusal> {
    let objects = scan(repository)?;
    for file in objects.files.iter().filter(|file| file.path.starts_with("objects/pack/")) {
        check_whole(&repository.join(&file.path), format)
            .map_err(|what| damaged(format!("{} {what}", file.path)))?;
    }
    check_trailers(repository, &objects.packs, format)?;
    Ok(objects)
}

/// The number of objects in a repository's packs, as their headers say.
pub(super) fn count_packed(repository: &Path) -> Result<i64, Refusal> {
    let mut count = 0;
    for stem in scan(repository)?.packs {
        let path = repository.join(format!("objects/pack/{stem}.pack"));
        let (_, header) = read_pack(&path, 0).map_err(|error| disk::refusal("cannot read", &path, &error))?;
        let [.., a, b, c, d] = header;
        count += i64::from(u32::from_be_bytes([a, b, c, d]));
    }
    Ok(count)
}

fn damaged(what: String) -> Refusal {
    Refusal::new(RefusalCode::Damaged, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_object_files_are_on_the_list() {
        let hash = "0123456789abcdef0123456789abcdef01234567";
        for good in [
            format!("objects/pack/pack-{hash}.pack"),
            format!("objects/pack/pack-{hash}.idx"),
            format!("objects/ab/{}", &hash[2..]),
        ] {
            assert!(is_object_path(&good), "{good}");
        }
        let bad = [
            "config".to_owned(),
            "hooks/post-update".to_owned(),
            "objects/info/alternates".to_owned(),
            format!("objects/pack/../../pack-{hash}.pack"),
            format!("objects/pack/pack-{hash}.keep"),
            format!("objects/pack/pack-{hash}.pack/x"),
            format!("/objects/ab/{}", &hash[2..]),
            format!("objects/../{}", &hash[2..]),
            format!("objects/AB/{}", &hash[2..]),
        ];
        for bad in bad {
            assert!(!is_object_path(&bad), "{bad}");
        }
    }
}
