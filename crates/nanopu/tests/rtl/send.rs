//! `send_path` against [`SendHalf`].

use std::collections::VecDeque;

use highwire_nanopu::nic::blocks::SendHalf;
use highwire_nanopu::nic::{Ndp, NicConfig, Reply, SendCounters};
use highwire_nanopu::packet::{AppHeader, MESSAGE_BYTES_MAX, Packet, SEGMENT_BYTES, flag};
use highwire_nanopu::{Interface, csr};

use highwire_stdx::Rng;

use crate::bench::{Bench, Block, join, ports};
use crate::compare::{Run, cycles};

const CORES: usize = 4;
const PEERS: [u32; 3] = [0x0a00_0001, 0x0a00_0003, 0xc0a8_0005];

ports!(Inputs {
    sent_valid: u64,
    sent_context: [u64; 1],
    sent_word: [u64; 4],
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
});

ports!(Outputs {
    sent_take: u64,
    wire_valid: u64,
    wire_last: u64,
    wire_word: u64,
    event_begun: u64,
    event_oversized: u64,
    event_delivered: u64,
    event_timeout: u64,
});

/// A packet on its way from ingress to the sending half.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    /// A DATA packet, its verdict, and its credit.
    Data { packet: Packet, is_trimmed: bool, credit: u16 },
    /// A control packet.
    Control(Packet),
}

/// The model, driven like the block.
struct Model {
    half: SendHalf<Ndp>,
    /// Of which only the queue behind x31 is used.
    interfaces: Vec<Interface>,
    cycle: u64,
    wire: VecDeque<(u64, u64, bool)>,
}

impl Model {
    fn new(config: &NicConfig) -> Model {
        let half = SendHalf::new(config, Ndp { rtt_packets: config.rtt_packets });
        let interfaces = vec![Interface::default(); CORES];
        Model { half, interfaces, cycle: 0, wire: VecDeque::new() }
    }

    /// Words that the cores write to x31 are there in the next cycle. Also returns the packet that the wire
    /// takes.
    fn step(
        &mut self,
        writes: &[(usize, u16, u64)],
        arrival: Option<&Arrival>,
    ) -> (Inputs, Outputs, Option<Packet>) {
        let (mut inputs, mut outputs) = (Inputs::default(), Outputs::default());
        let cycle = self.cycle;
        let before = self.half.counters();
        let fronts: Vec<_> = self.interfaces.iter().map(Interface::peek_sent).collect();
        inputs.sent_valid = join::<1>(1, fronts.iter().map(|front| front.is_some().into()))[0];
        inputs.sent_context = join(16, fronts.iter().map(|front| front.map_or(0, |(id, _)| id.into())));
        inputs.sent_word = join(64, fronts.iter().map(|front| front.map_or(0, |(_, word)| word)));
        outputs.sent_take = self.half.accept(cycle, &mut self.interfaces).map_or(0, |core| 1 << core);
        for &(core, context, word) in writes {
            self.interfaces[core].write(cycle, csr::CURRENT_CONTEXT, context.into());
            self.interfaces[core].put_word(cycle, word);
        }
        match arrival {
            Some(Arrival::Data { packet, is_trimmed, credit }) => {
                inputs.show(packet);
                (inputs.reply_valid, inputs.reply_nack) = (1, (*is_trimmed).into());
                inputs.reply_credit = (*credit).into();
                let answer = packet.reply(if *is_trimmed { flag::NACK } else { flag::ACK });
                self.half.answer(cycle, Reply { packet: answer, pull: Some(*credit) });
            }
            Some(Arrival::Control(packet)) => {
                inputs.show(packet);
                inputs.control_valid = 1;
                self.half.on_control(cycle, packet);
            }
            None => {}
        }
        let leaving = self.half.tick(cycle);
        if let Some((first, packet)) = &leaving {
            let mut bytes = packet.encode();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let words = bytes.as_chunks().0;
            for (index, word) in words.iter().enumerate() {
                let is_last = index + 1 == words.len();
                self.wire.push_back((first + index as u64, u64::from_be_bytes(*word), is_last));
            }
        }
        if self.wire.front().is_some_and(|&(at, ..)| at == cycle) {
            let (_, word, is_last) = self.wire.pop_front().expect("there is a first");
            (outputs.wire_valid, outputs.wire_word, outputs.wire_last) = (1, word, is_last.into());
        }
        outputs.count(before, self.half.counters());
        self.cycle += 1;
        (inputs, outputs, leaving.map(|(_, packet)| packet))
    }
}

