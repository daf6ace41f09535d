//! What the switches do: queueing, PFC, ECN, trimming, balancing.

use crate::{Priorities, Rate, Span};

/// How a network behaves. Every number is in bytes unless its name says otherwise.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// The source of everything random: ECMP's hashes, RED, bit errors, spraying.
    pub seed: u64,
    /// How many priorities are modelled, 1 to 8. The highest is served first.
    pub priorities: u8,
    /// Where packets wait in a switch, and how much room there is.
    pub buffering: Buffering,
    /// In which order the packets that wait for an output leave.
    pub service: Service,
    /// Priority flow control; `None`: a full buffer drops.
    pub pfc: Option<Pfc>,
    /// Marking; `None`: no packet is marked.
    pub ecn: Option<Ecn>,
    /// Trimming; `None`: a packet that has no room is dropped whole.
    pub trimming: Option<Trimming>,
    /// When a switch passes a packet on.
    pub forwarding: Forwarding,
    /// How a switch picks among equally short ways.
    pub balancing: Balancing,
    /// What a switch does about a dead link.
    pub rerouting: Rerouting,
}

/// In which order the packets of one priority that wait for an output leave.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Service {
    /// The inputs take turns, a packet each: virtual output queues. A switch with one pool has a single queue per output, so
    /// there it is the same as [`Service::Fifo`].
    #[default]
    RoundRobin,
    /// In the order in which they came, from whichever input.
    Fifo,
}

/// Where packets wait in a switch.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// At the input, in one queue per output and priority (virtual output queues), served round robin by each output
    /// through an ideal crossbar: an output never waits for another, and an input may feed all of them at once.
    InputQueued {
        /// Room of one input port, shared by its queues.
        input_bytes: u64,
    },
    /// At the output, in one queue per priority, out of one pool.
    OutputQueued {
        /// Room of the whole switch.
        pool_bytes: u64,
        /// A queue may hold `2^alpha_log2` times what is free ("dynamic threshold").
        alpha_log2: i8,
    },
}

/// Priority flow control (IEEE 802.1Qbb): an input about to overflow pauses the sender at the other end of its link.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pfc {
    /// The lossless priorities.
    pub priorities: Priorities,
    /// An input whose packets of one priority exceed this sends XOFF.
    pub xoff_bytes: u64,
    /// It sends XON when they are down to this.
    pub xon_bytes: u64,
    /// Room per input and lossless priority beyond XOFF, for packets that are already on the way.
    pub headroom_bytes: u64,
    /// What a pause frame occupies on the link.
    pub frame_bytes: u32,
}

/// When packets are marked, by the bytes that wait for an output at one priority: the sum over its virtual output queues.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ecn {
    /// In a shorter queue no packet is marked.
    pub min_bytes: u64,
    /// In a longer queue every packet is marked. Equal to `min_bytes`: a step.
    pub max_bytes: u64,
    /// The probability just below `max_bytes`; it rises linearly from zero at `min_bytes`.
    pub max_probability: f64,
    /// Whether the queue is judged when a packet joins it (DCQCN, DCTCP) or when it leaves.
    pub when: MarkWhen,
    /// The thresholds hold for links of this rate; the ports of other links have theirs in proportion. `None`: they hold
    /// for all ports alike.
    #[cfg_attr(feature = "serde", serde(default))]
    pub per: Option<Rate>,
}

/// At which end of a queue packets are marked.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkWhen {
    /// When a packet joins: it is judged by the queue in front of it.
    Joining,
    /// When a packet leaves: it is judged by the queue behind it, so the mark is newer by one queueing delay.
    Leaving,
}

/// Packet trimming (NDP): a data queue that is full keeps the headers, in a queue that overtakes data.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trimming {
    /// Bytes that may wait for one output at one priority before packets are trimmed.
    pub data_bytes_max: u64,
    /// Bytes that may wait for one output in the header queue before headers are dropped.
    pub header_bytes_max: u64,
    /// The header queue's priority.
    pub header_priority: u8,
}

