//! What a program sees of the NIC: requests in, completions out, counts, and an interrupt mask.
//!
//! ```text
//! 0x00 w64 send request      63..48 bytes · 47..0 address
//! 0x08 w64 receive request   63..48 bytes of the buffer, 0 for the longest frame · 47..0 address, a multiple of eight
//! 0x10 r16 send completion: takes one and reads as 1; 0 if there is none
//! 0x12 r16 receive completion: takes one and reads as the frame's bytes; 0 if there is none
//! 0x14 r32 counts: 31..24 receive completions · 23..16 send completions · 15..8 room for receive requests · 7..0 for send requests
//! 0x18 r64 Ethernet address
//! 0x20 rw32 interrupt mask: bit 0 send completions · bit 1 receive completions
//! 0x28 r64 frames lost since reset
//! ```
//!
//! Only these widths at these offsets answer; anything else is an access fault. A request that cannot be
//! served is refused and reported, where the hardware hangs the bus or overwrites memory.
//!
//! The core executes an access when it leaves decode, but the access reaches the NIC a few cycles later. So a
//! load must return what will be in the register by then. The engines know it: they announce when a
//! completion is due as soon as its last block is on the bus.

use std::collections::VecDeque;

use highwire_riscv::{AccessFault, Ram};

use super::{DmaConfig, DmaError, FRAME_BYTES_MAX, Queue};

/// Where the registers lie.
pub const BASE: u64 = 0x1001_6000;
/// How many bytes of addresses they take.
pub const BYTES: u64 = 0x1000;

/// Offsets from [`BASE`].
pub mod register {
    /// Posts a frame to send.
    pub const SEND_REQUEST: u64 = 0x00;
    /// Posts a receive buffer.
    pub const RECEIVE_REQUEST: u64 = 0x08;
    /// Takes a send completion.
    pub const SEND_COMPLETION: u64 = 0x10;
    /// Takes a receive completion.
    pub const RECEIVE_COMPLETION: u64 = 0x12;
    /// Room for requests, and completions.
    pub const COUNTS: u64 = 0x14;
    /// The NIC's Ethernet address.
    pub const MAC: u64 = 0x18;
    /// Which completions raise the interrupt.
    pub const INTERRUPT_MASK: u64 = 0x20;
    /// Frames lost.
    pub const LOST: u64 = 0x28;
}

/// Cycles from a request's arrival until its engine sees it: one into the queue and one out of it.
const QUEUE_CYCLES: u64 = 2;

/// Cycles from decode, where the core executes an access, to write-back, where it leaves the core.
const ISSUE_CYCLES: u64 = 3;

/// Addresses have so many bits.
const ADDRESS_BITS: u32 = 48;

/// A buffer of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) address: u64,
    pub(super) bytes: usize,
    /// The first cycle in which the engine may have it.
    ready: u64,
}

/// The registers and the queues behind them.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    depth: usize,
    mac: u64,
    cycle: u64,
    sends: VecDeque<Request>,
    receives: VecDeque<Request>,
    /// The cycles in which frames have been read.
    sent: VecDeque<u64>,
    /// The cycles in which frames have been written, and their lengths.
    received: VecDeque<(u64, u16)>,
    /// Cycles from the core to a register and back.
    access_cycles: u64,
    /// When the next access can reach the registers: the core has one under way at a time.
    next_access: u64,
    mask: u32,
    /// Frames lost, as the engine says.
    pub(super) lost: u64,
    pub(super) refused: u64,
    errors: Vec<DmaError>,
}

impl Registers {
    pub(super) fn new(config: &DmaConfig) -> Registers {
        Registers {
            depth: config.queue_depth.clamp(1, 255),
            mac: config.mac,
            cycle: 0,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            sent: VecDeque::new(),
            received: VecDeque::new(),
            access_cycles: config.access_cycles(),
            next_access: 0,
            mask: 0,
            lost: 0,
            refused: 0,
            errors: Vec::new(),
        }
    }

    /// A cycle begins.
    pub(super) fn tick(&mut self, cycle: u64) {
        self.cycle = cycle;
    }

    /// The next frame to send, for its engine.
    pub(super) fn next_send(&mut self) -> Option<Request> {
        self.sends.front().filter(|request| request.ready <= self.cycle)?;
        self.sends.pop_front()
    }

    /// The next receive buffer, without taking it.
    pub(super) fn next_receive(&self) -> Option<Request> {
        self.receives.front().copied().filter(|request| request.ready <= self.cycle)
    }

    /// Takes the next receive buffer.
    pub(super) fn take_receive(&mut self) {
        self.receives.pop_front();
    }

    /// A frame will have been read in cycle `due`; false while there is no room for the completion.
    pub(super) fn complete_send(&mut self, due: u64) -> bool {
        let has_room = self.sent.len() < self.depth;
        if has_room {
            self.sent.push_back(due);
        }
        has_room
    }

    /// A frame will have been written in cycle `due`; false while there is no room for the completion.
    pub(super) fn complete_receive(&mut self, due: u64, bytes: usize) -> bool {
        let has_room = self.received.len() < self.depth;
        if has_room {
            self.received.push_back((due, bytes as u16));
        }
        has_room
    }

