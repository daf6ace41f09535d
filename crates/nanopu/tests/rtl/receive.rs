//! `receive_path` against [`ReceiveHalf`].

use std::collections::VecDeque;

use highwire_nanopu::nic::blocks::ReceiveHalf;
use highwire_nanopu::nic::{Ndp, NicConfig, ReceiveCounters, Selection, Waiting};
use highwire_nanopu::packet::{MESSAGE_BYTES_MAX, Packet, PacketError, SEGMENT_BYTES, flag, packets_of};
use highwire_stdx::Rng;

use crate::bench::{Bench, Block, join, ports};
use crate::compare::{Run, cycles};

/// From the last word on the wire to the way out of ingress.
const INGRESS_CYCLES: u64 = 7;
/// Contexts of all cores together.
const CONTEXTS: u16 = 4;
const NODE: u32 = 0x0a00_0002;

ports!(Inputs {
    wire_valid: u64,
    wire_last: u64,
    wire_word: u64,
    inserted: u64,
    finished: u64,
    demand_context: [u64; 1],
});

ports!(Outputs {
    deliver: u64,
    deliver_first: u64,
    deliver_core: u64,
    deliver_context: u64,
    deliver_word: u64,
    reply_valid: u64,
    reply_nack: u64,
    reply_credit: u64,
    control_valid: u64,
    packet_source: u64,
    packet_destination: u64,
    packet_flags: u64,
    packet_source_context: u64,
    packet_destination_context: u64,
    packet_bytes: u64,
    packet_offset: u64,
    packet_pull: u64,
    packet_message: u64,
    packet_buffer: u64,
    packet_class: u64,
    event_dropped: u64,
    event_duplicate: u64,
    event_without_buffer: u64,
    event_unknown_context: u64,
    event_message: u64,
});

/// A core's demand to the NIC in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Insert(u16),
    Done(u16),
}

/// The model, driven like the block.
struct Model {
    half: ReceiveHalf<Ndp>,
    cycle: u64,
    /// The words of the packet that comes in.
    incoming: Vec<u64>,
    /// Packets in ingress; `None` for bytes that are no packet.
    ingress: VecDeque<(u64, Option<Packet>)>,
}

impl Model {
    fn new(config: &NicConfig, cores: usize) -> Model {
        let half = ReceiveHalf::new(config, cores, Ndp { rtt_packets: config.rtt_packets });
        Model { half, cycle: 0, incoming: Vec::new(), ingress: VecDeque::new() }
    }

    /// A word on the wire with whether it is the last of its packet, and at most one demand per core.
    fn step(&mut self, wire: Option<(u64, bool)>, asks: &[Option<Asks>]) -> (Inputs, Outputs) {
        let (mut inputs, mut outputs) = (Inputs::default(), Outputs::default());
        let cycle = self.cycle;
        let before = self.half.counters();
        if let Some((word, is_last)) = wire {
            (inputs.wire_valid, inputs.wire_last, inputs.wire_word) = (1, is_last.into(), word);
            self.incoming.push(word);
            if is_last {
                let bytes: Vec<u8> = self.incoming.drain(..).flat_map(u64::to_be_bytes).collect();
                let packet = Packet::decode(&bytes);
                if let Ok(packet) = &packet {
                    self.half.arrive(cycle, packet.clone());
                }
                // Bytes shorter than the headers do not even enter.
                if !matches!(packet, Err(PacketError::Short { .. })) {
                    self.ingress.push_back((cycle + INGRESS_CYCLES, packet.ok()));
                }
            }
        }
        for (core, asks) in asks.iter().enumerate() {
            match *asks {
                Some(Asks::Insert(context)) => {
                    inputs.inserted |= 1 << core;
                    self.half.insert(cycle, core, context);
                }
                Some(Asks::Done(context)) => {
                    inputs.finished |= 1 << core;
                    self.half.finish(cycle, core, context);
                }
                None => {}
            }
        }
        inputs.demand_context = join(
            16,
            asks.iter().map(|asks| match *asks {
                Some(Asks::Insert(context) | Asks::Done(context)) => context.into(),
                None => 0,
            }),
        );
        let received = self.half.tick(cycle);
        if let Some(word) = received.word {
            (outputs.deliver, outputs.deliver_first) = (1, word.is_first.into());
            (outputs.deliver_core, outputs.deliver_context) = (word.core as u64, word.context.into());
            outputs.deliver_word = word.word;
        }
        if self.ingress.front().is_some_and(|&(due, _)| due == cycle) {
            match self.ingress.pop_front().expect("there is a first").1 {
                Some(packet) => outputs.show(&packet),
                None => outputs.event_dropped = 1,
            }
        }
        if let Some(reply) = received.reply {
            outputs.reply_valid = 1;
            outputs.reply_nack = u64::from(reply.packet.flags == flag::NACK);
            outputs.reply_credit = reply.pull.expect("NDP always pulls").into();
        }
        outputs.control_valid = received.control.is_some().into();
        outputs.count(before, self.half.counters());
        self.cycle += 1;
        (inputs, outputs)
    }
}

