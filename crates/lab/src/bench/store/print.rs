//! The tables, for a terminal and for a page.

use anyhow::Result;

use crate::console::{Console, Tone};
use crate::values::{show_count, show_ns};

use super::outcome::{Outcome, Run};

/// Prints every run.
pub(super) fn print(runs: &[Run], is_markdown: bool, console: &mut Console) -> Result<()> {
    for (number, run) in runs.iter().enumerate() {
        if number > 0 {
            console.line("")?;
        }
        print_run(run, is_markdown, console)?;
    }
    Ok(())
}

fn print_run(run: &Run, is_markdown: bool, console: &mut Console) -> Result<()> {
    let link = if run.link == "shm" { "shared memory" } else { "UDP" };
    let title = format!(
        "{}: {} nodes, {} copies{}, {} workers each, over {link}",
        run.workload,
        run.nodes,
        run.replicas,
        if run.journal_bytes.is_some() { " on disks" } else { "" },
        run.workers
    );
    console.line(if is_markdown { format!("{title}\n") } else { console.paint(Tone::Heading, &title) })?;
    for table in [speed(run), requests(run), kinds(run)] {
        if table.rows.is_empty() {
            continue;
        }
        for line in if is_markdown { table.markdown() } else { table.text() } {
            console.line(line)?;
        }
        console.line("")?;
    }
    for outcome in &run.outcomes {
        for line in remarks(outcome) {
            console.line(line)?;
        }
    }
    let memory = run.memory;
    let per_copy = |bytes: u64| bytes as f64 / memory.copies.max(1) as f64;
    console.line(format!(
        "{} rows, {} copies: a copy takes {:.0} bytes of tables, {:.0} bytes of resident memory; a key, {:.0} on all nodes together",
        memory.rows,
        memory.copies,
        per_copy(memory.table_bytes),
        per_copy(memory.resident_bytes),
        memory.resident_bytes as f64 / memory.rows.max(1) as f64,
    ))?;
    if run.problems.is_empty() {
        let money = match run.balance_before {
            0 => String::new(),
            before => format!("{before} + {} = {}, no money lost; ", run.money, run.balance_after),
        };
        let verdict =
            format!("audit: {money}all copies equal, no lock held, requests as many as the formula says");
        console.line(console.paint(Tone::Good, &verdict))?;
    }
    for problem in &run.problems {
        console.line(console.paint(Tone::Bad, problem))?;
    }
    Ok(())
}

fn speed(run: &Run) -> Table {
    let mut table =
        Table::new(&["load", "committed/s", "per CPU-second", "p50", "p99", "p99.9", "aborted attempts"]);
    for outcome in &run.outcomes {
        let latency = &outcome.latency_ns;
        table.rows.push(vec![
            outcome.load.clone(),
            show_count(outcome.committed_per_second),
            show_count(outcome.committed_per_cpu_second),
            show_ns(latency.p50 as f64),
            show_ns(latency.p99 as f64),
            show_ns(latency.p999 as f64),
            format!("{:.2} %", outcome.abort_rate * 100.0),
        ]);
    }
    table
}

fn requests(run: &Run) -> Table {
    let mut table = Table::new(&[
        "requests per commit",
        "counted",
        "formula, keys where they are",
        "formula, no key at home",
        "execute",
        "validate",
        "log",
        "backup",
        "primary",
        "unlock",
    ]);
    for outcome in &run.outcomes {
        let commits = outcome.total.commits.max(1) as f64;
        let mut row = vec![
            outcome.load.clone(),
            format!("{:.3}", outcome.requests_per_commit),
            format!("{:.3}", outcome.forecast.total() as f64 / commits),
            format!("{:.3}", outcome.requests_per_commit_of_paper),
        ];
        row.extend(
            outcome.requests.kinds().iter().map(|(_, count)| format!("{:.3}", *count as f64 / commits)),
        );
        table.rows.push(row);
    }
    table
}

/// The kinds of the first load; other loads differ only in parameters that do not matter here.
fn kinds(run: &Run) -> Table {
    let mut table = Table::new(&["transaction", "begun", "share", "expected", "committed", "expected"]);
    let Some(outcome) = run.outcomes.first().filter(|outcome| outcome.kinds.len() > 1) else { return table };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    for kind in &outcome.kinds {
        table.rows.push(vec![
            kind.name.clone(),
            kind.counts.begun.to_string(),
            percent(kind.share),
            kind.share_expected.map_or_else(|| "–".into(), percent),
            percent(kind.success),
            percent(kind.success_expected),
        ]);
    }
    table
}

fn remarks(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(open) = &outcome.open_loop {
        let verdict = if open.is_kept { "kept" } else { "NOT kept" };
        lines.push(format!(
            "{}: offered {}/s, done {}/s: {verdict}; {} never began",
            outcome.load,
            show_count(open.offered_per_second),
            show_count(open.done_per_second),
            open.never_begun
        ));
    }
    if outcome.interrupted + outcome.given_up + outcome.unknown > 0 {
        lines.push(format!(
            "{}: {} attempts interrupted by a new configuration, {} transactions given up, {} of unknown outcome",
            outcome.load, outcome.interrupted, outcome.given_up, outcome.unknown
        ));
    }
    lines
}

/// Rows under headings; the first column is aligned to the left, the others to the right.
struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&str]) -> Table {
        Table { headings: headings.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    fn text(&self) -> Vec<String> {
        let all = || std::iter::once(&self.headings).chain(&self.rows);
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            format!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end())
        };
        all().map(line).collect()
    }

    fn markdown(&self) -> Vec<String> {
        let line = |cells: &Vec<String>| format!("| {} |", cells.join(" | "));
        let rule = format!("|---|{}", "---:|".repeat(self.headings.len().saturating_sub(1)));
        [line(&self.headings), rule].into_iter().chain(self.rows.iter().map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_alike_on_a_terminal_and_on_a_page() {
        let mut table = Table::new(&["load", "per second"]);
        table.rows.push(vec!["θ 0.5".into(), "1.00 k".into()]);
        assert_eq!(table.text(), ["  load   per second", "  θ 0.5      1.00 k"]);
        assert_eq!(table.markdown(), ["| load | per second |", "|---|---:|", "| θ 0.5 | 1.00 k |"]);
    }
}
