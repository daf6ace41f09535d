//! Messages beyond 2 KiB: alone, one after the other, and many at once through one port.

use highwire_fabric::{Buffering, DropReason, FabricConfig, Observer, PortId, Time};

use super::super::{Chart, ExperimentError, Outcome, Series, Settings, figure, loopback};
use super::EXPERIMENT;
use crate::client::{Client, Request};
use crate::network::{Frame, Generator, HostId, Network, Place, Topology, TrimmingSwitch, address, link};
use crate::nic::{CutThrough, LongMessages, Ndp, NicConfig};
use crate::node::{Node, NodeConfig};
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};

const PROGRAM: &str = "relay";
const BYTES: [usize; 5] = [4096, 8192, 16_384, 32_768, 64_000];

/// See the module.
pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    sizes(settings, outcome)?;
    incast(settings, outcome)
}

fn node(cut_through: Option<CutThrough>, streams: bool) -> NodeConfig {
    let long_messages = Some(LongMessages { streams, ..LongMessages::default() });
    let nic = NicConfig { long_messages, cut_through, ..NicConfig::default() };
    NodeConfig { nic, blocking_reads: streams, ..NodeConfig::default() }
}

/// Words of a whole message on the wire.
fn wire_words(bytes: usize) -> u64 {
    (bytes.div_ceil(SEGMENT_BYTES) * HEADER_BYTES + bytes).div_ceil(8) as u64
}

fn sizes(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut lines = ["stored", "cut-through", "streamed", "the wire, one way"].map(|name| (name, Vec::new()));
    for bytes in BYTES {
        let (_, stored) = loopback::latency(settings, PROGRAM, bytes, &node(None, false))?;
        let cut_through = Some(CutThrough::default());
        let (_, cut) = loopback::latency(settings, PROGRAM, bytes, &node(cut_through, false))?;
        let (_, streamed) = loopback::latency(settings, PROGRAM, bytes, &node(cut_through, true))?;
        let rate = throughput(settings, bytes)?;
        outcome.report(
            EXPERIMENT.name,
            format!(
                "{bytes} bytes back and forth: first word in to last word out; cut-through; streamed as well; rate of frames"
            ),
            format!("{} · {} · {} cycles · {} Gb/s", figure(stored), figure(cut), figure(streamed), figure(rate)),
        );
        let kib = bytes as f64 / 1024.0;
        for ((_, points), cycles) in lines.iter_mut().zip([stored, cut, streamed, wire_words(bytes) as f64]) {
            points.push((kib, cycles));
        }
    }
    outcome.charts.push(Chart {
        title: "Loopback of long messages, one at a time".to_string(),
        across: "KiB".to_string(),
        up: "cycles".to_string(),
        is_log: false,
        series: lines
            .into_iter()
            .map(|(name, points)| Series { name: name.to_string(), is_paper: false, points })
            .collect(),
    });
    Ok(())
}

/// Gigabits of frames a second that one core sends back while messages come as fast as the wire brings them, or a little slower where its
/// loop is slower than the wire.
fn throughput(settings: &Settings<'_>, bytes: usize) -> Result<f64, ExperimentError> {
    const COUNT: u64 = 12;
    let program = settings.files.program(PROGRAM)?;
    // The first interval at which no message is lost counts: a core that falls behind fills the memory.
    for percent in [100, 104, 108, 112, 120, 130] {
        let config = node(None, false);
        let mut node = Node::new(&program, &config)
            .map_err(|error| ExperimentError::NoProgram(PROGRAM.to_string(), error.to_string()))?;
        let interval = wire_words(bytes) * percent / 100;
        let requests: Vec<Request> = (0..COUNT)
            .map(|number| Request {
                sent: 20_000 + number * interval,
                context: 0,
                payload: vec![number as u8; bytes],
            })
            .collect();
        let answers = Client::new(0x0a00_0001, config.nic.address, 0)
            .play(&mut node, &requests, 200_000, |_, _| {})
            .map_err(|event| ExperimentError::trapped(PROGRAM, &event))?;
        let received: Option<Vec<u64>> = answers.iter().map(|it| it.as_ref().map(|it| it.received)).collect();
        let Some(received) = received else { continue };
        let span = received.last().zip(received.first()).map_or(0, |(last, first)| last - first);
        return Ok((COUNT - 1) as f64 * (wire_words(bytes) * 64) as f64 / span as f64
            * super::super::CYCLES_PER_NANOSECOND);
    }
    Err(ExperimentError::Broken(format!("{bytes} bytes: messages are lost at every pace")))
}

