//! From packets to messages to words in a core's queue: reassembly, and the queue in front of the cores.

use std::collections::{BTreeMap, VecDeque};

use super::buffers::Buffers;
use super::dispatch::{DeliveredWord, Dispatch, Message, Released};
use super::transport::{Arriving, Transport};
use super::{NicConfig, Numbers, Selection, Waiting};
use crate::packet::{AppHeader, Ecn, HEADER_BYTES, Packet, SEGMENT_BYTES, flag};
use crate::timeline::{Stage, Timeline};

/// Cycles from the last word on the interface to the packet's way out of the ingress pipeline: two cycles of
/// widening, five of parsing and looking up the message.
pub(super) const INGRESS_CYCLES: u64 = 7;
/// Words of a packet's headers, and of the shortest payload of which cycles were published.
const HEADER_WORDS: u64 = HEADER_BYTES as u64 / 8;
const PAYLOAD_WORDS_MIN: u64 = 2;
/// Cycles from there to the whole message.
const REASSEMBLY_CYCLES: u64 = 3;
/// Finished messages of each sender that are remembered, to know their packets if they come again.
const REMEMBERED: usize = 64;

/// Counters of packets that arrived or were turned away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiveCounters {
    /// DATA packets, trimmed and repeated ones included.
    pub packets: u64,
    /// Packets without their payload.
    pub trimmed: u64,
    /// Packets that had come before.
    pub duplicates: u64,
    /// Whole messages.
    pub messages: u64,
    /// Packets of messages that no buffer was free for.
    pub without_buffer: u64,
    /// Packets of messages whose number, as far as reassembly looks at it, is another's.
    pub number_taken: u64,
    /// Packets for contexts that no core has.
    pub unknown_context: u64,
    /// Packets of messages longer than a message may be.
    pub oversized: u64,
}

/// A message of which some packets have arrived.
#[derive(Clone, Debug)]
struct Partial {
    state: Arriving,
    payload: Vec<u8>,
    /// Bytes of it that are on their way to a core while the rest arrives.
    streamed: usize,
    /// The whole number; the key may be a part of it.
    message: u16,
    /// The length for which its memory was taken.
    memory_bytes: u16,
}

/// The receiving half of the NIC.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    ingress: VecDeque<(u64, Packet)>,
    partial: BTreeMap<(u32, u16), Partial>,
    /// The numbers of each sender's last messages, as they were finished.
    finished: BTreeMap<u32, VecDeque<u16>>,
    buffers: Buffers,
    /// Buffers by context, where they are bounded.
    held: BTreeMap<u16, usize>,
    buffers_per_context: Option<usize>,
    whole: VecDeque<(u64, Message)>,
    dispatch: Dispatch,
    /// When the reassembled words have left the buffer.
    buffer_free: u64,
    pub(super) counters: ReceiveCounters,
    /// The first packet for a context that no core has: its cycle and context.
    pub(super) first_stranger: Option<(u64, u16)>,
    streams: bool,
    numbers: Numbers,
    /// Words of 64 bytes in the queue of a context behind the FIFO, if there is one.
    context_words: Option<usize>,
}

/// A control packet that the receiver asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The packet, with the verdict for its flags.
    pub packet: Packet,
    /// The credit that it, or a packet after it, brings; paced.
    pub pull: Option<u16>,
}

impl Receiver {
    pub(super) fn new(config: &NicConfig, cores: usize) -> Receiver {
        let buffers = Buffers::for_receiving(config);
        let is_plain = config.long_messages.is_none()
            && config.buffers_per_context.is_none()
            && !matches!(config.selection, Selection::Tree(_));
        let context_words = match config.waiting {
            Waiting::Fifo { context_words } if is_plain => Some(context_words),
            Waiting::Fifo { .. } | Waiting::Buffers => None,
        };
        let dispatch = Dispatch::new(config, cores, buffers.is_held_to_the_end());
        Receiver {
            numbers: config.numbers,
            context_words,
            held: BTreeMap::new(),
            buffers_per_context: config.buffers_per_context,
            ingress: VecDeque::new(),
            partial: BTreeMap::new(),
            finished: BTreeMap::new(),
            dispatch: if context_words.is_some() { dispatch.released_before() } else { dispatch },
            buffers,
            whole: VecDeque::new(),
            buffer_free: 0,
            counters: ReceiveCounters::default(),
            first_stranger: None,
            streams: config.long_messages.is_some_and(|long| long.streams)
                && !matches!(config.selection, Selection::Tree(_)),
        }
    }

