//! From words to packets: packetization, credit, timers, and the wire.

mod departures;

use std::collections::{BTreeMap, VecDeque};

use super::NicConfig;
use super::buffers::Buffers;
use super::pace::Pace;
use super::transport::{Departing, Transport};
use crate::interface::Interface;
use crate::packet::{AppHeader, Ecn, HEADER_BYTES, Packet, SEGMENT_BYTES, flag};
use crate::timeline::{Stage, Timeline};

/// From a packet's last word to the arbiter, and from there to the first word on the wire.
const PACKETIZE_CYCLES: u64 = 3;
/// From a control packet's cause to the arbiter.
const GENERATE_CYCLES: u64 = 2;
/// From the arbiter to the wire, in NDP.
const EGRESS_CYCLES: u64 = 1;
/// Words of a packet's headers.
const HEADER_WORDS: u64 = HEADER_BYTES as u64 / 8;
/// One timer is looked at in so many cycles.
const SCAN_CYCLES: u64 = 2;

/// Counters of packets that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendCounters {
    /// DATA packets, repetitions included.
    pub packets: u64,
    /// Of those, the ones that had been sent before.
    pub repeated: u64,
    /// Control packets.
    pub control: u64,
    /// Messages begun.
    pub messages: u64,
    /// Messages all packets of which have arrived.
    pub delivered: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Messages with more bytes than a message can have; their words are thrown away.
    pub oversized: u64,
    /// Packets that were on the wire before their words were there: damaged, and sent again.
    pub underruns: u64,
}

/// A message of ours.
#[derive(Clone, Debug)]
struct Outgoing {
    /// The number that receivers know it by: of more bits than there are buffers, so that a receiver that has seen no message in
    /// between does not take the next one in the same buffer for this one again.
    sequence: u16,
    context: u16,
    header: AppHeader,
    payload: Vec<u8>,
    /// Bytes that the core has written, whole words.
    written: usize,
    state: Departing,
    sent: u64,
    deadline: u64,
}

impl Outgoing {
    fn packets(&self) -> u32 {
        crate::packet::packets_of(self.header.bytes) as u32
    }

    /// Packets that could leave: complete, and within the credit.
    fn allowed(&self) -> u64 {
        let whole = match self.written >= usize::from(self.header.bytes) {
            true => self.packets(),
            false => (self.written / SEGMENT_BYTES) as u32,
        };
        mask(whole.min(self.state.credit.into()))
    }

    /// The cycle before which no packet of it leaves.
    fn earliest(&self, transport: &dyn Transport) -> u64 {
        transport.earliest(self.header.peer, &self.state)
    }

    fn is_delivered(&self) -> bool {
        self.state.delivered == mask(self.packets())
    }
}

/// A message that a core is writing.
#[derive(Clone, Copy, Debug)]
enum Writing {
    /// Into this buffer.
    Buffer(u16),
    /// Nowhere: so many words are thrown away.
    Nowhere(usize),
}

/// The sending half of the NIC.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    address: u32,
    writing: BTreeMap<(usize, u16), Writing>,
    messages: Vec<Option<Outgoing>>,
    buffers: Buffers,
    next_message: u16,
    next_sequence: u16,
    /// Packets by urgency: new, credited, timed out. Each is a message and a packet of it, and when it may leave.
    queues: [VecDeque<(u64, u16, u32)>; 3],
    control: VecDeque<(u64, Packet)>,
    pulls: VecDeque<Packet>,
    next_pull: u64,
    pull_cycles: u64,
    timeout_cycles: u64,
    /// No message's deadline is before this cycle.
    next_deadline: u64,
    wire_free: u64,
    /// From the arbiter to the wire.
    egress_cycles: u64,
    /// How fast cores write, if packets may leave before they are whole.
    pace: Option<Pace>,
    by_context: bool,
    /// Of data packets.
    ecn: Ecn,
    /// A message has waited for a cycle of its own ([`Transport::earliest`]), so any may.
    is_paced: bool,
    /// Whether to make up for lost pulls: when all packets of a message that left have arrived and its credit
    /// is used up, a pull was lost, and one packet leaves without credit. The prototype's messages are short
    /// enough not to need it.
    makes_up_for_pulls: bool,
    /// The packet that is on the wire, or about to be, while its core still writes it.
    cut: Option<Cut>,
    /// Such a packet when it is whole, and the cycle of its first word.
    whole: Option<(u64, Packet)>,
    pub(super) counters: SendCounters,
}

