//! Incast: eighty nodes send a packet each to one, over a switch that trims, and over one that drops (nanoPU §5.1).
//!
//! The published switch moves packets in rounds of one link latency, 0.38 µs, and begins none that it cannot end in the same round:
//! eight packets of 1,088 bytes in 1,218 cycles. The experiment has it twice: round by round like the
//! authors', and as a switch of the fabric, which knows no rounds and whose links get the same rate.

use super::authors_switch::{AuthorsSwitch, Shape};
use highwire_fabric::{Buffering, DropReason, FabricConfig, LinkSpec, Observer, Packet, PortId, Rate, Time};

use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, prototype};
use crate::network::{
    DATA_PRIORITY, Frame, Generator, HostId, Network, Place, Topology, TrimmingSwitch, address, link,
};
use crate::nic::Ndp;
use crate::node::Node;

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "incast", title: "Incast: NDP against drop-tail", run };

const CLIENTS: u32 = 80;
const LINK_CYCLES: u64 = 1218;
const BUFFER_BYTES: u64 = 81_600;
const TIMEOUT_CYCLES: u64 = 38_976;
const ROUND_US: f64 = 0.381;
/// When the last packet has left in either case.
const END_CYCLES: u64 = 80_000;

/// What the port to the server does.
#[derive(Default)]
struct Watch {
    port: u32,
    /// When data left, in order.
    sent: Vec<Time>,
    trimmed: u64,
    dropped: u64,
}

impl Observer<Frame> for Watch {
    fn on_send(&mut self, now: Time, port: PortId, packet: &Frame) {
        if port.0 == self.port && packet.priority() == DATA_PRIORITY {
            self.sent.push(now);
        }
    }

    fn on_trim(&mut self, _: Time, _: PortId, _: &Frame) {
        self.trimmed += 1;
    }

    fn on_drop(&mut self, _: Time, _: PortId, _: DropReason, _: &Frame) {
        self.dropped += 1;
    }
}

/// What happened, in microseconds from the first packet on.
struct Found {
    emptied: f64,
    /// When the first packet left after the longest pause, if there was one of a round.
    resumed: Option<f64>,
    trimmed: u64,
    dropped: u64,
    left: Vec<f64>,
}

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    in_rounds(settings, &mut outcome)?;
    (settings.progress)(0.4);
    let ndp = play(settings, true)?;
    (settings.progress)(0.7);
    let tail = play(settings, false)?;
    let near = |value: f64| (value - 2.0 * ROUND_US, value + ROUND_US);
    let name = EXPERIMENT.name;
    outcome.check(
        name,
        "fabric: 80 to 1, NDP: the queue is empty after",
        "4.19 µs",
        ndp.emptied,
        "µs",
        near(4.19),
    );
    outcome.check(
        name,
        "fabric: 80 to 1, NDP: packets trimmed",
        "6",
        ndp.trimmed as f64,
        "packets",
        (4.0, 6.0),
    );
    outcome.check(
        name,
        "fabric: 80 to 1, drop-tail: packets dropped",
        "6",
        tail.dropped as f64,
        "packets",
        (4.0, 6.0),
    );
    let resumed = tail.resumed.unwrap_or(f64::NAN);
    outcome.check(
        name,
        "fabric: 80 to 1, drop-tail: repetitions arrive after",
        "12.18 µs",
        resumed,
        "µs",
        near(12.18),
    );
    outcome.check(
        name,
        "fabric: 80 to 1, drop-tail: the queue is empty after",
        "12.94 µs",
        tail.emptied,
        "µs",
        near(12.94),
    );
    let line = |name: &str, found: &Found| Series {
        name: name.to_string(),
        is_paper: false,
        points: found.left.iter().enumerate().map(|(count, &at)| (at, count as f64 + 1.0)).collect(),
    };
    outcome.charts.push(Chart {
        title: "Packets that have reached the server".to_string(),
        across: "µs".to_string(),
        up: "packets".to_string(),
        is_log: false,
        series: vec![line("NDP, trimming", &ndp), line("drop-tail", &tail)],
    });
    Ok(outcome)
}

/// A published run in rounds.
struct Case {
    name: &'static str,
    /// Of the recording of the queue behind the server's port.
    recording: &'static str,
    clients: u32,
    shape: Shape,
    timeout_cycles: u64,
    /// Packets trimmed or dropped.
    cut: f64,
    /// When the repetitions of dropped packets arrive, and when the queue is empty, in microseconds.
    resumed: Option<f64>,
    emptied: f64,
}

