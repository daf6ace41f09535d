//! A core with a DMA NIC: what the nanoPU is compared with.

use highwire_riscv::{
    AccessFault, Bus, Cause, Hart, Interrupt, LoadError, Machine, MachineConfig, Platform, Program, Trap,
};

use super::registers::{BASE, BYTES};
use super::{Departure, DmaConfig, DmaCounters, DmaError, DmaNic, Memory};
use crate::config::{CoreConfig, DEVICE_CYCLES};
use crate::core::{Core, Event};
use crate::port::Port;
use crate::shared_cache::{Asked, Asker, SharedCache, SharedCacheConfig};
use crate::unhandled::{Exceptions, Unhandled};

/// How such a node is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaNodeConfig {
    /// The core.
    pub core: CoreConfig,
    /// The second-level cache, through which the NIC reads and writes.
    pub shared_cache: SharedCacheConfig,
    /// Memory.
    pub memory: MachineConfig,
    /// The NIC.
    pub dma: DmaConfig,
    /// Cycles in one tick of the timer.
    pub cycles_per_tick: u64,
}

impl Default for DmaNodeConfig {
    /// The nanoPU's core and memory, and the prototype's second-level cache.
    fn default() -> DmaNodeConfig {
        DmaNodeConfig {
            core: CoreConfig::default(),
            shared_cache: SharedCacheConfig::default(),
            memory: MachineConfig::default(),
            dma: DmaConfig::default(),
            cycles_per_tick: 3200,
        }
    }
}

/// An event that the node's surroundings should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DmaEvent {
    /// A frame leaves.
    Sent(Departure),
    /// The NIC refused a request of the program.
    Refused {
        /// The place in the program: an instruction at or a little before this address.
        pc: u64,
        /// Why the NIC refused it.
        error: DmaError,
    },
    /// The core took an exception that no handler of the program takes: its handler traps at once, or the program has ended in it.
    Trapped {
        /// When the first such exception was taken; the event may come later.
        cycle: u64,
        /// Where.
        pc: u64,
        /// Why.
        trap: Trap,
    },
}

/// The node.
pub struct DmaNode {
    core: Core,
    platform: Platform,
    shared_cache: SharedCache,
    nic: DmaNic,
    cycle: u64,
    cycles_per_tick: u64,
    memory_cycles: u64,
    events: Vec<DmaEvent>,
    exceptions: Exceptions,
}

