//! `nanopu_network`, which is all of the hardware between the cores' pipelines and the wire, against the
//! model's recorded behaviour while programs of `riscv/` ran on its cores.

use std::collections::VecDeque;

use highwire_nanopu::nic::{Nic, NicConfig, Waiting};
use highwire_nanopu::packet::{MESSAGE_BYTES_MAX, Packet, SEGMENT_BYTES, flag, packets_of};
use highwire_nanopu::{Core, CoreConfig, Event, Interface, Node, NodeConfig, NodeEvent, Port};
use highwire_riscv::{AccessFault, Bus, Hart, Machine, MachineConfig, Platform, Program};
use highwire_stdx::Rng;

use crate::bench::{Bench, Block, join, ports};
use crate::compare::Run;
use crate::support::{CLIENT, NODE, program};

/// The node that is recorded; programs for one core run on the first.
const CORES: usize = 4;
/// The link to the sender, each way.
const LINK_CYCLES: u64 = 140;

ports!(Inputs {
    in_valid: u64,
    in_last: u64,
    in_word: u64,
    csr_number: [u64; 1],
    csr_write: u64,
    csr_value: [u64; 4],
    put: u64,
    put_word: [u64; 4],
    take: u64,
    kill: u64,
});

ports!(Outputs {
    out_valid: u64,
    out_last: u64,
    out_word: u64,
    csr_read: [u64; 4],
    take_valid: u64,
    take_word: [u64; 4],
    wants_switch: u64,
});

/// A core's actions in a cycle, and the values that it saw.
#[derive(Clone, Copy, Debug, Default)]
struct Deeds {
    csr: Option<(u16, u64)>,
    write: Option<u64>,
    put: Option<u64>,
    take: Option<(bool, u64)>,
}

/// A core's port that writes down what goes through it.
struct Recorder<'a> {
    platform: &'a mut Platform,
    interface: &'a mut Interface,
    deeds: Deeds,
}

impl Bus for Recorder<'_> {
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.platform.load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        self.platform.store(address, bytes, value)
    }

    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.platform.fetch(address)
    }

    fn read_csr(&mut self, number: u16) -> Option<u64> {
        if is_network(number) { Some(0) } else { self.platform.read_csr(number) }
    }

    fn write_csr(&mut self, number: u16, _: u64) -> bool {
        is_network(number)
    }
}

/// The CSRs of the network, as `port::csr` numbers them.
fn is_network(number: u16) -> bool {
    matches!(number, 0x52..=0x59 | 0x60 | 0x61)
}

impl Port for Recorder<'_> {
    const IS_NETWORK: bool = true;

    fn take_word(&mut self, cycle: u64) -> u64 {
        let is_there = self.interface.peek_word().is_some();
        let word = self.interface.take_word(cycle);
        assert!(self.deeds.take.is_none(), "one instruction leaves decode in a cycle");
        self.deeds.take = Some((is_there, word));
        word
    }

    fn put_word(&mut self, cycle: u64, word: u64) {
        assert!(self.deeds.put.is_none(), "the register file has one port");
        self.deeds.put = Some(word);
        self.interface.put_word(cycle, word);
    }

    fn read_network(&mut self, _: u64, number: u16) -> u64 {
        let value = self.interface.read(number);
        self.deeds.csr = Some((number, value));
        value
    }

    fn write_network(&mut self, cycle: u64, number: u16, value: u64) {
        self.deeds.write = Some(value);
        self.interface.write(cycle, number, value);
    }

    fn wants_switch(&self) -> bool {
        self.interface.wants_switch()
    }
}

/// A message that is sent to the node.
struct Message {
    sent: u64,
    context: u16,
    payload: Vec<u8>,
}

/// The sender at the other end of the link: it loses, trims and repeats some packets, and answers those of the node.
struct Sender {
    rng: Rng,
    towards: VecDeque<(u64, Packet)>,
    losses: f64,
}

impl Sender {
    fn send(&mut self, now: u64, number: u16, message: &Message) {
        let message_bytes = message.payload.len() as u16;
        for offset in 0..packets_of(message_bytes) {
            let part = message.payload.chunks(SEGMENT_BYTES).nth(offset).unwrap_or_default();
            let mut packet = Packet {
                source: CLIENT,
                destination: NODE,
                flags: flag::DATA,
                source_context: number,
                destination_context: message.context,
                message_bytes,
                packet_offset: offset as u8,
                message: number,
                buffer: number % 64,
                payload: part.to_vec(),
                ..Packet::default()
            };
            let whole = packet.clone();
            if self.rng.chance(self.losses) {
                packet.trim();
                self.towards.push_back((now, packet));
                self.towards.push_back((now, whole));
            } else {
                self.towards.push_back((now, packet));
                if self.rng.chance(self.losses) {
                    self.towards.push_back((now, whole));
                }
            }
        }
    }

