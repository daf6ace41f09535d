//! Loopback: how long a message takes from the wire through a core and back, and how many a core can take.

use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings};
use crate::client::{Client, Request};
use crate::node::{Node, NodeConfig};
use crate::timeline::{Stage, Stamp};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "loopback", title: "Loopback latency by size", run };

/// Bytes, and the published cycles from a message's first word to its answer's last: least, median, most.
const PUBLISHED: [(usize, [f64; 3]); 7] = [
    (16, [52.0, 55.0, 57.0]),
    (32, [60.0, 63.0, 113.0]),
    (64, [75.0, 78.0, 82.0]),
    (128, [99.0, 101.0, 110.0]),
    (256, [149.0, 151.5, 172.0]),
    (512, [247.0, 250.0, 271.0]),
    (1024, [441.0, 445.0, 463.0]),
];
/// Messages that warm up caches and predictor.
const WARM: usize = 4;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut here = Vec::new();
    for (step, (bytes, [least, median, most])) in PUBLISHED.into_iter().enumerate() {
        (settings.progress)(step as f64 / PUBLISHED.len() as f64);
        let (first, last) = latency(settings, "loopback", bytes, &NodeConfig::default())?;
        here.push((bytes as f64, last));
        outcome.check(
            EXPERIMENT.name,
            format!("{bytes} bytes, first word in to last word out, cycles"),
            format!("{median} ({least} to {most})"),
            last,
            "cycles",
            (least, most),
        );
        if bytes == 16 {
            let nanoseconds = super::figure(first / super::CYCLES_PER_NANOSECOND);
            outcome.report(
                EXPERIMENT.name,
                "16 bytes, first word in to first word out",
                format!("{nanoseconds} ns"),
            );
        }
    }
    let paper = PUBLISHED.map(|(bytes, [_, median, _])| (bytes as f64, median)).to_vec();
    outcome.charts.push(Chart {
        title: "Loopback: first word in to last word out".to_string(),
        across: "bytes".to_string(),
        up: "cycles".to_string(),
        is_log: false,
        series: vec![
            Series { name: "nanoPU, here".to_string(), is_paper: false, points: here },
            Series { name: "nanoPU, published".to_string(), is_paper: true, points: paper },
        ],
    });
    Ok(outcome)
}

/// The medians from a message's first word on the interface to its answer's first and last, while it is alone.
pub(super) fn latency(
    settings: &Settings<'_>,
    program: &'static str,
    bytes: usize,
    config: &NodeConfig,
) -> Result<(f64, f64), ExperimentError> {
    let image = settings.files.program(program)?;
    let mut node = Node::new(&image, config)
        .map_err(|error| ExperimentError::NoProgram(program.to_string(), error.to_string()))?;
    node.record_timeline();
    // The longest take eight cycles for a word.
    let interval = 3_007.max(bytes as u64 + 1_007);
    let requests: Vec<Request> = (0..WARM as u64 + 20)
        .map(|number| Request { sent: 10_000 + interval * number, context: 0, payload: vec![7; bytes] })
        .collect();
    let answers = Client::new(0x0a00_0001, 0x0a00_0002, 0)
        .play(&mut node, &requests, 100_000, |_, _| {})
        .map_err(|event| ExperimentError::trapped(program, &event))?;
    let broken = |reason: &str| ExperimentError::Broken(format!("{program}, {bytes} bytes: {reason}"));
    if answers.iter().any(Option::is_none) {
        return Err(broken("a message stayed without an answer"));
    }
    // While caches are cold a packet that leaves early may be damaged.
    if node.nic().sent().underruns > WARM as u64 {
        return Err(broken("the core was slower than the wire"));
    }
    // Acknowledgements are headers alone.
    let headers = crate::packet::HEADER_BYTES as u64 / 8;
    let is_answer = |stamp: &Stamp| stamp.stage == Stage::WireOut && stamp.value > headers;
    let stamps: Vec<Stamp> = node.take_timeline().into_iter().filter(is_answer).collect();
    let (mut first, mut last): (Vec<u64>, Vec<u64>) = requests[WARM..]
        .iter()
        .filter_map(|request| {
            let own = |stamp: &&Stamp| (request.sent..request.sent + interval).contains(&stamp.cycle);
            let mut own = stamps.iter().filter(own);
            let first = own.next()?;
            let last = own.next_back().unwrap_or(first);
            Some((first.cycle - request.sent, last.cycle + last.value - request.sent))
        })
        .unzip();
    let median = |spans: &mut Vec<u64>| {
        spans.sort_unstable();
        spans.get(spans.len() / 2).map(|&span| span as f64).ok_or(broken("no answers"))
    };
    Ok((median(&mut first)?, median(&mut last)?))
}
