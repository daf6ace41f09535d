//! Words for x31 that are not there when their instruction commits: when they reach the queue, in which
//! order, and how the check on the program counts them.

use highwire_nanopu::{Event, Mistake, Node, NodeConfig, NodeEvent, Stage};
use highwire_riscv::{Program, Segment};

const START: u64 = 0x8000_0000;
const DATA: u32 = 0x400;
/// The header of a message of two words.
const HEADER: u64 = 0x0a00_0001 << 32 | 16;
const A: u64 = 0x0123_4567_89ab_cdef;
const B: u64 = 1_000_003;

const fn itype(immediate: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    immediate << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

const fn rtype(funct7: u32, rs2: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

const fn csrwi(csr: u32, value: u32) -> u32 {
    itype(csr, value, 5, 0, 0x73)
}

/// To x31 from a register: 5 has the header, 8 has `A`, 9 has `B`, 11 has one.
const fn put(register: u32) -> u32 {
    itype(0, register, 0, 31, 0x13)
}

/// To x31: x8 and `rs2`, multiplied or divided.
const fn muldiv(funct3: u32, rs2: u32) -> u32 {
    rtype(1, rs2, 8, funct3, 31, 0x33)
}

const MUL: u32 = muldiv(0, 9);
const DIVU: u32 = muldiv(5, 9);
const DONE: u32 = csrwi(0x56, 1);
const SPIN: u32 = 0x6f;

/// A node whose program does `body` as context 0, with registers as for [`put`], x6 at the data, x10 behind the clock, `A` and a float
/// of it in f1 and f2; and what it has sent, written to x31, and committed there, by cycle.
struct Run {
    node: Node,
    sent: Vec<u64>,
    written: Vec<(u64, u64)>,
    committed: Vec<u64>,
}

fn run(body: &[u32]) -> Run {
    let mut words = vec![
        csrwi(0x53, 0),
        csrwi(0x54, 1),
        6 << 12 | 7 << 7 | 0x37,         // lui x7, 6
        itype(0x300, 7, 2, 0, 0x73),     // csrs mstatus, x7
        6 << 7 | 0x17,                   // auipc x6, 0
        itype(DATA - 16, 6, 0, 6, 0x13), // addi
        itype(0, 6, 3, 5, 0x03),         // ld x5
        itype(8, 6, 3, 8, 0x03),         // ld x8
        itype(16, 6, 3, 9, 0x03),        // ld x9
        0x200c << 12 | 10 << 7 | 0x37,   // lui x10, 0x200c
        itype(1, 0, 0, 11, 0x13),        // li x11, 1
        rtype(0x79, 0, 8, 0, 1, 0x53),   // fmv.d.x f1, x8
        rtype(0x69, 2, 8, 7, 2, 0x53),   // fcvt.d.l f2, x8
    ];
    words.extend_from_slice(body);
    words.push(SPIN);
    assert!(4 * words.len() < DATA as usize);
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(DATA as usize, 0);
    bytes.extend([HEADER, A, B, HEADER + 8].iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(DATA as usize + 0x200, 7);
    let memory_bytes = bytes.len() as u64;
    let segments = vec![Segment { address: START, bytes, memory_bytes }];
    let program = Program { entry: START, segments, symbols: Vec::new() };
    let mut node = Node::new(&program, &NodeConfig::default()).expect("it fits");
    node.record_timeline();
    let mut committed = Vec::new();
    for _ in 0..2_000 {
        node.tick(|_, event| {
            if let Event::Commit(commit) = event
                && commit.retired.write.is_some_and(|write| write.register.number == 31)
                && commit.retired.instruction.op.name() != "fld"
            {
                committed.push(commit.cycle);
            }
        });
    }
    let mut sent = Vec::new();
    for event in node.take_events() {
        match event {
            NodeEvent::Sent { packet, .. } => sent.extend(
                packet
                    .payload
                    .chunks_exact(8)
                    .map(|word| u64::from_be_bytes(word.try_into().expect("eight"))),
            ),
            NodeEvent::Trapped { pc, trap, .. } => panic!("{pc:#x}: {trap:?}"),
        }
    }
    let stamps = node.take_timeline();
    let written = stamps.iter().filter(|stamp| stamp.stage == Stage::WordWritten);
    let written = written.map(|stamp| (stamp.cycle, stamp.value)).collect();
    Run { node, sent, written, committed }
}

fn mistakes(node: &Node) -> Vec<(Mistake, u64)> {
    node.misuse(0).all().map(|(mistake, count, _)| (mistake, count)).collect()
}

/// Instructions that write x31, what they write, and how many cycles behind their commit.
fn instructions() -> Vec<(&'static str, u32, u64, std::ops::RangeInclusive<u64>)> {
    let quotient = |value: i64| value as u64;
    let float = (A as i64 as f64) as i64 as u64;
    vec![
        ("mv", put(8), A, 0..=0),
        ("csrr", itype(0x53, 0, 2, 31, 0x73), 0, 0..=0),
        ("fmv.x.d", rtype(0x71, 0, 1, 0, 31, 0x53), A, 0..=0),
        ("fcvt.l.d", rtype(0x61, 2, 2, 1, 31, 0x53), float, 0..=0),
        ("feq.d", rtype(0x51, 2, 2, 2, 31, 0x53), 1, 0..=0),
        ("ld, a hit", itype(16, 6, 3, 31, 0x03), B, 0..=0),
        ("lbu, a hit", itype(16, 6, 4, 31, 0x03), B & 0xff, 0..=0),
        ("ld, a miss", itype(0x100, 6, 3, 31, 0x03), 0x0707_0707_0707_0707, 0..=0),
        ("amoadd.d", rtype(0, 0, 6, 3, 31, 0x2f), HEADER, 0..=0),
        ("mul", MUL, A.wrapping_mul(B), 1..=10),
        ("mulw", rtype(1, 9, 8, 0, 31, 0x3b), quotient((A as i32).wrapping_mul(B as i32).into()), 1..=6),
        ("div", muldiv(4, 9), quotient(A as i64 / B as i64), 30..=68),
        ("divu", DIVU, A / B, 30..=68),
        ("rem", muldiv(6, 9), A % B, 30..=68),
        ("remuw", rtype(1, 9, 8, 7, 31, 0x3b), quotient((A as u32 % B as u32).into()), 1..=34),
        // From the cache's second stage to the device and back.
        ("ld from a device", itype(0xff8, 10, 3, 31, 0x03), 0, 5..=6),
    ]
}

#[test]
fn the_last_word_may_come_behind_the_message_done() {
    for (name, instruction, value, behind) in instructions() {
        let ran = run(&[put(5), put(9), instruction, DONE]);
        assert_eq!(mistakes(&ran.node), [], "{name}");
        assert_eq!(ran.sent, [B, value], "{name}");
        let took = ran.written[2].0 - ran.committed[2];
        println!("{name}: {took}");
        assert!(behind.contains(&took), "{name}: {took}");
    }
}

#[test]
fn words_stay_in_the_programs_order() {
    for (name, instruction, value, _) in instructions() {
        let ran = run(&[put(5), put(9), instruction, put(5), instruction, put(8), DONE]);
        assert_eq!(mistakes(&ran.node), [], "{name}");
        assert_eq!(ran.sent, [B, value, value, A], "{name}");
        let words: Vec<u64> = ran.written.iter().map(|&(_, word)| word).collect();
        assert_eq!(words, [HEADER, B, value, HEADER, value, A], "{name}");
    }
}

#[test]
fn a_message_that_lacks_a_word_lacks_it_all_the_same() {
    for (name, instruction, ..) in instructions() {
        let ran = run(&[put(5), instruction, DONE]);
        assert_eq!(mistakes(&ran.node), [(Mistake::MessageUnfinished, 1)], "{name}");
        let ran = run(&[put(5), put(8), instruction, instruction, DONE]);
        let surplus = mistakes(&ran.node);
        assert!(surplus.iter().all(|&(mistake, _)| mistake == Mistake::SurplusWord), "{name}: {surplus:?}");
    }
}

#[test]
fn a_header_may_be_late_as_well() {
    // x5 · 1, then the words.
    let header = rtype(1, 11, 5, 0, 31, 0x33);
    let ran = run(&[header, put(8), put(9), DONE]);
    assert_eq!((mistakes(&ran.node), ran.sent), (vec![], vec![A, B]));
    let ran = run(&[header, DONE, DONE]);
    assert_eq!(mistakes(&ran.node), [(Mistake::MessageUnfinished, 2)], "once for each that is declared done");
    let first = ran.node.misuse(0).first(Mistake::MessageUnfinished).expect("it is");
    assert_eq!((first.pc, first.detail), (Some(START + 13 * 4), 2), "the header's place");
}

#[test]
fn a_late_word_leaves_in_the_name_of_whoever_runs_then() {
    let switch = csrwi(0x53, 1);
    let ran = run(&[switch, csrwi(0x54, 1), csrwi(0x53, 0), put(5), put(9), DIVU, switch]);
    let misuse = ran.node.misuse(0);
    let first = misuse.first(Mistake::WordInOtherName).expect("it is reported");
    assert_eq!((first.context, first.detail, first.pc), (0, 1, Some(START + 18 * 4)));
    // A program that reads x31 before it switches waits for it.
    let wait = itype(0, 31, 0, 12, 0x13);
    let ran = run(&[switch, csrwi(0x54, 1), csrwi(0x53, 0), put(5), put(9), DIVU, wait, switch]);
    assert_eq!((mistakes(&ran.node), ran.sent), (vec![], vec![B, A / B]));
}
