//! What the interlocks need to know of an instruction, and a memory of what was decoded before.

mod flags;
mod raw;

pub(crate) use flags::{Flags, NO_FLAGS};
pub(crate) use raw::jump_target;

use highwire_riscv::csr::number::{CYCLE, MCYCLE};
use highwire_riscv::{Bank, Class, Instruction, Op, Register};

use crate::port::{RX_REGISTER, TX_REGISTER, csr};
use flags::flag;

/// The floating-point registers in a set of registers.
const FLOATS: u64 = 0xffff_ffff << 32;

/// The floating-point unit's divider, in place of the cycles that its pipelines take.
const DIVIDER: u8 = u8::MAX;

/// The registers that an instruction touches, and how late its result can be bypassed.
///
/// A set of registers is a word with a bit for each: integer registers in the low half, floating-point registers in the
/// high one. x0 is in none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Needs {
    /// Registers read or written.
    pub(crate) uses: u64,
    /// The register written.
    pub(crate) writes: u64,
    pub(crate) class: Class,
    /// Bytes of memory that it touches.
    pub(crate) access_bytes: u8,
    /// Cycles in a floating-point pipeline, or [`DIVIDER`]; zero if the instruction uses neither.
    float_cycles: u8,
    pub(crate) flags: Flags,
}

/// The needs of an instruction that traps, or of bits that are no instruction.
pub(crate) const NO_NEEDS: Needs =
    Needs { uses: 0, writes: 0, class: Class::Alu, access_bytes: 0, float_cycles: 0, flags: NO_FLAGS };

fn bit(register: Register) -> u64 {
    match register.bank {
        Bank::X => 1 << register.number,
        Bank::F => 1 << 32 << register.number,
    }
}

impl Needs {
    pub(crate) fn of(instruction: &Instruction) -> Needs {
        let class = instruction.class();
        let destination = instruction.destination();
        let writes = destination.map_or(0, bit);
        let is_double = instruction.op.name().ends_with(".d");
        let float_cycles = match class {
            Class::FloatArithmetic if is_double => 4,
            Class::FloatArithmetic => 3,
            Class::FloatMove if writes & FLOATS != 0 => 2,
            Class::FloatDivide => DIVIDER,
            _ => 0,
        };
        let orders = |mask| class == Class::Atomic && instruction.mode & mask != 0;
        let is_network = |register| register == Register::x(RX_REGISTER);
        let whole = if instruction.bits & 3 == 3 { Some(instruction.bits) } else { instruction.encode() };
        let flags = [
            (flag::FLOAT, instruction.is_float()),
            (flag::LATE_IN_EXECUTE, is_late_in_execute(class)),
            (flag::LATE_IN_MEMORY, is_late_in_memory(instruction)),
            (flag::LONG, matches!(class, Class::Multiply | Class::Divide)),
            (flag::FLUSHES, flushes(instruction)),
            (flag::SETS_FLAGS, sets_flags(class, instruction.op)),
            (flag::FLOAT_CSR, class == Class::Csr && is_float_csr(instruction.immediate as u16)),
            (flag::READS_NETWORK, instruction.sources().any(is_network)),
            (flag::RELEASES, orders(1)),
            (flag::ACQUIRES, orders(2)),
            (flag::PORT, takes_port(instruction)),
            (flag::PLAIN, is_plain(class) && !instruction.is_float()),
            (flag::SIMPLE, is_simple(class) && !instruction.is_float() && !branches_to_next(instruction)),
            (flag::NETWORK_CSR, class == Class::Csr && is_everywhere(instruction.immediate as u16)),
            (flag::READS_COUNTER, class == Class::Csr && reads_counter(instruction)),
            (flag::ACCESS, instruction.op.access_bytes().is_some()),
            (flag::CSR, class == Class::Csr),
            (flag::SENDS, destination == Some(Register::x(TX_REGISTER))),
            (flag::TO_NEXT, branches_to_next(instruction)),
            (flag::LINKS, instruction.rd & 1 != 0),
            (flag::RETURNS, instruction.rs1 & 0x1b == 1),
            (flag::READS_STALE, whole.is_some_and(raw::reads_cache)),
            (flag::PAUSES, class == Class::Fence && whole.is_some_and(raw::follows_nothing)),
        ];
        Needs {
            uses: instruction.sources().map(bit).fold(writes, |uses, register| uses | register),
            writes,
            class,
            access_bytes: instruction.op.access_bytes().unwrap_or(0),
            float_cycles,
            flags: Flags(flags.iter().fold(0, |all, &(flag, is_set)| all | if is_set { flag } else { 0 })),
        }
    }

