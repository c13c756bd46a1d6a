//! The checksum of a repository's references, for comparing replicas.
//!
//! Every reference is one line; each line is hashed with BLAKE3 under the fleet's
//! key, and the digests are added modulo 2^256. The sum does not depend on order,
//! and a push changes it by subtracting old lines and adding new ones. A plain XOR
//! would be linear and an unkeyed hash could be searched for collisions by a pusher,
//! so neither is used; people are shown a hash of the sum ([`Checksum::shown`]),
//! never the sum itself. Test vectors stand in `docs/reference/checksum.md`.

use super::fleet::ObjectFormat;
use serde::{Deserialize, Serialize};

/// The secret of a fleet under which lines are hashed, with the number that names it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksumKey {
    /// Names the key and the format; checksums of different ids are never compared.
    pub id: i64,
    /// 32 secret bytes, as base64 in files.
    #[serde(with = "base64_bytes")]
    pub secret: [u8; 32],
}

impl std::fmt::Debug for ChecksumKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChecksumKey {{ id: {}, secret: … }}", self.id)
    }
}

/// A digest of all references of one copy, with the id of the key it was taken under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Checksum {
    /// The key's id.
    pub key: i64,
    /// The sum, little-endian.
    #[serde(with = "base64_bytes")]
    pub sum: [u8; 32],
}

impl Checksum {
    /// What people see: the first 16 bytes of a hash of the sum, in hexadecimal.
    #[must_use]
    pub fn shown(&self) -> String {
        let digest = blake3::hash(&self.sum);
        digest.to_hex()[..32].to_owned()
    }

    /// The checksum whose sum is these bytes, if there are 32.
    #[must_use]
    pub fn from_bytes(key: i64, sum: &[u8]) -> Option<Self> {
        Some(Self { key, sum: sum.try_into().ok()? })
    }
}

/// What `HEAD` or a reference points at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    /// An object's name in hexadecimal.
    #[serde(rename = "oid")]
    Object(String),
    /// Another reference's full name.
    #[serde(rename = "ref")]
    Symbolic(String),
}

/// Adds and subtracts lines.
#[derive(Debug, Clone)]
pub struct Summer {
    key: ChecksumKey,
    sum: [u64; 4],
}

impl Summer {
    /// Begins a sum with the line that names the object format.
    #[must_use]
    pub fn new(key: &ChecksumKey, format: ObjectFormat) -> Self {
        let mut summer = Self { key: key.clone(), sum: [0; 4] };
        summer.add(&[b"objectformat ", format.as_str().as_bytes()]);
        summer
    }

    /// Goes on from a checksum that was taken under the same key.
    #[must_use]
    pub fn resume(key: &ChecksumKey, from: &Checksum) -> Option<Self> {
        (from.key == key.id).then(|| Self { key: key.clone(), sum: words(&from.sum) })
    }

    /// Adds what `HEAD` points at.
    pub fn add_head(&mut self, head: &Target) {
        match head {
            Target::Symbolic(target) => self.add(&[b"HEAD ref:", target.as_bytes()]),
            Target::Object(oid) => self.add(&[b"HEAD ", oid.as_bytes()]),
        }
    }

    /// Takes what `HEAD` pointed at out again.
    pub fn remove_head(&mut self, head: &Target) {
        let digest = match head {
            Target::Symbolic(target) => self.digest(&[b"HEAD ref:", target.as_bytes()]),
            Target::Object(oid) => self.digest(&[b"HEAD ", oid.as_bytes()]),
        };
        self.sum = wrapping_sub(self.sum, digest);
    }

    /// Adds one reference. Names are bytes: Git allows any but a few control characters.
    pub fn add_reference(&mut self, name: &[u8], target: &Target) {
        match target {
            Target::Symbolic(to) => self.add(&[b"ref:", to.as_bytes(), b" ", name]),
            Target::Object(oid) => self.add(&[oid.as_bytes(), b" ", name]),
        }
    }

    /// Takes one reference out again.
    pub fn remove_reference(&mut self, name: &[u8], target: &Target) {
        let digest = match target {
            Target::Symbolic(to) => self.digest(&[b"ref:", to.as_bytes(), b" ", name]),
            Target::Object(oid) => self.digest(&[oid.as_bytes(), b" ", name]),
        };
        self.sum = wrapping_sub(self.sum, digest);
    }

