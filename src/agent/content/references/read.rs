//! Reading references from a repository's files. Whatever git would pass over with a warning is damage here.

use super::{Reference, References, object};
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::refname;
use crate::model::wire::{Refusal, RefusalCode};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The longest loose reference or HEAD that is read.
const LOOSE_MOST: u64 = 8 * 1024;
/// The largest `packed-refs` that is read: some twelve million references.
const PACKED_MOST: u64 = 1024 * 1024 * 1024;

type List = BTreeMap<Vec<u8>, Target>;

impl References {
    /// Reads them all. Loose ones first: one that is packed meanwhile is then found in `packed-refs`.
    pub(in crate::agent::content) fn read(repository: &Path, format: ObjectFormat) -> Result<Self, Refusal> {
        let head = read_target(&repository.join("HEAD"), "HEAD", format)?
            .ok_or_else(|| damaged("HEAD is not there".to_owned()))?;
        if let Target::Symbolic(to) = &head
            && !refname::is_reference(to.as_bytes())
        {
            return Err(damaged(format!("HEAD points at {to:?}, which is no reference")));
        }
        let mut loose = List::new();
        walk(&repository.join("refs"), &mut b"refs/".to_vec(), &mut loose, format)?;
        let packed = read_packed(&repository.join("packed-refs"), format)?;
        let list = if loose.is_empty() {
            packed
        } else {
            let mut all: List = packed.into_iter().collect();
            all.append(&mut loose);
            all.into_iter().collect()
        };
        Ok(Self { head, list })
    }
}

fn damaged(what: String) -> Refusal {
    Refusal::new(RefusalCode::Damaged, what)
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    damaged(format!("cannot read {}: {error}", path.display()))
}

fn walk(
    directory: &Path,
    prefix: &mut Vec<u8>,
    into: &mut List,
    format: ObjectFormat,
) -> Result<(), Refusal> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // Git removes a directory that has become empty; the top one it never does.
        Err(error) if error.kind() == io::ErrorKind::NotFound && prefix.as_slice() != b"refs/" => {
            return Ok(());
        }
        Err(error) => return Err(unreadable(directory, &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let name = entry.file_name();
        let name = name.as_bytes();
        if name.starts_with(b".") || name.ends_with(b".lock") {
            continue;
        }
        let length = prefix.len();
        prefix.extend_from_slice(name);
        let kind = entry.file_type().map_err(|error| unreadable(directory, &error))?;
        if kind.is_dir() {
            prefix.push(b'/');
            walk(&entry.path(), prefix, into, format)?;
        } else {
            add_loose(&entry.path(), prefix, into, format)?;
        }
        prefix.truncate(length);
    }
    Ok(())
}

fn add_loose(path: &Path, name: &[u8], into: &mut List, format: ObjectFormat) -> Result<(), Refusal> {
    let shown = name.escape_ascii().to_string();
    if !refname::is_reference(name) {
        return Err(damaged(format!("{shown:?} is not a reference's name")));
    }
    if let Some(target) = read_target(path, &shown, format)? {
        into.insert(name.to_vec(), target);
    }
    Ok(())
}

/// What a loose reference or HEAD says; `None`: it is gone.
fn read_target(path: &Path, name: &str, format: ObjectFormat) -> Result<Option<Target>, Refusal> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    if !kind.is_file() {
        return Err(damaged(format!("{name} is not a plain file")));
    }
    let mut content = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(LOOSE_MOST).read_to_end(&mut content));
    match read {
        Ok(_) => parse_loose(&content, format).map(Some).ok_or_else(|| {
            let start = content[..content.len().min(80)].escape_ascii().to_string();
            damaged(format!("{name} is broken: it says {start:?}"))
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn parse_loose(content: &[u8], format: ObjectFormat) -> Option<Target> {
    let content = content.trim_ascii_end();
    if let Some(to) = content.strip_prefix(b"ref:") {
        let to = to.trim_ascii_start();
        return refname::is_target(to)
            .then(|| std::str::from_utf8(to).ok())
            .flatten()
            .map(|to| Target::Symbolic(to.to_owned()));
    }
    object(content, format).map(Target::Object)
}

fn read_packed(path: &Path, format: ObjectFormat) -> Result<Vec<Reference>, Refusal> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(path, &error)),
    };
    if !metadata.is_file() || metadata.len() > PACKED_MOST {
        return Err(damaged("packed-refs is not a plain file of a readable size".to_owned()));
    }
    let content = fs::read(path).map_err(|error| unreadable(path, &error))?;
    parse_packed(&content, format).map_err(|what| damaged(format!("packed-refs is broken: {what}")))
}

fn parse_packed(content: &[u8], format: ObjectFormat) -> Result<Vec<Reference>, String> {
    if content.is_empty() {
        return Ok(Vec::new());
    }
    let body = content.strip_suffix(b"\n").ok_or("it ends amid a line")?;
    let mut list: Vec<Reference> = Vec::new();
    for line in body.split(|byte| *byte == b'\n') {
        match line.first() {
            Some(b'#') if list.is_empty() => {}
            // What a tag peels to: says nothing about references, but must be whole.
            Some(b'^') if !list.is_empty() && object(&line[1..], format).is_some() => {}
            _ => list.push(packed_line(line, format)?),
        }
    }
    // Git searches it as if it were sorted: what is not in its place is lost to it.
    if !list.is_sorted_by(|one, next| one.0 < next.0) {
        return Err("it is not sorted".to_owned());
    }
    Ok(list)
}

fn packed_line(line: &[u8], format: ObjectFormat) -> Result<Reference, String> {
    let broken = || format!("a line says {:?}", line[..line.len().min(120)].escape_ascii().to_string());
    let (oid, name) = line.split_at_checked(format.hex_len()).ok_or_else(broken)?;
    let name = name.strip_prefix(b" ").filter(|name| refname::is_reference(name)).ok_or_else(broken)?;
    let oid = object(oid, format).ok_or_else(broken)?;
    Ok((name.to_vec(), Target::Object(oid)))
}
