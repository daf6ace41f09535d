//! Each instruction by itself: one line per case, with the expected result. Edge cases of RISC-V Unpriv §2, §4, §12, §13, §20.

mod support;

use highwire_riscv::csr::number::{FCSR, MSTATUS};
use highwire_riscv::{
    AccessKind, Hart, Instruction, MemoryAccess, Op, Ram, Register, RegisterWrite, Retired, Step,
};
use support::{encode, instruction};

const BASE: u64 = 0x8000_0000;
const DATA: u64 = BASE + 0x800;

fn step(hart: &mut Hart, ram: &mut Ram, word: u32) -> Retired {
    hart.flush_fetched();
    ram.slice_mut(hart.pc, 4).unwrap().copy_from_slice(&word.to_le_bytes());
    match hart.step(ram) {
        Step::Retired(retired) => retired,
        other => panic!("{word:#x}: {other:?}"),
    }
}

fn machine() -> (Hart, Ram) {
    let mut hart = Hart::new(0, BASE);
    hart.csrs.write(MSTATUS, 1 << 13);
    (hart, Ram::new(BASE, 0x1000))
}

/// `op x3, x1, x2` or `op x3, x1, immediate`, whichever the operation has.
fn check(op: Op, a: u64, b: u64, expected: u64) {
    let (mut hart, mut ram) = machine();
    (hart.x[1], hart.x[2]) = (a, b);
    let word = instruction(op, 3, 1, 2, b as i32).encode().unwrap();
    let retired = step(&mut hart, &mut ram, word);
    assert_eq!(hart.x[3], expected, "{} {a:#x}, {b:#x} gave {:#x}", op.name(), hart.x[3]);
    assert_eq!(retired.write, Some(RegisterWrite { register: Register::x(3), value: expected }));
    assert_eq!(hart.pc, BASE + 4);
}

const MIN: u64 = 1 << 63;
const MAX: u64 = MIN - 1;
const ALL: u64 = u64::MAX;
const WORD_MIN: u64 = 0xffff_ffff_8000_0000;

#[test]
fn integer_arithmetic() {
    check(Op::Add, MAX, 1, MIN);
    check(Op::Sub, 0, 1, ALL);
    check(Op::Sll, 1, 64 + 63, MIN);
    check(Op::Srl, MIN, 63, 1);
    check(Op::Sra, MIN, 63, ALL);
    check(Op::Slt, MIN, 0, 1);
    check(Op::Sltu, MIN, 0, 0);
    check(Op::Xor, 0xf0f0, 0xff00, 0x0ff0);
    check(Op::Or, 0xf0f0, 0x0f00, 0xfff0);
    check(Op::And, 0xf0f0, 0xff00, 0xf000);
    check(Op::Addi, 0, -2048i64 as u64, -2048i64 as u64);
    check(Op::Slti, -5i64 as u64, -4i64 as u64, 1);
    check(Op::Sltiu, 5, ALL, 1);
    check(Op::Xori, 0x1234, ALL, !0x1234);
    check(Op::Ori, 0x1000, 0x7ff, 0x17ff);
    check(Op::Andi, ALL, -16i64 as u64, -16i64 as u64);
    check(Op::Slli, 3, 62, 3 << 62);
    check(Op::Srli, ALL, 60, 15);
    check(Op::Srai, MIN, 4, 0xf800_0000_0000_0000);
    check(Op::Addw, 0x7fff_ffff, 1, WORD_MIN);
    check(Op::Subw, 0x1_0000_0000, 1, ALL);
    check(Op::Sllw, 1, 32 + 31, WORD_MIN);
    check(Op::Srlw, WORD_MIN, 31, 1);
    check(Op::Sraw, 0x8000_0000, 31, ALL);
    check(Op::Addiw, 0x7fff_ffff, 1, WORD_MIN);
    check(Op::Slliw, 1, 31, WORD_MIN);
    check(Op::Srliw, ALL, 28, 15);
    check(Op::Sraiw, 0x8000_0000, 4, 0xffff_ffff_f800_0000);
    check(Op::Lui, 0, 0x8000_0000, WORD_MIN);
    check(Op::Auipc, 0, 0x1000, BASE + 0x1000);
}

