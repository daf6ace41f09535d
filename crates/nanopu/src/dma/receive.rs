//! From the wire to memory: frames are stored whole, then written block by block into the next receive buffer.

use std::collections::VecDeque;

use super::bus::{BEAT_BYTES, Bus, Memory, block_bytes};
use super::registers::Registers;
use super::{DmaConfig, DmaCounters, FRAME_BYTES_MAX};

/// Cycles from a frame's last word on the interface until the writer has its first: its length is noted in
/// one, and the buffer's memory is read in another.
const BUFFER_CYCLES: u64 = 2;

/// A frame being written.
#[derive(Clone, Debug)]
struct Writing {
    frame: Vec<u8>,
    address: u64,
    /// Bytes that have left the writer.
    done: usize,
    /// The first cycle in which the next block can begin.
    next: u64,
    /// The frame's completion has been queued for the program.
    is_told: bool,
}

/// The receiving engine.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    words_max: usize,
    in_flight_max: usize,
    /// Frames on the wire, and the cycles of their last words.
    wire: VecDeque<(u64, Vec<u8>)>,
    /// Frames in the NIC, and when the writer can have them.
    frames: VecDeque<(u64, Vec<u8>)>,
    words: usize,
    writing: Option<Writing>,
    /// When the blocks in flight are acknowledged.
    in_flight: Vec<u64>,
    pub(super) counters: DmaCounters,
}

impl Receiver {
    pub(super) fn new(config: &DmaConfig) -> Receiver {
        Receiver {
            words_max: config.receive_words,
            in_flight_max: config.in_flight.max(1),
            wire: VecDeque::new(),
            frames: VecDeque::new(),
            words: 0,
            writing: None,
            in_flight: Vec::new(),
            counters: DmaCounters::default(),
        }
    }

    pub(super) fn arrive(&mut self, last: u64, frame: Vec<u8>) {
        self.wire.push_back((last, frame));
    }

    pub(super) fn tick(
        &mut self,
        cycle: u64,
        registers: &mut Registers,
        bus: &mut Bus,
        memory: &mut Memory<'_>,
    ) {
        self.in_flight.retain(|&acknowledged| acknowledged > cycle);
        while self.wire.front().is_some_and(|&(last, _)| last <= cycle) {
            self.store(cycle);
        }
        if self.writing.is_none() {
            self.begin(cycle, registers);
        }
        self.write(cycle, bus, memory);
        self.finish(cycle, registers);
        registers.lost = self.counters.lost();
    }

    /// Stores frames that are whole; a frame is lost if there is no room for it.
    fn store(&mut self, cycle: u64) {
        let Some((last, frame)) = self.wire.pop_front() else { return };
        self.counters.received += 1;
        let words = frame.len().div_ceil(BEAT_BYTES as usize);
        if frame.is_empty() || frame.len() > FRAME_BYTES_MAX {
            self.counters.malformed += 1;
        } else if self.words + words > self.words_max {
            self.counters.without_room += 1;
        } else {
            self.words += words;
            self.frames.push_back((last.max(cycle) + BUFFER_CYCLES, frame));
        }
    }

    /// The next frame finds its buffer, or is lost because it is too long for it.
    fn begin(&mut self, cycle: u64, registers: &mut Registers) {
        let Some(request) = registers.next_receive() else { return };
        if self.frames.front().is_none_or(|&(ready, _)| ready > cycle) {
            return;
        }
        let Some((_, frame)) = self.frames.pop_front() else { return };
        if frame.len() > request.bytes {
            self.counters.too_long += 1;
            self.words -= frame.len().div_ceil(BEAT_BYTES as usize);
            return;
        }
        registers.take_receive();
        self.writing =
            Some(Writing { frame, address: request.address, done: 0, next: cycle, is_told: false });
    }

    /// The next block goes onto the bus.
    fn write(&mut self, cycle: u64, bus: &mut Bus, memory: &mut Memory<'_>) {
        let Some(writing) = &mut self.writing else { return };
        let left = writing.frame.len() - writing.done;
        if left == 0 || writing.next > cycle || self.in_flight.len() >= self.in_flight_max {
            return;
        }
        let address = writing.address + writing.done as u64;
        // The last word is written as far as the frame goes.
        let block = block_bytes(address, (left as u64).next_multiple_of(BEAT_BYTES)) as usize;
        let end = writing.frame.len().min(writing.done + block);
        let (last, acknowledged) = bus.write(cycle, address, &writing.frame[writing.done..end], memory);
        (writing.done, writing.next) = (end, last + 1);
        self.in_flight.push(acknowledged);
    }

    /// A frame is in memory when all of its blocks are acknowledged.
    fn finish(&mut self, cycle: u64, registers: &mut Registers) {
        let Some(writing) = self.writing.as_mut().filter(|writing| writing.done == writing.frame.len())
        else {
            return;
        };
        let due = self.in_flight.iter().copied().max().unwrap_or(cycle).max(cycle);
        if !writing.is_told && registers.complete_receive(due, writing.frame.len()) {
            writing.is_told = true;
            self.counters.delivered += 1;
            self.words -= writing.frame.len().div_ceil(BEAT_BYTES as usize);
        }
        if writing.is_told && due <= cycle {
            self.writing = None;
        }
    }
}
