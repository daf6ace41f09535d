//! Queue pair 1: passes its datagrams on to their recipients, and declines those that have none.

use super::super::mad::{Recipient, decline, gsi_packet, mad_of, recipient};
use super::super::protocol::{Mad, ip_bytes};
use super::super::sys;
use super::counters::Fate;
use super::{Broker, GSI, NO_TIME, Part};
use highwire_link::{Link, Order, Packet, Transmitted};
use highwire_wire::cm::CmMad;
use highwire_wire::{ICRC_LEN, PathIcrc, UDP_PORT, parse_packet_with_icrc};
use std::net::SocketAddr;
use std::os::fd::AsFd;

impl Broker {
    /// Takes the packets that have arrived for queue pair 1.
    pub(super) fn receive_mads(&mut self) {
        let mut rx = std::mem::take(&mut self.rx);
        while self.packets.socket(GSI).receive(NO_TIME, &mut rx) > 0 {
            for packet in rx.packets() {
                self.handle_packet(&packet);
            }
        }
        self.rx = rx;
    }

    fn handle_packet(&mut self, packet: &Packet<'_>) {
        if let Some(fate) = self.pass_on(packet) {
            self.counters.count(fate);
        }
    }

    /// Gives a packet to its recipient; returns its fate, unless that was counted already.
    fn pass_on(&mut self, packet: &Packet<'_>) -> Option<Fate> {
        let local = SocketAddr::new(self.address, UDP_PORT);
        let path = PathIcrc::between((packet.source.ip(), packet.source.port()), (local.ip(), local.port()));
        if path.and_then(|path| path.verify_unknown_id(packet.train_index, packet.bytes)).is_none() {
            return Some(Fate::DroppedBadIcrc);
        }
        let Ok((headers, payload, _)) = parse_packet_with_icrc(packet.bytes) else {
            return Some(Fate::DroppedMalformed);
        };
        let Some((_, mad)) = mad_of(&headers, &packet.bytes[payload]) else {
            return Some(Fate::DroppedBadQkey);
        };
        let Ok(mad) = CmMad::parse(mad) else { return Some(Fate::DroppedNotManagement) };
        let mut record = ip_bytes(packet.source.ip()).to_vec();
        record.extend_from_slice(&packet.source.port().to_le_bytes());
        record.extend_from_slice(packet.bytes);
        let shard = match recipient(&mad) {
            None => return Some(Fate::DroppedNoRecipient),
            Some(Recipient::Listener(id)) => {
                let listener = self.services.iter().find(|(services, _)| services.contains(id));
                let shard = listener.map(|(_, shard)| *shard);
                if shard.is_none() && self.may_be_listened_to(id) {
                    return Some(self.park(id, &mad, packet, record));
                }
                shard
            }
            // The process has yet to come back, and the sender will repeat the message.
            Some(Recipient::Owner(id)) if self.unclaimed.contains(&(id as u8)) => {
                return Some(Fate::DroppedOwnerAway);
            }
            Some(Recipient::Owner(id)) => Some(id as u8),
        };
        let part = self.members.iter().filter_map(|m| m.part.as_ref()).find(|p| Some(p.shard) == shard);
        let Some(part) = part else {
            let Some(reply) = decline(&mad) else { return Some(Fate::DroppedNobody) };
            self.send(SocketAddr::new(packet.source.ip(), UDP_PORT), &reply);
            return Some(Fate::Declined);
        };
        Some(part.give(&record))
    }

    /// Sends from queue pair 1. A datagram that does not leave is lost, as on any network.
    pub(super) fn send(&mut self, to: SocketAddr, mad: &Mad) {
        self.psn = self.psn.next();
        if self.tx.push(to, &gsi_packet(self.psn, mad), Order::Strict).is_err() {
            return self.counters.count(Fate::DroppedLinkFull);
        }
        let mut seal = |packet: &mut [u8], place: &highwire_link::Place| {
            let (s, d) = (place.source, place.destination);
            let Some(path) = PathIcrc::between((s.ip(), s.port()), (d.ip(), d.port())) else { return };
            if let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() {
                *icrc = path.icrc(place.train_index, body).to_le_bytes();
            }
        };
        let sent = self.packets.socket(GSI).transmit(NO_TIME, &mut self.tx, &mut seal);
        self.tx.clear();
        let is_sent = sent == Transmitted::All;
        self.counters.count(if is_sent { Fate::Sent } else { Fate::DroppedLinkFull });
    }
}

impl Part {
    /// Hands a datagram to the process. A process that does not receive loses datagrams, as with a full
    /// receive queue.
    pub(super) fn give(&self, record: &[u8]) -> Fate {
        match sys::send(self.mads.as_fd(), record, &[]) {
            Ok(()) => Fate::Delivered,
            Err(_) => Fate::DroppedProcessFull,
        }
    }
}
