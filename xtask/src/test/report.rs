//! What a person reads: the end of a failing log, and the table at the end.

use crate::shell::{Log, root};

use super::steps::Step;
use super::tally::Tally;

/// Lines of a failing step's log that are worth a screen.
const TAIL_LINES: usize = 40;

/// A step that has run.
pub(super) struct Finished {
    pub(super) step: &'static Step,
    pub(super) log: Log,
    pub(super) tally: Tally,
    pub(super) seconds: f64,
}

/// Shows the end of the log, and how to repeat what failed.
pub(super) fn show_failure(done: &Finished) {
    let text = done.log.text().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = interesting_start(&lines);
    println!();
    for line in &lines[from..] {
        println!("    {line}");
    }
    let shown = done.log.path().strip_prefix(root()).unwrap_or(done.log.path());
    println!("\n    log:    {}", shown.display());
    if let Some(line) = lines.iter().rev().find_map(|line| line.strip_prefix("$ ")) {
        println!("    repeat: {line}");
    }
    println!("    or:     cargo xtask test {}\n", done.step.name);
}

/// The tail, or an earlier line when the tests said in one place which of them failed and why.
fn interesting_start(lines: &[&str]) -> usize {
    let tail = lines.len().saturating_sub(TAIL_LINES);
    let first_failure = lines.iter().position(|line| *line == "failures:" || line.starts_with("error"));
    match first_failure {
        Some(first) if first < tail && lines.len() - first < 3 * TAIL_LINES => first,
        _ => tail,
    }
}

/// The table of steps, the skips with their reasons, and the counts on the last line.
pub(super) fn show_summary(finished: &[Finished]) {
    println!("\n{:<12} {:<8} {:>7} {:>7} {:>8} {:>9}", "step", "", "passed", "failed", "skipped", "seconds");
    let mut total = Tally::default();
    for done in finished {
        println!(
            "{:<12} {:<8} {:>7} {:>7} {:>8} {:>9.1}",
            done.step.name,
            done.tally.verdict(),
            done.tally.passed(),
            done.tally.failed(),
            done.tally.skips().len(),
            done.seconds
        );
        total.add(done.tally.clone());
    }
    if !total.skips().is_empty() {
        println!("\nskipped:");
        for skip in total.skips() {
            println!("  {}: {}", skip.what, skip.reason);
        }
    }
    println!("\n{} passed, {} failed, {} skipped", total.passed(), total.failed(), total.skips().len());
}
