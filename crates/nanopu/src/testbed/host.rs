//! The host in the switch: sends requests when they are due, acknowledges the packets that come, and repeats its own that are
//! not acknowledged.

use std::collections::{BTreeMap, VecDeque};

use highwire_fabric::{Host as FabricHost, Priorities, Time};

use crate::network::{Frame, cycle_of, time_of};
use crate::packet::{Packet, SEGMENT_BYTES, flag, words_of};

/// The host's address.
pub const HOST: u32 = 0x0a00_0001;
/// How long the host waits for an acknowledgement, in cycles: longer than any node is busy in a load that it can bear.
const TIMEOUT_CYCLES: u64 = 40_000;
/// The host's context of request *n* is *n* modulo this, so that answers find their requests.
const CONTEXTS: usize = 1 << 16;
/// Finished messages of each node that are remembered, to know their packets if they come again.
const REMEMBERED: usize = 256;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The cycle in which its first word leaves the host.
    pub sent: u64,
    /// The address of the node that it is for.
    pub node: u32,
    /// The node's context.
    pub context: u16,
    /// The payload: at most [`crate::packet::MESSAGE_BYTES_MAX`] bytes.
    pub payload: Vec<u8>,
}

impl Request {
    /// A request of whole words.
    pub fn of_words(sent: u64, node: u32, context: u16, words: &[u64]) -> Request {
        let payload = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        Request { sent, node, context, payload }
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The cycle in which its first word was back.
    pub received: u64,
    /// The node that gave it.
    pub node: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Answer {
    /// Its words; the last one is filled up with zeroes.
    pub fn words(&self) -> Vec<u64> {
        words_of(&self.payload).collect()
    }
}

/// A message of several packets that is arriving.
#[derive(Clone, Debug)]
struct Part {
    first: u64,
    arrived: u32,
    payload: Vec<u8>,
}

/// The host.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Requests that are not yet due, in order.
    due: BTreeMap<(u64, usize), Request>,
    /// Acknowledgements, which leave once the acknowledged packet's last word is here.
    acknowledgements: VecDeque<(u64, Packet)>,
    /// Packets that are due.
    ready: VecDeque<Packet>,
    /// Up to which cycle the port knows that packets are due.
    announced: u64,
    answers: Vec<Option<Answer>>,
    answered: usize,
    unacknowledged: BTreeMap<(u16, u8), Packet>,
    /// When to look at each of them again, in order.
    deadlines: VecDeque<(u64, (u16, u8))>,
    next_message: u16,
    parts: BTreeMap<(u32, u16), Part>,
    finished: BTreeMap<u32, VecDeque<u16>>,
}

impl Host {
    pub(super) fn send(&mut self, request: Request) -> usize {
        let number = self.answers.len();
        self.answers.push(None);
        self.due.insert((request.sent, number), request);
        number
    }

