//! A hart: its registers, and the loop that fetches, executes and traps.
//!
//! There is no time here but a count of instructions; a timing model drives [`Hart::step`] and reads its
//! reports. Decoded instructions are kept by address until `fence.i`, as the architecture allows.

use crate::bus::Bus;
use crate::csr::{Csrs, Privilege};
use crate::fetch::FetchCache;
use crate::instruction::Instruction;
use crate::op::{Class, Op};
use crate::register::Bank;
use crate::retired::{AccessKind, MemoryAccess, RegisterWrite, Retired, Step};
use crate::trap::{Cause, Exception, Trap};

/// The bytes that a reservation covers, in which other harts' stores break it: one cache line.
pub const RESERVATION_BYTES: u64 = 64;

/// One hardware thread.
#[derive(Clone)]
pub struct Hart {
    /// The address of the next instruction.
    pub pc: u64,
    /// The integer registers; `x[0]` is zero between instructions.
    pub x: [u64; 32],
    /// The floating-point registers; a single-precision value is boxed in ones.
    pub f: [u64; 32],
    /// Control and status registers.
    pub csrs: Csrs,
    /// The mode in which it runs.
    pub privilege: Privilege,
    /// The first exception whose handler has not returned, and its pc; one raised by the handler does not replace it.
    pub unreturned: Option<(u64, Trap)>,
    pub(crate) reservation: Option<u64>,
    pub(crate) waiting: bool,
    pub(crate) fetched: FetchCache,
}

/// The next step of a hart, for a driver that executes it step by step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The instruction at `pc`.
    Instruction(Instruction),
    /// A trap, before anything executes.
    Trap(Trap),
    /// It waits for an interrupt.
    Waiting,
}

/// Why [`Hart::run`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// It has executed the requested number of instructions.
    Budget,
    /// The bus wants attention.
    Attention,
    /// It waits for an interrupt, and none is pending.
    Waiting,
    /// A trap was taken whose handler lies where there is no memory.
    Unhandled {
        /// The address of the trap.
        pc: u64,
        /// The trap.
        trap: Trap,
    },
}

impl Hart {
    /// A hart after reset, in machine mode, about to execute at `pc`.
    pub fn new(hart_id: u64, pc: u64) -> Hart {
        Hart {
            pc,
            x: [0; 32],
            f: [0; 32],
            csrs: Csrs::new(hart_id),
            privilege: Privilege::Machine,
            unreturned: None,
            reservation: None,
            waiting: false,
            fetched: FetchCache::default(),
        }
    }

    /// Executes one instruction, or takes one trap, and says what changed.
    pub fn step<B: Bus>(&mut self, bus: &mut B) -> Step {
        let (pc, cycle) = (self.pc, self.csrs.mcycle);
        let instruction = match self.next(bus) {
            Next::Instruction(instruction) => instruction,
            Next::Trap(trap) => return self.take(trap),
            Next::Waiting => return Step::Waiting,
        };
        let memory = self.access(&instruction);
        if let Err(trap) = self.perform(&instruction, bus) {
            return Step::Trapped { pc, trap };
        }
        let write = instruction.destination().map(|register| {
            let file = if register.bank == Bank::X { &self.x } else { &self.f };
            RegisterWrite { register, value: file[usize::from(register.number)] }
        });
        Step::Retired(Retired { pc, instruction, write, memory, cycle })
    }

    /// Executes up to `instructions` instructions; traps are taken along the way and count as one each.
    ///
    /// The same as this many [`Hart::step`]s, without their reports.
    pub fn run<B: Bus>(&mut self, bus: &mut B, instructions: u64) -> RunEnd {
        for _ in 0..instructions {
            if let Err(trap) = self.advance(bus) {
                let pc = self.pc;
                self.take(trap);
                if bus.fetch(self.pc).is_err() {
                    return RunEnd::Unhandled { pc, trap };
                }
            } else if self.waiting {
                return RunEnd::Waiting;
            }
            if bus.wants_attention() {
                return RunEnd::Attention;
            }
        }
        RunEnd::Budget
    }

    /// The instruction that [`Hart::step`] would execute next, unless a trap comes first.
    pub fn peek<B: Bus>(&mut self, bus: &mut B) -> Option<Instruction> {
        match self.next(bus) {
            Next::Instruction(instruction) => Some(instruction),
            Next::Trap(_) | Next::Waiting => None,
        }
    }

    /// The next action of [`Hart::step`]. A timing model that wants no report calls this and then
    /// [`Hart::perform`] or [`Hart::take`], which together are one step.
    #[inline(always)]
    pub fn next<B: Bus>(&mut self, bus: &mut B) -> Next {
        if self.csrs.mip & self.csrs.mie != 0
            && let Some(trap) = self.due_interrupt()
        {
            return Next::Trap(trap);
        }
        if self.waiting {
            return Next::Waiting;
        }
        match self.fetch(bus) {
            Ok(instruction) => Next::Instruction(instruction),
            Err(trap) => Next::Trap(trap),
        }
    }

    /// The same for the usual case: an instruction that was decoded before, without a trap before it; and its
    /// mark. `None` means that [`Hart::next`] must be asked.
    #[inline(always)]
    pub fn ready(&self) -> Option<(&Instruction, u32)> {
        if self.csrs.mip & self.csrs.mie != 0 || self.waiting {
            return None;
        }
        self.fetched.find(self.pc)
    }

