//! A transport of one's own in a page: a receiver limits how many packets may be on their way to it, from all senders together.
//!
//! ```console
//! $ cargo run --release -p highwire-nanopu --example credit
//! ```
//!
//! docs/nanopu-transports.md explains it line by line.

use std::collections::VecDeque;

use highwire_nanopu::network::{Endpoint, Frame, HostId, PrioritySwitch, Sending, Topology, link, time_of};
use highwire_nanopu::nic::{Answer, Arriving, Departing, LongMessages, NicConfig, Transport, bit};
use highwire_nanopu::packet::{AppHeader, Packet, flag};

/// The first packet of a message asks for the rest. The receiver allows the packets of all messages in turns, no more than
/// `window` at a time.
struct Credit {
    window: usize,
    /// Packets that were allowed and have not come.
    allowed: usize,
    /// Messages that want more: a control packet for the sender, with the credit that it has.
    turns: VecDeque<Packet>,
    ready: VecDeque<Packet>,
}

impl Transport for Credit {
    fn begin(&mut self, _: AppHeader) -> Departing {
        Departing { credit: 1, ..Departing::default() }
    }

    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer {
        let is_new = state.arrived & bit(packet) == 0;
        if is_new && state.arrived == 0 {
            let ask = Packet { pull_offset: 1, ..packet.reply(flag::PULL) };
            self.turns.extend(Some(ask).filter(|ask| ask.message_packets() > 1));
        } else if is_new {
            self.allowed = self.allowed.saturating_sub(1);
        } else {
            // The packet comes again, so the packets that the sender was allowed may have been lost on the
            // way.
            let same = |turn: &&Packet| (turn.destination, turn.message) == (packet.source, packet.message);
            let all = packet.message_packets() as u16;
            let credit = self.turns.iter().find(same).map_or(all, |turn| turn.pull_offset);
            self.ready.push_back(Packet { pull_offset: credit, ..packet.reply(flag::PULL) });
        }
        while self.allowed < self.window
            && let Some(mut turn) = self.turns.pop_front()
        {
            self.allowed += 1;
            turn.pull_offset += 1;
            self.ready.push_back(turn.clone());
            self.turns
                .extend(Some(turn).filter(|turn| usize::from(turn.pull_offset) < turn.message_packets()));
        }
        Answer { verdict: flag::ACK, pull: None }
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        state.on_verdict(packet);
        if packet.flags & flag::PULL != 0 {
            state.credit = state.credit.max(packet.pull_offset);
        }
    }

    fn on_timeout(&mut self, state: &mut Departing, sent: u64) {
        if sent & !state.delivered == 0 {
            state.delivered &= !1;
        }
        state.resend |= sent & !state.delivered;
    }

    fn poll_control(&mut self) -> Option<Packet> {
        self.ready.pop_front()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const SENDERS: u32 = 10;
    const BYTES: u16 = 30 * 1024;
    let nic = NicConfig {
        long_messages: Some(LongMessages::default()),
        timeout_cycles: 20_000,
        ..NicConfig::default()
    };
    for window in [2, 4, 8, 16] {
        let endpoints = (0..=SENDERS).map(HostId).map(|host| {
            let sending = Sending { at: 1_000, to: HostId(0), bytes: BYTES, core: 0 };
            let plan = if host.0 == 0 { Vec::new() } else { vec![sending] };
            let credit = Credit { window, allowed: 0, turns: VecDeque::new(), ready: VecDeque::new() };
            Endpoint::new(host, &nic, 1, credit, plan)
        });
        let switch = PrioritySwitch { priorities: 2, pool_bytes: 1 << 20 };
        let star = Topology::star(SENDERS + 1, link(140))?;
        let mut fabric =
            highwire_fabric::Fabric::<Frame, _>::new(star, switch.config(), endpoints.collect())?;
        fabric.run_until(time_of(200_000))?;
        let arrived = fabric.host(HostId(0)).arrived();
        assert_eq!(arrived.len(), SENDERS as usize, "every message arrives");
        let last = arrived.iter().map(|arrived| arrived.at).max().unwrap_or(0) - 1_000;
        let queue = fabric.queue_bytes_max(fabric.switch_port(0, 0));
        println!("window of {window:>2} packets: all there after {last} cycles, longest queue {queue} bytes");
    }
    Ok(())
}
