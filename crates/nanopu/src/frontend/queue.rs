//! The queue of fetched packets.

use super::Packet;

/// At most so many packets wait.
pub(super) const QUEUE_PACKETS: usize = 5;

/// A power of two that holds them.
const PLACES: usize = 8;

/// Packets in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Queue {
    packets: [Packet; PLACES],
    first: usize,
    count: usize,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { packets: [Packet::NONE; PLACES], first: 0, count: 0 }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The oldest packet; an old one if there is none.
    #[inline(always)]
    pub(super) fn first(&self) -> &Packet {
        &self.packets[self.first % PLACES]
    }

    #[inline(always)]
    pub(super) fn push(&mut self, packet: Packet) {
        debug_assert!(self.count < PLACES, "fetch stops before the queue is full");
        self.packets[(self.first + self.count) % PLACES] = packet;
        self.count += 1;
    }

    /// Takes the oldest packet out; there must be one.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        debug_assert!(self.count > 0, "only what is there is taken");
        self.first += 1;
        self.count -= 1;
    }

    /// Moves the packets to the front, and forgets the old contents of the other places.
    pub(super) fn settle(&mut self) {
        self.packets.rotate_left(self.first % PLACES);
        self.first = 0;
        self.packets[self.count..].fill(Packet::NONE);
    }

    /// All packets of a queue that was settled.
    pub(super) fn packets(&mut self) -> &mut [Packet] {
        &mut self.packets[..self.count]
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}
