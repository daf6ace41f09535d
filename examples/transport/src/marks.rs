//! A transport that follows ECN marks, after DCTCP (SIGCOMM 2010): the pace falls by half of the share of marked packets, averaged over
//! rounds.

use std::collections::BTreeMap;

use highwire_fabric::{Ecn, FabricConfig};
use highwire_nanopu::network::PrioritySwitch;
use highwire_nanopu::nic::{Answer, Arriving, Departing, Transport, TransportKind};
use highwire_nanopu::packet::{AppHeader, Packet, flag, packets_of};

use crate::pace::{LINE, Pace};

/// Answers that make a round.
const ROUND: u64 = 8;
/// Switches mark packets that find more than so many bytes in front of them.
const MARKING_BYTES: u64 = 16_000;

/// By its name.
pub static MARKS: TransportKind = TransportKind {
    name: "marks",
    about: "senders follow the marks of switches",
    make: |_| Box::new(Marks::default()),
    switch,
};

fn switch() -> FabricConfig {
    let switch = PrioritySwitch { priorities: 2, pool_bytes: 1 << 20 }.config();
    FabricConfig { ecn: Some(Ecn::step(MARKING_BYTES)), ..switch }
}

/// The transport: see the module.
#[derive(Debug, Default)]
struct Marks {
    cycle: u64,
    peers: BTreeMap<u32, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    pace: Pace,
    answers: u64,
    marked: u64,
    /// The average share of marked packets, in 1,024ths.
    average: u64,
}

impl Transport for Marks {
    fn at(&mut self, cycle: u64) {
        self.cycle = cycle;
    }

    fn is_ecn_capable(&self) -> bool {
        true
    }

    fn begin(&mut self, header: AppHeader) -> Departing {
        self.peers.entry(header.peer).or_default();
        Departing { credit: packets_of(header.bytes) as u16, ..Departing::default() }
    }

    fn on_data(&mut self, _: &mut Arriving, _: &Packet) -> Answer {
        Answer { verdict: flag::ACK, pull: None }
    }

    fn on_sent(&mut self, _: &mut Departing, packet: &Packet) {
        self.peers.entry(packet.destination).or_default().pace.on_sent(self.cycle);
    }

    fn earliest(&self, peer: u32, _: &Departing) -> u64 {
        self.peers.get(&peer).map_or(0, |peer| peer.pace.next())
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        state.on_verdict(packet);
        let peer = self.peers.entry(packet.source).or_default();
        peer.answers += 1;
        peer.marked += u64::from(packet.flags & flag::ECHO != 0);
        if peer.answers < ROUND {
            return;
        }
        peer.average = peer.average - peer.average / 4 + LINE * peer.marked / peer.answers / 4;
        match peer.marked {
            0 => peer.pace.raise(16),
            _ => peer.pace.cut(peer.average / 2),
        }
        (peer.answers, peer.marked) = (0, 0);
    }
}