    /// The needs that other instructions wait for even if this one traps. An access goes through the cache
    /// before it traps.
    pub(crate) fn of_trap(&self) -> Needs {
        let always = flag::LATE_IN_EXECUTE
            | flag::LATE_IN_MEMORY
            | flag::SETS_FLAGS
            | flag::LINKS
            | flag::PORT
            | flag::READS_STALE;
        let of_access = flag::ACCESS | flag::FLOAT;
        let (kept, class) = match self.class {
            Class::Load | Class::Store | Class::Atomic => (always | of_access, self.class),
            Class::Jump => (always, Class::Jump),
            _ => (always, Class::Alu),
        };
        let flags = Flags(self.flags.0 & kept);
        Needs {
            uses: self.uses,
            writes: self.writes,
            class,
            access_bytes: self.access_bytes,
            flags,
            ..NO_NEEDS
        }
    }

    #[inline(always)]
    fn has(&self, flag: u32) -> bool {
        self.flags.has(flag)
    }

    /// Whether it goes through the data cache.
    #[inline(always)]
    pub(crate) fn is_access(&self) -> bool {
        self.flags.is_access()
    }

    /// Whether it goes to the multiplier and divider.
    #[inline(always)]
    pub(crate) fn is_long(&self) -> bool {
        self.flags.is_long()
    }

    /// Whether it goes through the floating-point unit, loads and stores included.
    #[inline(always)]
    pub(crate) fn is_float(&self) -> bool {
        self.flags.is_float()
    }

    /// Cycles in a floating-point pipeline; nothing for the divider's.
    pub(crate) fn float_cycles(&self) -> Option<u8> {
        (self.float_cycles != DIVIDER).then_some(self.float_cycles)
    }

    /// Whether it changes what the instructions behind it mean: they are fetched again.
    pub(crate) fn flushes(&self) -> bool {
        self.has(flag::FLUSHES)
    }

    /// Whether it may set floating-point flags.
    pub(crate) fn sets_flags(&self) -> bool {
        self.has(flag::SETS_FLAGS)
    }

    /// Whether it takes a value out of the floating-point registers.
    pub(crate) fn leaves_floats(&self) -> bool {
        self.is_float() && self.writes & FLOATS == 0
    }

    /// Whether it reads or writes the floating-point flags or the rounding mode.
    pub(crate) fn is_float_csr(&self) -> bool {
        self.has(flag::FLOAT_CSR)
    }

    /// Whether it reads x30, the network's receive register.
    #[inline(always)]
    pub(crate) fn reads_network(&self) -> bool {
        self.has(flag::READS_NETWORK)
    }

    /// Whether it waits for the accesses before it.
    pub(crate) fn releases(&self) -> bool {
        self.has(flag::RELEASES)
    }

    /// Whether it takes the write port of the integer registers, if only for x0.
    pub(crate) fn takes_port(&self) -> bool {
        self.has(flag::PORT)
    }

    /// Whether decode pauses behind it: it is a fence without successors, as Rocket takes `fence.i` to be,
    /// too.
    pub(crate) fn pauses(&self) -> bool {
        self.has(flag::PAUSES)
    }

