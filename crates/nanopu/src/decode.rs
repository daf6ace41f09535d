//! What the interlocks need to know of an instruction.

use highwire_riscv::{Bank, Class, Instruction, Op, Register};

use crate::port::{RX_REGISTER, csr};

/// The registers that an instruction touches, and how late its result can be bypassed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Integer registers read or written, by bit; x0 is none.
    pub(crate) x: u32,
    /// Floating-point registers read or written.
    pub(crate) f: u32,
    pub(crate) writes_x: Option<u8>,
    pub(crate) writes_f: Option<u8>,
    pub(crate) class: Class,
    /// It goes through the floating-point unit, loads and stores included.
    pub(crate) is_float: bool,
    /// Its result is not there when it leaves the execute stage.
    pub(crate) late_in_execute: bool,
    /// Nor when it leaves the memory stage.
    pub(crate) late_in_memory: bool,
    /// It changes what the instructions behind it mean: they are fetched again.
    pub(crate) flushes: bool,
    /// It may set floating-point flags.
    pub(crate) sets_flags: bool,
    /// It reads or writes them, or the rounding mode.
    pub(crate) is_float_csr: bool,
    /// It reads x30, the network's.
    pub(crate) reads_network: bool,
}

impl Needs {
    pub(crate) fn of(instruction: &Instruction) -> Needs {
        let class = instruction.class();
        let mut needs = Needs {
            x: 0,
            f: 0,
            writes_x: None,
            writes_f: None,
            class,
            is_float: instruction.is_float(),
            late_in_execute: is_late_in_execute(class),
            late_in_memory: is_late_in_memory(instruction),
            flushes: flushes(instruction),
            sets_flags: sets_flags(class, instruction.op),
            is_float_csr: class == Class::Csr && (1..=3).contains(&instruction.immediate),
            reads_network: instruction.sources().any(|register| register == Register::x(RX_REGISTER)),
        };
        let destination = instruction.destination();
        for register in instruction.sources().chain(destination) {
            let bit = 1 << register.number;
            match register.bank {
                Bank::X => needs.x |= bit,
                Bank::F => needs.f |= bit,
            }
        }
        match destination {
            Some(register) if register.bank == Bank::X => needs.writes_x = Some(register.number),
            Some(register) => needs.writes_f = Some(register.number),
            None => {}
        }
        needs
    }

    /// Whether it goes through the data cache.
    pub(crate) fn is_access(&self) -> bool {
        matches!(self.class, Class::Load | Class::Store | Class::Atomic)
    }

    /// Whether it goes to the multiplier and divider.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.class, Class::Multiply | Class::Divide)
    }
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

fn flushes(instruction: &Instruction) -> bool {
    match instruction.class() {
        Class::System => true,
        Class::Fence => instruction.op == Op::FenceI,
        Class::Csr => {
            let only_reads = matches!(instruction.op, Op::Csrrs | Op::Csrrc | Op::Csrrsi | Op::Csrrci)
                && instruction.rs1 == 0;
            // The trap handler's own registers, mscratch to mtval, and the network's mean nothing to other instructions.
            let is_inert = (0x340..=0x343).contains(&instruction.immediate)
                || csr::is_network(instruction.immediate as u16);
            !only_reads && !is_inert
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
