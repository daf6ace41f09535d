//! The sending side of ports: what leaves, when, and how it arrives.

use super::{ARRIVE, FREE, Fabric, HostId, key};
use crate::packet::{CONTROL, ECN_CAPABLE, Record, WHOLE};
use crate::port::Health;
use crate::violation::BadPacket;
use crate::{
    DropReason, Forwarding, Host, Observer, Packet, PortId, Priorities, Span, Stamp, Time, ViolationKind,
};

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// Serves `port`, for which a packet or pause frame now waits: at once, or as soon as the port is free.
    #[inline]
    pub(super) fn wake(&mut self, now: Time, port: u32) {
        let state = &mut self.ports[port as usize];
        if state.is_awaited {
            return;
        }
        if state.busy_until > now {
            state.is_awaited = true;
            self.events.push(state.busy_until, key(FREE, port));
        } else {
            self.serve(now, port);
        }
    }

    /// Sends the next packet of an idle port: a pause frame, or the first packet of the highest priority that
    /// is not paused.
    #[inline]
    pub(super) fn serve(&mut self, now: Time, port: u32) {
        let state = &self.ports[port as usize];
        if !state.is_up() {
            return;
        }
        if state.pause_wanted != state.pause_told {
            return self.send_pause_frame(now, port);
        }
        if state.switch == u32::MAX {
            self.pull(now, port);
            return self.rearm(now, port);
        }
        let ready = state.waiting & !state.paused;
        if ready == 0 {
            return;
        }
        let priority = 7 - ready.leading_zeros() as u8;
        let (index, is_last) = self.queues.pop(&self.store, port, priority);
        if is_last {
            self.ports[port as usize].waiting &= !(1 << priority);
        }
        if self.config.ecn.is_some() {
            self.mark_leaving(now, port, index);
        }
        let record = self.store.records[index as usize];
        self.launch(now, port, index);
        self.release(now, port, &record);
        let state = &mut self.ports[port as usize];
        if state.waiting & !state.paused != 0 && !state.is_awaited {
            state.is_awaited = true;
            self.events.push(state.busy_until, key(FREE, port));
        }
    }

    /// The host's idle port asks for a packet.
    #[inline]
    pub(super) fn pull(&mut self, now: Time, host: u32) {
        let port = &self.ports[host as usize];
        let open = Priorities(!port.paused);
        if !port.is_up() || port.busy_until > now {
            return;
        }
        let Some(packet) = self.host_mut(host).poll_transmit(now, open) else { return };
        let (bytes, destination, priority) = (packet.wire_bytes(), packet.destination(), packet.priority());
        if let Some(problem) = self.problem_with(bytes, destination, priority, open) {
            return self.violate(self.port_name(PortId(host)), ViolationKind::BadPacket(problem));
        }
        let record = Record {
            bytes,
            address: self.topology.addresses[destination.0 as usize],
            hash: mix(packet.flow_hash()),
            destination: destination.0,
            priority,
            flags: if packet.is_ecn_capable() { ECN_CAPABLE } else { 0 },
            ..Record::default()
        };
        let index = self.store.insert(record, Some(packet));
        self.launch(now, host, index);
        let port = &mut self.ports[host as usize];
        port.is_awaited = true;
        self.events.push(port.busy_until, key(FREE, host));
    }

    #[inline]
    fn problem_with(&self, bytes: u32, to: HostId, priority: u8, open: Priorities) -> Option<BadPacket> {
        match () {
            () if bytes == 0 => Some(BadPacket::Empty),
            () if to.0 >= self.host_count => Some(BadPacket::Destination(to.0)),
            () if priority >= self.config.priorities => Some(BadPacket::Priority(priority)),
            () if !open.contains(priority) => Some(BadPacket::Paused(priority)),
            () => None,
        }
    }

    /// Puts a packet on the wire behind an idle port.
    #[inline]
    pub(super) fn launch(&mut self, now: Time, port: u32, index: u32) {
        if let Some(packet) = self.store.packet(index) {
            self.observer.on_send(now, PortId(port), packet);
        }
        let state = &mut self.ports[port as usize];
        let record = &mut self.store.records[index as usize];
        let kind = &self.kinds[state.kind as usize];
        state.busy_until = now + kind.pace.span_of(record.bytes);
        record.arrival = state.busy_until + kind.delay;
        if let Forwarding::CutThrough { header_bytes } = self.config.forwarding
            && state.peer >= self.host_count
            && record.flags & CONTROL == 0
        {
            record.arrival = now + kind.pace.span_of(record.bytes.min(header_bytes)) + kind.delay;
            record.flags &= !WHOLE;
        }
        state.sent.add(record.bytes);
        let (is_cut, rate, arrival) = (kind.is_cut, kind.rate, record.arrival);
        if P::IS_STAMPED && state.switch != u32::MAX {
            let sent_bytes = state.sent.bytes;
            let queue_bytes = self.queue_bytes(PortId(port));
            if let Some(packet) = self.store.packet_mut(index) {
                packet.stamp(Stamp { queue_bytes, sent_bytes, rate, at: now });
            }
        }
        let state = &mut self.ports[port as usize];
        if is_cut {
            return self.cross(port, index);
        }
        if state.wire.is_empty() {
            self.events.push(arrival, key(ARRIVE, port));
        }
        self.store.push_back(&mut state.wire, index);
    }

    /// The first packet on the wire behind `port` has reached the other end.
    #[inline]
    pub(super) fn arrive(&mut self, now: Time, port: u32) {
        let state = &mut self.ports[port as usize];
        let index = state.wire.head;
        // An event outlives its packet when the link fails.
        let Some(&record) = self.store.records.get(index as usize).filter(|r| r.arrival == now) else {
            return;
        };
        if self.stores_some && self.wait_for_whole(now, port, &record) {
            return;
        }
        let state = &mut self.ports[port as usize];
        self.store.pop_front(&mut state.wire);
        if let Some(next) = self.store.records.get(state.wire.head as usize) {
            self.events.push(next.arrival, key(ARRIVE, port));
        }
        let peer = state.peer;
        if state.health == Health::Faulty
            && record.flags & CONTROL == 0
            && self.is_damaged(port, record.bytes)
        {
            return self.lose(now, port, index, DropReason::BitError);
        }
        if self.verdicts.is_some() && peer >= self.host_count && self.is_condemned(now, port, index) {
            return self.lose(now, port, index, DropReason::BitError);
        }
        self.ports[port as usize].arrived.add(record.bytes);
        if record.flags & CONTROL != 0 {
            self.store.remove(index);
            self.handle_pause_frame(now, peer, record.hash as u8);
        } else if peer < self.host_count {
            let packet = self.store.remove(index).expect("only pause frames carry no packet");
            self.host_mut(peer).handle_packet(now, packet);
            self.drain(peer, now);
        } else {
            self.forward(now, peer, index, &record);
        }
    }
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// The header of the first packet on the wire behind `port` is in a switch that cuts through. If the
    /// packet may leave by a faster link, it stays on the wire, which it occupies anyway, until all of it has
    /// arrived: the faster link would otherwise run out of its bytes.
    fn wait_for_whole(&mut self, now: Time, port: u32, record: &Record) -> bool {
        let Forwarding::CutThrough { header_bytes } = self.config.forwarding else { return false };
        let state = &self.ports[port as usize];
        let kind = &self.kinds[usize::from(state.kind)];
        let rest = kind.pace.span_of(record.bytes) - kind.pace.span_of(record.bytes.min(header_bytes));
        if record.flags & (CONTROL | WHOLE) != 0
            || rest == Span::ZERO
            || state.peer < self.host_count
            || !self.may_leave_faster(state.peer, kind.rate, record)
        {
            return false;
        }
        let waiting = &mut self.store.records[self.ports[port as usize].wire.head as usize];
        waiting.arrival = now + rest;
        waiting.flags |= WHOLE;
        self.events.push(now + rest, key(ARRIVE, port));
        true
    }
}

/// Spreads a flow's hash over all bits (the finaliser of SplitMix64).
#[inline]
fn mix(hash: u64) -> u32 {
    let z = hash.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ z >> 31) as u32
}
