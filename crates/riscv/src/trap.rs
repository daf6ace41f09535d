//! Traps: exceptions that an instruction causes and interrupts that arrive between two.

use std::fmt;

/// The cause of an exception; the discriminants are the codes of `mcause`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Exception {
    /// A fetch from an address that holds no memory.
    InstructionAccessFault = 1,
    /// Bits that are no instruction, or a CSR access that is not allowed.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// A load whose address is not a multiple of its size.
    LoadMisaligned = 4,
    /// A load from an address that holds no memory.
    LoadAccessFault = 5,
    /// A store or atomic operation whose address is not a multiple of its size.
    StoreMisaligned = 6,
    /// A store or atomic operation on an address that holds no memory.
    StoreAccessFault = 7,
    /// `ecall` in user mode.
    UserEnvironmentCall = 8,
    /// `ecall` in machine mode.
    MachineEnvironmentCall = 11,
}

/// An interrupt by its bit in `mip` and `mie`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Interrupt(pub u8);

impl Interrupt {
    /// Another hart, or software, asks for attention.
    pub const SOFTWARE: Interrupt = Interrupt(3);
    /// `mtime` has reached `mtimecmp`.
    pub const TIMER: Interrupt = Interrupt(7);
    /// The platform's interrupt controller.
    pub const EXTERNAL: Interrupt = Interrupt(11);
}

/// The cause of a trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Cause {
    /// The instruction at `mepc`, which does not retire.
    Exception(Exception),
    /// An interrupt before the instruction at `mepc`.
    Interrupt(Interrupt),
}

impl Cause {
    /// The value of `mcause`.
    pub fn code(self) -> u64 {
        match self {
            Cause::Exception(exception) => exception as u64,
            Cause::Interrupt(interrupt) => 1 << 63 | u64::from(interrupt.0),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Cause::Exception(exception) => match exception {
                Exception::InstructionAccessFault => "instruction access fault",
                Exception::IllegalInstruction => "illegal instruction",
                Exception::Breakpoint => "breakpoint",
                Exception::LoadMisaligned => "misaligned load",
                Exception::LoadAccessFault => "load access fault",
                Exception::StoreMisaligned => "misaligned store",
                Exception::StoreAccessFault => "store access fault",
                Exception::UserEnvironmentCall => "environment call from user mode",
                Exception::MachineEnvironmentCall => "environment call",
            },
            Cause::Interrupt(Interrupt::SOFTWARE) => "software interrupt",
            Cause::Interrupt(Interrupt::TIMER) => "timer interrupt",
            Cause::Interrupt(Interrupt::EXTERNAL) => "external interrupt",
            Cause::Interrupt(Interrupt(number)) => return write!(out, "interrupt {number}"),
        };
        out.write_str(text)
    }
}

/// A trap with its value of `mtval`: the faulting address, or the illegal bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    /// The cause.
    pub cause: Cause,
    /// The value of `mtval`.
    pub value: u64,
}

impl Trap {
    pub(crate) fn new(exception: Exception, value: u64) -> Trap {
        Trap { cause: Cause::Exception(exception), value }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            Cause::Exception(Exception::UserEnvironmentCall | Exception::MachineEnvironmentCall)
            | Cause::Interrupt(_) => write!(out, "{}", self.cause),
            cause => write!(out, "{cause} ({:#x})", self.value),
        }
    }
}
