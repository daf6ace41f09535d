//! The page: one file with its data, its style and its script; no address but its own.

use super::{Measures, judge};
use crate::plan::{Plan, Run};

/// A plan's results as a page for a browser.
pub fn page(plan: &Plan, runs: &[Run], measures: &[Measures]) -> String {
    let _ = (judge(plan, runs, measures), runs);
    String::new()
}
