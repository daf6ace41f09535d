//! The core executes any program exactly as a hart without a pipeline does, and never panics.

use highwire_nanopu::{Core, CoreConfig, Event};
use highwire_riscv::csr::number::{MSTATUS, MTVEC};
use highwire_riscv::{Class, Hart, Instruction, Op, Ram, Step};
use highwire_stdx::Rng;

const BASE: u64 = 0x8000_0000;
const BYTES: usize = 8192;

/// A word that is mostly an instruction, mostly one that does no harm.
fn word(rng: &mut Rng, ops: &[Op]) -> u32 {
    if rng.chance(0.02) {
        return rng.next_u32();
    }
    let op = *rng.pick(ops);
    let mut whole = Instruction {
        op,
        rd: rng.below(32) as u8,
        rs1: rng.below(32) as u8,
        rs2: rng.below(32) as u8,
        rs3: rng.below(32) as u8,
        mode: rng.below(4) as u8,
        length: 4,
        immediate: rng.below(64) as i32 * 8 - 256,
        bits: 0,
    };
    match op.class() {
        // Two registers keep pointing into memory.
        Class::Load | Class::Store | Class::Atomic => whole.rs1 = 2 + rng.below(2) as u8,
        Class::Csr => whole.immediate = *rng.pick(&[1, 2, 3, 0x340, 0x342]),
        _ => {}
    }
    whole.rd += if matches!(whole.rd, 2 | 3) { 4 } else { 0 };
    whole.encode().unwrap_or(0x13)
}

fn program(seed: u64) -> (Hart, Ram) {
    let mut rng = Rng::new(seed);
    let unwanted = |op: &Op| {
        matches!(op, Op::Wfi | Op::Mret) || (op.class() == Class::System && !seed.is_multiple_of(3))
    };
    let ops: Vec<Op> = Op::all().filter(|op| !unwanted(op)).collect();
    let mut ram = Ram::new(BASE, BYTES);
    for chunk in ram.slice_mut(BASE, BYTES).unwrap().chunks_mut(4) {
        chunk.copy_from_slice(&word(&mut rng, &ops).to_le_bytes());
    }
    let mut hart = Hart::new(0, BASE);
    for register in 1..32 {
        hart.x[register] = if rng.chance(0.3) { rng.next_u64() } else { BASE + rng.below(1000) * 8 };
        hart.f[register] = rng.next_u64();
    }
    (hart.x[2], hart.x[3]) = (BASE + 0x1800, BASE + 0x1000);
    hart.csrs.write(MTVEC, BASE + rng.below(512) * 4);
    hart.csrs.write(MSTATUS, 3 << 13 | 3 << 11);
    (hart, ram)
}

#[test]
fn the_pipeline_changes_when_but_never_what() {
    let mut commits = 0;
    for seed in 0..400 {
        let (hart, mut core_ram) = program(seed);
        let (mut plain, mut plain_ram) = program(seed);
        let mut core = Core::new(hart, &CoreConfig::default());
        let mut last = 0;
        for _ in 0..400 {
            let event = core.run_to_event(&mut core_ram, 5000);
            let step = plain.step(&mut plain_ram);
            match (event, step) {
                (Event::Commit(commit), Step::Retired(retired)) => {
                    let same = highwire_riscv::Retired { cycle: retired.cycle, ..commit.retired };
                    assert_eq!(same, retired, "seed {seed}");
                    assert!(commit.cycle > last || last == 0, "seed {seed}: one commit per cycle");
                    last = commit.cycle;
                    commits += 1;
                }
                (Event::Trap { pc, trap, .. }, Step::Trapped { pc: plain_pc, trap: plain_trap }) => {
                    assert_eq!((pc, trap), (plain_pc, plain_trap), "seed {seed}");
                }
                // A jump to where there is no memory ends in traps for ever, at the same place.
                (event, step) => panic!("seed {seed}: {event:?}, but {step:?}"),
            }
        }
    }
    assert!(commits > 50_000, "{commits}");
}

#[test]
fn the_same_program_takes_the_same_cycles() {
    let run = |seed| {
        let (hart, mut ram) = program(seed);
        let mut core = Core::new(hart, &CoreConfig::default());
        (0..2000).map(|_| core.tick(&mut ram)).collect::<Vec<Event>>()
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_slower_memory_takes_longer() {
    let time = |memory_latency_cycles| {
        let (hart, mut ram) = program(2);
        let mut core = Core::new(hart, &CoreConfig { memory_latency_cycles, ..CoreConfig::default() });
        (0..100).for_each(|_| {
            core.run_to_event(&mut ram, 100_000);
        });
        core.cycle()
    };
    assert!(time(20) < time(40) && time(40) < time(200));
}
