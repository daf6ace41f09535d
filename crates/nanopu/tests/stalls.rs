//! A core that accounts for its cycles: nothing is left over, nothing else changes, and each cause is named where it arises.

#[path = "../examples/rocket/generate.rs"]
#[allow(dead_code, reason = "the example uses all of it")]
mod generate;
#[path = "../examples/rocket/here.rs"]
#[allow(dead_code, clippy::disallowed_methods, reason = "the example uses all of it, and reads files")]
mod here;
mod support;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::{Core, CoreConfig, Event, Node, NodeConfig, Port, Stall, Stalls};
use highwire_riscv::{AccessFault, Bus, Hart, Instruction, Op, Ram};
use support::{CLIENT, NODE, program};

const BASE: u64 = 0x8000_0000;
const DATA: u64 = BASE + 0x8000;
const TELLING: CoreConfig =
    CoreConfig { memory_latency_cycles: 40, remembers_cycles: true, tells_stalls: true };

/// Memory, and a word whose store ends a program.
struct Bench {
    ram: Ram,
    is_done: bool,
}

impl Port for Bench {}

impl Bus for Bench {
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.ram.load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == 0x1000_1000 {
            self.is_done = true;
            return Ok(());
        }
        self.ram.store(address, bytes, value)
    }

    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.ram.fetch_word(address)
    }
}

/// A core at the beginning of `image`, and its memory.
fn bench(image: &[u8], config: CoreConfig) -> (Core, Bench) {
    let mut ram = Ram::new(BASE, 1 << 20);
    ram.slice_mut(BASE, image.len()).unwrap().copy_from_slice(image);
    (Core::new(Hart::new(0, BASE), &config), Bench { ram, is_done: false })
}

fn check_sum(core: &Core) -> &Stalls {
    let stalls = core.stalls().expect("it tells");
    assert_eq!(stalls.all_cycles(), core.cycle());
    stalls
}

#[test]
fn every_cycle_of_a_random_program_has_one_cause_and_no_other_cycle_changes() {
    for seed in 0..4 {
        let image = generate::program(seed).bytes;
        let (mut telling, mut memory) = bench(&image, TELLING);
        let (mut silent, mut other) = bench(&image, CoreConfig::default());
        telling.record_stalls(0, usize::MAX);
        let (mut commits, mut traps) = (0, 0);
        while !memory.is_done {
            let event = telling.tick(&mut memory);
            assert_eq!(event, silent.tick(&mut other), "seed {seed}");
            commits += u64::from(matches!(event, Event::Commit(_)));
            traps += u64::from(matches!(event, Event::Trap { .. }));
            assert!(telling.cycle() < 20_000_000, "seed {seed} ends");
        }
        let stalls = check_sum(&telling);
        assert_eq!((stalls.commits(), stalls.traps()), (commits, traps), "seed {seed}");
        // The runs are the same cycles in order.
        let mut end = 0;
        for run in stalls.runs() {
            assert!(run.from >= end && run.cycles > 0, "seed {seed}: {run:?}");
            end = run.from + run.cycles;
        }
        for stall in Stall::ALL {
            let of_runs = stalls.runs().iter().filter(|run| run.stall == stall);
            assert_eq!(
                of_runs.map(|run| run.cycles).sum::<u64>(),
                stalls.cycles(stall),
                "seed {seed}: {stall:?}"
            );
        }
        assert!(silent.stalls().is_none());
    }
}

/// One instruction; operands that the operation does not have are ignored.
fn op(op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) -> u32 {
    let mode = if op.class() == highwire_riscv::Class::Atomic { 0 } else { 7 };
    let whole = Instruction { op, rd, rs1, rs2, rs3: 3, mode, length: 4, immediate, bits: 0 };
    whole.encode().unwrap_or_else(|| panic!("{}", op.name()))
}

/// By how much the causes grow over a thousand turns of a loop around `block`, without those of the same loop around nothing. The
/// loop begins warm. x20 and x21 point to data, f1 is a number.
fn causes(block: &[u32]) -> Vec<(Stall, u64)> {
    let grown = |block: &[u32]| {
        const TURNS: i32 = 1_000;
        let run = |turns: i32| {
            let mut code = vec![op(Op::Csrrs, 0, 5, 0, 0x300), op(Op::FcvtDL, 1, 6, 0, 0)];
            code.extend([op(Op::Addi, 9, 0, 0, turns), op(Op::Lui, 12, 0, 0, 0x1000_1000)]);
            code.resize(16, op(Op::Addi, 0, 0, 0, 0));
            let start = code.len() as i32;
            code.extend(block);
            code.push(op(Op::Addi, 9, 9, 0, -1));
            let back = 4 * (start - code.len() as i32);
            code.extend([op(Op::Bne, 0, 9, 0, back), op(Op::Sd, 0, 12, 0, 0), op(Op::Jal, 0, 0, 0, 0)]);
            let image: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
            let (mut core, mut memory) = bench(&image, TELLING);
            (core.hart.x[5], core.hart.x[6], core.hart.x[20]) = (0x6000, 3, DATA);
            (core.hart.x[21], core.hart.x[22]) = (DATA + 0x100, 1000);
            core.run_while(&mut memory, 2_000_000, |bench| !bench.is_done);
            assert!(memory.is_done, "it ends");
            let stalls = check_sum(&core);
            Stall::ALL.map(|stall| stalls.cycles(stall))
        };
        let (short, long) = (run(100), run(100 + TURNS));
        std::array::from_fn::<u64, 16, _>(|at| long[at].saturating_sub(short[at]))
    };
    let (with, without) = (grown(block), grown(&[]));
    let more = Stall::ALL.into_iter().zip(with.iter().zip(without));
    more.map(|(stall, (with, without))| (stall, with.saturating_sub(without)))
        .filter(|&(_, cycles)| cycles > 20)
        .collect()
}