/// A packet that leaves while it is written.
#[derive(Clone, Copy, Debug)]
struct Cut {
    number: u16,
    /// When its header was accepted.
    begun: u64,
    /// When it may leave.
    start: u64,
    /// When it left, if it has.
    first: Option<u64>,
    /// The most cycles that a word was behind its place.
    lag: u64,
    is_written: bool,
}

impl Sender {
    pub(super) fn new(config: &NicConfig, transport: &dyn Transport) -> Sender {
        let NicConfig { address, timeout_cycles, pull_cycles, cut_through, sends_by_context, .. } = *config;
        let buffers = Buffers::new(config);
        Sender {
            address,
            pace: cut_through.map(Pace::new),
            by_context: sends_by_context,
            ecn: if transport.is_ecn_capable() { Ecn::Capable } else { Ecn::NotCapable },
            is_paced: false,
            makes_up_for_pulls: config.long_messages.is_some(),
            cut: None,
            whole: None,
            writing: BTreeMap::new(),
            messages: vec![None; buffers.messages_max()],
            buffers,
            next_message: 0,
            next_sequence: 0,
            queues: Default::default(),
            control: VecDeque::new(),
            pulls: VecDeque::new(),
            next_pull: 0,
            pull_cycles,
            timeout_cycles,
            next_deadline: u64::MAX,
            wire_free: 0,
            egress_cycles: EGRESS_CYCLES + transport.pipeline_cycles().egress,
            counters: SendCounters::default(),
        }
    }

    /// Takes one word of one core, if any has written one; lower numbers first. Returns the core.
    pub(super) fn accept(
        &mut self,
        cycle: u64,
        interfaces: &mut [Interface],
        transport: &mut dyn Transport,
        timeline: &mut Timeline,
    ) -> Option<usize> {
        for (core, interface) in interfaces.iter_mut().enumerate() {
            let heads = interface.sent_heads().take(if self.by_context { usize::MAX } else { 1 });
            let accepted = heads
                .into_iter()
                .find(|&(_, context, word)| self.accept_word(cycle, (core, context), word, transport));
            let Some((place, context, word)) = accepted else { continue };
            interface.take_sent_at(place);
            timeline.mark_word(cycle, Stage::WordAccepted, (core, context), word);
            return Some(core);
        }
        None
    }

    /// Takes a word of a core's context. False if it begins a message for which there is no buffer.
    fn accept_word(
        &mut self,
        cycle: u64,
        key: (usize, u16),
        word: u64,
        transport: &mut dyn Transport,
    ) -> bool {
        match self.writing.get(&key).copied() {
            None => return self.begin(cycle, key, AppHeader::from_word(word), transport),
            Some(Writing::Nowhere(words)) => self.skip(key, words),
            Some(Writing::Buffer(number)) => self.write(cycle, key, number, word),
        }
        true
    }

    /// See [`Nic::deadlocked`](super::Nic::deadlocked).
    pub(super) fn deadlocked(&self, interfaces: &[Interface]) -> Vec<usize> {
        // The cores that wait for a buffer, and the bytes of their messages.
        let mut waiting: BTreeMap<usize, u16> = BTreeMap::new();
        for (core, interface) in interfaces.iter().enumerate().filter(|_| !self.by_context) {
            let Some((context, word)) = interface.peek_sent() else { continue };
            let bytes = AppHeader::from_word(word).bytes;
            let is_long = usize::from(bytes) > self.buffers.message_bytes_max();
            if !self.writing.contains_key(&(core, context)) && !is_long && !self.buffers.fits(bytes) {
                waiting.insert(core, bytes);
            }
        }
        // A core does not wait for ever if it waits for the buffer of a message that another core will end.
        loop {
            let writers: BTreeMap<u16, usize> = self.writers().collect();
            let ends =
                |number: usize| writers.get(&(number as u16)).is_none_or(|core| !waiting.contains_key(core));
            let held = self.messages.iter().enumerate();
            let held: Vec<_> =
                held.filter_map(|(number, it)| Some((number, it.as_ref()?.header.bytes))).collect();
            let is_helped =
                |bytes: u16| held.iter().any(|&(number, it)| ends(number) && self.buffers.share(bytes, it));
            let helped: Vec<usize> =
                waiting.iter().filter(|&(_, &bytes)| is_helped(bytes)).map(|(&core, _)| core).collect();
            if helped.is_empty() {
                return waiting.into_keys().collect();
            }
            waiting.retain(|core, _| !helped.contains(core));
        }
    }