    fn on_sent(&mut self, first: u64, packet: &Packet) {
        if packet.flags & flag::DATA == 0 || self.rng.chance(self.losses) {
            return;
        }
        let verdict = if self.rng.chance(self.losses) { flag::NACK } else { flag::ACK };
        let reply = Packet {
            source: packet.destination,
            destination: packet.source,
            flags: verdict | flag::PULL,
            pull_offset: 3,
            payload: Vec::new(),
            ..packet.clone()
        };
        self.towards.push_back((first + 2 * LINK_CYCLES, reply));
    }
}

/// Runs `program` on the model, with `messages` for it, and records what passes between pipelines, network and wire.
fn record(
    program: &Program,
    config: &NodeConfig,
    messages: &[Message],
    losses: f64,
    cycles: u64,
) -> Run<Inputs, Outputs> {
    let mut platform = Machine::new(program, MachineConfig::default()).expect("it fits").platform;
    let mut cores: Vec<Core> = (0..config.cores as u64)
        .map(|id| Core::new(Hart::new(id, program.entry), &CoreConfig::default()))
        .collect();
    let mut interfaces = vec![Interface::default(); config.cores];
    if config.keeps_demotions {
        interfaces.iter_mut().for_each(Interface::keep_demotions);
    }
    let mut nic = Nic::ndp(&config.nic, config.cores);
    // A node runs beside it, to show that the loop below does the same as the node's own.
    let mut node = Node::new(program, config).expect("it fits");
    let mut sender = Sender { rng: Rng::new(7), towards: VecDeque::new(), losses };
    let (mut incoming, mut outgoing) = (VecDeque::new(), VecDeque::new());
    let (mut next, mut answers) = (0, 0);
    let mut run = Run::new();
    for cycle in 0..cycles {
        let (mut inputs, mut outputs) = (Inputs::default(), Outputs::default());
        while let Some(message) = messages.get(next).filter(|message| message.sent <= cycle) {
            sender.send(cycle, next as u16, message);
            next += 1;
        }
        if incoming.is_empty()
            && let Some(due) = sender.towards.iter().position(|&(due, _)| due <= cycle)
        {
            let (_, packet) = sender.towards.remove(due).expect("it is there");
            let mut bytes = packet.encode();
            bytes.resize(packet.wire_words() as usize * 8, 0);
            let (words, _) = bytes.as_chunks();
            incoming.extend(words.iter().map(|word| u64::from_be_bytes(*word)));
            nic.receive(cycle + packet.wire_words() - 1, packet.clone());
            node.receive(cycle, packet);
        }
        if let Some(word) = incoming.pop_front() {
            (inputs.in_valid, inputs.in_word, inputs.in_last) = (1, word, incoming.is_empty().into());
        }
        let wants = interfaces.iter().map(|interface| interface.wants_switch().into());
        outputs.wants_switch = join::<1>(1, wants)[0];

        nic.accept(cycle, &mut interfaces);
        let mut deeds = vec![Deeds::default(); CORES];
        for ((core, interface), deeds) in cores.iter_mut().zip(&mut interfaces).zip(&mut deeds) {
            let mut port = Recorder { platform: &mut platform, interface, deeds: Deeds::default() };
            let event = core.tick(&mut port);
            *deeds = port.deeds;
            let is_fault = matches!(event, Event::Trap { trap, .. }
                if matches!(trap.cause, highwire_riscv::Cause::Exception(_)));
            assert!(!is_fault, "cycle {cycle}: {event:?}");
        }
        show(&deeds, &mut inputs, &mut outputs);
        let leaving = nic.tick(cycle, &mut interfaces);
        interfaces.iter_mut().for_each(|interface| interface.tick(cycle));
        platform.serve_program();
        if cycle.is_multiple_of(config.cycles_per_tick) {
            platform.advance_clock(cycle / config.cycles_per_tick);
        }
        platform.raise_interrupts(&mut cores[0].hart.csrs);

        node.tick(|_, _| {});
        let expected: Vec<_> =
            leaving.iter().cloned().map(|(first, packet)| NodeEvent::Sent { first, packet }).collect();
        assert_eq!(node.take_events(), expected, "cycle {cycle}: the recording is not the node's");

        if let Some((first, packet)) = leaving {
            let mut bytes = packet.encode();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let (words, _) = bytes.as_chunks();
            for (index, word) in words.iter().enumerate() {
                let is_last = index + 1 == words.len();
                outgoing.push_back((first + index as u64, u64::from_be_bytes(*word), is_last));
            }
            answers += usize::from(packet.flags & flag::DATA != 0);
            sender.on_sent(first, &packet);
        }
        if outgoing.front().is_some_and(|&(at, ..)| at == cycle) {
            let (_, word, is_last) = outgoing.pop_front().expect("there is a first");
            (outputs.out_valid, outputs.out_word, outputs.out_last) = (1, word, is_last.into());
        }
        run.push(inputs, outputs);
    }
    assert!(answers * 10 >= messages.len() * 9, "{answers} packets for {} messages", messages.len());
    run
}

