//! RPCs of nanoPUs beside bulk transfers of RNICs: both share one link.
//!
//! ```text
//! generator ─┐                  ┌─ nanoPU
//! 4 RNICs  ──┴─ switch ─ switch ┴─ 4 RNICs
//! ```
//!
//! All links have the nanoPU's rate. The link in the middle carries the requests and the RNICs' transfers; answers come back beside
//! acknowledgements. Neither paper has this experiment.

use highwire_fabric::{Buffering, HostId, Pfc, Priorities, Rate, Span, Time};
use highwire_nanopu::client::Request;
use highwire_nanopu::experiments::{
    CYCLES_PER_NANOSECOND, Chart, Experiment, ExperimentError, Outcome, Series, Settings, figure,
};
use highwire_nanopu::network::{INTERFACE_RATE, address, link};
use highwire_nanopu::{Node, NodeConfig};
use highwire_riscv::Program;
use highwire_stdx::Rng;

use super::{Neighbours, Seat};
use crate::scenario::{GoBackN, Network, PfcChoice, Scheme, Shape, Stop, Transport};
use crate::{Flow, Scenario};

/// See the module.
pub const EXPERIMENT: Experiment =
    Experiment { name: "neighbours", title: "RPCs beside bulk transfers of RNICs", run };

/// RNICs on either side.
const PAIRS: u32 = 4;
const GENERATOR: HostId = HostId(0);
const NODE: HostId = HostId(PAIRS + 1);
const LINK_CYCLES: u64 = 140;
/// Programs have started by then.
const START_CYCLES: u64 = 10_000;
const RPC_BYTES: usize = 64;
const RPC_MRPS: f64 = 2.0;
const BULK_BYTES: u64 = 256 * 1024;
/// The share of the middle link that transfers ask for, headers included.
const BULK_LOAD: f64 = 0.8;
/// Memory of a switch, shared by its ports: as much as small switches have for each 200 Gb/s.
const POOL_BYTES: u64 = 1 << 20;
/// An input that holds so much pauses its sender, where there is PFC.
const XOFF_BYTES: u64 = 100_000;

/// The other traffic on the link, and how switches queue.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    bulk: Bulk,
    /// Whether RPCs have priorities of their own.
    is_above: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bulk {
    None,
    Irn,
    /// Go-back-N over PFC.
    Roce,
}

const CASES: [Case; 5] = [
    Case { name: "alone", bulk: Bulk::None, is_above: false },
    Case { name: "beside IRN, one queue", bulk: Bulk::Irn, is_above: false },
    Case { name: "beside IRN, priorities", bulk: Bulk::Irn, is_above: true },
    Case { name: "beside RoCE with PFC, one queue", bulk: Bulk::Roce, is_above: false },
    Case { name: "beside RoCE with PFC, priorities", bulk: Bulk::Roce, is_above: true },
];

/// Shares of RPCs that the chart shows.
const SHARES: [f64; 7] = [0.1, 0.5, 0.9, 0.95, 0.99, 0.995, 0.999];

/// The results of a case.
struct Found {
    /// Nanoseconds, rising; infinite for requests without an answer.
    rpcs: Vec<f64>,
    /// How many times as long as in an empty network each transfer took, rising.
    slowdowns: Vec<f64>,
    /// The share of the transfers' bytes that have been received by the end.
    received: f64,
}

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let name = EXPERIMENT.name;
    let program = settings.files.program("loopback")?;
    let span = if settings.is_quick { Span::from_us(600) } else { Span::from_us(4_000) };
    let mut outcome = Outcome::default();
    let mut series = Vec::new();
    let mut alone = f64::NAN;
    for (step, case) in CASES.into_iter().enumerate() {
        (settings.progress)(step as f64 / CASES.len() as f64);
        let found = play(settings.seed, &program, case, span).map_err(ExperimentError::Broken)?;
        let at = |share| percentile(&found.rpcs, share);
        let claim = format!("RPCs of {RPC_BYTES} bytes, {RPC_MRPS} M/s, {}", case.name);
        let here = format!(
            "p50 {} ns, p99 {} ns, p99.9 {} ns",
            figure(at(0.5)),
            figure(at(0.99)),
            figure(at(0.999))
        );
        outcome.report(name, claim, here);
        if case.bulk == Bulk::None {
            alone = at(0.99);
        } else {
            let claim = format!("the transfers {}: slowdown", case.name.trim_start_matches("beside "));
            let slow = |share| figure(percentile(&found.slowdowns, share));
            let here = format!(
                "p50 {}, p99 {}; {} % of what was asked for has arrived",
                slow(0.5),
                slow(0.99),
                figure(100.0 * found.received)
            );
            outcome.report(name, claim, here);
        }
        if case.is_above {
            // One port of the requests' way is shared, and one packet may have begun there; the program's loop has six phases.
            let packet = INTERFACE_RATE.span_of(1_200).as_ns_f64();
            let most = alone + packet + 6.0 / CYCLES_PER_NANOSECOND;
            let claim = format!("p99 {}: alone, and at most one packet more", case.name);
            outcome.check(name, claim, "none: ours", at(0.99), "ns", (0.0, most));
        }
        let points = SHARES.map(|share| (100.0 * share, at(share) / 1000.0)).to_vec();
        series.push(Series { name: case.name.to_string(), is_paper: false, points });
    }
    outcome.charts.push(Chart {
        title: format!("RPCs beside transfers at {} % of the link", figure(100.0 * BULK_LOAD)),
        across: "% of RPCs".to_string(),
        up: "µs".to_string(),
        is_log: true,
        series,
    });
    Ok(outcome)
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn play(seed: u64, program: &Program, case: Case, span: Span) -> Result<Found, String> {
    match case.is_above {
        true => play_so::<true>(seed, program, case, span),
        false => play_so::<false>(seed, program, case, span),
    }
}

