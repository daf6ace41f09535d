//! The results of the rounds, as tables: medians of all rounds, column by column.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::server::Kind;
use crate::measure::Spread;
use crate::table::Table;

/// The reported figures of a loop.
#[derive(Debug, Default, Clone, PartialEq)]
struct Loops {
    per_second: Vec<f64>,
    per_cpu_second: Vec<f64>,
    aborted: Vec<f64>,
    /// At half load.
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
    p999_ns: Vec<f64>,
}

/// The system of a row. Those that keep everything in memory come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Ours { is_durable: bool },
    Theirs(Kind),
}

impl Whose {
    fn name(self) -> &'static str {
        match self {
            Whose::Ours { is_durable: false } => "Highwire, the nodes' own workers",
            Whose::Ours { is_durable: true } => "Highwire, the nodes' own workers, `--data`",
            Whose::Theirs(kind) => kind.name(),
        }
    }

    fn copies(self) -> &'static str {
        match self {
            Whose::Ours { is_durable: false } => "3, memory",
            Whose::Ours { is_durable: true } => "3, disk",
            Whose::Theirs(kind) => kind.copies(),
        }
    }

    fn is_durable(self) -> bool {
        match self {
            Whose::Ours { is_durable } => is_durable,
            Whose::Theirs(kind) => kind.is_durable(),
        }
    }
}

/// Transactions, by benchmark, level and system.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<(String, bool, Whose), Loops>);

fn number(document: &Value, path: &str) -> Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("no number at {path} in {document}"))
}

impl Rows {
    /// The driver's output.
    pub(super) fn add(&mut self, kind: Kind, workload: &str, document: &Value) -> Result<()> {
        let loops = self.of(workload, Whose::Theirs(kind));
        loops.per_second.push(number(document, "/closed/committed_per_second")?);
        loops.per_cpu_second.push(number(document, "/closed/committed_per_cpu_second")?);
        loops.aborted.push(number(document, "/closed/abort_rate")?);
        loops.p50_ns.push(number(document, "/half_load/p50_ns")?);
        loops.p99_ns.push(number(document, "/half_load/p99_ns")?);
        loops.p999_ns.push(number(document, "/half_load/p999_ns")?);
        Ok(())
    }

    /// The output of `highwire bench store --half-load --json`.
    pub(super) fn add_own(&mut self, workload: &str, is_durable: bool, document: &Value) -> Result<()> {
        let loops = self.of(workload, Whose::Ours { is_durable });
        loops.per_second.push(number(document, "/0/outcomes/0/committed_per_second")?);
        loops.per_cpu_second.push(number(document, "/0/outcomes/0/committed_per_cpu_second")?);
        loops.aborted.push(number(document, "/0/outcomes/0/abort_rate")?);
        loops.p50_ns.push(number(document, "/0/outcomes/1/latency_ns/p50")?);
        loops.p99_ns.push(number(document, "/0/outcomes/1/latency_ns/p99")?);
        loops.p999_ns.push(number(document, "/0/outcomes/1/latency_ns/p999")?);
        Ok(())
    }

    fn of(&mut self, workload: &str, whose: Whose) -> &mut Loops {
        self.0.entry((workload.into(), whose.is_durable(), whose)).or_default()
    }

    pub(super) fn to_markdown(&self) -> String {
        let mut text = String::new();
        let mut benchmarks: Vec<&String> = self.0.keys().map(|(workload, _, _)| workload).collect();
        benchmarks.dedup();
        for workload in benchmarks {
            let mut table = Table::new(&[
                workload,
                "copies",
                "committed/s",
                "per CPU-second",
                "aborted attempts",
                "p50",
                "p99",
                "p99.9",
            ]);
            for ((_, _, whose), loops) in self.0.iter().filter(|((name, _, _), _)| name == workload) {
                table.row([
                    whose.name().into(),
                    whose.copies().into(),
                    count(median(&loops.per_second)),
                    count(median(&loops.per_cpu_second)),
                    format!("{:.2} %", 100.0 * median(&loops.aborted)),
                    time(median(&loops.p50_ns)),
                    time(median(&loops.p99_ns)),
                    time(median(&loops.p999_ns)),
                ]);
            }
            text.push_str(&table.to_markdown());
            text.push('\n');
        }
        text
    }
}

/// redis-benchmark's commands, by pipeline and system.
#[derive(Debug, Default)]
pub(super) struct Commands(BTreeMap<(u64, Kind), Runs>);

