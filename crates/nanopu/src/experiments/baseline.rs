//! The nanoPU against the same core with a DMA NIC: loopback, stream and dot product.
//!
//! Messages come one behind the other, as fast as the wire brings them: one that tells the program what is to come, and twenty with
//! data. The rate is that of their frames, headers included, over the time from the first word in to the last word out.

use super::loopback;
use super::{
    CYCLES_PER_NANOSECOND, Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, figure,
};
use crate::client::{Client, Request};
use crate::dma::{DmaEvent, DmaLink, DmaNode, DmaNodeConfig};
use crate::node::{Node, NodeConfig};
use crate::packet::HEADER_BYTES;

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "baseline", title: "Against a DMA NIC through the second-level cache", run };

/// Bytes of a message, and what the DMA NIC takes from first word in to last word out, in nanoseconds, read off the curve.
const LATENCY: [(usize, f64); 7] =
    [(16, 54.0), (32, 55.0), (64, 58.0), (128, 70.0), (256, 96.0), (512, 140.0), (1024, 221.0)];
/// Bytes of a message, and the published rates of loopback in Gb/s of frames: nanoPU and DMA.
const LOOPBACK: [(usize, f64, f64); 7] = [
    (16, 73.0, 9.0),
    (32, 78.0, 11.0),
    (64, 91.0, 14.7),
    (128, 106.0, 21.7),
    (256, 122.0, 34.9),
    (512, 138.0, 54.3),
    (1024, 161.0, 77.9),
];
/// The same of stream.
const STREAM: [(usize, f64, f64); 6] = [
    (32, 79.0, 9.1),
    (64, 90.0, 10.8),
    (128, 107.0, 12.5),
    (256, 124.0, 13.8),
    (512, 140.0, 14.6),
    (1024, 165.0, 15.5),
];
/// Bytes of a message, and how many times as fast as with a DMA NIC its dot product was: words multiplied as they come, and stored
/// first.
const DOT: [(usize, f64, f64); 5] =
    [(8, 4.94, 3.82), (40, 2.95, 2.24), (80, 2.28, 1.72), (200, 1.98, 1.36), (400, 1.79, 1.23)];

/// Messages with data, and bytes of the one before them.
const COUNT: usize = 20;
const ANNOUNCEMENT_BYTES: usize = 24;
/// Rounds before the one that counts: every receive buffer has been used, and all caches are warm.
const WARM_ROUNDS: usize = 2;
/// Between two rounds, and before the first.
const PAUSE_CYCLES: u64 = 20_000;
const PATIENCE_CYCLES: u64 = 2_000_000;
const HOST: u32 = 0x0a00_0001;
const NODE: u32 = 0x0a00_0002;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    latencies(settings, &mut outcome)?;
    (settings.progress)(0.25);
    rates(settings, "loopback", "loopback_dma", &LOOPBACK, &mut outcome)?;
    (settings.progress)(0.5);
    rates(settings, "stream", "stream_dma", &STREAM, &mut outcome)?;
    let exchanged = gbps(1024, dma_round(settings, "stream_dma_swap", &vec![vec![0; 1024]; COUNT])?.cycles);
    outcome.report(
        EXPERIMENT.name,
        "stream, 1024 bytes, DMA NIC: words exchanged in software",
        format!("{} Gb/s", figure(exchanged)),
    );
    (settings.progress)(0.75);
    dot_products(settings, &mut outcome)?;
    Ok(outcome)
}

fn latencies(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let [mut nanopu, mut dma] = [const { Vec::new() }; 2];
    for (bytes, published) in LATENCY {
        let (_, cycles) = loopback::latency(settings, "loopback", bytes, &NodeConfig::default())?;
        let ours = cycles / CYCLES_PER_NANOSECOND;
        let theirs = dma_latency(settings, bytes)? / CYCLES_PER_NANOSECOND;
        nanopu.push((bytes as f64, ours));
        dma.push((bytes as f64, theirs));
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("loopback, {bytes} bytes, DMA NIC, first word in to last word out"),
            paper: format!("{published} ns"),
            here: format!("{} ns; {} times the nanoPU's", figure(theirs), figure(theirs / ours)),
            inside: None,
        });
    }
    let published = LATENCY.map(|(bytes, ns)| (bytes as f64, ns)).to_vec();
    outcome.charts.push(chart(
        "Loopback: first word in to last word out",
        "ns",
        nanopu,
        None,
        dma,
        published,
    ));
    Ok(())
}

