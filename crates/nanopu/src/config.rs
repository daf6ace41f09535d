//! The parameters of a core.

/// How a core and its memory are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreConfig {
    /// Cycles from a request on the memory bus to the first word of its answer.
    pub memory_latency_cycles: u64,
    /// Whether cycles like those seen before are repeated from memory instead of being worked out. No result depends on it.
    pub remembers_cycles: bool,
}

impl Default for CoreConfig {
    /// A memory of 40 cycles.
    fn default() -> CoreConfig {
        CoreConfig { memory_latency_cycles: 40, remembers_cycles: true }
    }
}

/// From the answer of the data cache, which is asked first, to the last word of a line of instructions, without memory's
/// latency.
pub(crate) const INSTRUCTION_MISS_CYCLES: u64 = 12;

/// From the miss of a load or store at write-back to the last word of the line, without memory's latency.
pub(crate) const DATA_MISS_CYCLES: u64 = 10;

/// From an access to a device at write-back to its answer at the cache: what the core's own timer takes on Rocket, through both
/// buses between them.
pub(crate) const DEVICE_CYCLES: u64 = 4;

/// From such a miss to the cycle in which the line that must be written back first has left, and is struck off.
pub(crate) const WRITE_BACK_CYCLES: u64 = 13;
