//! Loopback: how long a message takes from the wire through a core and back, and how many a core can take.

use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, prototype};
use crate::client::{Client, Request};
use crate::node::{Node, NodeConfig};
use crate::timeline::{Stage, Stamp};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "loopback", title: "Loopback: latency and throughput by size", run };

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
/// Bytes, and the published rate in Gb/s of frames: in the authors' table, and two months before it in their figure.
const THROUGHPUT: [(usize, f64, f64); 7] = [
    (16, 84.9, 73.0),
    (32, 74.0, 78.0),
    (64, 86.6, 91.0),
    (128, 101.5, 106.0),
    (256, 118.1, 122.0),
    (512, 139.3, 138.0),
    (1024, 155.4, 161.0),
];
/// Messages of a burst, and bytes of the message before them that announces them.
const BURST: usize = 20;
const CONFIGURATION_BYTES: usize = 24;
/// Messages that warm up caches and predictor.
const WARM: usize = 4;
/// MAC and serial I/O, in and out, in nanoseconds: 69 less 17, and 65 less 13.
const MAC_NS: f64 = 52.0;
const PROGRAM: &str = "loopback";

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut here = Vec::new();
    for (step, (bytes, [least, median, most])) in PUBLISHED.into_iter().enumerate() {
        (settings.progress)(step as f64 / PUBLISHED.len() as f64);
        let (_, last) = latency(settings, PROGRAM, bytes, &prototype())?;
        here.push((bytes as f64, last));
        outcome.check(
            EXPERIMENT.name,
            format!("{bytes} bytes, first word in to last word out, cycles"),
            median.to_string(),
            last,
            "cycles",
            (least, most),
        );
    }
    wire(settings, &mut outcome)?;
    throughput(settings, &mut outcome)?;
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

/// Nanoseconds, with and without what the prototype would have between the interface and the wire: MAC and serial I/O are a constant of
/// the paper's, never simulated.
fn wire(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let nanoseconds = |cycles: f64| cycles / super::CYCLES_PER_NANOSECOND;
    let (_, last) = latency(settings, PROGRAM, 16, &prototype())?;
    let here = nanoseconds(last);
    // They print whole nanoseconds, and the least and the most are five cycles apart.
    let near = |value: f64| (value - 1.0, value + 1.0);
    let what = "16 bytes, first word in to last word out";
    outcome.check(EXPERIMENT.name, what, "17 ns", here, "ns", near(17.0));
    let claim = format!("{what}, wire to wire: {MAC_NS} ns more, a constant");
    outcome.check(EXPERIMENT.name, claim, "69 ns (OSDI'21)", here + MAC_NS, "ns", near(69.0));
    let (first, _) = spans(settings, PROGRAM, 8, &prototype())?;
    let [least, median] = [first[0], first[first.len() / 2]].map(|cycles| nanoseconds(cycles as f64));
    let (claim, figure) = ("8 bytes, first word in to first word out, least and median", super::figure);
    // The earlier paper does not say between which points it counts. This interval fits, in a run that was
    // not made for 8 bytes.
    outcome.compare(EXPERIMENT.name, claim, "13 ns", format!("{} and {} ns", figure(least), figure(median)));
    outcome.compare(
        EXPERIMENT.name,
        format!("the same, wire to wire: {MAC_NS} ns more"),
        "65 ns (preprint)",
        format!("{} and {} ns", figure(least + MAC_NS), figure(median + MAC_NS)),
    );
    Ok(())
}

/// Messages one behind the other, as the authors count them: bytes of frames, over the time from the first word in to the last word out,
/// of a short message and twenty others.
fn throughput(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut points = Vec::new();
    for (bytes, published, drawn) in THROUGHPUT {
        let here = rate(settings, bytes)?;
        points.push((bytes as f64, here));
        outcome.compare(
            EXPERIMENT.name,
            format!("throughput of a core, {bytes} bytes, frames"),
            format!("{published} Gb/s ({drawn} in the figure)"),
            format!("{} Gb/s", super::figure(here)),
        );
    }
    let paper = |pick: fn(&(usize, f64, f64)) -> f64| {
        THROUGHPUT.iter().map(|row| (row.0 as f64, pick(row))).collect()
    };
    outcome.charts.push(Chart {
        title: "Loopback: throughput of a core".to_string(),
        across: "bytes".to_string(),
        up: "Gb/s of frames".to_string(),
        is_log: false,
        series: vec![
            Series { name: "nanoPU, here".to_string(), is_paper: false, points },
            Series { name: "nanoPU, published".to_string(), is_paper: true, points: paper(|row| row.1) },
        ],
    });
    Ok(())
}

fn rate(settings: &Settings<'_>, bytes: usize) -> Result<f64, ExperimentError> {
    let program = settings.files.program(PROGRAM)?;
    let mut node = Node::new(&program, &prototype())
        .map_err(|error| ExperimentError::NoProgram(PROGRAM.to_string(), error.to_string()))?;
    let request = |sent, bytes| Request { sent, context: 0, payload: vec![7; bytes] };
    // One alone, so that the program has been there; then the burst, all due at once.
    let start = 40_000;
    let burst = std::iter::repeat_n(request(start, bytes), BURST);
    let requests: Vec<Request> =
        [request(10_000, bytes), request(start, CONFIGURATION_BYTES)].into_iter().chain(burst).collect();
    let answers = Client::new(0x0a00_0001, 0x0a00_0002, 0)
        .play(&mut node, &requests, 100_000, |_, _| {})
        .map_err(|event| ExperimentError::trapped(PROGRAM, &event))?;
    let frame = |bytes: usize| crate::packet::HEADER_BYTES + bytes;
    let last = answers.iter().flatten().map(|answer| answer.received).max().unwrap_or(start);
    let cycles = last + frame(bytes).div_ceil(8) as u64 - start;
    let all = frame(CONFIGURATION_BYTES) + BURST * frame(bytes);
    Ok(8.0 * all as f64 / cycles as f64 * super::CYCLES_PER_NANOSECOND)
}

/// The medians from a message's first word on the interface to its answer's first and last, while it is alone.
pub(super) fn latency(
    settings: &Settings<'_>,
    program: &'static str,
    bytes: usize,
    config: &NodeConfig,
) -> Result<(f64, f64), ExperimentError> {
    let (first, last) = spans(settings, program, bytes, config)?;
    Ok((first[first.len() / 2] as f64, last[last.len() / 2] as f64))
}

/// Cycles from a message's first word on the interface to its answer's first, and to its last, ascending; at least one of each.
fn spans(
    settings: &Settings<'_>,
    program: &'static str,
    bytes: usize,
    config: &NodeConfig,
) -> Result<(Vec<u64>, Vec<u64>), ExperimentError> {
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
    if first.is_empty() {
        return Err(broken("no answers"));
    }
    first.sort_unstable();
    last.sort_unstable();
    Ok((first, last))
}
