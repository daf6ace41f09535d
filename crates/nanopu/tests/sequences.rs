//! Short sequences between two reads of the cycle counter, against the table of Rocket's and the nanoPU's cores.
//!
//! Each runs three times in a loop, so that caches and predictor are warm; the last time counts.

use highwire_nanopu::{Core, CoreConfig, Event};
use highwire_riscv::{Hart, Instruction, Op, Ram};

const BASE: u64 = 0x8000_0000;
const DATA: u64 = BASE + 0x2000;
const MCYCLE: i32 = 0xb00;

/// One instruction; operands that the operation does not have are ignored.
fn op(op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) -> u32 {
    let mode = if op.class() == highwire_riscv::Class::Atomic { 0 } else { 7 };
    let whole = Instruction { op, rd, rs1, rs2, rs3: 3, mode, length: 4, immediate, bits: 0 };
    whole.encode().unwrap_or_else(|| panic!("{}", op.name()))
}

/// The cycles between the two reads that enclose `times` repetitions of `block`.
fn measure(times: usize, block: &[u32]) -> u64 {
    let mut code = vec![op(Op::Csrrs, 0, 5, 0, 0x300), op(Op::FcvtDL, 3, 0, 0, 0), op(Op::Addi, 9, 0, 0, 3)];
    // A block starts on a line of its own.
    code.resize(16, op(Op::Addi, 0, 0, 0, 0));
    let start = code.len() as i32;
    code.push(op(Op::Csrrs, 10, 0, 0, MCYCLE));
    code.extend((0..times).flat_map(|_| block));
    code.push(op(Op::Csrrs, 11, 0, 0, MCYCLE));
    code.push(op(Op::Addi, 9, 9, 0, -1));
    let back = 4 * (start - code.len() as i32);
    code.push(op(Op::Bne, 0, 9, 0, back));
    code.push(op(Op::Ebreak, 0, 0, 0, 0));

    let mut ram = Ram::new(BASE, 0x8000);
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    ram.slice_mut(BASE, bytes.len()).unwrap().copy_from_slice(&bytes);
    ram.slice_mut(DATA, 8).unwrap().copy_from_slice(&DATA.to_le_bytes());
    let mut hart = Hart::new(0, BASE);
    (hart.x[5], hart.x[20], hart.x[21]) = (0x6000, DATA, DATA);
    let mut core = Core::new(hart, &CoreConfig::default());
    loop {
        match core.run_to_event(&mut ram, 100_000) {
            Event::Commit(_) => {}
            Event::Trap { .. } => return core.hart.x[11] - core.hart.x[10],
            Event::Bubble => panic!("stuck at {:#x}", core.hart.pc),
        }
    }
}

fn check(what: &str, times: usize, block: &[u32], expected: u64) {
    assert_eq!(measure(times, block), expected, "{what}");
}

#[test]
fn integer_sequences() {
    check("empty", 0, &[], 1);
    check("100 dependent adds", 100, &[op(Op::Add, 12, 12, 12, 0)], 101);
    check("100 stores", 100, &[op(Op::Sd, 0, 20, 12, 8)], 101);
    check("multiplications of words", 1, &[op(Op::Mulw, 12, 13, 13, 0)], 2);
}

#[test]
fn loads_and_their_uses() {
    check("100 dependent loads", 100, &[op(Op::Ld, 21, 21, 0, 0)], 200);
    check("a load to the same register", 100, &[op(Op::Ld, 12, 20, 0, 0)], 200);
    let use_it = op(Op::Add, 13, 12, 13, 0);
    let other = op(Op::Addi, 14, 14, 0, 1);
    check("load, use", 50, &[op(Op::Lw, 12, 20, 0, 0), use_it], 150 + 1);
    check("load, gap, use", 50, &[op(Op::Lw, 12, 20, 0, 0), other, use_it], 150 + 1);
    check("load, two gaps, use", 50, &[op(Op::Lw, 12, 20, 0, 0), other, other, use_it], 200 + 1);
    check("load a byte, use", 50, &[op(Op::Lb, 12, 20, 0, 0), use_it], 200 + 1);
    check("store, load the same", 50, &[op(Op::Sd, 0, 20, 12, 8), op(Op::Ld, 13, 20, 0, 8)], 350 + 1);
}

#[test]
fn floating_point_sequences() {
    check("100 dependent double additions", 100, &[op(Op::FaddD, 3, 3, 3, 0)], 596);
    check("100 independent double additions", 100, &[op(Op::FaddD, 4, 3, 3, 0)], 596);
    check("100 dependent double products", 100, &[op(Op::FmulD, 3, 3, 3, 0)], 596);
    check("100 dependent single additions", 100, &[op(Op::FaddS, 3, 3, 3, 0)], 398);
    check("move, use", 50, &[op(Op::FmvXD, 12, 3, 0, 0), op(Op::Addi, 13, 12, 0, 1)], 201);
}

#[test]
fn system_sequences() {
    check("read mscratch, use", 50, &[op(Op::Csrrs, 12, 0, 0, 0x340), op(Op::Add, 13, 12, 13, 0)], 201);
    check("write mscratch", 50, &[op(Op::Csrrw, 0, 12, 0, 0x340)], 51);
    check("write mtvec", 50, &[op(Op::Csrrw, 0, 12, 0, 0x305)], 251);
    check("atomic additions", 50, &[op(Op::AmoaddD, 12, 20, 12, 0)], 345);
    check("fences", 20, &[op(Op::Fence, 0, 0, 0, 0xff)], 21);
}
