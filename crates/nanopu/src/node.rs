//! A nanoPU: cores, their memory, and the NIC between them and the wire.

use highwire_riscv::{
    AccessFault, Bus, Cause, Hart, Interrupt, LoadError, Machine, MachineConfig, Platform, Program, Ram, Trap,
};

use crate::config::CoreConfig;
use crate::core::{Core, Event, Turn};
use crate::idle::{self, Watch};
use crate::interface::{Interface, Misuse};
use crate::nic::{Ndp, Nic, NicConfig, Transport};
use crate::packet::Packet;
use crate::port::{Port, csr};
use crate::shared_cache::{SharedCache, SharedCacheConfig};
use crate::timeline::Stamp;

/// How a node is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// How many cores, at least one.
    pub cores: usize,
    /// Each of them.
    pub core: CoreConfig,
    /// The second-level cache, if there is one.
    pub shared_cache: Option<SharedCacheConfig>,
    /// Memory.
    pub memory: MachineConfig,
    /// The NIC.
    pub nic: NicConfig,
    /// Cycles in one tick of the timer.
    pub cycles_per_tick: u64,
    /// Whether a context that took too long stays demoted, as on the prototype.
    pub keeps_demotions: bool,
    /// Whether programs may ask that reads of x30 wait for a word. The prototype's never do.
    pub blocking_reads: bool,
    /// Whether each context of a core may have a bank of registers, so that the scheduler switches without a handler. The prototype
    /// has none.
    pub context_banks: bool,
    /// Whether [`Node::run_until`] passes over cycles in which all cores only poll. No result depends on it.
    pub skips_idle: bool,
}

impl Default for NodeConfig {
    /// One core at 3.2 GHz with a timer of one microsecond.
    fn default() -> NodeConfig {
        NodeConfig {
            cores: 1,
            core: CoreConfig::default(),
            shared_cache: None,
            memory: MachineConfig::default(),
            nic: NicConfig::default(),
            cycles_per_tick: 3200,
            keeps_demotions: true,
            blocking_reads: false,
            context_banks: false,
            skips_idle: true,
        }
    }
}

/// What happened in a cycle that the outside should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// A packet leaves.
    Sent {
        /// The cycle of its first word on the interface.
        first: u64,
        /// The packet.
        packet: Packet,
    },
    /// A core took a trap that is not an interrupt.
    Trapped {
        /// Which.
        core: usize,
        /// Where.
        pc: u64,
        /// Why.
        trap: Trap,
    },
}

/// A node.
#[derive(Clone)]
pub struct Node<T = Ndp> {
    cores: Vec<Core>,
    interfaces: Vec<Interface>,
    platform: Platform,
    shared_cache: Option<SharedCache>,
    nic: Nic<T>,
    cycle: u64,
    cycles_per_tick: u64,
    /// When the clock ticks next.
    next_tick: u64,
    events: Vec<NodeEvent>,
    watches: Vec<Watch>,
    skips_idle: bool,
    skipped: u64,
}

impl Node<Ndp> {
    /// A node whose NIC speaks NDP, with `program` in its memory and all cores at its entry.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(program: &Program, config: &NodeConfig) -> Result<Node<Ndp>, LoadError> {
        Node::with_nic(program, config, Nic::ndp(&config.nic, config.cores))
    }
}

