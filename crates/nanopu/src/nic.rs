//! The NIC: from words on the wire to words in a core's queue, and back (nanoPU §3.4).
//!
//! ```text
//! wire ─► widen ─► ingress ─┬─► reassembly ─► core selection ─► local receive queues
//!                           ├─► credit, acknowledgements of our messages
//!                           └─► generator of control packets ─┐
//! wire ◄──────── egress ◄──────────────── arbiter ◄───────────┴── packetization ◄─ local transmit queues
//! ```
//!
//! Each arrow costs the cycles of the authors' hardware; the constants stand beside the code that uses them.

pub mod blocks;
mod buffers;
pub(crate) mod dispatch;
mod pace;
mod receive;
mod select;
mod selection;
mod send;
mod timing;
mod transport;
mod tree;

pub use dispatch::DeliveredWord;
pub use receive::{ReceiveCounters, Reply};
pub use select::Selector;
pub use selection::{Selection, TreeShape};
pub use send::SendCounters;
pub use timing::SelectionTiming;
pub use transport::{
    Answer, Arriving, Departing, Homa, HomaConfig, Ndp, PipelineCycles, RoundTrips, Taken, Transport,
    TransportKind, bit,
};
pub use tree::{Joined, Tree};

use crate::interface::{Demand, Interface};
use crate::packet::{HEADER_BYTES, Packet, flag};
use receive::Receiver;
use send::Sender;

use crate::timeline::{Stage, Stamp, Timeline};

/// Where whole messages wait for a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Behind reassembly in one FIFO for all contexts, and from there in a queue of each context, as on the prototype. A message whose
    /// context's queue is full holds up all messages behind it, of whatever context. Its receive buffer is free when it leaves the FIFO.
    ///
    /// Messages that need more than this NIC's prototype has wait in their buffers instead: long ones, and those of NICs with quotas or
    /// trees.
    Fifo {
        /// Words of 64 bytes in the queue of a context.
        context_words: usize,
    },
    /// In their receive buffers, which are free when the first word goes to a core.
    Buffers,
}

impl Waiting {
    /// The prototype's: 64 messages of 16 bytes.
    pub const PROTOTYPE: Waiting = Waiting::Fifo { context_words: 64 };
}

/// How long messages are known by their numbers, so that their packets count once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbers {
    /// While they are in reassembly, and by the low seven bits of the number only, as on the prototype. A packet that comes again later
    /// makes a message again, and one of a message whose seven bits another has is dropped.
    InReassembly,
    /// Until the sender has finished 64 others.
    Remembered,
}

/// How a NIC is built. The defaults are the published prototype's, but for [`NicConfig::numbers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicConfig {
    /// Its IPv4 address.
    pub address: u32,
    /// How messages find their cores.
    pub selection: Selection,
    /// Whether selection takes longer the more cores there are ([`SelectionTiming::estimate`]). Otherwise it
    /// takes the prototype's time for four cores.
    pub selection_slows: bool,
    /// Message buffers of 1 KiB and of 2 KiB, in each direction.
    pub buffers: [usize; 2],
    /// Whether messages for which no small receive buffer is free take one of the others, as on the prototype.
    pub overflows: bool,
    /// Where whole messages wait for a core.
    pub waiting: Waiting,
    /// How long messages are known by their numbers.
    pub numbers: Numbers,
    /// Packets of a round trip, which [`Nic::ndp`] sends unasked.
    pub rtt_packets: u16,
    /// How long a message waits for its acknowledgements, in cycles.
    pub timeout_cycles: u64,
    /// The pace of pulls, in cycles.
    pub pull_cycles: u64,
    /// Whether messages reach cores before all of the packet that completes them is there, and messages of one packet leave before all of it
    /// is written.
    /// The prototype stores both ways.
    pub cut_through: Option<CutThrough>,
    /// How many receive buffers one context may hold, so that a context that falls behind takes none from the others. The prototype has no
    /// such bound.
    pub buffers_per_context: Option<usize>,
    /// Whether a message that waits for a send buffer lets the words of other contexts of its core pass. On the prototype it does not, and
    /// may wait for a message behind it: see [`Nic::deadlocked`].
    pub sends_by_context: bool,
    /// Messages of more than 2 KiB, and buffers made for them. The prototype has none.
    pub long_messages: Option<LongMessages>,
}

