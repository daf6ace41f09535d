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
        let (first, last) = latency(settings, bytes, &NodeConfig::default())?;
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

/// The medians from a message's first word on the interface to its answer's first and last.
pub(super) fn latency(
    settings: &Settings<'_>,
    bytes: usize,
    config: &NodeConfig,
) -> Result<(f64, f64), ExperimentError> {
    const PROGRAM: &str = "loopback";
    let program = settings.files.program(PROGRAM)?;
    let mut node = Node::new(&program, config)
        .map_err(|error| ExperimentError::NoProgram(PROGRAM.to_string(), error.to_string()))?;
    node.record_timeline();
    let requests: Vec<Request> = (0..WARM as u64 + 20)
        .map(|number| Request { sent: 10_000 + 3_007 * number, context: 0, payload: vec![7; bytes] })
        .collect();
    Client::new(0x0a00_0001, 0x0a00_0002, 0)
        .play(&mut node, &requests, 100_000, |_, _| {})
        .map_err(|event| ExperimentError::trapped(PROGRAM, &event))?;
    if node.nic().sent().underruns > 0 {
        return Err(ExperimentError::Broken("the core was slower than the wire".to_string()));
    }
    let stamps = node.take_timeline();
    let words = (crate::packet::HEADER_BYTES + bytes).div_ceil(8) as u64;
    let mut spans: Vec<u64> = requests[WARM..]
        .iter()
        .filter_map(|request| {
            // Acknowledgements are shorter, and may leave before it or after.
            let is_answer = |stamp: &&Stamp| stamp.stage == Stage::WireOut && stamp.value == words;
            let mut answers = stamps.iter().filter(is_answer);
            answers.find(|stamp| stamp.cycle > request.sent).map(|stamp| stamp.cycle - request.sent)
        })
        .collect();
    spans.sort_unstable();
    let first = *spans.get(spans.len() / 2).ok_or(ExperimentError::Broken("no answers".to_string()))?;
    Ok((first as f64, (first + words) as f64))
}
