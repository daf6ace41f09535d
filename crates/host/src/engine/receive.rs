//! From the links into the RNIC: verify, parse, hand over.

use super::Engine;
use super::held::may_wait;
use super::on_demand::Desk;
use super::ways::{BELL_BYTES, traffic_class_of};
use crate::memory::{Bytes, look_at};
use crate::stray::Stray;
use highwire_link::Packet;
use highwire_link::shm::PACKET_MAX_BYTES;
use highwire_record::PacketFate;
use highwire_rnic::Arrival;
use highwire_verbs::{Gid, Payload};
use highwire_wire::{
    ICRC_LEN, MAX_HEADERS_LEN, Opcode, Operation, Qpn, parse_packet_head, parse_packet_with_icrc,
};

/// Trains taken in one turn, so that the engine also gets round to sending.
const TRAINS_PER_TURN: u32 = 4;
/// The same for a turn that is about to send much, or to resend: a peer's acknowledgements may come one by
/// one, and they decide which packets are worth sending.
const TRAINS_PER_BULKY_TURN: u32 = 512;
/// A train this long has probably not come alone; after a shorter one, another look would cost a system call for nothing.
const LONG_TRAIN: usize = 16;
/// Packets taken from shared memory in one turn.
const SHM_PACKETS_PER_TURN: usize = 64;
/// The same where a timer is due.
const SHM_PACKETS_PER_BULKY_TURN: usize = 4096;

/// Whether a packet that rides behind others is an acknowledgement that belongs before them. Its sender
/// intended that order: the acknowledged message came before the application's answer, and programs rely on a
/// SEND's completion before its answer.
#[inline]
fn goes_first<'a>(rider: &[u8], mut before: impl Iterator<Item = &'a [u8]>) -> bool {
    let opcode = |packet: &[u8]| packet.first().and_then(|byte| Opcode::from_u8(*byte));
    match opcode(rider) {
        Some(Opcode::IrnAck) => true,
        // Without IRN an acknowledgement stands for everything before it, answers included: it cannot overtake those.
        Some(Opcode::RcAck | Opcode::XrcAck) => before.all(|packet| {
            let is_request =
                |opcode: Opcode| matches!(opcode.info().operation, Operation::Send | Operation::Write);
            opcode(packet).is_some_and(is_request)
        }),
        _ => false,
    }
}

impl Engine {
    /// Takes the packets that have arrived; returns their number.
    #[inline]
    pub(super) fn receive(&mut self) -> u32 {
        if !self.arrivals.held.is_empty() && self.arrivals.held.is_full() {
            // Packets stay in rings and sockets, which hold up their senders.
            self.counters.waited_for_receive += 1;
            return 0;
        }
        let shm = self.receive_shm();
        let mut packets = shm;
        let (has_shm, udp) = (self.ways.shm.is_some(), &mut self.ways.udp);
        if !has_shm || udp.pace.is_due(shm > 0, self.turn.reads_all) {
            let has_groups = !udp.groups.is_empty();
            packets += self.receive_udp();
            if has_groups {
                packets += self.receive_groups();
            }
        }
        if packets > 0 {
            self.turn.came_by_udp = shm == 0;
        }
        if self.arrivals.mailboxes.len() > 1 {
            packets += self.receive_strays();
        }
        packets
    }

    /// Hands on the packets that were kept for a receive and need not be kept any longer; returns the number of packets.
    #[inline]
    pub(super) fn release_held(&mut self) -> u32 {
        if self.arrivals.held.is_empty() {
            return 0;
        }
        let now = self.now();
        self.arrivals.held.release(now, &mut self.rnic, &mut self.memory)
    }

    /// Takes all packets that have arrived, as far as they fit into one turn. If this process did not run for
    /// a while, its clock suggests that the peer was silent, while packets may wait in its rings and sockets.
    #[cold]
    pub(super) fn receive_all(&mut self) -> u32 {
        self.turn.reads_all = true;
        let packets = self.receive();
        self.turn.reads_all = false;
        packets
    }

