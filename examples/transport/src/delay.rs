//! A transport that keeps delay near a target, after Swift (SIGCOMM 2020): below it the pace rises by steps, above it it falls by as
//! much as the delay is too long, once per round trip.

use std::collections::BTreeMap;

use highwire_fabric::FabricConfig;
use highwire_nanopu::network::PrioritySwitch;
use highwire_nanopu::nic::{Answer, Arriving, Departing, RoundTrips, Transport, TransportKind};
use highwire_nanopu::packet::{AppHeader, Packet, flag, packets_of};

use crate::pace::{LINE, Pace};

/// A round trip of an empty network is about half of it.
const TARGET_CYCLES: u64 = 2_000;
/// The most that one round trip takes away, in 1,024ths.
const CUT_MAX: u64 = LINE / 2;

/// By its name.
pub static DELAY: TransportKind = TransportKind {
    name: "delay",
    about: "senders keep the round trip near a target",
    make: |_| Box::new(Delay::default()),
    switch,
};

fn switch() -> FabricConfig {
    PrioritySwitch { priorities: 2, pool_bytes: 1 << 20 }.config()
}

/// The transport: see the module.
#[derive(Debug, Default)]
struct Delay {
    cycle: u64,
    trips: RoundTrips,
    peers: BTreeMap<u32, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    pace: Pace,
    /// The pace is not cut again before this cycle.
    calm_until: u64,
}

impl Transport for Delay {
    fn at(&mut self, cycle: u64) {
        self.cycle = cycle;
    }

    fn begin(&mut self, header: AppHeader) -> Departing {
        self.peers.entry(header.peer).or_default();
        Departing { credit: packets_of(header.bytes) as u16, ..Departing::default() }
    }

    fn on_data(&mut self, _: &mut Arriving, _: &Packet) -> Answer {
        Answer { verdict: flag::ACK, pull: None }
    }

    fn on_sent(&mut self, _: &mut Departing, packet: &Packet) {
        self.trips.on_sent(self.cycle, packet);
        self.peers.entry(packet.destination).or_default().pace.on_sent(self.cycle);
    }

    fn earliest(&self, peer: u32, _: &Departing) -> u64 {
        self.peers.get(&peer).map_or(0, |peer| peer.pace.next())
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        state.on_verdict(packet);
        let Some(took) = self.trips.on_answer(self.cycle, packet) else { return };
        let peer = self.peers.entry(packet.source).or_default();
        if took < TARGET_CYCLES {
            peer.pace.raise(2);
        } else if self.cycle >= peer.calm_until {
            peer.pace.cut((LINE * (took - TARGET_CYCLES) / took).min(CUT_MAX));
            peer.calm_until = self.cycle + took;
        }
    }
}
