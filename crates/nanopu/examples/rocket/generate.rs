//! Random programs that end: every instruction of RV64IMAFDC and its compressed forms, branches forward, loops that count, calls,
//! traps with a handler that skips what trapped, awkward numbers, addresses that meet in the cache, data in the lines of the code,
//! the timer's registers.
//!
//! What a program computed is shown at its end: all registers, and every word of its data.

use std::collections::BTreeMap;

use highwire_riscv::{Class, Instruction, Op};
use highwire_stdx::Rng;

use super::here::{ALARM, Image, TIME};

/// The data, from this offset on.
const DATA: u64 = 0x10000;
const DATA_BYTES: u64 = 40 << 10;
/// An address where there is nothing.
const NOWHERE: i32 = 4;

/// Registers with a purpose: return address, pointers into the data, the timer's alarm, the data's middle, nowhere, a loop's
/// counter, two of the trap handler's.
const RA: u8 = 1;
const POINTERS: [u8; 5] = [2, 8, 9, 28, 29];
const DEVICE: u8 = 24;
const MIDDLE: u8 = 25;
const BAD: u8 = 26;
const COUNTER: u8 = 27;
const HANDLER: [u8; 2] = [30, 31];
/// One without a purpose, other than zero.
const SHOWN: u8 = 3;

const MSCRATCH: i32 = 0x340;
const MEPC: i32 = 0x341;
const MCAUSE: i32 = 0x342;
const MTVAL: i32 = 0x343;
const MTVEC: i32 = 0x305;
const MSTATUS: i32 = 0x300;
const FFLAGS: i32 = 1;
const FRM: i32 = 2;
const FCSR: i32 = 3;

/// A piece of code whose place is not known yet.
#[derive(Clone, Copy)]
enum Item {
    Word(u32),
    Half(u16),
    /// A branch or jump to an item.
    To(Instruction, usize),
    /// What follows lies at a multiple of eight.
    Align,
    /// Data among the code.
    Data(u64),
    /// x30 becomes its own address, and the instruction reaches from there to so many bytes behind an item.
    Reach(Instruction, usize, i32),
}

impl Item {
    /// How many bytes it takes at `place`.
    fn bytes(self, place: i32) -> i32 {
        match self {
            Item::Half(_) => 2,
            Item::Word(_) | Item::To(..) => 4,
            Item::Data(_) | Item::Reach(..) => 8,
            Item::Align => -place & 7,
        }
    }
}

struct Generator {
    rng: Rng,
    items: Vec<Item>,
    /// Data among the code: its first item, and how many words.
    island: Option<(usize, u64)>,
    integer: Vec<Op>,
    float: Vec<Op>,
    atomic: Vec<Op>,
    loads: Vec<Op>,
    stores: Vec<Op>,
    device: Vec<Op>,
}

/// The program of `seed`.
pub(crate) fn program(seed: u64) -> Image {
    let of = |classes: &[Class]| Op::all().filter(|op| classes.contains(&op.class())).collect::<Vec<Op>>();
    let mut generator = Generator {
        rng: Rng::new(seed),
        items: Vec::new(),
        island: None,
        integer: of(&[Class::Alu, Class::Alu, Class::Multiply, Class::Divide]),
        float: of(&[Class::FloatArithmetic, Class::FloatMove, Class::FloatDivide]),
        atomic: of(&[Class::Atomic]).into_iter().filter(|op| !is_conditional(*op)).collect(),
        loads: of(&[Class::Load]),
        stores: of(&[Class::Store]),
        device: of(&[Class::Load, Class::Store]),
    };
    generator.prologue();
    // Most programs fit into the instruction cache; some do not.
    let pieces = if seed % 8 == 7 { 5000 } else { 400 };
    (0..pieces).for_each(|_| generator.piece());
    generator.epilogue();
    let mut bytes = generator.link();
    assert!(bytes.len() <= DATA as usize, "code ends before the data");
    bytes.resize((DATA + DATA_BYTES) as usize, 0);
    for word in bytes[DATA as usize..].chunks_exact_mut(8) {
        word.copy_from_slice(&awkward(&mut generator.rng).to_le_bytes());
    }
    Image { name: format!("seed-{seed}"), bytes, sequences: BTreeMap::new() }
}

