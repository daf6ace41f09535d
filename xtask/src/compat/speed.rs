//! `cargo xtask compat --speed`: programs over Highwire, beside the same kind of program over the kernel's
//! TCP, in the same run.
//!
//! Rounds of all programs follow each other, so that other work of the machine meets each of them; the
//! medians count. Latencies are half round trips and stand beside the floor of the same rounds.

use anyhow::{Context, Result};

use crate::bench::machine;
use crate::measure::Spread;
use crate::measurements;
use crate::shell::Line;
use crate::table::Table;

use super::Workshop;
use super::case::{Case, Link, Ready};
use super::ends::{self, Running};
use super::judge;
use super::outcome::Outcome;
use super::read::{
    Read, perftest_bandwidth, perftest_latency, qperf_bandwidth, qperf_latency, rstream_bandwidth,
    rstream_latency, ucx_bandwidth, ucx_latency,
};

const LATENCY_HEADINGS: [&str; 5] =
    ["8 bytes, half a round trip", "over", "median", "lowest to highest", "times the floor"];
const BANDWIDTH_HEADINGS: [&str; 5] =
    ["64 KiB messages, one direction", "over", "median", "lowest to highest", "of the floor"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Latency,
    Bandwidth,
}

/// One program over one path.
#[derive(Debug)]
struct Row {
    kind: Kind,
    over: &'static str,
    case: Case,
    read: Read,
    values: Vec<f64>,
}

/// Runs everything so many times, prints the tables, and writes them into the page if `write_docs`.
///
/// # Errors
/// The programs cannot be started. One that fails or prints no figure leaves a hole in its row.
pub(super) fn run(workshop: &Workshop, rounds: u32, write_docs: bool) -> Result<()> {
    let mut rows = rows();
    let mut floors: [Vec<f64>; 2] = Default::default();
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        for (floor, value) in floors.iter_mut().zip(floor(workshop)?) {
            floor.push(value);
        }
        for row in &mut rows {
            let running = Running::new(workshop, &row.case)?;
            if running.missing_program().is_some() {
                continue;
            }
            let outcome = ends::play(&running)?;
            row.values.extend(value_of(&outcome, row.read));
        }
    }
    let latency = table(Kind::Latency, &rows, &floors[0]);
    let bandwidth = table(Kind::Bandwidth, &rows, &floors[1]);
    println!("\n{}\n{}", latency.to_text(), bandwidth.to_text());
    if write_docs {
        let text = format!(
            "Medians of {rounds} rounds, on {}.\n\n{}\n{}",
            machine()?.trim(),
            latency.to_markdown(),
            bandwidth.to_markdown()
        );
        measurements::PROGRAMS.write(&text)?;
    }
    Ok(())
}

fn value_of(outcome: &Outcome, read: Read) -> Option<f64> {
    read(&outcome.client.output).filter(|value| *value > 0.0 && outcome.trouble().is_none())
}

fn table(kind: Kind, rows: &[Row], floors: &[f64]) -> Table {
    let mut table = Table::new(match kind {
        Kind::Latency => &LATENCY_HEADINGS,
        Kind::Bandwidth => &BANDWIDTH_HEADINGS,
    });
    let floor = Spread::of(floors.to_vec());
    let show = |value: f64| match kind {
        Kind::Latency => format!("{value:.2} µs"),
        Kind::Bandwidth => format!("{value:.1} Gb/s"),
    };
    let mut add = |title: &str, over: &str, spread: Option<Spread>| {
        let text = |cell: fn(Spread) -> f64| spread.map_or_else(|| "–".into(), |spread| show(cell(spread)));
        let ratio = spread.zip(floor).map(|(spread, floor)| spread.median / floor.median);
        table.row([
            title.to_string(),
            over.to_string(),
            text(|spread| spread.median),
            format!("{} to {}", text(|spread| spread.low), text(|spread| spread.high)),
            match (ratio, kind) {
                (None, _) => "–".into(),
                (Some(ratio), Kind::Latency) => format!("{ratio:.2} ×"),
                (Some(ratio), Kind::Bandwidth) => format!("{:.0} %", ratio * 100.0),
            },
        ]);
    };
    add("**the floor**: datagrams and nothing on top", "raw UDP", floor);
    for row in rows.iter().filter(|row| row.kind == kind) {
        add(&format!("`{}`", row.case.title), row.over, Spread::of(row.values.clone()));
    }
    table
}

