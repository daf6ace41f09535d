//! The verdict on one case.

use std::fmt;

use serde_json::{Value, json};

/// The verdict on one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Success, with a note.
    Works(String),
    /// Failure, and why.
    Fails(String),
    /// It did not run, and why.
    Skipped(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Works(note) if note.is_empty() => f.write_str("ok"),
            Verdict::Works(note) => write!(f, "ok: {note}"),
            Verdict::Fails(reason) => write!(f, "FAILED: {reason}"),
            Verdict::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

impl Verdict {
    pub(super) fn to_json(&self) -> Value {
        let (kind, text) = match self {
            Verdict::Works(note) => ("works", note),
            Verdict::Fails(reason) => ("fails", reason),
            Verdict::Skipped(reason) => ("skipped", reason),
        };
        json!([kind, text])
    }

    pub(super) fn from_json(value: &Value) -> Option<Verdict> {
        let text = value.get(1)?.as_str()?.to_string();
        match value.get(0)?.as_str()? {
            "works" => Some(Verdict::Works(text)),
            "fails" => Some(Verdict::Fails(text)),
            "skipped" => Some(Verdict::Skipped(text)),
            _ => None,
        }
    }
}