fn is_conditional(op: Op) -> bool {
    matches!(op, Op::LrW | Op::LrD | Op::ScW | Op::ScD)
}

/// Numbers that are hard on units: ends of ranges, few bits, and floating-point numbers of every kind.
fn awkward(rng: &mut Rng) -> u64 {
    let boxed = |bits: u32| 0xffff_ffff_0000_0000 | u64::from(bits);
    let small = rng.below(64) as u32;
    match rng.below(12) {
        0 => rng.next_u64(),
        1 => rng.next_u64() >> small,
        2 => 1 << small,
        3 => (1u64 << small).wrapping_neg(),
        4 => u64::from(rng.next_u32() as u8),
        5 => (rng.below(2000) as f64 - 1000.0).to_bits(),
        6 => rng.unit().to_bits() ^ rng.next_u64() & 3,
        // Near the ends of the exponent: subnormal, huge, infinite, no number.
        7 => (*rng.pick(&[0u64, 1, 2, 0x7fd, 0x7fe, 0x7ff])) << 52 | rng.next_u64() >> 12 >> (small & 31),
        8 => boxed((rng.below(200) as f32 - 100.0).to_bits()),
        9 => boxed(rng.next_u32()),
        10 => boxed((*rng.pick(&[0u32, 1, 0xfd, 0xfe, 0xff])) << 23 | rng.next_u32() >> 9 >> (small & 15)),
        _ => *rng.pick(&[0, u64::MAX, i64::MAX as u64, i64::MIN as u64, 1 << 31, boxed(0x7fc0_0000)]),
    }
}

impl Generator {
    fn op(&mut self, op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) {
        let whole = Instruction { op, rd, rs1, rs2, rs3: 0, mode: 0, length: 4, immediate, bits: 0 };
        let word = whole.encode().unwrap_or_else(|| panic!("{} {immediate}", op.name()));
        self.items.push(Item::Word(word));
    }

    fn to(&mut self, op: Op, rd: u8, rs1: u8, rs2: u8, target: usize) {
        let jump = Instruction { op, rd, rs1, rs2, rs3: 0, mode: 0, length: 4, immediate: 0, bits: 0 };
        self.items.push(Item::To(jump, target));
    }

    /// Room for a jump whose target comes later.
    fn hole(&mut self) -> usize {
        self.to(Op::Jal, 0, 0, 0, 0);
        self.items.len() - 1
    }

    /// A jump or branch from a hole to here.
    fn fill(&mut self, hole: usize, op: Op, [rd, rs1, rs2]: [u8; 3]) {
        let jump = Instruction { op, rd, rs1, rs2, rs3: 0, mode: 0, length: 4, immediate: 0, bits: 0 };
        self.items[hole] = Item::To(jump, self.items.len());
    }

    /// A register that has no purpose.
    fn free(&mut self) -> u8 {
        loop {
            let number = self.rng.below(u64::from(DEVICE)) as u8;
            if number != RA && !POINTERS.contains(&number) {
                return number;
            }
        }
    }

    fn any(&mut self) -> u8 {
        self.rng.below(32) as u8
    }

    fn pointer(&mut self) -> u8 {
        *self.rng.pick(&POINTERS)
    }

