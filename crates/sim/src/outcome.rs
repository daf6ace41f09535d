//! What a run has brought.

use highwire_fabric::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::FlowId;

/// The results of a run. Flows, groups and ports are in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Every flow.
    pub flows: Vec<FlowRecord>,
    /// Every group of flows.
    pub groups: Vec<GroupRecord>,
    /// Sums over the network.
    pub totals: Totals,
    /// Filled if [`crate::scenario::Record::ports`] says so.
    pub ports: Vec<PortRecord>,
    /// Filled if [`crate::scenario::Record::sample_every`] says so, earliest first.
    pub samples: Vec<Sample>,
}

/// The results of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Its number.
    pub id: FlowId,
    /// Bytes without headers.
    pub bytes: u64,
    /// As in [`crate::Flow::class`].
    pub class: u16,
    /// When it could start: its start, or the end of the last flow that it waited for.
    pub start: Option<Time>,
    /// When its last byte had been received, in full and in any order.
    pub received: Option<Time>,
    /// When the sender knew.
    pub acknowledged: Option<Time>,
    /// How long it takes in an empty network at line rate over the same number of links.
    pub ideal: Span,
    /// Data packets that it takes.
    pub packets: u32,
    /// Data packets sent, repetitions included.
    pub sent: u32,
}

/// The results of a group of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its number.
    pub group: u32,
    /// When the first of them could start.
    pub start: Option<Time>,
    /// When the last of them had been received; the request completion time counts from `start` to here.
    pub received: Option<Time>,
    /// Bytes of all.
    pub bytes: u64,
}

/// Sums over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// When the run ended: with its last flow, or when it was cut off.
    pub end: Time,
    /// Data packets that hosts sent, repetitions included, and those among them that were repetitions.
    pub data_packets: u64,
    /// Repetitions.
    pub retransmitted: u64,
    /// Everything else that hosts sent: acknowledgements, CNPs.
    pub control_packets: u64,
    /// Data packets whose payload had arrived already.
    pub duplicates: u64,
    /// Timeouts of senders.
    pub timeouts: u64,
    /// Packets that found no room, and their bytes.
    pub dropped_packets: u64,
    /// Data packets among them.
    pub dropped_data_packets: u64,
    /// Packets lost on links: bit errors, failures.
    pub lost_packets: u64,
    /// Packets that were marked.
    pub marked_packets: u64,
    /// Packets that were trimmed.
    pub trimmed_packets: u64,
    /// CNPs that senders received.
    pub cnps: u64,
    /// Pause frames.
    pub pause_frames: u64,
    /// XOFFs among the pause frames.
    pub xoffs: u64,
    /// For how long ports were paused, summed.
    pub paused: Span,
    /// Packets times links.
    pub packet_hops: u64,
    /// Events of the simulator.
    pub events: u64,
    /// A hash of all events; equal runs have equal ones.
    pub fingerprint: u64,
}

/// The counters of a port.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PortRecord {
    /// Node, and where the link leads: `host 3 -> edge 1`.
    pub name: String,
    /// Whether it is a host's.
    pub is_host: bool,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that found no room to wait for it.
    pub dropped_packets: u64,
    /// Packets marked while they waited for it.
    pub marked_packets: u64,
    /// How long it was paused.
    pub paused: Span,
    /// The most bytes that ever waited for it.
    pub queue_bytes_max: u64,
}

/// Every switch port at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Per switch port: bytes that wait for it. Switch ports are numbered behind those of hosts: the first is port number
    /// "number of hosts" of [`Outcome::ports`].
    pub queue_bytes: Vec<u32>,
    /// Ports that are paused, by their place in [`Outcome::ports`].
    pub paused: Vec<u32>,
}

/// A few numbers about many flows.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How many of them have been received.
    pub received: u64,
    /// How many have not.
    pub unfinished: u64,
    /// Mean of FCT over ideal FCT.
    pub slowdown_mean: f64,
    /// Mean FCT in seconds.
    pub fct_mean_s: f64,
    /// 99 % FCT in seconds.
    pub fct_p99_s: f64,
}

impl FlowRecord {
    /// Flow completion time: from when it could start to its last byte's arrival.
    pub fn fct(&self) -> Option<Span> {
        Some(self.received?.since(self.start?))
    }

    /// FCT over ideal FCT.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.fct()?.as_ps() as f64 / self.ideal.as_ps().max(1) as f64)
    }

    /// Whether it is one packet.
    pub fn is_single_packet(&self) -> bool {
        self.packets == 1
    }
}

impl GroupRecord {
    /// Request completion time.
    pub fn rct(&self) -> Option<Span> {
        Some(self.received?.since(self.start?))
    }
}

impl Outcome {
    /// The flows that `is_wanted` picks, in three numbers. NaN where none was received.
    pub fn summary(&self, is_wanted: impl Fn(&FlowRecord) -> bool) -> Summary {
        let wanted: Vec<&FlowRecord> = self.flows.iter().filter(|f| is_wanted(f)).collect();
        let fcts: Vec<Span> = wanted.iter().filter_map(|f| f.fct()).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>, count: usize| values.sum::<f64>() / count as f64;
        Summary {
            received: fcts.len() as u64,
            unfinished: (wanted.len() - fcts.len()) as u64,
            slowdown_mean: mean(&mut wanted.iter().filter_map(|f| f.slowdown()), fcts.len()),
            fct_mean_s: mean(&mut fcts.iter().map(|f| f.as_secs_f64()), fcts.len()),
            fct_p99_s: percentile(fcts, 0.99).map_or(f64::NAN, Span::as_secs_f64),
        }
    }

    /// FCTs of the flows that `is_wanted` picks, shortest first: a CDF.
    pub fn fcts(&self, is_wanted: impl Fn(&FlowRecord) -> bool) -> Vec<Span> {
        let mut fcts: Vec<Span> =
            self.flows.iter().filter(|f| is_wanted(f)).filter_map(FlowRecord::fct).collect();
        fcts.sort_unstable();
        fcts
    }
}

impl Totals {
    /// Data packets dropped per data packet sent.
    pub fn drop_rate(&self) -> f64 {
        self.dropped_data_packets as f64 / self.data_packets.max(1) as f64
    }
}

/// The smallest value that at least `share` of all do not exceed (nearest rank).
pub(crate) fn percentile(mut values: Vec<Span>, share: f64) -> Option<Span> {
    let rank = (values.len() as f64 * share).ceil() as usize;
    let index = rank.max(1).min(values.len()).checked_sub(1)?;
    Some(*values.select_nth_unstable(index).1)
}