impl Outputs {
    fn show(&mut self, packet: &Packet) {
        (self.packet_source, self.packet_destination) = (packet.source.into(), packet.destination.into());
        self.packet_flags = packet.flags.into();
        self.packet_source_context = packet.source_context.into();
        self.packet_destination_context = packet.destination_context.into();
        (self.packet_bytes, self.packet_offset) = (packet.message_bytes.into(), packet.packet_offset.into());
        (self.packet_pull, self.packet_message) = (packet.pull_offset.into(), packet.message.into());
        (self.packet_buffer, self.packet_class) = (packet.buffer.into(), packet.buffer_class.into());
    }

    fn count(&mut self, before: ReceiveCounters, after: ReceiveCounters) {
        self.event_duplicate = after.duplicates - before.duplicates;
        self.event_without_buffer = after.without_buffer - before.without_buffer;
        self.event_unknown_context = after.unknown_context - before.unknown_context;
        self.event_message = after.messages - before.messages;
    }
}

/// The modules of `rtl/` let whole messages wait in their buffers, and each size of message has its own.
fn as_in_rtl() -> NicConfig {
    NicConfig { waiting: Waiting::Buffers, overflows: false, ..NicConfig::default() }
}

fn block(config: &NicConfig, cores: usize) -> Block {
    let (bound, hashed) = match config.selection {
        Selection::Jbsq(bound) => (bound.into(), 0),
        Selection::Rss => (1, 1),
        Selection::Tree(_) => panic!("the block has one level"),
    };
    Block {
        top: "receive_path",
        parameters: vec![
            ("CORES", cores as u64),
            ("BOUND", bound),
            ("HASHED", hashed),
            ("CONTEXTS", CONTEXTS.into()),
            ("BUFFERS_1K", config.buffers[0] as u64),
            ("BUFFERS_2K", config.buffers[1] as u64),
            ("RTT_PACKETS", config.rtt_packets.into()),
        ],
        mutant: None,
    }
}

/// Senders that lose, repeat, reorder and trim packets, and sometimes lie or send something else; and cores that come, and finish
/// messages.
struct Chaos {
    rng: Rng,
    cores: usize,
    selection: Selection,
    /// Packets that will be sent, of several messages.
    pending: Vec<Packet>,
    next_message: [u16; 4],
    words: VecDeque<u64>,
    /// Messages that each core has, by context.
    held: Vec<Vec<u16>>,
    joined: Vec<Vec<u16>>,
    gap: f64,
    ends: f64,
}

impl Chaos {
    fn new(seed: u64, cores: usize, selection: Selection) -> Chaos {
        Chaos {
            rng: Rng::new(seed),
            cores,
            selection,
            pending: Vec::new(),
            next_message: [0, 7, 65_530, 300],
            words: VecDeque::new(),
            held: vec![Vec::new(); cores],
            joined: vec![Vec::new(); cores],
            gap: 0.0,
            ends: 0.0,
        }
    }