impl<T: Transport> Node<T> {
    /// The same with any transport.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn with_nic(program: &Program, config: &NodeConfig, nic: Nic<T>) -> Result<Node<T>, LoadError> {
        let platform = Machine::new(program, config.memory)?.platform;
        let cores = config.cores.max(1);
        let mut interface = Interface::default();
        if config.keeps_demotions {
            interface.keep_demotions();
        }
        interface.limit_messages(nic.message_bytes_max());
        if config.blocking_reads {
            interface.allow_blocking();
        }
        if config.context_banks {
            interface.give_banks();
        }
        Ok(Node {
            cores: (0..cores as u64)
                .map(|id| {
                    let core = Core::new(Hart::new(id, program.entry), &config.core);
                    if config.context_banks { core.with_banks() } else { core }
                })
                .collect(),
            interfaces: vec![interface; cores],
            platform,
            shared_cache: config.shared_cache.map(SharedCache::new),
            nic,
            cycle: 0,
            cycles_per_tick: config.cycles_per_tick.max(1),
            next_tick: 0,
            events: Vec::new(),
            watches: vec![Watch::default(); cores],
            skips_idle: config.skips_idle,
            skipped: 0,
        })
    }

    /// The cycle that comes next.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// A packet arrives whose first word is on the interface in cycle `first`, not before the one before it has ended.
    pub fn receive(&mut self, first: u64, packet: Packet) {
        self.nic.receive(first + packet.wire_words() - 1, packet);
    }

    /// One cycle. `on_event` sees what each core does in it.
    pub fn tick(&mut self, mut on_event: impl FnMut(usize, Event)) {
        let cycle = self.cycle;
        self.nic.accept(cycle, &mut self.interfaces);
        for number in 0..self.cores.len() {
            let (platform, interface) = (&mut self.platform, &mut self.interfaces[number]);
            let shared_cache = self.shared_cache.as_mut();
            let mut port = CorePort {
                platform,
                shared_cache,
                interface,
                stored: None,
                looked: false,
                acted: false,
                waited: false,
            };
            let turn = self.cores[number].advance(&mut port);
            let CorePort { stored, looked, acted, waited, .. } = port;
            if let Some(address) = stored {
                let others = self.cores.iter_mut().enumerate().filter(|&(other, _)| other != number);
                others.for_each(|(_, other)| other.hart.on_foreign_store(address));
            }
            if acted || turn == Turn::Trap {
                self.watches[number].on_action();
            } else if looked {
                self.watches[number].on_look(cycle, &self.cores[number].hart);
            } else if waited {
                self.watches[number].on_wait(cycle, self.cores[number].is_at_rest());
            }
            if turn == Turn::Trap
                && let Event::Trap { pc, trap, .. } = self.cores[number].event(turn)
                && matches!(trap.cause, Cause::Exception(_))
            {
                self.events.push(NodeEvent::Trapped { core: number, pc, trap });
            }
            on_event(number, self.cores[number].event(turn));
        }
        if let Some((first, packet)) = self.nic.tick(cycle, &mut self.interfaces) {
            self.events.push(NodeEvent::Sent { first, packet });
        }
        self.interfaces.iter_mut().for_each(|interface| interface.tick(cycle));
        // Neither the clock nor a device changes in between.
        if cycle >= self.next_tick || self.platform.wants_attention() {
            self.serve_platform(cycle);
        }
        self.cycle += 1;
    }

    /// What the program has asked of its host, and the clock.
    fn serve_platform(&mut self, cycle: u64) {
        self.platform.serve_program();
        if cycle >= self.next_tick {
            let ticks = cycle / self.cycles_per_tick;
            self.platform.advance_clock(ticks);
            self.next_tick = (ticks + 1) * self.cycles_per_tick;
        }
        self.platform.raise_interrupts(&mut self.cores[0].hart.csrs);
        for (number, core) in self.cores.iter_mut().enumerate().skip(1) {
            self.platform.raise_timer(number, &mut core.hart.csrs);
        }
    }

    /// Runs up to `cycle`, that one excluded.
    pub fn run_until(&mut self, cycle: u64) {
        // Nothing comes from outside before `cycle`, so what was found out about the next event holds until then.
        let mut quiet_until = 0;
        while self.cycle < cycle {
            if self.skips_idle && self.cycle >= quiet_until {
                quiet_until = self.skip(cycle);
            }
            self.tick(|_, _| {});
        }
    }

    /// Passes over whole turns of polling before `limit`, if all cores poll. Returns the cycle before which there is nothing more to pass over.
    fn skip(&mut self, limit: u64) -> u64 {
        let is_quiet = self.interfaces.iter().all(Interface::is_quiet);
        let timer = Interrupt::TIMER;
        let is_alone = self.cores.iter().all(|core| !core.hart.csrs.is_enabled(timer));
        let turns = || self.watches.iter().map(Watch::turn);
        if !is_quiet || !is_alone || turns().any(|turn| turn.is_none()) {
            return self.cycle + 1;
        }
        let Some(common) = idle::common(turns().flatten().map(|(cycles, _)| cycles)) else { return limit };
        let next = self.nic.next_event().min(limit);
        let cycles = next.saturating_sub(self.cycle + 1) / common * common;
        if cycles == 0 {
            return next.max(self.cycle + 1);
        }
        for (core, watch) in self.cores.iter_mut().zip(&mut self.watches) {
            let (turn, per_turn) = watch.turn().expect("asked before");
            let instructions = cycles / turn * per_turn;
            core.pass(cycles, instructions);
            watch.pass(cycles, instructions);
        }
        self.cycle += cycles;
        self.skipped += cycles;
        self.platform.advance_clock(self.cycle.saturating_sub(1) / self.cycles_per_tick);
        next
    }

    /// How many cycles [`Node::run_until`] has passed over.
    pub fn skipped_cycles(&self) -> u64 {
        self.skipped
    }

    /// Whether anything happened since they were last taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records from now on what moves on which cycle.
    pub fn record_timeline(&mut self) {
        self.nic.record_timeline();
        for (number, interface) in self.interfaces.iter_mut().enumerate() {
            interface.timeline.switch_on(Some(number as u8));
        }
    }

    /// What moved since the last call, in order.
    pub fn take_timeline(&mut self) -> Vec<Stamp> {
        let mut stamps = self.nic.take_timeline();
        stamps.extend(self.interfaces.iter_mut().flat_map(|interface| interface.timeline.take()));
        stamps.sort_by_key(|stamp| stamp.cycle);
        stamps
    }

    /// Memory, console and timer.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The NIC, for its counters.
    pub fn nic(&self) -> &Nic<T> {
        &self.nic
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Cores whose words wait for themselves: see [`Nic::deadlocked`].
    pub fn deadlocked(&self) -> Vec<usize> {
        self.nic.deadlocked(&self.interfaces)
    }

    /// A core, from zero.
    pub fn core(&self, number: usize) -> &Core {
        &self.cores[number]
    }

    /// A core, for whoever changes its registers while it stands still.
    pub fn core_mut(&mut self, number: usize) -> &mut Core {
        &mut self.cores[number]
    }

    /// Memory, for whoever changes it while the cores stand still. What they have decoded from there is forgotten.
    pub fn memory_mut(&mut self) -> &mut Ram {
        self.cores.iter_mut().for_each(|core| core.hart.flush_fetched());
        &mut self.platform.ram
    }

    /// The word that the next read of x30 on this core takes, if one is there. It stays.
    pub fn peek_word(&self, core: usize) -> Option<u64> {
        self.interfaces[core].peek_word()
    }

    /// How many words wait for the context that runs on a core.
    pub fn queued_words(&self, core: usize) -> usize {
        self.interfaces[core].queued_words(self.current_context(core))
    }

    /// What the core's program would read from a CSR of the network; zero from any other.
    pub fn network_csr(&self, core: usize, number: u16) -> u64 {
        self.interfaces[core].read(number)
    }

    /// The context that runs on a core.
    pub fn current_context(&self, core: usize) -> u16 {
        self.interfaces[core].read(csr::CURRENT_CONTEXT) as u16
    }

    /// Since when a core has waited for a word with a read of x30, if it did in the last cycle.
    pub fn waiting_since(&self, core: usize) -> Option<u64> {
        self.watches[core].waiting_since(self.cycle)
    }

    /// What a core's program did wrong with the network.
    pub fn misuse(&self, core: usize) -> Misuse {
        self.interfaces[core].misuse()
    }
}

