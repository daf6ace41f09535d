//! Homa beside NDP: the prototype's cycles and its test of protocols, an incast, and the usual figure of Homa, slowdown by size.
//!
//! Loopback runs the program on a core. The others have endpoints with ideal cores, so that nothing but the transport is seen; the
//! slowdowns are ours, the papers of the nanoPU have none.

mod contest;
mod slowdown;

use super::{
    CYCLES_PER_NANOSECOND, Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, figure,
};
use crate::client::{Client, Request};
use crate::network::{HostId, Sending};
use crate::nic::{Homa, HomaConfig, LongMessages, Nic, NicConfig};
use crate::node::{Node, NodeConfig, NodeEvent};
use crate::packet::HEADER_BYTES;
use contest::{Contest, Speaks};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment { name: "homa", title: "Homa as the transport", run };

/// Cycles of a turn of the polling loop: a message can come at any point of it.
const TURN_CYCLES: f64 = 6.0;
/// Bytes, the published median cycles from a message's first word to its answer's last, the spread that NDP had around its median (for
/// Homa there is none), and the published Gb/s of frames.
const PUBLISHED: [(usize, f64, [f64; 2], f64); 7] = [
    (16, 61.0, [3.0, 2.0], 85.1),
    (32, 69.0, [3.0, 50.0], 79.6),
    (64, 80.0, [3.0, 4.0], 83.5),
    (128, 105.0, [2.0, 9.0], 100.6),
    (256, 154.0, [2.5, 20.5], 118.6),
    (512, 252.0, [3.0, 21.0], 139.3),
    (1024, 446.0, [4.0, 18.0], 155.3),
];
/// Messages of a throughput test: one that sets it up, and twenty.
const BURST: u64 = 21;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    loopback(settings, &mut outcome)?;
    (settings.progress)(0.2);
    protocols(&mut outcome)?;
    (settings.progress)(0.3);
    incast(&mut outcome)?;
    (settings.progress)(0.4);
    slowdown::run(settings, &mut outcome)?;
    Ok(outcome)
}

fn loopback(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut here = Vec::new();
    for (bytes, median, [below, above], gbps) in PUBLISHED {
        let (latency, throughput) = cycles_of(settings, bytes)?;
        here.push((bytes as f64, latency));
        outcome.check(
            EXPERIMENT.name,
            format!("{bytes} bytes, first word in to last word out, cycles"),
            figure(median),
            latency,
            "cycles",
            (median - below.max(TURN_CYCLES), median + above.max(TURN_CYCLES)),
        );
        let found = (8 * (HEADER_BYTES + bytes)) as f64 * BURST as f64 * CYCLES_PER_NANOSECOND / throughput;
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("{bytes} bytes, {BURST} messages one behind the other, frames"),
            paper: format!("{gbps} Gb/s"),
            here: format!("{} Gb/s", figure(found)),
            inside: None,
        });
    }
    let paper = PUBLISHED.map(|(bytes, median, ..)| (bytes as f64, median)).to_vec();
    outcome.charts.push(Chart {
        title: "Loopback with Homa: first word in to last word out".to_string(),
        across: "bytes".to_string(),
        up: "cycles".to_string(),
        is_log: false,
        series: vec![
            Series { name: "here".to_string(), is_paper: false, points: here },
            Series { name: "published".to_string(), is_paper: true, points: paper },
        ],
    });
    Ok(())
}

/// The median latency of messages one at a time, and how long a burst takes from its first word in to its last word out.
fn cycles_of(settings: &Settings<'_>, bytes: usize) -> Result<(f64, f64), ExperimentError> {
    const WARM: usize = 4;
    let config = NodeConfig::default();
    let program = settings.files.program("loopback")?;
    let nic = Nic::new(&config.nic, 1, Homa::new(HomaConfig::default()));
    let mut node = Node::with_nic(&program, &config, nic)
        .map_err(|error| ExperimentError::NoProgram("loopback".to_string(), error.to_string()))?;
    let words = (HEADER_BYTES + bytes).div_ceil(8) as u64;
    let mut client = Client::new(0x0a00_0001, 0x0a00_0002, 0);
    let mut spans = Vec::new();
    // One at a time, at every phase of the program's loop; then twice a burst, of which the second counts.
    let alone = (0..WARM as u64 + 20).map(|number| (10_000 + 3_007 * number, 1));
    for (sent, count) in alone.chain([(100_000, BURST), (140_000, BURST)]) {
        let payload = vec![7; bytes];
        let request = Request { sent, context: 0, payload };
        let requests = vec![request; count as usize];
        let last = last_word_out(&mut client, &mut node, &requests)?;
        spans.push(last + words - sent);
    }
    let burst = spans.pop().unwrap_or(0);
    let mut alone = spans[WARM..spans.len() - 1].to_vec();
    alone.sort_unstable();
    Ok((alone[alone.len() / 2] as f64, burst as f64))
}

