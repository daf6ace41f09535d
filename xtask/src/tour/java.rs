//! The stop of Java: a message between two JVMs by RDMA, beside sockets.

use anyhow::Result;

use crate::bench::java_comparison;
use crate::measure::{Program, Quantity};
use crate::shell::Log;
use crate::table::Table;

use super::page::{Bar, Chart};
use super::{Results, Stop};

/// The ways for which there is time.
const WAYS: &str = "READ,WRITE,RPC,NIO_UNIX,NIO_TCP,NIO_TCP_BLOCKING";

/// Round trips between two JVMs.
pub(super) fn beside_sockets(program: &Program, results: &mut Results) -> Result<Stop> {
    let mut stop = Stop::new(
        "Java, without a native library",
        "A message goes to another JVM and comes back: by RDMA over queues that both have mapped, in pure Java, and by the JDK's own sockets.",
        "cargo xtask bench --java",
    );
    let properties = [("ways", WAYS), ("sizes", "64"), ("millis", "200"), ("rounds", "1")];
    let text = match java_comparison(program, &properties, &Log::create("tour-java")?)? {
        Ok(text) => text,
        Err(missing) => {
            stop.output = missing.0;
            return Ok(stop);
        }
    };
    let rows: Vec<(String, f64)> = text.lines().filter_map(row).collect();
    let find = |what: &str| rows.iter().find(|(label, _)| label == what).map(|(_, ns)| *ns);
    if let (Some(write), Some(tcp)) =
        (find("Highwire WRITE, shared memory, polling"), find("NIO, TCP, polling"))
    {
        results.row(
            "64 B to another JVM and back, WRITE",
            &Quantity::RoundTrip.show(write),
            &format!("NIO over TCP {}", Quantity::RoundTrip.show(tcp)),
            &ratio(write / tcp),
        );
    }
    let mut sum = Table::new(&["way", "median", "of TCP"]);
    for (what, ns) in &rows {
        let share = find("NIO, TCP, polling").map_or(String::new(), |tcp| ratio(ns / tcp));
        sum.row([what.clone(), Quantity::RoundTrip.show(*ns), share]);
    }
    stop.sum = Some(sum);
    let bars = rows.into_iter().map(|(label, value)| Bar {
        label,
        value,
        text: Quantity::RoundTrip.show(value),
        mark: None,
    });
    stop.chart = Some(Chart {
        title: "64 bytes between two JVMs and back, median (shorter is better)".into(),
        bars: bars.collect(),
        is_logarithmic: true,
    });
    Ok(stop)
}

/// With two digits that say something, however small it is.
fn ratio(value: f64) -> String {
    let places = if value >= 0.1 { 2 } else { 1 + (-value.max(1e-9).log10()).ceil() as usize };
    format!("{value:.places$} ×")
}

/// A row of the comparison's table: what it is, and its median in nanoseconds.
fn row(line: &str) -> Option<(String, f64)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, what, over, waits, times, ..] = cells[..] else { return None };
    let median: f64 = times.split(" / ").next()?.parse().ok()?;
    Some((format!("{what}, {over}, {waits}"), median * 1e3))
}

#[cfg(test)]
mod tests {
    use super::{ratio, row};

    #[test]
    fn a_small_ratio_is_not_rounded_to_nothing() {
        assert_eq!([1.5, 0.31, 0.042, 0.000_23].map(ratio), ["1.50 ×", "0.31 ×", "0.042 ×", "0.00023 ×"]);
    }

    #[test]
    fn a_median_is_read_from_a_row_and_not_from_its_heading() {
        let line = "| Highwire WRITE | shared memory | polling | 0.43 / 1.41 / 13.3 | 0.05 × |";
        assert_eq!(row(line), Some(("Highwire WRITE, shared memory, polling".into(), 430.0)));
        assert_eq!(row("| p50 / p99 / p99.9 in µs | over | waits | 64 B | of TCP |"), None);
        assert_eq!(row("|---|---|---|---:|---:|"), None);
        assert_eq!(row("2 processors, Java 25"), None);
    }
}