    pub(super) fn requests(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn answer(&self, number: usize) -> Option<&Answer> {
        self.answers.get(number)?.as_ref()
    }

    pub(super) fn answered(&self) -> usize {
        self.answered
    }

    /// Queues the requests that are due in this cycle.
    fn launch_due(&mut self, cycle: u64) {
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= cycle
        {
            let ((_, number), request) = entry.remove_entry();
            self.launch(cycle, number, &request);
        }
        while let Some(&(deadline, key)) = self.deadlines.front()
            && deadline <= cycle
        {
            self.deadlines.pop_front();
            if let Some(packet) = self.unacknowledged.get(&key) {
                self.ready.push_back(packet.clone());
                self.deadlines.push_back((cycle + TIMEOUT_CYCLES, key));
            }
        }
    }

    fn launch(&mut self, cycle: u64, number: usize, request: &Request) {
        let message = Packet {
            source: HOST,
            destination: request.node,
            source_context: (number % CONTEXTS) as u16,
            destination_context: request.context,
            message: self.next_message,
            ..Packet::default()
        };
        self.next_message = self.next_message.wrapping_add(1);
        for packet in Packet::of_message(message, &request.payload) {
            let key = (packet.message, packet.packet_offset);
            self.unacknowledged.insert(key, packet.clone());
            self.deadlines.push_back((cycle + TIMEOUT_CYCLES, key));
            self.ready.push_back(packet);
        }
    }

    /// Takes a packet whose first word is here in cycle `first`.
    fn take(&mut self, first: u64, packet: Packet) {
        if !packet.is_data() {
            if packet.flags & flag::ACK != 0 {
                self.unacknowledged.remove(&(packet.message, packet.packet_offset));
            }
            return;
        }
        let reply = Packet {
            source: packet.destination,
            destination: packet.source,
            flags: flag::ACK | flag::PULL,
            source_context: packet.destination_context,
            destination_context: packet.source_context,
            pull_offset: u16::from(packet.packet_offset) + 3,
            payload: Vec::new(),
            ..packet
        };
        self.acknowledgements.push_back((first + packet.wire_words(), reply));
        let Some((received, payload)) = self.assemble(first, &packet) else { return };
        let number = usize::from(packet.destination_context);
        // Several requests can have this context: the answer is for the oldest unanswered one.
        let slots = self.answers.iter_mut().skip(number).step_by(CONTEXTS);
        if let Some(slot) = slots.into_iter().find(|slot| slot.is_none()) {
            *slot = Some(Answer { received, node: packet.source, payload });
            self.answered += 1;
        }
    }

    /// The whole message and when its first word came, once all its packets are there.
    fn assemble(&mut self, first: u64, packet: &Packet) -> Option<(u64, Vec<u8>)> {
        let finished = self.finished.entry(packet.source).or_default();
        if finished.contains(&packet.message) {
            return None;
        }
        let key = (packet.source, packet.message);
        let payload = vec![0; packet.message_bytes.into()];
        let part = self.parts.entry(key).or_insert(Part { first, arrived: 0, payload });
        let start = usize::from(packet.packet_offset) * SEGMENT_BYTES;
        part.payload.get_mut(start..start + packet.payload.len())?.copy_from_slice(&packet.payload);
        part.arrived |= 1 << packet.packet_offset.min(31);
        if (part.arrived.count_ones() as usize) < packet.message_packets() {
            return None;
        }
        finished.push_back(packet.message);
        if finished.len() > REMEMBERED {
            finished.pop_front();
        }
        self.parts.remove(&key).map(|part| (part.first, part.payload))
    }
}

impl FabricHost<Frame> for Host {
    fn handle_packet(&mut self, now: Time, frame: Frame) {
        let packet = frame.packet();
        self.take(cycle_of(now).saturating_sub(packet.wire_words()), packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.announced = cycle_of(now);
    }

    fn poll_transmit(&mut self, now: Time, _: Priorities) -> Option<Frame> {
        let cycle = cycle_of(now);
        self.launch_due(cycle);
        loop {
            let acknowledges = self.acknowledgements.front().is_some_and(|&(due, _)| due <= cycle);
            let packet = match acknowledges {
                true => self.acknowledgements.pop_front().map(|(_, packet)| packet)?,
                false => self.ready.pop_front()?,
            };
            // A packet to an address outside the network has no receiver: it is dropped.
            if let Some(frame) = Frame::new(&packet) {
                return Some(frame);
            }
        }
    }

    fn poll_timeout(&self) -> Time {
        let request = self.due.keys().next().map(|&(sent, _)| sent);
        let acknowledgement = self.acknowledgements.front().map(|&(due, _)| due);
        let deadline = self.deadlines.front().map(|&(deadline, _)| deadline);
        let next = [request, acknowledgement, deadline].into_iter().flatten();
        next.filter(|&cycle| cycle > self.announced).min().map_or(Time::NEVER, time_of)
    }
}
