//! The results of the cases.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::case::{Case, Link};
use super::verdict::Verdict;

/// The latest result of every case, kept between runs, so that a part of them can be run anew.
#[derive(Debug, Default)]
pub(super) struct Store(BTreeMap<String, Value>);

impl Store {
    /// The results in `file`; none if it does not exist or is not this program's.
    pub(super) fn load(file: &Path) -> Store {
        let bytes = std::fs::read(file).unwrap_or_default();
        Store(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub(super) fn put(&mut self, case: &Case, verdict: &Verdict) {
        self.0.insert(case.line(), verdict.to_json());
    }

    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(&self.0)?;
        std::fs::write(file, bytes).with_context(|| file.display().to_string())
    }

    /// Whether the case has ever run.
    pub(super) fn has(&self, case: &Case) -> bool {
        self.0.contains_key(&case.line())
    }

    /// The results of `cases`, in their order. A case that has never run is marked so.
    pub(super) fn results(&self, cases: &[Case]) -> Results {
        let mut results = Results::default();
        for case in cases {
            let verdict = self.0.get(&case.line()).and_then(Verdict::from_json);
            results.add(case, verdict.unwrap_or_else(|| Verdict::Skipped("not run yet".into())));
        }
        results
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

/// All results, in the order in which the cases ran.
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

    /// The cases that failed, each with its reason, and the counts.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| !matches!(row.verdict, Verdict::Works(_))) {
            text += &format!("{} ({}): {}\n", row.title, row.link, row.verdict);
        }
        text + &format!("{} work, {} fail, {} skipped", self.worked(), self.failed(), self.skipped())
    }
}
