//! The two halves of the NIC by themselves, for comparison with other implementations such as `rtl/`.
//!
//! A half is driven as [`Nic`](super::Nic) drives it: one call of `tick` in every cycle, after everything else that happens in it.

use super::dispatch::DeliveredWord;
use super::receive::{Receiver, Reply};
use super::send::Sender;
use super::transport::Transport;
use super::{NicConfig, ReceiveCounters, SendCounters};
use crate::interface::Interface;
use crate::packet::Packet;
use crate::timeline::Timeline;

/// From packets to words for the cores.
#[derive(Clone, Debug)]
pub struct ReceiveHalf<T> {
    receiver: Receiver,
    transport: T,
    timeline: Timeline,
}

/// The outputs of the receiving half in a cycle.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// A DATA packet has left the ingress pipeline, and this is its answer.
    pub reply: Option<Reply>,
    /// A control packet has left it, for the sending half.
    pub control: Option<Packet>,
    /// Control packets that the transport sends of its own accord.
    pub own: Vec<Packet>,
    /// A word enters a core's queue. With groups, a word may enter a queue in each group; this is the last of
    /// them.
    pub word: Option<DeliveredWord>,
}

impl<T: Transport> ReceiveHalf<T> {
    /// For `cores` cores, at least one.
    pub fn new(config: &NicConfig, cores: usize, transport: T) -> ReceiveHalf<T> {
        let receiver = Receiver::new(config, cores.max(1));
        ReceiveHalf { receiver, transport, timeline: Timeline::default() }
    }

    /// The last word of a packet is on the interface in cycle `last`.
    pub fn arrive(&mut self, last: u64, packet: Packet) {
        self.receiver.arrive(last, packet, self.transport.pipeline_cycles().ingress);
    }

    /// A core has a thread for `context`.
    pub fn insert(&mut self, cycle: u64, core: usize, context: u16) {
        self.receiver.insert(cycle, core, context);
    }

    /// A core has finished a message. In a cycle the cores' demands come in the order of the cores.
    pub fn finish(&mut self, cycle: u64, core: usize, context: u16) {
        self.receiver.finish(cycle, core, context);
    }

    /// The rest of the cycle.
    pub fn tick(&mut self, cycle: u64) -> Received {
        let mut received = Received::default();
        match self.receiver.poll_ingress(cycle) {
            Some(packet) if packet.is_data() => {
                received.reply = self.receiver.take(cycle, packet, &mut self.transport);
            }
            packet => received.control = packet,
        }
        received.own.extend(std::iter::from_fn(|| self.transport.poll_control()));
        self.receiver.tick(cycle, &mut self.timeline, |word| received.word = Some(word));
        received
    }

    /// Counters of arrivals.
    pub fn counters(&self) -> ReceiveCounters {
        self.receiver.counters
    }
}

/// From words of the cores to packets.
#[derive(Clone, Debug)]
pub struct SendHalf<T> {
    sender: Sender,
    transport: T,
    timeline: Timeline,
}

impl<T: Transport> SendHalf<T> {
    /// A sending half.
    pub fn new(config: &NicConfig, transport: T) -> SendHalf<T> {
        let sender = Sender::new(config, &transport);
        SendHalf { sender, transport, timeline: Timeline::default() }
    }

    /// The beginning of a cycle: takes a word that a core wrote before, and says which core.
    pub fn accept(&mut self, cycle: u64, interfaces: &mut [Interface]) -> Option<usize> {
        self.sender.accept(cycle, interfaces, &mut self.transport, &mut self.timeline)
    }

    /// A control packet has arrived.
    pub fn on_control(&mut self, cycle: u64, packet: &Packet) {
        self.sender.on_control(cycle, packet, &mut self.transport);
    }

    /// Answers a packet that has arrived.
    pub fn answer(&mut self, cycle: u64, reply: Reply) {
        self.sender.answer(cycle, reply.packet, reply.pull);
    }

    /// A control packet leaves of the transport's own accord.
    pub fn control(&mut self, cycle: u64, packet: Packet) {
        self.sender.control(cycle, packet);
    }

    /// The rest of the cycle: the packet that the wire takes next, and the cycle of its first word.
    pub fn tick(&mut self, cycle: u64) -> Option<(u64, Packet)> {
        self.sender.tick(cycle, &mut self.transport, &mut self.timeline)
    }

    /// See [`Nic::deadlocked`](super::Nic::deadlocked).
    pub fn deadlocked(&self, interfaces: &[Interface]) -> Vec<usize> {
        self.sender.deadlocked(interfaces)
    }

    /// Counters of departures.
    pub fn counters(&self) -> SendCounters {
        self.sender.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Ndp;
    use crate::packet::{AppHeader, flag};
    use crate::port::csr;

    const PEER: u32 = 0x0a00_0001;

    fn half(buffers: usize) -> (SendHalf<Ndp>, [Interface; 1]) {
        let config = NicConfig { buffers: [buffers, 0], ..NicConfig::default() };
        let mut interface = Interface::default();
        interface.write(0, csr::NIC_COMMAND, 1);
        (SendHalf::new(&config, Ndp { rtt_packets: 2 }), [interface])
    }

    fn ack(number: u16) -> Packet {
        Packet { source: PEER, flags: flag::ACK, message: number, buffer: number, ..Packet::default() }
    }

    /// A message was acknowledged, and its number belongs to another message, when the acknowledgement comes
    /// again.
    #[test]
    fn an_old_acknowledgement_does_not_end_a_message_that_is_being_written() {
        let (mut half, mut interfaces) = half(1);
        let header = AppHeader { peer: PEER, context: 7, bytes: 8 }.word();
        for word in [header, 1, header] {
            interfaces[0].put_word(0, word);
        }
        let mut sent = Vec::new();
        for cycle in 1..100 {
            half.accept(cycle, &mut interfaces);
            match cycle {
                20 | 30 => half.on_control(cycle, &ack(0)),
                40 => interfaces[0].put_word(cycle, 2),
                _ => {}
            }
            sent.extend(half.tick(cycle));
        }
        assert_eq!(half.counters().delivered, 1);
        let payloads: Vec<_> = sent.iter().map(|(_, packet)| packet.payload[7]).collect();
        assert_eq!(payloads, [1, 2]);
    }

    /// The message ends while a repetition of its packet waits, and the number is taken again at once.
    #[test]
    fn a_waiting_repetition_does_not_send_another_message_half_written() {
        let (mut half, mut interfaces) = half(1);
        let header = AppHeader { peer: PEER, context: 7, bytes: 8 }.word();
        for word in [header, 1, header] {
            interfaces[0].put_word(0, word);
        }
        let mut sent = Vec::new();
        for cycle in 1..100 {
            half.accept(cycle, &mut interfaces);
            match cycle {
                20 => half.on_control(cycle, &Packet { flags: flag::NACK, ..ack(0) }),
                21 => half.on_control(cycle, &ack(0)),
                _ => {}
            }
            sent.extend(half.tick(cycle));
        }
        assert_eq!(half.counters().messages, 2);
        assert_eq!(sent.len(), 1, "{sent:?}");
    }
}
