//! The outcome of an executed instruction, as far as the pipeline needs it, in two words.

use highwire_riscv::{Cause, Exception, Trap};

use super::world::Answer;
use crate::latency::FloatLatency;

/// The outcome of an executed instruction, as far as the pipeline needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) next: u64,
    /// The bits of the instruction; zeroes if a trap came first.
    pub(super) bits: u32,
    /// It trapped.
    pub(super) trap: Option<TrapStage>,
    /// It touches memory.
    pub(super) is_access: bool,
    /// It touches a device.
    pub(super) is_device: bool,
    /// A load that reserves.
    pub(super) reserves: bool,
    /// A conditional store without a reservation.
    pub(super) fails: bool,
    /// Nothing was executed, because the hart waits.
    pub(super) waits: bool,
    /// Nothing was executed, because the program goes on at another address.
    pub(super) is_astray: bool,
    /// A branch to the next instruction is taken.
    pub(super) goes_to_next: bool,
    pub(super) unit_cycles: u8,
    pub(super) float: FloatLatency,
}

/// Where the pipeline finds that an instruction traps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum TrapStage {
    /// In decode: the bits are no instruction, or could not be fetched.
    Decode,
    /// Behind decode: accesses and environment calls.
    WriteBack,
    /// An interrupt takes the instruction's place.
    Interrupt,
}

impl TrapStage {
    pub(super) fn of(trap: &Trap) -> TrapStage {
        match trap.cause {
            Cause::Interrupt(_) => TrapStage::Interrupt,
            Cause::Exception(Exception::IllegalInstruction | Exception::InstructionAccessFault) => {
                TrapStage::Decode
            }
            Cause::Exception(_) => TrapStage::WriteBack,
        }
    }

    pub(super) fn packed(self) -> u64 {
        packed::TRAP
            | match self {
                TrapStage::Decode => 0,
                TrapStage::WriteBack => packed::LATE,
                TrapStage::Interrupt => packed::INTERRUPT,
            }
    }

    fn of_packed(packed: u64) -> Option<TrapStage> {
        match packed & (packed::TRAP | packed::LATE | packed::INTERRUPT) {
            0 => None,
            packed::TRAP => Some(TrapStage::Decode),
            traps if traps & packed::LATE != 0 => Some(TrapStage::WriteBack),
            _ => Some(TrapStage::Interrupt),
        }
    }
}

/// The bits of the answer's second word, behind those of the instruction.
pub(super) mod packed {
    pub(in super::super) const TRAP: u64 = 1 << 32;
    pub(in super::super) const ACCESS: u64 = 1 << 33;
    pub(in super::super) const WAITS: u64 = 1 << 34;
    pub(in super::super) const ASTRAY: u64 = 1 << 35;
    pub(in super::super) const DEVICE: u64 = 1 << 36;
    pub(in super::super) const RESERVES: u64 = 1 << 37;
    pub(in super::super) const FAILS: u64 = 1 << 38;
    /// Of a trap.
    pub(in super::super) const LATE: u64 = 1 << 39;
    pub(in super::super) const UNIT: u32 = 40;
    pub(in super::super) const FLOAT: u32 = 48;
    pub(in super::super) const PIPE: u64 = 1 << 56;
    pub(in super::super) const UNIT_OF_ITS_OWN: u64 = 1 << 57;
    /// Of a trap.
    pub(in super::super) const INTERRUPT: u64 = 1 << 58;
    pub(in super::super) const TO_NEXT: u64 = 1 << 59;
}

impl Outcome {
    #[inline(always)]
    pub(super) fn of([next, packed]: Answer) -> Outcome {
        let cycles = packed >> packed::FLOAT & 0xff;
        let float = match packed & (packed::PIPE | packed::UNIT_OF_ITS_OWN) {
            0 => FloatLatency::None,
            packed::PIPE => FloatLatency::Pipe(cycles),
            _ => FloatLatency::Unit(cycles),
        };
        Outcome {
            next,
            bits: packed as u32,
            trap: TrapStage::of_packed(packed),
            is_access: packed & packed::ACCESS != 0,
            is_device: packed & packed::DEVICE != 0,
            reserves: packed & packed::RESERVES != 0,
            fails: packed & packed::FAILS != 0,
            waits: packed & packed::WAITS != 0,
            is_astray: packed & packed::ASTRAY != 0,
            goes_to_next: packed & packed::TO_NEXT != 0,
            unit_cycles: (packed >> packed::UNIT) as u8,
            float,
        }
    }
}