    /// A packet's last word is on the interface in cycle `last`. A transport that takes `more_cycles` than NDP does not wait for them
    /// beyond the payload's end.
    pub(super) fn arrive(&mut self, last: u64, packet: Packet, more_cycles: u64) {
        let behind_headers = (packet.wire_words() - HEADER_WORDS).saturating_sub(PAYLOAD_WORDS_MIN);
        let more = if packet.is_data() { more_cycles.saturating_sub(behind_headers) } else { 0 };
        self.ingress.push_back((last + INGRESS_CYCLES + more, packet));
    }

    /// A core has a thread for `context`.
    pub(super) fn insert(&mut self, cycle: u64, core: usize, context: u16) {
        self.dispatch.insert(cycle, core, context);
    }

    /// A core has finished a message.
    pub(super) fn finish(&mut self, cycle: u64, core: usize, context: u16) {
        self.dispatch.finish(cycle, core, context);
    }

    /// The packet that leaves ingress in this cycle, if one does.
    pub(super) fn poll_ingress(&mut self, cycle: u64) -> Option<Packet> {
        let is_due = self.ingress.front().is_some_and(|&(due, _)| due <= cycle);
        is_due.then(|| self.ingress.pop_front().expect("there is a first").1)
    }

    /// Takes a DATA packet, and returns the reply.
    pub(super) fn take(
        &mut self,
        cycle: u64,
        packet: Packet,
        transport: &mut dyn Transport,
    ) -> Option<Reply> {
        self.counters.packets += 1;
        if !self.dispatch.has(packet.destination_context) {
            self.counters.unknown_context += 1;
            self.first_stranger.get_or_insert((cycle, packet.destination_context));
            return None;
        }
        if usize::from(packet.message_bytes) > self.buffers.message_bytes_max() {
            self.counters.oversized += 1;
            return None;
        }
        let key = self.key(&packet);
        if let Some(partial) = self.partial.get(&key) {
            if partial.message != packet.message {
                self.counters.number_taken += 1;
                return None;
            }
        } else {
            let context = packet.destination_context;
            let cost = self.buffers.cost(packet.message_bytes);
            let fits = self.is_within_quota(context, cost);
            let Some(memory_bytes) = fits.then(|| self.buffers.take_for(packet.message_bytes)).flatten()
            else {
                self.counters.without_buffer += 1;
                return None;
            };
            *self.held.entry(context).or_default() += cost;
            let payload = vec![0; packet.message_bytes.into()];
            let state = Arriving::default();
            let message = packet.message;
            self.partial.insert(key, Partial { state, payload, streamed: 0, message, memory_bytes });
        }
        let partial = self.partial.get_mut(&key).expect("just looked up");
        transport.at(cycle);
        let answer = transport.on_data(&mut partial.state, &packet);
        if packet.flags & flag::CHOP == 0 {
            self.keep(cycle, key, &packet);
        } else {
            self.counters.trimmed += 1;
        }
        let priority = transport.control_priority();
        let echo = if packet.ecn == Ecn::Marked { flag::ECHO } else { 0 };
        let reply = Packet { priority, ..packet.reply(answer.verdict | echo) };
        Some(Reply { packet: reply, pull: answer.pull })
    }

    /// By what reassembly knows the packet's message.
    fn key(&self, packet: &Packet) -> (u32, u16) {
        /// The bits that the prototype looks at.
        const LOW_BITS: u16 = 0x7f;
        match self.numbers {
            Numbers::InReassembly => (packet.source, packet.message & LOW_BITS),
            Numbers::Remembered => (packet.source, packet.message),
        }
    }

    fn is_within_quota(&self, context: u16, cost: usize) -> bool {
        let held = self.held.get(&context).copied().unwrap_or(0);
        self.buffers_per_context.is_none_or(|quota| held + cost <= quota)
    }

    fn keep(&mut self, cycle: u64, key: (u32, u16), packet: &Packet) {
        let partial = self.partial.get_mut(&key).expect("the caller made it");
        let bit = 1u64 << packet.packet_offset.min(63);
        if partial.state.arrived & bit != 0 {
            self.counters.duplicates += 1;
            return;
        }
        let start = usize::from(packet.packet_offset) * SEGMENT_BYTES;
        let Some(room) = partial.payload.get_mut(start..start + packet.payload.len()) else { return };
        room.copy_from_slice(&packet.payload);
        partial.state.arrived |= bit;
        if self.streams && partial.payload.len() > SEGMENT_BYTES {
            self.stream(cycle, key, packet);
            return;
        }
        if partial.state.arrived.count_ones() as usize == packet.message_packets() {
            let payload = std::mem::take(&mut partial.payload);
            let header = AppHeader {
                peer: packet.source,
                context: packet.source_context,
                bytes: packet.message_bytes,
            };
            let memory_bytes = partial.memory_bytes;
            let context = packet.destination_context;
            let message = Message { context, header, payload, stream: None, key, memory_bytes };
            self.counters.messages += 1;
            self.whole.push_back((cycle + REASSEMBLY_CYCLES, message));
            self.remember(key);
        }
    }

