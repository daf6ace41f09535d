//! Random programs on this crate's hart and under `qemu-riscv64`: every register, the flags and memory agree.
//!
//! A program is many short sequences. Each loads every register, runs random instructions, and stores everything to an
//! output area that is written to standard output at the end.

mod support;

use highwire_riscv::{Class, Instruction, Located, Op};
use highwire_stdx::Rng;
use support::{BASE, Code, elf, encode, instruction, run_here, run_under_qemu};

/// Registers that the instructions do not change: bases of the memory that they may access, and of the
/// tables.
const STACK: u8 = 2;
const FRAME: u8 = 8;
const SCRATCH: u8 = 30;
const TABLE: u8 = 31;
const FIXED: [u8; 4] = [STACK, FRAME, SCRATCH, TABLE];

/// The state of one sequence, before and after, in words of eight bytes: x0 to x31, f0 to f31, fcsr, scratch memory.
const FCSR: usize = 64;
const MEMORY: usize = 65;
const MEMORY_WORDS: usize = 130;
const WORDS: usize = MEMORY + MEMORY_WORDS;
/// Offsets that reach scratch memory with either sign, or with the large positive ones of compressed instructions.
const MIDDLE: i32 = 64;

/// Values for which faulty arithmetic most likely goes wrong.
const DOUBLES: [u64; 24] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x3fe0_0000_0000_0000,
    0x3ff8_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0xfff8_dead_beef_0000,
    0x0000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x0010_0000_0000_0001,
    0x8010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x43e0_0000_0000_0000,
    0xc3e0_0000_0000_0000,
    0x41df_ffff_ffe0_0000,
    0x41ef_ffff_fff0_0000,
    0x3810_0000_0000_0000,
    0x380f_ffff_f000_0000,
    0x47ef_ffff_f000_0000,
];
const SINGLES: [u32; 20] = [
    0,
    1 << 31,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x3fc0_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0x0000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x8080_0000,
    0x7f7f_ffff,
    0x4f00_0000,
    0xcf00_0000,
    0x5f00_0000,
    0x4eff_ffff,
];

fn float_value(rng: &mut Rng) -> u64 {
    let boxed = |single: u32| 0xffff_ffff_0000_0000 | u64::from(single);
    let random = rng.next_u64();
    match rng.below(10) {
        0..3 => *rng.pick(&DOUBLES),
        3..5 => boxed(*rng.pick(&SINGLES)),
        // Near one, near the ends of the exponent range, and anywhere.
        5 => random >> 12 | rng.between(0x3fa, 0x406) << 52 | random << 63,
        6 => random >> 12 | rng.between(0, 60) << 52 | random << 63,
        7 => boxed(random as u32 >> 9 | (rng.between(0x75, 0x89) as u32) << 23 | (random as u32) << 31),
        8 => boxed(random as u32),
        _ => random,
    }
}

fn integer_value(rng: &mut Rng) -> u64 {
    const SPECIAL: [u64; 10] = [
        0,
        1,
        u64::MAX,
        1 << 63,
        i64::MAX as u64,
        1 << 31,
        0x7fff_ffff,
        0xffff_ffff,
        0xffff_ffff_8000_0000,
        2,
    ];
    match rng.below(4) {
        0 => *rng.pick(&SPECIAL),
        1 => rng.between(0, 200).wrapping_sub(100),
        2 => rng.next_u32() as i32 as u64,
        _ => rng.next_u64(),
    }
}

fn free_register(rng: &mut Rng) -> u8 {
    loop {
        let register = rng.below(32) as u8;
        if !FIXED.contains(&register) {
            return register;
        }
    }
}