fn rates(
    settings: &Settings<'_>,
    program: &'static str,
    dma_program: &'static str,
    published: &[(usize, f64, f64)],
    outcome: &mut Outcome,
) -> Result<(), ExperimentError> {
    let [mut nanopu, mut dma] = [const { Vec::new() }; 2];
    for &(bytes, nanopu_gbps, dma_gbps) in published {
        let payloads = vec![vec![0; bytes]; COUNT];
        let ours = gbps(bytes, nanopu_round(settings, program, &payloads)?.cycles);
        let theirs = gbps(bytes, dma_round(settings, dma_program, &payloads)?.cycles);
        nanopu.push((bytes as f64, ours));
        dma.push((bytes as f64, theirs));
        for (what, paper, here) in [("nanoPU", nanopu_gbps, ours), ("DMA NIC", dma_gbps, theirs)] {
            outcome.rows.push(Row {
                experiment: EXPERIMENT.name,
                claim: format!("{program}, {bytes} bytes, {what}: one announcement and {COUNT} messages"),
                paper: format!("{paper} Gb/s"),
                here: format!("{} Gb/s", figure(here)),
                inside: None,
            });
        }
    }
    let paper = |pick: fn(&(usize, f64, f64)) -> f64| {
        published.iter().map(|point| (point.0 as f64, pick(point))).collect::<Vec<_>>()
    };
    let title = format!("{} on one core", if program == "stream" { "Stream" } else { "Loopback" });
    let (ours, theirs) = (paper(|point| point.1), paper(|point| point.2));
    outcome.charts.push(chart(&title, "Gb/s of frames", nanopu, Some(ours), dma, theirs));
    Ok(())
}

/// The rate of a round of messages of so many bytes that took so many cycles: all of its frames, headers included.
fn gbps(bytes: usize, cycles: u64) -> f64 {
    let wire_bytes = (COUNT + 1) * HEADER_BYTES + COUNT * bytes + ANNOUNCEMENT_BYTES;
    (8 * wire_bytes) as f64 / cycles as f64 * CYCLES_PER_NANOSECOND
}

fn dot_products(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let [mut fast, mut plain] = [const { Vec::new() }; 2];
    for (bytes, published_fast, published_plain) in DOT {
        let words = 0..bytes as u64 / 8;
        // Small numbers: the multiplier stops early, in every program alike.
        let [network, host] = [u64::to_be_bytes, u64::to_le_bytes]
            .map(|order: fn(u64) -> [u8; 8]| vec![words.clone().flat_map(order).collect::<Vec<u8>>(); COUNT]);
        let dma = dma_round(settings, "dot_naive_dma", &host)?;
        let unrolled = dma_round(settings, "dot_dma", &host)?;
        let each = |round: &Round| figure(round.cycles as f64 / COUNT as f64);
        let sum = words.map(|word| word * (2 * word + 1)).sum::<u64>();
        for (program, how, published, points) in [
            ("dot", "words multiplied as they come", published_fast, &mut fast),
            ("dot_naive", "words stored first", published_plain, &mut plain),
        ] {
            let nanopu = nanopu_round(settings, program, &network)?;
            let is_right = nanopu.words(u64::from_be_bytes) == [0, sum]
                && [&dma, &unrolled].iter().all(|round| round.words(u64::from_le_bytes) == [0, sum]);
            if !is_right {
                return Err(ExperimentError::Broken(format!("a dot product of {bytes} bytes is wrong")));
            }
            let gain = dma.cycles as f64 / nanopu.cycles as f64;
            points.push((bytes as f64, gain));
            outcome.rows.push(Row {
                experiment: EXPERIMENT.name,
                claim: format!("dot product, {bytes} bytes: {how}, against a DMA NIC"),
                paper: format!("{published} times as fast"),
                here: format!("{} times: {} and {} cycles", figure(gain), each(&nanopu), each(&dma)),
                inside: None,
            });
        }
        if bytes == DOT[DOT.len() - 1].0 {
            let swapping = dma_round(settings, "dot_naive_dma_swap", &network)?;
            let here = format!("{} and {} cycles", each(&unrolled), each(&swapping));
            let claim = "four words at a time; words exchanged in software";
            outcome.report(EXPERIMENT.name, format!("dot product, {bytes} bytes, DMA NIC: {claim}"), here);
        }
    }
    let paper = |pick: fn(&(usize, f64, f64)) -> f64| {
        DOT.iter().map(|point| (point.0 as f64, pick(point))).collect::<Vec<_>>()
    };
    let series = |name: &str, is_paper, points| Series { name: name.to_string(), is_paper, points };
    outcome.charts.push(Chart {
        title: "Dot product: how many times as fast as with a DMA NIC".to_string(),
        across: "bytes".to_string(),
        up: "times".to_string(),
        is_log: false,
        series: vec![
            series("as they come, here", false, fast),
            series("as they come, published", true, paper(|point| point.1)),
            series("stored first, here", false, plain),
            series("stored first, published", true, paper(|point| point.2)),
        ],
    });
    Ok(())
}

type Points = Vec<(f64, f64)>;

/// Both machines by size of message. The published points of the nanoPU's latency are in another chart.
fn chart(
    title: &str,
    up: &str,
    nanopu: Points,
    nanopu_paper: Option<Points>,
    dma: Points,
    dma_paper: Points,
) -> Chart {
    let series = |name: &str, is_paper, points| Series { name: name.to_string(), is_paper, points };
    let ours = [series("nanoPU, here", false, nanopu)];
    let ours_published = nanopu_paper.map(|points| series("nanoPU, published", true, points));
    let theirs = [series("DMA NIC, here", false, dma), series("DMA NIC, published", true, dma_paper)];
    Chart {
        title: title.to_string(),
        across: "bytes".to_string(),
        up: up.to_string(),
        is_log: false,
        series: ours.into_iter().chain(ours_published).chain(theirs).collect(),
    }
}

