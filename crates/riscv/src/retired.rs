//! The commit log: the effects of one instruction.

use std::fmt;

use crate::disassemble::Located;
use crate::instruction::Instruction;
use crate::register::Register;
use crate::trap::Trap;

/// An instruction that retired, and everything that it changed except CSRs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retired {
    /// Its address.
    pub pc: u64,
    /// The instruction.
    pub instruction: Instruction,
    /// The register that it wrote.
    pub write: Option<RegisterWrite>,
    /// The memory that it touched.
    pub memory: Option<MemoryAccess>,
    /// `mcycle` when it retired; without a timing model, the number of instructions before it.
    pub cycle: u64,
}

/// A register and its new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterWrite {
    /// The register; never x0.
    pub register: Register,
    /// All 64 bits.
    pub value: u64,
}

/// One access to data memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryAccess {
    /// Load, store or both.
    pub kind: AccessKind,
    /// The first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u8,
    /// The register value that a store or an atomic operation uses; zero for a load.
    pub operand: u64,
}

/// The direction of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A store.
    Store,
    /// `lr`, `sc` and the read-modify-write operations.
    Atomic,
}

/// The result of [`crate::Hart::step`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// An instruction retired.
    Retired(Retired),
    /// A trap was taken at `pc`; the handler comes next.
    Trapped {
        /// The value of `mepc`.
        pc: u64,
        /// The trap.
        trap: Trap,
    },
    /// The hart waits for an interrupt.
    Waiting,
}

impl fmt::Display for Retired {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Retired { cycle, pc, instruction, .. } = *self;
        let digits = usize::from(instruction.length) * 2;
        write!(out, "{cycle:>10} {pc:016x} ({:0digits$x})", instruction.bits)?;
        write!(out, "{:1$} {2}", "", 8 - digits, Located { pc, instruction })?;
        if let Some(RegisterWrite { register, value }) = self.write {
            write!(out, "  {register}={value:016x}")?;
        }
        if let Some(MemoryAccess { kind, address, bytes, operand }) = self.memory {
            let width = usize::from(bytes) * 2;
            let kept = operand & (u64::MAX >> (64 - 8 * u32::from(bytes)));
            match kind {
                AccessKind::Load => write!(out, "  [{address:x}]"),
                AccessKind::Store => write!(out, "  [{address:x}]={kept:0width$x}"),
                AccessKind::Atomic => write!(out, "  [{address:x}] with {kept:0width$x}"),
            }?;
        }
        Ok(())
    }
}
