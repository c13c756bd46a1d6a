//! Claim, step, renew, record.