    /// The sum so far.
    #[must_use]
    pub fn finish(&self) -> Checksum {
        let mut sum = [0; 32];
        for (chunk, word) in sum.chunks_exact_mut(8).zip(self.sum) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Checksum { key: self.key.id, sum }
    }

    fn add(&mut self, parts: &[&[u8]]) {
        self.sum = wrapping_add(self.sum, self.digest(parts));
    }

    fn digest(&self, parts: &[&[u8]]) -> [u64; 4] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key.secret);
        for part in parts {
            hasher.update(part);
        }
        words(hasher.finalize().as_bytes())
    }
}

fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(chunk);
        *word = u64::from_le_bytes(eight);
    }
    words
}

fn wrapping_add(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    let mut carry = false;
    let mut out = [0; 4];
    for i in 0..4 {
        let (sum, over) = a[i].overflowing_add(b[i]);
        let (sum, more) = sum.overflowing_add(u64::from(carry));
        out[i] = sum;
        carry = over || more;
    }
    out
}

fn wrapping_sub(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    let mut borrow = false;
    let mut out = [0; 4];
    for i in 0..4 {
        let (rest, under) = a[i].overflowing_sub(b[i]);
        let (rest, more) = rest.overflowing_sub(u64::from(borrow));
        out[i] = rest;
        borrow = under || more;
    }
    out
}

/// 32 bytes as base64 text.
mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD.decode(&text).map_err(D::Error::custom)?;
        bytes.try_into().map_err(|_| D::Error::custom("32 bytes expected, as base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> ChecksumKey {
        ChecksumKey { id: 1, secret: [7; 32] }
    }

    fn object(byte: u8) -> Target {
        Target::Object(format!("{byte:02x}").repeat(20))
    }

    proptest! {
        #[test]
        fn the_order_of_references_does_not_matter(mut names in prop::collection::vec("refs/[a-z]{1,8}", 1..20), seed in 0u8..255) {
            let sum = |names: &[String]| {
                let mut summer = Summer::new(&key(), ObjectFormat::Sha1);
                for name in names { summer.add_reference(name.as_bytes(), &object(seed)); }
                summer.finish()
            };
            let one = sum(&names);
            names.reverse();
            prop_assert_eq!(one, sum(&names));
        }

        #[test]
        fn taking_a_reference_out_undoes_adding_it(name in "refs/[a-z]{1,8}", seed in 0u8..255) {
            let mut summer = Summer::new(&key(), ObjectFormat::Sha1);
            let before = summer.finish();
            summer.add_reference(name.as_bytes(), &object(seed));
            prop_assert_ne!(before, summer.finish());
            summer.remove_reference(name.as_bytes(), &object(seed));
            prop_assert_eq!(before, summer.finish());
        }
    }

    // The published vectors, read from the page that publishes them.
    const PAGE: &str = include_str!("../../docs/reference/checksum.md");

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    fn target(text: &str) -> Target {
        text.strip_prefix("ref:")
            .map_or_else(|| Target::Object(text.into()), |to| Target::Symbolic(to.into()))
    }

    /// What the page says, and what is so: sum and the form that people see.
    fn compare(vector: &str) -> ([String; 2], [String; 2]) {
        let secret = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let key = ChecksumKey { id: 1, secret };
        let (mut summer, mut said) = (None, [String::new(), String::new()]);
        for line in vector.lines() {
            let (first, rest) = line.split_once(' ').unwrap();
            match first {
                "objectformat" => summer = Some(Summer::new(&key, rest.parse::<ObjectFormat>().unwrap())),
                "HEAD" => summer.as_mut().unwrap().add_head(&target(rest)),
                "sum" => said[0] = rest.to_owned(),
                "shown" => said[1] = rest.to_owned(),
                to => summer.as_mut().unwrap().add_reference(rest.as_bytes(), &target(to)),
            }
        }
        let checksum = summer.unwrap().finish();
        (said, [hex(&checksum.sum), checksum.shown()])
    }

    #[test]
    fn the_published_vectors_are_what_the_code_computes() {
        let vectors: Vec<_> =
            PAGE.split("```vector\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert_eq!(vectors.len(), 4);
        let (said, so): (Vec<_>, Vec<_>) = vectors.into_iter().map(compare).unzip();
        assert_eq!(said, so);
    }
}