/// Senders of a message each.
const CLIENTS: u32 = 8;
const LINK_CYCLES: u64 = 140;
/// Room behind a port: half of the unasked packets.
const BUFFER_BYTES: u64 = 8 * 1088;
/// As in the incast of short messages.
const TIMEOUT_CYCLES: u64 = 38_976;
const END_CYCLES: u64 = 1_000_000;

#[derive(Default)]
struct Watch {
    trimmed: u64,
    dropped: u64,
}

impl Observer<Frame> for Watch {
    fn on_trim(&mut self, _: Time, _: PortId, _: &Frame) {
        self.trimmed += 1;
    }

    fn on_drop(&mut self, _: Time, _: PortId, _: DropReason, _: &Frame) {
        self.dropped += 1;
    }
}

fn incast(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    for (name, trims) in [("trimming", true), ("dropping", false)] {
        let (cycles, watch) = play(settings, trims)?;
        let bytes = f64::from(CLIENTS) * wire_words(16_384) as f64;
        outcome.report(
            EXPERIMENT.name,
            format!("16 KiB from each of {CLIENTS} to one, {name} switch: all arrived; trimmed; dropped"),
            format!(
                "{} µs, {:.2} of the wire's · {} · {}",
                figure(cycles as f64 / 3200.0),
                cycles as f64 / bytes,
                watch.0,
                watch.1
            ),
        );
    }
    Ok(())
}

/// Cycles from the first word sent until all messages are whole, and packets trimmed and dropped.
fn play(settings: &Settings<'_>, trims: bool) -> Result<(u64, (u64, u64)), ExperimentError> {
    /// When the clients begin.
    const BEGIN_CYCLES: u64 = 20_000;
    let broken = |error: &dyn std::fmt::Display| ExperimentError::Broken(error.to_string());
    let (server, client) = (settings.files.program("sink")?, settings.files.program("incast_long")?);
    let mut places = Vec::new();
    for host in (0..=CLIENTS).map(HostId) {
        let mut config = node(None, false);
        config.nic.address = address(host);
        config.nic.timeout_cycles = TIMEOUT_CYCLES;
        let program = if host.0 == 0 { &server } else { &client };
        let node = Node::new(program, &config).map_err(|error| broken(&error))?;
        places.push(Place::<Ndp, Generator>::Node(Box::new(node)));
    }
    let star = Topology::star(CLIENTS + 1, link(LINK_CYCLES)).map_err(|error| broken(&error))?;
    let trimming = TrimmingSwitch { data_bytes: BUFFER_BYTES, control_bytes: BUFFER_BYTES };
    let dropping = FabricConfig {
        priorities: 2,
        buffering: Buffering::OutputQueued { pool_bytes: BUFFER_BYTES, alpha_log2: 16 },
        ..FabricConfig::default()
    };
    let config = if trims { trimming.config() } else { dropping };
    let mut network: Network<Ndp, Generator, Frame, Watch> =
        Network::observed(star, config, places, Watch::default()).map_err(|error| broken(&error))?;
    let mut cycle = BEGIN_CYCLES;
    while cycle < END_CYCLES {
        cycle += 100;
        network.run_until(cycle).map_err(|error| broken(&error))?;
        if network.node(HostId(0)).is_some_and(|node| node.nic().received().messages == u64::from(CLIENTS)) {
            let watch = network.fabric().observer();
            return Ok((cycle - BEGIN_CYCLES, (watch.trimmed, watch.dropped)));
        }
    }
    Err(ExperimentError::Broken("messages never arrived".to_string()))
}