fn show(deeds: &[Deeds], inputs: &mut Inputs, outputs: &mut Outputs) {
    let each = |what: fn(&Deeds) -> u64| deeds.iter().map(what);
    inputs.csr_number = join(12, each(|deeds| deeds.csr.map_or(0, |(number, _)| number.into())));
    inputs.csr_write = join::<1>(1, each(|deeds| deeds.write.is_some().into()))[0];
    inputs.csr_value = join(64, each(|deeds| deeds.write.unwrap_or(0)));
    inputs.put = join::<1>(1, each(|deeds| deeds.put.is_some().into()))[0];
    inputs.put_word = join(64, each(|deeds| deeds.put.unwrap_or(0)));
    inputs.take = join::<1>(1, each(|deeds| deeds.take.is_some().into()))[0];
    outputs.csr_read = join(64, each(|deeds| deeds.csr.map_or(0, |(_, value)| value)));
    outputs.take_valid =
        join::<1>(1, each(|deeds| deeds.take.is_some_and(|(is_valid, _)| is_valid).into()))[0];
    outputs.take_word = join(64, each(|deeds| deeds.take.map_or(0, |(_, word)| word)));
}

fn bench(config: &NodeConfig) -> Option<Bench> {
    let nic = config.nic;
    let block = Block {
        top: "nanopu_network",
        parameters: vec![
            ("ADDRESS", nic.address.into()),
            ("CORES", CORES as u64),
            ("BUFFERS_1K", nic.buffers[0] as u64),
            ("BUFFERS_2K", nic.buffers[1] as u64),
            ("TIMEOUT_CYCLES", nic.timeout_cycles),
            ("PULL_CYCLES", nic.pull_cycles),
            ("RECEIVE_WORDS", 2048),
        ],
        mutant: None,
    };
    Bench::build::<Inputs, Outputs>(&block)
}

/// The prototype's NIC with an eighth of its buffers, so that they run out.
fn config(cores: usize) -> NodeConfig {
    // As the modules of `rtl/` are.
    let nic =
        NicConfig { buffers: [16, 16], overflows: false, waiting: Waiting::Buffers, ..NicConfig::default() };
    NodeConfig { cores, nic, decides_anew: false, ..NodeConfig::default() }
}

fn check(name: &str, messages: &[Message], cores: usize, losses: f64, cycles: u64) {
    let config = config(cores);
    let (Some(program), Some(bench)) = (program(name), bench(&config)) else { return };
    let run = record(&program, &config, messages, losses, cycles);
    run.check(&bench, &format!("nanopu_network: {name}, {cores} cores, {losses} lost, recorded"));
}

/// Requests to work for some cycles, the first after the program has started.
fn work(count: u64, apart: u64, contexts: u64, seed: u64) -> Vec<Message> {
    let mut rng = Rng::new(seed);
    let mut sent = 8_000;
    (0..count)
        .map(|_| {
            sent += rng.below(2 * apart);
            let service = if rng.chance(0.1) { 3_000 } else { rng.between(50, 600) };
            let context = rng.below(contexts) as u16;
            Message { sent, context, payload: [service.to_be_bytes(), sent.to_be_bytes()].concat() }
        })
        .collect()
}

#[test]
fn messages_of_all_sizes_go_round_as_recorded() {
    let mut rng = Rng::new(3);
    let mut sent = 8_000;
    let messages: Vec<_> = (0..60)
        .map(|_| {
            let bytes = rng.below(MESSAGE_BYTES_MAX as u64 / 8 + 1) * 8;
            sent += rng.below(1_500);
            Message { sent, context: 0, payload: (0..bytes).map(|_| rng.next_u32() as u8).collect() }
        })
        .collect();
    check("loopback", &messages, 1, 0.05, 90_000);
}

#[test]
fn threads_are_switched_as_recorded() {
    check("service", &work(120, 500, 2, 1), 1, 0.02, 100_000);
}

#[test]
fn four_cores_are_served_as_recorded() {
    check("service4", &work(300, 150, 1, 2), 4, 0.02, 80_000);
}