/// One random instruction that stays in place and within scratch memory.
fn random_instruction(rng: &mut Rng) -> Instruction {
    let all: Vec<Op> = Op::all().collect();
    loop {
        if rng.chance(0.25)
            && let Some(compressed) = random_compressed(rng)
        {
            return compressed;
        }
        let op = *rng.pick(&all);
        let mut candidate = instruction(op, free_register(rng), rng.below(32) as u8, rng.below(32) as u8, 0);
        candidate.rs3 = rng.below(32) as u8;
        candidate.mode = *rng.pick(&[0, 1, 2, 3, 4, 7]);
        match op.class() {
            Class::Branch | Class::Jump | Class::JumpRegister | Class::System => continue,
            Class::Load | Class::Store => {
                let bytes = i32::from(op.access_bytes().unwrap());
                candidate.rs1 = SCRATCH;
                candidate.immediate = (rng.below(128) as i32 - MIDDLE) / bytes * bytes;
            }
            // Reservations differ between machines; pairs are made elsewhere.
            Class::Atomic if matches!(op, Op::LrW | Op::LrD | Op::ScW | Op::ScD) => continue,
            Class::Atomic => {
                candidate.rs1 = SCRATCH;
                candidate.mode &= 3;
            }
            Class::Csr => match random_csr(rng, candidate) {
                Some(csr) => candidate = csr,
                None => continue,
            },
            Class::Fence => candidate.immediate = if op == Op::Fence { 0x0ff } else { 0 },
            _ => candidate.immediate = rng.below(4096) as i32 - 2048,
        }
        if matches!(op, Op::Lui | Op::Auipc) {
            candidate.immediate = (rng.next_u32() & !0xfff) as i32;
        }
        if candidate.encode().is_none() {
            candidate.immediate = rng.below(32) as i32;
        }
        let word = candidate.encode().expect("a small immediate fits everywhere");
        return Instruction::decode(word).unwrap_or_else(|illegal| panic!("{illegal}"));
    }
}

fn random_csr(rng: &mut Rng, mut csr: Instruction) -> Option<Instruction> {
    csr.immediate = rng.between(1, 3) as i32;
    // Reserved rounding modes would make later instructions illegal.
    let keeps_rounding = csr.immediate == 1 || (csr.op == Op::Csrrwi && csr.immediate == 2);
    if csr.op == Op::Csrrwi && csr.immediate == 2 {
        csr.rs1 = rng.below(5) as u8;
    }
    let only_reads = matches!(csr.op, Op::Csrrs | Op::Csrrc | Op::Csrrsi | Op::Csrrci) && csr.rs1 == 0;
    (keeps_rounding || only_reads).then_some(csr)
}

fn random_compressed(rng: &mut Rng) -> Option<Instruction> {
    let half = rng.next_u32() as u16;
    let found = Instruction::decode(half.into()).ok().filter(|found| found.length == 2)?;
    let class = found.class();
    let stays = !matches!(class, Class::Branch | Class::Jump | Class::JumpRegister | Class::System);
    let is_access = matches!(class, Class::Load | Class::Store);
    let in_scratch = !is_access || found.rs1 == STACK || found.rs1 == FRAME;
    let keeps_fixed = found
        .destination()
        .is_none_or(|register| register.bank == highwire_riscv::Bank::F || !FIXED.contains(&register.number));
    (stays && in_scratch && keeps_fixed).then_some(found)
}

fn push(code: &mut Code, listing: &mut Vec<Located>, instruction: Instruction) {
    listing.push(Located { pc: BASE + code.bytes.len() as u64, instruction });
    match instruction.length {
        2 => code.half(instruction.bits as u16),
        _ => code.word(instruction.encode().expect("it was encoded before")),
    }
}

/// Random instructions, with branches and jumps over one of them, and reservations that hold.
fn random_sequence(rng: &mut Rng, code: &mut Code, length: usize) -> Vec<Located> {
    let mut listing = Vec::new();
    for _ in 0..length {
        let next = random_instruction(rng);
        let over = 4 + i32::from(next.length);
        match rng.below(16) {
            0 => {
                let op = *rng.pick(&[Op::Beq, Op::Bne, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu]);
                push(code, &mut listing, instruction(op, 0, rng.below(32) as u8, rng.below(32) as u8, over));
            }
            1 => push(code, &mut listing, instruction(Op::Jal, free_register(rng), 0, 0, over)),
            2 => {
                let register = free_register(rng).max(1);
                push(code, &mut listing, instruction(Op::Auipc, register, 0, 0, 0));
                push(code, &mut listing, instruction(Op::Jalr, free_register(rng), register, 0, 4 + over));
            }
            3 => {
                let (reserve, conditional) = *rng.pick(&[(Op::LrW, Op::ScW), (Op::LrD, Op::ScD)]);
                push(code, &mut listing, instruction(reserve, free_register(rng), SCRATCH, 0, 0));
                let value = rng.below(32) as u8;
                push(code, &mut listing, instruction(conditional, free_register(rng), SCRATCH, value, 0));
            }
            _ => {}
        }
        push(code, &mut listing, next);
    }
    listing
}

