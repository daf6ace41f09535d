//! A load generator at the other end of the node's link, as the authors': it sends each request when it is due, answers every data
//! packet, and takes the time until the first word of the answer is back.

use std::collections::VecDeque;

use crate::core::Event;
use crate::nic::Transport;
use crate::node::{Node, NodeEvent};
use crate::packet::{Packet, SEGMENT_BYTES, flag, packets_of};
use crate::rounds::{DATA, Port, URGENT};

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The cycle in which its first word leaves the generator.
    pub sent: u64,
    /// The node's context that it is for.
    pub context: u16,
    /// The payload: at most [`crate::packet::MESSAGE_BYTES_MAX`] bytes, unless the node takes long messages.
    pub payload: Vec<u8>,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The cycle in which the answer's first word was back.
    pub received: u64,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Packets that the generator did not expect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Strays {
    /// Answers to no request, or to one that had been answered.
    pub answers: u64,
    /// Packets for another address.
    pub elsewhere: u64,
}

/// Packets that a generator in the authors' switch keeps until the next round.
#[derive(Clone, Debug, Default)]
struct Rounds {
    /// When the first and the last word of the acknowledged packet were in the switch, and the
    /// acknowledgement.
    acknowledgements: VecDeque<(u64, u64, Packet)>,
    /// When it is due, and the packet.
    requests: VecDeque<(u64, Packet)>,
    /// The port to the node.
    port: Port,
}

/// Acknowledgements of the authors' generator carry an application header, which is empty.
const ACKNOWLEDGEMENT_BYTES: usize = 16;

impl Rounds {
    /// The packets that leave in the round of `cycles` from `base` on.
    fn transmit(&mut self, base: u64, cycles: u64) -> Vec<(u64, Packet)> {
        while self.acknowledgements.front().is_some_and(|&(_, last, _)| last < base + cycles) {
            let (first, _, packet) = self.acknowledgements.pop_front().expect("looked at");
            self.port.push(URGENT, first, packet);
        }
        while self.requests.front().is_some_and(|&(due, _)| due <= base) {
            let (due, packet) = self.requests.pop_front().expect("looked at");
            self.port.push(DATA, due, packet);
        }
        self.port.transmit(base, cycles)
    }
}

/// The generator.
#[derive(Clone, Debug)]
pub struct Client {
    address: u32,
    node: u32,
    link_cycles: u64,
    /// Packets on their way to the node, and when their first word is there.
    towards: VecDeque<(u64, Packet)>,
    /// Packets of long requests, for when the wire is free.
    pending: VecDeque<Packet>,
    /// Acknowledgements that leave in between, and when they may.
    between: VecDeque<(u64, Packet)>,
    wire_free: u64,
    answers: Vec<Option<Answer>>,
    /// Parts of answers of several packets, by the node's number of the message.
    parts: Vec<(u16, u64, Vec<u8>, u64)>,
    strays: Strays,
    next_message: u16,
    /// The packets for the next round, if the generator sits in the authors' switch.
    rounds: Option<Rounds>,
}

/// Requests being played, for a caller that wants to stop in between.
#[derive(Debug)]
pub struct Play<'a> {
    client: &'a mut Client,
    requests: &'a [Request],
    next: usize,
    answered: usize,
}

/// How far a [`Play`] has come.
#[derive(Clone, Debug)]
pub struct Progress {
    client: Client,
    next: usize,
    answered: usize,
}

impl<'a> Play<'a> {
    /// `client` is about to send `requests`, in order of `sent`.
    pub fn new(client: &'a mut Client, requests: &'a [Request]) -> Play<'a> {
        client.expect(requests.len());
        Play { client, requests, next: 0, answered: 0 }
    }

    /// Goes back to the beginning, for a node that begins again.
    pub fn rewind(&mut self) {
        self.client.expect(self.requests.len());
        self.client.towards.clear();
        self.client.pending.clear();
        self.client.between.clear();
        self.client.parts.clear();
        (self.client.wire_free, self.next, self.answered) = (0, 0, 0);
    }

    /// How far the play has come, for a caller that takes cycles of it back together with the node's.
    pub fn progress(&self) -> Progress {
        Progress { client: self.client.clone(), next: self.next, answered: self.answered }
    }

    /// Goes back to `progress`.
    pub fn go_back(&mut self, progress: &Progress) {
        self.client.clone_from(&progress.client);
        (self.next, self.answered) = (progress.next, progress.answered);
    }

    /// Whether every request has its answer.
    pub fn is_answered(&self) -> bool {
        self.answered == self.requests.len()
    }

    /// One cycle of the node and its link.
    ///
    /// # Errors
    /// A core took a trap.
    pub fn tick<T: Transport>(
        &mut self,
        node: &mut Node<T>,
        on_event: impl FnMut(usize, Event),
    ) -> Result<(), NodeEvent> {
        let cycle = node.cycle();
        while let Some(request) = self.requests.get(self.next).filter(|request| request.sent <= cycle) {
            self.client.send(self.client.node, self.next, request);
            self.next += 1;
        }
        while let Some((due, packet)) = self.client.poll_packet(cycle) {
            node.receive(due, packet);
        }
        node.tick(on_event);
        if node.has_events() {
            for event in node.take_events() {
                match event {
                    NodeEvent::Sent { first, packet } => {
                        self.answered += usize::from(self.client.take(first, &packet));
                    }
                    trap @ NodeEvent::Trapped { .. } => return Err(trap),
                }
            }
        }
        Ok(())
    }
}

