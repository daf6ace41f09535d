//! The hosts' scheme: transport, congestion control, header sizes.

use highwire_fabric::Span;
use highwire_rnic::CongestionChoice;
use highwire_transport::irn::RecoveryChoice;
use serde::{Deserialize, Serialize};

/// The scheme of every host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheme {
    /// How losses are repaired, and how much may be in flight.
    pub transport: Transport,
    /// How rates and windows follow congestion: an algorithm by its name.
    #[serde(with = "by_name")]
    pub congestion: CongestionChoice,
    /// Payload of a full packet: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u32,
    /// Bytes of a packet on a link besides its payload.
    pub headers: HeaderBytes,
    /// Which flows share a queue pair.
    pub queue_pairs: QueuePairs,
    /// Whether acknowledgements and CNPs overtake data in switches.
    pub ack_priority: AckPriority,
    /// How many packets a queue pair may send before the card turns to the next one.
    pub turn_packets: u32,
    /// What a packet's way follows from where switches hash.
    pub entropy: Entropy,
}

/// What a packet's way follows from where switches hash: the UDP source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Entropy {
    /// The queue pair: its packets keep to one way.
    #[default]
    PerFlow,
    /// The queue pair and the packet: the sender spreads packets over all ways.
    PerPacket,
}

/// How losses are repaired, and how much may be in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Transport {
    /// Improved RoCE NICs: selective retransmission and BDP-FC.
    Irn(Irn),
    /// RoCE NICs as they are: go-back-N in standard RoCEv2.
    GoBackN(GoBackN),
    /// iWARP: a full TCP.
    Tcp(Tcp),
}

/// IRN's parameters, and the switches of its factor analysis (IRN §4.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Irn {
    /// BDP-FC's cap.
    pub cap: Cap,
    /// The timeout while few packets are in flight.
    pub rto_low: Span,
    /// The timeout otherwise.
    pub rto_high: Span,
    /// N: `rto_low` holds while at most this many packets are in flight.
    pub rto_low_in_flight_max: u32,
    /// Timeouts from measured round trips, as TCP's, between `rto_low` and a second, at first `rto_high`.
    pub computes_rto: bool,
    /// Whether selective acknowledgements restart the timer, as cumulative ones do. The paper does not say;
    /// but the authors' trace of an incast has next to no needless repetitions, which requires it
    /// (docs/sim.md).
    pub sack_restarts_timer: bool,
    /// How losses are repaired.
    pub recovery: LossRecovery,
    /// What a partial acknowledgement leads to.
    pub partial_acks: PartialAcks,
    /// A packet counts as lost when one has arrived that is more than so many packets later.
    pub reordering_packets: u32,
    /// How long a packet that is to be resent takes to come from the host's memory (IRN §6.3).
    pub retransmission_delay: Span,
    /// How long an acknowledgement that the requester did not ask for may wait; zero: one per packet, as in the paper.
    pub ack_delay: Span,
}

/// How many packets of one queue pair may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Cap {
    /// As many as fill the longest way: its bandwidth-delay product over a full packet, rounded up (111 by
    /// default).
    Bdp,
    /// So many.
    Packets(u32),
    /// No flow control.
    Unlimited,
}

/// How IRN's sender repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LossRecovery {
    /// Selective retransmission guided by a SACK bitmap.
    #[default]
    SelectiveRepeat,
    /// One packet per round trip, no bitmap.
    SelectiveWithoutSack,
    /// Everything from the first loss on.
    GoBackN,
    /// By a rule of another crate, by its name.
    Own(#[serde(with = "rule_by_name")] RecoveryChoice),
}

/// What IRN's sender does about an acknowledgement that stops at a packet which was sent before the last repetition. The
/// paper does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PartialAcks {
    /// Nothing.
    Never,
    /// It repeats the packet if there is evidence that it was lost.
    #[default]
    Evident,
    /// It always repeats the packet, as the authors' hardware code does.
    Hardware,
}

/// RoCE NICs as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GoBackN {
    /// The fixed retransmission timeout; `None` for none, as over PFC (IRN §4.1).
    pub timeout: Option<Span>,
    /// How often the receiver acknowledges.
    pub acks: Acks,
    /// Most packets in flight; `None`: no limit, as in RoCE.
    pub window_packets: Option<u32>,
}

/// How often a RoCE receiver acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Acks {
    /// The last packet of a message only: next to no acknowledgements, as in the paper's baseline, which only
    /// READs. Timely, AIMD and DCTCP, which react to acknowledgements, then get none.
    LastOnly,
    /// At least every so many packets.
    Every(u32),
}

