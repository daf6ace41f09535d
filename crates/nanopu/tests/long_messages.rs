//! Messages of up to 65,535 bytes: through a program, over a channel that loses and trims, and where they are too long.

mod support;

use std::collections::BTreeMap;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::nic::blocks::{ReceiveHalf, SendHalf};
use highwire_nanopu::nic::{CutThrough, LongMessages, Ndp, NicConfig};
use highwire_nanopu::packet::{AppHeader, Packet, flag};
use highwire_nanopu::{Interface, Node, NodeConfig, csr};
use highwire_stdx::Rng;
use support::{CLIENT, NODE, program};

const NDP: Ndp = Ndp { rtt_packets: 2 };

fn content(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.next_u32() as u8).collect()
}

#[test]
fn a_program_gets_them_and_sends_them_back() {
    let Some(program) = program("relay") else { return };
    let cut = Some(CutThrough::default());
    for (cut_through, streams) in [(None, false), (cut, false), (None, true), (cut, true)] {
        let mut config = NodeConfig { blocking_reads: streams, ..NodeConfig::default() };
        config.nic.long_messages = Some(LongMessages { streams, ..LongMessages::default() });
        config.nic.cut_through = cut_through;
        let mut node = Node::new(&program, &config).expect("it fits");
        let mut rng = Rng::new(5);
        let sizes = [2049, 4096, 8000, 16_384, 33_333, 64_000, 65_535, 8, 1024, 2048];
        let requests: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(number, &bytes)| Request {
                sent: 10_000 + 40_000 * number as u64,
                context: 0,
                payload: content(&mut rng, bytes),
            })
            .collect();
        let answers =
            Client::new(CLIENT, NODE, 0).play(&mut node, &requests, 100_000, |_, _| {}).expect("no traps");
        for (answer, request) in answers.iter().zip(&requests) {
            let answer = answer.as_ref().expect("answered");
            assert!(answer.payload == request.payload, "{} bytes", request.payload.len());
        }
        assert_eq!(node.misuse(0).all().count(), 0);
        assert_eq!((node.nic().received().without_buffer, node.nic().received().oversized), (0, 0));
    }
}

#[test]
fn what_is_too_long_is_counted_and_thrown_away() {
    let config = NicConfig { long_messages: None, ..NicConfig::default() };
    let mut receiver = ReceiveHalf::new(&config, 1, NDP);
    receiver.insert(0, 0, 0);
    let packet =
        Packet { flags: flag::DATA, message_bytes: 2049, payload: vec![0; 1024], ..Packet::default() };
    receiver.arrive(0, packet);
    let replies: Vec<_> = (0..20).filter_map(|cycle| receiver.tick(cycle).reply).collect();
    assert!(replies.is_empty());
    assert_eq!((receiver.counters().oversized, receiver.counters().messages), (1, 0));

    // A pool that is smaller than the longest message bounds it.
    let long_messages = Some(LongMessages { bytes_max: 8000, segments: 4, streams: false });
    let config = NicConfig { long_messages, ..NicConfig::default() };
    let mut sender = SendHalf::new(&config, NDP);
    let mut interfaces = [Interface::default()];
    for word in [AppHeader { peer: CLIENT, context: 0, bytes: 4104 }.word()].into_iter().chain(0..513) {
        interfaces[0].put_word(0, word);
    }
    for word in [AppHeader { peer: CLIENT, context: 0, bytes: 8 }.word(), 77] {
        interfaces[0].put_word(0, word);
    }
    let mut sent = Vec::new();
    for cycle in 1..700 {
        sender.accept(cycle, &mut interfaces);
        sent.extend(sender.tick(cycle));
    }
    assert_eq!((sender.counters().oversized, sent.len()), (1, 1));
    assert_eq!(sent[0].1.payload, 77u64.to_be_bytes());
}

/// Two NICs and a channel between them that loses, trims, repeats and reorders packets; a model knows what was sent.
struct Channel {
    rng: Rng,
    sender: SendHalf<Ndp>,
    receiver: ReceiveHalf<Ndp>,
    /// The receiver's own sending half, which sends its answers.
    answers: SendHalf<Ndp>,
    interfaces: [Interface; 2],
    /// Packets on their way, by when their last word is there.
    there: BTreeMap<(u64, u64), Packet>,
    back: BTreeMap<(u64, u64), Packet>,
    serial: u64,
    losses: f64,
}