    /// Whether the data cache takes it for a read while nothing follows it into the execute stage.
    pub(crate) fn reads_stale(&self) -> bool {
        self.has(flag::READS_STALE)
    }

    /// Whether the accesses behind it wait for it.
    pub(crate) fn fences(&self) -> bool {
        self.class == Class::Fence || self.has(flag::ACQUIRES)
    }

    /// Whether it only computes from integer registers, and goes on somewhere.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.has(flag::PLAIN)
    }

    /// Whether it is a branch to the next instruction.
    pub(crate) fn branches_to_next(&self) -> bool {
        self.flags.branches_to_next()
    }

    /// Whether a jump with this destination calls.
    pub(crate) fn links(&self) -> bool {
        self.has(flag::LINKS)
    }

    /// Whether a jump with this source returns.
    pub(crate) fn returns(&self) -> bool {
        self.has(flag::RETURNS)
    }

    /// The register whose result is not there when it leaves the execute stage.
    pub(crate) fn late_in_execute(&self) -> u64 {
        self.writes & if self.has(flag::LATE_IN_EXECUTE) { u64::MAX } else { FLOATS }
    }

    /// The register whose result is not there when it leaves the memory stage.
    pub(crate) fn late_in_memory(&self) -> u64 {
        self.writes & if self.has(flag::LATE_IN_MEMORY) { u64::MAX } else { FLOATS }
    }

    /// The register whose result is not there when it leaves write-back.
    pub(crate) fn late_in_write_back(&self) -> u64 {
        self.writes & if self.has(flag::LONG) { u64::MAX } else { FLOATS }
    }

    /// The integer register that it writes, as a set.
    pub(crate) fn writes_x(&self) -> u64 {
        self.writes & !FLOATS
    }

    /// The floating-point register that it writes.
    pub(crate) fn float_register(&self) -> Option<u8> {
        let floats = self.writes >> 32;
        (floats != 0).then(|| floats.trailing_zeros() as u8)
    }
}

/// An instruction that was decoded before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pc: u64,
    bits: u32,
    pub(crate) is_instruction: bool,
    pub(crate) needs: Needs,
    pub(crate) instruction: Instruction,
}

/// Stands for bits that are no instruction.
const NOTHING: Instruction =
    Instruction { op: Op::Addi, rd: 0, rs1: 0, rs2: 0, rs3: 0, mode: 0, length: 4, immediate: 0, bits: 0 };

/// How many decoded instructions are remembered.
const ENTRIES: usize = 2048;

/// Decoded instructions, by address and bits.
#[derive(Clone, Debug)]
pub(crate) struct Decoder {
    entries: Box<[Known; ENTRIES]>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        // No instruction lies at an odd address.
        let nowhere = Known { pc: 1, bits: 0, is_instruction: false, needs: NO_NEEDS, instruction: NOTHING };
        Decoder { entries: Box::new([nowhere; ENTRIES]) }
    }

    /// The instruction that `bits` at `pc` are, if any. Half an instruction is remembered apart from the
    /// whole.
    #[inline(always)]
    pub(crate) fn decode(&mut self, pc: u64, bits: u32, is_half: bool) -> Option<&Known> {
        let known = self.look_at(pc, bits, is_half);
        known.is_instruction.then_some(known)
    }

    /// The same, whether or not `bits` are an instruction.
    #[inline(always)]
    pub(crate) fn look_at(&mut self, pc: u64, bits: u32, is_half: bool) -> &Known {
        let place = (pc >> 1) as usize + if is_half { ENTRIES / 2 } else { 0 };
        let known = &mut self.entries[place % ENTRIES];
        if known.pc != pc || known.bits != bits {
            Decoder::learn(known, pc, bits);
        }
        known
    }

    /// The needs of the instruction that the hart is about to execute at `pc`.
    #[inline(always)]
    pub(crate) fn needs(&self, pc: u64, instruction: &Instruction) -> Needs {
        let known = &self.entries[(pc >> 1) as usize % ENTRIES];
        if known.pc == pc && known.bits == instruction.bits { known.needs } else { Needs::of(instruction) }
    }

    /// The needs of the instruction `bits` at `pc`.
    pub(crate) fn needs_of(&mut self, pc: u64, bits: u32) -> Needs {
        self.decode(pc, bits, false).map_or(NO_NEEDS, |known| known.needs)
    }

    #[cold]
    fn learn(known: &mut Known, pc: u64, bits: u32) {
        let instruction = Instruction::decode(bits);
        let is_instruction = instruction.is_ok();
        let instruction = instruction.unwrap_or(NOTHING);
        let needs = if is_instruction { Needs::of(&instruction) } else { raw::needs(bits) };
        *known = Known { pc, bits, is_instruction, needs, instruction };
    }
}