struct Sequences {
    elf: Vec<u8>,
    listings: Vec<Vec<Located>>,
}

/// A program of `count` sequences. The state of each is initialised from its part of the table, and goes back there.
fn sequences(rng: &mut Rng, count: usize, length: usize) -> Sequences {
    let table = BASE + 0x40_0000;
    let mut code = Code::default();
    let mut states = Vec::new();
    let mut listings = Vec::new();
    for index in 0..count {
        let state = table + (index * WORDS * 8) as u64;
        let middle = state + (MEMORY * 8) as u64 + MIDDLE as u64;
        let mut words = [0u64; WORDS];
        words.iter_mut().take(32).for_each(|word| *word = integer_value(rng));
        words.iter_mut().skip(32).take(32).for_each(|word| *word = float_value(rng));
        words[FCSR] = rng.below(5) << 5 | rng.below(32);
        words.iter_mut().skip(MEMORY).for_each(|word| *word = integer_value(rng));
        states.extend(words.iter().flat_map(|word| word.to_le_bytes()));

        code.address(TABLE, state);
        code.op(Op::Ld, 1, TABLE, 0, FCSR as i32 * 8);
        code.op(Op::Csrrw, 0, 1, 0, 3);
        (0..32).for_each(|number| code.op(Op::Fld, number, TABLE, 0, 256 + i32::from(number) * 8));
        let free = || (1..32u8).filter(|number| !FIXED.contains(number));
        free().for_each(|number| code.op(Op::Ld, number, TABLE, 0, i32::from(number) * 8));
        [STACK, FRAME, SCRATCH].iter().for_each(|&register| code.address(register, middle));
        listings.push(random_sequence(rng, &mut code, length));
        (0..32).for_each(|number| code.op(Op::Fsd, 0, TABLE, number, 256 + i32::from(number) * 8));
        free().for_each(|number| code.op(Op::Sd, 0, TABLE, number, i32::from(number) * 8));
        code.op(Op::Csrrs, 1, 0, 0, 3);
        code.op(Op::Sd, 0, TABLE, 1, FCSR as i32 * 8);
    }
    code.write_and_exit(table, states.len() as u64);
    assert!(code.bytes.len() < 0x40_0000, "the table lies behind the code");
    code.bytes.resize(0x40_0000, 0);
    code.bytes.extend(states);
    Sequences { elf: elf(&code.bytes), listings }
}

#[test]
fn random_sequences_end_in_the_same_state() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let made = sequences(&mut rng, 400, 20);
        let Some(theirs) = run_under_qemu(&made.elf, &format!("sequences-{seed}")) else { return };
        let ours = run_here(&made.elf);
        assert_eq!(ours.len(), theirs.len());
        let states = ours.chunks(WORDS * 8).zip(theirs.chunks(WORDS * 8));
        for ((ours, theirs), listing) in states.zip(&made.listings) {
            for (word, (a, b)) in ours.chunks(8).zip(theirs.chunks(8)).enumerate() {
                let listing = || listing.iter().map(|at| format!("{:x} {at}\n", at.pc)).collect::<String>();
                let value = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
                let (a, b) = (value(a), value(b));
                assert_eq!(a, b, "seed {seed}, state word {word}: {a:#x} here, {b:#x} there\n{}", listing());
            }
        }
    }
}