/// The result of a round.
struct Round {
    /// From the first message's first word in to the last answer's last word out.
    cycles: u64,
    /// The last answer.
    answer: Vec<u8>,
}

impl Round {
    fn words(&self, order: fn([u8; 8]) -> u64) -> Vec<u64> {
        self.answer.chunks_exact(8).map(|word| order(word.try_into().expect("eight bytes"))).collect()
    }
}

/// The announcement and the messages, all due in cycle `start`.
fn requests(start: u64, payloads: &[Vec<u8>]) -> Vec<Request> {
    let announcement = vec![0; ANNOUNCEMENT_BYTES];
    let all = std::iter::once(&announcement).chain(payloads);
    all.map(|payload| Request { sent: start, context: 0, payload: payload.clone() }).collect()
}

fn nanopu_round(
    settings: &Settings<'_>,
    program: &str,
    payloads: &[Vec<u8>],
) -> Result<Round, ExperimentError> {
    let mut node = Node::new(&settings.files.program(program)?, &NodeConfig::default())
        .map_err(|error| ExperimentError::NoProgram(program.to_string(), error.to_string()))?;
    let mut client = Client::new(HOST, NODE, 0);
    let mut round = Round { cycles: 0, answer: Vec::new() };
    for _ in 0..=WARM_ROUNDS {
        let start = node.cycle() + PAUSE_CYCLES;
        let answers = client
            .play(&mut node, &requests(start, payloads), PATIENCE_CYCLES, |_, _| {})
            .map_err(|event| ExperimentError::trapped(program, &event))?;
        let last = answers.into_iter().flatten().max_by_key(|answer| answer.received);
        let last = last.ok_or_else(|| ExperimentError::Broken(format!("{program} does not answer")))?;
        let words = (HEADER_BYTES + last.payload.len()).div_ceil(8) as u64;
        round = Round { cycles: last.received + words - start, answer: last.payload };
    }
    Ok(round)
}

fn dma_node(settings: &Settings<'_>, program: &str) -> Result<DmaNode, ExperimentError> {
    DmaNode::new(&settings.files.program(program)?, &DmaNodeConfig::default())
        .map_err(|error| ExperimentError::NoProgram(program.to_string(), error.to_string()))
}

fn dma_round(settings: &Settings<'_>, program: &str, payloads: &[Vec<u8>]) -> Result<Round, ExperimentError> {
    let mut node = dma_node(settings, program)?;
    let mut round = Round { cycles: 0, answer: Vec::new() };
    for _ in 0..=WARM_ROUNDS {
        let start = node.cycle() + PAUSE_CYCLES;
        let requests = requests(start, payloads);
        let answers = DmaLink::new(HOST, NODE, &requests)
            .play(&mut node, PATIENCE_CYCLES, |_| {})
            .map_err(|event| dma_failure(program, &event))?;
        let all = answers.into_iter().collect::<Option<Vec<_>>>();
        let last = all.and_then(|answers| answers.into_iter().max_by_key(|answer| answer.last));
        let last =
            last.ok_or_else(|| ExperimentError::Broken(format!("{program} left a frame unanswered")))?;
        round = Round { cycles: last.last + 1 - start, answer: last.payload };
    }
    Ok(round)
}

/// The median cycles from a frame's first word in to its answer's last word out, one at a time.
fn dma_latency(settings: &Settings<'_>, bytes: usize) -> Result<f64, ExperimentError> {
    const PROGRAM: &str = "loopback_dma";
    // More than there are receive buffers come first.
    const WARM: usize = 40;
    let mut node = dma_node(settings, PROGRAM)?;
    let requests: Vec<Request> = (0..WARM as u64 + 20)
        .map(|number| Request { sent: 20_000 + 3_007 * number, context: 0, payload: vec![7; bytes] })
        .collect();
    let answers = DmaLink::new(HOST, NODE, &requests)
        .play(&mut node, PATIENCE_CYCLES, |_| {})
        .map_err(|event| dma_failure(PROGRAM, &event))?;
    let answers = answers[WARM..].iter().flatten();
    let mut spans: Vec<u64> = answers.map(|answer| answer.last + 1 - answer.asked).collect();
    spans.sort_unstable();
    let median = spans.get(spans.len() / 2).ok_or(ExperimentError::Broken("no answers".to_string()))?;
    Ok(*median as f64)
}

fn dma_failure(program: &str, event: &DmaEvent) -> ExperimentError {
    match event {
        DmaEvent::Trapped { pc, trap, .. } => {
            ExperimentError::Trapped(program.to_string(), format!("at {pc:#x}: {trap}"))
        }
        other => ExperimentError::Broken(format!("{program}: {other:?}")),
    }
}
