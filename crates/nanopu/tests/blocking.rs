//! Reads of x30 that wait for a word (`NodeConfig::blocking_reads`): which reads wait, which do not, and that
//! nothing but time changes.

mod support;

use highwire_fabric::{FabricConfig, HostId, Topology};
use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::network::{Generator, Network, Place, address, link};
use highwire_nanopu::{Mistake, Node, NodeConfig, Stage};
use highwire_riscv::{Program, Segment};
use support::{CLIENT, NODE, program};

fn blocking() -> NodeConfig {
    NodeConfig { blocking_reads: true, ..NodeConfig::default() }
}

/// Plays requests of context 0, one every so often, and says when each answer came and what it was.
fn play(node: &mut Node, sizes: impl Iterator<Item = usize>, interval: u64) -> Vec<(u64, Vec<u8>)> {
    let requests: Vec<_> = sizes
        .enumerate()
        .map(|(i, bytes)| Request {
            sent: 10_000 + interval * i as u64,
            context: 0,
            payload: (0..bytes).map(|byte| (byte + i) as u8).collect(),
        })
        .collect();
    let answers = Client::new(CLIENT, NODE, 0).play(node, &requests, 200_000, |_, _| {}).expect("no traps");
    let both = answers.into_iter().zip(&requests);
    both.map(|(answer, request)| {
        let answer = answer.expect("answered");
        assert_eq!(answer.payload, request.payload);
        (answer.received - request.sent, answer.payload)
    })
    .collect()
}

/// The median response to messages of so many bytes, in cycles.
fn response(name: &str, config: &NodeConfig, bytes: usize) -> Option<u64> {
    let mut node = Node::new(&program(name)?, config).expect("it fits");
    let mut found: Vec<u64> = play(&mut node, std::iter::repeat_n(bytes, 24), 3_007)
        .into_iter()
        .skip(4)
        .map(|(took, _)| took)
        .collect();
    assert_eq!(node.misuse(0).all().count(), 0);
    found.sort_unstable();
    Some(found[found.len() / 2])
}

#[test]
fn a_message_is_read_when_it_comes_and_not_when_it_is_looked_for() {
    for bytes in [16, 64, 1024] {
        let Some(polled) = response("loopback", &NodeConfig::default(), bytes) else { return };
        let waited = response("loopback_blocking", &blocking(), bytes).expect("built before");
        println!("{bytes} B: first word in to first word out, polled {polled}, waited {waited}");
        // Two cycles of MESSAGES_READY, half a turn of the loop, and from the CSR through the branch to the read; less what branches that
        // the loop's history predicts better give back.
        assert!((5..=12).contains(&(polled - waited)), "{polled} {waited}");
    }
}

#[test]
fn every_size_comes_back_back_to_back() {
    let Some(program) = program("loopback_blocking") else { return };
    let mut node = Node::new(&program, &blocking()).expect("it fits");
    play(&mut node, (0..200).map(|i| 1 + i * 37 % 1024), 400);
    assert_eq!(node.misuse(0).all().count(), 0);
}

#[test]
fn without_the_switch_the_same_program_polls() {
    let Some(program) = program("loopback_blocking") else { return };
    let mut node = Node::new(&program, &NodeConfig::default()).expect("it fits");
    play(&mut node, std::iter::repeat_n(16, 10), 2_000);
    assert_eq!((node.waiting_since(0), node.misuse(0).all().count()), (None, 0));
}

#[test]
fn programs_that_do_not_ask_are_not_changed() {
    let Some(program) = program("loopback") else { return };
    let run = |config: &NodeConfig| {
        let mut node = Node::new(&program, config).expect("it fits");
        (play(&mut node, (0..40).map(|i| 8 + i * 24), 1_500), node.core(0).hart.csrs.minstret)
    };
    assert_eq!(run(&NodeConfig::default()), run(&blocking()));
}

/// A bare program of these words at the start of memory.
fn bare(words: &[u32]) -> Program {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let address = 0x8000_0000;
    let memory_bytes = bytes.len() as u64;
    Program { entry: address, segments: vec![Segment { address, bytes, memory_bytes }], symbols: Vec::new() }
}

const fn csrwi(csr: u32, value: u32) -> u32 {
    csr << 20 | value << 15 | 5 << 12 | 0x73
}

/// `addi rd, rs, immediate`
const fn addi(rd: u32, rs: u32, immediate: u32) -> u32 {
    immediate << 20 | rs << 15 | rd << 7 | 0x13
}

/// `add rd, a, b`
const fn add(rd: u32, a: u32, b: u32) -> u32 {
    b << 20 | a << 15 | rd << 7 | 0x33
}

const SPIN: u32 = 0x6f;
const COMMAND: u32 = 0x54;