    /// Registers from the data, a trap handler, pointers, and units that are switched on.
    fn prologue(&mut self) {
        let [x, y] = HANDLER;
        let over = self.hole();
        let handler = self.items.len();
        self.op(Op::Csrrs, y, 0, 0, MTVAL);
        self.op(Op::Csrrs, x, 0, 0, MCAUSE);
        self.op(Op::Addi, x, x, 0, -1);
        self.to(Op::Bne, 0, x, 0, handler + 6);
        // A fetch from nowhere goes back to where it was called from.
        self.op(Op::Csrrw, 0, RA, 0, MEPC);
        self.to(Op::Jal, 0, 0, 0, handler + 14);
        // Anything else goes on behind what trapped, which is two or four bytes long.
        self.op(Op::Csrrs, x, 0, 0, MEPC);
        self.op(Op::Lhu, y, x, 0, 0);
        self.op(Op::Andi, y, y, 0, 3);
        self.op(Op::Sltiu, y, y, 0, 3);
        self.op(Op::Slli, y, y, 0, 1);
        self.op(Op::Sub, x, x, y, 0);
        self.op(Op::Addi, x, x, 0, 4);
        self.op(Op::Csrrw, 0, x, 0, MEPC);
        self.op(Op::Mret, 0, 0, 0, 0);
        self.fill(over, Op::Jal, [0; 3]);
        self.op(Op::Addi, MIDDLE, 0, 0, 1);
        self.op(Op::Slli, MIDDLE, MIDDLE, 0, 31);
        self.op(Op::Addi, x, MIDDLE, 0, 4);
        self.op(Op::Csrrw, 0, x, 0, MTVEC);
        self.op(Op::Lui, x, 0, 0, 0x6000);
        self.op(Op::Csrrs, 0, x, 0, MSTATUS);
        // The history table is cleared after reset; nothing is predicted before that is done.
        self.op(Op::Addi, x, 0, 0, 600);
        let wait = self.items.len();
        self.op(Op::Addi, x, x, 0, -1);
        self.to(Op::Bne, 0, x, 0, wait);
        self.op(Op::Lui, x, 0, 0, DATA as i32);
        self.op(Op::Add, y, MIDDLE, x, 0);
        for number in 0..32 {
            self.op(Op::Fld, number, y, 0, 8 * i32::from(number));
        }
        for number in 1..DEVICE {
            self.op(Op::Ld, number, y, 0, 256 + 8 * i32::from(number));
        }
        self.op(Op::Lui, x, 0, 0, (DATA + DATA_BYTES / 2) as i32 & !0xfff);
        self.op(Op::Add, MIDDLE, MIDDLE, x, 0);
        self.op(Op::Lui, BAD, 0, 0, NOWHERE << 12);
        self.op(Op::Lui, DEVICE, 0, 0, ALARM as i32);
        POINTERS.into_iter().for_each(|pointer| self.op(Op::Addi, pointer, MIDDLE, 0, 0));
    }

    /// Something in the middle of a program.
    fn piece(&mut self) {
        match self.rng.below(100) {
            0..30 => self.arithmetic(),
            30..40 => self.compressed(),
            40..46 => self.load(),
            46..52 => self.store(),
            52..56 => self.beside(),
            56..68 => self.float(),
            68..72 => self.atomic_or_pair(),
            72..79 => self.branch(),
            79..82 => self.jump(),
            82..85 => self.counted_loop(),
            85..87 => self.call(),
            87..90 => self.csr(),
            90..92 => self.trap(),
            92..94 => self.op(Op::Fence, 0, 0, 0, 0xff),
            94 if self.rng.chance(0.2) => self.op(Op::FenceI, 0, 0, 0, 0),
            95 => self.devices(),
            _ => self.move_pointer(),
        }
    }

    /// An instruction that neither jumps nor traps.
    fn plain(&mut self) {
        match self.rng.below(7) {
            0 => self.compressed(),
            1 => self.load(),
            2 => self.store(),
            3 => self.float(),
            4 => self.beside(),
            _ => self.arithmetic(),
        }
    }

    fn arithmetic(&mut self) {
        let op = *self.rng.pick(&self.integer);
        let immediate = match op {
            Op::Lui | Op::Auipc => (self.rng.next_u32() & 0xffff_f000) as i32,
            Op::Slli | Op::Srli | Op::Srai => self.rng.below(64) as i32,
            Op::Slliw | Op::Srliw | Op::Sraiw => self.rng.below(32) as i32,
            _ => self.rng.below(4096) as i32 - 2048,
        };
        let (rd, rs1, rs2) = (self.free(), self.any(), self.any());
        self.op(op, rd, rs1, rs2, immediate);
    }

    /// Sixteen random bits, if they are an instruction that may stand here.
    fn compressed(&mut self) {
        for _ in 0..200 {
            let half = self.rng.next_u32() as u16;
            let Ok(instruction) = Instruction::decode(u32::from(half)) else { continue };
            let has_purpose = |number: u8| number == RA || number >= DEVICE || POINTERS.contains(&number);
            let writes = instruction.destination().is_some_and(|register| {
                register.bank == highwire_riscv::Bank::X && has_purpose(register.number)
            });
            let fits = match instruction.class() {
                Class::Alu => !writes,
                Class::Load | Class::Store => !writes && POINTERS.contains(&instruction.rs1),
                _ => false,
            };
            if half & 3 != 3 && fits {
                self.items.push(Item::Half(half));
                return;
            }
        }
    }

