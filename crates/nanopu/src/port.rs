//! Where the network meets the register file: x30, x31 and a handful of CSRs (nanoPU §3).
//!
//! A read of x30 takes a word from the receive queue when the instruction leaves decode; a write to x31 puts one into the transmit
//! queue when the register file would be written, which is at write-back, or later if the multiplier, the divider or a device has the
//! word; the CSRs act at write-back. The hardware must undo these effects when it kills an instruction; here
//! instructions on wrong paths do not execute, so there is nothing to undo.

use highwire_riscv::{Bus, Interrupt, Platform, Ram};

use crate::config::DEVICE_CYCLES;
use crate::shared_cache::Asker;

/// The register whose reads take words off the receive queue.
pub const RX_REGISTER: u8 = 30;
/// The register whose writes put words into the transmit queue.
pub const TX_REGISTER: u8 = 31;
/// The interrupt by which the scheduler asks for another thread.
pub const SWITCH_THREAD: Interrupt = Interrupt(16);

/// The network's control and status registers. Writing to them flushes nothing.
pub mod csr {
    /// Non-zero while words wait for the current context.
    pub const MESSAGES_READY: u16 = 0x52;
    /// The context that runs.
    pub const CURRENT_CONTEXT: u16 = 0x53;
    /// Bit 0 makes the current context known; bit 2 starts the timers; bit 3 lets reads of x30 wait, on a core that can.
    pub const NIC_COMMAND: u16 = 0x54;
    /// The priority of the context that runs; 0 is the most urgent.
    pub const CURRENT_PRIORITY: u16 = 0x55;
    /// Bit 0: the message is done. Bit 1: nothing to do.
    pub const THREAD_COMMAND: u16 = 0x56;
    /// Bit 0: the NIC takes commands. Bit 1: reads of x30 can wait here. Bit 2: threads have banks of registers. Bit 3: reads wait.
    pub const NIC_READY: u16 = 0x57;
    /// The context that the scheduler wants to run.
    pub const TARGET_CONTEXT: u16 = 0x58;
    /// Its priority.
    pub const TARGET_PRIORITY: u16 = 0x59;
    /// Cycles that a message of the highest priority may take before its context is demoted.
    pub const MESSAGE_CYCLES: u16 = 0x60;
    /// Cycles without anything to do before the next context gets its turn.
    pub const IDLE_CYCLES: u16 = 0x61;
    /// Where the current context's thread begins in a bank of registers of its own; only on cores that have banks.
    pub const THREAD_ENTRY: u16 = 0x62;

    /// Whether `number` is one of them.
    pub(crate) const fn is_network(number: u16) -> bool {
        matches!(number, MESSAGES_READY..=TARGET_PRIORITY | MESSAGE_CYCLES..=THREAD_ENTRY)
    }
}

/// What a core reaches beyond its pipeline: memory, and the network if it has one.
///
/// Cycles are the core's own. The defaults are those of a core without a network, to which x30 and x31 are ordinary registers.
pub trait Port: Bus {
    /// Whether x30, x31 and the CSRs are the network's.
    const IS_NETWORK: bool = false;

    /// A first-level cache asks for the line of `address`. Returns the cycles to its first word: by default
    /// `memory_cycles`, the latency of memory.
    fn line_cycles(&mut self, asker: Asker, address: u64, memory_cycles: u64) -> u64 {
        let _ = (asker, address);
        memory_cycles
    }

    /// The core asks a device for `address`. Returns the cycles from write-back to the answer at the cache.
    fn device_cycles(&self, address: u64) -> u64 {
        let _ = address;
        DEVICE_CYCLES
    }

    /// Names the instruction, at `pc`, that makes the next call.
    fn by(&mut self, pc: u64) {
        let _ = pc;
    }

    /// The instruction that leaves decode reads x30.
    fn take_word(&mut self, cycle: u64) -> u64 {
        let _ = cycle;
        0
    }

    /// Whether a read of x30 has to wait now: reads wait on this core, and the queue of the context that runs is empty.
    fn lacks_word(&self) -> bool {
        false
    }

    /// The program's next instruction is a read of x30 that waits, and no instruction is in the pipeline
    /// before it.
    fn wait_for_word(&mut self, cycle: u64) {
        let _ = cycle;
    }

    /// An instruction that commits has written x31.
    fn put_word(&mut self, cycle: u64, word: u64) {
        let _ = (cycle, word);
    }

    /// An instruction commits that will write x31 later: a unit computes the word, or a device is asked for it.
    fn promise_word(&mut self) {}

    /// The promised word is written, before any other.
    fn put_late_word(&mut self, cycle: u64, word: u64) {
        let _ = (cycle, word);
    }

    /// A CSR is read at write-back.
    fn read_network(&mut self, cycle: u64, number: u16) -> u64 {
        let _ = (cycle, number);
        0
    }

    /// A CSR is written at write-back.
    fn write_network(&mut self, cycle: u64, number: u16, value: u64) {
        let _ = (cycle, number, value);
    }

    /// Whether the scheduler asks for another thread.
    fn wants_switch(&self) -> bool {
        false
    }

    /// The bank of registers of the thread that the scheduler asks for, and where that thread begins if it
    /// has not run; `None` if a handler has to switch.
    fn wanted_bank(&self) -> Option<(usize, Option<u64>)> {
        None
    }

    /// The core runs the thread of `bank` from this cycle on.
    fn enter_bank(&mut self, cycle: u64, bank: usize) {
        let _ = (cycle, bank);
    }
}

impl Port for Ram {}
impl Port for Platform {}