fn is_plain(class: Class) -> bool {
    matches!(class, Class::Alu | Class::Branch | Class::Jump | Class::JumpRegister)
}

/// Whether decode takes this CSR for one of the floating-point unit's: it looks at two bits of the number.
fn is_float_csr(number: u16) -> bool {
    number & 0x900 == 0 && !csr::is_network(number)
}

/// Whether every core has this CSR of the network.
fn is_everywhere(number: u16) -> bool {
    csr::is_network(number) && number != csr::THREAD_ENTRY
}

/// Whether a CSR's access is a read of the cycle counter alone.
fn reads_counter(instruction: &Instruction) -> bool {
    only_reads(instruction) && matches!(instruction.immediate as u16, MCYCLE | CYCLE)
}

/// Whether a CSR's access writes nothing.
fn only_reads(instruction: &Instruction) -> bool {
    matches!(instruction.op, Op::Csrrs | Op::Csrrc | Op::Csrrsi | Op::Csrrci) && instruction.rs1 == 0
}

fn is_simple(class: Class) -> bool {
    is_plain(class) || matches!(class, Class::Load | Class::Store)
}

fn is_late_in_execute(class: Class) -> bool {
    !matches!(class, Class::Alu | Class::Branch | Class::Jump | Class::Fence)
}

fn is_late_in_memory(instruction: &Instruction) -> bool {
    match instruction.class() {
        // The byte and half-word aligner comes after the memory stage, and so does the verdict of a conditional store.
        Class::Load => instruction.op.access_bytes() < Some(4),
        Class::Atomic => matches!(instruction.op, Op::ScW | Op::ScD),
        Class::Csr | Class::Multiply | Class::Divide => true,
        Class::FloatArithmetic | Class::FloatDivide | Class::FloatMove => true,
        _ => false,
    }
}

fn takes_port(instruction: &Instruction) -> bool {
    let named = Instruction { rd: 1, ..*instruction };
    named.destination().is_some_and(|register| register.bank == Bank::X)
}

fn branches_to_next(instruction: &Instruction) -> bool {
    instruction.class() == Class::Branch && instruction.immediate == i32::from(instruction.length)
}

fn flushes(instruction: &Instruction) -> bool {
    match instruction.class() {
        Class::System => true,
        Class::Fence => instruction.op == Op::FenceI,
        Class::Csr => {
            // The trap handler's own registers, mscratch to mtval, and the network's mean nothing to other instructions.
            let is_inert = (0x340..=0x343).contains(&instruction.immediate)
                || csr::is_network(instruction.immediate as u16);
            !only_reads(instruction) && !is_inert
        }
        _ => false,
    }
}

fn sets_flags(class: Class, op: Op) -> bool {
    use Op::*;
    match class {
        Class::FloatArithmetic | Class::FloatDivide => true,
        Class::FloatMove => !matches!(
            op,
            FsgnjS
                | FsgnjnS
                | FsgnjxS
                | FsgnjD
                | FsgnjnD
                | FsgnjxD
                | FmvXW
                | FmvXD
                | FmvWX
                | FmvDX
                | FclassS
                | FclassD
        ),
        _ => false,
    }
}
