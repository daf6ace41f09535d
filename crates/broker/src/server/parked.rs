//! Parked requests: their services have no listener yet, but may have one in a moment.
//!
//! A server that makes a listener for each connection gets requests between two listeners. Some servers tell
//! their clients a port before they listen to it. And when a new broker has succeeded an old one, members
//! have not told it yet to which services they listen. Such a request waits for its listener. If it were
//! declined or lost, the client would repeat it after longer and longer pauses, or not at all.

use super::super::mad::decline;
use super::super::protocol::{PortSpace, ServiceIds};
use super::counters::Fate;
use super::{Broker, GRACE};
use highwire_link::Packet;
use highwire_wire::UDP_PORT;
use highwire_wire::cm::CmMad;
use std::net::SocketAddr;
use std::time::Instant;

/// The most requests that wait; further ones are lost, and their senders repeat them.
const PARKED_MAX: usize = 256;

/// A request that waits.
pub(super) struct Parked {
    service: u64,
    mad: Box<CmMad>,
    from: SocketAddr,
    /// The record for its listener.
    record: Vec<u8>,
    until: Instant,
}

impl Broker {
    /// Whether a member may be about to listen to a service that has no listener.
    pub(super) fn may_be_listened_to(&mut self, service: u64) -> bool {
        let now = Instant::now();
        self.given_up.retain(|(_, when)| now.duration_since(*when) < GRACE);
        // A port that is bound and not yet listened to, in the form of service ids (IBTA A11.2).
        let port = (PortSpace((service >> 16) as u16), service as u16);
        let is_new = |(_, since): &(u8, Instant)| now.duration_since(*since) < GRACE;
        now < self.settled_at
            || self.given_up.iter().any(|(services, _)| services.contains(service))
            || service >> 32 == 0 && self.ports.get(&port).is_some_and(is_new)
    }

    /// Keeps a request until a member listens.
    pub(super) fn park(&mut self, service: u64, mad: &CmMad, packet: &Packet<'_>, record: Vec<u8>) -> Fate {
        // A repeated request counts once.
        let is_same = |parked: &Parked| parked.from == packet.source && parked.mad.message == mad.message;
        if self.parked.iter().any(is_same) {
            return Fate::Parked;
        }
        if self.parked.len() >= PARKED_MAX {
            return Fate::DroppedParkedFull;
        }
        let until = Instant::now() + GRACE;
        self.parked.push(Parked { service, mad: Box::new(*mad), from: packet.source, record, until });
        Fate::Parked
    }

    /// A member listens now: requests that waited for it are delivered.
    pub(super) fn deliver_parked(&mut self, services: ServiceIds, shard: u8) {
        let part = self.members.iter().filter_map(|m| m.part.as_ref()).find(|part| part.shard == shard);
        let Some(part) = part else { return };
        self.parked.retain(|parked| {
            let is_for_it = services.contains(parked.service);
            if is_for_it {
                self.counters.count(part.give(&parked.record));
            }
            !is_for_it
        });
    }

    /// Declines requests whose time is up: the service has no listener.
    pub(super) fn decline_parked(&mut self) {
        let now = Instant::now();
        while let Some(at) = self.parked.iter().position(|parked| parked.until <= now) {
            let parked = self.parked.swap_remove(at);
            if let Some(reply) = decline(&parked.mad) {
                self.send(SocketAddr::new(parked.from.ip(), UDP_PORT), &reply);
                self.counters.count(Fate::Declined);
            }
        }
    }
}
