//! The baseline that the nanoPU is compared with: the same core with a NIC that moves frames between the wire and memory, through
//! the second-level cache (nanoPU §5).
//!
//! ```text
//! wire ─► packet buffer ─► writer ─┐                       ┌─► core, x30 and x31 plain registers
//!                                  ├─► second-level cache ─┤
//! wire ◄─ send buffer ◄── reader ◄─┘        │ probes       └── first-level caches
//!                                           ▼
//!            registers: requests in, completions out ◄──── device accesses
//! ```
//!
//! The shape is that of the public IceNIC: a program posts the addresses of buffers, polls counts of completions, and writes an
//! address and a length to send. There is no transport: the program receives and sends frames.

mod bus;
mod error;
mod link;
mod node;
mod receive;
mod registers;
mod send;

pub use error::{DmaError, Queue};
pub use link::{DmaAnswer, DmaLink};
pub use node::{DmaEvent, DmaNode, DmaNodeConfig};
pub use registers::{BASE, BYTES, register};

use crate::config::DEVICE_CYCLES;
use bus::Bus;
use receive::Receiver;
use registers::Registers;
use send::Sender;

pub(crate) use bus::Memory;

/// The longest frame, in bytes: headers of 64 bytes and a message of 2,048 fit.
pub const FRAME_BYTES_MAX: usize = 2112;

/// How a DMA NIC is built. The defaults are the public IceNIC's, as single nodes of the prototype's time were built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaConfig {
    /// Entries of each queue of requests and of completions, at most 255, because a count has eight bits.
    pub queue_depth: usize,
    /// Words of eight bytes that wait for a receive buffer. A frame that finds no room is lost, and counted.
    pub receive_words: usize,
    /// Words on their way from memory to the wire.
    pub send_words: usize,
    /// Blocks of at most 64 bytes that each direction has in flight.
    pub in_flight: usize,
    /// Cycles between an engine and the second-level cache, each way.
    pub hop_cycles: u64,
    /// The Ethernet address that the program reads from the NIC.
    pub mac: u64,
}

impl Default for DmaConfig {
    /// Queues of 64; 1,800 words in, two frames of 1,520 bytes out; eight blocks in flight. The hop is a
    /// guess: a register at the NIC's port, and one where the bus of devices that read memory meets the
    /// system's.
    fn default() -> DmaConfig {
        DmaConfig {
            queue_depth: 64,
            receive_words: 1800,
            send_words: 380,
            in_flight: 8,
            hop_cycles: 2,
            mac: 0x0844_3322_1108,
        }
    }
}

impl DmaConfig {
    /// Cycles from the core to a register and back: those of the core's timer, and the hop in both
    /// directions.
    fn access_cycles(&self) -> u64 {
        DEVICE_CYCLES + 2 * self.hop_cycles
    }
}

/// Counters of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DmaCounters {
    /// Frames that came over the wire.
    pub received: u64,
    /// Received frames that are in a receive buffer of the program.
    pub delivered: u64,
    /// Lost because the NIC's own buffer was full: no receive buffer was posted for too long.
    pub without_room: u64,
    /// Lost because they were longer than the receive buffer that was next, which stays posted.
    pub too_long: u64,
    /// Lost because they were empty, or longer than [`FRAME_BYTES_MAX`].
    pub malformed: u64,
    /// Frames that left.
    pub sent: u64,
    /// Requests that were refused; [`DmaEvent::Refused`] says which and why.
    pub refused: u64,
    /// Blocks that the first-level cache held when the NIC wrote or read them.
    pub probed: u64,
}

impl DmaCounters {
    /// Received frames that no program will see.
    pub fn lost(&self) -> u64 {
        self.without_room + self.too_long + self.malformed
    }
}

/// A frame on its way out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// The cycle of its first word on the interface.
    pub first: u64,
    /// The cycle of its last. Words in between may have gaps: memory does not always keep up.
    pub last: u64,
    /// Its bytes.
    pub frame: Vec<u8>,
}

/// The NIC.
#[derive(Clone, Debug)]
pub struct DmaNic {
    registers: Registers,
    receiver: Receiver,
    sender: Sender,
    bus: Bus,
    access_cycles: u64,
}

impl DmaNic {
    /// A NIC without requests.
    pub fn new(config: &DmaConfig) -> DmaNic {
        DmaNic {
            registers: Registers::new(config),
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            bus: Bus::new(config.hop_cycles),
            access_cycles: config.access_cycles(),
        }
    }

    /// A frame whose last word is on the interface in cycle `last`. Frames come in the order of `last`.
    pub fn receive(&mut self, last: u64, frame: Vec<u8>) {
        self.receiver.arrive(last, frame);
    }

    /// One cycle. Returns the frame whose departure it decides, which may lie in a later cycle.
    pub(crate) fn tick(&mut self, cycle: u64, memory: &mut Memory<'_>) -> Option<Departure> {
        self.registers.tick(cycle);
        self.receiver.tick(cycle, &mut self.registers, &mut self.bus, memory);
        self.sender.tick(cycle, &mut self.registers, &mut self.bus, memory)
    }

    /// Its counters.
    pub fn counters(&self) -> DmaCounters {
        let DmaCounters { received, delivered, without_room, too_long, malformed, .. } =
            self.receiver.counters;
        DmaCounters {
            received,
            delivered,
            without_room,
            too_long,
            malformed,
            sent: self.sender.sent,
            refused: self.registers.refused,
            probed: self.bus.probed,
        }
    }
}

#[cfg(test)]
mod tests;