/// Messages longer than the prototype's, up to the range of the length field on the wire: memory is one pool
/// of segments of 1 KiB in each direction, instead of [`NicConfig::buffers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongMessages {
    /// The longest message, at most as long as all segments together.
    pub bytes_max: u16,
    /// Segments of each direction.
    pub segments: usize,
    /// Whether a message of several packets goes to its core as its packets come in, and not when all are
    /// there. The program's reads must be able to wait
    /// ([`NodeConfig::blocking_reads`](crate::NodeConfig::blocking_reads)), and while the program waits for a
    /// packet, all messages behind this one wait as well. Not possible with trees.
    pub streams: bool,
}

impl Default for LongMessages {
    /// As much memory as the prototype's 64 buffers of 1 KiB and 64 of 2 KiB.
    fn default() -> LongMessages {
        LongMessages { bytes_max: u16::MAX, segments: 192, streams: false }
    }
}

/// Cut-through, beyond the prototype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutThrough {
    /// The assumed pace of cores: a packet's first word leaves when at this pace the last one will be there
    /// in time. A core that is slower damages the packet, which is then sent again.
    pub quarter_cycles_per_word: u64,
    /// Whether the NIC learns: once a context has written a message of some size, its own pace counts for
    /// such messages.
    pub learns: bool,
}

impl Default for CutThrough {
    /// Four words in seven cycles: a loop that copies a few words at a time is faster.
    fn default() -> CutThrough {
        CutThrough { quarter_cycles_per_word: 7, learns: true }
    }
}

impl Default for NicConfig {
    fn default() -> NicConfig {
        NicConfig {
            address: 0x0a00_0002,
            selection: Selection::Jbsq(2),
            selection_slows: false,
            buffers: [64, 64],
            overflows: true,
            waiting: Waiting::PROTOTYPE,
            numbers: Numbers::Remembered,
            rtt_packets: 2,
            timeout_cycles: 2240,
            pull_cycles: 122,
            cut_through: None,
            buffers_per_context: None,
            sends_by_context: false,
            long_messages: None,
        }
    }
}

/// A NIC with the interfaces of its cores.
#[derive(Clone, Debug)]
pub struct Nic<T> {
    transport: T,
    receiver: Receiver,
    sender: Sender,
    timeline: Timeline,
    cuts_through: bool,
    /// Before this cycle the NIC has nothing to do by itself.
    quiet_until: u64,
}

impl Nic<Ndp> {
    /// A NIC that speaks NDP.
    pub fn ndp(config: &NicConfig, cores: usize) -> Nic<Ndp> {
        Nic::new(config, cores, Ndp { rtt_packets: config.rtt_packets })
    }
}

impl<T: Transport> Nic<T> {
    /// A NIC for `cores` cores.
    pub fn new(config: &NicConfig, cores: usize, transport: T) -> Nic<T> {
        Nic {
            receiver: Receiver::new(config, cores.max(1)),
            sender: Sender::new(config, &transport),
            transport,
            timeline: Timeline::default(),
            cuts_through: config.cut_through.is_some(),
            quiet_until: 0,
        }
    }

    /// A packet arrives whose last word is on the 64-bit interface in cycle `last`. Packets come in the order of `last`.
    pub fn receive(&mut self, last: u64, packet: Packet) {
        self.quiet_until = 0;
        let words = packet.wire_words();
        let message = Some(packet.source_context);
        self.timeline.mark_of((last + 1).saturating_sub(words), Stage::WireIn, words, message);
        let more_cycles = self.transport.pipeline_cycles().ingress;
        self.receiver.arrive(last - self.early_cycles(&packet), packet, more_cycles);
    }

    /// How long before its end a packet enters reassembly: words follow as fast as cores get them.
    fn early_cycles(&self, packet: &Packet) -> u64 {
        // The words of a message leave in order, so if this packet completes a longer one, its words leave
        // later than the wire brings them.
        let carries = packet.is_data() && packet.flags & flag::CHOP == 0;
        let headers = HEADER_BYTES as u64 / 8;
        if self.cuts_through && carries { packet.wire_words().saturating_sub(headers) } else { 0 }
    }