    /// Hands on the packets that have arrived in order; the first of them also announces the message.
    fn stream(&mut self, cycle: u64, key: (u32, u16), packet: &Packet) {
        let partial = self.partial.get_mut(&key).expect("the caller made it");
        let bytes = partial.payload.len();
        let ready = (partial.state.arrived.trailing_ones() as usize * SEGMENT_BYTES).min(bytes);
        let before = std::mem::replace(&mut partial.streamed, ready);
        if ready == before {
            return;
        }
        let due = cycle + REASSEMBLY_CYCLES;
        if before == 0 {
            let header =
                AppHeader { peer: packet.source, context: packet.source_context, bytes: bytes as u16 };
            let (context, payload) = (packet.destination_context, Vec::new());
            let memory_bytes = partial.memory_bytes;
            let stream = Some(key);
            self.whole.push_back((due, Message { context, header, payload, stream, key, memory_bytes }));
        }
        self.dispatch.feed(key, due, &partial.payload[before..ready]);
        if ready == bytes {
            partial.payload = Vec::new();
            self.counters.messages += 1;
            self.remember(key);
        }
    }

    /// One cycle of the queue in front of the cores: at most one message is selected a core, and each bus delivers a word.
    pub(super) fn tick(&mut self, cycle: u64, timeline: &mut Timeline, on_word: impl FnMut(DeliveredWord)) {
        if cycle >= self.buffer_free.max(self.dispatch.next_choice())
            && let Some((due, message)) = self.whole.front()
            && *due <= cycle
            && self.lets_go(message)
        {
            let (_, message) = self.whole.pop_front().expect("there is a first");
            if self.context_words.is_some() {
                self.release(message.released_at_once(cycle));
            }
            if self.numbers == Numbers::InReassembly && message.stream.is_none() {
                self.partial.remove(&message.key);
            }
            let bytes = message.payload.len() as u64;
            timeline.mark_of(cycle, Stage::Reassembled, bytes, Some(message.header.context));
            // The buffer is read 64 bytes a cycle, and the first of them holds the application header.
            self.buffer_free = cycle + 1 + message.payload.len() as u64 / 64;
            self.dispatch.arrive(cycle, message);
        }
        self.dispatch.tick(cycle, on_word);
        while let Some(released) = self.dispatch.poll_released(cycle) {
            self.release(released);
        }
    }

    /// Whether the first message of the FIFO may leave it.
    fn lets_go(&self, message: &Message) -> bool {
        self.context_words.is_none_or(|words| self.dispatch.has_room(message, words))
    }

    fn release(&mut self, Released { bytes, context, .. }: Released) {
        self.buffers.give(bytes);
        if let Some(held) = self.held.get_mut(&context) {
            *held = held.saturating_sub(self.buffers.cost(bytes));
        }
    }