    /// An offset that is aligned most of the time.
    fn offset(&mut self, op: Op) -> i32 {
        let bytes = i32::from(op.access_bytes().unwrap_or(1));
        let slip = i32::from(self.rng.chance(0.01));
        (self.rng.below(64) as i32 - 32) * bytes + slip
    }

    fn load(&mut self) {
        let op = *self.rng.pick(&self.loads);
        let (rd, pointer, offset) = (self.free(), self.pointer(), self.offset(op));
        self.op(op, rd, pointer, 0, offset);
    }

    fn store(&mut self) {
        let op = *self.rng.pick(&self.stores);
        let (value, pointer, offset) = (self.any(), self.pointer(), self.offset(op));
        self.op(op, 0, pointer, value, offset);
    }

    fn float(&mut self) {
        let op = *self.rng.pick(&self.float);
        let mode = match self.rng.below(20) {
            0 => 5,
            1..6 => self.rng.below(5) as u8,
            _ => 7,
        };
        let whole = Instruction {
            op,
            rd: self.rng.below(32) as u8,
            rs1: self.any(),
            rs2: self.any(),
            rs3: self.any(),
            mode,
            length: 4,
            immediate: 0,
            bits: 0,
        };
        let writes_integer =
            whole.destination().is_none_or(|register| register.bank == highwire_riscv::Bank::X);
        let whole = Instruction { rd: if writes_integer { self.free() } else { whole.rd }, ..whole };
        if let Some(word) = whole.encode() {
            self.items.push(Item::Word(word));
        }
        if !writes_integer && self.rng.chance(0.5) {
            let shown = self.free();
            self.op(Op::FmvXD, shown, whole.rd, 0, 0);
        }
    }

    /// Accesses to the timer with little between them. Its interrupt is never enabled, so that any alarm will do.
    fn devices(&mut self) {
        for _ in 0..1 + self.rng.below(4) {
            if self.rng.chance(0.1) {
                self.time();
            } else {
                let op = *self.rng.pick(&self.device);
                let bytes = i32::from(op.access_bytes().unwrap_or(1));
                let slip = i32::from(self.rng.chance(0.01));
                let offset = self.rng.below(8 / bytes as u64) as i32 * bytes + slip;
                let (rd, value) = (self.free(), self.any());
                self.op(op, rd, DEVICE, value, offset);
            }
            (0..self.rng.below(4)).for_each(|_| self.plain());
        }
    }

    /// A read of the time, which the two models count differently: the program does not use the value.
    fn time(&mut self) {
        let rd = self.free();
        self.op(Op::Lui, HANDLER[0], 0, 0, ((TIME + 0xfff) & !0xfff) as i32);
        self.op(Op::Ld, rd, HANDLER[0], 0, TIME.wrapping_sub((TIME + 0xfff) & !0xfff) as i32);
        let value = self.rng.below(4096) as i32 - 2048;
        self.op(Op::Addi, rd, 0, 0, value);
    }

    fn atomic_or_pair(&mut self) {
        let (pointer, rd, value) = (self.pointer(), self.free(), self.any());
        let order = self.rng.below(4) as u8;
        let mut atomic = |op: Op, rd: u8, rs2: u8| {
            let whole = Instruction {
                op,
                rd,
                rs1: pointer,
                rs2,
                rs3: 0,
                mode: order,
                length: 4,
                immediate: 0,
                bits: 0,
            };
            self.items.extend(whole.encode().map(Item::Word));
        };
        if value < 24 {
            let op = self.atomic[self.rng.below(self.atomic.len() as u64) as usize];
            atomic(op, rd, value);
            return;
        }
        let (reserve, store) = if value & 1 == 0 { (Op::LrW, Op::ScW) } else { (Op::LrD, Op::ScD) };
        // The result of a conditional store must be in a register that the comparison sees.
        let rd = if rd == 0 { SHOWN } else { rd };
        atomic(reserve, rd, 0);
        atomic(store, rd, value);
        // Without a reservation.
        atomic(store, rd, value);
    }