    fn settle(&mut self, cycle: usize) {
        if cycle.is_multiple_of(3_000) {
            self.gap = self.rng.unit() * self.rng.unit();
            self.ends = self.rng.unit() * self.rng.unit() * 0.05;
        }
    }

    fn wire(&mut self) -> Option<(u64, bool)> {
        if self.words.is_empty() {
            if !self.rng.chance(self.gap) {
                return None;
            }
            self.words = self.next_packet().into();
        }
        // A packet comes at the pace of the wire.
        let word = self.words.pop_front()?;
        Some((word, self.words.is_empty()))
    }

    fn next_packet(&mut self) -> Vec<u64> {
        if self.pending.len() < 6 {
            self.open_message();
        }
        if self.rng.chance(0.05) {
            return self.control();
        }
        let at = self.rng.below(self.pending.len() as u64) as usize;
        let mut packet = self.pending[at].clone();
        if self.rng.chance(0.1) {
            packet.trim();
        } else if self.rng.chance(0.9) {
            self.pending.swap_remove(at);
        }
        if self.rng.chance(0.002) {
            // The packet names another length than the other packets of its message.
            packet.message_bytes = self.length();
            let start = usize::from(packet.packet_offset) * SEGMENT_BYTES;
            let bytes = usize::from(packet.message_bytes).saturating_sub(start).min(SEGMENT_BYTES);
            packet.payload.resize(if packet.flags & flag::CHOP == 0 { bytes } else { 0 }, 0x55);
        }
        self.encode(&packet)
    }

    fn encode(&mut self, packet: &Packet) -> Vec<u64> {
        let mut bytes = packet.encode();
        if self.rng.chance(0.02) {
            // Damage, but not to the address of the sender, of which the block looks at some bits only.
            let at = self.rng.below(64) as usize;
            if !(26..30).contains(&at) {
                bytes[at] ^= 1 << self.rng.below(8);
            }
        }
        if self.rng.chance(0.01) {
            bytes.truncate(self.rng.between(1, bytes.len() as u64) as usize);
        }
        // The bytes behind a packet may be anything.
        let extra = if self.rng.chance(0.05) { self.rng.below(20) } else { 0 };
        for _ in 0..(bytes.len().next_multiple_of(8) - bytes.len()) as u64 + 8 * extra {
            bytes.push(self.rng.next_u32() as u8);
        }
        bytes.as_chunks().0.iter().map(|word| u64::from_be_bytes(*word)).collect()
    }

    fn length(&mut self) -> u16 {
        let most = [0, 8, 64, SEGMENT_BYTES as u64, MESSAGE_BYTES_MAX as u64][self.rng.below(5) as usize];
        if self.rng.chance(0.2) { most as u16 } else { self.rng.below(most + 1) as u16 }
    }

    fn open_message(&mut self) {
        let sender = self.rng.below(4) as usize;
        let message = self.next_message[sender];
        self.next_message[sender] = message.wrapping_add(1);
        let message_bytes = self.length();
        let context = if self.rng.chance(0.02) { 99 } else { self.rng.below(u64::from(CONTEXTS)) as u16 };
        let source_context = self.rng.below(5) as u16;
        for packet_offset in 0..packets_of(message_bytes) {
            let bytes = (usize::from(message_bytes) - packet_offset * SEGMENT_BYTES).min(SEGMENT_BYTES);
            self.pending.push(Packet {
                source: 0x0a00_0100 + sender as u32,
                destination: NODE,
                flags: flag::DATA,
                source_context,
                destination_context: context,
                message_bytes,
                packet_offset: packet_offset as u8,
                pull_offset: self.rng.below(4) as u16,
                message,
                buffer: self.rng.next_u32() as u16,
                buffer_class: self.rng.next_u32() as u8,
                payload: (0..bytes).map(|_| self.rng.next_u32() as u8).collect(),
                ..Packet::default()
            });
        }
    }

