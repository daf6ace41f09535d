//! What came of the cases.

use std::fmt;

use super::case::{Case, Link};

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// With what there is to say about it.
    Works(String),
    /// And why.
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

/// One case's result.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) group: &'static str,
    pub(super) title: String,
    pub(super) link: Link,
    pub(super) options: &'static str,
    pub(super) verdict: Verdict,
}

/// All of them, in the order in which they ran.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) rows: Vec<Row>,
}

impl Results {
    pub(super) fn add(&mut self, case: &Case, verdict: Verdict) {
        let Case { group, title, link, options, .. } = case;
        self.rows.push(Row { group, title: title.clone(), link: *link, options, verdict });
    }

    pub(super) fn worked(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Works(_))).count()
    }

    pub(super) fn failed(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Fails(_))).count()
    }

    pub(super) fn skipped(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.verdict, Verdict::Skipped(_))).count()
    }

    /// What did not work, each with its reason, and the counts.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| !matches!(row.verdict, Verdict::Works(_))) {
            text += &format!("{} ({}): {}\n", row.title, row.link, row.verdict);
        }
        text + &format!("{} work, {} fail, {} skipped", self.worked(), self.failed(), self.skipped())
    }
}
