//! A NIC on a fabric whose cores are ideal: they write a word a cycle, read every word that comes, and run no program.
//!
//! It shows a transport under load without the effects of programs. The NIC is simulated cycle by cycle while
//! it does anything.

use std::collections::{BTreeMap, VecDeque};

use highwire_fabric::{Host, HostId, Priorities, Time};

use super::dock::may_leave;
use super::frame::{Carrier, Frame};
use super::{address, cycle_of, host_of, time_of};
use crate::interface::Interface;
use crate::nic::{Nic, NicConfig, Transport, bit};
use crate::packet::{AppHeader, Packet, flag};
use crate::port::csr;

/// A packet has no effect before so many cycles have passed since its last word, so a NIC may run ahead of the network by as many;
/// two less than ingress takes, for times are rounded.
const AHEAD_CYCLES: u64 = 5;
/// The context of all messages; every core has it.
const CONTEXT: u16 = 0;

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// The cycle in which its core begins to write.
    pub at: u64,
    /// The receiver.
    pub to: HostId,
    /// Its payload, at least eight bytes: the first word is its number.
    pub bytes: u16,
    /// The core that writes it. Lower ones go first where several write.
    pub core: usize,
}

/// A message that has arrived whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The sender.
    pub from: HostId,
    /// Its place in the sender's plan.
    pub number: u64,
    /// The cycle behind the last word of the packet that completed it, on the wire.
    pub at: u64,
}

/// A NIC with ideal cores.
pub struct Endpoint<T> {
    nic: Nic<T>,
    interfaces: Vec<Interface>,
    /// Words that each core has not yet read of its message.
    unread: Vec<u64>,
    /// Messages that have not been begun, by number.
    plan: VecDeque<(u64, Sending)>,
    /// The next cycle.
    cycle: u64,
    departures: VecDeque<(Time, Frame)>,
    announced: Time,
    coming: BTreeMap<(u32, u16), Coming>,
    arrived: Vec<Arrived>,
}

/// A message of which some packets have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    arrived: u64,
    number: u64,
}

impl<T: Transport> Endpoint<T> {
    /// An endpoint on host `host`, with so many cores, at least one. `plan` is in order of `at`, and of at most 65,536 messages: by then
    /// their numbers on the wire come again.
    pub fn new(
        host: HostId,
        config: &NicConfig,
        cores: usize,
        transport: T,
        plan: Vec<Sending>,
    ) -> Endpoint<T> {
        let config = NicConfig { address: address(host), ..*config };
        let mut interface = Interface::default();
        interface.write(0, csr::CURRENT_CONTEXT, CONTEXT.into());
        interface.write(0, csr::NIC_COMMAND, 1);
        Endpoint {
            nic: Nic::new(&config, cores.max(1), transport),
            interfaces: vec![interface; cores.max(1)],
            unread: vec![0; cores.max(1)],
            plan: (0..).zip(plan).collect(),
            cycle: 0,
            departures: VecDeque::new(),
            announced: Time::ZERO,
            coming: BTreeMap::new(),
            arrived: Vec::new(),
        }
    }

    /// The messages that have come, in the order in which they were complete.
    pub fn arrived(&self) -> &[Arrived] {
        &self.arrived
    }

    /// The NIC, for its counters.
    pub fn nic(&self) -> &Nic<T> {
        &self.nic
    }

    /// The next cycle in which anything happens by itself.
    fn next_cycle(&self) -> u64 {
        if !self.interfaces.iter().all(Interface::is_quiet) {
            return self.cycle;
        }
        let planned = self.plan.front().map_or(u64::MAX, |(_, sending)| sending.at);
        self.nic.next_event().min(planned).max(self.cycle)
    }

    fn run_to(&mut self, end: u64) {
        loop {
            self.cycle = match self.next_cycle() {
                next if next > end => return,
                next => next,
            };
            self.tick();
        }
    }

    fn tick(&mut self) {
        let cycle = self.cycle;
        while let Some(&(number, sending)) = self.plan.front()
            && sending.at <= cycle
        {
            self.plan.pop_front();
            self.write(number, sending);
        }
        self.nic.accept(cycle, &mut self.interfaces);
        for (interface, unread) in self.interfaces.iter_mut().zip(&mut self.unread) {
            read(cycle, interface, unread);
        }
        if let Some((first, packet)) = self.nic.tick(cycle, &mut self.interfaces)
            && let Some(frame) = Frame::new(&packet)
        {
            self.departures.push_back((time_of(first), frame));
        }
        self.interfaces.iter_mut().for_each(|interface| interface.tick(cycle));
        self.cycle += 1;
    }

    /// Writes a whole message; the NIC then takes a word a cycle.
    fn write(&mut self, number: u64, sending: Sending) {
        let Sending { to, bytes, core, .. } = sending;
        let core = core.min(self.interfaces.len() - 1);
        let header = AppHeader { peer: address(to), context: CONTEXT, bytes }.word();
        let words = u64::from(bytes).div_ceil(8);
        let payload = (0..words).map(|word| if word == 0 { number } else { word });
        let interface = &mut self.interfaces[core];
        std::iter::once(header).chain(payload).for_each(|word| interface.put_word(self.cycle, word));
    }

    fn note(&mut self, at: u64, packet: &Packet) {
        if !packet.is_data() || packet.flags & flag::CHOP != 0 {
            return;
        }
        let coming = self.coming.entry((packet.source, packet.message)).or_default();
        if coming.arrived & bit(packet) != 0 {
            return;
        }
        coming.arrived |= bit(packet);
        if let (0, Some(word)) = (packet.packet_offset, packet.payload.first_chunk()) {
            coming.number = u64::from_be_bytes(*word);
        }
        if let (true, Some(from)) =
            (coming.arrived.count_ones() as usize == packet.message_packets(), host_of(packet.source))
        {
            self.arrived.push(Arrived { from, number: coming.number, at });
        }
    }
}

/// Lets a core read the words that are there. A message is done with its last word.
fn read(cycle: u64, interface: &mut Interface, unread: &mut u64) {
    while interface.peek_word().is_some() {
        let word = interface.take_word(cycle);
        *unread = match *unread {
            0 => u64::from(AppHeader::from_word(word).bytes).div_ceil(8),
            words => words - 1,
        };
        if *unread == 0 {
            interface.write(cycle, csr::THREAD_COMMAND, 1);
        }
    }
}

impl<T: Transport, P: Carrier> Host<P> for Endpoint<T> {
    fn handle_packet(&mut self, now: Time, packet: P) {
        let Some(packet) = packet.frame().map(Frame::packet) else { return };
        let end = cycle_of(now);
        self.note(end, &packet);
        self.nic.receive(end.saturating_sub(1), packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.announced = now;
        self.run_to(cycle_of(now) + AHEAD_CYCLES);
    }

    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<P> {
        let (_, frame) = self.departures.front().filter(|(due, _)| *due <= now)?;
        if !may_leave::<P>(frame, open) {
            return None;
        }
        self.departures.pop_front().map(|(_, frame)| P::from_frame(frame))
    }

    fn poll_timeout(&self) -> Time {
        let leaves = self.departures.front().map(|&(due, _)| due).filter(|&due| due > self.announced);
        let acts = match self.next_cycle() {
            u64::MAX => Time::NEVER,
            cycle => time_of(cycle),
        };
        leaves.map_or(acts, |due| due.min(acts))
    }
}