#[test]
fn multiplication_and_division() {
    check(Op::Mul, ALL, ALL, 1);
    check(Op::Mulh, MIN, MIN, 1 << 62);
    check(Op::Mulh, ALL, ALL, 0);
    check(Op::Mulhsu, ALL, ALL, ALL);
    check(Op::Mulhu, ALL, ALL, ALL - 1);
    check(Op::Mulw, 0x1_0000, 0x8000, WORD_MIN);
    check(Op::Div, -20i64 as u64, 6, -3i64 as u64);
    check(Op::Div, MIN, ALL, MIN);
    check(Op::Div, 7, 0, ALL);
    check(Op::Divu, ALL, 16, ALL >> 4);
    check(Op::Divu, 7, 0, ALL);
    check(Op::Rem, -20i64 as u64, 6, -2i64 as u64);
    check(Op::Rem, MIN, ALL, 0);
    check(Op::Rem, 7, 0, 7);
    check(Op::Remu, ALL, 16, 15);
    check(Op::Remu, 7, 0, 7);
    check(Op::Divw, WORD_MIN, ALL, WORD_MIN);
    check(Op::Divw, 7, 1 << 32, ALL);
    check(Op::Divuw, 0x8000_0000, 1, WORD_MIN);
    check(Op::Divuw, 7, 0, ALL);
    check(Op::Remw, WORD_MIN, ALL, 0);
    check(Op::Remw, 0x8000_0000, 0, WORD_MIN);
    check(Op::Remuw, 0xffff_ffff, 0, ALL);
    check(Op::Remuw, 0x8000_0007, 16, 7);
}

#[test]
fn branches_and_jumps() {
    for (op, a, b, taken) in [
        (Op::Beq, 1, 1, true),
        (Op::Beq, 1, 2, false),
        (Op::Bne, 1, 2, true),
        (Op::Bne, 1, 1, false),
        (Op::Blt, ALL, 0, true),
        (Op::Blt, 0, ALL, false),
        (Op::Bge, 0, ALL, true),
        (Op::Bge, ALL, 0, false),
        (Op::Bltu, 0, ALL, true),
        (Op::Bltu, ALL, 0, false),
        (Op::Bgeu, ALL, 0, true),
        (Op::Bgeu, 0, ALL, false),
    ] {
        let (mut hart, mut ram) = machine();
        (hart.x[1], hart.x[2]) = (a, b);
        hart.pc = BASE + 0x100;
        step(&mut hart, &mut ram, encode(op, 0, 1, 2, -256));
        assert_eq!(hart.pc, if taken { BASE } else { BASE + 0x104 }, "{} {a:#x}, {b:#x}", op.name());
    }
    let (mut hart, mut ram) = machine();
    step(&mut hart, &mut ram, encode(Op::Jal, 1, 0, 0, 0x400));
    assert_eq!((hart.pc, hart.x[1]), (BASE + 0x400, BASE + 4));
    // The target is read before the link is written, and its lowest bit is dropped.
    hart.x[1] = BASE + 0x11;
    step(&mut hart, &mut ram, encode(Op::Jalr, 1, 1, 0, -8));
    assert_eq!((hart.pc, hart.x[1]), (BASE + 8, BASE + 0x404));
    // c.jalr links two bytes on.
    hart.x[5] = BASE + 0x20;
    step(&mut hart, &mut ram, 0x9282);
    assert_eq!((hart.pc, hart.x[1]), (BASE + 0x20, BASE + 10));
}

#[test]
fn loads_and_stores() {
    for (op, expected) in [
        (Op::Lb, 0xffff_ffff_ffff_ff88),
        (Op::Lbu, 0x88),
        (Op::Lh, 0xffff_ffff_ffff_9988),
        (Op::Lhu, 0x9988),
        (Op::Lw, 0xffff_ffff_bbaa_9988),
        (Op::Lwu, 0xbbaa_9988),
        (Op::Ld, 0xffee_ddcc_bbaa_9988),
    ] {
        let (mut hart, mut ram) = machine();
        ram.slice_mut(DATA, 8).unwrap().copy_from_slice(&0xffee_ddcc_bbaa_9988u64.to_le_bytes());
        hart.x[1] = DATA + 16;
        let retired = step(&mut hart, &mut ram, encode(op, 3, 1, 0, -16));
        assert_eq!(hart.x[3], expected, "{}", op.name());
        let access = MemoryAccess {
            kind: AccessKind::Load,
            address: DATA,
            bytes: op.access_bytes().unwrap(),
            operand: 0,
        };
        assert_eq!(retired.memory, Some(access));
    }
    for op in [Op::Sb, Op::Sh, Op::Sw, Op::Sd] {
        let (mut hart, mut ram) = machine();
        (hart.x[1], hart.x[2]) = (DATA, 0x4455_6677_0011_2233);
        let old = 0xffff_ffff_ffff_ffffu64;
        ram.slice_mut(DATA, 8).unwrap().copy_from_slice(&old.to_le_bytes());
        let retired = step(&mut hart, &mut ram, encode(op, 0, 1, 2, 0));
        let bytes = usize::from(op.access_bytes().unwrap());
        let memory = ram.slice(DATA, 8).unwrap();
        assert_eq!(memory[..bytes], hart.x[2].to_le_bytes()[..bytes], "{}", op.name());
        assert!(memory[bytes..].iter().all(|&byte| byte == 0xff), "{} wrote too much", op.name());
        assert_eq!(retired.memory.unwrap().kind, AccessKind::Store);
        assert_eq!(retired.write, None);
    }
}