    /// An access to data that lies in the lines of the code around it, or a look at that code itself.
    fn beside(&mut self) {
        let (rd, value, pointer) = (self.free(), self.any(), HANDLER[0]);
        let reach = |op: Op, rd: u8, rs2: u8, immediate: i32| Instruction {
            op,
            rd,
            rs1: pointer,
            rs2,
            rs3: 0,
            mode: 0,
            length: 4,
            immediate,
            bits: 0,
        };
        if self.rng.chance(0.2) {
            // Any bytes of code will do for a load of one byte.
            let offset = self.rng.below(512) as i32 - 256;
            self.items.push(Item::Reach(reach(Op::Lbu, rd, 0, 0), self.items.len(), offset));
            return;
        }
        let (island, words) = match self.island {
            Some((item, words)) if self.items.len() - item < 150 && self.rng.chance(0.7) => (item, words),
            _ => self.island(),
        };
        let bytes = |op: Op| i32::from(op.access_bytes().unwrap_or(1));
        let loads = self.rng.chance(0.6);
        let op = if loads { *self.rng.pick(&self.loads) } else { *self.rng.pick(&self.stores) };
        let offset = self.rng.below(8 * words / bytes(op) as u64) as i32 * bytes(op);
        if self.rng.chance(0.1) {
            let op = self.atomic[self.rng.below(self.atomic.len() as u64) as usize];
            let offset = offset & -bytes(op);
            self.items.push(Item::Reach(reach(Op::Addi, pointer, 0, 0), island, offset));
            let whole = reach(op, rd, value, 0);
            self.items.extend(whole.encode().map(Item::Word));
        } else if loads {
            self.items.push(Item::Reach(reach(op, rd, 0, 0), island, offset));
        } else {
            self.items.push(Item::Reach(reach(op, 0, value, 0), island, offset));
        }
    }

    /// Data that the program jumps over: two lines at most, often less than one.
    fn island(&mut self) -> (usize, u64) {
        let over = self.hole();
        self.items.push(Item::Align);
        let words = 1 + self.rng.below(16);
        let first = self.items.len();
        for _ in 0..words {
            let word = awkward(&mut self.rng);
            self.items.push(Item::Data(word));
        }
        self.fill(over, Op::Jal, [0; 3]);
        self.island = Some((first, words));
        (first, words)
    }

    fn branch(&mut self) {
        let op = *self.rng.pick(&[Op::Beq, Op::Bne, Op::Blt, Op::Bge, Op::Bltu, Op::Bgeu]);
        let (a, b) = (self.any(), self.any());
        let hole = self.hole();
        (0..self.rng.below(6)).for_each(|_| self.plain());
        self.fill(hole, op, [0, a, b]);
    }

    fn jump(&mut self) {
        let (hole, rd) = (self.hole(), self.free());
        (0..self.rng.below(4)).for_each(|_| self.plain());
        self.fill(hole, Op::Jal, [rd, 0, 0]);
    }

    fn counted_loop(&mut self) {
        let times = 1 + self.rng.below(12) as i32;
        self.op(Op::Addi, COUNTER, 0, 0, times);
        let back = self.items.len();
        (0..1 + self.rng.below(8)).for_each(|_| self.plain());
        self.op(Op::Addi, COUNTER, COUNTER, 0, -1);
        self.to(Op::Bne, 0, COUNTER, 0, back);
    }

    /// Over a function, and into it.
    fn call(&mut self) {
        let over = self.hole();
        let function = self.items.len();
        (0..1 + self.rng.below(5)).for_each(|_| self.plain());
        if self.rng.chance(0.5) {
            self.items.push(Item::Half(0x8082));
        } else {
            self.op(Op::Jalr, 0, RA, 0, 0);
        }
        self.fill(over, Op::Jal, [0; 3]);
        (0..1 + self.rng.below(3)).for_each(|_| self.to(Op::Jal, RA, 0, 0, function));
    }

    fn csr(&mut self) {
        let (rd, rs1) = (self.free(), self.any());
        let write = *self.rng.pick(&[Op::Csrrw, Op::Csrrs, Op::Csrrc, Op::Csrrwi, Op::Csrrsi, Op::Csrrci]);
        match self.rng.below(6) {
            0 => self.op(write, rd, rs1, 0, MSCRATCH),
            1 => self.op(Op::Csrrs, rd, 0, 0, MCAUSE),
            2 => self.op(Op::Csrrs, rd, 0, 0, FCSR),
            3 => self.op(write, rd, rs1, 0, FFLAGS),
            // Rounding modes, one in eight of them none.
            4 => {
                let mode = self.rng.below(5) as u8 + if self.rng.chance(0.1) { 3 } else { 0 };
                self.op(Op::Csrrwi, rd, mode.min(7), 0, FRM);
            }
            _ => self.op(Op::Csrrs, rd, 0, 0, MTVAL),
        }
    }

