//! Why the store did not do as it was asked.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why the store did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreError {
    /// Other transactions were in the way, again and again, or what was watched has changed. Nothing happened.
    Conflict,
    /// The node cannot serve now, and has not been able to for as long as it was allowed to take. Nothing happened.
    Unavailable(String),
    /// The connection or the node was lost while the transaction was being committed: it happened as a whole or not at all.
    Unknown(String),
    /// The table takes no more keys. Nothing happened.
    Full,
    /// What was asked cannot be done with this store. Nothing happened.
    Invalid(String),
    /// The caller gave up. Nothing happened.
    Aborted(String),
}

impl StoreError {
    pub(crate) fn invalid(what: impl Into<String>) -> StoreError {
        StoreError::Invalid(what.into())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Conflict => f.write_str("other transactions were in the way; nothing was changed"),
            StoreError::Unavailable(why) => write!(f, "the store cannot serve now: {why}"),
            StoreError::Unknown(why) => write!(f, "it is not known whether this was committed: {why}"),
            StoreError::Full => f.write_str("the store takes no more keys; nothing was changed"),
            StoreError::Invalid(what) | StoreError::Aborted(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StoreError {}
