//! `docs/measurements/compatibility.md`, from the results: a sum for each group first, its cases folded below.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::shell::{Line, root};

use super::case::Link;
use super::results::{Results, Row};
use super::suite::{self, Ending};
use super::verdict::Verdict;
use super::{PACKAGES, measured};

/// The page, which nobody edits by hand. `docs/compatibility.md` explains it.
pub(super) const PAGE: &str = "docs/measurements/compatibility.md";

/// Writes the page.
pub(super) fn write(results: &Results) -> Result<()> {
    let path = root().join(PAGE);
    std::fs::write(&path, text(results)).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

fn text(results: &Results) -> String {
    let mut text = String::from(
        "# Programs and test suites of others\n\nWritten by a command; [Compatibility](../compatibility.md) says what it means. Every row is one run of that command line, \
         over the link that the column names.\n\n```console\n$ cargo xtask compat --write-docs\n```\n\n",
    );
    let _ = writeln!(
        text,
        "{} cases: **{} work, {} fail, {} skipped**, on {}. A case is counted once per link.\n",
        results.rows.len(),
        results.worked(),
        results.failed(),
        results.skipped(),
        machine()
    );
    text += "| group | work | fail | skipped |\n|---|---:|---:|---:|\n";
    for group in groups(results) {
        let rows = results.rows.iter().filter(|row| row.group == group);
        let part = Results { rows: rows.cloned().collect() };
        let _ = writeln!(text, "| {group} | {} | {} | {} |", part.worked(), part.failed(), part.skipped());
    }
    text += "\n";
    for group in groups(results) {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.group == group).collect();
        text += &section(group, &rows);
    }
    text + &suites() + &versions()
}

fn groups(results: &Results) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for row in &results.rows {
        if !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    groups
}

fn section(group: &str, rows: &[&Row]) -> String {
    if rows.iter().all(|row| row.link == Link::Auto) || group == measured::GROUP {
        let mut text = format!("{}| case | link | result |\n|---|---|---|\n", fold(group));
        for row in rows {
            let _ = writeln!(text, "| {} | {} | {} |", title(row), row.link, cell(Some(&row.verdict)));
        }
        return text + UNFOLD;
    }
    let mut text = format!("{}| case | shared memory | UDP |\n|---|---|---|\n", fold(group));
    let mut done: Vec<String> = Vec::new();
    for row in rows {
        let title = title(row);
        if done.contains(&title) {
            continue;
        }
        let of = |link| rows.iter().find(|other| self::title(other) == title && other.link == link);
        let shm = of(Link::Shm).or_else(|| of(Link::Auto)).map(|row| &row.verdict);
        let _ =
            writeln!(text, "| {title} | {} | {} |", cell(shm), cell(of(Link::Udp).map(|row| &row.verdict)));
        done.push(title);
    }
    text + UNFOLD
}

/// The head of a folded table.
fn fold(group: &str) -> String {
    format!("## {group}\n\n<details><summary>The cases</summary>\n\n")
}

const UNFOLD: &str = "\n</details>\n\n";

fn title(row: &Row) -> String {
    let title = row.title.replace('|', "\\|");
    if row.options.is_empty() { format!("`{title}`") } else { format!("`{title}` with `{}`", row.options) }
}

pub(super) fn cell(verdict: Option<&Verdict>) -> String {
    match verdict {
        None => "–".into(),
        Some(verdict) => verdict.to_string().replace('|', "\\|").replace("FAILED", "**fails**"),
    }
}

/// Sums and reasons of rdma-core's suite.
fn suites() -> String {
    let endings = suite::endings();
    if endings.is_empty() {
        return String::new();
    }
    let count = |wanted: fn(&Ending) -> bool| endings.values().filter(|ending| wanted(ending)).count();
    let mut text = format!(
        "## rdma-core's tests in sum\n\n{} generic tests: **{} pass, {} fail, {} skipped**. The kernel's software RNIC (Linux 6.1, the whole suite of 273 with tests of \
         single makers' devices): {}.\n\n",
        endings.len(),
        count(|ending| *ending == Ending::Passed),
        count(|ending| matches!(ending, Ending::Failed(_))),
        count(|ending| matches!(ending, Ending::Skipped(_))),
        suite::OF_RXE
    );
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for ending in endings.values() {
        if let Ending::Skipped(reason) = ending {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    text += "| skipped because | tests |\n|---|---:|\n";
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons {
        let _ = writeln!(text, "| {} | {count} |", reason.replace('|', "\\|"));
    }
    text += "\n";
    let failed: Vec<&String> = endings
        .iter()
        .filter(|(_, ending)| matches!(ending, Ending::Failed(_)))
        .map(|(name, _)| name)
        .collect();
    if !failed.is_empty() {
        text += "These fail:\n\n";
        for name in failed {
            let _ = writeln!(text, "- `{name}`");
        }
        text += "\n";
    }
    text
}

fn versions() -> String {
    let mut text = String::from("## Versions\n\n");
    let wanted = ["-dev", "gcc", "make", "xz-utils"];
    let shown: Vec<String> = PACKAGES
        .iter()
        .filter(|name| !wanted.iter().any(|part| name.contains(part)))
        .filter_map(|name| {
            let output = Line::new("dpkg-query").words("-W -f ${Version}").arg(name).capture().ok()?;
            (output.success && !output.stdout.is_empty()).then(|| format!("{name} {}", output.stdout))
        })
        .collect();
    let _ = writeln!(text, "{}.\n", shown.join(", "));
    text
}

pub(super) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("Linux")
        .trim_matches('"');
    format!("{name}, {cores} cores")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_its_sum_and_its_cases_folded() {
        let text = text(&Results::default());
        assert!(text.contains("| group | work | fail | skipped |"));
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        let groups = page.matches("<details><summary>The cases</summary>").count();
        assert!(groups > 0 && groups == page.matches(UNFOLD.trim()).count(), "{groups} folded tables");
        let head = &page[..page.find("cases: **").expect("the page has its sum")];
        assert!(
            text.starts_with(head.trim_end_matches(|it: char| it.is_ascii_digit() || it == ' ')),
            "the page has another head"
        );
    }
}