    /// Whether packets enter reassembly before they are whole on the wire, and leave before they are written.
    pub fn cuts_through(&self) -> bool {
        self.cuts_through
    }

    /// The beginning of a cycle: takes a word that a core wrote before.
    #[inline(always)]
    pub fn accept(&mut self, cycle: u64, interfaces: &mut [Interface]) {
        if interfaces.iter().any(Interface::has_sent)
            && self.sender.accept(cycle, interfaces, &mut self.transport, &mut self.timeline).is_some()
        {
            self.quiet_until = 0;
        }
    }

    /// The rest of a cycle, after the cores: the packet that the wire takes next, and the cycle of its first word.
    #[inline(always)]
    pub fn tick(&mut self, cycle: u64, interfaces: &mut [Interface]) -> Option<(u64, Packet)> {
        if cycle < self.quiet_until && !interfaces.iter().any(Interface::has_demands) {
            return None;
        }
        self.tick_busily(cycle, interfaces)
    }

    fn tick_busily(&mut self, cycle: u64, interfaces: &mut [Interface]) -> Option<(u64, Packet)> {
        for (core, interface) in interfaces.iter_mut().enumerate() {
            while let Some(demand) = interface.poll_demand() {
                match demand {
                    Demand::Insert { context } => self.receiver.insert(cycle, core, context),
                    Demand::Done { context } => self.receiver.finish(cycle, core, context),
                }
            }
        }
        if let Some(packet) = self.receiver.poll_ingress(cycle) {
            self.timeline.mark_of(cycle, Stage::Ingress, packet.wire_words(), Some(packet.source_context));
            self.take(cycle, packet);
        }
        let mut delivers = false;
        let deliver = |DeliveredWord { core, context, word, is_first }| {
            delivers = true;
            interfaces[core].deliver(cycle, context, word, is_first);
        };
        self.receiver.tick(cycle, &mut self.timeline, deliver);
        let sent = self.sender.tick(cycle, &mut self.transport, &mut self.timeline);
        // Another word usually follows a word.
        self.quiet_until = if delivers { 0 } else { self.next_event() };
        sent
    }

    /// Before this cycle there is nothing to do unless a core asks for it.
    #[inline(always)]
    pub(crate) fn quiet_until(&self) -> u64 {
        self.quiet_until
    }

    /// When something happens next by itself; `u64::MAX` if nothing does.
    pub fn next_event(&self) -> u64 {
        self.receiver.next_event().min(self.sender.next_event(&self.transport))
    }

    pub(crate) fn record_timeline(&mut self) {
        self.timeline.switch_on(None);
    }

    pub(crate) fn take_timeline(&mut self) -> Vec<Stamp> {
        self.timeline.take()
    }

    /// The cores whose words will never leave: each waits for a send buffer, all of which are held by messages that these cores have half
    /// written, and whose words stand behind.
    pub fn deadlocked(&self, interfaces: &[Interface]) -> Vec<usize> {
        self.sender.deadlocked(interfaces)
    }

    /// The longest message, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        self.sender.message_bytes_max()
    }

    /// Counters of the receiving half.
    pub fn received(&self) -> ReceiveCounters {
        self.receiver.counters
    }

    /// The cycle of the first packet for a context that no core has, and the context.
    pub fn first_stranger(&self) -> Option<(u64, u16)> {
        self.receiver.first_stranger
    }

    /// Counters of the sending half.
    pub fn sent(&self) -> SendCounters {
        self.sender.counters
    }

    fn take(&mut self, cycle: u64, packet: Packet) {
        // The packet is answered when its end has arrived.
        let whole = cycle + self.early_cycles(&packet);
        if !packet.is_data() {
            self.sender.on_control(cycle, &packet, &mut self.transport);
        } else if let Some(reply) = self.receiver.take(cycle, packet, &mut self.transport) {
            self.sender.answer(whole, reply.packet, reply.pull);
        }
        while let Some(packet) = self.transport.poll_control() {
            self.sender.control(whole, packet);
        }
    }
}
