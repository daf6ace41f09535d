//! Every parameter that a plan can set: one row each. Reading, checking, explaining, the columns of tables and the reference in
//! `docs/experiments.md` follow from it.

use highwire_rnic::CongestionChoice;
use highwire_transport::irn::RecoveryChoice;

use super::value::Unit;

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Section and key: `network.buffer`.
    pub name: &'static str,
    /// The form of its values.
    pub unit: Unit,
    /// Words that are values, too.
    pub words: &'static [&'static str],
    /// The default, as a plan would write it.
    pub default: &'static str,
    /// Its meaning, in one line.
    pub about: &'static str,
}

impl Parameter {
    /// Every word that is a value now: those of its own, and the names of the congestion controls that are known.
    pub(super) fn known_words(&self) -> Vec<&'static str> {
        match self.unit {
            Unit::Congestion => CongestionChoice::all().map(CongestionChoice::name).collect(),
            Unit::Recovery => self.words.iter().copied().chain(RecoveryChoice::names()).collect(),
            _ => self.words.to_vec(),
        }
    }
}

const fn p(
    name: &'static str,
    unit: Unit,
    words: &'static [&'static str],
    default: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter { name, unit, words, default, about }
}

/// The patterns of traffic that there are.
const PATTERNS: &[&str] = &[
    "poisson",
    "permutation",
    "incast",
    "incast-among-poisson",
    "all-reduce",
    "tree-all-reduce",
    "all-to-all",
    "trace",
];