/// Half a round trip in microseconds, and gigabits per second of longest trains, of raw UDP.
fn floor(workshop: &Workshop) -> Result<[f64; 2]> {
    let output = Line::new(&workshop.highwire.to_string_lossy()).words("perf floor --json").capture()?;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&output.stdout).context("perf floor")?;
    let of = |name: &str| {
        let row = rows.iter().find(|row| row["what"].as_str().is_some_and(|what| what.starts_with(name)));
        row.and_then(|row| row["value"].as_f64()).with_context(|| format!("no {name} in perf floor"))
    };
    Ok([of("UDP round trip, polling")? / 2000.0, of("UDP with GSO and GRO")? * 8.0 / 1e9])
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (link, over) in [(Link::Shm, "Highwire, shared memory"), (Link::Udp, "Highwire, UDP")] {
        let mut add = |kind, words: &str, read| {
            let case = Case::two("speed", &format!("{words} -p {{port}}"), link, judge::perftest);
            rows.push(Row { kind, over, case, read, values: Vec::new() });
        };
        for program in ["ib_write_lat", "ib_send_lat", "ib_send_lat -c UD", "ib_read_lat"] {
            add(Kind::Latency, &format!("{program} -F -s 8 -n 20000"), perftest_latency);
        }
        for program in ["ib_write_bw", "ib_send_bw", "ib_read_bw"] {
            add(Kind::Bandwidth, &format!("{program} -F -s 65536 -n 5000"), perftest_bandwidth);
        }
    }
    let tcp = "the kernel's TCP";
    let verbs = [(Link::Shm, "Highwire, shared memory"), (Link::Udp, "Highwire, UDP")];
    for (kind, test, count) in
        [(Kind::Latency, "tag_lat -s 8", 20_000), (Kind::Bandwidth, "tag_bw -s 65536", 5000)]
    {
        let ucx = |tls: &str, link, over| {
            let words = format!("env UCX_TLS={tls} ucx_perftest -t {test} -n {count} -w 500 -p {{port}}");
            let case = Case::two("speed", &words, link, judge::ucx_perftest)
                .titled(&format!("UCX_TLS={tls} ucx_perftest -t {test}"));
            let read = if kind == Kind::Latency { ucx_latency } else { ucx_bandwidth };
            Row { kind, over, case, read, values: Vec::new() }
        };
        rows.extend(verbs.map(|(link, over)| ucx("rc_verbs,ud_verbs", link, over)));
        rows.push(ucx("tcp", Link::Auto, tcp));
    }
    for (kind, test, read) in [
        (Kind::Latency, "-m 8 {address} tcp_lat", qperf_latency as Read),
        (Kind::Bandwidth, "-m 65536 {address} tcp_bw", qperf_bandwidth),
    ] {
        let case = Case::two("speed", "qperf", Link::Auto, judge::qperf)
            .ends("qperf -lp {port}", &format!("qperf -lp {{port}} -t 1 {test}"), Ready::Port)
            .server_stays()
            .titled(&format!("qperf {}", test.replace("{address} ", "")));
        rows.push(Row { kind, over: tcp, case, read, values: Vec::new() });
    }
    for (kind, sizes, read) in [
        (Kind::Latency, "-S 8 -C 1 -I 3000", rstream_latency as Read),
        (Kind::Bandwidth, "-S 65536 -C 3000 -I 1", rstream_bandwidth),
    ] {
        let rstream = |how: &str, link, over| {
            let words = format!("rstream{how} {sizes}");
            let case = Case::two("speed", &words, link, judge::stream).ends(
                &format!("{words} -p {{port}}"),
                &format!("{words} -p {{port}} -s {{address}}"),
                Ready::Soon,
            );
            Row { kind, over, case, read, values: Vec::new() }
        };
        rows.extend(verbs.map(|(link, over)| rstream("", link, over)));
        rows.push(rstream(" -T s", Link::Auto, tcp));
    }
    rows
}
