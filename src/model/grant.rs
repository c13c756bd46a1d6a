//! Grants: what one part may ask of one agent, signed with the key of the part that asks.
//!
//! A grant names the fleet, the part, the action, the repository, both ends of a copy,
//! an epoch and an expiry. An agent knows the public keys of all parts and what each
//! role may do; it takes addresses from grants alone, never from outside.

use super::Millis;
use super::id::RepositoryId;
use crate::words;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

words!(
    /// What a part is.
    Role, "role" {
        /// Evaluates, dispatches, observes.
        Controller = "controller",
        /// Repairs.
        Worker = "worker",
        /// Takes Git clients' requests.
        Router = "router",
        /// Keeps replicas on a fileserver.
        Agent = "agent",
    }
);

words!(
    /// What is asked of an agent.
    Action, "action" {
        /// Status, inventory.
        Observe = "observe",
        /// New keys of parts, limits.
        Configure = "configure",
        /// References, objects and files of a repository, to read or to copy from here.
        Read = "read",
        /// Checksum, verification.
        Verify = "verify",
        /// Change a copy from a source: resync, first copy, quarantine.
        Repair = "repair",
        /// Make a repository from what a client streams.
        Import = "import",
        /// Take a push: objects, a prepared change of references, its end.
        Push = "push",
        /// Fence a push whose router is gone, and bring a copy to where the others are.
        Settle = "settle",
    }
);

impl Role {
    /// Whether a part of this role may ask for this.
    #[must_use]
    pub const fn may(self, action: Action) -> bool {
        match self {
            Self::Controller => matches!(
                action,
                Action::Observe
                    | Action::Configure
                    | Action::Verify
                    | Action::Import
                    | Action::Read
                    | Action::Push
                    | Action::Settle
            ),
            Self::Worker => {
                matches!(
                    action,
                    Action::Read | Action::Verify | Action::Repair | Action::Observe | Action::Settle
                )
            }
            Self::Router => {
                matches!(action, Action::Read | Action::Observe | Action::Push | Action::Settle)
            }
            Self::Agent => false,
        }
    }
}

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The fileserver's name.
    pub name: String,
    /// Base URL of its agent.
    pub url: String,
}

/// What is asked, by whom, until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The fleet; an agent of another one refuses.
    pub fleet: String,
    /// Id of the part that asks and signs.
    pub part: String,
    /// What is asked.
    pub action: Action,
    /// The repository; none for questions about the fileserver itself.
    pub repository: Option<RepositoryId>,
    /// The fileserver that is asked, or that copies to itself.
    pub destination: End,
    /// The fileserver that it may read from.
    pub source: Option<End>,
    /// The repair epoch, or for a push the push epoch; reads carry none.
    pub epoch: Option<i64>,
    /// Nothing new starts under it after this moment.
    pub expires_at: Millis,
}

/// The header that carries a grant.
pub const GRANT_HEADER: &str = "trued-grant";

/// Why a grant was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It is not of the form `payload.signature`.
    #[error("grant is not readable")]
    Malformed,
    /// The part is not known, or was withdrawn.
    #[error("part {0} is not known here")]
    UnknownPart(String),
    /// It was not signed by that part's key.
    #[error("grant is not signed by the part it names")]
    BadSignature,
}

impl Grant {
    /// The header's text: payload and signature in URL-safe base64, joined by a dot.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> String {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default());
        let signature = URL_SAFE_NO_PAD.encode(key.sign(payload.as_bytes()).to_bytes());
        format!("{payload}.{signature}")
    }

    /// Reads a header and checks its signature against the key that `key_of` knows for the
    /// part it names. Fleet, role, repository, epoch and expiry are the caller's to check.
    ///
    /// # Errors
    /// When it cannot be read, names an unknown part, or the signature is not that part's.
    pub fn open(text: &str, key_of: impl FnOnce(&str) -> Option<VerifyingKey>) -> Result<Self, GrantError> {
        let (payload, signature) = text.split_once('.').ok_or(GrantError::Malformed)?;
        let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|_| GrantError::Malformed)?;
        let grant: Self = serde_json::from_slice(&bytes).map_err(|_| GrantError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| GrantError::Malformed)?;
        let signature = Signature::from_slice(&signature).map_err(|_| GrantError::Malformed)?;
        let key = key_of(&grant.part).ok_or_else(|| GrantError::UnknownPart(grant.part.clone()))?;
        key.verify_strict(payload.as_bytes(), &signature).map_err(|_| GrantError::BadSignature)?;
        Ok(grant)
    }
}

/// One part of the fleet as others know it: no secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its id, unique for ever; an agent's is its fileserver's name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its public key, 32 bytes as base64.
    pub public_key: String,
}

impl Part {
    /// The key that its grants are checked with, if the text is one.
    #[must_use]
    pub fn key(&self) -> Option<VerifyingKey> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.public_key).ok()?;
        VerifyingKey::from_bytes(&bytes.try_into().ok()?).ok()
    }
}

/// The file with which a part starts: who it is, its own secret, and whom it may believe.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    /// The fleet's id.
    pub fleet: String,
    /// The part itself.
    pub part: Part,
    /// Its secret key, 32 bytes as base64.
    pub secret_key: String,
    /// The other parts with their roles and keys.
    pub parts: Vec<Part>,
    /// The fleet's checksum key; agents need it, others do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_key: Option<super::checksum::ChecksumKey>,
}

impl Enrolment {
    /// The key to sign with, if the text is one.
    #[must_use]
    pub fn signing_key(&self) -> Option<SigningKey> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.secret_key).ok()?;
        Some(SigningKey::from_bytes(&bytes.try_into().ok()?))
    }
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Enrolment {{ fleet: {}, part: {:?}, secret_key: … }}", self.fleet, self.part)
    }
}

/// An agent's word that it holds a copy, signed with its own key, for the API to check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The fleet.
    pub fleet: String,
    /// The fileserver that speaks.
    pub fileserver: String,
    /// The repository.
    pub repository: RepositoryId,
    /// What it holds.
    pub checksum: super::checksum::Checksum,
    /// Bytes on its disk.
    pub bytes: i64,
    /// When it said so.
    pub at: Millis,
}

/// A [`Receipt`] with its signature, in the form of a grant's header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignedReceipt(pub String);

impl Receipt {
    /// Signs it: payload and signature in URL-safe base64, joined by a dot.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> SignedReceipt {
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default());
        let signature = URL_SAFE_NO_PAD.encode(key.sign(payload.as_bytes()).to_bytes());
        SignedReceipt(format!("{payload}.{signature}"))
    }
}

impl SignedReceipt {
    /// Reads it and checks its signature with the key known for the fileserver it names.
    ///
    /// # Errors
    /// As [`Grant::open`].
    pub fn open(&self, key_of: impl FnOnce(&str) -> Option<VerifyingKey>) -> Result<Receipt, GrantError> {
        let (payload, signature) = self.0.split_once('.').ok_or(GrantError::Malformed)?;
        let bytes = URL_SAFE_NO_PAD.decode(payload).map_err(|_| GrantError::Malformed)?;
        let receipt: Receipt = serde_json::from_slice(&bytes).map_err(|_| GrantError::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| GrantError::Malformed)?;
        let signature = Signature::from_slice(&signature).map_err(|_| GrantError::Malformed)?;
        let key =
            key_of(&receipt.fileserver).ok_or_else(|| GrantError::UnknownPart(receipt.fileserver.clone()))?;
        key.verify_strict(payload.as_bytes(), &signature).map_err(|_| GrantError::BadSignature)?;
        Ok(receipt)
    }
}
