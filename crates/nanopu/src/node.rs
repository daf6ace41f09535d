//! A nanoPU: cores, their memory, and the NIC between them and the wire.

mod port;
mod run;

use highwire_riscv::{Hart, LoadError, Machine, MachineConfig, Platform, Program, Ram, Trap};

use crate::config::CoreConfig;
use crate::core::Core;
use crate::idle::Watch;
use crate::interface::{Interface, Misuse};
use crate::nic::{Ndp, Nic, NicConfig, Numbers, Transport};
use crate::packet::Packet;
use crate::port::csr;
use crate::shared_cache::{SharedCache, SharedCacheConfig};
use crate::timeline::Stamp;
use crate::unhandled::{Exceptions, Unhandled};

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
    /// Whether the scheduler decides anew at every event, as on the prototype ([`Interface::decide_anew`]).
    pub decides_anew: bool,
    /// Whether programs may ask that reads of x30 wait for a word. The prototype's never do.
    pub blocking_reads: bool,
    /// Whether each context of a core may have a bank of registers, so that the scheduler switches without a handler. The prototype
    /// has none.
    pub context_banks: bool,
    /// Whether [`Node::run_until`] passes over cycles in which all cores only poll, unless cores tell their stalls. No result depends on it.
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
            decides_anew: true,
            blocking_reads: false,
            context_banks: false,
            skips_idle: true,
        }
    }
}

impl NodeConfig {
    /// The published prototype, with its second-level cache and its rules for message numbers.
    pub fn prototype() -> NodeConfig {
        NodeConfig {
            shared_cache: Some(SharedCacheConfig::default()),
            nic: NicConfig { numbers: Numbers::InReassembly, ..NicConfig::default() },
            ..NodeConfig::default()
        }
    }
}

/// An event that the node's surroundings should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// A packet leaves.
    Sent {
        /// The cycle of its first word on the interface.
        first: u64,
        /// The packet.
        packet: Packet,
    },
    /// A core took an exception that no handler of the program takes: its handler traps at once, or the program has ended in it.
    Trapped {
        /// Which.
        core: usize,
        /// When the first such exception was taken; the event may come later.
        cycle: u64,
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
    exceptions: Vec<Exceptions>,
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
    /// A node whose NIC speaks any transport.
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
        if config.decides_anew {
            interface.decide_anew();
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
            exceptions: vec![Exceptions::default(); cores],
            watches: vec![Watch::default(); cores],
            skips_idle: config.skips_idle && !config.core.tells_stalls,
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

    /// How many cycles [`Node::run_until`] has passed over.
    pub fn skipped_cycles(&self) -> u64 {
        self.skipped
    }

    /// Whether there are events that were not taken yet.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<NodeEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records from now on the cycle of each move of a word or packet.
    pub fn record_timeline(&mut self) {
        self.nic.record_timeline();
        for (number, interface) in self.interfaces.iter_mut().enumerate() {
            interface.timeline.switch_on(Some(number as u8));
        }
    }

    /// The moves since the last call, in order.
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

    /// A core, for a caller that changes its registers while it stands still.
    pub fn core_mut(&mut self, number: usize) -> &mut Core {
        &mut self.cores[number]
    }

    /// Memory, for a caller that changes it while the cores stand still. The cores forget the instructions that they have
    /// decoded from there.
    pub fn memory_mut(&mut self) -> &mut Ram {
        self.cores.iter_mut().for_each(|core| core.hart.flush_fetched());
        &mut self.platform.ram
    }

    /// The word that the next read of x30 on this core would take, if one is there.
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

    /// The first exception of a core whose handler has not returned, as an event, unless it was one.
    pub fn open_trap(&self, core: usize) -> Option<NodeEvent> {
        let Unhandled { cycle, pc, trap } = self.exceptions[core].open(&self.cores[core].hart)?;
        Some(NodeEvent::Trapped { core, cycle, pc, trap })
    }

    /// The mistakes of a core's program.
    pub fn misuse(&self, core: usize) -> Misuse {
        self.interfaces[core].misuse()
    }
}