    #[inline]
    fn receive_shm(&mut self) -> u32 {
        let Some(shm) = &mut self.ways.shm else { return 0 };
        let (neighbours, mut disturbed) = shm.both();
        let (rnic, memory, counters) = (&mut self.rnic, &mut self.memory, &mut self.counters);
        let (time, destination, held) = (&mut self.time, self.gid, &mut self.arrivals.held);
        let record = &self.witnesses.record;
        let mut desk = Desk {
            on_demand: &self.objects.on_demand,
            qps: &mut self.objects.qps,
            cqs: &mut self.objects.cqs,
            has_refused: &mut self.turn.has_refused,
            gid: destination,
        };
        let most = if self.turn.reads_all { SHM_PACKETS_PER_BULKY_TURN } else { SHM_PACKETS_PER_TURN };
        let count = neighbours.inbox.receive(most, |source, received| {
            let now = time.now();
            if let Some(disturbed) = &mut disturbed {
                let mut buffer = [0; PACKET_MAX_BYTES];
                let bytes = received.copied(&mut buffer);
                if disturbed.loses_arrival(|| bytes) {
                    return;
                }
                disturbed.record(now, source, bytes);
            }
            let mut head = [0; MAX_HEADERS_LEN];
            let (head, bytes) = look_at(&received, &mut head);
            // The headers are used in place: moving headers that have just been written costs more than
            // writing them.
            match &parse_packet_head(head, received.len()) {
                Ok((headers, payload)) => {
                    let traffic_class = traffic_class_of(&headers.bth);
                    let arrival = Arrival { source: Gid::from_ip(source), destination, traffic_class };
                    if let Some(record) = record {
                        let is_known = rnic.qp(headers.bth.dest_qpn).is_some();
                        record.arrived(now, is_known, arrival.source, headers, payload.len());
                    }
                    let copy = || received.copied(&mut [0; PACKET_MAX_BYTES]).into();
                    if may_wait(headers.bth.opcode) && held.keeps(now, rnic, (&arrival, headers), copy) {
                        counters.held_for_receive += 1;
                        return;
                    }
                    let payload = bytes.slice(payload.start as u32, payload.len() as u32);
                    let taker = desk.before(rnic, now, &arrival, headers);
                    rnic.handle_packet(now, &arrival, headers, payload, memory);
                    if let Some(taker) = taker {
                        desk.after(rnic, now, taker);
                    }
                }
                Err(_) => {
                    counters.dropped_malformed += 1;
                    if let Some(record) = record {
                        record.dropped(now, PacketFate::Malformed, Gid::from_ip(source), head);
                    }
                }
            }
        });
        count as u32
    }

    fn receive_udp(&mut self) -> u32 {
        let mut packets = 0;
        let Some(mut rx) = self.arrivals.rx.take() else { return 0 };
        let is_bulky = self.turn.more_to_send || self.turn.reads_all;
        for _ in 0..if is_bulky { TRAINS_PER_BULKY_TURN } else { TRAINS_PER_TURN } {
            let now = self.now();
            let train = self.ways.udp.receive(now, &mut rx);
            if train == 0 {
                break;
            }
            packets += train as u32;
            let before = || rx.packets().take(train - 1).map(|packet| packet.bytes);
            let rider = rx.rider().filter(|rider| goes_first(rider.bytes, before()));
            if let Some(rider) = &rider {
                self.handle_udp_packet(rider);
            }
            for packet in rx.packets().take(train - usize::from(rider.is_some())) {
                self.handle_udp_packet(&packet);
            }
            if train < LONG_TRAIN && !is_bulky {
                break;
            }
        }
        self.arrivals.rx = Some(rx);
        if packets > 0 {
            self.ways.udp.pace.warm_up();
        }
        packets
    }

