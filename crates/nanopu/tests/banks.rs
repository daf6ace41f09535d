//! Banks of registers (`NodeConfig::context_banks`): the scheduler switches threads without a handler, and no thread notices.

mod support;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::{CoreConfig, Node, NodeConfig, NodeEvent, Stage};
use highwire_riscv::{Cause, Exception, Program, Segment};
use highwire_stdx::Rng;
use support::{CLIENT, NODE, program};

const LINK_CYCLES: u64 = 140;
const WORK_CYCLES: u64 = 1_600;

fn banks() -> NodeConfig {
    NodeConfig { context_banks: true, ..NodeConfig::default() }
}

fn request(sent: u64, context: u16, words: [u64; 2]) -> Request {
    Request { sent, context, payload: words.map(u64::to_be_bytes).concat() }
}

fn play(node: &mut Node, requests: &[Request]) -> Vec<(u64, Vec<u8>)> {
    let answers =
        Client::new(CLIENT, NODE, LINK_CYCLES).play(node, requests, 400_000, |_, _| {}).expect("no traps");
    let both = answers.into_iter().zip(requests);
    both.map(|(answer, request)| {
        let answer = answer.expect("answered");
        (answer.received - request.sent, answer.payload)
    })
    .collect()
}

/// The median cycles over service and links of an urgent request that finds its own thread on the core, and of one that interrupts
/// the other's work, at all phases of its loop.
fn isolated(name: &str, config: &NodeConfig) -> Option<[u64; 2]> {
    let mut node = Node::new(&program(name)?, config).expect("it fits");
    let work = |sent, context| request(sent, context, [WORK_CYCLES, sent]);
    let at = |i: u64| 30_000 + 16_000 * i + i % 13;
    let pair = |i: u64| match i % 2 {
        0 => [work(at(i), 0), work(at(i) + 3_000 + i, 0)],
        _ => [work(at(i), 1), work(at(i) + 700 + i, 0)],
    };
    let requests: Vec<_> = (0..48).flat_map(pair).collect();
    let responses = play(&mut node, &requests);
    assert_eq!(node.misuse(0).all().count(), 0);
    Some([0, 1].map(|kind| {
        let second =
            (8..48).filter(|i| i % 2 == kind).map(|i| responses[2 * i + 1].0 - WORK_CYCLES - 2 * LINK_CYCLES);
        let mut all: Vec<u64> = second.collect();
        all.sort_unstable();
        println!(
            "{name} {}: {} to {}, median {}",
            ["alone", "preempting"][kind],
            all[0],
            all[all.len() - 1],
            all[all.len() / 2]
        );
        all[all.len() / 2]
    }))
}

#[test]
fn a_switch_takes_less_than_ten_cycles() {
    let both = NodeConfig { blocking_reads: true, ..banks() };
    for (name, config) in [("service", banks()), ("service_blocking", both)] {
        let Some([alone, preempting]) = isolated(name, &config) else { return };
        println!("{name}: a switch takes {}", preempting as i64 - alone as i64);
        assert!(preempting < alone + 10, "{name}: {alone} {preempting}");
    }
    let [alone, preempting] = isolated("service", &NodeConfig::default()).expect("built before");
    assert!(
        (80..=150).contains(&(preempting - alone)),
        "the same program, by its handler: {alone} {preempting}"
    );
}

#[test]
fn the_pipeline_drains_in_three_cycles_and_the_banks_change() {
    let Some(program) = program("service") else { return };
    let mut node = Node::new(&program, &banks()).expect("it fits");
    node.record_timeline();
    let requests: Vec<_> = (0..20)
        .flat_map(|i| {
            let sent = 30_000 + 16_000 * i;
            [request(sent, 1, [WORK_CYCLES, 0]), request(sent + 700 + 3 * i, 0, [WORK_CYCLES, 0])]
        })
        .collect();
    play(&mut node, &requests);
    let stamps = node.take_timeline();
    let mut wanted = None;
    let mut found = Vec::new();
    for stamp in stamps.iter().filter(|stamp| stamp.cycle > 30_000) {
        match stamp.stage {
            // The wish shows at the end of its cycle, and the scheduler may renew it while the switch is
            // under way.
            Stage::SwitchWanted => wanted = wanted.or(Some(stamp.cycle + 1)),
            Stage::Switched => found.extend(wanted.take().map(|wanted| stamp.cycle - wanted)),
            _ => {}
        }
    }
    assert!(found.len() > 60 && found.iter().all(|cycles| (1..=3).contains(cycles)), "{found:?}");
}

/// Requests for four threads whose answers depend on every register, so close that most find another thread at work.
fn mixed(seed: u64) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let mut sent = 60_000;
    (0..160)
        .map(|_| {
            sent += rng.below(4_000);
            request(sent, rng.below(4) as u16, [rng.next_u64(), 1 + rng.below(12)])
        })
        .collect()
}

