//! Where a part of a network meets the others.
//!
//! A wire between two parts belongs to the part at its far end: the sender's part keeps the packet in an
//! outbox until the threads meet, which is before the packet can arrive.

use super::{ARRIVE, Crossing, Fabric, key};
use crate::port::Tally;
use crate::{Forwarding, Host, Observer, Packet, Span, Time, Violation};

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// A packet sets out for another part.
    pub(super) fn cross(&mut self, port: u32, index: u32) {
        let record = self.store.records[index as usize];
        let packet = self.store.remove(index);
        self.outbox.push(Crossing { port, record, packet });
    }

    /// A packet comes from another part: it is on the wire behind `port`.
    pub(crate) fn admit(&mut self, crossing: Crossing<P>) {
        let Crossing { port, record, packet } = crossing;
        let index = self.store.insert(record, packet);
        let wire = &mut self.ports[port as usize].wire;
        if wire.is_empty() {
            self.events.push(record.arrival, key(ARRIVE, port));
        }
        self.store.push_back(wire, index);
    }

    /// The packets that have left for other parts since the last call.
    pub(crate) fn departures(&mut self) -> std::vec::Drain<'_, Crossing<P>> {
        self.outbox.drain(..)
    }

    /// A time at or before the next event.
    pub(crate) fn next_not_before(&self) -> Time {
        self.events.next_not_before()
    }

    /// Lets time pass in which this part has no events.
    pub(crate) fn advance(&mut self, to: Time) {
        let early = self.events.pop(to);
        assert!(early.is_none(), "a part that is at rest has no events");
    }

    /// The violation that stopped this part, if one did.
    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_deref()
    }

    /// The packets that a port has put on its wire.
    pub(crate) fn sent(&self, port: u32) -> Tally {
        self.ports[port as usize].sent
    }

    /// Ports whose wires lead to another part, and the least time that a packet takes over one of them: the
    /// delay, and a byte's length unless switches cut through without waiting for a header.
    pub(crate) fn cut_ports(&self) -> (Vec<u32>, Span) {
        let is_cut = |port: &u32| self.kinds[usize::from(self.ports[*port as usize].kind)].is_cut;
        let ports = (0..self.ports.len() as u32).filter(is_cut).collect();
        let bytes = u32::from(self.config.forwarding != Forwarding::CutThrough { header_bytes: 0 });
        let spans = self.kinds.iter().filter(|k| k.is_cut).map(|k| k.delay + k.pace.span_of(bytes));
        (ports, spans.min().unwrap_or(Span::from_ps(u64::MAX)))
    }
}