#[derive(Debug, Default)]
struct Runs {
    /// By command: per second.
    rates: BTreeMap<String, Vec<f64>>,
    /// Of all commands together.
    cpu_seconds: Vec<f64>,
}

impl Commands {
    /// The output of redis-benchmark with `--csv`, and the processor time of the processes.
    pub(super) fn add(&mut self, kind: Kind, depth: u64, document: &Value) -> Result<()> {
        let runs = self.0.entry((depth, kind)).or_default();
        runs.cpu_seconds.push(number(document, "/cpu_seconds")?);
        let output = document["output"].as_str().context("redis-benchmark printed nothing")?;
        for (command, rate) in rates(output)? {
            runs.rates.entry(command).or_default().push(rate);
        }
        Ok(())
    }

    pub(super) fn to_markdown(&self) -> String {
        let Some(first) = self.0.values().next() else { return String::new() };
        let names: Vec<&String> = first.rates.keys().collect();
        let titles: Vec<String> = names.iter().map(|name| format!("{name}/s")).collect();
        let mut headings = vec!["redis-benchmark", "copies", "requests under way"];
        headings.extend(titles.iter().map(String::as_str));
        headings.push("CPU seconds");
        let mut table = Table::new(&headings);
        for ((depth, kind), runs) in &self.0 {
            let mut row = vec![kind.name().into(), kind.copies().into(), format!("50 × {depth}")];
            row.extend(
                names
                    .iter()
                    .map(|name| runs.rates.get(*name).map_or("–".into(), |rates| count(median(rates)))),
            );
            row.push(format!("{:.1}", median(&runs.cpu_seconds)));
            table.row(row);
        }
        table.to_markdown()
    }
}

/// Commands and how many of them there were per second.
fn rates(csv: &str) -> Result<Vec<(String, f64)>> {
    let lines = csv.lines().filter(|line| !line.starts_with("\"test\""));
    let parse = |line: &str| {
        let mut words = line.trim_matches('"').split("\",\"");
        let name = words.next()?.split(' ').next()?.to_string();
        Some((name, words.next()?.parse().ok()?))
    };
    lines.map(|line| parse(line).with_context(|| format!("redis-benchmark printed `{line}`"))).collect()
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values.to_vec()).map_or(f64::NAN, |spread| spread.median)
}

fn count(value: f64) -> String {
    if value < 1e4 { format!("{value:.0}") } else { format!("{:.1} k", value / 1e3) }
}

fn time(ns: f64) -> String {
    if ns < 1e6 { format!("{:.0} µs", ns / 1e3) } else { format!("{:.1} ms", ns / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_benchmark_prints_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"99900.10\",\"0.2\"\n\"MSET (10 keys)\",\"50000.00\",\"0.5\"\n";
        let expected = [("SET".to_string(), 99900.1), ("MSET".to_string(), 50000.0)];
        assert_eq!(rates(csv).expect("it is well formed"), expected);
        assert!(rates("Could not connect").is_err());
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds() {
        let mut rows = Rows::default();
        for rate in [3000.0, 1000.0, 20_000.0] {
            let document = serde_json::json!({
                "closed": {"committed_per_second": rate, "committed_per_cpu_second": rate / 2.0, "abort_rate": 0.25},
                "half_load": {"p50_ns": 150_000, "p99_ns": 2_000_000, "p999_ns": 3_000_000},
            });
            rows.add(Kind::RedisMemory, "tatp", &document).expect("it is whole");
        }
        let text = rows.to_markdown();
        assert!(
            text.contains("| Redis | 1, memory | 3000 | 1500 | 25.00 % | 150 µs | 2.0 ms | 3.0 ms |"),
            "{text}"
        );
        assert!(rows.add(Kind::RedisMemory, "tatp", &Value::Null).is_err());
        // Highwire's are the first of each level.
        let loop_of = |rate: f64| {
            serde_json::json!({"committed_per_second": rate, "committed_per_cpu_second": rate, "abort_rate": 0.0,
                "latency_ns": {"p50": 1, "p99": 2, "p999": 3}})
        };
        let own = serde_json::json!([{"outcomes": [loop_of(9.0), loop_of(4.0)]}]);
        rows.add_own("tatp", true, &own).expect("it is whole");
        rows.add_own("tatp", false, &own).expect("it is whole");
        let text = rows.to_markdown();
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {text}"));
        assert!(at("own workers | 3, memory") < at("| Redis | 1, memory"));
        assert!(at("| Redis | 1, memory") < at("own workers, `--data` | 3, disk"));
    }
}
