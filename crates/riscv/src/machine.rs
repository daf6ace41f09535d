//! One hart with memory, a timer and a console: enough to run a bare-metal program to its exit.
//!
//! The program talks to its host through the words `tohost` and `fromhost` (HTIF), and to the timer and the
//! software interrupt at the addresses of a SiFive CLINT. There is no cycle time here: an instruction takes
//! one cycle.

mod clint;
mod htif;

use crate::bus::{AccessFault, Bus, Ram};
use crate::csr::{Csrs, number};
use crate::elf::{LoadError, Program};
use crate::hart::{Hart, RunEnd};
use crate::retired::Step;
use crate::trap::{Interrupt, Trap};
use clint::Clint;
use htif::Htif;

/// The configuration of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MachineConfig {
    /// The start of memory.
    pub memory_base: u64,
    /// The size of memory.
    pub memory_bytes: usize,
    /// How many instructions make one tick of `mtime`; at least one.
    pub instructions_per_tick: u64,
}

impl Default for MachineConfig {
    /// 16 MiB at 0x8000_0000, and a clock that ticks every hundred instructions.
    fn default() -> MachineConfig {
        MachineConfig { memory_base: 0x8000_0000, memory_bytes: 16 << 20, instructions_per_tick: 100 }
    }
}

/// One hart and the platform to which it is connected.
#[derive(Clone)]
pub struct Machine {
    /// The hart.
    pub hart: Hart,
    /// Memory and devices.
    pub platform: Platform,
    instructions_per_tick: u64,
}

/// The reason for a run's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The program exited with this code.
    Code(u64),
    /// The program used up its instructions.
    Limit,
    /// The hart waits, and no interrupt can ever come.
    Asleep,
    /// A trap whose handler lies where there is no memory: usually `mtvec` was never set.
    Unhandled {
        /// The address of the trap.
        pc: u64,
        /// The trap.
        trap: Trap,
    },
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub exit: Exit,
    /// Instructions retired since the machine was made.
    pub instructions: u64,
}

/// Memory, timer and console, as the hart sees them.
#[derive(Clone, Debug)]
pub struct Platform {
    /// The memory.
    pub ram: Ram,
    clint: Clint,
    htif: Htif,
    attention: bool,
}

impl Machine {
    /// A machine with `program` in its memory.
    pub fn new(program: &Program, config: MachineConfig) -> Result<Machine, LoadError> {
        let mut ram = Ram::new(config.memory_base, config.memory_bytes);
        for segment in &program.segments {
            let outside = LoadError::OutsideMemory {
                address: segment.address,
                bytes: segment.memory_bytes,
                memory_base: config.memory_base,
                memory_bytes: config.memory_bytes as u64,
            };
            let size = usize::try_from(segment.memory_bytes).ok();
            let memory = size.and_then(|size| ram.slice_mut(segment.address, size)).ok_or(outside)?;
            memory[..segment.bytes.len()].copy_from_slice(&segment.bytes);
        }
        let htif = Htif::new(program.address_of("tohost"), program.address_of("fromhost"));
        Ok(Machine {
            hart: Hart::new(0, program.entry),
            platform: Platform { ram, clint: Clint::default(), htif, attention: false },
            instructions_per_tick: config.instructions_per_tick.max(1),
        })
    }

    /// Runs until the program exits, or until `instructions` more have been executed.
    pub fn run(&mut self, instructions: u64) -> Outcome {
        let mut left = instructions;
        let exit = loop {
            if let Some(code) = self.platform.htif.exit_code() {
                break Exit::Code(code);
            }
            if left == 0 {
                break Exit::Limit;
            }
            let chunk = left.min(self.instructions_per_tick);
            let before = self.hart.csrs.minstret;
            let end = self.hart.run(&mut self.platform, chunk);
            let executed = self.hart.csrs.minstret.wrapping_sub(before);
            // Traps spend the budget without retiring anything.
            left -= if end == RunEnd::Budget { chunk } else { executed.min(chunk) };
            match end {
                RunEnd::Unhandled { pc, trap } => break Exit::Unhandled { pc, trap },
                RunEnd::Waiting
                    if !self.platform.clint.skip_to_alarm(self.hart.csrs.is_enabled(Interrupt::TIMER)) =>
                {
                    break Exit::Asleep;
                }
                _ => self.refresh(),
            }
        };
        Outcome { exit, instructions: self.hart.csrs.minstret }
    }

