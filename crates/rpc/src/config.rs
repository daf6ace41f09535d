//! The configuration of an endpoint.

use crate::seal::{ClusterKey, SEAL_LEN};
use crate::wire::{HEADER_LEN, MESSAGE_HEADER_LEN, PART_HEADER_LEN};
use highwire_stdx::Duration;
use std::fmt;

/// A node of the cluster, by a number that all nodes agree on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Node(pub u16);

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// What a request asks for; FaSST gives each table one (FaSST §5.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestType(pub u8);

/// FaSST's optimisations, each of which can be left out to see its worth (FaSST §4.2, Figure 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Optimisations {
    /// Requests of a batch to one destination share a datagram.
    pub coalescing: bool,
    /// One doorbell for everything that one sweep over the completions made; otherwise one per datagram received.
    pub response_batching: bool,
    /// One doorbell for a chain of datagrams; otherwise one each.
    pub doorbell_batching: bool,
    /// Receives are posted again together, after a sweep; otherwise each by itself.
    pub cheap_receives: bool,
}

impl Default for Optimisations {
    fn default() -> Optimisations {
        Optimisations {
            coalescing: true,
            response_batching: true,
            doorbell_batching: true,
            cheap_receives: true,
        }
    }
}

/// The longest batch unless a configuration says otherwise.
pub const BATCH_BYTES_MAX: u32 = 8 << 20;

/// The configuration of an endpoint. The defaults suit a cluster of a few nodes on a network of microseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: Node,
    /// Greater each time that the node starts, and not zero in its low half: by it, peers tell a restart from
    /// a delay.
    pub incarnation: u64,
    /// With it the endpoint makes the challenges that a node answers before it is believed to live. A secret of this endpoint: whoever knows it
    /// can answer in the place of others.
    pub challenge_key: [u64; 2],
    /// The secret of all nodes of the cluster. With one, every datagram carries a tag that only they can make, and others are dropped.
    pub key: Option<ClusterKey>,
    /// The Q_Key of all endpoints of the cluster.
    pub qkey: u32,
    /// Batches that may be in flight to one peer, and from one peer, 1 to 256: the credits of a destination.
    /// A cluster of `n` peers needs `2 × n × slots` receives.
    pub slots: u16,
    /// The longest datagram, with its header: at most the path MTU.
    pub datagram_bytes: u16,
    /// The longest batch that is taken from a peer.
    pub batch_bytes_max: u32,
    /// Parts of one long batch that may be in flight, 1 to 64.
    pub window_parts: u8,
    /// How long a batch waits for a sign of life from the peer before it is sent again; twice as long each
    /// further time, up to [`resend_after_max`](Self::resend_after_max).
    pub resend_after: Duration,
    /// The longest such wait.
    pub resend_after_max: Duration,
    /// How long a peer from which something is awaited may be silent before it is taken for dead. Coarse: it
    /// is a failure detector, and does not repair loss (FaSST §4.3).
    pub failure_after: Duration,
    /// Workers and nested handlers that can exist at once.
    pub tasks_max: usize,
    /// Whether nodes that were not added may introduce themselves.
    pub accepts_strangers: bool,
    /// The optimisations in use.
    pub optimisations: Optimisations,
}

impl Config {
    /// The configuration of a node, with defaults.
    pub fn new(node: Node, incarnation: u64) -> Config {
        Config {
            node,
            incarnation,
            challenge_key: [incarnation, u64::from(node.0)],
            key: None,
            qkey: 0x0FA5_5701,
            slots: 32,
            datagram_bytes: 4096,
            batch_bytes_max: BATCH_BYTES_MAX,
            window_parts: 16,
            resend_after: Duration::from_millis(4),
            resend_after_max: Duration::from_millis(64),
            failure_after: Duration::from_secs(1),
            tasks_max: 256,
            accepts_strangers: true,
            optimisations: Optimisations::default(),
        }
    }

    /// The longest message that still fits into one datagram.
    pub fn message_bytes_in_datagram(&self) -> usize {
        usize::from(self.datagram_bytes) - HEADER_LEN - MESSAGE_HEADER_LEN
    }

    /// Brings every value into its range.
    pub(crate) fn sound(mut self) -> Config {
        if self.incarnation as u32 == 0 {
            self.incarnation |= 1;
        }
        self.slots = self.slots.clamp(1, 256);
        self.window_parts = self.window_parts.clamp(1, 64);
        if self.key.is_some() {
            self.datagram_bytes = self.datagram_bytes.saturating_sub(SEAL_LEN as u16);
        }
        self.datagram_bytes = self.datagram_bytes.max((HEADER_LEN + PART_HEADER_LEN + 64) as u16);
        self.tasks_max = self.tasks_max.clamp(1, 1 << 16);
        self.resend_after_max = self.resend_after_max.max(self.resend_after);
        self
    }
}
