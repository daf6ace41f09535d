//! From memory to the wire: blocks are asked for one after the other, and words leave in order as soon as they are there.

use std::collections::VecDeque;

use super::bus::{BEAT_BYTES, Bus, Memory, block_bytes};
use super::registers::Registers;
use super::{Departure, DmaConfig};

/// Cycles from a word's arrival to the wire: it is written into the buffer in one, and read in another.
const BUFFER_CYCLES: u64 = 2;

/// A frame being read.
#[derive(Clone, Debug)]
struct Reading {
    address: u64,
    bytes: usize,
    /// The word-aligned address of the next block, and where the last one ends.
    next: u64,
    end: u64,
    frame: Vec<u8>,
    /// Words of it that have their cycle on the wire, and the first and the last of these cycles.
    words: u64,
    first: u64,
    last: u64,
}

/// The sending engine.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    words_max: usize,
    in_flight_max: usize,
    reading: Option<Reading>,
    /// The cycles in which the blocks in flight are complete.
    in_flight: Vec<u64>,
    /// The cycles in which frames are complete whose completions are not queued yet.
    completing: VecDeque<u64>,
    /// Words that are in the buffer, or will be, and the cycle in which they have left.
    buffered: VecDeque<(u64, usize)>,
    /// The cycle of the next word on the interface, at the earliest.
    wire_free: u64,
    pub(super) sent: u64,
}

impl Sender {
    pub(super) fn new(config: &DmaConfig) -> Sender {
        Sender {
            // A block must fit.
            words_max: config.send_words.max(8),
            in_flight_max: config.in_flight.max(1),
            reading: None,
            in_flight: Vec::new(),
            completing: VecDeque::new(),
            buffered: VecDeque::new(),
            wire_free: 0,
            sent: 0,
        }
    }

    pub(super) fn tick(
        &mut self,
        cycle: u64,
        registers: &mut Registers,
        bus: &mut Bus,
        memory: &mut Memory<'_>,
    ) -> Option<Departure> {
        self.in_flight.retain(|&last| last > cycle);
        while self.buffered.front().is_some_and(|&(gone, _)| gone <= cycle) {
            self.buffered.pop_front();
        }
        if let Some(&due) = self.completing.front()
            && registers.complete_send(due.max(cycle))
        {
            self.completing.pop_front();
        }
        if self.reading.is_none() {
            self.reading = registers.next_send().map(|request| {
                let next = request.address & !(BEAT_BYTES - 1);
                let end = (request.address + request.bytes as u64).next_multiple_of(BEAT_BYTES);
                let (address, bytes) = (request.address, request.bytes);
                let frame = Vec::with_capacity(bytes);
                Reading { address, bytes, next, end, frame, words: 0, first: 0, last: 0 }
            });
        }
        self.read(cycle, bus, memory)
    }

    /// Asks for the next block. With the last block the frame's departure is known and returned.
    fn read(&mut self, cycle: u64, bus: &mut Bus, memory: &mut Memory<'_>) -> Option<Departure> {
        let reading = self.reading.as_mut()?;
        let bytes = block_bytes(reading.next, reading.end - reading.next);
        let words = (bytes / BEAT_BYTES) as usize;
        let buffered: usize = self.buffered.iter().map(|&(_, words)| words).sum();
        if self.in_flight.len() >= self.in_flight_max || buffered + words > self.words_max {
            return None;
        }
        // Blocks arrive in the order in which they are asked for: the buffer keeps it.
        let there = bus.read(cycle, reading.next, bytes, memory);
        let until = (reading.next + bytes).min(reading.address + reading.bytes as u64);
        let from = reading.next.max(reading.address);
        if let Some(found) = memory.ram.slice(from, (until - from) as usize) {
            reading.frame.extend_from_slice(found);
        }
        // Words of an askew frame are put together from two, and the last may be a part of one.
        let is_last = reading.next + bytes >= reading.end;
        let whole = reading.frame.len() as u64 / BEAT_BYTES;
        let ready = if is_last { (reading.frame.len() as u64).div_ceil(BEAT_BYTES) } else { whole };
        let all_there = there + words as u64 - 1;
        for word in reading.words..ready {
            let is_there = (all_there + word + 1).saturating_sub(ready).max(there);
            let out = self.wire_free.max(is_there + BUFFER_CYCLES);
            if word == 0 {
                reading.first = out;
            }
            reading.last = out;
            self.wire_free = out + 1;
        }
        reading.words = ready;
        self.in_flight.push(all_there);
        self.buffered.push_back((self.wire_free, words));
        reading.next += bytes;
        if reading.next < reading.end {
            return None;
        }
        let Reading { frame, first, last, .. } = self.reading.take()?;
        self.completing.push_back(self.in_flight.iter().copied().max().unwrap_or(cycle));
        self.sent += 1;
        Some(Departure { first, last, frame })
    }
}