impl Channel {
    fn carry(&mut self, cycle: u64, mut packet: Packet, is_data: bool) {
        let copies = 1 + u64::from(self.rng.chance(0.02));
        for _ in 0..copies {
            if self.rng.chance(self.losses) {
                continue;
            }
            if is_data && self.rng.chance(0.1) {
                packet.trim();
            }
            self.serial += 1;
            let due = cycle + packet.wire_words() + self.rng.below(400);
            let way = if is_data { &mut self.there } else { &mut self.back };
            way.insert((due, self.serial), packet.clone());
        }
    }

    /// One cycle; the words that reach the core.
    fn step(&mut self, cycle: u64) -> Option<(bool, u64)> {
        self.sender.accept(cycle, &mut self.interfaces);
        if let Some((&key, _)) = self.there.first_key_value().filter(|((due, _), _)| *due <= cycle) {
            let packet = self.there.remove(&key).expect("just seen");
            self.receiver.arrive(cycle, packet);
        }
        if let Some((&key, _)) = self.back.first_key_value().filter(|((due, _), _)| *due <= cycle) {
            let packet = self.back.remove(&key).expect("just seen");
            self.sender.on_control(cycle, &packet);
        }
        let received = self.receiver.tick(cycle);
        if let Some(reply) = received.reply {
            self.answers.answer(cycle, reply);
        }
        if let Some((first, packet)) = self.sender.tick(cycle) {
            self.carry(first, packet, true);
        }
        if let Some((first, packet)) = self.answers.tick(cycle) {
            self.carry(first, packet, false);
        }
        let word = received.word?;
        if word.is_first {
            // A core that reads at once.
            self.receiver.finish(cycle, word.core, word.context);
        }
        Some((word.is_first, word.word))
    }
}

fn every_message_arrives_once(seed: u64, losses: f64, streams: bool) -> u64 {
    let mut rng = Rng::new(seed);
    let long_messages = Some(LongMessages { streams, ..LongMessages::default() });
    let config = NicConfig { address: CLIENT, long_messages, ..NicConfig::default() };
    let mut channel = Channel {
        sender: SendHalf::new(&config, NDP),
        receiver: ReceiveHalf::new(&config, 1, NDP),
        answers: SendHalf::new(&config, NDP),
        interfaces: Default::default(),
        there: BTreeMap::new(),
        back: BTreeMap::new(),
        serial: 0,
        losses,
        rng: Rng::new(seed + 1000),
    };
    channel.receiver.insert(0, 0, 3);
    // Two cores send; the first bytes of a message are its number.
    let mut expected: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for number in 0..16u64 {
        let most = [64, 2048, 16_384, 65_535][rng.below(4) as usize];
        let bytes = rng.between(8, most) as u16;
        let mut words: Vec<u64> = (1..bytes.div_ceil(8)).map(|_| rng.next_u64()).collect();
        words.insert(0, number);
        if !bytes.is_multiple_of(8) {
            // The bytes behind the end are zero when they arrive.
            let last = words.last_mut().expect("there is one");
            *last &= u64::MAX << (64 - 8 * (bytes % 8));
            if words.len() == 1 {
                words[0] = number;
            }
        }
        let interface = &mut channel.interfaces[rng.below(2) as usize];
        interface.write(0, csr::CURRENT_CONTEXT, 1);
        interface.put_word(0, AppHeader { peer: NODE, context: 3, bytes }.word());
        words.iter().for_each(|&word| interface.put_word(0, word));
        expected.insert(number, words);
    }
    let mut arriving: Vec<u64> = Vec::new();
    let mut missing = 0;
    for cycle in 1..20_000_000 {
        if let Some((is_first, word)) = channel.step(cycle) {
            if is_first {
                assert_eq!(missing, 0, "seed {seed}: a message begins inside another");
                missing = u64::from(AppHeader::from_word(word).bytes).div_ceil(8);
                arriving.clear();
            } else {
                arriving.push(word);
                missing -= 1;
                if missing == 0 {
                    let number = arriving[0];
                    assert_eq!(expected.remove(&number), Some(arriving.clone()), "seed {seed}");
                }
            }
        }
        if expected.is_empty() && channel.sender.counters().delivered == 16 {
            return cycle;
        }
    }
    panic!("seed {seed}: {:?} never came; {:?}", expected.keys(), channel.sender.counters());
}

#[test]
fn lost_trimmed_and_repeated_packets_cost_time_and_nothing_else() {
    for seed in 0..12 {
        for losses in [0.0, 0.02, 0.2] {
            for streams in [false, true] {
                let cycles = every_message_arrives_once(seed, losses, streams);
                println!("seed {seed}, {losses} lost, streams {streams}: {cycles} cycles");
            }
        }
    }
}
