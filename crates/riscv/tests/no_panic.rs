//! No program and no file makes the crate panic, and stepping and running give the same results.

use highwire_riscv::csr::number::{MSTATUS, MTVEC};
use highwire_riscv::{Hart, Instruction, Located, Machine, MachineConfig, Program, Ram};
use highwire_stdx::Rng;

const BASE: u64 = 0x8000_0000;

#[test]
fn any_word_decodes_or_is_refused_and_what_decodes_encodes_to_itself() {
    let mut rng = Rng::new(11);
    for _ in 0..2_000_000 {
        let word = rng.next_u32() | 3;
        let Ok(instruction) = Instruction::decode(word) else { continue };
        assert_eq!(instruction.bits, word);
        assert_eq!(instruction.encode(), Some(word), "{instruction}");
    }
    for _ in 0..200_000 {
        let (word, pc) = (rng.next_u32(), rng.next_u64());
        if let Ok(instruction) = Instruction::decode(word) {
            assert!(!Located { pc, instruction }.to_string().is_empty());
        }
    }
}

/// A hart whose memory, registers and handler are noise.
fn noise(seed: u64) -> (Hart, Ram) {
    let mut rng = Rng::new(seed);
    let mut ram = Ram::new(BASE, 4096);
    rng.fill(ram.slice_mut(BASE, 4096).unwrap());
    let mut hart = Hart::new(0, BASE);
    for register in 1..32 {
        hart.x[register] = if rng.chance(0.5) { BASE + rng.below(512) * 8 } else { rng.next_u64() };
        hart.f[register] = rng.next_u64();
    }
    hart.csrs.write(MTVEC, BASE + rng.below(1024) * 4);
    hart.csrs.write(MSTATUS, 3 << 13 | 3 << 11);
    (hart, ram)
}

#[test]
fn noise_runs_without_a_panic_and_the_same_way_twice() {
    for seed in 0..3000 {
        let (mut stepped, mut stepped_ram) = noise(seed);
        let (mut run, mut run_ram) = noise(seed);
        for _ in 0..60 {
            let _ = stepped.step(&mut stepped_ram);
        }
        // An unhandled trap or a wait ends a run early; stepping goes on, so only runs that end by their
        // budget are compared.
        if run.run(&mut run_ram, 60) != highwire_riscv::RunEnd::Budget {
            continue;
        }
        assert_eq!((stepped.pc, stepped.x, stepped.f), (run.pc, run.x, run.f), "seed {seed}");
        assert_eq!(stepped.csrs.minstret, run.csrs.minstret, "seed {seed}");
        assert_eq!(stepped_ram.slice(BASE, 4096), run_ram.slice(BASE, 4096), "seed {seed}");
        assert_eq!(run.x[0], 0);
    }
}

#[test]
fn damaged_files_are_refused_or_loaded_but_never_fatal() {
    let mut rng = Rng::new(5);
    let mut good = vec![0u8; 0x200];
    good[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf3\0");
    good[32] = 64;
    good[54] = 56;
    good[56] = 2;
    good[64] = 1;
    good[68] = 7;
    good[96] = 0x80;
    good[104] = 0x90;
    assert!(Program::parse(&good).is_ok());
    for _ in 0..20_000 {
        let mut file = good.clone();
        for _ in 0..rng.between(1, 6) {
            let at = rng.below(200) as usize;
            file[at] = if rng.chance(0.3) { 0xff } else { rng.next_u32() as u8 };
        }
        file.truncate(rng.between(0, 0x200) as usize);
        if let Ok(program) = Program::parse(&file) {
            let config = MachineConfig { memory_base: 0, memory_bytes: 0x1000, instructions_per_tick: 1 };
            if let Ok(mut machine) = Machine::new(&program, config) {
                machine.run(100);
            }
        }
    }
}
