//! The stop of threads that wait: how late each strategy is, and with how many of them.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::measure::{Program, Quantity};
use crate::table::Table;

use super::page::{Bar, Chart};
use super::{Results, Stop};

const WORDS: &str = "bench wake --threads 1,16,128 --strategy busy-poll,event,dispatcher,leader-follower,affine --rounds 1 --turn-ms 40";

/// A strategy in a word, for visitors.
const STRATEGIES: [(&str, &str); 5] = [
    ("busy-poll", "polling"),
    ("event", "an event descriptor"),
    ("dispatcher", "FastWake's dispatcher"),
    ("leader-follower", "leader and followers"),
    ("affine", "FastWake's affinity"),
];

/// Latency against threads.
pub(super) fn strategies(program: &Program, results: &mut Results) -> Result<Stop> {
    let document = program.json(WORDS)?;
    let rows = document.as_array().context("a list of rows")?;
    let mut table = Table::new(&["threads", "waiting by", "median", "p99"]);
    let mut bars = Vec::new();
    for threads in [1, 16, 128] {
        for (strategy, what) in STRATEGIES {
            // Events for one of many threads are the harder case; one thread has only its own.
            let event = if threads == 1 { "own" } else { "other" };
            let Some(row) = rows.iter().find(|row| is(row, strategy, threads, event)) else { continue };
            let [p50, p99] = ["p50_ns", "p99_ns"].map(|name| row[name].as_f64().unwrap_or_default());
            let text = Quantity::RoundTrip.show(p50);
            table.row([threads.to_string(), what.into(), text.clone(), Quantity::RoundTrip.show(p99)]);
            let s = if threads == 1 { "" } else { "s" };
            bars.push(Bar { label: format!("{threads} thread{s}, {what}"), value: p50, text, mark: None });
        }
    }
    let median = |strategy: &str| {
        let row = rows.iter().find(|row| is(row, strategy, 128, "other"));
        row.and_then(|row| row["p50_ns"].as_f64()).unwrap_or_default()
    };
    let (dispatcher, event) = (median("dispatcher"), median("event"));
    results.row(
        "one of 128 threads has its event, FastWake's dispatcher",
        &Quantity::RoundTrip.show(dispatcher),
        &format!("event descriptor {}", Quantity::RoundTrip.show(event)),
        &format!("{:.2} ×", dispatcher / event.max(1.0)),
    );
    let mut stop = Stop::new(
        "Hundreds of threads wait, and none of them polls",
        "An event goes to one of many threads on another core, and its answer comes back. A thread that polls has it soonest and needs a core of its own; an event descriptor costs a wake-up across cores. FastWake's strategies and ours lie between, for as many threads as there are.",
        format!("highwire {WORDS}"),
    );
    stop.sum = Some(table);
    stop.chart = Some(Chart {
        title: "From the event to its answer, median (shorter is better)".into(),
        bars,
        is_logarithmic: true,
    });
    Ok(stop)
}

fn is(row: &Value, strategy: &str, threads: u64, event: &str) -> bool {
    row["strategy"] == strategy
        && row["threads"] == threads
        && row["event"] == event
        && row["core"] == "idle"
        && row["cores"] == 2
}