/// The authors' generator numbers its messages modulo this.
const NUMBERS_OF_AUTHORS: u16 = 127;

/// The generator's context of request *n* is *n* modulo this, so that answers find their requests.
const CONTEXTS: usize = 1 << 16;

impl Client {
    /// A generator with this address for the node with that one, over a link of so many cycles each way.
    pub fn new(address: u32, node: u32, link_cycles: u64) -> Client {
        Client {
            address,
            node,
            link_cycles,
            towards: VecDeque::new(),
            pending: VecDeque::new(),
            between: VecDeque::new(),
            wire_free: 0,
            answers: Vec::new(),
            parts: Vec::new(),
            strays: Strays::default(),
            next_message: 0,
            rounds: None,
        }
    }

    /// A generator in the authors' switch, which works in rounds of one link latency: acknowledgements go
    /// before requests, and no packet is cut by a round's end.
    pub fn in_rounds(address: u32, node: u32, link_cycles: u64) -> Client {
        Client { rounds: Some(Rounds::default()), ..Client::new(address, node, link_cycles) }
    }

    /// Plays `requests`, in order of `sent`, until all are answered or `patience_cycles` have passed since the last was sent.
    ///
    /// An answer belongs to the request whose number its destination context is, which the node's program sends back with the
    /// header. `on_event` sees what each core does. Returns each request's answer, or `None`.
    pub fn play<T: Transport>(
        &mut self,
        node: &mut Node<T>,
        requests: &[Request],
        patience_cycles: u64,
        mut on_event: impl FnMut(usize, Event),
    ) -> Result<Vec<Option<Answer>>, NodeEvent> {
        let end =
            requests.last().map_or(node.cycle(), |request| request.sent).saturating_add(patience_cycles);
        let mut play = Play::new(self, requests);
        while !play.is_answered() && node.cycle() < end {
            play.tick(node, &mut on_event)?;
        }
        Ok(std::mem::take(&mut self.answers))
    }

    /// The same for a generator [`Client::in_rounds`]: all requests must be due at the beginning of a round. It passes over cycles in
    /// which the cores only poll, as [`Node::run_until`] does.
    pub fn play_in_rounds<T: Transport>(
        &mut self,
        node: &mut Node<T>,
        requests: &[Request],
        patience_cycles: u64,
    ) -> Result<Vec<Option<Answer>>, NodeEvent> {
        let round = self.link_cycles;
        let end =
            requests.last().map_or(node.cycle(), |request| request.sent).saturating_add(patience_cycles);
        let mut base = node.cycle().next_multiple_of(round);
        let mut due = requests.iter().enumerate().peekable();
        let mut left = requests.len();
        self.expect(requests.len());
        node.run_until(base);
        while left > 0 && base < end {
            while let Some((number, request)) = due.next_if(|(_, request)| request.sent <= base) {
                self.send(self.node, number, request);
            }
            let leaving = self.rounds.as_mut().map(|rounds| rounds.transmit(base, round));
            for (first, packet) in leaving.into_iter().flatten() {
                node.receive(first + round, packet);
            }
            base += round;
            node.run_until(base);
            for event in node.take_events() {
                match event {
                    NodeEvent::Sent { first, packet } => left -= usize::from(self.take(first, &packet)),
                    trap @ NodeEvent::Trapped { .. } => return Err(trap),
                }
            }
        }
        Ok(std::mem::take(&mut self.answers))
    }

    /// The answers so far, after a play that ended with an error.
    pub fn take_answers(&mut self) -> Vec<Option<Answer>> {
        std::mem::take(&mut self.answers)
    }

    /// Packets that this client did not ask for.
    pub fn strays(&self) -> Strays {
        self.strays
    }

    /// Forgets all answers and expects those of `requests` requests.
    pub(crate) fn expect(&mut self, requests: usize) {
        self.answers = vec![None; requests];
    }

    /// The answers so far, by request.
    pub(crate) fn answers(&self) -> &[Option<Answer>] {
        &self.answers
    }

    /// The next cycle in which there is something to do: a packet is at the other end of the link, or the
    /// wire is free for one.
    pub(crate) fn next_packet(&self) -> Option<u64> {
        let there = self.towards.front().map(|&(due, _)| due);
        let free = self.pending.front().map(|_| self.wire_free);
        let between = self.between.front().map(|&(due, _)| due.max(self.wire_free));
        [there, free, between].into_iter().flatten().min()
    }

