//! `highwire perf floor`: the limits of this machine without Highwire, and the ratio of a measurement to
//! them.

use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_link::floor;
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::values::{show_count, show_ns};

use super::endpoint::LinkUsed;
use super::plan::{Metric, Operation, Plan};

/// Payload of a UDP datagram that carries a 32-byte SEND: BTH, payload, ICRC.
const SMALL_DATAGRAM_BYTES: usize = 12 + 32 + 4;
const SEGMENT_BYTES: usize = 12 + 16 + 1024 + 4;
const MTU_BYTES_MAX: u32 = 4096;
const ROUND_TRIPS: u64 = 30_000;
const MESSAGES: u64 = 300_000;
const SEGMENTS: u64 = 600_000;
const CACHE_ROUND_TRIPS: u64 = 1_000_000;
const COPY_BYTES: u64 = 2 << 30;

/// Options of `highwire perf floor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire perf floor
  highwire perf floor --json")]
pub(crate) struct Args {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// One limit of this machine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Floor {
    /// The name of the measurement.
    pub(crate) what: String,
    /// Nanoseconds (median), messages per second, or bytes per second.
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    /// The 99th percentile of a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ns: Option<u64>,
}

/// The unit of a floor's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Nanoseconds,
    MessagesPerSecond,
    BytesPerSecond,
}

impl Floor {
    fn time(what: impl Into<String>, summary: &floor::Summary) -> Self {
        let value = summary.median_ns as f64;
        Self { what: what.into(), value, unit: Unit::Nanoseconds, p99_ns: Some(summary.p99_ns) }
    }

    fn rate(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { what: what.into(), value, unit, p99_ns: None }
    }

    /// With its unit, as a person reads it.
    pub(crate) fn show_value(&self) -> String {
        match self.unit {
            Unit::Nanoseconds => show_ns(self.value),
            Unit::MessagesPerSecond => format!("{}/s", show_count(self.value)),
            Unit::BytesPerSecond => format!("{:.2} Gb/s", self.value * 8.0 / 1e9),
        }
    }
}

/// Measures every floor and shows them.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let floors = all()?;
    if args.json {
        console.json(&floors)?;
    } else {
        console
            .line(console.paint(Tone::Heading, &format!("{:<58}{:>14}{:>14}", "this machine", "", "p99")))?;
        for floor in &floors {
            let p99 = floor.p99_ns.map(|ns| show_ns(ns as f64)).unwrap_or_default();
            console.line(format!("{:<58}{:>14}{p99:>14}", floor.what, floor.show_value()))?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn all() -> Result<Vec<Floor>> {
    Ok(vec![
        udp_round_trip(SMALL_DATAGRAM_BYTES)?,
        udp_messages(SMALL_DATAGRAM_BYTES)?,
        udp_trains(SEGMENT_BYTES)?,
        cache_line(),
        copies(64 * 1024),
    ])
}

/// Two polling threads: no SEND over UDP can beat them.
pub(crate) fn udp_round_trip(datagram_bytes: usize) -> Result<Floor> {
    let summary = floor::udp_round_trip(datagram_bytes, ROUND_TRIPS).context("raw UDP round trips")?;
    Ok(Floor::time(format!("UDP round trip, polling, {datagram_bytes} B datagrams"), &summary))
}

/// One datagram per system call.
pub(crate) fn udp_messages(datagram_bytes: usize) -> Result<Floor> {
    let rate = floor::udp_message_rate(datagram_bytes, MESSAGES).context("raw UDP messages")?;
    let what = format!("UDP messages, one per call, {datagram_bytes} B datagrams");
    Ok(Floor::rate(what, rate.messages_per_second(), Unit::MessagesPerSecond))
}

/// The kernel's segmentation and coalescing, at their longest.
pub(crate) fn udp_trains(segment_bytes: usize) -> Result<Floor> {
    let rate = floor::udp_gso_throughput(segment_bytes, SEGMENTS).context("raw UDP with GSO and GRO")?;
    let what = format!("UDP with GSO and GRO, {segment_bytes} B datagrams");
    Ok(Floor::rate(what, rate.bytes_per_second(), Unit::BytesPerSecond))
}

/// Two cores answering each other through one cache line each way.
pub(crate) fn cache_line() -> Floor {
    Floor::time(
        "shared cache line, round trip between two cores",
        &floor::cache_line_round_trip(CACHE_ROUND_TRIPS),
    )
}

/// One core copying from cache to cache.
pub(crate) fn copies(block_bytes: usize) -> Floor {
    let rate = floor::memcpy_throughput(block_bytes, COPY_BYTES);
    let what = format!("memcpy of {} KiB blocks, one core", block_bytes / 1024);
    Floor::rate(what, rate.bytes_per_second(), Unit::BytesPerSecond)
}

/// Copying less than this at a time tells nothing about exchanging it.
const COPY_BYTES_MIN: u32 = 4096;

/// The floor to compare a measurement with: the same kind of exchange over the same link without Highwire.
/// None for short messages through shared memory, for which there is no such exchange.
pub(crate) fn beside(plan: &Plan, link: LinkUsed) -> Result<Option<Floor>> {
    let extension_bytes = match plan.operation {
        Operation::Send => 0,
        Operation::Write | Operation::Read => 16,
        Operation::FetchAdd => 28,
    };
    let payload_bytes = plan.size_bytes.min(plan.mtu_bytes.unwrap_or(MTU_BYTES_MAX)) as usize;
    let datagram_bytes = 12 + extension_bytes + payload_bytes + 4;
    match (plan.metric, link) {
        (Metric::Lat | Metric::PingPong, LinkUsed::SharedMemory) => Ok(Some(cache_line())),
        (Metric::Lat | Metric::PingPong, LinkUsed::Udp) => udp_round_trip(datagram_bytes).map(Some),
        (Metric::Bw, LinkUsed::Udp) => udp_trains(datagram_bytes).map(Some),
        (Metric::Bw, LinkUsed::SharedMemory) if plan.size_bytes >= COPY_BYTES_MIN => {
            Ok(Some(copies(plan.size_bytes as usize)))
        }
        (Metric::Bw, LinkUsed::SharedMemory) => Ok(None),
    }
}