/// In the recordings a control packet is back in the switch four rounds after what it answers has left: a link takes two.
const fn shape(round_cycles: u64, queue_bytes: u64, offset_cycles: u64) -> Shape {
    Shape { round_cycles, link_cycles: 2 * round_cycles, queue_bytes, trims: true, offset_cycles }
}

/// Of 1,218 cycles a round; the first packet comes 780 cycles into one, since two packets and six headers still left in it, and three
/// packets without the headers: not before cycle 756 and not after 809.
const LARGE: Shape = shape(LINK_CYCLES, BUFFER_BYTES, 780);
/// Of 140 cycles a round, in which a packet of 136 words fits only at the beginning. It arrives in two rounds.
const SMALL: Shape = shape(140, 5 * 1088, 70);
/// The authors' timeout is not known. In the recording the repetitions come thirty rounds later, and two
/// rounds pass until all timers have been looked at.
const SMALL_TIMEOUT_CYCLES: u64 = 28 * 140;

const CASES: [Case; 4] = [
    Case {
        name: "80 to 1, NDP",
        recording: "90host_ndp",
        clients: CLIENTS,
        shape: LARGE,
        timeout_cycles: TIMEOUT_CYCLES,
        cut: 6.0,
        resumed: None,
        emptied: 4.187,
    },
    Case {
        name: "80 to 1, drop-tail",
        recording: "90host_no-ndp",
        clients: CLIENTS,
        shape: Shape { trims: false, ..LARGE },
        timeout_cycles: TIMEOUT_CYCLES,
        cut: 6.0,
        resumed: Some(12.18),
        emptied: 12.94,
    },
    Case {
        name: "7 to 1, NDP",
        recording: "8host_ndp",
        clients: 7,
        shape: SMALL,
        timeout_cycles: SMALL_TIMEOUT_CYCLES,
        cut: 3.0,
        resumed: None,
        emptied: 0.525,
    },
    Case {
        name: "7 to 1, drop-tail (its timeout is read off the recording)",
        recording: "8host_no-ndp",
        clients: 7,
        shape: Shape { trims: false, ..SMALL },
        timeout_cycles: SMALL_TIMEOUT_CYCLES,
        cut: 3.0,
        resumed: Some(1.31),
        emptied: 1.444,
    },
];

fn in_rounds(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for case in &CASES {
        let nodes = nodes(settings, case.clients, case.timeout_cycles)?;
        let mut switch = AuthorsSwitch::new(case.shape, nodes)?;
        // Data that waits behind the server's port in each round, from the first with any.
        let mut waiting: Vec<u64> = Vec::new();
        let rounds = END_CYCLES.min(3 * case.timeout_cycles) / case.shape.round_cycles;
        for _ in 0..rounds {
            let [_, data] = switch.round(0)?;
            if data > 0 || !waiting.is_empty() {
                waiting.push(data);
            }
        }
        let round_us = case.shape.round_cycles as f64 / super::CYCLES_PER_NANOSECOND / 1000.0;
        let emptied = waiting.iter().rposition(|&bytes| bytes > 0).map_or(f64::NAN, |last| (last + 1) as f64);
        let pause = waiting.iter().position(|&bytes| bytes == 0);
        let resumed =
            pause.and_then(|pause| Some(pause + waiting[pause..].iter().position(|&bytes| bytes > 0)?));
        let near = |published: f64| (published - round_us, published + round_us);
        let name = EXPERIMENT.name;
        let claim = format!("{}: the queue is empty after", case.name);
        let published = format!("{} µs", case.emptied);
        outcome.check(name, claim, published, emptied * round_us, "µs", near(case.emptied));
        if let Some(published) = case.resumed {
            let here = resumed.map_or(f64::NAN, |round| round as f64 * round_us);
            let claim = format!("{}: repetitions arrive after", case.name);
            outcome.check(name, claim, format!("{published} µs"), here, "µs", near(published));
        }
        let what = if case.shape.trims { "trimmed" } else { "dropped" };
        let claim = format!("{}: packets {what}", case.name);
        outcome.check(name, claim, case.cut.to_string(), switch.cut as f64, "packets", (case.cut, case.cut));
        let path = format!("firesim/incast/{}/qsize.csv", case.recording);
        if let Some(recorded) = settings.files.recording(&path).and_then(|text| recorded(&text, case)) {
            let same =
                recorded.iter().enumerate().filter(|&(round, bytes)| waiting.get(round) == Some(bytes));
            let claim =
                format!("{}: rounds in which the queue is as long as recorded, byte by byte", case.name);
            outcome.compare(name, claim, recorded.len().to_string(), same.count().to_string());
        }
    }
    Ok(())
}