impl DmaNode {
    /// A node with `program` in its memory and its core at the entry.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(program: &Program, config: &DmaNodeConfig) -> Result<DmaNode, LoadError> {
        Ok(DmaNode {
            core: Core::new(Hart::new(0, program.entry), &config.core),
            platform: Machine::new(program, config.memory)?.platform,
            shared_cache: SharedCache::new(config.shared_cache),
            nic: DmaNic::new(&config.dma),
            cycle: 0,
            cycles_per_tick: config.cycles_per_tick.max(1),
            memory_cycles: config.core.memory_latency_cycles,
            events: Vec::new(),
            exceptions: Exceptions::default(),
        })
    }

    /// The cycle that comes next.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// A frame arrives whose first word is on the interface in cycle `first`, not before the one before it has ended.
    pub fn receive(&mut self, first: u64, frame: Vec<u8>) {
        let words = frame.len().div_ceil(8).max(1) as u64;
        self.nic.receive(first + words - 1, frame);
    }

    /// One cycle. `on_event` sees what the core does in it.
    pub fn tick(&mut self, mut on_event: impl FnMut(Event)) {
        let cycle = self.cycle;
        let mut memory = Memory {
            ram: &mut self.platform.ram,
            cache: &mut self.shared_cache,
            core: &mut self.core,
            memory_cycles: self.memory_cycles,
        };
        let departure = self.nic.tick(cycle, &mut memory);
        self.events.extend(departure.map(DmaEvent::Sent));
        let pc = self.core.hart.pc;
        let DmaNode { core, platform, shared_cache, nic, .. } = self;
        let mut port = DmaPort { platform, shared_cache, recalled: Vec::new(), nic, cycle };
        let event = core.tick(&mut port);
        for address in port.recalled {
            core.take_line(address);
        }
        if let Event::Trap { cycle, pc, trap } = event
            && matches!(trap.cause, Cause::Exception(_))
            && let Some(Unhandled { cycle, pc, trap }) =
                self.exceptions.on_exception(cycle, (pc, trap), &self.core.hart)
        {
            self.events.push(DmaEvent::Trapped { cycle, pc, trap });
        }
        let refused = self.nic.registers.take_errors();
        self.events.extend(refused.into_iter().map(|error| DmaEvent::Refused { pc, error }));
        on_event(event);
        self.platform.serve_program();
        if let Some(code) = self.platform.exit_code()
            && let Some(Unhandled { cycle, pc, trap }) = self.exceptions.on_exit(code, &self.core.hart)
        {
            self.events.push(DmaEvent::Trapped { cycle, pc, trap });
        }
        if cycle.is_multiple_of(self.cycles_per_tick) {
            self.platform.advance_clock(cycle / self.cycles_per_tick);
        }
        let csrs = &mut self.core.hart.csrs;
        self.platform.raise_interrupts(csrs);
        csrs.set_pending(Interrupt::EXTERNAL, self.nic.registers.wants_interrupt());
        self.cycle += 1;
    }

    /// Runs up to `cycle`, that one excluded.
    pub fn run_until(&mut self, cycle: u64) {
        while self.cycle < cycle {
            self.tick(|_| {});
        }
    }

    /// Whether anything happened since it was last taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<DmaEvent> {
        std::mem::take(&mut self.events)
    }

    /// Memory, console and timer.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The first exception whose handler has not returned, as an event, unless it was one.
    pub fn open_trap(&self) -> Option<DmaEvent> {
        let Unhandled { cycle, pc, trap } = self.exceptions.open(&self.core.hart)?;
        Some(DmaEvent::Trapped { cycle, pc, trap })
    }

    /// The NIC's counters.
    pub fn counters(&self) -> DmaCounters {
        self.nic.counters()
    }
}

/// The core's port to memory, devices and the NIC.
struct DmaPort<'a> {
    platform: &'a mut Platform,
    shared_cache: &'a mut SharedCache,
    /// Lines that the second-level cache asks back.
    recalled: Vec<u64>,
    nic: &'a mut DmaNic,
    cycle: u64,
}

/// The offset of a register, if the address is one's.
fn offset(address: u64) -> Option<u64> {
    address.checked_sub(BASE).filter(|&offset| offset < BYTES)
}

impl Bus for DmaPort<'_> {
    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        match offset(address) {
            Some(offset) => self.nic.registers.load(offset, bytes),
            None => self.platform.load(address, bytes),
        }
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        match offset(address) {
            Some(offset) => self.nic.registers.store(offset, bytes, value, &self.platform.ram),
            None => self.platform.store(address, bytes, value),
        }
    }

    #[inline(always)]
    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.platform.fetch(address)
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.platform.fetch_word(address)
    }

    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        self.platform.code_changes()
    }

    fn read_csr(&mut self, number: u16) -> Option<u64> {
        self.platform.read_csr(number)
    }
}

impl Port for DmaPort<'_> {
    fn device_cycles(&self, address: u64) -> u64 {
        match offset(address) {
            Some(_) => self.nic.access_cycles,
            None => DEVICE_CYCLES,
        }
    }

    fn line_cycles(&mut self, asker: Asker, address: u64, memory_cycles: u64) -> u64 {
        let Asked { cycles, recalled } = self.shared_cache.ask(asker, address, memory_cycles);
        self.recalled.extend(recalled);
        self.nic.bus.fill(self.cycle, cycles)
    }
}
