//! The parameters of a core.

/// How a core and its memory are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreConfig {
    /// Cycles from a request on the memory bus to the first word of its answer.
    pub memory_latency_cycles: u64,
    /// Whether cycles like those seen before are repeated from memory instead of being worked out. No result depends on it.
    pub remembers_cycles: bool,
    /// Whether the core accounts for each cycle ([`Stalls`](crate::Stalls)). Then it works out all of them.
    pub tells_stalls: bool,
}

impl Default for CoreConfig {
    /// A memory of 40 cycles.
    fn default() -> CoreConfig {
        CoreConfig { memory_latency_cycles: 40, remembers_cycles: true, tells_stalls: false }
    }
}

/// Cycles from the answer of the data cache, which is probed first, to the last word of a line of
/// instructions, without memory's latency.
pub(crate) const INSTRUCTION_MISS_CYCLES: u64 = 12;

/// Cycles from the miss of a load or store at write-back to the last word of the line, without memory's
/// latency.
pub(crate) const DATA_MISS_CYCLES: u64 = 10;

/// Cycles from an access to a device at write-back to its answer at the cache. The number is that of Rocket's
/// own timer, behind two buses.
pub(crate) const DEVICE_CYCLES: u64 = 4;

/// Cycles from such a miss until the line that must be written back first has left and is struck off.
pub(crate) const WRITE_BACK_CYCLES: u64 = 13;
