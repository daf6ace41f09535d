//! A packet on its way out, and one on its way in.

use highwire_verbs::{Address, Gather, Gid};
use highwire_wire::{Bth, Ext, Headers, Opcode, Psn, Qpn, pad_count};

/// What an acknowledgement that rides on a request adds to it: AETH and CumulativeETH.
pub(crate) const RIDING_ACK_BYTES: u32 = 8;

/// Whether a driver may let other packets overtake this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Not among packets of the same queue pair.
    Strict,
    /// Freely: acknowledgements may ride behind requests, so that both fit into one train of datagrams.
    Free,
}

/// A packet to send. The payload still lies in the request's memory; the driver copies it before it does
/// anything else.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The queue pair that sends.
    pub qpn: Qpn,
    /// Where to.
    pub address: &'a Address,
    /// Its headers, the pad count included.
    pub headers: &'a Headers,
    /// Its payload, without padding.
    pub payload: Gather<'a>,
    /// Whether it may be overtaken.
    pub order: Order,
    /// What a driver that can adds to the UDP source port: the way that congestion control chose for it, or 0.
    pub path: u16,
}

/// A packet's addresses and traffic class, as the IP header gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrival {
    /// The address of its sender.
    pub source: Gid,
    /// Its destination: a multicast group's address, or this RNIC's own.
    pub destination: Gid,
    /// The traffic class octet, or TOS, of its IP header: DSCP and ECN.
    pub traffic_class: u8,
}

impl Arrival {
    /// The code point of ECN with which a switch says that it saw congestion (RFC 3168 §5).
    pub const CONGESTION_EXPERIENCED: u8 = 3;

    /// Whether a switch saw congestion on the way.
    pub const fn is_marked(&self) -> bool {
        self.traffic_class & 3 == Arrival::CONGESTION_EXPERIENCED
    }
}

/// A packet that a queue pair has decided to send; becomes an [`Outgoing`] once nothing is borrowed any more.
///
/// It is filled in place and read in place: headers are written field by field, and copying them while those stores are
/// under way costs more than making them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) headers: Headers,
    pub(crate) payload: Source,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) order: Order,
    pub(crate) path: u16,
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
    /// A plan that was not made yet.
    pub(crate) fn new() -> Plan {
        Plan {
            headers: Headers::new(Opcode::RcSendOnly, Qpn::default(), Psn::default(), Ext::None),
            payload: Source::Nothing,
            offset: 0,
            length: 0,
            order: Order::Strict,
            path: 0,
        }
    }

    /// Plans a packet without payload.
    #[inline(always)]
    pub(crate) fn bare(&mut self, opcode: Opcode, dest_qpn: Qpn, psn: Psn, ext: Ext, order: Order) {
        self.headers.bth = Bth::new(opcode, dest_qpn, psn);
        self.headers.ext = ext;
        self.payload = Source::Nothing;
        self.offset = 0;
        self.length = 0;
        self.order = order;
    }

    /// Plans a packet with payload.
    #[inline(always)]
    pub(crate) fn carry(&mut self, payload: Source, offset: u32, length: u32) {
        self.headers.bth.pad_count = pad_count(length as usize);
        self.payload = payload;
        self.offset = offset;
        self.length = length;
    }
}
