//! The errors of the store.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why the store did not carry out a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreError {
    /// Other transactions conflicted, again and again, or a watched key has changed. Nothing happened.
    Conflict,
    /// The node could not serve within the time that it had. Nothing happened.
    Unavailable(String),
    /// The connection or the node was lost while the transaction was being committed: it happened as a whole or not at all.
    Unknown(String),
    /// The table takes no more keys. Nothing happened.
    Full,
    /// This store cannot do what the request asks. Nothing happened.
    Invalid(String),
    /// The caller gave up. Nothing happened.
    Aborted(String),
    /// The node does not know who asks, or who asks may not do this. Nothing happened.
    Denied(String),
}

impl StoreError {
    pub(crate) fn invalid(what: impl Into<String>) -> StoreError {
        StoreError::Invalid(what.into())
    }
}

impl StoreError {
    /// Whether the error says something about what a transaction has read, as opposed to how it fared.
    pub(crate) fn is_verdict(&self) -> bool {
        matches!(self, StoreError::Full | StoreError::Invalid(_) | StoreError::Aborted(_))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Conflict => f.write_str("other transactions were in the way; nothing was changed"),
            StoreError::Unavailable(why) => write!(f, "the store cannot serve now: {why}"),
            StoreError::Unknown(why) => write!(f, "it is not known whether this was done: {why}"),
            StoreError::Full => f.write_str("the store takes no more keys; nothing was changed"),
            StoreError::Invalid(what) | StoreError::Aborted(what) | StoreError::Denied(what) => {
                f.write_str(what)
            }
        }
    }
}

impl std::error::Error for StoreError {}