    fn handle_udp_packet(&mut self, packet: &Packet<'_>) {
        if packet.bytes.len() == BELL_BYTES {
            return;
        }
        if !self.ways.udp.verify(packet) {
            self.counters.dropped_bad_icrc += 1;
            return self.record_drop(PacketFate::BadIcrc, packet);
        }
        let parsed = parse_packet_with_icrc(packet.bytes);
        let Ok((headers, payload, _)) = &parsed else {
            self.counters.dropped_malformed += 1;
            return self.record_drop(PacketFate::Malformed, packet);
        };
        let lane = headers.bth.dest_qpn.value() % self.arrivals.mailboxes.len() as u32;
        if lane != self.lane {
            return self.hand_over(lane, packet);
        }
        if self.ways.shm.as_ref().is_some_and(|shm| shm.rings.inbox.hears(packet.source.ip(), None))
            && self.is_for_neighbour(headers.bth.dest_qpn)
        {
            self.counters.dropped_beside_shm += 1;
            return;
        }
        let arrival = Arrival {
            source: Gid::from_ip(packet.source.ip()),
            destination: self.gid,
            traffic_class: packet.traffic_class,
        };
        let now = self.now();
        if let Some(record) = &self.witnesses.record {
            let is_known = self.rnic.qp(headers.bth.dest_qpn).is_some();
            record.arrived(now, is_known, arrival.source, headers, payload.len());
        }
        let copy = || packet.bytes[..packet.bytes.len() - ICRC_LEN].into();
        if may_wait(headers.bth.opcode)
            && self.arrivals.held.keeps(now, &self.rnic, (&arrival, headers), copy)
        {
            self.counters.held_for_receive += 1;
            return;
        }
        let payload = Bytes::of(&packet.bytes[payload.clone()]);
        let (mut desk, rnic, memory) = self.desk();
        let taker = desk.before(rnic, now, &arrival, headers);
        rnic.handle_packet(now, &arrival, headers, payload, memory);
        if let Some(taker) = taker {
            desk.after(rnic, now, taker);
        }
    }

    #[cold]
    fn record_drop(&mut self, fate: PacketFate, packet: &Packet<'_>) {
        let now = self.now();
        if let Some(record) = &self.witnesses.record {
            record.dropped(now, fate, Gid::from_ip(packet.source.ip()), packet.bytes);
        }
    }

    /// Whether a queue pair's peer sends through shared memory. Any user of the machine can send datagrams in
    /// the peer's name; only the peer's own user can write to its channel.
    #[cold]
    fn is_for_neighbour(&self, qpn: Qpn) -> bool {
        let (Some(shm), Some(qp)) = (&self.ways.shm, self.rnic.query_qp(qpn)) else { return false };
        let peer = qp.address.gid.to_ip();
        let name = shm.rings.name_of(peer, qp.remote_qpn);
        !qp.config.service.is_datagram() && shm.rings.inbox.hears(peer, Some(name.shard))
    }

    /// Leaves a packet in the mailbox of its queue pair's lane.
    #[cold]
    fn hand_over(&mut self, lane: u32, packet: &Packet<'_>) {
        let Packet { source, bytes, train_index, traffic_class } = *packet;
        let stray = Stray { source, traffic_class, train_index, bytes: bytes.into() };
        if self.arrivals.mailboxes[lane as usize].push(stray).is_err() {
            self.counters.dropped_mailbox_full += 1;
        } else {
            self.counters.handed_over += 1;
            // Nothing else tells a sleeping thread about it.
            self.wakers.background.wake();
            self.wakers.leader.wake();
        }
    }

    fn receive_strays(&mut self) -> u32 {
        let mut packets = 0;
        let mailboxes = std::sync::Arc::clone(&self.arrivals.mailboxes);
        while let Some(stray) = mailboxes[self.lane as usize].pop() {
            let Stray { source, traffic_class, train_index, bytes } = stray;
            packets += 1;
            self.handle_udp_packet(&Packet { source, bytes: &bytes, train_index, traffic_class });
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_comes_before_what_it_rides_behind() {
        let packet = |opcode: Opcode| [opcode.to_u8(), 0, 0, 0];
        let (send, write) = (packet(Opcode::RcSendOnly), packet(Opcode::RcWriteOnly));
        let answer = packet(Opcode::RcReadResponseOnly);
        for (rider, before, expected) in [
            (packet(Opcode::IrnAck), [send, answer], true),
            (packet(Opcode::RcAck), [send, write], true),
            (packet(Opcode::RcAck), [answer, write], false),
            (packet(Opcode::RcSendLast), [send, write], false),
            ([0xFF; 4], [send, write], false),
        ] {
            let before = before.iter().map(|packet| packet.as_slice());
            assert_eq!(goes_first(&rider, before), expected, "{rider:x?}");
        }
        assert!(!goes_first(&[], std::iter::empty()));
    }
}
