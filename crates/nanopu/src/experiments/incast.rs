//! Incast: eighty nodes send a packet each to one, over a switch that trims, and over one that drops (nanoPU §5.1).
//!
//! The published switch moves packets in rounds of one link latency, 0.38 µs, and begins none that it cannot end in the same round:
//! eight packets of 1,088 bytes in 1,218 cycles. Its links are therefore given that rate here, and its times are read in rounds.

use highwire_fabric::{Buffering, DropReason, FabricConfig, LinkSpec, Observer, Packet, PortId, Rate, Time};

use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings};
use crate::network::{
    DATA_PRIORITY, Frame, Generator, HostId, Network, Place, Topology, TrimmingSwitch, address, link,
};
use crate::nic::Ndp;
use crate::node::{Node, NodeConfig};

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
    let ndp = play(settings, true)?;
    (settings.progress)(0.5);
    let tail = play(settings, false)?;
    let near = |value: f64| (value - 2.0 * ROUND_US, value + ROUND_US);
    let name = EXPERIMENT.name;
    outcome.check(name, "80 to 1, NDP: the queue is empty after", "4.19 µs", ndp.emptied, "µs", near(4.19));
    outcome.check(name, "80 to 1, NDP: packets trimmed", "6", ndp.trimmed as f64, "packets", (4.0, 6.0));
    outcome.check(
        name,
        "80 to 1, drop-tail: packets dropped",
        "6",
        tail.dropped as f64,
        "packets",
        (4.0, 6.0),
    );
    let resumed = tail.resumed.unwrap_or(f64::NAN);
    outcome.check(
        name,
        "80 to 1, drop-tail: repetitions arrive after",
        "12.18 µs",
        resumed,
        "µs",
        near(12.18),
    );
    outcome.check(
        name,
        "80 to 1, drop-tail: the queue is empty after",
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

fn play(settings: &Settings<'_>, trims: bool) -> Result<Found, ExperimentError> {
    let server = settings.files.program("sink")?;
    let client = settings.files.program("incast_client")?;
    let mut places = Vec::new();
    for host in (0..=CLIENTS).map(HostId) {
        let mut config = NodeConfig::default();
        config.nic.address = address(host);
        config.nic.timeout_cycles = TIMEOUT_CYCLES;
        config.nic.buffers = [128, 64];
        let program = if host.0 == 0 { &server } else { &client };
        let node = Node::new(program, &config).map_err(|error| ExperimentError::Broken(error.to_string()))?;
        places.push(Place::<Ndp, Generator>::Node(Box::new(node)));
    }
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
