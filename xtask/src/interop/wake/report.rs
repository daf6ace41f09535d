//! The guest's output, as checks and tables.

use std::fmt;

use anyhow::{Context, Result};
use serde_json::Value;

use super::guest::ACCELERATOR;
use crate::bench::{machine, replace_section};
use crate::measure::Spread;
use crate::shell::root;
use crate::table::Table;

/// The page with the tables.
const PAGE: &str = "docs/measurements/wake-kernel.md";
pub(super) const KERNEL: &str = "kernel";
pub(super) const NEWEST: &str = "newest kernel";

/// Lines of the guest by their kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// Kernel, build, preemption, clock and the like, by name.
    machine: Vec<(String, String)>,
    pub(super) passed: Vec<String>,
    /// Checks that failed, and why; and tasks that ended in an error.
    pub(super) failed: Vec<String>,
    rows: Vec<Value>,
    /// Programs over the kernel's own RNIC.
    rxe: Vec<Value>,
    /// Threads that lose their core while they hold a lock.
    slices: Vec<Value>,
    /// Lines of no other kind, for people to read.
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
            } else if let Some(row) =
                line.strip_prefix("rxe: ").and_then(|row| serde_json::from_str(row).ok())
            {
                report.rxe.push(row);
            } else if let Some(row) =
                line.strip_prefix("slices: ").and_then(|row| serde_json::from_str(row).ok())
            {
                report.slices.push(row);
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

    /// `ib_send_lat` over the kernel's own RNIC.
    fn rxe_table(&self) -> Table {
        let headings = [
            "`ib_send_lat` over rxe",
            "both ends on",
            "core",
            "typical µs",
            "p99 µs",
            "events polled for",
            "kernel",
            "preemption",
            "clock",
            "processor",
        ];
        let mut table = Table::new(&headings);
        for row in &self.rxe {
            let median = |name: &str| {
                let values = row[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
                Spread::of(values).map_or_else(|| "–".into(), |spread| format!("{:.1}", spread.median))
            };
            let way = if row["way"] == "sleeps" { "`-e`" } else { "polling" };
            let with = match row["with"].as_str() {
                Some("scheduler") => " + sched_ext",
                Some("module") => " + module",
                _ => "",
            };
            let polled = match (row["hits"].as_u64(), row["polls"].as_u64()) {
                (Some(hits), Some(polls)) if polls > 0 => {
                    format!("{:.0} %", 100.0 * hits as f64 / polls as f64)
                }
                _ => "–".into(),
            };
            table.row([
                format!("{way}{with}"),
                if row["cores"] == 1 { "one core".into() } else { "a core each".into() },
                if row["busy"] == true { "busy".into() } else { "idle".into() },
                median("typical_us"),
                median("p99_us"),
                polled,
                self.machine("kernel").into(),
                self.machine("preemption").into(),
                self.machine("clock").into(),
                ACCELERATOR.into(),
            ]);
        }
        table
    }

    /// The lost cores that extended time slices prevent.
    fn slices_text(&self) -> String {
        let mut text = String::new();
        for row in &self.slices {
            let number = |name: &str| row[name].as_u64().unwrap_or(0);
            let how = if row["extension"] == true { "with extensions of its time slice" } else { "without" };
            text += &format!(
                "- A thread that takes a token for 5 µs over and over, beside one that computes, {how}: {} times, {} extended, {} times it lost its core with the token, {:.0} µs the longest.\n",
                number("holds"),
                number("granted"),
                number("lost"),
                row["longest_us"].as_f64().unwrap_or(f64::NAN)
            );
        }
        if !self.slices.iter().any(|row| row["extension"] == true) {
            text += "- This kernel extends no time slices.\n";
        }
        text
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

    /// Puts the results into the page: the strategies into this section, channels and time slices into the
    /// one for them.
    ///
    /// # Errors
    /// The page has no such section, or cannot be written.
    pub(super) fn write_docs(&self, section: &str) -> Result<()> {
        let path = root().join(PAGE);
        let mut page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let place = format!(
            "Guest: {}. Around it: {}, with a load of {}.\n\n",
            self.machine("build"),
            machine()?.trim_end(),
            load.split(' ').next().unwrap_or("?"),
        );
        if !self.rows.is_empty() {
            page = replace_section(
                &page,
                section,
                &format!("{place}{}", self.table().to_folded_markdown("All rows")),
            )?;
        }
        if !self.rxe.is_empty() {
            page = replace_section(
                &page,
                &channels(section),
                &format!("{place}{}", self.rxe_table().to_folded_markdown("All rows")),
            )?;
        }
        if !self.slices.is_empty() {
            page = replace_section(&page, &slices(section), &format!("{place}{}", self.slices_text()))?;
        }
        std::fs::write(&path, page).with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
        Ok(())
    }
}

/// The section of the page for the kernel's own completion channels.
fn channels(section: &str) -> String {
    format!("{section}, channels")
}

/// The section of the page for time slices.
fn slices(section: &str) -> String {
    format!("{section}, slices")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.machine {
            writeln!(f, "guest: {name} {value}")?;
        }
        self.others.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        self.passed.iter().try_for_each(|name| writeln!(f, "ok: {name}"))?;
        self.failed.iter().try_for_each(|name| writeln!(f, "failed: {name}"))?;
        if !self.rows.is_empty() {
            writeln!(f, "{}", self.table().to_text())?;
        }
        if !self.rxe.is_empty() {
            writeln!(f, "{}", self.rxe_table().to_text())?;
        }
        if self.slices.is_empty() { Ok(()) } else { write!(f, "{}", self.slices_text()) }
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
    fn programs_over_the_kernels_rnic_and_time_slices_are_told() {
        let report = report(
            r#"rxe: {"way":"sleeps","cores":1,"busy":true,"with":"scheduler","typical_us":[9.0,30.0,11.0],"p99_us":[50.0,40.0,60.0],"polls":0,"hits":0}
rxe: {"way":"sleeps","cores":2,"busy":false,"with":"module","typical_us":[8.0],"p99_us":[9.0],"polls":200,"hits":150}
slices: {"extension":false,"holds":100,"lost":7,"granted":0,"longest_us":4000.4}
slices: none here: this kernel extends no time slices: Invalid argument"#,
        );
        let table = report.rxe_table();
        assert_eq!(
            table.rows()[0][..6],
            ["`-e` + sched_ext", "one core", "busy", "11.0", "50.0", "–"].map(String::from)
        );
        assert_eq!(
            table.rows()[1][..6],
            ["`-e` + module", "a core each", "idle", "8.0", "9.0", "75 %"].map(String::from)
        );
        let text = report.slices_text();
        assert!(
            text.contains("without: 100 times, 0 extended, 7 times it lost its core with the token, 4000 µs"),
            "{text}"
        );
        assert!(text.ends_with("This kernel extends no time slices.\n"), "{text}");
    }

    #[test]
    fn the_page_has_the_section() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        for section in [KERNEL, NEWEST] {
            for section in [section.to_owned(), channels(section), slices(section)] {
                replace_section(&page, &section, "").expect("the section is marked");
            }
        }
    }
}
