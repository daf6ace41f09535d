//! From packets to messages to words in a core's queue: reassembly, and the queue in front of the cores.

use std::collections::{BTreeMap, VecDeque};

use super::NicConfig;
use super::select::{Selection, Selector};
use super::transport::{Arriving, Transport};
use crate::packet::{AppHeader, HEADER_BYTES, Packet, SEGMENT_BYTES, flag, words_of};
use crate::timeline::{Stage, Timeline};

/// From the last word on the interface to the packet's way out of the ingress pipeline: two cycles of widening, five of parsing
/// and looking up the message.
pub(super) const INGRESS_CYCLES: u64 = 7;
/// Words of a packet's headers, and of the shortest payload of which cycles were published.
const HEADER_WORDS: u64 = HEADER_BYTES as u64 / 8;
const PAYLOAD_WORDS_MIN: u64 = 2;
/// From there to the whole message.
const REASSEMBLY_CYCLES: u64 = 3;
/// From a message to its first word in a core's queue.
const DISPATCH_CYCLES: u64 = 2;
/// From a core's "done" to the next message on its way.
const NEXT_CYCLES: u64 = 2;
/// Finished messages of each sender that are remembered, to know their packets if they come again.
const REMEMBERED: usize = 64;

/// What arrived, and what was turned away.
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
    /// Packets for contexts that no core has.
    pub unknown_context: u64,
}

/// A whole message.
#[derive(Clone, Debug)]
struct Message {
    context: u16,
    header: AppHeader,
    payload: Vec<u8>,
    class: usize,
}

impl Message {
    fn words(&self) -> VecDeque<u64> {
        std::iter::once(self.header.word()).chain(words_of(&self.payload)).collect()
    }
}

/// A message some packets of which are there.
#[derive(Clone, Debug)]
struct Partial {
    state: Arriving,
    payload: Vec<u8>,
    class: usize,
}

/// A message on its way into a core's queue, a word per cycle.
#[derive(Clone, Debug)]
struct Delivery {
    core: usize,
    context: u16,
    words: VecDeque<u64>,
    is_first: bool,
    next: u64,
}

/// A word on its way into a core's receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliveredWord {
    /// The core.
    pub core: usize,
    /// The context whose queue it is for.
    pub context: u16,
    /// The word.
    pub word: u64,
    /// Whether it begins a message.
    pub is_first: bool,
}

