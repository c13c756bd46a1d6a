//! A password's verifier as PostgreSQL keeps it (RFC 5802), so that the password itself never stands in a
//! statement that the server may log.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// As PostgreSQL has it by default: the password is random, so that more would guard nothing.
const ROUNDS: u32 = 4_096;
const BLOCK: usize = 64;

/// A password from fresh random bytes.
pub fn password(secret: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(hmac(secret, b"password"))
}

/// `SCRAM-SHA-256$4096:salt$stored:server`. The salt is of the same fresh bytes.
pub fn verifier(password: &str, secret: &[u8; 32]) -> String {
    let salted = hmac(secret, b"salt");
    let (salt, _) = salted.split_at(16);
    let key = stretched(password.as_bytes(), salt, ROUNDS);
    let stored: [u8; 32] = Sha256::digest(hmac(&key, b"Client Key")).into();
    let server = hmac(&key, b"Server Key");
    let [salt, stored, server] =
        [salt, stored.as_slice(), server.as_slice()].map(|bytes| STANDARD.encode(bytes));
    format!("SCRAM-SHA-256${ROUNDS}:{salt}${stored}:{server}")
}

/// PBKDF2 with one block.
fn stretched(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let mut last = hmac(password, &[salt, &[0, 0, 0, 1]].concat());
    let mut all = last;
    for _ in 1..rounds {
        last = hmac(password, &last);
        all.iter_mut().zip(last).for_each(|(all, last)| *all ^= last);
    }
    all
}

/// RFC 2104, for keys of up to a block.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let pad = |with: u8| {
        let mut pad = [with; BLOCK];
        pad.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        pad
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    }

    /// RFC 4231, case 2, and a well-known vector of PBKDF2.
    #[test]
    fn the_sums_are_those_of_the_standards() {
        let sum = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&sum), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let key = stretched(b"password", b"salt", 4_096);
        assert_eq!(hex(&key), "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a");
    }
}
