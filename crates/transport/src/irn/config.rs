//! IRN's few parameters, with the paper's values as defaults, and the switches of its factor analysis.

use super::rule::RecoveryChoice;
use highwire_stdx::Duration;

/// How a sender repairs losses: IRN's way, and the alternatives that IRN §4.3 compares it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LossRecovery {
    /// Selective retransmission guided by a SACK bitmap (IRN §3.1).
    #[default]
    SelectiveRepeat,
    /// Only the packet at the cumulative acknowledgement is resent; SACKs leave no trace, so each further loss in a
    /// window costs another round trip (IRN §4.3, question 2).
    SelectiveWithoutSack,
    /// Everything from the cumulative acknowledgement on is resent, and the receiver keeps nothing that arrives early
    /// (IRN §4.3, question 1).
    GoBackN,
    /// By a rule of another crate. The receiver keeps what arrives early.
    Own(RecoveryChoice),
}

/// What a sender that repairs a loss does about a partial acknowledgement: one that stops at a packet which was not repeated yet.
/// The paper does not say; its authors' hardware code repeats that packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PartialAcks {
    /// Nothing: only a selective acknowledgement or a timeout makes it repeat a packet.
    Never,
    /// It repeats the packet if there is evidence of its loss: a later packet has arrived, or the packet left before the last
    /// repetition that a selective acknowledgement or a timeout caused.
    #[default]
    Evident,
    /// It always repeats the packet, as the authors' hardware code does. After a repetition in vain each acknowledgement then
    /// stops at a packet that is merely on its way, and each packet leaves twice.
    Hardware,
}

/// The parameters of one direction of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrnConfig {
    /// BDP-FC: new packets leave only while fewer than this many are in flight (IRN §3.2). `1..=CAP_MAX`; beyond
    /// [`WINDOW_PACKETS_MIN`](Self::WINDOW_PACKETS_MIN) the receiver must have been made with the same cap.
    pub cap: u32,
    /// The timeout while few packets are in flight.
    pub rto_low: Duration,
    /// The timeout otherwise: the longest round trip that queueing alone can cause.
    pub rto_high: Duration,
    /// N: `rto_low` holds while at most this many packets are in flight.
    pub rto_low_in_flight_max: u32,
    /// Whether timeouts follow from measured round trips, as TCP's: at first `rto_high`, then at least `rto_low`, with N
    /// meaning nothing (IRN §4.3, question 3).
    pub computes_rto: bool,
    /// Whether a selective acknowledgement restarts the timer, as a cumulative one does. The paper does not say; without it, a packet
    /// that was resent and waits in full queues is resent once more.
    pub sack_restarts_timer: bool,
    /// How losses are repaired; both ends must agree.
    pub recovery: LossRecovery,
    /// What a partial acknowledgement leads to. Without SACK it always repeats a packet, since nothing else would.
    pub partial_acks: PartialAcks,
    /// How far packets may overtake each other on their way: a packet counts as lost when one has arrived that is more than so
    /// many packets later. Zero, as in the paper, for networks that keep the order of a flow's packets.
    pub reordering_packets: u32,
    /// How long a packet that is to be resent takes to come from the host's memory: it leaves so long after it became the next one to
    /// be resent (IRN §6.3). New packets do not wait for it.
    pub retransmission_delay: Duration,
}

impl IrnConfig {
    /// Packets that every receiver can track ahead of the one it expects, even if its own cap is lower.
    pub const WINDOW_PACKETS_MIN: u32 = 512;
    /// The largest cap: a quarter of the PSN space that still compares without doubt (2^23, IBTA §9.7.2), and a power
    /// of two so that bitmaps indexed by PSN wrap together with the PSN.
    pub const CAP_MAX: u32 = 1 << 21;
    /// The cap that stands for "no BDP-FC" (IRN §4.3): more than any flow of the paper's workloads has packets.
    pub const CAP_UNLIMITED: u32 = 1 << 15;

    /// The same without flow control, as the third bar of IRN's Figure 7.
    #[must_use]
    pub const fn without_bdp_flow_control(self) -> IrnConfig {
        IrnConfig { cap: IrnConfig::CAP_UNLIMITED, ..self }
    }

    /// The same with timeouts that follow from round trips.
    #[must_use]
    pub const fn with_computed_rto(self) -> IrnConfig {
        IrnConfig { computes_rto: true, ..self }
    }

    /// The same with another cap.
    #[must_use]
    pub const fn with_cap(self, cap: u32) -> IrnConfig {
        IrnConfig { cap, ..self }
    }

    /// The same with another answer to partial acknowledgements.
    #[must_use]
    pub const fn with_partial_acks(self, partial_acks: PartialAcks) -> IrnConfig {
        IrnConfig { partial_acks, ..self }
    }

    /// The same for a network on which packets overtake each other.
    #[must_use]
    pub const fn with_reordering(self, packets: u32) -> IrnConfig {
        IrnConfig { reordering_packets: packets, ..self }
    }

    /// The same with another way to repair losses.
    #[must_use]
    pub const fn with_recovery(self, recovery: LossRecovery) -> IrnConfig {
        IrnConfig { recovery, ..self }
    }
}

impl Default for IrnConfig {
    /// The paper's default scenario (IRN §4.1): 120 KB of bandwidth-delay product in packets of 1086 bytes on the wire,
    /// timeouts of 100 and 320 µs, N = 3.
    fn default() -> IrnConfig {
        IrnConfig {
            cap: 111,
            rto_low: Duration::from_micros(100),
            rto_high: Duration::from_micros(320),
            rto_low_in_flight_max: 3,
            computes_rto: false,
            sack_restarts_timer: false,
            recovery: LossRecovery::SelectiveRepeat,
            partial_acks: PartialAcks::Evident,
            reordering_packets: 0,
            retransmission_delay: Duration::ZERO,
        }
    }
}
