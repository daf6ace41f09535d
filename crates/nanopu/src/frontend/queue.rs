//! The queue of fetched packets.

use super::Packet;

/// As many packets wait at most.
pub(super) const QUEUE_PACKETS: usize = 5;

/// A power of two that holds them.
const PLACES: usize = 8;

const NO_PACKET: Packet =
    Packet { pc: 0, halves: None, taken: false, half: 0, entry: 0, history: 0, replays: false };

/// Packets in order.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    packets: [Packet; PLACES],
    first: usize,
    count: usize,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { packets: [NO_PACKET; PLACES], first: 0, count: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Packet> {
        (self.count > 0).then(|| &self.packets[self.first % PLACES])
    }

    #[inline]
    pub(super) fn push(&mut self, packet: Packet) {
        debug_assert!(self.count < PLACES, "fetch stops before the queue is full");
        self.packets[(self.first + self.count) % PLACES] = packet;
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        self.first = (self.first + 1) % PLACES;
        self.count = self.count.saturating_sub(1);
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}