#[test]
fn no_thread_loses_anything_to_another() {
    let Some(program) = program("mixed") else { return };
    let mut switches = 0;
    for seed in 0..6 {
        let words = |config: &NodeConfig, requests: &[Request]| -> (Vec<Vec<u8>>, usize) {
            let mut node = Node::new(&program, config).expect("it fits");
            node.record_timeline();
            let words = play(&mut node, requests).into_iter().map(|(_, words)| words).collect();
            assert_eq!(node.misuse(0).all().count(), 0);
            (words, node.take_timeline().iter().filter(|stamp| stamp.stage == Stage::Switched).count())
        };
        let dense = mixed(seed);
        let apart = dense
            .iter()
            .zip(0..)
            .map(|(request, i)| Request { sent: 60_000 + 30_000 * i, ..request.clone() });
        // The handler keeps no floating-point registers, so its threads must not meet.
        let (expected, _) = words(&NodeConfig::default(), &apart.collect::<Vec<_>>());
        let (found, switched) = words(&banks(), &dense);
        assert_eq!(found, expected, "seed {seed}");
        switches += switched;
    }
    assert!(switches > 500, "{switches}");
}

/// A bare program of these words at the start of memory.
fn bare(words: &[u32]) -> Program {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let segments = vec![Segment { address: 0x8000_0000, memory_bytes: bytes.len() as u64, bytes }];
    Program { entry: 0x8000_0000, segments, symbols: Vec::new() }
}

/// `csrrw`, `csrrwi`, `csrrsi` or `csrrci` into x0, by the number that tells them apart.
const fn csr(kind: u32, csr: u32, operand: u32) -> u32 {
    csr << 20 | operand << 15 | kind << 12 | 0x73
}

#[test]
fn a_thread_that_holds_off_interrupts_holds_off_the_switch() {
    const ROUNDS: u32 = 1_000;
    const SPIN: u32 = 0x6f;
    let [write, write_immediate, set, clear] = [1, 5, 6, 7];
    // a0 = the start of memory + offset
    let address = |offset: u32, place: u32| [0x517, (offset - 4 * place) << 20 | 10 << 15 | 10 << 7 | 0x13];
    let context = |number: u32, offset: u32, place: u32| {
        let [high, low] = address(offset, place + 3);
        let of = |register, value| csr(write_immediate, register, value);
        [of(0x53, number), of(0x55, number), of(0x54, 1), high, low, csr(write, 0x62, 10)]
    };
    let mut words = Vec::new();
    words.extend(context(0, 0x80, 0));
    words.extend(context(1, 0x90, 6));
    // From now on as an unknown context, with the scheduler's interrupt enabled.
    words.extend([csr(write_immediate, 0x53, 31), 16 << 12 | 11 << 7 | 0x37, csr(write, 0x304, 11)]);
    words.extend([csr(set, 0x300, 8), SPIN]);
    words.resize(0x80 / 4, SPIN);
    words.extend([SPIN; 4]);
    // Context 1: off, a loop of an addition and a branch, and on.
    let load = ROUNDS << 20 | 10 << 7 | 0x13;
    let (count, again) = (0xfff << 20 | 10 << 15 | 10 << 7 | 0x13, 0xfe05_1ee3);
    words.extend([csr(clear, 0x300, 8), load, count, again, csr(set, 0x300, 8), SPIN]);
    let mut node = Node::new(&bare(&words), &banks()).expect("it fits");
    node.record_timeline();
    let requests = [request(5_000, 1, [0; 2]), request(5_500, 0, [0; 2])];
    let answers =
        Client::new(CLIENT, NODE, 0).play(&mut node, &requests, 10_000, |_, _| {}).expect("no traps");
    assert_eq!(answers, [None, None]);
    let stamps = node.take_timeline();
    let at = |stage, value| {
        let found =
            stamps.iter().filter(|stamp| stamp.cycle > 5_000 && stamp.stage == stage && stamp.value == value);
        found.map(|stamp| stamp.cycle).next().expect("it came to that")
    };
    let (begun, wanted, switched) =
        (at(Stage::Switched, 1), at(Stage::SwitchWanted, 0), at(Stage::Switched, 0));
    assert!((5_500..5_600).contains(&wanted), "{wanted}");
    // The loop takes two cycles a turn once its branch is known.
    assert!(
        (2 * u64::from(ROUNDS)..2 * u64::from(ROUNDS) + 200).contains(&(switched - begun)),
        "{begun} {switched}"
    );
}

#[test]
fn cycles_are_the_same_whether_remembered_or_worked_out() {
    let Some(program) = program("mixed") else { return };
    let run = |remembers_cycles| {
        let core = CoreConfig { remembers_cycles, ..CoreConfig::default() };
        let mut node = Node::new(&program, &NodeConfig { core, ..banks() }).expect("it fits");
        (play(&mut node, &mixed(9)), node.core(0).hart.csrs.minstret)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_core_without_banks_has_no_register_for_them() {
    let program = bare(&[csr(5, 0x62, 0)]);
    let trap = |config: &NodeConfig| {
        let mut node = Node::new(&program, config).expect("it fits");
        node.run_until(500);
        node.take_events().into_iter().find_map(|event| match event {
            NodeEvent::Trapped { pc: 0x8000_0000, trap, .. } => Some(trap.cause),
            _ => None,
        })
    };
    assert_eq!(trap(&NodeConfig::default()), Some(Cause::Exception(Exception::IllegalInstruction)));
    assert_eq!(trap(&banks()), None);
}