/// iWARP's TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// The first window, in segments.
    pub initial_window: u32,
    /// The timeout before a round trip has been measured.
    pub initial_rto: Span,
    /// The shortest timeout (RFC 6298 says a second; data centres say less).
    pub min_rto: Span,
    /// The longest timeout.
    pub max_rto: Span,
    /// Selective acknowledgements and recovery by them (RFC 2018, 6675).
    pub sack: bool,
    /// How long a lone segment's acknowledgement may wait; zero: one per segment.
    pub ack_delay: Span,
    /// The largest window, in segments; `None`: no limit but the receiver's.
    pub window_max: Option<u32>,
}

/// Bytes of a packet on a link besides its payload: Ethernet with FCS 18, IPv4 20, UDP 8, then RoCE's headers
/// and ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HeaderBytes {
    /// Whether IRN's and RoCE's extension headers count as they are encoded. Otherwise every data packet has 62 bytes and
    /// every acknowledgement 66, as the paper's model has it.
    pub is_encoded: bool,
    /// Extra bytes of data packets (the paper's worst case: 16).
    pub extra: u32,
    /// Preamble and gap between packets: 20 on Ethernet, 0 in the paper's model.
    pub gap: u32,
}

/// Which flows share a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum QueuePairs {
    /// None: each flow starts at line rate with a queue pair of its own, as in the paper.
    #[default]
    PerFlow,
    /// The flows from one host to another, which then follow each other.
    PerPair,
}

/// Whether acknowledgements and CNPs overtake data in switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum AckPriority {
    /// They wait among data.
    #[default]
    AsData,
    /// They have a priority of their own.
    Above,
}

impl Default for Scheme {
    /// IRN without congestion control (IRN §4.1).
    fn default() -> Scheme {
        Scheme {
            transport: Transport::Irn(Irn::default()),
            congestion: CongestionChoice::NONE,
            mtu_bytes: 1024,
            headers: HeaderBytes::default(),
            queue_pairs: QueuePairs::PerFlow,
            ack_priority: AckPriority::AsData,
            turn_packets: 1,
            entropy: Entropy::PerFlow,
        }
    }
}

impl Default for Irn {
    /// IRN §4.1.
    fn default() -> Irn {
        Irn {
            cap: Cap::Bdp,
            rto_low: Span::from_us(100),
            rto_high: Span::from_us(320),
            rto_low_in_flight_max: 3,
            computes_rto: false,
            sack_restarts_timer: true,
            recovery: LossRecovery::SelectiveRepeat,
            partial_acks: PartialAcks::Evident,
            reordering_packets: 0,
            retransmission_delay: Span::ZERO,
            ack_delay: Span::ZERO,
        }
    }
}

impl Default for GoBackN {
    /// RoCE over PFC: no timeout, next to no acknowledgements (IRN §4.1).
    fn default() -> GoBackN {
        GoBackN { timeout: None, acks: Acks::LastOnly, window_packets: None }
    }
}

impl GoBackN {
    /// RoCE without PFC: a fixed timeout of `rto_high`, and acknowledgements to restart it by.
    pub fn without_pfc() -> GoBackN {
        GoBackN { timeout: Some(Span::from_us(320)), acks: Acks::Every(1), window_packets: None }
    }
}

impl Default for Tcp {
    /// Ten segments to start with (RFC 6928), IRN's `rto_high` as the shortest timeout and the first, SACK, an
    /// acknowledgement per segment.
    fn default() -> Tcp {
        Tcp {
            initial_window: 10,
            initial_rto: Span::from_us(320),
            min_rto: Span::from_us(320),
            max_rto: Span::from_ms(1_000),
            sack: true,
            ack_delay: Span::ZERO,
            window_max: None,
        }
    }
}

impl Default for HeaderBytes {
    /// The paper's model: 62 bytes per data packet.
    fn default() -> HeaderBytes {
        HeaderBytes { is_encoded: false, extra: 0, gap: 0 }
    }
}

/// An algorithm as its name.
mod by_name {
    use highwire_rnic::CongestionChoice;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(choice: &CongestionChoice, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(choice.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CongestionChoice, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A rule of loss recovery as its name.
mod rule_by_name {
    use highwire_transport::irn::RecoveryChoice;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(choice: &RecoveryChoice, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(choice.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<RecoveryChoice, D::Error> {
        let name = String::deserialize(from)?;
        RecoveryChoice::named(&name).ok_or_else(|| D::Error::custom(format!("no rule is called `{name}`")))
    }
}