/// The loop stalls for `stall` and hardly for anything else, at least so many cycles each turn.
fn check(what: &str, block: &[u32], stall: Stall, least: u64) {
    let found = causes(block);
    let own = found.iter().find(|(cause, _)| *cause == stall).map_or(0, |&(_, cycles)| cycles);
    let all: u64 = found.iter().map(|&(_, cycles)| cycles).sum();
    assert!(own >= 1_000 * least, "{what}: {found:?}");
    assert!(own * 100 >= all * 95, "{what}: {found:?}");
}

#[test]
fn each_cause_has_its_name() {
    let load = op(Op::Ld, 13, 20, 0, 0);
    check("a use right behind its load", &[load, op(Op::Add, 14, 13, 13, 0)], Stall::Operand, 1);
    check("a division", &[op(Op::Div, 13, 22, 6, 0), op(Op::Add, 14, 13, 13, 0)], Stall::Unit, 8);
    check("a division behind one", &[op(Op::Div, 13, 22, 6, 0), op(Op::Div, 14, 22, 6, 0)], Stall::Unit, 8);
    check("a root", &[op(Op::FsqrtD, 2, 1, 0, 0), op(Op::FaddD, 3, 2, 2, 0)], Stall::FloatUnit, 10);
    check("a CSR that flushes", &[op(Op::Csrrs, 0, 5, 0, 0x300)], Stall::Flush, 3);
    // Two lines more of each set than ways: every one of them is missing when its turn comes.
    let far: Vec<u32> = [
        op(Op::Lui, 15, 0, 0, 0x4000),
        op(Op::Add, 20, 20, 15, 0),
        op(Op::Lui, 15, 0, 0, 0x3_f000),
        op(Op::And, 20, 20, 15, 0),
        op(Op::Lui, 15, 0, 0, i32::MIN),
        op(Op::Slli, 15, 15, 0, 32),
        op(Op::Srli, 15, 15, 0, 32),
        op(Op::Add, 20, 20, 15, 0),
        op(Op::Ld, 13, 20, 0, 0),
    ]
    .to_vec();
    check("a line that is missing", &far, Stall::DataLine, 20);
    check("a read of what a store writes", &[op(Op::Sd, 0, 20, 9, 0), load], Stall::Store, 1);
    // Its direction changes with a bit of the square of the turn.
    let branch = [
        op(Op::Mul, 13, 9, 9, 0),
        op(Op::Mul, 13, 13, 9, 0),
        op(Op::Srli, 13, 13, 0, 9),
        op(Op::Andi, 13, 13, 0, 1),
        op(Op::Beq, 0, 13, 0, 8),
        op(Op::Addi, 14, 14, 0, 1),
    ];
    let found = causes(&branch);
    assert!(
        found.iter().any(|&(stall, cycles)| stall == Stall::Misprediction && cycles > 1_000),
        "{found:?}"
    );
    let found = causes(&[0x0000_100f]);
    assert!(found.iter().any(|&(stall, cycles)| stall == Stall::CodeLine && cycles > 20_000), "{found:?}");
}

/// What a node's core accounts for while it serves messages.
fn served(name: &str, config: NodeConfig) -> Option<Stalls> {
    let mut node = Node::new(&program(name)?, &config).expect("it fits");
    let request = |number: u64| Request { sent: 10_000 + 2_000 * number, context: 0, payload: vec![7; 16] };
    let requests: Vec<Request> = (0..20).map(request).collect();
    let mut client = Client::new(CLIENT, NODE, 140);
    let answers = client.play(&mut node, &requests, 100_000, |_, _| {}).expect("no traps");
    assert!(answers.iter().all(Option::is_some));
    Some(check_sum(node.core(0)).clone())
}

#[test]
fn a_read_that_waits_for_a_word_is_a_stall_and_polling_is_not() {
    let config = NodeConfig { blocking_reads: true, core: TELLING, ..NodeConfig::default() };
    let Some(waiting) = served("loopback_blocking", config) else { return };
    assert!(waiting.cycles(Stall::Word) * 10 > waiting.all_cycles() * 8, "{waiting:?}");
    let polling = served("loopback", NodeConfig { core: TELLING, ..NodeConfig::default() }).unwrap();
    assert_eq!(polling.cycles(Stall::Word), 0);
    assert!(polling.commits() * 2 > polling.all_cycles(), "{polling:?}");
}

#[test]
fn nothing_is_passed_over_on_a_core_that_tells() {
    let Some(program) = program("loopback") else { return };
    let mut node = Node::new(&program, &NodeConfig { core: TELLING, ..NodeConfig::default() }).unwrap();
    node.run_until(50_000);
    assert_eq!((node.skipped_cycles(), check_sum(node.core(0)).all_cycles()), (0, 50_000));
}