/// Every floating-point operation by itself, with known operands, rounding mode and clear or set flags.
#[test]
fn floating_point_agrees_in_value_and_flags() {
    let operations: Vec<Op> = Op::all()
        .filter(|op| matches!(op.class(), Class::FloatArithmetic | Class::FloatDivide | Class::FloatMove))
        .collect();
    let mut rng = Rng::new(7);
    let table = BASE + 0x40_0000;
    let mut code = Code::default();
    let mut cases = Vec::new();
    let mut states: Vec<u8> = Vec::new();
    for index in 0..24_000 {
        // Four operands, then f10, x10 and the flags.
        let mut operands =
            [float_value(&mut rng), float_value(&mut rng), float_value(&mut rng), integer_value(&mut rng)];
        if rng.chance(0.2) {
            // Neighbours, whose differences cancel.
            operands[1] = operands[0] ^ rng.below(4);
        }
        states.extend(operands.iter().flat_map(|word| word.to_le_bytes()));
        states.extend([0; 24]);
        let mut case = instruction(operations[index % operations.len()], 10, 0, 0, 0);
        case.mode = *rng.pick(&[0, 0, 1, 2, 3, 4, 7]);
        let reads_integer = case.op.name().ends_with(".x")
            || ["w", "wu", "l", "lu"].iter().any(|end| case.op.name().ends_with(&format!(".{end}")));
        case.rs1 = if reads_integer && case.op != Op::FmvXW { 14 } else { 11 };
        (case.rs2, case.rs3) = (12, 13);
        let flags = if rng.chance(0.5) { rng.below(32) as u8 } else { 0 };
        if index % 64 == 0 {
            code.address(TABLE, table + index as u64 * 56 + 1792);
        }
        let base = (index % 64) as i32 * 56 - 1792;
        (0..3u8).for_each(|number| code.op(Op::Fld, 11 + number, TABLE, 0, base + i32::from(number) * 8));
        code.op(Op::Ld, 14, TABLE, 0, base + 24);
        code.op(Op::Csrrwi, 0, rng.below(5) as u8, 0, 2);
        code.op(Op::Csrrwi, 0, flags, 0, 1);
        code.op(Op::FmvDX, 10, 0, 0, 0);
        code.op(Op::Addi, 10, 0, 0, 0);
        code.word(case.encode().unwrap());
        code.op(Op::Csrrs, 15, 0, 0, 3);
        code.op(Op::Fsd, 0, TABLE, 10, base + 32);
        code.op(Op::Sd, 0, TABLE, 10, base + 40);
        code.op(Op::Sd, 0, TABLE, 15, base + 48);
        cases.push((case, flags));
    }
    code.write_and_exit(table, states.len() as u64);
    assert!(code.bytes.len() < 0x40_0000, "the table lies behind the code");
    code.bytes.resize(0x40_0000, 0);
    code.bytes.extend(states);
    let made = elf(&code.bytes);
    let Some(theirs) = run_under_qemu(&made, "floats") else { return };
    let ours = run_here(&made);
    for (((case, flags), ours), theirs) in cases.iter().zip(ours.chunks(56)).zip(theirs.chunks(56)) {
        let words = |bytes: &[u8]| -> Vec<String> {
            bytes
                .chunks(8)
                .map(|word| format!("{:016x}", u64::from_le_bytes(word.try_into().unwrap())))
                .collect()
        };
        assert_eq!(words(ours), words(theirs), "{case} with flags {flags:#x}: operands, f10, x10, fcsr");
    }
}

#[test]
fn the_generator_makes_what_it_says() {
    assert_eq!(encode(Op::Addi, 1, 2, 0, -1), 0xfff1_0093);
    let mut rng = Rng::new(1);
    let kinds: Vec<Op> = (0..3000).map(|_| random_instruction(&mut rng).op).collect();
    let missing: Vec<Op> = Op::all()
        .filter(|op| !matches!(op.class(), Class::Branch | Class::Jump | Class::JumpRegister | Class::System))
        .filter(|op| !matches!(op, Op::LrW | Op::LrD | Op::ScW | Op::ScD))
        .filter(|op| !kinds.contains(op))
        .collect();
    assert!(missing.len() < 6, "{missing:?}");
}