/// Plays requests; the cycle of the first word of the last answer.
fn last_word_out(
    client: &mut Client,
    node: &mut Node<Homa>,
    requests: &[Request],
) -> Result<u64, ExperimentError> {
    let answers = client
        .play(node, requests, 20_000, |_, _| {})
        .map_err(|event: NodeEvent| ExperimentError::trapped("loopback", &event))?;
    let received = answers.into_iter().map(|answer| answer.map(|answer| answer.received));
    let all: Option<Vec<u64>> = received.collect();
    all.and_then(|all| all.into_iter().max()).ok_or(ExperimentError::Broken("no answers".to_string()))
}

/// Packets of the ten senders' messages: the prototype's bitmaps have 32 bits.
const SENDERS_PACKETS: [u16; 10] = [15, 17, 19, 21, 23, 25, 27, 29, 31, 32];

/// The authors' test: ten senders at once, a round trip of nine packets, and so much room for data behind the server's port.
fn protocols(outcome: &mut Outcome) -> Result<(), ExperimentError> {
    // 50 and 99 packets of 1088 bytes; the queue held no more in the first case, and ten trimmed headers with NDP.
    const ROOMS: [(u64, f64, f64); 2] = [(54_400, 55_120.0, 54_400.0), (107_712, 89_216.0, 89_216.0)];
    const LINK_CYCLES: u64 = 280;
    const RTT_PACKETS: u16 = 9;
    const TIMEOUT_CYCLES: u64 = 19_200;
    let nic = NicConfig {
        rtt_packets: RTT_PACKETS,
        timeout_cycles: TIMEOUT_CYCLES,
        long_messages: Some(LongMessages { bytes_max: 32_768, segments: 320, streams: false }),
        ..NicConfig::default()
    };
    let plan = |sender: usize| {
        let bytes = SENDERS_PACKETS[sender].saturating_mul(1024);
        vec![Sending { at: 1_000, to: HostId(0), bytes, core: 0 }]
    };
    let mut lines = Vec::new();
    for (room, ndp, homa) in ROOMS {
        for (speaks, published) in [(Speaks::Ndp, ndp), (Speaks::Homa(HomaConfig::default()), homa)] {
            let name = speaks.name();
            let contest = Contest {
                nic,
                link_cycles: LINK_CYCLES,
                cores: 1,
                data_bytes: room,
                // One queue may hold half of it.
                pool_bytes: 2 * room,
                plans: (0..=10).map(|host: usize| host.checked_sub(1).map_or(Vec::new(), plan)).collect(),
                end: 120_000,
            };
            let found = contest.play(&speaks)?;
            let claim = format!("11 hosts, room for {room} bytes, {name}: the longest queue");
            let near = (published - 2.0 * 1_088.0, published + 2.0 * 1_088.0);
            let paper = format!("{published:.0} bytes");
            outcome.check(EXPERIMENT.name, claim, paper, found.queue_max as f64, "bytes", near);
            let last = found.arrived.iter().map(|(_, arrived)| arrived.at).max().unwrap_or(0);
            let done = (last.saturating_sub(1_000)) as f64 / CYCLES_PER_NANOSECOND / 1000.0;
            let claim = format!("11 hosts, room for {room} bytes, {name}: all ten messages are there after");
            let here = format!(
                "{} µs; {} of 10, {} packets lost or trimmed",
                figure(done),
                found.arrived.len(),
                found.cut
            );
            outcome.report(EXPERIMENT.name, claim, here);
            if room == ROOMS[1].0 {
                let points = found.queue.clone();
                lines.push(Series { name: name.to_string(), is_paper: false, points });
            }
        }
    }
    outcome.charts.push(Chart {
        title: "Ten senders at once: the queue in front of the server".to_string(),
        across: "µs".to_string(),
        up: "bytes".to_string(),
        is_log: false,
        series: lines,
    });
    Ok(())
}

/// 80 senders of a packet each: no packet needs a grant, so only the switch's room and Homa's timer matter.
fn incast(outcome: &mut Outcome) -> Result<(), ExperimentError> {
    const CLIENTS: usize = 80;
    const BUFFER_BYTES: u64 = 81_600;
    let nic = NicConfig { timeout_cycles: 38_976, buffers: [128, 64], ..NicConfig::default() };
    for speaks in [Speaks::Ndp, Speaks::DropTail, Speaks::Homa(HomaConfig::default())] {
        let plan = vec![Sending { at: 20_000, to: HostId(0), bytes: 1024, core: 0 }];
        let contest = Contest {
            nic,
            link_cycles: 1218,
            cores: 1,
            data_bytes: BUFFER_BYTES,
            // One queue may hold half of it.
            pool_bytes: 2 * BUFFER_BYTES,
            plans: (0..=CLIENTS).map(|host| if host == 0 { Vec::new() } else { plan.clone() }).collect(),
            end: 100_000,
        };
        let found = contest.play(&speaks)?;
        let last = found.arrived.iter().map(|(_, arrived)| arrived.at).max().unwrap_or(0);
        let done = last.saturating_sub(20_000) as f64 / CYCLES_PER_NANOSECOND / 1000.0;
        outcome.report(
            EXPERIMENT.name,
            format!("80 to 1, a packet each, {}: all are there after", speaks.name()),
            format!(
                "{} µs; {} of 80, {} packets lost or trimmed",
                figure(done),
                found.arrived.len(),
                found.cut
            ),
        );
    }
    Ok(())
}