    /// A message is finished, and another one forgotten for it.
    fn remember(&mut self, (source, message): (u32, u16)) {
        if self.numbers == Numbers::InReassembly {
            return;
        }
        let numbers = self.finished.entry(source).or_default();
        numbers.push_back(message);
        if numbers.len() > REMEMBERED
            && let Some(oldest) = numbers.pop_front()
        {
            self.partial.remove(&(source, oldest));
        }
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> u64 {
        let ingress = self.ingress.front().map(|&(due, _)| due);
        // A message that its context's queue has no room for waits for a core's news.
        let whole = self.whole.front().filter(|(_, message)| self.lets_go(message));
        let whole = whole.map(|&(due, _)| due.max(self.buffer_free).max(self.dispatch.next_choice()));
        [ingress, whole, self.dispatch.next_event()].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Ndp;

    /// Gives a receiver one-packet messages with these numbers, and returns how many it took for new ones.
    fn messages(numbers: &[u16]) -> u64 {
        let mut receiver = Receiver::new(&NicConfig::default(), 1);
        receiver.insert(0, 0, 0);
        for &message in numbers {
            let packet = Packet { flags: flag::DATA, message, ..Packet::default() };
            assert!(receiver.take(0, packet, &mut Ndp { rtt_packets: 2 }).is_some());
        }
        receiver.counters.messages
    }

    #[test]
    fn a_sender_may_talk_to_others_in_between() {
        assert_eq!(messages(&[5, 133, 5 + 256]), 3);
        assert_eq!(messages(&[65_535, 0]), 2);
    }

    #[test]
    fn repeated_messages_are_known() {
        assert_eq!(messages(&[5, 6, 5, 133, 6]), 3);
    }

    /// A receiver as the prototype's, whose contexts 0 and 1 are on its only core.
    fn prototype() -> Receiver {
        let mut receiver =
            Receiver::new(&NicConfig { numbers: Numbers::InReassembly, ..NicConfig::default() }, 1);
        receiver.insert(0, 0, 0);
        receiver.insert(0, 0, 1);
        receiver
    }

    /// A message of 16 bytes that comes in `cycle`, which runs; says whether there was a reply.
    fn ask(receiver: &mut Receiver, cycle: u64, message: u16, context: u16) -> bool {
        ask_from(receiver, cycle, 1, message, context)
    }

    fn ask_from(receiver: &mut Receiver, cycle: u64, source: u32, message: u16, context: u16) -> bool {
        let payload = vec![0; 16];
        let packet = Packet {
            source,
            flags: flag::DATA,
            message,
            destination_context: context,
            message_bytes: 16,
            payload,
            ..Packet::default()
        };
        let reply = receiver.take(cycle, packet, &mut Ndp { rtt_packets: 2 });
        receiver.tick(cycle, &mut Timeline::default(), |_| {});
        reply.is_some()
    }

    fn pass(receiver: &mut Receiver, cycles: std::ops::Range<u64>) -> Vec<u16> {
        let mut contexts = Vec::new();
        for cycle in cycles {
            receiver.tick(cycle, &mut Timeline::default(), |word| {
                contexts.extend(word.is_first.then_some(word.context));
            });
        }
        contexts
    }

    #[test]
    fn a_full_queue_holds_up_messages_of_other_contexts() {
        // Two messages at the core, 64 in the queue of context 1, and the 67th in front of an urgent one.
        let fill = |receiver: &mut Receiver, messages: u16| {
            for number in 0..messages {
                assert!(ask(receiver, 100 + 10 * u64::from(number), number, 1));
            }
        };
        let mut receiver = prototype();
        fill(&mut receiver, 66);
        assert!(ask(&mut receiver, 2000, 100, 0));
        assert_eq!(pass(&mut receiver, 2001..2100), [0], "there is still room");
        let mut receiver = prototype();
        fill(&mut receiver, 67);
        assert!(ask(&mut receiver, 2000, 100, 0));
        assert_eq!(pass(&mut receiver, 2001..2100), [], "the urgent message stands behind");
        assert_eq!(receiver.next_event(), u64::MAX, "and nothing happens by itself");
        receiver.finish(2100, 0, 1);
        assert_eq!(pass(&mut receiver, 2100..2200), [1, 0]);
    }

    #[test]
    fn buffers_are_free_when_messages_leave_the_fifo() {
        // 2 at the core, 64 in the queue, and 128 in reassembly, the small ones in large buffers, too.
        let mut receiver = prototype();
        // Two senders, because one has 128 numbers only.
        let taken = (0..200u16).filter(|&number| {
            let source = u32::from(number / 100);
            ask_from(&mut receiver, 100 + 10 * u64::from(number), source, number % 100, 1)
        });
        assert_eq!(taken.count(), 2 + 64 + 128);
        assert_eq!((receiver.counters.without_buffer, receiver.counters.number_taken), (6, 0));
    }

    #[test]
    fn a_number_is_taken_while_its_message_is_in_reassembly() {
        let mut receiver = prototype();
        assert!((0..67).all(|number| ask(&mut receiver, 100 + 10 * u64::from(number), number, 1)));
        // Number 66 waits in reassembly, number 65 has left it.
        assert!(!ask(&mut receiver, 1000, 66 + 128, 1));
        assert!(ask(&mut receiver, 1010, 65 + 128, 1));
        assert!(ask(&mut receiver, 1020, 66, 1), "the same message again is acknowledged");
        let counters = receiver.counters;
        assert_eq!((counters.number_taken, counters.duplicates, counters.messages), (1, 1, 68));
    }
}
