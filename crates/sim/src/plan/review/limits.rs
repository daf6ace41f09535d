//! The values that each parameter may have, by itself.

use super::shown;
use crate::plan::Value;
use crate::plan::lower::WINDOW_MAX;
use highwire_fabric::Span;
use highwire_transport::irn::IrnConfig;
use highwire_verbs::{MESSAGE_LENGTH_MAX, Mtu};

/// More flows do not fit into memory.
pub(super) const FLOWS_MAX: u64 = 100_000_000;
/// The longest message.
pub(super) const FLOW_BYTES_MAX: u64 = MESSAGE_LENGTH_MAX as u64;

const SECOND: Span = Span::from_ms(1_000);
/// More room, or more header, is a mistake in the unit.
const ROOM_MAX: u64 = 1_000_000_000_000;
const HEADER_MAX: u64 = 9_000;
/// Rates between which links are: 1 Mbit/s to 100 Tbit/s.
const RATES: (u64, u64) = (1_000_000, 100_000_000_000_000);

pub(super) fn too_many(flows: u64) -> String {
    format!("about {flows} flows; a run has at most {FLOWS_MAX}")
}

/// Whether a parameter may have this value.
pub(super) fn check(name: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::Count(count) => between(*count, count_of(name), ""),
        Value::Bytes(bytes) if name == "transport.mtu" => {
            let mtu = u32::try_from(*bytes).ok().and_then(Mtu::from_bytes);
            mtu.map(drop).ok_or_else(|| format!("{bytes} bytes are none of 256, 512, 1024, 2048 and 4096"))
        }
        Value::Bytes(bytes) => between(*bytes, bytes_of(name), " bytes"),
        Value::Number(number) => number_of(name, *number),
        Value::Span(span) => span_of(name, *span),
        Value::Rate(rate) if !(RATES.0..=RATES.1).contains(&rate.as_bps()) => {
            Err("a link has between 1 Mbit/s and 100 Tbit/s".into())
        }
        Value::Rate(_) | Value::Flag(_) | Value::Word(_) => Ok(()),
    }
}

fn between(value: u64, (low, high): (u64, u64), unit: &str) -> Result<(), String> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(format!("{value}{unit}: it lies between {low} and {high}"))
}

fn count_of(name: &str) -> (u64, u64) {
    match name {
        // The shapes' own limits are tighter, and say why.
        "network.k" | "network.hosts" | "network.leaves" | "network.spines" => (1, 1 << 22),
        "network.hosts_per_leaf" | "network.left" | "network.right" => (1, 1 << 22),
        "network.alpha_log2" => (0, 16),
        "transport.cap" => (1, IrnConfig::CAP_MAX.into()),
        "transport.rto_low_n" => (0, IrnConfig::CAP_MAX.into()),
        "transport.reordering" => (0, IrnConfig::CAP_MAX.into()),
        "transport.window" => (1, WINDOW_MAX.into()),
        "transport.initial_window" => (1, 1_000_000),
        "transport.turn" => (1, u32::MAX.into()),
        "workload.senders" | "workload.connections" | "workload.parts" => (1, FLOWS_MAX),
        _ => (0, u32::MAX.into()),
    }
}

fn bytes_of(name: &str) -> (u64, u64) {
    match name {
        "transport.extra_header" | "transport.gap" => (0, HEADER_MAX),
        "workload.bytes" => (1, u64::MAX),
        "network.buffer" | "network.trim_above" => (1, ROOM_MAX),
        // A switch looks at the headers at least, and a header queue holds one.
        "network.cut_through_bytes" => (14, HEADER_MAX),
        "network.trim_headers" => (66, ROOM_MAX),
        _ => (0, ROOM_MAX),
    }
}

fn number_of(name: &str, number: f64) -> Result<(), String> {
    let (holds, right) = match name {
        "network.packet_loss" | "network.bit_error_rate" => {
            ((0.0..1.0).contains(&number), "a probability below 1")
        }
        "network.ecn_probability" => ((0.0..=1.0).contains(&number), "a probability, 0 to 1"),
        "transport.rto_high_factor" => (number > 0.0 && number <= 1e6, "more than 0, and at most 1000000"),
        "workload.load" => (number > 0.0 && number <= 1.0, "more than 0, and at most 1"),
        _ => (true, ""),
    };
    if holds { Ok(()) } else { Err(format!("{number} is no value of it; it is {right}")) }
}

fn span_of(name: &str, span: Span) -> Result<(), String> {
    let (may_be_zero, longest) = match name {
        "network.delay" => (true, SECOND * 10),
        "transport.rto_low" | "transport.rto_high" => (false, SECOND * 1_000),
        // Longer ones are beyond every timeout of the paper.
        "transport.retransmission_delay" => (true, SECOND),
        // RFC 6298 lets no timeout grow beyond this one here.
        "transport.min_rto" | "transport.initial_rto" => (false, SECOND),
        "workload.duration" => (false, SECOND * 1_000),
        "workload.time_limit" => (false, SECOND * 100_000),
        _ => (true, SECOND * 1_000),
    };
    if span == Span::ZERO && !may_be_zero {
        return Err("it is longer than nothing".into());
    }
    if span > longest {
        return Err(format!("{} is too long; at most {}", shown(span), shown(longest)));
    }
    Ok(())
}
