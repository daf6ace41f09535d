//! Messages of mixed sizes between all hosts of a switch: how many times as long as alone each takes (Homa, SIGCOMM'18 §5.2).

use highwire_stdx::Rng;

use super::super::{Chart, ExperimentError, Outcome, Series, Settings, figure};
use super::contest::{Contest, Speaks};
use crate::network::{HostId, Sending};
use crate::nic::{HomaConfig, LongMessages, NicConfig};
use crate::packet::{HEADER_BYTES, packets_of};
use crate::queueing::percentile;

const HOSTS: u32 = 16;
const LINK_CYCLES: u64 = 140;
/// Two links, their switch's store and the sender's own for a packet of 1088 bytes, and the same without stores back: 850 cycles, six
/// packets and a quarter.
const RTT_PACKETS: u16 = 7;
/// Longer than any queue that a port may hold takes.
const TIMEOUT_CYCLES: u64 = 40_000;
/// What the prototype's switch has behind each port.
const PORT_BYTES: u64 = 92_480;
const LOAD: f64 = 0.8;
/// Sizes and their share of messages: half of the bytes are in messages of more than 16 KiB, most messages below 1 KiB.
const SIZES: [(u16, f64); 6] =
    [(64, 0.5), (256, 0.2), (1024, 0.1), (4096, 0.1), (16_384, 0.06), (32_768, 0.04)];
/// Homa's unasked data: up to a packet, up to a round trip, and longer.
const CUTOFFS: [u16; 3] = [256, 1024, 4096];
const START_CYCLES: u64 = 1_000;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let span = if settings.is_quick { 160_000 } else { 3_200_000 };
    let homa = HomaConfig { cutoffs: CUTOFFS.to_vec(), ..HomaConfig::default() };
    let all = [Speaks::Ndp, Speaks::DropTail, Speaks::Homa(homa)];
    let alone = alone(&all)?;
    let plans = plans(settings.seed, span);
    let mut found = Vec::new();
    for (step, speaks) in all.iter().enumerate() {
        (settings.progress)(0.4 + 0.2 * step as f64);
        found.push(slowdowns(&plans, &contest(plans.clone(), span + 400_000), speaks, &alone)?);
    }
    let name = super::EXPERIMENT.name;
    for (place, (bytes, _)) in SIZES.into_iter().enumerate() {
        let of = |share| {
            let each = all.iter().zip(&found).map(|(speaks, by_size)| {
                format!("{} {}", speaks.name(), figure(percentile(&by_size[place], share)))
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let claim = format!("16 hosts at {} % load, {bytes} bytes: slowdown p50 · p99", figure(100.0 * LOAD));
        outcome.report(name, claim, format!("{} · {}", of(0.5), of(0.99)));
    }
    // What priorities and SRPT are for.
    let short = |place: usize| percentile(&found[place][0], 0.99);
    outcome.check(
        name,
        "p99 of the slowdown of 64 bytes: Homa's over drop-tail's",
        "below 1: ours",
        short(2) / short(1),
        "times",
        (0.0, 1.0),
    );
    let line = |(speaks, by_size): (&Speaks, &Vec<Vec<f64>>)| Series {
        name: speaks.name().to_string(),
        is_paper: false,
        points: SIZES
            .iter()
            .zip(by_size)
            .map(|((bytes, _), slowdowns)| (f64::from(*bytes).log2(), percentile(slowdowns, 0.99)))
            .collect(),
    };
    outcome.charts.push(Chart {
        title: format!("Slowdown by size, p99, at {} % load (ours)", figure(100.0 * LOAD)),
        across: "log2 of bytes".to_string(),
        up: "times as long as alone".to_string(),
        is_log: true,
        series: all.iter().zip(&found).map(line).collect(),
    });
    Ok(())
}

fn contest(plans: Vec<Vec<Sending>>, end: u64) -> Contest {
    Contest {
        nic: NicConfig {
            rtt_packets: RTT_PACKETS,
            timeout_cycles: TIMEOUT_CYCLES,
            // Many messages of many senders arrive at a time.
            long_messages: Some(LongMessages { bytes_max: 32_768, segments: 4_096, streams: false }),
            ..NicConfig::default()
        },
        link_cycles: LINK_CYCLES,
        cores: SIZES.len(),
        data_bytes: PORT_BYTES,
        pool_bytes: u64::from(HOSTS) * PORT_BYTES,
        plans,
        end,
    }
}

/// Cycles that a message of each size takes alone, by the fastest.
fn alone(all: &[Speaks]) -> Result<Vec<f64>, ExperimentError> {
    let mut fastest = vec![f64::INFINITY; SIZES.len()];
    for speaks in all {
        for (place, (bytes, _)) in SIZES.into_iter().enumerate() {
            let sending = Sending { at: START_CYCLES, to: HostId(0), bytes, core: place };
            let mut plans = vec![Vec::new(); HOSTS as usize];
            plans[1].push(sending);
            let found = contest(plans, START_CYCLES + 100_000).play(speaks)?;
            let took = found.arrived.first().map(|(_, arrived)| (arrived.at - START_CYCLES) as f64);
            let took = took.ok_or(ExperimentError::Broken(format!("{} bytes did not arrive", bytes)))?;
            fastest[place] = fastest[place].min(took);
        }
    }
    Ok(fastest)
}

/// Each host sends to all others at random. A size has a core of its own, and shorter ones go first.
fn plans(seed: u64, span: u64) -> Vec<Vec<Sending>> {
    let wire_bytes = |bytes: u16| f64::from(bytes) + (HEADER_BYTES * packets_of(bytes)) as f64;
    let mean: f64 = SIZES.iter().map(|&(bytes, share)| share * wire_bytes(bytes)).sum();
    // The interface carries eight bytes a cycle.
    let gap = mean / 8.0 / LOAD;
    let host = |host: u32| {
        let mut rng = Rng::new(seed).fork(u64::from(host));
        let mut now = START_CYCLES as f64;
        let mut plan = Vec::new();
        loop {
            now -= (1.0 - rng.unit()).ln() * gap;
            if now > (START_CYCLES + span) as f64 {
                return plan;
            }
            let mut left = rng.unit();
            let core = SIZES.iter().position(|&(_, share)| {
                left -= share;
                left < 0.0
            });
            let core = core.unwrap_or(SIZES.len() - 1);
            let other = rng.below(u64::from(HOSTS) - 1) as u32;
            let to = HostId(other + u32::from(other >= host));
            plan.push(Sending { at: now as u64, to, bytes: SIZES[core].0, core });
        }
    };
    (0..HOSTS).map(host).collect()
}

/// By size, rising; infinite for messages that have not arrived.
fn slowdowns(
    plans: &[Vec<Sending>],
    contest: &Contest,
    speaks: &Speaks,
    alone: &[f64],
) -> Result<Vec<Vec<f64>>, ExperimentError> {
    let found = contest.play(speaks)?;
    let mut at: Vec<Vec<f64>> = plans.iter().map(|plan| vec![f64::INFINITY; plan.len()]).collect();
    for (_, arrived) in found.arrived {
        at[arrived.from.0 as usize][arrived.number as usize] = arrived.at as f64;
    }
    let mut by_size = vec![Vec::new(); SIZES.len()];
    for (plan, at) in plans.iter().zip(at) {
        for (sending, at) in plan.iter().zip(at) {
            by_size[sending.core].push((at - sending.at as f64) / alone[sending.core]);
        }
    }
    by_size.iter_mut().for_each(|slowdowns| slowdowns.sort_by(f64::total_cmp));
    Ok(by_size)
}