/// When a switch passes a packet on to a port that no other packet uses or waits for.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// When the whole packet has arrived.
    StoreAndForward,
    /// When its header has arrived, which tells the switch where the packet goes; the rest follows. So
    /// packets are serialised once on their way and not at every hop, and a bit error or a full buffer shows
    /// at the first byte instead of the last. A packet that may leave by a faster link than it came by is
    /// stored whole: otherwise the faster link would run out of its bytes.
    CutThrough {
        /// The header's length. With zero, a packet has arrived at a switch as soon as its first bit has.
        header_bytes: u32,
    },
}

/// How a switch picks among equally short ways.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balancing {
    /// By a hash of the flow and a seed of the switch: a flow keeps its way.
    Ecmp,
    /// Anew for every packet, at random: packets of one flow overtake each other.
    Spray,
}

/// What a switch does when the way it picked is a dead link.
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rerouting {
    /// Nothing, because it does not know: packets are lost until the link is back.
    None,
    /// It picks among its own equally short ways that are alive. If there is none, the packet is lost.
    Local,
    /// All switches know at once: shortest ways are computed anew over the links that are alive.
    Global,
}

impl Default for FabricConfig {
    /// One priority, 240 KB per input (IRN §4.1), neither PFC nor ECN nor trimming, ECMP, seed 1.
    fn default() -> FabricConfig {
        FabricConfig {
            seed: 1,
            priorities: 1,
            buffering: Buffering::InputQueued { input_bytes: 240_000 },
            service: Service::RoundRobin,
            pfc: None,
            ecn: None,
            trimming: None,
            forwarding: Forwarding::StoreAndForward,
            balancing: Balancing::Ecmp,
            rerouting: Rerouting::None,
        }
    }
}

impl Pfc {
    /// PFC for an input buffer of `input_bytes` behind a link of this rate and delay: the threshold leaves exactly the
    /// headroom that cannot overflow, and XON follows at the same threshold (IRN §4.1 gives no hysteresis).
    ///
    /// `packet_bytes_max` is the longest packet's length on the wire. `None` if the buffer is smaller than the headroom.
    pub fn for_input(input_bytes: u64, rate: Rate, delay: Span, packet_bytes_max: u32) -> Option<Pfc> {
        let headroom_bytes = Pfc::headroom_needed(rate, delay, packet_bytes_max, Pfc::FRAME_BYTES);
        let xoff_bytes = input_bytes.checked_sub(headroom_bytes)?;
        let priorities = Priorities::ALL;
        Some(Pfc {
            priorities,
            xoff_bytes,
            xon_bytes: xoff_bytes,
            headroom_bytes,
            frame_bytes: Pfc::FRAME_BYTES,
        })
    }

    /// A pause frame's length: the smallest Ethernet frame.
    pub const FRAME_BYTES: u32 = 64;

    /// The bytes that can arrive after the decision to pause: those that fill the link both ways, the packet
    /// that keeps the pause frame waiting, the frame, the packet that the sender has begun, and the one that
    /// crossed the threshold.
    pub fn headroom_needed(rate: Rate, delay: Span, packet_bytes_max: u32, frame_bytes: u32) -> u64 {
        let round_trip = rate.bytes_in(delay * 2) + 1;
        round_trip + 3 * u64::from(packet_bytes_max) + u64::from(frame_bytes)
    }
}

impl Ecn {
    /// Every packet is marked that joins a queue of more than `bytes` (DCTCP's step).
    pub const fn step(bytes: u64) -> Ecn {
        Ecn { min_bytes: bytes, max_bytes: bytes, max_probability: 1.0, when: MarkWhen::Joining, per: None }
    }

    /// RED's ramp on the present queue (DCQCN).
    pub const fn red(min_bytes: u64, max_bytes: u64, max_probability: f64) -> Ecn {
        Ecn { min_bytes, max_bytes, max_probability, when: MarkWhen::Joining, per: None }
    }

    /// The same with thresholds as a port of this rate has them.
    #[must_use]
    pub fn at(self, rate: Rate) -> Ecn {
        let Some(per) = self.per else { return self };
        // In bits per second the product of two ordinary values does not fit into 64 bits.
        let scaled = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(rate.as_bps()) / u128::from(per.as_bps().max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Ecn { min_bytes: scaled(self.min_bytes), max_bytes: scaled(self.max_bytes), per: None, ..self }
    }
}