#[test]
fn both_operands_of_one_read_are_one_word_and_a_long_wait_takes_nothing() {
    // Context 0; reads wait; a5 = x30 + x30; a6 = x30; then for ever.
    let words = [
        csrwi(0x53, 0),
        csrwi(COMMAND, 1),
        csrwi(COMMAND, 8),
        addi(0, 0, 0),
        addi(0, 0, 0),
        addi(0, 0, 0),
        add(15, 30, 30),
        addi(16, 30, 0),
        SPIN,
    ];
    let mut node = Node::new(&bare(&words), &blocking()).expect("it fits");
    node.record_timeline();
    let mut client = Client::new(CLIENT, NODE, 0);
    let request = Request { sent: 5_000, context: 0, payload: vec![1; 16] };
    client.play(&mut node, &[request], 1_000, |_, _| {}).expect("no traps");
    let hart = &node.core(0).hart;
    let header = u64::from(CLIENT) << 32 | 16;
    assert_eq!((hart.x[15], hart.x[16]), (2 * header, 0x0101_0101_0101_0101));
    assert_eq!(node.peek_word(0), Some(0x0101_0101_0101_0101), "the third word is still there");
    let stamps = node.take_timeline();
    let at = |stage| {
        stamps.iter().filter(|stamp| stamp.stage == stage).map(|stamp| stamp.cycle).collect::<Vec<_>>()
    };
    let (delivered, read) = (at(Stage::WordDelivered), at(Stage::WordRead));
    assert_eq!(read, [delivered[0] + 1, delivered[1] + 1], "each in the cycle after its word came");
    assert_eq!(at(Stage::ReadWaits).len(), 1);
    assert_eq!(node.misuse(0).all().count(), 0);
}

#[test]
fn a_read_without_a_context_does_not_hang() {
    let words = [
        csrwi(COMMAND, 8),
        addi(0, 0, 0),
        addi(0, 0, 0),
        addi(0, 0, 0),
        addi(15, 30, 0),
        addi(16, 0, 7),
        SPIN,
    ];
    let mut node = Node::new(&bare(&words), &blocking()).expect("it fits");
    node.run_until(2_000);
    assert_eq!((node.core(0).hart.x[16], node.waiting_since(0)), (7, None));
    let first = node.misuse(0).first(Mistake::ReadWithoutContext).expect("it is reported");
    assert_eq!((first.pc, first.context), (Some(0x8000_0010), 0));
}

#[test]
fn threads_that_wait_are_switched_like_threads_that_poll() {
    let Some(program) = program("service_blocking") else { return };
    let mut node = Node::new(&program, &blocking()).expect("it fits");
    let requests: Vec<_> = (0..120u64)
        .map(|i| {
            let (sent, context) = (20_000 + 1_900 * i, (i % 3 == 0) as u16);
            let payload = [(300 + 53 * (i % 40)).to_be_bytes(), sent.to_be_bytes()].concat();
            Request { sent, context, payload }
        })
        .collect();
    let answers =
        Client::new(CLIENT, NODE, 140).play(&mut node, &requests, 400_000, |_, _| {}).expect("no traps");
    for (answer, request) in answers.iter().zip(&requests) {
        assert_eq!(answer.as_ref().expect("answered").payload, request.payload);
    }
    assert_eq!(node.misuse(0).all().count(), 0);
    // Idle threads pass their turn on, so the one that runs has not waited for longer than that.
    (0..10_000).for_each(|_| node.tick(|_, _| {}));
    let since = node.waiting_since(0).unwrap_or(node.cycle());
    assert!(node.cycle() - since <= 3_010, "{since}");
}

/// Passing over a wait changes nothing: every answer comes on the same cycle as when the wait is simulated.
#[test]
fn skipping_waits_changes_nothing() {
    let Some(program) = program("loopback_blocking") else { return };
    let play = |skips_idle| {
        let mut config = NodeConfig { cores: 3, skips_idle, ..blocking() };
        config.nic.address = address(HostId(1));
        let node = Box::new(Node::new(&program, &config).expect("it fits"));
        let list = (0..60u64).map(|i| Request {
            sent: 10_000 + 2_000 * i + i * i * 37 % 1_500,
            context: 0,
            payload: vec![1; 8 + 40 * i as usize % 900],
        });
        let generator = Generator::new(HostId(0), list.map(|request| (HostId(1), request)).collect());
        let star = Topology::star(2, link(140)).expect("two hosts");
        let places = vec![Place::Other(generator), Place::Node(node)];
        let fabric = FabricConfig { priorities: 2, ..FabricConfig::default() };
        let mut network: Network = Network::new(star, fabric, places).expect("it fits");
        network.run_until(150_000).expect("no traps");
        let generator = network.other(HostId(0)).expect("the generator");
        assert!(generator.is_done());
        let answers: Vec<u64> =
            generator.answers().iter().map(|answer| answer.as_ref().expect("done").received).collect();
        let node = network.node(HostId(1)).expect("the node");
        let counters: Vec<u64> = (0..3).map(|core| node.core(core).hart.csrs.minstret).collect();
        (answers, counters, node.skipped_cycles())
    };
    let (slow, fast) = (play(false), play(true));
    assert_eq!((&slow.0, slow.2), (&fast.0, 0));
    assert_eq!(slow.1, fast.1);
    assert!(fast.2 > 100_000, "{}", fast.2);
}