/// Data behind the server's port in each round, from the first with any until it is empty for good. It is recorded where it changes.
fn recorded(text: &str, case: &Case) -> Option<Vec<u64>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let column = |name| names.iter().position(|column| *column == name);
    let (data, port, time) = (column("lp_bytes")?, column("port")?, column("time")?);
    let mut waiting: Vec<u64> = Vec::new();
    let mut first = None;
    for line in lines {
        let fields: Vec<f64> = line.split(',').map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let field = |place: usize| fields.get(place).copied();
        let (bytes, at) = (field(data)? as u64, field(time)? as u64);
        if field(port)? != 0.0 || (first.is_none() && bytes == 0) {
            continue;
        }
        let round = (at - *first.get_or_insert(at)) / case.shape.round_cycles;
        // Messages that come a millisecond later are the programs' own talk at the end.
        if round > 100 {
            break;
        }
        let before = waiting.last().copied().unwrap_or(0);
        waiting.resize(round as usize, before);
        waiting.push(bytes);
    }
    Some(waiting)
}

/// A server at host 0, and its clients.
fn nodes(settings: &Settings<'_>, clients: u32, timeout_cycles: u64) -> Result<Vec<Node>, ExperimentError> {
    let server = settings.files.program("sink")?;
    let client = settings.files.program("incast_client")?;
    let nodes = (0..=clients).map(HostId).map(|host| {
        let mut config = prototype();
        config.nic.address = address(host);
        config.nic.timeout_cycles = timeout_cycles;
        config.nic.buffers = [128, 64];
        let program = if host.0 == 0 { &server } else { &client };
        Node::new(program, &config).map_err(|error| ExperimentError::Broken(error.to_string()))
    });
    nodes.collect()
}

fn play(settings: &Settings<'_>, trims: bool) -> Result<Found, ExperimentError> {
    let nodes = nodes(settings, CLIENTS, TIMEOUT_CYCLES)?;
    let places = nodes.into_iter().map(|node| Place::<Ndp, Generator>::Node(Box::new(node))).collect();
    let rate = Rate::from_bps(204_800_000_000 / LINK_CYCLES * 1088);
    let star = Topology::star(CLIENTS + 1, LinkSpec { rate, ..link(LINK_CYCLES) });
    let star = star.map_err(|error| ExperimentError::Broken(error.to_string()))?;
    let trimming = TrimmingSwitch { data_bytes: BUFFER_BYTES, control_bytes: BUFFER_BYTES };
    // Without trimming the switch's pool is the room of the one queue that is congested.
    let dropping = FabricConfig {
        priorities: 2,
        buffering: Buffering::OutputQueued { pool_bytes: BUFFER_BYTES, alpha_log2: 16 },
        ..FabricConfig::default()
    };
    let config = if trims { trimming.config() } else { dropping };
    let watch = Watch { port: CLIENTS + 1, ..Watch::default() };
    let mut network: Network<Ndp, Generator, Frame, Watch> =
        Network::observed(star, config, places, watch)
            .map_err(|error| ExperimentError::Broken(error.to_string()))?;
    network.run_until(END_CYCLES).map_err(|error| ExperimentError::Broken(error.to_string()))?;
    Ok(found(network.fabric().observer()))
}

fn found(watch: &Watch) -> Found {
    let first = watch.sent.first().copied().unwrap_or(Time::ZERO);
    let left: Vec<f64> = watch.sent.iter().map(|at| at.since(first).as_us_f64()).collect();
    let pauses = left.windows(2).filter(|pair| pair[1] - pair[0] > ROUND_US);
    Found {
        emptied: left.last().copied().unwrap_or(0.0),
        resumed: pauses.map(|pair| pair[1]).next_back(),
        trimmed: watch.trimmed,
        dropped: watch.dropped,
        left,
    }
}