/// What one core reaches.
struct CorePort<'a> {
    platform: &'a mut Platform,
    shared_cache: Option<&'a mut SharedCache>,
    interface: &'a mut Interface,
    /// Where it has stored in this cycle: other cores lose their reservations there.
    stored: Option<u64>,
    /// It looked for messages, and there were none.
    looked: bool,
    /// It did anything else that others could notice, or that depends on others.
    acted: bool,
    /// It did nothing but wait for a word.
    waited: bool,
}

impl CorePort<'_> {
    /// Whether `number` is a CSR of this core's network.
    fn has_csr(&self, number: u16) -> bool {
        csr::is_network(number) && (number != csr::THREAD_ENTRY || self.interface.has_banks())
    }
}

impl Bus for CorePort<'_> {
    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.acted = true;
        self.platform.load(address, bytes)
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        self.stored = Some(address);
        self.acted = true;
        self.platform.store(address, bytes, value)
    }

    #[inline(always)]
    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.platform.fetch(address)
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.platform.fetch_word(address)
    }

    fn read_csr(&mut self, number: u16) -> Option<u64> {
        // The value comes at write-back.
        if self.has_csr(number) { Some(0) } else { self.platform.read_csr(number) }
    }

    fn write_csr(&mut self, number: u16, _: u64) -> bool {
        self.has_csr(number)
    }
}

impl Port for CorePort<'_> {
    const IS_NETWORK: bool = true;

    fn line_cycles(&mut self, address: u64, memory_cycles: u64) -> u64 {
        match &mut self.shared_cache {
            Some(cache) => cache.ask(address, memory_cycles),
            None => memory_cycles,
        }
    }

    fn by(&mut self, pc: u64) {
        self.interface.by(pc);
    }

    fn take_word(&mut self, cycle: u64) -> u64 {
        self.acted = true;
        self.interface.take_word(cycle)
    }

    fn lacks_word(&self) -> bool {
        self.interface.lacks_word()
    }

    fn wait_for_word(&mut self, cycle: u64) {
        self.waited = true;
        self.interface.wait_for_word(cycle);
    }

    fn put_word(&mut self, cycle: u64, word: u64) {
        self.acted = true;
        self.interface.put_word(cycle, word);
    }

    fn promise_word(&mut self) {
        self.acted = true;
        self.interface.promise_word();
    }

    fn put_late_word(&mut self, cycle: u64, word: u64) {
        self.acted = true;
        self.interface.put_late_word(cycle, word);
    }

    fn read_network(&mut self, _: u64, number: u16) -> u64 {
        let value = self.interface.read(number);
        // Other registers of the network stand still while nothing happens, and what is read of them shows in the core's own.
        if number == csr::MESSAGES_READY {
            self.looked |= value == 0;
            self.acted |= value != 0;
        }
        value
    }

    fn write_network(&mut self, cycle: u64, number: u16, value: u64) {
        self.acted |= (number, value) != (csr::THREAD_COMMAND, 2);
        self.interface.write(cycle, number, value);
    }

    fn wants_switch(&self) -> bool {
        self.interface.wants_switch()
    }

    fn wanted_bank(&self) -> Option<(usize, Option<u64>)> {
        self.interface.wanted_bank()
    }

    fn enter_bank(&mut self, cycle: u64, bank: usize) {
        self.acted = true;
        self.interface.enter_bank(cycle, bank);
    }
}