impl Inputs {
    fn show(&mut self, packet: &Packet) {
        (self.packet_source, self.packet_destination) = (packet.source.into(), packet.destination.into());
        self.packet_flags = packet.flags.into();
        self.packet_source_context = packet.source_context.into();
        self.packet_destination_context = packet.destination_context.into();
        (self.packet_bytes, self.packet_offset) = (packet.message_bytes.into(), packet.packet_offset.into());
        (self.packet_pull, self.packet_message) = (packet.pull_offset.into(), packet.message.into());
        (self.packet_buffer, self.packet_class) = (packet.buffer.into(), packet.buffer_class.into());
    }
}

impl Outputs {
    fn count(&mut self, before: SendCounters, after: SendCounters) {
        self.event_begun = after.messages - before.messages;
        self.event_oversized = after.oversized - before.oversized;
        self.event_delivered = after.delivered - before.delivered;
        self.event_timeout = after.timeouts - before.timeouts;
    }
}

fn block(config: &NicConfig) -> Block {
    Block {
        top: "send_path",
        parameters: vec![
            ("ADDRESS", config.address.into()),
            ("CORES", CORES as u64),
            ("BUFFERS_1K", config.buffers[0] as u64),
            ("BUFFERS_2K", config.buffers[1] as u64),
            ("RTT_PACKETS", config.rtt_packets.into()),
            ("TIMEOUT_CYCLES", config.timeout_cycles),
            ("PULL_CYCLES", config.pull_cycles),
        ],
        mutant: None,
    }
}

/// Cores that write messages, several at once and some too long; receivers that acknowledge packets late, twice, or not at all, ask for
/// them again, and give credit; and packets that must be answered.
struct Chaos {
    rng: Rng,
    /// Whether a core writes several messages at once. With few buffers each message would wait for words
    /// behind another's header.
    interleaves: bool,
    /// Per core and context: words that are missing to the message.
    writing: [[u64; 3]; CORES],
    /// Words that wait behind x31.
    queued: [u64; CORES],
    /// Control packets on their way, and when each is there.
    replies: Vec<(u64, Packet)>,
    /// Control packets of the past, which come again.
    old: Vec<Packet>,
    writes: f64,
    losses: f64,
    answers: f64,
    pause: u64,
    answers_waiting: u64,
}

impl Chaos {
    fn new(seed: u64, interleaves: bool) -> Chaos {
        Chaos {
            rng: Rng::new(seed),
            interleaves,
            writing: [[0; 3]; CORES],
            queued: [0; CORES],
            replies: Vec::new(),
            old: Vec::new(),
            writes: 0.0,
            losses: 0.0,
            answers: 0.0,
            pause: 0,
            answers_waiting: 0,
        }
    }

    fn settle(&mut self, cycle: u64) {
        if cycle.is_multiple_of(2_500) {
            self.writes = self.rng.unit() * self.rng.unit();
            self.losses = self.rng.unit() * self.rng.unit() * 0.3;
            self.answers = self.rng.unit() * 0.02;
        }
    }

    fn words(&mut self) -> Vec<(usize, u16, u64)> {
        let mut words = Vec::new();
        for core in 0..CORES {
            if self.queued[core] > 40 || !self.rng.chance(self.writes) {
                continue;
            }
            let open = self.writing[core].iter().position(|&left| left > 0).filter(|_| !self.interleaves);
            let context = open.unwrap_or(self.rng.below(3) as usize);
            let left = &mut self.writing[core][context];
            let word = if *left == 0 {
                let most = [0, 8, 40, SEGMENT_BYTES as u64, MESSAGE_BYTES_MAX as u64, 2100]
                    [self.rng.below(6) as usize];
                let bytes = if self.rng.chance(0.3) { most } else { self.rng.below(most + 1) } as u16;
                *left = u64::from(bytes).div_ceil(8);
                let peer = PEERS[self.rng.below(3) as usize];
                AppHeader { peer, context: self.rng.below(9) as u16, bytes }.word()
            } else {
                *left -= 1;
                self.rng.next_u64()
            };
            self.queued[core] += 1;
            words.push((core, context as u16 * 100, word));
        }
        words
    }

    /// The packet that left is answered some time later.
    fn on_sent(&mut self, cycle: u64, packet: &Packet) {
        if packet.flags & flag::DATA == 0 {
            return;
        }
        for _ in 0..1 + u64::from(self.rng.chance(0.1)) {
            if self.rng.chance(self.losses) {
                continue;
            }
            let verdict = if self.rng.chance(0.2) { flag::NACK } else { flag::ACK };
            let pull = if self.rng.chance(0.5) { flag::PULL } else { 0 };
            let reply = Packet {
                source: packet.destination,
                destination: packet.source,
                flags: if self.rng.chance(0.05) { flag::PULL } else { verdict | pull },
                pull_offset: self.rng.below(5) as u16,
                payload: Vec::new(),
                ..packet.clone()
            };
            let late = if self.rng.chance(0.2) { 3_000 } else { 300 };
            self.replies.push((cycle + self.rng.between(20, late), reply));
        }
    }

