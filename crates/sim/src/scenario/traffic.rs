//! Flows: messages with a beginning.

use highwire_fabric::{HostId, Time};
use serde::{Deserialize, Serialize};

/// A flow's number: its place in [`crate::Scenario::flows`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FlowId(pub u32);

/// One message from host to host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The sender.
    pub source: HostId,
    /// The receiver; another host.
    pub destination: HostId,
    /// How much, without headers: 1 to 2^31.
    pub bytes: u64,
    /// When it starts, at the earliest.
    #[serde(default)]
    pub start: Time,
    /// It also waits for these flows to be over. Each of them must begin or end at this flow's source, so
    /// that this host can know: a flow that it receives is over with its last byte, a flow that it sends with
    /// the last acknowledgement.
    #[serde(default)]
    pub after: Vec<FlowId>,
    /// A tag for readers of the outcome: background, incast, …
    #[serde(default)]
    pub class: u16,
    /// Flows of one group complete together: an incast, a collective. Groups are numbered from zero.
    #[serde(default)]
    pub group: Option<u32>,
}

impl Flow {
    /// A flow of class 0 that belongs to nothing and waits for nothing.
    pub fn new(source: u32, destination: u32, bytes: u64, start: Time) -> Flow {
        Flow {
            source: HostId(source),
            destination: HostId(destination),
            bytes,
            start,
            after: Vec::new(),
            class: 0,
            group: None,
        }
    }
}
