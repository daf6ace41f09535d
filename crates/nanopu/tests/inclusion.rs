//! The second-level cache includes the lines of the first-level data caches: they lose every line that it
//! drops.

use highwire_nanopu::{Node, NodeConfig, SharedCacheConfig};
use highwire_riscv::{Program, Segment};

const START: u64 = 0x8000_0000;
/// Data begins so many bytes behind the program, at a line.
const DATA: u32 = 0x700;

const fn itype(immediate: u32, rs1: u32, funct3: u32, rd: u32, opcode: u32) -> u32 {
    immediate << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
}

const fn load(rd: u32, offset: u32) -> u32 {
    itype(offset, 6, 3, rd, 0x03)
}

const fn store(offset: u32) -> u32 {
    (offset >> 5) << 25 | 9 << 20 | 6 << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

const NOP: u32 = 0x13;
/// `csrr rd, mcycle`
const fn now(rd: u32) -> u32 {
    itype(0xb00, 0, 2, rd, 0x73)
}

/// Cycles from asking for the word at the data's beginning to its use, after it was used (`first`) and then `lines` others, which
/// are in other sets of the first level; with a second level of eight lines in one set, or the usual.
fn cycles(first: u32, lines: u32, others: fn(u32) -> u32, is_tiny: bool) -> u64 {
    let mut words = vec![
        6 << 7 | 0x17,              // auipc x6, 0
        itype(DATA, 6, 0, 6, 0x13), // addi x6, x6
        first,
    ];
    words.extend([NOP; 100]);
    for line in 1..=lines {
        words.push(others(64 * line));
        words.extend([NOP; 24]);
    }
    words.extend([now(10), load(7, 0), 7 << 20 | 7 << 15 | 7 << 7 | 0x33, now(11), 0x6f]);
    assert!(4 * words.len() <= DATA as usize, "{}", words.len());
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.resize(DATA as usize + 64 * 16, 0);
    let memory_bytes = bytes.len() as u64;
    let segments = vec![Segment { address: START, bytes, memory_bytes }];
    let program = Program { entry: START, segments, symbols: Vec::new() };
    let usual = SharedCacheConfig::default();
    let tiny = SharedCacheConfig { bytes: 8 * 64, ways: 8, ..usual };
    let shared_cache = Some(if is_tiny { tiny } else { usual });
    let mut node =
        Node::new(&program, &NodeConfig { shared_cache, ..NodeConfig::default() }).expect("it fits");
    node.run_until(30_000);
    let x = node.core(0).hart.x;
    assert_eq!(x[7], 0);
    x[11] - x[10]
}

#[test]
fn a_line_that_leaves_the_second_level_leaves_the_first() {
    let others: fn(u32) -> u32 = |offset| load(8, offset);
    let hit = cycles(load(7, 0), 8, others, false);
    // Behind it come the lines of the program: from its first use to its second the second level drops it.
    let miss = cycles(load(7, 0), 8, others, true);
    println!("hit {hit}, lost {miss}");
    assert!(miss >= hit + 40, "it comes from memory again: {hit} {miss}");
    // A dirty line goes the same way.
    assert_eq!(cycles(store(0), 8, others, false), hit);
    assert_eq!(cycles(store(0), 8, others, true), miss);
    assert_eq!(cycles(load(7, 0), 8, store, false), hit);
    assert_eq!(cycles(load(7, 0), 8, store, true), miss);
}