    /// Executes one instruction, or takes one trap; time and devices advance.
    pub fn step(&mut self) -> Step {
        let step = self.hart.step(&mut self.platform);
        if step == Step::Waiting {
            self.platform.clint.skip_to_alarm(self.hart.csrs.is_enabled(Interrupt::TIMER));
        }
        self.refresh();
        step
    }

    /// What the program has written to its console.
    pub fn console(&self) -> &[u8] {
        self.platform.console()
    }

    /// Appends bytes that the program can read from its console.
    pub fn type_in(&mut self, bytes: &[u8]) {
        self.platform.htif.type_in(bytes);
    }

    /// The code that the program has exited with, if it has.
    pub fn exit_code(&self) -> Option<u64> {
        self.platform.exit_code()
    }

    /// Updates the devices after the hart's step, and the hart's interrupts from the devices.
    fn refresh(&mut self) {
        self.platform.serve_program();
        self.platform.advance_clock(self.hart.csrs.minstret / self.instructions_per_tick);
        self.platform.raise_interrupts(&mut self.hart.csrs);
    }
}

impl Platform {
    /// Answers the program's requests to its host. For a driver that runs a hart by itself, after each
    /// instruction or cycle.
    #[inline]
    pub fn serve_program(&mut self) {
        if std::mem::take(&mut self.attention) {
            self.htif.serve(&mut self.ram);
        }
    }

    /// Sets the number of ticks that have passed.
    pub fn advance_clock(&mut self, ticks: u64) {
        self.clint.advance(ticks);
    }

    /// Shows the timer's interrupt to hart `hart`, which has an alarm if it is one of the first sixteen.
    #[inline]
    pub fn raise_timer(&self, hart: usize, csrs: &mut Csrs) {
        csrs.set_pending(Interrupt::TIMER, self.clint.is_timer_due(hart));
    }

    /// Shows the timer's and the software interrupt to the first hart.
    #[inline]
    pub fn raise_interrupts(&self, csrs: &mut Csrs) {
        csrs.set_pending(Interrupt::TIMER, self.clint.is_timer_due(0));
        csrs.set_pending(Interrupt::SOFTWARE, self.clint.is_software_due());
    }

    /// The time at which hart `hart`'s timer is due, if it was ever set.
    pub fn alarm(&self, hart: usize) -> Option<u64> {
        self.clint.alarm(hart)
    }

    /// What the program has written to its console.
    pub fn console(&self) -> &[u8] {
        self.htif.console()
    }

    /// The code that the program has exited with, if it has.
    pub fn exit_code(&self) -> Option<u64> {
        self.htif.exit_code()
    }

    fn device_store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        self.attention = true;
        self.clint.store(address, bytes, value)
    }
}

impl Bus for Platform {
    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.ram.load(address, bytes).or_else(|_| self.clint.load(address, bytes))
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if self.ram.store(address, bytes, value).is_err() {
            return self.device_store(address, bytes, value);
        }
        self.attention |= self.htif.is_doorbell(address);
        Ok(())
    }

    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.ram.load(address, 2).map(|value| value as u16)
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.ram.fetch_word(address)
    }

    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        self.ram.code_changes()
    }

    fn read_csr(&mut self, csr: u16) -> Option<u64> {
        (csr == number::TIME).then(|| self.clint.now())
    }

    #[inline(always)]
    fn wants_attention(&self) -> bool {
        self.attention
    }
}