    /// Whether the NIC asks for the program's attention.
    pub(super) fn wants_interrupt(&self) -> bool {
        let is_sent = self.sent.front().is_some_and(|&due| due <= self.cycle);
        let is_received = self.received.front().is_some_and(|&(due, _)| due <= self.cycle);
        self.mask & 1 != 0 && is_sent || self.mask & 2 != 0 && is_received
    }

    /// The cycle in which an access that executes now reaches the registers.
    fn reach(&mut self) -> u64 {
        let at = (self.cycle + ISSUE_CYCLES + self.access_cycles / 2).max(self.next_access);
        self.next_access = at + self.access_cycles;
        at
    }

    /// The requests refused since the last call.
    pub(super) fn take_errors(&mut self) -> Vec<DmaError> {
        std::mem::take(&mut self.errors)
    }

    pub(super) fn load(&mut self, offset: u64, bytes: u8) -> Result<u64, AccessFault> {
        let at = self.reach();
        Ok(match (offset, bytes) {
            (register::SEND_COMPLETION, 2) => {
                let is_there = self.sent.front().is_some_and(|&due| due <= at);
                match is_there {
                    true => self.sent.pop_front().map_or(0, |_| 1),
                    false => self.refuse(DmaError::Empty(Queue::SendCompletion)),
                }
            }
            (register::RECEIVE_COMPLETION, 2) => {
                let is_there = self.received.front().is_some_and(|&(due, _)| due <= at);
                match is_there {
                    true => self.received.pop_front().map_or(0, |(_, bytes)| bytes.into()),
                    false => self.refuse(DmaError::Empty(Queue::ReceiveCompletion)),
                }
            }
            (register::COUNTS, 4) => self.counts(at),
            (register::MAC, 8) => self.mac,
            (register::INTERRUPT_MASK, 4) => self.mask.into(),
            (register::LOST, 8) => self.lost,
            _ => return Err(AccessFault),
        })
    }

    pub(super) fn store(&mut self, offset: u64, bytes: u8, value: u64, ram: &Ram) -> Result<(), AccessFault> {
        let at = self.reach();
        match (offset, bytes) {
            (register::SEND_REQUEST, 8) => self.post_send(at, value, ram),
            (register::RECEIVE_REQUEST, 8) => self.post_receive(at, value, ram),
            (register::INTERRUPT_MASK, 4) => self.mask = value as u32 & 3,
            _ => return Err(AccessFault),
        }
        Ok(())
    }

    /// The counts as they will be in cycle `at`, as far as is known.
    pub(super) fn counts(&self, at: u64) -> u64 {
        let room = |queue: &VecDeque<Request>| (self.depth - queue.len()) as u64;
        let [receive_room, send_room] = [&self.receives, &self.sends].map(room);
        let sent = self.sent.iter().filter(|&&due| due <= at).count() as u64;
        let received = self.received.iter().filter(|&&(due, _)| due <= at).count() as u64;
        received << 24 | sent << 16 | receive_room << 8 | send_room
    }

    fn post_send(&mut self, at: u64, value: u64, ram: &Ram) {
        let (address, bytes) = split(value);
        let checked = match bytes {
            1..=FRAME_BYTES_MAX => lies_in(ram, address, bytes),
            _ => Err(DmaError::Length { bytes: bytes as u64 }),
        };
        let checked = checked.and(has_room(&self.sends, self.depth, Queue::Send));
        match checked {
            Err(error) => _ = self.refuse(error),
            Ok(()) => self.sends.push_back(Request { address, bytes, ready: at + QUEUE_CYCLES }),
        }
    }

    fn post_receive(&mut self, at: u64, value: u64, ram: &Ram) {
        let (address, bytes) = split(value);
        let bytes = if bytes == 0 { FRAME_BYTES_MAX } else { bytes };
        let checked = match address % 8 {
            0 => lies_in(ram, address, bytes),
            _ => Err(DmaError::Misaligned { address }),
        };
        let checked = checked.and(has_room(&self.receives, self.depth, Queue::Receive));
        match checked {
            Err(error) => _ = self.refuse(error),
            Ok(()) => self.receives.push_back(Request { address, bytes, ready: at + QUEUE_CYCLES }),
        }
    }

    /// Notes a refusal; a refused access reads as zero.
    fn refuse(&mut self, error: DmaError) -> u64 {
        self.refused += 1;
        self.errors.push(error);
        0
    }
}

fn has_room(queue: &VecDeque<Request>, depth: usize, name: Queue) -> Result<(), DmaError> {
    if queue.len() < depth { Ok(()) } else { Err(DmaError::Full(name)) }
}

fn split(value: u64) -> (u64, usize) {
    (value & ((1 << ADDRESS_BITS) - 1), (value >> ADDRESS_BITS) as usize)
}

fn lies_in(ram: &Ram, address: u64, bytes: usize) -> Result<(), DmaError> {
    let refusal = DmaError::Address { address, bytes: bytes as u64 };
    ram.slice(address, bytes).map(|_| ()).ok_or(refusal)
}