fn play_so<const ABOVE: bool>(seed: u64, program: &Program, case: Case, span: Span) -> Result<Found, String> {
    let scenario = scenario(seed, case.bulk, span);
    let requests = requests(seed, span);
    let sent: Vec<u64> = requests.iter().map(|(_, request)| request.sent).collect();
    let seats = seats(program, requests)?;
    let mut world: Neighbours<ABOVE> =
        Neighbours::new(&scenario, seats, ()).map_err(|error| error.to_string())?;
    // The last transfers still have some time to end.
    let end = START_CYCLES + cycles(span) + 320_000;
    world.run_until(end).map_err(|error| error.to_string())?;
    let answers = world.answers(GENERATOR).iter().zip(&sent);
    let rpcs = answers.map(|(answer, sent)| match answer {
        Some(answer) => (answer.received - sent) as f64 / CYCLES_PER_NANOSECOND,
        None => f64::INFINITY,
    });
    let flows = world.flows();
    let bytes = |is_done: bool| {
        let counted = flows.iter().filter(|flow| !is_done || flow.received.is_some());
        counted.map(|flow| flow.bytes).sum::<u64>() as f64
    };
    let slowdowns = flows.iter().filter_map(|flow| {
        let took = flow.received?.since(flow.start?);
        Some(took.as_ns_f64() / flow.ideal.as_ns_f64())
    });
    Ok(Found { received: bytes(true) / bytes(false), rpcs: rising(rpcs), slowdowns: rising(slowdowns) })
}

fn rising(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn cycles(span: Span) -> u64 {
    (span.as_ns_f64() * CYCLES_PER_NANOSECOND) as u64
}

/// The network, and transfers from each RNIC on the left to the one opposite.
fn scenario(seed: u64, bulk: Bulk, span: Span) -> Scenario {
    let link = link(LINK_CYCLES);
    let pfc = Pfc {
        priorities: Priorities(1),
        xoff_bytes: XOFF_BYTES,
        xon_bytes: XOFF_BYTES,
        headroom_bytes: Pfc::headroom_needed(link.rate, link.delay, 1_200, Pfc::FRAME_BYTES),
        frame_bytes: Pfc::FRAME_BYTES,
    };
    let network = Network {
        shape: Shape::Dumbbell { left: PAIRS + 1, right: PAIRS + 1, trunk_rate: None },
        rate: link.rate,
        delay: link.delay,
        buffering: Buffering::OutputQueued { pool_bytes: POOL_BYTES, alpha_log2: 0 },
        pfc: if bulk == Bulk::Roce { PfcChoice::Thresholds(pfc) } else { PfcChoice::Off },
        ..Network::default()
    };
    let transport = match bulk {
        Bulk::Roce => Transport::GoBackN(GoBackN::default()),
        _ => Transport::Irn(Default::default()),
    };
    let scheme = Scheme { transport, ..Scheme::default() };
    let flows = if bulk == Bulk::None { Vec::new() } else { transfers(seed, link.rate, span) };
    Scenario { seed, network, scheme, flows, stop: Stop::WhenDone, ..Scenario::default() }
}

fn transfers(seed: u64, rate: Rate, span: Span) -> Vec<Flow> {
    let headers = Scheme::default().headers.write_bytes(true, false, 1024) - 1024;
    let wire_bytes = BULK_BYTES + BULK_BYTES.div_ceil(1024) * u64::from(headers);
    let gap_ns = f64::from(PAIRS) * rate.span_of(wire_bytes).as_ns_f64() / BULK_LOAD;
    let mut flows = Vec::new();
    for pair in 0..PAIRS {
        let starts = arrivals(seed, 1 + u64::from(pair), gap_ns, span);
        let flow =
            |at: f64| Flow::new(1 + pair, NODE.0 + 1 + pair, BULK_BYTES, Time::from_ps((at * 1000.0) as u64));
        flows.extend(starts.into_iter().map(flow));
    }
    flows.sort_by_key(|flow| (flow.start, flow.source));
    flows
}

fn requests(seed: u64, span: Span) -> Vec<(HostId, Request)> {
    let times = arrivals(seed, 0, 1000.0 / RPC_MRPS, span).into_iter();
    let request = |at: f64| Request {
        sent: START_CYCLES + (at * CYCLES_PER_NANOSECOND) as u64,
        context: 0,
        payload: vec![7; RPC_BYTES],
    };
    times.map(|at| (NODE, request(at))).collect()
}

/// Nanoseconds from the beginning, of a Poisson process.
fn arrivals(seed: u64, stream: u64, gap_ns: f64, span: Span) -> Vec<f64> {
    let mut rng = Rng::new(seed).fork(stream);
    let mut now = 0.0;
    let next = move || {
        now -= libm::log(1.0 - rng.unit()) * gap_ns;
        Some(now).filter(|&now| now < span.as_ns_f64())
    };
    std::iter::from_fn(next).collect()
}

fn seats(program: &Program, requests: Vec<(HostId, Request)>) -> Result<Vec<Seat>, String> {
    let mut config = NodeConfig::default();
    config.nic.address = address(NODE);
    let node = Node::new(program, &config).map_err(|error| error.to_string())?;
    let rnics = || (0..PAIRS).map(|_| Seat::Rnic);
    let left = std::iter::once(Seat::Generator(requests)).chain(rnics());
    let right = std::iter::once(Seat::Node(Box::new(node))).chain(rnics());
    Ok(left.chain(right).collect())
}