/// The receiving half of the NIC.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    ingress: VecDeque<(u64, Packet)>,
    partial: BTreeMap<(u32, u16), Partial>,
    /// The numbers of each sender's last messages, as they were finished.
    finished: BTreeMap<u32, VecDeque<u16>>,
    /// Free buffers per size class.
    free: [usize; 2],
    /// Buffers by context, where they are bounded.
    held: BTreeMap<u16, usize>,
    buffers_per_context: Option<usize>,
    whole: VecDeque<(u64, Message)>,
    contexts: BTreeMap<u16, Selector<Message>>,
    selection: Selection,
    cores: usize,
    /// Messages that have a core, and the first cycle in which a word may leave.
    assigned: VecDeque<(u64, usize, Message)>,
    delivery: Option<Delivery>,
    /// When the reassembled words have left the buffer.
    buffer_free: u64,
    pub(super) counters: ReceiveCounters,
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
        let NicConfig { selection, buffers, buffers_per_context, .. } = *config;
        Receiver {
            held: BTreeMap::new(),
            buffers_per_context,
            ingress: VecDeque::new(),
            partial: BTreeMap::new(),
            finished: BTreeMap::new(),
            free: buffers,
            whole: VecDeque::new(),
            contexts: BTreeMap::new(),
            selection,
            cores,
            assigned: VecDeque::new(),
            delivery: None,
            buffer_free: 0,
            counters: ReceiveCounters::default(),
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
        let (selection, cores) = (self.selection, self.cores);
        let selector = self.contexts.entry(context);
        let selector = selector.or_insert_with(|| Selector::without_cores(selection, cores));
        let waited = selector.join(core).into_iter();
        self.assigned.extend(waited.map(|message| (cycle + NEXT_CYCLES, core, message)));
    }

    /// A core has finished a message.
    pub(super) fn finish(&mut self, cycle: u64, core: usize, context: u16) {
        let next = self.contexts.get_mut(&context).and_then(|selector| selector.finish(core));
        if let Some(message) = next {
            self.assigned.push_back((cycle + NEXT_CYCLES, core, message));
        }
    }

    /// The packet that leaves ingress in this cycle, if one does.
    pub(super) fn poll_ingress(&mut self, cycle: u64) -> Option<Packet> {
        let is_due = self.ingress.front().is_some_and(|&(due, _)| due <= cycle);
        is_due.then(|| self.ingress.pop_front().expect("there is a first").1)
    }

    /// Takes a DATA packet, and says what to answer.
    pub(super) fn take(
        &mut self,
        cycle: u64,
        packet: Packet,
        transport: &mut dyn Transport,
    ) -> Option<Reply> {
        self.counters.packets += 1;
        if !self.contexts.contains_key(&packet.destination_context) {
            self.counters.unknown_context += 1;
            return None;
        }
        let key = (packet.source, packet.message);
        let class = usize::from(usize::from(packet.message_bytes) > SEGMENT_BYTES);
        if !self.partial.contains_key(&key) {
            if self.free[class] == 0 || !self.is_within_quota(packet.destination_context) {
                self.counters.without_buffer += 1;
                return None;
            }
            self.free[class] -= 1;
            *self.held.entry(packet.destination_context).or_default() += 1;
            let payload = vec![0; packet.message_bytes.into()];
            let state = Arriving::default();
            self.partial.insert(key, Partial { state, payload, class });
        }
        let partial = self.partial.get_mut(&key).expect("just looked up");
        let answer = transport.on_data(&mut partial.state, &packet);
        if packet.flags & flag::CHOP == 0 {
            self.keep(cycle, key, &packet);
        } else {
            self.counters.trimmed += 1;
        }
        let priority = transport.control_priority();
        Some(Reply { packet: Packet { priority, ..packet.reply(answer.verdict) }, pull: answer.pull })
    }

    fn is_within_quota(&self, context: u16) -> bool {
        let held = self.held.get(&context).copied().unwrap_or(0);
        self.buffers_per_context.is_none_or(|quota| held < quota)
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
        if partial.state.arrived.count_ones() as usize == packet.message_packets() {
            let payload = std::mem::take(&mut partial.payload);
            let header = AppHeader {
                peer: packet.source,
                context: packet.source_context,
                bytes: packet.message_bytes,
            };
            let message =
                Message { context: packet.destination_context, header, payload, class: partial.class };
            self.counters.messages += 1;
            self.whole.push_back((cycle + REASSEMBLY_CYCLES, message));
            self.remember(key);
        }
    }

    /// One cycle of the queue in front of the cores: at most one message is selected a core, and one word delivered.
    pub(super) fn tick(&mut self, cycle: u64, timeline: &mut Timeline) -> Option<DeliveredWord> {
        if cycle >= self.buffer_free
            && let Some(&(due, _)) = self.whole.front()
            && due <= cycle
        {
            let (_, message) = self.whole.pop_front().expect("there is a first");
            timeline.mark(cycle, Stage::Reassembled, message.payload.len() as u64);
            // The buffer is read 64 bytes a cycle, and the first of them holds the application header.
            self.buffer_free = cycle + 1 + message.payload.len() as u64 / 64;
            let hash = flow_hash(&message);
            let selector = self.contexts.get_mut(&message.context).expect("checked on arrival");
            if let Some((core, message)) = selector.arrive(message, hash) {
                self.assigned.push_back((cycle + DISPATCH_CYCLES, core, message));
            }
        }
        self.deliver(cycle)
    }

    fn deliver(&mut self, cycle: u64) -> Option<DeliveredWord> {
        if self.delivery.is_none()
            && let Some(&(due, ..)) = self.assigned.front()
            && due <= cycle
        {
            let (_, core, message) = self.assigned.pop_front().expect("there is a first");
            self.free[message.class] += 1;
            if let Some(held) = self.held.get_mut(&message.context) {
                *held = held.saturating_sub(1);
            }
            let (context, words) = (message.context, message.words());
            self.delivery = Some(Delivery { core, context, words, is_first: true, next: cycle });
        }
        let delivery = self.delivery.as_mut().filter(|delivery| delivery.next <= cycle)?;
        let word = delivery.words.pop_front().expect("a delivery ends with its last word");
        let Delivery { core, context, is_first, .. } = *delivery;
        (delivery.is_first, delivery.next) = (false, cycle + 1);
        if delivery.words.is_empty() {
            self.delivery = None;
        }
        Some(DeliveredWord { core, context, word, is_first })
    }

    /// A message is finished, and another one forgotten for it.
    fn remember(&mut self, (source, message): (u32, u16)) {
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
        let whole = self.whole.front().map(|&(due, _)| due.max(self.buffer_free));
        let assigned = self.assigned.front().map(|&(due, ..)| due);
        let delivery = self.delivery.as_ref().map(|delivery| delivery.next);
        [ingress, whole, assigned, delivery].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

/// A hash of the flow, by which RSS selects.
fn flow_hash(message: &Message) -> u64 {
    let flow = u64::from(message.header.peer) << 16 | u64::from(message.header.context);
    let mixed = flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::Ndp;

    /// Gives a receiver one-packet messages with these numbers; how many it took for new ones.
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
}
