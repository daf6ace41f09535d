//! The programs of `riscv/` on nodes around a switch: every answer against a model in Rust, and their
//! reaction to messages that make no sense.

#[allow(dead_code, reason = "others use the rest")]
#[path = "../support/mod.rs"]
mod support;

mod chain;
mod counter;
mod experiments;
mod intersection;
mod onesided;
mod raft;
mod table;
mod testbed;
mod words;

use highwire_nanopu::testbed::{Request, Testbed, address};
use highwire_nanopu::{Mistake, Node, NodeConfig};
use highwire_stdx::Rng;
use support::program;

/// Statuses of `status.h`.
mod status {
    pub(crate) const OK: u64 = 0;
    pub(crate) const NOT_FOUND: u64 = 1;
    pub(crate) const MALFORMED: u64 = 2;
    pub(crate) const FULL: u64 = 3;
    pub(crate) const BAD_ADDRESS: u64 = 4;
    pub(crate) const NOT_HERE: u64 = 5;
}

/// Links of the load generator's default length.
const LINK_CYCLES: u64 = 140;
const PATIENCE_CYCLES: u64 = 20_000_000;

/// Nodes that run these programs, each with so many cores; nothing where there is no compiler.
fn testbed(programs: &[&str], cores: usize) -> Option<Testbed> {
    let nodes = programs.iter().enumerate().map(|(number, name)| {
        let mut config = NodeConfig { cores, ..NodeConfig::default() };
        config.nic.address = address(number);
        Some(Node::new(&program(name)?, &config).expect("it fits"))
    });
    Some(Testbed::new(nodes.collect::<Option<_>>()?, LINK_CYCLES).expect("it fits"))
}

/// Asks node 0 in context 0, and returns the answer's words.
fn ask(testbed: &mut Testbed, words: &[u64]) -> Vec<u64> {
    ask_node(testbed, 0, words)
}

/// The same with any node.
fn ask_node(testbed: &mut Testbed, node: usize, words: &[u64]) -> Vec<u64> {
    testbed.call(address(node), 0, words, PATIENCE_CYCLES).unwrap_or_else(|error| panic!("{error}")).words()
}

/// Sends node 0 messages of random length and content, whole words or not; all are answered, with a status unless it is OK.
fn throw_garbage(testbed: &mut Testbed, seed: u64, operations: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..200 {
        let mut payload = vec![0; rng.below(120) as usize];
        rng.fill(&mut payload);
        if payload.len() >= 8 {
            payload[..8].copy_from_slice(&rng.below(operations + 2).to_be_bytes());
        }
        let number = testbed.send(Request { sent: testbed.cycle(), node: address(0), context: 0, payload });
        let end = testbed.cycle() + PATIENCE_CYCLES;
        while testbed.answer(number).is_none() && testbed.cycle() < end {
            testbed.run(LINK_CYCLES).unwrap_or_else(|error| panic!("{error}"));
        }
        let answer = testbed.answer(number).expect("an answer, if only a status");
        assert!(answer.payload.len() >= 8);
    }
    assert_eq!(testbed.node(0).misuse(0).count(Mistake::EmptyRead), 0, "it never reads what is not there");
}

#[test]
fn nothing_that_comes_makes_a_program_trap() {
    for name in ["dot", "dot_naive", "chain_proxy", "mica_static", "onesided_client"] {
        let Some(mut testbed) = testbed(&[name], 1) else { return };
        throw_garbage(&mut testbed, 14, 1);
    }
}