    /// Attaches a number to the instruction at `pc`, which [`Hart::ready`] returns. It is forgotten with the
    /// decoded instruction; an instruction without one has the mark zero.
    pub fn mark(&mut self, pc: u64, mark: u32) {
        self.fetched.mark(pc, mark);
    }

    /// Executes the instruction that [`Hart::next`] has just found.
    ///
    /// # Errors
    /// The trap that the instruction caused instead, which has been taken.
    #[inline(always)]
    pub fn perform<B: Bus>(&mut self, instruction: &Instruction, bus: &mut B) -> Result<(), Trap> {
        if let Err(trap) = self.execute(instruction, bus) {
            self.take(trap);
            return Err(trap);
        }
        self.csrs.count();
        Ok(())
    }

    /// Executes an access to a CSR that is not the hart's, may be accessed in every mode, and reads as zero,
    /// with the effect of [`Hart::perform`], but without asking the bus.
    #[inline(always)]
    pub fn perform_foreign(&mut self, instruction: &Instruction) {
        self.x[usize::from(instruction.rd & 31)] = 0;
        self.pc = self.pc.wrapping_add(instruction.length.into());
        self.csrs.count();
    }

    /// Whether it waits for an interrupt, and none is pending.
    pub fn is_waiting(&self) -> bool {
        self.waiting && self.csrs.mip & self.csrs.mie == 0
    }

    /// Whether an interrupt is taken before the next instruction.
    pub fn is_interrupted(&self) -> bool {
        self.csrs.mip & self.csrs.mie != 0 && self.csrs.due_interrupt(self.privilege).is_some()
    }

    /// Another hart, or a device, wrote to memory: a reservation on that line is lost.
    pub fn on_foreign_store(&mut self, address: u64) {
        if self.reservation.is_some_and(|line| line == address / RESERVATION_BYTES) {
            self.reservation = None;
        }
    }

    /// Forgets decoded instructions; for a driver that changes code in memory by itself.
    pub fn flush_fetched(&mut self) {
        self.fetched.flush();
    }

    #[inline(always)]
    fn advance<B: Bus>(&mut self, bus: &mut B) -> Result<(), Trap> {
        if self.csrs.mip & self.csrs.mie != 0
            && let Some(trap) = self.due_interrupt()
        {
            return Err(trap);
        }
        if self.waiting {
            return Ok(());
        }
        let instruction = self.fetch(bus)?;
        self.execute(&instruction, bus)?;
        self.csrs.count();
        Ok(())
    }

    /// An interrupt that is due; one that is only pending ends the wait of `wfi`.
    fn due_interrupt(&mut self) -> Option<Trap> {
        if self.csrs.mip & self.csrs.mie != 0 {
            self.waiting = false;
        }
        let interrupt = self.csrs.due_interrupt(self.privilege)?;
        Some(Trap { cause: Cause::Interrupt(interrupt), value: 0 })
    }

    /// Takes a trap: its handler comes next.
    pub fn take(&mut self, trap: Trap) -> Step {
        let pc = self.pc;
        if let Cause::Exception(_) = trap.cause {
            self.unreturned.get_or_insert((pc, trap));
        }
        self.pc = self.csrs.enter(trap, pc, self.privilege);
        self.privilege = Privilege::Machine;
        self.reservation = None;
        Step::Trapped { pc, trap }
    }

    #[inline(always)]
    fn fetch<B: Bus>(&mut self, bus: &mut B) -> Result<Instruction, Trap> {
        match self.fetched.lookup(self.pc) {
            Some(instruction) => Ok(instruction),
            None => self.fetch_slowly(bus),
        }
    }

    #[cold]
    fn fetch_slowly<B: Bus>(&mut self, bus: &mut B) -> Result<Instruction, Trap> {
        let half = |bus: &mut B, address: u64| {
            let fault = Trap::new(Exception::InstructionAccessFault, address);
            bus.fetch(address).map(u32::from).map_err(|_| fault)
        };
        let low = half(bus, self.pc)?;
        let is_long = low & 3 == 3;
        let high = if is_long { half(bus, self.pc.wrapping_add(2))? } else { 0 };
        let instruction = Instruction::decode(high << 16 | low)
            .map_err(|illegal| Trap::new(Exception::IllegalInstruction, illegal.bits.into()))?;
        self.fetched.insert(self.pc, instruction);
        Ok(instruction)
    }

    /// The memory that `instruction` would access now.
    pub fn access(&self, instruction: &Instruction) -> Option<MemoryAccess> {
        let bytes = instruction.op.access_bytes()?;
        let base = self.x[usize::from(instruction.rs1)];
        let (kind, offset) = match instruction.class() {
            Class::Load => (AccessKind::Load, instruction.immediate),
            Class::Store => (AccessKind::Store, instruction.immediate),
            _ => (AccessKind::Atomic, 0),
        };
        let is_float = matches!(instruction.op, Op::Fsw | Op::Fsd);
        let file = if is_float { &self.f } else { &self.x };
        let operand = if kind == AccessKind::Load { 0 } else { file[usize::from(instruction.rs2)] };
        Some(MemoryAccess { kind, address: base.wrapping_add_signed(offset.into()), bytes, operand })
    }
}