    fn control(&mut self) -> Vec<u64> {
        let packet = Packet {
            source: 0x0a00_0100,
            destination: NODE,
            flags: (self.rng.below(7) as u8 + 1) << 1,
            packet_offset: self.rng.below(3) as u8,
            pull_offset: self.rng.below(9) as u16,
            message: self.rng.next_u32() as u16,
            message_bytes: self.rng.next_u32() as u16,
            ..Packet::default()
        };
        self.encode(&packet)
    }

    fn asks(&mut self, cycle: usize) -> Vec<Option<Asks>> {
        (0..self.cores)
            .map(|core| {
                let joins = cycle > 20 && self.rng.chance(0.003);
                // RSS is the same in both only once every core has every context, which takes a word each.
                let context = match self.selection {
                    Selection::Rss if cycle < usize::from(CONTEXTS) => Some(cycle as u16),
                    Selection::Rss => None,
                    Selection::Jbsq(_) | Selection::Tree(_) => {
                        joins.then(|| self.rng.below(u64::from(CONTEXTS)) as u16)
                    }
                };
                if let Some(context) = context {
                    // The core asks once; its interface sees to that.
                    if !self.joined[core].contains(&context) {
                        self.joined[core].push(context);
                        return Some(Asks::Insert(context));
                    }
                }
                if self.rng.chance(self.ends) {
                    let count = self.held[core].len() as u64;
                    return match count {
                        0 => self.rng.chance(0.1).then(|| Asks::Done(self.rng.below(6) as u16)),
                        _ => Some(Asks::Done(self.held[core].swap_remove(self.rng.below(count) as usize))),
                    };
                }
                None
            })
            .collect()
    }
}

fn random(seed: u64, config: &NicConfig, cores: usize) -> Run<Inputs, Outputs> {
    let mut chaos = Chaos::new(seed, cores, config.selection);
    let mut model = Model::new(config, cores);
    let mut run = Run::new();
    for cycle in 0..cycles() {
        chaos.settle(cycle);
        let wire = chaos.wire();
        let asks = chaos.asks(cycle);
        let (inputs, outputs) = model.step(wire, &asks);
        if outputs.deliver_first != 0 {
            chaos.held[outputs.deliver_core as usize].push(outputs.deliver_context as u16);
        }
        run.push(inputs, outputs);
    }
    run
}

fn check(selection: Selection, cores: usize, buffers: [usize; 2]) {
    let config = NicConfig { selection, buffers, ..as_in_rtl() };
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block(&config, cores)) else { return };
    for seed in 0..6 {
        let name = format!("receive_path: {cores} cores, {selection:?}, {buffers:?} buffers, seed {seed}");
        random(seed, &config, cores).check(&bench, &name);
    }
}

#[test]
fn packets_become_words_as_in_the_model() {
    check(Selection::Jbsq(2), 4, [16, 12]);
}

#[test]
fn packets_become_words_by_rss_as_in_the_model() {
    check(Selection::Rss, 4, [5, 3]);
}

#[test]
fn the_input_has_everything_in_it() {
    let config = NicConfig { buffers: [5, 3], ..as_in_rtl() };
    let run = random(0, &config, 4);
    assert!(run.count(|outputs| outputs.event_message != 0) > 50);
    assert!(run.count(|outputs| outputs.event_duplicate != 0) > 5);
    assert!(run.count(|outputs| outputs.event_without_buffer != 0) > 5);
    assert!(run.count(|outputs| outputs.event_unknown_context != 0) > 0);
    assert!(run.count(|outputs| outputs.event_dropped != 0) > 0);
    assert!(run.count(|outputs| outputs.reply_nack != 0) > 5);
    assert!(run.count(|outputs| outputs.control_valid != 0) > 5);
}

#[test]
fn packets_that_are_taken_twice_are_found() {
    let config = NicConfig { buffers: [16, 12], ..as_in_rtl() };
    let block = Block { mutant: Some("MUTANT_NO_DUPLICATES"), ..block(&config, 4) };
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block) else { return };
    let difference = random(1, &config, 4).difference(&bench, "a mutant").expect("a difference");
    assert!(difference.contains("port event_duplicate"), "{difference}");
}
