//! A packet on its way out, and one on its way in.

use highwire_verbs::{Address, Gather, Gid};
use highwire_wire::{Headers, Qpn};

/// Whether a driver may let other packets overtake this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Not among packets of the same queue pair.
    Strict,
    /// Freely: acknowledgements may ride behind requests, so that both fit into one train of datagrams.
    Free,
}

/// A packet to send. The payload is what lies in memory now; the driver copies it before it does anything else.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The queue pair that sends.
    pub qpn: Qpn,
    /// Where to.
    pub address: &'a Address,
    /// Its headers, the pad count included.
    pub headers: Headers,
    /// Its payload, without padding.
    pub payload: Gather<'a>,
    /// Whether it may be overtaken.
    pub order: Order,
}

/// What the network says about a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrival {
    /// Who sent it.
    pub source: Gid,
    /// To whom; a multicast group's address, or this RNIC's own.
    pub destination: Gid,
    /// A switch saw congestion on the way.
    pub ecn_marked: bool,
}

/// What a queue pair decided to send; becomes an [`Outgoing`] once nothing is borrowed any more.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(crate) headers: Headers,
    pub(crate) payload: Source,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) order: Order,
}

/// Where a payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Nothing,
    /// In the spans of the send request at this place of the queue.
    Request(u32),
    /// In the memory that a peer reads.
    Read,
}

impl Plan {
    pub(crate) fn bare(headers: Headers, order: Order) -> Plan {
        Plan { headers, payload: Source::Nothing, offset: 0, length: 0, order }
    }
}