/// Every parameter, by section.
#[rustfmt::skip]
pub const PARAMETERS: &[Parameter] = &[
    p("network.shape", Unit::Words, &["fat-tree", "leaf-spine", "star", "dumbbell", "graph"], "fat-tree", "who is joined to whom"),
    p("network.k", Unit::Count, &[], "6", "fat-tree: ports per switch, even; k³/4 hosts: 54 (6), 128 (8), 250 (10), 1024 (16)"),
    p("network.hosts", Unit::Count, &[], "16", "star: hosts around the switch"),
    p("network.leaves", Unit::Count, &[], "4", "leaf-spine: switches with hosts"),
    p("network.spines", Unit::Count, &[], "4", "leaf-spine: switches without"),
    p("network.hosts_per_leaf", Unit::Count, &[], "4", "leaf-spine: hosts at each leaf"),
    p("network.left", Unit::Count, &[], "8", "dumbbell: hosts at the first switch"),
    p("network.right", Unit::Count, &[], "8", "dumbbell: hosts at the second switch"),
    p("network.trunk_rate", Unit::Rate, &["as-links"], "as-links", "dumbbell, leaf-spine: the links between switches"),
    p("network.graph", Unit::File, &["none"], "none", "graph: a file in the form that docs/fabric.md shows"),
    p("network.rate", Unit::Rate, &[], "40Gbps", "every link's rate, but a graph's file names its own"),
    p("network.delay", Unit::Span, &[], "2us", "every link's delay, one way, but a graph's file names its own"),
    p("network.switches", Unit::Words, &["input-queued", "output-queued"], "input-queued", "where packets wait: virtual output queues per input, or one pool per switch"),
    p("network.service", Unit::Words, &["round-robin", "fifo"], "round-robin", "input-queued: which packet leaves next by an output: the inputs take turns, or in the order of arrival"),
    p("network.buffer", Unit::Bytes, &[], "240KB", "room per input port; per switch if output-queued"),
    p("network.alpha_log2", Unit::Count, &[], "0", "output-queued: a queue may hold 2^this times what is free"),
    p("network.pfc", Unit::Flag, &[], "false", "priority flow control: pause instead of drop"),
    p("network.pfc_headroom", Unit::Bytes, &["auto"], "auto", "room above XOFF per input; auto: the least that cannot overflow"),
    p("network.pfc_hysteresis", Unit::Bytes, &[], "0B", "how far below XOFF an input lets its peer go on"),
    p("network.ecn", Unit::Words, &["auto", "off", "red", "step"], "auto", "marking; auto: what the congestion control wants"),
    p("network.ecn_min", Unit::Bytes, &["auto"], "auto", "red: below it none is marked; step: above it all are; auto: by the congestion control, in proportion to each port's rate"),
    p("network.ecn_max", Unit::Bytes, &["auto"], "auto", "red: above it all are marked"),
    p("network.ecn_probability", Unit::Number, &["auto"], "auto", "red: the probability just below ecn_max"),
    p("network.ecn_when", Unit::Words, &["joining", "leaving"], "joining", "at which end of a queue packets are marked"),
    p("network.telemetry", Unit::Words, &["auto", "off"], "auto", "whether switches write into data packets how much waits and how much they have sent; auto: if the congestion control wants it"),
    p("network.trimming", Unit::Flag, &[], "false", "a packet without room is cut to its headers, which overtake data; irn and roce"),
    p("network.trim_above", Unit::Bytes, &["auto"], "auto", "trimming: an output with more waiting data than this cuts packets; auto: only where a buffer has no room"),
    p("network.trim_headers", Unit::Bytes, &[], "20KB", "trimming: how many bytes of headers may wait for an output; every buffer keeps so much room for them"),
    p("network.switching", Unit::Words, &["store-and-forward", "cut-through"], "store-and-forward", "when a switch passes a packet on: when all of it has come, or when its first bytes have"),
    p("network.cut_through_bytes", Unit::Bytes, &[], "64B", "cut-through: how many bytes a switch must have seen"),
    p("network.rerouting", Unit::Words, &["none", "local", "global"], "none", "what switches do about a link that is down: nothing, avoid it where it begins, or compute all ways anew"),
    p("network.balancing", Unit::Words, &["ecmp", "spray"], "ecmp", "how a switch picks among equally short ways: per flow or per packet"),
    p("network.packet_loss", Unit::Number, &[], "0", "the probability that a link loses a packet"),
    p("network.bit_error_rate", Unit::Number, &[], "0", "the probability that a bit is wrong"),
    p("transport.protocol", Unit::Words, &["irn", "roce", "iwarp"], "irn", "IRN; go-back-N as RoCE cards have it; iWARP's TCP"),
    p("transport.congestion", Unit::Congestion, &[], "none", "congestion control (iWARP has TCP's own)"),
    p("transport.mtu", Unit::Bytes, &[], "1024B", "payload of a full packet: 256, 512, 1024, 2048 or 4096 bytes"),
    p("transport.loss_recovery", Unit::Recovery, &["sack", "no-sack", "go-back-n"], "sack", "irn: what a sender repeats"),
    p("transport.cap", Unit::Count, &["bdp", "unlimited"], "bdp", "irn: most packets in flight"),
    p("transport.rto_low", Unit::Span, &[], "100us", "irn: the timeout while few packets are in flight"),
    p("transport.rto_low_n", Unit::Count, &[], "3", "irn: how many are few"),
    p("transport.computed_rto", Unit::Flag, &[], "false", "irn: timeouts from measured round trips, as TCP's, in the place of rto_low and rto_high"),
    p("transport.sack_restarts_timer", Unit::Flag, &[], "true", "irn: whether a selective acknowledgement restarts the timer, as a cumulative one does; the paper does not say (docs/sim.md)"),
    p("transport.partial_acks", Unit::Words, &["never", "evident", "hardware"], "evident", "irn: when an acknowledgement that stops at a packet sent before the last repetition repeats that packet: never; if there is evidence that it was lost; always, as the authors' hardware code does"),
    p("transport.retransmission_delay", Unit::Span, &[], "0us", "irn: how long a packet that is to be repeated takes to come from the host's memory, one after another; new packets do not wait for it"),
    p("transport.reordering", Unit::Count, &[], "0", "irn: a packet counts as lost when one has arrived that is more than so many packets later"),
    p("transport.rto_high", Unit::Span, &["auto"], "auto", "the timeout otherwise; auto: propagation there and back plus one congested switch, up to a multiple of 20 us; longest ways, slowest outputs"),
    p("transport.rto_high_factor", Unit::Number, &[], "1", "times rto_high"),
    p("transport.timeouts", Unit::Words, &["auto", "on", "off"], "auto", "roce: auto: off with PFC, on without"),
    p("transport.acks", Unit::Words, &["auto", "per-packet", "last-only"], "auto", "roce: auto: none but the last with PFC, one per packet without and for controls that need them"),
    p("transport.window", Unit::Count, &["unlimited"], "unlimited", "roce: most packets in flight; without PFC and congestion control it collapses without one (docs/sim.md)"),
    p("transport.initial_window", Unit::Count, &[], "10", "iwarp: the first window, in segments"),
    p("transport.min_rto", Unit::Span, &["auto"], "auto", "iwarp: the shortest timeout; auto: rto_high"),
    p("transport.initial_rto", Unit::Span, &["auto"], "auto", "iwarp: the timeout before a round trip has been measured; auto: the shortest, since a handshake would have measured one"),
    p("transport.sack", Unit::Flag, &[], "true", "iwarp: selective acknowledgements"),
    p("transport.headers", Unit::Words, &["paper", "encoded"], "paper", "what headers occupy: 62 bytes per packet, or as this program encodes them"),
    p("transport.extra_header", Unit::Bytes, &[], "0B", "added to every data packet"),
    p("transport.gap", Unit::Bytes, &[], "0B", "preamble and gap between packets; Ethernet: 20"),
    p("transport.queue_pairs", Unit::Words, &["per-flow", "per-pair"], "per-flow", "whether flows between two hosts share a queue pair"),
    p("transport.ack_priority", Unit::Words, &["as-data", "above"], "as-data", "whether acknowledgements overtake data"),
    p("transport.entropy", Unit::Words, &["per-flow", "per-packet"], "per-flow", "irn, roce: what a packet's way follows from where switches hash: its queue pair, or a number of its own, so that the sender spreads its packets"),
    p("transport.turn", Unit::Count, &[], "1", "irn, roce: how many packets a queue pair sends before the card turns to the next one"),
    p("workload.pattern", Unit::Words, PATTERNS, "poisson", "who sends to whom"),
    p("workload.sizes", Unit::File, &[], "irn-heavy-tail", "poisson: flow sizes: irn-heavy-tail, irn-middle-uniform, uniform-500k-5m, web-search, fb-hadoop, ali-storage, or a file of `BYTES PERCENT`"),
    p("workload.load", Unit::Number, &[], "0.7", "poisson: the share of a host's link that its flows occupy, headers included"),
    p("workload.duration", Unit::Span, &[], "10ms", "poisson: for how long flows arrive that are measured"),
    p("workload.warm_up", Unit::Span, &[], "0us", "poisson: for how long flows arrive before those, not measured"),
    p("workload.afterwards", Unit::Span, &[], "0us", "poisson: for how long flows arrive after those, not measured"),
    p("workload.bytes", Unit::Bytes, &[], "150MB", "incast: the whole answer; otherwise what each host sends"),
    p("workload.senders", Unit::Count, &[], "30", "incast: how many answer"),
    p("workload.receiver", Unit::Count, &[], "0", "incast: the host that asked"),
    p("workload.connections", Unit::Count, &[], "1", "incast: flows per sender"),
    p("workload.start", Unit::Span, &[], "0us", "incast: when it begins"),
    p("workload.parts", Unit::Count, &[], "1", "tree-all-reduce: into how many parts, one behind another, each vector is cut"),
    p("workload.trace", Unit::File, &["none"], "none", "trace: a CSV file with the columns start, source, destination, size and perhaps after (docs/experiments.md)"),
    p("workload.time_limit", Unit::Span, &[], "10s", "a run that has not ended by then ends with an error"),
];

/// The place of a parameter in [`PARAMETERS`].
pub(crate) fn index_of(name: &str) -> Option<usize> {
    PARAMETERS.iter().position(|parameter| parameter.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::Params;

    #[test]
    fn names_are_different_and_defaults_are_values() {
        let names: BTreeSet<_> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
        assert_eq!(names.len(), PARAMETERS.len());
        let params = Params::default();
        for (parameter, value) in PARAMETERS.iter().zip(params.values()) {
            assert_eq!(
                parameter.default,
                value.to_string().replace("1.024KB", "1024B"),
                "{}",
                parameter.name
            );
        }
    }
}