    /// Packets are at least eight words long.
    fn arrival(&mut self, cycle: u64) -> Option<Arrival> {
        if self.rng.chance(self.answers) {
            self.answers_waiting = (self.answers_waiting + 1).min(8);
        }
        if cycle < self.pause {
            return None;
        }
        let due = self.replies.iter().position(|&(at, _)| at <= cycle);
        let arrival = if let Some(due) = due {
            let (_, packet) = self.replies.swap_remove(due);
            self.old.push(packet.clone());
            Arrival::Control(packet)
        } else if !self.old.is_empty() && self.rng.chance(0.002) {
            // One that came long ago, perhaps with something changed.
            let at = self.rng.below(self.old.len() as u64) as usize;
            let mut packet = self.old.swap_remove(at);
            match self.rng.below(6) {
                0 => packet.packet_offset = self.rng.next_u32() as u8,
                1 => packet.message = self.rng.next_u32() as u16,
                2 => packet.buffer = self.rng.next_u32() as u16,
                3 => packet.source ^= 1,
                _ => {}
            }
            Arrival::Control(packet)
        } else if self.answers_waiting > 0 {
            self.answers_waiting -= 1;
            let packet = Packet {
                source: self.rng.next_u32(),
                destination: self.rng.next_u32(),
                flags: flag::DATA,
                source_context: self.rng.next_u32() as u16,
                destination_context: self.rng.next_u32() as u16,
                message_bytes: self.rng.next_u32() as u16,
                packet_offset: self.rng.next_u32() as u8,
                pull_offset: self.rng.next_u32() as u16,
                message: self.rng.next_u32() as u16,
                buffer: self.rng.next_u32() as u16,
                buffer_class: self.rng.next_u32() as u8,
                ..Packet::default()
            };
            let credit = self.rng.next_u32() as u16;
            Arrival::Data { packet, is_trimmed: self.rng.chance(0.3), credit }
        } else {
            return None;
        };
        self.pause = cycle + self.rng.between(8, 12);
        Some(arrival)
    }
}

fn random(seed: u64, config: &NicConfig) -> Run<Inputs, Outputs> {
    let mut chaos = Chaos::new(seed, config.buffers.iter().all(|&buffers| buffers >= CORES * 3));
    let mut model = Model::new(config);
    let mut run = Run::new();
    for cycle in 0..cycles() as u64 {
        chaos.settle(cycle);
        let words = chaos.words();
        let arrival = chaos.arrival(cycle);
        let (inputs, outputs, packet) = model.step(&words, arrival.as_ref());
        for core in (0..CORES).filter(|core| outputs.sent_take >> core & 1 != 0) {
            chaos.queued[core] -= 1;
        }
        if let Some(packet) = packet {
            chaos.on_sent(cycle, &packet);
        }
        run.push(inputs, outputs);
    }
    run
}

fn config(buffers: [usize; 2], rtt_packets: u16) -> NicConfig {
    NicConfig { buffers, rtt_packets, timeout_cycles: 1500, pull_cycles: 60, ..NicConfig::default() }
}

fn check(config: &NicConfig) {
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block(config)) else { return };
    for seed in 0..6 {
        let (buffers, rtt) = (config.buffers, config.rtt_packets);
        let name = format!("send_path: {buffers:?} buffers, {rtt} packets unasked, seed {seed}");
        random(seed, config).check(&bench, &name);
    }
}

#[test]
fn words_become_packets_as_in_the_model() {
    check(&config([16, 16], 2));
}

#[test]
fn words_become_packets_as_in_the_model_with_few_buffers_and_credit() {
    check(&config([3, 2], 1));
}

#[test]
fn the_input_has_everything_in_it() {
    for config in [config([16, 16], 2), config([3, 2], 1)] {
        let run = random(0, &config);
        let counts = [
            run.count(|outputs| outputs.event_begun != 0),
            run.count(|outputs| outputs.event_oversized != 0),
            run.count(|outputs| outputs.event_delivered != 0),
            run.count(|outputs| outputs.event_timeout != 0),
            run.count(|outputs| outputs.wire_last != 0),
        ];
        println!("begun, oversized, delivered, timed out, packets: {counts:?}");
        assert!(counts.iter().zip([20, 1, 15, 10, 200]).all(|(count, least)| *count >= least), "{counts:?}");
    }
}

#[test]
fn the_wrong_core_first_is_found() {
    let config = config([16, 16], 2);
    let block = Block { mutant: Some("MUTANT_HIGH_CORES_FIRST"), ..block(&config) };
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block) else { return };
    let difference = random(1, &config).difference(&bench, "a mutant").expect("a difference");
    assert!(difference.contains("port sent_take"), "{difference}");
}