#[test]
fn atomic_operations() {
    let check = |op: Op, old: u64, operand: u64, loaded: u64, stored: u64| {
        let (mut hart, mut ram) = machine();
        ram.slice_mut(DATA, 8).unwrap().copy_from_slice(&old.to_le_bytes());
        (hart.x[1], hart.x[2]) = (DATA, operand);
        step(&mut hart, &mut ram, encode(op, 3, 1, 2, 0));
        let memory = u64::from_le_bytes(ram.slice(DATA, 8).unwrap().try_into().unwrap());
        assert_eq!((hart.x[3], memory), (loaded, stored), "{} {:#x} {memory:#x}", op.name(), hart.x[3]);
    };
    check(Op::AmoswapW, 0x1111_1111_8000_0000, 5, WORD_MIN, 0x1111_1111_0000_0005);
    check(Op::AmoaddW, 0x1111_1111_ffff_ffff, 1, ALL, 0x1111_1111_0000_0000);
    check(Op::AmoxorW, 0xff, 0x0f, 0xff, 0xf0);
    check(Op::AmoandW, 0xff, 0x0f, 0xff, 0x0f);
    check(Op::AmoorW, 0xf0, 0x0f, 0xf0, 0xff);
    check(Op::AmominW, 0x8000_0000, 1, WORD_MIN, 0x8000_0000);
    check(Op::AmomaxW, 0x8000_0000, 1, WORD_MIN, 1);
    check(Op::AmominuW, 0x8000_0000, 1, WORD_MIN, 1);
    // The high half of the operand does not count.
    check(Op::AmomaxuW, 0x8000_0000, 0xffff_ffff_0000_0001, WORD_MIN, 0x8000_0000);
    check(Op::AmoswapD, MIN, 5, MIN, 5);
    check(Op::AmoaddD, ALL, 2, ALL, 1);
    check(Op::AmoxorD, ALL, 1, ALL, ALL - 1);
    check(Op::AmoandD, ALL, 1, ALL, 1);
    check(Op::AmoorD, 2, 1, 2, 3);
    check(Op::AmominD, MIN, 1, MIN, MIN);
    check(Op::AmomaxD, MIN, 1, MIN, 1);
    check(Op::AmominuD, MIN, 1, MIN, 1);
    check(Op::AmomaxuD, MIN, 1, MIN, MIN);
}

/// `op f3, f1, f2` in round-to-nearest: the result and the flags.
fn check_float(op: Op, a: u64, b: u64, expected: u64, flags: u64) {
    let (mut hart, mut ram) = machine();
    (hart.f[1], hart.f[2]) = (a, b);
    (hart.f[4], hart.x[1]) = (1f64.to_bits(), a);
    let mut instruction = instruction(op, 3, 1, 2, 0);
    instruction.rs3 = 4;
    let retired = step(&mut hart, &mut ram, instruction.encode().unwrap());
    let found = (retired.write.unwrap().value, hart.csrs.read(FCSR).unwrap());
    assert_eq!(found, (expected, flags), "{}: {:#x}", op.name(), found.0);
}

const NAN: u64 = 0x7ff8_0000_0000_0000;
const SIGNALING: u64 = 0x7ff0_0000_0000_0001;
const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const fn boxed(single: f32) -> u64 {
    0xffff_ffff_0000_0000 | single.to_bits() as u64
}
const BOXED_NAN: u64 = 0xffff_ffff_7fc0_0000;

