//! What the guest printed, as checks and tables.

use std::fmt;

use anyhow::{Context, Result};
use serde_json::Value;

use super::guest::ACCELERATOR;
use crate::bench::{machine, replace_section};
use crate::shell::root;
use crate::table::Table;

/// The page with the tables.
const PAGE: &str = "docs/wake.md";
const SECTION: &str = "kernel";

/// Lines of the guest by their kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// Kernel, build, preemption, clock and the like, by name.
    machine: Vec<(String, String)>,
    pub(super) passed: Vec<String>,
    /// Checks that failed, and why; and tasks that ended in an error.
    pub(super) failed: Vec<String>,
    rows: Vec<Value>,
    /// What belongs to none of these, for people to read.
    others: Vec<String>,
}

impl Report {
    pub(super) fn of(lines: &[String]) -> Report {
        let mut report = Report::default();
        for line in lines {
            if let Some((name, value)) = line.strip_prefix("machine: ").and_then(|rest| rest.split_once(' '))
            {
                report.machine.push((name.into(), value.into()));
            } else if let Some(name) = line.strip_prefix("check: ok ") {
                report.passed.push(name.into());
            } else if let Some(what) =
                line.strip_prefix("check: failed ").or_else(|| line.strip_prefix("failed: "))
            {
                report.failed.push(what.into());
            } else if let Some(row) =
                line.strip_prefix("row: ").and_then(|row| serde_json::from_str(row).ok())
            {
                report.rows.push(row);
            } else if line != "done" {
                report.others.push(line.clone());
            }
        }
        report
    }

    fn machine(&self, name: &str) -> &str {
        self.machine.iter().find(|(known, _)| known == name).map_or("?", |(_, value)| value)
    }

    /// The strategies' table. Every row says where it was taken.
    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "way to wait",
            "threads",
            "core",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "CPU s per 10⁶",
            "p50 / `event`",
            "kernel",
            "preemption",
            "clock",
            "processor",
        ]);
        for row in &self.rows {
            let us = |name: &str| format!("{:.1}", row[name].as_f64().unwrap_or(f64::NAN) / 1e3);
            let sched_ext = if row["sched_ext"] == true { " + sched_ext" } else { "" };
            table.row([
                format!("`{}`{sched_ext}", row["strategy"].as_str().unwrap_or("?")),
                row["threads"].to_string(),
                if row["busy"] == true { "busy".into() } else { "idle".into() },
                us("p50_ns"),
                us("p99_ns"),
                us("p999_ns"),
                format!("{:.1}", row["cpu_s_per_million"].as_f64().unwrap_or(f64::NAN)),
                self.beside_event(row).map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}")),
                self.machine("kernel").into(),
                self.machine("preemption").into(),
                self.machine("clock").into(),
                ACCELERATOR.into(),
            ]);
        }
        table
    }

    /// A row's median beside that of `event` in the same scene, under the kernel's own scheduler.
    fn beside_event(&self, row: &Value) -> Option<f64> {
        let is_beside = |other: &&Value| {
            other["strategy"] == "event"
                && other["sched_ext"] == false
                && other["threads"] == row["threads"]
                && other["busy"] == row["busy"]
        };
        let beside = self.rows.iter().find(is_beside)?;
        Some(row["p50_ns"].as_f64()? / beside["p50_ns"].as_f64()?)
    }

    /// Puts the tables into the page.
    ///
    /// # Errors
    /// The page has no such section, or cannot be written.
    pub(super) fn write_docs(&self) -> Result<()> {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let text = format!(
            "Guest: {}. Around it: {}, with a load of {}.\n\n{}",
            self.machine("build"),
            machine()?.trim_end(),
            load.split(' ').next().unwrap_or("?"),
            self.table().to_markdown()
        );
        std::fs::write(&path, replace_section(&page, SECTION, &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.machine {
            writeln!(f, "guest: {name} {value}")?;
        }
        self.others.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.passed.iter().try_for_each(|name| writeln!(f, "ok: {name}"))?;
        self.failed.iter().try_for_each(|name| writeln!(f, "failed: {name}"))?;
        if self.rows.is_empty() { Ok(()) } else { write!(f, "{}", self.table().to_text()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &str) -> Report {
        Report::of(&lines.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_check_that_failed_and_a_task_that_ended_badly_are_failures() {
        let report =
            report("machine: kernel 6.1.0\ncheck: ok one\ncheck: failed two: why\nfailed: insmod\ndone");
        assert_eq!(report.passed, ["one"]);
        assert_eq!(report.failed, ["two: why", "insmod"]);
        assert_eq!(report.machine("kernel"), "6.1.0");
    }

    #[test]
    fn a_row_stands_beside_event_in_the_same_scene() {
        let row = |strategy: &str, threads: u32, sched_ext: bool, p50: u32| {
            format!(
                r#"row: {{"threads":{threads},"busy":false,"strategy":"{strategy}","sched_ext":{sched_ext},"events":1,"p50_ns":{p50},"p99_ns":1,"p999_ns":1,"cpu_s_per_million":1.0}}"#
            )
        };
        let rows = [
            row("event", 1, false, 1),
            row("event", 16, true, 7),
            row("event", 16, false, 1000),
            row("module", 16, false, 250),
        ];
        let report = report(&rows.join("\n"));
        let table = report.table();
        let module = table.rows().last().expect("four rows");
        assert_eq!(module[7], "0.25");
        assert_eq!(table.rows()[1][0], "`event` + sched_ext");
    }

    #[test]
    fn the_page_has_the_section() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        replace_section(&page, SECTION, "").expect("the section is marked");
    }
}
