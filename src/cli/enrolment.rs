//! Enrolment files: a part's own secret and whom it may believe. Secrets are made here, by the
//! system's own chance, and never travel: the API is told the public key alone.

use super::failure::Failure;
use crate::database::fleet::Fleet;
use crate::model::checksum::ChecksumKey;
use crate::model::grant::{Enrolment, Part, Role};
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Secret bytes from the system.
///
/// # Errors
/// When the system has none.
pub fn secret() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).context("asking the system for random bytes")?;
    Ok(bytes)
}

/// A number to seed decisions with.
///
/// # Errors
/// When the system has none.
pub fn seed() -> anyhow::Result<u64> {
    let bytes = secret()?;
    Ok(bytes.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte)))
}

/// A short word that no other start has.
///
/// # Errors
/// When the system has no chance.
pub fn fresh_word() -> anyhow::Result<String> {
    Ok(format!("{:016x}", seed()?))
}

/// A new identity: the part as others know it, and its secret.
///
/// # Errors
/// When the system has no chance.
pub fn new_part(name: &str, role: Role) -> anyhow::Result<(Part, String)> {
    let bytes = secret()?;
    let public = SigningKey::from_bytes(&bytes).verifying_key();
    let part = Part {
        id: name.to_owned(),
        name: name.to_owned(),
        role,
        public_key: STANDARD.encode(public.as_bytes()),
    };
    Ok((part, STANDARD.encode(bytes)))
}

/// The enrolment of a part.
#[must_use]
pub fn enrolment(
    fleet: String,
    part: Part,
    secret_key: String,
    parts: Vec<Part>,
    checksum_key: Option<ChecksumKey>,
) -> Enrolment {
    Enrolment { fleet, part, secret_key, parts, checksum_key }
}

/// Reads an enrolment file and checks that it is of this role.
///
/// # Errors
/// When it cannot be read, is none, or is of another role.
pub fn read(path: &Path, role: Role) -> anyhow::Result<Enrolment> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the enrolment {}: {error}", path.display())))?;
    let enrolment: Enrolment = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{} is not an enrolment: {error}", path.display())))?;
    if enrolment.part.role != role {
        return Err(Failure::usage(format!(
            "{} is the enrolment of {} {}, not of one of role {role}",
            path.display(),
            enrolment.part.role,
            enrolment.part.name
        ))
        .into());
    }
    let key = enrolment.signing_key().map(|key| key.verifying_key());
    if key.is_none() || key != enrolment.part.key() {
        return Err(
            Failure::usage(format!("the two keys in {} do not belong together", path.display())).into()
        );
    }
    Ok(enrolment)
}

/// Refuses an enrolment of another fleet than the database's: its grants would be refused by every agent, one attempt
/// after the other.
///
/// # Errors
/// When the two do not belong together.
pub fn belongs(path: &Path, enrolment: &Enrolment, fleet: &Fleet) -> anyhow::Result<()> {
    if enrolment.fleet == fleet.fleet_id {
        return Ok(());
    }
    let (part, theirs, ours) = (&enrolment.part, &enrolment.fleet, &fleet.fleet_id);
    let message = format!(
        "{} is the enrolment of {} {} in fleet {theirs}, and the database is of fleet {ours}: they do not belong together",
        path.display(),
        part.role,
        part.name
    );
    Err(Failure::usage(message)
        .hint("--database-url, TRUED_DATABASE__URL or database.url names the database; `trued part add` enrols in its fleet")
        .into())
}

/// Writes an enrolment for its owner's eyes alone, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, enrolment: &Enrolment) -> anyhow::Result<()> {
    let next = path.with_extension("json.next");
    let text = serde_json::to_string_pretty(enrolment)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)
        .with_context(|| format!("writing {}", next.display()))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&next, path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn an_enrolment_is_secret_on_disk_and_checked_when_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("worker.json");
        let (part, secret) = new_part("w-1", Role::Worker).unwrap();
        let written = enrolment("fleet".into(), part, secret, Vec::new(), None);
        write(&path, &written).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path, Role::Worker).unwrap(), written);
        let error = read(&path, Role::Agent).unwrap_err().to_string();
        assert!(error.ends_with("is the enrolment of worker w-1, not of one of role agent"), "{error}");
        let (_, other) = new_part("w-1", Role::Worker).unwrap();
        write(&path, &Enrolment { secret_key: other, ..written }).unwrap();
        assert!(read(&path, Role::Worker).unwrap_err().to_string().contains("do not belong together"));
    }
}