#[test]
fn double_precision() {
    let d = f64::to_bits;
    check_float(Op::FaddD, d(1.5), d(2.25), d(3.75), 0);
    check_float(Op::FaddD, d(1.0), d(1e-30), d(1.0), 1);
    check_float(Op::FsubD, d(1.5), d(1.5), d(0.0), 0);
    check_float(Op::FsubD, INFINITY, INFINITY, NAN, 16);
    check_float(Op::FmulD, d(1e300), d(1e300), INFINITY, 4 | 1);
    check_float(Op::FmulD, d(1e-300), d(1e-300), d(0.0), 2 | 1);
    check_float(Op::FdivD, d(1.0), d(0.0), INFINITY, 8);
    check_float(Op::FdivD, d(0.0), d(0.0), NAN, 16);
    check_float(Op::FdivD, d(1.0), d(3.0), d(1.0 / 3.0), 1);
    check_float(Op::FsqrtD, d(2.0), 0, d(2f64.sqrt()), 1);
    check_float(Op::FsqrtD, d(-0.0), 0, d(-0.0), 0);
    check_float(Op::FsqrtD, d(-1.0), 0, NAN, 16);
    check_float(Op::FsqrtD, 1, 0, 0x1e60_0000_0000_0000, 0);
    check_float(Op::FmaddD, d(2.0), d(3.0), d(7.0), 0);
    check_float(Op::FmsubD, d(2.0), d(3.0), d(5.0), 0);
    check_float(Op::FnmsubD, d(2.0), d(3.0), d(-5.0), 0);
    check_float(Op::FnmaddD, d(2.0), d(3.0), d(-7.0), 0);
    check_float(Op::FmaddD, INFINITY, d(0.0), NAN, 16);
    check_float(Op::FsgnjD, d(1.0), d(-2.0), d(-1.0), 0);
    check_float(Op::FsgnjnD, d(1.0), d(-2.0), d(1.0), 0);
    check_float(Op::FsgnjxD, d(-1.0), d(-2.0), d(1.0), 0);
    check_float(Op::FminD, d(-0.0), d(0.0), d(-0.0), 0);
    check_float(Op::FmaxD, d(-0.0), d(0.0), d(0.0), 0);
    check_float(Op::FminD, NAN, d(1.0), d(1.0), 0);
    check_float(Op::FmaxD, SIGNALING, d(1.0), d(1.0), 16);
    check_float(Op::FminD, NAN | 5, NAN, NAN, 0);
    check_float(Op::FeqD, d(0.0), d(-0.0), 1, 0);
    check_float(Op::FeqD, NAN, d(0.0), 0, 0);
    check_float(Op::FltD, NAN, d(0.0), 0, 16);
    check_float(Op::FleD, d(-1.0), d(-1.0), 1, 0);
    check_float(Op::FltD, d(-2.0), d(-1.0), 1, 0);
    check_float(Op::FclassD, SIGNALING, 0, 1 << 8, 0);
    check_float(Op::FclassD, d(-0.0), 0, 1 << 3, 0);
    check_float(Op::FclassD, 1, 0, 1 << 5, 0);
    check_float(Op::FcvtWD, d(2.5), 0, 2, 1);
    check_float(Op::FcvtWD, d(1e10), 0, 0x7fff_ffff, 16);
    check_float(Op::FcvtWD, NAN, 0, 0x7fff_ffff, 16);
    check_float(Op::FcvtWuD, d(4e9), 0, 4_000_000_000u32 as i32 as u64, 0);
    check_float(Op::FcvtWuD, d(-1.0), 0, 0, 16);
    check_float(Op::FcvtWuD, d(-0.25), 0, 0, 1);
    check_float(Op::FcvtLD, d(-1e30), 0, MIN, 16);
    check_float(Op::FcvtLuD, d(1.8e19), 0, 18_000_000_000_000_000_000, 0);
    check_float(Op::FcvtDW, 0xffff_ffff, 0, d(-1.0), 0);
    check_float(Op::FcvtDWu, ALL, 0, d(4_294_967_295.0), 0);
    check_float(Op::FcvtDL, MAX, 0, d(9_223_372_036_854_775_807.0), 1);
    check_float(Op::FcvtDLu, ALL, 0, d(18_446_744_073_709_551_615.0), 1);
    check_float(Op::FcvtDS, boxed(1.5), 0, d(1.5), 0);
    check_float(Op::FmvXD, SIGNALING, 0, SIGNALING, 0);
    check_float(Op::FmvDX, SIGNALING, 0, SIGNALING, 0);
}