    /// Messages that are being written, and by which core.
    fn writers(&self) -> impl Iterator<Item = (u16, usize)> + '_ {
        self.writing.iter().filter_map(|(&(core, _), writing)| match writing {
            Writing::Buffer(number) => Some((*number, core)),
            Writing::Nowhere(_) => None,
        })
    }

    /// The longest message, in bytes.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.buffers.message_bytes_max()
    }

    /// Begins a message with its first word. False if there is no room.
    fn begin(
        &mut self,
        cycle: u64,
        key: (usize, u16),
        header: AppHeader,
        transport: &mut dyn Transport,
    ) -> bool {
        let bytes = usize::from(header.bytes);
        if bytes > self.buffers.message_bytes_max() {
            self.counters.oversized += 1;
            self.writing.insert(key, Writing::Nowhere(bytes.div_ceil(8)));
            return true;
        }
        let Some(number) = self.take_number(header.bytes) else { return false };
        self.counters.messages += 1;
        transport.at(cycle);
        let state = transport.begin(header);
        self.is_paced |= transport.earliest(header.peer, &state) > 0;
        let (payload, deadline) = (Vec::with_capacity(bytes), u64::MAX);
        let sequence = self.next_sequence;
        self.next_sequence = sequence.wrapping_add(1);
        let context = key.1;
        self.messages[usize::from(number)] =
            Some(Outgoing { sequence, context, header, payload, written: 0, state, sent: 0, deadline });
        if bytes == 0 {
            self.schedule(cycle, number, 0);
        } else {
            self.writing.insert(key, Writing::Buffer(number));
            self.begin_cut(cycle, number, bytes, transport);
        }
        true
    }

    /// Lets a packet leave before it is written, if no other packet does so, and the core will keep ahead of
    /// the wire.
    fn begin_cut(&mut self, cycle: u64, number: u16, bytes: usize, transport: &dyn Transport) {
        let Some(pace) = &self.pace else { return };
        let is_alone = self.cut.is_none() && self.whole.is_none() && self.writing.len() == 1;
        let Some(message) = self.messages[usize::from(number)].as_ref() else { return };
        let waits = message.state.credit == 0 || message.earliest(transport) > cycle;
        if !is_alone || waits || bytes > SEGMENT_BYTES {
            return;
        }
        let words = bytes.div_ceil(8) as u64;
        // The headers are on the wire before its first word is needed.
        let lag = pace.lag(message.context, words);
        let start = cycle + PACKETIZE_CYCLES + lag.saturating_sub(HEADER_WORDS);
        self.cut = Some(Cut { number, begun: cycle, start, first: None, lag: 0, is_written: false });
    }

    /// Follows word `place` of a payload whose packet may already be on the wire.
    fn follow_cut(&mut self, cycle: u64, place: u64, is_done: bool) {
        let Some(cut) = &mut self.cut else { return };
        cut.lag = cut.lag.max(cycle.saturating_sub(place));
        cut.is_written = is_done;
        if let Some(first) = cut.first.filter(|_| is_done) {
            self.whole = self.end_cut(cycle, first).map(|packet| (first, packet));
        }
    }

    /// All words are written. Returns the packet, if each word was there when the wire wanted it.
    fn end_cut(&mut self, cycle: u64, first: u64) -> Option<Packet> {
        let cut = self.cut.take()?;
        let packet = self.packet_of(cycle, cut.number, 0)?;
        if let Some(pace) = &mut self.pace {
            let words = packet.payload.len().div_ceil(8) as u64;
            pace.on_written(packet.source_context, words, cut.lag.saturating_sub(cut.begun));
        }
        if cut.lag + PACKETIZE_CYCLES + self.egress_cycles <= first + HEADER_WORDS {
            return Some(packet);
        }
        self.counters.underruns += 1;
        self.schedule_again(cycle, cut.number);
        None
    }

    fn schedule_again(&mut self, cycle: u64, number: u16) {
        if let Some(message) = self.messages[usize::from(number)].as_mut() {
            message.sent = 0;
        }
        self.schedule(cycle, number, 0);
    }

    /// Takes a message number. Numbers go round, so that late packets of an old message do not meet a new
    /// one.
    fn take_number(&mut self, bytes: u16) -> Option<u16> {
        let count = self.messages.len() as u16;
        let number = (0..count)
            .map(|step| (self.next_message + step) % count)
            .find(|&number| self.messages[usize::from(number)].is_none())?;
        if !self.buffers.take(bytes) {
            return None;
        }
        self.next_message = (number + 1) % count;
        Some(number)
    }

    fn skip(&mut self, key: (usize, u16), words: usize) {
        match words {
            0 | 1 => self.writing.remove(&key),
            _ => self.writing.insert(key, Writing::Nowhere(words - 1)),
        };
    }

    fn write(&mut self, cycle: u64, key: (usize, u16), number: u16, word: u64) {
        let message = self.messages[usize::from(number)].as_mut().expect("it is being written");
        message.payload.extend(word.to_be_bytes());
        message.written += 8;
        let bytes = usize::from(message.header.bytes);
        let is_done = message.written >= bytes;
        if is_done {
            message.payload.truncate(bytes);
            self.writing.remove(&key);
        }
        let place = message.written as u64 / 8 - 1;
        if self.cut.is_some_and(|cut| cut.number == number) {
            message.sent |= 1;
            self.follow_cut(cycle, place, is_done);
        } else if is_done || message.written.is_multiple_of(SEGMENT_BYTES) {
            self.schedule(cycle, number, 0);
        }
    }

    /// Queues what a message may send now. `urgency`: 0 new, 1 credited, 2 timed out.
    fn schedule(&mut self, cycle: u64, number: u16, urgency: usize) {
        let Some(message) = self.messages[usize::from(number)].as_mut() else { return };
        let due = (message.allowed() & !message.sent) | (message.state.resend & message.allowed());
        message.sent |= due;
        message.state.resend &= !due;
        for packet in (0..message.packets()).filter(|packet| due >> packet & 1 != 0) {
            self.queues[urgency].push_back((cycle + PACKETIZE_CYCLES, number, packet));
        }
    }

    /// A control packet has arrived. Returns the number of the message that it completes, if it does.
    pub(super) fn on_control(&mut self, cycle: u64, packet: &Packet, transport: &mut dyn Transport) {
        let number = packet.buffer;
        let Some(Some(message)) = self.messages.get_mut(usize::from(number)) else { return };
        let is_ours = message.header.peer == packet.source && packet.message == message.sequence;
        // Numbers are used again, so a late answer may name a packet that has not left yet.
        let is_sent = u32::from(packet.packet_offset) < message.packets()
            && message.sent >> packet.packet_offset & 1 != 0;
        if !is_ours || !is_sent {
            return;
        }
        transport.at(cycle);
        transport.on_control(&mut message.state, packet);
        self.is_paced |= message.earliest(transport) > 0;
        if message.is_delivered() {
            self.counters.delivered += 1;
            self.buffers.give(message.header.bytes);
            self.messages[usize::from(number)] = None;
            return;
        }
        self.schedule(cycle, number, 1);
    }

    /// Answers a packet: the verdict now, the pull at its pace.
    pub(super) fn answer(&mut self, cycle: u64, mut packet: Packet, pull: Option<u16>) {
        let may_pull = self.pulls.is_empty() && cycle >= self.next_pull;
        match pull {
            Some(credit) if may_pull => {
                packet.flags |= flag::PULL;
                packet.pull_offset = credit;
                self.next_pull = cycle + self.pull_cycles;
            }
            Some(credit) => {
                let flags = flag::PULL;
                self.pulls.push_back(Packet { flags, pull_offset: credit, payload: Vec::new(), ..packet });
            }
            None => {}
        }
        self.control(cycle, packet);
    }

    /// Sends a control packet of the transport's own.
    pub(super) fn control(&mut self, cycle: u64, packet: Packet) {
        self.control.push_back((cycle + GENERATE_CYCLES, packet));
    }

    /// One cycle of pacing, timers and the wire: the packet whose first word leaves in the returned cycle.
    pub(super) fn tick(
        &mut self,
        cycle: u64,
        transport: &mut dyn Transport,
        timeline: &mut Timeline,
    ) -> Option<(u64, Packet)> {
        if cycle >= self.next_pull
            && let Some(pull) = self.pulls.pop_front()
        {
            self.next_pull = cycle + self.pull_cycles;
            self.control(cycle, pull);
        }
        self.scan_timers(cycle, transport);
        if let Some((first, packet)) = self.whole.take() {
            self.tell_sent(cycle, &packet, transport);
            return Some((first, packet));
        }
        if self.wire_free > cycle + self.egress_cycles {
            return None;
        }
        let first = cycle + self.egress_cycles;
        let packet = match self.next_control(cycle) {
            Some(packet) => packet,
            None if self.cut.is_some_and(|cut| cut.start <= cycle && cut.first.is_none()) => {
                self.start_cut(cycle, first, timeline)?
            }
            None => self.next_data(cycle, transport)?,
        };
        self.wire_free = first + packet.wire_words();
        let (words, message) = (packet.wire_words(), Some(packet.destination_context));
        let arbitrated = if packet.is_data() { Stage::Packetized } else { Stage::Controlled };
        timeline.mark_of(cycle, arbitrated, words, message);
        timeline.mark_of(first, Stage::WireOut, words, message);
        self.tell_sent(cycle, &packet, transport);
        Some((first, packet))
    }

    /// Puts the packet that is being written on the wire; returns it if it has been written by now.
    fn start_cut(&mut self, cycle: u64, first: u64, timeline: &mut Timeline) -> Option<Packet> {
        let cut = self.cut.as_mut()?;
        cut.first = Some(first);
        if cut.is_written {
            return self.end_cut(cycle, first);
        }
        let AppHeader { bytes, context, .. } = self.messages[usize::from(cut.number)].as_ref()?.header;
        let words = HEADER_WORDS + u64::from(bytes).div_ceil(8);
        self.wire_free = first + words;
        timeline.mark_of(cycle, Stage::Packetized, words, Some(context));
        timeline.mark_of(first, Stage::WireOut, words, Some(context));
        None
    }

    fn next_control(&mut self, cycle: u64) -> Option<Packet> {
        self.control.front().filter(|&&(due, _)| due <= cycle)?;
        let (_, packet) = self.control.pop_front()?;
        self.counters.control += 1;
        Some(packet)
    }

    fn next_data(&mut self, cycle: u64, transport: &dyn Transport) -> Option<Packet> {
        let (_, number, offset) = self.pop_due(cycle, transport)?;
        // The packet may have been acknowledged in the meantime and need not leave again, or the number may
        // be another message's by now, whose packet is not written yet. To find that out costs the cycle.
        let message = self.messages[usize::from(number)].as_mut()?;
        if (message.state.delivered | !message.sent) >> offset & 1 != 0 {
            return None;
        }
        self.packet_of(cycle, number, offset)
    }

    /// Packet `offset` of a message, which leaves now.
    fn packet_of(&mut self, cycle: u64, number: u16, offset: u32) -> Option<Packet> {
        let message = self.messages[usize::from(number)].as_mut()?;
        message.deadline = cycle + self.timeout_cycles;
        self.next_deadline = self.next_deadline.min(message.deadline);
        self.counters.packets += 1;
        let start = offset as usize * SEGMENT_BYTES;
        let end = (start + SEGMENT_BYTES).min(message.payload.len());
        Some(Packet {
            source: self.address,
            destination: message.header.peer,
            flags: flag::DATA,
            source_context: message.context,
            destination_context: message.header.context,
            message_bytes: message.header.bytes,
            packet_offset: offset as u8,
            pull_offset: 0,
            message: message.sequence,
            buffer: number,
            buffer_class: Buffers::class(message.header.bytes),
            priority: message.state.priority,
            grant_priority: 0,
            ecn: self.ecn,
            payload: message.payload.get(start..end).unwrap_or_default().to_vec(),
        })
    }

    fn scan_timers(&mut self, cycle: u64, transport: &mut dyn Transport) {
        if cycle < self.next_deadline || !cycle.is_multiple_of(SCAN_CYCLES) || self.messages.is_empty() {
            return;
        }
        self.next_deadline =
            self.messages.iter().flatten().map(|message| message.deadline).min().unwrap_or(u64::MAX);
        let number = (cycle / SCAN_CYCLES % self.messages.len() as u64) as u16;
        let Some(message) = self.messages[usize::from(number)].as_mut() else { return };
        if cycle < message.deadline {
            return;
        }
        message.deadline = cycle + self.timeout_cycles;
        transport.at(cycle);
        transport.on_timeout(&mut message.state, message.sent);
        self.is_paced |= message.earliest(transport) > 0;
        if self.makes_up_for_pulls && message.state.resend == 0 {
            message.state.credit = message.state.credit.saturating_add(1);
        }
        self.counters.timeouts += 1;
        self.counters.repeated += u64::from(message.state.resend.count_ones());
        self.schedule(cycle, number, 2);
    }

    /// When something happens next by itself, timers included.
    pub(super) fn next_event(&self, transport: &dyn Transport) -> u64 {
        let control = self.control.front().map(|&(due, _)| due);
        let pull = self.pulls.front().map(|_| self.next_pull);
        let data = self.next_departure(transport);
        let cut = self.cut.map(|cut| cut.start);
        let leaves = [control, data, cut].into_iter().flatten().min();
        let leaves = leaves.map(|due| due.max(self.wire_free.saturating_sub(self.egress_cycles)));
        [leaves, pull].into_iter().flatten().min().unwrap_or(u64::MAX).min(self.next_deadline)
    }
}

/// The lowest `count` bits.
fn mask(count: u32) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(count)).unwrap_or(0)
}
