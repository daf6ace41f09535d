//! The results of the turns, as a table: medians of all rounds, figure by figure.

use anyhow::{Context, Result};
use serde_json::Value;

use super::peers::Peer;
use crate::measure::Spread;
use crate::table::Table;

/// Requests under way, in the order of the columns; the first is the unloaded one.
pub(super) const WINDOWS: [u32; 3] = [1, 20, 220];

/// One row's turns so far.
#[derive(Debug, Default)]
pub(super) struct Figures {
    p50_ns: Vec<f64>,
    p99_ns: Vec<f64>,
    /// By window: RPCs per second, and microseconds of all processors for each, which are seconds for a million.
    rates: [Vec<f64>; WINDOWS.len()],
    cpu: [Vec<f64>; WINDOWS.len()],
    /// Why there are no figures, or not all.
    failures: Vec<String>,
}

fn number(document: &Value, path: &str) -> Result<f64> {
    let value = document.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("no number at {path} in {document}"))
}

impl Figures {
    /// The figures that a client printed.
    pub(super) fn add(&mut self, window: u32, document: &Value) -> Result<()> {
        let column = WINDOWS.iter().position(|of| *of == window).context("a window of the table")?;
        let (requests, seconds) = (number(document, "/requests")?, number(document, "/seconds")?);
        let cpu = number(document, "/client_cpu_seconds")? + number(document, "/server_cpu_seconds")?;
        anyhow::ensure!(requests > 0.0 && seconds > 0.0, "nothing was answered: {document}");
        if window == 1 {
            self.p50_ns.push(number(document, "/latency_ns/0")?);
            self.p99_ns.push(number(document, "/latency_ns/1")?);
        }
        self.rates[column].push(requests / seconds);
        self.cpu[column].push(cpu * 1e6 / requests);
        Ok(())
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    fn is_empty(&self) -> bool {
        self.rates.iter().all(Vec::is_empty)
    }

    fn row(&self, peer: &Peer) -> Vec<String> {
        let mut row = vec![peer.name.to_string(), peer.carrier.to_string()];
        if self.is_empty() {
            let why = self.failures.first().map_or("it has had no turn", String::as_str);
            row.push(format!("not measured: {}", why.replace('|', "/")));
            row.extend(vec!["–".to_string(); 8]);
            return row;
        }
        let cell = |values: &Vec<f64>, show: fn(f64) -> String| {
            Spread::of(values.clone()).map_or("–".into(), |spread| show(spread.median))
        };
        row.push(peer.waits.to_string());
        row.extend([cell(&self.p50_ns, microseconds), cell(&self.p99_ns, microseconds)]);
        row.extend(self.rates[1..].iter().map(|rates| cell(rates, thousands)));
        row.push(Spread::of(self.rates[WINDOWS.len() - 1].clone()).map_or("–".into(), |spread| {
            format!("{} to {}", thousands(spread.low), thousands(spread.high))
        }));
        row.extend(self.cpu.iter().map(|cpu| cell(cpu, |seconds| format!("{seconds:.2}"))));
        row
    }
}

fn microseconds(ns: f64) -> String {
    format!("{:.2} µs", ns / 1e3)
}

fn thousands(rate: f64) -> String {
    match rate {
        ..1e4 => format!("{:.1} k/s", rate / 1e3),
        ..1e6 => format!("{:.0} k/s", rate / 1e3),
        _ => format!("{:.2} M/s", rate / 1e6),
    }
}

/// The table, and its gaps.
pub(super) fn markdown(rows: &[(&Peer, Figures)]) -> String {
    let [_, some, many] = WINDOWS;
    let headings = [
        "32 B and back".to_string(),
        "carried by".into(),
        "both ends".into(),
        "p50".into(),
        "p99".into(),
        format!("{some} under way"),
        format!("{many} under way"),
        "lowest to highest".into(),
        "CPU-s per million, 1 under way".into(),
        format!("{some}"),
        format!("{many}"),
    ];
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    rows.iter().for_each(|(peer, figures)| table.row(figures.row(peer)));
    let mut text = table.to_markdown();
    for (peer, figures) in rows.iter().filter(|(_, figures)| !figures.is_empty()) {
        if let Some(first) = figures.failures.first() {
            let (count, name, carrier) = (figures.failures.len(), peer.name, peer.carrier);
            text.push_str(&format!(
                "\n{name} over {carrier}: turns that failed: {count}. The first: {first}\n"
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rpc::peers::PEERS;

    fn report(requests: u64, seconds: f64) -> Value {
        serde_json::json!({"requests": requests, "seconds": seconds, "client_cpu_seconds": 0.5,
            "server_cpu_seconds": 0.25, "latency_ns": [1_500, 2_250, 9_000]})
    }

    #[test]
    fn a_row_is_the_median_of_its_rounds_and_both_processes_are_paid_for() {
        let mut figures = Figures::default();
        for requests in [1_000_000, 250_000, 500_000] {
            figures.add(1, &report(requests, 0.5)).expect("it is whole");
        }
        for requests in [3_000_000, 1_000_000] {
            figures.add(220, &report(requests, 1.0)).expect("it is whole");
        }
        let text = markdown(&[(&PEERS[0], figures)]);
        let row = text.lines().nth(2).expect("a row");
        assert!(
            row.contains("| 1.50 µs | 2.25 µs | – | 3.00 M/s | 1.00 M/s to 3.00 M/s | 1.50 | – | 0.75 |"),
            "{row}"
        );
    }

    #[test]
    fn a_system_that_is_not_there_is_a_row_with_its_reason() {
        let mut figures = Figures::default();
        figures.fail("needs a|b".into());
        figures.fail("and more".into());
        let text = markdown(&[(&PEERS[1], figures)]);
        let row = text.lines().nth(2).expect("a row");
        assert!(row.contains("not measured: needs a/b |") && !text.contains("and more"), "{text}");
        assert_eq!(row.matches('|').count(), text.lines().next().expect("headings").matches('|').count());
    }

    #[test]
    fn a_turn_that_failed_is_told_below_the_others() {
        let mut figures = Figures::default();
        figures.add(20, &report(100_000, 1.0)).expect("it is whole");
        figures.fail("no reply for 20 s".into());
        let text = markdown(&[(&PEERS[0], figures)]);
        assert!(text.contains("| 100 k/s |") && text.contains("turns that failed: 1"), "{text}");
    }

    #[test]
    fn half_a_report_is_refused() {
        let mut figures = Figures::default();
        assert!(figures.add(1, &Value::Null).is_err());
        assert!(figures.add(7, &report(1, 1.0)).is_err(), "there is no such column");
        assert!(figures.add(20, &report(0, 1.0)).is_err(), "nothing was answered");
        assert!(figures.is_empty());
    }
}