#[test]
fn single_precision_is_boxed() {
    check_float(Op::FaddS, boxed(1.5), boxed(2.25), boxed(3.75), 0);
    check_float(Op::FaddS, 1.5f64.to_bits(), boxed(1.0), BOXED_NAN, 0);
    check_float(Op::FsubS, boxed(1.0), boxed(1e-20), boxed(1.0), 1);
    check_float(Op::FmulS, boxed(1e30), boxed(1e30), boxed(f32::INFINITY), 5);
    check_float(Op::FdivS, boxed(-1.0), boxed(0.0), boxed(f32::NEG_INFINITY), 8);
    check_float(Op::FsqrtS, boxed(4.0), 0, boxed(2.0), 0);
    check_float(Op::FmaddS, boxed(2.0), boxed(3.0), BOXED_NAN, 0);
    check_float(Op::FsgnjS, boxed(1.0), boxed(-2.0), boxed(-1.0), 0);
    check_float(Op::FsgnjnS, boxed(1.0), boxed(-2.0), boxed(1.0), 0);
    check_float(Op::FsgnjxS, boxed(1.0), boxed(-2.0), boxed(-1.0), 0);
    check_float(Op::FminS, boxed(1.0), boxed(-2.0), boxed(-2.0), 0);
    check_float(Op::FmaxS, boxed(1.0), boxed(-2.0), boxed(1.0), 0);
    check_float(Op::FeqS, boxed(1.0), boxed(1.0), 1, 0);
    check_float(Op::FltS, boxed(1.0), boxed(1.0), 0, 0);
    check_float(Op::FleS, boxed(1.0), boxed(1.0), 1, 0);
    check_float(Op::FclassS, 0, 0, 1 << 9, 0);
    check_float(Op::FcvtWS, boxed(-2.5), 0, -2i64 as u64, 1);
    check_float(Op::FcvtWuS, boxed(3e9), 0, 3_000_000_000u32 as i32 as u64, 0);
    check_float(Op::FcvtLS, boxed(-1e18), 0, (-1e18f32) as i64 as u64, 0);
    check_float(Op::FcvtLuS, boxed(f32::INFINITY), 0, ALL, 16);
    check_float(Op::FcvtSW, -3i64 as u64, 0, boxed(-3.0), 0);
    check_float(Op::FcvtSWu, 0xffff_ffff, 0, boxed(4_294_967_295.0), 1);
    check_float(Op::FcvtSL, MIN, 0, boxed(-9_223_372_036_854_775_808.0), 0);
    check_float(Op::FcvtSLu, ALL, 0, boxed(18_446_744_073_709_551_615.0), 1);
    check_float(Op::FcvtSD, 1e40f64.to_bits(), 0, boxed(f32::INFINITY), 5);
    check_float(Op::FcvtSD, SIGNALING, 0, BOXED_NAN, 16);
    // Moves do not check boxes: a double's low half is moved as it is.
    check_float(Op::FmvXW, 0x1234_5678_8000_0000, 0, WORD_MIN, 0);
    check_float(Op::FmvWX, 0x1234_5678_3f80_0000, 0, boxed(1.0), 0);
}

#[test]
fn directed_rounding_keeps_its_direction() {
    let check = |mode: u8, expected: u64| {
        let (mut hart, mut ram) = machine();
        (hart.f[1], hart.f[2]) = (1f64.to_bits(), 3f64.to_bits());
        let word = Instruction { mode, ..instruction(Op::FdivD, 3, 1, 2, 0) }.encode().unwrap();
        step(&mut hart, &mut ram, word);
        assert_eq!(hart.f[3], expected, "mode {mode}");
    };
    let third = (1.0f64 / 3.0).to_bits();
    check(0, third);
    check(1, third);
    check(2, third);
    check(3, third + 1);
    check(4, third);
}

#[test]
fn underflow_and_overflow_are_judged_after_rounding() {
    let check = |mode: u8, a: u64, b: u64, expected: u64, flags: u64| {
        let (mut hart, mut ram) = machine();
        (hart.f[1], hart.f[2]) = (a, b);
        let word = Instruction { mode, ..instruction(Op::FmulD, 3, 1, 2, 0) }.encode().unwrap();
        step(&mut hart, &mut ram, word);
        assert_eq!(
            (hart.f[3], hart.csrs.read(FCSR)),
            (expected, Some(flags)),
            "mode {mode}: {:#x}",
            hart.f[3]
        );
    };
    let smallest = f64::MIN_POSITIVE.to_bits();
    let just_below_one = 1f64.to_bits() - 1;
    // 2^-1022 * (1 - 2^-53) has 53 bits, so it is tiny, though as a subnormal it rounds up to 2^-1022.
    check(0, smallest, just_below_one, smallest, 3);
    // The largest number times something above one overflows, also where it is rounded down to itself.
    check(1, f64::MAX.to_bits(), 2f64.to_bits(), f64::MAX.to_bits(), 5);
    check(0, f64::MAX.to_bits(), 1f64.to_bits(), f64::MAX.to_bits(), 0);
}