    /// A packet that is there by `cycle`, without taking it.
    pub(crate) fn peek_packet(&self, cycle: u64) -> Option<&Packet> {
        self.towards.front().filter(|(due, _)| *due <= cycle).map(|(_, packet)| packet)
    }

    /// A packet that is there by `cycle`, and when its first word was.
    pub(crate) fn poll_packet(&mut self, cycle: u64) -> Option<(u64, Packet)> {
        while self.wire_free <= cycle {
            if self.between.front().is_some_and(|&(due, _)| due <= cycle)
                && let Some((due, packet)) = self.between.pop_front()
            {
                self.launch(due, packet);
            } else if let Some(packet) = self.pending.pop_front() {
                self.launch(self.wire_free, packet);
            } else {
                break;
            }
        }
        self.towards.front().filter(|&&(due, _)| due <= cycle)?;
        self.towards.pop_front()
    }

    /// Sends request `number` to the node with address `node`.
    pub(crate) fn send(&mut self, node: u32, number: usize, request: &Request) {
        let message = Packet {
            source: self.address,
            destination: node,
            source_context: (number % CONTEXTS) as u16,
            destination_context: request.context,
            message: self.next_message,
            ..Packet::default()
        };
        self.next_message = match self.rounds {
            // The authors' generator.
            Some(_) => (self.next_message + 1) % NUMBERS_OF_AUTHORS,
            None => self.next_message.wrapping_add(1),
        };
        let packets = packets_of(request.payload.len() as u16);
        for packet in Packet::of_message(message, &request.payload) {
            match &mut self.rounds {
                Some(rounds) => rounds.requests.push_back((request.sent, packet)),
                // A node sends as many packets unasked.
                None if packets <= 2 => self.launch(request.sent, packet),
                None => {
                    self.wire_free = self.wire_free.max(request.sent);
                    self.pending.push_back(packet);
                }
            }
        }
    }

    /// Puts a packet on the link, once the one before it has left.
    fn launch(&mut self, cycle: u64, packet: Packet) {
        let first = cycle.max(self.wire_free);
        self.wire_free = first + packet.wire_words();
        self.towards.push_back((first + self.link_cycles, packet));
    }

    /// Takes a packet of the node, whose first word leaves the node in cycle `first`. Returns whether it
    /// completes an answer.
    pub(crate) fn take(&mut self, first: u64, packet: &Packet) -> bool {
        if packet.destination != self.address {
            self.strays.elsewhere += 1;
            return false;
        }
        if !packet.is_data() {
            return false;
        }
        let pull_offset = u16::from(packet.packet_offset) + 3;
        let reply = Packet { pull_offset, ..packet.reply(flag::ACK | flag::PULL) };
        let arrival = first + self.link_cycles;
        match &mut self.rounds {
            Some(rounds) => {
                let reply = Packet { payload: vec![0; ACKNOWLEDGEMENT_BYTES], ..reply };
                let last = arrival + packet.wire_words() - 1;
                rounds.acknowledgements.push_back((arrival, last, reply));
            }
            None if self.pending.is_empty() && self.between.is_empty() => {
                self.launch(arrival + packet.wire_words(), reply);
            }
            None => self.between.push_back((arrival + packet.wire_words(), reply)),
        }
        let Some(payload) = self.assemble(arrival, packet) else { return false };
        let number = usize::from(packet.destination_context);
        // Several requests can have this context: the answer is for the oldest unanswered one.
        let slot = (number..self.answers.len()).step_by(CONTEXTS).find(|&slot| self.answers[slot].is_none());
        match slot {
            Some(slot) => self.answers[slot] = Some(Answer { received: payload.0, payload: payload.1 }),
            None => self.strays.answers += 1,
        }
        slot.is_some()
    }

    /// The whole answer and when its first word came, once all its packets are there.
    fn assemble(&mut self, arrival: u64, packet: &Packet) -> Option<(u64, Vec<u8>)> {
        if packet.message_packets() == 1 {
            return Some((arrival, packet.payload.clone()));
        }
        let index = self.parts.iter().position(|part| part.0 == packet.message).unwrap_or_else(|| {
            self.parts.push((packet.message, arrival, vec![0; packet.message_bytes.into()], 0));
            self.parts.len() - 1
        });
        let part = &mut self.parts[index];
        let start = usize::from(packet.packet_offset) * SEGMENT_BYTES;
        part.2[start..start + packet.payload.len()].copy_from_slice(&packet.payload);
        part.3 |= 1 << packet.packet_offset;
        let is_whole = part.3.count_ones() as usize == packet.message_packets();
        is_whole.then(|| {
            let (_, first, payload, _) = self.parts.swap_remove(index);
            (first, payload)
        })
    }
}