    fn trap(&mut self) {
        let rd = self.free();
        match self.rng.below(8) {
            0 => self.op(Op::Ecall, 0, 0, 0, 0),
            1 => self.op(Op::Ebreak, 0, 0, 0, 0),
            2 => self.items.push(Item::Half(0x9002)),
            3 => self.items.push(Item::Half(0)),
            4 => self.items.push(Item::Word(*self.rng.pick(&[0xffff_ffff, 0x0000_202b, 0x0600_7053]))),
            5 => self.op(Op::Ld, rd, BAD, 0, 8),
            6 => self.op(Op::Sw, 0, BAD, rd, 8),
            _ => self.op(Op::Jalr, RA, BAD, 0, 0),
        }
    }

    /// A pointer to somewhere else, so that lines meet in the cache.
    fn move_pointer(&mut self) {
        let pointer = self.pointer();
        let pages = (DATA_BYTES >> 12) as i32 / 2;
        let page = self.rng.below(2 * pages as u64 - 1) as i32 - pages + 1;
        let line = self.rng.below(48) as i32 * 64 - 1536;
        self.op(Op::Lui, HANDLER[0], 0, 0, page << 12);
        self.op(Op::Add, pointer, MIDDLE, HANDLER[0], 0);
        let small = if page == 0 { line } else { line.clamp(-512, 512) };
        self.op(Op::Addi, pointer, pointer, 0, small & !7);
    }

    /// Shows every register and every word of the data, and ends.
    fn epilogue(&mut self) {
        let shown = 10;
        for number in 1..32 {
            self.op(Op::Or, shown, number, 0, 0);
        }
        for number in 0..32 {
            self.op(Op::FmvXD, shown, number, 0, 0);
        }
        self.op(Op::Csrrs, shown, 0, 0, FCSR);
        let [x, y] = [5, 6];
        self.op(Op::Lui, x, 0, 0, ((DATA_BYTES / 2) & !0xfff) as i32);
        self.op(Op::Sub, x, MIDDLE, x, 0);
        self.op(Op::Addi, y, 0, 0, (DATA_BYTES / 32) as i32);
        let back = self.items.len();
        (0..4).for_each(|word| self.op(Op::Ld, shown, x, 0, 8 * word));
        self.op(Op::Addi, x, x, 0, 32);
        self.op(Op::Addi, y, y, 0, -1);
        self.to(Op::Bne, 0, y, 0, back);
        self.op(Op::Fence, 0, 0, 0, 0xff);
        self.op(Op::Lui, x, 0, 0, 0x1000_1000);
        self.op(Op::Sd, 0, x, 0, 0);
        let stay = self.items.len();
        self.to(Op::Jal, 0, 0, 0, stay);
    }

    fn link(&self) -> Vec<u8> {
        let mut places = vec![0i32];
        for item in &self.items {
            let place = places[places.len() - 1];
            places.push(place + item.bytes(place));
        }
        let mut bytes = Vec::new();
        for (item, place) in self.items.iter().zip(&places) {
            match *item {
                Item::Word(word) => bytes.extend(word.to_le_bytes()),
                Item::Half(half) => bytes.extend(half.to_le_bytes()),
                Item::To(jump, target) => {
                    let whole = Instruction { immediate: places[target] - place, ..jump };
                    bytes.extend(whole.encode().expect("targets are near").to_le_bytes());
                }
                // Nobody gets there but the fetch of a wrong path.
                Item::Align => bytes.resize(bytes.len() + (-place & 7) as usize, 0),
                Item::Data(word) => bytes.extend(word.to_le_bytes()),
                Item::Reach(access, target, offset) => {
                    let here = Instruction { op: Op::Auipc, rd: HANDLER[0], immediate: 0, ..access };
                    let whole = Instruction { immediate: places[target] + offset - place, ..access };
                    for instruction in [here, whole] {
                        bytes.extend(instruction.encode().expect("data is near").to_le_bytes());
                    }
                }
            }
        }
        bytes
    }
}
