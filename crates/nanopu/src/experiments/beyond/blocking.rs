//! A read of x30 that waits for its word, against a program that looks for it.

use super::EXPERIMENT;
use crate::client::{Client, Request};
use crate::experiments::{CYCLES_PER_NANOSECOND, Chart, ExperimentError, Outcome, Series, Settings, figure};
use crate::nic::NicConfig;
use crate::node::{Node, NodeConfig};
use crate::packet::HEADER_BYTES;
use crate::timeline::{Stage, Stamp};

/// Messages before those that count.
const WARM: usize = 8;
/// Messages one at a time, so far apart that each finds the core idle and the loop of a program that polls at another phase.
const ALONE: u64 = 24;
const APART_CYCLES: u64 = 3_007;
/// Messages one behind the other: no more than the NIC has buffers for.
const BURST: usize = 40;

/// A program and the node that it runs on.
struct Variant {
    program: &'static str,
    config: NodeConfig,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    // The generator's acknowledgements wait behind its burst, and the node must not send packets again
    // because of that.
    let nic = NicConfig { timeout_cycles: 100_000, ..NicConfig::default() };
    let config = NodeConfig { nic, ..NodeConfig::default() };
    let polls = Variant { program: "loopback", config };
    let waits =
        Variant { program: "loopback_blocking", config: NodeConfig { blocking_reads: true, ..config } };
    let sizes: &[usize] =
        if settings.is_quick { &[16, 128, 1024] } else { &[16, 32, 64, 128, 256, 512, 1024] };
    let mut lines = [Vec::new(), Vec::new()];
    for &bytes in sizes {
        let (before, after) = (polls.first_out(settings, bytes)?, waits.first_out(settings, bytes)?);
        outcome.report(
            EXPERIMENT.name,
            format!("reads that wait: loopback of {bytes} bytes, first word in to first word out"),
            format!("{} cycles, polled {}", figure(after), figure(before)),
        );
        let frame_bits = (8 * (HEADER_BYTES + bytes)) as f64;
        let rate = |cycles: f64| frame_bits / cycles * CYCLES_PER_NANOSECOND;
        let (before, after) =
            (polls.cycles_per_message(settings, bytes)?, waits.cycles_per_message(settings, bytes)?);
        outcome.report(
            EXPERIMENT.name,
            format!("the same, one behind the other on one core, {bytes} bytes"),
            format!(
                "{} cycles a message, polled {} ({} and {} Gb/s of frames)",
                figure(after),
                figure(before),
                figure(rate(after)),
                figure(rate(before))
            ),
        );
        lines[0].push((bytes as f64, rate(before)));
        lines[1].push((bytes as f64, rate(after)));
    }
    let names = ["polls", "waits in the read"].into_iter().zip(lines);
    outcome.charts.push(Chart {
        title: "Loopback on one core: a read that waits".to_string(),
        across: "bytes".to_string(),
        up: "Gb/s of frames".to_string(),
        is_log: false,
        series: names
            .map(|(name, points)| Series { name: name.to_string(), is_paper: false, points })
            .collect(),
    });
    Ok(())
}

impl Variant {
    /// The median from a message's first word in to its answer's first word out, in cycles.
    fn first_out(&self, settings: &Settings<'_>, bytes: usize) -> Result<f64, ExperimentError> {
        let sent: Vec<u64> = (0..WARM as u64 + ALONE).map(|number| 10_000 + APART_CYCLES * number).collect();
        let out = self.answers(settings, bytes, &sent)?;
        let mut spans: Vec<u64> = out.iter().zip(&sent).skip(WARM).map(|(out, sent)| out - sent).collect();
        spans.sort_unstable();
        Ok((spans[(spans.len() - 1) / 2] + spans[spans.len() / 2]) as f64 / 2.0)
    }

    /// From answer to answer while more messages wait, in cycles.
    fn cycles_per_message(&self, settings: &Settings<'_>, bytes: usize) -> Result<f64, ExperimentError> {
        let warm = (0..WARM).map(|number| 10_000 + 4_000 * number as u64);
        let sent: Vec<u64> = warm.chain([60_000; BURST]).collect();
        let out = self.answers(settings, bytes, &sent)?;
        Ok((out[out.len() - 1] - out[WARM]) as f64 / (BURST - 1) as f64)
    }

    /// Sends messages in these cycles, and says when the first word of each answer left.
    fn answers(
        &self,
        settings: &Settings<'_>,
        bytes: usize,
        sent: &[u64],
    ) -> Result<Vec<u64>, ExperimentError> {
        let program = settings.files.program(self.program)?;
        let mut node = Node::new(&program, &self.config)
            .map_err(|error| ExperimentError::NoProgram(self.program.to_string(), error.to_string()))?;
        node.record_timeline();
        let requests: Vec<Request> =
            sent.iter().map(|&sent| Request { sent, context: 0, payload: vec![7; bytes] }).collect();
        Client::new(0x0a00_0001, self.config.nic.address, 0)
            .play(&mut node, &requests, 200_000, |_, _| {})
            .map_err(|event| ExperimentError::trapped(self.program, &event))?;
        let words = (HEADER_BYTES + bytes).div_ceil(8) as u64;
        // Acknowledgements are shorter.
        let is_answer = |stamp: &&Stamp| stamp.stage == Stage::WireOut && stamp.value == words;
        let out: Vec<u64> = node.take_timeline().iter().filter(is_answer).map(|stamp| stamp.cycle).collect();
        match out.len() == sent.len() {
            true => Ok(out),
            false => {
                Err(ExperimentError::Broken(format!("{} answers to {} messages", out.len(), sent.len())))
            }
        }
    }
}
